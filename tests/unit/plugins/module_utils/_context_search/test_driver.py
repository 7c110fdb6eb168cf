# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search on a host in memory: what it starts, where it leaves the slot, and what a kill at any moment leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Self

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._context_search import probes
from ansible_collections.arcpro.b70.plugins.module_utils._context_search.driver import Search, SearchPlan, restore
from ansible_collections.arcpro.b70.plugins.module_utils._context_search.lengths import SearchEnd
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.rendering import Rendering, in_place
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Effects
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, Reply, SlotFault
from unit.plugins.module_utils._context_search.test_lengths import published
from unit.plugins.module_utils._evidence.test_streams import streamed
from unit.plugins.module_utils._slot.calls import killed_anywhere, recover, switch
from unit.plugins.module_utils._slot.fake_host import (
    LAYOUT,
    FakeHost,
    FakeHttp,
    FakeUnit,
    Killed,
    profile_data,
    request,
)

PLAN = SearchPlan("b", 64, 128, 1024, 0, 1800.0)
NEW = {
    "engine__argv": [*profile_data("b")["engine"]["argv"], "--max-model-len=8192"],
    "engine__max_model_len": 8192,
    "fingerprint": "sha256:b-2",
}
NO_ROOM = "ValueError: To serve at least one request with the models's max seq len ({}), 9 GiB KV cache is needed. {}"


class Generating(FakeHttp):
    """An engine that makes tokens, and streams as many as it is asked for."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._of = host

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        if url.endswith("/tokenize") and not self._of.tokenizes:
            return Reply(404, '{"detail":"Not Found"}')
        if url.endswith("/tokenize"):
            tokens = list(range(len(body["prompt"].split())))
            return Reply(200, json.dumps({"count": len(tokens), "max_model_len": 8192, "tokens": tokens}))
        if not url.endswith("/v1/completions"):
            return super().post(url, body, timeout_s)
        self._of.step()
        self._of.heed()
        self._of.sent.append((self._of.tried[-1], len(body["prompt"]), body["max_tokens"], tuple(body["prompt"][:16])))
        broken = self._of.breaks(len(body["prompt"]) + body["max_tokens"])
        return broken or streamed(len(body["prompt"]), body["max_tokens"])


class Host(FakeHost):
    """Engines of b tell the room of their cache. tokens: of a length, None where the engine does not start.

    breaks: of a request of so many tokens, what comes instead of its answer. sent: (length of the trial, tokens of the
    prompt, tokens of the answer, how the prompt begins) of each request.
    """

    def __init__(self, tokens: Callable[[int], int | None], length: int = 15616) -> None:
        super().__init__()
        self.tokens = tokens
        self.work: Search | None = None
        self.before: Any = None  # what its search remembered, of a killed one
        self.tried: list[int] = []
        self.sent: list[tuple[int, int, int, tuple[int, ...]]] = []
        self.tokenizes = True
        self.breaks: Callable[[int], Reply | None] = lambda tokens: None
        for name in "ab":
            argv = [*profile_data(name)["engine"]["argv"], f"--max-model-len={length}"]
            self.render(name, engine__argv=argv, engine__max_model_len=length)
            self.unit(name).load_s = 1.0

    def effects(self) -> Effects:
        return replace(super().effects(), http=Generating(self))

    def left(self) -> dict[str, Any]:
        return super().left() | {"before": None if self.work is None else self.work.before}

    def as_killed(self) -> Self:
        work, self.work = self.work, None
        copied = super().as_killed()
        self.work, copied.before = work, None if work is None else work.before
        return copied

    def launch(self, unit: FakeUnit) -> None:
        name, fault = LAYOUT.profile_of(unit.name), unit.fault
        argv = (unit.loaded or self.unit_text(unit)).partition("--max-model-len=")[2]
        length = int(argv.partition('"')[0])
        found = self.tokens(length)
        if name == "b" and found is None:
            unit.fault = "exit_at_start"
        super().launch(unit)
        unit.fault = fault
        if name != "b":
            return
        self.tried.append(length)
        self.logs[unit.invocation] = (
            (NO_ROOM.format(length, "the estimated maximum model length is 300000."),)
            if found is None
            else (
                f"INFO GPU KV cache size: {found:,} tokens",
                f"INFO Maximum concurrency for {length:,} tokens per request: {found / length:.2f}x",
            )
        )


def served(tokens: Callable[[int], int | None] = published, profile: str = "a") -> Host:
    host = Host(tokens)
    switch(host, profile)
    host.tried.clear()
    return host


def search(host: Host, plan: SearchPlan = PLAN) -> Search:
    return Search(host.effects(), LAYOUT, request(plan.profile, why="search"), plan, lambda search, now: None)


def waiting(host: Host) -> str | None:
    return host.effects().files.read(LAYOUT.pending("b"))


def rendering(host: Host, name: str = "b") -> Rendering:
    found = in_place(host.effects().files, LAYOUT, name)
    assert found is not None
    return found


def test_the_published_table_and_the_way_back() -> None:
    host = served()
    before = rendering(host)
    work = search(host)
    outcome = work.run()
    host.assert_invariants()
    assert work.found == SearchEnd(4480)
    assert (rendering(host), waiting(host)) == (before, None)
    assert host.tried == [trial.length for trial in work.trials]
    assert (len(host.tried), host.tried[0]) == (6, 15616)
    assert (outcome.profile_name, outcome.verified, str(outcome.end)) == ("a", True, "rolled_back")
    assert host.running == [LAYOUT.unit("a")]
    assert switch(host, "b")["verified"]


def test_a_stopped_slot_gets_the_rendering_back() -> None:
    host = served(profile="b")
    before = rendering(host)
    switch(host, None, active=False)
    work = search(host)
    work.run()
    host.assert_invariants()
    assert (work.found, host.running) == (SearchEnd(4480), [])
    assert (rendering(host), waiting(host)) == (before, None)
    assert switch(host, "b")["verified"]
    assert rendering(host) == before


@pytest.mark.parametrize("profile", ["a", "b", None])
def test_a_switch_after_one_that_was_killed_takes_no_trial(profile: str | None) -> None:
    host = served(profile="b")
    before = rendering(host)
    switch(host, profile, active=profile is not None)
    host.kill_at = host.effects_done + 150
    with pytest.raises(Killed):
        search(host).run()
    recover(host)
    assert switch(host, "b")["verified"]
    host.assert_invariants()
    assert (rendering(host), waiting(host)) == (before, None)


def test_what_was_rendered_since_stays() -> None:
    host = served()
    host.kill_at = host.effects_done + 150
    work = search(host)
    with pytest.raises(Killed):
        work.run()
    recover(host)
    assert work.before is not None
    host.render("b", **NEW)
    host.effects().files.remove(LAYOUT.pending("b"))  # as the role does
    new = rendering(host)
    restore(host.effects(), LAYOUT, work.before)
    assert (rendering(host), waiting(host)) == (new, None)


def test_one_that_is_rendered_as_it_begins_touches_nothing() -> None:
    host = served()
    work = search(host)
    host.render("b", **NEW)
    new = rendering(host)
    outcome = work.run()
    assert "rendered anew as the search began" in outcome.failures[0].message
    assert (str(outcome.end), host.tried, rendering(host), waiting(host)) == ("untouched", [], new, None)


@pytest.mark.parametrize(("verified", "profile"), [(None, "a"), (None, "b"), ("b", "a"), ("a", "b")])
def test_an_engine_without_a_way_back_is_not_touched(verified: str | None, profile: str) -> None:
    host = Host(published)
    if verified:
        switch(host, verified)
    switch(host, profile, gate=Gate.HEALTHY)
    assert not host.state.verified
    before, running = rendering(host), host.running
    work = search(host)
    with pytest.raises(SlotFault, match=f"no way back to {LAYOUT.unit(profile)}, which runs"):
        work.check()
    outcome = work.run()
    assert (str(outcome.end), host.running, host.open) == ("untouched", running, True)
    assert "there is no way back" in outcome.failures[0].message
    assert (rendering(host), waiting(host)) == (before, None)


def test_a_way_back_whose_files_are_gone_is_none() -> None:
    host = served()
    del host.texts[PurePosixPath("/models/a/config.json")]
    work = search(host)
    with pytest.raises(SlotFault, match="no way back: the weights of a are incomplete"):
        work.check()
    assert (str(work.run().end), host.running, host.open) == ("untouched", [LAYOUT.unit("a")], True)


def test_a_slot_that_serves_nothing_needs_no_way_back() -> None:
    host = Host(published)
    work = search(host)
    work.check()
    assert (work.before, host.running, host.mutations) == (None, [], [])


def test_the_profile_that_is_served_is_served_again_as_it_was() -> None:
    host = served(profile="b")
    before = rendering(host)
    work = search(host)
    outcome = work.run()
    host.assert_invariants()
    assert (work.found, outcome.profile_name, outcome.verified) == (SearchEnd(4480), "b", True)
    assert (host.tried[-1], rendering(host), waiting(host)) == (15616, before, None)


def test_no_client_is_served_by_a_trial() -> None:
    host = served()
    opened: list[str] = []
    launch = host.launch

    def noted(unit: FakeUnit) -> None:
        opened.append("open" if host.open else "closed")
        launch(unit)

    host.launch = noted  # type: ignore[method-assign]
    search(host).run()
    assert set(opened) == {"closed"}


def test_lengths_that_do_not_fit_are_trials() -> None:
    host = served(lambda length: None if length > 8000 else 300_000)
    work = search(host)
    work.run()
    assert (work.trials[0].kv_tokens, work.trials[0].most) == (None, 300_000)
    assert work.found == SearchEnd(4608)


def test_none_passes() -> None:
    host = served(lambda length: 1000)
    work = search(host)
    assert work.run().verified
    assert work.found == SearchEnd(None)


@pytest.mark.parametrize("fault", ["exit_at_start", "crash_loop", "device_lost", "never_ready"])
def test_an_engine_that_fails_for_another_reason_ends_it(fault: str) -> None:
    host = served()
    host.unit("b").fault = fault
    host.logs.clear()
    work = search(host)
    work_launch = host.launch

    def silent(unit: FakeUnit) -> None:
        work_launch(unit)
        if unit.name == LAYOUT.unit("b") and fault != "device_lost":
            host.logs[unit.invocation] = ("INFO loading",)

    host.launch = silent  # type: ignore[method-assign]
    outcome = work.run()
    assert (work.found, outcome.profile_name, outcome.verified) == (None, "a", True)
    assert len(host.tried) == 1


def test_a_log_that_says_nothing_of_the_cache_ends_it() -> None:
    host = served()
    launch = host.launch

    def silent(unit: FakeUnit) -> None:
        launch(unit)
        host.logs[unit.invocation] = ("INFO serving",)

    host.launch = silent  # type: ignore[method-assign]
    work = search(host)
    outcome = work.run()
    assert "does not say how many sequences fit" in outcome.failures[0].message
    assert (work.found, outcome.verified) == (None, True)


def test_a_pending_rendering_is_searched_and_stays() -> None:
    host = served(profile="b")
    waits = host.render_held("b", **NEW)
    work = search(host)
    outcome = work.run()
    assert (host.tried[0], work.found, outcome.verified) == (8192, SearchEnd(4480), True)
    assert waiting(host) == waits.to_json()
    assert host.state.fingerprint == "sha256:b-1"


@pytest.mark.parametrize("profile", ["a", "b"])
def test_killed_anywhere_the_host_goes_back_by_itself(profile: str) -> None:
    whole = served(profile=profile)
    before = rendering(whole)

    def run(host: Host) -> None:
        host.work = search(host)
        host.work.run()

    moments = killed_anywhere(whole, run, step=11)
    assert len(moments) > 27
    for number, host in moments:
        # Whoever comes first, the host that settles it or the play that collects it.
        if number % 2 and host.before is not None:
            restore(host.effects(), LAYOUT, host.before)
        recover(host)
        host.assert_invariants()
        assert (host.running, host.state.verified, host.open) == ([LAYOUT.unit(profile)], True, True), number
        if host.before is not None:
            restore(host.effects(), LAYOUT, host.before)
        assert (rendering(host), waiting(host)) == (before, None), number
        assert json.loads(rendering(host, profile).profile)["engine"]["max_model_len"] == 15616


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine__kind": "llama"}, "served by llama"),
        ({"engine__argv": ["vllm", "serve"]}, "does not name one --max-model-len"),
        ({"engine__argv": ["--max-model-len=9", "--max-model-len=9"]}, "does not name one --max-model-len"),
    ],
)
def test_a_profile_without_a_length_is_refused(changes: dict[str, object], words: str) -> None:
    host = served()
    host.render("b", **changes)
    with pytest.raises(SlotFault, match=words):
        search(host)


def test_a_profile_with_several_engines_is_refused() -> None:
    host = served()
    host.render("b", replicas=2)
    with pytest.raises(SlotFault, match=r"b has 2 replicas, and a search is about one engine; .* replicas: 1"):
        search(host)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(SlotFault, match="not rendered on this host"):
        search(served(), replace(PLAN, profile="bb"))


def test_bounds_without_a_length_are_refused() -> None:
    with pytest.raises(SlotFault, match="no multiple of 128 lies between 1025 and 1100"):
        search(served(), replace(PLAN, least=1025, most=1100)).run()


def test_each_length_with_room_is_probed_and_no_prompt_begins_like_another() -> None:
    host = served()
    work = search(host)
    work.run()
    passed = [trial for trial in work.trials if trial.passes(64)]
    assert {length for length, *_size in host.sent} == {trial.length for trial in passed}
    assert all(trial.probes == {} for trial in work.trials if trial not in passed)
    sent = [size for length, *size in host.sent if length == 4480]
    assert [tuple(size[:2]) for size in sent] == [(100, 1)] * 2 + [(100, 128)] * 64 + [(4464, 16)] * 64
    assert len({size[2] for size in sent}) == len(sent)
    near = passed[-1].probes["near_limit"]
    assert (near["requests"], near["failed"], near["prompt_tokens"], near["output_tokens"]) == (64, 0, 64 * 4464, 1024)


def test_a_length_that_a_request_fails_with_does_not_pass() -> None:
    host = served()
    host.breaks = lambda tokens: Reply(500, "EngineCore encountered an issue") if tokens > 4400 else None
    work = search(host)
    outcome = work.run()
    host.assert_invariants()
    assert work.found == SearchEnd(4352)
    (trial,) = (trial for trial in work.trials if trial.length == 4480)
    assert trial.problem == "64 of 64 requests near the limit failed: 500 EngineCore encountered an issue"
    assert (trial.probes["decode"]["failed"], trial.probes["near_limit"]["failed"]) == (0, 64)
    assert (outcome.profile_name, outcome.verified) == ("a", True)


def test_one_whose_engine_dies_of_it_is_followed_by_a_shorter_one() -> None:
    host = served()

    def dies(tokens: int) -> Reply | None:
        engine = host.engine()
        if tokens <= 4400 or engine is None:
            return None
        host.logs[engine.invocation] = ("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2 GiB.",)
        host._down(engine, "failed")
        return Reply(0, error="the connection broke")

    host.breaks = dies
    work = search(host)
    work.run()
    host.assert_invariants()
    assert work.found == SearchEnd(4352)
    (trial,) = (trial for trial in work.trials if trial.problem)
    assert "near the limit" in trial.problem
    assert trial.problem.endswith("; a card ran out of memory or of command space"), trial.problem
    assert host.running == [LAYOUT.unit("a")]


@pytest.mark.parametrize("dies", [True, False])
def test_a_card_that_is_lost_ends_the_search(dies: bool) -> None:
    host = served()

    def loses(tokens: int) -> Reply | None:
        engine = host.engine()
        if tokens <= 4400 or engine is None:
            return None
        host.logs[engine.invocation] = ("level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",)
        if dies:
            host._down(engine, "failed")
        return Reply(0, error="the connection broke")

    host.breaks = loses
    work = search(host)
    outcome = work.run()
    assert work.found is None
    assert work.trials[-1].problem.endswith("; a card was lost: a fault of driver or runtime under load")
    assert outcome.failures[0].symptom == "device_lost"
    assert api.info(host.effects(), LAYOUT)["quarantine"] is not None
    assert "4480 tokens: " in outcome.failures[0].message


def test_a_search_without_probes_asks_nothing() -> None:
    host = served()
    work = search(host, replace(PLAN, probe_timeout=0.0))
    work.run()
    assert (work.found, host.sent) == (SearchEnd(4480), [])


def test_an_engine_without_tokens_breaks_the_search_off() -> None:
    host = served()
    host.tokenizes = False
    work = search(host)
    outcome = work.run()
    assert work.found is None
    assert "probe_timeout 0 sends none" in outcome.failures[0].message


@pytest.mark.parametrize("count", [697, 700])
def test_no_prompt_begins_like_another(count: int) -> None:
    host = served()
    work = search(host)
    _ttft, _decode, probe = probes.probes(4480, 64)
    begins = [
        tuple(body["prompt"][:4])
        for turn in range(0, 640, 64)
        for body in probes.bodies(work.profile, probe, range(count), turn)
    ]
    assert len(begins) == 640
    assert len(set(begins)) == 640


@pytest.mark.parametrize("length", [2, 16, 128, 4480])
def test_no_probe_is_longer_than_the_context(length: int) -> None:
    for probe in probes.probes(length, 4):
        assert min(probe.prompt_tokens, probe.output_tokens) >= 1
        assert probe.output_tokens + probe.prompt_tokens <= length
