# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test rig: an engine that costs nothing, nginx and the frontdoor as processes, and loads driven at them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from quiet import can_have_priority, prefix, quiet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = Path("roles/frontdoor/files/frontdoor")
sys.path += [str(ROOT / PACKAGE / "tests"), str(ROOT / "tests")]

from compiled import build  # noqa: E402

ENGINE_PORT, NGINX_PORT, NGINX_LIMITED_PORT, PROBE_PORT, PROBED_PORT, _DOOR_PORT = range(18291, 18297)
CHAT = "/v1/chat/completions"
#: of the proxies that limit
SLOTS = 8
_SEARCH = os.environ["PATH"] + ":/usr/sbin"

_NGINX = """
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log crit;
worker_rlimit_nofile 65536;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  client_max_body_size 64m;
  client_body_buffer_size 2m;
  keepalive_requests 100000000;
  upstream engine {{ server 127.0.0.1:{backend}; keepalive 1024; keepalive_requests 100000000; }}
  limit_conn_zone $server_port zone=slots:1m;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $remote_addr; proxy_buffering off;
    }}
  }}
  server {{
    listen 127.0.0.1:{limited} backlog=4096;
    location / {{
      limit_conn slots {slots};
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""
DOOR = """
[listen]
host = "127.0.0.1"
port = {port}
backlog = 4096
[slot]
state_file = ""
[backend]
url = "http://127.0.0.1:{backend}"
[admission]
max_active_generations = {slots}
queue_timeout_s = 0
[request]
chat_template_kwargs = {{ enable_thinking = false }}
"""
# as the unit of the frontdoor sets them
DOOR_ENV = {
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_ARENA_MAX": "1",
}


class Installed(NamedTuple):
    """A version of the frontdoor: its Python, and the folder of its sources."""

    python: str
    source: Path


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One load: the generator's groups, the seconds until it is level, and whether the proxies limit to SLOTS."""

    groups: tuple[str, ...]
    warmup_s: float = 0.7
    limited: bool = False


@dataclasses.dataclass
class Target:
    """Something to send requests to: the port, the port that limits, and the processes that count on either."""

    port: int
    limited_port: int
    pids: Callable[[bool], list[int]]


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of processes with all their threads, from the scheduler (ns resolution)."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def rss_mb(pids: list[int]) -> float:
    """Largest resident set among processes, in MB."""
    rows = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return max((int(row.split("VmRSS:")[1].split()[0]) / 1024 for row in rows), default=0.0)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(port: int, process: subprocess.Popen[bytes], limit_s: float) -> None:
    """Wait until a port accepts."""
    started = time.monotonic()
    while time.monotonic() - started < limit_s:
        if process.poll() is not None:
            raise SystemExit(f"{process.args!r} ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.002)
    raise SystemExit(f"nothing listens on port {port} after {limit_s:g} s")


def have_nginx() -> bool:
    """Whether there is an nginx to compare with."""
    return shutil.which("nginx", path=_SEARCH) is not None


def compile_generator(folder: Path) -> Path:
    """Compile the load generator with its engine, unless that was done before."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("no C compiler: apt-get install gcc libc6-dev")
    folder.mkdir(parents=True, exist_ok=True)
    sources, binary = [HERE / name for name in ("load.c", "engine.h", "common.h")], folder / "load"
    if not binary.exists() or binary.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        subprocess.run([compiler, "-O2", "-Wall", "-o", str(binary), str(sources[0])], check=True)
    return binary


def checked_out(ref: str, folder: Path) -> Path:
    """The frontdoor of a commit, put into a folder with what it has links to; returns its package there."""
    argv = ["git", "-C", str(ROOT), "archive", ref, str(PACKAGE), "plugins/module_utils"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"--before {ref}: git cannot give {PACKAGE} of it")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=done.stdout, check=True)
    return folder / PACKAGE


def install(package: Path, folder: Path, python: str, *, interpreted: bool = False) -> Installed:
    """Make a frontdoor's own environment, as the role makes it on a host, unless the folder has it already."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    lock = package / "requirements.txt"
    venv = folder / ("venv-" + hashlib.sha256(lock.read_bytes() + os.path.realpath(python).encode()).hexdigest()[:16])
    made, complete = str(venv / "bin" / "python"), venv / ".complete"
    if not complete.exists():
        shutil.rmtree(venv, ignore_errors=True)
        sync = [uv, "pip", "sync", "-q", "--system-certs", "--compile-bytecode", "--require-hashes", "--python", made]
        for argv in ([uv, "venv", "-q", "--python", python, str(venv)], [*sync, str(lock)]):
            subprocess.run(argv, check=True)
        complete.touch()
    needs = package / "compile-requirements.txt"
    if interpreted or not needs.exists():
        # a version before there was another
        return Installed(made, package / "src")
    tools = folder / ("tools-" + hashlib.sha256(needs.read_bytes() + made.encode()).hexdigest()[:16])
    if not tools.exists():
        argv = [uv, "pip", "install", "-q", "--system-certs", "--require-hashes", "--python", made]
        with tempfile.TemporaryDirectory(dir=folder) as new:
            subprocess.run([*argv, "--target", f"{new}/tools", "-r", str(needs)], check=True)
            os.rename(f"{new}/tools", tools)
    return Installed(made, build(package, made, str(tools), folder))


@contextlib.contextmanager
def running(argv: list[str], *, port: int, limit_s: float = 10, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens."""
    process = subprocess.Popen(argv, **options)
    try:
        wait_for(port, process, limit_s)
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit_s)
        process.kill()
        process.wait()


class Rig:
    """The proxies, the load generator with its engine, and where they run. Use as a context manager."""

    def __init__(self, folder: Path, generator: Path, *, pin: bool) -> None:
        self._folder = folder
        self._generator = generator
        self._ports = itertools.count(_DOOR_PORT)
        pin = pin and (os.cpu_count() or 1) > 1
        self._proxy_core = 0 if pin else None
        self._other_core = 1 if pin else None
        self._priority = can_have_priority()
        # alone on its core, the generator needs no sleep
        self._spin = pin
        self._stack = contextlib.ExitStack()
        #: how the machine was kept out of what is measured
        self.conditions: dict[str, str] = {}
        self.targets = {"direct": Target(ENGINE_PORT, ENGINE_PORT, lambda limited: [])}

    def __enter__(self) -> Rig:
        self.conditions = self._stack.enter_context(quiet(self._proxy_core))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def add_nginx(self) -> None:
        """Start nginx, without and with a limit."""
        conf = self._folder / "nginx.conf"
        ports = {"backend": ENGINE_PORT, "port": NGINX_PORT, "limited": NGINX_LIMITED_PORT}
        conf.write_text(_NGINX.format(dir=self._folder, slots=SLOTS, **ports))
        self._folder.chmod(0o777)
        argv = [*self._before_proxy(), "nginx", "-e", str(self._folder / "start.log"), "-c", str(conf)]
        env = {**os.environ, "PATH": _SEARCH}
        nginx = self._stack.enter_context(running(argv, port=NGINX_PORT, env=env))
        self.targets["nginx"] = Target(NGINX_PORT, NGINX_LIMITED_PORT, lambda limited: _children(nginx.pid))

    def add_relay(self, python: str) -> None:
        """Start what passes bytes on and parses nothing."""
        port = next(self._ports)
        argv = [*self._before_proxy(), python, str(HERE / "relay.py"), str(port), str(ENGINE_PORT)]
        relay = self._stack.enter_context(running(argv, port=port))
        self.targets["relay"] = Target(port, port, lambda limited: [relay.pid])

    def add_frontdoor(self, name: str, version: Installed, more: str = "") -> None:
        """Start two frontdoors of one version, without and with a limit, as a target of that name.

        `more` is TOML that is added to what they are configured with.
        """
        port, limited_port = next(self._ports), next(self._ports)
        free = self._stack.enter_context(self.frontdoor(version, port, ENGINE_PORT, 4096, more))
        limited = self._stack.enter_context(self.frontdoor(version, limited_port, ENGINE_PORT, SLOTS, more))
        pids = {False: [free.pid], True: [limited.pid]}
        self.targets[name] = Target(port, limited_port, lambda limited: pids[limited])

    @contextlib.contextmanager
    def frontdoor(
        self, version: Installed, port: int, backend: int, slots: int, more: str = ""
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A frontdoor as a process: metrics, admission, event log and injection are on."""
        conf = self._folder / f"{port}.toml"
        conf.write_text(DOOR.format(port=port, backend=backend, slots=slots) + more)
        argv = [*self._before_proxy(), version.python, "-m", "frontdoor", "--config", str(conf)]
        env = {**os.environ, **DOOR_ENV, "PYTHONPATH": str(version.source)}
        with (
            open(self._folder / f"{port}.log", "wb") as log,
            running(argv, port=port, env=env, stdout=log) as process,
        ):
            yield process

    @contextlib.contextmanager
    def beside_the_proxy(self) -> Iterator[None]:
        """Run this thread, and those that it starts, on the core that the proxy is not on."""
        where = os.sched_getaffinity(0)
        if self._other_core is not None:
            os.sched_setaffinity(0, {self._other_core})
        try:
            yield
        finally:
            os.sched_setaffinity(0, where)

    def _before_proxy(self) -> list[str]:
        return prefix(self._proxy_core, self._priority)

    def load(self, target: Target, scenario: Scenario, seconds: float) -> dict[str, Any]:
        """Run one scenario against one target; return the generator's report with CPU and memory of the target."""
        port = target.limited_port if scenario.limited else target.port
        watch = self._proxy_core if self._priority and self._proxy_core is not None else -1
        how = [str(n) for n in (ENGINE_PORT, port, int(self._spin), watch, scenario.warmup_s, seconds)]
        argv = [*prefix(self._other_core, self._priority), str(self._generator), *how, *scenario.groups]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        time.sleep(scenario.warmup_s + 0.1)
        pids = target.pids(scenario.limited)
        before, since = cpu_seconds(pids), time.monotonic()
        time.sleep(max(0.2, seconds - 0.3))
        used, elapsed = cpu_seconds(pids) - before, time.monotonic() - since
        memory = rss_mb(pids)
        out, _ = process.communicate(timeout=seconds + 20)
        report: dict[str, Any] = json.loads(out)
        report["cpu"] = used / elapsed if pids else 0.0
        report["rss_mb"] = memory
        return report
