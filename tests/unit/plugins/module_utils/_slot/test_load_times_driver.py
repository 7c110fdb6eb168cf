# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of earlier starts is of one driver and compiler, and never keeps a verified model from coming back."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import caches, command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.do.run import DPKG_STATUS, KERNEL_RELEASE
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import load_times
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Mode
from unit.plugins.module_utils._slot.calls import b70ctl, host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request

STATUS = """\
Package: adduser
Status: install ok installed
Version: 3.134

Package: intel-igc-core-2
Status: install ok installed
Priority: optional
Version: {igc}
Description: compiler
 Version: of a description, which is none

Package: intel-opencl-icd
Status: deinstall ok config-files
Version: 1

Package: libze-intel-gpu1
Status: install ok installed
Version: 26.18.38308.1-1
"""


@pytest.fixture
def fake_host():
    found = host("ab", cards=1, engine__start_timeout_s=600)
    found.cards = 4
    found.put(KERNEL_RELEASE, "6.14.0-37-generic\n")
    found.put(DPKG_STATUS, STATUS.format(igc="2.34.4"))
    return found


def there_and_back(fake_host, times):
    for _time in range(times):
        switch(fake_host, "a")
        switch(fake_host, "b")


def seconds(result, name, direction="forward"):
    found = [one["seconds"] for one in result["phases"] if (one["name"], one["direction"]) == (name, direction)]
    return found[0]


def test_a_driver_update_makes_the_starts_before_it_count_no_more(fake_host):
    """Caches of an older compiler are there and of no use, and both engines load long without a word."""
    there_and_back(fake_host, 3)
    fake_host.put(DPKG_STATUS, STATUS.format(igc="2.40.0"))
    for name in "ab":
        fake_host.unit(name).load_s = 300.0
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"]) == ("committed", "a")
    assert 299 < seconds(result, "health") < 302


def test_a_new_kernel_does_so_as_well(fake_host):
    there_and_back(fake_host, 1)
    fake_host.put(KERNEL_RELEASE, "6.17.0-1-generic\n")
    fake_host.unit("a").load_s = 300.0
    assert switch(fake_host, "a")["outcome"] == "committed"


def test_without_a_change_the_limit_stays(fake_host):
    there_and_back(fake_host, 1)
    fake_host.unit("a").load_s = 300.0
    result = switch(fake_host, "a")
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "health")


def test_what_can_t_be_read_is_a_driver_of_its_own(fake_host):
    del fake_host.texts[DPKG_STATUS], fake_host.texts[KERNEL_RELEASE]
    switch(fake_host, "a")
    (key,) = read_memory(fake_host.effects(), LAYOUT).load_times.loads
    assert key == "a on cpu-1a2b3c4d5e with linux unknown and driver packages unknown"
    fake_host.put(DPKG_STATUS, STATUS.format(igc="2.34.4"))
    switch(fake_host, "b")
    switch(fake_host, "a")
    assert len([key for key in read_memory(fake_host.effects(), LAYOUT).load_times.loads if key.startswith("a ")]) == 2


def test_a_file_that_refuses_to_be_read_stops_no_switch(fake_host):
    effects = fake_host.effects()
    read = effects.files.read

    def refuse(path):
        if path in (DPKG_STATUS, KERNEL_RELEASE):
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    effects.files.read = refuse
    assert not api.switch(effects, LAYOUT, request("a"))["failed"]


def test_a_profile_without_cards_has_no_driver(fake_host):
    fake_host.render("a", cards=0)
    switch(fake_host, "a")
    assert list(read_memory(fake_host.effects(), LAYOUT).load_times.loads) == ["a on cpu-1a2b3c4d5e"]


def test_only_installed_packages_of_driver_and_compiler_tell_them_apart():
    def of(text):
        return load_times.driver_of("6.14.0", text)

    text = STATUS.format(igc="2.34.4")
    assert of(text).startswith("linux 6.14.0 and driver packages ")
    assert of(text) == of(text.replace("3.134", "3.135"))
    assert of(text) == of(text.replace("Version: 1\n", "Version: 2\n"))
    assert of(text) != of(text.replace("38308", "38309"))
    assert of("") == "linux 6.14.0 and no driver packages"


def test_the_way_back_has_all_the_time_of_its_profile(fake_host):
    there_and_back(fake_host, 2)
    fake_host.unit("a").fault = "wrong_answer"
    fake_host.unit("b").load_s = 300.0
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"]) == ("rolled_back", "b")
    assert 299 < seconds(result, "health", "back") < 302


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
def test_what_the_host_starts_by_itself_has_it_too(fake_host, mode):
    there_and_back(fake_host, 2)
    fake_host.unit("b").load_s = 300.0
    fake_host.reboot()
    fake_host._down(fake_host.unit("b"), "failed")
    assert recover(fake_host, mode)["outcome"] == "committed"
    fake_host.assert_invariants()


def test_a_limit_that_somebody_asks_for_is_for_what_he_asks_for(fake_host):
    fake_host.unit("b").load_s = 100.0
    switch(fake_host, "b")
    fake_host.unit("a").fault = "never_ready"
    result = switch(fake_host, "a", health_timeout_s=20)
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"]) == ("rolled_back", "b")
    assert 19 < seconds(result, "health") < 22


def test_it_can_be_more_than_earlier_starts_took(fake_host):
    there_and_back(fake_host, 2)
    fake_host.unit("a").load_s = 500.0
    assert b70ctl(fake_host, "switch", "a", "--health-timeout", "550")[0] == command.DONE
    switch(fake_host, "b")
    assert b70ctl(fake_host, "record", "a", "--health-timeout", "10")[0] == command.FAILED


def test_what_is_remembered_of_old_drivers_is_forgotten_in_time():
    memory = load_times.LoadTimes()
    for number in range(load_times.KEPT_KEYS + 50):
        memory = memory.with_load("often", 1.0).with_load(f"k{number}", 1.0).with_closed(f"k{number}", 2.0)
    assert (len(memory.loads), len(memory.closed)) == (load_times.KEPT_KEYS, load_times.KEPT_KEYS)
    assert "often" in memory.loads
    assert "k0" not in memory.loads


CACHE = PurePosixPath("/var/cache/b70/b")


@pytest.fixture
def compiling(fake_host):
    """b compiles where its cache has nothing."""
    fake_host.render("b", cards=1, engine__start_timeout_s=600, engine__env={"VLLM_CACHE_ROOT": str(CACHE)})
    switch(fake_host, "a")
    return fake_host


def announced(result):
    return [text for text in result["warnings"] if "the compile cache of b" in text]


def provenance(stack="cpu-1a2b3c4d5e"):
    return json.dumps(caches.provenance(stack, "", STATUS.format(igc="2.34.4"), cards=True))


def test_a_start_that_compiles_first_is_announced_before_anything_is_touched(compiling):
    compiling.unit("b").load_s = 300.0
    effects = compiling.effects()
    notes, stop = [], effects.units.stop

    def watched(name):
        notes.append(compiling.texts[LAYOUT.progress_file][0])
        stop(name)

    effects.units.stop = watched
    told = "the compile cache of b is cold: expect up to 10 minutes until its engine is ready"
    assert announced(api.check(effects, LAYOUT, request("b"))) == [told]
    assert announced(api.switch(effects, LAYOUT, request("b"))) == [told]
    assert told in notes[0]
    switch(compiling, "a")
    # it is known by now how long that takes
    told = "the compile cache of b is cold: expect 6 minutes until its engine is ready"
    assert announced(switch(compiling, "b")) == [told]


def test_what_another_stack_compiled_is_stale(compiling):
    compiling.put(CACHE / "torch_compile_cache", "x")
    compiling.put(CACHE / caches.FILE, provenance("cpu-older"))
    assert "the compile cache of b is stale: expect up to 10 minutes" in announced(switch(compiling, "b"))[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"engine__settings": {"enforce_eager": True}},
        {"engine__env": {"VLLM_CACHE_ROOT": str(CACHE), "TORCHDYNAMO_DISABLE": "1"}},
    ],
)
def test_an_engine_that_compiles_nothing_has_nothing_to_announce(compiling, changes):
    compiling.render(
        "b", **{"cards": 1, "engine__env": {"VLLM_CACHE_ROOT": str(CACHE)}, "engine__start_timeout_s": 600, **changes}
    )
    assert announced(switch(compiling, "b")) == []


def test_a_warm_cache_has_nothing_to_announce(compiling):
    compiling.put(CACHE / "torch_compile_cache", "x")
    compiling.put(CACHE / caches.FILE, provenance())
    assert announced(switch(compiling, "b")) == []
