# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a build is and why it failed; lines as ninja, c++, ocloc and the kernel print them."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build.log import BuildProgress, explain, first_error, progress

NINJA = [
    "-- Build files have been written to: build/temp",
    "[1/312] Building CXX object CMakeFiles/_xpu_C.dir/csrc/xpu/activation.cpp.o",
    "[2/312] Building CXX object CMakeFiles/_vllm_fa2_C.dir/csrc/flash_attn/paged_decode_xe2.cpp.o",
    "icpx: warning: argument unused during compilation",
]


def test_objects_and_the_newest_file_are_read_from_ninjas_lines() -> None:
    assert progress(NINJA) == BuildProgress(2, 312, "paged_decode_xe2.cpp")


def test_without_ninja_the_file_of_the_compiler_is_named() -> None:
    assert progress(["building 'ext' extension", "g++ -O2 -c ext.cpp -o build/ext.o"]) == BuildProgress(0, 0, "ext.cpp")
    assert progress([]) == BuildProgress()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus", "want of memory"),
        ("icpx: error: unable to execute command: Killed", "want of memory"),
        ("fatal error: error writing to /tmp/cc.s: No space left on device", "the disk is full"),
        ("/opt/intel/oneapi/compiler/2026.0/include/sycl/queue.hpp:41: error: unknown type", "another oneAPI"),
        ("ModuleNotFoundError: No module named 'setuptools'", "what the build itself needs"),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", "could not: name a mirror"),
    ],
)
def test_a_known_cause_is_named(line: str, words: str) -> None:
    assert words in explain(["[7/9] Building", line, "ninja: build stopped: subcommand failed."], "exit-code")


def test_the_kernels_own_word_outranks_the_log() -> None:
    assert explain(["No space left on device"], "oom-kill").startswith("the host ran out of memory")
    assert "goes on where it was" in explain([], "timeout")


def test_what_nobody_knows_is_told_by_the_first_error() -> None:
    lines = ["[7/9] Building", "a.cpp:3:1: error: expected ';'", "b.cpp:1:1: error: follows from it", "ninja: stopped"]
    assert explain(lines, "exit-code") == ""
    assert first_error(lines) == "a.cpp:3:1: error: expected ';'"
    assert first_error(["ImportError: x.so: undefined symbol: _ZN5torch7Library4_def"]).startswith("ImportError")
    assert first_error(["all is well"]) == ""
