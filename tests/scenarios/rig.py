# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One lab host with a simulated engine: what a test tells it and reads of it, without a connection to wait for.

The host is a container of this machine, so its namespaces are entered and its files read through /proc. Both have one
clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.controller import BUSY, STARTS
from labkit import hosts
from labkit.layout import Lab, State, read_pid
from machine import LIMIT_S, wait_for

_HERE = Path(__file__).resolve().parent
# The settings of hosts.yml, for plays.
SETTINGS: dict[str, Any] = {
    "b70_profile_dirs": [str(_HERE / "profiles")],
    "b70_stack_dirs": [str(_HERE / "stacks")],
    **yaml.safe_load((_HERE / "settings.yml").read_text()),
}
SIM_DIR = "/run/b70-sim"
STATE_FILE = "run/b70/main/state.json"
JOURNAL = "var/lib/b70/journal/main.jsonl"
QUARANTINE = "var/lib/b70/quarantine.json"
CTL = "/opt/b70/bin/b70ctl"
CHANGES = ("switch", "stop", "verify", "record", "recover")  # the words of b70ctl that take the slot's lock
PATIENT = ("--lock-timeout", "240")  # the controller, which heals at once, may hold that lock
CONTROLLER = "b70-controller-main.service"
LIVENESS = "run/b70/main/liveness.json"
PREFIX = "b70-slot-main-"
CORE = b"VLLM::EngineCore"
ENGINES = re.compile(rb"venv/bin/(vllm|llama-server)(?! keeper)|/haproxy ")
PODMAN = b"/usr/bin/podman"
LOADS = {"live": ["never-ready"]}
WANTS = "etc/systemd/system/multi-user.target.wants"


@dataclass(frozen=True)
class Done:
    """A command that ended; ``data`` is its JSON where it printed some."""

    code: int
    output: str
    errors: str
    seconds: float

    @property
    def data(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.output)
        except ValueError as error:
            raise AssertionError(f"exit status {self.code}, no JSON: {self.output}{self.errors}") from error
        return found


@dataclass(frozen=True)
class Facts:
    """What the host is seen to be, by asking systemd and its process table, not the product."""

    running: tuple[str, ...]  # units of the slot that are up, or on their way up or down
    engines: tuple[int, ...]  # processes that are engines
    enabled: tuple[str, ...]
    invocation: str  # of the one unit that runs


class Rig:
    """A lab host by its number from 1."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.lab, self.host = lab, lab.host(number)
        state = State.load(lab)
        assert state is not None, f"lab {lab.name} is not up"
        self.address = state.address(self.host)
        self.url = f"http://{self.address}:8000"
        self.leader = 0
        self.door_as_shipped = False  # the frontdoor is known to be as its role makes it without a variable
        self._healthy = ""  # the profile of which only healthy engines were started since the last wipe
        self.find_leader()

    def find_leader(self) -> None:
        """Look again for the host's first process: it is another one after a boot."""
        self.leader = wait_for(lambda: _first_process(self._supervisor()), f"{self.host.name} runs")

    # What is read

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.leader}/root")

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def state(self) -> dict[str, Any]:
        """The state file, {} where there is none."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(self.read(STATE_FILE))
            return found
        return {}

    def journal(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            lines = self.read(JOURNAL).splitlines()
            return [record for line in lines if (record := _record(line))]
        return []

    def attempts_open(self) -> list[str]:
        """Ids of attempts in the journal that have no end."""
        ended = {record["id"] for record in self.journal() if record["event"] == "end"}
        return [
            str(record["id"]) for record in self.journal() if record["event"] == "begin" if record["id"] not in ended
        ]

    def wanted(self) -> str | None:
        """The profile that is to be served, as the journal says."""
        said = self.ctl("status").data["wanted"]
        return None if said is None else said["profile"]

    def facts(self) -> Facts:
        listing = self.run("systemctl", "list-units", "--all", "--plain", "--no-legend", f"{PREFIX}*").output
        rows = [line.split() for line in listing.splitlines()]
        running = tuple(row[0] for row in rows if row[2] in ("active", "activating", "deactivating", "reloading"))
        invocation = ""
        if len(running) == 1:
            invocation = self.run("systemctl", "show", "--value", "--property=InvocationID", running[0]).output.strip()
        names = os.listdir(self.root / WANTS)
        enabled = tuple(sorted(name for name in names if name.startswith(PREFIX)))
        return Facts(running, tuple(self.engines()), enabled, invocation)

    def engines(self) -> Iterator[int]:
        """The engines' processes, as this machine numbers them."""
        found: dict[int, int] = {}  # and their parents
        for pid, words in self._processes():
            # Behind its interpreter and options; Podman names it too.
            program = b" ".join(words[:4])
            if ENGINES.search(program) and not program.startswith(PODMAN):
                with contextlib.suppress(OSError):
                    found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        # A relay works in a child.
        yield from (pid for pid, parent in found.items() if parent not in found)

    def core(self) -> int:
        """The process that generates for the one engine, as this machine numbers it."""
        (core,) = (pid for pid, words in self._processes() if words[0] == CORE)
        return core

    def _processes(self) -> Iterator[tuple[int, list[bytes]]]:
        """Numbers and command lines of the host's processes, also of those in its containers."""
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                words = Path(f"/proc/{int(name)}/cmdline").read_bytes().split(b"\0")
                if f"/{self.host.cgroup}/" in Path(f"/proc/{name}/cgroup").read_text():
                    yield int(name), words

    # What is told

    def popen(self, *argv: str, **options: Any) -> subprocess.Popen[str]:
        enter = ["nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        clean = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": "/root",
        }
        return subprocess.Popen(
            [*enter, "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean,
            cwd="/",
            **options,
        )

    def run(self, *argv: str, limit_s: float = LIMIT_S) -> Done:
        """Run a command on the host, whatever its exit status."""
        begun = time.monotonic()
        with self.popen(*argv) as process:
            try:
                output, errors = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Done(process.returncode, output, errors, time.monotonic() - begun)

    def must(self, *argv: str) -> str:
        done = self.run(*argv)
        assert done.code == 0, f"{' '.join(argv)}: {done.code} {done.output} {done.errors}"
        return done.output

    def ctl(self, *words: str, limit_s: float = LIMIT_S) -> Done:
        """b70ctl with --json. A change waits for the slot's lock."""
        if words[0] in CHANGES and PATIENT[0] not in words:
            words += PATIENT
        return self.run(CTL, *words, "--json", limit_s=limit_s)

    def begin(self, profile: str) -> subprocess.Popen[str]:
        """Begin a switch with --json."""
        return self.popen(CTL, "switch", profile, *PATIENT, "--json")

    def tell(self, profile: str, *faults: str, **values: Any) -> None:
        """Say how the engine of a profile behaves from its next start on. With LOADS it loads until the next word."""
        if profile == self._healthy and faults:
            self._healthy = ""
        told = {"faults": list(faults), **values}
        self.write(f"{SIM_DIR}/{profile}.json", json.dumps(told))

    def tell_running(self, profile: str, *faults: str, **values: float) -> None:
        """Say what the engine that runs does from now on, as long as the file is there."""
        self._healthy = ""
        self.write(f"{SIM_DIR}/{profile}.json", json.dumps({"live": list(faults), **values}))

    def tell_next_boot(self, profile: str, *faults: str) -> None:
        """Say how the engine of a profile behaves after the next boot, which empties /run."""
        self._healthy = ""
        path = f"etc/tmpfiles.d/b70-sim-{profile}.conf"
        told = json.dumps({"faults": list(faults)}).replace(" ", "")
        self.write(path, f"f {SIM_DIR}/{profile}.json 0644 root root - {told}\n" if faults else "")

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        new = target.with_name(f".{target.name}.new")
        new.write_text(text)
        new.rename(target)

    # Going down and coming back

    def reboot(self) -> None:
        """Reboot in order; returns when another first process runs."""
        before = self.leader
        self.run("systemctl", "reboot")

        def another() -> int:
            first = _first_process(self._supervisor())
            return 0 if first == before else first

        self.leader = wait_for(another, "the host is back", 0.1)

    def lose_power(self) -> None:
        """Everything on the host ends at once; then it boots."""
        os.kill(self.leader, signal.SIGKILL)
        wait_for(lambda: not hosts.running(self.host), "the host is down")
        hosts.boot(self.lab, self.host)
        self.find_leader()

    def wait_booted(self) -> None:
        """Wait until the boot is done and the slot's controller has settled what it left."""
        wait_for(lambda: self.run("systemctl", "is-system-running").output.strip() in ("running", "degraded"), "booted")
        self.wait_settled()

    def _supervisor(self) -> int:
        return int(read_pid(self.host.pid_file) or 0)

    # Known states

    def wait_settled(self) -> None:
        """Wait until the slot's controller has nothing to do now: all is as wanted, or it pauses before another try."""
        begun, asked = time.monotonic(), 0.0

        def at_rest() -> bool:
            nonlocal asked
            with contextlib.suppress(OSError):
                step = json.loads(self.read(LIVENESS))["next"]
                # A look that had begun before may have missed what was just done.
                if step["looked"] > begun and step["do"] in ("rest", "ask") and step["why"] not in (BUSY, STARTS):
                    return True
            if time.monotonic() - asked > 1.0:
                # It looks at once when it is told to, else every ten seconds.
                asked = time.monotonic()
                self.run("systemctl", "kill", "--signal=URG", "--kill-whom=main", CONTROLLER)
            return False

        wait_for(at_rest, f"{CONTROLLER} is at rest", 0.1)

    def wipe(self) -> None:
        """Make the host what it is before its first model: nothing runs, boots, is served or remembered."""
        for path in (self.root / SIM_DIR.lstrip("/")).glob("*.json"):
            path.unlink()
        script = (
            f"systemctl stop {CONTROLLER}; systemctl kill -s KILL '{PREFIX}*'; systemctl stop '{PREFIX}*';"
            f"systemctl reset-failed '{PREFIX}*'; systemctl kill -s URG b70-sim-keeper;"
            f"rm -rf /{WANTS}/{PREFIX}* {SIM_DIR}/reached /var/lib/b70/journal/* /{QUARANTINE}"
            " /var/lib/b70/committed/* /var/lib/b70/evidence/*"
            " /etc/b70-vllm-slot/current.env /run/b70/main/*.json* /run/b70/main/standby; true"
        )
        self.must("sh", "-c", script)
        wait_for(lambda: not list(self.engines()), "all engines have ended")
        self.must("systemctl", "start", CONTROLLER)

    def serve(self, profile: str, *faults: str, **values: float) -> None:
        """Have the profile served, verified, by an engine with these faults, and nothing else remembered."""
        self.wipe()
        self.tell(profile, *faults, **values)
        done = self.ctl("switch", profile)
        assert done.code == 0, f"{done.output}{done.errors}"
        self.wait_settled()
        self._healthy = "" if faults else profile

    def have(self, profile: str) -> None:
        """Have the profile served by a healthy engine: as it is, where that is so already."""
        state, fit = self.state(), self._healthy == profile and not (self.root / QUARANTINE).exists()
        if fit and state.get("open") and state["profile"]["name"] == profile and self.attempts_open() == []:
            facts = self.facts()
            if facts.invocation == state["engine"]["invocation_id"] and names_of(facts.enabled) == [profile]:
                for path in (self.root / SIM_DIR.lstrip("/")).glob("*.json"):
                    path.unlink()
                return
        self.serve(profile)


def _record(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _first_process(supervisor: int) -> int:
    """The process below a host's supervisor that is number one of its own namespace, 0 while there is none."""
    waiting = [supervisor] if supervisor else []
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
            if len(numbers) > 1 and numbers[-1] == "1" and "systemd" in status.splitlines()[0]:
                return pid
            for task in os.listdir(f"/proc/{pid}/task"):
                waiting += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return 0


def names_of(units: Sequence[str]) -> list[str]:
    """The profiles of units."""
    return [unit.removeprefix(PREFIX).removesuffix(".service").partition("@")[0] for unit in units]
