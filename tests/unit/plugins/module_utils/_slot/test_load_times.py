# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What earlier starts teach: how long clients are told to wait, and when a start has taken too long."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import load_times
from unit.plugins.module_utils._slot.calls import host, noting, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request


@pytest.fixture
def fake_host():
    return host("ab", engine__start_timeout_s=600)


def there_and_back(fake_host, times):
    for _time in range(times):
        switch(fake_host, "a")
        switch(fake_host, "b")


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
    assert load_times.load_limit_s(loads, start_timeout_s) == limit_s


def test_only_the_last_starts_count():
    memory = load_times.LoadTimes()
    for seconds in range(10):
        memory = memory.with_load("k", float(seconds)).with_closed("k", 2.0 * seconds)
    assert memory.loads["k"] == (5.0, 6.0, 7.0, 8.0, 9.0)
    assert memory.eta_s("k") == 14.0
    assert memory.eta_s("other") is None


def test_what_clients_are_told_is_learned(fake_host):
    seen: list[tuple[str, int, float | None]] = []

    def note(state):
        seen.append((state["phase"], state["retry_after_s"], (state["switch"] or {}).get("eta_s")))

    effects = noting(fake_host, note)
    api.switch(effects, LAYOUT, request("a"))
    assert seen[0] == ("switching", 30, None)
    there_and_back(fake_host, 2)
    seen.clear()
    api.switch(effects, LAYOUT, request("a"))
    (_phase, closing, eta), (phase, loading, still), (last, verifying, yet) = seen[:3]
    # The load takes 5 s, stopping half a second; what is left is less once the engine has come up.
    assert eta is not None
    assert 5 <= eta <= 7
    assert closing >= eta
    assert (phase, still, last, yet) == ("switching", eta, "verifying", eta)
    assert verifying <= loading <= closing


def test_an_engine_that_takes_many_times_as_long_and_says_nothing_is_given_up(fake_host):
    there_and_back(fake_host, 3)
    fake_host.unit("a").fault = "never_ready"
    result = switch(fake_host, "a")
    health = next(phase for phase in result["phases"] if phase["name"] == "health")
    assert 124 < health["seconds"] < 130
    assert "25 times of what the last 3 starts took (5.0 s)" in result["msg"]
    assert result["rolled_back"]


def test_the_first_start_after_a_boot_has_the_whole_time(fake_host):
    """It reads the weights from the disk, which may take many times as long as from memory."""
    there_and_back(fake_host, 3)
    fake_host.reboot()
    fake_host.unit("a").load_s = 400.0
    assert not switch(fake_host, "a")["failed"]


def test_one_that_still_says_something_has_the_whole_time(fake_host):
    there_and_back(fake_host, 1)
    unit = fake_host.unit("a")
    unit.load_s = 400.0
    effects = fake_host.effects()
    log = effects.units.log

    def talk(unit, lines):
        fake_host.log_lines = (f"INFO step {fake_host.mono}",)
        return log(unit, lines)

    effects.units.log = talk
    assert not api.switch(effects, LAYOUT, request("a"))["failed"]


def test_the_profile_s_own_limit_is_the_last(fake_host):
    fake_host.unit("a").fault = "never_ready"
    result = switch(fake_host, "a")
    health = next(phase for phase in result["phases"] if phase["name"] == "health")
    assert 599 < health["seconds"] < 603
    assert "was not ready within 600 s: GET" in result["msg"]
    fake_host.unit("a").fault = ""
    there_and_back(fake_host, 1)
    fake_host.unit("a").fault = "never_ready"
    result = switch(fake_host, "a", health_timeout_s=20)
    assert "was not ready within 20 s, 4 times of what the last start took (5.0 s): GET" in result["msg"]


def test_a_start_without_a_compile_cache_is_compared_with_its_like(fake_host):
    cache = LAYOUT.state_dir / "cache"
    for name in "ab":
        fake_host.render(name, engine__start_timeout_s=600, engine__env={"VLLM_CACHE_ROOT": str(cache / name)})
    fake_host.unit("a").load_s = 300.0
    # the unit makes the engine's home before the engine starts, which is no cache
    fake_host.put(cache / "a" / "home", "")
    switch(fake_host, "a")
    fake_host.put(cache / "a" / "compiled", "x")
    fake_host.unit("a").load_s = 10.0
    there_and_back(fake_host, 2)
    memory = read_memory(fake_host.effects(), LAYOUT).load_times
    stack = "cpu-1a2b3c4d5e"
    assert [round(load) for load in memory.loads[f"a on {stack}, nothing cached"]] == [300]
    assert [round(load) for load in memory.loads[f"a on {stack}"]] == [10]
    del fake_host.texts[cache / "a" / "compiled"]
    fake_host.unit("a").load_s = 300.0
    assert not switch(fake_host, "a")["failed"]
