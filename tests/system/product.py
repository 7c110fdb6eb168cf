# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The product as an operator and a client see it: playbooks from here, HTTP to the frontdoor, SSH to the host."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import testinfra
from testinfra.host import Host

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask.canary import image_url
from clients.line import process
from machine import T, free_port, wait_for

ROOT = Path(__file__).resolve().parents[2]
INVENTORY = ROOT / "inventory" / "lab.yml"
RECAP = re.compile(r"^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)
QUESTION = "Who are you?"
COLOUR_QUESTION = "Name the colour of this picture in one word."


def picture(colour: str) -> list[dict[str, Any]]:
    """The parts of a message that asks for the colour of a picture."""
    url = image_url({"colour": colour, "width": 48, "height": 40})
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": COLOUR_QUESTION}]


def lab_command(*words: str, limit_s: float = 1200) -> None:
    """Run a command of the lab that B70_LAB names."""
    subprocess.run([sys.executable, str(ROOT / "tests/lab/lab.py"), *words], check=True, timeout=limit_s)


@contextmanager
def bare_hosts(lab: str, count: int, *words: str) -> Iterator[None]:
    """Make a lab of this many bare hosts, name it in B70_LAB, and remove it at the end of the block.

    words: further ones of the command that makes it.
    """
    os.environ["B70_LAB"] = lab
    lab_command("up", "--hosts", str(count), "--fresh", *words)
    yield
    lab_command("down", limit_s=300)


def reach(host_vars: Mapping[str, Any]) -> Host:
    """A connection to a host of the inventory with the very options that Ansible uses."""
    arguments = f"{host_vars.get('ansible_ssh_common_args', '')} {host_vars.get('ansible_ssh_extra_args', '')}"
    return testinfra.get_host(
        f"ssh://{host_vars.get('ansible_user', 'root')}@{host_vars['ansible_host']}",
        ssh_identity_file=host_vars.get("ansible_ssh_private_key_file"),
        ssh_extra_args=shlex.join(shlex.split(arguments)),
        controlpersist=60,
    )


@contextmanager
def tunnel(host_vars: Mapping[str, Any], port: int) -> Iterator[int]:
    """A port of this machine that leads to a port of a host of the inventory, on its own 127.0.0.1."""
    own = free_port()
    words = f"{host_vars.get('ansible_ssh_common_args', '')} {host_vars.get('ansible_ssh_extra_args', '')}"
    argv = ["ssh", *shlex.split(words), "-i", host_vars["ansible_ssh_private_key_file"]]
    argv += ["-o", "ExitOnForwardFailure=yes", "-N", "-L", f"127.0.0.1:{own}:127.0.0.1:{port}"]
    argv.append(f"{host_vars.get('ansible_user', 'root')}@{host_vars['ansible_host']}")
    with process(argv, own, "the tunnel"):
        yield own


@dataclass(frozen=True)
class Play:
    """What a run of ansible-playbook came to. ``changed`` sums over all hosts."""

    code: int
    output: str

    @property
    def changed(self) -> int:
        return sum(int(match[3]) for match in RECAP.finditer(self.output))


def play(
    playbook: str | Path,
    *arguments: str,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    inventory: Path = INVENTORY,
    limit_s: float = 1800,
) -> Play:
    """Run a playbook and return its exit status and everything it printed.

    Without another inventory its hosts are those of the lab that B70_LAB names.
    """
    command = ["ansible-playbook", "-i", str(inventory), str(playbook), *arguments]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
        check=False,
    )
    return Play(done.returncode, done.stdout)


def words_of(output: str) -> str:
    """Return what was printed without its line breaks."""
    return " ".join(output.split())


@dataclass(frozen=True)
class Frontdoor:
    """The frontdoor of one host, without its path: ``http://ADDRESS:8000``."""

    url: str

    def status(self) -> dict[str, Any]:
        """Return the body of /status, whatever its HTTP status."""
        body: dict[str, Any] = requests.get(f"{self.url}/status", timeout=60).json()
        return body

    def ask(self, question: str | list[dict[str, Any]] = QUESTION, timeout: float = 180) -> requests.Response:
        """Ask for one short completion, with words or parts of a message; the model is whatever is served."""
        messages = [{"role": "user", "content": question}]
        body = {"messages": messages, "max_tokens": 32, "temperature": 0}
        return requests.post(f"{self.url}/v1/chat/completions", json=body, timeout=timeout)


def answer_of(response: requests.Response) -> str:
    """Return the text of a completion."""
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"]).strip()


def until(question: Callable[[], T], what: str) -> T:
    """Ask until the answer is something, and return it."""
    return wait_for(question, what, every_s=0.5)


def served_process(host: Host) -> str:
    """Return the invocation ID of the engine that clients are let in to; empty where there is none."""
    done = host.run("cat /run/b70/main/state.json")
    state = json.loads(done.stdout) if done.rc == 0 else {}
    return str(state["engine"]["invocation_id"]) if state.get("open") and state.get("verified") else ""


def wait_served_anew(host: Host, before: str) -> None:
    """Wait until another process than `before` is served, verified."""
    until(lambda: served_process(host) not in ("", before), "a verified engine")


@dataclass(frozen=True)
class Seen:
    """One answer that a client got: seconds since it began, HTTP status (0: none), model id, text, Retry-After."""

    at: float
    status: int
    model: str
    text: str
    retry_after: str


@dataclass
class Client(threading.Thread):
    """Asks the frontdoor the same question all the time, as an impatient client would, and keeps every answer."""

    frontdoor: Frontdoor
    pause_s: float = 0.5
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._enough = threading.Event()
        self.quiet = threading.Event()  # while it is set, nothing is asked

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        began = time.monotonic()
        while not self._enough.wait(self.pause_s):
            if self.quiet.is_set():
                continue
            at = time.monotonic() - began
            try:
                response = self.frontdoor.ask()
                body = response.json()
            except (requests.RequestException, ValueError) as error:
                self.seen.append(Seen(at, 0, "", repr(error), ""))
                continue
            text = answer_of(response) if response.status_code == 200 else str(body.get("error", body))
            retry_after = response.headers.get("Retry-After", "")
            self.seen.append(Seen(at, response.status_code, str(body.get("model", "")), text, retry_after))

    def wait_answered(self, model: str) -> None:
        """Wait until this model has answered."""
        wait_for(lambda: any(one.model == model and one.status == 200 for one in self.seen), f"an answer of {model}")

    def stop(self) -> list[Seen]:
        """End the asking and return all answers in order."""
        self._enough.set()
        self.join(240)
        assert not self.is_alive(), "the client still waits for an answer"
        return self.seen
