# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the driver of the cards: the kernel's driver, the GuC firmware, packages of one source.

Pure functions of plain values. The module b70_gpu_driver_info collects the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _apt
from ._host import GUC_FILE, named, version_key

DRIVER = "xe"
SOURCES = ("omix", "github", "ppa")
# The sources that use the same names for everything.
REPOSITORIES = ("omix", "ppa")

# The oldest GuC that the supported kernels request.
GUC_FLOOR = "70.54"
OMIX_MATRIX = "https://dgpu-docs.intel.com/overview/support-matrix/omix-support-matrix.html"
RUNTIME_ISSUES = "https://github.com/intel/compute-runtime/issues"


@dataclass(frozen=True)
class Pair:
    """A report about a GuC firmware under a kernel; both stand for all versions that start with them.

    verdict: good, usable, bad, contradictory or unknown. wanted: the firmware that the kernel asked for in the report;
    empty where it does not matter. least_cards: the report is about hosts with so many cards.
    """

    kernel: str
    guc: str
    verdict: str
    reason: str
    source: str = ""
    wanted: str = ""
    least_cards: int = 1


PAIRS = (
    Pair(
        "6.17",
        "70.44",
        "usable",
        "it is older than what the kernel recommends; two cards served 64 streams on kernel 6.17 without a reset",
        "https://github.com/vllm-project/vllm/issues/41663",
    ),
    Pair("6.17", "70.65", "good", "Intel's own releases of the driver are validated with it", OMIX_MATRIX),
    Pair("7.0", "70.54", "usable", "it is what this kernel asks for, and cards are served with it"),
    Pair(
        "7.0",
        "70.58",
        "bad",
        "under sustained load engines of a card are reset and the card does not come back (4 of 4 runs)",
        f"{RUNTIME_ISSUES}/948",
        wanted="70.54",
    ),
    Pair(
        "7.0",
        "70.65",
        "contradictory",
        "Intel's own releases of the driver are validated with it; one owner reports trouble (B60, kernel 7.0.14)",
        OMIX_MATRIX,
    ),
    Pair(
        "7.0",
        "70.72.1",
        "bad",
        "the start of an engine on two cards hangs",
        f"{RUNTIME_ISSUES}/999",
        least_cards=2,
    ),
    Pair("7.1", "70.58", "good", "two cards served for six weeks", wanted="70.58"),
    Pair("7.2", "70.72.1", "good", "an owner serves with it (kernel 7.2.7, runtime 26.35.39758.10)"),
)


@dataclass(frozen=True)
class KernelSeries:
    """A report about a series of the kernel, whatever the firmware. verdict: good, usable, bad or unknown."""

    kernel: str
    verdict: str
    reason: str
    source: str = ""


KERNELS = (
    KernelSeries(
        "6.17",
        "good",
        "Intel's own repository for these cards has this series",
        "https://repositories.intel.com/gpu/ubuntu",
    ),
    KernelSeries("6.18", "usable", "the series knows the cards; no pair with a firmware is reported"),
    KernelSeries(
        "7.0",
        "bad",
        "permanent resets of cards under load were reported with GuC 70.58; the firmware decides",
        f"{RUNTIME_ISSUES}/948",
    ),
    KernelSeries("7.1", "good", "two cards served for six weeks, with GuC 70.58"),
    KernelSeries("7.2", "good", "an owner serves with it (7.2.7), with GuC 70.72.1"),
)
# Ubuntu's builds of a series, and their fixes for these cards.
FIXED_IN = {
    "7.0.0-38": "a deadlock when queues are torn down, two page-table faults of xe, locking of the AMD IOMMU",
    "7.0.0-39": "memory of the card handed out twice",
}


def _begins(version: str, beginning: str) -> bool:
    return re.match(rf"{re.escape(beginning)}(?![0-9])", version) is not None


def judge_pair(kernel: str, guc: str, wanted: str = "", cards: int = 1) -> Pair:
    """Judge a firmware under a kernel that asks for `wanted`, on a host with so many cards.

    A pair that nobody has reported is unknown, whatever is known of its parts. But firmware that was bad for one kernel
    is bad for every kernel that asks for the same one.
    """
    if not guc:
        return Pair(kernel, guc, "unknown", "neither debugfs nor the kernel's log says which firmware it runs")
    found = [pair for pair in PAIRS if _begins(guc, pair.guc) and cards >= pair.least_cards]
    told = [pair for pair in found if not (pair.wanted and wanted) or _begins(wanted, pair.wanted)]
    same = [pair for pair in told if _begins(kernel, pair.kernel)]
    alike = [pair for pair in told if pair.verdict == "bad" and pair.wanted and wanted]
    if same or alike:
        return (same or alike)[0]
    asked = wanted or GUC_FLOOR
    if version_key(guc) < version_key(asked):
        why = f"it is older than {asked}, which {'this kernel asks' if wanted else 'supported kernels ask'} for"
    else:
        why = f"it is newer than {wanted}, which this kernel asks for" if wanted and not _begins(guc, wanted) else ""
    elsewhere = ", ".join(f"{pair.verdict} under {pair.kernel}" for pair in found)
    reasons = [why, "nobody has reported this pair", elsewhere and f"the firmware is {elsewhere}"]
    return Pair(kernel, guc, "unknown", "; ".join(filter(None, reasons)))


def judge_kernel(kernel: str) -> KernelSeries:
    """Return the entry of the series of a kernel such as `7.0.0-31-generic`."""
    known = next((known for known in KERNELS if _begins(kernel, known.kernel)), None)
    return known or KernelSeries(kernel, "unknown", "nothing is known of its series on these cards")


def lacks(kernel: str) -> list[str]:
    """Return the fixes for these cards in later builds of the same kernel."""
    version, _dash, build = kernel.partition("-")
    number = re.match(r"\d+", build)
    if not number:
        return []
    fixes = ((*name.split("-"), what) for name, what in FIXED_IN.items())
    return [what for base, fixed, what in fixes if base == version and int(number[0]) < int(fixed)]


def refused(pair: Pair, guc: str, accepted: Sequence[str]) -> bool:
    """Tell whether a pair is bad and its firmware not among the accepted versions."""
    return pair.verdict == "bad" and not any(_begins(guc, entry) for entry in accepted)


def remedy(kernel: str, guc: str, cards: int = 1) -> str:
    """Return the fix for a firmware that is refused under this kernel."""
    others = [pair.guc for pair in PAIRS if _begins(kernel, pair.kernel) and pair.verdict != "bad"]
    better = " or ".join(version for version in others if judge_pair(kernel, version, cards=cards).verdict != "bad")
    kernels = " or ".join(pair.kernel for pair in PAIRS if _begins(guc, pair.guc) and pair.verdict == "good")
    ways = [
        f"Put xe/bmg_guc_70.bin of linux-firmware with {better} below /lib/firmware/updates (site.yml does it with "
        "gpu_driver_guc_file), run update-initramfs -u and restart the host"
        if better
        else "",
        f"boot a kernel of the series {kernels}" if kernels else "",
        f"accept this one: gpu_driver_guc_accepted: ['{guc}']",
    ]
    text = "; or ".join(filter(None, ways))
    return f"{text[0].upper()}{text[1:]}."


def offered(file: str, kernel: str, cards: int) -> bool:
    """Tell whether a version of the firmware may replace one that is refused."""
    return bool(file) and judge_pair(kernel, file, cards=cards).verdict != "bad"


def _firmware(
    card: Mapping[str, Any], system: Mapping[str, Any], accepted: Sequence[str], cards: int
) -> tuple[str, str]:
    """Return the problem and the note about the firmware of a bound card; at most one of them is not empty."""
    kernel, version, wanted = (
        str(source.get(key) or "") for source, key in ((system, "kernel"), (card, "guc"), (card, "guc_wanted"))
    )
    pair = judge_pair(kernel, version, wanted, cards)
    if not version:
        return "", f"{card['address']}: the GuC firmware is unknown: {pair.reason}."
    asked = f" (wanted {wanted})" if wanted and wanted != version else ""
    said = f"{card['address']} runs the GuC firmware {version}{asked} under the kernel {kernel}: "
    said += "" if pair.verdict == "bad" else f"{pair.verdict}: "
    said += pair.reason + (f" ({pair.source})." if pair.source else ".")
    if pair.verdict == "good":
        return "", ""
    if not refused(pair, version, accepted):
        return "", said
    file = str(system.get("guc_file") or "")
    if file != version and offered(file, kernel, cards):
        return f"{said} /{GUC_FILE} has {file}: restart the host, or set host_reboot to true.", ""
    return f"{said} {remedy(kernel, version, cards)}", ""


def unbound(card: Mapping[str, Any], system: Mapping[str, Any]) -> str:
    """Return why the driver xe does not have a card, and a fix."""
    kernel, following = str(system.get("kernel") or ""), str(system.get("next_kernel") or "")
    bound = str(card.get("driver") or "")
    if bound:
        return f"{card['address']} is bound to {bound}, not to {DRIVER}: unbind it, and find what binds it at boot."
    said = f"{card['address']} has no driver under the kernel {kernel}"
    if "nomodeset" in (system.get("kernel_arguments") or []):
        return f"{said}: its argument nomodeset prevents that; remove it from /etc/default/grub and restart the host."
    if following not in ("", kernel):
        return f"{said}; the next boot uses {following}: restart the host, or set host_reboot to true."
    return (
        f"{said}: a kernel of the series 6.17 or newer knows the card; install one (host_kernel_packages) and restart "
        "the host, or see in journalctl -k -g xe why it did not take the card."
    )


def judge_cards(
    cards: Sequence[Mapping[str, Any]], system: Mapping[str, Any], accepted: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return problems and notes: one sentence per card on its driver, else its firmware, and one on the kernel.

    `cards` and `system` are as b70_host_info returns them; `accepted` are known bad GuC versions to accept.
    """
    kernel = str(system.get("kernel") or "")
    series = judge_kernel(kernel)
    driven = any(card.get("driver") == DRIVER for card in cards)
    told = series.verdict == "bad" or (series.verdict == "unknown" and driven)
    notes = [f"The kernel is {kernel}: {series.reason}."] if told else []
    problems = []
    for card in cards:
        if card.get("driver") != DRIVER:
            problems.append(unbound(card, system))
            continue
        problem, note = _firmware(card, system, accepted, len(cards))
        problems += [problem] if problem else []
        notes += [note] if note else []
    return problems, notes


def firmware_to_install(host: Mapping[str, Any], offer: Mapping[str, Any], accepted: Sequence[str]) -> str:
    """Return the version of the offered file that is to replace the firmware of the cards; empty where none is.

    It replaces firmware that is refused and nothing else, unless the host has it already and only needs a restart.
    `host` is as b70_host_info returns it, `offer` as the variable gpu_driver_guc_file.
    """
    kernel, count = str(host["system"].get("kernel") or ""), len(host["cards"])
    version, present = str(offer.get("version") or ""), str(host["system"].get("guc_file") or "")
    if _begins(present, version) or not offered(version, kernel, count):
        return ""
    runs = {(str(card.get("guc") or ""), str(card.get("guc_wanted") or "")) for card in host["cards"]}
    return version if any(refused(judge_pair(kernel, *run, count), run[0], accepted) for run in runs) else ""


def outlook(host: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return what the owner of a host has to know before anything is changed, one sentence each.

    `host` is as b70_host_info returns it. `settings`: `suites` (systems with packages of the driver), `accepted`
    (GuC versions), `offer` (gpu_driver_guc_file) and `reboot` (host_reboot).
    """
    system, cards, others = host["system"], host["cards"], host.get("other_cards") or []
    problems, notes = judge_cards(cards, system, settings["accepted"])
    here = ", ".join(named(card) for card in cards) or "no Arc Pro B70"
    said = [f"{system.get('name') or system.get('id')}, kernel {system.get('kernel')}, with {here}."]
    said += [
        f"An {card['model']} at {card['address']} is left out: profiles are for the B70. Masks count it all the "
        f"same, as card {card['number']}."
        for card in others
    ]
    this = f"{system.get('id')} {system.get('version')}"
    if cards and this not in settings["suites"]:
        said.append(f"The driver has no packages for {this}: install the host with {' or '.join(settings['suites'])}.")
    file = firmware_to_install(host, settings["offer"], settings["accepted"])
    said += [*problems, *notes]
    if file:
        said.append(f"site.yml puts the GuC firmware {file} at /{GUC_FILE}, which takes effect with a restart.")
    restarts = list(host.get("restart_reasons") or []) + ([f"the GuC firmware {file} is new"] if file else [])
    if restarts:
        how = "site.yml restarts it" if settings["reboot"] else "set host_reboot to true, or restart it yourself"
        said.append(f"The host needs a restart, {how}: {'; '.join(restarts)}.")
    kernel = str(system.get("kernel") or "")
    pairs = [judge_pair(kernel, str(c.get("guc") or ""), str(c.get("guc_wanted") or ""), len(cards)) for c in cards]
    if any(pair.verdict in ("unknown", "contradictory") for pair in pairs):
        said.append(
            "Nobody knows this pair of kernel and firmware well: serve under load for hours (soak.yml), look at the "
            "check kernel-log of doctor.yml, and send in what report.yml collects."
        )
    return said


# Names that only some sources use. The other sources have the same files under other names.
_NAMES = (
    (r"intel-igc-(core|opencl|cm)(-\d+)?", ("github",)),
    (r"libigc\d+|libigdfcl\d+", REPOSITORIES),
    (r"intel-(omix|gpu-compute)(-dev)?", ("omix",)),
    (r"level-zero(-devel)?|intel-level-zero-gpu", ()),
)
# Names of the driver's packages that are the same in every source.
SHARED = (
    "intel-ocloc",
    "intel-opencl-icd",
    "libigdgmm12",
    "libze-dev",
    "libze-intel-gpu1",
    "libze1",
    "xpu-smi",
)
_RUNTIME = ("intel-ocloc", "intel-opencl-icd", "libze-intel-gpu1")


def _homes(name: str, version: str) -> tuple[str, ...]:
    """Return the possible sources of a package, by its name or by the form of its version."""
    for pattern, homes in _NAMES:
        if re.fullmatch(pattern, name):
            return homes
    if name in SHARED:
        if "~ppa" in version:
            return ("ppa",)
        if "~" in version:  # the form of a distribution's versions, unlike the files on GitHub
            return REPOSITORIES
        if re.search(r"\+u\d\d\.\d\d$", version) or (name in _RUNTIME and re.fullmatch(r"[\d.]+-0", version)):
            return ("github",)
    return SOURCES


def of_driver(installed: Mapping[str, str]) -> dict[str, str]:
    """Return the installed packages that belong to the driver."""
    return {name: version for name, version in installed.items() if name in SHARED or _homes(name, version) != SOURCES}


def others(installed: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the installed packages of the driver that are not from `source`, with their versions.

    A package that may be from either the repository or the PPA counts as one of the other source if a package certainly
    is.
    """
    homes = {name: _homes(name, version) for name, version in installed.items()}
    rivals = [(rival,) for rival in REPOSITORIES if rival != source]
    mixed = source in REPOSITORIES and any(home in rivals for home in homes.values())
    return {
        name: version
        for name, version in sorted(installed.items())
        if source not in homes[name] or (mixed and homes[name] == REPOSITORIES)
    }


_ADDRESSES = {"ppa": "/kobuk-team/intel-graphics/", "omix": "/intel-omix"}


def _of(entry: _apt.AptEntry) -> str:
    """Return the source that a repository belongs to; empty for any other repository."""
    for suite in entry.suites:
        for source, part in _ADDRESSES.items():
            if part in f"{entry.url}/{suite}":
                return source
    return ""


def problems(
    installed: Mapping[str, str], entries: Iterable[_apt.AptEntry], source: str, own_file: str, remove: bool
) -> list[str]:
    """Return why `source` conflicts with the host's packages and repositories, and a fix.

    `installed` is name -> version, `entries` what apt's files name, `own_file` the file that the role writes anew, and
    `remove` says that packages of other sources are removed first.
    """
    found = []
    strange = others(installed, source)
    if strange and not remove:
        listed = ", ".join(f"{name} {version}" for name, version in strange.items())
        found.append(
            f"These packages are of another source than {source}: {listed}. Two builds of one library shadow each "
            f"other. Remove them (apt-get remove {' '.join(strange)}), or set gpu_driver_remove_others to true."
        )
    for entry in entries:
        belongs = _of(entry)
        if belongs not in ("", source) and entry.file != own_file:
            found.append(
                f"{entry.file} names {entry.url}, the source {belongs}; the driver must come from {source}, and "
                f"packages of both would mix. Remove that file, or set gpu_driver_source to {belongs}."
            )
    return found
