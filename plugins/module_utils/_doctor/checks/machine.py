# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine: system, memory, disk, how earlier boots ended, what the kernel says."""

from __future__ import annotations

from ..model import Answers, Check, Command, Finding, Look, Read, Site, failed, passed, skipped, warned
from ..parse import boots, journal_stops, memory, reset_reason, trouble, unclean

# The smallest host of the upstream lab, and what its soak asks to be free while an engine runs.
LEAST_RAM_MIB = 15 * 1024
LEAST_AVAILABLE_MIB = 1024
# A disk with less is about to stop the host; with less than the second figure somebody should look.
DISK_FAIL_MIB, DISK_WARN_MIB = 1024, 10 * 1024

# MESSAGE_ID of systemd: the journal was closed in order.
JOURNAL_STOPPED = "d93fb3c9c24d451a97cea615ce59c00b"
MEMINFO = Read(("/proc/meminfo",))
EDAC = Read(("/sys/devices/system/edac/mc/mc*/ce_count", "/sys/devices/system/edac/mc/mc*/ue_count"))
LIST_BOOTS = Command(("journalctl", "--list-boots", "--utc", "--no-pager"))
STOPS = Command(
    ("journalctl", "--quiet", "--no-pager", "--output=json", "--output-fields=_BOOT_ID", "--lines=200",
     f"MESSAGE_ID={JOURNAL_STOPPED}")
)  # fmt: skip


def kernel_log(boot: int) -> Command:
    """The kernel's messages of this boot (0) or of one before (-1), at most the last 20 000."""
    return Command(
        ("journalctl", "--quiet", "--no-pager", "--dmesg", f"--boot={boot}", "--output=short-iso", "--lines=20000")
    )


def system(site: Site, answers: Answers) -> Finding:
    problems = answers.look(Look("system"))
    name = f"{site.system.get('name', 'unknown')}, kernel {site.system.get('kernel', '?')}"
    if problems:
        return failed(problems[0], name, *problems[1:], fix="Do what the sentence says, then run this again.")
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
    return passed(line)


def build_memory(site: Site, answers: Answers) -> Finding:
    have = memory(answers.text("/proc/meminfo") or "")
    needs = {
        name: int(manifest["build"].get("peak_rss_gb", 0)) * 1000
        for name, manifest in site.manifests.items()
        if manifest.get("build", {}).get("peak_rss_gb") and (manifest in site.card_manifests)
    }
    if not needs or not site.cards:
        return skipped("no stack of this host is built from source")
    both = have.get("MemTotal", 0) + have.get("SwapTotal", 0)
    name, need = max(needs.items(), key=lambda item: item[1])
    build = site.manifests[name]["build"]
    source = build.get("heaviest_source", "the heaviest source")
    line = f"memory and swap together are {both} MiB; {source} takes {need} MB"
    if both < need:
        return warned(
            f"building stack {name} here would be killed for want of memory",
            line,
            fix=f"Before a build add {build.get('swap_gb', 160)} GB of swap on a fast disk and lower the job count; "
            "a host that only runs what was built elsewhere needs neither.",
        )
    return passed(line)


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
        return failed(f"there is too little space below {', '.join(bad)}", *lines)
    if low:
        return warned(f"space becomes scarce below {', '.join(low)}", *lines)
    return passed(f"{min(row['free_mib'] for row in rows)} MiB or more are free", *lines)


def memory_errors(site: Site, answers: Answers) -> Finding:
    counters = answers.texts(EDAC)
    if not counters:
        return skipped(
            "this machine reports no memory errors (no ECC memory, or no EDAC driver): only a memory test tells"
        )
    found = {path: int(text) for path, text in counters.items() if text.strip().isdigit() and int(text)}
    lines = [f"{path}: {count}" for path, count in found.items()]
    if any(path.endswith("ue_count") for path in found):
        return failed("memory errors that could not be corrected were counted since the boot", *lines)
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
        f"boot {boot.offset} ended without a shutdown, last heard of at {boot.last:%Y-%m-%d %H:%M:%S} UTC"
        for boot in lost
    ]
    if reason:
        lines.append(f"before this boot, says the processor: {reason}")
    earlier = sum(1 for boot in known if boot.offset < 0)
    if not earlier:
        return skipped("the journal knows only this boot (a new host, or a journal that is not kept)")
    if lost:
        return warned(f"{len(lost)} of the last {earlier} boots ended without a shutdown", *reversed(lines))
    return passed(f"the last {earlier} boots ended in order", *lines)


def kernel_trouble(site: Site, answers: Answers) -> Finding:
    now, before = answers.output(kernel_log(0)), answers.output(kernel_log(-1))
    if not now.ok:
        raise LookupError(f"journalctl --dmesg: {now.why()}")
    if not now.out.strip():
        return skipped("there is no kernel log here (a container has none)")
    here, earlier = trouble(now.out), trouble(before.out)
    if here.dead:
        return failed("a card or the machine was given up by the kernel in this boot", *here.dead, *here.faults)
    if here:
        return warned("the kernel reports faults in this boot", *here.faults, *here.hardware)
    if earlier:
        return warned(
            "the kernel reported faults in the boot before this one", *earlier.dead, *earlier.faults, *earlier.hardware
        )
    return passed(f"nothing in {len(now.out.splitlines())} lines of this boot, nor in the boot before")


def settings(site: Site, answers: Answers) -> Finding:
    panic = answers.text("/proc/sys/kernel/hardlockup_panic")
    if panic is None:
        return skipped("this kernel has no detector of hard lockups")
    if panic == "1":
        return warned(
            "kernel.hardlockup_panic is 1: a lockup halts the host without a trace unless a crash capture is set up",
            fix="Set the sysctl kernel.hardlockup_panic to 0, or set up kdump or netconsole.",
        )
    return passed("kernel.hardlockup_panic is 0")


CHECKS = (
    Check(
        "system", "host", "the system, its release, Python, systemd",
        "The roles are written for Debian 12, Ubuntu 24.04 and newer, with systemd.",
        "Use a host with a supported system.",
        lambda site: (Look("system"),), system,
    ),
    Check(
        "memory", "host", "memory and swap while the host runs",
        "An engine that gets no memory is killed by the kernel, and takes its requests with it.",
        "Stop what else uses memory, add some, or serve a smaller model.",
        lambda site: (MEMINFO,), ram,
    ),
    Check(
        "build-memory", "host", "memory and swap for building a stack from source",
        "One compiler process of vllm-xpu-kernels takes more than 120 GB; with less it is killed in the middle.",
        "Add swap for the time of the build.",
        lambda site: (MEMINFO,), build_memory, needs_cards=True,
    ),
    Check(
        "disk", "host", "free space and inodes where models, stacks, caches and the journal are",
        "A full disk stops downloads, compile caches and the journal of switches.",
        "Remove models, stacks and caches that are not used.",
        lambda site: (Look("disks"),), disk,
    ),
    Check(
        "memory-errors", "host", "errors of the main memory that EDAC counted",
        "Wrong bytes in memory are the largest known cause of resets and of corrupt output on such hosts.",
        "Test nearly all of the memory, locked (memtester), with idle cards; replace what fails.",
        lambda site: (EDAC,), memory_errors,
    ),
    Check(
        "boots", "host", "whether earlier boots ended with a shutdown",
        "A host that goes away without a shutdown was reset, lost power or froze; engines were cut off with it.",
        "See the last lines of that boot (journalctl -b N -n 50), the check kernel-log, and the machine's own "
        "event log; on boards without ECC test the memory first.",
        lambda site: (LIST_BOOTS, STOPS, kernel_log(0)), boot_ends,
    ),
    Check(
        "kernel-log", "host", "faults of the cards' driver, lockups and hardware errors in the kernel log",
        "Resets and faults of a card go before a lost device; a card that is wedged takes no more work until a reboot.",
        "Keep the lines (report.yml does), reboot when a card is wedged; lower max_num_seqs when it comes back.",
        lambda site: (kernel_log(0), kernel_log(-1)), kernel_trouble,
    ),
    Check(
        "lockup-setting", "host", "what the kernel does after a hard lockup",
        "A panic halts the host for ever and, without a capture, leaves no word of why.",
        "Set kernel.hardlockup_panic to 0.",
        lambda site: (Read(("/proc/sys/kernel/hardlockup_panic",)),), settings,
    ),
)  # fmt: skip
