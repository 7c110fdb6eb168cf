# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role mirror brings wheels, on this machine, from sources that this test plays."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import shlex
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any, ClassVar

from checks.plays import hosts, run_plays, said

NOBODY = "http://127.0.0.1:9/whl"
ROLE = {"name": "arcpro.b70.mirror", "tasks_from": "wheels"}
PLAY = {"gather_facts": False, "tasks": [{"name": "Bring wheels", "ansible.builtin.include_role": ROLE}]}


class Handler(http.server.SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def log_message(self, format: str, *args: Any) -> None:
        self.asked.append(format % args)


def wheel(index: Path, name: str, tag: str) -> str:
    """Write a wheel where an index has it, and return its digest."""
    stem = f"{name.replace('-', '_')}-9.9.9+xpu"
    path = index / name / f"{stem}-{tag}.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9.9+xpu\n")
        file.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_wheels_come_from_where_the_lists_say_by_their_digests_or_what_to_do_is_said(tmp_path: Path) -> None:
    """All cases at once, each for a mirror of its own; pip knows an empty index only."""
    www = tmp_path / "www"
    (www / "other").mkdir(parents=True)
    digest = wheel(www / "whl", "b70-pure", "py3-none-any")
    wheel(www / "whl", "b70-compiled", "cp312-cp312-linux_x86_64")
    Handler.asked.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(www)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    # In the place of the environment that the role makes.
    python = tmp_path / "home/pip/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    (python.parent / "pip").touch()

    pure = {"name": "pure", "lines": f"b70-pure==9.9.9+xpu --hash=sha256:{digest}", "index": f"{base}/whl"}
    damaged = {**pure, "lines": f"b70-pure==9.9.9+xpu --hash=sha256:{'0' * 64}"}
    compiled = {"name": "compiled", "lines": "b70-compiled==9.9.9+xpu", "hashed": False, "index": f"{base}/whl"}
    lists: dict[str, dict[str, Any]] = {
        "right": pure,
        "damaged": damaged,
        "other_python": compiled,
        "that_python": {**compiled},
        "unreached": {**damaged, "name": "torch", "index": NOBODY},
        "again": pure,
    }
    cases: dict[str, dict[str, Any]] = {
        name: {
            "mirror_dir": str(tmp_path / ("right" if name == "again" else name)),
            "mirror_key_home": str(tmp_path / "home"),
            "mirror_requirements": [one],
            "__mirror_now": {"python": "3.11.2"},
        }
        for name, one in lists.items()
    }
    cases["that_python"]["mirror_python"] = "3.12"
    for case in cases.values():
        Path(case["mirror_dir"], "wheels").mkdir(parents=True, exist_ok=True)
    # No setting of this machine's pip.
    pip = {name: "" for name in os.environ if name.startswith(("PIP_", "UV_"))}
    pip |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{base}/other", "PIP_RETRIES": "0"}
    plays = [{**PLAY, "hosts": "all:!again"}, {**PLAY, "hosts": "again"}]
    done = run_plays(tmp_path, plays, "--forks", "5", inventory=hosts(cases), env=pip)
    server.shutdown()
    server.server_close()

    wheels = {
        name: [path.name.partition("+")[2] for path in Path(case["mirror_dir"], "wheels").iterdir()]
        for name, case in cases.items()
    }
    assert {name for name, found in wheels.items() if found} == {"right", "again", "that_python"}, done.stdout
    assert wheels["right"] == ["xpu-py3-none-any.whl"]
    assert wheels["that_python"] == ["xpu-cp312-cp312-linux_x86_64.whl"]
    results = {
        words[0]: dict(word.split("=") for word in words[2:])
        for words in map(str.split, done.stdout.partition("PLAY RECAP")[2].splitlines()[1:])
        if words and words[0] in cases
    }
    assert {name for name, result in results.items() if result["failed"] != "0"} == {
        "damaged",
        "other_python",
        "unreached",
    }
    assert results["again"]["changed"] == "0"
    # A name without a digest is asked for at one place.
    asked = "".join(Handler.asked)
    assert "GET /other/b70-pure/" in asked
    assert "GET /other/b70-compiled/" not in asked
    told = said(done.stdout)
    assert "pure cannot be had on damaged where pip looks" in told
    assert f"torch cannot be had on unreached where pip looks, nor at {NOBODY}. Let it reach that, or name a" in told
