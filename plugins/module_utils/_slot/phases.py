# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases that deal with the engine as a process: stop, release, start, alive, health, identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import strangers
from .identity import check_process, check_served
from .kinds.kind import Kind
from .kinds.table import kind_of
from .load_times import compared, load_limit_s
from .machine import place_action
from .observe import engine_process, slot_units
from .progress import engine_hint
from .rendering import committed, put_in_place
from .run import EngineRun, Load, Run
from .symptoms import diagnose
from .types import CardMemory, Direction, Holder, SlotFault, UnitState
from .unit_checks import came_up, healthy, is_down, stayed_up

ALIVE_LIMIT_S = 90.0
RELEASE_LIMIT_S = 30.0
RECHECK_LIMIT_S = 10.0  # an engine that is served answers at once
MEMORY_LIMIT_S = 15.0
_IDLE_SHARE = 0.05  # of a card's memory: what driver and firmware keep
DEFAULT_STOP_LIMIT_S = 240.0
STOP_MARGIN_S = 20.0  # systemd's own kill comes first
WEDGED_GRACE_S = 10.0  # for an engine that does nothing any more to end by itself
BIND_LIMIT_S = 30.0
_FAST_S, _SLOW_S = 0.2, 0.3
_PATIENT_AFTER_S = 15.0
_HINT_EVERY_S = 3.0
_SILENCE_S = 60.0
_HINT_LINES = 30
_HOPELESS = ("device_lost",)  # others end the process by themselves, and some are survived


def stop(run: Run) -> None:
    """Stops every unit of the slot and every legacy unit; waits until systemd says they are down.

    A partial run stops the units of its own engines only, and leaves what boots as it is.
    """
    known = run.fx.units.show([single.unit for single in run.singles]) if run.partial else disable_all(run)
    running = [unit for unit in known if unit.running]
    for unit in running:
        run.fx.units.stop(unit.name)
        run.did(f"stop {unit.name}")
    limit = max((unit.stop_limit_s or DEFAULT_STOP_LIMIT_S for unit in running), default=0.0) + STOP_MARGIN_S
    waiting = [unit.name for unit in running]
    doomed = [unit.name for unit in running if unit.invocation_id in run.request.wedged]
    for waited in run.poll(limit, _FAST_S):
        seen = run.fx.units.show(waiting)
        for unit in seen:
            if unit.active == "failed":
                # It was killed at its limit, or had failed before: that is in the journal, not in the host's health.
                run.fx.units.forget_failure(unit.name)
        waiting = [unit.name for unit in seen if not is_down(unit)]
        if not waiting:
            return
        if waited >= WEDGED_GRACE_S:
            for name in set(doomed) & set(waiting):
                run.fx.units.kill(name)
                run.did(f"kill {name}")
            doomed = []
    raise SlotFault(
        f"{', '.join(waiting)} did not stop within {limit:g} s",
        expected="inactive",
        got=run.unit(waiting[0]).describe(),
    )


def disable_all(run: Run) -> tuple[UnitState, ...]:
    """From here on a crash of the host boots nothing, until a switch commits. Returns the units there are.

    It comes before anything is stopped: where it is refused, the engine is as it was.
    """
    units, legacy = slot_units(run.fx, run.layout)
    for unit in (*legacy, *units):
        if unit.enabled:
            run.fx.units.disable(unit.name)
            run.did(f"disable {unit.name}")
    return (*legacy, *units)


def release(run: Run) -> None:
    """Waits until the ports are free and no process holds a card that the next engines need.

    What was verified before is started beside a stranger nevertheless: it ran so, or the stranger came meanwhile. Only
    a worker that an engine of ours left behind has to go. Other replicas, which stay, may have all cards open.
    """
    ports, nodes = _needs(run)
    stay = {*run.profile.units} - {single.unit for single in run.singles} if run.partial else set()
    processes = run.fx.processes
    before = {(holder.pid, holder.command) for holder in run.beside} if run.going_back else set()
    beside: list[Holder] = []
    found: tuple[Holder, ...] = ()
    for _waited in run.poll(RELEASE_LIMIT_S, _FAST_S):
        on_cards = [holder for holder in processes.device_holders(nodes) if holder.unit not in stay]
        beside = [holder for holder in on_cards if (holder.pid, holder.command) in before]
        found = (
            *(holder for port in ports for holder in processes.port_holders(port)),
            *(holder for holder in on_cards if holder not in beside),
        )
        if not found:
            break
    else:
        user = run.profile.user or run.unit(run.singles[0].unit).user or "root" if run.going_back else ""
        if not user or any(holder.user == user or holder.what not in nodes for holder in found):
            raise SlotFault(
                f"the slot was not let go of within {RELEASE_LIMIT_S:g} s; whoever holds it is not ours to end",
                expected="a free port and free cards",
                got=strangers.named(found),
            )
        beside += found
    if beside:
        run.warn(f"{run.profile.name} is started beside who holds a card of it: {strangers.named(beside)}")
    if run.request.rebind and run.direction is Direction.FORWARD:
        _rebind(run, nodes)
    _await_memory(run, nodes)


def _rebind(run: Run, nodes: Sequence[str]) -> None:
    """Unbinds and binds the driver of each lost card, which is what brings back one that it has declared lost. There is
    no reset of the PCI function: these cards don't come back from it.
    """
    processes = run.fx.processes
    found = {node: address for node in nodes if (address := processes.pci_address(node))}
    addresses = run.request.lost or tuple(found.values())
    held = processes.device_holders([node for node, address in found.items() if address in addresses])
    if not addresses or held:
        raise SlotFault(
            "the driver can't be rebound to the cards",
            expected="cards that nobody has open",
            got=strangers.named(held) or "no PCI address of a card",
        )
    for address in addresses:
        processes.unbind(address)
        processes.bind(address)
        run.did(f"bind the driver of {address} anew")
    for _waited in run.poll(BIND_LIMIT_S, _FAST_S):
        present = {processes.pci_address(node) for node in processes.render_nodes()}
        if present.issuperset(addresses):
            return
    raise SlotFault(
        f"not all cards came back within {BIND_LIMIT_S:g} s after their driver was rebound",
        expected=", ".join(addresses),
        got=", ".join(sorted(present)) or "none",
    )


def _await_memory(run: Run, nodes: Sequence[str]) -> None:
    """Waits until the memory of the cards is free, where that can be read: the kernel frees it after the last holder.

    Memory that stays in use without a holder is said, and is no failure: the engine tells whether it has enough.
    """
    busy: list[CardMemory] = []
    for _waited in run.poll(MEMORY_LIMIT_S, _FAST_S):
        cards = run.fx.processes.card_memory(nodes)
        busy = [card for card in cards if card.used is not None and card.used > _IDLE_SHARE * card.total]
        if not busy:
            untold = [card.describe() for card in cards if card.used is None]
            if untold:
                run.warn(f"whether the memory of the cards is free is not known ({'; '.join(untold)})")
            return
    said = "; ".join(card.describe() for card in busy)
    run.warn(f"no process of the slot holds a card, but after {MEMORY_LIMIT_S:g} s memory is still taken ({said})")


def _needs(run: Run) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ports and the device files that have to be free."""
    if run.request.active:
        nodes = dict.fromkeys(node for single in run.singles for node in strangers.cards_of(run.fx, single))
        return tuple(single.engine.port for single in run.singles), tuple(nodes)
    state = run.seen.state
    urls = [] if state is None else [state.backend_url, *(row["backend_url"] for row in state.replicas or ())]
    tails = dict.fromkeys((url or "").rpartition(":")[2] for url in urls)
    return tuple(int(tail) for tail in tails if tail.isdigit()), ()


def start(run: Run) -> None:
    """Puts in place what the engines are to be started from, and queues the start of their units.

    Of several, each unit but the first waits before it starts its process: they don't load all at once.
    """
    run.canary_passed = False
    _put_in_place(run)
    key, begun = run.load_key(run.profile), run.fx.clock.monotonic()
    run.engine, run.engines = None, []
    for single in run.singles:
        run.fx.units.start(single.unit)
        run.did(f"start {single.unit}")
        run.engines.append(EngineRun(single, begun=begun + single.engine.start_after_s, key=key))


def _put_in_place(run: Run) -> None:
    new, back = run.rendering, run.seen.back
    if new is None:
        return
    replaced = back is not None and run.plan.previous is not None and back != new and back.name == new.name
    if back is not None and replaced and committed(run.fx.files, run.layout) != back:
        # What the way back needs.
        run.fx.files.write(run.layout.committed_file, back.to_json())
    action = place_action(new, back)
    # What describes all engines is that of before until the last of them is replaced.
    whole = not run.rolling or run.last_batch or run.direction is Direction.BACK
    if put_in_place(run.fx, run.layout, new, run.places, whole=whole) and action not in run.actions:
        run.did(action)


def alive(run: Run) -> None:
    """Waits until each unit runs a process of its own, and remembers which."""
    if not run.engines:
        run.engines = [EngineRun(single, restarts=run.unit(single.unit).restarts) for single in run.singles]
    waiting = list(run.engines)
    limit = ALIVE_LIMIT_S + max(engine.profile.turn_limit_s for engine in waiting)
    said = False
    for waited in run.poll(limit, _FAST_S):
        waiting = [engine for engine in waiting if not _ready(run, engine, _has_come_up)]
        if not waiting or (run.picking and len(waiting) < len(run.engines)):
            return
        for engine in () if run.picking else run.engines:
            # One that ends while others wait for their turn is not waited for either.
            if engine not in waiting:
                run.engine = engine
                current_engine(run)
        if waited > _PATIENT_AFTER_S and not said:
            said = True
            names = ", ".join(engine.profile.unit for engine in waiting)
            run.progress.say("hint", phase="alive", text=f"waits for the turn of {names}")
    run.engine = waiting[0]
    unit = run.unit(waiting[0].profile.unit)
    raise SlotFault(f"{unit.name} did not come up within {limit:g} s", expected="active", got=unit.describe())


def _has_come_up(run: Run, engine: EngineRun) -> bool:
    unit = run.unit(engine.profile.unit)
    if not came_up(unit, engine.restarts):
        return False
    engine.invocation_id, engine.started_at = unit.invocation_id, unit.started_at
    return True


def _ready(run: Run, engine: EngineRun, look: Callable[[Run, EngineRun], bool]) -> bool:
    """Whether this engine needs no more waiting for. One that failed is passed over where another may take its turn."""
    run.engine = engine
    try:
        return look(run, engine)
    except SlotFault:
        if not run.picking or len(run.engines) == 1:
            raise
        run.engines.remove(engine)
        return True


def current_engine(run: Run) -> tuple[EngineRun, UnitState]:
    """The engine that is looked at and its unit, when the process is still the one that came up. Raises SlotFault
    otherwise."""
    engine = run.engine
    if engine is None:
        raise SlotFault("no engine was taken over")
    unit = run.unit(engine.profile.unit)
    stayed_up(unit, engine.invocation_id, engine.restarts)
    return engine, unit


def health(run: Run) -> None:
    """Waits for GET /health of each engine, and gives up at once when a unit does.

    Where one of several is enough for now, the first that is ready is the one that the run is about from here on.
    """
    # What was verified before gets all the time that its profile gives it: giving it up early would leave nothing.
    asked = None if run.going_back else run.request.health_timeout_s
    key = run.engines[0].key if run.engines else ""
    loads = () if run.going_back else run.seen.memory.load_times.loads.get(key, ())
    most = asked or run.profile.engine.start_timeout_s
    if run.rechecking:
        most = min(most, RECHECK_LIMIT_S)
    limit = asked or load_limit_s(loads, most)
    look = _HealthLook()
    waiting = list(run.engines)
    later = max((engine.profile.engine.start_after_s for engine in waiting), default=0.0)
    waited = 0.0
    for waited in run.poll(most + later, _FAST_S):
        look.waited = waited
        waiting = [engine for engine in waiting if not _ready(run, engine, look)]
        if run.picking and look.healthy:
            run.narrow(look.healthy[0])
            return
        if not waiting:
            if look.loads:
                run.loads.append(Load(key, max(look.loads)))
            return
        for engine in () if run.picking else look.healthy:
            # One that is ready and ends while others load is not waited for either.
            run.engine = engine
            current_engine(run)
        spoke_at = max(look.watches[engine.profile.unit].spoke_at for engine in waiting)
        if waited >= limit + later and waited - spoke_at >= _SILENCE_S:
            # Longer than such starts take, and it says nothing. One that still says something has the whole time.
            break
        if waited > _PATIENT_AFTER_S:
            # A load of minutes isn't held up by looking at it five times a second.
            run.fx.clock.sleep(_SLOW_S)
    engine = run.engine = waiting[0]
    raise SlotFault(
        f"{engine.profile.unit} was not ready within {waited:.0f} s{compared(loads, waited)}: "
        f"GET {engine.profile.engine.backend_url}/health",
        expected="200",
        got=look.got[engine.profile.unit],
    )


class _HealthLook:
    """Looks at the health of one engine after the other, and at the log of one that loads."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.healthy: list[EngineRun] = []
        self.loads: list[float] = []  # seconds, of those that this run started
        self.watches: dict[str, _LogWatch] = {}
        self.got: dict[str, str] = {}

    def __call__(self, run: Run, engine: EngineRun) -> bool:
        name = engine.profile.unit
        watch = self.watches.setdefault(name, _LogWatch(run))
        self.got.setdefault(name, "nothing")
        if not engine.invocation_id and not _has_come_up(run, engine):
            return False
        _engine, unit = current_engine(run)
        reply = run.fx.http.get(f"{engine.profile.engine.backend_url}/health", 5.0)
        if healthy(reply):
            self.healthy.append(engine)
            if engine.begun is not None:
                self.loads.append(run.fx.clock.monotonic() - engine.begun)
            return True
        self.got[name] = reply.error or str(reply.status)
        watch.look(unit, self.waited)
        return False


class _LogWatch:
    """Looks at the log of an engine that loads: what it says is shown, what is hopeless ends the wait."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._looked_at = 0.0
        self._lines: tuple[str, ...] = ()
        self._hint: str | None = None
        self.spoke_at = 0.0  # seconds into the wait when the log was last seen to have grown

    def look(self, unit: UnitState, waited: float) -> None:
        """Raises SlotFault when the log says that the engine won't become ready."""
        if waited - self._looked_at < _HINT_EVERY_S:
            return
        self._looked_at = waited
        lines = self._run.fx.units.log(unit, _HINT_LINES)
        if lines != self._lines:
            self._lines, self.spoke_at = lines, waited
        kind = kind_of(self._run.profile.engine.kind)
        check_symptoms(lines, kind)
        hint = engine_hint(lines, kind)
        if hint is not None and hint != self._hint:
            self._hint = hint
            number = None if self._run.engine is None else self._run.engine.profile.replica
            text = hint if number is None else f"replica {number}: {hint}"
            self._run.progress.say("hint", phase="health", text=text)


def check_symptoms(lines: Sequence[str], kind: Kind) -> None:
    """Raises SlotFault when the log says that the engine will never be ready: no need to wait for the limit."""
    match = diagnose(lines, kind=kind)
    if match is not None and match.symptom.id in _HOPELESS:
        raise SlotFault(f"the engine's log says that it will not become ready: {match.symptom.meaning}")


def identity(run: Run) -> None:
    """The served id and length, and the process itself, are what was rendered; of each engine."""
    for engine in run.each():
        _engine, unit = current_engine(run)
        strangers.check_port(run.fx, engine.profile)
        check_served(engine.profile, run.fx.http.get(f"{engine.profile.engine.backend_url}/v1/models", 10.0))
        processes, pid = run.fx.processes, engine_process(run.fx, engine.profile, unit)
        if not pid:
            raise SlotFault(
                f"{unit.name} has no process of {engine.profile.name} in a container of its own",
                expected="the engine as the first process of its container",
                got=f"process {unit.main_pid} without one",
            )
        check_process(engine.profile, processes.cmdline(pid), processes.environ(pid))
