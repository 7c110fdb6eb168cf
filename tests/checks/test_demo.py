# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

import demo


class FakeFrontdoor(BaseHTTPRequestHandler):
    """Answers like a frontdoor; ``content`` and ``code`` say how."""

    content = "I am tiny-a."
    code = 200
    asked: dict[str, Any]

    def reply(self, body: dict[str, Any]) -> None:
        self.send_response(self.code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self) -> None:
        self.reply({"data": [{"id": "tiny-a"}]})

    def do_POST(self) -> None:
        FakeFrontdoor.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply({"choices": [{"message": {"content": self.content}}]})

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(demo, "first_address", lambda inventory, group: "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeFrontdoor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield str(server.server_address[1])
    server.shutdown()
    server.server_close()


def test_the_last_lines_are_the_frontdoor_the_model_and_the_completion(
    port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(["--port", port]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"frontdoor: http://127.0.0.1:{port}/v1",
        "model: tiny-a",
        "completion: Who are you? -> I am tiny-a.",
    ]
    assert FakeFrontdoor.asked["model"] == "tiny-a"


def test_the_address_is_that_of_the_first_host(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = """{"_meta": {"hostvars": {
        "h2": {"ansible_host": "192.0.2.2"},
        "h1": {"ansible_host": {"__ansible_unsafe": "192.0.2.1"}, "more": {"a": 1}}
    }}}"""
    monkeypatch.setattr("demo.subprocess.run", lambda *_args, **_options: SimpleNamespace(stdout=listing))
    assert demo.first_address("lab.yml", "b70_hosts") == "192.0.2.1"


def test_an_empty_inventory_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "inventory_hosts", lambda inventory, group: {})
    with pytest.raises(SystemExit, match="make lab-up"):
        demo.first_address("lab.yml", "b70_hosts")


def test_an_empty_completion_is_no_success(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeFrontdoor, "content", " ")
    with pytest.raises(SystemExit, match="empty text"):
        demo.main(["--port", port])


def test_a_closed_frontdoor_is_told_with_its_reason(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeFrontdoor, "code", 503)
    with pytest.raises(SystemExit, match="answered 503"):
        demo.main(["--port", port])


def test_a_missing_frontdoor_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "first_address", lambda inventory, group: "127.0.0.1")
    with pytest.raises(SystemExit, match="cannot be reached"):
        demo.main(["--port", "1"])
