# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What earlier starts teach: how long clients are told to wait, and when a start has taken too long."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, learned
from ansible_collections.arcpro.b70.plugins.module_utils._slot.observe import read_memory
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import request


@pytest.fixture
def world():
    return host("ab", engine__start_timeout_s=600)


def there_and_back(world, times):
    for _time in range(times):
        switch(world, "a")
        switch(world, "b")


@pytest.mark.parametrize(
    ("loads", "start_timeout_s", "limit_s"),
    [
        ((), 600, 600),  # the first start has what its profile allows
        ((5,), 600, 125),
        ((100,), 600, 400),
        ((100, 90, 400, 95, 105), 600, 400),  # one slow start among others changes little
        ((300,), 600, 600),  # never more than the profile allows
        ((5,), 60, 60),
    ],
)
def test_how_long_a_start_may_take(loads, start_timeout_s, limit_s):
    assert learned.load_limit_s(loads, start_timeout_s) == limit_s


def test_only_the_last_starts_count():
    memory = learned.Learned()
    for seconds in range(10):
        memory = memory.with_load("k", float(seconds)).with_closed("k", 2.0 * seconds)
    assert memory.loads["k"] == (5.0, 6.0, 7.0, 8.0, 9.0)
    assert memory.eta_s("k") == 14.0
    assert memory.eta_s("other") is None
    assert learned.learned_of(memory.as_dict()) == memory
    assert learned.learned_of({"loads": {"k": [1, "x"], "l": 3}, "closed": 7}) == learned.Learned({"k": (1.0,)}, {})
    assert learned.learned_of("x") == learned.Learned()


def test_what_clients_are_told_is_learned(world):
    seen: list[tuple[str, int, float | None]] = []
    effects = world.effects()
    write = effects.files.write

    def note(path, text):
        write(path, text)
        if path == LAYOUT.state_file:
            seen.append((world.state.phase, world.state.retry_after_s, (world.state.switch or {}).get("eta_s")))

    effects.files.write = note
    api.switch(effects, LAYOUT, request("a"))
    assert seen[0] == ("switching", 30, None)
    there_and_back(world, 2)
    seen.clear()
    api.switch(effects, LAYOUT, request("a"))
    (_phase, closing, eta), (phase, loading, still), (last, verifying, yet) = seen[:3]
    # The load takes 5 s, stopping half a second; what is left is less once the engine has come up.
    assert eta is not None
    assert 5 <= eta <= 7
    assert closing >= eta
    assert (phase, still, last, yet) == ("switching", eta, "verifying", eta)
    assert verifying <= loading <= closing


def test_an_engine_that_takes_many_times_as_long_and_says_nothing_is_given_up(world):
    there_and_back(world, 3)
    world.unit("a").fault = "never_ready"
    result = switch(world, "a")
    health = next(phase for phase in result["phases"] if phase["name"] == "health")
    assert 124 < health["seconds"] < 130
    assert "25 times of what the last 3 starts took (5.0 s)" in result["msg"]
    assert result["rolled_back"]


def test_one_that_still_says_something_has_the_whole_time(world):
    there_and_back(world, 1)
    unit = world.unit("a")
    unit.load_s = 400.0
    effects = world.effects()
    log = effects.units.log

    def talk(unit, lines):
        world.log_lines = (f"INFO step {world.mono}",)
        return log(unit, lines)

    effects.units.log = talk
    assert not api.switch(effects, LAYOUT, request("a"))["failed"]


def test_the_profile_s_own_limit_is_the_last(world):
    world.unit("a").fault = "never_ready"
    result = switch(world, "a")
    health = next(phase for phase in result["phases"] if phase["name"] == "health")
    assert 599 < health["seconds"] < 603
    assert "was not ready within 600 s: GET" in result["msg"]
    world.unit("a").fault = ""
    there_and_back(world, 1)
    world.unit("a").fault = "never_ready"
    result = switch(world, "a", health_timeout_s=20)
    assert "was not ready within 20 s, 4 times of what the last start took (5.0 s): GET" in result["msg"]


def test_a_start_without_a_compile_cache_is_compared_with_its_like(world):
    cache = LAYOUT.state_dir / "cache"
    for name in "ab":
        world.render(name, engine__start_timeout_s=600, engine__env={"VLLM_CACHE_ROOT": str(cache / name)})
    world.unit("a").load_s = 300.0
    # the unit makes the engine's home before the engine starts, which is no cache
    world.put(cache / "a" / "home", "")
    switch(world, "a")
    world.put(cache / "a" / "compiled", "x")
    world.unit("a").load_s = 10.0
    there_and_back(world, 2)
    memory = read_memory(world.effects(), LAYOUT).learned
    stack = "cpu-1a2b3c4d5e"
    assert [round(load) for load in memory.loads[f"a on {stack}, nothing cached"]] == [300]
    assert [round(load) for load in memory.loads[f"a on {stack}"]] == [10]
    del world.texts[cache / "a" / "compiled"]
    world.unit("a").load_s = 300.0
    assert not switch(world, "a")["failed"]
