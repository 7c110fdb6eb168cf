# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in memory: systemd, engines, frontdoor, files, lock and clock, driven by a clock that only moves on sleep.

Every effect first lets time-driven things happen, then checks the invariants that must hold at every moment, then may
kill the caller: `fake_host.kill_at = N` raises Killed at the Nth effect, as kill -9 would.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import urlsplit

from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.memory import MEMINFO, SPARED_BYTES
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.journal import remember
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.production import examined
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import Frontdoor, parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.quarantine import BOOT_ID
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.recorded import MACHINE_ID
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.rendering import (
    Rendering,
    engines_in,
    places,
    rendering_of,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.state_file import SlotState, parse_state
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.decode import plain
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Effects, Upload
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import (
    BESIDE,
    CardMemory,
    Holder,
    HostFault,
    Layout,
    Reply,
    Request,
    ToldToEndFault,
    UnitState,
    Which,
)
from unit import contracts

LAYOUT = Layout()
ANSWERS = {"say OK": "OK", "3 + 4": " 7\n"}
CONTRACTS = {LAYOUT.state_file: "state", LAYOUT.journal_file: "journal", LAYOUT.next_journal: "journal"}
CONTRACTS |= {LAYOUT.liveness_file: "liveness"}
BACKEND = "http://127.0.0.1:18080"
EPOCH = datetime(2026, 6, 7, 9, 0, 0, tzinfo=UTC)

# Faults of an engine, and whether an engine with it may ever be shown to a client.
HARMLESS = {"", "wedged", "ignore_term", "slow_stop", "slow_load", "never_ready", "never_stops"}
FAULTS = (
    "never_ready",
    "exit_at_start",
    "crash_loop",
    "health_500",
    "wrong_id",
    "wrong_length",
    "other_process",
    "no_token",
    "nan",
    "wrong_answer",
    "wrong_one_in_four",
    "garbage",
    "empty",
    "dies_in_canary",
    "restarts_in_canary",
    "device_lost",
)
IN_CONTAINER = 100_000  # so much above its unit's process is that of an engine in a container
START_BURST, START_LIMIT_S = 5, 1800.0  # of an engine's unit
LEGACY = ["minimax-vllm.service", "b70-vllm-slot.service"]
LOST = "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"


class Killed(BaseException):
    """kill -9 of the switch."""


class Broken(AssertionError):
    """An invariant does not hold."""


def profile_data(
    name: str,
    replicas: int = 1,
    *,
    second: Sequence[int] = (),
    layout: Layout = LAYOUT,
    port: int = 18080,
    **changes: Any,
) -> dict[str, Any]:
    """A resolved profile as the role renders it, with so many engines. second: the cards of a second side."""
    data: dict[str, Any] = {
        "schema": 1,
        "name": name,
        "title": f"Model {name}",
        "status": "candidate",
        "status_reason": "",
        "accepted_rules": [],
        "modalities": ["text"],
        "slot": layout.slot,
        "unit": layout.unit(name),
        "stack": {"name": "cpu", "id": "cpu-1a2b3c4d5e", "dir": "/opt/b70/stacks/cpu-1a2b3c4d5e", "device": "cpu"},
        "cards": 0,
        "model": {"hf_repo": None, "revision": None, "path": f"/models/{name}", "size_gb": None, "sha256": {}},
        "engine": {
            "kind": "vllm",
            "task": "generate",
            "served_model_name": name,
            "max_model_len": 512,
            "backend_url": f"http://127.0.0.1:{port}",
            "argv": ["/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/vllm", "serve", f"/models/{name}", "--port", str(port)],
            "env": {"VLLM_CPU_KVCACHE_SPACE": "1"},
            "settings": {},
            "reasoning": None,
            "measured_kv_tokens": None,
            "start_timeout_s": 60,
            "stop_timeout_s": 30,
            "directives": [],
            "allowed_media_domains": [],
        },
        "frontdoor": {key: value for key, value in plain(Frontdoor(2, 0, 7200, True)).items() if key != "routing"},
        "canary": {
            "repeats": 4,
            "timeout_s": 30,
            "seed": 20260607,
            "burst": 2,
            "cached": False,
            "cases": [
                {"name": "exact_ok", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "OK"},
                {"name": "sum", "prompt": "3 + 4", "max_tokens": 8, "compare": "contains", "expected": "7"},
            ],
        },
        "accuracy": {"threshold": 0.8, "limit_s": 1800, "questions": None},
        "liveness": {
            "policy": "report",
            "patience_s": 180,
            "ask_every_s": 300,
            "verify_every_s": 0,
            "device_loss": "quarantine",
        },
        "fingerprint": f"sha256:{name}-1",
    }
    for dotted, value in changes.items():
        target = data
        *path, last = dotted.split("__")
        for key in path:
            target = target[key]
        target[last] = value
    if replicas > 1:
        engine = data["engine"]
        data["frontdoor"]["max_active_generations"] *= replicas
        engine["replicas"] = [
            {
                "index": index,
                "unit": layout.unit(name, index),
                "unit_sha256": f"{index}" * 64,
                "cards": list(range(index * data["cards"], (index + 1) * data["cards"])),
                "backend_url": f"http://127.0.0.1:{port + index}",
                "argv": [*engine["argv"][:-1], str(port + index)],
                "env": {**engine["env"], **({"ZE_AFFINITY_MASK": str(index)} if data["cards"] else {})},
                "start_after_s": 6 * index,
            }
            for index in range(replicas)
        ]
        data["unit"] = engine["replicas"][0]["unit"]
    if second:
        engine = data["engine"]
        engine["beside"] = {
            "unit": layout.unit(name, BESIDE),
            "unit_sha256": "b" * 64,
            "cards": list(second),
            "backend_url": f"http://127.0.0.1:{port + 1}",
            "argv": [*engine["argv"][:-1], str(port + 1)],
            "env": {**engine["env"], "ZE_AFFINITY_MASK": ",".join(map(str, second))},
        }
    return {"examined": examined(data), **data}


def rendering(name: str, **changes: Any) -> Rendering:
    """The texts of a profile. What the engine does is told by its unit and its environment, as on a host."""
    data = profile_data(name, **changes)
    engine = data["engine"]
    texts = []
    for one in engine.get("replicas") or [engine, *([engine["beside"]] if "beside" in engine else [])]:
        unit = (
            f"[Service]\nExecStart={json.dumps(one['argv'])}\nTimeoutStopSec={engine['stop_timeout_s']}\n"
            f"ExecStartPre=sleep {one.get('start_after_s', 0)}\n# {data['title']}\n"
        )
        texts += [unit, json.dumps(one["env"])]
    return rendering_of(name, [*texts, json.dumps(data, indent=2) + "\n"])


@dataclass
class FakeUnit:
    """A unit and the engine in it. fault: what the engine of this unit does wrong from its next start on."""

    name: str
    fault: str = ""
    load_s: float = 5.0
    stop_s: float = 0.5
    exists: bool = True
    enabled: bool = False
    shown: bool = False  # what `systemctl status` says of that: what it was at the last reload
    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    invocation: str = ""
    pid: int = 0
    restarts: int = 0
    started: float = 0.0
    started_at: datetime = EPOCH
    stop_until: float | None = None
    restart_at: float | None = None
    live_fault: str = ""
    cmdline: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    answers: int = 0
    needs_reload: bool = False
    begun: list[float] = field(default_factory=list)  # monotonic, its starts that count for the limit
    turn_at: float | None = None  # monotonic, when the process is started, in the meantime its unit waits
    loaded: str | None = None  # the unit's text as systemd has read it
    started_from: str | None = None  # the same at its last start
    stop_limit_s: float = 0.0  # of the unit as systemd has loaded it, at its last start

    asleep: bool = False
    given_up: frozenset[str] = frozenset()  # whose memory it has given up: weights, kv_cache
    empty: bool = False  # its weights were dropped, and not read again
    sleep_fault: str = ""  # what goes wrong with its sleep
    asked_asleep: bool = False  # for tokens, which it may generate when it wakes

    running: int = 0  # requests that it counts
    tokens: int = 0  # that it has generated
    cache: float = 0.0  # share of it in use

    def __deepcopy__(self, _memo: object) -> Self:
        copied = copy.copy(self)
        copied.begun = [*self.begun]  # the only field that is changed in place
        return copied

    @property
    def up(self) -> bool:
        return self.pid > 0

    def metrics(self) -> str:
        """What vLLM tells, as far as anybody reads it."""
        labels = '{engine="0",model_name="x"}'
        rows = {"num_requests_running": self.running, "num_requests_waiting": 0, "kv_cache_usage_perc": self.cache}
        rows |= {"generation_tokens_total": self.tokens, "prompt_tokens_total": 0, "prefix_cache_queries_total": 0}
        return "".join(f"vllm:{name}{labels} {float(value)}\n" for name, value in rows.items())


def _together(layout: Layout, one: str, other: str) -> bool:
    """Return whether two units may run at the same time: replicas of one profile, or a first and a second side."""
    sides = [name for name in (one, other) if name.endswith(f"@{BESIDE}.service")]
    if sides:
        return len(sides) == 1 and all("@" not in name for name in (one, other) if name not in sides)
    return "@" in one and "@" in other and layout.profile_of(one) == layout.profile_of(other)


def _all_together(layout: Layout, units: Sequence[str]) -> bool:
    return all(_together(layout, one, other) for one, other in combinations(units, 2))


# What a wake makes of an engine.
AWAKE = {"wrong_awake": "wrong_answer", "garbage_awake": "garbage", "forgets_asleep": "empty"}
SLEEP_FAULTS = ("never_sleeps", "hang_sleep", "keeps_memory", "dies_asleep", "hang_wake", "never_wakes", *AWAKE)
RELOAD_FAULTS = ("forgets_reload", "fails_reload", "hang_reload")
SLEEP_PATHS = {"/sleep": "hang_sleep", "/wake_up": "hang_wake", "/collective_rpc": "hang_reload"}
SLEEP_PATHS |= {"/reset_prefix_cache": ""}
# What a kill does not leave, or tests alone look at.
_PASSING = {"effects_done", "at_effect", "kill_at", "mutations", "_state", "_state_text", "main", "aux"}
_OF_PATHS = {"texts", "readonly", "hidden", "unreadable", "full", "prefetched", "card_locks", "boot_only"}


class FakeHost:
    def __init__(self, layout: Layout = LAYOUT, port: int = 18080) -> None:
        self.layout, self.port = layout, port
        self.slot_settings: dict[str, Any] = {}  # what slot.json has besides
        self.mono = 0.0
        self.texts: dict[PurePosixPath, tuple[str, datetime]] = {}
        self.units: dict[str, FakeUnit] = {}
        self.starts = 0
        self.effects_done = 0
        self.kill_at: int | None = None
        self.at_effect: Callable[[], None] | None = None  # called as each effect begins
        self.told_at: int | None = None  # the effect at which SIGTERM comes
        self.told = False  # it came, and no wait has heeded it yet
        self.frontdoor_present = True
        self.frontdoor_stuck = False
        self.frontdoor_sequence = 0
        self.generations: list[float] = []  # monotonic ends of running generations
        self.generations_on: list[list[float]] = []  # the same of each replica
        self.readonly: set[PurePosixPath] = set()
        self.hidden: set[PurePosixPath] = set()  # what only root can read
        self.unreadable: set[PurePosixPath] = set()  # no files, but something in their place
        self.full: set[PurePosixPath] = set()
        self.free = 10 * 2**30
        self.available = 20 * 2**30  # bytes of memory
        self.memory = 64 * 2**30  # in all
        self.prefetched: list[PurePosixPath] = []
        self.prefetch_s = 0.0  # for each file
        self.foreign: tuple[Holder, ...] = ()
        self.device_users: tuple[Holder, ...] = ()
        self.cards = 0
        self.standby_ports: dict[str, int] = {}  # of units that may sleep
        self.nodes: dict[str, Callable[[str], Reply]] = {}  # what answers a path, by address and port of the node
        self.interfaces: dict[str, tuple[str, ...]] = {}  # addresses by network device
        self.bound_anew: Callable[[str], object] = lambda _address: None
        self.images: dict[str, str] = {}  # ids by what units run
        self.containers_empty = False  # Podman looks after nothing
        self.memory_told = True
        self.memory_until = 0.0  # monotonic; the cards' memory is taken until then
        self.lock_holder: str | None = None
        self.card_locks: dict[PurePosixPath, str] = {}
        self.lock_for_s = float("inf")  # so long the other one holds it
        self.gate_verified = True
        self.going_down = False
        self.reload_fails = False
        self._state_file = layout.state_file  # looked at with each effect
        self._state_text: str | None = None
        self._state: SlotState | None = None
        self.logs: dict[str, tuple[str, ...]] = {}  # by invocation; log_lines for all others
        self.kernel_lines: tuple[str, ...] = ("xe 0000:03:00.0: [drm] GT0: Engine reset",)
        self.log_lines: tuple[str, ...] = ("INFO loading", "the last line")
        self.mutations: list[str] = []
        self.boots = 1
        self.refuses: Callable[[str], bool] = lambda _what: False  # whether systemd refuses this, or does not answer
        self.boot_only: set[PurePosixPath] = {
            self.layout.state_file,
            self.layout.progress_file,
            self.layout.liveness_file,
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = memo[id(self)] = object.__new__(type(self))
        # Nobody changes these. Paths that are the same object are also found faster.
        memo |= {id(kept): kept for kept in (self.layout, self._state_file, self._state)}
        for name, value in vars(self).items():
            vars(copied)[name] = copy.copy(value) if name in _OF_PATHS else copy.deepcopy(value, memo)
        return copied

    # -- setting up

    def render(self, name: str, **changes: Any) -> dict[str, Any]:
        """Renders a profile and its unit in place, installs its weights and its stack."""
        data, texts = (
            profile_data(name, layout=self.layout, port=self.port, **changes),
            rendering(name, layout=self.layout, port=self.port, **changes),
        )
        for path, text in zip(places(self.layout, name, engines_in(texts.profile)), texts.texts, strict=True):
            self.put(path, text)
        slot = {
            "schema": 1,
            "slot": self.layout.slot,
            "legacy_units": LEGACY,
            "refused_statuses": ["rejected", "blocked"],
        }
        slot |= self.slot_settings
        self.put(self.layout.slot_file, json.dumps(slot))
        # The role has systemd read what it wrote.
        for unit in (self.layout.unit(name, which) for which in engines_in(texts.profile)):
            self.units.setdefault(unit, FakeUnit(unit)).loaded = None
        self.put(PurePosixPath(data["model"]["path"]) / "config.json", "{}")
        self.put(PurePosixPath(data["model"]["path"]) / "model.safetensors", "x")
        stack = data["stack"]
        record = {"stack_id": stack["id"]}
        if "image" in stack:
            self.images[stack["image"]] = f"id-of-{stack['id']}"
            record["image"] = {"id": f"id-of-{stack['id']}"}
        self.put(PurePosixPath(stack["dir"]) / "fingerprint.json", json.dumps(record))
        self.put(PurePosixPath("/usr/bin/podman" if "image" in stack else data["engine"]["argv"][0]), "#!")
        return data

    def render_held(self, name: str, **changes: Any) -> Rendering:
        """Renders a profile that is in use: the rendering waits for a switch."""
        texts = rendering(name, layout=self.layout, port=self.port, **changes)
        self.put(self.layout.pending(name), texts.to_json())
        return texts

    def put(self, path: PurePosixPath, text: str) -> None:
        self.texts[path] = (text, self.now())

    def render_standby(self, *names: str, most: int = 1, **changes: Any) -> None:
        """Renders profiles whose engines may sleep, each with a port of its own."""
        for name in names:
            port = self.standby_ports.get(self.layout.unit(name), self.port + 16 + len(self.standby_ports))
            argv = [*profile_data(name)["engine"]["argv"][:-1], str(port)]
            self.render_sleeper(name, port, most, **{"engine__argv": argv, **changes})

    def render_sleeper(self, name: str, port: int, most: int = 1, **changes: Any) -> None:
        self.slot_settings["standby"] = most
        self.standby_ports[self.layout.unit(name)] = port
        self.render(name, engine__backend_url=f"http://127.0.0.1:{port}", **{"standby": True, **changes})

    def run_short_of_memory(self) -> None:
        """Leave no room for the weights of a sleeper."""
        for path in [path for path in self.texts if path.name == "model.safetensors"]:
            self.put(path, "x" * 2**20)
        self.available = SPARED_BYTES + 2**19

    def unit_text(self, unit: FakeUnit) -> str:
        return self.texts.get(self.layout.unit_dir / unit.name, ("", None))[0]

    def unit(self, profile: str, which: Which = None) -> FakeUnit:
        return self.units[self.layout.unit(profile, which)]

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.mono)

    # -- what happens by itself

    def tick(self) -> None:
        for unit in self.units.values():
            if unit.stop_until is not None and self.mono >= unit.stop_until:
                self._down(unit, "inactive")
            if unit.turn_at is not None and self.mono >= unit.turn_at:
                self.run_process(unit)
            if unit.restart_at is not None and self.mono >= unit.restart_at:
                self._restart(unit)
            if unit.live_fault in ("exit_at_start", "crash_loop") and unit.pid and self.mono - unit.started >= 1.0:
                if unit.live_fault == "crash_loop":
                    self._loop(unit)
                else:
                    self._down(unit, "failed")
                    unit.result = "exit-code"
        if self.frontdoor_present and not self.frontdoor_stuck:
            state = self.state
            self.frontdoor_sequence = state.sequence if state else 0

    def _down(self, unit: FakeUnit, active: str) -> None:
        unit.active, unit.sub, unit.pid = active, "dead" if active == "inactive" else "failed", 0
        unit.stop_until = unit.restart_at = unit.turn_at = None

    def _restart(self, unit: FakeUnit) -> None:
        """Restart=, within the limit that the unit sets to starts."""
        if len([at for at in unit.begun if at > self.mono - START_LIMIT_S]) >= START_BURST:
            self._down(unit, "failed")
            unit.result = "start-limit-hit"
            return
        unit.restarts += 1
        self.launch(unit)

    def _loop(self, unit: FakeUnit) -> None:
        self._down(unit, "activating")
        unit.sub, unit.restart_at = "auto-restart", self.mono + 15.0

    def wedge(self, profile: str, replica: int | None = None, running: int = 1) -> None:
        """The engine answers /health, and works no more. running: requests that it had begun."""
        unit = self.unit(profile, replica)
        unit.live_fault, unit.running = "wedged", running

    def crash(self, profile: str, replica: int | None = None) -> None:
        """The engine dies and systemd starts it again at once."""
        unit = self.unit(profile, replica)
        unit.restarts += 1
        self.launch(unit)

    def launch(self, unit: FakeUnit) -> None:
        """systemd starts the unit; its process begins when its turn has come. One that fell asleep starts nothing."""
        if self.layout.standby_file(unit.name) in self.texts:
            self._down(unit, "inactive")
            return
        self.starts += 1
        unit.begun.append(self.mono)
        unit.invocation = f"{self.starts:032x}"
        wait = float((unit.loaded or self.unit_text(unit)).partition("ExecStartPre=sleep ")[2].partition("\n")[0] or 0)
        unit.active, unit.sub, unit.result, unit.restart_at = "activating", "start-pre", "success", None
        unit.pid, unit.turn_at = 0, self.mono + wait
        if not wait:
            self.run_process(unit)

    def run_process(self, unit: FakeUnit) -> None:
        unit.active, unit.sub, unit.turn_at = "active", "running", None
        unit.pid = 1000 + int(unit.invocation, 16)
        if unit.fault == "device_lost":
            self.logs[unit.invocation] = ("INFO loading", LOST)
        unit.started, unit.started_at, unit.live_fault, unit.answers = self.mono, self.now(), unit.fault, 0
        unit.running = unit.tokens = 0
        unit.asleep = unit.empty = False
        if unit.loaded is None:
            unit.loaded = self.unit_text(unit)
        unit.started_from = unit.loaded
        argv = unit.loaded.partition("ExecStart=")[2].partition("\n")[0]
        if argv.startswith("["):
            unit.cmdline = ("/usr/bin/python3", *json.loads(argv))
            which = unit.name.removesuffix(".service").partition("@")[2]
            path = self.layout.profile_env(self.layout.profile_of(unit.name), which or None)
            env = json.loads(self.texts[path][0])
            unit.environ = dict(env, PATH="/usr/bin")
            unit.live_fault = unit.environ.get("FAULT", unit.live_fault)
            unit.stop_limit_s = float(unit.loaded.partition("TimeoutStopSec=")[2].partition("\n")[0])
        if unit.fault == "other_process":
            unit.cmdline = (*unit.cmdline, "--max-num-seqs", "99")
        if unit.fault == "slow_load":
            unit.started += 60.0

    def lose_card(self, profile: str) -> None:
        """The engine dies of a lost card and systemd starts it again."""
        self.logs[self.unit(profile).invocation] = ("INFO serving", LOST)
        self.crash(profile)

    def reboot(self) -> None:
        """Processes and /run are gone; what is enabled is started."""
        self.boots += 1
        for path in [*self.texts]:
            if path in self.boot_only or path.parent == self.layout.standby_dir:
                del self.texts[path]
        self.frontdoor_sequence = 0
        for unit in self.units.values():
            self._down(unit, "inactive")
            unit.restarts, unit.invocation, unit.loaded, unit.begun = 0, "", None, []
        for unit in self.units.values():
            if unit.enabled:
                self.launch(unit)

    # -- looking

    @property
    def state(self) -> Any:
        text, _when = self.texts.get(self._state_file, (None, None))
        if text is not self._state_text:
            self._state_text, self._state = text, parse_state(text)
        return self._state

    @property
    def running(self) -> list[str]:
        return [unit.name for unit in self.units.values() if unit.up and not unit.asleep]

    @property
    def sleeping(self) -> list[str]:
        return sorted(unit.name for unit in self.units.values() if unit.up and unit.asleep)

    @property
    def enabled(self) -> list[str]:
        return sorted(unit.name for unit in self.units.values() if unit.enabled)

    @property
    def wanted(self) -> str | None:
        """What the slot is to serve, as the journal has it."""
        text, _when = self.texts.get(self.layout.journal_file, ("", None))
        said = remember(text.splitlines()).wanted
        return None if said is None else said.profile

    @property
    def open(self) -> bool:
        """Does the frontdoor let clients through?"""
        return bool(self.state and self.state.open)

    def engine(self, port: int | None = None) -> FakeUnit | None:
        """The engine that holds a port; units of the tests that have no text of their own hold the first one."""
        for unit in self.units.values():
            asked = self.port_of(unit) == (port or self.port) or (port is None and unit.name in self.running[:1])
            if asked and unit.up and unit.name.startswith("b70-slot"):
                return unit
        return None

    def port_of(self, unit: FakeUnit) -> int:
        """A replica listens behind the first one."""
        which = unit.name.removesuffix(".service").partition("@")[2]
        if unit.name in self.standby_ports:
            return self.standby_ports[unit.name]
        return self.port + (1 if which == BESIDE else int(which or 0))

    def served(self) -> dict[str, bool]:
        """Whether it was verified, by the invocation id of each process that clients may reach."""
        return dict(self.state.passed) if self.open else {}

    def check(self) -> None:
        """What must hold at every moment."""
        state = self.state
        is_open = state is not None and state.open
        up = [unit for unit in self.units.values() if unit.pid]
        slot = [unit.name for unit in up if unit.name.startswith("b70-slot") and not unit.asleep]
        if len(slot) > 1 and not _all_together(self.layout, slot):
            raise Broken(f"two engines run: {slot}")
        enabled = self.enabled
        if len(enabled) > 1:
            boots = {self.layout.profile_of(name) for name in enabled}
            if len(boots) > 1 or not all("@" in name for name in enabled):
                raise Broken(f"two units are enabled: {enabled}")
        if not is_open:
            return
        sides = any(name.endswith(f"@{BESIDE}.service") for name in slot)
        if sides and sum(row["open"] for row in state.replicas or [{"open": True}]) != 1:
            raise Broken(f"clients are given to more than one of {slot}")
        if not self.gate_verified:
            return
        for engine in up:
            if (engine.asleep or engine.empty) and engine.invocation in state.passed:
                raise Broken(f"clients are given to {engine.name}, which sleeps, or has no weights")
            if engine.live_fault not in HARMLESS and engine.invocation in state.passed:
                raise Broken(f"the frontdoor is open for {engine.name}, whose engine is {engine.live_fault}")

    def assert_invariants(self) -> None:
        """Where a run may leave the host: verified and served, or nothing is and the frontdoor says why."""
        self.check()
        state = self.state
        if any(unit.asked_asleep for unit in self.units.values()):
            raise Broken("an engine that sleeps was asked for tokens")
        if state is not None and state.open:
            up = {unit.invocation: unit.name for unit in self.units.values() if unit.up}
            if not state.passed or not {*state.passed} <= {*up} or not all(state.passed.values()):
                raise Broken(f"open without the verified engine: {state}")
            profile = parse_profile(self.texts[self.layout.profile_json(state.profile_name)][0], "the profile")
            target = profile.on(self.running).units
            if profile.sides[1:] and (self.running != [*target] or state.replicas or state.switch):
                raise Broken(f"{target} is served, {self.running} run, and the state has {state.replicas}")
            if self.enabled != sorted(target) and not (self.enabled == [] and self.layout.unit_dir in self.readonly):
                raise Broken(f"{target} is served, enabled is {self.enabled}")
        else:
            if self.running or (self.sleeping and not (state and state.idle)):
                raise Broken(f"closed, but {self.running} run and {self.sleeping} sleep")
            if {*map(self.layout.profile_of, self.enabled)} - {self.wanted}:
                raise Broken(f"{self.enabled} would start at boot, and {self.wanted} is wanted")
            if state is not None and not state.reason:
                raise Broken("closed without a reason")

    def left(self) -> dict[str, Any]:
        """What a kill -9 of a switch leaves, to compare two moments: between two looks at a host there is none."""
        found = {name: copy.copy(value) for name, value in vars(self).items() if name not in _PASSING}
        return found | {name: copy.deepcopy(found[name]) for name in ("units", "generations_on")}

    def as_killed(self) -> Self:
        """A copy of this host as a kill -9 of its switch leaves it now."""
        copied = copy.deepcopy(self)
        copied.at_effect = copied.lock_holder = None
        copied.card_locks = {}
        return copied

    def effects(self) -> Effects:
        return Effects(
            clock=FakeClock(self),
            units=FakeUnits(self),
            http=FakeHttp(self),
            files=FakeFiles(self),
            locks=FakeLocks(self),
            processes=FakeProcesses(self),
            images=FakeImages(self),
        )

    def heed(self) -> None:
        """Every wait comes by here, as with the real clock: being told to end is raised once."""
        if self.told:
            self.told = False
            raise ToldToEndFault

    def step(self, mutation: str | None = None) -> None:
        self.effects_done += 1
        self.tick()
        self.check()
        if self.at_effect is not None:
            self.at_effect()
        if self.kill_at is not None and self.effects_done >= self.kill_at:
            self.kill_at = None
            raise Killed
        if self.told_at is not None and self.effects_done >= self.told_at:
            self.told_at, self.told = None, True
        if mutation is not None:
            self.mutations.append(mutation)


class FakeClock:
    def __init__(self, fake_host: FakeHost) -> None:
        self._host = fake_host

    def monotonic(self) -> float:
        return self._host.mono

    def now(self) -> datetime:
        return self._host.now()

    def sleep(self, seconds: float) -> None:
        self._host.heed()
        self._host.mono += max(seconds, 0.001)
        self._host.tick()


class FakeUnits:
    def __init__(self, fake_host: FakeHost) -> None:
        self._host = fake_host

    def _asked(self, what: str) -> None:
        if self._host.refuses(what):
            raise HostFault(f"`systemctl {what}` gave no answer within 60 s")

    def show(self, names: Sequence[str]) -> tuple[UnitState, ...]:
        self._host.step()
        self._asked("show")
        return tuple(self._state(name) for name in names)

    def _state(self, name: str) -> UnitState:
        unit = self._host.units.get(name)
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
            needs_reload=unit.needs_reload or unit.loaded not in (None, self._host.unit_text(unit)),
            file_state="enabled" if unit.shown else "disabled",
            started_at=unit.started_at.strftime("%Y-%m-%dT%H:%M:%SZ") if unit.up else "",
            stop_limit_s=unit.stop_limit_s,
            user="b70",
        )

    def survey(self, prefix: str, names: Sequence[str]) -> tuple[UnitState, ...]:
        self._host.step()
        self._asked("list-units")
        own = sorted(name for name in self._host.units if name.startswith(prefix))
        states = []
        for name in (*own, *names):
            unit = self._host.units.get(name)
            word = "" if unit is None or not unit.exists else "enabled" if unit.enabled else "disabled"
            states.append(replace(self._state(name), file_state=word))
        return tuple(states)

    def running(self, prefix: str) -> tuple[UnitState, ...]:
        return tuple(unit for unit in self.survey(prefix, ()) if unit.running)

    def start(self, name: str) -> None:
        self._host.step(f"start {name}")
        self._asked(f"start {name}")
        for other in self._host.units.values():
            # Conflicts= in the units
            own = name == other.name or self._host.layout.node_unit in (name, other.name)
            one = _together(self._host.layout, name, other.name) or {name, other.name} <= {*self._host.standby_ports}
            if not own and not one and other.active not in ("inactive", "failed"):
                self._host._down(other, "inactive")
        if self._host.units[name].up and name in self._host.standby_ports:
            return  # it runs already
        self._host.units[name].restarts, self._host.units[name].loaded = 0, None
        self._host.units[name].begun = []
        self._host.launch(self._host.units[name])

    def stop(self, name: str) -> None:
        self._host.step(f"stop {name}")
        self._asked(f"stop {name}")
        unit = self._host.units[name]
        if not unit.up:
            self._host._down(unit, "inactive")
            return
        unit.active, unit.sub = "deactivating", "stop-sigterm"
        if unit.live_fault == "never_stops":
            return
        wait = {"ignore_term": 30.0, "slow_stop": 10.0}.get(unit.live_fault, unit.stop_s)
        unit.stop_until = self._host.mono + wait

    def kill(self, name: str) -> None:
        self._host.step(f"kill {name}")
        unit = self._host.units[name]
        if unit.active == "deactivating":
            self._host._down(unit, "inactive")
        else:
            self._host._loop(unit)

    def reboot(self) -> None:
        self._host.step("reboot")
        self._host.going_down = True

    def forget_failure(self, name: str) -> None:
        self._host.step()
        if self._host.units[name].active == "failed":
            self._host._down(self._host.units[name], "inactive")

    def enable(self, name: str) -> None:
        self._host.step(f"enable {name}")
        self._asked(f"enable {name}")
        if self._host.layout.unit_dir in self._host.readonly:
            raise HostFault(f"`systemctl enable {name}` failed with 1", got="Read-only file system")
        self._host.units[name].enabled = True

    def disable(self, name: str) -> None:
        self._host.step(f"disable {name}")
        if self._host.layout.unit_dir in self._host.readonly:
            raise HostFault(f"`systemctl disable {name}` failed with 1", got="Read-only file system")
        self._host.units[name].enabled = False

    def reload(self) -> None:
        self._host.step("reload")
        if self._host.reload_fails:
            raise HostFault("`systemctl daemon-reload` failed with 1", got="Connection timed out")
        for unit in self._host.units.values():
            unit.loaded = None
            unit.shown = unit.enabled

    def stopping(self) -> bool:
        self._host.step()
        return self._host.going_down

    def log(self, unit: UnitState, lines: int) -> tuple[str, ...]:
        self._host.step()
        return self._host.logs.get(unit.invocation_id, self._host.log_lines)[-lines:]

    def kernel_log(self, lines: int) -> tuple[str, ...]:
        self._host.step()
        return self._host.kernel_lines[-lines:]


class FakeHttp:
    def __init__(self, fake_host: FakeHost) -> None:
        self._host = fake_host
        self.together = 0

    def get(self, url: str, timeout_s: float) -> Reply:
        self._host.step()
        self._host.heed()
        if url == f"{self._host.layout.frontdoor_url}/status":
            return self._status()
        engine = self._ready(url)
        if engine is None:
            return Reply(0, error="refused")
        fault = engine.live_fault
        if url.endswith("/health"):
            return Reply(500, "broken") if fault == "health_500" else Reply(200)
        if url.endswith("/is_sleeping"):
            return Reply(200, json.dumps({"is_sleeping": engine.asleep}))
        if url.endswith("/metrics"):
            return Reply(200, engine.metrics())
        served = "another" if fault == "wrong_id" else self._host.layout.profile_of(engine.name)
        told = next((word for word in engine.cmdline if word.startswith("--max-model-len=")), "")
        length = 99 if fault == "wrong_length" else int(told.partition("=")[2] or 512)
        return Reply(200, json.dumps({"data": [{"id": served, "max_model_len": length}]}))

    def get_each(self, urls: Sequence[str], timeout_s: float) -> list[Reply]:
        self._host.step()
        replies = []
        for url in urls:
            base, slash, path = url.partition("/node")
            found = self._host.nodes.get(base)
            replies.append(Reply(0, error="timeout") if found is None else found(f"{slash}{path}"))
        return replies

    def _status(self) -> Reply:
        fake_host = self._host
        if not fake_host.frontdoor_present:
            return Reply(0, error="refused")
        active = sum(1 for end in fake_host.generations if end > fake_host.mono)
        rows = [
            {"index": index, "active_generations": sum(1 for end in ends if end > fake_host.mono)}
            for index, ends in enumerate(fake_host.generations_on or [fake_host.generations])
        ]
        part: dict[str, Any] = {"state_sequence": fake_host.frontdoor_sequence, "active_generations": active}
        part |= {"queued_generations": 0, "max_active_generations": 2, "replicas": rows}
        return Reply(200, json.dumps({"ok": True, "slots": {fake_host.layout.slot: part}}))

    def _ready(self, url: str = BACKEND) -> FakeUnit | None:
        engine = self._host.engine(urlsplit(url).port or 80)
        if engine is None or engine.live_fault in ("never_ready", "device_lost") or engine.active != "active":
            return None
        return engine if self._host.mono - engine.started >= engine.load_s else None

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        self._host.step()
        self._host.heed()
        engine = self._ready(url)
        if engine is None:
            return Reply(0, error="refused")
        self._host.mono += 0.02
        asked = urlsplit(url)
        if asked.path in SLEEP_PATHS:
            return self._sleep(engine, asked.path, asked.query, body, timeout_s)
        if engine.asleep:
            engine.asked_asleep = True
            return Reply(500, "EngineCore encountered an issue")
        fault = "garbage" if engine.empty else engine.live_fault
        if fault == "wedged":
            self._host.mono += timeout_s
            return Reply(0, error="timeout")
        engine.tokens += 1
        if body["max_tokens"] == 1:
            if fault == "no_token":
                self._host.mono += timeout_s
                return Reply(0, error="timeout")
            logprob = float("nan") if fault == "nan" else -0.1
            logprobs = {"content": [{"token": "x", "logprob": logprob}]}
            return Reply(200, json.dumps({"choices": [{"message": {"content": "x"}, "logprobs": logprobs}]}))
        engine.answers += 1
        if fault == "dies_in_canary":
            self._host._down(engine, "failed")
            return Reply(0, error="connection broke: ConnectionError")
        if fault == "restarts_in_canary" and engine.answers == 3:
            engine.restarts += 1
            self._host.launch(engine)
            return Reply(200, json.dumps({"choices": [{"message": {"content": "OK"}}]}))
        text = ANSWERS[body["messages"][0]["content"]]
        if fault == "wrong_answer" or (fault == "wrong_one_in_four" and engine.answers % 4 == 0):
            text = "slh"
        text = {"garbage": "!" * 40, "empty": "  "}.get(fault, text)
        return Reply(200, json.dumps({"choices": [{"message": {"content": text}}]}))

    def _sleep(self, engine: FakeUnit, path: str, query: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        fault = engine.sleep_fault
        if fault and fault == SLEEP_PATHS[path]:
            self._host.mono += timeout_s
            return Reply(0, error="timeout")
        if path == "/sleep" and fault != "never_sleeps":
            engine.asleep, engine.empty = True, query == "level=2"
            engine.given_up = frozenset(("weights", "kv_cache"))
            if fault == "dies_asleep":
                engine.active, engine.sub, engine.pid = "activating", "auto-restart", 0
                engine.restart_at = self._host.mono + 15.0
        elif path == "/wake_up":
            engine.given_up -= {query.removeprefix("tags=")} if query else engine.given_up
            engine.asleep = bool(engine.given_up) or fault == "never_wakes"
            engine.live_fault = AWAKE.get(fault, engine.live_fault)
            if fault == "loses_card":
                self._host.logs[engine.invocation] = ("INFO waking", LOST)
                self._host._down(engine, "failed")
        elif path == "/collective_rpc":
            if fault == "fails_reload" or "weights" in engine.given_up or body != {"method": "reload_weights"}:
                return Reply(500, "no weights")
            engine.empty = fault == "forgets_reload"
        return Reply(200)

    def upload(self, url: str, fields: Mapping[str, str], file: Upload, timeout_s: float) -> Reply:
        self._host.step()
        self._host.heed()
        return Reply(404, "the model does not support the Transcriptions API")

    def post_together(
        self, url: str, bodies: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> Generator[tuple[int, Reply, float] | None, None, None]:
        """All at once: the replies come in no order, after a quiet second."""
        self.together = len(bodies)
        begun, engine = self._host.mono, self._ready(url)
        try:
            yield None
            while engine is not None and engine.live_fault == "wedged":
                if self._host.mono - begun >= timeout_s:
                    yield 0, Reply(0, error="timeout"), timeout_s
                    return
                yield None
            for index in reversed(range(len(bodies))):
                yield index, self.post(url, bodies[index], timeout_s), 0.02
        finally:
            self.together = 0


class FakeFiles:
    def __init__(self, fake_host: FakeHost) -> None:
        self._host = fake_host

    def _may(self, path: PurePosixPath) -> None:
        if any(path.is_relative_to(root) for root in self._host.readonly):
            raise OSError(30, "Read-only file system", str(path))
        if any(path.is_relative_to(root) for root in self._host.full):
            raise OSError(28, "No space left on device", str(path))

    def _readable(self, path: PurePosixPath) -> None:
        if path in self._host.unreadable:
            raise OSError(22, "is not a regular file, remove it", str(path))

    def _honour(self, path: PurePosixPath, text: str) -> None:
        """What others read keeps its contract. Text that a test tears has no newline at its end."""
        if path in CONTRACTS and text.endswith("\n"):
            contracts.check(CONTRACTS[path], text)

    def read(self, path: PurePosixPath) -> str | None:
        self._host.step()
        self._readable(path)
        if str(path) == MACHINE_ID:
            return Path(MACHINE_ID).read_text() if Path(MACHINE_ID).exists() else None
        if path == BOOT_ID:
            return f"boot-{self._host.boots}\n"
        if path == MEMINFO:
            return f"MemTotal: {self._host.memory // 1024} kB\nMemAvailable: {self._host.available // 1024} kB\n"
        found = self._host.texts.get(path)
        return None if found is None else found[0]

    def read_foreign(self, path: PurePosixPath) -> str | None:
        return self.read(path)

    def tail(self, path: PurePosixPath, limit: int) -> str | None:
        self._host.step()
        self._readable(path)
        found = self._host.texts.get(path)
        return None if found is None else found[0][-limit:]

    def names(self, path: PurePosixPath) -> tuple[str, ...]:
        self._host.step()
        above, depth = path.parts, len(path.parts)
        every = [known.parts for known in self._host.texts]
        return tuple(sorted({parts[depth] for parts in every if len(parts) > depth and parts[:depth] == above}))

    def write(self, path: PurePosixPath, text: str) -> None:
        self._host.step(f"write {path}")
        self._honour(path, text)
        self._may(path)
        self._host.hidden.discard(path)
        self._host.put(path, text)

    def append(self, path: PurePosixPath, text: str, *, sync: bool) -> None:
        self._host.step(f"append {path}" if sync else None)
        self._honour(path, text)
        self._may(path)
        before = self._host.texts.get(path)
        self._host.put(path, (before[0] if before else "") + text)

    def truncate(self, path: PurePosixPath, text: str) -> None:
        self._host.step()
        self._may(path)
        self._host.put(path, text)

    def remove(self, path: PurePosixPath) -> None:
        self._host.step(f"remove {path}")
        self._may(path)
        self._host.texts.pop(path, None)

    def rename(self, path: PurePosixPath, new: PurePosixPath) -> None:
        self._host.step(f"rename {path}")
        self._host.texts[new] = self._host.texts.pop(path)

    def hidden(self, path: PurePosixPath) -> str | None:
        self._host.step()
        return f"{path} has the mode 0600" if path in self._host.hidden else None

    def unhide(self, directory: PurePosixPath) -> None:
        self._host.step()
        self._host.hidden.discard(directory)

    def size(self, path: PurePosixPath) -> int | None:
        self._host.step()
        found = self._host.texts.get(path)
        return None if found is None else len(found[0])

    def modified(self, path: PurePosixPath) -> datetime | None:
        self._host.step()
        found = self._host.texts.get(path)
        return None if found is None else found[1]

    def writable(self, path: PurePosixPath) -> str | None:
        self._host.step()
        blocked = any(path.is_relative_to(root) for root in self._host.readonly)
        return f"{path} is read-only or not permitted" if blocked else None

    def free_bytes(self, path: PurePosixPath) -> int:
        self._host.step()
        return self._host.free

    def executable(self, path: PurePosixPath) -> bool:
        self._host.step()
        return path in self._host.texts

    def prefetch(self, path: PurePosixPath) -> Iterator[int]:
        self._host.step()
        self._readable(path)
        self._host.prefetched.append(path)
        self._host.mono += self._host.prefetch_s
        yield self.size(path) or 0


class FakeLocks:
    def __init__(self, fake_host: FakeHost) -> None:
        self._host = fake_host

    @contextmanager
    def hold(self, path: PurePosixPath, note: str, timeout_s: float) -> Iterator[None]:
        self._host.step()
        if path != self._host.layout.lock_file:
            with self._hold_card(path, note):
                yield
            return
        if self._host.lock_holder is not None and self._host.lock_for_s <= timeout_s:
            self._host.mono += self._host.lock_for_s
            self._host.lock_holder = None
        if self._host.lock_holder is not None:
            self._host.mono += timeout_s
            raise HostFault(f"the slot's lock {path} is held by another switch: {self._host.lock_holder}")
        self._host.lock_holder = note
        try:
            yield
        finally:
            self._host.lock_holder = None

    @contextmanager
    def _hold_card(self, path: PurePosixPath, note: str) -> Iterator[None]:
        if path in self._host.card_locks:
            raise HostFault(f"{path} is held: {self._host.card_locks[path]}")
        self._host.card_locks[path] = note
        try:
            yield
        finally:
            del self._host.card_locks[path]


class FakeImages:
    def __init__(self, fake_host: FakeHost) -> None:
        self._host = fake_host

    def id_of(self, reference: str) -> str:
        self._host.step()
        return self._host.images.get(reference, "")


@lru_cache
def _has_image(profile: str) -> bool:
    return "image" in json.loads(profile).get("stack", {})


class FakeProcesses:
    def __init__(self, fake_host: FakeHost) -> None:
        self._host = fake_host

    def _unit(self, pid: int) -> FakeUnit | None:
        """Whose engine the process is. A container's engine is not the process that systemd knows."""
        for unit in self._host.units.values():
            if unit.up and pid == (unit.pid + IN_CONTAINER if self._contained(unit) else unit.pid):
                return unit
        return None

    def _contained(self, unit: FakeUnit) -> bool:
        text, _when = self._host.texts.get(
            self._host.layout.profile_json(self._host.layout.profile_of(unit.name)), ("{}", None)
        )
        return _has_image(text)

    def contained(self, pid: int) -> int:
        self._host.step()
        units = [unit for unit in self._host.units.values() if unit.up and unit.pid == pid]
        return pid + IN_CONTAINER if units and self._contained(units[0]) and not self._host.containers_empty else 0

    def cmdline(self, pid: int) -> tuple[str, ...]:
        self._host.step()
        unit = self._unit(pid)
        return unit.cmdline if unit else ()

    def environ(self, pid: int) -> Mapping[str, str]:
        self._host.step()
        unit = self._unit(pid)
        return unit.environ if unit else {}

    def port_holders(self, port: int) -> tuple[Holder, ...]:
        self._host.step()
        engine = self._host.engine(port)
        ours = () if engine is None else (Holder(engine.pid, "vllm", "b70", engine.name, f"port {port}"),)
        return (*ours, *self._host.foreign)

    def render_nodes(self) -> tuple[str, ...]:
        self._host.step()
        return tuple(f"/dev/dri/renderD{128 + number}" for number in range(self._host.cards))

    def addresses(self, interface: str) -> tuple[str, ...] | None:
        self._host.step()
        return self._host.interfaces.get(interface)

    def device_holders(self, paths: Sequence[str]) -> tuple[Holder, ...]:
        self._host.step()
        ended = {unit.name for unit in self._host.units.values() if not unit.up}
        return tuple(user for user in self._host.device_users if user.what in paths and user.unit not in ended)

    def pci_address(self, node: str) -> str:
        self._host.step()
        return f"0000:{3 + int(node.removeprefix('/dev/dri/renderD')) - 128:02x}:00.0"

    def unbind(self, address: str) -> None:
        self._host.step(f"unbind {address}")

    def bind(self, address: str) -> None:
        self._host.step(f"bind {address}")
        self._host.bound_anew(address)

    def card_memory(self, nodes: Sequence[str]) -> tuple[CardMemory, ...]:
        self._host.step()
        held = any(unit.up and unit.asleep and unit.sleep_fault == "keeps_memory" for unit in self._host.units.values())
        used: int | None = 30 * 2**30 if self._host.mono < self._host.memory_until or held else 2**28
        if not self._host.memory_told:
            used = None
        return tuple(CardMemory(node, used, 32 * 2**30) for node in nodes)


def request(profile: str | None = "a", **changes: Any) -> Request:
    values: dict[str, Any] = {"profile": profile, "active": profile is not None, "switch_id": "test", "who": "tester"}
    return Request(**(values | changes))
