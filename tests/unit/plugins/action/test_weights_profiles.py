# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The models that profiles name, and the client that is installed for those of the hub."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.loader import lookup_loader

from ansible_collections.arcpro.b70.plugins.action import b70_weights

MODEL = {"hf_repo": "o/n", "directory": "m", "revision": None, "sha256": None, "size_gb": None}
GIVEN: dict[str, Any] = {
    "models": {},
    "wanted": None,
    "lenient": [],
    "profiles": ["p"],
    "lenient_profiles": True,
    "revisions": {},
    "profile_dirs": [],
    "stack_dirs": [],
    "inline_profiles": {},
    "client": {"path": "/opt/b70/hub/venv"},
}


@pytest.fixture
def action(monkeypatch: pytest.MonkeyPatch) -> Any:
    lookup = SimpleNamespace(run=lambda *_names, **_more: [{"p": {"model": MODEL}}])
    monkeypatch.setattr(lookup_loader, "get", lambda *_names, **_more: lookup)
    plugin = object.__new__(b70_weights.ActionModule)
    plugin._loader = plugin._templar = None
    plugin._vars, plugin._options = {}, {"mirror": ""}
    return plugin


def test_the_model_of_a_profile_is_wanted_and_what_is_there_stays(action: Any) -> None:
    found = action._with_profiles({**GIVEN, "revisions": {"o/n": "c" * 40}})
    assert found["models"] == {"m": {"hub": "o/n", "profile": "p", "revision": "c" * 40}}
    assert (found["wanted"], found["lenient"]) == (None, ["m"])
    found = action._with_profiles({**GIVEN, "wanted": ["x"], "lenient": ["x"], "lenient_profiles": False})
    assert (found["wanted"], found["lenient"]) == (["x", "m"], ["x"])


def test_the_operators_source_wins(action: Any) -> None:
    found = action._with_profiles({**GIVEN, "models": {"m": {"path": "/m"}}, "wanted": []})
    assert (found["models"], found["wanted"], found["lenient"]) == ({"m": {"path": "/m"}}, [], [])


def test_without_profiles_the_catalogue_is_not_read(action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_loader, "get", None)
    assert action._with_profiles({**GIVEN, "profiles": []}) == {**GIVEN, "profiles": []}


def test_only_a_host_that_fetches_from_the_hub_gets_the_client(action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def other(_action: Any, *words: Any) -> dict[str, Any]:
        asked.append(words[:2])
        return {"changed": True}

    monkeypatch.setattr(b70_weights, "run_other", other)
    hub = {"m": {"hub": "o/n"}}
    assert action._client({**GIVEN, "models": hub}) == {"changed": True}
    assert asked == [("arcpro.b70.b70_python_environment", {"path": "/opt/b70/hub/venv"})]
    assert action._client({**GIVEN, "models": {"m": {"path": "/m"}}}) == {}
    assert action._client({**GIVEN, "models": hub, "client": None}) == {}
    action._options = {"mirror": "http://mirror"}
    assert action._client({**GIVEN, "models": hub}) == {}
    assert len(asked) == 1


def test_a_directory_without_a_source_is_judged_by_the_files_that_the_profile_loads(
    action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODEL, "projector", {"directory": "p", "file": "mmproj.gguf"})
    action._with_profiles(GIVEN)
    asked: list[Any] = []

    def ask(request: Any) -> dict[str, Any]:
        asked.append(request)
        return {"models": {}}

    monkeypatch.setattr(action, "_ask", ask)
    action._full = False
    action._inspect({}, ["p", "q"], {})
    sources = {name: model["source"] for name, model in asked[0]["models"].items()}
    assert sources == {"p": {"kind": "host", "include": ["mmproj.gguf"]}, "q": {"kind": "host", "include": None}}
