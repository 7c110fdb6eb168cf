# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients are told of the first load of a profile: that of one of like size."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look import wait_estimate
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import load_times
from unit.plugins.module_utils._slot.calls import host, noting, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request

STACK = "cpu-1a2b3c4d5e"


def key(profile: str, *, cached: bool = True, stack: str = STACK) -> str:
    return load_times.key_of(profile, stack, "", cached=cached)


@pytest.mark.parametrize(
    ("wanted", "sizes", "expected"),
    [
        # the nearest in size, not just any that is alike
        ("new", {"new": 20, "small": 11, "like": 24, "large": 60}, 100),
        ("new", {"new": 12, "small": 11, "like": 24, "large": 60}, 30),
        # of several of the same size the middle, as of variants of one model
        ("new", {"new": 24, "like": 24, "small": 24, "large": 60}, 65),
        # twice as large is alike, more is not
        ("new", {"new": 120, "large": 60}, 300),
        ("new", {"new": 121, "large": 60}, None),
        ("new", {"new": 29, "large": 60}, None),
        # what has no size is like nothing
        ("new", {"new": 0, "like": 24}, None),
        ("new", {"new": 24, "like": 0}, None),
        ("new", {}, None),
        # the same on another stack is the most alike of all
        ("like", {"like": 24, "small": 24.1}, 100),
    ],
)
def test_the_nearest_in_size_counts(wanted, sizes, expected):
    times = {"small": 30.0, "like": 100.0, "large": 300.0}
    memory = load_times.LoadTimes({key(name): (seconds, seconds) for name, seconds in times.items()})
    assert wait_estimate.like_s(memory, key(wanted, stack="another-1"), sizes) == expected


def test_starts_without_a_compile_cache_are_like_each_other():
    memory = load_times.LoadTimes({key("a"): (30.0,), key("b", cached=False): (900.0,)}, {key("a"): (40.0,)})
    sizes = {"a": 7.0, "b": 7.0, "new": 7.0}
    # how long clients waited says more than the load alone
    assert wait_estimate.like_s(memory, key("new"), sizes) == 40
    assert wait_estimate.like_s(memory, key("new", cached=False), sizes) == 900


def first_eta(fake_host, name):
    seen: list[Any] = []
    assert not api.switch(noting(fake_host, seen.append), LAYOUT, request(name))["failed"]
    return seen[0]["retry_after_s"], (seen[0]["switch"] or {}).get("eta_s")


@pytest.fixture
def fake_host():
    return host("abc", engine__start_timeout_s=600)


def weigh(fake_host, name, size):
    fake_host.put(PurePosixPath(f"/models/{name}/model.safetensors"), "x" * size)


def test_the_first_switch_to_a_profile_says_what_one_of_like_size_took(fake_host):
    for name, size in (("a", 1000), ("b", 1400), ("c", 9000)):
        weigh(fake_host, name, size)
    fake_host.unit("a").load_s = 90.0
    assert first_eta(fake_host, "a") == (30, None), "nothing was ever loaded here"
    retry_after_s, eta_s = first_eta(fake_host, "b")
    assert eta_s is not None
    assert 90 <= eta_s <= 95
    assert retry_after_s >= eta_s
    assert first_eta(fake_host, "c") == (30, None), "and nothing of such a size"


def test_the_size_is_that_of_the_weights_on_the_host_or_else_what_the_profile_says(fake_host):
    weigh(fake_host, "a", 2000)
    effects = fake_host.effects()
    assert wait_estimate.size_of(effects, LAYOUT, "a") == 2000 / 1e9
    data = json.loads(fake_host.texts[LAYOUT.profile_json("b")][0])
    data["model"] |= {"path": "/models/gone", "size_gb": 7.3}
    fake_host.put(LAYOUT.profile_json("b"), json.dumps(data))
    assert wait_estimate.size_of(effects, LAYOUT, "b") == 7.3
    for broken in ("", "[]", "{", '{"model": 7}', '{"model": {"path": 7}}', '{"model": {"size_gb": "x"}}'):
        fake_host.put(LAYOUT.profile_json("b"), broken)
        assert wait_estimate.size_of(effects, LAYOUT, "b") == 0
    assert wait_estimate.size_of(effects, LAYOUT, "never rendered") == 0


def test_what_cannot_be_estimated_is_no_reason_to_fail(fake_host):
    switch(fake_host, "a")
    effects = fake_host.effects()

    def names(path):
        raise PermissionError(13, "Permission denied", str(path))

    effects.files.names = names
    assert wait_estimate.wait_s(effects, LAYOUT, load_times.LoadTimes({key("a"): (5.0,)}), key("b")) is None
