# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths that an engine would not see are refused before any host is touched."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from unit.shipped import STACKS, load_inline

IMAGE, ENVIRONMENT = "vllm-openai-xpu-0.31.0", "xpu"


def refusals(stack: str, **engine: Any) -> list[str]:
    settings = {"max_model_len": 2048, "compilation_config": {"cudagraph_mode": "NONE"}, **engine.pop("settings", {})}
    profile = {
        "name": "x",
        "status": "experiment",
        "stack": stack,
        "cards": 1,
        "model": {"directory": "/srv/elsewhere/model"},
        "engine": {"settings": settings, **engine},
    }
    try:
        load_inline({"x": profile}, stacks=STACKS)
    except CatalogueError as error:
        return [str(problem) for problem in error.problems]
    return []


TEMPLATE = "/home/me/templates/no-think.jinja"
# What people's compose files mount from folders of their own.
UNSEEN = [
    ({"settings": {"chat_template": TEMPLATE}}, "engine.settings.chat_template"),
    ({"settings": {"lora_modules": ["ours=/home/me/adapters/ours"]}}, "engine.settings.lora_modules[0]"),
    ({"settings": {"speculative_config": {"model": "/mnt/drafts/small"}}}, "engine.settings.speculative_config.model"),
    ({"extra_args": ["--new-file", "/srv/kv-scales.json"]}, "engine.extra_args[1]"),
    ({"extra_args": ["--new-file=/srv/kv-scales.json"]}, "engine.extra_args[0]"),
    ({"extra_args": ["--new-config", '{"a": ["/data/x"]}']}, "engine.extra_args[1]"),
    ({"settings": {"chat_template": "/models/templates/x.jinja"}}, "engine.settings.chat_template"),
    ({"settings": {"chat_template": "/config/x.jinja"}}, "engine.settings.chat_template"),
    ({"settings": {"chat_template": "file:///etc/llm/x.jinja"}}, "engine.settings.chat_template"),
    ({"env": {"LD_PRELOAD": "/usr/lib/libjemalloc.so:/data/patched.so"}}, "engine.env.LD_PRELOAD"),
]


@pytest.mark.parametrize(("engine", "where"), UNSEEN)
def test_a_container_sees_no_folder_of_the_host(engine: dict[str, Any], where: str) -> None:
    (told,) = refusals(IMAGE, **engine)
    assert told.startswith(f"b70_profiles[x]: {where}: /")
    assert "is not in the container, which sees the models alone" in told
    assert "name it in engine.mounts" in told


@pytest.mark.parametrize(
    "engine",
    [
        {"settings": {"chat_template": "@models_dir@/templates/no-think.jinja"}},
        {"settings": {"chat_template": "/srv/elsewhere/model/template.jinja"}},
        # What the image has is not known here.
        {"settings": {"chat_template": "/opt/venv/templates/x.jinja"}},
        {"settings": {"chat_template": "/vllm-workspace/examples/x.jinja"}},
        {"settings": {"tokenizer": "owner/name"}},
        {"settings": {"chat_template": TEMPLATE}, "mounts": {TEMPLATE: TEMPLATE}},
        {"settings": {"chat_template": "/srv/t/no-think.jinja"}, "mounts": {"/home/me/templates": "/srv/t"}},
        {"env": {"SOME_CACHE": "@cache_root@/some"}},
    ],
)
def test_what_it_sees_is_taken(engine: dict[str, Any]) -> None:
    assert refusals(IMAGE, **engine) == []


@pytest.mark.parametrize("stack", [IMAGE, ENVIRONMENT])
@pytest.mark.parametrize("path", ["~/templates/x.jinja", "./x.jinja", "../x.jinja"])
def test_no_shell_expands_a_path(path: str, stack: str) -> None:
    (told,) = refusals(stack, settings={"chat_template": path})
    assert f"engine.settings.chat_template: {path} is no absolute path, and no shell reads it" in told


@pytest.mark.parametrize(("path", "hidden"), [(TEMPLATE, "home"), ("/tmp/x", "tmp"), ("/run/user/1000/x", "run/user")])
def test_the_unit_of_an_engine_hides_homes(path: str, hidden: str) -> None:
    (told,) = refusals(ENVIRONMENT, settings={"chat_template": path})
    assert f"engine.settings.chat_template: {path} is hidden from the engine, whose unit sees no /{hidden}" in told


def test_an_engine_from_an_environment_reads_files_where_they_are() -> None:
    assert refusals(ENVIRONMENT, settings={"chat_template": "/srv/templates/x.jinja"}) == []
    (told,) = refusals(ENVIRONMENT, mounts={"/srv/x": "/srv/x"})
    assert "engine.mounts: is for stacks of images" in told


@pytest.mark.parametrize("path", ["relative", "/srv/a:b", "/srv/a b", "/srv/a/"])
def test_a_mount_names_two_paths(path: str) -> None:
    assert "must be an absolute path" in " ".join(refusals(IMAGE, mounts={path: "/x"}))
    assert "must be an absolute path" in " ".join(refusals(IMAGE, mounts={"/x": path}))


def test_graphs_that_a_parent_turned_off_are_not_sized_in_silence() -> None:
    (told,) = refusals("xpu", settings={"cudagraph_capture_sizes": [1, 2, 4, 8]})
    assert (
        "engine.settings.cudagraph_capture_sizes: does nothing: engine.settings.compilation_config.cudagraph_mode"
        in told
    )
    eager = {"compilation_config": None, "enforce_eager": True, "cudagraph_capture_sizes": [1]}
    (told,) = refusals("xpu", settings=eager)
    assert "does nothing: enforce_eager captures no graphs" in told


@pytest.mark.parametrize(
    ("kind", "stack", "key"),
    [("llama-server", "llama-cpp-vulkan-b11243", "reasoning_preserve"), ("vllm", "vllm-openai-xpu-28915aad", "newer")],
)
def test_an_option_of_a_build_that_nobody_read_goes_into_extra_args(kind: str, stack: str, key: str) -> None:
    llama = kind == "llama-server"
    settings: dict[str, Any] = {"ctx_size": 2048, "parallel": 1} if llama else {"max_model_len": 2048}
    profile = {
        "name": "x",
        "status": "experiment",
        "stack": stack,
        "cards": 1,
        "model": {"directory": "m", **({"file": "m.gguf"} if llama else {})},
        "engine": {"kind": kind, "settings": {**settings, key: True}},
    }
    with pytest.raises(
        CatalogueError, match=rf'unknown key "{key}".*; engine.extra_args takes flags that the settings'
    ):
        load_inline({"x": profile}, stacks=STACKS)
    profile["engine"] = {"kind": kind, "settings": settings, "extra_args": [f"--{key.replace('_', '-')}"]}
    assert load_inline({"x": profile}, stacks=STACKS)
