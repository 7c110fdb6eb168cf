# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What evaluate.yml keeps of its benchmark of direct access between cards."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _host
from ansible_collections.arcpro.b70.plugins.module_utils._evaluate import host, peers, plan
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.peer_access import (
    PeerAccessScope,
    Proof,
    parse_proof,
)
from ansible_collections.arcpro.b70.plugins.modules import b70_evaluate

HERE = PeerAccessScope({"0000:03:00.0": "70.65.0", "0000:43:00.0": "70.65.0"}, "7.1.0", "26.35.39758.10-0")
NOW = "2026-11-27 22:00 UTC"
TWO = plan.HostTools(2, {}, "/stack/python", "xpu", "/s.py")
GOOD = '{"measures": {"peer_access.allreduce.16KiB": 1.5, "peer_access.alltoall.131072KiB": 20.0}}\n'
WRONG = "ValueError: allreduce of 16384 bytes: 3 of 8192 values of rank 1 are wrong"
RESET = "2026-11-27T22:01:00+00:00 b70 kernel: xe 0000:03:00.0: [drm] Tile0: GT0: Engine reset: engine_class=bcs"


def the_bench(here=TWO):
    (bench,) = plan.plan(here, only=["peer_access"])
    return bench


def test_it_runs_only_if_it_is_named_and_never_beside_an_engine():
    assert not [bench for bench in plan.plan(TWO) if bench.group == "peer_access"]
    bench = the_bench()
    assert bench.argv == ("/stack/python", "/s.py", "peer_access", "xpu", "2")
    assert (bench.environment, bench.reason) == ({"CCL_TOPO_P2P_ACCESS": "1"}, "")
    beside = plan.HostTools(2, {}, "/stack/python", "xpu", "/s.py", serves=True)
    assert the_bench(beside).reason == "may cost the cards that an engine uses"
    assert {
        bench.reason for bench in plan.plan(beside, only=["gemm", "collectives"]) if bench.tool != "1ccl_benchmark"
    } == {""}
    for alone in (plan.HostTools(1, {}, "/p", "xpu", "/s"), plan.HostTools(0, {}, "/p", "cpu", "/s")):
        assert the_bench(alone).reason == "needs two cards"


@pytest.mark.parametrize(
    ("output", "error", "reported", "fault"),
    [
        (GOOD, "", [], ""),
        (f'{{"error": "{WRONG}"}}', "ended with 1: x", [], WRONG),
        ("", "did not end within 600 s (evaluate_limit)", [], "did not end within 600 s (evaluate_limit)"),
        (GOOD, "", [f"the kernel reports: {RESET}"], f"the kernel reports: {RESET}"),
        ('{"measures": {}}', "", [], "nothing was measured"),
    ],
)
def test_the_verdict_is_kept_with_what_it_was_made_with(tmp_path, output, error, reported, fault):
    file = tmp_path / "b70/peer-access.json"
    during = []

    def measure():
        during.append(parse_proof(file.read_text()))
        return plan.rows_of(the_bench(), output, error)

    rows = peers.prove(the_bench(), measure, lambda: reported, file, HERE, NOW)
    # A host that goes down with its cards has proven nothing, whatever it had before.
    assert during == [Proof(HERE, "the benchmark did not end", NOW)]
    assert parse_proof(file.read_text()) == Proof(HERE, fault, NOW)
    assert any(row["level"] == "FAIL" for row in rows) is bool(fault and fault != "nothing was measured")
    assert file.stat().st_mode & 0o777 == 0o644


def test_the_kernel_has_a_say(monkeypatch):
    said = subprocess.CompletedProcess(
        [], 0, f"{RESET}\n2026-11-27T22:01:00+00:00 b70 kernel: usb 1-1: new device\n".encode(), b""
    )
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_more: said)
    assert host.card_faults(1.0) == [f"the kernel reports: {RESET}"]
    said.returncode, said.stderr = 1, b"No journal files were found."
    (told,) = host.card_faults(1.0)
    assert told.startswith("the kernel's log can't be read: ")
    assert told.endswith("No journal files were found.")


def test_the_place_is_read_from_the_host(tmp_path):
    card = tmp_path / "sys/bus/pci/devices/0000:03:00.0"
    card.mkdir(parents=True)
    for name, text in (("vendor", "0x8086"), ("device", "0xe223"), ("class", "0x030000")):
        (card / name).write_text(f"{text}\n")
    debug = tmp_path / "sys/kernel/debug/dri/0000:03:00.0/gt0/uc"
    debug.mkdir(parents=True)
    (debug / "guc_info").write_text("\tfound release version 70.65.0\n")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("7.1.0\n")
    status = tmp_path / "status"
    assert peers.place(tmp_path / "proc", tmp_path / "sys", status) == PeerAccessScope(
        {"0000:03:00.0": "70.65.0"}, "7.1.0", ""
    )
    status.write_text("Package: libze-intel-gpu1\nStatus: install ok installed\nVersion: 26.35.39758.10-0\n")
    assert peers.place(tmp_path / "proc", tmp_path / "sys", status).runtime == "26.35.39758.10-0"


def test_the_module_proves_it_on_request_and_predicts_that_it_would(tmp_path, monkeypatch):
    asked = []

    def run(bench, limit, environment):
        asked.append({**environment, **bench.environment}["CCL_TOPO_P2P_ACCESS"])
        return GOOD, ""

    cards = [{"number": number, "address": address} for number, address in enumerate(HERE.cards)]
    monkeypatch.setattr(_host, "cards", lambda _sysfs: cards)
    monkeypatch.setattr(_host, "other_cards", lambda _sysfs: [])
    monkeypatch.setattr(host, "stack_python", lambda *_given: "/stack/python")
    monkeypatch.setattr(host, "check_free", lambda: None)
    monkeypatch.setattr(host, "card_faults", lambda _since: [])
    monkeypatch.setattr(host, "run", run)
    monkeypatch.setattr(peers, "place", lambda: HERE)
    wanted = {
        "only": ["peer_access"],
        "skip": [],
        "group": {},
        "servers": {},
        "limit": 600,
        "while_served": False,
        "tool_dirs": [],
        "stack": "",
        "stack_root": "/opt/b70/stacks",
        "reference": {},
        "name": "host",
        "environment": {"CCL_TOPO_P2P_ACCESS": "0"},
        "environment_file": None,
        "fail_on": "FAIL",
        "warn_below": 0.95,
        "fail_below": 0.85,
        "state_dir": str(tmp_path / "state"),
    }
    assert [row["note"] for row in b70_evaluate.measure(wanted, True, str(tmp_path))["rows"]] == ["would be measured"]
    assert not (tmp_path / "state").exists()
    result = b70_evaluate.measure(wanted, False, str(tmp_path))
    assert (result["stops"], asked) == ([], ["1"])
    proof = parse_proof((tmp_path / "state/peer-access.json").read_text())
    assert proof is not None
    assert (proof.place, proof.fault) == (HERE, "")
