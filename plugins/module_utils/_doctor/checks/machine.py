# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine: system, memory, disk, how earlier boots ended, what the kernel says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..._apt import DPKG_FORMAT, installed_versions
from ..._build.memory import Room, budget
from ..._build.recipe import FORGE, BuildError, Recipe
from ..._engine.check import mirrored_bytes
from ..._slot.look.memory import SPARED_BYTES
from ..model import Answers, Check, Command, Finding, Look, Read, Site, failed, passed, skipped, warned
from ..parse import apt_settings, boots, journal_stops, memory, reset_reason, trouble, unclean

# The smallest host of the upstream lab, and what its soak asks to be free while an engine runs.
LEAST_RAM_MIB = 15 * 1024
LEAST_AVAILABLE_MIB = 1024
# A disk with less is about to stop the host; with less than the second figure somebody should look.
DISK_FAIL_MIB, DISK_WARN_MIB = 1024, 10 * 1024

# MESSAGE_ID of systemd: the journal was closed in order.
JOURNAL_STOPPED = "d93fb3c9c24d451a97cea615ce59c00b"
MEMINFO = Read(("/proc/meminfo",))
BUILD_ROOM = Look("build-room")
DPKG = Command(("dpkg-query", "--show", f"--showformat={DPKG_FORMAT}"))
HELD = Command(("dpkg-query", "--show", "--showformat=${db:Status-Want} ${Package} ${Version}\\n", "linux-*"))
APT = Command(("apt-config", "dump"))
# Packages that pull the newest kernel of a kind in: their names have no version of a kernel.
_KERNELS = re.compile(r"linux-(?:image-)?(?:generic|virtual|lowlatency|hwe|oem|intel|amd64|cloud-amd64)(?:-.*)?")
_TRUE = ("1", "true", "yes", "on", "with", "enable")  # as apt reads a boolean
EDAC = Read(("/sys/devices/system/edac/mc/mc*/ce_count", "/sys/devices/system/edac/mc/mc*/ue_count"))
LIST_BOOTS = Command(("journalctl", "--list-boots", "--utc", "--no-pager"))
STOPS = Command(
    ("journalctl", "--quiet", "--no-pager", "--output=json", "--output-fields=_BOOT_ID", "--lines=200",
     f"MESSAGE_ID={JOURNAL_STOPPED}")
)  # fmt: skip


def kernel_log(boot: int) -> Command:
    """Return the command for the last 20 000 messages of the kernel in this boot (0) or an earlier one (-1)."""
    return Command(
        ("journalctl", "--quiet", "--no-pager", "--dmesg", f"--boot={boot}", "--output=short-iso", "--lines=20000")
    )


def system(site: Site, answers: Answers) -> Finding:
    problems = answers.look(Look("system"))
    name = f"{site.system.get('name', 'unknown')}, kernel {site.system.get('kernel', '?')}"
    if problems:
        return failed(problems[0], name, *problems[1:], fix="Fix what the message names, then run the doctor again.")
    return passed(name)


def ram(site: Site, answers: Answers) -> Finding:
    have = memory(answers.text("/proc/meminfo") or "")
    total, free = have.get("MemTotal", 0), have.get("MemAvailable", 0)
    line = f"{total} MiB in all, {free} MiB available, {have.get('SwapTotal', 0)} MiB swap"
    if not total:
        raise LookupError("/proc/meminfo says nothing")
    if free < LEAST_AVAILABLE_MIB and have.get("SwapFree", 0) < LEAST_AVAILABLE_MIB:
        return failed(f"only {free} MiB of memory are available", line)
    if site.cards and total < LEAST_RAM_MIB:
        return warned(f"{total} MiB of memory: the smallest host that served these models had 16 GB", line)
    for profile in site.wanted:
        mirrored = mirrored_bytes(profile) // 2**20
        if mirrored + SPARED_BYTES // 2**20 > total:
            name = profile["name"]
            return warned(
                f"{name} has {mirrored} MiB of its cards mirrored in the host's memory, which has {total} MiB",
                line,
                fix="Set engine.host_mirror of the profile, serve it on one card, or add memory.",
            )
    return passed(line)


def recipes(manifest: Mapping[str, Any]) -> list[Recipe]:
    """Return the recipes of a stack's sources, with what matters for the host's room."""
    sizes = ("max_jobs", "peak_gib", "job_gib", "disk_gib")
    return [
        Recipe(
            source["name"], FORGE + source["repo"], source["commit"], python="",
            **{key: source[key] for key in sizes if key in source},
        )
        for source in manifest.get("sources", [])
    ]  # fmt: skip


def build_memory(site: Site, answers: Answers) -> Finding:
    complete = {stack["name"] for stack in site.stacks if stack["complete"]}
    wanted = [str(profile.get("stack", {}).get("name")) for profile in site.wanted]
    wanted += [str(manifest["name"]) for manifest in site.card_manifests]
    building = {name: recipes(site.manifests.get(name, {})) for name in dict.fromkeys(wanted) if name not in complete}
    building = {name: sources for name, sources in building.items() if sources}
    if not building:
        return skipped("no stack that this host lacks is built from source")
    room = Room(**answers.look(BUILD_ROOM))
    lines, problems = [], []
    for name, sources in building.items():
        for recipe in sources:
            try:
                lines.append(f"{name}: {recipe.name}: {budget(recipe, room).describe(recipe, room)}")
            except BuildError as error:
                problems.append(f"{name}: {error}")
    if problems:
        return warned(problems[0], *problems, *lines)
    return passed(f"{', '.join(building)} can be built here", *lines)


def disk(site: Site, answers: Answers) -> Finding:
    rows = answers.look(Look("disks"))
    complete = {stack["name"] for stack in site.stacks if stack["complete"]}
    lines, bad, low = [], [], []
    for row in rows:
        need = 0
        if row["path"] == site.settings["stack_root"]:
            wanted = {str(profile.get("stack", {}).get("name")) for profile in site.wanted} - complete
            need = sum(int(site.manifests.get(name, {}).get("disk_mib", 0)) for name in wanted)
        line = (
            f"{row['path']}: {row['free_mib']} of {row['size_mib']} MiB free, {row['free_inodes_percent']} % of inodes"
        )
        lines.append(line + (f"; the stacks that are missing need {need}" if need else ""))
        if row["free_mib"] < max(DISK_FAIL_MIB, need) or row["free_inodes_percent"] < 1:
            bad.append(row["path"])
        elif row["free_mib"] < min(DISK_WARN_MIB, row["size_mib"] // 10):
            low.append(row["path"])
    if bad:
        return failed(f"too little space is free in {', '.join(bad)}", *lines)
    if low:
        return warned(f"little space is left in {', '.join(low)}", *lines)
    return passed(f"{min(row['free_mib'] for row in rows)} MiB or more are free", *lines)


def memory_errors(site: Site, answers: Answers) -> Finding:
    counters = answers.texts(EDAC)
    if not counters:
        return skipped(
            "this machine does not report memory errors (no ECC memory, or no EDAC driver): only a memory test "
            "finds them"
        )
    found = {path: int(text) for path, text in counters.items() if text.strip().isdigit() and int(text)}
    lines = [f"{path}: {count}" for path, count in found.items()]
    if any(path.endswith("ue_count") for path in found):
        return failed("uncorrectable memory errors were counted since the boot", *lines)
    if found:
        return warned("memory errors were corrected since the boot", *lines)
    return passed("no memory error was counted since the boot")


def boot_ends(site: Site, answers: Answers) -> Finding:
    listing, stops = answers.output(LIST_BOOTS), answers.output(STOPS)
    if not listing.ok:
        raise LookupError(f"journalctl --list-boots: {listing.why()}")
    known = boots(listing.out)
    lost = unclean(known, journal_stops(stops.out))
    reason = reset_reason(answers.output(kernel_log(0)).out)
    lines = [
        f"boot {boot.offset} ended without a shutdown, last log entry at {boot.last:%Y-%m-%d %H:%M:%S} UTC"
        for boot in lost
    ]
    if reason:
        lines.append(f"the processor reports before this boot: {reason}")
    earlier = sum(1 for boot in known if boot.offset < 0)
    if not earlier:
        return skipped("the journal has only this boot (a new host, or a journal that is not persistent)")
    if lost:
        return warned(f"{len(lost)} of the last {earlier} boots ended without a shutdown", *reversed(lines))
    return passed(f"the last {earlier} boots ended with a shutdown", *lines)


def kernel_trouble(site: Site, answers: Answers) -> Finding:
    now, before = answers.output(kernel_log(0)), answers.output(kernel_log(-1))
    if not now.ok:
        raise LookupError(f"journalctl --dmesg: {now.why()}")
    if not now.out.strip():
        return skipped("there is no kernel log (a container has none)")
    here, earlier = trouble(now.out), trouble(before.out)
    if here.dead:
        return failed("the kernel gave up on a card or on the machine in this boot", *here.dead, *here.faults)
    if here.small:
        return failed(
            "the machine shows only a part of a card's memory: no engine starts on that card",
            *here.small, *here.faults,
            fix="Turn on Above 4G Decoding and Resizable BAR in the BIOS; see the check card-bar.",
            source="https://github.com/intel/compute-runtime/issues/933",
        )  # fmt: skip
    if here:
        return warned("the kernel reports faults in this boot", *here.faults, *here.hardware)
    if earlier:
        return warned(
            "the kernel reported faults in the boot before this one", *earlier.dead, *earlier.faults, *earlier.hardware
        )
    return passed(f"no faults in the {len(now.out.splitlines())} lines of this boot, nor in the boot before")


def settings(site: Site, answers: Answers) -> Finding:
    panic = answers.text("/proc/sys/kernel/hardlockup_panic")
    if panic is None:
        return skipped("this kernel has no hard lockup detector")
    if panic == "1":
        return warned(
            "kernel.hardlockup_panic is 1: a lockup halts the host without a trace unless a crash capture is set up",
            fix="Set the sysctl kernel.hardlockup_panic to 0, or set up kdump or netconsole.",
        )
    return passed("kernel.hardlockup_panic is 0")


def installed(answers: Answers) -> dict[str, str]:
    """Return the versions of the installed packages by name; raise LookupError where nobody says."""
    output = answers.output(DPKG)
    if not output.ok:
        raise LookupError(f"dpkg-query: {output.why()}")
    return installed_versions(output.out)


def _unattended(settings: Mapping[str, str], answers: Answers) -> bool:
    """Tell whether apt upgrades packages by itself."""
    often = settings.get("APT::Periodic::Unattended-Upgrade", "0")
    on = often not in ("0", "") and settings.get("APT::Periodic::Enable") != "0"
    return on and "unattended-upgrades" in installed(answers)


def unattended_reboots(site: Site, answers: Answers) -> Finding:
    output = answers.output(APT)
    if not output.ok:
        return skipped(f"apt-config does not report the unattended upgrades: {output.why()}")
    said = dict(apt_settings(output.out))
    if said.get("Unattended-Upgrade::Automatic-Reboot", "").lower() not in _TRUE:
        return passed("unattended upgrades do not reboot the host")
    if not _unattended(said, answers):
        return passed("unattended upgrades are off")
    when = said.get("Unattended-Upgrade::Automatic-Reboot-Time", "now")
    return warned(f"unattended upgrades may reboot the host by themselves (at: {when})")


def kernel_upgrades(site: Site, answers: Answers) -> Finding:
    output = answers.output(APT)
    if not output.ok:
        return skipped(f"apt-config does not report the unattended upgrades: {output.why()}")
    said = apt_settings(output.out)
    if not _unattended(dict(said), answers):
        return passed("unattended upgrades are off")
    # A package that nobody holds; dpkg-query ends with 1 where there is none at all.
    rows = [line.split() for line in answers.output(HELD).out.splitlines()]
    free = [row[1] for row in rows if len(row) == 3 and row[0] == "install" and _KERNELS.fullmatch(row[1])]
    barred = [value for name, value in said if name == "Unattended-Upgrade::Package-Blacklist::"]
    free = [name for name in free if not any(_matches(pattern, name) for pattern in barred)]
    if free:
        return warned(
            f"unattended upgrades may replace the kernel: {', '.join(free)}",
            f"kept back: {', '.join(barred) or 'nothing'}",
            fix='Keep it: name "linux-" in Unattended-Upgrade::Package-Blacklist '
            f"(/etc/apt/apt.conf.d/50unattended-upgrades), or apt-mark hold {' '.join(free)}.",
        )  # fmt: skip
    return passed("unattended upgrades leave the kernel alone")


def _matches(pattern: str, name: str) -> bool:
    """Tell whether a pattern matches the beginning of a name, as unattended-upgrades compares."""
    try:
        return re.match(pattern, name) is not None
    except re.error:
        return False


CHECKS = (
    Check(
        "system", "host", "the system, its release, Python, systemd",
        "The roles are written for Debian 12, Ubuntu 24.04 and newer, with systemd.",
        "Use a host with a supported system.",
        lambda site: (Look("system"),), system,
    ),
    Check(
        "memory", "host", "memory and swap while the host runs",
        "The kernel kills an engine that runs out of memory, and its requests fail.",
        "Stop other programs that use memory, add memory, or serve a smaller model.",
        lambda site: (MEMINFO,), ram,
    ),
    Check(
        "build-memory", "host", "memory, swap and disk for the stacks that are not yet built from source",
        "The kernel kills a compiler that runs out of memory, and the build fails.",
        "Add that much swap, or free disk for swap that the build makes itself (stack_build_swap_file); a host that "
        "takes the wheels of another one needs neither.",
        lambda site: (BUILD_ROOM,), build_memory, needs_cards=True,
    ),
    Check(
        "disk", "host", "free space and inodes for models, stacks, caches and the journal",
        "A full disk stops downloads, compile caches and the journal of switches.",
        "Remove models, stacks and caches that are not used.",
        lambda site: (Look("disks"),), disk,
    ),
    Check(
        "memory-errors", "host", "main memory errors counted by EDAC",
        "Bad memory is the most common known cause of resets and of corrupt output on such hosts.",
        "Test nearly all of the memory (memtester) while the cards are idle, and replace modules that fail.",
        lambda site: (EDAC,), memory_errors,
    ),
    Check(
        "boots", "host", "whether earlier boots ended with a shutdown",
        "A boot that ended without a shutdown means a reset, a power loss or a freeze, and engines were cut off.",
        "Read the last lines of that boot (journalctl -b N -n 50), the check kernel-log, and the machine's own "
        "event log; on boards without ECC test the memory first.",
        lambda site: (LIST_BOOTS, STOPS, kernel_log(0)), boot_ends,
    ),
    Check(
        "kernel-log", "host", "faults of the cards' driver, lockups and hardware errors in the kernel log",
        "Resets and faults precede the loss of a card. A wedged card does no more work until a reboot.",
        "Keep the lines (arcpro.b70.report does), reboot if a card is wedged, and lower max_num_seqs if it "
        "happens again.",
        lambda site: (kernel_log(0), kernel_log(-1)), kernel_trouble,
    ),
    Check(
        "lockup-setting", "host", "what the kernel does after a hard lockup",
        "A panic halts the host and, without a crash dump, leaves no trace of the cause.",
        "Set kernel.hardlockup_panic to 0.",
        lambda site: (Read(("/proc/sys/kernel/hardlockup_panic",)),), settings,
    ),
    Check(
        "unattended-reboots", "host", "whether unattended upgrades may reboot the host",
        "Such a reboot drains nothing: it cuts off all requests, on every host of a fleet at the same time of day.",
        'Set Unattended-Upgrade::Automatic-Reboot to "false" (/etc/apt/apt.conf.d/50unattended-upgrades) and let '
        "site.yml restart hosts in waves (host_reboot, host_reboot_served).",
        lambda site: (APT, DPKG), unattended_reboots, needs_product=True,
    ),
    Check(
        "kernel-upgrades", "host", "whether unattended upgrades may replace the kernel",
        "Some kernels lose the cards, and after an unattended upgrade the next reboot uses a kernel that nobody "
        "has tried.",
        "Name \"linux-\" in Unattended-Upgrade::Package-Blacklist, or apt-mark hold the kernel's packages.",
        lambda site: (APT, DPKG, HELD), kernel_upgrades, needs_cards=True,
        source="reports of owners whose cards were gone after an upgrade of the kernel",
    ),
)  # fmt: skip
