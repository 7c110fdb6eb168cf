# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of machine, cards and runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor.checks import cards, machine, runtime
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Level, Look, Output, Read
from unit.plugins.module_utils._doctor.hosts import BY_ID, captured, card, judge, out, profile, site

A, B = "0000:03:00.0", "0000:43:00.0"
PCI = "/sys/bus/pci/devices"


def test_without_cards_nothing_about_cards_is_judged_or_asked():
    bare = site(cards=0, wanted=[], stacks=[])
    for check in BY_ID.values():
        if check.needs_cards:
            assert "nothing that it serves needs one" in check.waived(bare), check.id
    assert judge("card-count", bare).level is Level.SKIP
    needing = site(cards=0)
    assert "see the check card-count" in BY_ID["card-power"].waived(needing)
    missing = judge("card-count", needing)
    assert (missing.level, missing.summary) == (Level.FAIL, "0 of the cards are there, big needs 2")


def test_the_number_of_cards():
    assert judge("card-count", site()).level is Level.PASS
    assert judge("card-count", site(cards=1)).level is Level.FAIL
    told = judge("card-count", site(settings={"cards": 4}))
    assert (told.level, told.summary) == (Level.FAIL, "2 of the cards are there, 4 are expected")
    assert judge("card-count", site(settings={"cards": 1})).level is Level.WARN
    assert judge("card-count", replace(site(), cards=[card(0), card(1, numa_node=1)])).level is Level.WARN


def test_the_driver_and_kernels_that_lack_fixes():
    assert judge("kernel-driver", site()).level is Level.PASS
    unbound = judge("kernel-driver", replace(site(), cards=[card(0, driver=None)]))
    assert unbound.level is Level.FAIL
    assert unbound.evidence == (f"{A}: no driver",)
    old = judge("kernel-driver", site(system={"kernel": "7.0.0-38-generic"}))
    assert old.level is Level.WARN
    assert "memory of the card handed out twice" in old.summary
    assert "deadlock" not in old.summary
    assert judge("kernel-driver", site(system={"kernel": "7.0.0-39-generic"})).level is Level.PASS


def test_guc_firmware():
    log = (machine.kernel_log(0), out(captured("kernel-good.txt")))
    found = judge("guc-firmware", site(), log)
    assert (found.level, found.evidence) == (Level.WARN, (f"{A}: GuC 70.58.0", f"{B}: GuC 70.44.1"))
    assert judge("guc-firmware", site(cards=1), log).level is Level.PASS
    assert judge("guc-firmware", site(), (machine.kernel_log(0), out(""))).level is Level.SKIP


def power(first: str, second: str):
    read = cards.device_files(site(), "power/control", "power/runtime_status")
    return read, {f"{PCI}/{A}/power/control": f"{first}\n", f"{PCI}/{B}/power/control": f"{second}\n",
                  f"{PCI}/{A}/power/runtime_status": "active\n"}  # fmt: skip


def test_a_card_that_may_sleep_fails():
    assert judge("card-power", site(), power("on", "on")).level is Level.PASS
    found = judge("card-power", site(), power("on", "auto"))
    assert (found.level, found.evidence) == (
        Level.FAIL,
        (f"{A}: control=on status=active", f"{B}: control=auto status=?"),
    )


def hop(speed: str, width: int, widest: int = 16) -> dict[str, str]:
    return {"current_link_speed": f"{speed} GT/s PCIe", "current_link_width": str(width),
            "max_link_speed": "32.0 GT/s PCIe", "max_link_width": str(widest)}  # fmt: skip


def way(speed: str, width: int) -> dict[str, dict[str, str]]:
    """Root port, the card's own switch (its upstream port has the slot's link), and the endpoint."""
    return {
        "0000:00:01.1": hop("16.0", 16),
        "0000:01:00.0": hop(speed, width),
        "0000:02:01.0": hop("2.5", 1, widest=1),
        A: hop("2.5", 1, widest=1),
    }


def test_the_slots_link_is_judged_not_the_one_inside_the_card():
    look = Look("pci-paths")
    good = judge("card-link", site(cards=1), (look, {A: way("16.0", 16)}))
    assert (good.level, good.evidence) == (Level.PASS, (f"{A}: 16 GT/s x16 at 0000:01:00.0",))
    narrow = judge("card-link", site(cards=1), (look, {A: way("16.0", 8)}))
    assert (narrow.level, narrow.evidence) == (Level.WARN, (f"{A}: 16 GT/s x8 at 0000:01:00.0",))
    assert judge("card-link", site(cards=1), (look, {A: way("8.0", 16)})).level is Level.WARN
    passed_through = {A: {A: hop("2.5", 1, widest=1)}}
    assert judge("card-link", site(cards=1), (look, passed_through)).level is Level.SKIP


def test_resizable_bar():
    read = cards.device_files(site(), "resource")
    texts = {f"{PCI}/{A}/resource": captured("resource.txt"), f"{PCI}/{B}/resource": captured("resource-small.txt")}
    found = judge("card-bar", site(), (read, texts))
    assert (found.level, found.evidence) == (Level.WARN, (f"{A}: BAR 2 is 32768 MiB", f"{B}: BAR 2 is 256 MiB"))


def ecc(*names: str):
    commands = cards.xpu_smi(site(), "config")
    assert [command.argv for command in commands] == [
        ("xpu-smi", "config", "-d", "0"),
        ("xpu-smi", "config", "-d", "1"),
    ]
    return [(command, out(captured(name))) for command, name in zip(commands, names, strict=True)]


def test_ecc_of_the_cards_memory():
    off, pending, on = "xpu-smi-config.txt", "xpu-smi-config-pending.txt", "xpu-smi-discovery-d0.txt"
    assert judge("card-ecc", site(), *ecc(off, off)).level is Level.PASS
    assert "will be disabled after a reboot" in judge("card-ecc", site(), *ecc(pending, pending)).summary
    assert "28 of 32 GB" in judge("card-ecc", site(), *ecc(on, on)).summary
    assert "do not agree" in judge("card-ecc", site(), *ecc(off, on)).summary
    absent = [(command, Output(problem="xpu-smi is not installed")) for command in cards.xpu_smi(site(), "config")]
    none = judge("card-ecc", site(), *absent)
    assert (none.level, none.summary) == (Level.SKIP, "xpu-smi config says nothing of ECC: xpu-smi is not installed")


def test_errors_of_the_bus():
    read = cards.device_files(site(), "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
    path = f"{PCI}/{A}/aer_dev_correctable"
    found = judge("card-bus-errors", site(), (read, {path: captured("aer-correctable.txt")}))
    assert (found.level, found.evidence) == (Level.WARN, (f"{A} correctable: RxErr 3, NonFatalErr 12",))
    # A request that nobody answered at boot is no damaged transfer.
    assert judge("card-bus-errors", site(), (read, {path: "NonFatalErr 12\nTOTAL_ERR_COR 12\n"})).level is Level.PASS
    assert judge("card-bus-errors", site(), (read, {})).level is Level.SKIP


def test_device_nodes():
    rows = [{"path": "/dev/dri/renderD128", "mode": "0660", "group": "render", "usable": True},
            {"path": "/dev/dri/renderD129", "mode": "0600", "group": "root", "usable": False}]  # fmt: skip
    look = Look("device-nodes")
    assert judge("device-nodes", site(), (look, rows[:1])).level is Level.PASS
    found = judge("device-nodes", site(), (look, rows))
    assert (found.level, found.summary) == (Level.FAIL, "the user b70 may not open /dev/dri/renderD129")
    gone = replace(site(), cards=[card(0, render_node=None)])
    assert judge("device-nodes", gone, (look, [])).level is Level.FAIL


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
        found.evidence[0] == "before this boot, says the processor: software wrote 0x6 to reset control register 0xCF9"
    )
    assert found.evidence[1] == "boot -2 ended without a shutdown, last heard of at 2026-11-19 21:47:11 UTC"
    lines = captured("list-boots.txt").splitlines()
    first = (machine.LIST_BOOTS, out("\n".join([lines[0], lines[3]])))
    assert judge("boots", site(), first, stops, log).level is Level.SKIP


MEMINFO = "MemTotal: {total} kB\nMemAvailable: {free} kB\nSwapTotal: {swap} kB\nSwapFree: {swap} kB\n"


def meminfo(total_gib: float, free_gib: float, swap_gib: float = 0):
    text = MEMINFO.format(total=int(total_gib * 2**20), free=int(free_gib * 2**20), swap=int(swap_gib * 2**20))
    return machine.MEMINFO, {"/proc/meminfo": text}


def test_memory_and_what_a_build_needs():
    assert judge("memory", site(), meminfo(125, 100)).level is Level.PASS
    assert judge("memory", site(), meminfo(8, 6)).level is Level.WARN
    assert judge("memory", site(cards=0), meminfo(8, 6)).level is Level.PASS
    assert judge("memory", site(), meminfo(125, 0.5)).level is Level.FAIL
    assert judge("build-memory", site(), meminfo(62, 40, swap_gib=64)).level is Level.PASS
    small = judge("build-memory", site(), meminfo(15.5, 10, swap_gib=8))
    assert small.level is Level.WARN
    assert "paged_decode_xe2.cpp takes 120000 MB" in small.evidence[0]
    assert "160 GB of swap" in small.fix
    with pytest.raises(LookupError):
        judge("memory", site(), (machine.MEMINFO, {}))


def test_disks_count_what_is_still_to_be_installed():
    def rows(free: int):
        return Look("disks"), [{"path": path, "size_mib": 500_000, "free_mib": free, "free_inodes_percent": 90}
                               for path in ("/mnt/fast-ai", "/opt/b70/stacks")]  # fmt: skip

    assert judge("disk", site(), rows(60_000)).level is Level.PASS
    assert judge("disk", site(), rows(5_000)).level is Level.WARN
    assert judge("disk", site(), rows(500)).level is Level.FAIL
    missing = judge("disk", site(stacks=[]), rows(60_000))
    assert (missing.level, missing.summary) == (Level.FAIL, "there is too little space below /opt/b70/stacks")
    assert "the stacks that are missing need 81920" in missing.evidence[1]


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


def test_level_zero_loader():
    cache = captured("ldconfig.txt")
    assert judge("level-zero-loader", site(), (runtime.LDCONFIG, out(cache))).level is Level.PASS
    without = "\n".join(line for line in cache.splitlines() if "libze_intel_gpu" not in line)
    found = judge("level-zero-loader", site(), (runtime.LDCONFIG, out(without)))
    assert (found.level, found.summary) == (Level.FAIL, "the system has no libze_intel_gpu.so.1")
    assert "libze-intel-gpu1" in found.fix


def test_level_zero_devices_by_sycl_ls_and_by_xpu_smi():
    where = site()
    sycl = runtime.sycl_ls(where)
    assert sycl.argv == ("/opt/intel/oneapi/compiler/2025.3/bin/sycl-ls",)
    assert sycl.env == (("LD_LIBRARY_PATH", "/opt/intel/oneapi/compiler/2025.3/lib"),)
    assert judge("level-zero-devices", where, (sycl, out(captured("sycl-ls.txt")))).level is Level.PASS
    three = judge("level-zero-devices", site(cards=3), (sycl, out(captured("sycl-ls.txt"))))
    assert (three.level, three.summary) == (Level.FAIL, "Level Zero shows 2 of 3 cards (sycl-ls)")
    absent = (sycl, Output(problem="sycl-ls is not installed"))
    by_smi = judge("level-zero-devices", where, absent, (runtime.XPU_SMI, out(captured("xpu-smi-discovery.txt"))))
    assert by_smi.level is Level.PASS
    assert "(xpu-smi discovery)" in by_smi.summary
    with pytest.raises(LookupError, match="neither sycl-ls"):
        judge("level-zero-devices", where, absent, (runtime.XPU_SMI, Output(problem="xpu-smi is not installed")))


def test_opencl_devices():
    assert judge("opencl-devices", site(), (runtime.CLINFO, out(captured("clinfo-l.txt")))).level is Level.PASS
    assert judge("opencl-devices", site(cards=3), (runtime.CLINFO, out(captured("clinfo-l.txt")))).level is Level.WARN
    assert judge("opencl-devices", site(), (runtime.CLINFO, Output(problem="x"))).level is Level.SKIP


def test_packages_against_the_tested_versions():
    where = site()
    query = runtime.dpkg(where)
    assert "libze-intel-gpu1" in query.argv
    drifted = judge("packages", where, (query, out(captured("dpkg.txt"), code=1)))
    assert drifted.level is Level.WARN
    assert drifted.evidence == ("libze-intel-gpu1: 26.22.38646.4-0, tested with 26.18.38308.1-0",)
    right = captured("dpkg.txt").replace("26.22.38646.4-0", "26.18.38308.1-0~24.04~ppa3")
    assert judge("packages", where, (query, out(right))).level is Level.PASS
    gone = "\n".join(line for line in right.splitlines() if "libze1" not in line)
    missing = judge("packages", where, (query, out(gone)))
    assert (missing.level, missing.evidence) == (
        Level.FAIL,
        ("libze1: not installed, tested with 1.28.2-1~24.04~ppa1",),
    )


@pytest.mark.parametrize(
    ("have", "tested", "same"),
    [
        ("1.28.2-1~24.04~ppa1", "1.28.2-1~24.04~ppa1", True),
        ("1.28.2-1~26.04", "1.28.2-1~24.04~ppa1", True),
        ("1.28.20-1", "1.28.2-1", False),
        ("1.28.2-10", "1.28.2-1", False),
        ("2.34.4", "2.34.4", True),
        ("2.34.4.1", "2.34.4", False),
    ],
)
def test_when_a_package_is_the_tested_one(have: str, tested: str, same: bool):
    assert runtime.same(have, tested) is same


def compilers(*releases: str):
    return runtime.COMPILERS, list(releases)


def test_oneapi_installations():
    assert judge("oneapi", site(), compilers("2025.3")).level is Level.PASS
    assert judge("oneapi", site(), compilers("2025.3", "2026.0")).level is Level.WARN
    assert judge("oneapi", site(), compilers("2026.0")).level is Level.FAIL
    assert judge("oneapi", site(), compilers()).level is Level.SKIP
    path = "/opt/intel/oneapi/compiler/2026.0/lib:/opt/intel/oneapi/compiler/2025.3/lib"
    mixed = site(wanted=[profile(engine={"env": {"LD_LIBRARY_PATH": path}, "argv": []})])
    found = judge("oneapi", mixed, compilers("2025.3", "2026.0"))
    assert found.level is Level.FAIL
    assert found.summary == "profile big puts the libraries of oneAPI 2025.3, 2026.0 into the engine's way"
