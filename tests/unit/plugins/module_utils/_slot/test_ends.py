# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a run ends when somebody ends it, when systemd does not answer, and when explaining a failure fails itself."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import systemd
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.systemd import parse_show, seconds_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import (
    HostFault,
    Mode,
    SlotFault,
    ToldToEndFault,
)
from unit.plugins.module_utils._slot.calls import host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request


@pytest.fixture
def fake_host():
    return host("abc", load_s=1.0)


@pytest.fixture
def signals():
    kept = (signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in kept}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_key_that_ends_a_command_leads_back_like_a_signal_to_end(signals):
    clock, told = SystemClock(), []
    clock.heed_signals(lambda: told.append("told"))
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(ToldToEndFault, match=r"told to end \(SIGINT\)"):
        clock.sleep(0.0)
    # The way back is not broken off, by neither of them.
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    clock.sleep(0.0)
    assert told == ["told"]


def test_a_key_of_the_terminal_does_not_end_what_systemd_is_asked():
    done = systemd._run(["ps", "-o", "sid=", "-p", str(os.getpid())])
    assert int(done.stdout) == os.getsid(0)
    done = systemd._run(["sh", "-c", "ps -o pgid= -p $$"])
    assert int(done.stdout) != os.getpgid(0)


@pytest.mark.parametrize(
    ("answers", "stopping"),
    [
        (["stopping"], True),
        (["running"], False),
        (["degraded"], False),
        (["", "running"], False),
        (["unknown", "offline", "degraded"], False),
        ([None, "starting"], False),
        (["", "stopping"], True),
        (["", "", ""], True),  # late in a shutdown nobody answers any more
        ([None, None, None], True),
    ],
)
def test_only_systemd_s_word_is_a_shutdown(monkeypatch, answers, stopping):
    left = list(answers)

    def run(argv, limit_s=60.0):
        answer = left.pop(0)
        if answer is None:
            raise HostFault("no answer")
        return subprocess.CompletedProcess(argv, 0, f"{answer}\n", "")

    monkeypatch.setattr(systemd, "_run", run)
    monkeypatch.setattr(systemd, "_AGAIN_S", 0.0)
    assert systemd.Systemd().stopping() is stopping
    assert left == []


def test_a_recheck_with_wrong_answers_is_closed_also_when_the_host_seems_to_go_down(fake_host):
    switch(fake_host, "a")
    fake_host.engine().live_fault = "wrong_answer"
    fake_host.gate_verified = False
    fake_host.going_down = True
    result = switch(fake_host, "a", recheck=True)
    assert (result["outcome"], fake_host.open) == ("interrupted", False)
    assert "canary" in fake_host.state.reason
    # It did not go down after all.
    fake_host.going_down = False
    fake_host.engine().live_fault = ""
    assert recover(fake_host)["profile"] == "a"
    fake_host.assert_invariants()


def broken(effects, part, name, error, when=lambda: True):
    """An effect that raises from now on."""
    real = getattr(getattr(effects, part), name)

    def fail(*args, **kwargs):
        if when():
            raise error
        return real(*args, **kwargs)

    setattr(getattr(effects, part), name, fail)
    return effects


@pytest.mark.parametrize("error", [SlotFault("no answer"), OSError(5, "Input/output error")])
@pytest.mark.parametrize("mode", [Mode.SWITCH, Mode.BOOT])
def test_a_systemd_that_does_not_say_whether_it_stops_breaks_nothing_off(fake_host, error, mode):
    switch(fake_host, "a")
    if mode is Mode.BOOT:
        fake_host.unit("a").fault = "wrong_answer"
        fake_host.crash("a")
    fake_host.unit("b").fault = "wrong_answer"
    effects = broken(fake_host.effects(), "units", "stopping", error)
    result = api.switch(effects, LAYOUT, request("b", mode=mode))
    assert (result["failed"], result["outcome"]) == (True, "interrupted")
    assert not fake_host.open or fake_host.state.invocation_id != fake_host.engine().invocation


@pytest.mark.parametrize("what", ["survey", "state"])
def test_a_boot_that_can_t_be_verified_tells_so(fake_host, what):
    """Who runs can't be asked, or the state can't be written, when the frontdoor is to be closed."""
    switch(fake_host, "a")
    fake_host.crash("a")
    effects = fake_host.effects()
    if what == "survey":
        broken(effects, "units", "survey", HostFault("`systemctl` gave no answer"))
    else:
        fake_host.readonly.add(LAYOUT.state_file)
    result = api.switch(effects, LAYOUT, request("x", mode=Mode.BOOT))
    assert (result["failed"], result["outcome"]) == (True, "untouched" if what == "survey" else "deferred")
    words = "gave no answer" if what == "survey" else "Read-only file system"
    assert any(words in text for text in result["warnings"])
    assert fake_host.starts == 2


def test_a_failure_that_can_t_be_explained_still_leads_back(fake_host):
    switch(fake_host, "a")
    fake_host.unit("b").fault = "device_lost"
    effects = fake_host.effects()
    read = effects.files.read

    def refuse(path: PurePosixPath):
        if path == quarantine.BOOT_ID and fake_host.running == [LAYOUT.unit("b")]:
            raise OSError(5, "Input/output error", str(path))
        return read(path)

    effects.files.read = refuse
    result = api.switch(effects, LAYOUT, request("b"))
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a")
    assert "will not become ready" in result["failure"]["message"]
    assert any("Input/output error" in text for text in result["warnings"])
    assert quarantine.read(fake_host.effects(), LAYOUT) is None


def test_a_unit_is_waited_for_as_long_as_systemd_gives_it(fake_host):
    """What runs is neither what was verified last nor what is asked for."""
    switch(fake_host, "a")
    fake_host.render("c", engine__stop_timeout_s=900)
    fake_host.effects().units.start(LAYOUT.unit("c"))
    fake_host.unit("c").stop_s = 600.0
    result = switch(fake_host, "b")
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"]) == ("committed", "b")
    assert 600 < next(phase["seconds"] for phase in result["phases"] if phase["name"] == "stop") < 603


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("4min", 240), ("1min 30s", 90), ("1h 500ms", 3600.5), ("2.5s", 2.5), ("infinity", 0), ("", 0), ("1fortnight", 0)],
)
def test_time_spans_of_systemd(span, seconds):
    assert seconds_of(span) == seconds


def test_what_systemd_tells_of_a_unit_s_end_and_user():
    (unit,) = parse_show("Id=x.service\nTimeoutStopUSec=4min 10s\nUser=b70\n")
    assert (unit.stop_limit_s, unit.user) == (250.0, "b70")
