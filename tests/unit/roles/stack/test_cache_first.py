# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = (Path(__file__).parents[4] / "roles/stack/files/cache_first.py").read_text()


def run(tmp_path: Path, program: str) -> tuple[int, str, list[str]]:
    """Run the script around a stand-in for uv that notes its arguments; answers exit code, output and the notes."""
    calls = tmp_path / "calls"
    uv = tmp_path / "uv"
    note = f"open({str(calls)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')"
    uv.write_text(f"#!{sys.executable}\nimport sys\n{note}\n{program}")
    uv.chmod(0o755)
    command = [sys.executable, "-", str(uv), "pip", "install"]
    done = subprocess.run(command, input=SCRIPT, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines()


def test_what_the_cache_has_is_installed_without_the_network(tmp_path):
    code, output, calls = run(tmp_path, "")
    assert (code, calls) == (0, ["pip install --offline"])
    assert "from the cache" in output


def test_what_the_cache_lacks_is_installed_with_the_network_and_the_first_complaint_is_not_shown(tmp_path):
    code, output, calls = run(tmp_path, "sys.exit('not cached' if '--offline' in sys.argv else 0)")
    assert (code, calls) == (0, ["pip install --offline", "pip install"])
    assert "not cached" not in output


def test_a_failure_is_uvs_own(tmp_path):
    code, output, _calls = run(tmp_path, "print('no such version', file=sys.stderr); sys.exit(2)")
    assert code == 2
    assert output.count("no such version") == 1
