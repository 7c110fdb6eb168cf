# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped profiles hold the values that were measured with; where they decide otherwise, it stands here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.engines import table_of
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import SHIPPED
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, locked_versions
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import rendering
from unit import shipped

STACKS = load_stacks()
CATALOGUE = shipped.profiles()
# What the lab's files say, written down once and not changed since; only "quantization: auto" (no flag) is left out.
LAB = json.loads((Path(__file__).parent / "lab_values.json").read_text())
GEMMA4 = "gemma4-12b-it-int4-autoround"

# The lab's words for how far a profile has come, and ours.
STATUS = {
    "production": "production",
    "research": "research",
    "research-c64": "research",
    "experimental-bringup": "experiment",
    "latency-probe-requant-tp2": "experiment",
    "latency-probe-requant-tp2-xpugraph": "experiment",
    "experimental-requant-mtp": "experiment",
    "comparison-bf16-fallback": "experiment",
    "production-candidate": "candidate",
    "production-candidate-requant": "candidate",
}
NO_GRAPHS = {"compilation_config": {"cudagraph_mode": "NONE"}}
# Where ours is not what the lab's file says; the reason stands beside each value in the profile.
DECIDED: dict[str, dict[str, Any]] = {
    "minimax-m27-c1": {"status": "baseline", "cache": "minimax-quality-clean-20260521T152425Z"},
    "qwen36-27b-fp8-vrfai": {"status": "rejected"},
    "qwen36-35b-a3b-fp8": {"status": "experiment"},
    "qwen3-vl-30b-a3b-fp8": {"status": "experiment"},
    "qwen36-35b-a3b-quark-int8-graph32k": {"status": "experiment"},
    "qwen36-27b-int4-autoround": {"cache": "qwen36-27b-int4-autoround-slot"},
    f"{GEMMA4}-c8": {"status": "candidate", "cache": f"{GEMMA4}-intel-c8", "settings": NO_GRAPHS},
    f"{GEMMA4}-c8-nolog": {
        "cache": f"{GEMMA4}-intel-c8",
        "settings": NO_GRAPHS,
        "frontdoor": {"queue_timeout_s": 0},
    },
    **{
        f"{GEMMA4}-c8-{variant}": {"frontdoor": {"queue_timeout_s": 0}}
        for variant in ("cs1-8", "gmem096", "gmem097", "xpugraph", "xpugraph-mbt2048")
    },
    **{
        f"qwen36-35b-a3b-fp8-{variant}": {"status": "blocked", "cache": f"qwen36-35b-a3b-fp8-{variant}-slot"}
        for variant in ("bf16-c48", "requant-c48", "requant-c48-mtp", "requant-tp2-c4", "requant-tp2-c4-xpugraph")
    },
}
# The lab's variables that only its own builds of vLLM read.
LAB_ONLY = {
    "XPU_GRAPH",
    "VLLM_XPU_COMPILE_ALLREDUCE_CUSTOM_OP",
    "VLLM_XPU_CUSTOM_ALLREDUCE_CLONE_INPUT",
    "VLLM_XPU_CUSTOM_ALLREDUCE_GRAPH_CLONE_INPUT",
    "VLLM_XPU_ENABLE_XPU_GRAPH",
    "VLLM_XPU_FORCE_GRAPH_WITH_COMM",
    "VLLM_XPU_FP8_LINEAR_BF16_FALLBACK",
    "VLLM_XPU_GRAPH_NOOP_COMM_CAPTURE",
    "VLLM_XPU_USE_CUSTOM_OP_COLLECTIVES",
}
# Under which hosts of others lost their cards.
PEER_ACCESS = {"CCL_ATL_TRANSPORT", "CCL_TOPO_P2P_ACCESS"}
# What every profile for the cards gets and no file of the lab has.
OURS_ONLY: dict[str, dict[str, Any]] = {
    "settings": {"shutdown_timeout": 10},
    "env": {
        "GLOO_SOCKET_IFNAME": "lo",
        "FI_TCP_IFACE": "lo",
        "CCL_KVS_IFACE": "lo",
    },
}
SLOT = {
    **dict.fromkeys(("config_dir", "unit_dir", "tmpfiles_dir", "run_dir", "state_dir", "lib_dir", "bin_dir"), "/d"),
    "frontdoor_url": "u",
    "models_dir": "/models",
    "stacks_dir": "/stacks",
    "cache_dir": "/cache",
    "hf_home": "/hf",
    "user": "b70",
    "group": "b70",
    "backend_port": 18080,
    "stacks": STACKS,
}


def rendered_environment(name):
    """Return the variables of a profile's engine that do not come from the slot or the stack."""
    _resolved, (environment,) = rendering.resolve(CATALOGUE[name], rendering.check_settings(SLOT))
    return {key: item.value for key, item in environment.items() if not item.origin.startswith(("slot", "stack"))}


def test_who_says_nothing_queues():
    """The lab's production profile refuses at once, as do its variants."""
    variants = ("c8", "c10", "c12", "c16", *(f"c8-{name}" for name in ("cs1-8", "gmem096", "gmem097", "nolog")))
    variants += ("c8-xpugraph", "c8-xpugraph-mbt2048")
    waits = {name: profile["frontdoor"]["queue_timeout_s"] for name, profile in CATALOGUE.items()}
    assert {name for name in waits if not waits[name]} == {f"{GEMMA4}-{variant}" for variant in variants}
    assert waits["qwen3-0.6b-cpu"] == 600


def test_every_profile_of_the_lab_is_shipped():
    assert len(LAB) == 27
    assert set(LAB) <= set(CATALOGUE)


@pytest.mark.parametrize("name", LAB)
def test_a_profile_is_the_labs_but_for_what_was_decided(name):
    lab, decided, profile = LAB[name], DECIDED.get(name, {}), CATALOGUE[name]
    word = lab["status"].split("-")[0]
    assert profile["status"] == decided.get("status", STATUS.get(lab["status"], word))
    assert profile["model"]["hf_repo"] == lab["hf_repo"]
    assert profile["engine"]["served_model_name"] == lab["served_model_name"]
    assert profile["engine"]["cache_key"] == decided.get("cache", lab["cache"])
    released = profile["stack"] == "xpu"
    graphs = NO_GRAPHS if released and "compilation_config" not in lab["settings"] else {}
    settings = {key: value for key, value in profile["engine"]["settings"].items() if value is not None}
    assert settings == {**lab["settings"], **OURS_ONLY["settings"], **graphs, **decided.get("settings", {})}
    frontdoor = {**lab["frontdoor"], **decided.get("frontdoor", {})}
    # the lab's profiles have one engine, and no word on replicas
    told = {key: value for key, value in profile["frontdoor"].items() if key != "routing"}
    assert {key: value for key, value in told.items() if value is not None} == frontdoor
    without_device = (
        {"ONEAPI_DEVICE_SELECTOR": "level_zero:0", "ZE_AFFINITY_MASK": "0"} if profile["cards"] == 1 else {}
    )
    left_out = PEER_ACCESS | (LAB_ONLY if released else set())
    theirs = {key: value for key, value in lab["env"].items() if key not in left_out}
    assert rendered_environment(name) == {**without_device, **theirs, **OURS_ONLY["env"]}


@pytest.mark.parametrize("name", LAB)
def test_a_released_vllm_knows_every_variable_of_its_profiles(name):
    """What only a patched engine reads does nothing elsewhere, and its profile says what is not so."""
    manifest = STACKS[CATALOGUE[name]["stack"]]
    if manifest.get("patches") or not manifest["installable"]:
        return
    known = set((table_of(manifest) or {})["environment"])
    assert not LAB_ONLY & known
    ours = {key for key in CATALOGUE[name]["engine"]["env"] if key.startswith("VLLM_") or key in LAB_ONLY}
    assert not ours - known


@pytest.mark.parametrize("name", LAB)
def test_what_can_be_served_has_a_stack_that_can_be_installed(name):
    profile = CATALOGUE[name]
    assert STACKS[profile["stack"]]["installable"] or profile["status"] == "blocked"


@pytest.mark.parametrize("name", DECIDED)
def test_what_was_decided_differs_from_the_lab(name):
    """An entry that says what the lab says is none."""
    lab = LAB[name]
    for key, value in DECIDED[name].items():
        if key in ("frontdoor", "settings"):
            assert all(lab[key][inner] != item for inner, item in value.items())
        else:
            assert lab[key] != value


@pytest.mark.parametrize("name", LAB)
def test_a_variant_is_only_its_difference(name):
    """What a file says about engine and frontdoor differs from what its parent already says."""
    data = yaml.safe_load((SHIPPED / "catalogue" / f"{name}.yml").read_text())
    parent = CATALOGUE.get(data["extends"])
    if parent is None:
        return
    for section, part in (("engine", "settings"), ("engine", "env"), ("frontdoor", None)):
        mine = data.get(section, {}).get(part, {}) if part else data.get(section, {})
        theirs = parent[section][part] if part else parent[section]
        repeated = [key for key, value in mine.items() if value is not None and theirs.get(key) == value]
        assert not repeated, f"{section}: {repeated} stand in {data['extends']} already"


@pytest.mark.parametrize("name", LAB)
def test_a_profile_that_is_not_served_says_when_and_why(name):
    profile = CATALOGUE[name]
    if profile["status"] in ("rejected", "blocked"):
        assert re.match(r"2026-\d\d-\d\d: |2026-06-0", profile["status_reason"])
    else:
        assert not profile["status_reason"]


@pytest.mark.parametrize("name", LAB)
def test_evidence_has_a_source_and_figures_have_a_date(name):
    evidence = CATALOGUE[name]["evidence"]
    assert ("date" in evidence) == ("grade" in evidence) == (not evidence["source"].startswith("none recorded"))
    assert "tok_s" not in evidence or {"date", "host_class", "stack"} <= evidence.keys()
    # Nothing was measured on any other stack yet.
    assert evidence.get("stack", "lab-2.11") == "lab-2.11"


def test_evidence_is_the_profiles_own():
    assert CATALOGUE[f"{GEMMA4}-c8"]["evidence"]["details"]["soak"]["anomaly"]["got"] == "slh cobalt orbit"
    assert "soak" not in CATALOGUE[f"{GEMMA4}-c10"]["evidence"]["details"]


@pytest.mark.parametrize("name", LAB)
def test_the_image_case_belongs_to_profiles_with_images(name):
    cases = [case["name"] for case in CATALOGUE[name]["canary"]["cases"]]
    assert ("red_image" in cases) == ("image" in CATALOGUE[name]["modalities"])
    assert ("limit_mm_per_prompt" in LAB[name]["settings"]) == ("image" in CATALOGUE[name]["modalities"])


def test_every_file_points_editors_to_its_schema():
    for folder, schema in (("catalogue", "profile"), ("stacks", "stack")):
        for file in sorted((SHIPPED / folder).glob("*.yml")):
            assert f"\n# yaml-language-server: $schema=../schema/{schema}.schema.json\n" in file.read_text(), file.name


def test_nothing_of_the_labs_host_is_left():
    assert "/home/" not in json.dumps([{**profile, "source_file": ""} for profile in CATALOGUE.values()])


def test_a_stack_that_cannot_be_installed_says_why():
    wheels = {name for name, stack in STACKS.items() if stack["installable"] and "image" not in stack}
    assert wheels == {"cpu", "lab-minimax", "relay", "xpu", "xpu-0.32", "llama-cpu", "llama-sycl", "llama-vulkan"}
    assert "patch" in STACKS["llama-gemma"]["reason"]
    assert "patches" in STACKS["llama-qwen"]["reason"]
    assert "cannot be composed" in STACKS["lab-2.11"]["reason"]


IMAGES = {name: stack for name, stack in STACKS.items() if "image" in stack}


@pytest.mark.parametrize("name", [name for name, stack in IMAGES.items() if stack["installable"]])
def test_an_image_is_pinned_or_says_that_it_is_not(name):
    image = IMAGES[name]["image"]
    assert "digest" in image or any("no public record of its digest" in note for note in IMAGES[name]["notes"])
    assert "amd64" not in image or image["amd64"] != image["digest"]


def test_what_images_have_in_common_is_no_image():
    common = {name for name, stack in IMAGES.items() if not stack["installable"]}
    assert common == {"vllm-openai-xpu", "vllm-openai-xpu-before-0.30", "b70-lab-images", "llm-scaler"}
    assert not {"digest", "tag"} & {key for name in common for key in IMAGES[name]["image"]}
    assert "tag" not in IMAGES["exl3xpu"]["image"], "the tag of the image that it is built on is not its own"


@pytest.mark.parametrize("name", ["cpu", "lab-minimax", "xpu", "xpu-0.32"])
def test_a_lock_holds_what_every_index_has_and_nothing_else(name):
    manifest = STACKS[name]
    pinned = locked_versions(Path(manifest["lock_file"]).read_text())
    first = {item["requirement"].partition("==")[0] for item in manifest["first"]}
    assert not {"torch", "torchaudio", "torchvision", "triton", "triton-xpu", "vllm"} & set(pinned)
    assert not first & set(pinned)
    assert not [package for package in pinned if package.startswith("nvidia")]
    # The first line names the command that makes it, without this machine's places.
    head = Path(manifest["lock_file"]).read_text().splitlines()[1]
    assert "--generate-hashes" in head
    assert "://" not in head
    assert " /" not in head


@pytest.mark.parametrize("name", ["xpu", "xpu-0.32"])
def test_wheels_for_the_cards_need_no_compiler_and_fit_each_other(name):
    manifest = STACKS[name]
    assert not {"sources", "build", "oneapi", "patches", "driver"} & set(manifest)
    first = dict(item["requirement"].split("==") for item in manifest["first"])
    pinned = locked_versions(Path(manifest["lock_file"]).read_text())
    assert first["vllm"] == f"{manifest['engine']['version']}+xpu"
    assert {**pinned, **first}.items() >= manifest["verify"]["distributions"].items()
    # Kernels before 0.1.15 race, and those of this torch go with this runtime.
    assert (pinned["vllm-xpu-kernels"], first["torch"], pinned["intel-sycl-rt"]) == (
        "0.1.15.4",
        "2.14.0+xpu",
        "2026.1.1",
    )
    unknown = [item["requirement"] for item in manifest["first"] if not item.get("hashes")]
    assert unknown == [f"vllm=={first['vllm']}"]


def test_the_two_releases_differ_in_nothing_but_vllm_and_its_requirements():
    new, newer = (STACKS[name] for name in ("xpu", "xpu-0.32"))
    assert new["first"][:-1] == newer["first"][:-1]
    assert {key for key in new if new[key] != newer.get(key)} - {"source_file", "lock_file", "lock_sha256"} == {
        *("name", "title", "notes", "based_on", "engine", "first", "lock", "verify")
    }


def test_minimax_has_its_patches_from_git():
    patches = {patch["name"]: patch for patch in STACKS["lab-minimax"]["patches"]}
    assert list(patches) == [
        "vllm-active-promoted-minimax-89tps-20260520",
        "llm-scaler-active-promoted-minimax-89tps-20260520",
        "vllm-xpu-mamba-copy-pointer-uint64-20260606",
    ]
    assert all(patch["repo"] == "steveseguin/b70-optimization-lab" for patch in patches.values())
    packed = [name for name, patch in patches.items() if patch.get("encoding") == "gzip+base64"]
    assert packed == [name for name, patch in patches.items() if patch["path"].endswith(".patch.gz.b64")]
    assert CATALOGUE["minimax-m27-c1"]["stack"] == "lab-minimax"


def test_there_is_an_example_of_everything_that_is_no_plain_text_model():
    examples = load_catalogue([SHIPPED / "examples"], stacks=STACKS)
    ours = {name: profile for name, profile in examples.items() if name not in CATALOGUE}
    assert {profile["engine"]["task"] for profile in ours.values()} == {"generate", "embed", "score", "transcription"}
    assert {kind for profile in ours.values() for kind in profile["modalities"]} == {"text", "image", "video", "audio"}
    assert all(profile["status"] == "experiment" and not profile["evidence"] for profile in ours.values())
    listed = {
        profile["engine"]["online_quantization"]["method"]
        for profile in ours.values()
        if profile["engine"]["online_quantization"]
    }
    assert listed == {"fp8", "sym_int4"}


def test_there_is_an_example_of_every_kind_of_engine():
    """What profiles of a kind share is judged with its stack only where a profile extends it."""
    examples = load_catalogue([SHIPPED / "examples"], stacks=STACKS)
    assert {profile["engine"]["kind"] for profile in examples.values()} == set(KINDS)
