# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts into the key of a wheel, and which recipes are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import (
    BuildError,
    Patch,
    PatchProbe,
    Recipe,
    Tree,
    command,
    parse,
    parse_environment,
)
from ansible_collections.arcpro.b70.plugins.module_utils._build.spec import ARGUMENTS

PATCH = Patch("uint64", "https://example.org/lab", "4" * 40, "patches/uint64.patch")
GIVEN = {"name": "p", "repository": "https://example.org/lab", "commit": "4" * 40, "path": "p.patch"}


def given(**changes: Any) -> dict[str, Any]:
    """Parameters as the module gets them, with its defaults."""
    least = {
        "name": "kernels",
        "repository": "https://example.org/kernels",
        "commit": "1" * 40,
        "python": "/venv/bin/python",
        "work_dir": "/w",
        "wheel_dir": "/wheels",
        "ccache_dir": "/ccache",
        "uv": "/uv",
        "user": "b70",
        "group": "b70",
    }
    validated = ArgumentSpecValidator(ARGUMENTS).validate(least | changes)
    assert not validated.error_messages, validated.error_messages
    return dict(validated.validated_parameters)


@pytest.mark.parametrize(
    "change",
    [
        {"commit": "2" * 40},
        {"name": "other"},
        {"submodules": True},
        {"subdirectory": "csrc"},
        {"script": "setup_moe.py"},
        {"environment": (("TORCH_XPU_ARCH_LIST", "bmg"),)},
        {"uses": (("torch", "2.11.0+xpu"),)},
        {"patches": (PATCH,)},
        {"patches": (replace(PATCH, commit="5" * 40),)},
        {"trees": (Tree("https://example.org/tla", "3" * 40, ".deps/tla"),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_can_change_the_wheel_changes_its_key(recipe: Callable[..., Recipe], change: dict[str, Any]) -> None:
    assert recipe(**change).key() != recipe().key()


def test_where_sources_and_patches_lie_and_how_fast_it_is_built_do_not(recipe: Callable[..., Recipe]) -> None:
    moved = replace(PATCH, repository="http://mirror/lab.git", sha256="a" * 64)
    changes = {"repository": "http://mirror/kernels.git", "python": "/other/python", "max_jobs": 1, "peak_gib": 9.0}
    assert recipe(patches=(moved,), network=True, **changes).key() == recipe(patches=(PATCH,)).key()


def test_two_recipes_never_share_a_unit(recipe: Callable[..., Recipe]) -> None:
    one, other = recipe().unit, recipe(commit="2" * 40).unit
    assert one != other
    assert one.startswith("b70-build-vllm-xpu-kernels-")


def test_the_parameters_become_the_recipe() -> None:
    patch = GIVEN | {"encoding": "gzip+base64", "sha256": "b" * 64, "subdirectory": "sub"}
    made = parse(given(patches=[patch], probes=[{"file": "a.cpp", "contains": "x"}], environment={"B": 1, "A": "2"}))
    assert made.patches == (Patch("p", "https://example.org/lab", "4" * 40, "p.patch", "gzip+base64", "b" * 64, "sub"),)
    assert made.probes == (PatchProbe("a.cpp", "x"),)
    assert made.environment == (("A", "2"), ("B", "1"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"commit": "main"}, "commit 'main' is not a full one"),
        ({"name": "../x"}, "name '../x'"),
        ({"repository": "--upload-pack=x"}, "repository '--upload-pack=x'"),
        ({"subdirectory": "../.."}, "'../..' leads out of the checkout"),
        ({"script": "/etc/setup.py"}, "'/etc/setup.py' leads out of the checkout"),
        ({"patches": [GIVEN | {"sha256": "beef"}]}, "patch p: sha256 'beef' is not one"),
        ({"patches": [GIVEN | {"commit": "main"}]}, "patch p: https://example.org/lab at main is not a pinned"),
        ({"patches": [GIVEN | {"path": "../x"}]}, "'../x' leads out of the checkout"),
        ({"environment": {"A B": "1"}}, "environment: 'A B'"),
        ({"max_jobs": 0}, "max_jobs must be positive"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_recipe_is_refused_with_the_key(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BuildError) as caught:
        parse(given(**change))
    assert words in str(caught.value)


def test_all_problems_of_a_recipe_are_told_at_once() -> None:
    with pytest.raises(BuildError) as caught:
        parse(given(commit="x", repository="", max_jobs=-1))
    assert str(caught.value).count(";") == 2


def test_the_wheel_is_built_against_the_stack_itself(recipe: Callable[..., Recipe]) -> None:
    argv = command(recipe(), "/tools/uv", "/out")
    assert argv[:4] == ("/tools/uv", "build", "--wheel", "--no-build-isolation")
    assert argv[argv.index("--python") + 1] == recipe().python
    scripted = command(recipe(script="setup_moe_int4_only.py"), "/tools/uv", "/out")
    assert scripted == (recipe().python, "setup_moe_int4_only.py", "bdist_wheel", "--dist-dir", "/out")


def test_an_environment_file_is_read_as_systemd_does() -> None:
    text = '# from a script\nPATH="/opt/intel/bin:/bin"\nQ="a \\"b\\" \\$c \\\\d"\nS=\'x y\'\nE=\nbad line\n'
    assert parse_environment(text) == {"PATH": "/opt/intel/bin:/bin", "Q": 'a "b" $c \\d', "S": "x y", "E": ""}
