# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients can have an engine write into its log is not taken for the engine's own words.

The lines have the shapes of vLLM 0.20 to 0.32: its prefix of process, its time and place, uvicorn's access log.
"""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import systemd
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import SYMPTOMS, diagnose
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import DEFAULT
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Mode, UnitState
from unit.plugins.module_utils._slot.calls import host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, LOST

API, CORE, WORKER = "(APIServer pid=4711) ", "(EngineCore_DP0 pid=4790) ", "(Worker_TP0 pid=4801) "
STAMP = "ERROR 11-22 09:08:44 "
NATIVE = "RuntimeError: Native API failed. Native API returns: 20 (UR_RESULT_ERROR_DEVICE_LOST)"
PLANTED = [
    f'{API}INFO:     127.0.0.1:41234 - "POST /v1/chat/completions?{LOST.replace(" ", "%20")} HTTP/1.1" 200 OK',
    'INFO:     127.0.0.1:41234 - "GET /v1/models?UR_RESULT_ERROR_DEVICE_LOST HTTP/1.1" 404 Not Found',
    f"{API}INFO 11-22 09:08:44 [logger.py:39] Received request chatcmpl-1: prompt: '{LOST}', params: None",
    f"{API}INFO 11-22 09:08:44 [request_logger.py:70] Received request cmpl-{LOST}: params: None, lora_request: None.",
    f"{API}{STAMP}[serving.py:321] The model `{LOST}` does not exist.",
    f"{CORE}{STAMP}[dump_input.py:81] Dumping scheduler output for model execution: SchedulerOutput(stop=['{LOST}'])",
    # A line end inside of a value that is refused: the process stands before the next line as well.
    f"{API}{STAMP}[serving.py:321] {LOST}",
    f"{API}{LOST}",
    f"(ApiServer_1 pid=9) {LOST}",
]
MEANT = [
    LOST,
    f"{WORKER}{LOST}",
    f"{CORE}{STAMP}[core.py:1140] {LOST}",
    f"{CORE}{STAMP}[v1/worker/xpu_worker.py:88] {NATIVE}",
    f"{CORE}{STAMP}[core.py:1140] RuntimeError: Worker failed with error '{LOST[14:]}', please check the stack",
    f"  what():  {LOST[14:]}",
]


@pytest.mark.parametrize("line", PLANTED)
def test_what_a_client_sent_is_no_symptom_that_quarantines(line):
    match = diagnose(["INFO serving", line])
    assert match is None or not match.symptom.quarantines


@pytest.mark.parametrize("line", MEANT)
def test_what_the_engine_says_of_its_card_is(line):
    match = diagnose([*PLANTED, line, *PLANTED])
    assert match is not None
    assert (match.symptom.id, match.line, match.logged) == ("device_lost", line, True)


@pytest.mark.parametrize(
    "words",
    [
        *(
            "XPU out of memory",
            "estimated maximum model length is 12",
            "x.so: undefined symbol: _ZN5torch1",
            "Errno 98",
        ),
        *("unrecognized arguments: --x", "ImportError: x", "EngineDeadError", "oom-kill", "signal=9/KILL"),
        *("IGC: Internal Compiler Error", "Found 1 image token", "Workspace is locked but allocation from"),
    ],
)
def test_no_symptom_is_read_from_the_access_log(words):
    assert diagnose([words]) is not None
    assert (
        diagnose([f'{API}INFO:     127.0.0.1:4 - "GET /v1/models?{words.replace(" ", "%20")} HTTP/1.1" 200 OK']) is None
    )
    assert diagnose([f'{API}INFO:     127.0.0.1:4 - "GET /v1/models?{words} HTTP/1.1" 200 OK']) is None


def test_the_symptoms_are_found_behind_the_prefixes_of_vllm():
    room = (
        "ValueError: To serve at least one request with the model's max seq len (118000), (14.41 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (13.97 GiB). Based on the available memory, the "
        "estimated maximum model length is 114432. Try increasing `gpu_memory_utilization`"
    )
    rows = {
        f"{CORE}{STAMP}[core.py:1140] {room}": "context_does_not_fit",
        f"{API}ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 18080)": "port_in_use",
        f"{WORKER}WARNING 11-22 09:08:44 [interface.py:371] Failed to import from vllm._C: "
        "ImportError('/x/_C.so: undefined symbol: _ZN5torch7Library4_defE')": "kernels_abi",
        f"{WORKER}torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB": "out_of_resources",
        "b70-slot-main-a.service: Main process exited, code=killed, status=9/KILL": "too_little_memory",
        "b70-slot-main-a.service: Failed with result 'oom-kill'.": "too_little_memory",
        f"{API}INFO 11-22 09:08:44 [shm_broadcast.py:109] No available shared memory broadcast block found in 60 "
        "seconds.": "shm_stall",
        f"{API}  | vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.": "engine_core_died",
    }
    for line, symptom in rows.items():
        match = diagnose([line])
        assert match is not None, line
        assert match.symptom.id == symptom
    assert [symptom.id for symptom in SYMPTOMS if symptom.quarantines] == ["device_lost"]


def test_what_is_found_outside_of_the_log_puts_no_host_into_quarantine():
    match = diagnose(["INFO serving"], ("a process holds the port: pid 7 (sh -c UR_RESULT_ERROR_DEVICE_LOST)",))
    assert match is not None
    assert not match.logged


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
@pytest.mark.parametrize("line", PLANTED)
def test_an_engine_that_ends_after_a_client_sent_such_words_is_served_again(mode, line):
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    fake_host.logs[fake_host.unit("a").invocation] = ("INFO serving", line)
    fake_host.crash("a")
    result = recover(fake_host, mode)
    fake_host.assert_invariants()
    assert (result["outcome"], result["quarantine"]) == ("committed", None)
    assert quarantine.read(fake_host.effects(), LAYOUT) is None
    assert not switch(fake_host, "b")["failed"]


def test_a_switch_that_fails_beside_such_words_quarantines_nothing():
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    fake_host.log_lines = tuple(PLANTED)
    fake_host.unit("b").fault = "wrong_answer"
    result = switch(fake_host, "b")
    assert (result["outcome"], result["failure"]["symptom"], result["quarantine"]) == ("rolled_back", None, None)


def entry(message, pid=4711, line_break=""):
    """One entry as journalctl exports it; what is no plain text is counted."""
    raw = message.encode()
    plain = all(byte >= 32 or byte == 9 for byte in raw)
    told = b"MESSAGE=" + raw if plain else b"MESSAGE\n" + len(raw).to_bytes(8, "little") + raw
    rows = [b"__CURSOR=s=1;i=2", b"__REALTIME_TIMESTAMP=1780823324000000", b"_PID=%d" % pid, told]
    rows += [b"_LINE_BREAK=" + line_break.encode()] if line_break else []
    return b"\n".join(rows) + b"\n\n"


def read(monkeypatch, exported):
    calls = []

    def done(argv, limit_s):
        calls.append(argv)
        return subprocess.CompletedProcess(argv, 0, exported, b"")

    monkeypatch.setattr(systemd, "done", done)
    lines = systemd.Systemd().log(UnitState("b70-slot-main-a.service", invocation_id="1" * 32), 300)
    assert "--output=export" in calls[0]
    return lines


@pytest.mark.parametrize("why", ["nul", "line-max", "pid-change"])
def test_where_the_journal_breaks_a_line_no_other_line_begins(monkeypatch, why):
    between = entry(f"{WORKER}INFO 11-22 09:08:44 [x.py:1] busy", pid=4801)
    exported = (
        entry(f"{API}The value is wrong: ", line_break=why) + between + entry(f"{CORE}{LOST}") + entry(f"{API}end")
    )
    lines = read(monkeypatch, exported)
    assert lines == (
        f"{API}The value is wrong: {CORE}{LOST}",
        f"{WORKER}INFO 11-22 09:08:44 [x.py:1] busy",
        f"{API}end",
    )
    assert diagnose(lines) is None


def test_a_carriage_return_does_not_hide_who_wrote_the_line(monkeypatch):
    exported = entry(f"{API}The value is wrong: x\r{LOST}") + entry(f"{WORKER}\rLoading: 5%\rLoading: 7%", pid=4801)
    lines = read(monkeypatch, exported)
    assert lines == (f"{API}{LOST}", f"{WORKER}Loading: 7%")
    assert diagnose(lines) is None


def test_all_lines_of_a_message_are_read(monkeypatch):
    """vLLM ends the lines inside of a message with a carriage return and a line feed."""
    rows = [
        f"{CORE}{STAMP}[core.py:1140] {text}" for text in ("Traceback (most recent call last):\r", f"{LOST}\r", "end")
    ]
    lines = read(monkeypatch, b"".join(entry(row) for row in rows))
    assert lines == tuple(row.rstrip() for row in rows)
    match = diagnose(lines)
    assert match is not None
    assert match.symptom.id == "device_lost"


INVOCATION, UNIT = "1" * 32, "b70-slot-main-a.service"
COREDUMP = "fc2e22bc6ee647b6b90729ab34a250b1"
TRUSTED = {"_SYSTEMD_UNIT": UNIT, "_SYSTEMD_INVOCATION_ID": INVOCATION}
# Entries as journald stores them. The fields that begin with _ are its own, and nobody else can write them.
JOURNAL = [
    {"MESSAGE": "INFO of the engine", "_PID": "4711", **TRUSTED},
    # A container: with the log driver passthrough its process writes itself, with journald conmon writes for it.
    {
        "MESSAGE": "INFO of a container",
        "_PID": "4712",
        "_SYSTEMD_CGROUP": f"/system.slice/{UNIT}/libpod-payload-1",
        **TRUSTED,
    },
    {"MESSAGE": "INFO by conmon", "_PID": "4713", "_COMM": "conmon", "CONTAINER_NAME": "b70-slot-main-a", **TRUSTED},
    {"MESSAGE": f"{UNIT}: Main process exited", "_PID": "1", "_UID": "0", "UNIT": UNIT, "INVOCATION_ID": INVOCATION},
    {
        "MESSAGE": "Process 4711 (vllm) of user 997 dumped core.",
        "_PID": "99",
        "_UID": "0",
        "MESSAGE_ID": COREDUMP,
        "COREDUMP_UNIT": UNIT,
        "COREDUMP_PID": "4711",
    },
    # The core dump of another start of the same unit.
    {
        "MESSAGE": "Process 12 (vllm) of user 997 dumped core.",
        "_PID": "98",
        "_UID": "0",
        "MESSAGE_ID": COREDUMP,
        "COREDUMP_UNIT": UNIT,
        "COREDUMP_PID": "12",
    },
    # What a user of this host can write, as `logger --journald` does.
    {
        "MESSAGE": LOST,
        "_PID": "666",
        "_UID": "1000",
        "INVOCATION_ID": INVOCATION,
        "UNIT": UNIT,
        "SYSLOG_IDENTIFIER": "vllm",
    },
    {
        "MESSAGE": LOST,
        "_PID": "666",
        "_UID": "1000",
        "MESSAGE_ID": COREDUMP,
        "COREDUMP_UNIT": UNIT,
        "COREDUMP_PID": "4711",
    },
    {
        "MESSAGE": LOST,
        "_PID": "666",
        "_UID": "1000",
        "OBJECT_SYSTEMD_UNIT": UNIT,
        "OBJECT_SYSTEMD_INVOCATION_ID": INVOCATION,
    },
    {"MESSAGE": LOST, "_PID": "667", "_SYSTEMD_UNIT": "user@1000.service", "INVOCATION_ID": INVOCATION},
]


def selected(argv):
    """The entries that journalctl selects: terms of one field are alternatives, of several hold together, + is or."""
    groups: list[dict[str, set[str]]] = [{}]
    for word in argv[1:]:
        if word == "+":
            groups.append({})
        elif not word.startswith("-"):
            name, _equals, value = word.partition("=")
            groups[-1].setdefault(name, set()).add(value)
    return [
        entry for entry in JOURNAL if any(all(entry.get(name) in group[name] for name in group) for group in groups)
    ]


def test_a_line_counts_only_if_journald_says_that_the_units_process_wrote_it(monkeypatch):
    def done(argv, limit_s):
        shown = [b"\n".join(f"{name}={value}".encode() for name, value in entry.items()) for entry in selected(argv)]
        return subprocess.CompletedProcess(argv, 0, b"\n\n".join(shown), b"")

    monkeypatch.setattr(systemd, "done", done)
    lines = systemd.Systemd().log(UnitState(UNIT, invocation_id=INVOCATION), 300)
    assert lines == tuple(entry["MESSAGE"] for entry in JOURNAL[:5])
    match = diagnose(lines, kind=DEFAULT)
    assert match is not None
    assert match.symptom.id == "engine_crashed"


def test_without_a_start_journalctl_selects_the_unit_itself(monkeypatch):
    calls = []

    def done(argv, _limit):
        calls.append(argv)
        return subprocess.CompletedProcess(argv, 0, b"", b"")

    monkeypatch.setattr(systemd, "done", done)
    systemd.Systemd().log(UnitState(UNIT), 300)
    # Its own match of a unit trusts fields of journald alone.
    assert [word for word in calls[0] if not word.startswith("--")] == ["journalctl"]
    assert f"--unit={UNIT}" in calls[0]
