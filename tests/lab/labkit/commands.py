# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the commands do. Each may be killed anywhere and run again."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import cards as hardware
from . import hosts, image, machine, network
from .common import LabError, locked, remove_tree, run, say, wait_for, write_atomic
from .layout import Host, Lab, State, read_pid

_LOCK_WAIT = 1800.0


def _base(lab: Lab) -> None:
    lab.base.mkdir(parents=True, exist_ok=True)
    ignore = lab.base / ".gitignore"
    if not ignore.exists():
        write_atomic(ignore, "*\n")


def _ssh_key(lab: Lab) -> bool:
    """Make the lab's key if it has none; returns whether it is a new one, which no host knows yet."""
    public = lab.key.with_suffix(".pub")
    if lab.key.exists() and public.exists():
        return False
    lab.key.parent.mkdir(parents=True, exist_ok=True)
    lab.key.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {lab.name}", "-f", lab.key])
    return True


def up(
    lab: Lab, count: int | None = None, fresh: bool = False, containers: bool = False, suite: str | None = None
) -> State:
    """Make the lab have at least `count` hosts (default: what it has, else one) that run and answer; repair it.

    containers: hosts that start now can run containers, here and when the lab is repaired.
    suite: what hosts are that are made from now on; those that there are stay as they are.
    """
    machine.require()
    _base(lab)
    if suite:
        machine.host_suite(*machine.suite_of(machine.os_release()), suite)
    with locked(lab.lock, f"lab {lab.name!r}", _LOCK_WAIT):
        lab.directory.mkdir(parents=True, exist_ok=True)
        if containers:
            write_atomic(lab.containers, "")
        if suite:
            write_atomic(lab.suite_file, f"{suite}\n")
        new_key = _ssh_key(lab)
        state, moved = network.up(lab, State.load(lab))
        wanted = max(count or 0, len(state.hosts), 1, *(host.index for host in lab.on_disk()))
        if wanted > 200:
            raise LabError(f"a lab has room for 200 hosts, not for {wanted}")
        joined = wanted > len(state.hosts)
        state = replace(state, hosts=list(range(1, wanted + 1)))
        state.save(lab)
        everyone = [lab.host(index) for index in state.hosts]
        hosts.write_known_hosts(lab, state)  # a command that was killed may have left it behind the hosts
        plan = {host: _plan(lab, state, host, moved=moved or new_key, fresh=fresh) for host in everyone}
        tar = image.image(lab) if "make" in plan.values() else None
        for host, action in plan.items():
            _carry_out(lab, state, host, action, tar)
        hosts.write_known_hosts(lab, state)
        for host, action in plan.items():
            seconds = hosts.wait_ready(lab, state, host, fresh=action == "make")
            if action != "keep":
                say(f"{host.name} is up at {state.address(host)} after {seconds:.1f} s")
        if joined:
            for host in (host for host, action in plan.items() if action == "keep"):
                hosts.settle(lab, state, host)  # the names of the new ones
    say(f"lab {lab.name}: {len(everyone)} host(s) up: {', '.join(f'{h.name} {state.address(h)}' for h in everyone)}")
    return state


def _plan(lab: Lab, state: State, host: Host, *, moved: bool, fresh: bool) -> str:
    made = host.complete and not fresh
    alive = made and hosts.running(host)
    answers = False
    if alive and not moved:
        # It may just be booting: it gets the time a boot takes before it is restarted.
        answers = wait_for(lambda: hosts.system_state(lab, state, host) != "unreachable", 20, 0.5)
    return hosts.decide(made=made, running=alive, answers=answers, moved=moved)


def _carry_out(lab: Lab, state: State, host: Host, action: str, tar: Path | None) -> None:
    if action == "keep":
        return
    if action == "make":
        if tar is None:
            raise LabError(f"no image for {host.name}")
        say(f"{host.name}: making it from {tar.stem}")
        hosts.make(lab, state, host, tar)
    else:
        say(f"{host.name}: {'booting' if action == 'boot' else 'cannot be reached, restarting'}")
        hosts.stop(host)
        hosts.settle(lab, state, host)
    hosts.boot(lab, host)


def down(lab: Lab, purge_cache: bool = False) -> None:
    """Remove all that the lab made; with `purge_cache` also what the labs of this checkout share."""
    if not lab.base.exists() and not network.bridges().get(lab.bridge):
        say(f"lab {lab.name}: there is none")
        return
    with locked(lab.lock, f"lab {lab.name!r}", _LOCK_WAIT):
        others = sorted(path.name for path in (lab.base / "labs").glob("*") if path != lab.directory)
        if purge_cache and others:
            raise LabError(f"the cache is in use by {', '.join(others)}", "take these labs down first")
        for host in lab.on_disk():
            hosts.stop(host)
            remove_tree(host.directory)
            say(f"removed host {host.name}")
        for what in network.down(lab):
            say(f"removed {what}")
        remove_tree(lab.directory)
        if purge_cache:
            remove_tree(lab.cache)
            lab.images_lock.unlink(missing_ok=True)
            say("removed the cache")
        lab.lock.unlink(missing_ok=True)
    _tidy(lab)
    say(f"lab {lab.name}: down")


def _tidy(lab: Lab) -> None:
    """Remove the directories that are empty now."""
    for directory in (lab.base / "locks", lab.base / "labs"):
        with contextlib.suppress(OSError):
            directory.rmdir()
    left = {path.name for path in lab.base.glob("*")} if lab.base.exists() else set()
    if left <= {".gitignore"}:
        remove_tree(lab.base)


def status(lab: Lab) -> dict[str, Any]:
    """The lab as data: {lab, up, subnet, bridge, nat, hosts: [{name, address, state, pid, image, system}]}.

    state: running | stopped | broken (half made); system: what systemd in the host says, or unreachable. `up` holds
    when there is a host and every host runs and answers.
    """
    state = State.load(lab)
    rows = []
    for index in state.hosts if state else []:
        assert state is not None
        host = lab.host(index)
        alive = hosts.running(host)
        rows.append(
            {
                "name": host.name,
                "address": state.address(host),
                "state": ("running" if alive else "stopped") if host.complete else "broken",
                "pid": read_pid(host.pid_file),
                "image": hosts.image_of(host),
                "system": hosts.system_state(lab, state, host) if alive else "unreachable",
            }
        )
    return {
        "lab": lab.name,
        "up": bool(rows) and all(row["state"] == "running" and row["system"] != "unreachable" for row in rows),
        "directory": str(lab.directory),
        "subnet": state.subnet if state else None,
        "bridge": lab.bridge if state else None,
        "nat": state.nat if state else None,
        "hosts": rows,
    }


def _present(lab: Lab) -> State:
    state = State.load(lab)
    if state is None:
        raise LabError(f"lab {lab.name!r} is not up", "make lab-up")
    return state


def recreate(lab: Lab, name: str) -> None:
    """Throw one host away and make it anew; address and name stay."""
    machine.require()
    lab.host_named(name)
    with locked(lab.lock, f"lab {lab.name!r}", _LOCK_WAIT):
        state, _moved = network.up(lab, _present(lab))
        host = lab.host_named(name)
        _carry_out(lab, state, host, "make", image.image(lab))
        hosts.write_known_hosts(lab, state)
        seconds = hosts.wait_ready(lab, state, host, fresh=True)
    say(f"{host.name} is fresh and up at {state.address(host)} after {seconds:.1f} s")


def cards(lab: Lab, name: str, count: int, driver: str = "xe") -> None:
    """Put `count` cards into a host, which is switched off and on again for that; 0 takes them out."""
    machine.require()
    with locked(lab.lock, f"lab {lab.name!r}", _LOCK_WAIT):
        state = _present(lab)
        host = lab.host_named(name)
        hosts.stop(host)
        hardware.plug(host, count, driver)
        hosts.boot(lab, host)
        seconds = hosts.wait_ready(lab, state, host, fresh=False)
    say(f"{host.name} has {count} card(s) and is up after {seconds:.1f} s")


def reboot(lab: Lab, name: str) -> None:
    """Reboot one host from inside, as an operator would, and wait until it is back."""
    lab.host_named(name)
    with locked(lab.lock, f"lab {lab.name!r}", _LOCK_WAIT):
        state = _present(lab)
        host = lab.host_named(name)
        before = _boot_id(lab, state, host)
        if not before:
            raise LabError(f"{host.name} does not answer", "tests/lab/lab.py up")
        say(f"{host.name}: rebooting")
        with contextlib.suppress(LabError):  # the connection may end before the answer
            hosts.ssh(lab, state, host, "systemctl reboot")
        if not wait_for(lambda: _boot_id(lab, state, host) not in ("", before), hosts.BOOT_LIMIT, 0.3):
            raise LabError(f"{host.name} did not come back\n{hosts.log_tail(host)}", "tests/lab/lab.py up")
        seconds = hosts.wait_ready(lab, state, host, fresh=False)
    say(f"{host.name} is back, running {seconds:.1f} s after SSH answered")


def _boot_id(lab: Lab, state: State, host: Host) -> str:
    try:
        return hosts.ssh(lab, state, host, "cat /proc/sys/kernel/random/boot_id", 5).stdout.strip()
    except LabError:
        return ""


def nat(lab: Lab, on: bool) -> None:
    """Open or close the hosts' way out; they reach each other and this machine in both cases."""
    _present(lab)
    with locked(lab.lock, f"lab {lab.name!r}", _LOCK_WAIT):
        state = replace(_present(lab), nat=on)
        state.save(lab)
        network.apply_rules(lab, state)
    say(f"lab {lab.name}: {'the hosts reach the outside' if on else 'the hosts are cut off from the outside'}")
