# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A frontdoor with an administration, and the privileged helper as it sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kit import Answer, Bench, Client, bench

from frontdoor.policy.keys import digest

MODELS = "/v1/admin/models"
MEMORY = "/v1/admin/gpu-memory"
RELOAD = "/v1/admin/settings/reload"
KEY = "Authorization: Bearer s-root"


class Helper:
    """The privileged helper as the frontdoor sees it: keeps what it was told, answers what it is given."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.answer: Any = {"exit": 0, "message": "done"}
        self.free = asyncio.Event()
        self.free.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines.append((await reader.readline()).decode())
        await self.free.wait()
        if isinstance(self.answer, list):
            for part in self.answer:
                writer.write(part)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                await asyncio.sleep(0.002)
        else:
            writer.write(self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode() + b"\n")
        writer.close()


def profile(name: str, **more: Any) -> dict[str, Any]:
    engine = {"kind": "vllm", "served_model_name": name, "max_model_len": 512, "env": {"TOKEN": "geheim"}}
    own = {"schema": 1, "name": name, "title": name.title(), "status": "candidate", "modalities": ["text"]}
    marks = {"fingerprint": "sha256:0", "examined": "sha256:1"}
    return {**own, "engine": engine, "frontdoor": {"max_active_generations": 2}, **marks, **more}


def write_keys(path: Path, **keys: str) -> str:
    path.write_text("[keys]\n" + "".join(f'{name} = "{digest(secret)}"\n' for name, secret in keys.items()))
    return str(path)


@contextlib.asynccontextmanager
async def admin(tmp_path: Path, timeout_s: float = 60, **sections: Any) -> AsyncIterator[tuple[Bench, Client, Helper]]:
    """A frontdoor with an administration: tiny-a is served, tiny-b and tiny-bad could be."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    for name, more in (("tiny-a", {}), ("tiny-b", {}), ("tiny-bad", {"status": "rejected", "status_reason": "lies"})):
        (profiles / f"{name}.json").write_text(json.dumps(profile(name, **more)))
    (profiles / "tiny-a.env").write_text("X=1\n")
    (profiles / "torn.json").write_text("{")
    helper = Helper()
    path = str(tmp_path / "admin.sock")
    server = await asyncio.start_unix_server(helper.serve, path)
    keys = write_keys(tmp_path / "admin-keys.toml", root="s-root")
    section = {"keys_file": keys, "socket": path, "timeout_s": timeout_s}
    sections["slot"] = {"profiles_dir": str(profiles), **sections.get("slot", {})}
    async with bench(tmp_path, admin=section, **sections) as run:
        yield run, await run.client(), helper
    server.close()


def detail(answer: Answer) -> Any:
    """Status, code and model of a refusal."""
    about = answer.json["detail"]
    return answer.status, about["code"], about.get("model")


async def states(client: Client) -> dict[str, str]:
    answer = await client.ask("GET", MODELS, None, KEY)
    assert answer.status == 200
    return {row["name"]: row["runtime_state"] for row in answer.json["models"]}
