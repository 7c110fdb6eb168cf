# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's software between driver and Python: Level Zero, OpenCL, packages, oneAPI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ... import _apt, _gpu_driver
from ..._environment import SYSTEM_PATH
from ..._host import version_key
from ..model import Answers, Check, Command, Finding, Look, Read, Site, failed, passed, skipped, warned
from ..parse import cards_among, libraries, opencl_devices, sycl_devices, xpu_smi_devices
from .machine import DPKG, installed

ONEAPI = "/opt/intel/oneapi"
LOADER, CARD_LIBRARY = "libze_loader.so.1", "libze_intel_gpu.so.1"
LDCONFIG = Command(("ldconfig", "-p"))
CLINFO = Command(("clinfo", "-l"), limit_s=10)
XPU_SMI = Command(("xpu-smi", "discovery"), limit_s=10)
COMPILERS = Look("compilers")
# Engines do without these.
TOOLS = ("clinfo", "xpu-smi")
LIBRARIES = Look("driver-libraries")
DRIVER_LIBRARY = re.compile(r"lib(?:igc|igdfcl|igdgmm|opencl-clang|ze_loader|ze_intel_gpu|sycl|ur_loader)\.so\.\d+")
APT_SOURCES = Read(("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"))
OWN_SOURCE = "/etc/apt/sources.list.d/b70-gpu-driver.sources"
# Where a compiler would be found by every engine, and what reaches engines and shells.
ICPX = Read(tuple(f"{folder}/icpx" for folder in SYSTEM_PATH.split(":")), max_bytes=1)
_ENVIRONMENTS = (
    "/etc/environment", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d/*.conf", "/etc/systemd/system.conf", "/etc/systemd/system.conf.d/*.conf",
)  # fmt: skip


def compiler_of(site: Site) -> str:
    """Return the version of the oneAPI compiler that the stacks pin, such as `2025.3`; empty where none does."""
    named = [str(manifest.get("oneapi", {}).get("compiler", "")) for manifest in site.card_manifests]
    return next((name for name in named if name), "")


def sycl_ls(site: Site) -> Command:
    """Return the command that runs `sycl-ls` of the pinned compiler, in that compiler's environment."""
    folder = f"{ONEAPI}/compiler/{compiler_of(site) or 'latest'}"
    return Command((f"{folder}/bin/sycl-ls",), limit_s=10, env=(("LD_LIBRARY_PATH", f"{folder}/lib"),))


def loader(site: Site, answers: Answers) -> Finding:
    output = answers.output(LDCONFIG)
    if not output.ok:
        raise LookupError(f"ldconfig -p: {output.why()}")
    known = dict(reversed(libraries(output.out)))
    missing = [name for name in (LOADER, CARD_LIBRARY) if name not in known]
    lines = [f"{name} => {known[name]}" for name in (LOADER, CARD_LIBRARY) if name in known]
    if missing:
        names = {LOADER: "libze1", CARD_LIBRARY: "libze-intel-gpu1"}
        return failed(
            f"the system lacks {' and no '.join(missing)}", *lines,
            fix=f"Run site.yml --tags gpu_driver: it installs {' and '.join(names[name] for name in missing)}.",
        )  # fmt: skip
    return passed("the loader and the driver for the cards are installed", *lines)


def level_zero(site: Site, answers: Answers) -> Finding:
    """Judge Level Zero by sycl-ls or, where that is not installed, by xpu-smi, which uses Level Zero too."""
    listing = answers.output(sycl_ls(site))
    if listing.ok:
        devices = [item for item in sycl_devices(listing.out) if (item.backend, item.kind) == ("level_zero", "gpu")]
        names, lines, tool = [item.name for item in devices], [item.name for item in devices], "sycl-ls"
    else:
        second = answers.output(XPU_SMI)
        if not second.ok:
            return skipped(
                f"neither sycl-ls ({listing.why()}) nor xpu-smi discovery ({second.why()}) answers; see torch-xpu"
            )
        cards = xpu_smi_devices(second.out)
        names, tool = [card.get("device name", "?") for card in cards], "xpu-smi discovery"
        lines = [f"{name} at {card.get('pci bdf address', '?')}" for name, card in zip(names, cards, strict=True)]
    found = cards_among(names)
    if found < len(site.cards):
        return failed(f"Level Zero shows {found} of {len(site.cards)} cards ({tool})", *lines)
    return passed(f"Level Zero shows {found} cards ({tool})", *lines)


def opencl(site: Site, answers: Answers) -> Finding:
    output = answers.output(CLINFO)
    if output.problem:
        return skipped(f"clinfo: {output.problem}")
    devices = opencl_devices(output.out)
    found = cards_among(device for _platform, device in devices)
    lines = [f"{platform}: {device}" for platform, device in devices]
    if found < len(site.cards):
        return failed(f"OpenCL shows {found} of {len(site.cards)} cards", *lines)
    return passed(f"OpenCL shows {found} cards", *lines)


def pinned(site: Site, answers: Answers) -> Finding:
    have, wanted, source = installed(answers), site.settings["driver_packages"], site.settings["driver_source"]
    if not wanted:
        return skipped("gpu_driver_packages names no packages")
    if _gpu_driver.others(have, source):
        return skipped("packages of another source are installed (see the check driver-sources)")
    pending = _apt.pending(wanted, have, lambda _one, _other: False)
    lines = [
        f"{item.name}: {item.installed or 'not installed'}, the role wants "
        f"{'any version' if item.wanted == _apt.ANY_VERSION else item.wanted}"
        for item in pending
    ]
    missing = [item.name for item in pending if not item.installed]
    if set(missing) - set(TOOLS):
        return failed(f"{len(missing)} of {len(wanted)} driver packages are missing", *lines)
    if lines:
        return warned(f"{len(lines)} of {len(wanted)} driver packages differ from those that the role installs", *lines)
    return passed(f"all {len(wanted)} packages of the driver are those of {source}")


def sources(site: Site, answers: Answers) -> Finding:
    have, source = installed(answers), site.settings["driver_source"]
    ours = _gpu_driver.of_driver(have)
    if not ours:
        return skipped("no driver package is installed (see the check packages)")
    entries = _apt.entries(answers.texts(APT_SOURCES))
    problems = _gpu_driver.problems(have, entries, source, OWN_SOURCE, remove=False)
    lines = [f"{name} {version}" for name, version in sorted(ours.items())]
    mixed = all(_gpu_driver.others(have, one) for one in _gpu_driver.SOURCES)
    if mixed:
        return failed("the driver packages come from several sources", *problems, *lines, fix=problems[0])
    if problems:
        return warned(f"the driver does not come from {source} alone", *problems, *lines, fix=problems[0])
    return passed(f"the {len(ours)} packages of the driver come from {source} alone", *lines)


def shadows(site: Site, answers: Answers) -> Finding:
    found: dict[str, list[str]] = {}
    for row in answers.look(LIBRARIES):
        files = found.setdefault(row["name"], [])
        if row["file"] not in files:
            files.append(row["file"])
    if not found:
        return skipped("the loader finds no driver library (see the check level-zero-loader)")
    lines = [f"{name} => {', then '.join(files)}" for name, files in found.items() if len(files) > 1]
    older = [
        f"{files[0]} hides the newer {newer[0]}"
        for files in found.values()
        if (newer := [file for file in files[1:] if _release(file) > _release(files[0])])
    ]
    if older:
        return failed(older[0], *lines)
    if lines:
        return warned(f"{len(lines)} driver libraries are installed twice", *lines)
    return passed(f"each of {len(found)} driver libraries is installed once")


def _release(file: str) -> tuple[int, ...]:
    """Return the version in a library's file name, such as libigc.so.2.38.2+1782393643."""
    return version_key(file.rpartition(".so.")[2])


def compilers(site: Site, answers: Answers) -> Finding:
    found = answers.look(COMPILERS)
    wanted = compiler_of(site)
    named = environments(site.wanted)
    lines = [f"{ONEAPI}/compiler/{name}" for name in found]
    lines += [f"profile {name} names {', '.join(releases)}" for name, releases in named.items()]
    if not found and not named:
        return skipped(f"no oneAPI compiler is installed in {ONEAPI}")
    for profile in site.wanted:
        own = site.manifests.get(str(profile.get("stack", {}).get("name")), {}).get("oneapi", {}).get("compiler", "")
        releases = named.get(str(profile.get("name")), [])
        if set(releases) - {str(own)}:
            return failed(
                f"profile {profile['name']} loads the libraries of oneAPI {', '.join(releases)} into the engine; "
                + (f"its stack is for {own}" if own else "its stack brings its own"),
                *lines,
            )
    if wanted and wanted not in found:
        return failed(f"oneAPI compiler {wanted} is not installed, only {', '.join(found) or 'none'}", *lines)
    if len(found) > 1:
        return warned(
            f"{len(found)} oneAPI compilers are installed side by side; this host's stacks are for {wanted or 'none'}",
            *lines,
        )
    return passed(f"oneAPI compiler {', '.join(found) or 'none'}", *lines)


def environments(profiles: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return, by profile, the oneAPI releases that its environment and command line name."""
    found = {}
    for profile in profiles:
        pattern = rf"{ONEAPI}/(?:[\w-]+/)?(\d{{4}}\.\d+|latest)\b"
        releases = sorted(set(re.findall(pattern, str(profile.get("engine", {})))))
        if releases:
            found[str(profile.get("name"))] = releases
    return found


def surroundings(site: Site) -> Read:
    return Read((*_ENVIRONMENTS, f"{site.settings['unit_dir']}/b70-slot-*.service.d/*.conf"))


def sycl_runtimes(site: Site, answers: Answers) -> Finding:
    finished = [str(manifest["name"]) for manifest in site.card_manifests if not manifest.get("oneapi")]
    if not finished:
        return skipped("no stack of this host brings its own SYCL runtime")
    programs = list(answers.texts(ICPX))
    if programs:
        return failed(
            f"{programs[0]} is on the path of every engine; Triton takes it and its libraries beside those of "
            f"{', '.join(finished)}",
            *programs, fix=f"Remove {' and '.join(programs)}; builds find the compiler by its own environment.",
        )  # fmt: skip
    lines = [
        f"{path}: {line.strip()}"
        for path, text in answers.texts(surroundings(site)).items()
        for line in text.splitlines()
        if re.search(r"/intel/oneapi\b|\bsetvars\.sh\b", line) and not line.lstrip().startswith("#")
    ]
    if lines:
        return warned(
            f"oneAPI is added to the environment of {', '.join(finished)}, which brings its own runtime", *lines
        )
    return passed(f"no second SYCL runtime stands beside that of {', '.join(finished)}")


CHECKS = (
    Check(
        "level-zero-loader", "runtime", "the Level Zero loader and the cards' driver for it",
        "torch, vLLM and oneCCL reach the cards only through Level Zero.",
        "Run site.yml --tags gpu_driver: it installs libze1 and libze-intel-gpu1.",
        lambda site: (LDCONFIG,), loader, needs_cards=True,
    ),
    Check(
        "level-zero-devices", "runtime", "whether Level Zero shows every card",
        "The engine sees only the cards that Level Zero shows; one release of the runtime (25.44) is known "
        "to lose all but the first.",
        "See the checks kernel-driver, device-nodes and packages; unset ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR.",
        lambda site: (sycl_ls(site), XPU_SMI), level_zero, needs_cards=True, captured_only=True,
    ),
    Check(
        "opencl-devices", "runtime", "whether OpenCL shows every card",
        "The engine does not use OpenCL, but both come from the same packages: a difference means a broken "
        "installation.",
        "Run site.yml --tags gpu_driver: it installs intel-opencl-icd of the same source as the rest.",
        lambda site: (CLINFO,), opencl, needs_cards=True, captured_only=True,
    ),
    Check(
        "driver-sources", "runtime", "whether the driver's packages and repositories are of one source",
        "Each source builds the same libraries in other versions. Mixed ones shadow each other, and cards are "
        "not found.",
        "Remove the packages of other sources, or set gpu_driver_remove_others; then site.yml --tags gpu_driver.",
        lambda site: (DPKG, APT_SOURCES), sources, needs_cards=True,
    ),
    Check(
        "packages", "runtime", "the driver's packages against those of the chosen source (gpu_driver_source)",
        "The role gpu_driver pins these versions; something else installed or removed the ones that differ.",
        "Run site.yml --tags gpu_driver: it installs and holds these versions.",
        lambda site: (DPKG,), pinned, needs_cards=True,
    ),
    Check(
        "driver-libraries", "runtime", "whether the loader finds each library of the driver once",
        "If an older compiler for the cards (libigc) shadows the newer one, kernels fail or cards are not found.",
        "Remove the package or file that hides the other (dpkg -S FILE names its package), then ldconfig.",
        lambda site: (LIBRARIES,), shadows, needs_cards=True,
        source="owners' reports; an image whose libigc 2.36.3 hid 2.41.5",
    ),
    Check(
        "oneapi", "runtime", "which oneAPI compilers are installed, and which the engine's environment names",
        "setvars.sh selects the newest release: headers and libraries of two releases then mix, and builds or "
        "kernels fail.",
        "Use compiler/RELEASE/env/vars.sh of the pinned release only, never setvars.sh; remove the others.",
        lambda site: (COMPILERS,), compilers, needs_cards=True,
    ),
    Check(
        "sycl-runtimes", "runtime", "whether oneAPI is added to the environment of a stack that brings its own "
        "SYCL runtime",
        "Triton compiles with the icpx that it finds; two SYCL runtimes in one process end in a segmentation fault.",
        "Remove oneAPI from these files; the role oneapi keeps the compiler's environment in a file of its own.",
        lambda site: (ICPX, surroundings(site)), sycl_runtimes, needs_cards=True,
        source="owners' reports on torch 2.13 and newer",
    ),
)  # fmt: skip
