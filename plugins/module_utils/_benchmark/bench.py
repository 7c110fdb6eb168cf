# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark from its first canary to its record. It acts on the host only through `BenchmarkEffects`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .._evidence.record import make
from .._slot.model.profile import BURST
from . import comparison, shapes
from .comparison import COLD, ENGINE, FRONTDOOR, WARM, Band
from .completeness import between, others
from .generators import GeneratorError, GeneratorLoad
from .metrics import RequestRecord, summary
from .run import Tool

Measured = list[RequestRecord]
_WARM_UP_TOKENS = 64
_SEEDS = 2**31
# Keeps the seeds of different numbers of streams apart, and those of a second try.
_APART = 7919
_AGAIN = 104729


class EngineGone(Exception):
    """The engine being measured is no longer served, so the rest is not measured; the text says why."""


class BenchmarkError(Exception):
    """Nothing can be measured here now; the text says why and what to do."""


@dataclass(frozen=True)
class BenchmarkEffects:
    """The effects of a benchmark on its host.

    :param info: returns what is served, as `_slot.api.info` does.
    :param verify: asks the canary of what is served, as `b70ctl verify` does, and returns the same result.
    :param profile: returns the resolved profile of a name.
    :param measure: runs the generator, and calls the last argument meanwhile; an exception from that ends the
        generator.
    :param moved: returns why clients no longer get this engine process of `info`; empty while they do.
    :param heed: raises ToldToEndFault if this process was told to end.
    :param version: returns the version of a tool; engine_version: of the engine of a stack's folder.
    :param door: returns the part `frontdoor` of the frontdoor's /status; empty if it can't be read.
    :param baseline: returns the record that a person chose for a profile, a class of host and a generator.
    :param now: returns the time as ISO 8601.
    """

    info: Callable[[], Mapping[str, Any]]
    verify: Callable[[str], Mapping[str, Any]]
    profile: Callable[[str], Mapping[str, Any]]
    measure: Callable[[Tool, GeneratorLoad, Callable[[str], None], Callable[[], None]], Measured]
    moved: Callable[[Mapping[str, Any]], str]
    heed: Callable[[], None]
    version: Callable[[Tool], str]
    engine_version: Callable[[str, str], str]
    host: Callable[[], Mapping[str, Any]]
    baseline: Callable[[str, str, str], Mapping[str, Any] | None]
    door: Callable[[], Mapping[str, Any]]
    now: Callable[[], str]
    say: Callable[[str], None]


@dataclass(frozen=True)
class BenchmarkOrder:
    """The order for a benchmark: what to measure, and what makes it fail.

    :param streams: empty for a ladder up to what the profile admits.
    :param profile: the profile that must be served; empty for any.
    :param evidence: what the catalogue has recorded, by profile.
    :param fail_on_regression: fail if figures are worse than those of the baseline.
    :param fail_without_comparison: fail unless the baseline has all of the figures.
    """

    shapes: tuple[shapes.RequestShape, ...]
    streams: tuple[int, ...]
    targets: tuple[str, ...]
    prefixes: tuple[str, ...]
    generator: str
    tools_python: str
    user: str
    frontdoor_url: str
    api_key: str
    limit_s: float
    band: Band
    name: str
    slot: str
    seed: int
    profile: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    fail_on_regression: bool = False
    fail_without_comparison: bool = False


def served(info: Mapping[str, Any], wanted: str = "") -> str:
    """Return the profile that is served and verified; raise BenchmarkError if there is none, or not the wanted one."""
    if not (info["verified"] and info["open"] and info["profile"]):
        why = info["reason"] or f"{info['profile'] or 'nothing'} runs and is not verified"
        raise BenchmarkError(
            f"nothing verified is served in slot {info['slot']}: {why}. A figure of an engine that nobody has verified "
            "is worth nothing: run switch.yml, or b70ctl verify, first"
        )
    if wanted not in ("", info["profile"]):
        raise BenchmarkError(f"{info['profile']} is served in slot {info['slot']} by now, and not {wanted}")
    return str(info["profile"])


def plan(
    wanted: BenchmarkOrder, fx: BenchmarkEffects
) -> tuple[Mapping[str, Any], list[shapes.RequestShape], list[int], list[dict[str, Any]]]:
    """Return the served profile, what is measured, and what is left out.

    :raises BenchmarkError: if nothing is served or nothing is left to measure.
    """
    profile = fx.profile(served(fx.info(), wanted.profile))
    return profile, *fitting(wanted, profile)


def fitting(
    wanted: BenchmarkOrder, profile: Mapping[str, Any]
) -> tuple[list[shapes.RequestShape], list[int], list[dict[str, Any]]]:
    """Return what is measured of a profile, and what is left out; raise BenchmarkError if nothing can be measured."""
    if profile["engine"].get("task", "generate") != "generate":
        raise BenchmarkError(
            f"{profile['name']} generates no text ({profile['engine']['task']}): there is no benchmark"
        )
    remote = profile["engine"].get("remote")
    if remote:
        # Without the model's tokenizer nobody knows how long a prompt is, and the vendor bills each one.
        raise BenchmarkError(f"{profile['name']} runs elsewhere, at {remote['base_url']}: measure it there")
    kind = profile["engine"].get("kind", "vllm")
    if wanted.generator == "vllm" and kind != "vllm":
        raise BenchmarkError(
            f"{profile['name']} is served by {kind}, whose stack has no `vllm bench serve`: use guidellm "
            "(benchmark_generator), which counts tokens with a tokenizer.json beside the model's files"
        )
    kept, streams, out = shapes.chosen(wanted.shapes, wanted.streams, shapes.limits_of(profile))
    if not kept or not streams:
        why = "; ".join(f"{item.get('shape') or item['streams']}: {item['reason']}" for item in out)
        raise BenchmarkError(f"nothing is left to measure for {profile['name']}: {why}. See benchmark_shapes")
    return kept, streams, out


def no_baseline(profile: str, host_class: str) -> str:
    """Return why figures can't be judged, and what to do."""
    return (
        f"there is nothing to compare with: benchmark_baselines names no record of {profile} on a host of the class "
        f"{host_class!r}. Run playbooks/benchmark.yml where it is served, judge its figures, and name the record there"
    )


def not_covered(baseline: str, missing: Sequence[str]) -> list[str]:
    """Return what a baseline lacks, if it lacks anything."""
    words = "name one that was measured with these shapes and streams"
    return [f"the baseline {baseline} has no figure of {', '.join(missing)}: {words}"] if missing else []


def run(wanted: BenchmarkOrder, fx: BenchmarkEffects) -> dict[str, Any]:
    """Measure, and return the record; raise BenchmarkError if nothing can be measured."""
    profile, kept, streams, left_out = plan(wanted, fx)
    name, began = str(profile["name"]), fx.now()
    before = _asked(name, fx, "before")
    info = fx.info()
    reasons: list[str] = []
    found: dict[str, Any] = {}
    after: dict[str, Any] | None = None
    clients: dict[str, Any] = {"active": None, "requests": None}
    tool = _tool(wanted, profile)
    if before["ok"]:
        try:
            meter = _Meter(tool, fx, partial(_watch, info, fx), reasons, wanted.frontdoor_url)
            door = fx.door()
            found = _measured(wanted, profile, kept, streams, meter)
            clients = between(door, fx.door(), sum(meter.through))
            # Nobody knows how many requests a generator sent that failed.
            if not reasons and (why := others(clients)):
                reasons.append(why)
            after = _asked(name, fx, "after")
            doubts = _doubts(info, fx.info(), after)
        except EngineGone as error:
            # Something is changing what is served, and the canary would only be in its way.
            doubts = [f"the benchmark broke off, so no figure is kept: {error}"]
        if doubts:
            found = {}
        reasons = [*doubts, *reasons]
    else:
        reasons = ["the canary failed before the benchmark, so nothing was measured"]
    host = fx.host()
    data: dict[str, Any] = {
        "generator": {"name": wanted.generator, "version": fx.version(tool)},
        "seed": wanted.seed,
        "shapes": found,
        "left_out": left_out,
        "others": clients,
    }
    data["frontdoor_share"] = comparison.shares(data)
    expected = comparison.expectations(wanted.evidence.get(name), host["class"], data)
    baseline = fx.baseline(name, host["class"], wanted.generator)
    data["comparison"] = comparison.compare(data, baseline, wanted.band)
    data["expectations"] = expected
    data["summary"] = comparison.headline(data)
    if wanted.fail_on_regression:
        reasons += data["comparison"]["regressions"]
    if wanted.fail_without_comparison and found:
        missing = data["comparison"]["missing"]
        reasons += not_covered(baseline["id"], missing) if baseline else [no_baseline(name, host["class"])]
    reasons += comparison.lacking(data)
    engine = profile["engine"]["kind"]
    return make(
        "benchmark",
        profile=name,
        fingerprint=info["fingerprint"],
        slot=wanted.slot,
        stack=profile["stack"]["id"],
        engine={"name": engine, "version": fx.engine_version(profile["stack"]["dir"], engine)},
        host={"name": wanted.name, **host},
        began_at=began,
        ended_at=fx.now(),
        verdict="failed" if reasons else "passed",
        reasons=reasons,
        canary={"before": before, "after": after},
        data=data,
    )


def _asked(name: str, fx: BenchmarkEffects, when: str) -> dict[str, Any]:
    fx.say(f"canary {when} the benchmark")
    result = fx.verify(name)
    fx.heed()
    cases = [case for case in result.get("canary") or [] if case["profile"] == name]
    ok = not result["failed"] and bool(cases) and all(case["passed"] for case in cases)
    # The burst has the hash of the answer that came last, so another one each time.
    hashes = {case["name"]: case["sha256"] for case in cases if case["sha256"] and case["name"] != BURST}
    return {"ok": ok, "hashes": hashes}


def _watch(before: Mapping[str, Any], fx: BenchmarkEffects) -> None:
    """Raise if a switch has begun or the engine is another process: the load must not disturb what comes next."""
    fx.heed()
    why = fx.moved(before.get("engine") or {})
    if why:
        raise EngineGone(why)


def _same_engine(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    one, two = ((info.get("engine") or {}).get("invocation_id") for info in (before, after))
    return one is not None and one == two


def _doubts(before: Mapping[str, Any], after: Mapping[str, Any], canary: Mapping[str, Any]) -> list[str]:
    if not _same_engine(before, after):
        return ["another engine process served at the end than at the beginning, so no figure is kept"]
    return [] if canary["ok"] else ["the canary failed after the benchmark, so no figure is kept"]


def _tool(wanted: BenchmarkOrder, profile: Mapping[str, Any]) -> Tool:
    if wanted.generator == "guidellm":
        return Tool("guidellm", wanted.tools_python, wanted.user)
    return Tool("vllm", profile["engine"]["argv"][0], wanted.user, profile["engine"]["env"])


@dataclass(frozen=True)
class _Meter:
    """The generator, and the watch on the slot meanwhile.

    reasons: why something could not be measured; through: the requests of each load that went through the frontdoor.
    """

    tool: Tool
    fx: BenchmarkEffects
    watch: Callable[[], None]
    reasons: list[str]
    frontdoor_url: str
    through: list[int] = field(default_factory=list)

    def ask(self, load: GeneratorLoad, what: str) -> Measured | None:
        self.watch()
        self.fx.say(what)
        if load.target == self.frontdoor_url:
            self.through.append(load.requests)
        try:
            return self.fx.measure(self.tool, load, partial(_said, self.fx, what), self.watch)
        except GeneratorError as error:
            self.reasons.append(f"{what}: {error}")
            return None


def _measured(
    wanted: BenchmarkOrder,
    profile: Mapping[str, Any],
    kept: Sequence[shapes.RequestShape],
    streams: Sequence[int],
    meter: _Meter,
) -> dict[str, Any]:
    urls = {FRONTDOOR: wanted.frontdoor_url, ENGINE: profile["engine"]["backend_url"]}
    base = GeneratorLoad(
        target=urls[ENGINE],
        model=profile["engine"]["served_model_name"],
        tokenizer=profile["model"]["path"],
        shape=kept[0],
        streams=max(streams),
        seed=wanted.seed,
        limit_s=wanted.limit_s,
    )
    prefixes = (COLD, WARM) if WARM in wanted.prefixes else (COLD,)
    found: dict[str, Any] = {}
    for number, shape in enumerate(kept):
        # The first requests of a kind are slow for reasons that later requests do not have.
        first = replace(shape, output_tokens=min(_WARM_UP_TOKENS, shape.output_tokens), rounds=1)
        warm_up = replace(base, shape=first, seed=_seed(wanted, number, 0, 0))
        if meter.ask(warm_up, f"{shape.name}, warm-up with {warm_up.streams} streams") is None:
            continue
        scenarios: dict[str, Any] = {}
        found[shape.name] = {
            **{key: getattr(shape, key) for key in ("prompt_tokens", "output_tokens", "rounds")},
            "scenarios": scenarios,
        }
        for turn, count in enumerate(streams, number):
            scenario = scenarios[f"c{count}"] = {"streams": count}
            # The way that is second finds a warmer host, so each is first in every other scenario.
            for target in wanted.targets if turn % 2 == 0 else wanted.targets[::-1]:
                seed = _seed(wanted, number, 1 + (target == ENGINE), count)
                key = wanted.api_key if target == FRONTDOOR else ""
                load = replace(base, target=urls[target], shape=shape, streams=count, seed=seed, api_key=key)
                for prefix in prefixes:
                    what = f"{shape.name} through the {target}, {prefix}, {count} streams"
                    records = meter.ask(load, what)
                    if records is not None and len(records) < load.requests:
                        # guidellm was seen to leave a request that it answered out of its report.
                        load = replace(load, seed=(load.seed + _AGAIN) % _SEEDS) if prefix == COLD else load
                        records = meter.ask(load, f"{what}, again")
                    if records is not None:
                        figures = scenario.setdefault(target, {})[prefix] = _figures(load, records)
                        meter.fx.say(f"{what}: {_shown(figures)}")
    return found


def _seed(wanted: BenchmarkOrder, shape: int, way: int, streams: int) -> int:
    """Return the seed of the prompts. Only a warm run repeats earlier prompts: those of its cold run."""
    return (wanted.seed + 3 * shape + way + _APART * streams) % _SEEDS


def _figures(load: GeneratorLoad, records: Measured) -> dict[str, Any]:
    return {**summary(records), "seed": load.seed, "records": compact(records)}


def _said(fx: BenchmarkEffects, what: str, text: str) -> None:
    fx.say(f"{what}: {text}")


def _shown(one: Mapping[str, Any]) -> str:
    rate = "no figure" if one["wall_tok_s"] is None else f"{one['wall_tok_s']:.1f} tok/s"
    first = one["ttft_s"]
    return (
        rate
        + (f", first token after {first['p50']:.3f} s" if first else "")
        + (f", {one['failed']} of {one['requests']} failed" if one["failed"] else "")
    )


def compact(records: Sequence[RequestRecord]) -> list[list[Any]]:
    """Return each request as start, first text, last text, end, tokens of both sides, error.

    Times are seconds from the first start, to the microsecond: the figures are computed again from them, and a small
    model's answer takes two milliseconds.
    """
    begun = min((record.started_s for record in records), default=0.0)

    def since(moment: float | None) -> float | None:
        return None if moment is None else round(moment - begun, 6)

    return [
        [
            *(since(moment) for moment in (one.started_s, one.first_text_s, one.last_text_s, one.ended_s)),
            one.prompt_tokens,
            one.completion_tokens,
            one.error,
        ]
        for one in records
    ]
