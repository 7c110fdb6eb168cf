# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both halves of b70_evidence, without a connection between them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_evidence
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.handing import hand_over
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import text
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import read
from unit.plugins.module_utils._evidence.records import record

FIRST = record(began_at="2026-11-23T04:16:00Z")
SECOND = record(began_at="2026-11-23T05:16:00Z")


class Hosts:
    """A host with records and a controller. part_bytes: what the host gives at once."""

    def __init__(self, root: Path) -> None:
        self.host, self.dest, self.part_bytes, self.asked = Store(root / "host"), root / "records", 2**20, 0

    def module(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        return hand_over(self.host, module_args["known"], self.part_bytes)

    def run(self, *, check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        plugin = object.__new__(b70_evidence.ActionModule)
        plugin._task = SimpleNamespace(args={"dest": str(self.dest), **arguments}, check_mode=check_mode)
        plugin._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
        plugin._execute_module = self.module
        return dict(plugin.run(None, {"inventory_hostname": "b70-01"}))


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})
    return Hosts(tmp_path)


def test_new_records_are_copied_once(hosts: Hosts) -> None:
    hosts.host.write(FIRST)
    copied = hosts.run()
    assert (copied["changed"], copied["copied"]) == (True, [f"b70-01/benchmark/{FIRST['id']}.json"])
    assert (hosts.dest / copied["copied"][0]).read_text() == hosts.host.path(FIRST["id"]).read_text()
    again = hosts.run()
    assert (again["changed"], again["copied"], again["diff"]["after"]) == (False, [], "")
    hosts.host.write(SECOND)
    assert hosts.run()["copied"] == [f"b70-01/benchmark/{SECOND['id']}.json"]
    assert read(hosts.dest) == ({"b70-01": [SECOND, FIRST]}, [])


def test_a_host_without_records_is_fine_and_nothing_is_made(hosts: Hosts) -> None:
    assert hosts.run()["summary"] == [f"0 new records copied to {hosts.dest}"]
    assert not hosts.dest.exists()


def test_check_mode_predicts_and_writes_nothing(hosts: Hosts) -> None:
    hosts.host.write(FIRST)
    hosts.host.write(SECOND)
    hosts.part_bytes = 1
    predicted = hosts.run(check_mode=True)
    assert not hosts.dest.exists()
    done = hosts.run()
    assert predicted["summary"] == [f"2 new records would be copied to {hosts.dest}"]
    assert {key: predicted[key] for key in ("changed", "copied", "diff")} == {
        key: done[key] for key in ("changed", "copied", "diff")
    }


def test_many_records_come_in_parts(hosts: Hosts) -> None:
    made = [record(began_at=f"2026-11-23T04:16:{second:02}Z") for second in range(5)]
    for one in made:
        hosts.host.write(one)
    hosts.part_bytes = len(hosts.host.path(made[0]["id"]).read_text()) * 2
    assert len(hosts.run()["copied"]) == 5
    assert hosts.asked == 3


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_record_that_differs_later_is_a_finding_and_the_copy_stays(hosts: Hosts, check_mode: bool) -> None:
    hosts.host.write({**FIRST, "verdict": "failed"})
    hosts.run()
    hosts.host.path(FIRST["id"]).write_text(text(FIRST))
    done = hosts.run(check_mode=check_mode)
    assert (done["changed"], done["copied"], len(done["warnings"])) == (False, [], 1)
    assert "the host has another record of this id than the one that was collected: sha256" in done["problems"][0]
    assert read(hosts.dest)[0] == {"b70-01": [{**FIRST, "verdict": "failed"}]}


def test_what_is_damaged_or_breaks_the_schema_is_named_and_the_others_are_copied(hosts: Hosts) -> None:
    hosts.host.write(FIRST)
    hosts.host.write({**SECOND, "host": {**SECOND["host"], "cores": "many"}})
    third = record("soak")
    hosts.host.write(third).write_text("{")
    done = hosts.run()
    assert done["copied"] == [f"b70-01/benchmark/{FIRST['id']}.json"]
    assert [problem.partition(": ")[0] for problem in done["problems"]] == [
        SECOND["id"],
        str(hosts.host.path(third["id"])),
    ]
    assert "host.cores: must be a whole number" in done["problems"][0]
    assert len(done["warnings"]) == 2
    assert not hosts.run()["changed"]


def test_a_host_that_hands_over_the_same_again_and_again_is_not_asked_for_ever(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.host.write(FIRST)
    hosts.part_bytes = 1

    def module(**given: Any) -> dict[str, Any]:
        hosts.asked += 1
        assert hosts.asked < 5
        return {**hand_over(hosts.host, {}, 1), "more": True}

    monkeypatch.setattr(hosts, "module", module)
    done = hosts.run()
    assert done["copied"] == [f"b70-01/benchmark/{FIRST['id']}.json"]
    assert ("says that it has more records" in done["problems"][0], len(done["problems"])) == (True, 1)
    assert read(hosts.dest) == ({"b70-01": [FIRST]}, [])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (SECOND["id"], "{", "Expecting"),
        (SECOND["id"], "[" * 100_000, "nested too deeply"),
        ("../../x", text(SECOND), "is not the id of a record"),
        (SECOND["id"], text(SECOND).replace('"kind": "benchmark"', '"kind": []'), "[] is none of benchmark"),
        (SECOND["id"], text(SECOND).replace("125.6", "1e999"), "host.memory_gib: is no finite number"),
    ],
)
def test_what_a_host_hands_over_that_is_no_record_is_named(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, name: str, content: str, words: str
) -> None:
    records = {name: content, FIRST["id"]: text(FIRST)}
    monkeypatch.setattr(hosts, "module", lambda **_given: {"records": records, "problems": [], "more": False})
    done = hosts.run()
    assert done["copied"] == [f"b70-01/benchmark/{FIRST['id']}.json"]
    (problem,) = done["problems"]
    assert problem.startswith(f"{name}: ")
    assert words in problem


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_record_of_the_controller_is_replaced(hosts: Hosts, content: bytes) -> None:
    hosts.host.write(FIRST)
    hosts.run()
    path = hosts.dest / "b70-01" / "benchmark" / f"{FIRST['id']}.json"
    path.write_bytes(content)
    assert read(hosts.dest)[0] == {}
    assert str(path) in read(hosts.dest)[1][0]
    assert hosts.run()["changed"]
    assert read(hosts.dest) == ({"b70-01": [FIRST]}, [])


def test_a_folder_that_is_none_and_a_missing_option_are_said(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    hosts.host.write(FIRST)
    with pytest.raises(AnsibleActionFail, match=r"the records cannot be kept in .*file/b70-01"):
        hosts.run(dest=str(tmp_path / "file"))
    with pytest.raises(AnsibleActionFail, match="needs the option dest"):
        hosts.run(dest="")


def test_what_the_module_says_of_a_failure_is_handed_on(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "module", lambda **_given: {"failed": True, "msg": "no python"})
    assert hosts.run() == {"failed": True, "msg": "no python"}
