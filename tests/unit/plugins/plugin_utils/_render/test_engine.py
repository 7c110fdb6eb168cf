# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typed settings -> arguments, and the environment with its origins."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._environment import Variable, environment_file
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.engine import engine_environment, setting_arguments
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.launch import Native


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        (True, ["--a-b"]),
        (False, ["--no-a-b"]),
        (None, []),
        (8, ["--a-b", "8"]),
        (0, ["--a-b", "0"]),
        (0.95, ["--a-b", "0.95"]),
        ("auto", ["--a-b", "auto"]),
        ("two words", ["--a-b", "two words"]),
        ("--looks-like-a-flag", ["--a-b=--looks-like-a-flag"]),
        (-1, ["--a-b=-1"]),
        ({"image": 4}, ["--a-b", '{"image":4}']),
        ({"z": [1, 8], "a": {"b": None, "c": True}}, ["--a-b", '{"z":[1,8],"a":{"b":null,"c":true}}']),
        ({}, ["--a-b", "{}"]),
        (["x", "y z"], ["--a-b", "x", "y z"]),
        ([{"name": "l"}], ["--a-b", '{"name":"l"}']),
        (["x", "-y"], ["--a-b=x", "--a-b=-y"]),
        ([], []),
    ],
)
def test_a_setting_becomes_arguments(value, arguments):
    assert setting_arguments("a_b", value) == arguments


PLACES = {"hf_home": "/hf", "cache_root": "/cache/k", "venv": "/s/venv", "stack_dir": "/s"}


def environment(profile=None, stack=None, site=None):
    engine = {"engine": {"env": profile or {}}, "origins": {"engine.env.P": "_base"}, "name": "x"}
    return engine_environment(
        engine, {"name": "lab", "env": stack or {}}, site or {}, PLACES, "main", Native("lab").path
    )


def test_every_engine_gets_the_slots_variables():
    assert {name: variable.value for name, variable in environment().items()} == {
        "HF_HOME": "/hf",
        "HF_HUB_DISABLE_XET": "1",
        "HOME": "/cache/k/home",
        "PATH": "/s/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONUNBUFFERED": "1",
        "VLLM_CACHE_ROOT": "/cache/k",
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
    assert {variable.origin for variable in environment().values()} == {"slot main"}


def test_the_nearer_origin_wins():
    found = environment({"P": "p", "Q": "q", "R": "r"}, {"P": "s", "S": "@venv@/lib"}, {"R": 1})
    assert found["P"] == Variable("p", "profile _base")
    assert found["Q"] == Variable("q", "profile x")
    assert found["R"] == Variable("1", "site (slot_env)")
    assert found["S"] == Variable("/s/venv/lib", "stack lab")
    assert list(found) == sorted(found)


def test_the_environment_file_quotes_for_systemd():
    text = environment_file({"A": Variable("a \"b\" $c `d` \\e %h 'f'", "slot main")}, "one\ntwo")
    assert text == '# one\n# two\n# from slot main\nA="a \\"b\\" \\$c \\`d\\` \\\\e %h \'f\'"\n'
