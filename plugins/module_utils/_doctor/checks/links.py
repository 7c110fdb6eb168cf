# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way to the cards over the PCI bus: width, speed, sleep, window and errors. From sysfs."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import Answers, Check, Finding, Look, Read, Site, failed, passed, skipped, warned
from ..parse import bar_sizes, bus_errors, chosen_of, gt_per_s
from .cards import PCI, device_files

VRAM_BYTES = 32 * 2**30
# GT/s times width: generation 4 x16, which generation 5 has with x8. A card that works alone loads its weights over the
# link and little else.
LINK_GT_S = 16.0 * 16
ALONE_GT_S = 8.0 * 4
AER_BAD = ("RxErr", "BadTLP", "BadDLLP")
PATHS = Look("pci-paths")
ASPM_POLICY = Read(("/sys/module/pcie_aspm/parameters/policy",))
CPUINFO = Read(("/proc/cpuinfo",), max_bytes=4096)
# Deeper than plain L1.
SUBSTATES = ("link/l1_1_aspm", "link/l1_2_aspm", "link/l1_1_pcipm", "link/l1_2_pcipm")
AER_FILES = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")


def slot_link(way: Mapping[str, Mapping[str, str]]) -> tuple[str, float, int] | None:
    """Return the (device, GT/s, width) of the slowest real link on the way to a card; None where no link can be seen.

    A card sits behind a switch of its own, whose upstream port (8086:e2ff) has the slot's link. The endpoint and the
    switch's other ports report 2.5 GT/s x1, whatever the slot gives: links that never were wider than one lane are
    left out. So is the root port, whose own most may be more than a card's.
    """
    links = []
    for device in list(way)[1:] or list(way):
        words = way[device]
        if words.get("max_link_width", "0").isdigit() and int(words.get("max_link_width", "0")) > 1:
            width = int(words["current_link_width"]) if words.get("current_link_width", "").isdigit() else 0
            links.append((device, gt_per_s(words.get("current_link_speed", "")), width))
    return min(links, key=lambda link: link[1] * link[2], default=None)


def link(site: Site, answers: Answers) -> Finding:
    """Judge the links of the cards by GT/s times width."""
    paths = answers.look(PATHS)
    alone = len(site.cards) == 1
    enough = ALONE_GT_S if alone else LINK_GT_S
    lines, slow, hidden = [], [], []
    for address in site.addresses:
        found = slot_link(paths.get(address, {}))
        if found is None or not found[1] or not found[2]:
            hidden.append(address)
            continue
        device, speed, width = found
        lines.append(f"{address}: {speed:g} GT/s x{width} at {device}")
        if speed * width < enough:
            slow.append(address)
    like = "8 GT/s x4" if alone else "16 GT/s x16"
    if slow:
        return warned(f"{len(slow)} of {len(site.cards)} cards have less than {like}", *lines)
    if hidden:
        return skipped(f"the links of {', '.join(hidden)} are not visible here (a virtual machine)")
    if alone:
        return passed(f"{lines[0].partition(': ')[2]}, which is enough for a single card", *lines)
    return passed(f"every card has a link like {like} or better", *lines)


def aspm(site: Site, answers: Answers) -> Finding:
    if "pcie_aspm=off" in (site.system.get("kernel_arguments") or []):
        return passed("the kernel's argument pcie_aspm=off keeps the links out of low-power states")
    policy = chosen_of(answers.text(*ASPM_POLICY.patterns) or "")
    if not policy:
        return skipped("the kernel reports no ASPM policy")
    on = [
        f"{device}: {name.removeprefix('link/')}"
        for way in answers.look(PATHS).values()
        for device, words in way.items()
        for name in SUBSTATES
        if words.get(name) == "1"
    ]
    lines = [f"policy {policy}", *dict.fromkeys(on)]
    if policy != "powersupersave" and not on:
        return passed(f"no link to a card uses a state deeper than L1 (policy {policy})", *lines)
    if "AuthenticAMD" not in "".join(answers.texts(CPUINFO).values()):
        return passed(
            f"links to cards may use L1 substates (policy {policy}); no problem with that is known on this platform",
            *lines,
        )
    return warned(f"links to cards may use L1 substates (policy {policy})", *lines)


def window(site: Site, answers: Answers) -> Finding:
    texts = answers.texts(device_files(site, "resource"))
    lines, small, hidden = [], [], []
    for address in site.addresses:
        sizes = bar_sizes(texts.get(f"{PCI}/{address}/resource", ""))
        if len(sizes) < 3:
            hidden.append(address)
            continue
        lines.append(f"{address}: BAR 2 is {sizes[2] // 2**20} MiB")
        if sizes[2] < VRAM_BYTES:
            small.append(address)
    if small:
        return failed(
            f"{len(small)} of {len(site.cards)} cards show the host only a part of their memory: Level Zero refuses "
            "them, and no engine starts on them",
            *lines,
        )
    if hidden:
        return skipped(f"the kernel does not show the BAR of {', '.join(hidden)}")
    return passed("the host can access the whole memory of every card", *lines)


def iommu(site: Site, answers: Answers) -> Finding:
    texts = answers.texts(device_files(site, "iommu_group/type"))
    kinds = {address: texts.get(f"{PCI}/{address}/iommu_group/type", "").strip() for address in site.addresses}
    lines = [f"{address}: {kind or 'no IOMMU'}" for address, kind in kinds.items()]
    lines += [word for word in site.system.get("kernel_arguments") or [] if "iommu" in word]
    translated = [address for address, kind in kinds.items() if kind.startswith("DMA")]
    if translated and len(site.cards) > 1:
        return warned(f"the IOMMU translates for {len(translated)} of {len(site.cards)} cards", *lines)
    if translated:
        return passed("the IOMMU translates for the card, which copies to no other one", *lines)
    if any(kinds.values()):
        return passed("the IOMMU passes the cards' addresses through", *lines)
    return passed("no IOMMU stands before the cards", *lines)


def counters(site: Site, answers: Answers) -> Finding:
    texts = answers.texts(device_files(site, *AER_FILES))
    if not texts:
        return skipped("the kernel counts no bus errors for the cards (AER is off)")
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
        return warned(f"damaged bus transfers were counted for {', '.join(sorted(set(bad)))}", *lines)
    return passed("no damaged bus transfers were counted", *lines)


CHECKS = (
    Check(
        "card-link", "cards", "width and speed of the PCIe link to every card, read at the bridge above it (8086:e2ff)",
        "All-reduce uses this link: half its speed costs a few per cent of decoding and much of prefill. The card's "
        "own link always shows 2.5 GT/s x1, which means nothing.",
        "Use x16 slots of generation 4 or 5 and see the BIOS for bifurcation; where the bridge stays below what the "
        "slot gives: xpu-smi config -d N --pciedowngrade 0, then switch the machine off and on.",
        lambda site: (PATHS,), link, needs_cards=True, captured_only=True,
    ),
    Check(
        "aspm", "cards", "power saving of the links to the cards (ASPM)",
        "On AMD machines, a card whose link was in L1.1 was missing after a boot. Links without power saving cost "
        "about 25 W.",
        "Boot with pcie_aspm.policy=default or pcie_aspm=off (host_kernel_arguments).",
        lambda site: (PATHS, ASPM_POLICY, CPUINFO), aspm, needs_cards=True, captured_only=True,
        source="https://lkml.iu.edu/2605.0/10905.html",
    ),
    Check(
        "card-bar", "cards", "resizable BAR: whether the host can access the whole memory of every card",
        "Level Zero refuses a card whose window (BAR) is smaller than its memory, so no engine starts on it.",
        "Turn on Above 4G Decoding and Resizable BAR in the BIOS.",
        lambda site: (device_files(site, "resource"),), window, needs_cards=True,
        source="https://github.com/intel/compute-runtime/issues/933",
    ),
    Check(
        "iommu", "cards", "whether an IOMMU translates the cards' addresses",
        "Copies from card to card then go through the processor. Intel validates several cards with the IOMMU off.",
        "Set host_kernel_arguments: [intel_iommu=off] or [amd_iommu=off], unless a virtual machine needs it.",
        lambda site: (device_files(site, "iommu_group/type"),), iommu, needs_cards=True, captured_only=True,
    ),
    Check(
        "card-bus-errors", "cards", "PCIe errors of the cards",
        "Damaged transfers are repeated at best. Slots, risers and cables cause them.",
        "Reseat the card, replace the riser, or lower the link's generation in the BIOS.",
        lambda site: (device_files(site, *AER_FILES),), counters, needs_cards=True,
    ),
)  # fmt: skip
