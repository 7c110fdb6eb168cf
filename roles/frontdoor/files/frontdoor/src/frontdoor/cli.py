# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command line and life of the process."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import socket
import sys

import uvloop

from frontdoor import __version__
from frontdoor.auth import Keys, digest, load_certificate, make_key, tls_context
from frontdoor.client import ClientConnection
from frontdoor.config import Config, ConfigError, load
from frontdoor.door import Door
from frontdoor.events import EventLog

EXIT_CONFIG = 2
EXIT_LISTEN = 3
# how long clients have to take the end of an answer that was cut short
_LAST_WORDS_S = 1.0
# what systemd shows a service there, nobody else can see
CREDENTIALS = "/run/credentials/"


def notify(message: str) -> None:
    """Tell the service manager, where there is one (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as exc:
            print(f"the service manager cannot be told: {exc}", file=sys.stderr)


async def serve(config: Config, events: EventLog, stop: asyncio.Event | None = None) -> int:
    """Run until SIGTERM or SIGINT (or `stop`), then drain; return the exit status."""
    loop = asyncio.get_running_loop()
    stop = stop or asyncio.Event()
    listen = config.listen
    try:
        tls = tls_context(config.tls)
        door = Door(config, loop, events)
    except ConfigError as exc:
        print(f"configuration: {exc}", file=sys.stderr)
        return EXIT_CONFIG
    try:
        server = await loop.create_server(
            lambda: ClientConnection(door),
            listen.host,
            listen.port,
            backlog=listen.backlog,
            reuse_address=True,
            ssl=tls,
        )
    except OSError as exc:
        events.flush()
        print(f"cannot listen on {listen.host}:{listen.port}: {exc.strerror or exc}", file=sys.stderr)
        return EXIT_LISTEN
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def reload() -> None:
        door.reload()
        if tls is not None:
            try:
                load_certificate(tls, config.tls)
            except ConfigError as exc:
                events.emit("certificate_unusable", error=str(exc))

    loop.add_signal_handler(signal.SIGHUP, reload)
    door.start()
    events.emit(
        "frontdoor_start",
        host=listen.host,
        port=listen.port,
        backend=door.pool.url,
        max_active_generations=door.gate.limit,
        phase=door.state.phase,
        auth="none" if door.keys is None else "api_key",
        tls=tls is not None,
        version=__version__,
    )
    events.flush()
    notify("READY=1")
    await stop.wait()
    notify("STOPPING=1")
    server.close()
    door.drain()
    events.emit("frontdoor_draining", active_generations=door.gate.active, limit_s=config.limits.drain_timeout_s)
    events.flush()
    deadline = loop.time() + config.limits.drain_timeout_s
    while door.exchanges and loop.time() < deadline:
        await asyncio.sleep(0.02)
    cut = door.interrupt()
    # what was written last is still on its way to clients
    deadline = loop.time() + _LAST_WORDS_S
    while door.connections and loop.time() < deadline:
        await asyncio.sleep(0.01)
    door.ledger.settle()
    events.emit("frontdoor_stop", cut=cut)
    door.stop()
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status (2: configuration, 3: address in use)."""
    parser = argparse.ArgumentParser(prog="frontdoor", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="TOML configuration")
    parser.add_argument("--check-config", action="store_true", help="only check the configuration")
    parser.add_argument("--make-key", metavar="NAME", help="print a new API key, and the line for the file of keys")
    parser.add_argument("--version", action="version", version=__version__)
    options = parser.parse_args(argv)
    if options.make_key:
        secret = make_key()
        print(f'{secret}\n{options.make_key} = "{digest(secret)}"')
        return 0
    if not options.config:
        parser.error("--config FILE is needed")
    try:
        config = load(options.config)
        if options.check_config:
            if not config.tls.cert_file.startswith(CREDENTIALS):
                tls_context(config.tls)
            for keys_file in (config.auth.keys_file, config.admin.keys_file):
                if keys_file:
                    Keys(keys_file)
    except ConfigError as exc:
        print(f"configuration: {exc}", file=sys.stderr)
        return EXIT_CONFIG
    if options.check_config:
        print(f"{options.config}: ok")
        return 0
    # nothing that exists now will ever be garbage, and requests make next to no cycles
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    return uvloop.run(serve(config, EventLog()))
