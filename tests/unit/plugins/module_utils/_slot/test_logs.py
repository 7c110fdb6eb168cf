# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logs of failed engines in `logs/`, each with its right diagnosis in its head.

Lines that begin with "kernel: " are those of the kernel's log beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds import kernel
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.first_error import first_error
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.known import KERNEL
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import diagnose, warnings
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.vllm import VLLM

FOLDER = Path(__file__).parent / "logs"


@dataclass(frozen=True)
class Case:
    name: str
    head: dict[str, str]
    log: tuple[str, ...]
    kernel: tuple[str, ...]

    @property
    def kind(self):
        return KINDS[self.head["kind"]]

    def named(self):
        """The id of the symptom that is named for it, and the advice."""
        match = diagnose(self.log, kind=self.kind, kernel=self.kernel)
        return ("none", "") if match is None else (match.symptom.id, match.advice)


def read(path: Path) -> Case:
    lines = path.read_text().splitlines()
    head = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    rest = [line for line in lines if not line.startswith("# ")]
    said = tuple(line for line in rest if line.startswith("kernel: "))
    return Case(path.stem, head, tuple(line for line in rest if line not in said), kernel.about(said, [""]))


CASES = [read(path) for path in sorted(FOLDER.glob("*.txt"))]
EVERY = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@EVERY
def test_the_symptom_of_each_log_is_named_with_its_remedy(case):
    symptom, advice = case.named()
    assert symptom == case.head["symptom"]
    assert case.head.get("advice", "") in advice


@EVERY
def test_the_first_error_of_each_log_is_found_without_a_table(case):
    cause = first_error(case.log, case.kind)
    if "cause" in case.head:
        assert cause is not None
        assert cause.lines[0].startswith(case.head["cause"])
    elif case.head["symptom"] == "none":
        assert cause is None


@EVERY
def test_an_engine_that_serves_is_warned_about_what_its_log_says_against_it(case):
    assert [match.symptom.id for match in warnings(case.log, case.kind)] == case.head.get("warns", "").split()


# Lines in the forms of their programs, whose whole log is in no file here.
LINES = [
    ("vllm", "mamba_pointer", "ValueError: Overflow when unpacking long long"),
    ("vllm", "mamba_pointer", "OverflowError: Python int too large to convert to C long"),
    ("vllm", "no_quantisation", "KeyError: <PlatformEnum.XPU: 4>"),
    ("vllm", "no_quantisation", "NotImplementedError: No quark compatible scheme was found."),
    ("vllm", "cards_do_not_divide", "NotImplementedError: Pipeline parallelism is not supported for this model."),
    ("vllm", "missing_operator", "AttributeError: '_OpNamespace' '_moe_C' object has no attribute 'topk_softmax'"),
    ("vllm", "device_lost", "RuntimeError: level_zero backend failed with error 20 (UR_RESULT_ERROR_DEVICE_LOST)."),
    ("vllm", "collectives_failed", "RuntimeError: oneCCL: global.cpp:88 init: EXCEPTION: no transport"),
    ("vllm", "context_does_not_fit", "ValueError: the estimated maximum model length is 114432. Try"),
    ("vllm", "memory_changed", "AssertionError: Error in memory profiling. Initial free memory 30.1 GiB, now 31.0 GiB"),
    (
        "vllm",
        "vram_share_too_high",
        "ValueError: Free memory on device xpu:0 (2/31 GiB) on startup is less than desired",
    ),
    ("vllm", "kernels_abi", "ImportError: /x/_C.so: undefined symbol: _ZN5torch7Library4_defE"),
    ("vllm", "duplicate_handler", "AssertionError: Handler already registered for aten"),
    ("vllm", "removed_argument", "vllm: error: unrecognized arguments: --async-engine"),
    ("vllm", "fp8_scales", "RuntimeError: could not set scales primitive attribute"),
    ("vllm", "turboquant_workspace", "AssertionError: Workspace is locked but allocation from x requires 3 MB"),
    ("vllm", "kv_offload", "Exception: CPU Offloading is currently only supported on CUDA-alike GPUs"),
    ("vllm", "nan_logprobs", "ValueError: Out of range float values are not JSON compliant"),
    ("vllm", "multimodal_profiling", "ValueError: Found 1 image token in the prompt"),
    ("vllm", "no_compiler", "RuntimeError: Failed to find C compiler. Please specify via CC environment variable."),
    ("vllm", "refused_settings", "pydantic_core._pydantic_core.ValidationError: 1 validation error for EngineArgs"),
    ("vllm", "shm_stall", "No available shared memory broadcast block found in 60 seconds."),
    ("vllm", "engine_core_died", "RuntimeError: Engine core initialization failed. See root cause above."),
    ("vllm", "compiler_crash", "IGC: Internal Compiler Error: Segmentation violation"),
    ("vllm", "unknown_variable", "Unknown vLLM environment variable detected: VLLM_XPU_X"),
    ("vllm", "slow_attention", "FA2 not available, forcing TRITON_ATTN backend"),
    ("llama-server", "broken_weights", "error loading model: tensor 'blk.0.attn_q.weight' data is not within the file"),
    ("llama-server", "context_failed", "failed to create context with model '/models/x.gguf'"),
    ("vllm", "out_of_resources", "RuntimeError: Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)"),
    (
        "vllm",
        "out_of_resources",
        "RuntimeError: UR backend failed. UR backend returns:39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    ),
    ("vllm", "device_lost", "RuntimeError: Triton Error [ZE]: 0x70000001"),
    (
        "vllm",
        "device_lost",
        "oneCCL: ze_call.cpp:43 do_call: ze error at zeFenceHostSynchronize, code: ZE_RESULT_ERROR_DEVICE_LOST",
    ),
    ("vllm", "runtime_unknown", "RuntimeError: Triton Error [ZE]: 0x7ffffffe"),
    ("vllm", "kernel_build_failed", "RuntimeError: Triton Error [ZE]: 0x70000004"),
    ("vllm", "kernel_build_failed", "RuntimeError: ZE_RESULT_ERROR_INVALID_KERNEL_NAME"),
    ("vllm", "graph_recording", "RuntimeError: ext_oneapi_get_graph() can only be called on recording queues."),
    (
        "vllm",
        "collectives_no_devices",
        "RuntimeError: oneCCL: ze_fd_manager.cpp:280 init: EXCEPTION: device_fd is invalid value",
    ),
    ("vllm", "missing_library", "Cannot open plugin library: libccl.so.1: cannot open shared object file"),
    ("vllm", "missing_module", "ImportError: libsycl.so.8: cannot open shared object file: No such file or directory"),
    ("vllm", "torch_without_cards", "RuntimeError: PyTorch is not linked with support for xpu devices"),
    ("vllm", "no_cards", "RuntimeError: Device string must not be empty"),
    (
        "vllm",
        "kernel_too_large",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 1",
    ),
    (
        "vllm",
        "quantisations_differ",
        "ValueError: Quantization method specified in the model config (fp8) does not match the argument (inc).",
    ),
    (
        "vllm",
        "too_few_cards",
        "ValueError: World size (4) is larger than the number of available GPUs (2) in this node.",
    ),
    (
        "vllm",
        "cards_do_not_divide",
        "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (3).",
    ),
    ("vllm", "no_quantisation", "ValueError: awq_marlin quantization is currently not supported in xpu."),
    (
        "vllm",
        "weights_do_not_match",
        "ValueError: Following weights were not initialized from checkpoint: {'model.layers.4.mlp.down_proj.weight'}",
    ),
    (
        "vllm",
        "missing_weights",
        "OSError: Can't load tokenizer for '/models/x'. If you were trying to load it from a hub",
    ),
    (
        "vllm",
        "remote_code",
        "ValueError: The repository /models/x contains custom code which must be executed to correctly load the model.",
    ),
    (
        "vllm",
        "port_in_use",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address.",
    ),
    ("vllm", "not_started", "b70-slot-main-a.service: Main process exited, code=exited, status=203/EXEC"),
    (
        "vllm",
        "container_not_started",
        "Error: crun: cannot find `vllm` in $PATH: No such file or directory: OCI runtime attempted to invoke",
    ),
    ("vllm", "too_little_memory", "b70-slot-main-a.service: A process of this unit has been killed by the OOM killer."),
    ("vllm", "worker_died", "Worker proc VllmWorker-0 died unexpectedly, shutting down executor."),
    (
        "llama-server",
        "out_of_resources",
        "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    ),
    ("llama-server", "out_of_resources", "alloc_tensor_range: failed to allocate SYCL0 buffer of size 17179869184"),
    ("llama-server", "out_of_resources", "ggml_vulkan: Device memory allocation of size 2147483648 failed."),
    (
        "llama-server",
        "out_of_resources",
        "MESA: error: ../src/intel/vulkan/anv_device.c:4237: VK_ERROR_OUT_OF_DEVICE_MEMORY",
    ),
    ("llama-server", "card_error", "Native API failed. Native API returns: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
    ("llama-server", "card_error", "MESA: error: ../src/intel/vulkan/xe/anv_queue.c:52: VK_ERROR_DEVICE_LOST"),
    (
        "llama-server",
        "runtime_unknown",
        "Native API failed. Native API returns: -999 (Unknown PI error) -999 (Unknown PI error)",
    ),
    ("llama-server", "sycl_error", "Error OP RMS_NORM"),
    (
        "llama-server",
        "assertion",
        "/src/ggml/src/ggml-sycl/ggml-sycl.cpp:6054: [get_memory] failed to get device memory size",
    ),
    ("llama-server", "no_cards", "ggml_vulkan: No devices found."),
    ("llama-server", "no_cards", "ggml_sycl_init: found 0 SYCL devices:"),
    ("llama-server", "wrong_value", 'error while handling argument "--flash-attn": unknown value'),
    ("llama-server", "vulkan_error", "terminate called: vk::createInstance: ErrorIncompatibleDriver"[18:]),
    ("llama-server", "engine_crashed", "b70-slot-main-a.service: Main process exited, code=dumped, status=6/ABRT"),
]


@pytest.mark.parametrize(("kind", "symptom", "line"), LINES)
def test_a_line_is_named_with_and_without_the_prefixes_of_its_engine(kind, symptom, line):
    prefixes = {"vllm": ["", "(Worker_TP1 pid=9) ", "(EngineCore_DP0 pid=9) ERROR 11-27 10:00:00 [core.py:1] "]}
    for prefix in prefixes.get(kind, ["", "0.10.284.233 E "]):
        match = diagnose(["INFO before", f"{prefix}{line}", "INFO after"], kind=KINDS[kind])
        assert match is not None
        assert match.symptom.id == symptom
        assert "{1}" not in match.advice


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("[drm] *ERROR* GT0: Timed out wait for G2H, fence 1, action 4601, done no", False),
        ("[drm] Tile0: GT0: Engine reset: engine_class=bcs, logical_mask: 0x1, guc_id=28", False),
        ("[drm] VM worker error: -12", False),
        ("[drm] exec queue reset detected", False),
        ("PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer", False),
        ("[drm] device wedged, but recovered through reset", False),
        ("[drm] device wedged, needs recovery", True),
        ("Unable to change power state from D3cold to D0, device inaccessible", True),
        ("[drm] *ERROR* Failed to initialize uC (-EIO)", True),
    ],
)
def test_the_kernels_words_about_a_card(words, lost):
    line = f"2026-06-07T09:12:40+00:00 host1 kernel: xe 0000:03:00.0: {words}"
    fault = kernel.card_fault(line)
    assert fault is not None
    assert fault.lost is lost
    match = diagnose(["INFO"], kernel=[line])
    assert match is not None
    assert match.symptom.id == ("device_lost" if lost else "card_fault")


def test_every_row_of_the_table_is_found_in_some_log():
    found = {case.head["symptom"] for case in CASES} | {symptom for _kind, symptom, _line in LINES}
    rows = {symptom.id for kind in KINDS.values() if not kind.remote for symptom in kind.symptoms}
    assert not rows - found
    assert not {symptom.id for symptom in KERNEL} - found


def test_no_remedy_for_a_lack_of_card_memory_in_vllm_is_fewer_sequences():
    advices = [symptom.advice for symptom in VLLM.symptoms if symptom.id == "out_of_resources"]
    assert all("gpu_memory_utilization" in advice and "max_num_batched_tokens" in advice for advice in advices)
    assert not [advice for advice in advices if "max_num_seqs" in advice or "max_model_len" in advice]


def test_how_many_logs_are_named():
    named = [case.name for case in CASES if case.named()[0] == case.head["symptom"]]
    told = f"{len(named)} of {len(CASES)} logs have the right diagnosis"
    print(told)
    assert told == f"{len(CASES)} of {len(CASES)} logs have the right diagnosis"
