# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the frontdoor may ask of the slots: the request decides between a few commands, everything else is refused."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import admin, api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.recorded import KINDS, unit_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Layout, SlotFault
from unit.plugins.module_utils._slot.calls import b70ctl, host
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, FakeUnit, request
from unit.plugins.module_utils._slot.two_slots import AUX, TwoSlots


@pytest.fixture
def fake_host() -> FakeHost:
    """A host with the profiles a, which is served, and b."""
    made = host("ab", load_s=1.0)
    b70ctl(made, "switch", "a")
    return made


@pytest.fixture
def two() -> TwoSlots:
    """A host with two slots: main serves small and has large, aux serves embed."""
    made = TwoSlots()
    for name, cards in (("small", "0"), ("large", "0,1")):
        made.main.render(name, cards=len(cards.split(",")), engine__env={"ZE_AFFINITY_MASK": cards})
    made.aux.render("embed", cards=1, engine__env={"ZE_AFFINITY_MASK": "1"})
    for profile, layout in (("small", LAYOUT), ("embed", AUX)):
        assert api.switch(made.effects(), layout, request(profile, slot=layout.slot))["outcome"] == "committed"
    return made


def ask(
    fake_host: FakeHost | TwoSlots, line: bytes, code: int = 0, slot: str = "main", **data: Any
) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """The answer, and the commands that were run, all of them for the slot."""
    ran: list[tuple[str, ...]] = []

    def run(layout: Layout, words: Sequence[str]) -> tuple[int, dict[str, Any]]:
        assert layout.slot == slot
        ran.append(tuple(words))
        return code, {"msg": "well", **data}

    return admin.perform(line, fake_host.effects(), LAYOUT, run), ran


def converse(fake_host: FakeHost | TwoSlots, line: bytes, *, leave: bool = False) -> tuple[int, Any]:
    """Exit code and answer of `b70ctl admin`, its connection in the place of standard input."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(line)
        if leave:
            ours.close()
        stdin = os.dup(0)
        os.dup2(theirs.fileno(), 0)
        try:
            code, printed = b70ctl(fake_host, "admin")
        finally:
            os.dup2(stdin, 0)
            os.close(stdin)
        theirs.close()
        assert not printed
        said = b"" if leave else ours.makefile("rb").read()
    return code, json.loads(said) if said else None


def test_a_load_is_a_switch(fake_host):
    why = "load b, asked over HTTP with the key root"
    assert ask(fake_host, b"load b root\n") == ({"exit": 0, "message": "well"}, [("switch", "b", "--why", why)])


def test_an_idle_profile_is_stopped_as_such(fake_host):
    why = "nobody asked for a for 1800 s"
    assert ask(fake_host, b"idle a 1800\n")[1] == [("stop", "--idle", "--why", why)]
    assert ask(fake_host, b"idle b 1800\n")[0]["exit"] == admin.REFUSED


@pytest.mark.parametrize("kind", KINDS)
def test_work_on_the_engine_keeps_it_although_no_request_comes(fake_host, kind):
    """A soak and others ask the engine itself, so the frontdoor knows nothing of them."""
    unit = FakeUnit(unit_of(kind, "main"), active="active", sub="running")
    fake_host.units[unit.name] = unit
    answer, ran = ask(fake_host, b"idle a 1800\n")
    assert (answer["exit"], ran) == (admin.REFUSED, [])
    assert f"{unit.name} runs" in answer["message"]
    # a person means it
    assert ask(fake_host, b"unload a root\n")[1]


def test_an_unload_is_a_stop_of_that_profile_only(fake_host):
    why = "unload a, asked over HTTP with the key root"
    assert ask(fake_host, b"unload a root\n")[1] == [("stop", "--why", why)]
    answer, ran = ask(fake_host, b"unload b root\n")
    assert (answer["exit"], ran) == (admin.REFUSED, [])
    assert "not that of b" in answer["message"]
    b70ctl(fake_host, "stop")
    assert ask(fake_host, b"unload a root\n")[0]["exit"] == admin.REFUSED
    fake_host.effects().files.remove(LAYOUT.state_file)
    assert ask(fake_host, b"unload a root\n")[0]["exit"] == admin.REFUSED


def test_a_line_may_name_another_slot_of_the_host(two):
    why = "load embed, asked over HTTP with the key root"
    assert ask(two, b"load embed root aux\n", slot="aux")[1] == [("switch", "embed", "--why", why)]
    assert ask(two, b"unload embed root aux\n", slot="aux")[1][0][0] == "stop"
    assert ask(two, b"load large root main\n")[1][0][:2] == ("switch", "large")
    for line, words in (
        (b"load embed root gpu\n", "gpu is not a slot of this host"),
        (b"load embed root main\n", "embed is not a profile of slot main"),
        (b"load embed root\n", "embed is not a profile of slot main"),
        (b"load large root aux\n", "large is not a profile of slot aux"),
        (b"unload small root aux\n", "small is not a profile of slot aux"),
    ):
        answer, ran = ask(two, line)
        assert (answer, ran) == ({"exit": admin.REFUSED, "message": words}, [])


@pytest.mark.parametrize("others", [[], ["aux"], ["aux", "third"]])
def test_the_unit_of_the_helper_may_write_what_a_switch_in_any_slot_writes(others):
    """Also a switch of main does, which stops a slot that uses a card of its profile."""
    folder = Path(__file__).parents[5] / "templates"
    given = {"frontdoor_slot": "main", "frontdoor_other_slots": others, "frontdoor_slot_command": "/opt/b70/bin/b70ctl"}
    given |= {"frontdoor_slot_config_dir": str(LAYOUT.config_dir), "frontdoor_slot_state_dir": str(LAYOUT.state_dir)}
    given |= {"frontdoor_state_file": str(LAYOUT.state_file), "__paths_slot_run_dir": str(LAYOUT.run_dir)}
    surroundings = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, autoescape=False)
    surroundings.filters["dirname"] = lambda path: str(PurePosixPath(path).parent)
    text = surroundings.from_string((folder / "b70-slot-admin@.service.j2").read_text()).render(given)
    rows = [row.partition("=")[2].split() for row in text.splitlines() if row.startswith("ReadWritePaths=")]
    written = {PurePosixPath(path.removeprefix("-")) for row in rows for path in row}
    layouts = [Layout(slot=slot, config_dir=PurePosixPath(f"{LAYOUT.config_dir}-{slot}")) for slot in others]
    wanted = {path for layout in (LAYOUT, *layouts) for path in (layout.config_dir, layout.slot_run_dir)}
    assert written == wanted | {LAYOUT.state_dir, LAYOUT.unit_dir}


def test_a_slot_of_which_the_host_says_nothing_is_none(fake_host):
    assert ask(fake_host, b"load b root aux\n") == (
        {"exit": admin.REFUSED, "message": "aux is not a slot of this host"},
        [],
    )


def test_a_load_in_another_slot_is_a_switch_of_that_slot(two):
    two.aux.render("embed2", cards=1, engine__env={"ZE_AFFINITY_MASK": "1"})
    code, answer = converse(two, b"load embed2 root aux\n")
    assert (code, answer["exit"]) == (0, command.DONE)
    assert answer["message"].startswith("embed2 is served in slot aux, verified")
    assert two.served() == ("small", "embed2")
    code, answer = converse(two, b"unload embed2 root aux\n")
    assert (code, answer["exit"], two.served()) == (0, command.DONE, ("small", None))
    began = [json.loads(line) for line in two.main.texts[AUX.journal_file][0].splitlines()]
    assert [row["why"] for row in began if row["event"] == "begin"][1:] == [
        f"{verb} embed2, asked over HTTP with the key root" for verb in ("load", "unload")
    ]
    two.assert_invariants()


def test_where_the_other_slots_are_not_known_nothing_is_done(two):
    two.main.texts[LAYOUT.slot_file] = ("{", two.main.now())
    with pytest.raises(SlotFault, match=r"slot\.json"):
        ask(two, b"load embed root aux\n")
    # what is about the own slot is not looked up there
    assert ask(two, b"load large root\n")[1]


def test_the_cards_are_looked_at_and_nothing_is_changed(fake_host):
    cards = [{"node": "/dev/dri/renderD128"}]
    answer, ran = ask(fake_host, b"cards\n", cards=cards)
    assert answer == {"exit": 0, "message": "well", "cards": cards}
    assert ran == [("cards",)]
    assert ask(fake_host, b"cards\n", 1)[0] == {"exit": 1, "message": "well", "cards": []}


@pytest.mark.parametrize(
    "request_line",
    [
        b"",
        b"\n",
        b"cards",
        b"cards root\n",
        b"load b root",
        b"load b\n",
        b"load  b root\n",
        b"load no-such root\n",
        b"load --gate=none root\n",
        b"load -h root\n",
        b"load ../b root\n",
        b"load /etc/passwd root\n",
        b"load b --gate\n --x\n",
        b"load b root -x\n",
        b"load b root MAIN\n",
        b"load b root ../main\n",
        b"load b root main extra\n",
        b"load b root \n",
        b"load b ro\0ot\n",
        b"load tiny\xff root\n",
        b"LOAD b root\n",
        b"recover b root\n",
        b"load b root\nload a root\n",
    ],
)
def test_anything_else_runs_nothing(fake_host, request_line):
    answer, ran = ask(fake_host, request_line)
    assert (answer["exit"], ran) == (admin.REFUSED, [])
    assert answer["message"]


def test_a_request_is_answered_as_b70ctl_tells_it(fake_host):
    code, answer = converse(fake_host, b"load b root\n")
    assert (code, answer["exit"]) == (0, command.DONE)
    assert answer["message"].startswith("b is served in slot main, verified")
    switches = json.loads(b70ctl(fake_host, "history", "--json")[1])["switches"]
    assert switches[-1]["why"] == "load b, asked over HTTP with the key root"
    fake_host.cards = 1
    code, answer = converse(fake_host, b"cards\n")
    assert answer["cards"] == [
        {"node": "/dev/dri/renderD128", "model": "", "address": "0000:03:00.0", "used_bytes": 2**28,
         "total_bytes": 32 * 2**30, "power_cap_w": None}
    ]  # fmt: skip
    fake_host.unit("a").fault = "wrong_answer"
    code, answer = converse(fake_host, b"load a root\n")
    assert (code, answer["exit"]) == (0, command.FAILED)
    assert "b is served again, verified" in answer["message"]
    fake_host.lock_holder = "pid 7 (somebody): a"
    code, answer = converse(fake_host, b"load a root\n")
    assert (code, answer["exit"], "pid 7 (somebody)" in answer["message"]) == (0, command.LOCKED, True)
    fake_host.assert_invariants()


def test_a_client_that_leaves_ends_nothing(fake_host):
    assert converse(fake_host, b"load b root\n", leave=True) == (0, None)
    assert fake_host.running == [LAYOUT.unit("b")]


def test_a_client_that_says_nothing_is_not_waited_for(fake_host, monkeypatch, capsys):
    monkeypatch.setattr(admin, "REQUEST_LIMIT_S", 0.05)
    assert converse(fake_host, b"load b") == (command.FAILED, None)
    assert "no request arrived" in capsys.readouterr().err
    monkeypatch.setattr(admin, "REQUEST_LIMIT_S", 60)
    code, answer = converse(fake_host, b"x" * admin.MAX_REQUEST)
    assert (code, answer["exit"]) == (0, admin.REFUSED)


def test_standard_input_is_a_connection_or_nothing_is_done(fake_host, capsys):
    stdin = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        assert b70ctl(fake_host, "admin")[0] == command.FAILED
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(null)
    assert "no request arrived" in capsys.readouterr().err
