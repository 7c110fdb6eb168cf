# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the real fetcher of each pinned release makes of the domains and the variable that every engine is given."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.vllm import NO_DOMAIN
from tools import engines

SCRIPT = """
import json, sys
from vllm.multimodal.media.base import MediaIO
from vllm.multimodal.media.connector import MediaConnector

class Bytes(MediaIO):
    def load_bytes(self, data):
        return data.decode()
    def load_base64(self, media_type, data):
        return data
    def load_file(self, filepath):
        return "a file"

answers = []
for domains, url in json.load(sys.stdin):
    try:
        answers.append(MediaConnector(allowed_media_domains=domains).load_from_url(url, Bytes(), fetch_timeout=5))
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
print("answers " + json.dumps(answers))
"""


class Handler(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Location", "/secret")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secret")

    def log_message(self, format: str, *arguments: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """An address that no request may make an engine ask, and what was asked there."""
    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Recording", (Handler,), {"asked": asked})) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}", asked
        found.shutdown()


@pytest.mark.parametrize("version", engines.VERSIONS)
def test_a_release_fetches_nothing_and_follows_nowhere(server: tuple[str, list[str]], version: str) -> None:
    engines.prepare()
    url, asked = server
    questions = [
        # an empty list means everything, which is why another one is given
        [[], f"{url}/everything"],
        [[NO_DOMAIN], f"{url}/secret"],
        [[NO_DOMAIN], "data:text/plain;base64,c2VjcmV0"],
        [["127.0.0.1"], f"{url}/named"],
        [["127.0.0.1"], f"{url}/moved"],
    ]
    path = os.pathsep.join(str(engines.PLACE / name) for name in (version, "gguf"))
    done = subprocess.run(
        [str(engines.PLACE / "base" / "bin" / "python"), "-B", "-c", SCRIPT],
        input=json.dumps(questions),
        env={**os.environ, "PYTHONPATH": path, "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=engines.LIMIT_S,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("answers ")] or [done.stderr[-3000:]]
    everything, refused, inline, named, moved = json.loads(line.removeprefix("answers "))
    assert (everything, inline, named) == ("secret", "c2VjcmV0", "secret")
    assert "must be from one of the allowed domains" in refused
    assert moved == "secret", "what came with the redirect itself is all there is"
    assert asked == ["/everything", "/named", "/moved"]
