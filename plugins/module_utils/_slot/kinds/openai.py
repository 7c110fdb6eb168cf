# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine elsewhere that speaks OpenAI's API. This host only runs a relay to it, HAProxy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..words.logline import Parts
from ..words.types import Reply, SlotFault
from . import known
from .kind import Kind, LlmPoolBackend, Step, Weights

# HAProxy writes the same to its log and, with this prefix, to its standard error.
_PREFIX = re.compile(r"\[(?:NOTICE|WARNING|ALERT)\] +\(\d+\) : ")

_STEPS: tuple[Step, ...] = (
    (re.compile(r"Health check for server remote/remote succeeded"), "the remote engine answers"),
    (re.compile(known.CHECK_FAILED + r"([^,]{1,60})"), "the remote engine does not answer yet: {1}"),
)


class OpenAI(Kind):
    name = "openai"
    title = "An engine elsewhere"
    remote = True
    length_setting = "max_model_len"
    sequences_setting = "max_num_seqs"
    neutral = ("max_num_seqs",)
    pool = LlmPoolBackend("openai_remote")
    steps = _STEPS
    symptoms = known.REMOTE

    def command(self, places: Mapping[str, str], host: str, port: int | str, served_name: str) -> list[str]:
        return ["/usr/sbin/haproxy", "-db", "-f", f"{places['relay_dir']}/haproxy.cfg"]

    def arguments(self, key: str, value: Any, recorded: Sequence[Mapping[str, Any]]) -> list[str]:
        return []  # settings describe the remote engine; they don't set anything there

    def weight_files(self, weights: Weights) -> tuple[str, ...]:
        return ()

    def served(self, reply: Reply, wanted: str = "") -> tuple[str, int | None]:
        """Return (id, context length) of the wanted model, wherever it is in the list: a remote may serve many."""
        first = super().served(reply)
        rows = {row["id"]: row for row in json.loads(reply.text)["data"] if isinstance(row, Mapping) and "id" in row}
        if not wanted:
            return first
        if wanted not in rows:
            names = ", ".join(map(str, rows))[:200]
            raise SlotFault("the remote engine does not serve the model", expected=wanted, got=names)
        length = self.served_length(rows[wanted])
        return wanted, length if isinstance(length, int) else None

    def served_length(self, model: Mapping[str, Any]) -> Any:
        return model.get("max_model_len")

    def parts_of(self, line: str) -> Parts:
        found = _PREFIX.match(line)
        return Parts("", "", line[found.end() :] if found else line)


OPENAI = OpenAI()
