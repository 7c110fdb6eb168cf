# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGHUP: settings, keys and certificate are read anew, and what is wrong leaves those that count alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kit import Client, Engine, free_port, in_two_events, on_loop, until

from frontdoor.cli import serve
from frontdoor.config import AT_START, Config, from_table, load, taken
from frontdoor.observability.events import EventLog

CHAT = "/v1/chat/completions"
UI = "https://ui.example"


class Door:
    """A frontdoor in this process that reads its file again at SIGHUP."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.path, self.log, self.port = folder / "frontdoor.toml", folder / "log", free_port()
        self.tls: ssl.SSLContext | None = None
        self._engine = engine
        self.write()

    def write(self, more: str = "", port: int = 0) -> None:
        self.path.write_text(
            f'[listen]\nhost = "127.0.0.1"\nport = {port or self.port}\n[slot]\nstate_file = ""\n'
            f'[backend]\nurl = "{self._engine.url}"\nmetrics_interval_s = 3600\n{more}'
        )

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for line in self.log.read_text().splitlines() if (event := json.loads(line))["event"] == name]

    async def reload(self) -> dict[str, Any]:
        """Have it read its files again; what it says of that."""
        before = [len(self.events(name)) for name in ("settings_read", "settings_unusable")]
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: [len(self.events(name)) for name in ("settings_read", "settings_unusable")] != before)
        return (await self.ask("GET", "/status")).json["frontdoor"]

    async def client(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls))

    async def ask(self, *words: Any) -> Any:
        client = await self.client()
        answer = await client.ask(*words)
        client.leave()
        return answer


@contextlib.asynccontextmanager
async def running(door: Door) -> AsyncIterator[None]:
    stop = asyncio.Event()
    with open(door.log, "wb") as log:
        life = asyncio.create_task(serve(load(str(door.path)), EventLog(log.fileno()), stop, str(door.path)))
        await until(lambda: life.done() or door.log.stat().st_size)
        yield
        stop.set()
        assert await life == 0


@pytest.fixture
def engine() -> Engine:
    return Engine()


@on_loop
async def test_new_settings_count_and_a_running_stream_goes_on(tmp_path: Path, engine: Engine) -> None:
    await engine.start()
    step = asyncio.Event()
    door = Door(tmp_path, engine)
    async with running(door):
        engine.script = in_two_events(step)
        stream, kept = await door.client(), await door.client()
        stream.request("POST", CHAT, b"{}")
        await stream.reader.readuntil(b"one")
        before = (await kept.ask("GET", "/status")).json["frontdoor"]
        door.write(
            f'[cors]\nallow_origins = ["{UI}"]\n[limits]\nmax_body_bytes = 1000\n[pages]\nchat = "off"\n'
            '[admission]\nmax_queued = 7\n[request]\nmodel_aliases = ["other"]\n'
        )
        now = await door.reload()
        assert (now["settings_error"], now["restart_needed"], now["max_queued"]) == ("", [], 7)
        assert now["request"]["model_aliases"] == ["other"]
        assert now["build"] != before["build"]
        assert now["started_at"] == before["started_at"]
        # on a connection of before too
        assert (await kept.ask("GET", "/chat", None, f"Origin: {UI}")).header("Access-Control-Allow-Origin") == UI
        assert (await kept.ask("GET", "/chat")).status == 404
        assert (await kept.ask("POST", CHAT, b"x" * 1001)).status == 413
        step.set()
        await stream.reader.readuntil(b"two")
        stream.leave()
    await engine.kill()


@on_loop
async def test_a_wrong_file_leaves_the_settings_alone_and_is_named(tmp_path: Path, engine: Engine) -> None:
    await engine.start()
    door = Door(tmp_path, engine)
    door.write(f'[cors]\nallow_origins = ["{UI}"]\n')
    async with running(door):
        build = (await door.ask("GET", "/status")).json["frontdoor"]["build"]
        for wrong, named in (
            ("[cors]\nallow_origin = 1\n", "cors.allow_origin: unknown key; did you mean allow_origins?"),
            ("[cors\n", "not valid TOML"),
        ):
            door.write(wrong)
            now = await door.reload()
            assert now["settings_error"] == door.events("settings_unusable")[-1]["error"]
            assert str(door.path) in now["settings_error"]
            assert named in now["settings_error"]
            assert now["build"] == build
            answer = await door.ask("GET", "/health", None, f"Origin: {UI}")
            assert answer.header("Access-Control-Allow-Origin") == UI
        door.write()
        now = await door.reload()
        assert (now["settings_error"], now["build"] == build) == ("", False)
    await engine.kill()


@on_loop
async def test_what_only_a_restart_changes_is_named_and_the_rest_counts(tmp_path: Path, engine: Engine) -> None:
    await engine.start()
    door = Door(tmp_path, engine)
    async with running(door):
        build = (await door.ask("GET", "/status")).json["frontdoor"]["build"]
        door.write(f'[cors]\nallow_origins = ["{UI}"]\n[tls]\ncert_file = "{tmp_path}/a.pem"\n', port=door.port + 1)
        now = await door.reload()
        assert now["restart_needed"] == door.events("settings_read")[-1]["restart_needed"] == ["listen.port", "tls"]
        # not all that the file says counts
        assert (now["build"], now["port"]) == (build, door.port)
        answer = await door.ask("GET", "/health", None, f"Origin: {UI}")
        assert answer.header("Access-Control-Allow-Origin") == UI
        door.write()
        now = await door.reload()
        assert (now["restart_needed"], now["build"]) == ([], build)
    await engine.kill()


def certify(folder: Path, name: str) -> None:
    make = (
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout key -out cert"
    )
    subprocess.run(make.split(), cwd=folder, check=True, capture_output=True)


@on_loop
async def test_a_renewed_certificate_is_shown_and_one_without_its_key_is_not(tmp_path: Path, engine: Engine) -> None:
    await engine.start()
    certify(tmp_path, "first")
    door = Door(tmp_path, engine)
    door.write(f'[tls]\ncert_file = "{tmp_path}/cert"\nkey_file = "{tmp_path}/key"\n')
    door.tls = ssl.create_default_context()
    door.tls.check_hostname, door.tls.verify_mode = False, ssl.CERT_NONE

    async def shown() -> str:
        client = await door.client()
        found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        client.leave()
        return ssl.DER_cert_to_PEM_cert(found).strip()

    async with running(door):
        kept = await door.client()
        before = (await kept.ask("GET", "/status")).json["frontdoor"]
        first = (tmp_path / "cert").read_text().strip()
        assert await shown() == first
        # a renewal that has come half of its way
        key = (tmp_path / "key").read_text()
        certify(tmp_path, "second")
        second = (tmp_path / "cert").read_text().strip()
        new_key = (tmp_path / "key").read_text()
        (tmp_path / "key").write_text(key)
        now = await door.reload()
        assert "this key does not belong to the certificate" in now["settings_error"]
        assert now["build"] == before["build"]
        assert await shown() == first
        (tmp_path / "key").write_text(new_key)
        now = await door.reload()
        assert (now["settings_error"], now["build"] == before["build"]) == ("", False)
        assert await shown() == second
        assert (await kept.ask("GET", "/health")).status == 200
        kept.leave()
    await engine.kill()


def test_each_setting_is_taken_or_named() -> None:
    running = Config()
    other: dict[str, dict[str, Any]] = {
        "listen": {
            "host": "::",
            "port": 1,
            "unix": "/u",
            "backlog": 1,
            "proxy_protocol": True,
            "allowed_networks": ["10.0.0.0/8"],
        },
        "slot": {"name": "b"},
        "slots": {"name": "c", "state_file": "/c"},
        "backend": {"url": "http://h:1"},
        "sentinels": {"watch": False},
        "auth": {"keys_file": "/k"},
        "admin": {"keys_file": "/k"},
        "limits": {"dead_peer_timeout_s": 1, "max_body_bytes": 1},
        "cors": {"allow_origins": []},
    }
    now, needed = taken(running, from_table(other))
    assert tuple(needed) == AT_START
    limits, listen = (
        running.limits._replace(max_body_bytes=1),
        running.listen._replace(allowed_networks=("10.0.0.0/8",)),
    )
    assert now == running._replace(limits=limits, listen=listen, cors=now.cors)
    assert now.cors.allow_origins == ()
