# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requests of the frontdoor to the slots: one line in, one command of b70ctl, one line out.

systemd runs `b70ctl admin` as root for each connection to a socket that only the frontdoor may open. A request can do
four things and no others; the client may disconnect meanwhile, what was begun is finished.

    load NAME KEY [SLOT]      serve the profile NAME; KEY is the name of the API key that asked, for the journal
    unload NAME KEY [SLOT]    stop the engine, if it is that of NAME
    idle NAME SECONDS [SLOT]  the same, because nobody asked for it for so long; only if nothing else works on the slot,
                              and no soak or the like asks the engine
    cards                     report how much memory of the cards is in use

SLOT is a slot of this host; without one it is the slot of this b70ctl.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..look.frontdoor import read_state
from ..look.observe import other_slots
from ..model.recorded import works
from ..words.effects import Effects
from ..words.types import Layout

REQUEST = re.compile(rb"(load|unload|idle) ([a-z0-9][a-z0-9._-]{0,99}) ([A-Za-z0-9_.-]{1,64})(?: ([a-z0-9]{1,64}))?\n")
CARDS = b"cards\n"
MAX_REQUEST = 256
REQUEST_LIMIT_S = 5.0  # for the request to arrive
# Beside the exit codes of b70ctl: the request is malformed, or does not fit what is on this host.
REFUSED = 64

# Runs one command of a slot's b70ctl and returns its exit code and its data.
Run = Callable[[Layout, Sequence[str]], tuple[int, Mapping[str, Any]]]


def receive(channel: socket.socket) -> bytes:
    """Return one line; raise OSError when it does not arrive in time."""
    channel.settimeout(REQUEST_LIMIT_S)
    data = b""
    while not data.endswith(b"\n") and len(data) < MAX_REQUEST:
        more = channel.recv(MAX_REQUEST - len(data))
        if not more:
            break
        data += more
    channel.settimeout(None)
    return data


def perform(request: bytes, fx: Effects, layout: Layout, run: Run) -> dict[str, Any]:
    """Execute the request, and return `exit` and `message`, with the `cards` where the line asks for them.

    layout: that of the own slot. Raise SlotFault where the file that names the other slots can't be read.
    """
    if request == CARDS:
        code, data = run(layout, ["cards"])
        return {"exit": code, "message": data["msg"], "cards": data.get("cards", [])}
    match = REQUEST.fullmatch(request)
    if match is None:
        return _refused("the request is not `load NAME KEY [SLOT]`, the same with `unload` or `idle`, or `cards`")
    verb, name, key, slot = (word.decode() for word in match.groups(layout.slot.encode()))
    place = layout if slot == layout.slot else other_slots(fx, layout).get(slot)
    if place is None:
        return _refused(f"{slot} is not a slot of this host")
    if fx.files.size(place.profile_json(name)) is None:
        return _refused(f"{name} is not a profile of slot {place.slot}")
    words, why = ["switch", name], f"{verb} {name}, asked over HTTP with the key {key}"
    if verb != "load":
        state = read_state(fx, place)
        if state is None or state.profile_name != name:
            return _refused(f"the engine in slot {place.slot} is not that of {name}")
        words = ["stop"]
    if verb == "idle":
        # it asks the engine itself, so the frontdoor does not see it
        if busy := works(fx, place):
            return _refused(f"{busy[0]['unit']} runs and asks the engine of {name}")
        # no switch is waited for: the lock is tried once
        words, why = ["stop", "--idle"], f"nobody asked for {name} for {key} s"
    code, data = run(place, [*words, "--why", why])
    return {"exit": code, "message": data["msg"]}


def _refused(message: str) -> dict[str, Any]:
    return {"exit": REFUSED, "message": message}


def serve(fx: Effects, layout: Layout, run: Run, descriptor: int = 0) -> bool:
    """Answer the connection that is standard input; return False when no request arrives on it."""
    with contextlib.ExitStack() as stack:
        try:
            # A copy, which the programs that a switch runs do not inherit.
            channel = stack.enter_context(socket.socket(fileno=os.dup(descriptor)))
            request = receive(channel)
        except OSError as error:
            sys.stderr.write(f"b70ctl: no request arrived on standard input: {error}\n")
            return False
        answer = perform(request, fx, layout, run)
        sys.stderr.write(f"{request!r}: {answer['exit']}, {answer['message']}\n")
        # The client may be gone; the journal of the slot has it all.
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps(answer).encode() + b"\n")
    return True
