# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transient unit's command line, and what is read of its processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ansible_collections.arcpro.b70.plugins.module_utils._build.unit import Job, parse_stat, run_argv, sample

JOB = Job(
    unit="b70-build-kernels-0123.service",
    argv=("/uv", "build"),
    directory="/src",
    log="/log",
    user="b70",
    group="b70",
    writable=("/src", "/out"),
    environment={"MAX_JOBS": "4"},
    limit_s=60,
    network=False,
)
STAT = "{pid} (cc1plus (x)) R 1 1 1 0 -1 4194304 9 0 0 0 {utime} 100 0 0 30 10 1 0 5 99999 {rss} 18446744073709551615"


def test_the_build_can_write_only_where_it_works_and_has_no_network() -> None:
    argv = run_argv(JOB)
    assert argv[0] == "systemd-run"
    assert argv[-3:] == ("--", "/uv", "build")
    for expected in ("ProtectSystem=strict", "ReadWritePaths=/src /out", "PrivateNetwork=yes", "User=b70"):
        assert f"--property={expected}" in argv
    assert not [word for word in argv if "b70-build-swap" in word]
    assert "--setenv=MAX_JOBS=4" in argv


def test_a_build_with_swap_runs_as_long_as_its_swap_is_there() -> None:
    argv = run_argv(replace(JOB, swap=True))
    assert {"--property=Requires=b70-build-swap.service", "--property=After=b70-build-swap.service"} < set(argv)


def test_a_name_with_brackets_does_not_shift_the_fields() -> None:
    cpu_s, gib = parse_stat(STAT.format(pid=7, utime=300, rss=262144))
    assert (cpu_s, gib) == (4.0, 1.0)


def test_only_the_units_own_processes_are_counted(tmp_path: Path) -> None:
    for pid, unit, rss in ((10, JOB.unit, 262144), (11, JOB.unit, 524288), (12, "ssh.service", 262144)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")
        (folder / "stat").write_text(STAT.format(pid=pid, utime=300, rss=rss))
        (folder / "cmdline").write_bytes(f"icpx\0{pid}.cpp\0".encode())
    (tmp_path / "meminfo").write_text("")
    (tmp_path / "99").mkdir()  # a process that ended between two reads
    seen = sample(JOB.unit, tmp_path)
    assert (seen.processes, seen.cpu_s, seen.rss_gib, seen.largest) == (2, 8.0, 3.0, "icpx 11.cpp")
