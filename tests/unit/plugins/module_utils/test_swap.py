# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _swap
from ansible_collections.arcpro.b70.plugins.module_utils._swap import GIB, MemoryInfo

TOTAL = 176 * GIB


@pytest.mark.parametrize(
    ("ram", "swap", "size"),
    [
        (16, 0, 160),  # the machine on which it worked
        (32, 0, 144),
        (64, 0, 112),
        (128, 0, 48),
        (16, 64, 96),  # swap that is there counts
        (175, 0, 1),
        (176, 0, 0),
        (512, 0, 0),
    ],
)
def test_the_size_is_what_is_missing_to_the_memory_of_a_build(ram, swap, size):
    assert _swap.size_for(MemoryInfo(ram * GIB, swap * GIB), TOTAL) == size * GIB


def test_a_machine_never_has_quite_its_ram_and_the_size_is_whole():
    assert _swap.size_for(MemoryInfo(int(15.5 * GIB), 0), TOTAL) == 161 * GIB
    assert _swap.size_for(MemoryInfo(int(175.7 * GIB), 0), TOTAL) == 0


def test_meminfo_is_read_in_kibibytes():
    text = "MemTotal:    16384000 kB\nMemFree: 1 kB\nSwapTotal: 9 kB\nSwapFree:     2048 kB\nHugePages_Total:   0\n"
    assert _swap.parse_memory(text) == MemoryInfo(16384000 << 10, 2 << 20)
    with pytest.raises(_swap.SwapProblem, match="SwapFree"):
        _swap.parse_memory("MemTotal: 1 kB\n")


def test_a_disk_without_room_is_refused_with_figures():
    _swap.check_space(160 * GIB, 170 * GIB, 10 * GIB, "/mnt")
    with pytest.raises(_swap.SwapProblem, match=r"/mnt has 169.5 GiB free.*160 GiB of swap and 10 GiB.*free 0.5 GiB"):
        _swap.check_space(160 * GIB, int(169.5 * GIB), 10 * GIB, "/mnt")


@pytest.mark.parametrize(
    ("kind", "how"), [("ext4", "allocate"), ("xfs", "allocate"), ("btrfs", "nocow"), ("unheard-of", "write")]
)
def test_a_file_is_made_as_its_file_system_needs_it(kind, how):
    assert _swap.method(kind) == how


@pytest.mark.parametrize("kind", ["zfs", "tmpfs", "overlay", "nfs4"])
def test_where_no_file_can_be_swap_the_build_is_refused_with_a_way_out(kind):
    with pytest.raises(_swap.SwapProblem, match=f"would be on {kind}: .*choose another place"):
        _swap.method(kind)


def test_the_file_system_is_that_of_the_deepest_and_last_mount():
    mounts = (
        "21 1 8:1 / / rw - ext4 /dev/a rw\n"
        "22 21 8:2 / /mnt rw shared:1 - xfs /dev/b rw\n"
        "23 22 8:3 / /mnt/fast\\040ai rw - btrfs /dev/c rw\n"
        "24 22 8:4 / /mnt/fast\\040ai rw - zfs pool rw\n"
        "25 21 8:5 / /mn rw - tmpfs x rw\n"
    )
    assert _swap.file_system_of("/mnt/file", mounts) == "xfs"
    assert _swap.file_system_of("/mnt/fast ai/file", mounts) == "zfs"
    assert _swap.file_system_of("/file", mounts) == "ext4"


def made(path, label):
    path.write_bytes(b"\0" * (1 << 20))
    path.chmod(0o600)
    subprocess.run(
        ["/usr/sbin/mkswap", *(["--label", label] if label else []), str(path)], check=True, capture_output=True
    )


def test_the_label_is_read_as_mkswap_writes_it(tmp_path):
    made(tmp_path / "a", _swap.LABEL)
    made(tmp_path / "b", "")
    assert _swap.label_of((tmp_path / "a").read_bytes()[:4096]) == _swap.LABEL
    assert _swap.label_of((tmp_path / "b").read_bytes()[:4096]) == ""
    assert _swap.label_of(b"a text") is None


@pytest.mark.parametrize("label", ["", "somebody"])
def test_a_swap_file_of_somebody_else_is_neither_used_nor_removed(tmp_path, label):
    path = tmp_path / "swapfile"
    made(path, label)
    before = path.read_bytes()
    with pytest.raises(_swap.SwapProblem, match="exists and is not ours: it stays"):
        _swap.make(path, TOTAL, 0)
    assert _swap.remove(path) == [f"{path} is not ours and stays"]
    assert path.read_bytes() == before


def test_what_an_interrupted_run_has_left_is_removed(tmp_path):
    path = tmp_path / "swapfile"
    made(path, _swap.LABEL)
    (tmp_path / "swapfile.part").write_text("half")
    assert len(_swap.remove(path)) == 2
    assert list(tmp_path.iterdir()) == []
    assert _swap.remove(path) == []


def test_nothing_is_made_where_memory_is_enough(tmp_path):
    (done,) = _swap.make(tmp_path / "swapfile", GIB // 4, 0)
    assert done.endswith("no swap is made")
    assert list(tmp_path.iterdir()) == []


def test_the_program_says_why_there_is_no_swap_and_fails(tmp_path, capsys):
    (tmp_path / "swapfile").write_text("precious")
    assert _swap.main(["make", f"--file={tmp_path}/swapfile", "--total-gib=1"]) == 1
    assert capsys.readouterr().err.startswith(f"no swap for the build: {tmp_path}/swapfile exists and is not ours")
    assert (tmp_path / "swapfile").read_text() == "precious"
