# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_weights, for models whose revision nobody names: hosts are what they answer."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleError

from ansible_collections.arcpro.b70.plugins.action import b70_weights
from ansible_collections.arcpro.b70.plugins.module_utils._weights import sources
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import WeightsError
from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins_file, _work
from ansible_collections.arcpro.b70.plugins.plugin_utils._pins import PinsError

A, B = "a" * 40, "b" * 40


class Host(b70_weights.ActionModule):
    """A host: `recorded` is the revision it has of o/n ("" none), `upstream` what its source answers now."""

    def __init__(self, name: str, pins_file: Path | str, recorded: str = "", upstream: str = A, check: bool = False):
        self._vars = {"inventory_hostname": name}
        self._task = SimpleNamespace(check_mode=check, diff=False, args={})
        self._options = {key: value["default"] for key, value in sources.OPTIONS.items()}
        self._full, self._pins_file, self._token = False, str(pins_file), ""
        self._connection = None
        self.recorded, self.upstream = recorded, upstream
        self.asked: list[str] = []
        self.fetched: list[str] = []

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request["step"])
        if request["step"] == "resolve":
            return {"revision": self.upstream}
        if request["step"] == "inspect":
            wanted = request["models"]["m"]["source"]["revision"]
            right = bool(self.recorded) and wanted in (None, self.recorded)
            state = "complete" if right else "differs" if self.recorded else "missing"
            found = {"state": state, "reason": "", "files": 5, "size": 9, "adopted": False, "unknown": []}
            return {"models": {"m": {**found, "revision": self.recorded}}}
        if request["step"] == "start":
            self.fetched.append(request["spec"].get("revision") or request["spec"]["expect"]["revision"])
            return {"state": "running", "left": 5, "bytes": 9, "joined": False, "progress": None}
        return {"state": "ended", "files": 5, "size": 9, "brought": 5}

    def bring(self, **source: Any) -> dict[str, Any]:
        models = {"m": {"hub": "o/n", **source}}
        return self._bring({"directory": "/m", "models": models, "wanted": None, "lenient": ["m"], "report": []})


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(b70_weights, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(_work, "keep_alive", lambda _connection: None)
    return tmp_path / "b70-pins.yml"


def test_the_first_download_records_what_it_finds_and_later_hosts_take_it(path: Path):
    first = Host("h1", path, upstream=A)
    done = first.bring()
    assert (done["changed"], first.fetched) == (True, [A])
    assert done["pins"] == [f"o/n: revision {A} is recorded in {path}"]
    entry = _pins_file.read(str(path)).entry("weights", "o/n")
    assert entry is not None
    assert (entry["revision"], entry["host"], entry["from"]) == (A, "h1", "https://huggingface.co")
    later = Host("h2", path, upstream=B)  # the branch moved on
    assert later.bring()["pins"] == []
    assert later.fetched == [A]
    assert "resolve" not in later.asked
    again = Host("h1", path, recorded=A)
    assert again.bring()["changed"] is False


def test_hosts_that_ask_at_the_same_time_agree_on_the_first_answer(path: Path):
    second = Host("h2", path, upstream=B)
    answer = second._ask

    def while_another_is_first(request: dict[str, Any]) -> dict[str, Any]:
        if request["step"] == "resolve":
            Host("h1", path, upstream=A).bring()
        return answer(request)

    second._ask = while_another_is_first  # type: ignore[method-assign]
    second.bring()
    assert second.fetched == [A]
    assert _pins_file.read(str(path)).values("weights") == {"o/n": A}


def test_a_host_with_another_revision_gets_the_pinned_one_beside_it(path: Path):
    Host("h1", path, upstream=A).bring()
    host = Host("h2", path, recorded=B)
    done = host.bring()
    assert (host.fetched, done["directories"]) == ([A], {"m": f"m@{A}"})
    foretold = Host("h2", path, recorded=B, check=True).bring()
    assert (foretold["changed"], foretold["brings"]) == (True, [f"/m/m@{A}"])


def test_a_host_that_records_its_revision_too_late_takes_the_one_of_the_first(path: Path):
    late = Host("h2", path, recorded=B)
    inspect = late._ask

    def while_another_is_first(request: dict[str, Any]) -> dict[str, Any]:
        found = inspect(request)
        if request["step"] == "inspect":
            Host("h1", path, upstream=A).bring()
        return found

    late._ask = while_another_is_first  # type: ignore[method-assign]
    assert late.bring()["directories"] == {"m": f"m@{A}"}
    assert late.fetched == [A]


def test_what_a_host_has_already_is_recorded_and_nobody_is_asked(path: Path):
    host = Host("h1", path, recorded=B)
    assert host.bring()["changed"] is True
    assert (host.fetched, "resolve" in host.asked) == ([], False)
    assert _pins_file.read(str(path)).values("weights") == {"o/n": B}


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ("", "o/n: its revision would be asked for at https://huggingface.co and recorded in "),
        (B, f"o/n: revision {B}, which this host has, would be recorded in "),
    ],
)
def test_check_mode_says_what_would_be_recorded_and_asks_nobody(path: Path, recorded: str, said: str):
    host = Host("h1", path, recorded=recorded, check=True)
    done = host.bring()
    assert done["changed"] is True
    assert f"{said}{path}" in done["summary"]
    assert host.asked == ["inspect"]
    assert not path.exists()


def test_no_place_for_the_pins_refuses_a_first_download_and_only_that(path: Path, monkeypatch: pytest.MonkeyPatch):
    for place, said in (("", "this inventory is no file"), (str(path.parent / "none/p.yml"), "there is no directory")):
        with pytest.raises(WeightsError) as error:
            Host("h1", place).bring(profile="p")
        assert "model m (profile p) comes from the hub's repository o/n, and no revision of it is known" in str(
            error.value
        )
        assert said in str(error.value)
        assert "model_weights_revisions: {o/n: COMMIT}" in str(error.value)
        known = Host("h1", place, recorded=A).bring()
        assert known["changed"] is False
        assert said in known["warnings"][0]
    path.write_text(f"weights: {{o/n: {A}}}\n")
    monkeypatch.setattr(os, "access", lambda *_arguments: False)
    reader = Host("h1", path, upstream=B)
    reader.bring()
    assert reader.fetched == [A]


def test_what_is_named_needs_no_pins(path: Path):
    path.write_text("weights: [broken]\n")
    host = Host("h1", path)
    host.bring(revision=B)
    assert host.fetched == [B]
    with pytest.raises(PinsError, match="weights must be a mapping"):
        Host("h1", path).bring()


def test_a_mirror_says_which_revision_it_has(path: Path):
    host = Host("h1", path, upstream=B)
    host._options["mirror"] = "http://mirror/models"
    host.bring()
    assert host.fetched == [B]
    entry = _pins_file.read(str(path)).entry("weights", "o/n")
    assert entry is not None
    assert entry["from"] == "http://mirror/models"


def test_a_source_is_asked_again_when_it_wants_to_be_and_in_the_end_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    waited: list[float] = []
    monkeypatch.setattr(_work.HostJob, "wait", lambda _self, seconds: waited.append(seconds))
    host, limits = Host("h1", path), [58, 243]
    answer = host._ask

    def limited(request: dict[str, Any]) -> dict[str, Any]:
        if request["step"] in ("start", "resolve") and limits:
            return {"wait_s": limits.pop(0), "said": "the hub limits requests", "advice": "give a token"}
        return answer(request)

    monkeypatch.setattr(host, "_ask", limited)
    assert host.bring()["changed"] is True
    assert waited == [58, 243]
    limits += [60] * 9
    with pytest.raises(WeightsError, match=r"m@b{40}: the hub limits requests, 5 times: give a token"):
        Host.bring(host, revision=B)
    assert waited == [58, 243, 60, 60, 60, 60]


def test_a_wait_takes_its_time_in_short_pauses(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    time = SimpleNamespace(monotonic=lambda: sum(clock), sleep=clock.append)
    monkeypatch.setattr(_work, "time", time)
    monkeypatch.setattr(_work, "keep_alive", lambda _connection: None)
    _work.HostJob(None, "the question", print).wait(5)
    assert clock == [0.0, 2.0, 2.0, 1.0]


def test_a_wait_ends_with_its_play(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_work, "keep_alive", lambda _connection: None)
    job = _work.HostJob(None, "the question", print)
    monkeypatch.setattr("os.getppid", lambda: -1)
    with pytest.raises(AnsibleError, match="the play that watched has ended"):
        job.wait(300)
