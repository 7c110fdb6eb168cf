# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trouble around a switch: disks, logs, others at work, engines that die while they serve."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from machine import LIMIT_S, wait_for
from scenarios.matrix import matrix
from scenarios.outcome import assert_serves, assert_stopped, loading, wait_served
from scenarios.recording import Recording, ask, status
from scenarios.rig import CTL, JOURNAL, LOADS, Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
STATE_DIR = "/var/lib/b70"
RUN_DIR = "/run/b70/main"


@contextlib.contextmanager
def mounted(rig: Rig, path: str, *options: str) -> Iterator[None]:
    rig.must("mount", *options, path)
    try:
        yield
    finally:
        rig.must("umount", "--lazy", path)


@contextlib.contextmanager
def own_disk(rig: Rig, size: str, where: str = STATE_DIR) -> Iterator[None]:
    """Give what the product writes down there a small disk of its own, with what is there now."""
    disk = "/run/b70-sim-disk"
    rig.must("mkdir", "-p", disk)
    with mounted(rig, disk, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        rig.must("cp", "-a", f"{where}/.", disk)
        with mounted(rig, where, "--bind", disk):
            yield


def fill(rig: Rig, where: str = STATE_DIR) -> None:
    rig.run(
        "sh", "-c", f"dd if=/dev/zero of={where}/filler bs=64k 2>/dev/null; cat /dev/zero >> {where}/filler 2>/dev/null"
    )


def refused(rig: Rig, *words: str) -> str:
    """Ask for a switch that is refused; return what it says."""
    done = rig.ctl("switch", "sim-b", *words)
    rig.wait_settled()
    assert (done.code, done.data["outcome"]) == (1, "untouched"), done
    return str(done.data["msg"])


@pytest.mark.parametrize("kind", matrix([], [("card",), ("port",)]))
def test_a_holder_that_stays_is_named_and_left_alone(rig: Rig, recorded: Begin, kind: str) -> None:
    """The longest test: both ways wait for as long as a release may take."""
    old, new = ("sim-card-a", "sim-card-b") if kind == "card" else ("sim-a", "sim-b")
    rig.serve(old, f"keep-{'device' if kind == 'card' else 'port'}", hold_s=600)
    rig.tell(old)
    keeper = rig.must("systemctl", "show", "--value", "--property=MainPID", "b70-sim-keeper.service").strip()
    recording = recorded()
    done = rig.ctl("switch", new)
    assert (done.code, done.data["outcome"], done.data["failure"]["phase"]) == (1, "stopped", "release"), done
    assert [(one["phase"], one["direction"]) for one in done.data["failures"]] == [("release", "back")], done
    what = "/dev/dri/renderD128" if kind == "card" else "port 18080"
    assert f"{what}: pid {keeper} (" in done.data["msg"], done
    assert "user b70" in done.data["msg"], done
    assert rig.must("systemctl", "show", "--value", "--property=MainPID", "b70-sim-keeper.service").strip() == keeper
    assert_stopped(rig, "phase release: the port or a card was not let go of")
    assert keeper not in status(rig)["reason"], "everybody is told whose process it is"
    assert recording.names() <= {old}
    if kind == "port":
        assert f"pid {keeper}" in refused(rig), "the guard does not say who holds the port"
    rig.must("systemctl", "kill", "-s", "URG", "b70-sim-keeper")
    wait_for(lambda: rig.ctl("switch", new).code == 0, "the slot is used again once it was let go of")
    rig.wait_settled()
    assert_serves(rig, new)


def test_an_engine_that_dies_in_a_stream_is_served_again_only_verified(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    before = rig.facts().invocation
    recording = recorded()
    rig.tell_running("sim-a", "die-stream")
    wait_for(lambda: rig.facts().invocation != before, "the engine has died")
    rig.tell("sim-a")

    wait_served(rig, before)
    assert_serves(rig, "sim-a")
    broken = [answer for answer in recording.answers if answer.stream and answer.status == 200 and not answer.whole]
    assert broken, "no client saw the engine die"
    assert all(answer.error for answer in broken), f"a stream that broke off without saying so: {broken}"


def test_a_stream_that_hangs_is_ended_by_the_switch_with_an_error(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recorded()
    rig.tell_running("sim-a", "hang-stream")
    with ThreadPoolExecutor(4) as pool:
        # One more than the two of the recording, so that at least one is at the engine: whatever came now hangs.
        streams = [pool.submit(ask, rig.address, stream=True, limit_s=LIMIT_S) for _ in range(4)]
        wait_for(lambda: status(rig)["frontdoor"]["active_generations"] > 2, "a stream hangs")
        rig.tell("sim-b")
        done = rig.ctl("switch", "sim-b", "--drain-timeout", "0.5")
        rig.wait_settled()
        assert done.code == 0, done
        assert_serves(rig, "sim-b")
        hung = [answer for stream in streams if not (answer := stream.result()).whole]
    assert hung, "no stream hung"
    assert all(answer.error for answer in hung), f"a stream that was ended without an error event: {hung}"


def test_a_full_disk_is_named_and_the_model_stays(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recording = recorded()
    with own_disk(rig, "2m"):
        fill(rig)
        said = refused(rig)
        assert "too little space" in said, said
        assert STATE_DIR in said, said
        assert_serves(rig, "sim-a")
    assert recording.refusals() == [], "a client was refused because of a full disk"


def test_a_full_cache_is_named_and_the_model_stays(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recording = recorded()
    cache = "/mnt/fast-ai/vllm-cache-exp"
    with mounted(rig, cache, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        said = refused(rig)
        assert "too little space" in said, said
        assert cache in said, said
    assert_serves(rig, "sim-a")
    assert recording.refusals() == []


def test_a_read_only_etc_is_named_and_the_model_stays(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recording = recorded()
    rig.must("mount", "--bind", "/etc", "/etc")
    with mounted(rig, "/etc", "-o", "remount,bind,ro"):
        said = refused(rig)
        assert "can't be written to" in said, said
        assert "/etc/" in said, said
        assert_serves(rig, "sim-a")
    assert recording.refusals() == []


def test_a_disk_that_fills_during_the_switch_leaves_the_host_in_one_of_its_two_states(
    rig: Rig, recorded: Begin
) -> None:
    rig.have("sim-a")
    recorded()
    rig.tell("sim-b", **LOADS)
    with own_disk(rig, "32m"):
        with rig.begin("sim-b") as process:
            wait_for(lambda: loading(rig), "the engine loads")
            fill(rig)
            rig.tell("sim-b")
            output, errors = process.communicate(timeout=300)
        rig.wait_settled()
        result = json.loads(output)
        assert result["profile"] == "sim-b", (output, errors)
        assert "journal" in " ".join(result["warnings"]) or "recorded" in " ".join(result["warnings"]), result
        assert status(rig)["model_slot"]["name"] == "sim-b"
        rig.must("rm", f"{STATE_DIR}/filler")
        done = rig.ctl("recover")
        rig.wait_settled()
        assert done.code == 0, done
        assert_serves(rig, "sim-b")


@pytest.mark.parametrize("kind", matrix([("new one fails",)], [("new one passes",), ("both fail",)]))
def test_a_run_directory_that_fills_during_the_switch_leaves_the_host_in_one_of_its_two_states(
    rig: Rig, kind: str
) -> None:
    """There is room when the guard looks, and none when the engine is opened, or clients are to be told why not."""
    rig.have("sim-a")
    faults = [] if kind == "new one passes" else ["wrong-answer"]
    rig.tell("sim-b", *faults, **LOADS)
    if kind == "both fail":
        rig.tell("sim-a", "exit-at-start")
    with own_disk(rig, "2m", RUN_DIR):
        with rig.begin("sim-b") as process:
            wait_for(lambda: loading(rig), "the engine loads")
            fill(rig, RUN_DIR)
            rig.tell("sim-b", *faults)  # the process may read what it was told only now
            output, errors = process.communicate(timeout=300)
        rig.wait_settled()
        result = json.loads(output)
        ends = {"new one passes": "committed", "new one fails": "rolled_back", "both fail": "stopped"}
        assert result["outcome"] == ends[kind], (output, errors)
        if kind == "both fail":
            # An engine that ends while it loads is missed as soon as somebody looks: once its process is up, or later.
            assert_stopped(rig, "phase canary", " on the way back: the engine")
        else:
            assert_serves(rig, "sim-b" if kind == "new one passes" else "sim-a")
            done = rig.ctl("switch", "sim-short")
            assert f"too little space for {RUN_DIR}" in done.data["msg"], done
    # What lies below that small disk is what the host was before.
    rig.wipe()


def test_a_journal_of_100_mb_does_not_hold_up_a_switch(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    line = json.dumps({"event": "phase", "id": "of-long-ago", "phase": "health", "direction": "forward"})
    text = rig.read(JOURNAL)
    with open(rig.root / JOURNAL, "w") as file:
        file.writelines([f"{line}\n"] * (100 * 2**20 // (len(line) + 1)))
        file.write(text)
    recorded()
    before = os.times()
    done = rig.ctl("switch", "sim-b")
    after = os.times()
    rig.wait_settled()
    assert done.code == 0, done
    assert_serves(rig, "sim-b")
    assert (rig.root / JOURNAL).stat().st_size < 10 * 2**20, "the journal was not rotated"
    # of the processor, which does not depend on what else the machine does
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert used_s < 30, f"a switch took {used_s} s of the processor"


def test_a_log_that_floods_hides_no_symptom(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", "flood", "die", load_s=1.5)
    recorded()
    done = rig.ctl("switch", "sim-b")
    rig.wait_settled()
    assert (done.code, done.data["outcome"]) == (1, "rolled_back"), done
    assert done.data["failure"]["symptom"] == "device_lost", done
    assert len(done.output) < 100_000, "the result carries the flood"
    assert_serves(rig, "sim-a")


def test_of_two_switches_at_once_one_works_and_the_other_names_it(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", **LOADS)
    recorded()
    with rig.begin("sim-b") as first:
        wait_for(lambda: loading(rig), "the first switch works")
        second = rig.ctl("switch", "sim-short", "--lock-timeout", "0")
        assert first.poll() is None, f"it waited for the end of the first: {second}"
        rig.tell("sim-b")
        output, _errors = first.communicate(timeout=300)
    rig.wait_settled()
    assert json.loads(output)["outcome"] == "committed", output
    assert (second.code, second.data["failure"]["phase"]) == (4, "lock"), second
    assert "is held by another switch: pid " in second.data["msg"], second
    assert "sim-b" in second.data["msg"], second
    assert_serves(rig, "sim-b")


def test_who_asks_for_what_another_switch_has_all_but_served_gets_it(rig: Rig, recorded: Begin) -> None:
    """The first switch is held between opening the frontdoor and its end."""
    rig.have("sim-a")
    rig.tell("sim-b")
    recorded()
    words = ("open", "forward", "end", "wait", "--", "switch", "sim-b", "--json")
    with rig.popen("/opt/b70/bin/crash-at", *words) as first:
        wait_for(lambda: (rig.root / "run/b70-sim/reached").exists(), "the first switch has opened the frontdoor")
        other = rig.ctl("switch", "sim-short", "--lock-timeout", "0")
        assert (other.code, other.data["failure"]["phase"]) == (4, "lock"), other
        with rig.popen(CTL, "switch", "sim-b", "--json") as second:
            time.sleep(0.5)
            assert second.poll() is None, f"it did not wait: {second.communicate()}"
            pids = rig.must("sh", "-c", "cat /run/b70/main/lock").split()
            rig.must("kill", "-KILL", pids[1])
            first.communicate(timeout=300)
            output, errors = second.communicate(timeout=300)
    (rig.root / "run/b70-sim/reached").unlink()
    rig.wait_settled()
    result = json.loads(output)
    assert (result["failed"], result["profile"], result["verified"]) == (False, "sim-b", True), (output, errors)
    assert "start b70-slot-main-sim-b.service" not in result["actions"], result
    assert_serves(rig, "sim-b")


def test_a_switch_that_is_told_to_end_while_an_engine_owes_an_answer_goes_back_at_once(
    rig: Rig, recorded: Begin
) -> None:
    """The engine never answers, and the profile would wait for a minute."""
    rig.have("sim-a")
    rig.tell("sim-b", "hang", **LOADS)
    recorded()
    with rig.begin("sim-b") as process:
        wait_for(lambda: loading(rig), "the engine loads")
        rig.tell("sim-b", "hang")
        wait_for(lambda: '"first_token"' in rig.read("run/b70/main/progress.jsonl"), "an answer is waited for")
        pid = json.loads(rig.read("run/b70/main/progress.jsonl").splitlines()[0])["pid"]
        rig.must("kill", "-TERM", str(pid))
        output, errors = process.communicate(timeout=300)
    rig.wait_settled()
    result = json.loads(output)
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "first_token"), (output, errors)
    assert "told to end (SIGTERM)" in result["failure"]["message"], result
    waited = next(phase["seconds"] for phase in result["phases"] if phase["name"] == "first_token")
    assert waited < 50, f"it waited for the answer: {waited}"
    assert_serves(rig, "sim-a")


def test_an_engine_that_is_started_by_hand_is_not_served(rig: Rig, recorded: Begin) -> None:
    """systemd itself stops the one that runs; what was verified is gone, and nobody verified what came."""
    rig.have("sim-a")
    recording = recorded()
    wait_for(recording.names, "a client has its answer")
    rig.must("systemctl", "start", "b70-slot-main-sim-b.service")
    rig.wait_settled()
    wait_for(lambda: not status(rig)["open"], "the frontdoor is closed")
    alone = ("b70-slot-main-sim-b.service",)
    wait_for(lambda: (facts := rig.facts()).running == alone and len(facts.engines) == 1, "its engine alone runs")
    facts = rig.facts()
    assert facts.enabled == ("b70-slot-main-sim-a.service",), facts
    answer = ask(rig.address, stream=False)
    assert answer.status == 503, answer
    assert recording.names() == {"sim-a"}
    done = rig.ctl("recover")
    rig.wait_settled()
    assert done.code == 0, done
    assert_serves(rig, "sim-a")
