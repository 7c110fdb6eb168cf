# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of b70_weights that the hosts of a play take together: hosts are what they answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.action import b70_weights
from ansible_collections.arcpro.b70.plugins.action.b70_weights import NOW, SHARED
from ansible_collections.arcpro.b70.plugins.module_utils._weights import sources
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import WeightsError
from ansible_collections.arcpro.b70.plugins.plugin_utils import _work

COMMIT = "c" * 40
SOURCE = {"m": {"hub": "o/n", "revision": COMMIT}}
RECORD = {"f": [9, "a" * 64]}
ARGUMENTS: dict[str, Any] = {"directory": "/m", "models": SOURCE, "wanted": None, "lenient": [], "report": []}


class Fleet:
    """The hosts of a play: who has the model, what taking it from a host comes to, who can reach the hub."""

    def __init__(self, *names: str, having: tuple[str, ...] = (), rotten: tuple[str, ...] = (), hub: bool = True):
        self.results: dict[str, dict[str, Any]] = {name: {} for name in names}
        self.having, self.rotten, self.hub = set(having), set(rotten), hub
        self.addresses = {name: f"10.0.0.{number}" for number, name in enumerate(names, 1)}
        # Hosts where a transfer is ended so many more times by somebody.
        self.ended: dict[str, int] = {}
        self.said: list[tuple[str, str]] = []
        self.warnings: list[str] = []

    def step(self, name: str, check: bool = False) -> None:
        """All hosts take a step."""
        for host in self.results:
            action = Host(host, self, check)
            found = getattr(action, f"_{name}")(ARGUMENTS)
            self.results[host][SHARED if name == "share" else NOW] = found
            self.warnings += found.get("warnings", [])

    def bring(self) -> None:
        for name in ("find", "share", "serve"):
            self.step(name)
        for _number in range(self.results["a"][SHARED]["rounds"]):
            self.step("round")


class Host(b70_weights.ActionModule):
    def __init__(self, name: str, fleet: Fleet, check: bool):
        self._vars = {
            "inventory_hostname": name,
            "ansible_play_batch": list(fleet.results),
            "hostvars": fleet.results,
        }
        self._host, self._fleet = name, fleet
        self._task = SimpleNamespace(check_mode=check, diff=check, args={})
        defaults = {**sources.OPTIONS, **sources.PEERS}
        self._options = {key: value["default"] for key, value in defaults.items()}
        self._full, self._pins_file, self._token = False, "", "secret"
        self._connection = None
        self._taking: dict[str, Any] = {}

    def _client(self, _arguments: Any) -> dict[str, Any]:
        return {}

    def _say(self, _name: str, text: str) -> None:
        self._fleet.said.append((self._host, text))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        fleet, host = self._fleet, self._host
        if request["step"] == "inspect":
            has = host in fleet.having
            found: dict[str, Any] = {
                "state": "complete" if has else "missing",
                "reason": "" if has else "not there",
                "files": 1,
            }
            found.update(size=9, adopted=False, unknown=[], revision=COMMIT if has else "")
            more: dict[str, Any] = {}
            if "peers" in request:
                more["peer"] = {"address": fleet.addresses[host], "gives": True, "takes": True, "serving": False}
                more["records"] = {"m": RECORD} if has else {}
                more["standing"] = {} if has else {"m": {"running": False, "begun": 0}}
            return {"models": {"m": found}, **more}
        if request["step"] == "serve":
            assert host in fleet.having
            assert request["address"] == fleet.addresses[host]
            assert request["allowed"] == sorted(fleet.addresses.values())
            return {"url": "http://not.asked/for"}
        if request["step"] == "start":
            self._taking = request["spec"]
            for peer in self._taking.get("peers", ()):
                assert peer["url"] == f"http://{fleet.addresses[peer['host']]}:18090/m"
            if self._taking["kind"] == "hub" and not fleet.hub:
                raise WeightsError("the hub sends nothing")
            return {"state": "running", "left": 1, "bytes": 9, "joined": False, "progress": None}
        if request["step"] == "look":
            wrong: dict[str, Any] = {}
            if self._taking["kind"] == "peers":
                if fleet.ended.get(host):
                    fleet.ended[host] -= 1
                    return {"state": "ended", "error": "the download was ended", "broke_off": True}
                givers = [peer["host"] for peer in self._taking["peers"]]
                wrong = {"wrong": {giver: "f is wrong" for giver in givers if giver in fleet.rotten}}
                if set(givers) <= fleet.rotten:
                    return {"state": "ended", "error": "no host is left", "broke_off": False, **wrong}
            fleet.having.add(host)
            return {"state": "ended", "files": 1, "size": 9, "brought": 1, **wrong}
        assert request["step"] == "acknowledge"
        return {}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(b70_weights, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(_work, "keep_alive", lambda _connection: None)


def downloads(fleet: Fleet) -> list[str]:
    return [host for host, text in fleet.said if text.startswith("fetching")]


def test_one_host_downloads_and_the_others_take_what_was_brought_last() -> None:
    fleet = Fleet("a", "b", "c", "d")
    fleet.bring()
    assert fleet.said == [
        ("a", "fetching 1 files, 9 bytes from o/n at cccccccccccc"),
        ("b", "taking 1 files, 9 bytes from a"),
        ("c", "taking 1 files, 9 bytes from a, b"),
        ("d", "taking 1 files, 9 bytes from a, b"),
    ]
    assert [found[NOW]["left"] for found in fleet.results.values()] == [{}] * 4
    assert {found[NOW]["models"]["m"]["state"] for found in fleet.results.values()} == {"complete"}
    assert [found[SHARED]["closes"] for found in fleet.results.values()] == [True, True, False, False]
    assert fleet.warnings == []


def test_converged_hosts_take_no_round_and_change_nothing() -> None:
    fleet = Fleet("a", "b", having=("a", "b"))
    fleet.bring()
    assert fleet.said == []
    for found in fleet.results.values():
        assert (found[SHARED]["rounds"], found[SHARED]["lacks"], found[SHARED]["closes"]) == (0, [], False)
        assert (found[NOW]["changed"], found[NOW]["left"]) == (False, {})


def test_a_host_with_wrong_bytes_is_named_and_the_first_taker_downloads_for_the_others() -> None:
    fleet = Fleet("a", "b", "c", having=("a",), rotten=("a",))
    fleet.bring()
    assert downloads(fleet) == ["b"]
    assert ("c", "taking 1 files, 9 bytes from b") in fleet.said
    fallback, wrong = fleet.warnings
    assert fallback == "b downloads m from its source, because a did not give it: m: no host is left"
    assert "a gave wrong bytes of m to b, which were not used: f is wrong" in wrong


def test_a_transfer_that_somebody_ends_goes_on_from_the_same_hosts_once_and_then_its_source_is_asked_aloud() -> None:
    fleet = Fleet("a", "b", having=("a",))
    fleet.ended = {"b": 1}
    fleet.bring()
    assert (downloads(fleet), fleet.warnings) == ([], [])
    taking = ("b", "taking 1 files, 9 bytes from a")
    assert fleet.said == [taking, ("b", "the download was ended; taking it again"), taking]
    fleet = Fleet("a", "b", having=("a",))
    fleet.ended = {"b": 2}
    fleet.bring()
    assert downloads(fleet) == ["b"]
    (warning,) = fleet.warnings
    assert warning.startswith("b downloads m from its source, because a did not give it: m: the download was ended. ")


def test_without_a_source_outside_nothing_fails_here_and_the_reason_is_kept() -> None:
    fleet = Fleet("a", "b", hub=False)
    fleet.bring()
    assert fleet.results["a"][NOW]["left"] == {"m": "the hub sends nothing"}
    assert fleet.having == set()


def test_check_mode_says_who_downloads_and_who_takes_and_nothing_else_happens() -> None:
    fleet = Fleet("a", "b", "c")
    for name in ("find", "share", "serve"):
        fleet.step(name, check=True)
    assert [found[SHARED]["summary"] for found in fleet.results.values()] == [
        ["m: would be fetched from o/n at cccccccccccc"],
        ["m: would be taken from a"],
        ["m: would be taken from a, b"],
    ]
    assert {found[SHARED]["rounds"] for found in fleet.results.values()} == {0}
    assert fleet.said == []


def test_check_mode_plans_and_shows_what_is_left_to_other_steps_as_on_a_host_alone() -> None:
    fleet = Fleet("a", "b", having=("b",))
    alone = Host("a", fleet, check=True)._bring(ARGUMENTS)
    fleet.step("find", check=True)
    found = fleet.results["a"][NOW]
    assert (found["brings"], found["changed"]) == ([f"/m/m@{COMMIT}"], True)
    assert found["diff"]["after"] == "m: complete, 1 files, 9 bytes (from o/n at cccccccccccc)\n"
    assert [found[word] for word in ("brings", "changed", "diff")] == [
        alone[word] for word in ("brings", "changed", "diff")
    ]
    assert found["left"] == {"m": "not there"}
    assert (fleet.results["b"][NOW]["brings"], fleet.results["b"][NOW]["changed"]) == ([], False)
    for name in ("share", "serve"):
        fleet.step(name, check=True)
    assert fleet.results["a"][NOW]["brings"] == [f"/m/m@{COMMIT}"]


def test_what_is_left_to_other_steps_is_not_called_brought_before_it_is_there() -> None:
    fleet = Fleet("a", "b")
    fleet.step("find")
    assert (fleet.results["a"][NOW]["brings"], fleet.results["a"][NOW]["changed"]) == ([], False)


@pytest.mark.parametrize("address", ["all; } server { listen 80; root /; } #", "fe80::1%; allow all; #", ["10.0.0.1"]])
def test_what_a_host_calls_its_address_is_checked_before_other_hosts_see_it(address: Any) -> None:
    fleet = Fleet("a", "b", having=("a",))
    fleet.addresses["a"] = address
    with pytest.raises(WeightsError, match="is no IP address"):
        fleet.step("find")


def test_the_token_goes_only_to_a_host_that_asks_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    host = Host("a", Fleet("a"), check=False)
    host._task.args = {"directory": "/m"}

    def execute(**call: Any) -> dict[str, Any]:
        sent.append(call["module_args"]["hub_token"])
        return {}

    monkeypatch.setattr(host, "_execute_module", execute)
    for request in ({"step": "start", "spec": {"kind": "hub"}}, {"step": "start", "spec": {"kind": "peers"}}):
        b70_weights.ActionModule._ask(host, request)
    b70_weights.ActionModule._ask(host, {"step": "serve"})
    assert sent == ["secret", "", ""]
