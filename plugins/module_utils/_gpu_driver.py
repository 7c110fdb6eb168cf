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
from ._host import version_key

DRIVER = "xe"
SOURCES = ("omix", "github", "ppa")
# The sources that use the same names for everything.
REPOSITORIES = ("omix", "ppa")

# The oldest GuC that the supported kernels request. GUC has the facts about older ones.
GUC_FLOOR = "70.54"


@dataclass(frozen=True)
class Known:
    """The known facts about versions that start with `version`. `verdict` is good, usable, bad or unknown."""

    version: str
    verdict: str
    reason: str
    source: str


GUC = (
    Known(
        "70.44",
        "usable",
        "it is older than what the kernel recommends; two cards served 64 streams on kernel 6.17 without a reset",
        "https://github.com/vllm-project/vllm/issues/41663",
    ),
    Known(
        "70.58",
        "bad",
        "under sustained load engines of a card are reset and the card does not come back (4 of 4 runs)",
        "https://github.com/intel/compute-runtime/issues/948",
    ),
    Known(
        "70.65",
        "good",
        "Intel's own releases of the driver are validated with it",
        "https://dgpu-docs.intel.com/overview/support-matrix/omix-support-matrix.html",
    ),
    Known(
        "70.72.1",
        "usable",
        "no resets where 70.58 had them, but a hang at the start of an engine on two cards is reported",
        "https://github.com/intel/compute-runtime/issues/999",
    ),
)

# Series of the kernel. Under a bad one cards work, but were lost.
KERNELS = (
    Known(
        "6.17",
        "good",
        "Intel's own repository for these cards has this series",
        "https://repositories.intel.com/gpu/ubuntu",
    ),
    Known(
        "7.0",
        "bad",
        "permanent resets of cards under load were reported (intel/compute-runtime issue 948)",
        "https://github.com/intel/compute-runtime/issues/948",
    ),
)
# Ubuntu's builds of a series, and their fixes for these cards.
FIXED_IN = {
    "7.0.0-38": "a deadlock when queues are torn down, two page-table faults of xe, locking of the AMD IOMMU",
    "7.0.0-39": "memory of the card handed out twice",
}


def _begins(version: str, beginning: str) -> bool:
    return version == beginning or version.startswith(f"{beginning}.")


def judge_guc(version: str) -> Known:
    """The entry of a GuC version, or an entry for an unknown version."""
    for known in GUC:
        if _begins(version, known.version):
            return known
    if version_key(version) < version_key(GUC_FLOOR):
        return Known(version, "bad", f"it is older than {GUC_FLOOR}, which the kernel asks for", "")
    return Known(version, "unknown", "nothing is known of it on these cards", "")


def judge_kernel(kernel: str) -> Known:
    """The entry of the series of a kernel such as `7.0.0-31-generic`."""
    known = next((known for known in KERNELS if _begins(kernel, known.version)), None)
    return known or Known(kernel, "unknown", "nothing is known of its series on these cards", "")


def lacks(kernel: str) -> list[str]:
    """The fixes for these cards in later builds of the same kernel."""
    version, _dash, build = kernel.partition("-")
    number = re.match(r"\d+", build)
    if not number:
        return []
    fixes = ((*name.split("-"), what) for name, what in FIXED_IN.items())
    return [what for base, fixed, what in fixes if base == version and int(number[0]) < int(fixed)]


def refused(version: str, accepted: Sequence[str]) -> bool:
    """Whether a GuC version is bad and not among the accepted ones."""
    return judge_guc(version).verdict == "bad" and not any(_begins(version, entry) for entry in accepted)


def remedy(version: str) -> str:
    """The fix for a refused GuC version."""
    newer = (entry for entry in GUC if version_key(entry.version) >= version_key(GUC_FLOOR))
    good = " or ".join(entry.version for entry in newer if entry.verdict != "bad")
    return (
        f"Put xe/bmg_guc_70.bin of linux-firmware with {good} below /lib/firmware/updates, run update-initramfs -u and "
        f"restart the host; or accept this one: gpu_driver_guc_accepted: ['{version}']."
    )


def _firmware(card: Mapping[str, Any], accepted: Sequence[str]) -> tuple[str, str]:
    """(problem, note) for the firmware of a bound card. At most one of them is not empty."""
    version = str(card.get("guc") or "")
    if not version:
        return "", f"{card['address']}: neither debugfs nor the kernel's log says which GuC firmware it runs."
    known = judge_guc(version)
    said = f"{card['address']} runs the GuC firmware {version}: {known.reason}" + (
        f" ({known.source})." if known.source else "."
    )
    if known.verdict == "good":
        return "", ""
    return (f"{said} {remedy(version)}", "") if refused(version, accepted) else ("", said)


def unbound(card: Mapping[str, Any], system: Mapping[str, Any]) -> str:
    """Why xe does not drive a card, and a fix."""
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
    cards: Iterable[Mapping[str, Any]], system: Mapping[str, Any], accepted: Sequence[str]
) -> tuple[list[str], list[str]]:
    """(problems, notes): one sentence per card on its driver, else its firmware, and one on the kernel.

    `cards` and `system` are as b70_host_info returns them; `accepted` are known bad GuC versions to accept.
    """
    kernel = str(system.get("kernel") or "")
    series = judge_kernel(kernel)
    notes = [f"The kernel is {kernel}: {series.reason}."] if series.verdict == "bad" else []
    problems = []
    for card in cards:
        if card.get("driver") != DRIVER:
            problems.append(unbound(card, system))
            continue
        problem, note = _firmware(card, accepted)
        problems += [problem] if problem else []
        notes += [note] if note else []
    return problems, notes


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
    """The possible sources of a package, by its name or by the form of its version."""
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
    """The installed packages that belong to the driver."""
    return {name: version for name, version in installed.items() if name in SHARED or _homes(name, version) != SOURCES}


def others(installed: Mapping[str, str], source: str) -> dict[str, str]:
    """Installed packages of the driver that are not from `source`, with their versions.

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


def _of(entry: _apt.Entry) -> str:
    """The source that a repository belongs to. Empty for any other repository."""
    for suite in entry.suites:
        for source, part in _ADDRESSES.items():
            if part in f"{entry.url}/{suite}":
                return source
    return ""


def problems(
    installed: Mapping[str, str], entries: Iterable[_apt.Entry], source: str, own_file: str, remove: bool
) -> list[str]:
    """Why `source` conflicts with the host's packages and repositories, and a fix.

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
                f"{entry.file} names {entry.url}, the source {belongs}; the driver must come from {source}, and  "
                f"packages of both would mix. Remove that file, or set gpu_driver_source to {belongs}."
            )
    return found
