# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _oneapi

ROOT = Path("/opt/intel/oneapi")
COMPILER = "/opt/intel/oneapi/compiler/2025.3"
GOOD = {"PATH": f"{COMPILER}/bin:/usr/bin", "LD_LIBRARY_PATH": f"{COMPILER}/lib", "CMPLR_ROOT": COMPILER}


def run(script: Path, environment: dict[str, str] | None = None) -> str:
    argv = _oneapi.capture_argv(str(script))
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout


def test_only_what_the_script_sets_is_captured(tmp_path, monkeypatch):
    script = tmp_path / "vars.sh"
    script.write_text(
        'echo a greeting\nCMPLR_ROOT="/x y"; export CMPLR_ROOT\nprivate=1\n'
        'PATH="/x/bin:$PATH"; export PATH\nexport EMPTY=\n'
    )
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "1")
    captured = _oneapi.parse(run(script))
    assert captured == {"CMPLR_ROOT": "/x y", "PATH": f"/x/bin:{_oneapi.CLEAN['PATH']}", "EMPTY": ""}


def test_the_script_is_sourced_without_arguments_and_its_path_is_no_program(tmp_path):
    script = tmp_path / "va'r $(touch pwned).sh"
    script.write_text('export SEEN="$# ${BASH_SOURCE[0]}"\n')
    assert _oneapi.parse(run(script)) == {"SEEN": f"0 {script}"}
    assert not (tmp_path / "pwned").exists()


def test_a_script_that_fails_is_a_failure(tmp_path):
    script = tmp_path / "vars.sh"
    script.write_text("return 3\n")
    with pytest.raises(subprocess.CalledProcessError):
        run(script)


def test_functions_and_values_with_line_breaks_do_not_break_the_reading():
    assert _oneapi.parse("A=1\nB=2\0BASH_FUNC_x%%=() { :; }\0_=/usr/bin/env\0SHLVL=0\0C=3=4\0") == {
        "A": "1\nB=2",
        "C": "3=4",
    }


def test_a_good_environment_passes():
    _oneapi.check(GOOD, ROOT, "2025.3", ["PATH", "LD_LIBRARY_PATH", "CMPLR_ROOT"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"CMPLR_ROOT": ""}, "did not set CMPLR_ROOT"),
        ({"LIBRARY_PATH": "/opt/intel/oneapi/compiler/2026.0/lib"}, "LIBRARY_PATH names .*compiler/2026.0, another"),
        ({"CMAKE_PREFIX_PATH": "/a:/opt/intel/oneapi/compiler/latest"}, "CMAKE_PREFIX_PATH names .*compiler/latest"),
        ({"PATH": "/usr/bin"}, "PATH does not name"),
        ({"A": "1\n2"}, "A has control characters"),
    ],
)
def test_a_wrong_environment_is_refused(change, why):
    with pytest.raises(_oneapi.CaptureProblem, match=why):
        _oneapi.check({**GOOD, **change}, ROOT, "2025.3", ["CMPLR_ROOT"])


def test_the_file_is_quoted_for_systemd_and_says_where_each_value_is_from():
    text = _oneapi.text({"A": 'x "y" $z \\'}, {"SYCL_HOME": COMPILER}, f"{COMPILER}/env/vars.sh", "2025.3")
    assert f'# from {COMPILER}/env/vars.sh\nA="x \\"y\\" \\$z \\\\"\n' in text
    assert f'# from oneapi_environment\nSYCL_HOME="{COMPILER}"\n' in text


def test_releases_are_directories_in_the_order_of_their_numbers(tmp_path):
    for name in ("2025.10", "2025.3", "2026.0", "notes"):
        (tmp_path / "compiler" / name).mkdir(parents=True)
    (tmp_path / "compiler/latest").symlink_to("2026.0")
    assert _oneapi.releases(tmp_path) == ["2025.3", "2025.10", "2026.0"]
    assert _oneapi.releases(tmp_path / "nowhere") == []
