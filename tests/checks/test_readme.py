# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of the README types its two ways to an own host, and nothing else, in an empty home.

What needs a network or a host is replaced: the clone by a copy, the download by the built tarball, the environment by
the README's own line for another ansible-core, and plays on hosts are read only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
OWN = ("ANSIBLE_", "PYTHONPATH", "VIRTUAL_ENV")


def typed(way: str) -> list[str]:
    """Return the commands of the block that follows a bold heading, without their comments."""
    block = README.read_text(encoding="utf-8").partition(f"**{way}")[2].split("```\n")[1]
    return [re.sub(r"\s+# .*", "", line) for line in block.splitlines()]


def played(commands: list[str], replaced: dict[str, str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run the commands one after the other, as far as they succeed."""
    for begin, instead in replaced.items():
        there = [number for number, command in enumerate(commands) if command.startswith(begin)]
        assert len(there) == 1, f"{begin} is in {len(there)} of the commands"
        commands[there[0]] = instead
    lines = [f"{command} --syntax-check" if " -i mine.yml " in command else command for command in commands]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    # By itself Ansible only warns of an inventory that is not there.
    environment |= {"HOME": str(home), "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true"}
    script = "\n".join(["set -ex", *lines])
    return subprocess.run(
        ["sh", "-c", script], cwd=home, env=environment, capture_output=True, text=True, timeout=540, check=False
    )


@pytest.mark.release
def test_the_way_from_a_checkout_is_complete(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "clone")
    (link,) = re.findall(r"^`(mkdir .* ln .*)`$", README.read_text(encoding="utf-8"), re.MULTILINE)
    done = played(typed("From a checkout"), {"git clone": "cp -r clone b70 && cd b70", "make venv": link}, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "profiles can be served on 2 cards" in done.stdout


@pytest.mark.release
def test_the_way_from_galaxy_is_complete(tarball: Path, tmp_path: Path) -> None:
    install = f"ansible-galaxy collection install --offline {tarball}"
    done = played(typed("From Galaxy"), {"ansible-galaxy collection install": install}, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "profiles can be served on 2 cards" in done.stdout


@pytest.mark.release
def test_a_step_that_is_missing_is_noticed(tarball: Path, tmp_path: Path) -> None:
    install = f"ansible-galaxy collection install --offline {tarball}"
    commands = [command for command in typed("From Galaxy") if not command.startswith("cp ")]
    done = played(commands, {"ansible-galaxy collection install": install}, tmp_path)
    assert done.returncode != 0
    assert "mine.yml" in done.stderr
