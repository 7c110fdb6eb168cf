# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in memory on which the gate is run: an engine and its frontdoor, sound unless a test bends them.

What they answer has the form of what vLLM 0.32 and the frontdoor answered in the lab, 2026-11-23.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._promotion.asking import Expected
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.client import Stream
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.gate import PromotionGate, Restarted, Unmeasured
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.items import PromotionPlan
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import canary
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask.canary import Answer, CanaryResult
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import Profile, parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply, ToldToEndFault
from unit.plugins.module_utils._slot.fake_host import profile_data

TOKEN_S = 0.01
ANSWERS = {"say OK": "OK", "3 + 4": "7"}
TOO_LONG = (
    "This model's maximum context length is {limit} tokens. However, your prompt contains at least {asked} input "
    "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
    "(parameter=input_tokens, value={asked})"
)
BUSY = {
    "message": "all 2 generation slots are in use; try again shortly",
    "type": "service_unavailable",
    "code": "busy",
}
METRICS = """# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0",model_name="a"}} {hits}
vllm:prefix_cache_hits_created{{engine="0",model_name="a"}} 1.7954487784549448e+09
vllm:external_prefix_cache_hits_total{{engine="0",model_name="a"}} 0.0
"""


def profile(**changes: Any) -> Profile:
    """A profile with a prefix cache that takes pictures; changes: as for `profile_data`."""
    given = {"modalities": ["text", "image"], "canary__cached": True, **changes}
    return parse_profile(json.dumps(profile_data("a", **given)), "a.json")


class Door:
    """gate.GateEffects. Each attribute that is no count is a fault, or a property of the host."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self.mono, self.saved = profile, 0.0, 0
        self.served_id, self.length = profile.engine.served_model_name, profile.engine.max_model_len
        self.logprob: Any = -1.2874520507466514e-05
        self.admits = profile.frontdoor.max_active_generations
        self.refusal_s, self.refusal_code = 0.007, "busy"
        self.refuses_by = 503
        self.limit = profile.engine.max_model_len or 0
        self.named_limit = self.limit
        self.wrong_limit_status = 400
        self.leaks = False
        self.strangers = 0  # requests of other clients with each of ours
        self.stranger_active = 0
        self.counts_hits, self.caches = True, True
        self.token_s = TOKEN_S
        self.late_s = 0.0  # of a request that is refused
        self.answers = dict(ANSWERS)
        self.varying: tuple[str, ...] = ()  # cases whose repeats differ
        self.varying_after: tuple[str, ...] = ()  # the same after the restart
        self.warm_text = "0"
        self.picture = "It is {colour}."
        self.after_restart: dict[str, str] = {}
        self.restarts = True
        self.score: Any = 0.97
        self.others: Expected | None = None
        self.gone_after: int | None = None  # looks
        self.gone_how = ("replaced", "the engine of a was stopped or replaced; the slot: switching")
        self.told_after: int | None = None
        self.broken: str = ""  # a method that raises
        self.tells_counts = True
        self.serves_after = True
        self.looks = self.requests = 0
        self.hits = 0.0
        self.known: set[str] = set()
        self.active = self.queued = 0
        self.cut: list[int] = []

    # -- the clock

    def monotonic(self) -> float:
        return self.mono

    def now(self) -> str:
        return f"2026-06-07T09:{int(self.mono) // 60 % 60:02}:{int(self.mono) % 60:02}Z"

    def sleep(self, seconds: float) -> None:
        self.mono += seconds

    # -- the slot

    def gone(self) -> tuple[str, str] | None:
        self.looks += 1
        if self.told_after is not None and self.looks > self.told_after:
            raise ToldToEndFault
        return self.gone_how if self.gone_after is not None and self.looks > self.gone_after else None

    def served(self) -> Mapping[str, Any]:
        return {"profile": "a", "verified": self.serves_after, "open": self.serves_after}

    def canary(self, repeats: int | None) -> tuple[Sequence[CanaryResult], str]:
        results = []
        for case in self.profile.canary.cases:
            one = canary.evaluate(self.profile, case, Answer(self.answers[case.prompt], "stop"), 0.02, 1)
            results.append(replace(one, attempts=repeats or 3, steady=case.name not in self.varying))
        wrong = [one.name for one in results if not one.passed]
        return results, f"canary case {wrong[0]} failed" if wrong else ""

    def restart(self) -> Restarted:
        self.answers |= self.after_restart
        self.varying += self.varying_after
        if not self.restarts:
            self.gone_after, self.serves_after = self.looks, False
        self.mono += 58.6
        results = self.canary(None)[0] if self.restarts else ()
        return Restarted(self.restarts, "phase health: it is silent", "1" * 32, "2" * 32, 58.6, results)

    def expected(self, name: str) -> Expected:
        if self.others is None:
            raise Unmeasured(f"nothing on this host says what {name} answers now")
        return self.others

    def accuracy(self, say: Callable[[str], None]) -> Mapping[str, Any]:
        say("3 of 40 questions answered")
        return {"score": self.score, "threshold": 0.9, "questions": 40, "tasks": {"arithmetic": self.score}}

    def save(self, seen: Mapping[str, Any]) -> None:
        json.dumps(seen, allow_nan=False)
        self.saved += 1

    # -- HTTP

    def get(self, way: str, path: str) -> Reply:
        if path == "/status":
            counts = {
                "active_generations": self.active + self.stranger_active,
                "queued_generations": self.queued,
                "total_generation_requests": self.requests,
            }
            return Reply(200, json.dumps({"frontdoor": counts if self.tells_counts else {}}))
        if path == "/metrics":
            return Reply(200, METRICS.format(hits=self.hits) if self.counts_hits else "# nothing")
        return Reply(200, json.dumps({"data": [{"id": self.served_id, "max_model_len": self.length}]}))

    def post(self, way: str, path: str, body: Mapping[str, Any]) -> Reply:
        if self.broken and self.broken in path:
            return Reply(500, "Internal Server Error")
        if path == "/tokenize":
            return Reply(200, json.dumps({"count": 200, "max_model_len": self.length, "tokens": list(range(300, 500))}))
        self.mono += 0.02
        if path == "/v1/completions":
            asked = len(body["prompt"])
            if asked >= self.limit:
                words = TOO_LONG.format(limit=self._named(), asked=asked)
                return Reply(
                    self.wrong_limit_status, json.dumps({"error": {"message": words, "type": "BadRequestError"}})
                )
            return Reply(200, json.dumps({"choices": [{"text": "0"}]}))
        return Reply(200, json.dumps(self._chat(body)))

    def _named(self) -> int:
        """The limit that a refusal names: where it is, unless a test has it name another."""
        return self.named_limit if self.named_limit != self.profile.engine.max_model_len else self.limit

    def _chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        content = body["messages"][0]["content"]
        text = "A lighthouse shows ships the way."
        if isinstance(content, list):
            url = content[1]["image_url"]["url"]
            colour = next(
                one for one in ("red", "blue") if canary.image_url({"colour": one, "width": 256, "height": 192}) == url
            )
            text = self.picture.format(colour=colour)
        row = {"token": "A", "logprob": self.logprob, "bytes": [65]}
        logprobs = {"content": [{**row, "top_logprobs": [row]}]} if body.get("logprobs") else None
        choice = {"message": {"role": "assistant", "content": text}, "logprobs": logprobs, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": 17, "completion_tokens": 2}}

    def streams(self, bodies: Sequence[Mapping[str, Any]], look: Callable[[bool], bool]) -> list[Stream]:
        """All at once: those for whom there is room run, the others are refused or wait for the first that ends."""
        begun, found = self.mono, []
        self.requests += len(bodies) + self.strangers
        queues = self.profile.frontdoor.queue_timeout_s > 0
        self.active = min(len(bodies), self.admits)
        self.queued = max(0, len(bodies) - self.admits) if queues else 0
        for number, body in enumerate(bodies):
            if number >= self.admits and not queues:
                found.append(
                    Stream(
                        status=self.refuses_by,
                        started_s=begun + self.late_s,
                        ended_s=begun + self.late_s + self.refusal_s,
                        error=str(BUSY["message"]),
                        code=self.refusal_code,
                        retry_after="1",
                    )
                )
            else:
                found.append(self._stream(body, begun))
        self.mono += 0.001
        left = look(True) or look(True)
        self.queued = 0
        if left:
            self.cut.append(len(bodies))
            for one in found:
                one.error, one.ended_s = "left", self.mono
            self.active = 1 if self.leaks else 0
            return found
        self.mono = max([self.mono, *(one.ended_s for one in found)])
        self.active = 0
        return found

    def _stream(self, body: Mapping[str, Any], begun: float) -> Stream:
        prompt, salt = len(body["prompt"]), f"{body['cache_salt']} {body['prompt'][:8]}"
        warm = self.caches and salt in self.known
        self.known.add(salt)
        if warm:
            self.hits += prompt - prompt % 16
        first = begun + 0.01 + (0 if warm else prompt * 0.0005)
        last = first + (body["max_tokens"] - 1) * self.token_s
        return Stream(
            status=200,
            started_s=begun,
            begun=True,
            first_s=first,
            last_s=last,
            ended_s=last,
            prompt_tokens=prompt,
            completion_tokens=body["max_tokens"],
            text=(self.warm_text if warm else "0") * body["max_tokens"],
        )


def run(door: Door, plan: PromotionPlan | None = None) -> dict[str, Any]:
    """What the gate has seen on this host."""
    gate = PromotionGate(door, door.profile, plan or PromotionPlan())
    try:
        gate.run()
    except ToldToEndFault as fault:
        gate.break_off("told", fault.message)
    return gate.seen


__all__ = ["Door", "profile", "run"]
