# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two hosts on loopback, and what the role monitoring watches them with.

Frontdoors, exporters and Prometheus are real, with the configuration that the role renders. The engine, the
cards and the slot are played. The host `good` serves a model with two replicas, TLS and API keys, and its certificate
ends within days. The host `bad` serves the same profile with another fingerprint, is in quarantine after a canary that
failed, has a hot card, and no queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._monitoring import alertmanager, prometheus

ROOT = Path(__file__).resolve().parents[1]
FRONTDOOR = ROOT / "roles" / "frontdoor" / "files" / "frontdoor"
sys.path.append(str(FRONTDOOR / "tests"))

from admin_kit import write_keys  # noqa: E402
from kit import Call, Client, Engine, changed_state, start_unit  # noqa: E402
from several import start_replica  # noqa: E402
from several import state as several_state  # noqa: E402

from labkit import cards  # noqa: E402
from machine import LIMIT_S, free_port  # noqa: E402

RULES = ROOT / "roles" / "monitoring" / "files" / "rules" / "b70.yml"
CARD_METRICS = ROOT / "roles" / "card_metrics" / "files" / "b70_card_metrics.py"
#: the addresses of both hosts
HOSTS = {"good": "127.0.0.1", "bad": "127.0.0.2"}
KEY = "b70-of-prometheus"
CHAT = "/v1/chat/completions"
PERMITS = 4
UNIT = "b70-slot-main-tiny-a.service"
AT = "2026-06-07T09:00:00Z"
# What the watchdog writes; roles/slot/files/schema/liveness.schema.json says the same.
_LOOKED_AT = {"index": None, "unit": UNIT, "invocation_id": "0" * 32, "since": AT, "flat_s": 190, "reason": ""}
WEDGED = {
    "schema": 1,
    "at": AT,
    "slot": "main",
    "profile": "tiny-a",
    "policy": "report",
    "counts": {"report": 1, "close": 0, "restart": 0, "rebind": 0, "reboot": 0, "quarantine": 0},
    "cards": [{"pci": cards.address(0), "used": 29 * 2**30, "total": 34242297856, "ecc": False, "faults": 0}],
    "action": None,
    "engines": [{**_LOOKED_AT, "verdict": "wedged"}],
    "verification": {"at": AT, "passed": False, "reason": "case sum: got 8"},
    "next": None,
}
METRICS = {"tokens": "vllm:generation_tokens_total", "cache": "vllm:kv_cache_usage_perc"}
INTERVAL_S = 1


class Model:
    """An engine's script: streams tokens, and tells its counters as vLLM does."""

    def __init__(self) -> None:
        self.tokens = 0

    async def __call__(self, call: Call) -> None:
        if call.request.line.startswith("GET /metrics "):
            rows = f'{METRICS["tokens"]}{{engine="0"}} {self.tokens}\n{METRICS["cache"]}{{engine="0"}} 0.31\n'
            await call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(rows)}\r\n\r\n{rows}".encode())
            return
        asked = json.loads(call.request.body)
        if "fail" in asked:
            await call.json({"error": {"message": "no"}}, status="500 Internal Server Error")
            return
        await asyncio.sleep(0.02)
        await call.begin_events()
        for _token in range(asked["max_tokens"]):
            await call.event('{"choices":[{"delta":{"content":"x"}}]}')
            self.tokens += 1
            await asyncio.sleep(0.01)
        used = {"prompt_tokens": 24, "completion_tokens": asked["max_tokens"], "total_tokens": 24 + asked["max_tokens"]}
        await call.event(json.dumps({"choices": [], "usage": used}))
        await call.send(b"0\r\n\r\n")


def played_cards(sys_root: Path, after_s: float, *, hot: bool) -> None:
    """Readings of the sensors of a card after so long, with the files that the kernel documents."""
    device = (sys_root / "bus/pci/devices" / cards.address(0)).resolve()
    watts, celsius = (230, 94) if hot else (180, 61 + int(after_s / 7) % 5)
    files = {
        "hwmon/hwmon7/energy1_input": int(after_s * watts * 1_000_000),
        "hwmon/hwmon7/temp2_input": celsius * 1000,
        "hwmon/hwmon7/fan1_input": 2300 if hot else 1500,
        "tile0/gt0/freq0/act_freq": 1900 if hot else 2400,
        "tile0/gt0/freq0/throttle/status": int(hot),
        "tile0/gt0/freq0/throttle/reason_thermal": int(hot),
        "tile0/gt0/freq0/throttle/reason_pl1": 0,
    }
    for name, value in files.items():
        file = device / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")


def journal(outcome: str, phase: str = "") -> str:
    """A journal with one switch, as the slot writes it."""
    begin = {
        "event": "begin",
        "id": "1",
        "at": "2026-06-07T09:08:44Z",
        "kind": "switch",
        "from": "tiny-b",
        "to": "tiny-a",
    }
    end = {"event": "end", "id": "1", "outcome": outcome, "seconds": 64.2, "profile": "tiny-a"}
    if phase:
        end["failures"] = [{"phase": phase, "message": "a canary answer was wrong"}]
    return f"{json.dumps(begin)}\n{json.dumps(end)}\n"


@dataclass
class Watched:
    """Everything that runs, and how it is asked."""

    folder: Path
    programs: Path
    engine: Engine
    ports: dict[str, int]
    certificate: Path
    told: dict[str, dict[str, Any]]
    settings: prometheus.PrometheusSettings
    _began: float = field(default_factory=time.monotonic)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, name: str, argv: Sequence[str], **variables: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(argv, env={**os.environ, **variables}, stdout=log, stderr=log, cwd=self.folder)
            )

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def write_targets(self, **more: Mapping[str, Any]) -> None:
        """Write the files of Prometheus, for these hosts and more of them."""
        balancers = {"lb": {"ansible_host": "127.0.0.1", "load_balancer_port": self.ports["good"]}}
        for path, text in prometheus.files(self.settings, {**self.told, **more}, balancers, {}).items():
            file = self.folder / path
            file.parent.mkdir(exist_ok=True)
            new = file.with_name(f".{file.name}.new")
            new.write_text(text)
            new.replace(file)

    def read_cards(self) -> None:
        """Read the cards once more, as the timer of the role card_metrics does."""
        for name in HOSTS:
            place = self.folder / name
            played_cards(place / "sys", time.monotonic() - self._began, hot=name == "bad")
            subprocess.run(
                [sys.executable, "-I", "-B", str(CARD_METRICS), "--sys", str(place / "sys"), str(place / "textfile")],
                check=True,
            )

    async def asked(self, path: str, **query: str) -> Any:
        """The answer of Prometheus."""
        words = urllib.parse.urlencode(query)

        def ask() -> Any:
            url = f"http://127.0.0.1:{self.ports['prometheus']}{path}?{words}"
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)

        return await asyncio.to_thread(ask)

    async def value(self, expression: str) -> list[dict[str, Any]]:
        """The rows of a query now."""
        return list((await self.asked("/api/v1/query", query=expression))["data"]["result"])

    async def range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The rows of a query over a time, in seconds since 1970."""
        told = {"query": expression, "start": str(start), "end": str(end), "step": str(step)}
        return list((await self.asked("/api/v1/query_range", **told))["data"]["result"])

    async def until(self, done: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until something is so."""
        ends = asyncio.get_running_loop().time() + LIMIT_S
        while True:
            with contextlib.suppress(OSError):
                if await done():
                    return
            for process in self._processes:
                assert process.poll() is None, f"{process.args!r} ended: {self.logs()}"
            assert asyncio.get_running_loop().time() < ends, f"{what}: {self.logs()}"
            await asyncio.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(f"{file.name}: {file.read_text()[-600:]}" for file in sorted(self.folder.glob("*.log")))

    async def client(self, name: str) -> Client:
        trust = ssl.create_default_context(cafile=str(self.certificate)) if name == "good" else None
        return Client(*await asyncio.open_connection(HOSTS[name], self.ports[name], ssl=trust))

    async def traffic(self, number: int) -> None:
        """A client of each host that asks for ever: most requests go well, some wait, fail or are refused."""
        while True:
            for name in HOSTS:
                client = await self.client(name)
                key = f"Authorization: Bearer {'s-anna' if number % 2 else KEY}"
                asked: list[tuple[str, dict[str, Any]]] = [(CHAT, {"stream": True, "max_tokens": 5 + number})]
                if number == 0:
                    asked += [(CHAT, {"fail": True}), (CHAT, {"max_tokens": 1, "n": 99}), ("/v1/none", {})]
                for path, body in asked:
                    await client.ask("POST", path, json.dumps({"model": "tiny-a", **body}).encode(), key)
                client.leave()

    @contextlib.asynccontextmanager
    async def busy(self, clients: int = 8) -> AsyncIterator[None]:
        """Clients for a while."""
        tasks = [asyncio.create_task(self.traffic(number)) for number in range(clients)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            failed = [one for one in ended if not isinstance(one, asyncio.CancelledError)]
            assert not failed, failed


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for two days, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=good", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*argv, "-out", str(certificate), "-keyout", str(key)], check=True, capture_output=True)
    return certificate, key


def rules(*, at_once: bool) -> str:
    """The alert rules; `at_once` takes away for how long something has to be so."""
    text = RULES.read_text()
    return re.sub(r"^        for: .*$", "        for: 0s", text, flags=re.M) if at_once else text


def _place(folder: Path, name: str, engine: Engine, port: int, tls: tuple[Path, Path]) -> list[str]:
    """What a host has: the state of its slot, its journal, its cards and its frontdoor's configuration."""
    place = folder / name
    (place / "textfile").mkdir(parents=True)
    bad = name == "bad"
    profile = {"name": "tiny-a", "served_model_name": "tiny-a", "fingerprint": "sha256:01" if bad else "sha256:00"}
    own = {"unit": "b70-slot-main-tiny-a.service", "invocation_id": "0" * 32, "kind": "vllm", "metrics": METRICS}
    limits = {"max_active_generations": PERMITS, "queue_timeout_s": 0 if bad else 60, "backend_timeout_s": 60}
    # two engines here, which are one and the same played one
    several = {} if bad else several_state([engine, engine], PERMITS // 2, 60)
    state = changed_state(engine.url, {"engine": own, **several, "profile": profile, "limits": limits})
    (place / "state.json").write_text(json.dumps(state))
    (place / "journal.jsonl").write_text(journal("rolled_back", "canary") if bad else journal("committed"))
    start_unit(place)
    for index in range(len(state.get("replicas", ()))):
        start_replica(place, index)
    cards.tree(place / "sys", 1)
    if bad:
        (place / "quarantine.json").write_text(json.dumps({"schema": 1, "boot_id": ""}))
        # What the watchdog of the slot writes of an engine that is wedged.
        (place / "liveness.json").write_text(json.dumps(WEDGED))
    sections: dict[str, dict[str, Any]] = {
        "listen": {"host": HOSTS[name], "port": port},
        "slot": {
            "state_file": str(place / "state.json"),
            "units_dir": str(place),
            "journal_file": str(place / "journal.jsonl"),
            "quarantine_file": str(place / "quarantine.json"),
        },
        "backend": {"url": engine.url, "metrics_interval_s": 1.0, "probe_interval_s": 1.0},
    }
    if not bad:
        keys = write_keys(place / "keys.toml", prometheus=KEY, anna="s-anna")
        sections |= {"auth": {"keys_file": keys}, "tls": {"cert_file": str(tls[0]), "key_file": str(tls[1])}}
    file = place / "frontdoor.toml"
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    file.write_text("\n".join(lines))
    return [sys.executable, "-m", "frontdoor", "--config", str(file)]


@contextlib.asynccontextmanager
async def watched(folder: Path, programs: Path, *, at_once: bool = True) -> AsyncIterator[Watched]:
    """Start everything, and wait until Prometheus has looked. `programs` is what tests/tools/prometheus.sh prints."""
    engine = Engine()
    engine.script = Model()
    await engine.start()
    services = ("good", "bad", "node", "blackbox", "prometheus")
    ports = {name: free_port() for name in services}
    (folder / "rules").mkdir()
    (folder / "rules" / "b70.yml").write_text(rules(at_once=at_once))
    (folder / "frontdoor.key").write_text(KEY)
    tls = _certificate(folder)
    told: dict[str, dict[str, Any]] = {
        name: {"ansible_host": address, "frontdoor_port": ports[name]} for name, address in HOSTS.items()
    }
    told["good"] |= {"frontdoor_tls_certificate": "/etc/b70/cert.pem", "frontdoor_api_keys": {"prometheus": "sha256:"}}
    settings = prometheus.PrometheusSettings(
        directory=str(folder),
        key_file=str(folder / "frontdoor.key"),
        ca_file=str(tls[0]),
        interval_s=INTERVAL_S,
        rule_files=(),
        node_port=ports["node"],
        # Debian's finds its templates only where its package is installed.
        alertmanager="",
        blackbox=f"127.0.0.1:{ports['blackbox']}",
        prometheus=f"127.0.0.1:{ports['prometheus']}",
        name="mon",
        site="lab",
    )
    found = Watched(folder, programs, engine, ports, tls[0], told, settings)
    source = str(FRONTDOOR / "src")
    for name in HOSTS:
        found.run(f"frontdoor-{name}", _place(folder, name, engine, ports[name], tls), PYTHONPATH=source)
    found.read_cards()
    found.write_targets()
    (folder / "alertmanager.yml").write_text(alertmanager.configuration({}))
    for argv in (
        [str(programs / "promtool"), "check", "config", str(folder / "prometheus.yml")],
        [str(programs / "amtool"), "check-config", str(folder / "alertmanager.yml")],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for name, address in HOSTS.items():
        argv = [str(programs / "prometheus-node-exporter"), f"--web.listen-address={address}:{ports['node']}"]
        found.run(f"node-{name}", [*argv, f"--collector.textfile.directory={folder / name / 'textfile'}"])
    blackbox = [str(programs / "prometheus-blackbox-exporter"), f"--config.file={folder / 'blackbox.yml'}"]
    found.run("blackbox", [*blackbox, f"--web.listen-address={settings.blackbox}"])
    own = [str(programs / "prometheus"), f"--config.file={folder / 'prometheus.yml'}"]
    own += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{ports['prometheus']}"]
    found.run("prometheus", own)
    try:

        async def all_up() -> bool:
            rows = await found.value("up == 1")
            # two frontdoors with their engines and nodes, the node of the load balancer, two probes, and what watches
            return len(rows) == 3 * len(HOSTS) + 1 + 2 + 2

        await found.until(all_up, "not all targets are up")
        yield found
    finally:
        found.stop()
        await engine.kill()
