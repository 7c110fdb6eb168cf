# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the collection on the oldest and the newest ansible-core that it promises; the others run on one between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from checks.plays import ROOT

OLDEST = str(yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["requires_ansible"]).removeprefix(">=")[:4]
NEWEST = "2.21"
UV = str(Path(sys.executable).parent / "uv")
pytestmark = pytest.mark.release


def pythons() -> Iterator[str]:
    """Yield the Pythons of this machine that the newest ansible-core runs on, those of pyenv among them."""
    folders = [*map(Path, os.environ["PATH"].split(":")), *Path("~/.pyenv/versions").expanduser().glob("3.1[23].*/bin")]
    for python in [folder / name for name in ("python3.13", "python3.12") for folder in folders]:
        if python.exists() and subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0:
            yield str(python)


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def ansible(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the commands of an ansible-core; the newest ones need Python 3.12."""
    place = tmp_path_factory.mktemp(f"core-{request.param}") / "venv"
    python = next(pythons(), None)
    assert python, "ansible-core 2.20 and newer need Python 3.12 or 3.13, and this machine has neither: install one"
    for words in (
        ("venv", "--quiet", "--python", python, str(place)),
        ("pip", "install", "--quiet", "--python", str(place), f"ansible-core~={request.param}.0"),
    ):
        subprocess.run([UV, *words], check=True, timeout=600)
    return place / "bin"


def run(ansible: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "HOME": str(ansible.parent),
        "PATH": f"{ansible}:/usr/bin:/bin",
    }
    return subprocess.run(
        [str(ansible / words[0]), *words[1:]],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=480,
        check=False,
    )


def test_every_playbook_is_read(ansible: Path) -> None:
    books = sorted(str(file) for file in (ROOT / "playbooks").glob("*.yml"))
    inventory = ("-i", "inventory/example.yml", "-e", "profile=x")
    done = run(ansible, "ansible-playbook", *inventory, "--syntax-check", *books)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("playbook: ") == len(books)


def test_models_are_listed(ansible: Path) -> None:
    done = run(ansible, "ansible-playbook", "-i", "localhost,", "playbooks/show_models.yml", "-e", "cards=2")
    assert done.returncode == 0, done.stdout
    assert "qwen38-27b-int4-tp2-image" in done.stdout


def test_a_mistake_is_told_before_a_host_is_reached(ansible: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("[b70_hosts]\none ansible_host=192.0.2.1 frontdoor_port=abc frontdoor_prot=1\n")
    done = run(ansible, "ansible-playbook", "-i", str(tmp_path / "hosts"), "playbooks/site.yml", "--check")
    assert done.returncode == 2, done.stdout
    assert "did you mean frontdoor_port?" in done.stdout
    assert "frontdoor_port is text (abc) and must be a whole number." in done.stdout
