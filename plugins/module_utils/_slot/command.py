# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command b70ctl: words in, the same engine as the Ansible modules behind, tables or JSON out."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from .daemons import daemon
from .daemons.node_service import NodeService
from .face import admin, api, table
from .host.caller import caller
from .host.clock import SystemClock
from .host.effects import host_effects
from .host.node_server import NodeServer
from .look.journal import read_memory
from .look.node_link import INTERVAL_S, await_nodes, read_key
from .look.observe import load_profile
from .model import quarantine
from .model.journal import IDLE
from .model.node_key import respond
from .model.nodes import NodeReport
from .model.recorded import recorded
from .model.slot_file import read_slot_file
from .model.state_file import stamp
from .words.decode import plain
from .words.effects import Effects
from .words.types import NODE_KEY, CardMemory, Gate, Layout, Mode, OnFailure, Request, SlotFault, layout_of

DONE, FAILED, USAGE, NOT_SERVING, LOCKED, QUARANTINED = range(6)
CODES = """\
exit codes:
  0  done; for `status`: a verified model is served
  1  failed; what is served now is in the message
  2  wrong usage
  3  not serving: nothing is served, or what runs is not verified
  4  locked: another switch works on the slot
  5  refused, because the host is in quarantine
"""
_CHANGES = ("switch", "stop", "verify", "record", "recover")
_FOR_ROOT = (*_CHANGES, "quarantine", "clear-quarantine", "maintenance", "run", "node", "await-nodes")

# Prints the data as JSON, or the lines as text.
Say = Callable[[Any, Sequence[str]], object]


def parser(version: str = "") -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON instead of text")
    whole = argparse.ArgumentParser(
        prog="b70ctl",
        description="Looks at the model slot of this host, and changes what it serves.",
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"arcpro.b70 {version or '(version not known)'}")
    words = whole.add_subparsers(dest="word", required=True, metavar="COMMAND")

    def word(name: str, text: str) -> argparse.ArgumentParser:
        form = argparse.RawDescriptionHelpFormatter
        return words.add_parser(
            name, help=text, description=text, parents=[common], epilog=CODES, formatter_class=form, allow_abbrev=False
        )

    word("list", "the profiles that this host can serve")
    word("status", "what is served now, and whether it is verified")
    switch = word("switch", "serve another profile, verified; on failure go back to the one before")
    switch.add_argument("profile", metavar="PROFILE", help="a name from `b70ctl list`")
    switch.add_argument("--check", action="store_true", help="only say what would be done")
    switch.add_argument("--gate", choices=[str(gate) for gate in Gate], default="verified")
    switch.add_argument("--on-failure", choices=["rollback", "stop", "leave"], default="rollback")
    switch.add_argument(
        "--accept-status", metavar="STATUS", action="append", default=[], help="serve a profile of this refused status"
    )
    switch.add_argument(
        "--min-serving",
        type=int,
        metavar="N",
        help="engines that go on serving (default: as many as possible: all replicas but one, or the old engine if "
        "cards are free for the new one); 0 stops all first",
    )
    stop = word("stop", "stop the engine, and start none at boot")
    stop.add_argument(
        "--idle",
        action="store_true",
        help="as the frontdoor does if nobody asks for it: only with frontdoor_on_demand the next request loads it",
    )
    verify = word("verify", "ask the canary of the engine that runs, and open the frontdoor for it where it is closed")
    record = word("record", "serve PROFILE and record what it answers now as the baseline of its canary")
    record.add_argument("profile", metavar="PROFILE", help="a name from `b70ctl list`")
    recover = word("recover", "serve what was committed now, without waiting for the controller's next try")
    for form in (switch, stop):
        form.add_argument("--drain-timeout", type=float, default=60.0, metavar="S", help="for running answers (60)")
    for form in (switch, record):
        form.add_argument(
            "--health-timeout",
            type=float,
            metavar="S",
            help="for the engine to be ready (from earlier starts, or the profile's)",
        )
    for form in (switch, stop, verify, record, recover):
        form.add_argument("--lock-timeout", type=float, default=0.0, metavar="S", help="for another switch to end (0)")
        form.add_argument("--why", default="", metavar="TEXT", help="kept in the journal")
    hold = word("quarantine", "close the frontdoor of a host that is not to be trusted, until clear-quarantine")
    hold.add_argument("--why", required=True, metavar="TEXT", help="shown to whoever meets the quarantine")
    clear = word("clear-quarantine", "let a host in quarantine take profiles again")
    clear.add_argument("--why", default="", metavar="TEXT", help="kept with the evidence")
    rest = word("maintenance", "take the host out of the fleet, or end that; what the slot serves stays as it is")
    which = rest.add_mutually_exclusive_group(required=True)
    which.add_argument("--why", metavar="TEXT", help="begin it; shown to whoever meets it")
    which.add_argument("--end", action="store_true", help="end it")
    word(
        "cards",
        "the cards' memory in use and power caps, as far as the driver reports them; only root sees all",
    )
    history = word("history", "the last switches, benchmarks, soaks and other records, newest last")
    history.add_argument("-n", "--last", type=int, default=10, metavar="N", help="how many (10, at most 20 switches)")
    logs = word("logs", "what the slot's engines and its controller wrote to the journal of the host")
    logs.add_argument("profile", metavar="PROFILE", nargs="?", help="only the engine of this profile")
    logs.add_argument("-n", "--last", type=int, default=100, metavar="N", help="how many lines (100)")
    logs.add_argument("-f", "--follow", action="store_true", help="go on with what is written now")
    word("run", "keep the slot serving what was committed, as b70-controller@.service does; runs until stopped")
    word("admin", "answer one request of the frontdoor on standard input, as b70-slot-admin@.service does")
    word("node", "take part in the group of this host, as the b70-node unit does; runs until stopped")
    waits = word("await-nodes", "wait until the other nodes run their parts of PROFILE, as its unit does")
    waits.add_argument("profile", metavar="PROFILE", help="a name from `b70ctl list`")
    word("completion", "a script that completes commands and profiles in bash: source <(b70ctl completion)")
    return whole


def words_of(whole: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Return the command's words, each with its options."""
    forms = next(action.choices for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    return {
        name: sorted(option for action in form._actions for option in action.option_strings if option.startswith("--"))
        for name, form in forms.items()
    }


def journal_argv(layout: Layout, arguments: argparse.Namespace) -> list[str]:
    """Return the command that shows what `logs` asks for."""
    if arguments.profile:
        units = [f"{layout.unit_prefix}{arguments.profile}{which}.service" for which in ("", "@*")]
    else:
        units = [f"{layout.unit_prefix}*", layout.controller_unit]
    form = ["--output=json"] if arguments.json else ["--output=short-iso"]
    follow = ["--follow"] if arguments.follow else []
    return ["journalctl", *(f"--unit={unit}" for unit in units), f"--lines={max(0, arguments.last)}", *form, *follow]


def main(argv: Sequence[str], settings: Mapping[str, str]) -> int:
    """Run the command on this host and return its exit code. settings: see `layout_of`; all are text."""
    arguments = parser(settings.get("version", "")).parse_args(argv)
    if arguments.word == "logs":
        command = journal_argv(layout_of(settings), arguments)
        os.execvp(command[0], command)
    if arguments.word in _FOR_ROOT and os.geteuid() != 0:
        sys.stderr.write(f"b70ctl: {arguments.word} changes what runs; use: sudo b70ctl {arguments.word}\n")
        return FAILED
    clock = SystemClock()
    told: list[bool] = []
    if arguments.word == "run":
        happened = threading.Event()

        def end() -> None:
            told.append(True)
            happened.set()

        def aside(work: Callable[[], None]) -> None:
            def whole() -> None:
                work()
                happened.set()

            _aside(whole)

        def wait(seconds: float) -> None:
            happened.wait(seconds)
            happened.clear()

        clock.heed_signals(end, happened.set)
        # Long work knows nothing of signals: it ends with this process, and the next one continues.
        own = host_effects(SystemClock())
        controller = daemon.Controller(host_effects(clock), layout_of(settings), _logged, aside, own)
        daemon.run(controller, lambda: bool(told), wait)
        return DONE
    if arguments.word in (*_CHANGES, "admin"):
        clock.heed_signals(lambda: os.write(2, b"b70ctl: told to end; what was begun is brought to an end first\n"))
    try:
        return execute(arguments, host_effects(clock), layout_of(settings), sys.stdout.write)
    except BrokenPipeError:
        return FAILED
    except PermissionError as error:
        sys.stderr.write(f"b70ctl: {error.filename}: {error.strerror}; use: sudo b70ctl {arguments.word}\n")
        return FAILED


def _logged(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def execute(arguments: argparse.Namespace, fx: Effects, layout: Layout, write: Callable[[str], object]) -> int:
    """Execute the words of the command line and return the exit code."""

    def say(data: Any, lines: Sequence[str]) -> None:
        write(json.dumps(data, ensure_ascii=False, indent=1) + "\n" if arguments.json else "\n".join(lines) + "\n")

    return _execute(arguments, fx, layout, say)


def _execute(arguments: argparse.Namespace, fx: Effects, layout: Layout, say: Say) -> int:
    try:
        if arguments.word in _CHANGES:
            return _change(arguments, fx, layout, say)
        if arguments.word == "admin":
            return DONE if admin.serve(fx, layout, partial(_asked, fx)) else FAILED
        if arguments.word == "completion":
            script = table.completion(words_of(parser()), str(layout.profiles_dir))
            say({"bash": "\n".join(script)}, script)
            return DONE
        if arguments.word == "quarantine":
            held = api.isolate(fx, layout, caller(), arguments.why)
            say(held, [held["msg"], *(f"note: {text}" for text in held["warnings"])])
            return DONE
        if arguments.word == "clear-quarantine":
            return _clear(arguments, fx, layout, say)
        if arguments.word == "maintenance":
            held = api.maintain(fx, layout, caller(), arguments.why)
            say(held, [held["msg"]])
            return DONE
        if arguments.word == "history":
            attempts = [attempt.as_dict() for attempt in read_memory(fx, layout).attempts]
            switches, records = table.last(attempts, recorded(fx, layout), max(1, arguments.last))
            document = {"slot": layout.slot, "switches": switches, "records": records}
            say(document, table.history(switches, records))
            return DONE
        if arguments.word == "node":
            return _node(fx, layout)
        if arguments.word == "await-nodes":
            profile, epoch = load_profile(fx, layout, arguments.profile), os.environ.get("INVOCATION_ID", "")
            await_nodes(fx, layout, profile, epoch, lambda: api.switches(fx, layout))
            return DONE
        if arguments.word == "cards":
            return _cards(fx, say)
        info = api.info(fx, layout)
        if arguments.word == "list":
            say({"slot": layout.slot, "profiles": info["profiles"]}, table.profiles(info))
            return DONE
        say(info, table.status(info))
        return DONE if info["open"] and info["verified"] else NOT_SERVING
    except SlotFault as fault:
        say({"failed": True, "msg": fault.message}, [fault.message])
        return FAILED


def _asked(fx: Effects, layout: Layout, words: Sequence[str]) -> tuple[int, Mapping[str, Any]]:
    """Execute the words for the administration and return the exit code and the data."""
    said: list[Mapping[str, Any]] = []
    code = _execute(parser().parse_args(words), fx, layout, lambda data, _lines: said.append(data))
    return code, said[-1]


def _change(arguments: argparse.Namespace, fx: Effects, layout: Layout, say: Say) -> int:
    request = Request(
        slot=layout.slot,
        lock_timeout_s=max(0.0, arguments.lock_timeout),
        switch_id=api.new_switch_id(stamp(fx.clock.now())),
        who=caller(),
        why=arguments.why,
    )
    if arguments.word == "switch":
        request = replace(
            request,
            profile=arguments.profile,
            gate=Gate(arguments.gate),
            health_timeout_s=arguments.health_timeout,
            on_failure=OnFailure(arguments.on_failure),
            drain_timeout_s=max(0.0, arguments.drain_timeout),
            min_serving=None if arguments.min_serving is None else max(0, arguments.min_serving),
            accept_status=tuple(arguments.accept_status),
        )
        if arguments.check:
            result = api.check(fx, layout, request)
            say(result, [result["msg"]])
            return FAILED if result["failed"] else DONE
    elif arguments.word == "stop":
        if arguments.idle:
            request = replace(request, who=IDLE, why=request.why or f"asked for by {request.who}")
        request = replace(request, active=False, drain_timeout_s=max(0.0, arguments.drain_timeout))
    elif arguments.word == "verify":
        name = api.info(fx, layout)["profile"]
        if name is None:
            words = f"nothing runs in slot {layout.slot}; start something with `b70ctl switch PROFILE`"
            say({"failed": True, "msg": words}, [words])
            return NOT_SERVING
        request = replace(request, profile=name, recheck=True)
    elif arguments.word == "record":
        request = replace(
            request, profile=arguments.profile, record_baseline=True, health_timeout_s=arguments.health_timeout
        )
    else:
        request = replace(request, mode=Mode.RECOVER)
    result = api.switch(fx, layout, request)
    say(result, table.result(result))
    if arguments.word == "record" and not result["failed"]:
        return DONE if result["recorded"] else FAILED
    if not result["failed"]:
        # A slot that was to be recovered and has nothing to serve is settled, but serves nothing.
        return NOT_SERVING if arguments.word == "recover" and not result["profile"] else DONE
    if arguments.word == "recover" and result["rolled_back"]:
        # The wanted engine runs verified, if not at the first try.
        return DONE
    if result["failure"]["phase"] == "lock":
        return LOCKED
    # Quarantine is the first guard, so whatever stands behind it was not asked.
    return QUARANTINED if result["quarantine"] and result["failure"]["phase"] == "guard" else FAILED


def _node(fx: Effects, layout: Layout) -> int:
    """Take part in the group of this host until it leaves the group."""
    group = read_slot_file(fx, layout).nodes
    if group is None:
        raise SlotFault("this host is in no group of nodes (b70_nodes)")
    # systemd read it as root, or as the unit's credential was set up.
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    key_file = PurePosixPath(folder, NODE_KEY) if folder else layout.node_key_file
    key = read_key(fx, key_file)
    service = NodeService(fx, layout, lambda text: sys.stderr.write(f"{text}\n"), key_file, _aside)
    said: list[tuple[NodeReport, float]] = []

    def answer(path: str) -> tuple[int, str]:
        text = None
        if said:
            report, looked_at = said[-1]
            text = replace(report, age=fx.clock.monotonic() - looked_at, busy=service.busy).to_json()
        return respond(key, group.own.name, path, text)

    try:
        NodeServer(group.own.address, group.port, answer)
    except OSError as error:
        raise SlotFault(f"this node can't be reached at {group.own.address} port {group.port}: {error}") from error
    while True:
        looked_at = fx.clock.monotonic()
        report = service.look()
        if report is None:
            return DONE
        said[:] = [(report, looked_at)]
        fx.clock.sleep(INTERVAL_S)


def _aside(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _which(row: Mapping[str, Any]) -> str:
    """Return the model and address of a card in words that follow its number, as far as the kernel tells them."""
    told = " at ".join(text for text in (row["model"], row["address"]) if text)
    return f" ({told})" if told else ""


def _cards(fx: Effects, say: Say) -> int:
    rows = api.cards(fx)
    lines = [
        f"{row['node']}: its driver does not tell"
        if row["total_bytes"] is None
        else CardMemory(row["node"], row["used_bytes"], row["total_bytes"]).describe()
        for row in rows
    ]
    lines = [
        f"card {number}{_which(row)}: {line}"
        + ("" if row["power_cap_w"] is None else f"; power cap {row['power_cap_w']:g} W")
        for number, (line, row) in enumerate(zip(lines, rows, strict=True))
    ]
    say({"cards": rows, "msg": "; ".join(lines) or "this host shows no cards"}, lines or ["this host shows no cards"])
    return DONE


def _clear(arguments: argparse.Namespace, fx: Effects, layout: Layout, say: Say) -> int:
    try:
        held = quarantine.read(fx, layout)
        done = api.release(fx, layout, caller(), arguments.why)
    except OSError as error:
        raise SlotFault(f"the quarantine could not be cleared: {error}") from error
    say({"cleared": plain(held), "msg": done["msg"]}, [done["msg"]])
    return DONE
