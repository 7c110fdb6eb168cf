# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards: are they all there, driven, reachable, awake and fast? From sysfs, the kernel log and xpu-smi."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model import Answers, Check, Command, Finding, Look, Probe, Read, Site, failed, passed, skipped, warned
from ..parse import bar_sizes, bus_errors, gt_per_s, guc_versions, memory_ecc
from .machine import kernel_log

PCI = "/sys/bus/pci/devices"
DRIVER = "xe"
# From the upstream lab's stability work on these cards.
GUC_RECOMMENDED = (70, 54, 0)
FIXES_OF_KERNEL_7_0_0 = {
    38: "a deadlock when queues are torn down, two page-table faults of xe, locking of the AMD IOMMU",
    39: "memory of the card handed out twice",
}
VRAM_BYTES = 32 * 2**30
LINK_WIDTH, LINK_GT_S = 16, 16.0
AER_BAD = ("RxErr", "BadTLP", "BadDLLP")


def device_files(site: Site, *names: str) -> Read:
    return Read(tuple(f"{PCI}/{address}/{name}" for address in site.addresses for name in names))


def topology(site: Site, answers: Answers) -> Finding:
    have, want = len(site.cards), site.cards_wanted
    lines = [
        f"{card['address']}: NUMA node {'-' if card['numa_node'] is None else card['numa_node']}" for card in site.cards
    ]
    if have < want:
        who = next((p["name"] for p in site.wanted if int(p.get("cards") or 0) == want), "")
        asked = f"{who} needs {want}" if who else f"{want} are expected"
        return failed(f"{have} of the cards are there, {asked}", *lines)
    if not have:
        return skipped("there is no Arc Pro B70 in this host, and nothing that it serves needs one")
    if site.settings.get("cards") is not None and have > want:
        return warned(f"{have} cards are there, {want} are expected", *lines)
    nodes = {card["numa_node"] for card in site.cards}
    if len(nodes) > 1:
        return warned(f"{have} cards on {len(nodes)} NUMA nodes: copies between cards cross the processors", *lines)
    return passed(f"{have} cards", *lines)


def driver(site: Site, answers: Answers) -> Finding:
    lines = [f"{card['address']}: {card['driver'] or 'no driver'}" for card in site.cards]
    wrong = [card["address"] for card in site.cards if card["driver"] != DRIVER]
    if wrong:
        return failed(f"{len(wrong)} of {len(lines)} cards are not driven by {DRIVER}", *lines)
    kernel = site.system.get("kernel", "")
    if match := re.match(r"7\.0\.0-(\d+)\b", kernel):
        lacks = [text for build, text in FIXES_OF_KERNEL_7_0_0.items() if int(match[1]) < build]
        if lacks:
            newest = max(FIXES_OF_KERNEL_7_0_0)
            return warned(
                f"kernel {kernel} lacks known fixes of xe: {'; '.join(lacks)}", *lines,
                fix=f"Install kernel 7.0.0-{newest} or newer and reboot.",
            )  # fmt: skip
    return passed(f"all {len(lines)} cards are driven by {DRIVER}, kernel {kernel}", *lines)


def firmware(site: Site, answers: Answers) -> Finding:
    log = answers.output(kernel_log(0))
    versions = {address: text for address, text in guc_versions(log.out).items() if address in site.addresses}
    if not versions:
        return skipped("the kernel log of this boot does not say which GuC firmware was loaded")
    lines = [f"{address}: GuC {version}" for address, version in sorted(versions.items())]
    wanted = ".".join(map(str, GUC_RECOMMENDED))
    if any(tuple(map(int, text.split("."))) < GUC_RECOMMENDED for text in versions.values()):
        return warned(f"the GuC firmware is older than the recommended {wanted}", *lines)
    return passed(f"GuC firmware {', '.join(sorted(set(versions.values())))} ({wanted} is recommended)", *lines)


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
        return failed(f"the user {site.settings['user']} may not open {', '.join(closed)}", *lines)
    return passed(f"the user {site.settings['user']} may open all {len(rows)} render nodes", *lines)


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
        return failed(f"{len(wrong)} of {len(lines)} cards may be put to sleep at run time", *lines)
    return passed("no card is put to sleep at run time", *lines)


def slot_link(site: Site, texts: dict[str, dict[str, str]], path: Iterable[str]) -> tuple[str, float, int] | None:
    """(device, GT/s, width) of the slowest real link on the way to a card; None where no link can be seen.

    The endpoint and the switch on the card report 2.5 GT/s x1 for their inner links, whatever the slot gives: links
    that never were wider than one lane are left out.
    """
    links = []
    for device in path:
        words = texts.get(device, {})
        if words.get("max_link_width", "0").isdigit() and int(words.get("max_link_width", "0")) > 1:
            width = int(words["current_link_width"]) if words.get("current_link_width", "").isdigit() else 0
            links.append((device, gt_per_s(words.get("current_link_speed", "")), width))
    return min(links, key=lambda link: link[1] * link[2], default=None)


def link(site: Site, answers: Answers) -> Finding:
    paths = answers.look(Look("pci-paths"))
    lines, slow, hidden = [], [], []
    for address in site.addresses:
        way = paths.get(address, {})
        found = slot_link(site, way, list(way)[1:] or list(way))
        if found is None:
            hidden.append(address)
            continue
        device, speed, width = found
        lines.append(f"{address}: {speed:g} GT/s x{width} at {device}")
        if width < LINK_WIDTH or speed < LINK_GT_S:
            slow.append(address)
    if slow:
        return warned(
            f"{len(slow)} of {len(site.cards)} cards have less than x{LINK_WIDTH} at {LINK_GT_S:g} GT/s", *lines
        )
    if hidden:
        return skipped(f"the links of {', '.join(hidden)} cannot be seen from here (a virtual machine)")
    return passed(f"every card has x{LINK_WIDTH} at {LINK_GT_S:g} GT/s or more", *lines)


def window(site: Site, answers: Answers) -> Finding:
    texts = answers.texts(device_files(site, "resource"))
    lines, small = [], []
    for address in site.addresses:
        sizes = bar_sizes(texts.get(f"{PCI}/{address}/resource", ""))
        size = sizes[2] if len(sizes) > 2 else 0
        lines.append(f"{address}: BAR 2 is {size // 2**20} MiB")
        # ECC and the driver take their share of the card's memory, the window is a power of two all the same.
        if size < VRAM_BYTES // 2:
            small.append(address)
    if small:
        return warned(f"{len(small)} of {len(lines)} cards show the host only a part of their memory", *lines)
    return passed("the host sees the whole memory of every card", *lines)


def xpu_smi(site: Site, *words: str) -> tuple[Command, ...]:
    """`xpu-smi WORDS -d N` for every card; it numbers the cards in the order of their addresses."""
    return tuple(Command(("xpu-smi", *words, "-d", str(number))) for number in range(len(site.cards)))


def ecc(site: Site, answers: Answers) -> Finding:
    commands = xpu_smi(site, "config")
    outputs = [answers.output(command) for command in commands]
    states = [memory_ecc(output.out) for output in outputs]
    if all(state is None for state in states):
        return skipped(
            f"xpu-smi config says nothing of ECC: {outputs[0].why() if not outputs[0].ok else 'no such section'}"
        )
    lines = [f"card {number}: {' -> '.join(state) if state else 'unknown'}" for number, state in enumerate(states)]
    known = [state for state in states if state]
    if len(known) < len(states) or len(set(known)) > 1:
        return warned("the cards do not agree on ECC of their memory", *lines)
    current, pending = known[0]
    if current != pending:
        return warned(f"ECC of the cards' memory is {current} and will be {pending} after a reboot", *lines)
    if current == "enabled":
        return warned("ECC of the cards' memory is on: about 28 of 32 GB are left for models", *lines)
    return passed("ECC of the cards' memory is off: all 32 GB are there", *lines)


def counters(site: Site, answers: Answers) -> Finding:
    texts = answers.texts(device_files(site, "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"))
    if not texts:
        return skipped("the kernel counts no errors of the bus for the cards (AER is off)")
    lines, bad = [], []
    for path, text in texts.items():
        found = bus_errors(text)
        serious = path.endswith("fatal") and not path.endswith("nonfatal")
        if found:
            address, kind = path.split("/")[-2:]
            lines.append(
                f"{address} {kind.removeprefix('aer_dev_')}: {', '.join(f'{k} {v}' for k, v in found.items())}"
            )
            if serious or set(found) & set(AER_BAD):
                bad.append(address)
    if bad:
        return warned(f"transfers over the bus were damaged for {', '.join(sorted(set(bad)))}", *lines)
    return passed("no damaged transfer was counted on the bus", *lines)


def _power_probes(site: Site) -> Sequence[Probe]:
    return (device_files(site, "power/control", "power/runtime_status"),)


def _counter_probes(site: Site) -> Sequence[Probe]:
    return (device_files(site, "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"),)


CHECKS = (
    Check(
        "card-count", "cards", "the number of cards (8086:e223) and where they sit",
        "An engine for four cards does not start on three.",
        "Look whether lspci -d 8086:e223 shows it; reseat it, its power cables, and see the BIOS settings of its slot.",
        lambda site: (), topology,
    ),
    Check(
        "kernel-driver", "cards", "the driver of every card, and known faults of the kernel",
        "Without the driver xe no program sees the card.",
        "Install a kernel with xe for these cards (Ubuntu 24.04: linux-generic-6.17); see journalctl -k for xe.",
        lambda site: (), driver, needs_cards=True,
    ),
    Check(
        "guc-firmware", "cards", "the version of the cards' GuC firmware",
        "Older firmware is part of several reports of cards that stop answering.",
        "Install a newer linux-firmware and reboot.",
        lambda site: (kernel_log(0),), firmware, needs_cards=True, captured_only=True,
    ),
    Check(
        "device-nodes", "cards", "render nodes, and whether the service user may open them",
        "The engine runs as the service user: what it may not open it does not see.",
        "Run site.yml --tags host (it puts the user into the groups render and video), then start the engine again.",
        lambda site: (Look("device-nodes"),), nodes, needs_cards=True,
    ),
    Check(
        "card-power", "cards", "runtime power management of the cards",
        "These cards freeze the host when they are put to sleep at run time.",
        "Run site.yml --tags host with host_keep_cards_awake: a udev rule sets power/control to on at the bind.",
        _power_probes, power, needs_cards=True,
    ),
    Check(
        "card-link", "cards", "width and speed of the PCIe link to every card",
        "All-reduce goes over this link: half of it costs a few per cent of decoding and much of prefill.",
        "Use x16 slots of generation 4 or 5, and see the BIOS for bifurcation; idle cards may show less (ASPM).",
        lambda site: (Look("pci-paths"),), link, needs_cards=True, captured_only=True,
    ),
    Check(
        "card-bar", "cards", "resizable BAR",
        "Without it the host reaches a card's memory through a window of 256 MiB, and cards cannot copy to each other.",
        "Turn on Above 4G Decoding and Resizable BAR in the BIOS.",
        lambda site: (device_files(site, "resource"),), window, needs_cards=True,
    ),
    Check(
        "card-ecc", "cards", "ECC of the cards' memory",
        "The shipped profiles are measured with ECC off; with ECC on their models and contexts do not fit.",
        "Stop every engine, xpu-smi config -d N --memoryecc 0 for every card, reboot; or choose smaller settings.",
        lambda site: xpu_smi(site, "config"), ecc, needs_cards=True, captured_only=True,
    ),
    Check(
        "card-bus-errors", "cards", "errors that the PCIe bus reported for the cards",
        "Damaged transfers are repeated at best; they come from slots, risers and cables.",
        "Reseat the card, replace the riser, or lower the link's generation in the BIOS.",
        _counter_probes, counters, needs_cards=True,
    ),
)  # fmt: skip
