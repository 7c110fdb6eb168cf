# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards: are they all there, driven, reachable, awake and whole? From sysfs, the kernel log and xpu-smi."""

from __future__ import annotations

from collections.abc import Sequence

from ... import _gpu_driver
from ..._host import guc_from_log
from ..._slot.power import LEAST_W, MOST_W
from ..._slot.words.types import WHOLE_MEMORY_BYTES
from ..model import (
    Answers,
    Check,
    Command,
    Finding,
    Look,
    Probe,
    Read,
    Site,
    cards_needed,
    failed,
    passed,
    skipped,
    warned,
)
from ..parse import memory_ecc, memory_of_card
from .machine import kernel_log

PCI = "/sys/bus/pci/devices"
DEBUG = "/sys/kernel/debug/dri"


def device_files(site: Site, *names: str) -> Read:
    return Read(tuple(f"{PCI}/{address}/{name}" for address in site.addresses for name in names))


def topology(site: Site, answers: Answers) -> Finding:
    have, want = len(site.cards), site.cards_wanted
    lines = [
        f"{card['address']}: NUMA node {'-' if card['numa_node'] is None else card['numa_node']}" for card in site.cards
    ]
    if have < want:
        who = next((p["name"] for p in site.wanted if cards_needed(p) == want), "")
        asked = f"{who} needs {want}" if who else f"{want} are expected"
        return failed(f"{have} of the cards are present, {asked}", *lines)
    if not have:
        return skipped("this host has no Arc Pro B70, and nothing that it serves needs one")
    if site.settings.get("cards") is not None and have > want:
        return warned(f"{have} cards are present, {want} are expected", *lines)
    nodes = {card["numa_node"] for card in site.cards}
    if len(nodes) > 1:
        return warned(f"{have} cards on {len(nodes)} NUMA nodes: copies between cards cross processors", *lines)
    return passed(f"{have} cards", *lines)


def driver(site: Site, answers: Answers) -> Finding:
    lines = [f"{card['address']}: {card['driver'] or 'no driver'}" for card in site.cards]
    wrong = [card for card in site.cards if card["driver"] != _gpu_driver.DRIVER]
    if wrong:
        return failed(
            f"{len(wrong)} of {len(lines)} cards are not bound to {_gpu_driver.DRIVER}", *lines,
            fix=_gpu_driver.unbound(wrong[0], site.system),
        )  # fmt: skip
    return passed(f"all {len(lines)} cards are bound to {_gpu_driver.DRIVER}", *lines)


def kernel(site: Site, answers: Answers) -> Finding:
    running, following = str(site.system.get("kernel") or ""), str(site.system.get("next_kernel") or "")
    known, coming = _gpu_driver.judge_kernel(running), _gpu_driver.judge_kernel(following)
    lines = [f"{running}: {known.reason}"]
    lines += [f"{running} lacks a fix: {what}" for what in _gpu_driver.lacks(running)]
    if following not in ("", running):
        lines.append(f"the next boot uses {following}: {coming.reason}")
    if known.verdict == "bad":
        return warned(f"kernel {running}: {known.reason}", *lines, source=known.source)
    if coming.verdict == "bad":
        return warned(f"the next boot uses kernel {following}: {coming.reason}", *lines, source=coming.source)
    return passed(f"kernel {running}", *lines)


def firmware(site: Site, answers: Answers) -> Finding:
    cards = guc_from_log(site.cards, answers.output(kernel_log(0)).out)
    versions = {card["address"]: card["guc"] for card in cards if card["guc"]}
    if not versions:
        return skipped("neither debugfs nor the kernel's log of this boot names the cards' GuC firmware")
    known = {version: _gpu_driver.judge_guc(version) for version in dict.fromkeys(versions.values())}
    lines = [f"{card['address']}: GuC {card['guc'] or 'unknown'}" for card in cards]
    lines += [f"GuC {version}: {entry.reason}" for version, entry in known.items()]
    refused = [version for version in known if _gpu_driver.refused(version, site.settings["guc_accepted"])]
    if refused:
        return failed(
            f"GuC firmware {', '.join(refused)} is known to be bad on these cards", *lines,
            fix=_gpu_driver.remedy(refused[0]), source=known[refused[0]].source,
        )  # fmt: skip
    doubtful = [version for version, entry in known.items() if entry.verdict in ("usable", "bad")]
    if doubtful:
        entry = known[doubtful[0]]
        return warned(f"GuC firmware {doubtful[0]}: {entry.reason}", *lines, source=entry.source)
    return passed(f"GuC firmware {', '.join(known)}", *lines)


def nodes(site: Site, answers: Answers) -> Finding:
    rows = answers.look(Look("device-nodes"))
    lines = [f"{row['path']}: mode {row['mode']}, group {row['group']}" for row in rows]
    missing = [card["address"] for card in site.cards if not card["render_node"]]
    if missing:
        return failed(f"{', '.join(missing)} has no render node in /dev/dri", *lines)
    if site.account is None:
        return skipped(f"the service user {site.settings['user']} does not exist yet")
    closed = [row["path"] for row in rows if not row["usable"]]
    if closed:
        return failed(f"the user {site.settings['user']} cannot open {', '.join(closed)}", *lines)
    return passed(f"the user {site.settings['user']} can open all {len(rows)} render nodes", *lines)


def power(site: Site, answers: Answers) -> Finding:
    lines, wrong = [], []
    texts = answers.texts(device_files(site, "power/control", "power/runtime_status"))
    for address in site.addresses:
        control = texts.get(f"{PCI}/{address}/power/control", "").strip()
        status = texts.get(f"{PCI}/{address}/power/runtime_status", "").strip()
        lines.append(f"{address}: control={control or '?'} status={status or '?'}")
        if control != "on":
            wrong.append(address)
    if wrong:
        return failed(f"{len(wrong)} of {len(lines)} cards may be suspended at run time", *lines)
    return passed("no card is suspended at run time", *lines)


def xpu_smi(site: Site, *words: str) -> tuple[Command, ...]:
    """`xpu-smi WORDS -d N` for every card; it numbers the cards in the order of their addresses."""
    return tuple(Command(("xpu-smi", *words, "-d", str(number))) for number in range(len(site.cards)))


def vram_files(site: Site) -> Read:
    """What the driver says of each card's memory; kernels name the file and its folder in one of these ways."""
    return Read(
        tuple(f"{DEBUG}/{address}/{name}" for address in site.addresses for name in ("tile0/vram_mm", "vram0_mm"))
    )


def ecc(site: Site, answers: Answers) -> Finding:
    """By xpu-smi, or where that says nothing by the size of the memory."""
    commands = xpu_smi(site, "config")
    outputs = [answers.output(command) for command in commands]
    states = [memory_ecc(output.out) for output in outputs]
    sizes = {path.split("/")[5]: memory_of_card(text) for path, text in answers.texts(vram_files(site)).items()}
    sizes = {address: size for address, size in sizes.items() if size}
    said = [f"{address}: the driver manages {size // 2**20} MiB" for address, size in sizes.items()]
    small = [address for address, size in sizes.items() if size < WHOLE_MEMORY_BYTES]
    if all(state is None for state in states):
        if small:
            return warned(
                f"{len(small)} of {len(site.cards)} cards have less than 30 GiB of memory, as they do with ECC on",
                *said,
            )
        if len(sizes) == len(site.cards):
            return passed("the cards have their full memory, so ECC is off", *said)
        return skipped(
            f"xpu-smi config does not report ECC: {outputs[0].why() if not outputs[0].ok else 'no such section'}"
        )
    lines = [
        f"card {number}: {' -> '.join(state) if state else 'unknown'}" for number, state in enumerate(states)
    ] + said
    known = [state for state in states if state]
    if len(known) < len(states) or len(set(known)) > 1:
        return warned("the cards have different ECC settings", *lines)
    current, pending = known[0]
    if current != pending:
        return warned(f"ECC is {current}, and becomes {pending} after a reboot", *lines)
    if current == "enabled":
        return warned("ECC is on: about 28 of 32 GB are left for models", *lines)
    return passed("ECC is off: all 32 GB are available", *lines)


def cap_files(site: Site) -> Read:
    return device_files(site, "hwmon/hwmon*/power1_cap")


def power_cap(site: Site, answers: Answers) -> Finding:
    caps = {
        path.split("/")[5]: int(text) / 10**6
        for path, text in answers.texts(cap_files(site)).items()
        if text.strip().isdigit() and int(text)
    }
    if not caps:
        return skipped("the driver reports no power cap (hwmon power1_cap)")
    lines = [f"{address}: {watts:g} W" for address, watts in caps.items()]
    lines += [f"{address}: unknown" for address in site.addresses if address not in caps]
    strange = [address for address, watts in caps.items() if not LEAST_W <= watts <= MOST_W]
    if strange:
        return warned(f"{', '.join(strange)} has a power cap outside the tried range ({LEAST_W} to {MOST_W} W)", *lines)
    if len(set(caps.values())) > 1:
        return warned(
            "the cards have different power caps: an engine on several cards runs at the speed of the slowest", *lines
        )
    return passed(f"every card is capped at {next(iter(caps.values())):g} W", *lines)


def _power_probes(site: Site) -> Sequence[Probe]:
    return (device_files(site, "power/control", "power/runtime_status"),)


CHECKS = (
    Check(
        "card-count", "cards", "the number of cards (8086:e223) and their NUMA nodes",
        "An engine for four cards does not start on three.",
        "Check whether lspci -d 8086:e223 lists the card; reseat it and its power cables, and check the BIOS "
        "settings of its slot.",
        lambda site: (), topology,
    ),
    Check(
        "kernel-driver", "cards", "whether the kernel driver xe is bound to every card",
        "Without the driver xe, no program sees the card.",
        "Install a kernel with xe for these cards (the role host does: host_kernel_packages); see journalctl -k -g xe.",
        lambda site: (), driver, needs_cards=True,
    ),
    Check(
        "kernel", "cards", "the running kernel and the kernel of the next boot",
        "With some kernels, cards reset under load and do not recover.",
        "Boot a kernel of the series 6.17 (host_kernel_packages), hold it, remove the other one; then run the canary.",
        lambda site: (), kernel, needs_cards=True,
    ),
    Check(
        "guc-firmware", "cards", "the GuC firmware version of every card",
        "With some versions, a card's engines reset under load and the card does not recover.",
        "Put xe/bmg_guc_70.bin of a newer linux-firmware below /lib/firmware/updates, update-initramfs -u, reboot.",
        lambda site: (kernel_log(0),), firmware, needs_cards=True, captured_only=True,
    ),
    Check(
        "device-nodes", "cards", "render nodes, and whether the service user can open them",
        "The engine runs as the service user and sees only the cards that this user can open.",
        "Run site.yml --tags host (it puts the user into the groups render and video), then start the engine again.",
        lambda site: (Look("device-nodes"),), nodes, needs_cards=True,
    ),
    Check(
        "card-power", "cards", "runtime power management of the cards",
        "These cards freeze the host when they are suspended at run time.",
        "Run site.yml --tags host with host_keep_cards_awake: a udev rule sets power/control to on at the bind.",
        _power_probes, power, needs_cards=True,
    ),
    Check(
        "card-ecc", "cards", "whether ECC is on in the cards' memory",
        "The shipped profiles were measured with ECC off; with ECC on, their models and contexts do not fit.",
        "Stop every engine, xpu-smi config -d N --memoryecc 0 for every card, reboot; or choose smaller settings.",
        lambda site: (*xpu_smi(site, "config"), vram_files(site)), ecc, needs_cards=True, captured_only=True,
    ),
    Check(
        "power-cap", "cards", "the power cap of every card",
        "The cap decides speed, heat and noise. At 210 W decoding keeps 98.6 % of its speed and prefill 82.5 %.",
        "Set slot_power_cap_w for the host, or power_cap_w in a profile: watts per card while an engine runs.",
        lambda site: (cap_files(site),), power_cap, needs_cards=True, captured_only=True,
        source="owners' power studies (AnnoyingTechnology/intel-arc-b70-llm-inference)",
    ),
)  # fmt: skip
