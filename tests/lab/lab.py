#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts to try the collection on: `lab.py up`, `lab.py status`, `lab.py down`. See the README beside this file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from labkit import commands, hosts, machine
from labkit.common import LabError, say
from labkit.layout import Lab, State, open_lab, ssh_options

NOT_UP = 3


def _prerequisites(install: bool) -> int:
    if install:
        machine.install()
    found = machine.checks()
    for check in found:
        print(f"{'ok     ' if check.passed else 'MISSING'} {check.name:<15} {check.detail}")
    for fix in dict.fromkeys(check.fix for check in found if not check.passed and check.fix):
        print(f"fix: {fix}")
    return 0 if all(check.passed for check in found) else 2


def _status(lab: Lab, as_json: bool) -> int:
    found = commands.status(lab)
    if as_json:
        print(json.dumps(found, indent=2))
    elif not found["hosts"]:
        print(f"lab {lab.name} is not up (make lab-up)")
    else:
        outside = "open" if found["nat"] else "closed"
        print(f"lab {lab.name}: {found['subnet']} on {found['bridge']}, way out {outside}")
        for row in found["hosts"]:
            print(
                f"  {row['name']:<12} {row['address']:<15} {row['state']:<8} {row['system']:<12} {row['image'] or '-'}"
            )
    return 0 if found["up"] else NOT_UP


def _ssh(lab: Lab, name: str, command: list[str]) -> int:
    host, state = lab.host_named(name), State.load(lab)
    if state is None or not hosts.running(host):
        raise LabError(f"{name} is not running", "tests/lab/lab.py up")
    options = [*ssh_options(lab), "-i", str(lab.key), "-l", "root"]
    os.execvp("ssh", ["ssh", *options, state.address(host), *command])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lab.py", description="The local lab: hosts with systemd on this machine.")
    parser.add_argument("--lab", help="which lab; default: B70_LAB, else 'lab'. Several stand side by side.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make, boot or repair the lab")
    up.add_argument("--hosts", type=int, metavar="N", help="have at least N hosts (default: what there is, else 1)")
    up.add_argument("--fresh", action="store_true", help="throw the hosts away and make them anew")
    up.add_argument("--containers", action="store_true", help="hosts that start now can run containers")
    up.add_argument("--suite", help="hosts that are made from now on have this suite (default: this machine's own)")
    down = verbs.add_parser("down", help="remove all that the lab made, except the cache")
    down.add_argument("--purge-cache", action="store_true", help="remove the cache too")
    verbs.add_parser("status", help="what runs").add_argument("--json", action="store_true")
    need = verbs.add_parser("prerequisites", help="check what the lab needs of this machine")
    need.add_argument("--install", action="store_true", help="install the missing packages with apt-get")
    verbs.add_parser("recreate", help="throw one host away and make it anew").add_argument("host")
    cards = verbs.add_parser("cards", help="put cards into one host, or take them out with 0; it restarts")
    cards.add_argument("host")
    cards.add_argument("count", type=int)
    cards.add_argument("--driver", default="xe", help="what is bound to them; empty: nothing")
    verbs.add_parser("reboot", help="reboot one host and wait until it is back").add_argument("host")
    verbs.add_parser("nat", help="the hosts' way to the outside").add_argument("switch", choices=["on", "off"])
    ssh = verbs.add_parser("ssh", help="a shell, or a command, on a host")
    ssh.add_argument("host")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def main(arguments: list[str]) -> int:
    """Run one command. Exit codes: 0 done, 1 failed, 2 cannot work on this machine, 3 status: the lab is not up."""
    given = _parser().parse_args(arguments)
    try:
        if given.verb == "prerequisites":
            return _prerequisites(given.install)
        lab = open_lab(given.lab)
        if given.verb == "status":
            return _status(lab, given.json)
        if given.verb == "ssh":
            return _ssh(lab, given.host, given.command)
        if os.geteuid() != 0:
            raise LabError("the lab makes network devices and containers: only root can", "sudo -E make …", 2)
        match given.verb:
            case "up":
                commands.up(lab, given.hosts, given.fresh, given.containers, given.suite)
            case "down":
                commands.down(lab, given.purge_cache)
            case "recreate":
                commands.recreate(lab, given.host)
            case "cards":
                commands.cards(lab, given.host, given.count, given.driver)
            case "reboot":
                commands.reboot(lab, given.host)
            case "nat":
                commands.nat(lab, given.switch == "on")
    except LabError as exc:
        print(f"lab: {exc}", file=sys.stderr)
        if exc.fix:
            print(f"fix: {exc.fix}", file=sys.stderr)
        return exc.code
    except KeyboardInterrupt:
        say("interrupted; the same command again repairs it")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
