# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role mirror signs the records of its models so that a host can verify them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._weights.fetching.transports import FetchFault, Plain
from checks.plays import hosts, run_plays, said
from hub.server import Hub, serve
from unit.plugins.module_utils._weights import signed
from vendor.repository import keys

ROLE = {"name": "arcpro.b70.mirror", "tasks_from": "models"}
PLAY = {"hosts": "all", "gather_facts": False, "tasks": [{"name": "Sign", "ansible.builtin.include_role": ROLE}]}


def test_the_records_are_signed_once_and_again_after_a_change(tmp_path: Path) -> None:
    """A mirror with a model and the rest of a download, and one without models; then another model comes."""
    www, keyring = tmp_path / "www", tmp_path / "keyring.gpg"
    for name in ("model", ".begun.incoming"):
        (www / "models" / name).mkdir(parents=True)
        (www / "models" / name / ".b70-weights.json").write_text(signed.RECORD)
    with keys(tmp_path / "home") as ring:
        fingerprint = ring.make("B70 mirror")
        armoured = ring.public(fingerprint)
        subprocess.run(["gpg", "--batch", "--dearmor", "--output", keyring], input=armoured.encode(), check=True)
        cases = {"here": {"mirror_dir": str(www)}, "empty": {"mirror_dir": str(tmp_path / "empty")}}
        inventory = hosts({name: {**case, "mirror_key_home": str(ring.home)} for name, case in cases.items()})
        done = run_plays(tmp_path, [PLAY, PLAY], inventory=inventory)
        assert done.returncode == 0, done.stdout
        # The first run writes the list and its signature, the second nothing.
        assert "here : ok=11 changed=2" in said(done.stdout), done.stdout
        assert not (tmp_path / "empty").exists()
        sums = (www / "models/SHA256SUMS").read_text()
        assert sums == signed.SUMS
        (www / "models/second").mkdir()
        (www / "models/second/.b70-weights.json").write_text(signed.RECORD)
        with serve(Hub(www)) as server:
            spec = {"keyring": str(keyring), "accept_unsigned": False, "stall_s": 20}
            base = f"{server.storage_url}/store/models"
            assert set(Plain({**spec, "url": f"{base}/model"}, "").contents()["files"]) == set(signed.FILES)
            with pytest.raises(FetchFault, match="was changed after the mirror was filled"):
                Plain({**spec, "url": f"{base}/second"}, "").contents()
            done = run_plays(tmp_path, [PLAY], "--limit", "here", inventory=inventory)
            assert "changed=2" in done.stdout, done.stdout
            assert set(Plain({**spec, "url": f"{base}/second"}, "").contents()["files"]) == set(signed.FILES)
