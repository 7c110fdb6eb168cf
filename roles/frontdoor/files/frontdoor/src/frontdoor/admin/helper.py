# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The privileged helper of the administration: one line in, one command of b70ctl, one line out.

systemd starts it as root for each connection to its socket, which only the frontdoor may open. Nothing else is possible
than `b70ctl switch NAME` and `b70ctl stop`, for a profile that is rendered on this host, and a look at the cards. Who
asked may leave meanwhile: what was begun is finished.

    load NAME KEY      serve the profile NAME; KEY is the name of the API key that asked, for the journal
    unload NAME KEY    stop the engine, if it is that of NAME
    cards              tell how much memory of the cards is in use
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from frontdoor.slot import regular

REQUEST = re.compile(rb"(load|unload) ([a-z0-9][a-z0-9._-]{0,99}) ([A-Za-z0-9_.-]{1,64})\n")
CARDS = b"cards\n"
MAX_REQUEST = 256
#: how long a connection may take to say what it wants, in seconds
REQUEST_LIMIT_S = 5.0
# exit codes of b70ctl, and one of the helper's own: what was asked for cannot be asked for
DONE, FAILED, LOCKED, REFUSED = 0, 1, 4, 64

Run = Callable[[Sequence[str]], tuple[int, str]]


def receive(channel: socket.socket) -> bytes:
    """Read one line; raise OSError when it does not come in time."""
    channel.settimeout(REQUEST_LIMIT_S)
    data = b""
    while not data.endswith(b"\n") and len(data) < MAX_REQUEST:
        more = channel.recv(MAX_REQUEST - len(data))
        if not more:
            break
        data += more
    channel.settimeout(None)
    return data


def served(state_file: Path) -> str | None:
    """Name of the profile in the slot, as the slot's state tells it; None when there is none."""
    try:
        profile = json.loads(regular.read(state_file)).get("profile") or {}
        return str(profile["name"])
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return None


def perform(request: bytes, b70ctl: str, profiles: Path, state_file: Path, run: Run) -> dict[str, Any]:
    """Do what the line asks for; return `exit` and `message`, and the `cards` where they were asked for."""
    if request == CARDS:
        return look_at_cards(b70ctl, run)
    match = REQUEST.fullmatch(request)
    if match is None:
        return {"exit": REFUSED, "message": "the request is not `load NAME KEY`, `unload NAME KEY` or `cards`"}
    verb, name, key = (word.decode() for word in match.groups())
    if not (profiles / f"{name}.json").is_file():
        return {"exit": REFUSED, "message": f"{name} is not a profile of this host"}
    words = ["switch", name]
    if verb == "unload":
        if served(state_file) != name:
            return {"exit": REFUSED, "message": f"the engine in the slot is not that of {name}"}
        words = ["stop"]
    code, output = run([b70ctl, *words, "--json", "--why", f"{verb} {name}, asked over HTTP with the key {key}"])
    try:
        message = str(json.loads(output)["msg"])
    except (ValueError, LookupError, TypeError):
        message = f"`{b70ctl} {' '.join(words)}` ended with {code} and said nothing that can be read"
    return {"exit": code, "message": message}


def look_at_cards(b70ctl: str, run: Run) -> dict[str, Any]:
    """What the slot's command knows of the cards."""
    code, output = run([b70ctl, "cards", "--json"])
    try:
        found = json.loads(output)
        return {"exit": code, "message": str(found["msg"]), "cards": list(found["cards"])}
    except (ValueError, LookupError, TypeError):
        return {"exit": code or FAILED, "message": f"`{b70ctl} cards` ended with {code} and said nothing to be read"}


def run_command(argv: Sequence[str]) -> tuple[int, str]:
    """Exit code and standard output. The command limits its own waits; what it says besides goes to the journal."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, text=True)
    return done.returncode, done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the connection that is standard input."""
    parser = argparse.ArgumentParser(prog="frontdoor.admin.helper", description="Serve a connection on standard input.")
    parser.add_argument("--b70ctl", required=True, metavar="FILE", help="the slot's command")
    parser.add_argument("--profiles", required=True, type=Path, metavar="DIR", help="the slot's profiles")
    parser.add_argument("--state-file", required=True, type=Path, metavar="FILE", help="the slot's state")
    options = parser.parse_args(argv)
    # not to be passed on to the command
    with socket.socket(fileno=os.dup(0)) as channel:
        try:
            request = receive(channel)
        except OSError as exc:
            print(f"no request came: {exc}", file=sys.stderr)
            return FAILED
        answer = perform(request, options.b70ctl, options.profiles, options.state_file, run_command)
        print(f"{request[:MAX_REQUEST]!r}: {answer['exit']}, {answer['message']}", file=sys.stderr)
        # who asked may have left; the journal of the slot has it all
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps(answer).encode() + b"\n")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
