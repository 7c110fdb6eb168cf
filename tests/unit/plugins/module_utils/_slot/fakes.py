# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effects of a host in memory: each acts on the FakeHost it is given."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.effects import Upload
from ansible_collections.arcpro.b70.plugins.module_utils._slot.quarantine import BOOT_ID
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import (
    CardMemory,
    Holder,
    Layout,
    Reply,
    SlotFault,
    UnitState,
)

if TYPE_CHECKING:
    from unit.plugins.module_utils._slot.fake_host import FakeHost, FakeUnit

LAYOUT = Layout()
ANSWERS = {"say OK": "OK", "3 + 4": " 7\n"}


class FakeClock:
    def __init__(self, fake_host: FakeHost) -> None:
        self._world = fake_host

    def monotonic(self) -> float:
        return self._world.mono

    def now(self) -> datetime:
        return self._world.now()

    def sleep(self, seconds: float) -> None:
        self._world.heed()
        self._world.mono += max(seconds, 0.001)
        self._world.tick()


class FakeUnits:
    def __init__(self, fake_host: FakeHost) -> None:
        self._world = fake_host

    def show(self, names: Sequence[str]) -> tuple[UnitState, ...]:
        self._world.step()
        return tuple(self._state(name) for name in names)

    def _state(self, name: str) -> UnitState:
        unit = self._world.units.get(name)
        if unit is None or not unit.exists:
            return UnitState(name)
        return UnitState(
            name=name,
            load="loaded",
            active=unit.active,
            sub=unit.sub,
            result=unit.result,
            main_pid=unit.pid,
            invocation_id=unit.invocation,
            restarts=unit.restarts,
            needs_reload=unit.needs_reload or unit.loaded not in (None, self._world.unit_text(unit)),
            file_state="enabled" if unit.shown else "disabled",
            started_at=unit.started_at.strftime("%Y-%m-%dT%H:%M:%SZ") if unit.up else "",
            stop_limit_s=unit.stop_limit_s,
            user="b70",
        )

    def survey(self, prefix: str, names: Sequence[str]) -> tuple[UnitState, ...]:
        self._world.step()
        own = sorted(name for name in self._world.units if name.startswith(prefix))
        states = []
        for name in (*own, *names):
            unit = self._world.units.get(name)
            word = "" if unit is None or not unit.exists else "enabled" if unit.enabled else "disabled"
            states.append(replace(self._state(name), file_state=word))
        return tuple(states)

    def start(self, name: str) -> None:
        self._world.step(f"start {name}")
        for other in self._world.units.values():
            # Conflicts= in the units
            if other.name != name and other.active not in ("inactive", "failed"):
                self._world._down(other, "inactive")
        self._world.units[name].restarts, self._world.units[name].loaded = 0, None
        self._world.launch(self._world.units[name])

    def stop(self, name: str) -> None:
        self._world.step(f"stop {name}")
        unit = self._world.units[name]
        if not unit.up:
            self._world._down(unit, "inactive")
            return
        unit.active, unit.sub = "deactivating", "stop-sigterm"
        if unit.live_fault == "never_stops":
            return
        wait = {"ignore_term": 30.0, "slow_stop": 10.0}.get(unit.live_fault, unit.stop_s)
        unit.stop_until = self._world.mono + wait

    def restart(self, name: str) -> None:
        self._world.step(f"restart {name}")
        if not self._world.settle_installed:
            raise SlotFault(f"`systemctl restart {name}` failed with 5", got=f"Unit {name} not found.")
        self._world.settle_queued = True

    def forget_failure(self, name: str) -> None:
        self._world.step()
        if self._world.units[name].active == "failed":
            self._world._down(self._world.units[name], "inactive")

    def enable(self, name: str) -> None:
        self._world.step(f"enable {name}")
        if LAYOUT.unit_dir in self._world.readonly:
            raise SlotFault(f"`systemctl enable {name}` failed with 1", got="Read-only file system")
        self._world.units[name].enabled = True

    def disable(self, name: str) -> None:
        self._world.step(f"disable {name}")
        if LAYOUT.unit_dir in self._world.readonly:
            raise SlotFault(f"`systemctl disable {name}` failed with 1", got="Read-only file system")
        self._world.units[name].enabled = False

    def reload(self) -> None:
        self._world.step("reload")
        if self._world.reload_fails:
            raise SlotFault("`systemctl daemon-reload` failed with 1", got="Connection timed out")
        for unit in self._world.units.values():
            unit.loaded = None
            unit.shown = unit.enabled

    def stopping(self) -> bool:
        self._world.step()
        return self._world.going_down

    def log(self, unit: UnitState, lines: int) -> tuple[str, ...]:
        self._world.step()
        return self._world.logs.get(unit.invocation_id, self._world.log_lines)[-lines:]

    def kernel_log(self, lines: int) -> tuple[str, ...]:
        self._world.step()
        return self._world.kernel_lines[-lines:]


class FakeHttp:
    def __init__(self, fake_host: FakeHost) -> None:
        self._world = fake_host
        self.together = 0

    def get(self, url: str, timeout_s: float) -> Reply:
        self._world.step()
        self._world.heed()
        if url == f"{LAYOUT.frontdoor_url}/status":
            return self._status()
        engine = self._ready()
        if engine is None:
            return Reply(0, error="refused")
        fault = engine.live_fault
        if url.endswith("/health"):
            return Reply(500, "broken") if fault == "health_500" else Reply(200)
        served = "another" if fault == "wrong_id" else LAYOUT.profile_of(engine.name)
        length = 99 if fault == "wrong_length" else 512
        return Reply(200, json.dumps({"data": [{"id": served, "max_model_len": length}]}))

    def _status(self) -> Reply:
        fake_host = self._world
        if not fake_host.frontdoor_present:
            return Reply(0, error="refused")
        active = sum(1 for end in fake_host.generations if end > fake_host.mono)
        part = {"state_sequence": fake_host.frontdoor_sequence, "active_generations": active}
        return Reply(200, json.dumps({"ok": True, "frontdoor": part}))

    def _ready(self) -> FakeUnit | None:
        engine = self._world.engine()
        if engine is None or engine.live_fault in ("never_ready", "device_lost") or engine.active != "active":
            return None
        return engine if self._world.mono - engine.started >= engine.load_s else None

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        self._world.step()
        self._world.heed()
        engine = self._ready()
        if engine is None:
            return Reply(0, error="refused")
        self._world.mono += 0.02
        fault = engine.live_fault
        if body["max_tokens"] == 1:
            if fault == "no_token":
                self._world.mono += timeout_s
                return Reply(0, error="timeout")
            logprob = float("nan") if fault == "nan" else -0.1
            logprobs = {"content": [{"token": "x", "logprob": logprob}]}
            return Reply(200, json.dumps({"choices": [{"message": {"content": "x"}, "logprobs": logprobs}]}))
        engine.answers += 1
        if fault == "dies_in_canary":
            self._world._down(engine, "failed")
            return Reply(0, error="connection broke: ConnectionError")
        if fault == "restarts_in_canary" and engine.answers == 3:
            self._world.crash(LAYOUT.profile_of(engine.name))
            return Reply(200, json.dumps({"choices": [{"message": {"content": "OK"}}]}))
        text = ANSWERS[body["messages"][0]["content"]]
        if fault == "wrong_answer" or (fault == "wrong_one_in_four" and engine.answers % 4 == 0):
            text = "slh"
        text = {"garbage": "!" * 40, "empty": "  "}.get(fault, text)
        return Reply(200, json.dumps({"choices": [{"message": {"content": text}}]}))

    def upload(self, url: str, fields: Mapping[str, str], file: Upload, timeout_s: float) -> Reply:
        self._world.step()
        self._world.heed()
        return Reply(404, "the model does not support the Transcriptions API")

    def post_together(
        self, url: str, bodies: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> Generator[tuple[int, Reply, float] | None, None, None]:
        """All at once: the replies come in no order, after a quiet second."""
        self.together = len(bodies)
        try:
            yield None
            for index in reversed(range(len(bodies))):
                yield index, self.post(url, bodies[index], timeout_s), 0.02
        finally:
            self.together = 0


class FakeFiles:
    def __init__(self, fake_host: FakeHost) -> None:
        self._world = fake_host

    def _may(self, path: PurePosixPath) -> None:
        if any(path.is_relative_to(root) for root in self._world.readonly):
            raise OSError(30, "Read-only file system", str(path))
        if any(path.is_relative_to(root) for root in self._world.full):
            raise OSError(28, "No space left on device", str(path))

    def _readable(self, path: PurePosixPath) -> None:
        if path in self._world.unreadable:
            raise OSError(22, "is not a regular file, remove it", str(path))

    def read(self, path: PurePosixPath) -> str | None:
        self._world.step()
        self._readable(path)
        if path == BOOT_ID:
            return f"boot-{self._world.boots}\n"
        found = self._world.texts.get(path)
        return None if found is None else found[0]

    def tail(self, path: PurePosixPath, limit: int) -> str | None:
        self._world.step()
        self._readable(path)
        found = self._world.texts.get(path)
        return None if found is None else found[0][-limit:]

    def names(self, path: PurePosixPath) -> tuple[str, ...]:
        self._world.step()
        return tuple(sorted({known.name for known in self._world.texts if known.parent == path}))

    def write(self, path: PurePosixPath, text: str) -> None:
        self._world.step(f"write {path}")
        self._may(path)
        self._world.hidden.discard(path)
        self._world.put(path, text)

    def append(self, path: PurePosixPath, text: str, *, sync: bool) -> None:
        self._world.step(f"append {path}" if sync else None)
        self._may(path)
        before = self._world.texts.get(path)
        self._world.put(path, (before[0] if before else "") + text)

    def truncate(self, path: PurePosixPath, text: str) -> None:
        self._world.step()
        self._may(path)
        self._world.put(path, text)

    def remove(self, path: PurePosixPath) -> None:
        self._world.step(f"remove {path}")
        self._may(path)
        self._world.texts.pop(path, None)

    def rename(self, path: PurePosixPath, new: PurePosixPath) -> None:
        self._world.step(f"rename {path}")
        self._world.texts[new] = self._world.texts.pop(path)

    def hidden(self, path: PurePosixPath) -> str | None:
        self._world.step()
        return f"{path} has the mode 0600" if path in self._world.hidden else None

    def unhide(self, directory: PurePosixPath) -> None:
        self._world.step()
        self._world.hidden.discard(directory)

    def size(self, path: PurePosixPath) -> int | None:
        self._world.step()
        found = self._world.texts.get(path)
        return None if found is None else len(found[0])

    def modified(self, path: PurePosixPath) -> datetime | None:
        self._world.step()
        found = self._world.texts.get(path)
        return None if found is None else found[1]

    def writable(self, path: PurePosixPath) -> str | None:
        self._world.step()
        blocked = any(path.is_relative_to(root) for root in self._world.readonly)
        return f"{path} is read-only or not permitted" if blocked else None

    def free_bytes(self, path: PurePosixPath) -> int:
        self._world.step()
        return self._world.free

    def executable(self, path: PurePosixPath) -> bool:
        self._world.step()
        return path in self._world.texts


class FakeLocks:
    def __init__(self, fake_host: FakeHost) -> None:
        self._world = fake_host

    @contextmanager
    def hold(self, path: PurePosixPath, note: str, timeout_s: float) -> Iterator[None]:
        self._world.step()
        if self._world.lock_holder is not None and self._world.lock_for_s <= timeout_s:
            self._world.mono += self._world.lock_for_s
            self._world.lock_holder = None
        if self._world.lock_holder is not None:
            self._world.mono += timeout_s
            raise SlotFault(f"the slot's lock {path} is held by another switch: {self._world.lock_holder}")
        self._world.lock_holder = note
        try:
            yield
        finally:
            self._world.lock_holder = None


class FakeProcesses:
    def __init__(self, fake_host: FakeHost) -> None:
        self._world = fake_host

    def _unit(self, pid: int) -> FakeUnit | None:
        return next((unit for unit in self._world.units.values() if unit.up and unit.pid == pid), None)

    def cmdline(self, pid: int) -> tuple[str, ...]:
        self._world.step()
        unit = self._unit(pid)
        return unit.cmdline if unit else ()

    def environ(self, pid: int) -> Mapping[str, str]:
        self._world.step()
        unit = self._unit(pid)
        return unit.environ if unit else {}

    def port_holders(self, port: int) -> tuple[Holder, ...]:
        self._world.step()
        engine = self._world.engine()
        ours = () if engine is None else (Holder(engine.pid, "vllm", "b70", engine.name, f"port {port}"),)
        return (*ours, *self._world.foreign)

    def render_nodes(self) -> tuple[str, ...]:
        self._world.step()
        return tuple(f"/dev/dri/renderD{128 + number}" for number in range(self._world.cards))

    def device_holders(self, paths: Sequence[str]) -> tuple[Holder, ...]:
        self._world.step()
        ended = {unit.name for unit in self._world.units.values() if not unit.up}
        return tuple(user for user in self._world.device_users if user.what in paths and user.unit not in ended)

    def card_memory(self, nodes: Sequence[str]) -> tuple[CardMemory, ...]:
        self._world.step()
        used: int | None = 30 * 2**30 if self._world.mono < self._world.memory_until else 2**28
        if not self._world.memory_told:
            used = None
        return tuple(CardMemory(node, used, 32 * 2**30) for node in nodes)
