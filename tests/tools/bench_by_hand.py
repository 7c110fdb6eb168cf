# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Do the figures of playbooks/benchmark.yml agree with those of guidellm that a person runs by hand?

    B70_LAB=lab python tests/tools/bench_by_hand.py lab1

Needs a host of the lab that serves a model, with the environment of guidellm (playbooks/benchmark.yml --tags install),
and a quiet machine. The play and guidellm take turns (play, hand, hand, play, and so on) on the same engine, with the
same shape, streams and arguments. Each side of each run takes --seconds, so that what else runs on the machine evens
out. By hand, the engine is asked straight. Every other play measures the engine first and the frontdoor second, so that
neither is always the one that finds a warmer host.

A line for each run says how busy the machine was, and how many tokens of its prompts the engine had in its prefix
cache, without those of the canary: prompts that a run shares with an earlier one would favour it. The last lines are
the ratios, and the frontdoor's share: a machine that becomes steadily faster or slower favours neither side of a turn.
Above the limit it ends with 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testinfra.host import Host

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".cache/collections")]

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.generators import (  # noqa: E402
    GeneratorLoad,
    guidellm_argv,
    guidellm_config,
    guidellm_records,
)
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import summary  # noqa: E402
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import RequestShape  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import read  # noqa: E402
from demo import inventory_hosts  # noqa: E402
from system.product import INVENTORY, play, reach  # noqa: E402

TOOLS = "/opt/b70/evidence/bin/python"
PLACE = "/var/tmp/b70-by-hand"
STATE = "/run/b70/main/state.json"
PROFILES = "/etc/b70-vllm-slot/profiles"
LIMIT = 0.05
LIMIT_S = 1800.0
CALIBRATION_ROUNDS = 12  # fewer are mostly the start of guidellm
READ = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"
HITS = re.compile(r"^vllm:prefix_cache_hits_total\S* ([0-9.e+]+)", re.MULTILINE)


@dataclass(frozen=True)
class Side:
    """What one side of one run measured. own: guidellm's own figure, where a person reads it."""

    name: str
    tok_s: float
    ttft_s: float
    seconds: float
    own: float | None = None


class Bench:
    """One host, and what it serves."""

    def __init__(self, name: str, streams: int) -> None:
        self.name, self.streams = name, streams
        self.host: Host = reach(inventory_hosts(str(INVENTORY), name)[name])
        state = json.loads(self.host.file(STATE).content_string)
        self.profile = json.loads(self.host.file(f"{PROFILES}/{state['profile']['name']}.json").content_string)
        self.seed = int.from_bytes(os.urandom(3), "big")

    def load(self, shape: RequestShape) -> GeneratorLoad:
        self.seed += 1
        engine = self.profile["engine"]
        backend, model = engine["backend_url"], engine["served_model_name"]
        return GeneratorLoad(backend, model, self.profile["model"]["path"], shape, self.streams, self.seed, LIMIT_S)

    def hits(self) -> float:
        """Tokens of prompts that the engine has found in its prefix cache so far."""
        text = self.host.check_output("python3 -c %s %s/metrics", READ, self.profile["engine"]["backend_url"])
        return sum(float(value) for value in HITS.findall(text))

    def canary_hits(self) -> float:
        """The same of the canary alone, which a play asks twice. It has been asked before."""
        before = self.hits()
        self.host.check_output("/opt/b70/bin/b70ctl verify")
        return self.hits() - before

    def by_hand(self, shape: RequestShape) -> list[Side]:
        """guidellm as a person calls it, as the engine's user."""
        load, report = self.load(shape), f"{PLACE}/report.json"
        config = json.dumps(guidellm_config(load, report))
        user = self.profile.get("user", "b70")
        self.host.check_output("rm -rf %s && install -d -m 0700 -o %s %s", PLACE, user, PLACE)
        self.host.check_output("printf %%s %s > %s/config.json && chmod 0644 %s/config.json", config, PLACE, PLACE)
        quiet = f"HOME={PLACE} TMPDIR={PLACE} HF_HOME={PLACE}/hf HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1"
        argv = " ".join(guidellm_argv(TOOLS, f"{PLACE}/config.json"))
        self.host.check_output(f"cd {PLACE} && runuser -u {user} -- env {quiet} {argv}")
        found = json.loads(self.host.file(report).content_string)
        own = found["benchmarks"][0]["metrics"]["output_tokens_per_second"]["successful"]["mean"]
        figures = summary(guidellm_records(found, load))
        self.host.check_output("rm -rf %s", PLACE)
        return [side("by hand", figures, float(own))]

    def by_play(self, shape: RequestShape, targets: list[str]) -> list[Side]:
        """The playbook, which measures both ways."""
        keys = ("name", "prompt_tokens", "output_tokens", "rounds")
        with tempfile.TemporaryDirectory() as folder:
            given = {
                "benchmark_shapes": [{key: getattr(shape, key) for key in keys}],
                "benchmark_streams": [self.streams],
                "benchmark_targets": targets,
                "benchmark_prefixes": ["cold"],
                "evidence_dir": folder,
            }
            words = ("--limit", self.name, "--tags", "verify", "-e", json.dumps(given))
            done = play("playbooks/benchmark.yml", *words, limit_s=2 * LIMIT_S)
            if done.code:
                sys.exit(f"the play failed:\n{done.output[-4000:]}")
            records, _problems = read(Path(folder))
        record = max(records[self.name], key=lambda one: str(one["id"]))
        scenario = record["data"]["shapes"][shape.name]["scenarios"][f"c{self.streams}"]
        return [side(target, scenario[target]["cold"]) for target in targets]


def side(name: str, figures: dict[str, Any], own: float | None = None) -> Side:
    if figures["failed"] or figures["lacking"]:
        sys.exit(f"{name}: {figures['failed']} requests failed, and answers have {figures['lacking'] or 'all'}")
    return Side(name, figures["wall_tok_s"], figures["ttft_s"]["p50"], figures["wall_s"], own)


def mean(sides: list[Side], name: str) -> float:
    return statistics.mean(one.tok_s for one in sides if one.name == name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host")
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=300, help="more than a block of the cache")
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=75.0, help="of each side of each run")
    parser.add_argument("--turns", type=int, default=2, help="each is: play, hand, hand, play")
    given = parser.parse_args()
    bench = Bench(given.host, given.streams)
    shape = RequestShape("by-hand", given.prompt_tokens, given.output_tokens, CALIBRATION_ROUNDS)
    (first,) = bench.by_hand(shape)
    shape = replace(shape, rounds=max(2, math.ceil(CALIBRATION_ROUNDS * given.seconds / first.seconds)))
    print(f"{bench.profile['name']} on {given.host}: {shape.rounds} rounds of {given.streams} streams", flush=True)
    canary = bench.canary_hits()
    sides: list[Side] = []
    shares: dict[str, list[float]] = {"first": [], "second": []}
    turns: list[float] = []
    for turn in range(given.turns):
        begun = len(sides)
        for place, way in enumerate(("play", "hand", "hand", "play")):
            targets = ["frontdoor", "engine"] if place == 0 else ["engine", "frontdoor"]
            before = bench.hits()
            found = bench.by_play(shape, targets) if way == "play" else bench.by_hand(shape)
            cached = bench.hits() - before - (2 * canary if way == "play" else 0)
            load = os.getloadavg()[0]
            sides += found
            if way == "play":
                rates = {one.name: one.tok_s for one in found}
                shares["second" if place else "first"].append(rates["frontdoor"] / rates["engine"])
            for one in found:
                said = "" if one.own is None else f", {one.own:.1f} as guidellm says"
                text = f"{one.tok_s:8.2f} tok/s{said}, first token {one.ttft_s:.4f} s, {one.seconds:.0f} s"
                print(f"turn {turn + 1} {one.name:9} {text}; load {load:.1f}, {cached:g} tokens cached", flush=True)
        hand, engine = (mean(sides[begun:], name) for name in ("by hand", "engine"))
        turns.append(engine / hand)
    hand, engine, door = (mean(sides, name) for name in ("by hand", "engine", "frontdoor"))
    agreement = statistics.median(turns)
    each = ", ".join(f"{ratio:.4f}" for ratio in turns)
    print(f"play / by hand: {agreement:.4f}, the median of the turns' {each} (limit {LIMIT:g} around 1)")
    orders = ", ".join(f"{statistics.median(share):.4f} where it was {order}" for order, share in shares.items())
    print(f"frontdoor / engine: {door / engine:.4f} ({orders}); frontdoor / by hand: {door / hand:.4f}")
    return int(abs(agreement - 1) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
