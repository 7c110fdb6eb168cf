# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of stack and product."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import examine
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.checks import product
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.checks import stack as stacks
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Level, Look, Output
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.registry import CHECKS
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import locked_versions
from unit.plugins.module_utils._doctor.hosts import (
    BY_ID,
    MANIFEST,
    SHIPPED,
    STACK,
    FakeEffects,
    captured,
    judge,
    out,
    profile,
    site,
    stack,
)

RECORD = Look("record", STACK["dir"])
FIT = Look("extensions", STACK["dir"])
RIGHT: dict[str, str] = MANIFEST["verify"]["distributions"]


def inside(**changed: Any) -> Output:
    answer = {
        "torch": "2.11.0+xpu", "vllm": "0.20.1", "oneccl": "2021.17.2", "platform": "xpu", "xccl": True, "errors": {},
        "xpu": {"available": True, "count": 2, "names": ["Intel(R) Arc(TM) Pro B70 Graphics"] * 2},
    }  # fmt: skip
    return out("a line that an import printed\n" + json.dumps({**answer, **changed}))


def asked(where: Any) -> Any:
    return stacks.asked(where, STACK)


def test_stacks():
    assert judge("stacks", site()).level is Level.PASS
    gone = judge("stacks", site(stacks=[]))
    assert (gone.level, gone.summary) == (Level.FAIL, f"big needs stack {STACK['id']}, which is not installed")
    cut = {**STACK, "complete": False, "reason": "it has no fingerprint.json: its installation was interrupted"}
    assert "interrupted" in judge("stacks", site(stacks=[cut])).summary
    assert judge("stacks", site(stacks=[STACK, {**cut, "id": "cpu-0"}])).level is Level.WARN
    assert judge("stacks", site(stacks=[], wanted=[])).level is Level.SKIP
    assert "see the check stacks" in BY_ID["stack-files"].waived(site(stacks=[cut]))


def test_files_of_the_stack():
    good = {"files": 33000, "problems": [], "distributions": RIGHT}
    assert judge("stack-files", site(), (RECORD, good)).level is Level.PASS
    found = judge("stack-files", site(), (RECORD, {**good, "problems": ["vllm: a.py is missing", "b"]}))
    assert found.level is Level.FAIL
    assert found.summary.endswith(f"{STACK['id']}: vllm: a.py is missing and 1 more")


def test_versions_against_the_tested_matrix():
    def found(**changed: str):
        return judge("versions", site(), (RECORD, {"distributions": {**RIGHT, **changed}}))

    assert found().level is Level.PASS
    other = found(transformers="5.10.2")
    assert (other.level, other.evidence) == (
        Level.WARN, (f"{STACK['id']}: transformers is 5.10.2, tested with 5.7.0",)
    )  # fmt: skip
    bad = found(torch="2.13.0.dev20260520+xpu")
    assert bad.level is Level.FAIL
    assert "duplicate handler assertion" in bad.summary
    assert "all-reduce" in found(oneccl="2022.1").summary
    assert "races" in found(**{"vllm-xpu-kernels": "0.1.14.1"}).summary
    elsewhere = judge("versions", site(system={"id": "debian", "version": "12"}), (RECORD, {"distributions": RIGHT}))
    assert elsewhere.evidence == (f"{STACK['id']}: the system is debian 12, tested on Ubuntu 24.04",)


@pytest.mark.parametrize("name", [name for name, stack in SHIPPED.items() if "lock_file" in stack])
def test_no_stack_that_is_shipped_is_known_not_to_work(name: str):
    manifest = SHIPPED[name]
    first = dict(item["requirement"].split("==") for item in manifest.get("first", []))
    have = {
        **locked_versions(Path(manifest["lock_file"]).read_text()),
        **first,
        **manifest["verify"].get("distributions", {}),
    }
    installed = stack(name)
    where = site(stacks=[installed], wanted=[profile(stack=installed)])
    assert judge("versions", where, (Look("record", installed["dir"]), {"distributions": have})).level is Level.PASS


def test_nobody_looks_for_an_environment_in_a_stack_that_is_an_image() -> None:
    installed = stack("vllm-openai-xpu-0.30.0")
    where = site(cards=1, stacks=[installed], wanted=[profile(stack=installed)])
    found = {finding["id"]: finding for finding in examine.examine(where, FakeEffects({}), CHECKS, 20)}
    for name in ("stack-files", "versions", "native-extensions", "torch-xpu"):
        assert "every stack that is used is a container image" in found[name]["summary"]


@pytest.mark.parametrize("name", SHIPPED)
def test_no_check_breaks_on_a_shipped_stack(name: str):
    """Over its manifest as it is, with the stack there and with it missing, where nothing answers."""
    for installed in (stack(name), stack(name, complete=False, reason="interrupted")):
        where = site(stacks=[installed], wanted=[profile(stack=installed)], settings={"default_stack": name})
        for finding in examine.examine(where, FakeEffects({}), CHECKS, 20):
            assert "this check failed" not in finding["summary"], finding


def test_extensions():
    fit = {"torch": "2.11.0+xpu", "looked_at": 9, "misfits": []}
    assert judge("native-extensions", site(), (FIT, fit)).level is Level.PASS
    misfit = {"extension": "vllm_xpu_kernels/_C.abi3.so", "problem": "undefined symbol: torch::Library::_def (_ZN5)",
              "library": "libtorch_cpu.so"}  # fmt: skip
    found = judge("native-extensions", site(), (FIT, {"torch": "2.11.0+xpu", "looked_at": 9, "misfits": [misfit]}))
    assert found.level is Level.FAIL
    for word in ("vllm_xpu_kernels/_C.abi3.so", "torch 2.11.0+xpu", "torch::Library::_def", "libtorch_cpu.so"):
        assert word in found.summary
    assert found.fix.startswith(
        "vllm_xpu_kernels was built for another torch: build it from source against torch 2.11.0+xpu"
    )


def test_torch_platform_and_collectives():
    where = site()
    for check in ("torch-xpu", "vllm-platform", "collectives"):
        assert judge(check, where, (asked(where), inside())).level is Level.PASS, check
    one = {"available": True, "count": 1, "names": ["Intel(R) Arc(TM) Pro B70 Graphics"]}
    assert "sees 1 of 2 cards" in judge("torch-xpu", where, (asked(where), inside(xpu=one))).summary
    assert judge("collectives", where, (asked(where), inside(xccl=False))).level is Level.FAIL
    wrong = judge("vllm-platform", where, (asked(where), inside(platform="cpu")))
    assert (wrong.level, "'cpu', it should be 'xpu'" in wrong.summary) == (Level.FAIL, True)
    broken = inside(errors={"torch": "ImportError: libze_loader.so.1"}, xpu=None)
    assert "libze_loader.so.1" in judge("torch-xpu", where, (asked(where), broken)).summary
    assert judge("vllm-platform", where, (asked(where), broken)).level is Level.FAIL
    with pytest.raises(LookupError, match="did not end within 45 s"):
        judge("vllm-platform", where, (asked(where), Output(problem="python did not end within 45 s")))


def test_an_engine_that_is_a_program_of_its_own():
    llama = stack("llama-sycl")
    where = site(stacks=[llama], wanted=[profile(stack=llama)])
    command = stacks.devices_of(where, llama)
    assert command.argv == (f"{llama['dir']}/venv/bin/llama-server", "--list-devices")
    two = "Available devices:\n  SYCL0: Intel(R) Graphics [0xe223]\n  SYCL1: Intel(R) Graphics [0xe223]\n"
    assert judge("engine-program", where, (command, Output(0, two))).level is Level.PASS
    one = judge("engine-program", where, (command, Output(0, two.partition("  SYCL1")[0])))
    assert (one.level, "sees 1 of 2 cards" in one.summary) == (Level.FAIL, True)
    broken = judge("engine-program", where, (command, Output(127, err="libsycl.so.8: cannot open shared object file")))
    assert (broken.level, "libsycl.so.8" in broken.summary) == (Level.FAIL, True)
    for check in ("native-extensions", "vllm-platform", "torch-xpu", "collectives"):
        assert judge(check, where).level is Level.SKIP, check
    assert judge("engine-program", site()).level is Level.SKIP


def test_a_stack_on_which_a_verified_engine_runs_is_not_imported_again():
    serving = site(serving="big")
    assert json.loads(asked(serving).argv[-1]) == {"torch": True, "vllm": False}
    slot = (Look("slot"), {"verified": True})
    assert judge("vllm-platform", serving, slot).evidence == (f"{STACK['id']}: a verified engine runs on it",)
    assert judge("vllm-platform", serving, (Look("slot"), {"verified": False})).level is Level.SKIP
    cpu = replace(serving, manifests={"lab-minimax": {**MANIFEST, "device": "cpu"}})
    assert asked(cpu) is None
    deep = replace(serving, settings={**serving.settings, "deep": True})
    assert json.loads(asked(deep).argv[-1])["vllm"] is True


def test_the_stack_is_asked_in_the_engines_environment():
    where = site(wanted=[profile(engine={"env": {"LD_LIBRARY_PATH": "/x", "HF_HUB_OFFLINE": "0"}, "argv": []})])
    command = asked(where)
    assert command.as_user
    assert dict(command.env)["LD_LIBRARY_PATH"] == "/x"
    assert dict(command.env)["HF_HUB_OFFLINE"] == "1"
    unused = asked(site(wanted=[]))
    assert dict(unused.env)["LD_LIBRARY_PATH"].split(":")[0] == f"{STACK['dir']}/venv/lib"


def test_units():
    found = judge("units", site(), (product.UNITS, out(captured("units.txt"))))
    assert (found.level, found.summary) == (Level.FAIL, "b70-slot-main-tiny-a.service failed")
    assert found.evidence == ("b70-slot-main-tiny-a.service loaded failed failed b70 slot main: tiny-a",)
    assert "journalctl -u b70-slot-main-tiny-a.service" in found.fix
    assert judge("units", site(), (product.UNITS, out("b70-x.service loaded active running X\n"))).level is Level.PASS


def test_a_restart_is_due_after_an_update_of_a_library():
    assert judge("restarts", site(), (product.OUTDATED, {})).level is Level.PASS
    zlib, expat = "/usr/lib/x86_64-linux-gnu/libz.so.1.3", "/usr/lib/x86_64-linux-gnu/libexpat.so.1.9.1"
    services = {"b70-openai-frontdoor.service": [zlib], "b70-slot-main-big.service": [expat, zlib]}
    found = judge("restarts", site(), (product.OUTDATED, services))
    assert (found.level, found.summary) == (
        Level.WARN,
        f"a restart is due because of {expat} and 1 more: b70-openai-frontdoor.service, b70-slot-main-big.service",
    )
    assert found.evidence[0] == f"b70-openai-frontdoor.service uses {zlib}, which was replaced"
    assert "recycle" in BY_ID["restarts"].fix


ENGINE = {"unit": "b70-slot-main-big.service", "state": "active (running)", "healthy": True, "restarts": 0}
INFO: dict[str, Any] = {
    "phase": "serving", "open": True, "reason": "", "engine": ENGINE, "enabled_units": [ENGINE["unit"]],
    "legacy_units": [],
    "interrupted": None, "verified": True, "verified_at": "2026-06-07T09:00:00Z", "profile": "big", "drift": None,
    "profiles": [{"name": "big", "status": "production", "title": ""}],
}  # fmt: skip


def replica(index: int, *, is_open: bool = True) -> dict[str, Any]:
    unit = {**ENGINE, "unit": f"b70-slot-main-big@{index}.service"}
    told = {"open": is_open, "verified": is_open, "reason": "" if is_open else "its process is gone"}
    return {
        "index": index,
        "backend_url": f"http://127.0.0.1:{18080 + index}",
        "cards": [index],
        **told,
        "engine": unit,
    }


@pytest.mark.parametrize(
    ("changed", "level", "word"),
    [
        ({}, Level.PASS, "big is served"),
        ({"legacy_units": ["minimax-vllm.service"]}, Level.FAIL, "minimax-vllm.service"),
        ({"interrupted": {"id": "x"}}, Level.WARN, "interrupted"),
        ({"phase": "verifying", "engine": {**ENGINE, "healthy": False}}, Level.WARN, "a switch is in progress"),
        ({"engine": None}, Level.FAIL, "should run and does not"),
        ({"engine": None, "enabled_units": []}, Level.WARN, "nothing starts at boot"),
        ({"engine": None, "enabled_units": [], "phase": "failed"}, Level.FAIL, "the last switch failed"),
        ({"engine": {**ENGINE, "healthy": False}}, Level.FAIL, "/health"),
        ({"verified": False}, Level.FAIL, "not verified"),
        ({"drift": "runs a, rendered is b"}, Level.WARN, "rendered is b"),
        ({"engine": {**ENGINE, "restarts": 3}}, Level.WARN, "restarted 3 times"),
        ({"degraded": True, "replicas": [replica(0), replica(1, is_open=False)]}, Level.FAIL, "1 of 2 replicas"),
        ({"degraded": True, "replicas": [replica(0), replica(1, is_open=False)]}, Level.FAIL, "big@1.service"),
        ({"degraded": False, "replicas": [replica(0), replica(1)]}, Level.PASS, "big is served"),
        ({"failed": True, "msg": "the state file is of another schema"}, Level.FAIL, "another schema"),
    ],
)
def test_the_slot(changed: dict[str, Any], level: Level, word: str):
    found = judge("slot", site(), (Look("slot"), {**INFO, **changed}))
    assert found.level is level
    assert word in found.summary


def test_quarantine():
    note = {
        "slot": "main", "since": "2026-06-07T09:00:00Z", "boot_id": "421e78f0-1c4e", "profile": "big",
        "symptom": "device_lost", "line": "UR_RESULT_ERROR_DEVICE_LOST", "switch_id": "s", "evidence": "/e",
    }  # fmt: skip
    assert judge("quarantine", site(), (Look("slot"), {**INFO, "quarantine": None})).level is Level.PASS
    held = judge("quarantine", site(), (Look("slot"), {**INFO, "quarantine": note}))
    assert held.level is Level.FAIL
    for word in ("2026-06-07T09:00:00Z", "device_lost", "big", "/e", "clear-quarantine"):
        assert word in held.summary
    assert held.evidence[0] == "log: UR_RESULT_ERROR_DEVICE_LOST"


def test_the_frontdoor():
    look = Look("http", "http://127.0.0.1:8000/status")
    body = {"open": True, "phase": "serving", "model_slot": {"name": "big"}, "frontdoor": {"active_generations": 1}}

    def found(**answer: Any):
        return judge("frontdoor", site(), (look, {"status": 200, "body": "", "error": "", **answer}))

    assert found(body=json.dumps(body)).level is Level.PASS
    shut = found(status=503, body=json.dumps({**body, "open": False, "reason": "a switch runs"}))
    assert (shut.level, shut.summary) == (Level.WARN, "the frontdoor answers and is closed: a switch runs")
    wrong = {**body, "frontdoor": {"keys_error": "keys.toml: the key 'bob' is not"}}
    keys = found(status=200, body=json.dumps(wrong))
    assert (keys.level, keys.evidence[0]) == (Level.WARN, "keys.toml: the key 'bob' is not")
    wrong = {**body, "frontdoor": {"settings_error": "tls: tls.key: no key"}}
    assert found(body=json.dumps(wrong)).evidence[0] == "tls: tls.key: no key"
    waits = found(body=json.dumps({**body, "frontdoor": {"restart_needed": ["listen.port"]}}))
    assert (waits.level, "listen.port" in waits.summary) == (Level.WARN, True)
    assert "Connection refused" in found(status=0, error="[Errno 111] Connection refused").summary
    assert "not answered by the frontdoor" in found(body="<html>").summary


def test_profiles_weights_and_caches():
    info = (Look("slot"), INFO)
    assert judge("profiles", site(), info).level is Level.PASS
    broken = [{"name": "x", "status": "unreadable", "title": "x.json: engine is missing"}]
    assert judge("profiles", site(), (Look("slot"), {**INFO, "profiles": broken})).level is Level.FAIL
    look = Look("weights", "/mnt/fast-ai/llm-models/big")
    assert judge("weights", site(), (look, {"state": "complete", "reason": ""})).level is Level.PASS
    cut = judge("weights", site(), (look, {"state": "incomplete", "reason": "lacks model-3.safetensors"}))
    assert (cut.level, "lacks model-3" in cut.evidence[0]) == (Level.FAIL, True)
    assert judge("weights", site(wanted=[])).level is Level.SKIP
    # What an engine elsewhere loads is not this host's.
    remote = profile("remote", cards=0, model={"path": ""})
    found = judge("weights", site(wanted=[remote]))
    assert (found.level, found.summary) == (Level.PASS, "remote needs no weights: its engine is elsewhere")
    assert (
        judge("weights", site(wanted=[remote, profile()]), (look, {"state": "incomplete", "reason": "x"})).level
        is Level.FAIL
    )
    rows = [{"path": "/a", "problem": ""}, {"path": "/b", "problem": "the file system is mounted read-only"}]
    found = judge("cache-directories", site(), (Look("cache-directories"), rows))
    assert found.summary == "the user b70 cannot write to /b: the file system is mounted read-only"
    assert judge("cache-directories", site(account=None)).level is Level.SKIP


def test_a_bare_host_is_not_judged_by_what_it_should_not_have():
    bare = site(cards=0, wanted=[], stacks=[], installed=False, account=None)
    for check in BY_ID.values():
        if check.needs_product:
            assert "nothing of arcpro.b70 is installed" in check.waived(bare), check.id
