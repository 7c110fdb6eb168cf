# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chat page that ships is what its sources build."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "roles/frontdoor/files/chat"
BUNDLE = ROOT / "roles/frontdoor/files/frontdoor/src/frontdoor/chat"
FILES = ("app.css", "app.js", "chat.html", "licenses.txt")


def test_the_bundle_is_not_older_than_its_sources() -> None:
    names = [
        "build.mjs",
        "package-lock.json",
        "package.json",
        *sorted(f"src/{file.name}" for file in (SOURCES / "src").iterdir()),
    ]
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in names)).hexdigest()
    for name in ("app.css", "app.js"):
        assert f"Sources: sha256:{digest}" in (BUNDLE / name).read_text(), "run: make chat"


@pytest.mark.release
@pytest.mark.skipif(shutil.which("npm") is None, reason="only npm builds the page; the test above needs none")
def test_the_sources_build_the_bundle(tmp_path: Path) -> None:
    argv = ["sh", str(ROOT / "tests/tools/chat_page.sh"), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {*FILES}
    assert [name for name in FILES if (tmp_path / name).read_bytes() != (BUNDLE / name).read_bytes()] == []


def test_every_library_is_pinned_and_its_licence_is_kept() -> None:
    wanted = json.loads((SOURCES / "package.json").read_text())
    texts = (BUNDLE / "licenses.txt").read_text()
    locked = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
    for name, version in {**wanted["dependencies"], **wanted["devDependencies"]}.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), f"{name} is not pinned"
    for path, about in locked.items():
        assert not path or about["integrity"].startswith("sha512-"), f"{path} has no digest"
    for name, version in wanted["dependencies"].items():
        assert f"{name} {version}\n\n" in texts
        # nothing comes along whose licence is not there
        assert not locked[f"node_modules/{name}"].get("dependencies")


def test_the_page_loads_nothing_but_its_own_files() -> None:
    script, style = (BUNDLE / "app.js").read_text(), (BUNDLE / "app.css").read_text()
    assert not re.findall(r"\beval\(|new Function|importScripts|WebSocket|sendBeacon|EventSource\(", script)
    assert script.count("fetch(") == 1
    assert not re.findall(r"@import|url\(", style)
