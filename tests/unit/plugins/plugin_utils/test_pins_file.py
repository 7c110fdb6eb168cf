# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins_file
from ansible_collections.arcpro.b70.plugins.plugin_utils._pins import PinsError

A, B = "a" * 40, "b" * 40


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "b70-pins.yml")


def test_the_first_writes_and_everybody_reads_the_same(path: str):
    assert _pins_file.read(path).entries == {}
    first = _pins_file.add(path, "weights", {"o/n": _pins_file.seen("weights", A, "b70-1", "https://hub")})
    second = _pins_file.add(path, "weights", {"o/n": _pins_file.seen("weights", B, "b70-2", "https://hub")})
    assert first == second == _pins_file.read(path)
    assert second.value("weights", "o/n") == A
    entry = second.entry("weights", "o/n")
    assert entry is not None
    assert entry["host"] == "b70-1"
    assert os.listdir(os.path.dirname(path)) == ["b70-pins.yml"]


def test_what_is_known_is_not_written_again(path: str):
    Path(path).write_text(f"# mine\nweights: {{o/n: {A}}}\n")
    _pins_file.add(path, "weights", {"o/n": _pins_file.seen("weights", B, "b70-2", "https://hub")})
    assert Path(path).read_text().startswith("# mine\n")


def test_the_mode_stays_and_a_link_stays_a_link(tmp_path: Path):
    real, link = tmp_path / "real.yml", tmp_path / "link.yml"
    real.write_text("")
    real.chmod(0o600)
    link.symlink_to(real)
    _pins_file.add(str(link), "weights", {"o/n": _pins_file.seen("weights", A, "h", "u")})
    assert link.is_symlink()
    assert (real.stat().st_mode & 0o777, A in real.read_text()) == (0o600, True)


def test_many_at_once_agree_on_one(path: str):
    program = (
        "import sys\n"
        "from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins_file as f\n"
        "path, own = sys.argv[1:]\n"
        "entry = f.seen('weights', own * 40, own, 'u')\n"
        "print(f.add(path, 'weights', {'o/n': entry, f'o/{own}': entry}).value('weights', 'o/n'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, path]
    running = [
        subprocess.Popen([*command, own], stdout=subprocess.PIPE, text=True, env=environment) for own in "abcdef"
    ]
    said = {process.communicate(timeout=60)[0].strip() for process in running}
    assert said == {_pins_file.read(path).value("weights", "o/n")}
    assert set(_pins_file.read(path).values("weights")) == {"o/n", *(f"o/{own}" for own in "abcdef")}


def test_a_place_that_cannot_be_written_is_said_with_the_way_out(path: str, monkeypatch: pytest.MonkeyPatch):
    entry = {"o/n": _pins_file.seen("weights", A, "h", "u")}
    with pytest.raises(PinsError, match=r"this inventory is no file.* set b70_pins_file"):
        _pins_file.add("", "weights", entry)
    with pytest.raises(PinsError, match=r"there is no directory .*nowhere: make it, or set b70_pins_file"):
        _pins_file.add(path.replace("b70-pins", "nowhere/b70-pins"), "weights", entry)
    monkeypatch.setattr(os, "access", lambda *_arguments: False)
    with pytest.raises(PinsError, match="cannot be written: correct its mode, or set b70_pins_file"):
        _pins_file.add(path, "weights", entry)


def test_a_lock_that_is_held_is_waited_for_with_a_limit(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_pins_file, "LOCK_LIMIT_S", 0.2)
    handle = os.open(os.path.dirname(path), os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(PinsError, match="another process has held"):
            _pins_file.add(path, "weights", {"o/n": _pins_file.seen("weights", A, "h", "u")})
    finally:
        os.close(handle)
    assert not os.path.exists(path)


def test_an_inventory_that_is_a_directory_reads_the_file_without_a_word_or_a_group(path: str):
    (Path(path).parent / "hosts.yml").write_text("b70_hosts: {hosts: {h1: {}}}\n")
    _pins_file.add(path, "weights", {"o/n": _pins_file.seen("weights", A, "h1", "https://hub")})
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-inventory", "-i", os.path.dirname(path), "--graph"],
        env={**os.environ, "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true", "ANSIBLE_INVENTORY_ENABLED": "yaml"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (["@all:", "|--@ungrouped:", "|--@b70_hosts:", "|", "|--h1"], "")
