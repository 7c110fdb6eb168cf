# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate itself: it observes each item on the host, judges it, and saves what it has seen so far.

It acts on the host only through `GateEffects`. Only the item `restart` changes anything there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from .._benchmark.completeness import between
from .._benchmark.metrics import RequestRecord, summary
from .._benchmark.shapes import ladder
from .._evidence.watched import WatchedWork, WatchEffects
from .._slot.ask import canary as canaries
from .._slot.ask.canary import CanaryResult
from .._slot.kinds.table import kind_of
from .._slot.model.profile import BURST, CanaryCase, Profile
from .._slot.words.needle import sentences
from .._slot.words.types import Reply, SlotFault
from . import asking, items
from .client import Stream
from .items import GateItem, PromotionPlan

COMPLETIONS = "/v1/completions"
_ROUNDS = 2  # requests per stream of the ladder
_PAIRS = 3  # pairs of a cold and a warm request
_MOST_TOKENS = 512  # of an answer that should take a while
_FEW_TOKENS = 8  # of an answer whose first text matters
_LOOK_S = 1.0


class Unmeasured(Exception):
    """An item can't be observed; the text says why. observed: what was seen so far."""

    def __init__(self, why: str, observed: Mapping[str, Any] | None = None) -> None:
        super().__init__(why)
        self.observed = dict(observed or {})


class Disturbed(Exception):
    """The engine that the gate began with is no longer served, so the gate asks nothing more."""

    def __init__(self, how: str, why: str) -> None:
        super().__init__(why)
        self.how = how


@dataclass(frozen=True)
class Restarted:
    """The end of an engine's restart. before, after: the engine processes; results: of the canary afterwards."""

    verified: bool
    message: str
    before: str
    after: str
    seconds: float
    results: Sequence[CanaryResult]


class GateEffects(WatchEffects, Protocol):
    """The effects of the gate on its host."""

    def get(self, way: str, path: str) -> Reply:
        """Send a GET request. way: `frontdoor` (with the client's key) or `engine`."""

    def post(self, way: str, path: str, body: Mapping[str, Any]) -> Reply: ...

    def streams(self, bodies: Sequence[Mapping[str, Any]], look: Callable[[bool], bool]) -> list[Stream]:
        """Stream completions through the frontdoor, all at once; see `client.Client.together`."""

    def canary(self, repeats: int | None) -> tuple[Sequence[CanaryResult], str]:
        """Ask the canary; return its results, and why it was not asked to its end or was answered wrongly."""

    def restart(self) -> Restarted:
        """Start a new process of the same engine and verify it; from then on, watch that process."""

    def expected(self, name: str) -> asking.Expected:
        """Return another profile's answers on this host; raise Unmeasured if they are not known."""

    def accuracy(self, say: Callable[[str], None]) -> Mapping[str, Any]:
        """Return ``{score, threshold, questions, tasks}``; raise Unmeasured if there is no score."""

    def served(self) -> Mapping[str, Any]:
        """Return ``{profile, verified, open}`` of the slot now."""


def nothing_seen() -> dict[str, Any]:
    """Return what a gate has seen before its first item.

    before, after: the canary's answers before and after the gate; served: what the slot reported at the end.
    """
    return {"rows": [], "now": "", "before": None, "after": None, "served": None, "ended": None}


@dataclass
class PromotionGate(WatchedWork):
    """A gate on one profile."""

    noun = "gate"
    host: GateEffects
    profile: Profile
    plan: PromotionPlan
    seen: dict[str, Any] = field(default_factory=nothing_seen)
    _tokens: list[int] = field(default_factory=list)
    _turn: int = 0
    _results: Sequence[CanaryResult] = ()
    _looked: float = float("-inf")

    def run(self) -> None:
        """Run the chosen items, then ask the canary once more; what is served stays served."""
        try:
            for item in items.chosen(self.plan):
                if self._item(item)["verdict"] == items.FAILED and item.vital:
                    self._end("vital", f"{item.name} failed, so nothing else was asked")
                    break
            self._afterwards()
            self._end("complete", "all items were run")
        except Disturbed as found:
            self._end(found.how, str(found))
        self._say("")

    def _end(self, how: str, why: str) -> None:
        if self.seen["ended"] is None:
            self.seen |= {"ended": {"how": how, "why": why, "at": self.host.now()}, "served": self.host.served()}

    def _item(self, item: GateItem) -> Mapping[str, Any]:
        """Observe and judge an item, keep its row and return it."""
        self._watch()
        self._say(item.name)
        found = self._observed(item)
        if not item.replaces:
            self._watch()  # an answer of an engine that was ending proves nothing
        self.seen["rows"].append(found)
        self._say(f"{item.name} {found['verdict'].replace('_', ' ')}: {found['reason']}")
        return found

    def _observed(self, item: GateItem) -> dict[str, Any]:
        why = item.applies(self.profile)
        if why:
            return items.left_out(item, why)
        begun = self.host.monotonic()
        try:
            observed = getattr(self, f"see_{item.name}")()
            found = items.row(item, self.profile, self.plan, observed)
        except Unmeasured as error:
            found = items.unmeasured(item, str(error), error.observed)
        except (LookupError, TypeError, ValueError) as error:
            found = items.unmeasured(item, f"an answer has not the form that it must have ({error!r})", {})
        found["seconds"] = round(self.host.monotonic() - begun, 3)
        return found

    def _watch(self) -> None:
        found = self.host.gone()
        self._looked = self.host.monotonic()
        if found is not None:
            raise Disturbed(*found)

    def _afterwards(self) -> None:
        self._watch()
        self._say("canary after the gate")
        results, problem = self.host.canary(None)
        self._watch()
        wrong = [result.name for result in results if not result.passed]
        self.seen["after"] = {"ok": not problem and bool(results) and not wrong, "hashes": hashes(results)}
        if self.host.served() != {"profile": self.profile.name, "verified": True, "open": True}:
            self._end("unserved", f"{self.profile.name} is not served, verified, after the gate")
        elif not self.seen["after"]["ok"] and (self.seen["before"] or {"ok": True})["ok"]:
            why = problem or "nothing was answered"
            self._end("unserved", f"the canary failed after the gate ({why}); `b70ctl verify` replaces the engine")

    # -- what each item observes, in a method that has the item's name

    def see_models(self) -> Mapping[str, Any]:
        engine = self.profile.engine
        reply = self.host.get("frontdoor", "/v1/models")
        wanted = {"expected_id": engine.served_model_name, "expected_max_model_len": engine.max_model_len}
        try:
            name, length = kind_of(engine.kind).served(reply, engine.served_model_name)
        except SlotFault as fault:
            return {**wanted, "status": reply.status, "problem": f"{fault.message}: {fault.got}"}
        if engine.max_model_len is None:
            wanted["expected_max_model_len"] = length
        return {**wanted, "status": reply.status, "id": name, "max_model_len": length}

    def see_text(self) -> Mapping[str, Any]:
        return self._asked(asking.TEXT)

    def see_image(self) -> Mapping[str, Any]:
        return {"cases": [self._asked(case) for case in asking.pictures(self.profile)]}

    def _asked(self, case: CanaryCase) -> dict[str, Any]:
        """Ask a case as a client does: once, through the frontdoor."""
        begun = self.host.monotonic()
        body = canaries.salted(self.profile, canaries.payload(self.profile, case), self._salt())
        reply = self.host.post("frontdoor", canaries.PATH, body)
        seconds = self.host.monotonic() - begun
        try:
            result = canaries.evaluate(self.profile, case, canaries.answer(reply, self.profile, case), seconds, 1)
        except SlotFault as fault:
            result = canaries.unanswered(self.profile, case, fault.message, fault.got or "", seconds)
        return {**asking.shown(result), "finish_reason": result.finish_reason}

    def see_canary(self) -> Mapping[str, Any]:
        results, problem = self._canary()
        return {
            "repeats": self.plan.canary_repeats,
            "cases": [asking.shown(one) for one in results],
            "problem": problem,
        }

    def _canary(self) -> tuple[Sequence[CanaryResult], str]:
        """Ask the canary with all repeats. The answers after the restart are compared with these."""
        results, problem = self.host.canary(self.plan.canary_repeats)
        self._results = results
        passed = not problem and bool(results) and all(result.passed for result in results)
        self.seen["before"] = {"ok": passed, "hashes": hashes(results)}
        return results, problem

    def _before(self) -> Sequence[CanaryResult]:
        """Return the answers from before the restart; raise Unmeasured if the canary does not pass."""
        if not self._results:
            self._canary()
        if not self.seen["before"]["ok"]:
            raise Unmeasured("the canary does not pass")
        return self._results

    def see_same_answers(self) -> Mapping[str, Any]:
        name = self.profile.canary.same_answers_as
        results = self._before()
        return asking.compared(self.profile, results, name, self.host.expected(name))

    def see_logprobs(self) -> Mapping[str, Any]:
        cases = asking.texts(self.profile)
        wrong, values = [], 0
        for case in cases:
            body = canaries.payload(self.profile, case) | {"logprobs": True, "top_logprobs": 1}
            reply = self.host.post("frontdoor", canaries.PATH, canaries.salted(self.profile, body, self._salt()))
            count, problem = asking.logprobs(reply)
            values += count
            if problem:
                wrong.append({"case": case.name, "problem": problem})
        return {"answers": len(cases), "values": values, "wrong": wrong}

    def see_limit(self) -> Mapping[str, Any]:
        limit = self._context()
        rows = []
        for way, prompt in (("frontdoor", limit - 1), ("frontdoor", limit + 1), ("engine", limit + 1)):
            body = self._completion(prompt, 1) | {"stream": False}
            del body["stream_options"]
            reply = self.host.post(way, COMPLETIONS, body)
            rows.append({"way": way, "prompt_tokens": prompt, "status": reply.status, **asking.refusal(reply)})
            self._watch()
        return {"max_model_len": limit, "requests": rows}

    def see_overload(self) -> Mapping[str, Any]:
        count = self.profile.frontdoor.max_active_generations + 1
        queued = 0

        def look(begun: bool) -> bool:
            nonlocal queued
            queued = max(queued, self._door().get("queued_generations") or 0)
            self._heed()
            return False

        bodies = [self._completion(*self._long_answer()) for _number in range(count)]
        before = self._quiet()
        streams = self._streams(bodies, look)
        rows = [
            {"status": one.status, "code": one.code, "error": one.error, "retry_after": one.retry_after}
            | {"seconds": round(one.ended_s - one.started_s, 4)}
            for one in streams
        ]
        ends = [one.ended_s for one in streams if one.status == 200]
        together = bool(ends) and max(one.started_s for one in streams) < min(ends)
        return {"requests": rows, "queued_most": queued, "overlapped": together, "others": self._others(before, count)}

    def see_cancel(self) -> Mapping[str, Any]:
        count = self.profile.frontdoor.max_active_generations
        active, begun = None, self.host.monotonic()

        def look(all_begun: bool) -> bool:
            nonlocal active, begun
            if all_begun:
                active, begun = self._door().get("active_generations"), self.host.monotonic()
            else:
                self._heed()
            return all_begun

        # Nobody waits for these answers to end.
        bodies = [self._completion(*self._long_answer(self._context())) for _number in range(count)]
        before = self._quiet()
        streams = self._streams(bodies, look)
        freed, left = None, None
        while freed is None and self.host.monotonic() - begun <= self.plan.cancel_limit_s:
            left = self._door().get("active_generations")
            if left == 0:
                freed = round(self.host.monotonic() - begun, 3)
            else:
                self.host.sleep(0.05)
        again = self._streams([self._completion(8, 1)], self._look)[0]
        return {
            "streams": count,
            "interrupted": sum(one.begun and one.error == "left" for one in streams),
            "active_before": active,
            "freed_s": freed,
            "active_after": left,
            "status_after": again.status,
            "error_after": again.error,
            "others": self._others(before, count + 1),
        }

    def see_ttft(self) -> Mapping[str, Any]:
        context = self._context()
        before, rows = self._quiet(), []
        for tokens in items.lengths(context):
            self._say(f"ttft: {tokens} tokens")
            # A single token may have no text of its own.
            one = self._streams([self._completion(tokens, _FEW_TOKENS)], self._look)[0]
            figures = {"counted_tokens": one.prompt_tokens, "ttft_s": asking.rounded(one.ttft_s)}
            rows.append({"tokens": tokens, **figures, "error": one.error})
        return {"max_model_len": context, "prompts": rows, "others": self._others(before, len(rows))}

    def see_prefix_cache(self) -> Mapping[str, Any]:
        tokens = min(8192, self._context() * 3 // 4)
        before, rows = self._quiet(), []
        for _pair in range(_PAIRS):
            body = self._completion(tokens, _FEW_TOKENS)
            row: dict[str, Any] = {"error": ""}
            for which in ("cold", "warm"):
                hits = asking.cache_hits(self.profile, self.host.get("engine", "/metrics").text)
                one = self._streams([body], self._look)[0]
                now = asking.cache_hits(self.profile, self.host.get("engine", "/metrics").text)
                row |= {
                    f"{which}_s": asking.rounded(one.ttft_s),
                    f"{which}_sha256": hashlib.sha256(one.text.encode()).hexdigest(),
                    f"hits_{which}": None if hits is None or now is None else round(now - hits),
                    "error": row["error"] or one.error,
                }
            rows.append(row)
        return {"prompt_tokens": tokens, "rounds": rows, "others": self._others(before, 2 * _PAIRS)}

    def see_ladder(self) -> Mapping[str, Any]:
        context = self._context()
        prompt = min(self.plan.prompt_tokens, context // 2)
        output = min(self.plan.output_tokens, context - prompt, self._cap())
        # The first requests of a kind are slow for reasons that later requests do not have.
        before, sent = self._quiet(), 1
        self._streams([self._completion(prompt, output)], self._look)
        steps = []
        for count in ladder(self.profile.frontdoor.max_active_generations):
            self._say(f"ladder: {count} streams")
            records: list[RequestRecord] = []
            for _round in range(_ROUNDS):
                bodies = [self._completion(prompt, output) for _number in range(count)]
                records += [asking.record(one, prompt, output) for one in self._streams(bodies, self._look)]
                sent += count
            steps.append({"streams": count, **summary(records)})
        size = {"prompt_tokens": prompt, "output_tokens": output, "rounds": _ROUNDS}
        return {**size, "steps": steps, "others": self._others(before, sent)}

    def see_restart(self) -> Mapping[str, Any]:
        before = {one.name: one for one in self._before() if one.name != BURST}
        done = self.host.restart()
        after = {one.name: one for one in done.results if one.name != BURST and one.profile == self.profile.name}
        # A case whose answer varies from one repeat to the next can't be compared.
        varying = {one.name for one in (*before.values(), *after.values()) if not one.steady}
        steady = [name for name, one in before.items() if one.sha256 and name not in varying]
        rows = [
            {"case": name, "before": before[name].sha256, "after": after[name].sha256 if name in after else ""}
            for name in steady
        ]
        return {
            "verified": done.verified,
            "problem": "" if done.verified else done.message,
            "before": done.before,
            "after": done.after,
            "seconds": round(done.seconds, 3),
            "cases": rows,
            "unsteady": [name for name in before if name not in steady],
        }

    def see_accuracy(self) -> Mapping[str, Any]:
        return self.host.accuracy(lambda text: self._say(f"accuracy: {text}"))

    # -- what they share

    def _heed(self) -> None:
        """Check at most once a second that the engine is still the same; what this raises cuts the connections."""
        if self.host.monotonic() - self._looked >= _LOOK_S:
            self._watch()

    def _look(self, begun: bool) -> bool:
        self._heed()
        return False

    def _streams(self, bodies: Sequence[Mapping[str, Any]], look: Callable[[bool], bool]) -> list[Stream]:
        # Watch now, so that `look` need not do it at once: a short answer would end meanwhile.
        self._watch()
        found = self.host.streams(bodies, look)
        self._watch()
        return found

    def _door(self) -> Mapping[str, Any]:
        """Return the `frontdoor` part of the frontdoor's /status; empty if it can't be read."""
        with suppress(ValueError, LookupError, TypeError):
            part = json.loads(self.host.get("frontdoor", "/status").text)["frontdoor"]
            return part if isinstance(part, Mapping) else {}
        return {}

    def _quiet(self) -> Mapping[str, Any]:
        """Wait at most `quiet_s` until no generation runs, and return the frontdoor's counts."""
        ends = self.host.monotonic() + self.plan.quiet_s
        while (door := self._door()).get("active_generations") != 0 and self.host.monotonic() < ends:
            self._say("waiting for requests of other clients")
            self.host.sleep(_LOOK_S)
            self._watch()
        return door

    def _others(self, before: Mapping[str, Any], sent: int) -> dict[str, Any]:
        """Return the generations of other clients at `before`, and their requests since then."""
        return between(before, self._door(), sent)

    def _salt(self) -> str:
        self._turn += 1
        return f"gate-{self.host.monotonic():.6f}-{self._turn}"

    def _context(self) -> int:
        if self.profile.engine.max_model_len is None:
            raise Unmeasured("the profile names no max_model_len")
        return self.profile.engine.max_model_len

    def _cap(self) -> int:
        return self.profile.frontdoor.max_tokens_cap or self._context()

    def _long_answer(self, most: int = _MOST_TOKENS) -> tuple[int, int]:
        """Return the tokens of a short prompt, and of an answer that is still under way when all have begun."""
        prompt = min(16, self._context() // 4)
        return prompt, min(most, self._context() - prompt, self._cap())

    def _completion(self, tokens: int, output: int) -> dict[str, Any]:
        """Return a streamed completion whose prompt has so many tokens and is in no cache.

        On vLLM its answer has exactly `output` tokens.
        """
        prompt = self._prompt(tokens)
        body = asking.completion(self.profile, prompt, output)
        return canaries.salted(self.profile, body, self._salt())

    def _prompt(self, tokens: int) -> list[int]:
        if not self._tokens:
            text = " ".join(sentences(400, self.profile.canary.seed))
            engine = self.profile.engine
            body = kind_of(engine.kind).tokenize(engine.served_model_name, text)
            self._tokens = [] if body is None else asking.tokens(self.host.post("engine", "/tokenize", body))
        if not self._tokens:
            raise Unmeasured("the engine counts no tokens (/tokenize)")
        self._turn += 1
        begin = self._turn * 7 % len(self._tokens)
        times = (begin + tokens) // len(self._tokens) + 1
        return (self._tokens * times)[begin : begin + tokens]


def hashes(results: Sequence[CanaryResult]) -> dict[str, str]:
    """Return the hash of each case that can be compared: not of the burst, nor of cases whose repeats differ."""
    return {one.name: one.sha256 for one in results if one.sha256 and one.steady and one.name != BURST}
