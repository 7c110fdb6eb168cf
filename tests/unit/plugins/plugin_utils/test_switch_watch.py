# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person sees of a switch from afar."""

from __future__ import annotations

import json

from ansible_collections.arcpro.b70.plugins.plugin_utils._switch_watch import Watcher


def record(event, **fields):
    return json.dumps({"id": "x", "event": event, **fields}) + "\n"


def begin(phase, direction="forward"):
    return record("phase", phase=phase, direction=direction, state="begin")


def end(phase, seconds=0.1, direction="forward"):
    return record("phase", phase=phase, direction=direction, state="end", seconds=seconds)


def texts(watcher, progress, now):
    return [line.text for line in watcher.lines(progress, now)]


def test_short_phases_share_a_line_and_a_long_one_is_announced():
    watcher = Watcher("x", "h")
    text = record("start", pid=5) + end("lock") + begin("resolve") + end("resolve", 0.2) + begin("health")
    assert texts(watcher, text, 0.0) == ["h | lock, resolve  0.3 s", "h | health ..."]
    assert (watcher.pid, watcher.offset) == (5, len(text))
    assert texts(watcher, "", 5.0) == []
    assert texts(watcher, record("hint", phase="health", text="loading 62 %"), 6.0) == []
    assert texts(watcher, "", 10.5) == ["h | health 10 s: loading 62 %"]
    assert texts(watcher, end("health", 12.0) + begin("canary") + end("canary", 0.3), 12.0) == [
        "h | health, canary  12.3 s"
    ]


def test_the_file_of_an_earlier_switch_is_not_shown():
    watcher = Watcher("x", "h")
    old = json.dumps({"id": "old", "event": "phase", "phase": "health", "state": "begin"}) + "\n"
    assert texts(watcher, old, 0.0) == []
    assert watcher.offset == 0
    assert texts(watcher, "", 20.0) == ["h | waiting for the switch to begin"]


def test_a_torn_line_waits_for_its_rest():
    watcher = Watcher("x", "h")
    whole = record("start", pid=5)
    line = begin("drain")
    texts(watcher, whole + line[:10], 0.0)
    assert watcher.offset == len(whole)
    assert texts(watcher, line, 1.0) == ["h | drain ..."]


def test_failure_and_way_back():
    watcher = Watcher("x", "h")
    text = record("start", pid=5) + begin("canary")
    text += record("phase", phase="canary", direction="forward", state="failed", seconds=1.0, text="wrong answer")
    text += begin("close", "back") + end("close", 0.1, "back")
    lines = watcher.lines(text, 0.0)
    assert [(line.text, line.failed) for line in lines] == [
        ("h | canary FAILED: wrong answer", True),
        ("h | way back: close  0.1 s", False),
    ]
