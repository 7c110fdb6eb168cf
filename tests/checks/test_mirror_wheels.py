# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role mirror brings wheels, on this machine, from sources that this test plays."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "b70-no-such-package"


ASKED: list[str] = []


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        ASKED.append(format % args)


def wheel(folder: Path, tag: str = "py3-none-any") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{NAME.replace('-', '_')}-9.9.9+xpu"
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 9.9.9+xpu\n")
        file.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")
    return path


@pytest.fixture
def www(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An empty index at /other, and one of a vendor at /whl."""
    root = tmp_path / "www"
    (root / "other").mkdir(parents=True)
    for tag in ("py3-none-any", "cp312-cp312-linux_x86_64"):
        wheel(root / "whl" / NAME, tag)
    ASKED.clear()
    handler = functools.partial(Handler, directory=str(root))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with contextlib.closing(server.socket):
        yield f"http://127.0.0.1:{server.server_port}", root
        server.shutdown()


class Mirror:
    """Runs the role's entry point `wheels`; pip knows the empty index only."""

    def __init__(self, folder: Path, base: str) -> None:
        self.wheels = folder / "mirror/wheels"
        self.wheels.mkdir(parents=True)
        self.folder, self.base = folder, base

    def __call__(self, *lists: dict[str, Any], **more: Any) -> subprocess.CompletedProcess[str]:
        variables = {
            "mirror_dir": str(self.wheels.parent),
            "mirror_key_home": str(self.folder / "home"),
            "mirror_requirements": list(lists),
            "__mirror_now": {"python": "3.11.2"},
            **more,
        }
        role = {"name": "arcpro.b70.mirror", "tasks_from": "wheels"}
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables}
        play["tasks"] = [{"name": "Bring wheels", "ansible.builtin.include_role": role}]
        (self.folder / "play.yml").write_text(json.dumps([play]))
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        pip = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{self.base}/other", "PIP_RETRIES": "0"}
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            "localhost,",
            str(self.folder / "play.yml"),
        ]
        return subprocess.run(
            command,
            cwd=ROOT,
            env={
                **plain,
                **pip,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "NO_COLOR": "1",
            },
            capture_output=True,
            text=True,
            timeout=480,
            check=False,
        )

    def names(self) -> list[str]:
        return sorted(path.name.partition("+")[2] for path in self.wheels.iterdir())


@pytest.fixture
def bring(tmp_path: Path, www: tuple[str, Path]) -> Mirror:
    return Mirror(tmp_path, www[0])


def test_what_pip_does_not_find_comes_from_the_manifests_index_by_its_digest(bring: Mirror, www: tuple[str, Path]):
    base, root = www
    digest = hashlib.sha256(next((root / "whl" / NAME).glob("*any.whl")).read_bytes()).hexdigest()
    right = {"name": "x", "lines": f"{NAME}==9.9.9+xpu --hash=sha256:{digest}", "index": f"{base}/whl"}
    done = bring(right)
    assert done.returncode == 0, done.stdout
    assert bring.names() == ["xpu-py3-none-any.whl"]
    again = bring(right)
    assert "changed=0" in again.stdout, again.stdout

    wrong = {**right, "lines": f"{NAME}==9.9.9+xpu --hash=sha256:{'0' * 64}"}
    for path in bring.wheels.iterdir():
        path.unlink()
    refused = bring(wrong)
    assert refused.returncode != 0
    assert "x cannot be had on localhost where pip looks" in " ".join(refused.stdout.split())
    assert bring.names() == []


def test_another_python_gets_its_own_wheels_and_a_name_without_a_digest_is_asked_for_at_one_place(
    bring: Mirror, www: tuple[str, Path]
):
    base, root = www
    next((root / "whl" / NAME).glob("*any.whl")).unlink()  # there is one for 3.12 only
    wanted = {"name": "x", "lines": f"{NAME}==9.9.9+xpu", "hashed": False, "index": f"{base}/whl"}
    assert bring(wanted).returncode != 0
    done = bring(wanted, mirror_python="3.12")
    assert done.returncode == 0, done.stdout
    assert bring.names() == ["xpu-cp312-cp312-linux_x86_64.whl"]
    assert f"GET /other/{NAME}/" not in "".join(ASKED)


def test_an_address_that_is_not_reached_is_named_with_what_to_do(bring: Mirror):
    nobody = "http://127.0.0.1:9/whl"
    done = bring({"name": "torch", "lines": f"{NAME}==9.9.9+xpu --hash=sha256:{'0' * 64}", "index": nobody})
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert (
        f"torch cannot be had on localhost where pip looks, nor at {nobody}. Let it reach that, or name a folder"
        in said
    )
