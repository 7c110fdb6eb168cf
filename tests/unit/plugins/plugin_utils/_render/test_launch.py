# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units of engines in containers, against what Podman's own generator makes of the same container.

`quadlet/*/podman-5.4.2.service` is what `/usr/libexec/podman/quadlet --dryrun` of Podman 5.4.2 (Debian 13) prints for
the file beside it. Where the units differ: they are files in `/etc/systemd/system`, because systemd cannot enable a
generated unit; `podman rm NAME` replaces `--cidfile`, which outlives a failed start; `--group-add=` has the host's
numbers, because `keep-groups` works with crun alone; there is no `HealthCmd=`, because the slot judges health itself;
and limits of restarts and addresses are those of an engine without a container.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot_deployment import numbered
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.images import reference, source
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, stack_id
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.explain import explain
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.launch import outermost
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.rendering import render_slot
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights.hub import from_catalogue
from unit.contracts import check
from unit.quadlet import GENERATED, directives, words
from unit.shipped import load_inline

STACKS = load_stacks()
TOLD = "-+/usr/bin/systemctl kill --signal=URG --kill-whom=main b70-controller-main.service"
STOCK, NEWER = "vllm-openai-xpu-0.30.0", "vllm-openai-xpu-0.30.0-runtime-26.35"
SETTINGS = {
    **{f"{name}_dir": f"/{name}" for name in ("tmpfiles", "run", "state", "lib", "bin", "models", "stacks", "cache")},
    "config_dir": "/etc/b70-vllm-slot",
    "unit_dir": "/etc/systemd/system",
    "hf_home": "/hf",
    "user": "b70",
    "group": "b70",
    "frontdoor_url": "http://127.0.0.1:8000",
    "backend_port": 18080,
}


def rendered(stack: str = STOCK, stacks: Any = None, **engine: Any) -> dict[str, str]:
    """File name -> content of a slot with the profile `demo`."""
    known = stacks or STACKS
    demo = {
        "title": "Demo",
        "status": "candidate",
        "stack": stack,
        "cards": engine.pop("cards", 2),
        "model": {"directory": "demo"},
        "engine": {"settings": {"max_model_len": 2048, **engine.pop("settings", {})}, **engine},
    }
    catalogue = {"demo": load_inline({"demo": demo}, stacks=known)["demo"]}
    files = render_slot(catalogue, {**SETTINGS, "stacks": known})
    return {Path(file["path"]).name: file["content"] for file in files}


def unit(stack: str = STOCK, **more: Any) -> str:
    return rendered(stack, **more)["b70-slot-main-demo.service"]


@pytest.mark.parametrize(
    ("folder", "stack", "settings"),
    [("one-card", STOCK, {}), ("two-cards", NEWER, {"tensor_parallel_size": 2})],
)
def test_a_unit_is_what_podmans_generator_makes_of_the_same_container(folder: str, stack: str, settings: Any) -> None:
    ours = directives(unit(stack, settings=settings))
    generated = directives((GENERATED / folder / "podman-5.4.2.service").read_text())
    options, rest = words(dict(generated)["ExecStart"])
    # A file with the id outlives a start that failed, and Podman then refuses every later one: ours has a name.
    options.remove("--cidfile=%t/%N.cid")
    assert words(dict(ours)["ExecStart"]) == (options, rest)
    by_id = {(key, text.replace("--cidfile=%t/%N.cid", "b70-slot-main-demo")) for key, text in generated}
    # The log is the unit's own anyway.
    assert {item for item in by_id if item[0] not in ("ExecStart", "SyslogIdentifier")} <= set(ours)


def test_the_account_of_a_container_is_numbered_by_the_host() -> None:
    numbers = 'B70_ACCOUNT="@uid:b70@:@gid:b70@"\nB70_RENDER="@gid:render@"\nB70_VIDEO="@gid:video@"\n'
    assert rendered()["account.env"] == numbers
    assert numbered('A="@uid:root@:@gid:root@"\n') == 'A="0:0"\n'
    assert numbered("@uid:nobody-has-this@") == "@uid:nobody-has-this@"
    assert "account.env" not in rendered("cpu", cards=0)


def test_a_unit_has_what_every_engine_has_too() -> None:
    found = directives(unit())
    assert ("RestartPreventExitStatus", "126 127 203") in found
    assert {("ExecStartPost", TOLD), ("ExecStopPost", TOLD)} <= set(found)
    assert {("IPAddressDeny", "any"), ("IPAddressAllow", "localhost")} <= set(found)
    assert directives(unit(), "Install") == [("WantedBy", "multi-user.target")]


def test_what_an_image_compiles_is_its_own_and_made_by_the_engines_user() -> None:
    folder = f"/cache/{stack_id(STACKS[STOCK])}/demo"
    (before,) = [text for key, text in directives(unit()) if key == "ExecStartPre"]
    assert before.startswith("-/usr/bin/setpriv --reuid=b70 --regid=b70 --init-groups /usr/bin/python3 -I -B ")
    words_of_cache = before.split()[7:]
    assert words_of_cache[words_of_cache.index("--root") + 1 :] == [folder, folder, f"{folder}/home"]
    assert words_of_cache[words_of_cache.index("--image") + 1].endswith(STACKS[STOCK]["image"]["digest"])
    options, _image = words(dict(directives(unit()))["ExecStart"])
    volumes = [option for option in options if option.startswith("--volume=") and not option.endswith(":ro")]
    assert volumes == [f"--volume={folder}:{folder}", "--volume=/hf:/hf"]


@pytest.mark.parametrize(
    ("stack", "settings", "more", "less"),
    [
        (STOCK, {}, {"--shm-size=16g", "--device=/dev/dri"}, {"--ipc=host", "--cap-add=SYS_PTRACE"}),
        (NEWER, {"tensor_parallel_size": 2}, {"--ipc=host", "--cap-add=SYS_PTRACE"}, {"--shm-size=16g"}),
        (NEWER, {"pipeline_parallel_size": 2}, {"--ipc=host", "--cap-add=SYS_PTRACE"}, {"--shm-size=16g"}),
        (
            NEWER,
            {"data_parallel_size": 2, "enable_expert_parallel": True},
            {"--ipc=host", "--cap-add=SYS_PTRACE"},
            {"--shm-size=16g"},
        ),
        (NEWER, {"data_parallel_size": 2}, {"--shm-size=16g"}, {"--ipc=host", "--cap-add=SYS_PTRACE"}),
    ],
)
def test_only_workers_that_share_a_model_get_rights(stack: str, settings: Any, more: set[str], less: set[str]) -> None:
    options, _image = words(dict(directives(unit(stack, settings=settings)))["ExecStart"])
    assert more <= set(options)
    assert not less & set(options)
    assert {"--cap-drop=all", "--security-opt=no-new-privileges", "--read-only", "--pull=never"} <= set(options)
    assert not {option for option in options if "privileged" in option and option != "--security-opt=no-new-privileges"}


def test_an_engine_without_cards_gets_no_device() -> None:
    stacks = copy.deepcopy(STACKS)
    stacks["ours"] = {**stacks[STOCK], "name": "ours", "device": "cpu", "rules": []}
    text = unit("ours", stacks=stacks)
    assert "/dev/dri" not in text
    assert "--group-add" not in text


def test_a_profile_says_what_the_process_in_the_container_shows() -> None:
    text = rendered()["demo.json"]
    check("resolved-profile", text)
    profile = json.loads(text)
    assert profile["engine"]["argv"][:3] == ["/opt/venv/bin/vllm", "serve", "/models/demo"]
    assert profile["stack"]["image"] == reference(STACKS[STOCK], stack_id(STACKS[STOCK]))
    assert "PATH" not in profile["engine"]["env"], "the image has one"


def test_variables_stand_as_they_are_in_the_file_of_a_container() -> None:
    text = rendered(env={"ODD": 'a "b" $c\\d'})["demo.env"]
    assert '\nODD=a "b" $c\\d\n' in text
    assert "\nHF_HOME=/hf\n" in text


def read_only(text: str) -> list[str]:
    """The directories of models that a container gets, without those of devices."""
    options, _image = words(dict(directives(text))["ExecStart"])
    volumes = [option.removeprefix("--volume=") for option in options if option.startswith("--volume=")]
    return sorted(
        volume.split(":")[0] for volume in volumes if volume.endswith(":ro") and not volume.startswith("/dev/")
    )


def mounted(text: str) -> list[str]:
    return dict(directives(text, "Unit"))["RequiresMountsFor"].split()


def test_a_model_that_settings_name_beside_the_own_is_in_the_container() -> None:
    draft = {"speculative_config": {"method": "dflash", "model": "@models_dir@/draft", "num_speculative_tokens": 4}}
    text = unit(settings={**draft, "chat_template": "@models_dir@/../etc/chat.jinja"})
    assert read_only(text) == ["/models/demo", "/models/draft"]
    assert {"/models/demo", "/models/draft"} <= set(mounted(text))


def test_the_draft_of_vllm_is_a_directory_that_is_downloaded_checked_and_in_the_container() -> None:
    draft = {"hf_repo": "a/draft", "revision": "d" * 40, "directory": "demo-draft", "size_gb": 3.8}
    speculative = {"method": "dflash", "model": "@draft_path@", "num_speculative_tokens": 7}
    demo = {
        "title": "Demo",
        "status": "candidate",
        "stack": STOCK,
        "cards": 1,
        "model": {"hf_repo": "a/demo", "revision": "e" * 40, "directory": "demo", "draft": draft},
        "engine": {"settings": {"max_model_len": 2048, "speculative_config": speculative}},
    }
    catalogue = load_inline({"demo": demo}, stacks=STACKS)
    assert from_catalogue(catalogue, ["demo"], {})["demo-draft"] == {
        "hub": "a/draft",
        "profile": "demo",
        "revision": "d" * 40,
        "size_gb": 3.8,
    }
    files = {
        Path(file["path"]).name: file["content"]
        for file in render_slot({"demo": catalogue["demo"]}, {**SETTINGS, "stacks": STACKS})
    }
    text, resolved = files["b70-slot-main-demo.service"], json.loads(files["demo.json"])
    model, beside = f"/models/demo@{'e' * 40}", f"/models/demo-draft@{'d' * 40}"
    assert f'"model":"{beside}"' in resolved["engine"]["argv"][-1]
    assert resolved["model"]["companions"] == [beside]
    assert read_only(text) == sorted([model, beside])
    assert {model, beside} <= set(mounted(text))


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ({}, {"model": "@draft_path@"}, "@draft_path@ stands for model.draft, which is missing"),
        (
            {"draft": {"directory": "d"}},
            {"model": "@draft_file@"},
            "@draft_file@ stands for model.draft.file, which is missing",
        ),
        (
            {"draft": {"directory": "d", "file": "d.gguf"}},
            {"model": "@draft_path@"},
            "model.draft.file: vLLM loads the whole directory, which settings name as @draft_path@",
        ),
        ({"draft": {"hf_repo": "a/b"}}, {"model": "@draft_path@"}, "model.draft.directory: is missing"),
        ({"projector": {"directory": "d"}}, {}, "model.projector: vLLM takes none"),
    ],
)
def test_a_draft_of_vllm_is_refused_where_it_is_none(model: Any, settings: Any, message: str) -> None:
    demo = {
        "title": "Demo",
        "status": "candidate",
        "stack": STOCK,
        "cards": 1,
        "model": {"directory": "demo", **model},
        "engine": {"settings": {"max_model_len": 2048, "speculative_config": {"method": "dflash", **settings}}},
    }
    with pytest.raises(CatalogueError) as caught:
        load_inline({"demo": demo}, stacks=STACKS)
    assert message in str(caught.value)


LLAMA_IMAGES = sorted(name for name in STACKS if name.startswith("llama-cpp-"))


@pytest.mark.parametrize("stack", LLAMA_IMAGES)
def test_llama_cpp_in_its_makers_images_gets_the_models_beside_its_own(stack: str) -> None:
    assert len(LLAMA_IMAGES) == 2
    model = {name: {"directory": f"demo-{name}", "file": f"{name}.gguf"} for name in ("draft", "projector")}
    demo = {
        "title": "Demo",
        "status": "candidate",
        "stack": stack,
        "cards": 1,
        "model": {"directory": "demo", "file": "demo.gguf", **model},
        "engine": {
            "kind": "llama-server",
            "settings": {"ctx_size": 2048, "spec_draft_model": "@draft_file@", "mmproj": "@projector_file@"},
        },
    }
    catalogue = load_inline({"demo": demo}, stacks=STACKS)
    files = render_slot({"demo": catalogue["demo"]}, {**SETTINGS, "stacks": STACKS})
    text = next(file["content"] for file in files if file["path"].endswith("b70-slot-main-demo.service"))
    beside = ["/models/demo", "/models/demo-draft", "/models/demo-projector"]
    assert read_only(text) == beside
    assert set(beside) <= set(mounted(text))
    assert "--entrypoint=/app/llama-server" in text


def test_an_image_whose_environment_is_made_by_a_script_is_started_through_it() -> None:
    stack = "llm-scaler-0.26.0-b2"
    options, rest = words(dict(directives(unit(stack)))["ExecStart"])
    assert "--entrypoint=/bin/bash" in options
    assert rest[1:4] == [
        "-c",
        'source /opt/intel/oneapi/setvars.sh --force >/dev/null && exec "$$0" "$$@"',
        "/usr/local/bin/vllm",
    ]


def test_an_image_that_hosts_make_has_a_name_with_the_stacks_id() -> None:
    identity = stack_id(STACKS[NEWER])
    assert reference(STACKS[NEWER], identity) == f"localhost/b70/{NEWER}:{identity.rpartition('-')[2]}"
    unpinned = STACKS["vllm-openai-xpu-0.31.0"]
    assert reference(unpinned, stack_id(unpinned)).startswith("localhost/b70/vllm-openai-xpu-0.31.0:")
    assert source(unpinned["image"]) == "docker.io/vllm/vllm-openai-xpu:v0.31.0"
    pinned = f"sha256:{'1' * 64}"
    assert source(unpinned["image"], pinned) == f"docker.io/vllm/vllm-openai-xpu@{pinned}"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"digest": f"sha256:{'2' * 64}"}, False),
        ({"program": "/usr/bin/vllm"}, False),
        ({"tag": "v0.30.0-again", "amd64": f"sha256:{'3' * 64}", "size_gb": 5, "inside": {}}, True),
    ],
)
def test_the_id_of_a_stack_is_that_of_its_image(change: dict[str, Any], same: bool) -> None:
    manifest = STACKS[STOCK]
    assert (stack_id({**manifest, "image": {**manifest["image"], **change}}) == stack_id(manifest)) is same


def test_what_is_explained_names_the_image() -> None:
    demo = {"status": "candidate", "stack": STOCK, "cards": 1, "model": {"directory": "d"}}
    demo["engine"] = {"settings": {"max_model_len": 2048}}
    profile = load_inline({"demo": demo}, stacks=STACKS)["demo"]
    assert explain(profile, STACKS[STOCK], {})[-1].endswith(f"@{STACKS[STOCK]['image']['digest']}")


def test_folders_below_others_are_mounted_with_them() -> None:
    assert outermost(["/c/a/b", "/c/a", "/c/ab", "/c/a"]) == ["/c/a", "/c/ab"]


def test_a_container_is_given_named_files_for_reading() -> None:
    template, patch = "/srv/templates/no-think.jinja", "/srv/patches/router.py"
    inside = "/opt/venv/lib/python3.12/site-packages/vllm/router.py"
    text = unit(mounts={template: template, patch: inside}, settings={"chat_template": template})
    assert f"--volume={template}:{template}:ro" in text
    assert f"--volume={patch}:{inside}:ro" in text
    waits = next(line for line in text.splitlines() if line.startswith("RequiresMountsFor="))
    assert {template, patch} <= set(waits.removeprefix("RequiresMountsFor=").split())


def test_what_a_container_is_given_counts_into_the_fingerprint() -> None:
    plain, given = (
        json.loads(rendered(mounts=mounts)["demo.json"])
        for mounts in ({}, {"/srv/patches/router.py": "/opt/venv/router.py"})
    )
    assert plain["fingerprint"] != given["fingerprint"]
    assert "mounts" not in plain["engine"]
    assert given["engine"]["mounts"] == {"/srv/patches/router.py": "/opt/venv/router.py"}
    assert plain["stack"]["runtime"] == "26.27.39122"
