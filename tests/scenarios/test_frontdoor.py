# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frontdoor's role on a host that serves: upgraded, given wrong keys and certificates, and removed."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from machine import LIMIT_S, wait_for
from scenarios.outcome import assert_serves, loading
from scenarios.rig import Rig

pytestmark = pytest.mark.scenario
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "roles/frontdoor/files/frontdoor"
UNIT = "b70-openai-frontdoor.service"
UNITS = (UNIT, "b70-slot-admin@.service", "b70-slot-admin.socket")
VENV, CONFIG = "/opt/b70/frontdoor/venv", "/etc/b70-frontdoor"
CERTIFICATE, SECRET = "/etc/ssl/certs/b70-lab.pem", "/etc/ssl/private/b70-lab.key"
# A stream of so many words lasts longer than any upgrade, as long as the engine is told to be slow.
WORDS = 250


def digest(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


class HostFrontdoor:
    """The frontdoor of one host: changed by its role, asked over HTTP."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def apply(self, options: dict[str, Any], *words: str, source: Path | None = None) -> tuple[int, str]:
        """Run the role; (exit status, everything that was printed, in one line)."""
        given = options | ({"__frontdoor_source": str(source)} if source else {})
        command = [
            "ansible-playbook",
            "-i",
            "inventory/lab.yml",
            "--limit",
            self.rig.host.name,
            str(HERE / "door.yml"),
        ]
        done = subprocess.run(
            [*command, "--diff", *words, "-e", json.dumps(given)],
            cwd=ROOT,
            env={**os.environ, "B70_LAB": self.rig.lab.name, "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if "--check" not in words:
            self.rig.door_as_shipped = done.returncode == 0 and not given
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def as_shipped(self) -> None:
        """Have it as the role makes it without a variable: as it is, where that is so already."""
        if not self.rig.door_as_shipped:
            self.must({})

    def must(self, options: dict[str, Any], *words: str, source: Path | None = None) -> str:
        code, said = self.apply(options, *words, source=source)
        assert code == 0, said
        return said

    def unchanged(self, options: dict[str, Any], *words: str, source: Path | None = None) -> None:
        said = self.must(options, *words, source=source)
        assert " changed=0 " in said, said

    def ask(self, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """(status, JSON); 0 where nobody listens."""
        connection = http.client.HTTPConnection(self.rig.address, 8000, timeout=LIMIT_S)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()

    def served(self, key: str = "") -> int:
        """The status of an answer of the engine."""
        messages = [{"role": "user", "content": "Who are you?"}]
        return self.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 4}, key)[0]

    def process(self) -> dict[str, str]:
        listing = self.rig.must("systemctl", "show", "--property=InvocationID,MainPID,ActiveState", UNIT)
        return dict(line.split("=", 1) for line in listing.splitlines())

    def about(self) -> dict[str, Any]:
        """What it says of itself to the host, which needs no key."""
        look = (
            "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/status', timeout=600).read().decode())"
        )
        found: dict[str, Any] = json.loads(self.rig.must("python3", "-c", look))["frontdoor"]
        return found

    def environments(self) -> list[str]:
        return sorted(path.name for path in (self.rig.root / "opt/b70/frontdoor").iterdir())

    def in_use(self) -> str:
        return os.path.basename(os.readlink(self.rig.root / VENV.lstrip("/")))


class Stream(threading.Thread):
    """One long answer, read to its end."""

    def __init__(self, door: HostFrontdoor) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self._connection = http.client.HTTPConnection(door.rig.address, 8000, timeout=LIMIT_S)
        prompt = ("x " * WORDS).strip()
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": WORDS + 2, "stream": True}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body))
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200
        self.start()

    def run(self) -> None:
        while line := self.answer.readline():
            if line.startswith(b"data: "):
                self.lines.append(line.decode().strip().removeprefix("data: "))
        self._connection.close()

    def text(self) -> str:
        """What came, when it has ended."""
        self.join(LIMIT_S)
        assert not self.is_alive(), "the stream does not end"
        events = [json.loads(line) for line in self.lines if line != "[DONE]"]
        return "".join(c["delta"].get("content", "") for e in events for c in e.get("choices", ()))


class Poll(threading.Thread):
    """Asks /ready over and over, each time on a new connection, and counts what comes."""

    def __init__(self, door: HostFrontdoor) -> None:
        super().__init__(daemon=True)
        self.door, self.seen, self._enough = door, Counter[str](), threading.Event()
        self.start()

    def run(self) -> None:
        while not self._enough.wait(0.02):
            status, body = self.door.ask("/ready")
            self.seen[body["reason"] if status == 503 else str(status)] += 1

    def stop(self) -> Counter[str]:
        self._enough.set()
        self.join(LIMIT_S)
        return self.seen


@contextlib.contextmanager
def slow_streams(door: HostFrontdoor) -> Iterator[None]:
    """The engine takes its time for streams, those under way included, until this ends or it is told otherwise."""
    door.rig.tell_running("sim-a", "slow-stream")
    try:
        yield
    finally:
        door.rig.tell("sim-a")


@pytest.fixture(scope="module")
def door(rig: Rig) -> Iterator[HostFrontdoor]:
    rig.serve("sim-a")
    door = HostFrontdoor(rig)
    yield door
    door.as_shipped()
    rig.wipe()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Another version of the package."""
    copy = tmp_path / "frontdoor"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("tests", ".*", "__pycache__"))
    about = copy / "src/frontdoor/__init__.py"
    about.write_text(about.read_text().replace('"1.0.0"', '"1.0.9"'))
    return copy


def test_an_upgrade_lets_streams_end_and_refuses_nobody(door: HostFrontdoor, source: Path) -> None:
    door.as_shipped()
    before, was = door.in_use(), door.process()
    assert "would install" in door.must({}, "--check", source=source)
    assert (door.in_use(), door.process()) == (before, was)
    with slow_streams(door):
        stream, poll = Stream(door), Poll(door)
        with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as pool_of_clients:
            upgrade = pool.submit(door.must, {}, source=source)
            wait_for(lambda: door.about()["draining"] or upgrade.done(), "the old process stops")
            assert not upgrade.done(), f"it did not wait for the stream: {upgrade.result()}"
            late = pool_of_clients.submit(door.served)
            door.rig.tell("sim-a")
            said = upgrade.result()
            assert late.result() == 200
    assert stream.text() == "sim-a heard: " + ("x " * WORDS).strip(), said
    assert stream.lines[-1] == "[DONE]"
    # Who came meanwhile waited for the next process.
    assert poll.stop().keys() == {"200"}
    assert door.about()["version"] == "1.0.9"
    assert door.process()["InvocationID"] != was["InvocationID"]
    assert door.environments() == sorted(["venv", before, door.in_use()])
    door.unchanged({}, source=source)
    # the way back builds nothing
    said = door.must({})
    assert "Create the environment" not in said
    assert (door.in_use(), door.about()["version"]) == (before, "1.0.0")
    assert door.served() == 200


@pytest.mark.exhaustive
def test_a_stream_beyond_the_drain_limit_ends_with_its_error_event(door: HostFrontdoor) -> None:
    door.must({"frontdoor_drain_timeout": 1})
    with slow_streams(door):
        stream = Stream(door)
        door.must({})
        stream.text()
    assert json.loads(stream.lines[-1])["error"]["code"] == "stopping"
    assert len(stream.lines) < WORDS


@pytest.mark.exhaustive
def test_an_upgrade_that_fails_leaves_everything_as_it_was(door: HostFrontdoor, source: Path) -> None:
    door.as_shipped()
    before, was = door.in_use(), door.process()
    lock, program = source / "requirements.txt", source / "src/frontdoor/app.py"
    healthy = lock.read_text()
    lock.write_text(healthy.replace("orjson==", "orjson==3.999."))
    for fault in ("3.999.", "a_package_that_is_not_there"):  # one cannot be downloaded, the other not imported
        code, said = door.apply({"frontdoor_max_connections": 77}, source=source)
        assert code != 0
        assert fault in said
        assert (door.in_use(), door.process()) == (before, was)
        assert "77" not in door.rig.read(f"{CONFIG.lstrip('/')}/frontdoor.toml")
        assert door.served() == 200
        lock.write_text(healthy)
        program.write_text("import a_package_that_is_not_there\n")
    door.rig.must("systemctl", "restart", UNIT)
    assert door.served() == 200
    door.unchanged({})
    assert door.in_use() == before


@pytest.mark.exhaustive
def test_keys_that_cannot_be_read_are_refused_before_anything_changes(door: HostFrontdoor) -> None:
    keys = {"alice": digest("of-alice"), "team.carol": digest("of-carol")}
    said = door.must({"frontdoor_api_keys": keys})
    assert digest("of-alice")[7:] not in said
    assert [door.served(key) for key in ("", "of-alice", "of-carol")] == [401, 200, 200]
    was = door.process()
    wrong = {"bob": "raw-secret", 'a b"': digest("x")}
    for words in ((), ("--check",)):
        code, said = door.apply({"frontdoor_api_keys": keys | wrong}, *words)
        assert code != 0
        named = said.replace('\\"', '"').partition("Not so: ")[2]
        assert named.startswith(('bob, a b"', 'a b", bob')), said
        for secret in ("raw-secret", digest("x")[7:], digest("of-alice")[7:]):
            assert secret not in said
    assert door.process() == was
    door.rig.must("systemctl", "restart", UNIT)
    assert door.served("of-alice") == 200
    # a revoked key
    said = door.must({"frontdoor_api_keys": {"team.carol": keys["team.carol"]}}, "-vvv")
    assert digest("of-carol")[7:] not in said
    wait_for(lambda: door.served("of-alice") == 401, "alice's key is revoked")
    assert door.served("of-carol") == 200
    # somebody else wrote the file: said loudly, and the role puts it right
    was = door.process()
    door.rig.write(f"{CONFIG}/keys.toml", '[keys]\nbob = "raw-secret"\n')
    door.rig.must("chgrp", "b70-frontdoor", f"{CONFIG}/keys.toml")
    wait_for(lambda: "'bob'" in door.about()["keys_error"], "the wrong file is told of")
    assert door.served("of-carol") == 200
    door.must({"frontdoor_api_keys": {"team.carol": keys["team.carol"]}})
    wait_for(lambda: door.about()["keys_error"] == "", "the file is right again")
    assert door.process() == was


def certify(rig: Rig, name: str) -> str:
    """Make a new certificate with its key on the host; what is served when it is used."""
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    rig.must(*make.split(), "-subj", f"/CN={name}", "-keyout", SECRET, "-out", CERTIFICATE)
    return rig.read(CERTIFICATE.lstrip("/")).strip()


@pytest.mark.exhaustive
def test_a_renewed_certificate_is_served_and_a_wrong_one_refused(door: HostFrontdoor) -> None:
    rig = door.rig
    options = {"frontdoor_tls_certificate": CERTIFICATE, "frontdoor_tls_key": SECRET}

    def shown() -> str:
        return ssl.get_server_certificate((rig.address, 8000), timeout=LIMIT_S).strip()

    first = certify(rig, "first")
    door.must(options)
    assert shown() == first
    second = certify(rig, "second")
    assert "would make sure" in door.must(options, "--check")
    door.must(options)
    assert shown() == second != first
    was = door.process()
    # the certificate without its key, as a renewal does that was interrupted
    key = rig.read(SECRET.lstrip("/"))
    certify(rig, "third")
    rig.write(SECRET, key)
    for words in ((), ("--check",)):
        code, said = door.apply(options, *words)
        assert code != 0
        assert f"{SECRET}: this key does not belong to the certificate {CERTIFICATE}. Nothing was changed" in said, said
        assert "PRIVATE" not in said
    assert shown() == second
    assert door.process() == was


@pytest.mark.exhaustive
def test_a_change_of_the_unit_alone_restarts(door: HostFrontdoor) -> None:
    door.as_shipped()
    was = door.process()
    door.must({"frontdoor_start_timeout": 31})
    now = door.process()
    assert now["InvocationID"] != was["InvocationID"]
    door.unchanged({"frontdoor_start_timeout": 31})
    assert door.process() == now


@pytest.mark.exhaustive
def test_every_unit_is_right_and_keeps_its_exposure(door: HostFrontdoor) -> None:
    options = {
        "frontdoor_port": 443,
        "frontdoor_unix_socket": True,
        "frontdoor_api_keys": {"a": digest("a")},
        "frontdoor_admin_keys": {"b": digest("b")},
        "frontdoor_allowed_networks": ["10.0.0.0/8"],
        "frontdoor_tls_certificate": CERTIFICATE,
        "frontdoor_tls_key": SECRET,
    }
    certify(door.rig, "all")
    for given in (options, {}, {"frontdoor_port": 443}):
        door.must(given)
        assert door.process()["ActiveState"] == "active"
        knock = "import socket; socket.socket(socket.AF_UNIX).connect('/run/b70-openai-frontdoor/http.sock')"
        knocked = door.rig.run("runuser", "-u", "nobody", "--", "python3", "-c", knock)
        assert (knocked.code == 0) is (given is options), knocked
        paths = [f"/etc/systemd/system/{unit}" for unit in (UNITS if given is options else UNITS[:1])]
        judged = door.rig.run("systemd-analyze", "verify", "--man=no", *paths)
        assert (judged.code, judged.errors) == (0, ""), judged
        limit = ("--threshold=15", "--offline=true", "--no-pager")
        exposed = door.rig.run("systemd-analyze", "security", *limit, f"/etc/systemd/system/{UNIT}")
        assert exposed.code == 0, f"{given}: {exposed.output}"
        if not given:  # as it was before there were keys and certificates
            assert not (door.rig.root / CONFIG.lstrip("/") / "keys.toml").exists()
            assert door.served() == 200


def test_models_are_loaded_and_unloaded_by_the_slots_own_command(door: HostFrontdoor) -> None:
    door.must({"frontdoor_admin_keys": {"b": digest("b")}})
    models = "/v1/admin/models"

    def change(name: str, verb: str) -> tuple[int, str]:
        status, said = door.ask(f"{models}/{name}/{verb}", {}, key="b")
        return status, said["runtime_state"] if status == 200 else said["detail"]["code"]

    nodes = door.rig.run("sh", "-c", "ls /dev/dri/renderD* 2>/dev/null").output.split()
    assert [card["name"] for card in door.ask("/v1/admin/gpu-memory", key="b")[1]["gpus"]] == nodes
    assert change("sim-b", "load") == (200, "loaded")
    assert [begun["why"] for begun in door.rig.journal() if begun["event"] == "begin"][-1] == (
        "load sim-b, asked over HTTP with the key b"
    )
    assert change("sim-a", "unload") == (200, "unloaded")
    assert change("sim-b", "unload") == (200, "unloaded")
    assert not door.rig.facts().running
    assert change("no-such", "load") == (404, "unknown_model")
    door.rig.tell("sim-a", "exit-at-start")
    assert change("sim-a", "load") == (500, "model_load_failed")
    door.rig.tell("sim-a")
    assert change("sim-a", "load") == (200, "loaded")
    assert door.served() == 200
    for key, refused in (("", 401), ("wrong", 401)):
        assert door.ask(f"{models}/sim-b/load", {}, key=key)[0] == refused
    knock = "import socket; socket.socket(socket.AF_UNIX).connect('/run/b70-slot-admin.sock')"
    assert "PermissionError" in door.rig.run("runuser", "-u", "b70", "--", "python3", "-c", knock).errors
    # The frontdoor restarts while a model loads: who waits is told, and the load goes on.
    door.rig.tell("sim-b", live=["never-ready"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(change, "sim-b", "load")
        wait_for(lambda: loading(door.rig), "the model loads")
        assert change("sim-b", "load") == (200, "loading")
        assert change("sim-b", "unload") == change("sim-a", "load") == (409, "model_loading")
        door.rig.must("systemctl", "restart", UNIT)
        assert waiting.result() == (503, "stopping")
    door.rig.tell("sim-b")
    wait_for(lambda: change("sim-b", "load") == (200, "loaded"), "the load ends")
    door.rig.wait_settled()
    assert_serves(door.rig, "sim-b")
    judged = door.rig.run("systemctl", "list-units", "--failed", "--no-legend", "b70-slot-admin@*")
    assert judged.output.strip() == ""


def test_a_request_has_the_model_loaded_that_it_names(door: HostFrontdoor) -> None:
    """By the helper of the administration, without a key of one; a load that fails leads back and is not repeated."""
    door.must({"frontdoor_on_demand": {"main": ["*"]}, "frontdoor_on_demand_min_serve": 1})

    def ask(model: str) -> tuple[int, Any]:
        messages = [{"role": "user", "content": "Who are you?"}]
        return door.ask("/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": 4})

    for name in ("sim-a", "sim-b", "sim-a"):
        assert ask(name)[0] == 200
        assert_serves(door.rig, name)
    begun = [entry for entry in door.rig.journal() if entry["event"] == "begin"]
    assert [entry["why"] for entry in begun][-1] == "load sim-a, asked over HTTP with the key on-demand"
    door.rig.tell("sim-b", "exit-at-start")
    for _ in range(2):
        status, said = ask("sim-b")
        assert (status, said["error"]["code"]) == (503, "load_failed"), said
        assert "phase " in said["error"]["message"]
    assert len([entry for entry in door.rig.journal() if entry["event"] == "begin"]) == len(begun) + 1
    door.rig.tell("sim-b")
    assert_serves(door.rig, "sim-a")
    assert ask("sim-a")[0] == 200
    demand = {"frontdoor_on_demand": {"main": ["*"]}, "frontdoor_on_demand_min_serve": 1}
    door.must({**demand, "frontdoor_on_demand_idle": {"main": 1}})
    wait_for(lambda: door.ask("/status")[1]["idle"], "the model is unloaded")
    assert "nothing, said by idle" in door.rig.run("b70ctl", "status").output
    assert door.ask("/ready")[0] == 200
    door.must({**demand, "frontdoor_on_demand_idle": {}})
    assert ask("some-model")[0] in (200, 404)
    assert_serves(door.rig, "sim-a")
    door.must({})


def test_it_is_removed_and_nothing_else_and_made_again(door: HostFrontdoor) -> None:
    root = door.rig.root
    made = [*(f"/etc/systemd/system/{unit}" for unit in UNITS), VENV, CONFIG, "/opt/b70/frontdoor"]
    door.must({"frontdoor_admin_keys": {"b": digest("b")}})
    foreign = root / "opt/b70/frontdoor/notes-of-an-operator"
    foreign.touch()
    absent = {"frontdoor_state": "absent"}
    said = door.must(absent, "--check")
    for path in (*made[:3], f"{VENV} ", f"{VENV}-{door.in_use()[5:]}", f"{CONFIG}/admin-keys.toml", CONFIG):
        assert path.strip() in said, path
    assert door.served() == 200
    door.must(absent)
    assert [path for path in made if os.path.lexists(root / path.lstrip("/"))] == ["/opt/b70/frontdoor"]
    assert door.environments() == [foreign.name]
    assert door.ask("/health")[0] == 0
    assert door.rig.run("systemctl", "is-enabled", UNIT).output.strip() in ("", "not-found")
    assert door.rig.run("getent", "group", "b70-frontdoor").code != 0
    assert door.rig.run("systemctl", "is-active", "b70-slot-admin.socket").code != 0
    # the engine goes on
    assert len(door.rig.facts().running) == 1
    door.unchanged(absent)
    foreign.unlink()
    door.must({})
    wait_for(lambda: door.served() == 200, "it serves again")


@pytest.mark.exhaustive
def test_a_first_installation_that_does_not_come_up_fails_plainly(door: HostFrontdoor, source: Path) -> None:
    door.must({"frontdoor_state": "absent"})
    assert not (door.rig.root / "opt/b70/frontdoor").exists()
    program = source / "src/frontdoor/cli.py"
    program.write_text(program.read_text().replace("    page()\n", "    raise RuntimeError('poisoned')\n"))
    code, said = door.apply({}, source=source)
    assert code != 0
    assert "RuntimeError: poisoned" in said
    assert "There is nothing to go back to: no version before is known to have served here. Put right" in said
    assert "serves again" not in said
    door.must({})
    wait_for(lambda: door.served() == 200, "it serves")
    door.unchanged({})
