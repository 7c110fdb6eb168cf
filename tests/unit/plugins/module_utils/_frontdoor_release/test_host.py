# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effects on files of this machine, with systemd and the service played."""

from __future__ import annotations

import grp
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release import host
from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release.types import (
    UNIT,
    Await,
    File,
    Identity,
    Keep,
    MakeLink,
    Move,
    ReleaseFault,
    ReleasePaths,
    Reload,
    Remove,
    RunCommand,
    ServiceState,
    Write,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.http import HttpClient
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply

URL = "http://127.0.0.1:8000/status"
GROUP = grp.getgrgid(os.getgid()).gr_name
SHOWN = {
    "good": "ActiveState=active\nUnitFileState=enabled",
    "stopped": "ActiveState=inactive\nUnitFileState=enabled",
    "crashes": "ActiveState=activating\nUnitFileState=enabled",
    "disabled": "ActiveState=active\nUnitFileState=disabled",
    "gone": "ActiveState=inactive\nUnitFileState=",
}


@pytest.fixture
def effects() -> host.ReleaseHost:
    return host.ReleaseHost()


def judge(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


def test_units_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        host, "_run", lambda argv: "\n\n".join(SHOWN[name] for name in argv[argv.index("--") + 1 :]) + "\n"
    )
    assert host._unit_states(tuple(SHOWN)) == {
        "good": ServiceState(enabled=True, active=True),
        "stopped": ServiceState(enabled=True),
        "crashes": ServiceState(enabled=True),
        "disabled": ServiceState(active=True),
        "gone": ServiceState(),
    }


def test_units_are_neither_where_systemd_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_argv: Any) -> str:
        raise ReleaseFault("no bus")

    monkeypatch.setattr(host, "_run", refuses)
    assert host._unit_states((UNIT,)) == {UNIT: ServiceState()}


@pytest.mark.parametrize(
    ("answer", "build"),
    [
        (Reply(200, '{"frontdoor": {"build": "b"}}'), "b"),
        (Reply(200, '{"frontdoor": {}}'), ""),
        (Reply(200, "[]"), ""),
        (Reply(0, error="refused"), ""),
        (Reply(502, "no JSON"), ""),
    ],
)
def test_what_answers_says_its_build(
    monkeypatch: pytest.MonkeyPatch, effects: host.ReleaseHost, answer: Reply, build: str
) -> None:
    monkeypatch.setattr(HttpClient, "get", lambda _client, _url, _limit_s: answer)
    assert effects.answers(URL) == build


@pytest.mark.parametrize(("build", "said"), [("", "nobody"), ("a", "another build, a")])
def test_waiting_for_an_answer_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, effects: host.ReleaseHost, build: str, said: str
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(host, "time", clock)
    monkeypatch.setattr(host.ReleaseHost, "_said", lambda self, url: {"build": "b" if now[0] >= 3 else build})
    effects.do(Await(Identity("b", "/env", URL), 5))
    now[0] = 0.0
    with pytest.raises(ReleaseFault, match=f"^{said} answered within 2 s$"):
        effects.do(Await(Identity("b", "/env", URL), 2))


RESTART = RunCommand(("systemctl", "restart", UNIT), "restart it")


@pytest.mark.parametrize(
    ("said", "ran"),
    [
        ([{"build": "b.1"}, {"build": "b.2"}], []),
        ([{"build": "b.1"}, {"build": "b.1", "restart_needed": ["slots"]}, {}, {"build": "b.2"}], [RESTART.argv]),
    ],
)
def test_a_reload_becomes_a_restart_where_the_process_says_so(
    monkeypatch: pytest.MonkeyPatch, effects: host.ReleaseHost, said: list[dict[str, Any]], ran: list[tuple[str, ...]]
) -> None:
    commands: list[Any] = []
    monkeypatch.setattr(host, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None))
    monkeypatch.setattr(host, "_run", lambda argv, limit_s=0: commands.append(argv))
    monkeypatch.setattr(host.ReleaseHost, "_said", lambda self, url: said.pop(0))
    effects.do(Reload(Identity("b.2", "/env", URL), 5, RESTART))
    assert (commands, said) == ([("systemctl", "reload", UNIT), *ran], [])


def test_settings_that_were_not_taken_are_named(monkeypatch: pytest.MonkeyPatch, effects: host.ReleaseHost) -> None:
    wrong = {"build": "b.1", "settings_error": "frontdoor.toml: cors: no"}
    monkeypatch.setattr(host, "_run", lambda argv, limit_s=0: "")
    monkeypatch.setattr(host.ReleaseHost, "_said", lambda self, url: wrong)
    with pytest.raises(ReleaseFault, match=r"^another build, b\.1 answered within 0 s: frontdoor\.toml: cors: no$"):
        effects.do(Reload(Identity("b.2", "/env", URL), 0, RESTART))


def test_a_file_is_judged_before_it_is_replaced(tmp_path: Path, effects: host.ReleaseHost) -> None:
    path = tmp_path / "a.service"
    good = "import sys; name = sys.argv[-1]; sys.exit(not (name.endswith('/a.service') and open(name).read()))"
    effects.do(Write(File(str(path), "one\n", "0640", GROUP, check=judge(good))))
    assert (path.read_text(), oct(path.stat().st_mode)[-3:]) == ("one\n", "640")
    wrong = judge("import sys; sys.exit('line 3 is wrong')")
    with pytest.raises(ReleaseFault, match="ended with 1: line 3 is wrong"):
        effects.do(Write(File(str(path), "two\n", "0640", GROUP, check=wrong)))
    assert path.read_text() == "one\n"
    assert os.listdir(tmp_path) == ["a.service"]


def test_a_link_is_replaced_and_a_folder_is_not(tmp_path: Path, effects: host.ReleaseHost) -> None:
    link, folder = tmp_path / "venv", tmp_path / "folder"
    (tmp_path / "venv.new").symlink_to("left by an interrupted run")
    for target in ("/one", "/two"):
        effects.do(MakeLink(str(link), target))
        assert os.readlink(link) == target
    folder.mkdir()
    with pytest.raises(ReleaseFault, match="directory"):
        effects.do(MakeLink(str(folder), "/one"))
    assert sorted(os.listdir(tmp_path)) == ["folder", "venv"]


def test_what_is_in_the_way_of_a_move_stays(tmp_path: Path, effects: host.ReleaseHost) -> None:
    source, target = tmp_path / "venv", tmp_path / "venv-before"
    source.mkdir()
    target.mkdir()
    with pytest.raises(ReleaseFault, match=f"{target} exists; move it away"):
        effects.do(Move(str(source), str(target)))
    target.rmdir()
    effects.do(Move(str(source), str(target)))
    assert os.listdir(tmp_path) == ["venv-before"]


def test_files_links_and_folders_are_removed_and_no_target_of_a_link(tmp_path: Path, effects: host.ReleaseHost) -> None:
    stays = tmp_path / "stays"
    (stays / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(stays)
    for name in ("folder", "file", "link", "nothing"):
        effects.do(Remove(str(tmp_path / name)))
    assert os.listdir(tmp_path) == ["stays"]
    assert os.listdir(stays) == ["below"]


def test_what_is_kept_is_found_again(tmp_path: Path, effects: host.ReleaseHost) -> None:
    config, units = tmp_path / "etc", tmp_path / "system"
    config.mkdir()
    units.mkdir()
    place = ReleasePaths(str(tmp_path / "venv"), str(tmp_path), str(config), str(units), "door")
    assert effects.kept(place).identity is None
    Path(place.config_file).write_text("a = 1\n")
    Path(place.unit_files[0]).write_text("[Unit]\n")
    Path(place.kept_dir).mkdir()
    Path(place.kept(place.unit_files[1])).write_text("of another release")
    one = Identity("b", "/env", URL)
    effects.do(Keep(place, one))
    kept = effects.kept(place)
    assert kept.identity == one
    assert kept.texts == {place.config_file: "a = 1\n", place.unit_files[0]: "[Unit]\n"}
    assert kept.folder is False
    Path(place.record_file).write_text("cut off")
    assert effects.kept(place).identity is None


def test_a_command_says_why_it_failed(effects: host.ReleaseHost) -> None:
    effects.do(RunCommand(judge(""), "do nothing"))
    with pytest.raises(ReleaseFault, match="ended with 1: no such unit"):
        effects.do(RunCommand(judge("import sys; sys.exit('no such unit')"), "fail"))
    with pytest.raises(ReleaseFault, match=r"gave no answer within 0\.2 s"):
        effects.do(RunCommand(judge("import time; time.sleep(60)"), "hang", 0.2))
    with pytest.raises(ReleaseFault, match="no-such-program is not installed"):
        effects.do(RunCommand(("no-such-program",), "fail"))


def test_a_host_without_anything_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "_run", lambda argv: "")
    place = ReleasePaths(
        str(tmp_path / "door/venv"), str(tmp_path / "door"), str(tmp_path / "etc"), str(tmp_path), "no-door"
    )
    found = host.look(place, "")
    assert {facts["state"] for facts in found.files.values()} == {"absent"}
    assert (found.texts, found.children, found.group, found.own_folder) == ({}, {}, False, False)
    assert not host.installed(place.link)
    Path(place.link).mkdir(parents=True)
    Path(place.link, "b70-environment.json").touch()
    assert host.look(place, "").own_folder
    assert host.installed(place.link)


def test_only_the_frontdoor_and_systemd_write_its_journal(
    effects: host.ReleaseHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def run(argv: tuple[str, ...]) -> str:
        asked.append(argv)
        return "abc\n" if argv[0] == "systemctl" else "said\n"

    monkeypatch.setattr(host, "_run", run)
    assert effects.journal() == ["said"]
    # Everybody may write INVOCATION_ID; nobody but journald writes what begins with _.
    assert asked[-1][-4:] == ("_SYSTEMD_INVOCATION_ID=abc", "+", "_PID=1", "INVOCATION_ID=abc")
