# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The known symptoms of engines, of what they run on and of the kernel: their words, what they mean and what to do.

This is data, and its only home; `symptoms.diagnose` searches it. Rows are ordered by how much they explain: the first
one that is found is named. A pattern has to match where the message begins, behind the prefixes of its line and the
names of exceptions. `{1}` in an advice is what the first group of the pattern found. An id has one meaning, whoever has
it; the advice may differ.
"""

from __future__ import annotations

import re

from .kind import Symptom

# Prefixes of a message: exceptions of Python and C++, the executor of vLLM, functions and parts of llama.cpp.
_LEAD = (
    r"(?:\s*what\(\): +|(?:[a-z_]\w*\.)+[A-Z]\w*: +|[\w.:]*(?:Error|Exception|Exit|Compiler)(?:\([\w.]*\))?: +"
    r"|Value error, |Worker failed with error '|error loading model: |error: |llama-server: |ggml_\w+: |llama_\w+: "
    r"|clip_\w+: |mtmd_\w+: |common_\w+: |graph_reserve: |load_model: |alloc_tensor_range: )*"
)
# Repetitions of Level Zero's errors by the layers above it: SYCL, Unified Runtime, torch, Triton, oneCCL.
_CALL = (
    r"(?:(?:\w+ backend failed with error|Native API failed\. Native API returns|"
    r"UR backend failed\. UR backend returns):? ?-?\d+ \(|ur error )?"
)
_CCL = r"(?:oneCCL: )?(?:[\w/.-]+\.[ch]pp:\d+ \w+: )?(?:EXCEPTION: )?"
CHECK_FAILED = r"Health check for server remote/remote failed, reason: "

_SEGFAULT = re.compile(
    r"!+ Segfault encountered|Fatal Python error: Segmentation|Segmentation fault(?:$| \()|.{0,90}11/SEGV"
)


def _error(names: str, number: str = "", code: str = "") -> str:
    """Return a pattern of an error of the runtime. names: its names without what they begin with. number: those of
    Unified Runtime. code: those of Level Zero, in hexadecimal digits."""
    found = [
        rf"{_CALL}(?:UR_RESULT|PI)_ERROR_(?:{names})\b",
        rf"{_CCL}ze error at \w+, code: ZE_RESULT_ERROR_(?:{names})\b",
    ]
    if number:
        found.append(rf"(?:level_zero|opencl) backend failed with error:? ?-?(?:{number})\b")
    if code:
        found.append(rf"Triton Error \[ZE\]: (?:{code})\b")
    found.append(rf"ZE_RESULT_ERROR_(?:{names})\b")
    return "|".join(found)


def _row(
    id: str,
    pattern: str,
    meaning: str,
    advice: str,
    *,
    fatal: bool = True,
    harmless: bool = False,
    vague: bool = False,
    warns: bool = False,
    needs: re.Pattern[str] | None = None,
) -> Symptom:
    words = f"{_LEAD}(?:{pattern})"
    return Symptom(
        id, words, meaning, advice, fatal and not (harmless or warns), harmless or warns, vague, warns, needs
    )


_LOST = _error("DEVICE_LOST", "20", "0x70000001")
_MEMORY = _error("OUT_OF_(?:RESOURCES|DEVICE_MEMORY)", "39|40", "0x70000003")
_FIRST = (
    " Where it comes with the first small allocation, before weights are loaded, the card is at fault and no setting "
    "is: see `journalctl -k`, and reboot the host."
)
_RUN_STACK = "Run the role stack again: "

# Errors of the layers between an engine and a card, in whatever engine.
_RUNTIME = (
    _row(
        "gpu_page_fault",
        r"Segmentation fault from GPU at (\S+?),",
        "a kernel on a card touched memory that is not mapped, and the runtime ended the process",
        "Restart the engine. When it comes back, take a stack with another runtime or kernels, and keep the log.",
    ),
    _row(
        "runtime_abort",
        r"Abort was called at \d+ line in file",
        "the cards' runtime ended the process itself; the card is not lost",
        "Restart the engine. When it comes back, lower max_num_batched_tokens (llama.cpp: ubatch_size), or take a "
        "stack with another runtime, and report the file and the line to the runtime's authors.",
    ),
    _row(
        "missing_header",
        r"\S+: fatal error: '?(?:level_zero/\w+\.h|ze_api\.h)\b",
        "a header that kernels are compiled with at run time is missing",
        "Install libze-dev, which has the headers of Level Zero, where the engine runs.",
    ),
    _row(
        "missing_header",
        r"\S+: fatal error: '?Python\.h\b",
        "a header that kernels are compiled with at run time is missing",
        "Install the -dev package of the engine's Python (python3-dev, python3.12-dev), which has Python.h.",
    ),
    _row(
        "missing_header",
        r"\S+: fatal error: '?([\w./+-]+)'?(?: file not found|: No such file or directory)",
        "a header that kernels are compiled with at run time is missing",
        "Install the package that has {1} where the engine runs.",
    ),
    _row(
        "kernel_build_failed",
        _error(
            "(?:PROGRAM|MODULE)_(?:BUILD|LINK)_(?:FAILURE|ERROR)|INVALID_(?:KERNEL_NAME|BINARY|NATIVE_BINARY)",
            "",
            "0x7000000[45]|0x7800000f|0x7800001[0-8]",
        )
        + r"|The program was built for \d+ devices|Build program log for ",
        "the kernel compiler could not build a kernel for the card",
        "Set a new cache key (engine.cache_key), and take a stack with another IGC when it comes back.",
    ),
    _row(
        "no_cards",
        r"No XPU devices are available|(?:\S+ UserWarning: )?XPU device count is zero|Failed to infer device type"
        r"|Device string must not be empty"
        r"|No device of requested type available|[Nn]o (?:SYCL |Vulkan |XPU )?(?:GPU )?devices? (?:was |were )?found"
        r"|found 0 (?:SYCL|Vulkan) devices|" + _error("UNINITIALIZED|DEVICE_NOT_FOUND", "", "0x78000001"),
        "the engine sees no card",
        "Run the doctor: it checks the driver, the groups render and video, the cards' memory windows (Resizable BAR) "
        "and the runtime. Compare ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR with the cards of this host.",
        vague=True,
    ),
    _row(
        "small_bar",
        r"(?:WARNING: )?Resizable BAR not detected for device (\S+)",
        "a card's memory window is smaller than its memory, so the runtime refuses the card",
        "Turn on Resizable BAR and Above 4G Decoding in the machine's setup ({1}).",
    ),
    _row(
        "torch_without_cards",
        r"PyTorch is not linked with support for xpu|Torch not compiled with (?:XPU|CUDA) enabled",
        "this PyTorch has no support for the cards",
        _RUN_STACK + "its lock pins a torch with +xpu, and another one is installed.",
    ),
    _row(
        "runtime_unknown",
        _error("UNKNOWN", "2147483646", "0x7ffffffe") + r"|Native API failed\. Native API returns: -\d+ \(Unknown",
        "the cards' runtime failed and names no reason",
        "The kernel's log decides: where it reports a reset or a wedged card, reboot the host; where it reports "
        "nothing, take a stack with another runtime.",
        vague=True,
    ),
    _row(
        "onednn_primitive",
        r"could not (?:create|execute) a (?:\w+ )?primitive",
        "the cards' library of operators (oneDNN) refuses an operation",
        "With little free memory lower gpu_memory_utilization (llama.cpp: ubatch_size); otherwise take another type of "
        "quantisation or a stack with another runtime.",
    ),
)

# The collectives of several cards.
_COLLECTIVES = (
    _row(
        "collectives_need_peer_access",
        _CCL + r"ze error at zeMem(?:Open|Get|Put)IpcHandle\w*",
        "the collectives need access from card to card: this host can't open the memory of another card",
        "Set engine.collectives.memory: usm, which sets CCL_TOPO_P2P_ACCESS=0, "
        "CCL_SYCL_ALLREDUCE_SIMPLE_THRESHOLD=4294967296, CCL_SYCL_REDUCE_SCATTER_SIMPLE_THRESHOLD=4294967296, "
        "CCL_SYCL_ALLGATHERV_SIMPLE_THRESHOLD=4294967296 and CCL_SYCL_ALLTOALL_TMP_BUF=1; otherwise serve one engine "
        "per card (replicas).",
    ),
    _row(
        "collectives_no_level_zero",
        _CCL + r"(?:ze_data was not initialized|could not open the library: libze_loader\.so)",
        "oneCCL found no Level Zero",
        "Install libze-dev, which has libze_loader.so, in the place where the engine runs.",
    ),
    _row(
        "collectives_no_devices",
        _CCL + r"(?:opendir failed: could not open device directory|.{0,60}could not open (?:the )?/dev/dri|"
        r".{0,40}device_?fds?\b.{0,80})|oneCCL: \S+ (?:init|fill)_device_fds: .{0,100}",
        "oneCCL could not open the cards' device files",
        "Give the engine /dev/dri with its folder by-path and the group render; an image whose own oneCCL finds no "
        "device files needs another image.",
    ),
    _row(
        "collectives_no_workers",
        _CCL + r"(?:.{0,60}failed to start worker|start_workers: .{0,100})|oneCCL: \S+ start_workers: .{0,100}",
        "oneCCL could not start its threads",
        "Set CCL_WORKER_AFFINITY in the profile to processors that the engine may use, or remove it, and see whether "
        "its NUMA binding leaves enough of them.",
    ),
    _row(
        "graph_recording",
        r".{0,120}(?:do not support sycl_graph recording|graph recording (?:mode )?is not supported)"
        r"|ext_oneapi_get_graph\(\) can only be called on recording"
        r"|.{0,60}handler::depends_on does not correspond to a node within the graph"
        r"|Graph nodes cannot depend on events from outside the graph"
        r"|.{0,90}not yet available for use with the SYCL Graph",
        "this stack can't record an operation of the model into a graph",
        "Set compilation_config.cudagraph_mode to NONE in the profile, or take a stack with a newer oneCCL and "
        "newer kernels.",
    ),
    _row(
        "collectives_crash",
        r"failed to get PCI device: (\[[\w:.]+\])",
        "a crash in the collectives, which see a card that has no place on the PCI bus",
        "Hide the other GPU ({1}) with ZE_AFFINITY_MASK; in a virtual machine give the guest the real PCI topology.",
        needs=_SEGFAULT,
    ),
    _row(
        "collectives_failed",
        # The words of the others when a worker has ended are no reason.
        r"oneCCL: (?!pmi_|\S*kvs)(?:\S+ \w+: )?EXCEPTION: (.{1,120})",
        "the collectives between the cards failed",
        "oneCCL says: {1}. Remove the profile's CCL_ variables; serve one engine per card (replicas) when it comes "
        "back.",
    ),
)

_MIRROR = (
    "With two or more cards in one process the driver keeps a copy of the cards' memory in the host's: set "
    "NEOReadDebugKeys=1 and EnableDeferBacking=0 in the profile's env, or add memory or swap."
)

# Errors of the host about any process.
_HOST = (
    _row(
        "too_little_memory",
        r"(?:\S+\.service: )?[\w ,=']{0,60}"
        r"(?:Out of memory: Killed process|oom-kill|signal=9/KILL|Main process exited, code=killed, status=9"
        r"|killed by the OOM killer)",
        "the kernel or systemd ended the process, most often for want of memory",
        "See `journalctl -k` for the kernel's reason; add swap or lower the load on the host's memory.",
    ),
    _row(
        "host_memory_short",
        _error("OUT_OF_HOST_MEMORY", "38", "0x70000002")
        + r"|std::bad_alloc|MemoryError\b|\[Errno 12\]|Cannot allocate memory|failed to mlock"
        r"|.{0,60}DefaultCPUAllocator: can't allocate",
        "the process got no memory of the host",
        "Add memory or swap, or lower the load on the host's memory. " + _MIRROR,
    ),
    _row(
        "disk_full",
        r"\[Errno 28\]|.{0,80}No space left on device",
        "a file system has no space left",
        "Free space where the engine writes: the cache directory, /tmp and /dev/shm (`df -h`).",
    ),
    _row(
        "permission_denied",
        r"\[Errno 13\] Permission denied: '(/dev/dri/[^']{1,80})'",
        "the engine may not open a file",
        "Put the engine's account into the group that owns {1}, most often render: run the role host again.",
    ),
    _row(
        "permission_denied",
        r"\[Errno 13\] Permission denied(?:: '([^']{1,200})')?",
        "the engine may not open a file",
        "Let the engine's account read it, and write it if it is a cache ({1}).",
    ),
    _row(
        "not_started",
        r"(?:\S+: )?Failed at step (\w+) spawning|(?:\S+: )?Failed to locate executable (\S+):"
        r"|.{0,60}status=2\d\d/(EXEC|NAMESPACE|USER|GROUP|CGROUP|CHDIR|STATE_DIRECTORY)",
        "systemd could not start the engine's program",
        "See the line of systemd ({1}): run the role stack again when the program is missing, and the role slot when "
        "an account or a directory is.",
    ),
    _row(
        "container_not_started",
        r"Error: .{0,200}(?:crun|runc|OCI |no such image|image not known|initializing source|short-name)",
        "Podman could not start the container",
        "See the line of Podman. Run the role stack again when the image is missing.",
    ),
    _row(
        "missing_library",
        r"\S+: error while loading shared libraries: (\S+):|\S+: symbol lookup error: (?:\S+: )?(.{1,120})"
        r"|Cannot open plugin library: (\S+):|oneCCL could not be initialized",
        "a library of the stack is missing or of another version",
        "Run the role stack again ({1}).",
    ),
)

# Lines that only say that something ended. Before a signal, the reason may stand further up.
_ENDED = (
    _row(
        "engine_crashed",
        r"!+ Segfault encountered|Fatal Python error: |(?:Segmentation fault|Bus error|Illegal instruction)(?:$| \()"
        r"|\*\*\* SIG\w+ received|(?:free|malloc|realloc|munmap_chunk)\(\): |double free or corruption"
        r"|corrupted (?:size|double)|\*\*\* stack smashing detected|terminate called|pure virtual method called"
        r"|(?:\S+\.service: )?Main process exited, code=(?:killed|dumped), status=(?:[4678]|11)/\w+"
        r"|Process \d+ \(.{1,40}\) of user \d+ (?:dumped core|terminated abnormally)",
        "the engine crashed in native code",
        "The lines below the crash name the library, and so does `journalctl -k`: take another version of it (the "
        "stack, or the driver), and report it there.",
        vague=True,
    ),
)

_VAGUE_DIED = "What failed first is shown as the cause; the rest is in the unit's log (journalctl -u UNIT)."

VLLM = (
    _row(
        "device_lost",
        _LOST + "|GPU HANG",
        "a card was lost: a fault of driver or runtime under load",
        "Keep the log. With several cards, first set engine.collectives.memory: usm, or serve one engine per card. "
        "Reboot the host when the next engine fails too, and only then lower max_num_seqs.",
    ),
    *_COLLECTIVES,
    _row(
        "out_of_resources",
        r"XPU out of memory|torch\.OutOfMemoryError|.{0,40}Tried to allocate [\d.]+ [KMG]iB",
        "a card ran out of memory or of command space",
        "Lower gpu_memory_utilization (or kv_cache_memory_bytes), which leaves more room beside the KV cache, or "
        "max_num_batched_tokens. Fewer or shorter sequences free nothing: the KV cache keeps its size.",
    ),
    _row(
        "out_of_resources",
        _MEMORY,
        "a card ran out of memory or of command space",
        "Lower gpu_memory_utilization (or kv_cache_memory_bytes) or max_num_batched_tokens: the KV cache keeps its "
        "size, so fewer sequences free nothing of it." + _FIRST,
    ),
    _row(
        "context_does_not_fit",
        r"(?:To serve at least one request .{0,500}?\b)?(?:the )?estimated maximum model length is (\d+)",
        "the context does not fit into the memory that is left for the KV cache",
        "Set max_model_len to at most {1}, or free memory on the cards.",
    ),
    _row(
        "context_does_not_fit",
        r"To serve at least one request with the model(?:s)?'s max seq len",
        "the context does not fit into the memory that is left for the KV cache",
        "Lower max_model_len, or free memory on the cards (a display takes some).",
    ),
    _row(
        "no_room_for_cache",
        r"No available memory for the cache blocks",
        "the weights leave no memory for the KV cache",
        "Raise gpu_memory_utilization, lower max_num_batched_tokens, or take a smaller checkpoint or more cards.",
    ),
    _row(
        "memory_changed",
        r"Error in memory profiling",
        "another process took or freed memory of the card while the engine measured it",
        "See who else holds the card (`b70ctl cards`), and start the engine again.",
    ),
    _row(
        "vram_share_too_high",
        r"Free memory on device .{0,120} is less than desired",
        "gpu_memory_utilization asks for more memory than is free on the card",
        "Lower gpu_memory_utilization to 0.95 or below, and see who else holds the card.",
    ),
    _row(
        "context_too_long",
        r"User-specified max_model_len \((\d+)\) is greater than the derived max_model_len",
        "the profile's context is longer than the model's",
        "Lower max_model_len to what the model's config.json allows; {1} is more.",
    ),
    _row(
        "kernels_abi",
        r"(?:Failed to import from .{0,200})?\S+: undefined symbol: \S*(?:torch|c10|at)\S*",
        "a binary was built for another version of PyTorch",
        "Build vllm-xpu-kernels from source against the installed torch: run the role stack again.",
    ),
    _row(
        "missing_operator",
        r"(?:'_OpNamespace' )?'?_\w*C'? object has no attribute '(\w+)'"
        r"|(?:module '\S+'|\S+) has no attribute '(\w+)' in torch\.ops"
        r"|Could not run '([\w:]+)' with arguments from the|operator ([\w:]+) does not exist",
        "the installed kernels lack an operator that the engine calls",
        "Install the vllm-xpu-kernels that belong to this vLLM: run the role stack again ({1}).",
    ),
    _row(
        "duplicate_handler",
        r"Handler already registered for",
        "this version of PyTorch can't compile the model ahead of time",
        "Use the torch version that the stack manifest pins (2.11.0+xpu).",
    ),
    _row(
        "removed_argument",
        r"(?:[\w .-]{1,60}: error: )?unrecognized arguments: (.{1,120})",
        "the installed engine does not know an argument of the profile",
        "Remove {1} from the profile: engines drop arguments between versions.",
    ),
    _row(
        "wrong_value",
        r"(?:[\w .-]{1,60}: error: )?argument (\S+): (?:invalid|expected)",
        "the installed engine does not take a value of the profile",
        "Correct {1} in the profile's settings.",
    ),
    _row(
        "remote_code",
        r".{0,200}(?:requires you to execute the (?:configuration|modeling) file|contains custom code)|"
        r".{0,200}trust_remote_code=True",
        "the model brings code of its own, which the profile does not allow",
        "Read that code, then set trust_remote_code in the profile's settings; or take a release that knows the model.",
    ),
    _row(
        "kernel_too_large",
        r"out of resource: .{0,80}Hardware limit",
        "a Triton kernel needs more local memory than the card has",
        "Take a stack with another triton-xpu or vLLM, or set attention_backend or enforce_eager in the profile.",
    ),
    _row(
        "quantisations_differ",
        r"Quantization method specified in the model config \((\S+)\) does not match",
        "the profile names another quantisation than the checkpoint",
        "Remove quantization from the profile's settings: the checkpoint says {1}.",
    ),
    _row(
        "too_few_cards",
        r".{0,80}larger than the number of available (?:GPUs|XPUs|devices)|.{0,80}number of available GPUs",
        "the profile wants more cards than the engine sees",
        "Run the doctor, and compare tensor_parallel_size and ZE_AFFINITY_MASK with the cards of this host.",
    ),
    _row(
        "cards_do_not_divide",
        r"Total number of attention heads \((\d+)\) must be divisible by tensor parallel size",
        "the model can't be divided among so many cards",
        "Set tensor_parallel_size to a number that divides {1}.",
    ),
    _row(
        "cards_do_not_divide",
        r"Weight (?:in|out)put_\w*size = \d+ is not divisible by weight quantization"
        r"|Pipeline parallelism is not supported",
        "the model can't be divided among so many cards",
        "Set tensor_parallel_size lower, and remove pipeline_parallel_size from the profile's settings.",
    ),
    _row(
        "no_moe_kernel",
        r"No \w+ MoE backend supports the deployment configuration",
        "this checkpoint's quantisation has no kernel for mixtures of experts on these cards",
        "Take a checkpoint that AutoRound (INC) quantised, or an FP8 one.",
    ),
    _row(
        "no_quantisation",
        r"(?:The|.{0,40}) ?quantization method:? '?([\w-]+)'? is (?:currently )?not supported"
        r"|([\w-]+) quantization is currently not supported in|Unknown quantization method: ([\w.-]+)"
        r"|KeyError: <?PlatformEnum\.XPU|No ([\w-]+) compatible scheme was found|Unsupported FusedMoe scheme",
        "these cards have no kernels for the checkpoint's quantisation",
        "Take a checkpoint of another quantisation ({1}): AutoRound (INC) has kernels, or take none.",
    ),
    _row(
        "fp8_scales",
        r"could not set scales primitive attribute",
        "the cards' FP8 primitive refuses these scales",
        "Use an INT4 profile of the model.",
    ),
    _row(
        "mamba_pointer",
        r"Python int too large to convert to C long|Overflow when unpacking long",
        "a device pointer is converted as a signed number when Mamba states are copied",
        "Install a stack with the unsigned pointer patch.",
    ),
    _row(
        "turboquant_workspace",
        r"Workspace is locked but allocation from",
        "the workspace of a quantised KV cache was locked before it had its size",
        "Do not use a TurboQuant KV cache type on these cards.",
    ),
    _row(
        "kv_offload",
        r"CPU Offloading is currently only supported on CUDA-alike",
        "this release does not offload the KV cache to the host's memory from these cards",
        "Remove kv_offloading_size from the profile, or take a stack with vLLM 0.26 or newer.",
    ),
    _row(
        "nan_logprobs",
        r"Out of range float values are not JSON compliant",
        "the engine computed NaN",
        "Do not request log probabilities with a long context; if a short one does it too, the stack is broken.",
        fatal=False,
    ),
    _row(
        "multimodal_profiling",
        r"[\w ,']{0,60}(?:image token.{0,40}no images|[Ff]ound \d+ image token)",
        "the engine profiles picture input with none allowed",
        "Keep only the image count in limit_mm_per_prompt.",
    ),
    _row(
        "dtype_mismatch",
        r"expected (?:m\w+\d? and m\w+\d? to have the same dtype|scalar type \w+ but found)"
        r"|.{0,40}must have the same dtype",
        "two tensors of the model have different types",
        "Set dtype in the profile to the type that the checkpoint's config.json names, or take another checkpoint.",
    ),
    _row(
        "unknown_architecture",
        r"Model architectures \[([^\]]{1,80})\] (?:are not supported|failed to be inspected)"
        r"|The checkpoint you are trying to load has model type `([\w.-]+)`|Unrecognized model in (\S+?)\. ",
        "the installed engine does not know the model's architecture",
        "Install a stack with a newer vLLM and transformers: this one does not know {1}.",
    ),
    _row(
        "weights_do_not_match",
        r"There is no module or parameter named '([\w.]+)'|size mismatch for ([\w.]+):"
        r"|.{0,60}loaded_weight\.shape|Following weights were not initialized from checkpoint"
        r"|KeyError: '([\w.]+(?:weight|weights|scale|scales|scale_inv|bias|qzeros|g_idx|proj|norm|experts?)\w*)'",
        "the checkpoint's tensors are not those that the engine's model has",
        "Take a checkpoint that this release of vLLM loads, or a stack with another release ({1}).",
    ),
    _row(
        "no_chat_template",
        r"(?:As of transformers v[\d.]+, )?default chat template is no longer allowed"
        r"|Cannot use chat template functions because tokenizer\.chat_template is not set",
        "the model has no chat template",
        "Ship chat_template.jinja with the weights, or name one with chat_template in the profile's settings.",
    ),
    _row(
        "broken_weights",
        r"(?:.{0,20}SafetensorError: )?Error while deserializing header|.{0,60}(?:MetadataIncompleteBuffer"
        r"|InvalidHeaderDeserialization|HeaderTooLarge|incomplete metadata, file not fully covered)",
        "a weight file is incomplete or has another format",
        "Run the role model_weights again with verification.",
    ),
    _row(
        "no_compiler",
        r"(?:[\w.]+: )?(?:No working C\+\+ compiler found|InvalidCxxCompiler|Failed to find C compiler)",
        "the engine compiles a kernel at run time and the host has no compiler",
        "Install g++ on the host (role host or the stack's packages).",
    ),
    _row(
        "port_in_use",
        r"[Aa]ddress already in use|\[?Errno 98\b|The server socket has failed to listen|.{0,90}EADDRINUSE",
        "the engine's port was taken",
        "See who holds it: `ss -ltnp`.",
    ),
    *_HOST,
    _row(
        "missing_module",
        r"(?:ModuleNotFoundError|ImportError): (.{1,120})",
        "the stack is incomplete",
        "Run the role stack again ({1}).",
    ),
    _row(
        "missing_weights",
        r"(?:\[Errno 2\] )?No such file or directory: '([^']+)'|\S+ does not appear to have a file named (\S+)"
        r"|Can't load the configuration of '([^']+)'|Invalid repository ID or local directory specified: '([^']+)'"
        r"|Cannot find any model weights with `([^`]+)`|Error no file named ([\w.,-]+)"
        r"|We couldn't connect to '[^']+' to load|Can't load (?:\w+ ){1,2}for '([^']+)'",
        "a file is missing",
        "Run the role model_weights again.",
    ),
    *_RUNTIME,
    _row(
        "runtime_error",
        _CALL + r"(?:UR_RESULT|PI|ZE_RESULT)_ERROR_(?!DEVICE_LOST)(\w+)|Triton Error \[ZE\]: (0x[0-9a-f]+)"
        r"|(?:level_zero|opencl) backend failed with error:? ?(?!20\b)(-?\d+)",
        "a call of the cards' runtime failed",
        "The cause names the call and its error ({1}): take a stack with another runtime or another vllm-xpu-kernels.",
        vague=True,
    ),
    _row(
        "refused_settings",
        r"\d+ validation errors? for (\w+)",
        "the engine refuses the profile's settings",
        "The cause names the setting: correct it in the profile.",
        vague=True,
    ),
    _row(
        "worker_hangs",
        r"RPC call to (\w+) timed out",
        "a worker did not answer in time: a card or the collectives hang",
        "See `journalctl -k` for resets of a card. Without one, remove the profile's CCL_ variables, or serve one "
        "engine per card (replicas).",
        vague=True,
    ),
    _row(
        "shm_stall",
        r"No available shared memory broadcast block found",
        "a worker hangs and the others wait for it",
        "Restart the engine; when it comes back, see the kernel log for resets of a card.",
        fatal=False,
        vague=True,
    ),
    *_ENDED,
    _row(
        "worker_died",
        r"Worker proc (\S+) died unexpectedly",
        "a worker process died",
        "See `journalctl -k`, which names a crash or a lack of memory. " + _VAGUE_DIED,
        vague=True,
    ),
    _row(
        "engine_core_died",
        r"(?:[\w.]+\.)?EngineDeadError|EngineCore (?:failed to start|encountered an? (?:issue|fatal error))"
        r"|Engine core initialization failed|WorkerProc initialization failed",
        "the engine's core process died",
        _VAGUE_DIED,
        fatal=False,
        vague=True,
    ),
    _row(
        "compiler_crash",
        r"[\w .:'\[\]-]{0,60}(?:IGC: Internal Compiler Error|Build failed with error code: -11|ocloc.{0,80}\b245\b)",
        "the kernel compiler crashed and a fallback was used",
        "Harmless as long as the engine starts; when it does not, use a new cache key and lower max_num_seqs.",
        harmless=True,
    ),
    _row(
        "unknown_variable",
        r"Unknown vLLM environment variable detected: (\w+)",
        "the engine does not know a variable of the profile",
        "Harmless: {1} belongs to a patch or to another version.",
        harmless=True,
    ),
    _row(
        "pictures_are_wrong",
        r"Using Flash Attention on XPU for a multimodal prefix-LM model",
        "answers about pictures and videos are wrong: the attention of this profile can't apply the model's mask",
        "Set attention_backend to TRITON_ATTN in the profile, or serve the model for text alone.",
        warns=True,
    ),
    _row(
        "slow_attention",
        r"FA\d not available, forcing \w+ backend|XPU kernel not compiled for .{0,60}falling back to PyTorch reference",
        "the engine computes attention without the cards' kernels",
        "Run the role stack again with the vllm-xpu-kernels that its manifest pins: the plugin is not active.",
        warns=True,
    ),
)

# Errors of SYCL are printed as they are; the rest are llama.cpp's own words. One process does everything, and prints
# what is wrong with a request over several lines, so no line of it proves that a card is lost: none leads to
# quarantine. What the kernel says of a card does.
LLAMA_SERVER = (
    _row(
        "card_error",
        _LOST + r"|device lost on \w+|(?:MESA\S*: )?.{0,120}VK_ERROR_DEVICE_LOST|vk::[\w:]+: ErrorDeviceLost"
        r"|terminate called .{0,60}vk::DeviceLostError",
        "the engine says that a card was lost",
        "See `journalctl -k` for resets of a card; reboot the host when the next engine fails too.",
    ),
    _row(
        "out_of_resources",
        r"can't allocate \d+ Bytes of memory on device|failed to allocate \S+ buffer of size \d+"
        r"|(?:failed to initialize the context: )?failed to allocate (?:buffer for (?:kv|rs) cache|"
        r"compute (?:\w+ )?buffers)|vk::[\w:]+: ErrorOutOfDeviceMemory|Device memory allocation of size \d+ failed"
        r"|ErrorOutOfDeviceMemory|(?:MESA\S*: )?.{0,120}VK_ERROR_OUT_OF_DEVICE_MEMORY|unable to allocate \S+ buffer|"
        + _MEMORY,
        "a card ran out of memory or of command space",
        "Lower ctx_size, parallel or ubatch_size, or take a smaller cache_type_k and cache_type_v." + _FIRST,
    ),
    _row(
        "removed_argument",
        r"(?:error: )?invalid argument: (\S{1,120})",
        "the installed engine does not know an argument of the profile",
        "Remove {1} from the profile: engines drop arguments between versions.",
    ),
    _row(
        "invalid_device",
        r"(?:error while handling argument \S+ )?invalid device: (\S{1,60})",
        "the engine has no device of that name",
        "Correct device in the profile's settings: the stack's interface (SYCL or Vulkan) names its devices, and {1} "
        "is none.",
    ),
    _row(
        "wrong_value",
        r"error while handling argument \"?([\w-]+)\"?: |unknown value for (\S+):",
        "the installed engine does not take a value of the profile",
        "Correct {1} in the profile's settings.",
    ),
    _row(
        "unknown_architecture",
        r"(?:error loading model architecture: )?unknown model architecture: '([^']{1,60})'",
        "the installed engine does not know the model's architecture",
        "Install a stack with a newer llama.cpp: this one does not know {1}.",
    ),
    _row(
        "cache_needs_flash_attention",
        r"V cache quantization requires flash_attn|quantized V cache .{0,40}requires Flash Attention",
        "a quantised V cache needs flash attention",
        "Set flash_attn to on in the profile's settings, or cache_type_v to f16.",
    ),
    _row(
        "split_mode_row",
        r"pre-allocated tensor \(([\w.-]+)\) in a buffer \(\w+_Split\) that cannot run the operation",
        "split_mode row does not work with this file on SYCL",
        "Set split_mode to layer in the profile's settings (or to tensor where the stack has it).",
    ),
    _row(
        "binary_and_runtime_differ",
        r"No kernel named \S+ was found",
        "the engine's binary and its SYCL runtime do not belong together",
        _RUN_STACK + "another compiler built the binary than the one whose runtime is loaded.",
    ),
    _row(
        "pool_assertion",
        r"\S*ggml-sycl\S*:\d+: GGML_ASSERT\(ptr == reinterpret_cast<void ?\*>\(pool_addr",
        "a known bug of this build: its pool of card memory and oneDNN do not work together",
        "Set GGML_SYCL_ENABLE_VMM=0 or GGML_SYCL_ENABLE_DNN=0 in the profile's env, or take a stack with a "
        "build newer than 10879.",
    ),
    _row(
        "projector_does_not_load",
        r"failed to load (?:multimodal|CLIP) model|.{0,40}failed to load .{0,20}mmproj"
        r"|mismatch between text model .{0,40}and mmproj|.{0,40}unknown projector type",
        "the projector for pictures (mmproj) does not load",
        "Take the mmproj file of the same model and a build that knows it, or remove mmproj from the profile's "
        "settings.",
    ),
    _row(
        "port_in_use",
        r"couldn't bind HTTP server socket",
        "the engine's port was taken",
        "See who holds it: `ss -ltnp`.",
    ),
    _row(
        "missing_weights",
        r"failed to open GGUF file '([^']{1,200})'",
        "a file is missing",
        "Run the role model_weights again.",
    ),
    _row(
        "broken_weights",
        r"invalid magic characters: |tensor '[^']{1,80}' data is not within the file"
        r"|failed to read (?:magic|header|key-value)",
        "a weight file is incomplete or has another format",
        "Run the role model_weights again with verification.",
    ),
    *_HOST,
    *_RUNTIME,
    _row(
        "context_failed",
        r"failed to create (?:MTP |draft )?context|failed to initialize the context: (.{1,120})",
        "the engine could not make the context of its model",
        "The lines before name the reason; most often the cards' memory: lower ctx_size, parallel or ubatch_size.",
        vague=True,
    ),
    _row(
        "sycl_error",
        r"SYCL error: (.{1,120})|Error OP (\w+)|Exception caught at file:(\S+, line:\d+)|\S+:\d+: SYCL error"
        r"|(?:level_zero|opencl) backend failed with error:? ?(-?\d+ \(\w+\))",
        "a call of the SYCL runtime failed",
        "Take a stack with another build of llama.cpp, or GGML_SYCL_ENABLE_GRAPH=0 and GGML_SYCL_ENABLE_DNN=0 in the "
        "profile's env ({1}).",
        vague=True,
    ),
    _row(
        "vulkan_error",
        r"vk::[\w:]+: (Error\w+)",
        "a call of the Vulkan driver failed",
        "Take a stack with another build of llama.cpp or of Mesa ({1}).",
        vague=True,
    ),
    _row(
        "assertion",
        r"\S+\.[ch](?:pp|u)?:\d+: (GGML_ASSERT\(.{1,120}|.{1,120})",
        "the engine ended itself at a check of its own",
        "Take a stack with another build of llama.cpp, and report the line to its authors: {1}",
        vague=True,
    ),
    *_ENDED,
    _row(
        "no_card_used",
        r"(?:warning: )?no usable GPU found",
        "the engine found no card, and computes on the processor",
        "Run the doctor, and compare the profile's device and the stack's interface (SYCL or Vulkan) with this host.",
        warns=True,
    ),
)


def _remote(id: str, pattern: str, meaning: str, advice: str) -> Symptom:
    return Symptom(id, pattern, meaning, advice, fatal=True)


# HAProxy's words about its checks of an engine elsewhere.
REMOTE = (
    _remote(
        "remote_key_unusable",
        r"relay: the API key of the remote engine can't be used",
        "the API key file contains no key",
        "Write the key into engine.remote.api_key_file: one line and nothing else.",
    ),
    _remote(
        "remote_refused_key",
        CHECK_FAILED + r"Layer7 wrong status, code: 40[13]",
        "the remote engine refuses the API key, or requires one",
        "Check engine.remote.api_key_file, and whether the key was revoked.",
    ),
    _remote(
        "remote_certificate",
        CHECK_FAILED + r"Layer6 invalid response",
        "no TLS connection with the remote engine: most often its certificate can't be verified",
        "Check engine.remote.ca_file, and whether the certificate names the host of base_url.",
    ),
    _remote(
        "remote_no_api",
        CHECK_FAILED + r"Layer7 wrong status, code: 404",
        "the remote engine has no list of models below the base URL",
        "Check engine.remote.base_url: it ends where /models begins, with most APIs at /v1.",
    ),
    _remote(
        "remote_unreachable",
        CHECK_FAILED + r"(?:Layer4|Layer6 timeout|Layer7 timeout|Socket error)",
        "the remote engine does not answer",
        "Check whether it runs, and whether this host reaches it: firewall, routes, name servers.",
    ),
    _remote(
        "remote_fails",
        CHECK_FAILED + r"Layer7 (?:wrong status, code: (\d+)|invalid)",
        "the remote engine answers with an error",
        "Check the remote engine: it answers GET /models with {1}.",
    ),
    _remote(
        "port_in_use",
        r"(?:config : )?.{0,60}cannot bind socket",
        "the engine's port was taken",
        "See who holds it: `ss -ltnp`.",
    ),
)

# The kernel's own words, of what it says about the cards of an engine and since that started (see `kernel.about`).
_XE = r"xe [\da-f:.]+: .*?"
LOST_CARD = _remote(
    "device_lost",
    _XE + r"(?:wedged|Failed to initialize uC|probe|survivability mode|device inaccessible)",
    "a card was lost: a fault of driver or runtime under load",
    "The kernel has declared the card as lost, so no setting helps: keep the log and reboot the host.",
)
KERNEL = (
    _remote(
        "too_little_memory",
        r"(?:Memory cgroup out|Out) of memory: Killed process \d+ \((?:VLLM|vllm|llama-server|python|pt_main)[^)]*\)"
        r"|oom-kill:.*,task=(?:VLLM|vllm|llama-server|python|pt_main)",
        "the kernel or systemd ended the process, most often for want of memory",
        _MIRROR,
    ),
    _remote(
        "collectives_crash",
        r"(?:traps: )?[^\[\]]{1,40}\[\d+\].{0,120} in (libccl\.so[\w.]*)\[",
        "a crash in the collectives, which see a card that has no place on the PCI bus",
        "It crashed in {1}: hide other GPUs with ZE_AFFINITY_MASK, and serve one engine per card (replicas) when it "
        "comes back.",
    ),
    _remote(
        "small_bar",
        _XE + r"(?:Small BAR device|Failed to resize BAR)",
        "a card's memory window is smaller than its memory, so the runtime refuses the card",
        "Turn on Resizable BAR and Above 4G Decoding in the machine's setup.",
    ),
    _remote(
        "card_fault",
        _XE,
        "the kernel reset a card or reports a fault of it",
        "Keep the kernel's lines. When it comes back, reboot the host, then compare the card's firmware and driver "
        "with what the doctor asks for.",
    ),
    _remote(
        "blocked_in_kernel",
        r"INFO: task (?:VLLM|vllm|llama-server|python|pt_main)\S*:\d+ blocked"
        r"|watchdog: BUG: soft lockup .{0,40}\[(?:VLLM|llama)",
        "a process of the engine waits in the kernel and does not come back",
        "Keep the kernel's lines, and reboot the host: such a process can't be killed.",
    ),
    _remote(
        "engine_crashed",
        r"(?:traps: )?(?:VLLM|vllm|llama-server|python|pt_main)[^\[\]]{0,40}\[\d+\].{0,120} in ([\w.+-]+)\[",
        "the engine crashed in native code",
        "It crashed in {1}: take another version of it (the stack, or the driver), and report it there.",
    ),
)
