# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a slot, down to what systemd says about the units."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS, kind_of_engine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.production import examined
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, stack_id
from ansible_collections.arcpro.b70.plugins.plugin_utils._quoting import quote
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import rendering
from unit import shipped

STACKS = load_stacks()
CATALOGUE = shipped.profiles()
C8 = "gemma4-12b-it-int4-autoround-c8"
SETTINGS = {
    "slot": "main",
    "config_dir": "/etc/b70-vllm-slot",
    "unit_dir": "/etc/systemd/system",
    "tmpfiles_dir": "/etc/tmpfiles.d",
    "run_dir": "/run/b70",
    "state_dir": "/var/lib/b70",
    "lib_dir": "/opt/b70/lib",
    "bin_dir": "/opt/b70/bin",
    "frontdoor_url": "http://127.0.0.1:8000",
    "models_dir": "/mnt/fast-ai/llm-models",
    "stacks_dir": "/opt/b70/stacks",
    "cache_dir": "/mnt/fast-ai/vllm-cache-exp",
    "hf_home": "/mnt/fast-ai/llm-cache/hf",
    "user": "b70",
    "group": "b70",
    "backend_port": 18080,
    "legacy_units": ["minimax-vllm.service"],
    "stacks": STACKS,
}


def rendered(profiles=None, **changes) -> dict[str, str]:
    """Return file name -> content, without the program."""
    files = everything(profiles, **changes)
    assert len({item["path"] for item in files}) == len(files)
    files = [item for item in files if not item["path"].startswith("/opt/b70")]
    assert {item["mode"] for item in files} == {"0644"}
    return {Path(item["path"]).name: item["content"] for item in files}


def everything(profiles=None, **changes) -> list[dict[str, str]]:
    return rendering.render_slot(CATALOGUE if profiles is None else profiles, {**SETTINGS, **changes})


def resolved(name: str, **changes):
    return json.loads(rendered({name: CATALOGUE[name]}, **changes)[f"{name}.json"])


COMPILE = '{"cudagraph_mode":"PIECEWISE","use_inductor_graph_partition":true,"compile_sizes":[1]}'


def test_the_command_line_of_the_production_profile():
    argv = resolved(C8)["engine"]["argv"]
    assert argv == [
        f"/opt/b70/stacks/{stack_id(STACKS['xpu'])}/venv/bin/vllm",
        "serve",
        "/mnt/fast-ai/llm-models/gemma4-12b-it-int4-autoround-intel",
        *("--host", "127.0.0.1", "--port", "18080"),
        *("--served-model-name", "gemma4-12b-it-int4-autoround"),
        *("--allowed-media-domains", "none.invalid"),
        *("--compilation-config", '{"cudagraph_mode":"NONE"}'),
        *("--distributed-executor-backend", "mp"),
        *("--dtype", "bfloat16"),
        "--enable-prefix-caching",
        *("--gpu-memory-utilization", "0.95"),
        *("--kv-cache-dtype", "auto"),
        *("--limit-mm-per-prompt", '{"image":4}'),
        *("--max-model-len", "32768"),
        *("--max-num-batched-tokens", "4096"),
        *("--max-num-seqs", "8"),
        *("--pipeline-parallel-size", "1"),
        *("--shutdown-timeout", "10"),
        *("--tensor-parallel-size", "4"),
        "--trust-remote-code",
    ]


def test_the_command_line_of_the_baseline():
    argv = resolved("minimax-m27-c1")["engine"]["argv"]
    assert argv[2:] == [
        "/mnt/fast-ai/llm-models/minimax-m2.7-int4-autoround@1afac074ecf7c3c4504c68b83d127506f8a7e5a4",
        *("--host", "127.0.0.1", "--port", "18080"),
        *("--served-model-name", "minimax-m27-int4"),
        *("--allowed-media-domains", "none.invalid"),
        *("--block-size", "256"),
        *("--compilation-config", COMPILE),
        *("--distributed-executor-backend", "mp"),
        *("--dtype", "float16"),
        "--no-enable-prefix-caching",
        *("--gpu-memory-utilization", "0.95"),
        *("--max-model-len", "32768"),
        *("--max-num-batched-tokens", "512"),
        *("--max-num-seqs", "1"),
        *("--shutdown-timeout", "10"),
        *("--tensor-parallel-size", "4"),
        "--trust-remote-code",
    ]


def test_the_resolved_profile_has_what_the_host_reads():
    profile = resolved(C8)
    keys = "schema name title status status_reason accepted_rules modalities slot unit stack cards model"
    # The runtime that a stack of wheels uses is the host's, and some hang several cards.
    keys = keys.replace(" model", " runtimes model")
    last = "engine frontdoor canary accuracy liveness fingerprint examined unit_sha256"
    assert list(profile) == f"{keys} {last}".split()
    assert profile["unit_sha256"] == hashlib.sha256(rendered({C8: CATALOGUE[C8]})[profile["unit"]].encode()).hexdigest()
    assert profile["unit"] == f"b70-slot-main-{C8}.service"
    assert profile["stack"]["dir"] == f"/opt/b70/stacks/{profile['stack']['id']}"
    assert profile["engine"]["backend_url"] == "http://127.0.0.1:18080"
    assert profile["engine"]["max_model_len"] == 32768
    assert profile["engine"]["env"]["HF_HOME"] == "/mnt/fast-ai/llm-cache/hf"
    assert [row["matches"] for row in profile["runtimes"]["refused"]] == [r"^26\.27(\.|$)"]
    told = {key: value for key, value in profile["frontdoor"].items() if value is not None}
    limits = {"max_active_generations": 8, "queue_timeout_s": 0, "backend_timeout_s": 7200}
    assert told == {**limits, "event_log": True}
    cases = {case["name"]: case for case in profile["canary"]["cases"]}
    assert [case["compare"] for case in cases.values()] == ["exact"] * 4 + ["regex"] + ["contains"] * 3
    assert [name for name, case in cases.items() if case["image"] is not None] == ["red_image", "blue_image"]
    assert [name for name, case in cases.items() if case["long"] is not None] == ["long_prefill"]
    assert not {"VLLM_HOST", "VLLM_PORT"} & set(profile["engine"]["env"])


def test_the_slot_as_a_whole_is_told_to_the_host_once():
    told = json.loads(rendered(refused_statuses=["blocked"])["slot.json"])
    assert told.pop("kinds") == json.loads(json.dumps({name: asdict(kind.pool) for name, kind in KINDS.items()}))
    assert told == {
        "schema": 1,
        "slot": "main",
        "legacy_units": ["minimax-vllm.service"],
        "refused_statuses": ["blocked"],
    }


def test_a_model_may_have_an_absolute_path():
    profile = copy.deepcopy(CATALOGUE[C8])
    profile["model"]["directory"] = "/elsewhere/model/"
    assert resolved_path(profile) == "/elsewhere/model"


def resolved_path(profile) -> str:
    path: str = json.loads(rendered({C8: profile})[f"{C8}.json"])["model"]["path"]
    return path


@pytest.mark.parametrize(("accepts", "asked"), [([], True), (["peer-access"], False)])
def test_direct_access_between_cards_asks_the_host_for_its_proof(accepts, asked):
    profile = copy.deepcopy(CATALOGUE[C8])
    profile["engine"]["collectives"]["memory"] = "p2p"
    profile["accepts_rules"] = [*profile["accepts_rules"], *accepts]
    found = rendered({C8: profile})[f"{C8}.json"]
    assert json.loads(found)["engine"]["env"]["CCL_TOPO_P2P_ACCESS"] == "1"
    read = parse_profile(found, "x").peer_access
    assert bool(read) is asked
    assert not asked or "accepts_rules: [peer-access]" in read
    assert "peer_access" not in resolved(C8)


def test_the_fingerprint_is_the_same_wherever_things_are():
    elsewhere = dict.fromkeys(("models_dir", "stacks_dir", "cache_dir", "hf_home"), "/srv/x")
    assert resolved(C8)["fingerprint"] == resolved(C8, **elsewhere, backend_port=1, user="other")["fingerprint"]
    assert resolved(C8)["fingerprint"].startswith("sha256:")
    assert len(resolved(C8)["fingerprint"]) == 7 + 64


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        ("engine/settings/max_num_seqs", 9, False),
        ("engine/settings/shutdown_timeout", 30, True),
        ("engine/env/CCL_TOPO_P2P_ACCESS", "0", False),
        ("engine/served_model_name", "other", True),
        ("engine/start_timeout_s", 1, True),
        ("frontdoor/queue_timeout_s", 5, True),
        ("frontdoor/chat_template_kwargs", {"a": 1}, False),
        ("model/revision", "abc", False),
        ("title", "other", True),
        ("modalities", ["image", "text"], True),
    ],
)
def test_the_fingerprint_follows_what_can_change_a_token(path, value, same):
    profile = copy.deepcopy(CATALOGUE[C8])
    *parents, last = path.split("/")
    node = profile
    for key in parents:
        node = node[key]
    node[last] = value
    after = json.loads(rendered({C8: profile})[f"{C8}.json"])["fingerprint"]
    assert (after == resolved(C8)["fingerprint"]) is same


@pytest.mark.parametrize("path", ["frontdoor/max_active_generations", "canary/repeats", "accuracy/threshold"])
def test_what_the_gate_examines_beside_the_fingerprint_has_a_hash(path):
    profile = copy.deepcopy(CATALOGUE[C8])
    part, key = path.split("/")
    profile[part][key] += 1
    before, after = resolved(C8), json.loads(rendered({C8: profile})[f"{C8}.json"])
    assert before["fingerprint"] == after["fingerprint"]
    assert before["examined"] != after["examined"]
    assert before["examined"] == examined(after | {"title": "other"} | {part: before[part]})


def test_the_fingerprint_follows_stack_and_site():
    before = resolved(C8)["fingerprint"]
    patched = {**STACKS, "xpu": {**STACKS["xpu"], "patches": []}}
    environment = {**STACKS, "xpu": {**STACKS["xpu"], "env": {}}}
    assert before != resolved(C8, stacks=patched)["fingerprint"]
    assert before != resolved(C8, stacks=environment)["fingerprint"]
    assert before != resolved(C8, env={"X": "1"})["fingerprint"]


def names_in(unit: str, directive: str) -> list[str]:
    return [line.split("=", 1)[1] for line in unit.splitlines() if line.startswith(f"{directive}=")]


def test_no_unit_of_an_engine_names_another_and_the_controller_names_none():
    units = {name: text for name, text in rendered().items() if name.endswith(".service")}
    controller = units.pop("b70-controller-main.service")
    # It never keeps an engine from starting or stopping, and no end of it stops one.
    assert names_in(controller, "After") == ["network-online.target b70-openai-frontdoor.service"]
    assert not any(names_in(controller, directive) for directive in ("Conflicts", "Requires", "BindsTo", "Before"))
    for name in sorted(units):
        assert (names_in(units[name], "Conflicts"), names_in(units[name], "After")) == ([], ["network-online.target"])


STACK_ID = stack_id(STACKS[CATALOGUE[C8]["stack"]])
CACHE = f"/mnt/fast-ai/vllm-cache-exp/{STACK_ID}/{CATALOGUE[C8]['engine']['cache_key']}"
MADE = f"{CACHE} {CACHE}/home"
PYTHON = "/usr/bin/python3 -I -B /opt/b70/lib/b70slot"


@pytest.mark.parametrize(
    ("host", "own", "watts"), [("", 210, 210), (210, None, 210), (180, 210, 180), ("230", 210, 210)]
)
def test_the_lower_one_of_two_power_caps_is_in_the_unit(host, own, watts):
    profile = {**CATALOGUE[C8], "power_cap_w": own}
    files = rendered({C8: profile}, power_cap_w=host)
    unit, resolved = files[f"b70-slot-main-{C8}.service"].splitlines(), json.loads(files[f"{C8}.json"])
    kept = "--unit %n --keep /run/b70/power"
    assert f"ExecStartPre=+{PYTHON}/power.py set {kept} --watts {watts} --cards 0,1,2,3" in unit
    assert f"ExecStopPost=-+{PYTHON}/power.py restore {kept}" in unit
    assert resolved["power_cap_w"] == watts
    # Only a start applies another one, and no token depends on it.
    assert f"X-PowerCapWatts={watts}" in resolved["engine"]["directives"]
    assert resolved["fingerprint"] == json.loads(rendered()[f"{C8}.json"])["fingerprint"]


def test_a_host_without_a_cap_and_an_engine_without_cards_have_none_in_their_units():
    assert "power.py" not in rendered()[f"b70-slot-main-{C8}.service"]
    units = {name: text for name, text in rendered(power_cap_w=210).items() if name.endswith(".service")}
    without = {name for name, text in units.items() if "power.py" not in text}
    no_cards = {f"b70-slot-main-{name}.service" for name, profile in CATALOGUE.items() if not profile["cards"]}
    assert without == {"b70-controller-main.service", *no_cards}


@pytest.mark.parametrize("watts", [100, 291])
def test_a_cap_of_a_host_out_of_range_is_refused(watts):
    with pytest.raises(ValueError, match=r"slot_power_cap_w is .*; it is 160 to 290"):
        rendered(power_cap_w=watts)


def test_each_replica_caps_its_own_cards():
    profile = {**CATALOGUE[C8], "power_cap_w": 210, "replicas": 2, "cards": 1}
    profile["engine"] = {**profile["engine"], "devices": None}
    files = rendered({C8: profile})
    for number in range(2):
        unit = files[f"b70-slot-main-{C8}@{number}.service"]
        assert f"--watts 210 --cards {number}\n" in unit


def test_the_unit_of_the_production_profile():
    unit = rendered()[f"b70-slot-main-{C8}.service"]
    for line in (
        "Description=b70 slot main: Gemma 4 12B IT INT4 AutoRound c8 32K image+text",
        f"Documentation=file:/etc/b70-vllm-slot/profiles/{C8}.json",
        "Type=exec",
        "User=b70",
        f"EnvironmentFile=/etc/b70-vllm-slot/profiles/{C8}.env",
        "KillSignal=SIGINT",
        "ExecStartPost=-+/usr/bin/systemctl kill --signal=URG --kill-whom=main b70-controller-main.service",
        "ExecStopPost=-+/usr/bin/systemctl kill --signal=URG --kill-whom=main b70-controller-main.service",
        "KillMode=mixed",
        "TimeoutStopSec=240",
        "Restart=always",
        "RestartPreventExitStatus=203",
        "RemoveIPC=yes",
        "IPAddressDeny=any",
        "IPAddressAllow=localhost",
        f"ExecStartPre=-{PYTHON}/caches.py --stack {STACK_ID} --cards --root {CACHE} {MADE}",
        "CapabilityBoundingSet=",
        "ReadWritePaths=/mnt/fast-ai/vllm-cache-exp /mnt/fast-ai/llm-cache/hf",
        "WantedBy=multi-user.target",
        r'    --limit-mm-per-prompt "{\"image\":4}" ' + "\\",
    ):
        assert line in unit.splitlines(), line
    for absent in (
        "PrivateDevices",
        "PrivateUsers",
        "MemoryDenyWriteExecute",
        "ProtectClock",
        "DevicePolicy",
        "/bin/sh",
    ):
        assert absent not in unit


def test_the_kill_signal_is_the_profiles():
    profile = copy.deepcopy(CATALOGUE[C8])
    profile["engine"]["kill_signal"] = "SIGTERM"
    assert "KillSignal=SIGTERM" in rendered({C8: profile})[f"b70-slot-main-{C8}.service"]


def test_the_controller_is_tied_to_no_engine_and_may_write_nothing_of_the_kernels_but_one_drivers_files():
    lines = rendered()["b70-controller-main.service"].splitlines()
    # The boot does not wait for it, and no number of its ends is too many.
    for line in ("Type=exec", "ExecStart=/opt/b70/bin/b70ctl run", "StartLimitIntervalSec=0", "Restart=always"):
        assert line in lines
    assert "WantedBy=multi-user.target" in lines
    assert "ProtectKernelTunables=yes" in lines
    assert [line for line in lines if line.startswith("ReadWritePaths=")] == ["ReadWritePaths=-/sys/bus/pci/drivers/xe"]


def test_the_program_runs_as_rendered(tmp_path):
    places = {"lib_dir": str(tmp_path / "lib"), "bin_dir": str(tmp_path / "bin"), "run_dir": str(tmp_path / "run")}
    places |= {"config_dir": str(tmp_path / "etc"), "state_dir": str(tmp_path / "state")}
    files = [item for item in everything(**places) if item["path"].startswith((places["lib_dir"], places["bin_dir"]))]
    for item in files:
        path = Path(item["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(item["content"])
        path.chmod(int(item["mode"], 8))
    program = [sys.executable, "-I", str(tmp_path / "bin/b70ctl"), "history", "--json"]
    answer = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout) == {"slot": "main", "switches": [], "records": []}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"load no-such root\n")
        subprocess.run([*program[:3], "admin"], stdin=theirs.fileno(), capture_output=True, check=True)
        told = json.loads(ours.recv(4096))
    assert told == {"exit": 64, "message": "no-such is not a profile of slot main"}


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("plain", "plain"),
        ("a b", '"a b"'),
        ("", '""'),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ("${HOME}", "$${HOME}"),
        ("'", '"\'"'),
        ('"', '"\\""'),
        ("\\", "\\\\"),
        ("\\n", "\\\\n"),
        ("a\nb", "a\\nb"),
        ("a\tb", "a\\tb"),
        (";", '";"'),
        ("a;b", '"a;b"'),
        ("#", "#"),
        ('{"image":4}', '"{\\"image\\":4}"'),
        ("ü", "ü"),
    ],
)
def test_arguments_are_quoted_for_systemd(word, quoted):
    assert quote(word) == quoted


def test_the_environment_file_names_origins():
    lines = rendered()["minimax-m27-c1.env"].splitlines()
    for name, origin in {
        "CCL_KVS_IFACE": "profile _defaults (engine.collectives.interface)",
        "ZE_AFFINITY_MASK": "profile _b70-xpu (engine.devices)",
        "GLOO_SOCKET_IFNAME": "profile _defaults (engine.collectives.interface)",
        "VLLM_XPU_USE_LLM_SCALER_MOE": "profile minimax-m27-c1",
        "LD_LIBRARY_PATH": "stack lab-minimax",
        "HF_HOME": "slot main",
    }.items():
        index = next(index for index, line in enumerate(lines) if line.startswith(f"{name}="))
        assert lines[index - 1] == f"# from {origin}"


def test_the_directories_of_the_next_boot():
    assert rendered()["b70-slot-main.conf"].splitlines()[1:] == [
        "d /run/b70 0755 root root -",
        "d /run/b70/main 0755 root root -",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slot": "a-b"}, "lower-case letters and digits"),
        ({"backend_port": 0}, "1 to 65535"),
        ({"models_dir": "relative"}, "models_dir must be an absolute path"),
        ({"models_dir": "/a b"}, "models_dir must be an absolute path"),
        ({"user": ""}, "user must be text"),
        ({"stacks": []}, "mappings"),
        ({"modelsdir": "/x"}, 'unknown slot setting "modelsdir"; did you mean "models_dir"?'),
        ({"stacks": {}}, "there is no stack manifest"),
    ],
)
def test_wrong_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        rendered(**change)


def test_rendering_is_the_same_twice_and_in_any_order():
    shuffled = {name: CATALOGUE[name] for name in reversed(CATALOGUE)}
    assert rendered() == rendered(shuffled)


ODD = '{"a":"b c","d":["%n","$$","${X}"],"e":"\\\\ \\" \' ; # ü"}'


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_every_unit(tmp_path):
    profiles = {name: copy.deepcopy(profile) for name, profile in CATALOGUE.items()}
    profiles[C8]["title"] = '100% "odd" $title; \\ # ü'
    profiles[C8]["model"]["directory"] = "dir with space/50% $x"
    profiles[C8]["engine"]["settings"]["chat_template"] = "{% if a %}\n\t'x' \"y\" \\n ${HOME} ; # %h\n"
    profiles[C8]["engine"]["settings"]["hf_overrides"] = json.loads(ODD)
    # With a program that exists there is nothing left to complain about.
    program = tmp_path / "stacks" / stack_id(STACKS["xpu"]) / "venv/bin/vllm"
    for name in {profile["stack"] for profile in CATALOGUE.values()}:
        own = kind_of_engine(STACKS[name].get("engine") or {}).program
        program = tmp_path / "stacks" / stack_id(STACKS[name]) / "venv/bin" / own
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/true\n")
        program.chmod(0o755)
    units = []
    for name, text in rendered(profiles, stacks_dir=str(tmp_path / "stacks")).items():
        if name.endswith(".service"):
            (tmp_path / name).write_text(text)
            units.append(str(tmp_path / name))
    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    absent = ("/bin/b70ctl is not", "/usr/bin/podman is not", "/usr/sbin/haproxy is not")
    said = [line for line in answer.stderr.splitlines() if "b70-s" in line]
    assert not [line for line in said if not any(word in line for word in absent)]


def test_the_record_of_the_weights_is_in_the_resolved_profile_and_in_its_fingerprint():
    name, directory = "minimax-m27-c1", "minimax-m2.7-int4-autoround@1afac074ecf7c3c4504c68b83d127506f8a7e5a4"

    def on_a_host(**found):
        return json.loads(rendered({name: CATALOGUE[name]}, weights={directory: found})[f"{name}.json"])

    before, one = resolved(name), on_a_host(at=directory, record="1" * 64)
    assert (before["model"].get("record"), len(one["model"]["record"])) == (None, 64)
    assert parse_profile(json.dumps(one), "x").model.record == one["model"]["record"]
    other = on_a_host(at=directory, record="2" * 64)
    assert len({profile["fingerprint"] for profile in (before, one, other)}) == 3
    # Where the same files stand is not what they are.
    by_hand = on_a_host(at="minimax-m2.7-int4-autoround", record="1" * 64)
    assert by_hand["engine"]["argv"][2] == "/mnt/fast-ai/llm-models/minimax-m2.7-int4-autoround"
    assert by_hand["fingerprint"] == one["fingerprint"]
