# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gate does on its host: the restart, the look at the slot, and what another profile answers there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.job import Commission
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.module_utils._promotion import host as hosts
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.gate import Unmeasured
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.host import GateHost
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.items import PromotionPlan
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import canary
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.observe import load_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Layout, ToldToEndFault
from ansible_collections.arcpro.b70.plugins.module_utils._soak import watching
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkFolder
from unit.plugins.module_utils._evidence.records import record
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost

OK, SEVEN = canary.digest("OK"), canary.digest("7")


@pytest.fixture
def fake_host() -> FakeHost:
    found = host("ab", load_s=1.0)
    switch(found, "a")
    return found


@pytest.fixture
def slot_host(fake_host: FakeHost, tmp_path: Path) -> GateHost:
    return slot_host_at(fake_host, tmp_path, LAYOUT)


def slot_host_at(fake_host: FakeHost, tmp_path: Path, layout: Layout) -> GateHost:
    fx = fake_host.effects()
    given = {"requested_by": "me", "records_dir": str(tmp_path / "records"), "tools_python": "/none", "user": "b70"}
    told = Commission(WorkFolder(tmp_path / "work"), given, fx, layout)
    return GateHost(told, watching.served(fx, layout), PromotionPlan(), "")


def test_a_restart_gives_another_process_that_answers_alike(fake_host: FakeHost, slot_host: GateHost) -> None:
    before = slot_host.canary(None)[0]
    done = slot_host.restart()
    assert (done.verified, done.before != done.after, fake_host.starts) == (True, True, 2)
    answered = {one.name: one.sha256 for one in done.results}
    assert answered == {one.name: one.sha256 for one in before}
    # From now on the new process is the one that is looked after.
    assert slot_host.gone() is None
    assert done.after == fake_host.unit("a").invocation
    assert slot_host.served() == {"profile": "a", "verified": True, "open": True}


@pytest.mark.parametrize("fault", ["wrong_answer", "exit_at_start"])
def test_a_restart_that_fails_says_where(fake_host: FakeHost, slot_host: GateHost, fault: str) -> None:
    fake_host.unit("a").fault = fault
    done = slot_host.restart()
    assert not done.verified
    assert "phase" in done.message
    assert slot_host.served()["profile"] is None


def test_a_restart_that_is_told_to_end_ends_the_gate(fake_host: FakeHost, slot_host: GateHost) -> None:
    fake_host.told_at = fake_host.effects_done + 60
    with pytest.raises(ToldToEndFault):
        slot_host.restart()


def test_a_slot_that_is_closed_for_a_switch_is_left_alone(fake_host: FakeHost, slot_host: GateHost) -> None:
    assert slot_host.gone() is None
    state = fake_host.state
    assert state is not None
    fake_host.put(LAYOUT.state_file, replace(state, phase="switching", open=False, reason="to b").to_json())
    assert slot_host.gone() == ("replaced", "slot main is closed: to b")


@pytest.mark.parametrize("then", ["b", None])
def test_a_switch_is_seen(fake_host: FakeHost, slot_host: GateHost, then: str | None) -> None:
    switch(fake_host, then, active=then is not None)
    found = slot_host.gone()
    assert found is not None
    assert found[0] == "replaced"


def test_a_frontdoor_that_hangs_holds_up_no_look(
    fake_host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_GET_LIMIT_S", 0.2, raising=False)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:

        def answer() -> None:
            connection, _address = door.accept()
            with connection:
                ended.wait(20)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        reply = slot_host_at(fake_host, tmp_path, replace(LAYOUT, frontdoor_url=url)).get("frontdoor", "/status")
        ended.set()
    assert (reply.status, "timed out" in reply.error) == (0, True)


def keep(
    tmp_path: Path, began_at: str = "2026-11-23T04:16:00Z", hashes: Mapping[str, str] | None = None, **given: Any
) -> str:
    """A record of the profile b as it is now, on this host; what is given replaces its parts."""
    asked = {"ok": True, "hashes": hashes or {"exact_ok": OK, "sum": SEVEN}}
    parts = {"profile": "b", "fingerprint": "sha256:b-1", "canary": {"before": asked, "after": asked}}
    made = record("soak", began_at, **{**parts, **given})
    Store(tmp_path / "records").write(made)
    return str(made["id"])


def test_the_newest_good_record_says_what_a_profile_answers(slot_host: GateHost, tmp_path: Path) -> None:
    one = keep(tmp_path)
    keep(tmp_path, began_at="2026-11-23T05:00:00Z", verdict="failed", hashes={"sum": OK})
    keep(tmp_path, began_at="2026-11-23T06:00:00Z", fingerprint="sha256:b-2", hashes={"sum": OK})
    keep(tmp_path, began_at="2026-11-23T07:00:00Z", profile="c", hashes={"sum": OK})
    found = slot_host.expected("b")
    assert (found.source, found.hashes) == (f"its record {one}", {"exact_ok": OK, "sum": SEVEN})


def test_a_baseline_goes_before_a_record(fake_host: FakeHost, slot_host: GateHost, tmp_path: Path) -> None:
    keep(tmp_path, hashes={"exact_ok": OK, "sum": OK})
    fake_host.render("b", canary__cases=[{"name": "sum", "prompt": "3 + 4", "max_tokens": 8, "compare": "baseline"}])
    switch(fake_host, "b", record_baseline=True)
    found = slot_host.expected("b")
    assert found.source.startswith("its baseline of 2026-06-07T09:00:")
    assert found.hashes == {"exact_ok": OK, "sum": SEVEN}
    other = load_profile(fake_host.effects(), LAYOUT, "b")
    assert found.requests == {"sum": canary.request_hash(other, other.canary.cases[0])}


@pytest.mark.parametrize(
    ("name", "words"),
    [("b", "nothing on this host says what b answers now: record one"), ("c", "profile 'c' is not rendered")],
)
def test_a_profile_of_which_nothing_is_known(slot_host: GateHost, name: str, words: str) -> None:
    with pytest.raises(Unmeasured, match=words):
        slot_host.expected(name)


def test_tools_that_are_not_installed_measure_nothing(slot_host: GateHost) -> None:
    with pytest.raises(Unmeasured, match=r"/none is not there: run promote\.yml with the tag install"):
        slot_host.accuracy(lambda text: None)
