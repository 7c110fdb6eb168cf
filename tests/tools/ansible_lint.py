# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-lint, with one syntax check of all playbooks and roles in the place of one process for each.

A process takes a second of a processor, nearly all of it to start, and there are more than sixty files. Where the check
of all of them fails, ansible-lint checks each, and names what is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansiblelint.__main__ import _run_cli_entrypoint
from ansiblelint.runner import Runner

LIMIT_S = 600
_check_each = Runner._run_syntax_check_phase


def is_sound(playbooks: Sequence[str], roles: Sequence[str]) -> bool:
    """Tell whether Ansible can read these playbooks and roles."""
    tasks = [{"ansible.builtin.import_role": {"name": role}} for role in roles]
    with tempfile.TemporaryDirectory() as folder:
        every = Path(folder) / "roles.yml"
        every.write_text(json.dumps([{"hosts": "localhost", "tasks": tasks}]))
        argv = ["ansible-playbook", "--inventory", "localhost,", "--syntax-check", *playbooks, str(every)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
    return done.returncode == 0


def check_all(runner: Runner, matches: list[Any]) -> Any:
    """Take the place of the phase of ansible-lint that checks each file."""
    files = runner._collect_syntax_check_files()
    found = {kind: [str(file.path.resolve()) for file in files if file.kind == kind] for kind in ("playbook", "role")}
    return files if is_sound(found["playbook"], found["role"]) else _check_each(runner, matches)


if __name__ == "__main__":
    Runner._run_syntax_check_phase = check_all  # type: ignore[assignment,method-assign]
    sys.argv[0] = "ansible-lint"
    _run_cli_entrypoint()
