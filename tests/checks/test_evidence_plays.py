# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plays about records, with two hosts that are folders of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import INDEX, LOCK, Store
from checks.plays import play, play_all, said
from unit.plugins.plugin_utils._evidence.fleet import benchmark, fleet

PROFILE = "gemma4-12b-it-int4-autoround-c8"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Two hosts with records."""
    for host, records in fleet().items():
        for one in records:
            Store(tmp_path / "hosts" / host).write(one)
    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "ansible_become": False,
        "evidence_records_dir": f"{tmp_path}/hosts/{{{{ inventory_hostname }}}}",
    }
    file = tmp_path / "fleet" / "hosts.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"b70_hosts": {"hosts": {host: {} for host in fleet()}, "vars": settings}}))
    return file


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_records_are_copied_once_and_shown(inventory: Path, tmp_path: Path) -> None:
    records = inventory.parent / "records"
    done = play("collect_evidence", inventory=str(inventory))
    assert done.returncode == 0, done.stdout
    assert "5 new records copied" in done.stdout
    kept = files(records)
    page = kept.pop("index.html").decode()
    own = (INDEX, LOCK)  # what a host keeps for itself
    assert {name: text for name, text in files(tmp_path / "hosts").items() if Path(name).name not in own} == kept
    assert "8 records of 2 hosts" in page
    show = ("show_models", {"b70_model": PROFILE})
    again = play_all(tmp_path, ("collect_evidence", {}), show, inventory=str(inventory))
    assert again.returncode == 0, again.stdout
    assert again.stdout.count("changed=0") == 3
    assert "recorded:" not in again.stdout
    # Also for a localhost that stands in no inventory, the folder is the one beside the inventory.
    (records / "index.html").unlink()
    assert play("report_evidence", inventory=str(inventory)).returncode == 0
    assert (records / "index.html").read_text() == page
    Store(records / "b70-01").write(benchmark("2026-11-23", 1.0, profile=PROFILE))
    shown = play("show_models", f"b70_model={PROFILE}", inventory=str(inventory))
    assert "recorded: benchmark passed on b70-01, 2026-11-23: 1126.0 tok/s" in said(shown.stdout)


def test_check_mode_predicts_and_writes_nothing(inventory: Path) -> None:
    done = play("collect_evidence", inventory=str(inventory), check=True)
    assert done.returncode == 0, done.stdout
    assert "3 new records would be copied" in done.stdout
    assert not (inventory.parent / "records").exists()
