# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The turns of a session go to one replica, whatever its program changes in them, and the sessions to all replicas."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sessions
from kit import on_loop
from several import several

from frontdoor.admission.router import Router, Wish
from frontdoor.config import Routing
from frontdoor.policy.document import Document
from frontdoor.policy.prefix import blocks_of
from frontdoor.policy.routing import Reader

TURNS = 20
READER = Reader(Routing(), (), counts_answer=True)


def wish_of(turn: sessions.Turn, client: str) -> Wish:
    document = Document(json.dumps(turn.body, ensure_ascii=False).encode())
    lines = "".join(f"{line}\r\n" for line in ("Host: x", *turn.fields)).encode()
    found = READER.wish(turn.path.partition("?")[0], lines, document, document.body, -1, client)
    assert isinstance(found, Wish)
    return found


def served(
    programs: list[Callable[[str, int], sessions.Turn]], replicas: int, each: int, at_once: int
) -> list[list[int]]:
    """The replicas of the turns of each session.

    So many sessions of each program, each of another client, take their turns in any order, one after the other, and so
    many requests run at any time. What a replica may have more than others is asserted.
    """
    router = Router()
    router.usable = 2**replicas - 1
    chance = random.Random(replicas)
    programs_by_name = {f"{program.__name__} {number}": program for program in programs for number in range(each)}
    went: dict[str, list[int]] = {name: [] for name in programs_by_name}
    running: dict[str, int] = {}
    while able := [name for name, turns in went.items() if len(turns) < TURNS and name not in running] or list(running):
        if len(running) == at_once or able == list(running):
            del running[chance.choice(list(running))]
            continue
        name = chance.choice(able)
        loads = [list(running.values()).count(one) for one in range(replicas)]
        chosen = router.choose(wish_of(programs_by_name[name](name, len(went[name])), name), router.usable, loads)
        assert loads[chosen] <= 1.5 * min(loads) + 4
        went[name].append(chosen)
        running[name] = chosen
    return list(went.values())


def together(went: list[list[int]]) -> float:
    """The share of turns on the replica that most turns of their session are on."""
    return sum(max(Counter(turns).values()) for turns in went) / sum(map(len, went))


@pytest.mark.parametrize("replicas", [2, 3, 4])
@pytest.mark.parametrize("program", sessions.PROGRAMS, ids=lambda one: one.__name__)
def test_the_turns_of_a_session_go_to_one_replica(program: Callable[[str, int], sessions.Turn], replicas: int) -> None:
    assert together(served([program], replicas, 6, 1)) >= 0.95


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_sessions_stay_and_are_spread_under_load(replicas: int) -> None:
    went = served(sessions.PROGRAMS, replicas, replicas, 2 * replicas)
    assert together(went) >= 0.9
    moves = sum(one != other for turns in went for one, other in itertools.pairwise(turns))
    assert moves <= 0.05 * sum(map(len, went))
    asked = Counter(one for turns in went for one in turns)
    assert len(asked) == replicas
    assert min(asked.values()) >= 0.5 * max(asked.values())


def test_what_a_program_changes_from_turn_to_turn_takes_no_part() -> None:
    for program in sessions.PROGRAMS:
        turns = [wish_of(program("a", turn), "c") for turn in (10, 11)]
        shared = sum(one == other for one, other in zip(turns[0].blocks, turns[1].blocks, strict=False))
        # all but the end, which aider writes anew
        assert shared >= len(turns[0].blocks) - (5 if program is sessions.aider else 0), program.__name__
        assert turns[0].own == turns[1].own < shared


@pytest.mark.parametrize("spelling", ["plain", "escaped"])
def test_a_prompt_is_the_same_however_it_is_spelt_and_however_long_its_request_is(spelling: str) -> None:
    said = [{"role": "user", "content": 'é "quoted" \n 😀 ' * 90}]
    more = [*said, {"role": "assistant", "content": "x" * 80_000}]
    bodies = [json.dumps({"messages": one}, ensure_ascii=spelling == "escaped").encode() for one in (said, more)]
    documents = [Document(body) for body in bodies]
    short, long = (blocks_of(document.content, document, "c")[0] for document in documents)  # type: ignore[arg-type]
    reference = Document(json.dumps({"messages": said}, ensure_ascii=False).encode())
    assert short == blocks_of(reference.content, reference, "c")[0]  # type: ignore[arg-type]
    assert long[: len(short)] == short


@pytest.mark.parametrize(
    "content",
    [
        "x" * 3_000_000,
        [{"type": "image_url", "image_url": {"url": "data:," + "A" * 3_000_000}}] * 3,
        [{"type": "text", "text": "\\" * 200_000}] * 9,
        "\ud800",
    ],
)
def test_no_more_than_half_a_megabyte_of_a_prompt_is_looked_at(content: Any) -> None:
    turns = [{"role": "user", "content": content}] * 2
    document = Document(json.dumps({"messages": turns}).encode())
    table = document.content
    assert isinstance(table, dict)
    blocks, own = blocks_of(table, document, "c")
    assert len(blocks) <= 128
    assert own == max(0, len(blocks) - 1)


@on_loop
async def test_the_frontdoor_keeps_the_sessions_of_each_program_together(tmp_path: Path) -> None:
    async with several(
        tmp_path, count=3, routing={"prefix_affinity": True}, lengths=dict.fromkeys(range(3), 10**6)
    ) as slot:
        client = await slot.run.client()
        for program in sessions.PROGRAMS:
            before = slot.asked
            for number in range(3):
                turn = program("a", 5 * number)
                body = json.dumps(turn.body).encode()
                assert (await client.ask("POST", turn.path, body, *turn.fields)).status == 200
            assert sorted(now - then for now, then in zip(slot.asked, before, strict=True)) == [0, 0, 3]
