# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""b70ctl against a host in memory: what it prints and its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.host_class import machine
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import row
from ansible_collections.arcpro.b70.plugins.module_utils._slot import command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.recorded import unit_of
from unit.plugins.module_utils._evidence.records import record
from unit.plugins.module_utils._slot.calls import b70ctl, host, recover
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeUnit, Killed

ROOT = Path(__file__).parents[5]
TYPED = re.compile(r"(?:^|`|C\()b70ctl(?:-\w+)? ([a-z][a-z-]*)", re.MULTILINE)


def test_documents_name_commands_that_exist():
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md"), *ROOT.glob("plugins/modules/*.py")]
    named = {word: page.name for page in pages for word in TYPED.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    there = command.words_of(command.parser())
    assert {word: page for word, page in named.items() if word not in there} == {}


@pytest.fixture
def fake_host():
    return host("ab", load_s=1.0)


def test_list_marks_what_runs(fake_host):
    b70ctl(fake_host, "switch", "b")
    code, text = b70ctl(fake_host, "list")
    assert code == command.DONE
    assert [line.split() for line in text.splitlines()] == [
        ["PROFILE", "CARDS", "STATUS", "TITLE"],
        ["a", "0", "candidate", "Model", "a"],
        ["*", "b", "0", "candidate", "Model", "b"],
    ]
    fake_host.render("a", cards=4)
    fake_host.cards = 2
    text = b70ctl(fake_host, "list")[1]
    assert "a  4" not in text
    assert "1 more need more than the 2 cards of this host" in text


def test_status_of_an_empty_slot(fake_host):
    code, text = b70ctl(fake_host, "status")
    assert code == command.NOT_SERVING
    assert text.splitlines()[1].startswith("seen: slot main serves nothing: ")
    assert "at boot: nothing" in text


def test_cards_tells_what_the_driver_tells(fake_host):
    assert b70ctl(fake_host, "cards") == (command.DONE, "this host shows no cards\n")
    fake_host.cards = 2
    code, text = b70ctl(fake_host, "cards")
    assert (code, text.splitlines()[1]) == (0, "card 1 (0000:04:00.0): /dev/dri/renderD129: 0.2 of 32.0 GiB in use")
    data = json.loads(b70ctl(fake_host, "cards", "--json")[1])
    assert data["cards"][0] == {
        "node": "/dev/dri/renderD128",
        "model": "",
        "address": "0000:03:00.0",
        "used_bytes": 2**28,
        "total_bytes": 32 * 2**30,
        "power_cap_w": None,
    }
    fake_host.put(PurePosixPath("/sys/class/drm/renderD128/device/device"), "0xe211\n")
    assert b70ctl(fake_host, "cards")[1].startswith("card 0 (Arc Pro B60 at 0000:03:00.0): /dev/dri/renderD128: ")
    fake_host.put(PurePosixPath("/sys/class/drm/renderD128/device/device"), "")
    fake_host.memory_told = False
    assert "CAP_PERFMON" in b70ctl(fake_host, "cards")[1]
    data = json.loads(b70ctl(fake_host, "cards", "--json")[1])
    assert data["cards"][0] == {
        "node": "/dev/dri/renderD128",
        "model": "",
        "address": "0000:03:00.0",
        "used_bytes": None,
        "total_bytes": 32 * 2**30,
        "power_cap_w": None,
    }


def test_switch_and_status(fake_host):
    code, text = b70ctl(fake_host, "switch", "a")
    assert (code, "a is served in slot main, verified" in text) == (0, True)
    code, text = b70ctl(fake_host, "status")
    assert code == command.DONE
    assert "slot main serves a (model id a)" in text
    assert "by exact_ok 4x, sum 4x" in text
    assert f"at boot: {LAYOUT.unit('a')}" in text


def test_status_in_json_is_what_the_module_says(fake_host):
    b70ctl(fake_host, "switch", "a")
    code, text = b70ctl(fake_host, "status", "--json")
    data = json.loads(text)
    assert (code, data["profile"], data["verified"], data["open"]) == (0, "a", True, True)


def test_status_in_json_has_stack_generations_and_cards(fake_host):
    fake_host.cards = 1
    b70ctl(fake_host, "switch", "a")
    data = json.loads(b70ctl(fake_host, "status", "--json")[1])
    assert data["stack"] == json.loads(fake_host.effects().files.read(LAYOUT.profile_json("a")))["stack"]["id"]
    assert data["frontdoor"] == {"active": 0, "queued": 0, "max_active": 2}
    assert data["cards"] == [
        {"node": "/dev/dri/renderD128", "model": "", "address": "0000:03:00.0", "used_bytes": 2**28,
         "total_bytes": 32 * 2**30, "power_cap_w": None}
    ]  # fmt: skip
    fake_host.frontdoor_present = False
    assert json.loads(b70ctl(fake_host, "status", "--json")[1])["frontdoor"] is None


def test_a_failed_switch_says_where_the_slot_is(fake_host):
    b70ctl(fake_host, "switch", "a")
    fake_host.unit("b").fault = "wrong_answer"
    code, text = b70ctl(fake_host, "switch", "b")
    assert code == command.FAILED
    assert "a is served again, verified" in text
    code, text = b70ctl(fake_host, "switch", "bb")
    assert code == command.FAILED
    assert "closest: b" in text


def test_check_only_says(fake_host):
    code, text = b70ctl(fake_host, "switch", "a", "--check")
    assert (code, "start b70-slot-main-a.service" in text, fake_host.running) == (0, True, [])


def test_a_locked_slot(fake_host):
    fake_host.lock_holder = "pid 7 (somebody): a"
    code, text = b70ctl(fake_host, "switch", "a")
    assert code == command.LOCKED
    assert "pid 7 (somebody)" in text


def test_verify_opens_what_was_started_by_hand(fake_host):
    assert b70ctl(fake_host, "verify")[0] == command.NOT_SERVING
    b70ctl(fake_host, "switch", "a")
    fake_host.effects().units.start(LAYOUT.unit("b"))
    recover(fake_host)
    code, text = b70ctl(fake_host, "status")
    assert code == command.NOT_SERVING
    assert "slot main runs b, NOT open to clients" in text
    code, text = b70ctl(fake_host, "verify")
    assert (code, "b is served in slot main, verified" in text) == (0, True)
    fake_host.assert_invariants()


def test_stop_and_recover_have_nothing_to_serve(fake_host):
    b70ctl(fake_host, "switch", "a")
    assert b70ctl(fake_host, "stop") == (0, "slot main is stopped.\n")
    code, text = b70ctl(fake_host, "recover")
    assert code == command.NOT_SERVING
    assert "nothing is to be served, as somebody said at" in text


def test_recover_settles_a_killed_switch(fake_host):
    b70ctl(fake_host, "switch", "a")
    fake_host.kill_at = fake_host.effects_done + 60
    with pytest.raises(Killed):
        b70ctl(fake_host, "switch", "b")
    assert "`b70ctl recover` settles it" in b70ctl(fake_host, "status")[1]
    assert b70ctl(fake_host, "recover")[0] == command.DONE
    fake_host.assert_invariants()
    assert b70ctl(fake_host, "status")[0] == command.DONE


def test_recover_at_the_second_try_is_done(fake_host):
    b70ctl(fake_host, "switch", "a")
    fake_host.crash("a")
    fake_host.unit("a").live_fault = "dies_in_canary"
    code, text = b70ctl(fake_host, "recover")
    assert (code, "a is served again, verified" in text) == (0, True)
    fake_host.assert_invariants()


def test_history_is_a_table_newest_last(fake_host):
    assert b70ctl(fake_host, "history") == (0, "no switch is in the journal\n")
    b70ctl(fake_host, "switch", "a")
    b70ctl(fake_host, "switch", "b", "--why", "because")
    _code, text = b70ctl(fake_host, "history")
    assert [line.split()[2:6] for line in text.splitlines()[1:]] == [
        ["-", "->", "a", "committed"],
        ["a", "->", "b", "committed"],
    ]
    _code, text = b70ctl(fake_host, "history", "--json", "-n", "1")
    assert [item["to"] for item in json.loads(text)["switches"]] == ["b"]


def test_history_shows_records_beside_switches(fake_host):
    b70ctl(fake_host, "switch", "a")
    (switched,) = json.loads(b70ctl(fake_host, "history", "--json")[1])["switches"]
    before = record("soak", "2026-06-07T08:00:00Z", verdict="failed", reasons=["2 persistent anomalies"])
    after = {**record("benchmark", "2026-06-08T04:16:00Z", data={"summary": "781 tok/s with 8 streams"})}
    after["ended_at"] = "2026-06-08T04:17:30Z"
    other = record("benchmark", "2026-06-08T05:00:00Z", slot="second")
    rows = [row(one) for one in (other, after, before)]
    fake_host.put(LAYOUT.records_index, json.dumps({"schema": 1, "machine": machine(), "records": rows}))
    _code, text = b70ctl(fake_host, "history")
    assert [line.split()[1] for line in text.splitlines()] == ["KIND", "soak", "switch", "benchmark"]
    assert text.splitlines()[1].split()[2:] == ["tiny-a", "failed", "0.0", "2", "persistent", "anomalies"]
    assert text.splitlines()[-1].split()[2:] == ["tiny-a", "passed", "90.0", *"781 tok/s with 8 streams".split()]
    document = json.loads(b70ctl(fake_host, "history", "--json", "-n", "2")[1])
    assert document["switches"] == [switched]
    assert [one["id"] for one in document["records"]] == [after["id"]]


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"schema": 2, "records": []}', '{"schema": 1, "records": [{}, 7]}'])
def test_an_index_of_records_that_is_torn_hides_no_switch(fake_host, torn):
    b70ctl(fake_host, "switch", "a")
    fake_host.put(LAYOUT.records_index, torn)
    code, text = b70ctl(fake_host, "history")
    assert (code, len(text.splitlines())) == (0, 2)


def test_status_tells_a_switch_at_work_from_one_that_was_killed(fake_host):
    b70ctl(fake_host, "switch", "a")
    fake_host.kill_at = fake_host.effects_done + 100
    with pytest.raises(Killed):
        b70ctl(fake_host, "switch", "b")
    text = b70ctl(fake_host, "status")[1]
    assert "a switch to b that began at 2026-06-07T09:00:" in text
    assert "was interrupted in phase" in text
    # The note of a holder that is gone says nothing; that of one that lives does.
    fake_host.put(LAYOUT.lock_file, "pid 4000000 (ann) since 2026-06-07T09:00:00Z: b\n")
    assert "at work" not in b70ctl(fake_host, "status")[1]
    fake_host.effects().units.start(LAYOUT.unit("a"))
    fake_host.put(LAYOUT.lock_file, f"pid {fake_host.engine().pid} (ann) since 2026-06-07T09:00:00Z: b\n")
    fake_host.put(
        LAYOUT.progress_file,
        f'{{"event": "start", "pid": {fake_host.engine().pid}}}\n'
        '{"event": "phase", "phase": "health", "direction": "forward"}\n'
        '{"event": "hint", "text": "loading weights 62 %"}\n[]\ntorn {',
    )
    text = b70ctl(fake_host, "status")[1]
    assert "(ann) since 2026-06-07T09:00:00Z: b, in phase health: loading weights 62 %" in text
    assert "interrupted" not in text
    fake_host.put(LAYOUT.progress_file, '{"event": "start", "pid": 1}\n{"event": "phase", "phase": "enable"}\n')
    assert "in phase" not in b70ctl(fake_host, "status")[1]


@pytest.mark.parametrize(
    ("kind", "files", "line"),
    [
        (
            "soak",
            {
                "given.json": '{"profile": "a", "began_at": "2026-06-07T09:00:00Z"}',
                "out/seen.json": '{"now": "cycle 3: load"}',
            },
            "a soak of a since 2026-06-07T09:00:00Z runs (b70-soak-main.service): cycle 3: load",
        ),
        (
            "context_search",
            {"given.json": '{"profile": "b", "began_at": "2026-06-07T09:00:00Z"}'},
            "a context search of b since 2026-06-07T09:00:00Z runs (b70-context-search-main.service)",
        ),
        # Only root may look into its files.
        ("benchmark", {}, "a benchmark runs (b70-benchmark-main.service)"),
        ("promotion", {"given.json": "[", "out/seen.json": "[]"}, "a promotion runs (b70-promotion-main.service)"),
        # The engine's user writes it.
        ("soak", {"out/seen.json": "[" * 100_000}, "a soak runs (b70-soak-main.service)"),
    ],
)
def test_status_tells_of_work_that_runs(fake_host, kind, files, line):
    b70ctl(fake_host, "switch", "a")
    for name, content in files.items():
        fake_host.put(LAYOUT.state_dir / kind / "main" / name, content)
    assert not any("runs (b70-" in one for one in b70ctl(fake_host, "status")[1].splitlines())
    unit = FakeUnit(unit_of(kind, "main"), active="active", sub="running")
    fake_host.units[unit.name] = unit
    assert line in b70ctl(fake_host, "status")[1].splitlines()
    assert json.loads(b70ctl(fake_host, "status", "--json")[1])["works"][0]["kind"] == kind


def test_status_calls_no_engine_served_that_was_not_verified(fake_host):
    b70ctl(fake_host, "switch", "b")
    fake_host.crash("b")
    code, text = b70ctl(fake_host, "status")
    assert code == command.NOT_SERVING
    assert "slot main runs b, NOT open to clients: the process that was verified is gone" in text


def test_history_tells_why(fake_host):
    b70ctl(fake_host, "switch", "a", "--why", "a trial")
    assert b70ctl(fake_host, "history")[1].splitlines()[1].endswith("why: a trial")


def complete(fake_host, tmp_path, *words):
    """What bash offers for the last of the words."""
    script = b70ctl(fake_host, "completion")[1].replace(str(LAYOUT.profiles_dir), str(tmp_path))
    for name in "ab":
        (tmp_path / f"{name}.json").write_text("{}")
    line = f"COMP_WORDS=({' '.join(repr(word) for word in words)}) COMP_CWORD={len(words) - 1}"
    script += f'{line}\n_b70ctl\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_words_options_and_profiles(fake_host, tmp_path):
    assert complete(fake_host, tmp_path, "b70ctl", "s") == ["status", "switch", "stop"]
    assert complete(fake_host, tmp_path, "b70ctl", "switch", "") == [
        *complete(fake_host, tmp_path, "b70ctl", "switch", "--"),
        "a",
        "b",
    ]
    assert complete(fake_host, tmp_path, "b70ctl", "switch", "--ga") == ["--gate"]
    assert complete(fake_host, tmp_path, "b70ctl", "recover", "--wh") == ["--why"]
    assert complete(fake_host, tmp_path, "b70ctl", "stop", "a") == []


@pytest.mark.parametrize(
    "words", [(), ("serve",), ("switch",), ("switch", "a", "--gate", "no"), ("history", "-n", "x")]
)
def test_wrong_usage_is_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        command.parser().parse_args(words)
    assert ended.value.code == command.USAGE
    assert capsys.readouterr().err


def test_help_tells_the_exit_codes(capsys):
    with pytest.raises(SystemExit):
        command.parser().parse_args(["--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("list", "status", "switch", "stop", "verify", "recover", "history"))
    assert "4  locked" in text


def test_who_may_not_read_the_profiles_is_told_how_to(monkeypatch, tmp_path, capsys):
    def closed(*_given: object) -> None:
        raise PermissionError(13, "Permission denied", "/etc/b70-vllm-slot/profiles")

    monkeypatch.setattr(command, "execute", closed)
    places = dict.fromkeys(("config_dir", "run_dir", "state_dir", "unit_dir"), str(tmp_path))
    settings = {"slot": "main", "frontdoor_url": "http://127.0.0.1:8000", **places}
    assert command.main(["status"], settings) == command.FAILED
    said = capsys.readouterr().err
    assert said == "b70ctl: /etc/b70-vllm-slot/profiles: Permission denied; use: sudo b70ctl status\n"


@pytest.mark.parametrize(
    ("words", "units", "rest"),
    [
        (["logs"], ["b70-slot-main-*", "b70-controller-main.service"], ["--lines=100", "--output=short-iso"]),
        (
            ["logs", "a", "-n", "5", "-f"],
            ["b70-slot-main-a.service", "b70-slot-main-a@*.service"],
            ["--lines=5", "--output=short-iso", "--follow"],
        ),
        (["logs", "--json"], ["b70-slot-main-*", "b70-controller-main.service"], ["--lines=100", "--output=json"]),
    ],
)
def test_logs_are_those_of_the_slots_units(words, units, rest):
    argv = command.journal_argv(LAYOUT, command.parser().parse_args(words))
    assert argv == ["journalctl", *(f"--unit={unit}" for unit in units), *rest]


def test_the_version_is_that_of_the_collection(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--version"], {"version": "1.2.3"})
    assert (ended.value.code, capsys.readouterr().out) == (0, "arcpro.b70 1.2.3\n")
