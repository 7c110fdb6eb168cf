# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ladder after a lost card on a real host, with files in place of two cards, their driver and the kernel's log."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from machine import wait_for
from scenarios.outcome import assert_serves
from scenarios.recording import ask
from scenarios.rig import QUARANTINE, SIM_DIR, Rig
from scenarios.test_liveness import actions, start_anew, told, watched_by
from scenarios.test_trouble import mounted

pytestmark = [pytest.mark.scenario, pytest.mark.exhaustive]
PROFILE = "sim-pair"
BUS = "/sys/bus/pci"
DRIVER = f"{BUS}/drivers/xe"
NODES = {"0000:03:00.0": "renderD128", "0000:83:00.0": "renderD129"}
LOST = "0000:03:00.0"
DIRECTIVES = (
    "Environment=PATH=/opt/b70/bin/with-kernel-log:/usr/sbin:/usr/bin:/sbin:/bin",
    "ProtectKernelTunables=no",  # as in files/own-boot-id.conf
)
# As xe words it.
WORDS = "kernel: xe {card}: [drm] *ERROR* CRITICAL: Xe has declared device {card} as wedged. ({number})"


@contextlib.contextmanager
def two_cards(rig: Rig) -> Iterator[None]:
    """The bus has two cards. What is written to the driver stays in its files."""
    with mounted(rig, BUS, "-t", "tmpfs", "sim-bus"):
        rig.must("mkdir", "-p", DRIVER)
        let_go(rig)
        for address, node in NODES.items():
            device, shown = f"{BUS}/devices/{address}", f"/sys/class/drm/{node}"
            rig.must("mkdir", "-p", device, shown)
            rig.write(f"{device}/vendor", "0x8086\n")
            rig.write(f"{device}/device", "0xe223\n")
            rig.run("mv", f"{shown}/device", f"{shown}/before")
            rig.must("ln", "-s", device, f"{shown}/device")
        rig.must("mknod", "-m", "0666", "/dev/dri/renderD129", "c", "1", "5")
        try:
            yield
        finally:
            rig.must("rm", "-r", "/dev/dri/renderD129", "/sys/class/drm/renderD129", "/sys/class/drm/renderD128/device")
            rig.must("mv", "/sys/class/drm/renderD128/before", "/sys/class/drm/renderD128/device")


def let_go(rig: Rig) -> None:
    for what in ("unbind", "bind"):
        rig.write(f"{DRIVER}/{what}", "")


def written(rig: Rig) -> tuple[str, str]:
    """What was written to the driver's files last: with more than one card, the one with the highest address."""
    return rig.must("cat", f"{DRIVER}/unbind"), rig.must("cat", f"{DRIVER}/bind")


def lose_a_card(rig: Rig, number: int) -> None:
    """The engine that runs dies of it, and so does each that is started before the driver was bound anew."""
    let_go(rig)
    lines = [WORDS.format(card=LOST, number=count) for count in range(1, number + 1)]
    rig.write(f"{SIM_DIR}/kernel.log", "\n".join(["kernel: Linux", *lines]) + "\n")
    dies = {"faults": ["die"], "live": ["die"], "until": f"{DRIVER}/bind"}
    rig.write(f"{SIM_DIR}/{PROFILE}.json", json.dumps(dies))
    assert ask(rig.address, stream=False).status == 502


def test_the_lost_card_is_bound_anew_once_and_then_a_person_has_to_look(rig: Rig) -> None:
    with two_cards(rig):
        rig.write(f"{SIM_DIR}/kernel.log", "kernel: Linux\n")
        try:
            with watched_by(rig, *DIRECTIVES):
                assert_climbs(rig)
        finally:
            rig.must("rm", "-f", "/var/lib/b70/climb.json")
            rig.wipe()
    start_anew(rig)  # without the mount


def assert_climbs(rig: Rig) -> None:
    rig.serve(PROFILE)
    wait_for(lambda: [card["pci"] for card in told(rig)["cards"]] == [*NODES], "the watchdog sees both cards")

    lose_a_card(rig, 1)
    wait_for(lambda: actions(rig) == ["rebind"], "the driver is bound anew")
    wait_for(lambda: (told(rig)["action"] or {}).get("outcome") == "committed", "the engine is settled")
    assert written(rig) == (LOST, LOST)
    assert_serves(rig, PROFILE)
    faults = [(LOST, 1), ("0000:83:00.0", 0)]
    wait_for(lambda: [(card["pci"], card["faults"]) for card in told(rig)["cards"]] == faults, "the next look")

    lose_a_card(rig, 2)
    wait_for(lambda: actions(rig) == ["rebind", "quarantine"], "the host is in quarantine")
    wait_for(lambda: "lost again" in rig.read(QUARANTINE), "the quarantine is that of the watchdog")
    assert written(rig) == ("", "")
    assert not rig.state()["open"]
    assert list(rig.engines()) == []
