# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Direct access between cards: a switch to a profile that uses it needs the proof of evaluate.yml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.guards import for_part
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.peer_access import (
    MEASURE,
    PeerAccessScope,
    Proof,
    parse_proof,
    proof_text,
    unproven,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from unit.plugins.module_utils._slot.calls import check, host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT

KERNEL, RUNTIME, GUC = "7.1.0-14-generic", "26.35.39758.10-0", "70.65.0"
CARDS = ("0000:03:00.0", "0000:04:00.0")
PROVEN = Proof(PeerAccessScope(dict.fromkeys(CARDS, GUC), KERNEL, RUNTIME), "", "2026-11-27 22:00 UTC")
RULE = "Hosts lost cards. Whoever serves it all the same writes accepts_rules: [peer-access]"
DPKG = "Package: libze-intel-gpu1\nStatus: install ok installed\nVersion: {}\n"
GUC_INFO = (
    "GuC firmware: xe/bmg_guc_70.bin\n\tstatus: RUNNING\n\twanted release version 70.54.0\n\tfound release version {}\n"
)


def put_firmware(fake_host, number, version):
    # This kernel names the folder of a card by the number of its node.
    fake_host.put(PurePosixPath(f"/sys/kernel/debug/dri/{number}/gt0/uc/guc_info"), GUC_INFO.format(version))


@pytest.fixture
def fake_host():
    """Two cards with their driver and firmware, and a profile `b` whose cards open each other's memory."""
    found = host("ab")
    found.cards = 2
    for number, address in enumerate(CARDS):
        found.put(PurePosixPath(f"/sys/bus/pci/devices/{address}/drm/card{number}/dev"), "226:0\n")
        put_firmware(found, number, GUC)
    found.put(PurePosixPath("/proc/sys/kernel/osrelease"), f"{KERNEL}\n")
    found.put(PurePosixPath("/var/lib/dpkg/status"), DPKG.format(RUNTIME))
    found.render("b", cards=2, peer_access=RULE)
    return found


def put_proof(fake_host, proof=PROVEN):
    fake_host.put(LAYOUT.peer_access_file, proof_text(proof))


def test_a_host_that_proved_it_serves_the_profile_without_a_word(fake_host):
    put_proof(fake_host)
    result = switch(fake_host, "b")
    assert result["outcome"] == "committed"
    assert not any("access" in warning for warning in result["warnings"])


@pytest.mark.parametrize("text", [None, "", "{", '{"schema": 9, "proof": {}}', '{"schema": 1, "proof": {}}'])
def test_a_host_that_proved_nothing_refuses_and_names_the_measure(fake_host, text):
    if text is not None:
        fake_host.put(LAYOUT.peer_access_file, text)
    for result in (switch(fake_host, "b"), check(fake_host, "b")):
        assert (result["failed"], result["outcome"]) == (True, "untouched")
        assert "profile b has direct access between cards, which was not measured on this host" in result["msg"]
        assert MEASURE in result["msg"]
        assert RULE in result["msg"]


def other_kernel(fake_host):
    fake_host.put(PurePosixPath("/proc/sys/kernel/osrelease"), "7.2.0-1-generic\n")
    return f"was proven with kernel {KERNEL}, which is 7.2.0-1-generic now"


def other_runtime(fake_host):
    fake_host.put(PurePosixPath("/var/lib/dpkg/status"), DPKG.format("26.40.1-0"))
    return f"was proven with compute runtime {RUNTIME}, which is 26.40.1-0 now"


def other_firmware(fake_host):
    put_firmware(fake_host, 1, "70.72.1")
    return f"was proven with GuC firmware of {CARDS[1]} {GUC}, which is 70.72.1 now"


def unknown_firmware(fake_host):
    del fake_host.texts[PurePosixPath("/sys/kernel/debug/dri/0/gt0/uc/guc_info")]
    return f"was proven with GuC firmware of {CARDS[0]} {GUC}, which is unknown now"


def another_card(fake_host):
    fake_host.render("b", cards=3, peer_access=RULE)
    fake_host.cards = 3
    return "was proven without the card at 0000:05:00.0"


@pytest.mark.parametrize("change", [other_kernel, other_runtime, other_firmware, unknown_firmware, another_card])
def test_a_proof_holds_for_the_cards_the_driver_and_the_firmware_it_was_made_with(fake_host, change):
    put_proof(fake_host)
    words = change(fake_host)
    result = switch(fake_host, "b")
    assert result["outcome"] == "untouched"
    assert words in result["msg"]


def test_a_benchmark_that_failed_is_quoted(fake_host):
    put_proof(fake_host, replace(PROVEN, fault="allreduce of 16384 bytes: 3 of 8192 values of rank 1 are wrong"))
    result = switch(fake_host, "b")
    assert result["outcome"] == "untouched"
    assert "failed here (2026-11-27 22:00 UTC): allreduce of 16384 bytes: 3 of 8192 values" in result["msg"]


def test_an_operator_who_accepts_the_rule_needs_no_proof_and_is_told_at_every_switch(fake_host):
    fake_host.render("b", cards=2, accepted_rules=["peer-access: hosts lost cards"])
    result = switch(fake_host, "b")
    assert result["outcome"] == "committed"
    assert "profile b breaks a rule of its stack on purpose: peer-access: hosts lost cards" in result["warnings"]


def test_what_a_boot_with_another_kernel_has_started_is_served_and_told(fake_host):
    put_proof(fake_host)
    switch(fake_host, "b")
    fake_host.reboot()
    fake_host.mono += 60
    words = other_kernel(fake_host)
    result = recover(fake_host)
    assert result["verified"]
    assert any(words in warning for warning in result["warnings"])


def test_a_node_that_follows_needs_a_proof_of_its_own(fake_host):
    text = fake_host.texts[LAYOUT.profiles_dir / "b.json"][0]
    part = parse_profile(text, "b.json")
    assert "was not measured on this host" in for_part(fake_host.effects(), LAYOUT, part)
    put_proof(fake_host)
    assert not for_part(fake_host.effects(), LAYOUT, part)


def test_a_version_that_was_never_known_proves_nothing():
    nothing = PeerAccessScope(dict.fromkeys(CARDS, ""), "", "")
    assert unproven(replace(PROVEN, place=nothing), nothing) == (
        "was proven with kernel unknown, which is unknown now (2026-11-27 22:00 UTC)"
    )
    assert not unproven(PROVEN, replace(PROVEN.place, cards={CARDS[1]: GUC}))  # some of the proven cards
    assert parse_proof(proof_text(PROVEN)) == PROVEN
