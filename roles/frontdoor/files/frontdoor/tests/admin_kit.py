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

from kit import Answer, Bench, Client, Engine, bench, changed_state

from frontdoor.policy.keys import digest

MODELS = "/v1/admin/models"
MEMORY = "/v1/admin/gpu-memory"
RELOAD = "/v1/admin/settings/reload"
KEY = "Authorization: Bearer s-root"
VEC = {"name": "vec", "served_model_name": "vec"}


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


# as the role writes it for the kinds of engines
KINDS: dict[str, Any] = {
    "vllm": {
        "backend": "vllm_serve",
        "structured": True,
        "settings": {
            "vllm_max_model_len": "max_model_len",
            "vllm_kv_cache_dtype": "kv_cache_dtype",
            "vllm_kv_cache_memory_bytes": "kv_cache_memory_bytes",
            "vllm_max_pixels": "mm_processor_kwargs.max_pixels",
            "vllm_speculative_method": "speculative_config.method",
            "vllm_speculative_model": "speculative_config.model",
            "vllm_num_speculative_tokens": "speculative_config.num_speculative_tokens",
        },
    },
    "llama-server": {
        "backend": "llama_server",
        "structured": True,
        "settings": {
            "llama_server_n_ctx": "ctx_size",
            "llama_server_spec_type": "spec_type",
            "llama_server_spec_draft_n_max": "spec_draft_n_max",
        },
    },
    "openai": {"backend": "openai_remote", "structured": False, "settings": {}},
}


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
    slot = {"schema": 1, "legacy_units": [], "refused_statuses": ["rejected", "blocked"], "kinds": KINDS}
    (tmp_path / "slot.json").write_text(json.dumps(slot))
    helper = Helper()
    path = str(tmp_path / "admin.sock")
    server = await asyncio.start_unix_server(helper.serve, path)
    keys = write_keys(tmp_path / "admin-keys.toml", root="s-root")
    section = {"keys_file": keys, "socket": path, "timeout_s": timeout_s}
    sections["slot"] = {"profiles_dir": str(profiles), **sections.get("slot", {})}
    async with bench(tmp_path, admin=section, **sections) as run:
        yield run, await run.client(), helper
    server.close()


class Other:
    """Another slot, aux, with one card: it serves vec and has tiny-b, main has two cards and large."""

    def __init__(self, tmp_path: Path, run: Bench, engine: Engine) -> None:
        self._file, self._run, self._engine = tmp_path / "aux.json", run, engine

    def write(self, **changes: Any) -> None:
        """Write the state of the slot, and have it applied."""
        state = changed_state(self._engine.url, {"slot": "aux", "profile": VEC, **changes})
        self._file.with_suffix(".new").write_text(json.dumps(state))
        self._file.with_suffix(".new").rename(self._file)
        self._run.app.poll_state()


@contextlib.asynccontextmanager
async def two_slots(
    tmp_path: Path, empty: tuple[str, ...] = (), **sections: Any
) -> AsyncIterator[tuple[Bench, Client, Helper, Other]]:
    """The same, where aux is another slot of the host; `empty` ones have its profiles, too."""
    engine, folder = Engine(), tmp_path / "aux" / "profiles"
    await engine.start()
    folder.mkdir(parents=True)
    for name in ("vec", "tiny-b", "large"):
        cards = 2 if name == "large" else 1
        (folder / f"{name}.json").write_text(json.dumps(profile(name, cards=cards, title=f"{name} in aux")))
    (folder.parent / "slot.json").write_text(json.dumps({"refused_statuses": [], "cards": [2]}))
    (tmp_path / "slot.json").write_text(json.dumps({"refused_statuses": ["rejected"], "cards": [0, 1]}))
    estimates = tmp_path / "aux-estimates.json"
    estimates.write_text(json.dumps({"profiles": {"vec": {"fingerprint": "sha256:0", "held_mib": 321}}}))
    limits = {"limits": {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}}
    state = changed_state(engine.url, {"slot": "aux", "profile": VEC, **limits})
    (tmp_path / "aux.json").write_text(json.dumps(state))
    about = {"name": "aux", "state_file": str(tmp_path / "aux.json"), "units_dir": str(tmp_path)}
    about |= {"profiles_dir": str(folder), "estimates_file": str(estimates)}
    slots = [about, *({**about, "name": name, "state_file": str(tmp_path / f"{name}.json")} for name in empty)]
    for name in empty:
        stopped = changed_state(engine.url, {"slot": name, "phase": "stopped", "open": False, "profile": None})
        (tmp_path / f"{name}.json").write_text(json.dumps(stopped))
    async with admin(tmp_path, slots=slots, **sections) as (run, client, helper):
        (tmp_path / "profiles" / "torn.json").unlink()
        (tmp_path / "profiles" / "large.json").write_text(json.dumps(profile("large", cards=2)))
        try:
            yield run, client, helper, Other(tmp_path, run, engine)
        finally:
            await engine.kill()


def detail(answer: Answer) -> Any:
    """Status, code and model of a refusal."""
    about = answer.json["detail"]
    return answer.status, about["code"], about.get("model")


async def states(client: Client) -> dict[str, str]:
    answer = await client.ask("GET", MODELS, None, KEY)
    assert answer.status == 200
    return {row["name"]: row["runtime_state"] for row in answer.json["models"]}
