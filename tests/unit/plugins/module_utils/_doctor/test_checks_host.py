# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of the machine."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor.checks import machine
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Level, Look, Output, Read
from unit.plugins.module_utils._doctor.hosts import (
    BY_ID,
    MANIFEST,
    SHIPPED,
    captured,
    judge,
    out,
    profile,
    site,
    stack,
)

GITHUB = captured("dpkg.txt")


def test_without_cards_nothing_about_cards_is_judged_or_asked():
    bare = site(cards=0, wanted=[], stacks=[])
    for check in BY_ID.values():
        if check.needs_cards:
            assert "nothing that it serves needs one" in check.waived(bare), check.id
    assert judge("card-count", bare).level is Level.SKIP
    needing = site(cards=0)
    assert "see the check card-count" in BY_ID["card-power"].waived(needing)
    missing = judge("card-count", needing)
    assert (missing.level, missing.summary) == (Level.FAIL, "0 of the cards are present, big needs 2")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("kernel-good.txt", Level.PASS),
        ("kernel-fault.txt", Level.WARN),
        ("kernel-wedged.txt", Level.FAIL),
        ("kernel-no-firmware.txt", Level.FAIL),
        ("kernel-hardware.txt", Level.FAIL),
    ],
)
def test_the_kernel_log_of_this_boot(text: str, level: Level):
    now, before = machine.kernel_log(0), machine.kernel_log(-1)
    assert judge("kernel-log", site(), (now, out(captured(text))), (before, out(""))).level is level
    # The same in the boot before is over, and still worth a word.
    earlier = judge("kernel-log", site(), (now, out("a line\n")), (before, out(captured(text))))
    assert earlier.level is (Level.PASS if level is Level.PASS else Level.WARN)


def test_the_kernel_log_names_a_card_that_shows_only_a_part_of_its_memory():
    now, before = machine.kernel_log(0), machine.kernel_log(-1)
    found = judge("kernel-log", site(), (now, out(captured("kernel-small-bar.txt"))), (before, out("")))
    assert (found.level, "only a part of a card's memory" in found.summary) == (Level.FAIL, True)
    assert "0000:03:00.0: [drm] Small BAR device" in found.evidence[1]
    assert "Resizable BAR" in found.fix
    queue = judge("kernel-log", site(), (now, out(captured("kernel-exec-queue.txt"))), (before, out("")))
    assert (queue.level, len(queue.evidence)) == (Level.WARN, 2)


def test_a_kernel_log_that_cannot_be_read_is_not_a_good_one():
    now, before = machine.kernel_log(0), machine.kernel_log(-1)
    assert judge("kernel-log", site(), (now, out("")), (before, out(""))).level is Level.SKIP
    with pytest.raises(LookupError, match="did not end"):
        judge("kernel-log", site(), (now, Output(problem="journalctl did not end within 5 s")), (before, out("")))


def test_boots():
    listing = (machine.LIST_BOOTS, out(captured("list-boots.txt")))
    stops = (machine.STOPS, out(captured("journal-stopped.jsonl")))
    log = (machine.kernel_log(0), out(captured("kernel-good.txt")))
    found = judge("boots", site(), listing, stops, log)
    assert found.level is Level.WARN
    assert (
        found.evidence[0]
        == "the processor reports before this boot: software wrote 0x6 to reset control register 0xCF9"
    )
    assert found.evidence[1] == "boot -2 ended without a shutdown, last log entry at 2026-11-19 21:47:11 UTC"
    lines = captured("list-boots.txt").splitlines()
    first = (machine.LIST_BOOTS, out("\n".join([lines[0], lines[3]])))
    assert judge("boots", site(), first, stops, log).level is Level.SKIP


MEMINFO = "MemTotal: {total} kB\nMemAvailable: {free} kB\nSwapTotal: {swap} kB\nSwapFree: {swap} kB\n"


def meminfo(total_gib: float, free_gib: float, swap_gib: float = 0):
    text = MEMINFO.format(total=int(total_gib * 2**20), free=int(free_gib * 2**20), swap=int(swap_gib * 2**20))
    return machine.MEMINFO, {"/proc/meminfo": text}


def test_memory():
    assert judge("memory", site(), meminfo(125, 100)).level is Level.PASS
    assert judge("memory", site(), meminfo(8, 6)).level is Level.WARN
    assert judge("memory", site(cards=0), meminfo(8, 6)).level is Level.PASS
    assert judge("memory", site(), meminfo(125, 0.5)).level is Level.FAIL
    with pytest.raises(LookupError):
        judge("memory", site(), (machine.MEMINFO, {}))


TWO_CARDS: dict[str, Any] = {
    "name": "qwen38-27b-int4-tp2",
    "cards": 2,
    "stack": {"device": "xpu", "id": "xpu-0123456789"},
    "model": {"path": "/m", "size_gb": 19.5},
    "engine": {"env": {}, "version": "0.31.0", "settings": {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.92}},
}


@pytest.mark.parametrize(
    ("gib", "env", "level"),
    [
        (16, {}, Level.WARN),
        (30, {}, Level.WARN),
        # What a host of 64 GiB reports.
        (62.5, {}, Level.WARN),
        (125, {}, Level.PASS),
        (30, {"NEOReadDebugKeys": "1", "EnableDeferBacking": "0"}, Level.PASS),
    ],
)
def test_memory_counts_the_mirror_of_several_cards(gib, env, level):
    profile = {**TWO_CARDS, "engine": {**TWO_CARDS["engine"], "env": env}}
    found = judge("memory", site(wanted=[profile]), meminfo(gib, gib - 2))
    assert found.level is level
    if level is Level.WARN:
        assert "qwen38-27b-int4-tp2 has 60" in found.summary
        assert "engine.host_mirror" in found.fix


def build_room(memory_gib: float, **more: float):
    known = {
        "cpus": 16,
        "memory_gib": memory_gib,
        "swap_gib": 0.0,
        "disk_gib": 500.0,
        "addable_gib": 0.0,
        "why_not": "",
    }
    return machine.BUILD_ROOM, {**known, **more}


def test_what_a_build_of_the_shipped_stack_needs():
    """By the code that gives the build its jobs, over the manifest that is shipped."""
    missing = site(stacks=[])
    fits = judge("build-memory", missing, build_room(125))
    assert (fits.level, fits.summary) == (Level.PASS, "lab-minimax can be built here")
    assert [line.split(": ")[1] for line in fits.evidence] == ["vllm-xpu-kernels", "llm-scaler", "vllm"]
    assert "up to 120 GiB in one process" in fits.evidence[0]
    small = judge("build-memory", missing, build_room(15, swap_gib=8.0))
    assert small.level is Level.WARN
    assert "vllm-xpu-kernels cannot be built here: one compiler process needs 120 GiB" in small.summary
    assert "add 97 GiB of swap" in small.summary
    # The build makes swap itself where there is room for it.
    assert judge("build-memory", missing, build_room(15, addable_gib=161.0)).level is Level.PASS
    assert "need 60 GiB, 20.0 GiB are free" in judge("build-memory", missing, build_room(125, disk_gib=20.0)).summary


def test_nothing_is_to_be_built_for_a_stack_of_wheels_or_one_that_is_there():
    assert judge("build-memory", site()).level is Level.SKIP
    wheels = site(stacks=[], wanted=[profile(stack=stack("xpu"))])
    assert judge("build-memory", wheels).level is Level.SKIP
    assert judge("build-memory", site(stacks=[], wanted=[])).level is Level.SKIP


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_stack_that_is_built_says_what_that_takes(name: str):
    sources = SHIPPED[name].get("sources", [])
    assert [(recipe.name, recipe.peak_gib) for recipe in machine.recipes(SHIPPED[name])] == [
        (source["name"], source["peak_gib"]) for source in sources
    ]


def test_disks_count_what_is_still_to_be_installed():
    def rows(free: int):
        return Look("disks"), [{"path": path, "size_mib": 500_000, "free_mib": free, "free_inodes_percent": 90}
                               for path in ("/mnt/fast-ai", "/opt/b70/stacks")]  # fmt: skip

    assert judge("disk", site(), rows(60_000)).level is Level.PASS
    assert judge("disk", site(), rows(5_000)).level is Level.WARN
    assert judge("disk", site(), rows(500)).level is Level.FAIL
    missing = judge("disk", site(stacks=[]), rows(20_000))
    assert (missing.level, missing.summary) == (Level.FAIL, "too little space is free in /opt/b70/stacks")
    assert f"the stacks that are missing need {MANIFEST['disk_mib']}" in missing.evidence[1]


def test_errors_of_the_main_memory():
    path = "/sys/devices/system/edac/mc/mc0/{}_count"
    assert judge("memory-errors", site(), (machine.EDAC, {})).level is Level.SKIP
    assert judge("memory-errors", site(), (machine.EDAC, {path.format("ce"): "0\n"})).level is Level.PASS
    assert judge("memory-errors", site(), (machine.EDAC, {path.format("ce"): "4\n"})).level is Level.WARN
    assert judge("memory-errors", site(), (machine.EDAC, {path.format("ue"): "1\n"})).level is Level.FAIL


def test_the_lockup_setting():
    path = "/proc/sys/kernel/hardlockup_panic"
    for text, level in (("0\n", Level.PASS), ("1\n", Level.WARN)):
        assert judge("lockup-setting", site(), (Read((path,)), {path: text})).level is level


def upgrades(kernels: str, settings: str, packages: str = GITHUB):
    answers = ((machine.APT, out(settings)), (machine.HELD, out(kernels)), (machine.DPKG, out(packages)))
    return judge("kernel-upgrades", site(), *answers)


def test_kernels_that_are_upgraded_unattended():
    kernels, shipped = captured("dpkg-kernels.txt"), captured("apt-config.txt")
    found = upgrades(kernels, shipped)
    assert (found.level, found.summary) == (
        Level.WARN,
        "unattended upgrades may replace the kernel: linux-generic-hwe-24.04, linux-image-generic-hwe-24.04",
    )
    assert "apt-mark hold linux-generic-hwe-24.04 linux-image-generic-hwe-24.04" in found.fix
    barred = shipped + 'Unattended-Upgrade::Package-Blacklist:: "linux-";\n'
    assert upgrades(kernels, barred).level is Level.PASS
    held = kernels.replace("install linux-generic", "hold linux-generic")
    assert upgrades(held.replace("install linux-image-g", "hold linux-image-g"), shipped).level is Level.PASS
    off = shipped.replace('Unattended-Upgrade "1"', 'Unattended-Upgrade "0"')
    assert upgrades(kernels, off).level is Level.PASS
    absent = GITHUB.replace("installed unattended-upgrades", "config-files unattended-upgrades")
    assert upgrades(kernels, shipped, absent).level is Level.PASS
    unknown = judge("kernel-upgrades", site(), (machine.APT, Output(problem="apt-config is not installed")))
    assert unknown.level is Level.SKIP


def test_reboots_that_nobody_asked_for():
    def found(more: str, packages: str = GITHUB):
        settings = captured("apt-config.txt") + more
        return judge("unattended-reboots", site(), (machine.APT, out(settings)), (machine.DPKG, out(packages)))

    assert found("").level is Level.PASS
    for word in ("true", "1"):
        at_two = f'Unattended-Upgrade::Automatic-Reboot "{word}";\nUnattended-Upgrade::Automatic-Reboot-Time "02:00";\n'
        reboots = found(at_two)
        assert (reboots.level, reboots.summary) == (
            Level.WARN, "unattended upgrades may reboot the host by themselves (at: 02:00)",
        )  # fmt: skip
    assert found('Unattended-Upgrade::Automatic-Reboot "false";\n').level is Level.PASS
    absent = GITHUB.replace("installed unattended-upgrades", "config-files unattended-upgrades")
    assert found(at_two, absent).level is Level.PASS
    unknown = judge("unattended-reboots", site(), (machine.APT, Output(problem="apt-config is not installed")))
    assert unknown.level is Level.SKIP
