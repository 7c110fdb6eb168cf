# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's software between driver and Python: Level Zero, OpenCL, packages, oneAPI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..model import Answers, Check, Command, Finding, Look, Site, failed, passed, skipped, warned
from ..parse import libraries, opencl_devices, packages, sycl_devices, xpu_smi_devices

ONEAPI = "/opt/intel/oneapi"
LOADER, CARD_LIBRARY = "libze_loader.so.1", "libze_intel_gpu.so.1"
LDCONFIG = Command(("ldconfig", "-p"))
CLINFO = Command(("clinfo", "-l"), limit_s=10)
XPU_SMI = Command(("xpu-smi", "discovery"), limit_s=10)
COMPILERS = Look("compilers")


def compiler_of(site: Site) -> str:
    """The oneAPI compiler that the host's stacks are pinned to, such as `2025.3`; empty where none is."""
    named = [str(manifest.get("oneapi", {}).get("compiler", "")) for manifest in site.card_manifests]
    return next((name for name in named if name), "")


def sycl_ls(site: Site) -> Command:
    """`sycl-ls` of the pinned compiler, in that compiler's environment."""
    folder = f"{ONEAPI}/compiler/{compiler_of(site) or 'latest'}"
    return Command((f"{folder}/bin/sycl-ls",), limit_s=10, env=(("LD_LIBRARY_PATH", f"{folder}/lib"),))


def dpkg(site: Site) -> Command:
    names = sorted({name for manifest in site.card_manifests for name in manifest.get("driver", {})} | {"xpu-smi"})
    return Command(("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Version}\\n", *names))


def loader(site: Site, answers: Answers) -> Finding:
    output = answers.output(LDCONFIG)
    if not output.ok:
        raise LookupError(f"ldconfig -p: {output.why()}")
    known = libraries(output.out)
    missing = [name for name in (LOADER, CARD_LIBRARY) if name not in known]
    lines = [f"{name} => {known[name]}" for name in (LOADER, CARD_LIBRARY) if name in known]
    if missing:
        names = {LOADER: "libze1 (level-zero)", CARD_LIBRARY: "libze-intel-gpu1"}
        return failed(
            f"the system has no {' and no '.join(missing)}", *lines,
            fix=f"Install {' and '.join(names[name] for name in missing)} from the vendor's repository.",
        )  # fmt: skip
    return passed("the loader and the driver for the cards are there", *lines)


def level_zero(site: Site, answers: Answers) -> Finding:
    """By sycl-ls, or where that is not installed by xpu-smi, which goes the same way."""
    listing, found = answers.output(sycl_ls(site)), 0
    if listing.ok:
        devices = [item for item in sycl_devices(listing.out) if (item.backend, item.kind) == ("level_zero", "gpu")]
        lines, found, tool = [item.name for item in devices], len(devices), "sycl-ls"
    else:
        second = answers.output(XPU_SMI)
        if not second.ok:
            raise LookupError(f"neither sycl-ls ({listing.why()}) nor xpu-smi discovery ({second.why()}) answers")
        cards = xpu_smi_devices(second.out)
        lines = [f"{card.get('device name', '?')} at {card.get('pci bdf address', '?')}" for card in cards]
        found, tool = len(cards), "xpu-smi discovery"
    if found < len(site.cards):
        return failed(f"Level Zero shows {found} of {len(site.cards)} cards ({tool})", *lines)
    return passed(f"Level Zero shows {found} cards ({tool})", *lines)


def opencl(site: Site, answers: Answers) -> Finding:
    output = answers.output(CLINFO)
    if output.problem:
        return skipped(f"clinfo: {output.problem}")
    devices = opencl_devices(output.out)
    cards = [device for platform, device in devices if "Graphics" in platform or "Arc" in device]
    lines = [f"{platform}: {device}" for platform, device in devices]
    if len(cards) < len(site.cards):
        return warned(f"OpenCL shows {len(cards)} of {len(site.cards)} cards", *lines)
    return passed(f"OpenCL shows {len(cards)} cards", *lines)


def pinned(site: Site, answers: Answers) -> Finding:
    output = answers.output(dpkg(site))
    if output.problem:
        raise LookupError(f"dpkg-query: {output.problem}")
    have = packages(output.out)
    wanted = {name: str(text) for manifest in site.card_manifests for name, text in manifest.get("driver", {}).items()}
    if not wanted:
        return skipped("no stack manifest of this host pins packages")
    missing = [f"{name}: not installed, tested with {text}" for name, text in wanted.items() if name not in have]
    other = [
        f"{name}: {have[name]}, tested with {text}"
        for name, text in wanted.items()
        if name in have and not same(have[name], text)
    ]
    if missing:
        return failed(f"{len(missing)} of {len(wanted)} packages of the cards' runtime are missing", *missing, *other)
    if other:
        return warned(f"{len(other)} of {len(wanted)} packages are not the tested versions", *other)
    return passed(f"all {len(wanted)} packages are the tested versions")


def same(have: str, tested: str) -> bool:
    """Whether a package's version is the tested one; what a distribution appends to it does not count."""
    return have == tested or re.match(re.escape(tested.split("~")[0]) + r"(?![0-9.])", have) is not None


def compilers(site: Site, answers: Answers) -> Finding:
    found = answers.look(COMPILERS)
    wanted = compiler_of(site)
    mixed = environments(site.wanted)
    lines = [f"{ONEAPI}/compiler/{name}" for name in found]
    lines += [f"{where} names {', '.join(names)}" for where, names in mixed.items()]
    strangers = {where: names for where, names in mixed.items() if set(names) - {wanted}}
    if not found and not mixed:
        return skipped(f"no oneAPI compiler is installed in {ONEAPI}")
    if strangers or any(len(names) > 1 for names in mixed.values()):
        where = next(iter(strangers or mixed))
        return failed(f"{where} puts the libraries of oneAPI {', '.join(mixed[where])} into the engine's way", *lines)
    if wanted and wanted not in found:
        return failed(f"oneAPI compiler {wanted} is not installed, only {', '.join(found)}", *lines)
    if len(found) > 1:
        return warned(
            f"{len(found)} oneAPI compilers are installed side by side; this host's stacks are for {wanted or 'none'}",
            *lines,
        )
    return passed(f"oneAPI compiler {found[0]}", *lines)


def environments(profiles: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Profile -> the oneAPI releases that its environment and command line name."""
    found = {}
    for profile in profiles:
        releases = sorted(set(re.findall(rf"{ONEAPI}/[\w-]+/(\d{{4}}\.\d+)", str(profile.get("engine", {})))))
        if releases:
            found[f"profile {profile.get('name')}"] = releases
    return found


CHECKS = (
    Check(
        "level-zero-loader", "runtime", "the Level Zero loader and the cards' driver for it",
        "torch, vLLM and oneCCL reach the cards only through Level Zero.",
        "Install libze1 and libze-intel-gpu1 in the versions of the stack's manifest.",
        lambda site: (LDCONFIG,), loader, needs_cards=True,
    ),
    Check(
        "level-zero-devices", "runtime", "whether Level Zero shows every card",
        "A card that Level Zero does not show is not there for the engine; one release of the runtime (25.44) is known "
        "to lose all but the first.",
        "See the checks kernel-driver, device-nodes and packages; unset ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR.",
        lambda site: (sycl_ls(site), XPU_SMI), level_zero, needs_cards=True, captured_only=True,
    ),
    Check(
        "opencl-devices", "runtime", "whether OpenCL shows every card",
        "The engine does without OpenCL, but both come from the same packages: a difference is a broken installation.",
        "Install intel-opencl-icd in the version of the stack's manifest.",
        lambda site: (CLINFO,), opencl, needs_cards=True, captured_only=True,
    ),
    Check(
        "packages", "runtime", "the packages of driver and runtime against the tested versions",
        "The stack's results were obtained with exactly these versions; other combinations were not tested.",
        "Install the tested versions and hold them (apt-mark hold), or prove the new ones with the canary and a soak.",
        lambda site: (dpkg(site),), pinned, needs_cards=True, captured_only=True,
    ),
    Check(
        "oneapi", "runtime", "which oneAPI compilers are installed, and which the engine's environment names",
        "setvars.sh takes the newest: headers and libraries of two releases then mix, and builds or kernels fail.",
        "Use compiler/RELEASE/env/vars.sh of the pinned release only, never setvars.sh; remove the others.",
        lambda site: (COMPILERS,), compilers, needs_cards=True,
    ),
)  # fmt: skip
