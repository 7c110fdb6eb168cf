# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.host_class import look, machine
from unit import contracts
from unit.plugins.module_utils._evidence.records import record
from unit.plugins.module_utils.test_host import pci_device

# As the kernel writes it; most lines are left out.
CPUINFO = "".join(
    f"processor\t: {number}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen  Threadripper PRO 5955WX 16-Cores\n\n"
    for number in range(32)
)
MEMINFO = "MemTotal:       131701760 kB\nMemFree:         2000000 kB\n"


def test_a_host_is_described_by_what_figures_depend_on(tmp_path):
    proc, sysfs = tmp_path / "proc", tmp_path / "sys"
    (proc / "sys/kernel").mkdir(parents=True)
    (proc / "sys/kernel/osrelease").write_text("7.0.0-38-generic\n")
    (proc / "cpuinfo").write_text(CPUINFO)
    (proc / "meminfo").write_text(MEMINFO)
    pci_device(sysfs, "0000:03:00.0", "0xe223", driver="xe")
    pci_device(sysfs, "0000:2b:00.0", "0xe223", driver="xe", node=1)
    sensors = sysfs / "bus/pci/devices/0000:03:00.0/hwmon/hwmon3"
    sensors.mkdir(parents=True)
    for name, text in (("name", "xe"), ("power1_cap", "210000000")):
        (sensors / name).write_text(f"{text}\n")
    found = look(proc, sysfs, launch_latency_us=11.5)
    assert found == {
        "class": "1 x B70 (xe, GuC ?, 210 W) + 1 x B70 (xe, GuC ?, ? W), AMD Ryzen Threadripper PRO 5955WX 16-Cores, "
        "32 threads, 126 GiB, kernel 7.0.0-38-generic",
        "machine": machine(),
        "cpu": "AMD Ryzen Threadripper PRO 5955WX 16-Cores",
        "cores": 32,
        "memory_gib": 125.6,
        "kernel": "7.0.0-38-generic",
        "cards": [
            {"address": f"0000:{bus}:00.0", "driver": "xe", "guc": "", "power_cap_w": watts}
            for bus, watts in (("03", 210), ("2b", None))
        ],
        "launch_latency_us": 11.5,
        "all_reduce_us": None,
    }
    contracts.check("record", json.dumps(record(host={"name": "b70-01", **found})))


def test_what_a_host_does_not_show_is_said_and_fails_nothing(tmp_path):
    found = look(tmp_path, tmp_path)
    assert found["class"] == "no cards, unknown processor, 0 threads, 0 GiB, kernel ?"
    contracts.check("record", json.dumps(record(host={"name": "a", **found})))


def test_this_machine_has_a_class():
    contracts.check("record", json.dumps(record(host={"name": "here", **look()})))
