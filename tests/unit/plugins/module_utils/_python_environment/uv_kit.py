# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small wheels, an index that counts what it is asked, and a place for the real uv."""

from __future__ import annotations

import base64
import hashlib
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ansible_collections.arcpro.b70.plugins.module_utils._python_environment import plan
from ansible_collections.arcpro.b70.plugins.module_utils._python_environment.host import EnvironmentPaths

UV = str(Path(sys.executable).parent / "uv")
PYTHON = "/usr/bin/python3"
NOWHERE = "http://127.0.0.1:9/simple"


def wheel(folder: Path, name: str, version: str, tag: str = "py3-none-any", body: str = "x = 1\n") -> str:
    """Make a wheel in a folder; answers its sha256."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}\n")
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"])
    target = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return hashlib.sha256(target.read_bytes()).hexdigest()


class Server:
    """A web server over a folder that remembers what was asked of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_arguments):
                asked.append(self.path)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.folder = folder
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.simple = f"{self.url}/simple"

    def wheel(self, name: str, version: str, tag: str = "py3-none-any", body: str = "x = 1\n") -> str:
        """Offer a wheel in the index; answers its sha256."""
        return wheel(self.folder / "simple" / name, name, version, tag, body)

    def publish(self, name: str) -> None:
        """Have the index give the digests of a distribution's wheels, as most indexes do."""
        folder = self.folder / "simple" / name
        digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.whl"))}
        rows = [f'<a href="{file}#sha256={digest}">{file}</a>' for file, digest in digests.items()]
        (folder / "index.html").write_text("\n".join(rows))

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def place(tmp: Path, **changes) -> EnvironmentPaths:
    """Return a place below a folder, with the real uv, whose usual index answers nobody."""
    given = {
        "path": tmp / "env",
        "uv": UV,
        "cache": tmp / "cache/uv",
        "python_dir": tmp / "python",
        "timeout": 600.0,
        # one attempt for each address, and no configuration of this machine
        "variables": {"UV_HTTP_RETRIES": "0", "UV_DEFAULT_INDEX": NOWHERE, "HOME": str(tmp), "PATH": "/usr/bin:/bin"},
    }
    return EnvironmentPaths(**{**given, **changes})


def step(label: str, digest: str = "", **more) -> plan.InstallStep:
    """Return a step of one requirement."""
    text = f"{label} --hash=sha256:{digest}" if digest else label
    return plan.InstallStep(label, text, bool(digest), **more)
