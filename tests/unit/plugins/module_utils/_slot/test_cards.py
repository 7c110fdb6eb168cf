# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the xe driver tells of a card's memory: the formats of its uapi header and of the kernel's documentation."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import cards
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.processes import ProcTable
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import CardMemory

GIB = 2**30

# Documentation/gpu/xe/xe-drm-usage-stats.rst of the kernel, its example without the lines about engines.
FDINFO = """\
pos:    0
flags:  0100002
mnt_id: 26
ino:    685
drm-driver:     xe
drm-client-id:  3
drm-pdev:       0000:03:00.0
drm-total-system:       0
drm-shared-system:      0
drm-active-system:      0
drm-resident-system:    0
drm-purgeable-system:   0
drm-total-gtt:  192 KiB
drm-shared-gtt: 0
drm-active-gtt: 0
drm-resident-gtt:       192 KiB
drm-total-vram0:        23992 KiB
drm-shared-vram0:       16 MiB
drm-active-vram0:       0
drm-resident-vram0:     23992 KiB
drm-total-stolen:       0
drm-cycles-ccs: 0
drm-total-cycles-ccs:   7655183225
"""


def region(kind, total, used):
    """struct drm_xe_mem_region: class, instance, page size, total, used, visible, visible used, 6 reserved."""
    return struct.pack("=HHIQQQQ6Q", kind, kind, 65536, total, used, total, used, *[0] * 6)


def answer(*regions):
    """struct drm_xe_query_mem_regions."""
    return struct.pack("=II", len(regions), 0) + b"".join(regions)


def test_a_region_is_as_long_as_in_the_header():
    assert len(region(1, 0, 0)) == 88


def test_only_the_cards_own_memory_counts():
    system, own = region(0, 128 * GIB, 60 * GIB), region(1, 32 * GIB, 30 * GIB)
    assert cards.memory_of_regions(answer(system, own)) == (30 * GIB, 32 * GIB)
    assert cards.memory_of_regions(answer(system, own, region(1, GIB, 0))) == (30 * GIB, 33 * GIB)


def test_what_the_driver_does_not_tell_is_unknown_and_not_free():
    assert cards.memory_of_regions(answer(region(0, 128 * GIB, 0), region(1, 32 * GIB, 0))) == (None, 32 * GIB)
    assert "CAP_PERFMON" in CardMemory("/dev/dri/renderD128", None, 32 * GIB).describe()


def test_the_helper_of_the_frontdoor_may_ask():
    helper = (Path(__file__).parents[5] / "templates/b70-slot-admin@.service.j2").read_text()
    (line,) = [line for line in helper.splitlines() if line.startswith("CapabilityBoundingSet=")]
    # the kernel's table of processes, and the driver's answer about memory
    assert {"CAP_SYS_PTRACE", "CAP_PERFMON"} <= set(line.split("=")[1].split())


def test_an_answer_of_another_shape_is_not_read():
    assert cards.memory_of_regions(b"") is None
    assert cards.memory_of_regions(b"\1\0") is None
    assert cards.memory_of_regions(answer(region(0, GIB, 0))) is None
    assert cards.memory_of_regions(answer(region(1, GIB, 0))[:-1]) is None


def test_what_a_process_holds():
    assert cards.resident_bytes([FDINFO]) == 23992 * 1024
    # Two files of one client tell the same figure.
    assert cards.resident_bytes([FDINFO, FDINFO]) == 23992 * 1024
    other = FDINFO.replace("drm-client-id:  3", "drm-client-id:  4").replace("23992 KiB", "16 MiB")
    assert cards.resident_bytes([FDINFO, other]) == 23992 * 1024 + 16 * 2**20
    assert cards.resident_bytes(["drm-resident-vram0:\t0\n", "pos:\t0\n"]) == 0


def test_a_device_file_without_the_driver_is_not_asked(tmp_path):
    node = tmp_path / "renderD128"
    node.write_bytes(b"")
    assert ProcTable().card_memory([str(node), "/dev/null"]) == ()
    assert cards._ask("/dev/null") == b""
    assert cards._ask(str(tmp_path / "none")) == b""


def test_a_holder_is_named_without_memory_that_it_does_not_hold(tmp_path):
    node = tmp_path / "renderD128"
    node.write_bytes(b"")
    with node.open("rb"):
        (holder,) = ProcTable().device_holders([str(node)])
    assert (holder.pid, holder.what) == (os.getpid(), str(node))
