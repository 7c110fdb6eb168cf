# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights on a real host, by the role: from a hub that the lab plays, from a mirror, from a share. The hub's client is
the real one, installed from its lock.

The tests are one story on one host, in this order; the last one is about two. They have a lab of their own, which is
taken down afterwards.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from demo import inventory_hosts
from hub.server import COMMIT, Fault, Hub, serve
from machine import LIMIT_S
from system.product import INVENTORY, ROOT, Play, bare_hosts, play, reach, words_of
from system.weights import MODELS, TOKEN, Operator
from vendor.server import gateway

LAB = "weights"
TINY = ROOT / "tests/lab/models/tiny-a"
MODEL = f"{MODELS}/tiny-a@{COMMIT}"


@pytest.fixture(scope="session", autouse=True)
def lab() -> Iterator[None]:
    """Two bare hosts."""
    with bare_hosts(LAB, 2):
        yield


@pytest.fixture(scope="session")
def hub(lab: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with serve(Hub(TINY, token=TOKEN), gateway(), tmp_path_factory.mktemp("tls")) as served:
        yield served


@pytest.fixture(scope="session")
def run(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    profile = {
        "title": "x",
        "status": "research",
        "stack": "cpu",
        "modalities": ["text"],
        "cards": 1,
        "model": {"hf_repo": "lab/tiny-a", "directory": "tiny-a", "size_gb": 0.1},
        "engine": {"served_model_name": "x", "settings": {"max_model_len": 512}},
    }
    return Operator(
        hub,
        tmp_path_factory.mktemp("operator"),
        f"{LAB}1",
        model_weights_models={},
        model_weights_stall_timeout=30,
        b70_profiles={"tiny": profile},
    )


def pinned_of(run: Operator) -> dict[str, str]:
    found: dict[str, str] = yaml.safe_load(run.pins.read_text())["all"]["vars"]["b70_pins"]["weights"]["lab/tiny-a"]
    return found


SOURCE = {"tiny-a": {"hub": "lab/tiny-a", "revision": COMMIT}}


def test_a_prediction_on_a_bare_host_says_what_would_be_fetched_and_asks_nobody(run: Operator, hub: Hub, host: Host):
    predicted = run("--check", "--diff", model_weights_models=SOURCE)
    assert predicted.code == 0, predicted.output
    said = words_of(predicted.output)
    assert f"tiny-a: would be fetched from lab/tiny-a at {COMMIT[:12]}" in said
    assert "/opt/b70/hub/venv: would install the hub's client, because there is no finished environment" in said
    assert hub.asked == []
    assert not host.file(MODELS).exists
    assert not host.file("/opt/b70/hub").exists


def test_a_model_of_a_profile_arrives_and_its_revision_is_recorded_for_all(run: Operator, hub: Hub, host: Host):
    ready = run(tags="host")
    assert ready.code == 0, ready.output
    predicted = run("--check", model_weights_profiles=["tiny"])
    assert predicted.code == 0, predicted.output
    said = words_of(predicted.output)
    assert f"lab/tiny-a: its revision would be asked for at {hub.url} and recorded in {run.pins}" in said
    refused = run(model_weights_profiles=["tiny"], b70_pins_file=str(run.pins / "nowhere"))
    assert refused.code != 0
    said = words_of(refused.output)
    assert (
        "model tiny-a (profile tiny) comes from the hub's repository lab/tiny-a, and no revision of it is known" in said
    )
    assert "set b70_pins_file to a file that can be written" in said
    assert (hub.asked, run.pins.exists(), host.file(f"{MODEL}").exists) == ([], False, False)

    done = run("-v", model_weights_profiles=["tiny"])
    assert done.code == 0, done.output
    assert f"lab/tiny-a: revision {COMMIT} is recorded in {run.pins}" in words_of(done.output)
    pinned = pinned_of(run)
    assert (pinned["revision"], pinned["from"]) == (COMMIT, hub.url)
    assert f"tiny-a: fetching 5 files, 508.4 kB from lab/tiny-a at {COMMIT[:12]}" in done.output
    for path in TINY.iterdir():
        assert host.file(f"{MODEL}/{path.name}").sha256sum == host_sum(path)
    record = json.loads(host.file(f"{MODEL}/.b70-weights.json").content_string)
    assert (record["source"]["repository"], record["source"]["revision"]) == ("lab/tiny-a", COMMIT)
    assert host.file(f"{MODEL}").user == "root"
    assert sorted(host.check_output(f"ls -A {MODELS}").split()) == [f"tiny-a@{COMMIT}"]
    assert {one.token for one in hub.asked if one.storage} == {""}

    hub.asked.clear()
    again = run(model_weights_profiles=["tiny"])
    assert (again.code, again.changed) == (0, 0), again.output
    predicted = run("--check", model_weights_models=SOURCE)
    assert (predicted.code, predicted.changed) == (0, 0), predicted.output
    assert hub.asked == []


def test_another_host_takes_the_pinned_revision_and_another_pin_is_brought_beside_it(
    run: Operator, hub: Hub, host: Host
):
    elsewhere: dict[str, Any] = {"model_weights_profiles": ["tiny"], "model_weights_dir": "/mnt/fast-ai/another"}
    before, moved = run.pins.read_text(), "f" * 40
    hub.commit = moved  # upstream's history was written anew
    refused = run(**elsewhere)
    assert refused.code != 0
    said = words_of(refused.output)
    assert f"lab/tiny-a has no revision {COMMIT} at {hub.url}; its main branch is {moved} now" in said
    hub.commit = COMMIT
    done = run(**elsewhere)
    assert done.code == 0, done.output
    assert run.pins.read_text() == before

    run.pins.write_text(before.replace(COMMIT, moved))
    predicted = run("--check", model_weights_profiles=["tiny"])
    assert (predicted.code, predicted.changed) == (0, 1), predicted.output
    hub.commit = moved
    beside = run(model_weights_profiles=["tiny"])
    assert beside.code == 0, beside.output
    one, other = (f"{MODELS}/tiny-a@{revision}/model.safetensors" for revision in (COMMIT, moved))
    assert len(set(host.check_output(f"stat -c %i {one} {other}").split())) == 1
    host.check_output(f"rm -r {MODELS}/tiny-a@{moved}")
    hub.commit = COMMIT
    run.pins.write_text(before)


def host_sum(path: Path) -> str:
    return subprocess.run(["sha256sum", str(path)], capture_output=True, text=True, check=True).stdout.split()[0]


def test_a_damaged_file_is_fetched_again_and_nothing_else(run: Operator, hub: Hub, host: Host):
    host.check_output(f"truncate -s 100 {MODEL}/model.safetensors")
    hub.asked.clear()
    done = run("-vvv", model_weights_models=SOURCE)
    assert (done.code, done.changed) == (0, 1), done.output
    assert hub.bytes_of("model.safetensors?X-Amz-Signature=secret") == (TINY / "model.safetensors").stat().st_size
    assert not [one for one in hub.asked if one.storage and "tokenizer.json" in one.path]


def test_a_killed_download_says_so_and_the_next_run_goes_on(run: Operator, hub: Hub, host: Host):
    host.check_output(f"rm {MODEL}/model.safetensors")
    hub.asked.clear()
    hub.pace_s = 3.0
    plays: list[Play] = []
    first = threading.Thread(target=lambda: plays.append(run(model_weights_models=SOURCE)))
    first.start()
    limit = time.monotonic() + LIMIT_S
    part = f"find {MODELS}/.tiny-a@{COMMIT}.incoming -name '.*.part' -size +200k"
    while not host.run(part).stdout.strip():
        assert time.monotonic() < limit, "nothing came"
        time.sleep(0.1)
    host.check_output(f"systemctl kill -s KILL b70-weights-tiny-a-{COMMIT}.service")
    first.join()
    hub.pace_s = 0
    assert plays[0].code != 0
    assert "the download broke off" in words_of(plays[0].output)
    # The hub notes what was asked when it is over, and sees only after its pause that nobody takes the rest.
    while not [one for one in hub.asked if one.storage and one.method == "GET"]:
        assert time.monotonic() < limit, "the download that was killed goes on"
        time.sleep(0.1)
    hub.asked.clear()
    done = run(model_weights_models=SOURCE)
    assert done.code == 0, done.output
    ranges = [one.range for one in hub.asked if one.storage and one.method == "GET"]
    assert ranges == ["bytes=262144-"]


def test_what_cannot_be_had_is_refused_and_the_old_model_stays(run: Operator, hub: Hub, host: Host):
    before = host.file(f"{MODEL}/model.safetensors").sha256sum
    hub.faults["model.safetensors"] = Fault("corrupt", after=400_000, times=-1)
    host.check_output(f"rm {MODEL}/tokenizer.json && mv {MODEL} {MODELS}/tiny-b")
    source = {"tiny-c": {"hub": "lab/tiny-a", "revision": COMMIT}}
    refused = run(model_weights_models=source)
    assert refused.code != 0
    assert "model.safetensors came with sha256" in words_of(refused.output)
    assert not host.file(f"{MODELS}/tiny-c").exists
    hub.faults.clear()
    hub.token = "another"
    refused = run(model_weights_models=source)
    assert "refuses the token for lab/tiny-a (401): set model_weights_hub_token" in words_of(refused.output)
    hub.token = TOKEN
    host.check_output(f"mv {MODELS}/tiny-b {MODEL}")
    assert host.file(f"{MODEL}/model.safetensors").sha256sum == before
    fixed = run(model_weights_models=SOURCE)
    assert (fixed.code, fixed.changed) == (0, 1), fixed.output


def test_a_disk_that_is_too_small_is_said_with_figures(run: Operator, host: Host):
    host.check_output("mkdir -p /mnt/small && mount -t tmpfs -o size=64m tmpfs /mnt/small")
    refused = run(model_weights_models=SOURCE, model_weights_dir="/mnt/small/models")
    assert refused.code != 0
    assert f"MB free and tiny-a@{COMMIT} needs 508.4 kB more (and 67.1 MB to spare)" in words_of(refused.output)
    host.check_output("umount /mnt/small")


def test_a_mirror_takes_the_hubs_place_and_must_have_the_same_revision(run: Operator, hub: Hub, host: Host):
    host.check_output(f"systemd-run -q --unit mirror -p WorkingDirectory={MODELS} python3 -m http.server 8099")
    host.check_output("timeout 120 sh -c 'until ss -ltn | grep -q :8099; do sleep 0.1; done'")
    hub.asked.clear()
    through: dict[str, Any] = {
        "model_weights_mirror_url": "http://127.0.0.1:8099",
        "model_weights_dir": "/mnt/fast-ai/second",
    }
    unsigned = run(model_weights_models=SOURCE, **through)
    assert f"nothing proves what http://127.0.0.1:8099/tiny-a@{COMMIT} holds" in words_of(unsigned.output)
    through["model_weights_accept_unsigned"] = True
    other = {"tiny-a": {"hub": "lab/tiny-a", "revision": "f" * 40}}
    refused = run(model_weights_models=other, **through)
    assert f"tiny-a@{'f' * 40} has neither .b70-weights.json nor SHA256SUMS" in words_of(refused.output)
    done = run(model_weights_models=SOURCE, **through)
    assert (done.code, done.changed) == (0, 1), done.output
    again = run(model_weights_models=SOURCE, **through)
    assert (again.code, again.changed) == (0, 0), again.output
    pin = host.file(f"{MODEL}/.b70-weights.json").sha256sum
    plain = {
        "copy": {"url": f"http://127.0.0.1:8099/tiny-a@{COMMIT}", "manifest_sha256": pin},
        "share": {"host_path": f"{MODEL}"},
    }
    for _attempt in range(2):
        done = run(model_weights_models=plain)
        assert done.code == 0, done.output
    assert done.changed == 0, done.output
    for name in ("copy", "share"):
        assert host.file(f"{MODELS}/{name}/model.safetensors").sha256sum == host_sum(TINY / "model.safetensors")
    assert hub.asked == []


def test_the_mirror_play_fetches_what_profiles_name_and_a_second_run_nothing(
    run: Operator, hub: Hub, host: Host, tmp_path: Path
):
    tasks = [
        {"include_role": {"name": "arcpro.b70.mirror", "public": True}},
        {"include_role": {"name": "arcpro.b70.model_weights", "tasks_from": "to_mirror"}},
        {"include_role": {"name": "arcpro.b70.mirror", "tasks_from": "models"}},
    ]
    playbook = tmp_path / "mirror.yml"
    playbook.write_text(json.dumps([{"hosts": "b70_hosts", "gather_facts": False, "tasks": tasks}]))
    variables = {**run.variables, "mirror_profiles": ["tiny"]}
    words = ["--limit", f"{LAB}1", "-e", json.dumps(variables)]
    first = play(playbook, *words, limit_s=1200)
    assert first.code == 0, first.output
    hub.asked.clear()
    again = play(playbook, *words, limit_s=1200)
    assert (again.code, again.changed) == (0, 0), again.output
    assert hub.asked == []
    host.check_output("systemd-run -q --unit site -p WorkingDirectory=/srv/b70-mirror python3 -m http.server 8098")
    host.check_output("timeout 120 sh -c 'until ss -ltn | grep -q :8098; do sleep 0.1; done'")
    there = {"b70_mirror_url": "http://127.0.0.1:8098", "model_weights_dir": "/mnt/fast-ai/third"}
    run.pins.unlink()
    refused = run(model_weights_profiles=["tiny"], **there)  # the role host did not bring the key of this mirror
    assert "Set b70_mirror_key_fingerprint and run the role host" in words_of(refused.output)
    host.check_output("gpg --homedir /var/lib/b70-mirror --export --output /etc/apt/keyrings/b70-mirror.gpg")
    done = run(model_weights_profiles=["tiny"], **there)  # the mirror knows the revision
    assert done.code == 0, done.output
    record = json.loads(host.file(f"/mnt/fast-ai/third/tiny-a@{COMMIT}/.b70-weights.json").content_string)
    assert record["source"]["revision"] == COMMIT
    pinned = pinned_of(run)
    assert (pinned["revision"], pinned["from"]) == (COMMIT, "http://127.0.0.1:8098/models")
    again = run(model_weights_profiles=["tiny"], **there)
    assert (again.code, again.changed) == (0, 0), again.output
    assert hub.asked == []


def test_hosts_of_one_play_take_one_revision_whatever_each_of_them_was_told(run: Operator, hub: Hub):
    every = f"{LAB}*"
    ready = run(tags="host", limit=every)
    assert ready.code == 0, ready.output
    run.pins.unlink()
    hub.asked.clear()
    hub.coming = ["a" * 40, "b" * 40, "c" * 40]  # main moves on with every question
    target: dict[str, Any] = {"model_weights_profiles": ["tiny"], "model_weights_dir": "/mnt/fast-ai/together"}
    done = run(limit=every, **target)
    assert done.code == 0, done.output
    records = []
    for variables in inventory_hosts(str(INVENTORY), "b70_hosts").values():
        text = reach(variables).file(f"/mnt/fast-ai/together/tiny-a@{COMMIT}/.b70-weights.json").content_string
        records.append(json.loads(text)["source"]["revision"])
    assert records == [COMMIT, COMMIT]
    assert pinned_of(run)["revision"] == COMMIT
    assert hub.commit != COMMIT
    again = run(limit=every, **target)
    assert (again.code, again.changed) == (0, 0), again.output
