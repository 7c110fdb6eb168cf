# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frontdoor reads the file of keys and limits as the role writes it, and wrong limits are refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from checks.plays import ROOT, hosts, note, run_plays, said, write_notes

DIGEST = "sha256:" + "0" * 64
KEYS = {"alice": DIGEST, "team.bob": DIGEST}
LIMITS = {
    "alice": {"requests_per_minute": 60, "tokens_per_day": 2_000_000},
    "team.bob": {"may_load": True},
    "*": {"tokens_per_minute": 9},
}
WITH = "{'__frontdoor_digests': frontdoor_api_keys, '__frontdoor_limits': frontdoor_key_limits}"
TEMPLATE = ROOT / "templates/keys.toml.j2"
TEXT = f"lookup('arcpro.b70.rendered', '{TEMPLATE}', template_vars={WITH})"
READ = (
    "import sys; from frontdoor.policy.keys import parse_keys; keys, limits = parse_keys(sys.stdin.read()); "
    "print(sorted(keys), [sorted(limits), limits['alice'].requests_per_minute, limits['*'].tokens_per_minute, "
    "limits['team.bob'].may_load])"
)


def test_the_frontdoor_reads_what_the_role_writes(tmp_path: Path) -> None:
    wrong = {"carol": {}, "alice": {"tokens_per_hour": 5}, "team.bob": 7}
    tried = {"right": LIMITS, "wrong": wrong, "none": {}}
    role = {"name": "arcpro.b70.frontdoor", "tasks_from": "preflight", "public": True}
    tasks = [
        {"block": [{"ansible.builtin.include_role": role}], "rescue": [note("failed", "ansible_failed_result.msg")]},
        {**note("text", TEXT), "when": "noted is not defined"},
    ]
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    found = hosts(
        {name: {"frontdoor_key_limits": limits, "frontdoor_api_keys": KEYS} for name, limits in tried.items()}
    )
    # the port is somebody else's matter
    done = run_plays(tmp_path, [play, write_notes(tmp_path)], "--check", "-e", "__frontdoor_port=1", inventory=found)
    assert done.returncode == 0, done.stdout
    told = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in tried}
    assert "Not so: carol, team.bob, tokens_per_hour" in said(told["wrong"]["failed"])
    package = str(ROOT / "roles/frontdoor/files/frontdoor/src")
    for name, limited in (("right", "[['*', 'alice', 'team.bob'], 60, 9, True]"), ("none", "")):
        assert "failed" not in told[name]
        words = [sys.executable, "-c", READ if limited else READ.partition(", [")[0] + ")"]
        read = subprocess.run(
            words,
            input=told[name]["text"],
            env={"PYTHONPATH": package},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert read.stdout.strip() == f"['alice', 'team.bob'] {limited}".strip()
