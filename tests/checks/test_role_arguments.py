# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text in the place of a mapping or a list, as a command line gives it, is refused before a host is looked at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("role", "words", "said"),
    [
        (
            "frontdoor",
            'frontdoor_sampling_defaults={"temperature":0.5}',
            "frontdoor_sampling_defaults is text and must be",
        ),
        ("frontdoor", "frontdoor_sampling_defaults=temperature=0.5", "frontdoor_sampling_defaults is text and must be"),
        ("frontdoor", "frontdoor_api_keys=alice=geheim", "frontdoor_api_keys is text and must be a mapping"),
        ("frontdoor", "frontdoor_model_aliases=gpt,other", "frontdoor_model_aliases is text and must be a list"),
        ("slot", "slot_env=A=geheim", "slot_env is text and must be a mapping"),
    ],
)
def test_it_is_refused_by_name(role: str, words: str, said: str, tmp_path: Path) -> None:
    task = {"ansible.builtin.include_role": {"name": f"arcpro.b70.{role}", "tasks_from": "preflight"}}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", "--check", str(tmp_path / "play.yml"), "-e", words],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode != 0
    assert said in " ".join(done.stdout.split()), done.stdout + done.stderr
    assert "geheim" not in done.stdout + done.stderr
