# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which replica a request goes to: sessions, prompts, loads, contexts, and turns when there is no room."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from frontdoor.admission import router as routing
from frontdoor.admission.limiter import Limiter, Verdict
from frontdoor.admission.router import ANYWHERE, Router, Wish
from frontdoor.config import Routing
from frontdoor.errors import Refusal
from frontdoor.policy.document import Document
from frontdoor.policy.routes import CHAT, COMPLETIONS, GENERATE, RESPONSES
from frontdoor.policy.routing import Reader

ALL = 0b1111
IDLE = [0, 0, 0, 0]


def router(usable: int = ALL) -> Router:
    made = Router()
    made.usable = usable
    return made


def test_equals_are_taken_in_turn() -> None:
    one = router()
    assert [one.choose(ANYWHERE, ALL, IDLE) for _ in range(6)] == [0, 1, 2, 3, 0, 1]
    assert [one.choose(ANYWHERE, 0b1010, IDLE) for _ in range(3)] == [3, 1, 3]


def test_the_least_loaded_with_room_is_taken() -> None:
    assert router().choose(ANYWHERE, ALL, [3, 2, 0, 1]) == 2
    assert router().choose(ANYWHERE, 0b1011, [3, 2, 0, 1]) == 3


@pytest.mark.parametrize("wish", [Wish(session=1), Wish(blocks=(1, 2, 3), own=1)])
def test_what_was_there_before_goes_there_again(wish: Wish) -> None:
    one = router()
    first = one.choose(wish, ALL, [1, 1, 0, 1])
    assert first == 2
    # although others have less to do
    assert one.choose(wish, ALL, [0, 0, 4, 0]) == 2
    assert one.choose(wish, ALL, [4, 4, 10, 4]) == 2
    # but not beyond half as much again and four, nor where there is no room
    assert one.choose(wish, ALL, [4, 4, 11, 4]) != 2
    moved = one.choose(wish, 0b1011, IDLE)
    assert moved != 2
    # for want of room: a session comes back, and a conversation goes on where most of it is
    assert one.choose(wish, ALL, IDLE) == (moved if wish.blocks else 2)


def test_where_most_of_a_conversation_is_it_goes_on() -> None:
    one = router()
    assert one.choose(Wish(blocks=(1, 2), own=1), ALL, [0, 1, 1, 1]) == 0
    assert one.choose(Wish(blocks=(1, 2, 3, 4), own=1), ALL, [9, 0, 1, 1]) == 1
    assert one.choose(Wish(blocks=(1, 2, 3, 4, 5), own=1), ALL, IDLE) == 1
    # what was changed at its end, too
    assert one.choose(Wish(blocks=(1, 2, 3, 7), own=1), ALL, IDLE) == 1


def test_what_many_have_in_common_decides_between_equals_alone() -> None:
    one = router()
    new = iter(range(10, 100))

    def begin(loads: list[int], *common: int) -> int:
        return one.choose(Wish(blocks=(*common, next(new)), own=len(common)), ALL, loads)

    assert begin([1, 1, 0, 1], 1, 2) == 2
    assert begin(IDLE, 1, 2) == 2
    assert begin([0, 0, 1, 0], 1, 2) != 2
    # the others have their share, and of a new one they learn it
    assert Counter(begin(IDLE, 1, 2) for _ in range(40)).keys() == set(range(4))


def test_a_replica_that_was_away_gets_no_more_than_a_few_of_those_that_begin() -> None:
    one = router(0b0111)
    for number in range(60):
        one.choose(Wish(blocks=(number,)), 0b0111, IDLE)
    one.usable = ALL
    begun = Counter(one.choose(Wish(blocks=(100 + number,)), ALL, IDLE) for number in range(40))
    assert begun[3] <= 14


def test_a_session_comes_before_what_many_have_in_common_and_after_the_conversation() -> None:
    one = router()
    assert one.choose(Wish(blocks=(7, 8), own=1), ALL, [1, 0, 1, 1]) == 1
    assert one.choose(Wish(session=5), ALL, [1, 1, 1, 0]) == 3
    # an agent of a session whose instructions another replica knows
    assert one.choose(Wish(session=5, blocks=(7, 9), own=1), ALL, IDLE) == 3
    assert one.choose(Wish(session=5, blocks=(7, 8), own=1), ALL, IDLE) == 1
    assert one.choose(Wish(session=5, blocks=(6,)), ALL, IDLE) == 3


def test_who_finds_room_on_one_replica_alone_is_known_there() -> None:
    gate, one = Limiter(1, 1), router(0b11)
    gate.set_limits([1, 1])
    guest = Guest("a", 1, -1)
    guest.choose = lambda room: one.choose(Wish(blocks=(1,)), room, [1, 0])  # type: ignore[method-assign]
    gate.enter(Guest("b", 1, 0b01), "b", may_wait=False, may_use=0b01)
    gate.enter(guest, "a", may_wait=False)
    assert guest.replica == 1
    assert one.choose(Wish(blocks=(1,)), 0b11, [0, 0]) == 1


loads_of_four = st.lists(st.integers(0, 12), min_size=4, max_size=4)
wishes = st.builds(
    Wish,
    session=st.none() | st.integers(0, 3),
    blocks=st.lists(st.integers(0, 5), max_size=4).map(tuple),
    own=st.just(1),
)


@given(st.lists(st.tuples(wishes, st.integers(1, ALL), loads_of_four), min_size=1, max_size=30))
def test_no_replica_gets_more_than_its_bound_for_what_it_knows(asked: list[tuple[Wish, int, list[int]]]) -> None:
    one = router()
    for wish, room, loads in asked:
        chosen = one.choose(wish, room, loads)
        assert room >> chosen & 1
        fewest = min(load for replica, load in enumerate(loads) if room >> replica & 1)
        assert loads[chosen] <= max(fewest, 1.5 * min(loads) + 4)


def test_who_was_on_a_replica_that_is_gone_moves_for_good() -> None:
    one, wish = router(), Wish(session=1, blocks=(2,))
    assert one.choose(wish, ALL, [0, 1, 1, 1]) == 0
    one.usable = 0b1110
    moved = one.choose(wish, 0b1110, IDLE)
    assert moved != 0
    one.usable = ALL
    assert one.choose(wish, ALL, IDLE) == moved


def test_a_strict_session_may_use_its_replica_alone() -> None:
    one, wish = router(), Wish(session=1, strict=True)
    home = one.may_use(wish, [2, 1, 0, 1])
    assert home == 0b0100
    assert one.choose(wish, home, [9, 9, 9, 9]) == 2
    one.usable = 0b1011
    assert one.may_use(wish, IDLE) == home, "it waits for it"
    # one that is new is never bound to a replica that is not used
    assert all(one.may_use(Wish(session=new, strict=True), IDLE) & one.usable for new in range(10, 20))
    # without a session nothing is strict
    assert one.may_use(Wish(strict=True), IDLE) == ANYWHERE.fits
    # where the context is too short it does not stay
    assert one.may_use(Wish(session=1, strict=True, fits=0b0011), IDLE) in (1, 2)


@pytest.mark.interpreted
def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_SESSIONS", 8)
    monkeypatch.setattr(routing, "_BLOCKS", 16)
    if hasattr(Router.choose, "__code__"):
        one = router()
        for number in range(100):
            one.choose(Wish(session=number, blocks=(1, -2 - number), own=1), ALL, IDLE)
        assert (len(one._sessions), len(one._blocks)) == (8, 16)
        assert one._blocks.find(1), "what is used is not forgotten"
        one.forget()
        assert (len(one._sessions), len(one._blocks)) == (0, 0)


# --- what a request says --------------------------------------------------------------------------------------------


def read(
    body: Any,
    fields: str = "",
    path: str = CHAT,
    usable: int = ALL,
    sent: Any = None,
    lengths: tuple[int, ...] = (),
    kind: str = "vllm",
    client: str = "a",
    **routing: Any,
) -> Wish | Refusal:
    reader = Reader(Routing(**routing), lengths, counts_answer=kind == "vllm")
    lines = "".join(f"{line}\r\n" for line in ["Host: x", *fields.splitlines()]).encode()
    document = Document(json.dumps(body).encode())
    wanted = document.body if sent is None else document.written(sent)
    assert not isinstance(wanted, Refusal)
    return reader.wish(path, lines, document, wanted, usable, client)


def wish(body: Any, fields: str = "", **told: Any) -> Wish:
    found = read(body, fields, **told)
    assert isinstance(found, Wish)
    return found


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_the_turns_of_a_conversation_begin_alike() -> None:
    start = [said("system", "be kind"), said("user", "hello")]
    first = wish({"messages": start})
    later = wish({"messages": [*start, said("assistant", "hi"), said("user", "more")], "temperature": 0.5})
    other = wish({"messages": [start[0], said("user", "good day")]})
    assert (len(first.blocks), first.own, later.own) == (2, 1, 1)
    assert later.blocks[:2] == first.blocks
    assert other.blocks[0] == first.blocks[0]
    assert other.blocks[1] != first.blocks[1]
    assert wish({"messages": start}, client="b").blocks[0] == first.blocks[0]
    assert wish({"messages": start}, client="b").blocks[1] != first.blocks[1]
    assert wish({"messages": start}, prefix_affinity=False).blocks == ()
    words = "once upon a time " * 400
    texts = [wish({"prompt": text}, path=COMPLETIONS) for text in (words, words + "x")]
    assert [one.own for one in texts] == [0, 0]
    assert texts[0].blocks[0] == texts[1].blocks[0]
    turns = [wish({"instructions": who, "input": "hello"}, path=RESPONSES).blocks for who in ("a", "b")]
    assert not set(turns[0]) & set(turns[1])


@pytest.mark.parametrize(
    "header", ["x-session-id", "X-Conversation-Id", "X-AGENT-ID", "X-OpenWebUI-Chat-Id", "session-id"]
)
def test_a_header_names_a_session(header: str) -> None:
    found = wish({}, f"{header}: abc ")
    assert found.session == wish({"messages": []}, f"{header}:abc").session is not None
    assert found.session != wish({}, f"{header}: abd").session
    assert not found.strict
    assert wish({}, f"{header}:").session is None
    assert wish({}, f"{header}: abc", headers=()).session is None
    assert wish({}, "X-Mine: abc", headers=("x-mine",)).session is not None


@pytest.mark.parametrize(
    "body",
    [
        *({"session_id": "a"}, {"metadata": {"conversation_id": "a"}}, {"prompt_cache_key": "a"}, {"user": "a"}),
        *({"litellm_session_id": "a"}, {"metadata": {"user_id": "a"}}, {"safety_identifier": "a"}),
    ],
)
def test_a_member_names_a_session(body: dict[str, Any]) -> None:
    assert wish(body).session is not None
    assert wish(body, json_fields=()).session is None
    assert wish({"a": {"b": "x"}}, json_fields=("a.b",)).session is not None
    # what is no text names nothing
    assert wish({"user": 1, "metadata": "x", "session_id": ""}).session is None


@pytest.mark.parametrize(
    ("sticky", "asked", "strict"),
    [
        ("prefer", "", False),
        ("prefer", "X-Sticky-Mode: strict", True),
        ("prefer", "x-sticky-mode: STRICT", True),
        ("prefer", "X-Sticky-Mode: always", False),
        ("strict", "", True),
        ("strict", "X-Sticky-Mode: prefer", False),
        ("strict", "X-Sticky-Mode: off", None),
        ("off", "X-Sticky-Mode: strict", None),
    ],
)
def test_how_sticky_a_session_is(sticky: str, asked: str, strict: bool | None) -> None:
    found = wish({"user": "a"}, asked, sticky=sticky)
    assert (found.session is not None, found.strict) == (strict is not None, bool(strict))


def test_a_body_that_cannot_be_read_says_nothing() -> None:
    document = Document(b"\xff")
    found = Reader(Routing(), (), counts_answer=True).wish(
        CHAT, b"X-Session-Id: a\r\n", document, document.body, ALL, "a"
    )
    assert isinstance(found, Wish)
    assert found.session is not None
    assert found.blocks == ()


@pytest.mark.interpreted
def test_what_fits_nowhere_is_refused_and_what_fits_somewhere_goes_there() -> None:
    lengths = (1000, 4000, 1000, 4000)

    def fits(body: Any, fields: str = "", **told: Any) -> int | str:
        found = read(body, fields, lengths=lengths, **told)
        return found.code if isinstance(found, Refusal) else found.fits

    text = {"messages": [said("user", "four" * 6000)]}
    assert fits({"messages": [said("user", "hello")]}) == ANYWHERE.fits
    assert fits(text) == 0b1010
    assert fits({**text, "max_tokens": 900}) == 0b1010
    assert fits({**text, "max_tokens": 1001}) == "context_length_exceeded"
    assert fits(text, usable=0b0101) == "context_length_exceeded"
    # the client knows better than an estimate
    assert fits({}, "X-Estimated-Prompt-Tokens: 4001") == "context_length_exceeded"
    assert fits({}, "X-Estimated-Prompt-Tokens: 3999") == 0b1010
    assert fits(text, "X-Estimated-Prompt-Tokens: 10") == ANYWHERE.fits
    assert fits({"max_tokens": 1}, "X-Estimated-Prompt-Tokens: 4000") == "context_length_exceeded"
    # the engine is sent less than was asked for
    assert fits({"max_tokens": 99999}, sent={"max_tokens": 500}) == ANYWHERE.fits
    assert fits({}, sent={"max_tokens": 2000}) == 0b1010
    assert fits({"sampling_params": {"max_tokens": 2000}}, path=GENERATE) == 0b1010
    # tokens are counted as they are, and the engine shortens what it is told to shorten
    assert fits({"prompt": [1] * 4001}, path=COMPLETIONS) == "context_length_exceeded"
    assert fits({"prompt": [[1] * 900, [1] * 900]}, path=COMPLETIONS) == ANYWHERE.fits
    assert fits({"prompt": ["a" * 40000]}, path=COMPLETIONS) == "context_length_exceeded"
    assert fits({"prompt": "a" * 40000, "truncate_prompt_tokens": 9}, path=COMPLETIONS) == ANYWHERE.fits
    # pictures and spaces are not counted as text
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90000}}
    assert fits({"messages": [said("user", [picture, {"type": "text", "text": " " * 90000}])]}) == ANYWHERE.fits
    # no more is read than a context may hold, and what is not read does not count
    long = [said("user", "four" * 10_000)]
    assert fits({"messages": long}) == "context_length_exceeded"
    assert fits({"messages": [said("user", " " * 70_000), *long]}) == ANYWHERE.fits
    # where nothing is known nothing is refused
    assert read({"max_tokens": 10**9}, lengths=(0, 0)) == wish({"max_tokens": 10**9})


def test_a_refusal_tells_the_length() -> None:
    found = read({}, "X-Estimated-Prompt-Tokens: 5000", lengths=(1000, 4000))
    assert isinstance(found, Refusal)
    assert (found.status, found.details) == (413, {"max_model_len": 4000})
    assert found.message == "the prompt takes about 5000 tokens, and the maximum context length here is 4000: send less"


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        ({"max_completion_tokens": 5000}, CHAT, "0 tokens and max_completion_tokens allows 5000 for the answer"),
        ({"max_tokens": 9, "max_completion_tokens": 5000}, CHAT, "max_completion_tokens allows 5000"),
        ({"max_output_tokens": 5000}, RESPONSES, ": lower max_output_tokens"),
        ({"prompt": [1] * 3000, "max_tokens": 2000}, COMPLETIONS, ": send less, or lower max_tokens"),
        ({"sampling_params": {"max_tokens": 5000}}, GENERATE, ": lower max_tokens"),
    ],
)
def test_a_refusal_names_what_allows_the_answer_so_much(body: dict[str, Any], path: str, words: str) -> None:
    found = read(body, path=path, lengths=(1000, 4000))
    assert isinstance(found, Refusal)
    assert words in found.message
    assert str((found.details or {})["param"]) in found.message


@pytest.mark.parametrize("kind", ["llama-server", "openai"])
def test_an_engine_that_stops_at_its_context_is_asked_for_long_answers(kind: str) -> None:
    def told(body: Any, fields: str = "") -> Any:
        return read(body, fields, lengths=(1000, 4000), kind=kind)

    assert told({"max_tokens": 10**9}) == wish({"max_tokens": 10**9})
    assert told({"max_tokens": 5000}, "X-Estimated-Prompt-Tokens: 3999").fits == 0b10
    refused = told({"max_tokens": 5000}, "X-Estimated-Prompt-Tokens: 4001")
    assert refused.message.startswith("the prompt takes about 4001 tokens, and")


def test_requests_without_a_prompt_do_not_begin_alike() -> None:
    bodies: list[dict[str, Any]] = [
        {"query": "a", "items": ["b"]},
        {"messages": []},
        {"prompt": ""},
        {"prompt": [2**70]},
    ]
    for body in bodies:
        assert wish(body).blocks == ()
    assert wish({"system": "be kind", "messages": []}).blocks


# --- turns on several replicas --------------------------------------------------------------------------------------

REPLICAS, PLACES = 3, 6
sets = st.integers(1, 2**REPLICAS - 1)


class Guest:
    """A waiter that notes what becomes of it."""

    replica = -1

    def __init__(self, key: str, permits: int, may_use: int) -> None:
        self.key, self.permits, self.may_use = key, permits, may_use
        self.where = "queue"

    def choose(self, room: int) -> int:
        assert room & ~self.may_use == 0
        return room.bit_length() - 1

    def granted(self) -> None:
        assert self.where == "queue"
        self.where = "slot"

    def displaced(self) -> None:
        assert self.where == "queue"
        self.where = "displaced"


class SeveralDoors(RuleBasedStateMachine):
    """Any order of arrivals, departures and changes of replicas, for requests that may use any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Limiter(4, PLACES)
        self.limits = [4, 4, 2]
        self.usable = 2**REPLICAS - 1
        self.gate.set_limits(self.limits, self.usable)
        self.guests: list[Guest] = []

    def those(self, where: str) -> list[Guest]:
        return [guest for guest in self.guests if guest.where == where]

    def free(self, replica: int) -> int:
        held = sum(one.permits for one in self.those("slot") if one.replica == replica)
        return self.limits[replica] - held if self.usable >> replica & 1 else 0

    @rule(key=st.sampled_from("abc"), permits=st.integers(1, 4), may_use=sets | st.just(-1))
    def arrive(self, key: str, permits: int, may_use: int) -> None:
        if not any(may_use >> one & 1 and permits <= limit for one, limit in enumerate(self.limits)):
            return
        before = [self.free(one) for one in range(REPLICAS)]
        guest = Guest(key, permits, may_use)
        verdict = self.gate.enter(guest, key, may_wait=True, permits=permits, may_use=may_use)
        self.guests.append(guest)
        if verdict is Verdict.ADMITTED:
            guest.where = "slot"
            assert before[guest.replica] >= permits, "never more than a replica has, and only where it is used"
        elif verdict is Verdict.QUEUE_FULL:
            guest.where = "refused"

    @precondition(lambda self: self.those("queue") or self.those("slot"))
    @rule(number=st.integers(0, 30))
    def leave(self, number: int) -> None:
        guests = self.those("queue") + self.those("slot")
        guest = guests[number % len(guests)]
        guest.where = "gone"
        assert self.gate.leave(guest)
        assert not self.gate.leave(guest)

    @rule(usable=sets, limits=st.lists(st.integers(1, 4), min_size=REPLICAS, max_size=REPLICAS))
    def change(self, usable: int, limits: list[int]) -> None:
        self.usable, self.limits = usable, limits
        for guest in self.gate.set_limits(limits, usable):
            assert isinstance(guest, Guest)
            assert not any(guest.may_use >> one & 1 and guest.permits <= limit for one, limit in enumerate(limits))
            guest.where = "refused"

    @rule()
    def dismiss(self) -> None:
        for guest in self.gate.dismiss():
            assert isinstance(guest, Guest)
            guest.where = "refused"

    @invariant()
    def counted(self) -> None:
        gate, held, queue = self.gate, self.those("slot"), self.those("queue")
        of_each = Counter(one.replica for one in held for _permit in range(one.permits))
        assert gate.held == [of_each[one] for one in range(REPLICAS)]
        assert (gate.active, gate.queued) == (sum(of_each.values()), sum(one.permits for one in queue))
        assert all(guest.may_use >> guest.replica & 1 for guest in held), "nobody is where it may not be"
        assert {*gate._holders, *gate._queued} == {*held, *queue}, "nobody is lost"
        assert gate.limit == sum(limit for one, limit in enumerate(self.limits) if self.usable >> one & 1)

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        kept = dict(self.gate._turns)
        assert len(set(kept.values())) == len(kept), "nobody has two turns"
        for replica, guest in kept.items():
            assert isinstance(guest, Guest)
            assert guest.where == "queue"
            assert self.free(replica) < guest.permits <= self.limits[replica]
        for guest in self.those("queue"):
            for replica in range(REPLICAS):
                if guest.may_use >> replica & 1 and replica not in kept:
                    assert self.free(replica) < guest.permits, "there is room, and it waits"


SeveralDoors.TestCase.settings = settings(max_examples=300, stateful_step_count=40)
TestSeveralDoors = SeveralDoors.TestCase


def test_who_waits_for_one_replica_holds_up_nobody_else() -> None:
    gate = Limiter(1, 10)
    gate.set_limits([1, 1])
    holders = [Guest("a", 1, 1 << one) for one in range(2)]
    for holder in holders:
        assert gate.enter(holder, "a", may_wait=True, may_use=holder.may_use) is Verdict.ADMITTED
        holder.where = "slot"
    strict, free = Guest("b", 1, 0b01), Guest("c", 1, -1)
    for guest in (strict, free):
        assert gate.enter(guest, guest.key, may_wait=True, may_use=guest.may_use) is Verdict.QUEUED
    gate.leave(holders[1])
    assert (strict.where, free.where, free.replica) == ("queue", "slot", 1)
    gate.leave(holders[0])
    assert (strict.where, strict.replica) == ("slot", 0)


def test_permits_are_kept_for_a_wide_request_on_one_replica_alone() -> None:
    gate = Limiter(1, 20)
    gate.set_limits([2, 2])
    holders = [Guest("a", 1, 1 << (one % 2)) for one in range(4)]
    for holder in holders:
        assert gate.enter(holder, "a", may_wait=True, may_use=holder.may_use) is Verdict.ADMITTED
        holder.where = "slot"
    wide, narrow = Guest("b", 2, -1), Guest("c", 1, -1)
    for guest in (wide, narrow):
        gate.enter(guest, guest.key, may_wait=True, permits=guest.permits)
    gate.leave(holders[0])
    assert (wide.where, narrow.where) == ("queue", "queue"), "replica 0 is kept for the wide one"
    gate.leave(holders[1])
    assert (narrow.where, narrow.replica) == ("slot", 1)
    gate.leave(holders[2])
    assert (wide.where, wide.replica) == ("slot", 0)
