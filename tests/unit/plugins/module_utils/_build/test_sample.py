# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of the processes of a unit."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.arcpro.b70.plugins.module_utils._build.sample import parse_stat, sample

UNIT = "b70-build-kernels-0123.service"
STAT = "{pid} (cc1plus (x)) R 1 1 1 0 -1 4194304 9 0 0 0 {utime} 100 0 0 30 10 1 0 5 99999 {rss} 18446744073709551615"


def test_a_name_with_brackets_does_not_shift_the_fields() -> None:
    cpu_s, gib = parse_stat(STAT.format(pid=7, utime=300, rss=262144))
    assert (cpu_s, gib) == (4.0, 1.0)


def test_only_the_units_own_processes_are_counted(tmp_path: Path) -> None:
    for pid, unit, rss in ((10, UNIT, 262144), (11, UNIT, 524288), (12, "ssh.service", 262144)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")
        (folder / "stat").write_text(STAT.format(pid=pid, utime=300, rss=rss))
        (folder / "cmdline").write_bytes(f"icpx\0{pid}.cpp\0".encode())
    (tmp_path / "meminfo").write_text("")
    (tmp_path / "99").mkdir()  # a process that ended between two reads
    seen = sample(UNIT, tmp_path)
    assert (seen.processes, seen.cpu_s, seen.rss_gib, seen.largest) == (2, 8.0, 3.0, "icpx 11.cpp")
