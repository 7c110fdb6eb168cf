# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strangers on a host: who holds a card beside the engine, and who shares its port."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from machine import wait_for
from scenarios.outcome import assert_serves
from scenarios.recording import Recording, ask
from scenarios.rig import Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
NODE = "/dev/dri/renderD128"
UNIT = "b70-sim-stranger.service"


@contextlib.contextmanager
def stranger(rig: Rig, script: str, *options: str) -> Iterator[str]:
    """Run a shell script as a service of somebody else; give its process, as the host numbers it."""
    rig.must("systemd-run", "--quiet", "--collect", f"--unit={UNIT}", *options, "sh", "-c", script)
    try:
        yield rig.must("systemctl", "show", "--value", "--property=MainPID", UNIT).strip()
    finally:
        rig.run("systemctl", "kill", "--signal=KILL", UNIT)
        wait_for(lambda: rig.run("systemctl", "is-active", UNIT).code != 0, "the stranger is gone")


@contextlib.contextmanager
def card_holder(rig: Rig) -> Iterator[str]:
    with stranger(rig, f"exec 3<>{NODE}; exec sleep 600", "--uid=nobody") as pid:
        wait_for(lambda: rig.run("readlink", f"/proc/{pid}/fd/3").output.strip() == NODE, "it holds the card")
        yield pid


def test_a_stranger_on_a_card_is_named_and_the_model_stays(rig: Rig, recorded: Begin) -> None:
    rig.serve("sim-card-a")
    before = rig.facts()
    recording = recorded()
    with card_holder(rig) as pid:
        done = rig.ctl("switch", "sim-card-b")
        rig.wait_settled()
        assert (done.code, done.data["outcome"], done.data["failure"]["phase"]) == (1, "untouched", "guard"), done
        assert f"{NODE}: pid {pid} (sleep 600, user nobody, unit {UNIT})" in done.data["msg"], done
        assert rig.facts() == before
        assert_serves(rig, "sim-card-a")
    assert recording.refusals() == [], "a client was refused because of a stranger"
    done = rig.ctl("switch", "sim-card-b")
    rig.wait_settled()
    assert done.code == 0, done
    assert_serves(rig, "sim-card-b")


def test_the_way_back_is_taken_beside_a_stranger(rig: Rig, recorded: Begin) -> None:
    rig.serve("sim-card-a")
    rig.tell("sim-b", "wrong-answer")
    recorded()
    with card_holder(rig) as pid:
        done = rig.ctl("switch", "sim-b")
        rig.wait_settled()
        assert (done.code, done.data["outcome"], done.data["profile"]) == (1, "rolled_back", "sim-card-a"), done
        assert any(f"pid {pid} (sleep 600" in text for text in done.data["warnings"]), done
        assert_serves(rig, "sim-card-a")


def test_what_boots_is_verified_beside_a_stranger(rig: Rig, recorded: Begin) -> None:
    """Its engine is down for good, so it is started anew: nobody asked for that."""
    rig.serve("sim-card-a")
    recorded()
    with card_holder(rig):
        rig.must("systemctl", "stop", "b70-slot-main-sim-card-a.service")
        done = rig.ctl("recover")
        rig.wait_settled()
        assert done.code == 0, done
        assert_serves(rig, "sim-card-a")


def test_a_port_that_is_shared_is_not_served(rig: Rig) -> None:
    """A second engine of the same user, started by hand, gets a part of the connections; nothing refuses it."""
    rig.serve("sim-a", "share-port")
    rig.tell("sim-x", "share-port")
    words = rig.must("systemctl", "show", "--value", "--property=MainPID", "b70-slot-main-sim-a.service").strip()
    argv = rig.must("cat", f"/proc/{words}/cmdline").split("\0")
    program = " ".join(argv[: argv.index("serve")])
    script = f"exec {program} serve /x --port 18080 --served-model-name sim-x --sim-dir /run/b70-sim"
    with stranger(rig, script, "--uid=b70") as pid:
        inodes = "ss -Hltn sport = :18080 | wc -l"
        wait_for(lambda: rig.run("sh", "-c", inodes).output.strip() == "2", "two listen on the port")
        done = rig.ctl("verify")
        rig.wait_settled()
        assert (done.code, done.data["failure"]["phase"]) == (1, "identity"), done
        assert "shared" in done.data["failure"]["message"], done
        assert f"port 18080: pid {pid} (" in done.data["failure"]["got"], done
        answer = ask(rig.address, stream=False)
        assert (answer.status, "phase identity" in answer.error) == (503, True), answer
        before = rig.facts().invocation
    # The engine itself is not at fault, so it is served on.
    wait_for(lambda: rig.state().get("open"), "it is served again")
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    assert rig.facts().invocation == before
