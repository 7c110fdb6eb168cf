# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's halves of the slot's modules: what is rendered, asked before a switch, and put into words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader

from ansible_collections.arcpro.b70.plugins.action import b70_model_slot, b70_model_slot_info, b70_slot_files
from ansible_collections.arcpro.b70.plugins.modules.b70_slot_files import DOCUMENTATION, SETTINGS

UNCHANGED = {"slot": "main", "outcome": "unchanged", "changed": False, "wanted": "tiny-a", "profile": "tiny-a"}
TO_DO = {**UNCHANGED, "outcome": "committed", "changed": True, "actions": ["start tiny-a"]}
DONE = {**TO_DO, "actions": [], "verified": True}
CHECK = {"memory_dir": "/var/cache/b70/check"}


@pytest.fixture(autouse=True)
def plain_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})


class Host:
    """What the modules answer, and what they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: dict[str, Any]) -> None:
        self.asked: list[tuple[str, dict[str, Any], bool]] = []
        self.said: list[str] = []
        self.answers = answers
        monkeypatch.setattr(b70_model_slot.display, "display", lambda text, color=None: self.said.append(text))

    def run(self, action: Any, *, check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        plugin = object.__new__(action.ActionModule)
        plugin._task = SimpleNamespace(args=arguments, check_mode=check_mode, diff=True, async_val=0)
        plugin._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None), has_native_async=False)

        def module(module_name: str, task_vars: Any = None, module_args: Any = None) -> dict[str, Any]:
            name = module_name.rpartition(".")[2]
            self.asked.append((name, arguments if module_args is None else module_args, plugin._task.check_mode))
            return dict(self.answers[name])

        plugin._execute_module = module
        plugin._run_watched = lambda: module("switch")
        return dict(plugin.run(None, {"inventory_hostname": "h1"}))

    @property
    def names(self) -> list[tuple[str, bool]]:
        return [(name, check_mode) for name, _arguments, check_mode in self.asked]


def test_a_slot_that_serves_the_profile_is_left_alone_by_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, b70_model_slot=UNCHANGED)
    planned: dict[str, Any] = {"planned_files": [{"path": "/x"}], "planned_stacks": ["cpu-1"]}
    result = host.run(b70_model_slot, profile="tiny-a", engine_check=CHECK, **planned)
    assert host.names == [("b70_model_slot", True)]
    assert host.asked[0][1] == {"profile": "tiny-a", "engine_check": CHECK}
    assert (result["changed"], result["summary"]) == (
        False,
        ["h1 serves tiny-a (model id tiny-a; unchanged; NOT verified)"],
    )


def test_the_engine_is_asked_before_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = {"tiny-a": {"verdict": "fits", "text": "tiny-a fits"}}
    host = Host(monkeypatch, b70_model_slot=TO_DO, b70_profile_check={"fit": fit}, switch=DONE)
    given: dict[str, Any] = {"profile": "tiny-a", "config_dir": "/etc/own", "public_url": "http://h1:8000/v1"}
    result = host.run(b70_model_slot, engine_check=CHECK, **given)
    assert host.names == [("b70_model_slot", True), ("b70_profile_check", False), ("switch", False)]
    assert host.asked[1][1] == {**CHECK, "profiles": ["tiny-a"], "fit": ["tiny-a"], "config_dir": "/etc/own"}
    assert host.said == ["h1 | tiny-a fits"]
    assert result["summary"][1] == "frontdoor: http://h1:8000/v1"
    assert result["layout"] == {"config_dir": "/etc/own"}


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("word", ["complaints", "unanswered"])
def test_what_the_engine_refuses_is_not_switched(monkeypatch: pytest.MonkeyPatch, word: str, check_mode: bool) -> None:
    refusal = {"failed": True, "msg": "no such option. Nothing is switched", word: {"tiny-a": "no such option"}}
    host = Host(monkeypatch, b70_model_slot=TO_DO, b70_profile_check=refusal)
    result = host.run(b70_model_slot, check_mode=check_mode, initial_profile="tiny-a", engine_check=CHECK)
    assert (result["failed"], result["msg"], result["summary"]) == (True, "no such option. Nothing is switched", [])
    assert host.asked[1][1]["fit"] == []


def test_a_prediction_goes_on_where_the_profile_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"failed": True, "msg": "there is no profile tiny-a"}
    host = Host(monkeypatch, b70_model_slot=TO_DO, b70_profile_check=missing)
    planned: dict[str, Any] = {"planned_files": [{"path": "/x"}]}
    result = host.run(b70_model_slot, check_mode=True, profile="tiny-a", engine_check=CHECK, **planned)
    assert host.asked[0][1]["planned_files"] == [{"path": "/x"}]
    assert result["summary"] == ["h1 would: start tiny-a"]


def test_without_a_check_the_switch_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, switch=DONE)
    assert host.run(b70_model_slot, profile="tiny-a")["changed"]
    assert host.names == [("switch", False)]


def test_the_status_is_put_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    empty: dict[str, Any] = {"slot": "main", "profile": None, "engine": None, "reason": "stopped", "enabled_units": []}
    host = Host(monkeypatch, b70_model_slot_info=empty)
    assert host.run(b70_model_slot_info)["summary"] == ["h1 serves nothing: stopped", "at boot: nothing"]
    host.answers["b70_model_slot_info"] = {"failed": True, "msg": "no"}
    assert "summary" not in host.run(b70_model_slot_info)


PLACE: dict[str, Any] = {name: f"/x/{name}" for name in b70_slot_files.SHARED}


PROFILES = {"a": {"replicas": 1, "nodes": 1, "cards": 0}}


@pytest.mark.parametrize(
    ("replicas", "found", "told", "expected"),
    [
        *(("per_card", 2, None, 2), ("per_card", 2, "", 2), ("per_card", 2, 4, 4), (3, 2, None, None)),
        # One engine may have a second side; a host that does not tell gets none.
        *((1, 2, None, 2), (1, 2, 4, 4), (1, None, None, None)),
    ],
)
def test_the_cards_of_the_host_are_counted_where_engines_depend_on_them(
    monkeypatch: pytest.MonkeyPatch, replicas: Any, found: int | None, told: Any, expected: int | None
) -> None:
    profiles = {"a": {"replicas": replicas, "nodes": 1, "cards": 1}}
    lookup = SimpleNamespace(run=lambda *_names, kind, **_more: [profiles if kind == "profiles" else {}])
    monkeypatch.setattr(lookup_loader, "get", lambda *_names, **_more: lookup)
    monkeypatch.setattr(b70_slot_files, "render_slot", lambda _profiles, settings: [settings])
    for name in ("_loader", "_templar"):
        monkeypatch.setattr(b70_slot_files.ActionModule, name, None, raising=False)
    info = {"failed": True, "msg": "?"} if found is None else {"cards": [{}] * found}
    host = Host(monkeypatch, b70_slot_files={"changed": True}, b70_host_info=info)
    host.run(b70_slot_files, **PLACE, settings={"user": "b70", "cards": told})
    (settings,) = host.asked[-1][1]["files"]
    assert settings.get("cards") == expected


def test_engines_beside_cards_of_another_model_are_dealt_the_b70_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = {"a": {"replicas": 1, "nodes": 1, "cards": 1}}
    lookup = SimpleNamespace(run=lambda *_names, kind, **_more: [profiles if kind == "profiles" else {}])
    monkeypatch.setattr(lookup_loader, "get", lambda *_names, **_more: lookup)
    monkeypatch.setattr(b70_slot_files, "render_slot", lambda _profiles, settings: [settings])
    for name in ("_loader", "_templar"):
        monkeypatch.setattr(b70_slot_files.ActionModule, name, None, raising=False)
    cards, others = [{"number": 1}, {"number": 3}], [{"number": 0}, {"number": 2}]
    for beside, mixed in ((others, [1, 3]), ([], None)):
        found = {"cards": cards, "other_cards": beside}
        host = Host(monkeypatch, b70_slot_files={"changed": True}, b70_host_info=found)
        host.run(b70_slot_files, **PLACE, settings={"user": "b70"})
        (settings,) = host.asked[-1][1]["files"]
        assert (settings["cards"], settings["mixed"]) == (2, mixed)
        asked = Host(monkeypatch, b70_slot_files={"changed": True})
        asked.run(b70_slot_files, **PLACE, settings={"user": "b70"}, host=found)
        assert (asked.names, asked.asked[0][1]["files"]) == ([("b70_slot_files", False)], [settings])


def test_the_files_are_rendered_and_what_they_are_made_from_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Lookup:
        def run(self, names: list[str], variables: Any, *, kind: str, **where: Any) -> list[Any]:
            seen.append((kind, where))
            return [PROFILES if kind == "profiles" else {kind: 1}]

    monkeypatch.setattr(lookup_loader, "get", lambda *_names, **_more: Lookup())
    monkeypatch.setattr(b70_slot_files, "render_slot", lambda profiles, settings: [{"profiles": profiles, **settings}])
    for name in ("_loader", "_templar"):
        monkeypatch.setattr(b70_slot_files.ActionModule, name, None, raising=False)
    host = Host(monkeypatch, b70_slot_files={"changed": True})
    given: dict[str, Any] = {
        "settings": {"user": "b70"},
        "profile_dirs": ["p"],
        "stack_dirs": ["s"],
        "inline_profiles": {"a": {}},
    }
    assert host.run(b70_slot_files, **PLACE, **given) == {"changed": True}
    assert seen == [
        ("profiles", {"dirs": ["p"], "stack_dirs": ["s"], "inline": {"a": {}}}),
        ("stacks", {"stack_dirs": ["s"]}),
    ]
    rendered = {"profiles": PROFILES, "user": "b70", **PLACE, "stacks": {"stacks": 1}}
    assert host.asked[0][1] == {**PLACE, "files": [rendered]}


def test_the_weights_on_the_host_are_part_of_what_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    profiles = {"a": {**PROFILES["a"], "weights": [{"directory": "m@c", "base": "m", "repository": "o/n"}]}}

    def run(_names: list[str], _variables: Any, *, kind: str, **where: Any) -> list[Any]:
        asked.append(where.get("weights"))
        return [profiles if kind == "profiles" else {}]

    monkeypatch.setattr(lookup_loader, "get", lambda *_names, **_more: SimpleNamespace(run=run))
    monkeypatch.setattr(b70_slot_files, "render_slot", lambda _profiles, settings: [settings])
    for name in ("_loader", "_templar"):
        monkeypatch.setattr(b70_slot_files.ActionModule, name, None, raising=False)
    found = {"m@c": {"at": "m", "record": "1"}}
    host = Host(monkeypatch, b70_slot_files={"changed": True}, b70_weights={"models": found})
    site = {"revisions": {"o/n": "c"}}
    host.run(b70_slot_files, **PLACE, settings={"models_dir": "/models"}, weights=site)
    look = {"directory": "/models", "request": {"step": "stand", "models": {"m@c": "o/n"}}}
    assert host.asked[0] == ("b70_weights", look, False)
    (settings,) = host.asked[1][1]["files"]
    assert (settings["weights"], "weights" in host.asked[1][1], asked) == (found, False, [site, None])
    host.answers["b70_weights"] = {"failed": True, "msg": "no Python"}
    with pytest.raises(AnsibleActionFail, match="weights on the host could not be looked at: no Python"):
        host.run(b70_slot_files, **PLACE, settings={"models_dir": "/models"})


def test_wrong_settings_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    with pytest.raises(AnsibleActionFail, match="needs the option settings"):
        host.run(b70_slot_files, **PLACE)
    lookup = SimpleNamespace(run=lambda *_names, **_more: [{}])
    monkeypatch.setattr(lookup_loader, "get", lambda *_names, **_more: lookup)
    for name in ("_loader", "_templar"):
        monkeypatch.setattr(b70_slot_files.ActionModule, name, None, raising=False)
    with pytest.raises(AnsibleActionFail, match="slot setting tmpfiles_dir must be text"):
        host.run(b70_slot_files, **PLACE, settings={"user": "b70"})


def test_the_settings_are_those_of_the_documentation() -> None:
    said = yaml.safe_load(DOCUMENTATION)["options"]["settings"]["suboptions"]
    known = ("type", "default", "elements", "required")
    assert {name: {key: one[key] for key in known if key in one} for name, one in said.items()} == SETTINGS
