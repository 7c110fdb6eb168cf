# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards: are they all there, driven, reachable, awake and whole? From sysfs, the kernel log and xpu-smi."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ... import _gpu_driver
from ..._host import guc_from_log, named
from ..._slot.model.profile import MASK
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
from ..parse import firmware_of_card, memory_ecc, memory_of_card
from .machine import kernel_log

PCI = "/sys/bus/pci/devices"
DEBUG = "/sys/kernel/debug/dri"


def device_files(site: Site, *names: str) -> Read:
    return Read(tuple(f"{PCI}/{address}/{name}" for address in site.addresses for name in names))


def masks(profile: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mask of each engine of a resolved profile; empty where it leaves out no card."""
    for engine in profile["engine"].get("replicas") or [profile["engine"]]:
        yield str((engine.get("env") or {}).get(MASK, ""))


def topology(site: Site, answers: Answers) -> Finding:
    have, want = len(site.cards), site.cards_wanted
    lines = [
        f"{named(card)}: NUMA node {'-' if card['numa_node'] is None else card['numa_node']}" for card in site.cards
    ]
    lines += [f"{named(card)}: profiles are for the B70" for card in site.others]
    if have < want:
        who = next((p["name"] for p in site.wanted if cards_needed(p) == want), "")
        asked = f"{who} needs {want}" if who else f"{want} are expected"
        return failed(f"{have} of the cards are present, {asked}{site.beside}", *lines)
    strange = {str(card["number"]): card for card in site.others}
    for profile in site.wanted if strange else ():
        used = {word for mask in masks(profile) for word in (mask.split(",") if mask else strange)} & set(strange)
        if used and profile.get("cards"):
            return failed(
                f"{profile['name']} may use {named(strange[min(used)])}, which it was not made for", *lines,
                fix="Name the B70 cards: engine.devices in the profile, or cards in b70_slots; without both, "
                "site.yml gives its engines a mask.",
            )  # fmt: skip
    if not have:
        return skipped(f"this host has no Arc Pro B70, and nothing that it serves needs one{site.beside}")
    if site.settings.get("cards") is not None and have > want:
        return warned(f"{have} cards are present, {want} are expected", *lines)
    nodes = {card["numa_node"] for card in site.cards}
    if len(nodes) > 1:
        return warned(f"{have} cards on {len(nodes)} NUMA nodes: copies between cards cross processors", *lines)
    return passed(f"{have} cards{site.beside}", *lines)


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
    another = following not in ("", running)
    if another:
        lines.append(f"the next boot uses {following}: {coming.reason}")
    if known.verdict in ("bad", "unknown"):
        return warned(f"kernel {running}: {known.reason}", *lines, source=known.source)
    if another and coming.verdict in ("bad", "unknown"):
        return warned(f"the next boot uses kernel {following}: {coming.reason}", *lines, source=coming.source)
    return passed(f"kernel {running}", *lines)


def firmware(site: Site, answers: Answers) -> Finding:
    """Judge the pairs of GuC firmware and kernel; the cards' own firmware (IFWI) is only told."""
    running = str(site.system.get("kernel") or "")
    cards = guc_from_log(site.cards, answers.output(kernel_log(0)).out)
    if not any(card["guc"] for card in cards):
        return skipped("neither debugfs nor the kernel's log of this boot names the cards' GuC firmware")
    pairs = {
        (guc, wanted): _gpu_driver.judge_pair(running, guc, wanted, len(cards))
        for guc, wanted in dict.fromkeys((card["guc"], card["guc_wanted"]) for card in cards)
    }
    said = {
        run: f"GuC {run[0] or 'unknown'}{f' (wanted {run[1]})' if run[1] not in ('', run[0]) else ''}" for run in pairs
    }
    lines = [f"{card['address']}: GuC {card['guc'] or 'unknown'}" for card in cards]
    lines += [f"{said[run]} under the kernel {running}: {pair.verdict}: {pair.reason}" for run, pair in pairs.items()]
    asked = [answers.output(command) for command in xpu_smi(site, "discovery")]
    for address, output in zip(site.addresses, asked, strict=True):
        unknown = f"unknown: {output.problem or 'xpu-smi does not tell it'}"
        lines.append(f"{address}: IFWI {firmware_of_card(output.out) or unknown}")
    bad = [run for run, pair in pairs.items() if _gpu_driver.refused(pair, run[0], site.settings["guc_accepted"])]
    if bad:
        versions = ", ".join(run[0] for run in bad)
        return failed(
            f"GuC firmware {versions} under the kernel {running} is known to be bad on these cards", *lines,
            fix=_gpu_driver.remedy(running, bad[0][0], len(cards)), source=pairs[bad[0]].source,
        )  # fmt: skip
    for run, pair in pairs.items():
        if pair.verdict != "good":
            return warned(
                f"{said[run]} under the kernel {running} is {pair.verdict}: {pair.reason}", *lines, source=pair.source
            )
    return passed(f"{', '.join(said.values())} under the kernel {running}", *lines)


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
    """Return the commands `xpu-smi WORDS -d N`, one for each card.

    xpu-smi numbers all cards of the family in the order of their addresses.
    """
    return tuple(Command(("xpu-smi", *words, "-d", str(number))) for number in site.numbers)


def vram_files(site: Site) -> Read:
    """Return the probe for the driver's figures of each card's memory.

    Kernels name the file and its folder in one of these ways.
    """
    return Read(
        tuple(f"{DEBUG}/{address}/{name}" for address in site.addresses for name in ("tile0/vram_mm", "vram0_mm"))
    )


def ecc(site: Site, answers: Answers) -> Finding:
    """Judge ECC by the size of the memory where it is less than the whole, else by xpu-smi, else by the size again."""
    outputs = [answers.output(command) for command in xpu_smi(site, "config")]
    states = [memory_ecc(output.out) for output in outputs]
    files = {path.split("/")[5]: memory_of_card(text) for path, text in answers.texts(vram_files(site)).items()}
    sizes = [files.get(address, 0) for address in site.addresses]
    lines = []
    for address, state, size in zip(site.addresses, states, sizes, strict=True):
        told = ([" -> ".join(state)] if state else []) + ([f"the driver manages {size // 2**20} MiB"] if size else [])
        lines.append(f"{address}: {', '.join(told) or 'unknown'}")
    small = [address for address, size in zip(site.addresses, sizes, strict=True) if 0 < size < WHOLE_MEMORY_BYTES]
    unknown = [
        address for address, state, size in zip(site.addresses, states, sizes, strict=True) if not (state or size)
    ]
    known = {state for state in states if state}
    waiting = [state for state in known if state[0] != state[1]]
    if waiting:
        return warned(f"ECC is {waiting[0][0]}, and becomes {waiting[0][1]} after a reboot", *lines)
    if small:
        return warned(
            f"{len(small)} of {len(site.cards)} cards have less than 30 GiB of memory, as they do with ECC on", *lines
        )
    if unknown and not known:
        why = next((output.why() for output in outputs if not output.ok), "it is not told (N/A, or no such section)")
        return skipped(f"xpu-smi config does not report ECC: {why}")
    if len(known) > 1:
        return warned("the cards have different ECC settings", *lines)
    if known == {("enabled", "enabled")}:
        return warned("ECC is on: about 28 of 32 GB are left for models", *lines)
    if unknown:
        return warned(f"whether ECC is on is unknown for {', '.join(unknown)}", *lines)
    if not known:
        return passed("the cards have their full memory, so ECC is off", *lines)
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
        "card-count", "cards", "the cards (8086:e223) and their NUMA nodes, and other cards that masks count",
        "An engine for four cards does not start on three. A B60, B50 or B580 beside a B70 has a number too, and an "
        "engine without a mask starts on it.",
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
        "guc-firmware", "cards", "the GuC firmware of every card, under this kernel and as the kernel wanted it",
        "Under some pairs of firmware and kernel, a card's engines reset under load and the card does not recover. "
        "A pair that nobody has reported is unknown.",
        "See the pairs in docs/installing.md. Serve an unknown one under load for hours, and send in the report.",
        lambda site: (kernel_log(0), *xpu_smi(site, "discovery")), firmware, needs_cards=True, captured_only=True,
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
