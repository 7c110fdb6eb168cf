# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the journal knows survives a crash, a full disk and another version at any step of beginning a new file."""

from __future__ import annotations

import json
from functools import partial
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.do import transaction
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.files import HostFiles
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.journal import encode_memory
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed, request

MAIN = LAYOUT.journal_file
LONG = json.dumps({"event": "note", "text": "x" * 110_000}) + "\n"


@pytest.fixture(autouse=True)
def short_journals(monkeypatch):
    monkeypatch.setattr(transaction, "JOURNAL_ROTATE_BYTES", 100_000)


def lengthen(fake_host):
    """The next run begins a new file."""
    fake_host.put(MAIN, fake_host.texts[MAIN][0] + LONG)


def full_journal(rotations=0):
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    for number in range(rotations):
        lengthen(fake_host)
        switch(fake_host, "ba"[number % 2])
    lengthen(fake_host)
    return fake_host


def memory(fake_host):
    return read_memory(fake_host.effects(), LAYOUT)


@pytest.mark.parametrize("rotations", [0, 2])
def test_a_crash_at_any_step_of_the_rotation_forgets_nothing(rotations):
    fake_host = full_journal(rotations)
    known, before = memory(fake_host), fake_host.effects_done
    switch(fake_host, "a")
    steps = fake_host.effects_done - before
    for number in range(1, steps + 1):
        fake_host = full_journal(rotations)
        fake_host.kill_at = fake_host.effects_done + number
        with pytest.raises(Killed):
            switch(fake_host, "b", on_failure="rollback")
        now = memory(fake_host)
        assert now.verified is not None, number
        if now.attempts[-1].outcome is not None:
            assert (now.verified.profile, now.attempts) == (known.verified.profile, known.attempts), number
        # And again, where the last crash left off.
        fake_host.kill_at = fake_host.effects_done + number
        with pytest.raises(Killed):
            switch(fake_host, "b")
        assert memory(fake_host).verified is not None, number
        if number > 40:
            break


@pytest.mark.parametrize("kept", [0, 1, 17, 40, 300])
@pytest.mark.parametrize("more", [False, True])
def test_a_torn_first_line_is_made_up_for_by_the_file_before(kept, more):
    fake_host = full_journal()
    switch(fake_host, "b")
    known = memory(fake_host)
    text = fake_host.texts[MAIN][0]
    first, rest = text.split("\n", 1)
    fake_host.put(MAIN, first[:kept] + ("\n" + rest if more else ""))
    now = memory(fake_host)
    if more:
        assert (now.verified, [one.id for one in now.attempts]) == (known.verified, [one.id for one in known.attempts])
    else:
        # What only the lost lines said is lost, and nothing else.
        assert now.verified is not None
        assert now.verified.profile == "a"


def test_several_torn_files_in_a_row():
    fake_host = full_journal(3)
    for path in (MAIN, LAYOUT.older_journal(1)):
        fake_host.put(path, '{"event":"memory","verif')
    assert memory(fake_host).verified is not None
    # A file that a crash took away, between two of them
    del fake_host.texts[LAYOUT.older_journal(1)]
    assert memory(fake_host).verified is not None


def _until_full(act, done, room, path, *rest, **more):
    """What `act` does, as long as there is room for another of what is `done`."""
    done.append(path)
    if len(done) > room and path.is_relative_to(LAYOUT.state_dir):
        if more:
            # as much of the line as there was room for
            act(path, rest[0][:30], **more)
        raise OSError(28, "No space left on device", str(path))
    return act(path, *rest, **more)


def test_a_disk_that_fills_up_at_any_step_forgets_nothing():
    known = memory(full_journal())
    for number in range(12):
        fake_host = full_journal()
        effects = fake_host.effects()
        done: list[PurePosixPath] = []
        for name in ("write", "append", "rename"):
            setattr(effects.files, name, partial(_until_full, getattr(effects.files, name), done, number))
        api.switch(effects, LAYOUT, request("b"))
        now = memory(fake_host)
        assert now.verified is not None, number
        assert now.attempts[0] == known.attempts[0], number


def test_the_new_file_is_whole_before_it_counts(tmp_path):
    """On real files: what is written aside is not the journal, and the journal never begins with less than a line."""
    fake_host = full_journal()
    seen = []
    effects = fake_host.effects()
    for name in ("write", "append", "rename", "truncate"):
        act = getattr(effects.files, name)

        def note(path, *rest, act=act, **more):
            act(path, *rest, **more)
            text = fake_host.texts.get(MAIN, ("", None))[0]
            seen.append((text.split("\n")[0].startswith('{"event":"memory"'), text.endswith("\n") or not text))

        setattr(effects.files, name, note)
    api.switch(effects, LAYOUT, request("b"))
    assert (True, True) in seen
    assert all(whole for _begins, whole in seen)
    assert HostFiles().read(PurePosixPath(tmp_path) / "none") is None


def test_a_field_of_another_version_does_no_harm():
    fake_host = full_journal()
    switch(fake_host, "b")
    known = memory(fake_host)
    line = json.loads(encode_memory(known))
    line["mood"] = "good"
    line["verified"]["colour"] = "blue"
    for attempt in line["attempts"]:
        attempt["weather"] = "rain"
    fake_host.put(MAIN, json.dumps(line, separators=(",", ":")) + "\n")
    assert memory(fake_host) == known


@pytest.mark.parametrize(
    "broken",
    [
        {"verified": 7},
        {"verified": {"profile": "a"}},
        {"verified": {"profile": "a", "fingerprint": "f", "at": "t", "cases": 3}},
        {"attempts": "x"},
        {"attempts": [{"id": "only"}]},
        {"attempts": [7]},
    ],
)
def test_a_first_line_of_another_shape_is_made_up_for_too(broken):
    fake_host = full_journal()
    switch(fake_host, "b")
    first, rest = fake_host.texts[MAIN][0].split("\n", 1)
    line = {**json.loads(first), **broken}
    fake_host.put(MAIN, json.dumps(line, separators=(",", ":")) + "\n" + rest)
    now = memory(fake_host)
    assert now.verified is not None
    assert [attempt.target for attempt in now.attempts] == ["a", "b"]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b", "\x0c"])
def test_a_line_ends_nowhere_but_at_a_line_feed(mark):
    """The log of an engine, which the end of a switch quotes, may hold any of these."""
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    fake_host.unit("b").fault = "exit_at_start"
    fake_host.log_lines = (f"what{mark}ever",)
    assert switch(fake_host, "b")["outcome"] == "rolled_back"
    now = memory(fake_host)
    assert now.interrupted is None
    assert [attempt.outcome for attempt in now.attempts] == ["committed", "rolled_back"]
