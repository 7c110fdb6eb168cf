# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's effects on its host; see gate.GateEffects."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._evidence.job import Commission
from .._evidence.store import Store, StoreError
from .._slot.ask import canary
from .._slot.ask.baseline import baseline_file, how_to_record, parse_baseline
from .._slot.ask.canary import CanaryResult
from .._slot.do.driver import Driver
from .._slot.face import api
from .._slot.host.caller import caller
from .._slot.look.frontdoor import read_state
from .._slot.look.observe import load_profile
from .._slot.model.profile import Profile
from .._slot.words.types import Reply, Request, SlotFault, ToldToEndFault
from .._soak import watching
from .accuracy import AccuracyError, asked_of, measure
from .asking import Expected
from .client import Client, Stream
from .gate import COMPLETIONS, Disturbed, Restarted, Unmeasured
from .items import PromotionPlan

_LOCK_LIMIT_S = 600.0
_LOOK_S = 1.0
_GET_LIMIT_S = 5.0  # the slot is not watched meanwhile, and systemd kills a process that heeds no signal


class GateHost(watching.WatchingHost):
    """The host of a gate. key: that of a client of the frontdoor, or empty."""

    def __init__(self, told: Commission, watched: watching.Served, plan: PromotionPlan, key: str) -> None:
        super().__init__(told, watched)
        self._key = key
        engine = watched.profile.engine.backend_url
        self._ways = {
            "frontdoor": Client(told.layout.frontdoor_url, key, plan.request_timeout_s),
            "engine": Client(engine, "", plan.request_timeout_s),
        }

    def gone(self) -> tuple[str, str] | None:
        self.sleep(0)
        return super().gone() or self._closed()

    def _closed(self) -> tuple[str, str] | None:
        """Return why the slot is closed, or None.

        A switch closes the frontdoor and drains it before it stops the engine; requests of the gate would be in its
        way.
        """
        state = read_state(self._fx, self._layout)
        if state is not None and (state.phase != "serving" or not state.open):
            return "replaced", f"slot {self._layout.slot} is closed: {state.reason or state.phase}"
        return None

    def _watch(self) -> None:
        found = self.gone()
        if found is not None:
            raise Disturbed(*found)

    def get(self, way: str, path: str) -> Reply:
        return replace(self._ways[way], limit_s=_GET_LIMIT_S).get(path)

    def post(self, way: str, path: str, body: Mapping[str, Any]) -> Reply:
        """Post a request. While waiting for the answer, watch the slot and heed a signal to end."""
        replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        ask = self._ways[way]
        threading.Thread(target=lambda: replies.put(ask.post(path, body)), daemon=True).start()
        while True:
            try:
                return replies.get(timeout=_LOOK_S)
            except queue.Empty:
                self._watch()

    def streams(self, bodies: Sequence[Mapping[str, Any]], look: Callable[[bool], bool]) -> list[Stream]:
        return self._ways["frontdoor"].together(COMPLETIONS, bodies, look)

    def canary(self, repeats: int | None) -> tuple[Sequence[CanaryResult], str]:
        return watching.ask(self._fx, self._layout, self._watched, repeats=repeats)

    def restart(self) -> Restarted:
        before, begun = self._watched, self.monotonic()
        request = Request(
            slot=self._layout.slot,
            profile=before.profile.name,
            restart=True,
            lock_timeout_s=_LOCK_LIMIT_S,
            switch_id=api.new_switch_id(self.now()),
            who=caller(self._told.given["requested_by"]),
            why="restart of the production gate",
        )
        outcome = Driver(self._fx, self._layout, request).run()
        if any(failure.told for failure in outcome.failures):
            raise ToldToEndFault
        served = False
        try:
            found = watching.served(self._fx, self._layout)
            served = outcome.verified and found.profile.name == before.profile.name
            # Even if the switch went back, watch what is served now.
            self._watched = found if found.profile.name == before.profile.name else before
        except SlotFault:
            pass
        return Restarted(
            verified=served and not outcome.failures,
            message="; ".join(failure.describe() for failure in outcome.failures) or f"it ended {outcome.end}",
            before=before.invocation_id,
            after=self._watched.invocation_id,
            seconds=self.monotonic() - begun,
            results=outcome.canary,
        )

    def expected(self, name: str) -> Expected:
        try:
            other = load_profile(self._fx, self._layout, name)
            file = baseline_file(self._layout, name)
            baseline = parse_baseline(self._fx.files.read(file), str(file), name)
        except SlotFault as fault:
            raise Unmeasured(fault.message) from fault
        requests = {case.name: canary.request_hash(other, case) for case in other.canary.cases}
        source, hashes = self._recorded(other)
        if baseline is not None and baseline.fingerprint == other.fingerprint:
            kept = {case: one.sha256 for case, one in baseline.cases.items() if one.request == requests.get(case)}
            hashes = {**hashes, **kept}
            source = ", ".join(part for part in (f"its baseline of {baseline.recorded_at}", source) if part)
        if not hashes:
            raise Unmeasured(f"nothing on this host says what {name} answers now: {how_to_record(name)}")
        return Expected(source, hashes, requests)

    def _recorded(self, other: Profile) -> tuple[str, Mapping[str, str]]:
        """Return the source and the answers of the newest good record of a profile as it is now; both may be empty."""
        store = Store(self._told.given["records_dir"])
        for row in store.rows(profile=other.name):
            if row["verdict"] != "passed" or row["fingerprint"] != other.fingerprint:
                continue
            try:
                asked = store.read(row["id"])["canary"]["after"]
            except (StoreError, LookupError, TypeError):
                continue
            if asked and asked["ok"] and asked["hashes"]:
                return f"its record {row['id']}", asked["hashes"]
        return "", {}

    def accuracy(self, say: Callable[[str], None]) -> Mapping[str, Any]:
        given, profile = self._told.given, self._watched.profile
        try:
            asked = asked_of(profile, self._layout.frontdoor_url, self._key)
            return measure(asked, given["tools_python"], given["user"], say, self._watch)
        except AccuracyError as error:
            raise Unmeasured(str(error)) from error

    def served(self) -> Mapping[str, Any]:
        state = read_state(self._fx, self._layout)
        if state is None or state.phase != "serving":
            return {"profile": None, "verified": False, "open": False}
        return {"profile": state.profile_name, "verified": state.verified, "open": state.open}
