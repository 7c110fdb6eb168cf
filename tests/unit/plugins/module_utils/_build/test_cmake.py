# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CMake's programs as a wheel: which files a checkout gets, and what counts into its key."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build import cmake
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError, Cmake, Recipe, parse
from unit.plugins.module_utils._build.test_recipe import given

MADE = Cmake(("llama-server",), (("GGML_SYCL", "ON"), ("PATHS", '/a;/b "c"')))


def test_the_project_is_valid_and_has_every_option_as_it_was_given(recipe: Callable[..., Recipe]) -> None:
    one = recipe(cmake=MADE, distribution="llama-cpp", commit="0123456789ab" + "0" * 28)
    files = cmake.files(one)
    project = tomllib.loads(files["b70-wheel/pyproject.toml"])
    assert project["project"] == {"name": "llama-cpp", "version": "0+g0123456789ab"}
    assert project["tool"]["scikit-build"]["cmake"]["define"] == dict(MADE.options)
    assert "install(TARGETS llama-server " in files["b70-wheel/CMakeLists.txt"]
    assert one.directory == "b70-wheel"


def test_a_recipe_without_cmake_adds_nothing_and_keeps_its_key(recipe: Callable[..., Recipe]) -> None:
    one = recipe()
    assert cmake.files(one) == {}
    assert one.key() == "0307e6e498d10050"
    assert recipe(distribution="other").key() == one.key()


def test_programs_and_options_count_into_the_key(recipe: Callable[..., Recipe]) -> None:
    keys = [
        recipe(cmake=one).key() for one in (None, MADE, Cmake(("llama-cli",), MADE.options), Cmake(("llama-server",)))
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cmake": {"programs": []}}, "cmake names no program"),
        ({"cmake": {"programs": ["a b"]}}, "'a b' is no name of a target"),
        (
            {"cmake": {"programs": ["a"], "options": {"A)\nexecute_process(": "x"}}},
            "is no name of a target or cache entry",
        ),
        ({"cmake": {"programs": ["a"]}, "script": "setup.py"}, "cannot be combined with script or subdirectory"),
    ],
)
def test_what_would_leave_the_file_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BuildError, match=words):
        parse(given(**change))


def test_the_name_of_the_wheel_is_that_of_the_source_unless_it_is_given() -> None:
    assert parse(given(cmake={"programs": ["a"]})).distribution == "kernels"
    assert parse(given(cmake={"programs": ["a"]}, distribution="b")).distribution == "b"
