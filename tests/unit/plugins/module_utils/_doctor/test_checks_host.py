# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of machine, cards and runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import parse
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.checks import cards, links, machine, runtime
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Level, Look, Output, Read
from unit.plugins.module_utils._doctor.hosts import (
    BY_ID,
    MANIFEST,
    PINNED,
    SHIPPED,
    SYSTEM,
    captured,
    card,
    judge,
    out,
    profile,
    site,
    stack,
)  # fmt: skip

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


def test_a_card_without_xe_fails_with_what_to_do_about_it():
    assert judge("kernel-driver", site()).level is Level.PASS
    unbound = judge("kernel-driver", replace(site(), cards=[card(0, driver=""), card(1)]))
    assert (unbound.level, unbound.summary) == (Level.FAIL, "1 of 2 cards are not driven by xe")
    assert unbound.evidence == (f"{A}: no driver", f"{B}: xe")
    assert "under the kernel 6.17.0-23-generic" in unbound.fix
    taken = judge("kernel-driver", replace(site(), cards=[card(0, driver="vfio-pci")]))
    assert "bound to vfio-pci" in taken.fix


def test_the_kernel_that_runs_and_the_next_one():
    def found(running: str, following: str):
        return judge("kernel", site(system={**SYSTEM, "kernel": running, "next_kernel": following}))

    good = found("6.17.0-1010-intel", "6.17.0-1010-intel")
    assert (good.level, good.summary) == (Level.PASS, "kernel 6.17.0-1010-intel")
    bad = found("7.0.0-31-generic", "7.0.0-31-generic")
    assert (bad.level, "permanent resets" in bad.summary) == (Level.WARN, True)
    assert bad.source.endswith("compute-runtime/issues/948")
    assert "lacks a fix: memory of the card handed out twice" in " ".join(bad.evidence)
    assert "lacks" not in " ".join(found("7.0.0-39-generic", "7.0.0-39-generic").evidence)
    coming = found("6.17.0-23-generic", "7.0.0-39-generic")
    assert (coming.level, "the next start takes kernel 7.0.0-39-generic" in coming.summary) == (Level.WARN, True)
    assert found("6.18.51-custom", "").level is Level.PASS


def guc(*versions: str, accepted: tuple[str, ...] = (), log: str = ""):
    where = site(settings={"guc_accepted": list(accepted)})
    where = replace(where, cards=[card(number, guc=version) for number, version in enumerate(versions)])
    return judge("guc-firmware", where, (machine.kernel_log(0), out(log)))


def test_guc_firmware_is_judged_by_what_the_role_knows():
    assert guc("70.65.0", "70.65.0").level is Level.PASS
    bad = guc("70.65.0", "70.58.0")
    assert (bad.level, bad.summary) == (Level.FAIL, "GuC firmware 70.58.0 is known to be bad on these cards")
    assert bad.evidence[:2] == (f"{A}: GuC 70.65.0", f"{B}: GuC 70.58.0")
    assert "70.65 or 70.72.1" in bad.fix
    assert bad.source.endswith("compute-runtime/issues/948")
    assert guc("70.58.0", accepted=("70.58",)).level is Level.WARN
    assert guc("70.44.1").level is Level.WARN
    assert guc("70.36.0").level is Level.FAIL
    unknown = guc("70.99.0", "")
    assert (unknown.level, unknown.evidence[1]) == (Level.PASS, f"{B}: GuC unknown")
    assert "nothing is known of it" in unknown.evidence[2]


def test_guc_firmware_by_the_kernels_log_where_debugfs_does_not_say():
    found = guc("", "", log=captured("kernel-good.txt"))
    assert (found.level, found.evidence[:2]) == (Level.FAIL, (f"{A}: GuC 70.58.0", f"{B}: GuC 70.44.1"))
    assert guc("", "").level is Level.SKIP


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


def hop(speed: str, width: int, widest: int = 16, **more: str) -> dict[str, str]:
    return {"current_link_speed": f"{speed} GT/s PCIe", "current_link_width": str(width),
            "max_link_speed": "32.0 GT/s PCIe", "max_link_width": str(widest), **more}  # fmt: skip


def way(speed: str, width: int, **more: str) -> dict[str, dict[str, str]]:
    """Root port, the card's own switch (its upstream port 8086:e2ff has the slot's link), and the endpoint."""
    return {
        "0000:00:01.1": hop("16.0", 16),
        "0000:01:00.0": hop(speed, width, **more),
        "0000:02:01.0": hop("2.5", 1, widest=1),
        A: hop("2.5", 1, widest=1),
    }


def links_of(*ways: dict[str, dict[str, str]]):
    return links.PATHS, dict(zip((A, B), ways, strict=False))


def test_the_link_of_the_bridge_is_judged_not_the_one_inside_the_card():
    good = judge("card-link", site(), links_of(way("16.0", 16), way("32.0", 16)))
    assert (good.level, good.evidence[0]) == (Level.PASS, f"{A}: 16 GT/s x16 at 0000:01:00.0")
    # An owner's B450 board: the bridge has 16 GT/s x8, everything behind it says 2.5 GT/s x1.
    narrow = judge("card-link", site(), links_of(way("16.0", 16), way("16.0", 8)))
    assert (narrow.level, narrow.evidence[1]) == (Level.WARN, f"{B}: 16 GT/s x8 at 0000:01:00.0")
    assert judge("card-link", site(), links_of(way("8.0", 16), way("16.0", 16))).level is Level.WARN
    passed_through = {A: hop("2.5", 1, widest=1)}
    assert judge("card-link", site(), links_of(way("16.0", 16), passed_through)).level is Level.SKIP


def test_a_card_that_works_alone_does_without_a_wide_link():
    assert judge("card-link", site(cards=1), links_of(way("16.0", 8))).level is Level.PASS
    assert judge("card-link", site(cards=1), links_of(way("2.5", 16))).level is Level.WARN
    assert judge("card-link", site(cards=1), links_of(way("16.0", 1))).level is Level.WARN


AMD, INTEL = "vendor_id\t: AuthenticAMD\n", "vendor_id\t: GenuineIntel\n"


def sleeping(policy: str, cpu: str = AMD, arguments: tuple[str, ...] = (), **on: str):
    answers = [links_of(way("16.0", 16, **on)), (links.CPUINFO, {"/proc/cpuinfo": cpu})]
    path = links.ASPM_POLICY.patterns[0]
    answers.append((links.ASPM_POLICY, {path: policy} if policy else {}))
    return judge("aspm", site(cards=1, system={**SYSTEM, "kernel_arguments": list(arguments)}), *answers)


def test_links_that_sleep_too_deep_on_amd():
    assert sleeping("[default] performance powersave powersupersave \n").level is Level.PASS
    assert sleeping("default performance [powersave] powersupersave \n").level is Level.PASS
    deep = "default performance powersave [powersupersave] \n"
    found = sleeping(deep)
    assert (found.level, found.evidence) == (Level.WARN, ("policy powersupersave",))
    assert sleeping(deep, cpu=INTEL).level is Level.PASS
    # The policy stays as it is written where the kernel's argument has switched all of it off.
    assert sleeping(deep, arguments=("pcie_aspm=off",)).level is Level.PASS
    one = sleeping("[default] performance powersave powersupersave \n", **{"link/l1_1_aspm": "1", "link/l1_aspm": "1"})
    assert (one.level, one.evidence[1]) == (Level.WARN, "0000:01:00.0: l1_1_aspm")
    assert sleeping("").level is Level.SKIP


def caps(*watts: float):
    where = site(cards=len(watts))
    files = {f"{PCI}/{address}/hwmon/hwmon{7 + number}/power1_cap": f"{int(figure * 10**6)}\n"
             for number, (address, figure) in enumerate(zip((A, B), watts, strict=False)) if figure >= 0}  # fmt: skip
    return judge("power-cap", where, (cards.cap_files(where), files))


def test_power_caps():
    # As a B70 says it under kernel 7.0: power1_label card, power1_cap 275000000 (aristocratos/btop 1457).
    shipped = caps(275, 275)
    assert (shipped.level, shipped.evidence) == (Level.PASS, (f"{A}: 275 W", f"{B}: 275 W"))
    assert caps(160, 160).level is Level.PASS
    assert caps(290).level is Level.PASS
    uneven = caps(275, 230)
    assert (uneven.level, "as fast as the slowest" in uneven.summary) == (Level.WARN, True)
    assert caps(100, 100).level is Level.WARN
    # No file, and a cap that is switched off, say nothing.
    assert caps(-1, -1).level is Level.SKIP
    assert caps(0, 0).level is Level.SKIP
    assert caps(275, -1).evidence == (f"{A}: 275 W", f"{B}: unknown")


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


def test_ecc_by_the_size_of_the_memory_where_xpu_smi_is_not_there():
    absent = [(command, Output(problem="xpu-smi is not installed")) for command in cards.xpu_smi(site(), "config")]
    none = judge("card-ecc", site(), *absent)
    assert (none.level, none.summary) == (Level.SKIP, "xpu-smi config says nothing of ECC: xpu-smi is not installed")
    whole = captured("vram-mm.txt")
    # An eighth is gone with ECC on.
    less = whole.replace("size: 34242297856", f"size: {34242297856 * 7 // 8}")
    paths = [f"/sys/kernel/debug/dri/{address}/tile0/vram_mm" for address in (A, B)]

    def found(*texts: str):
        return judge("card-ecc", site(), *absent, (cards.vram_files(site()), dict(zip(paths, texts, strict=False))))

    off = found(whole, whole)
    assert (off.level, off.evidence[0]) == (Level.PASS, f"{A}: the driver manages 32656 MiB")
    on = found(whole, less)
    assert (on.level, "1 of 2 cards have less than 30 GiB" in on.summary) == (Level.WARN, True)
    assert found(whole).level is Level.SKIP


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


def test_memory():
    assert judge("memory", site(), meminfo(125, 100)).level is Level.PASS
    assert judge("memory", site(), meminfo(8, 6)).level is Level.WARN
    assert judge("memory", site(cards=0), meminfo(8, 6)).level is Level.PASS
    assert judge("memory", site(), meminfo(125, 0.5)).level is Level.FAIL
    with pytest.raises(LookupError):
        judge("memory", site(), (machine.MEMINFO, {}))


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
    assert (missing.level, missing.summary) == (Level.FAIL, "there is too little space below /opt/b70/stacks")
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


def dpkg(source: str, text: str, packages: dict[str, str] | None = None):
    """(host whose driver is to be of `source`, what dpkg-query answers)."""
    known = PINNED[source] if packages is None else packages
    return site(settings={"driver_source": source, "driver_packages": known}), (machine.DPKG, out(text))


GITHUB = captured("dpkg.txt")


def test_packages_against_what_the_role_pins():
    assert judge("packages", *dpkg("github", GITHUB)).level is Level.PASS
    drifted = judge("packages", *dpkg("github", GITHUB.replace("libze1 1.32.0", "libze1 1.33.0")))
    assert (drifted.level, drifted.evidence) == (Level.WARN, ("libze1: 1.33.0+u24.04, the role pins 1.32.0*",))
    gone = "\n".join(line for line in GITHUB.splitlines() if "libze1" not in line)
    missing = judge("packages", *dpkg("github", gone))
    assert (missing.level, missing.evidence) == (Level.FAIL, ("libze1: not installed, github brings 1.32.0*",))
    assert judge("packages", *dpkg("github", GITHUB, packages={})).level is Level.SKIP
    where, _answer = dpkg("github", "")
    with pytest.raises(LookupError, match="dpkg-query: it ended with 2"):
        judge("packages", where, (machine.DPKG, Output(2)))


def test_packages_of_another_source_are_the_matter_of_another_check():
    assert judge("packages", *dpkg("omix", GITHUB)).level is Level.SKIP
    clean = (runtime.APT_SOURCES, {})
    assert judge("driver-sources", *dpkg("github", GITHUB), clean).level is Level.PASS
    other = judge("driver-sources", *dpkg("omix", GITHUB), clean)
    assert (other.level, other.summary) == (Level.WARN, "the driver does not come from omix alone")
    assert "apt-get remove intel-igc-core-2" in other.fix
    mixed = judge("driver-sources", *dpkg("github", GITHUB + "installed libigc2 2.36.3-1~24.04\n"), clean)
    assert (mixed.level, mixed.summary) == (Level.FAIL, "the driver is mixed from several sources")
    assert "libigc2 2.36.3-1~24.04" in mixed.fix
    assert judge("driver-sources", *dpkg("github", "installed bash 5.2\n"), clean).level is Level.SKIP


def test_a_repository_of_another_source_is_named():
    file = "/etc/apt/sources.list.d/kobuk-team-ubuntu-intel-graphics-noble.sources"
    text = (
        "Types: deb\nURIs: https://ppa.launchpadcontent.net/kobuk-team/intel-graphics/ubuntu\n"
        "Suites: noble\nComponents: main\n"
    )
    found = judge("driver-sources", *dpkg("github", GITHUB), (runtime.APT_SOURCES, {file: text}))
    assert (found.level, file in found.fix) == (Level.WARN, True)


def libraries_of(text: str, files: dict[str, str]):
    rows = [{"name": name, "path": path, "file": files.get(path, path)} for name, path in parse.libraries(text)]
    return runtime.LIBRARIES, [row for row in rows if runtime.DRIVER_LIBRARY.fullmatch(row["name"])]


def test_a_library_that_hides_a_newer_one():
    two = captured("ldconfig-two.txt")
    old, new = "/usr/local/lib/libigc.so.2.36.3+1781103806", "/usr/lib/x86_64-linux-gnu/libigc.so.2.41.5+1790000000"
    hidden = {"/usr/local/lib/libigc.so.2": old, "/lib/x86_64-linux-gnu/libigc.so.2": new}
    found = judge("driver-libraries", site(), libraries_of(two, hidden))
    assert (found.level, found.summary) == (Level.FAIL, f"{old} hides the newer {new}")
    newest_first = {"/usr/local/lib/libigc.so.2": new, "/lib/x86_64-linux-gnu/libigc.so.2": old}
    assert judge("driver-libraries", site(), libraries_of(two, newest_first)).level is Level.WARN
    # Both ways lead to one file where /lib is a link to /usr/lib.
    same = dict.fromkeys(hidden, new)
    assert judge("driver-libraries", site(), libraries_of(two, same)).level is Level.PASS
    assert judge("driver-libraries", site(), libraries_of("", {})).level is Level.SKIP


def upgrades(kernels: str, settings: str, packages: str = GITHUB):
    answers = ((machine.APT, out(settings)), (machine.HELD, out(kernels)), (machine.DPKG, out(packages)))
    return judge("kernel-upgrades", site(), *answers)


def test_kernels_that_are_upgraded_unattended():
    kernels, shipped = captured("dpkg-kernels.txt"), captured("apt-config.txt")
    found = upgrades(kernels, shipped)
    assert (found.level, found.summary) == (
        Level.WARN,
        "the kernel is upgraded unattended: linux-generic-hwe-24.04, linux-image-generic-hwe-24.04",
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


WHEELS = site(stacks=[stack("xpu")], wanted=[profile(stack=stack("xpu"))])


def around(where=WHEELS, icpx: tuple[str, ...] = (), **files: str):
    return judge(
        "sycl-runtimes", where, (runtime.ICPX, dict.fromkeys(icpx, "\x7f")), (runtime.surroundings(where), files)
    )


def test_a_second_sycl_runtime_beside_the_one_of_the_wheels():
    assert around().level is Level.PASS
    found = around(icpx=("/usr/local/bin/icpx",))
    assert (found.level, "Remove /usr/local/bin/icpx" in found.fix) == (Level.FAIL, True)
    profiled = around(**{"/etc/profile.d/oneapi.sh": "# Intel\nsource /opt/intel/oneapi/setvars.sh >/dev/null\n"})
    assert (profiled.level, profiled.evidence) == (
        Level.WARN,
        ("/etc/profile.d/oneapi.sh: source /opt/intel/oneapi/setvars.sh >/dev/null",),
    )
    loaded = around(**{"/etc/ld.so.conf.d/oneapi.conf": "/opt/intel/oneapi/compiler/2025.3/lib\n"})
    assert loaded.level is Level.WARN
    assert around(**{"/root/.bashrc": "  # source /opt/intel/oneapi/setvars.sh\n"}).level is Level.PASS
    # lab-minimax is compiled with it and says so.
    assert judge("sycl-runtimes", site()).level is Level.SKIP


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
    assert found.summary == (
        "profile big puts the libraries of oneAPI 2025.3, 2026.0 into the engine's way; its stack is for 2025.3"
    )
    shipped = profile(
        stack=stack("xpu"), engine={"env": {"LD_LIBRARY_PATH": "/opt/intel/oneapi/2026.1/lib"}, "argv": []}
    )
    wheels = judge("oneapi", site(stacks=[stack("xpu")], wanted=[shipped]), compilers())
    assert (wheels.level, wheels.summary.endswith("its stack brings its own")) == (Level.FAIL, True)
