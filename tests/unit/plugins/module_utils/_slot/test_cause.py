# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an engine failed, as the operator sees it: its first error, what the kernel says, and where the whole log is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds import kernel
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.first_error import first_error
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.llama_server import LLAMA_SERVER
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import diagnose
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.vllm import VLLM
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.plugin_utils._slot_words import switch_report
from unit.plugins.module_utils._slot import exchanges
from unit.plugins.module_utils._slot.calls import b70ctl, host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT
from unit.plugins.module_utils._slot.test_llama_server import Recorded

CARD, OTHER = "0000:03:00.0", "0000:04:00.0"
AT = "2026-06-07T09:00:30+00:00"
WEDGED = f"[drm] *ERROR* CRITICAL: Xe has declared device {CARD} as wedged."
UNKNOWN = "RuntimeError: level_zero backend failed with error: 2147483646 (UR_RESULT_ERROR_UNKNOWN)"
FRAME = '  File "/x/vllm/v1/worker/xpu_worker.py", line 146, in init_device'


def said(text: str, at: str = AT, card: str = CARD) -> str:
    return f"{at} host1 kernel: xe {card}: {text}"


def written(prefix: str, *texts: str) -> list[str]:
    return [f"{prefix}{text}" for text in texts]


def traceback(error: str, frames: int = 1) -> list[str]:
    calls = [
        text for number in range(frames) for text in (f'  File "/x/{number}.py", line 1, in f', "    f()", "    ^^^")
    ]
    return ["Traceback (most recent call last):", *calls, FRAME, "    self.run()", error]


PARENT = (
    "Exception: WorkerProc initialization failed due to an exception in a background process. "
    "See stack trace for root cause."
)
TOP = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


def start_of(error: str, worker: str, core: str, api: str = "(APIServer pid=1) ", frames: int = 25) -> list[str]:
    """A failed start as vLLM logs it: each process above the one that failed prints a traceback of its own."""
    stamp = "ERROR 11-22 09:08:44 "
    return [
        *written(
            f"{worker}{stamp}[multiproc_executor.py:743] ", "WorkerProc failed to start.", *traceback(error, frames)
        ),
        *written(f"{core}{stamp}[core.py:843] ", "EngineCore failed to start.", *traceback(PARENT, frames)),
        *written(core, "Process EngineCore_DP0:", *traceback(PARENT, frames)),
        *written(api, *traceback(TOP, frames)),
    ]


@pytest.mark.parametrize(
    ("worker", "core", "name"),
    [
        ("(Worker_TP1 pid=3) ", "(EngineCore_DP0 pid=2) ", "Worker_TP1"),
        ("(VllmWorker rank=1 pid=3) ", "(EngineCore_0 pid=2) ", "VllmWorker"),
        ("(Worker_PP0_TP1_EP1 pid=3) ", "(EngineCore pid=2) ", "Worker_PP0_TP1_EP1"),
        ("(RayWorkerWrapper pid=3, ip=10.0.0.2) ", "(EngineCore pid=2) ", "RayWorkerWrapper"),
        ("\x1b[1;36m(Worker_TP0 pid=3)\x1b[0;0m ", "\x1b[1;36m(EngineCore pid=2)\x1b[0;0m ", "Worker_TP0"),
        ("", "", ""),
    ],
)
def test_the_process_that_failed_first_is_found_in_every_release(worker, core, name):
    cause = first_error(start_of("ValueError: nobody has seen this before", worker, core), VLLM)
    assert cause is not None
    assert (cause.process, cause.lines[0]) == (name, "ValueError: nobody has seen this before")
    assert cause.lines[1] == f"raised in {FRAME.strip()}: self.run()"


def test_of_two_workers_the_one_that_failed_first_counts_although_their_lines_are_mixed():
    first = written("(Worker_TP1 pid=3) ERROR 11-22 09:08:44 [m.py:1] ", *traceback("ValueError: the reason"))
    second = written(
        "(Worker_TP0 pid=4) ERROR 11-22 09:08:44 [m.py:1] ", *traceback("RuntimeError: Connection closed by peer")
    )
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    cause = first_error(mixed, VLLM)
    assert cause is not None
    assert (cause.process, cause.lines[0]) == ("Worker_TP1", "ValueError: the reason")


def test_an_exception_that_another_one_led_to_is_told_with_the_first():
    lines = written(
        "(EngineCore pid=2) ERROR 11-22 09:08:44 [core.py:843] ",
        *traceback("KeyError: 'qwen9'"),
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *traceback("ValueError: The checkpoint is of a type that nobody knows"),
    )
    cause = first_error([*lines, *written("(APIServer pid=1) ", *traceback(TOP))], VLLM)
    assert cause is not None
    assert cause.lines[0] == "KeyError: 'qwen9'"
    assert cause.lines[-1] == "which led to ValueError: The checkpoint is of a type that nobody knows"


def test_a_message_of_several_lines_is_told_as_a_whole():
    error = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig"
    lines = written("(APIServer pid=1) ", *traceback(error), "  Value error, something is wrong [type=value_error]")
    cause = first_error(lines, VLLM)
    assert cause is not None
    assert cause.lines[:2] == (error, "Value error, something is wrong [type=value_error]")


@pytest.mark.parametrize(
    "lines",
    [
        ["Abort was called at 84 line in file:", "../../neo/linear_stream.h"],
        ["!!!!!!! Segfault encountered !!!!!!!", '  File "<unknown>", line 0, in zeCommandQueueExecute'],
        ["Fatal Python error: Segmentation fault", "", "Current thread 0x00007f (most recent call first):"],
        ["free(): invalid pointer"],
        ["terminate called after throwing an instance of 'sycl::_V1::exception'", "  what():  something new"],
        ["Process 4801 (VLLM::Worker_TP) of user 997 dumped core."],
        ["/x/bin/vllm: error while loading shared libraries: libur_loader.so.0: cannot open shared object file"],
    ],
)
def test_what_native_code_says_as_it_ends_is_the_cause_and_not_what_the_others_report(lines):
    died = (
        "(EngineCore pid=2) ERROR 11-22 09:08:46 [m.py:284] Worker proc VllmWorker-1 died unexpectedly, shutting down."
    )
    cause = first_error(["INFO loading", *lines, died, *written("(APIServer pid=1) ", *traceback(TOP))], VLLM)
    assert cause is not None
    assert cause.lines[0] == lines[0]


@pytest.mark.parametrize(
    "line",
    [
        "/src/ggml/src/ggml.c:1599: GGML_ASSERT(n_dims >= 1) failed",
        "/src/ggml/src/ggml-sycl/../ggml-sycl/common.hpp:155: SYCL error",
        "0.05.100.100 E srv    load_model: failed to do something new",
        "error: something that the server does not know",
        "E ggml_vulkan: an error that is new",
    ],
)
def test_the_words_of_llama_server_before_its_end(line):
    cause = first_error(
        ["0.01.000.000 I srv    load_model: loading model", line, "Aborted (core dumped)"], LLAMA_SERVER
    )
    assert cause is not None
    assert cause.lines[0] in line


def test_what_was_handled_long_ago_is_no_cause():
    handled = written("(EngineCore pid=2) ERROR 11-22 08:00:00 [x.py:1] ", *traceback("ValueError: handled"))
    warned = written("(EngineCore pid=2) WARNING 11-22 09:00:00 [x.py:1] ", *traceback("ValueError: warned"))
    served = [
        f"(APIServer pid=1) INFO 11-22 08:{number % 60:02}:00 [loggers.py:1] Engine 000: busy" for number in range(200)
    ]
    wrong = written(
        "(APIServer pid=1) ERROR:    ", "Exception in ASGI application", *traceback("ValueError: of a client")
    )
    lines = [
        *handled,
        *served,
        *warned,
        *wrong,
        *start_of("RuntimeError: now", "(Worker_TP0 pid=3) ", "(EngineCore pid=2) "),
    ]
    cause = first_error(lines, VLLM)
    assert cause is not None
    assert cause.lines[0] == "RuntimeError: now"
    assert first_error(served, VLLM) is None


@pytest.fixture
def fake_host():
    made = host("ab", load_s=1.0)
    made.cards = 2
    for name in "ab":
        made.render(name, cards=1, engine__env={"ZE_AFFINITY_MASK": "0"})
    return made


def test_the_operator_sees_the_first_error_and_where_the_whole_log_is(fake_host):
    fake_host.unit("a").fault = "exit_at_start"
    worker = start_of("ValueError: nobody has seen this before", "(Worker_TP1 pid=3) ", "(EngineCore pid=2) ")
    fake_host.log_lines = ("INFO loading", *worker)
    fake_host.kernel_lines = (said("[drm] GT0: Engine reset: engine_class=ccs"), said("[drm] Engine reset", card=OTHER))
    code, text = b70ctl(fake_host, "switch", "a")
    assert code != 0
    assert "the first error is: Worker_TP1: ValueError: nobody has seen this before" in text
    assert "cause: Worker_TP1: ValueError: nobody has seen this before\n" in text
    assert f"cause: raised in {FRAME.strip()}: self.run()\n" in text
    assert f"kernel: {fake_host.kernel_lines[0]}\n" in text
    assert OTHER not in text
    assert "the whole log: journalctl -o cat _SYSTEMD_INVOCATION_ID=" in text


def test_an_error_that_is_in_no_table_stands_in_the_message_and_in_the_plays_report(fake_host):
    fake_host.unit("a").fault = "exit_at_start"
    fake_host.log_lines = tuple(
        start_of("ValueError: nobody has seen this before", "(Worker_TP1 pid=3) ", "(EngineCore pid=2) ")
    )
    fake_host.kernel_lines = ()
    result = switch(fake_host, "a")
    assert result["failure"]["symptom"] == "engine_core_died"
    assert result["failure"]["cause"][0] == "Worker_TP1: ValueError: nobody has seen this before"
    assert f"cause: {result['failure']['cause'][0]}" in switch_report({**result, "wanted": "a"}, "h1", "")
    assert f"the first error is: {result['failure']['cause'][0]}; known symptom" in result["msg"]


def fail(fake_host, name="b", by_kernel=None):
    fake_host.log_lines = (UNKNOWN,)
    fake_host.kernel_lines = by_kernel or (said(WEDGED),)
    fake_host.unit(name).fault = "exit_at_start"
    return switch(fake_host, name)


def test_a_card_that_the_kernel_declares_lost_isolates_the_host_whatever_the_engine_says(fake_host):
    switch(fake_host, "a")
    result = fail(fake_host)
    fake_host.assert_invariants()
    assert (result["failure"]["symptom"], result["quarantine"]["line"]) == ("device_lost", said(WEDGED))
    assert "reboot" in result["failure"]["advice"]
    assert (
        fake_host.texts[LAYOUT.evidence_dir / result["quarantine"]["switch_id"] / "kernel.log"][0]
        == said(WEDGED) + "\n"
    )


@pytest.mark.parametrize(
    "lines",
    [
        (said(WEDGED, card=OTHER),),
        (said("[drm] device wedged, but recovered through reset"),),
        (said("[drm] device wedged, but no recovery needed"),),
        (said(WEDGED), said("[drm] Found battlemage (device ID e223) discrete display version 14.01 stepping B0")),
        (f"{AT} host1 kernel: usb 1-1: Product: xe {CARD}: {WEDGED}",),
        (f"{AT} host1 kernel: audit: comm=xe {CARD}: {WEDGED}",),
        (f"{AT} host1 vllm: xe {CARD}: {WEDGED}",),
    ],
)
def test_no_other_line_of_the_kernels_log_proves_that_a_card_is_lost(fake_host, lines):
    result = fail(fake_host, "a", lines)
    assert result["failure"]["symptom"] != "device_lost"
    assert result["quarantine"] is None


def test_an_engine_that_waits_for_a_lost_card_is_not_waited_for(fake_host):
    fake_host.unit("a").fault = "never_ready"
    fake_host.log_lines, fake_host.kernel_lines = ("INFO loading",), (said(WEDGED),)
    result = switch(fake_host, "a")
    assert "the kernel's log says that it will not become ready" in result["msg"]
    assert next(phase for phase in result["phases"] if phase["name"] == "health")["seconds"] < 10
    assert result["quarantine"]["symptom"] == "device_lost"


@pytest.mark.parametrize(
    ("at", "isolated"), [("2026-06-07T08:00:00+00:00", False), ("2026-06-07T23:00:00+00:00", True)]
)
def test_an_engine_that_served_until_the_kernel_lost_its_card(fake_host, at, isolated):
    switch(fake_host, "a")
    fake_host.log_lines = (UNKNOWN,)
    fake_host.kernel_lines = (said(WEDGED, at=at),)
    fake_host.crash("a")
    assert (recover(fake_host)["quarantine"] is not None) is isolated


def test_the_kernel_is_believed_beside_an_engine_that_is_not():
    fake_host = exchanges.llama_host(cards=1)
    fake_host.cards = 1
    assert exchanges.switched(fake_host, Recorded())["outcome"] == "committed"
    fake_host.kernel_lines = (said(WEDGED, at="2026-06-07T23:00:00+00:00"),)
    match = quarantine.lost_while_serving(fake_host.effects(), fake_host.state, ())
    assert match is not None
    assert (match.symptom.id, match.line) == ("device_lost", fake_host.kernel_lines[0])


def test_a_ready_engine_is_served_with_a_warning_about_what_its_log_says(fake_host):
    fake_host.kernel_lines = ()
    stamp = "(APIServer pid=1) WARNING 10-06 10:00:00 [xpu.py:1] "
    fake_host.log_lines = (
        f"{stamp}Using Flash Attention on XPU for a multimodal prefix-LM model because it was asked",
    )
    result = switch(fake_host, "a")
    assert result["outcome"] == "committed"
    assert any("answers about pictures and videos are wrong" in text for text in result["warnings"])


def test_what_the_kernel_said_before_a_start_does_not_explain_it():
    lines = [said("[drm] GT0: Engine reset", at="2026-06-07T08:59:59+0000"), said("[drm] exec queue reset detected")]
    assert kernel.about(lines, {CARD}, "2026-06-07T09:00:00Z") == (lines[1],)
    early = said(WEDGED, at="2026-06-07T08:00:00+00:00")
    assert kernel.about([early], {CARD}, "2026-06-07T09:00:00Z") == (early,)


def test_the_kernels_word_explains_what_only_names_an_end():
    reset = said("[drm] Tile0: GT0: Timedout job: seqno=4294967169, lrc_seqno=4294967169, guc_id=2, flags=0x73")
    timeout = (
        "(EngineCore pid=81) ERROR 09-19 02:21:42 [core.py:1233] TimeoutError: RPC call to sample_tokens timed out."
    )
    full = "(EngineCore pid=81) ERROR 09-19 02:21:42 [core.py:1233] OSError: [Errno 28] No space left on device"
    named = [diagnose([line], kernel=said_by) for line, said_by in ((timeout, ()), (timeout, [reset]), (full, [reset]))]
    assert [match.symptom.id for match in named if match] == ["worker_hangs", "card_fault", "disk_full"]


def test_the_journals_schema_knows_what_a_failure_says(fake_host):
    schema = json.loads((Path(__file__).parents[5] / "roles/slot/files/schema/journal.schema.json").read_text())
    result = fail(fake_host, "a")
    text = json.dumps(schema)
    assert all(f'"{key}"' in text for key in result["failure"])


def test_what_was_wrong_with_a_request_of_llama_server_is_no_cause():
    lines = (
        "0.01.403.969 E srv    send_error: task id = 16, error: request exceeds the available context size",
        "0.01.404.000 E srv    operator(): got exception: something about a request",
        "0.10.284.233 E ggml_vulkan: device lost on Vulkan0",
    )
    error = first_error(lines, LLAMA_SERVER)
    assert error is not None
    assert error.lines == ("device lost on Vulkan0",)


def test_what_ended_a_thread_alone_is_no_cause():
    prefix = "(Worker_TP0 pid=3) "
    thread = written(
        prefix, "Exception in thread Thread-1 (_report_usage_worker):", *traceback("ValueError: of a thread")
    )
    lines = [*thread, *start_of("RuntimeError: of the process", prefix, "(EngineCore pid=2) ")]
    error = first_error(lines, VLLM)
    assert error is not None
    assert error.lines[0] == "RuntimeError: of the process"


def test_an_exception_without_a_message_is_told_by_the_one_it_led_to():
    lines = written(
        "(EngineCore pid=2) ERROR 07-07 07:01:31 [core.py:1233] ",
        "EngineCore encountered a fatal error.",
        *traceback("TimeoutError"),
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *traceback("TimeoutError: RPC call to sample_tokens timed out."),
    )
    error = first_error(lines, VLLM)
    assert error is not None
    assert error.lines[0] == "TimeoutError: RPC call to sample_tokens timed out."


def test_a_signal_gives_way_to_what_native_code_says_about_it():
    dump = [
        "Fatal Python error: Aborted",
        "",
        "Thread 0x000074e0819fe6c0 (most recent call first):",
        '  File "/usr/lib/python3.12/threading.py", line 359 in wait',
        "",
        "Current thread 0x000074e083fff6c0 (most recent call first):",
        '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 88 in execute_model',
    ]
    died = (
        "(EngineCore pid=2) ERROR 11-22 09:08:46 [m.py:284] Worker proc VllmWorker-1 died unexpectedly, shutting down."
    )
    alone, told = (
        first_error([*dump, *more, died], VLLM) for more in ([], ["Abort was called at 84 line in file:", "x.h"])
    )
    assert alone is not None
    assert told is not None
    assert alone.lines[0] == dump[0]
    assert f"raised in {dump[-1].strip()}" in alone.lines
    assert told.lines[:2] == ("Abort was called at 84 line in file:", "x.h")


def test_a_dump_of_many_threads_keeps_a_signal_and_what_it_led_to_together():
    thread = ["", "Thread 0x000074e0819fe6c0 (most recent call first):", *['  File "/x.py", line 1 in f'] * 8]
    threads = thread * 40
    died = (
        "(EngineCore pid=2) ERROR 11-22 09:08:46 [m.py:284] Worker proc VllmWorker-1 died unexpectedly, shutting down."
    )
    error = first_error(["Fatal Python error: Segmentation fault", *threads, died], VLLM)
    assert error is not None
    assert error.lines[0] == "Fatal Python error: Segmentation fault"
