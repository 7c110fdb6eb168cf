# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/promote.yml on a host that serves tiny-a on the real engine, in order.

Then two profiles are refused: one that is not served, and one that answers otherwise than the one that it claims to
answer as. All the while the frontdoor wants a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from ansible_collections.arcpro.b70.plugins.module_utils._promotion.items import NAMES
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import read
from system.product import Play, play, words_of
from system.test_host import told
from system.test_options import apply, digest
from unit import contracts

UNIT = "b70-promotion-main.service"
RECORDS = "/var/lib/b70/records/promotion"
KEY, OTHER_KEY = "key-of-the-gate-4711", "key-of-nobody-4712"
# The weights of tiny-b, which say another name, with a canary that takes either: healthy, verified, and not the same.
CLAIMS = {
    "extends": "tiny-a",
    "status": "experiment",
    "model": {"directory": "tiny-b"},
    "engine": {"served_model_name": "tiny-claims", "cache_key": "tiny-claims"},
    "canary": {
        "same_answers_as": "tiny-a",
        "cases": [
            {"name": "exact_ok", "prompt": "Answer with the two letters OK and nothing more.", "max_tokens": 8}
            | {"compare": "exact", "expected": "OK"},
            {"name": "identity", "prompt": "Who are you?", "max_tokens": 12, "compare": "contains"}
            | {"expected": "I am tiny-"},
        ],
    },
}
WITH_CLAIMS = ("-e", json.dumps({"b70_profiles": {"tiny-claims": CLAIMS}}))


def arguments(folder: Path, profile: str, **given: Any) -> list[str]:
    values = {"profile": profile, "evidence_dir": str(folder), "promotion_api_key": KEY, **given}
    return ["playbooks/promote.yml", "-e", json.dumps(values)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def keyed() -> Iterator[None]:
    """The frontdoor wants a key; then none again."""
    done = apply({"frontdoor_api_keys": {"gate": digest(KEY)}})
    assert done.code == 0, done.output
    yield
    done = apply({})
    assert done.code == 0, done.output


@pytest.fixture(scope="module")
def promoted(keyed: None, folder: Path) -> Play:
    return play(*arguments(folder, "tiny-a"))


@pytest.fixture(scope="module")
def record(promoted: Play, folder: Path, host_vars: dict[str, Any]) -> dict[str, Any]:
    assert promoted.code == 0, promoted.output
    records, problems = read(folder)
    assert problems == []
    found = [one for one in records[host_vars["inventory_name"]] if one["kind"] == "promotion"]
    return max(found, key=lambda one: str(one["began_at"]))


def test_a_profile_that_passes_each_item_is_production(promoted: Play, record: dict[str, Any], host: Host) -> None:
    said = words_of(promoted.output)
    assert "overload passed 2 admitted, one refused after" in said
    assert (record["verdict"], record["profile"]) == ("passed", "tiny-a")
    contracts.check("record", json.dumps(record))
    state = told(host, "status")
    assert (state["profile"], state["verified"], state["open"]) == ("tiny-a", True, True)
    assert (record["fingerprint"], state["promotion"]["id"]) == (state["fingerprint"], record["id"])


def test_each_item_has_its_figures(record: dict[str, Any]) -> None:
    by = {row["item"]: row for row in record["data"]["items"]}
    assert tuple(by) == NAMES
    left_out = {name for name, row in by.items() if row["verdict"] == "not_applicable"}
    assert left_out == {"image", "same_answers"}
    seen = {name: row["observed"] for name, row in by.items()}
    assert [row["status"] for row in seen["limit"]["requests"]] == [200, 400, 400]
    assert sorted(row["status"] for row in seen["overload"]["requests"]) == [200, 200, 503]
    assert [row["counted_tokens"] for row in seen["ttft"]["prompts"]] == [2016]
    assert all(row["hits_cold"] == 0 and row["hits_warm"] > 0 for row in seen["prefix_cache"]["rounds"])
    assert [step["streams"] for step in seen["ladder"]["steps"]] == [1, 2]
    assert seen["restart"]["before"] != seen["restart"]["after"]
    assert seen["accuracy"]["score"] >= seen["accuracy"]["threshold"]
    assert record["canary"]["before"] == record["canary"]["after"]


def test_the_gate_leaves_its_record_and_no_unit_behind(host: Host, record: dict[str, Any]) -> None:
    assert not host.run(f"systemctl is-active {UNIT}").succeeded
    assert json.loads(host.file(f"{RECORDS}/{record['id']}.json").content_string) == record


def test_check_mode_says_what_would_run(host: Host, folder: Path, record: dict[str, Any]) -> None:
    before = host.check_output(f"ls {RECORDS}")
    done = play(*arguments(folder, "tiny-a"), "--check", "--tags", "verify")
    assert (done.code, done.changed) == (0, 0), done.output
    said = words_of(done.output)
    assert "would run overload: one request too many is refused at once, or queued" in said
    assert "would leave out image: the profile accepts no pictures" in said
    assert host.check_output(f"ls {RECORDS}") == before


def test_a_profile_that_is_not_served_is_refused(host: Host, folder: Path, record: dict[str, Any]) -> None:
    """tiny-corrupt never gets so far: its canary fails every switch to it."""
    before = host.check_output(f"ls {RECORDS}")
    done = play(*arguments(folder, "tiny-corrupt"), "--tags", "verify")
    assert done.code != 0
    assert "slot main serves tiny-a, not tiny-corrupt: run switch.yml -e profile=tiny-corrupt" in words_of(done.output)
    assert host.check_output(f"ls {RECORDS}") == before


@pytest.fixture
def claiming(record: dict[str, Any]) -> Iterator[None]:
    """A profile is served that claims to answer as tiny-a; then tiny-a again."""
    done = play("switch.yml", "-e", "profile=tiny-claims", *WITH_CLAIMS)
    assert done.code == 0, done.output
    yield
    # The second run removes the files of the profile, which the first one still found in use.
    for _run in range(2):
        assert play("switch.yml", "-e", "profile=tiny-a").code == 0


def test_a_profile_that_answers_otherwise_than_it_claims_is_refused(
    claiming: None, folder: Path, record: dict[str, Any], host: Host
) -> None:
    chosen = {"promotion_items": ["models", "same_answers"]}
    done = play(*arguments(folder, "tiny-claims", **chosen), "--tags", "verify")
    assert done.code != 0
    assert f"answers otherwise than tiny-a (its record {record['id']}): identity" in words_of(done.output)
    # It was verified by its own canary, and stays served.
    assert told(host, "status")["verified"] is True


def test_nobody_is_told_the_key_of_a_client(promoted: Play, record: dict[str, Any], host: Host, folder: Path) -> None:
    """lm-eval prints the key where the frontdoor refuses it."""
    chosen = {"promotion_items": ["accuracy"], "promotion_api_key": OTHER_KEY}
    refused = play(*arguments(folder, "tiny-a", **chosen), "--tags", "verify")
    assert "a question was answered with 401" in words_of(refused.output), refused.output
    shown = [promoted.output, refused.output, *(file.read_text() for file in folder.rglob("*.json"))]
    shown.append(host.check_output("journalctl --sync; journalctl -b -o cat --no-pager"))
    for key in (KEY, OTHER_KEY):
        assert not [text for text in shown if key in text]
        found = host.run("grep -rlF --devices=skip %s /var/lib/b70 /run/b70", key)
        # A file that is replaced meanwhile is gone when grep comes to it.
        others = [line for line in found.stderr.splitlines() if not line.endswith("No such file or directory")]
        assert (found.stdout, others) == ("", []), found
