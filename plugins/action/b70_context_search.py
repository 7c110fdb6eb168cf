# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_context_search: has the host search, and shows the trials."""

from __future__ import annotations

from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._work import RecordedWork


class ActionModule(RecordedWork):
    """A search belongs to the host; a second run joins it."""

    MODULE = "arcpro.b70.b70_context_search"
    WORK = "the search"

    def details(self, found: dict[str, Any]) -> list[str]:
        rows = [f"{'max_model_len':>13}  {'KV tokens':>10}  {'sequences':>9}  {'passes':<6}  seconds"]
        for trial in found["trials"]:
            tokens = "-" if trial["kv_tokens"] is None else str(trial["kv_tokens"])
            passes = "yes" if trial["passes"] else "no"
            figures = f"{trial['length']:>13}  {tokens:>10}  {trial['concurrency']:>9.2f}"
            rows.append(f"{figures}  {passes:<6}  {trial['seconds']:.1f}")
        if found["found"] is not None:
            rows += _probed(next(trial["probes"] for trial in found["trials"] if trial["length"] == found["found"]))
            rows += [f"in the profile {found['profile']}, below engine.settings:", f"max_model_len: {found['found']}"]
        return rows


def _probed(probes: dict[str, Any] | None) -> list[str]:
    if not probes:
        return []
    first, decode, full = (probes[name] for name in ("ttft", "decode", "near_limit"))
    ttft = "no text" if first["mean_ttft_s"] is None else f"first token after {first['mean_ttft_s']:g} s"
    decoded = f"{decode['requests']} streams, {decode['tok_s']:g} tok/s"
    filled = f"{full['requests']} sequences of full length in {full['wall_s']:g} s"
    return [f"measured with it: {ttft}; {decoded}; {filled}"]
