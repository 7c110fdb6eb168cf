# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command line and life of the process."""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from frontdoor import __version__, service
from frontdoor.app import App
from frontdoor.config import Config, ConfigError, load, taken
from frontdoor.http.listener import Listener
from frontdoor.http.tls import TlsError, server_context
from frontdoor.observability.events import EventLog
from frontdoor.observability.status import COMPILED, page
from frontdoor.policy.keys import Keys, key_line, make_key

EXIT_CONFIG = 2
EXIT_LISTEN = 3
# how long clients have to take the end of an answer that was cut short
_LAST_WORDS_S = 1.0
# a client that connected just before the end gets an answer too
_LAST_CALL_S = 0.1
# the file that the unit copies there is missing before it starts
COPIES = "/run/b70-frontdoor/"


def _digest(path: str, config: Config) -> str:
    """Return a digest of the settings in a file, and of the certificate that they are served with."""
    certificate = config.tls.cert_file
    shown = hashlib.sha256(Path(certificate).read_bytes()).hexdigest() if certificate else ""
    return hashlib.sha256(Path(path).read_bytes() + shown.encode()).hexdigest()


async def serve(config: Config, events: EventLog, stop: asyncio.Event | None = None, path: str = "") -> int:
    """Run until SIGTERM or SIGINT (or `stop`), then drain; return the exit status.

    `path` is the file of the configuration, which SIGHUP reads again. Raises ConfigError and TlsError.
    """
    loop = asyncio.get_running_loop()
    stop = stop or asyncio.Event()
    listen = config.listen
    # now, since another version may take the place of its files
    page()
    tls = server_context(*config.tls)
    app = App(config, loop, events)
    server = Listener(app.server, tls, listen.backlog, proxy_protocol=listen.proxy_protocol)
    try:
        service.keep(await server.open(listen.host, listen.port, service.kept(), listen.unix))
        service.forget_clients()
    except OSError as exc:
        events.flush()
        besides = f" or at {listen.unix}" if listen.unix else ""
        print(f"cannot listen on {listen.host}:{listen.port}{besides}: {exc.strerror or exc}", file=sys.stderr)
        return EXIT_LISTEN
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    follows = asyncio.Event()
    if os.environ.get(service.KEEPS):
        loop.add_signal_handler(service.FOLLOWED, follows.set)

    def reload() -> None:
        try:
            now, needed = taken(app.config, load(path))
            # a context of its own: a key that does not belong to its certificate would spoil the one in use
            context, digest = server_context(*now.tls), _digest(path, now)
        except (ConfigError, TlsError, OSError) as exc:
            told.settings_error = str(exc)
            events.emit("settings_unusable", error=str(exc))
            app.reload()
        else:
            told.settings_error, told.restart_needed = "", needed
            told.digest = told.digest if needed else digest
            server.tls = context
            app.configure(now)
            events.emit("settings_read", file=path, restart_needed=needed)
        events.flush()

    told = app.local
    if path:
        told.digest = _digest(path, config)
        loop.add_signal_handler(signal.SIGHUP, reload)
    app.start()
    events.emit(
        "frontdoor_start",
        host=listen.host,
        port=listen.port,
        backend=app.first.slot.state.backend_url,
        max_active_generations=app.first.limiter.limit,
        phase=app.first.slot.state.phase,
        auth="none" if app.keys is None else "api_key",
        tls=tls is not None,
        version=__version__,
        compiled=COMPILED,
    )
    events.flush()
    service.notify("READY=1")
    await stop.wait()
    service.notify("STOPPING=1")
    if follows.is_set():
        # clients that come now are answered by the next process
        server.hand_over(service.keep_client)
    # else it goes on listening: who comes now is told to come again, and not that nobody is there
    app.drain(service.keep_client if follows.is_set() else None)
    events.emit(
        "frontdoor_draining",
        active_generations=app.first.limiter.active,
        limit_s=app.config.limits.drain_timeout_s,
        followed=follows.is_set(),
    )
    events.flush()
    await _until(lambda: not app.running, app.config.limits.drain_timeout_s)
    cut = app.interrupt()
    # the last bytes are still on their way to clients
    await _until(lambda: not app.connections, _LAST_WORDS_S)
    server.close()
    await _until(lambda: not app.connections, _LAST_CALL_S)
    app.ledger.settle()
    events.emit("frontdoor_stop", cut=cut)
    app.stop()
    return 0


async def _until(done: Callable[[], bool], limit_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while not done() and loop.time() < deadline:
        await asyncio.sleep(0.01)


def _check(options: argparse.Namespace) -> str:
    """Do what is not serving, and return what there is to say; raise ConfigError."""
    if options.make_key is not None:
        secret = make_key()
        return f"{secret}\n{key_line(options.make_key, secret)}"
    if options.check_keys:
        return f"{options.check_keys}: ok, {len(Keys(options.check_keys).names)} keys"
    if options.check_tls:
        server_context(*options.check_tls)
        return f"{options.check_tls[0]}: ok"
    config = load(options.config)
    if not config.tls.cert_file.startswith(COPIES):
        server_context(*config.tls)
    for keys_file in (config.auth.keys_file, config.admin.keys_file):
        if keys_file:
            Keys(keys_file)
    return f"{options.config}: ok"


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit status (2: configuration, 3: address in use)."""
    parser = argparse.ArgumentParser(prog="frontdoor", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="TOML configuration")
    parser.add_argument("--check-config", action="store_true", help="only check the configuration")
    parser.add_argument("--check-keys", metavar="FILE", help="only check a file of keys")
    parser.add_argument("--check-tls", nargs=2, metavar=("CERTIFICATE", "KEY"), help="only check that they are a pair")
    parser.add_argument("--make-key", metavar="NAME", help="print a new API key, and the line for the file of keys")
    parser.add_argument("--version", action="version", version=__version__)
    options = parser.parse_args(argv)
    asked = options.check_config or options.check_keys or options.check_tls or options.make_key is not None
    if not options.config and (options.check_config or not asked):
        parser.error("--config FILE is needed")
    try:
        if asked:
            print(_check(options))
            return 0
        config = load(options.config)
        # nothing that exists now will ever be garbage, and requests make next to no cycles
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        return uvloop.run(serve(config, EventLog(), path=options.config))
    except (ConfigError, TlsError) as exc:
        print(f"configuration: {exc}", file=sys.stderr)
        return EXIT_CONFIG
