# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases that deal with the engine as a process: stop, release, start, alive, health, identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ask.identity import check_process, check_served
from ..decide.machine import place_action
from ..decide.unit_checks import came_up, healthy, stayed_up
from ..kinds import kernel
from ..kinds.kind import Kind
from ..kinds.symptoms import diagnose, warnings
from ..kinds.table import kind_of
from ..look import strangers
from ..look.observe import engine_process, slot_units
from ..model import quarantine
from ..model.load_times import compared, load_limit_s
from ..model.rendering import committed, put_in_place
from ..words.types import CardMemory, Direction, Holder, SlotFault, UnitState
from . import standby
from .progress import engine_hint
from .run import EngineLoad, EngineRun, Run

ALIVE_LIMIT_S = 90.0
RELEASE_LIMIT_S = 30.0
RECHECK_LIMIT_S = 10.0  # a served engine answers at once
MEMORY_LIMIT_S = 15.0
_IDLE_SHARE = 0.05  # of a card's memory, which driver and firmware always use
DEFAULT_STOP_LIMIT_S = 240.0
STOP_MARGIN_S = 20.0  # systemd's own kill comes first
WEDGED_GRACE_S = 10.0  # a wedged engine that has not ended by then is killed
BIND_LIMIT_S = 30.0
_FAST_S, _SLOW_S = 0.2, 0.3
_PATIENT_AFTER_S = 15.0
_HINT_EVERY_S = 3.0
_SILENCE_S = 60.0
_HINT_LINES = 30
_START_LINES = 1000  # of an engine that has just become ready
_WATCHED_KERNEL_LINES = 100
_HOPELESS = ("device_lost",)  # other symptoms end the process, or the engine survives them


def stop(run: Run) -> None:
    """Stop every unit of the slot and every legacy unit, and wait until systemd reports that they are down.

    An engine that may sleep is put to sleep in place of that, and sleepers that are in its way end before. It is
    stopped where generations are left: they could go on with its wake.

    Three runs stop fewer units, and leave what boots as it is. A partial run stops only its own engines. A run whose
    target's engine serves already stops only the other units. A run whose target's engine was never served stops only
    that engine.
    """
    running = [unit for unit in _to_stop(run) if unit.running]
    falls = [unit for unit in running if run.direction is Direction.FORWARD and unit.name in run.plan.sleeps]
    if run.cut_off:
        falls = []
    apart = run.partial or run.undoing or run.spares or run.cold
    ends, level = ((), 0) if apart else standby.ending(run, falls)
    _end(run, [*(unit for unit in running if not (level and unit in falls)), *ends])
    standby.forget(run, [unit.name for unit in ends])
    _end(run, [unit for unit in falls if level and not standby.put_to_sleep(run, unit, level)])


def _end(run: Run, units: Sequence[UnitState]) -> None:
    """Stop these units, and wait until systemd reports that they are down."""
    running = [unit for unit in units if unit.at_work]
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
                # It was killed at its limit, or had failed before: the journal shows that. The host itself is fine.
                run.fx.units.forget_failure(unit.name)
        waiting = [unit.name for unit in seen if unit.running]
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


def _to_stop(run: Run) -> tuple[UnitState, ...]:
    if run.undoing:
        return run.fx.units.show(run.seen.target_units)
    if run.partial or run.cold:
        return run.fx.units.show([single.unit for single in run.singles])
    if run.sets_boot and not run.spares:
        return disable_all(run)
    units, legacy = slot_units(run.fx, run.layout)
    keep = run.profile.units if run.spares else ()
    return tuple(unit for unit in (*legacy, *units) if unit.name not in keep)


def disable_all(run: Run) -> tuple[UnitState, ...]:
    """Disable every unit, so that a crash of the host boots nothing until a switch commits. Return all units.

    This comes before anything is stopped: if systemd refuses it, the engine is untouched.
    """
    units, legacy = slot_units(run.fx, run.layout)
    for unit in (*legacy, *units):
        if unit.enabled:
            run.fx.units.disable(unit.name)
            run.did(f"disable {unit.name}")
    return (*legacy, *units)


def release(run: Run) -> None:
    """Wait until the ports are free and no process holds a card that the next engines need.

    A profile that was verified before starts even if a stranger holds one of its cards: it ran beside that process
    before, or the process came meanwhile. Only a worker that an engine of the slot left behind has to go. Engines that
    stay may have all cards open.
    """
    ports, nodes = _needs(run)
    stay = {*run.profile.units} - {single.unit for single in run.singles} if run.partial else set()
    if run.beside_old:
        stay = {unit.name for unit in run.seen.units if unit.running}
    asleep = {unit.name for unit in standby.sleepers(run)}
    processes = run.fx.processes
    before = {(holder.pid, holder.command) for holder in run.known.beside} if run.going_back else set()
    beside: list[Holder] = []
    found: tuple[Holder, ...] = ()
    for _waited in run.poll(RELEASE_LIMIT_S, _FAST_S):
        on_cards = [holder for holder in processes.device_holders(nodes) if holder.unit not in stay | asleep]
        beside = [holder for holder in on_cards if (holder.pid, holder.command) in before]
        found = (
            *(holder for port in ports for holder in processes.port_holders(port) if holder.unit not in asleep),
            *(holder for holder in on_cards if holder not in beside),
        )
        if not found:
            break
    else:
        user = run.profile.stack.user or run.unit(run.singles[0].unit).user or "root" if run.going_back else ""
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
    if not _await_memory(run, nodes) and (taking := standby.sleepers(run)):
        # One that holds a card's memory is awake, whatever it says. Which one does is not known.
        run.warn(f"{', '.join(unit.name for unit in taking)} may hold memory of a card, and end")
        _end(run, taking)
        standby.forget(run, [unit.name for unit in taking])
        _await_memory(run, nodes)


def _rebind(run: Run, nodes: Sequence[str]) -> None:
    """Unbind and bind the driver of each lost card, which brings back a card that the driver has declared lost.

    The PCI function is not reset: these cards don't come back from that.
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


def _await_memory(run: Run, nodes: Sequence[str]) -> bool:
    """Wait until the memory of the cards is free, if that can be read: the kernel frees it after the last holder.
    Return whether it is, as far as that is known. Each sleeper keeps a little of it.

    Memory that stays in use without a holder is only a warning: the engine reports whether it has enough.
    """
    busy: list[CardMemory] = []
    share = _IDLE_SHARE * (1 + len(standby.sleepers(run)))
    for _waited in run.poll(MEMORY_LIMIT_S, _FAST_S):
        cards = run.fx.processes.card_memory(nodes)
        busy = [card for card in cards if card.used is not None and card.used > share * card.total]
        if not busy:
            untold = [card.describe() for card in cards if card.used is None]
            if untold:
                run.warn(f"whether the memory of the cards is free is not known ({'; '.join(untold)})")
            return True
    said = "; ".join(card.describe() for card in busy)
    run.warn(f"no process of the slot holds a card, but after {MEMORY_LIMIT_S:g} s memory is still taken ({said})")
    return False


def _needs(run: Run) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the ports and the device files that have to be free."""
    if run.beside_old:
        found = run.fx.processes.render_nodes()
        numbers = [number for number in run.profile.numbers if number < len(found)]
        return (run.profile.engine.port,), tuple(found[number] for number in numbers)
    if run.request.active:
        nodes = dict.fromkeys(node for single in run.singles for node in strangers.cards_of(run.fx, single))
        return tuple(single.engine.port for single in run.singles), tuple(nodes)
    state = run.seen.state
    urls = [] if state is None else [state.backend_url, *(row["backend_url"] for row in state.replicas or ())]
    tails = dict.fromkeys((url or "").rpartition(":")[2] for url in urls)
    return tuple(int(tail) for tail in tails if tail.isdigit()), ()


def start(run: Run) -> None:
    """Put the engines' files in place, and queue the start of their units.

    One that sleeps is woken. With several engines, each unit but the first waits before it starts its process, so that
    not all load at once.
    """
    run.canary_passed = False
    _put_in_place(run)
    key, begun = run.load_key(run.profile), run.fx.clock.monotonic()
    run.engine, run.engines = None, []
    for single in run.singles:
        if run.wakes:
            run.engine = EngineRun(single, restarts=run.unit(single.unit).restarts, begun=begun, key=key)
            standby.wake(run, single)
            run.engines.append(run.engine)
            continue
        run.woken = False
        if single.standby:
            standby.forget(run, [single.unit])
        run.fx.units.start(single.unit)
        run.did(f"start {single.unit}")
        run.engines.append(EngineRun(single, begun=begun + single.engine.start_after_s, key=key))


def _put_in_place(run: Run) -> None:
    new, back = run.rendering, run.seen.back
    if new is None:
        return
    replaced = back is not None and run.plan.previous is not None and back != new and back.name == new.name
    if back is not None and replaced and committed(run.fx.files, run.layout) != back:
        # The way back starts from this copy.
        run.fx.files.write(run.layout.committed_file, back.to_json())
    action = place_action(new, back)
    # The old profile, which describes all engines, stays in place until the last engine is replaced.
    whole = not run.rolling or run.last_batch or run.direction is Direction.BACK
    if put_in_place(run.fx, run.layout, new, run.places, whole=whole) and action not in run.evidence.actions:
        run.did(action)


def alive(run: Run) -> None:
    """Wait until each unit runs a process, and remember which one."""
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
            # An engine that ends while others wait for their turn ends the wait.
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
    """Return whether the wait for this engine is over. A failed engine is dropped if another may take its place."""
    run.engine = engine
    try:
        return look(run, engine)
    except SlotFault:
        if not run.picking or len(run.engines) == 1:
            raise
        run.engines.remove(engine)
        return True


def current_engine(run: Run) -> tuple[EngineRun, UnitState]:
    """Return the current engine and its unit. Raise SlotFault unless the process is still the one that came up."""
    engine = run.engine
    if engine is None:
        raise SlotFault("no engine was taken over")
    unit = run.unit(engine.profile.unit)
    stayed_up(unit, engine.invocation_id, engine.restarts)
    return engine, unit


def health(run: Run) -> None:
    """Wait until each engine answers GET /health with 200, and fail at once when a unit fails.

    If one of several engines is enough for now, the run goes on with the first one that is ready.
    """
    # A profile that was verified before gets its whole start timeout: giving up early would leave nothing to serve.
    asked = None if run.going_back else run.request.health_timeout_s
    key = run.engines[0].key if run.engines else ""
    loads = () if run.going_back else run.seen.memory.load_times.loads.get(key, ())
    most = asked or run.profile.engine.start_timeout_s
    if run.rechecking:
        most = min(most, RECHECK_LIMIT_S)
    limit = asked or (load_limit_s(loads, most) if run.warm else most)
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
                run.evidence.loads.append(EngineLoad(key, round(max(look.loads), 3)))
            return
        for engine in () if run.picking else look.healthy:
            # A ready engine that ends while others load ends the wait.
            run.engine = engine
            current_engine(run)
        spoke_at = max(look.watches[engine.profile.unit].spoke_at for engine in waiting)
        if waited >= limit + later and waited - spoke_at >= _SILENCE_S:
            # The start takes longer than usual, and the log is silent. An engine that still logs has the whole time.
            break
        if waited > _PATIENT_AFTER_S:
            # A load of minutes needs no look five times a second.
            run.fx.clock.sleep(_SLOW_S)
    engine = run.engine = waiting[0]
    raise SlotFault(
        f"{engine.profile.unit} was not ready within {waited:.0f} s{compared(loads, waited)}: "
        f"GET {engine.profile.engine.backend_url}/health",
        expected="200",
        got=look.got[engine.profile.unit],
    )


class _HealthLook:
    """Checks the health of one engine with each call, and its log while it loads."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.healthy: list[EngineRun] = []
        self.loads: list[float] = []  # seconds until healthy, of the engines that this run started
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
            engine.health = reply.text
            self.healthy.append(engine)
            _warn(run, engine, unit)
            if engine.begun is not None:
                self.loads.append(run.fx.clock.monotonic() - engine.begun)
            return True
        self.got[name] = reply.error or str(reply.status)
        watch.look(unit, self.waited)
        return False


def _warn(run: Run, engine: EngineRun, unit: UnitState) -> None:
    """Pass on what the log of a ready engine says against it: it serves, but not as it should."""
    if run.rechecking:
        return
    for match in warnings(run.fx.units.log(unit, _START_LINES), kind_of(engine.profile.engine.kind)):
        run.warn(f"{engine.profile.unit}: {match.symptom.meaning}. {match.advice}")


def kernel_lines(run: Run, lines: int = quarantine.LOG_LINES) -> tuple[str, ...]:
    """Return what the kernel says of the current engine's cards, and of its end since it was started."""
    engine = run.engine
    if engine is None or kind_of(engine.profile.engine.kind).remote:
        return ()
    try:
        cards = strangers.addresses_of(run.fx, engine.profile).values()
        return kernel.about(run.fx.units.kernel_log(lines), set(cards), engine.started_at)
    except (SlotFault, OSError):
        return ()


class _LogWatch:
    """Watches the log of an engine that loads: progress is shown, and a hopeless symptom ends the wait."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._looked_at = 0.0
        self._lines: tuple[str, ...] = ()
        self._hint: str | None = None
        self.spoke_at = 0.0  # seconds into the wait when the log last changed

    def look(self, unit: UnitState, waited: float) -> None:
        """Read the log. Raise SlotFault if it says that the engine won't become ready."""
        if waited - self._looked_at < _HINT_EVERY_S:
            return
        self._looked_at = waited
        lines = self._run.fx.units.log(unit, _HINT_LINES)
        if lines != self._lines:
            self._lines, self.spoke_at = lines, waited
        kind = kind_of(self._run.profile.engine.kind)
        check_symptoms(lines, kind, kernel_lines(self._run, _WATCHED_KERNEL_LINES) if self._run.profile.cards else ())
        hint = engine_hint(lines, kind)
        if hint is not None and hint != self._hint:
            self._hint = hint
            number = None if self._run.engine is None else self._run.engine.profile.replica
            text = hint if number is None else f"replica {number}: {hint}"
            self._run.progress.say("hint", phase="health", text=text)


def check_symptoms(lines: Sequence[str], kind: Kind, said: Sequence[str] = ()) -> None:
    """Raise SlotFault if a log says that the engine will never be ready: there is no need to wait for the limit.

    :param said: what the kernel says of the engine's cards.
    """
    match = diagnose(lines, kind=kind, kernel=said)
    if match is not None and match.symptom.id in _HOPELESS:
        whose = "the kernel's log" if match.line in said else "the engine's log"
        raise SlotFault(f"{whose} says that it will not become ready: {match.symptom.meaning}")


def identity(run: Run) -> None:
    """Check that each engine serves the rendered id and context length, and that its process is the rendered one."""
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
        if engine.profile.standby and standby.says_asleep(run, engine.profile)[0]:
            raise SlotFault(f"{unit.name} sleeps, and nothing tells since when", expected="awake", got="asleep")
