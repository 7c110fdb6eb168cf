# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch on the host in memory whose engine is a real one, or the record of a real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.llama_server import LLAMA_SERVER
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply
from unit.plugins.module_utils._slot.fake_host import BACKEND, LAYOUT, FakeHost, FakeHttp, request

# (path, body or None) -> (status, text)
Send = Callable[[str, "Mapping[str, Any] | None"], tuple[int, str]]
NAME = "tiny"
SETTINGS = {"ctx_size": 2048, "parallel": 2, "jinja": True}
PLACES = {"venv": "/opt/b70/stacks/cpu-1a2b3c4d5e/venv", "model_file": f"/models/{NAME}/tiny-a.gguf"}
CASES = (
    ("exact_ok", "Answer with the two letters OK and nothing more.", "exact", "OK"),
    ("copy", "Write these three words back to me unchanged: satin cobalt orbit", "exact", "satin cobalt orbit"),
    ("sum", "A box holds 3 red and 4 blue blocks. How many blocks is that? Give just the number.", "contains", "7"),
)


def command(port: int, settings: Mapping[str, Any] | None = None) -> list[str]:
    """The command line that a profile with these settings gets."""
    argv = LLAMA_SERVER.command(PLACES, "127.0.0.1", port, NAME)
    for key, value in sorted((settings or SETTINGS).items()):
        argv += LLAMA_SERVER.arguments(key, value, ())
    return argv


def llama_host(**changes: Any) -> FakeHost:
    """A host with one profile of llama-server, and its weights."""
    fake_host = FakeHost()
    cases = [
        {"name": name, "prompt": prompt, "max_tokens": 16, "compare": compare, "expected": expected}
        for name, prompt, compare, expected in CASES
    ]
    given: dict[str, Any] = {
        "engine__kind": LLAMA_SERVER.name,
        "engine__argv": command(18080),
        "engine__settings": SETTINGS,
        "engine__max_model_len": LLAMA_SERVER.context_length(SETTINGS),
        "canary__cases": cases,
        "canary__cached": True,
        "canary__burst": 2,
    }
    fake_host.render(NAME, **{**given, **changes})
    fake_host.put(PurePosixPath(PLACES["model_file"]), "GGUF")
    return fake_host


class Forwarding(FakeHttp):
    """The frontdoor is the one in memory; what the engine is asked is asked of whoever answers."""

    def __init__(self, fake_host: FakeHost, send: Send) -> None:
        super().__init__(fake_host)
        self._send = send

    def get(self, url: str, timeout_s: float) -> Reply:
        if not url.startswith(BACKEND):
            return super().get(url, timeout_s)
        return self._asked(url, None)

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        return self._asked(url, body)

    def _asked(self, url: str, body: Mapping[str, Any] | None) -> Reply:
        self._host.step()
        self._host.mono += 0.02
        status, text = self._send(url.removeprefix(BACKEND), body)
        return Reply(status, text)


def switched(fake_host: FakeHost, send: Send) -> dict[str, Any]:
    """The result of a switch to the profile."""
    effects = replace(fake_host.effects(), http=Forwarding(fake_host, send))
    return api.switch(effects, LAYOUT, request(NAME))


def key(path: str, body: Mapping[str, Any] | None) -> str:
    """What a request is known again by."""
    return f"{path} {json.dumps(body, sort_keys=True)}"
