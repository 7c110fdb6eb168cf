# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights travel once: four real hosts, of which one downloads from a hub that the lab plays and the others take the
files from hosts that have them, with the distribution's nginx and aria2.

The tests are one story, in this order. They have a lab of their own, which is taken down afterwards.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from testinfra.host import Host

from demo import inventory_hosts
from hub.server import COMMIT, Hub, serve
from machine import LIMIT_S, kill_tree
from system.product import INVENTORY, ROOT, bare_hosts, reach, words_of
from system.weights import MODELS, TOKEN, Operator
from vendor.server import gateway

LAB = "peers"
SIZE = 48_000_000
SOURCE = {"big": {"hub": "lab/big", "revision": COMMIT}}
BIG = f"big@{COMMIT}"
PORT = 18090


@pytest.fixture(scope="session", autouse=True)
def lab() -> Iterator[None]:
    with bare_hosts(LAB, 4):
        yield


@pytest.fixture(scope="session")
def hosts(lab: None) -> list[Host]:
    return [reach(variables) for _name, variables in sorted(inventory_hosts(str(INVENTORY), "b70_hosts").items())]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose weights are too large to be read at every run."""
    root = tmp_path_factory.mktemp("big")
    for name in ("config.json", "tokenizer.json"):
        (root / name).write_bytes((ROOT / "tests/lab/models/tiny-a" / name).read_bytes())
    (root / "model.safetensors").write_bytes(random.Random(70).randbytes(SIZE))
    return root


@pytest.fixture(scope="session")
def hub(lab: None, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    served_with = tmp_path_factory.mktemp("tls")
    with serve(Hub(model, repository="lab/big", token=TOKEN), gateway(), served_with) as served:
        yield served


@pytest.fixture(scope="session")
def run(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator(
        hub, tmp_path_factory.mktemp("operator"), model_weights_models=SOURCE, model_weights_stall_timeout=10
    )


@pytest.fixture(autouse=True)
def _nobody_asked(hub: Hub) -> None:
    """What a test finds in `hub.asked` was asked in that test."""
    hub.asked.clear()


def digest(model: Path) -> str:
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()


def sums(hosts: list[Host], directory: str = MODELS) -> set[str]:
    return {host.file(f"{directory}/{BIG}/model.safetensors").sha256sum for host in hosts}


def listens(host: Host) -> bool:
    return f":{PORT} " in host.check_output("ss -Hltn")


def received(host: Host) -> int:
    return int(host.check_output("cat /sys/class/net/host0/statistics/rx_bytes"))


def test_a_prediction_names_who_downloads_and_who_takes_from_whom(run: Operator, hub: Hub, hosts: list[Host]):
    ready = run(tags="host")
    assert ready.code == 0, ready.output
    predicted = run("--check", "--diff")
    assert predicted.code == 0, predicted.output
    said = words_of(predicted.output)
    assert f"big: would be fetched from lab/big at {COMMIT[:12]}" in said
    assert said.count("big: would be fetched from") == 1
    assert said.count("big: would be taken from peers1, peers2") == 2
    assert hub.asked == []
    assert not any(host.file("/usr/bin/aria2c").exists or host.file(f"{MODELS}/{BIG}").exists for host in hosts)


def test_one_host_downloads_and_every_other_one_takes(run: Operator, hub: Hub, hosts: list[Host], model: Path):
    done = run("-v")
    assert done.code == 0, done.output
    assert hub.bytes_of("model.safetensors?X-Amz-Signature=secret") == SIZE
    assert sums(hosts) == {digest(model)}
    assert f"peers1 | big: fetching 3 files, 48.0 MB from lab/big at {COMMIT[:12]}" in done.output
    assert "peers2 | big: taking 3 files, 48.0 MB from peers1" in done.output
    assert "peers3 | big: taking 3 files, 48.0 MB from peers1, peers2" in done.output
    for host in hosts:
        record = json.loads(host.file(f"{MODELS}/{BIG}/.b70-weights.json").content_string)
        assert (record["source"]["kind"], record["source"]["revision"]) == ("hub", COMMIT)
        assert host.check_output(f"ls -A {MODELS}").split() == [BIG]
        assert not listens(host)
        assert not host.file("/run/b70-weights-serve").exists
        assert not host.service("nginx").is_running
        assert not host.service("nginx").is_enabled
    assert not hosts[3].file("/usr/sbin/nginx").exists
    assert not any(host.file("/opt/b70/hub").exists for host in hosts[1:])


def test_a_second_run_changes_nothing_and_asks_nobody(run: Operator, hub: Hub, hosts: list[Host]):
    again = run()
    assert (again.code, again.changed) == (0, 0), again.output
    predicted = run("--check")
    assert (predicted.code, predicted.changed) == (0, 0), predicted.output
    assert hub.asked == []


def test_wrong_bytes_are_caught_their_host_is_named_and_the_others_give_the_right_ones(
    run: Operator, hub: Hub, hosts: list[Host], model: Path
):
    weights = f"{MODELS}/{BIG}/model.safetensors"
    # As a disk that went bad: size and time are those of the record.
    hosts[1].check_output(
        f"touch -r {weights} /tmp/time && dd if=/dev/urandom of={weights} bs=1M count=45 conv=notrunc "
        f"&& touch -r /tmp/time {weights}"
    )
    hosts[3].check_output(f"rm -r {MODELS}/{BIG}")
    done = run("-v")
    assert done.code == 0, done.output
    said = words_of(done.output)
    assert "peers2 gave wrong bytes of big to peers4" in said
    assert "model.safetensors came with sha256" in said
    assert sums([hosts[3]]) == {digest(model)}
    assert hub.asked == []
    repaired = run(model_weights_verify="checksum")
    assert repaired.code == 0, repaired.output
    assert sums(hosts) == {digest(model)}
    assert hub.asked == []


def test_an_interrupted_transfer_goes_on_and_its_rate_is_limited(
    run: Operator, hub: Hub, hosts: list[Host], model: Path, tmp_path: Path
):
    taker = hosts[3]
    taker.check_output(f"rm -r {MODELS}/{BIG}")
    log = tmp_path / "interrupted.log"
    limit = time.monotonic() + LIMIT_S
    half = f"find {MODELS}/.{BIG}.incoming -name '.*.part.aria2'"
    blocks = f"find {MODELS}/.{BIG}.incoming -name '.*.part' -printf '%b\\n'"
    with run.begin(log, model_weights_peers_rate="2M") as begun:
        while not taker.run(half).stdout.strip() or int(taker.run(blocks).stdout.strip() or 0) * 512 < SIZE // 2:
            assert begun.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.5)
        assert "--max-overall-download-limit=2M" in taker.check_output("ps -ewwo args")
        assert taker.check_output(f"systemctl show -p User b70-weights-big-{COMMIT}.service") == "User=b70"
        assert not taker.file(f"/run/credentials/b70-weights-big-{COMMIT}.service").exists
        assert "DynamicUser=yes" in hosts[0].check_output("systemctl show -p DynamicUser b70-weights-serve.service")
        address = hosts[0].check_output("hostname -I").split()[0]
        url = f"http://{address}:{PORT}/big"
        assert requests.get(f"{url}/config.json", timeout=60).status_code == 403  # this machine is no host of the play
        asked = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).status)"
        assert taker.check_output(f"python3 -c '{asked}' {url}/config.json") == "200"
        assert "403: Forbidden" in taker.run(f"python3 -c '{asked}' {url}/.b70-weights.json").stderr
        kill_tree(begun)
    taker.check_output(f"systemctl kill -s KILL b70-weights-big-{COMMIT}.service")
    before = received(taker)
    done = run("-v")
    assert done.code == 0, done.output
    assert sums([taker]) == {digest(model)}
    assert received(taker) - before < SIZE * 3 // 4
    assert hub.asked == []
    assert not any(listens(host) for host in hosts)


def test_a_transfer_that_is_ended_and_a_host_that_vanishes_cost_nothing_but_time(
    run: Operator, hub: Hub, hosts: list[Host], model: Path, tmp_path: Path
):
    taker = hosts[3]
    taker.check_output(f"rm -r {MODELS}/{BIG}")
    log = tmp_path / "vanished.log"
    limit = time.monotonic() + LIMIT_S
    with run.begin(log, model_weights_peers_rate="4M") as begun:
        while not taker.run(f"find {MODELS}/.{BIG}.incoming -name '.*.part' -size +4M").stdout.strip():
            assert begun.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.2)
        taker.check_output(f"systemctl kill -s KILL b70-weights-big-{COMMIT}.service")
        while log.read_text().count("peers4 | big: taking") < 2:
            assert begun.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.2)
        for host in hosts[:2]:
            host.check_output("systemctl kill -s KILL b70-weights-serve.service")
        assert begun.wait(600) == 0, log.read_text()
    assert "peers4 | big: the download broke off: its process was killed, or the host restarted" in log.read_text()
    assert sums([taker]) == {digest(model)}
    assert hub.asked == []


def test_without_any_host_that_gives_it_the_source_does(run: Operator, hub: Hub, hosts: list[Host], model: Path):
    for host in hosts[1:]:
        host.check_output(f"rm -r {MODELS}/{BIG}")
    # Something else has the port of the only host that has the model.
    hosts[0].check_output(f"systemd-run -q --unit taken python3 -m http.server {PORT}")
    hosts[0].check_output(f"timeout 120 sh -c 'until ss -ltn | grep -q :{PORT}; do sleep 0.1; done'")
    done = run("-v")
    hosts[0].check_output("systemctl stop taken")
    assert done.code == 0, done.output
    assert "peers1 gives no models to other hosts" in words_of(done.output)
    assert hub.bytes_of("model.safetensors?X-Amz-Signature=secret") == SIZE
    assert sums(hosts) == {digest(model)}


def test_hosts_download_by_themselves_when_told_to(run: Operator, hub: Hub, hosts: list[Host], model: Path):
    done = run(model_weights_peers="off", model_weights_dir="/mnt/fast-ai/own")
    assert done.code == 0, done.output
    assert hub.bytes_of("model.safetensors?X-Amz-Signature=secret") == 4 * SIZE
    assert sums(hosts, "/mnt/fast-ai/own") == {digest(model)}
