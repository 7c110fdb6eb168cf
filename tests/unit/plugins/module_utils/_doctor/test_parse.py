# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import parse
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.firmware import guc_of
from unit.plugins.module_utils._doctor.hosts import captured


def test_sycl_ls():
    devices = parse.sycl_devices(captured("sycl-ls.txt"))
    assert [(item.backend, item.kind) for item in devices] == [("level_zero", "gpu")] * 2 + [
        ("opencl", "cpu"), ("opencl", "gpu"), ("opencl", "gpu")
    ]  # fmt: skip
    assert devices[0].name.endswith("Intel(R) Arc(TM) Pro B70 Graphics 20.2.0 [1.15.38308+4]")
    older = "[ext_oneapi_level_zero:gpu:0] Intel(R) Level-Zero, Intel(R) Arc(TM) A770 Graphics 1.3"
    assert parse.sycl_devices(older) == [], (
        "the form before 2024 has no second bracket and is not read as something else"
    )


def test_clinfo():
    assert parse.opencl_devices(captured("clinfo-l.txt")) == [
        ("Intel(R) OpenCL Graphics", "Intel(R) Arc(TM) Pro B70 Graphics"),
        ("Intel(R) OpenCL Graphics", "Intel(R) Arc(TM) Pro B70 Graphics"),
        ("Portable Computing Language", "pthread-haswell-AMD Ryzen Threadripper PRO 5955WX 16-Cores"),
    ]


def test_xpu_smi():
    devices = parse.xpu_smi_devices(captured("xpu-smi-discovery.txt"))
    assert [item["id"] for item in devices] == ["0", "1"]
    assert [item["pci bdf address"] for item in devices] == ["0000:3:00.0", "0000:43:00.0"]
    assert devices[0]["device name"] == "Intel(R) Arc(TM) Pro B70 Graphics"
    assert parse.memory_ecc(captured("xpu-smi-config.txt")) == ("disabled", "disabled")
    assert parse.memory_ecc(captured("xpu-smi-config-pending.txt")) == ("enabled", "disabled")
    assert parse.memory_ecc(captured("xpu-smi-discovery-d0.txt")) == ("enabled", "enabled")
    assert parse.memory_ecc("Error: device not found") is None


def test_ecc_that_the_driver_cannot_tell_is_no_state():
    assert parse.memory_ecc(captured("xpu-smi-config-na.txt")) is None
    assert parse.memory_ecc("| 0 | ECC State: N/A |") is None
    assert parse.memory_ecc("| 0 | ECC State: Unknown |") is None
    assert parse.memory_ecc(captured("xpu-smi-config.txt").replace("Pending: disabled", "Pending: N/A     ")) == (
        "disabled", "disabled"
    )  # fmt: skip


def test_the_cards_own_firmware():
    assert parse.firmware_of_card(captured("xpu-smi-discovery-firmware.txt")) == "BMG_31.775"
    assert parse.firmware_of_card(captured("xpu-smi-discovery-d0.txt")) == ""
    assert parse.firmware_of_card("| 0 | GFX Firmware Version: N/A |") == ""


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Intel(R) Arc(TM) Pro B70 Graphics", "Arc Pro B70"),
        ("Intel(R) Graphics [0xe223]", "Arc Pro B70"),
        ("Intel(R) Graphics [0xE211]", "Arc Pro B60"),
        ("Intel(R) Arc(tm) Pro B50 Graphics (BMG G21)", "Arc Pro B50"),
        ("Intel(R) Arc(TM) B580 Graphics", "Arc B580"),
        ("Intel(R) Graphics (BMG G31)", "Arc Pro B70"),
        ("Intel(R) Graphics (BMG G21)", ""),
        ("Intel(R) UHD Graphics 770", ""),
        ("Intel(R) Graphics [0x7d67]", ""),
        ("Intel(R) Arc(TM) 140V GPU (16GB)", ""),
        ("Intel(R) Graphics", ""),
    ],
)
def test_the_model_in_the_name_of_a_device(name, model):
    assert parse.card_model(name) == model


@pytest.mark.parametrize(
    ("text", "found", "wanted"),
    [
        ("\twanted release version 70.54.0\n\tfound release version 70.65.0\n", "70.65.0", "70.54.0"),
        ("\tfound release version 70.65.0\n\tfound compatibility version 1.23.0\n", "70.65.0", ""),
        ("\tversion: wanted 70.5.1, found 70.5.1\n", "70.5.1", "70.5.1"),
        ("\tversion: wanted 70.12.1, found 0.0.0\n", "", "70.12.1"),
        ("GuC version: 70.58.0 (wanted 70.54.0)", "70.58.0", "70.54.0"),
        ("GuC firmware (xe/bmg_guc_70.bin) version 70.45.2, wanted 70.54.0", "70.45.2", "70.54.0"),
        ("Using GuC firmware from xe/bmg_guc_70.bin version 70.49.4", "70.49.4", ""),
        ("GuC firmware (70.54.0) is recommended, but only (70.45.2) was found", "70.45.2", "70.54.0"),
        ("GuC firmware xe/bmg_guc_70.bin: unexpected version: 70.58.0 != 71.0.0", "70.58.0", "71.0.0"),
        ("GuC firmware xe/bmg_guc_70.bin: fetch failed with error -ENOENT", "", ""),
    ],
)
def test_the_firmware_that_was_found_and_wanted(text, found, wanted):
    assert guc_of(text) == (found, wanted)


def test_the_kernels_log_says_what_it_wanted_for_each_card():
    log = captured("kernel-recommended.txt")
    assert parse.guc_versions(log) == {"0000:03:00.0": "70.45.2", "0000:43:00.0": "70.58.0"}
    assert parse.guc_wanted(log) == {"0000:03:00.0": "70.54.0", "0000:43:00.0": "70.54.0"}
    # A driver that was loaded again has the last word.
    again = "xe 0000:03:00.0: [drm] Using GuC firmware from xe/bmg_guc_70.bin version 70.65.0\n"
    assert parse.guc_versions(log + again)["0000:03:00.0"] == "70.65.0"


def test_a_boot_is_unclean_when_its_journal_does_not_end_with_its_stop():
    listed = parse.boots(captured("list-boots.txt"))
    assert [boot.offset for boot in listed] == [-2, -1, 0]
    assert listed[1].last == datetime(2026, 11, 20, 13, 6, 15, tzinfo=UTC)
    stops = parse.journal_stops(captured("journal-stopped.jsonl") + "not json\n{}\n")
    # The journal of boot -2 was restarted in the afternoon; the host went away in the evening.
    assert [boot.offset for boot in parse.unclean(listed, stops)] == [-2]
    assert [boot.offset for boot in parse.unclean(listed, {})] == [-2, -1]


def test_the_form_of_list_boots_before_systemd_254():
    line = " -1 421e78f01c4e41f1836c3952c629f660 Fri 2026-11-20 12:59:31 UTC—Fri 2026-11-20 13:06:15 UTC\n"
    assert [boot.offset for boot in parse.boots(line)] == [-1]


def test_libraries_and_units():
    assert ("libze_loader.so.1", "/lib/x86_64-linux-gnu/libze_loader.so.1") in parse.libraries(captured("ldconfig.txt"))
    two = [path for name, path in parse.libraries(captured("ldconfig-two.txt")) if name == "libigc.so.2"]
    assert two == ["/usr/local/lib/libigc.so.2", "/lib/x86_64-linux-gnu/libigc.so.2"]
    assert parse.failed_units(captured("units.txt")) == ["b70-slot-main-tiny-a.service"]


def test_settings_of_apt_with_lists():
    found = parse.apt_settings(captured("apt-config.txt"))
    assert dict(found)["APT::Periodic::Unattended-Upgrade"] == "1"
    assert [value for name, value in found if name == "Unattended-Upgrade::Allowed-Origins::"][1].endswith("-security")


def test_replaced_files_are_those_that_packages_install_and_not_what_a_process_makes_itself():
    maps = captured("maps.txt")
    assert {"/memfd:jit", "/dev/zero", "/SYSV00000000", "/i915", "/tmp/kernel-3f.so", "/mnt/cap/launcher.so"} < {
        line.split(maxsplit=5)[5].removesuffix(" (deleted)") for line in maps.splitlines()
    }
    assert parse.replaced(maps) == ["/usr/local/lib/libz.so.1.2.13"]
    data_only = "7f00-7f01 r--s 00000000 fe:00 77    /usr/lib/locale/locale-archive (deleted)\n"
    assert parse.replaced(data_only) == []
    assert parse.replaced("") == []


def test_the_memory_of_a_card_and_a_choice():
    assert parse.memory_of_card(captured("vram-mm.txt")) == 34242297856
    assert parse.memory_of_card("visible_size: 32656MiB\n") == 0
    assert parse.chosen_of("default [performance] powersave\n") == "performance"
    assert parse.chosen_of("default\n") == ""


def test_pci_files():
    assert parse.bar_sizes(captured("resource.txt"))[:3] == [16 * 2**20, 0, 32 * 2**30]
    assert parse.bar_sizes(captured("resource-small.txt"))[2] == 256 * 2**20
    assert parse.bus_errors(captured("aer-correctable.txt")) == {"RxErr": 3, "NonFatalErr": 12}
    assert parse.gt_per_s("16.0 GT/s PCIe") == 16.0
    assert parse.gt_per_s("Unknown") == 0


def test_memory():
    assert parse.memory("MemTotal:       24683844 kB\nHugePages_Total:       0\n") == {"MemTotal": 24105}


def test_the_kernel_log_of_a_good_boot_has_no_trouble():
    log = captured("kernel-good.txt")
    # A USB device that is reset and a file server that timed out are not the cards' driver.
    assert not parse.trouble(log)
    assert parse.guc_versions(log) == {"0000:03:00.0": "70.58.0", "0000:43:00.0": "70.44.1"}
    assert parse.reset_reason(log) == "software wrote 0x6 to reset control register 0xCF9"


def test_the_kernel_log_of_bad_boots():
    fault = parse.trouble(captured("kernel-fault.txt"))
    assert (len(fault.faults), fault.dead, fault.hardware) == (3, (), ())
    wedged = parse.trouble(captured("kernel-wedged.txt"))
    assert [line.rsplit(" ", 1)[1] for line in wedged.dead] == ["wedged."]
    assert len(wedged.faults) == 2
    assert len(parse.trouble(captured("kernel-no-firmware.txt")).dead) == 1
    assert len(parse.trouble(captured("kernel-exec-queue.txt")).faults) == 2
    small = parse.trouble(captured("kernel-small-bar.txt"))
    assert (len(small.small), small.dead, small.faults) == (2, (), ())
    hardware = parse.trouble(captured("kernel-hardware.txt"))
    assert (len(hardware.hardware), len(hardware.dead)) == (1, 1)


def test_text_of_something_else_gives_nothing():
    for function in (
        parse.sycl_devices, parse.opencl_devices, parse.xpu_smi_devices, parse.boots, parse.journal_stops,
        parse.apt_settings, parse.libraries, parse.failed_units, parse.bus_errors, parse.memory, parse.guc_versions,
    ):  # fmt: skip
        assert not function("sh: 1: command not found\n\n| a | b\n"), function.__name__
