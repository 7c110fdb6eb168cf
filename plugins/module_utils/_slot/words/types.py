# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of a switch: phases, requests, observations of units, failures and records.

Everything here is immutable and free of effects. Times are seconds, points in time are timezone-aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Union


class Phase(StrEnum):
    """The phases of the transaction, in the order in which a full switch takes them."""

    LOCK = "lock"
    RESOLVE = "resolve"
    GUARD = "guard"
    JOURNAL = "journal"
    PREPARE = "prepare"
    CLEAR = "clear"
    CLOSE = "close"
    DRAIN = "drain"
    STOP = "stop"
    RELEASE = "release"
    START = "start"
    ALIVE = "alive"
    HEALTH = "health"
    IDENTITY = "identity"
    FIRST_TOKEN = "first_token"
    WARM_UP = "warm_up"
    CANARY = "canary"
    OPEN = "open"
    ENABLE = "enable"
    COMMIT = "commit"
    RESTORE = "restore"


class Direction(StrEnum):
    """FORWARD: to what was requested. BACK: to the last verified profile. HALT: to a stopped slot."""

    FORWARD = "forward"
    BACK = "back"
    HALT = "halt"


class Gate(StrEnum):
    """The condition before the frontdoor opens."""

    VERIFIED = "verified"
    HEALTHY = "healthy"
    NONE = "none"


class OnFailure(StrEnum):
    ROLLBACK = "rollback"
    STOP = "stop"
    LEAVE = "leave"


class Way(StrEnum):
    """The way to replace engines.

    PLAIN: all stop before the first one starts. ROLLING: the replicas of a profile in batches, while the others serve.
    BESIDE: the new one is started and verified beside the old one, which serves until then. STANDBY: as PLAIN, but the
    new one was asleep and is woken.
    """

    PLAIN = "plain"
    ROLLING = "rolling"
    BESIDE = "beside"
    STANDBY = "standby"


class Mode(StrEnum):
    """SWITCH: do what the caller requests. RECOVER: serve what the slot should serve, chosen under the lock. BOOT: the
    same without a person, so that an engine that was started by hand is left alone."""

    SWITCH = "switch"
    RECOVER = "recover"
    BOOT = "boot"


class End(StrEnum):
    """The end of a run."""

    UNCHANGED = "unchanged"  # nothing had to be done
    COMMITTED = "committed"  # what was asked for holds
    UNTOUCHED = "untouched"  # failed before anything was touched
    ROLLED_BACK = "rolled_back"  # failed; the last verified profile is verified again
    STOPPED = "stopped"  # failed; nothing runs, the frontdoor is closed
    LEFT = "left"  # failed; left as it was, the frontdoor is closed
    INTERRUPTED = "interrupted"  # the host goes down, or a node was lost; the next run settles it
    STUCK = "stuck"  # failed, and the engine could not be stopped; the frontdoor is closed
    DEGRADED = "degraded"  # a replica failed and is closed; the others are as they were
    DEFERRED = "deferred"  # the host could not be asked or written to; what runs was left, and is settled later


class Fault(Exception):
    """A fault that ends a phase.

    message: a sentence that names what was wrong and where. expected, got: the two sides, if there are two.
    log_tail: the engine's last log lines, bounded by the caller.
    """

    def __init__(
        self, message: str, *, expected: str | None = None, got: str | None = None, log_tail: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.got = got
        self.log_tail = log_tail


class SlotFault(Fault):
    """A phase could not do its work. Callers that can do without that work catch this one."""


class HostFault(SlotFault):
    """The host refused something, or gave no answer. It says nothing about the engine: whoever meets it tries again."""


class ExposedFault(SlotFault):
    """Clients may reach a process that was not verified. The engine is not at fault, and must not be open."""


class ToldToEndFault(Fault):
    """SIGTERM or SIGINT came. This is no SlotFault: code that tolerates a missing answer must not catch it."""

    def __init__(self, by: str = "SIGTERM") -> None:
        super().__init__(f"the switch was told to end ({by})")


class GaveWayFault(ToldToEndFault):
    """Clients came while the engine was asked something that must not disturb them."""

    def __init__(self) -> None:
        super().__init__()
        self.message = "clients came, so the engine was not asked on"


@dataclass(frozen=True)
class Failure:
    """A failed phase, with its evidence."""

    phase: Phase
    direction: Direction
    message: str
    expected: str | None = None
    got: str | None = None
    log_tail: tuple[str, ...] = ()
    symptom: str | None = None  # id of the known symptom found in the evidence
    advice: str | None = None  # what to do about that symptom
    cause: tuple[str, ...] = ()  # the first error of the process that failed first, where it was raised, what it led to
    kernel: tuple[str, ...] = ()  # what the kernel says of the engine's cards and of its end
    log: str | None = None  # the command that shows the engine's whole log
    told: bool = False  # the run was told to end; nothing was found to be wrong
    host: bool = False  # the host refused something or gave no answer; nothing was found to be wrong with the engine
    exposed: bool = False  # clients may reach a process that was not verified; the engine is not at fault
    woken: bool = False  # the engine was asleep before; its cold start was not tried
    replica: int | None = None  # which engine of the profile failed, where it has several

    @property
    def place(self) -> str:
        """The phase, and the direction unless it is forward."""
        way = {Direction.FORWARD: "", Direction.BACK: " on the way back", Direction.HALT: " while stopping"}
        return f"phase {self.phase}{way[self.direction]}"

    def describe(self) -> str:
        """Describe it in one sentence without its full stop: phase, message, both sides, cause, what to do."""
        sides = ""
        if self.expected is not None or self.got is not None:
            sides = f" (expected {self.expected}; got {self.got})" if self.expected else f" (got {self.got})"
        first = f"; the first error is: {self.cause[0].rstrip('.')}" if self.cause else ""
        advice = f"; known symptom {self.symptom}: {(self.advice or '').rstrip('.')}" if self.symptom else ""
        return f"{self.place}: {self.message}{sides}{first}{advice}"


@dataclass(frozen=True)
class PhaseRecord:
    """One phase that was run: how long it took and how it ended."""

    name: Phase
    direction: Direction
    seconds: float
    ok: bool


@dataclass(frozen=True)
class UnitState:
    """A systemd unit as `systemctl show` reports it."""

    name: str
    load: str = "not-found"  # loaded, not-found, bad-setting, masked; empty where systemd was not asked to load it
    active: str = "inactive"  # active, activating, deactivating, inactive, failed, reloading
    sub: str = "dead"
    result: str = "success"
    main_pid: int = 0
    invocation_id: str = ""
    restarts: int = 0
    exit_code: str = ""  # exited, killed, dumped
    exit_status: str = ""
    file_state: str = ""  # enabled, disabled, static, or empty without a file
    started_at: str = ""  # ISO 8601, UTC, of the main process
    job: int = 0  # number of the queued job, 0 without one
    needs_reload: bool = False
    stop_limit_s: float = 0.0  # after which systemd kills it; 0 if there is none, or it is unknown
    user: str = ""  # the user of its processes; empty for root
    asleep: bool = False  # its engine was put to sleep; if that has ended, nothing but the slot starts it again

    @property
    def running(self) -> bool:
        """Return whether the unit holds processes, or is about to. One that sleeps is in nobody's way."""
        return not self.asleep and self.at_work

    @property
    def at_work(self) -> bool:
        """Return the same, whether it sleeps or not."""
        return self.active in ("active", "activating", "deactivating", "reloading") or self.job != 0

    @property
    def settled(self) -> bool:
        """Return whether the unit is up and not between two attempts."""
        return self.active == "active" and self.main_pid > 0

    @property
    def enabled(self) -> bool:
        return self.file_state in ("enabled", "enabled-runtime")

    @property
    def exists(self) -> bool:
        return self.load not in ("not-found", "") or self.file_state != ""

    def describe(self) -> str:
        """Return a short form for messages, such as 'failed (exit-code, exited 3)'."""
        detail = [self.sub] if self.sub not in (self.active, "dead") else []
        if self.result not in ("success", ""):
            detail.append(self.result)
        if self.exit_code and self.active != "active":
            detail.append(f"{self.exit_code} {self.exit_status}".strip())
        return f"{self.active} ({', '.join(detail)})" if detail else self.active


@dataclass(frozen=True)
class Holder:
    """A process that holds a port or a device file."""

    pid: int
    command: str
    user: str
    unit: str  # the systemd unit it belongs to, or empty
    what: str  # "port 18080", "/dev/dri/renderD128"

    def describe(self) -> str:
        owner = f", unit {self.unit}" if self.unit else ""
        return f"{self.what}: pid {self.pid} ({self.command}, user {self.user}{owner})"


# Of 32 GiB, the driver manages 32656 MiB with ECC off; with ECC on, an eighth is gone.
WHOLE_MEMORY_BYTES = 30 * 2**30


@dataclass(frozen=True)
class CardMemory:
    """A card's own memory, in bytes. node: its device file. used: None if the driver does not tell this process."""

    node: str
    used: int | None
    total: int

    @property
    def ecc(self) -> bool:
        """Return whether ECC seems to be on, derived from the size."""
        return self.total < WHOLE_MEMORY_BYTES

    def describe(self) -> str:
        if self.used is None:
            return f"{self.node}: its driver tells only processes with CAP_PERFMON how much of it is in use"
        return f"{self.node}: {self.used / 2**30:.1f} of {self.total / 2**30:.1f} GiB in use"


@dataclass(frozen=True)
class Reply:
    """An HTTP answer. status: 0 if none came; then error says why (refused, timeout, or the library's words).

    arrivals: (seconds since the request, bytes of the text that had arrived by then).
    """

    status: int
    text: str = ""
    error: str = ""
    arrivals: tuple[tuple[float, int], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Request:
    """The request of a caller to one slot."""

    slot: str = "main"
    profile: str | None = None
    active: bool = True
    mode: Mode = Mode.SWITCH
    gate: Gate = Gate.VERIFIED
    on_failure: OnFailure = OnFailure.ROLLBACK
    drain_timeout_s: float = 60.0
    health_timeout_s: float | None = None
    lock_timeout_s: float = 0.0
    min_serving: int | None = None  # engines that keep serving; None: as many as possible
    canary_repeats: int | None = None
    record_baseline: bool = False
    accept_status: tuple[str, ...] = ()
    recheck: bool = False  # run the canary on what runs, even if it is verified, and replace nothing
    restart: bool = False  # start the engine anew, even if it is verified, from what was verified last
    planned: tuple[str, ...] = ()  # check mode only: which of unit, stack and weights count as present
    make_room: bool = True  # stop other slots that use cards which this profile needs; False: the profile is refused
    wedged: tuple[str, ...] = ()  # invocation ids of processes that answer /health, but do nothing else any more
    rebind: bool = False  # unbind and bind the driver of the cards while their engine is down
    lost: tuple[str, ...] = ()  # PCI addresses of the cards to rebind; empty: all cards of the engine
    while_idle: bool = False  # the canary gives way to clients
    leave: tuple[tuple[str, str], ...] = ()  # (unit, invocation id) of replicas that this settling has dealt with
    switch_id: str = ""
    who: str = ""
    why: str = ""


# The engine of a profile: None for the only one, the number of one of several, or BESIDE.
# It is not written with `|`, which sanity's pylint takes for an operation on values.
Which = Union[int, str, None]  # noqa: UP007
BESIDE = "beside"  # the second side of a profile with one engine: another unit, port and cards for it

EXCLUSIVE = "10-b70-exclusive.conf"  # keeps units of a slot from running beside each other
CONFIG_DIR = PurePosixPath("/etc/b70-vllm-slot")
RUN_DIR = PurePosixPath("/run/b70")
STATE_DIR = PurePosixPath("/var/lib/b70")
UNIT_DIR = PurePosixPath("/etc/systemd/system")
NODE_KEY = "b70-nodes"  # the key that the nodes of a group share, as a file and as a credential


class _Place:
    """A path below another one of the layout, `folder`; `{slot}` stands for the slot's name."""

    def __init__(self, folder: str, below: str) -> None:
        self._folder, self._below = folder, below

    def __set_name__(self, _owner: object, name: str) -> None:
        self._name = name

    def __get__(self, layout: Layout, _kind: object = None) -> PurePosixPath:
        folder: PurePosixPath = getattr(layout, self._folder)
        # The layout keeps it, like a cached_property: every look at the host asks for a dozen of them.
        found = layout.__dict__[self._name] = folder / self._below.format(slot=layout.slot)
        return found


@dataclass(frozen=True)
class Layout:
    """The paths of a slot on the host."""

    slot: str = "main"
    config_dir: PurePosixPath = CONFIG_DIR
    run_dir: PurePosixPath = RUN_DIR
    state_dir: PurePosixPath = STATE_DIR
    unit_dir: PurePosixPath = UNIT_DIR
    frontdoor_url: str = "http://127.0.0.1:8000"

    profiles_dir = _Place("config_dir", "profiles")
    pending_dir = _Place("config_dir", "pending")
    slot_file = _Place("config_dir", "slot.json")  # what the role rendered for the slot as a whole
    current_env = _Place("config_dir", "current.env")
    node_key_file = _Place("config_dir", f"keys/{NODE_KEY}")  # the key of the group, which only root reads
    slot_run_dir = _Place("run_dir", "{slot}")
    state_file = _Place("slot_run_dir", "state.json")
    spare_file = _Place("slot_run_dir", "spare")  # keeps room that a new state can take when no other is left
    lock_file = _Place("slot_run_dir", "lock")
    progress_file = _Place("slot_run_dir", "progress.jsonl")
    standby_dir = _Place("slot_run_dir", "standby")  # a file for each unit whose engine sleeps
    liveness_file = _Place("slot_run_dir", "liveness.json")  # what the controller has seen, and does next
    node_file = _Place("slot_run_dir", "node.json")  # what this node last reported, and heard from the others
    part_file = _Place("slot_run_dir", "part.json")  # the part of another node's engine that this host runs
    committed_file = _Place("state_dir", "committed/{slot}.json")  # the rendering that was verified last
    journal_file = _Place("state_dir", "journal/{slot}.jsonl")
    next_journal = _Place("state_dir", "journal/{slot}.jsonl.next")  # the one that is about to begin
    evidence_dir = _Place("state_dir", "evidence")
    records_index = _Place("state_dir", "records/index.json")  # the list of what the role evidence keeps
    network_file = _Place("state_dir", "network.json")  # measurements of the network to the other nodes of a group
    peer_access_file = _Place("state_dir", "peer-access.json")  # what evaluate.yml proved of access between cards
    quarantine_file = _Place("state_dir", "quarantine.json")  # of the host: a card that is lost, is so for every slot
    maintenance_file = _Place("state_dir", "maintenance.json")  # of the host, as for the quarantine
    climb_file = _Place("state_dir", "climb.json")  # what was tried last for a lost card of the host
    before_file = _Place("state_dir", "node/{slot}.json")  # what was served before a part of an engine took its place

    def profile_json(self, name: str) -> PurePosixPath:
        return self.profiles_dir / f"{name}.json"

    def profile_env(self, name: str, which: Which = None) -> PurePosixPath:
        return self.profiles_dir / f"{_engine_name(name, which)}.env"

    def pending(self, name: str) -> PurePosixPath:
        """Return the file with the rendering of a profile in use that a switch will put in place."""
        return self.pending_dir / f"{name}.json"

    def older_journal(self, number: int) -> PurePosixPath:
        """Return the journal before this one (1), the one before that (2) …"""
        return self.journal_file.with_name(f"{self.journal_file.name}.{number}")

    def card_lock(self, node: str) -> PurePosixPath:
        """Return the lock of a card, for all slots. node: its device file."""
        return self.run_dir / "cards" / f"{PurePosixPath(node).name}.lock"

    def standby_file(self, unit: str) -> PurePosixPath:
        """Return the file that says of a unit that its engine sleeps."""
        return self.standby_dir / unit

    def exclusive(self, unit: str) -> PurePosixPath:
        """Return the drop-in that names the units which systemd stops before it starts this one."""
        return self.unit_dir / f"{unit}.d" / EXCLUSIVE

    @property
    def controller_unit(self) -> str:
        """The unit that keeps the slot serving what was committed. No unit of a profile has this name."""
        return f"b70-controller-{self.slot}.service"

    @property
    def node_unit(self) -> str:
        """The unit that speaks with the other nodes of a group."""
        return f"b70-node-{self.slot}.service"

    @property
    def unit_prefix(self) -> str:
        return f"b70-slot-{self.slot}-"

    def unit(self, profile: str, which: Which = None) -> str:
        """Return the unit of a profile with one engine, or that of one of several."""
        return f"{self.unit_prefix}{_engine_name(profile, which)}.service"

    def profile_of(self, unit: str) -> str:
        """Return the profile's name in a unit name of this slot."""
        return unit.removeprefix(self.unit_prefix).removesuffix(".service").partition("@")[0]


def layout_of(settings: Mapping[str, Any]) -> Layout:
    """Return the places of a slot that the options of a module, or what the role wrote into the program, name."""
    return Layout(
        slot=settings["slot"],
        config_dir=PurePosixPath(settings["config_dir"]),
        run_dir=PurePosixPath(settings["run_dir"]),
        state_dir=PurePosixPath(settings["state_dir"]),
        unit_dir=PurePosixPath(settings["unit_dir"]),
        frontdoor_url=settings["frontdoor_url"].rstrip("/"),
    )


@dataclass(frozen=True)
class Neighbour:
    """Another slot of the host that serves a profile. cards: the device files that it and the target both use."""

    layout: Layout
    profile: str
    units: tuple[str, ...]  # those that run
    cards: tuple[str, ...]

    @property
    def slot(self) -> str:
        return self.layout.slot


def _engine_name(profile: str, which: Which) -> str:
    return profile if which is None else f"{profile}@{which}"


def replica_numbers(count: int) -> tuple[Which, ...]:
    """Return the numbers of a profile's engines: a single one has none, several count from 0."""
    return (None,) if count == 1 else tuple(range(count))
