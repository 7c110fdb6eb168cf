# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine elsewhere that speaks OpenAI's API. This host only runs a relay to it, HAProxy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..words.types import Reply, SlotFault
from .kind import Kind, Pool, Step, Symptom, Weights

# HAProxy writes the same to its log and, with this prefix, to its standard error.
_PREFIX = re.compile(r"\[(?:NOTICE|WARNING|ALERT)\] +\(\d+\) : ")
_FAILED = r"Health check for server remote/remote failed, reason: "

_STEPS: tuple[Step, ...] = (
    (re.compile(r"Health check for server remote/remote succeeded"), "the remote engine answers"),
    (re.compile(_FAILED + r"([^,]{1,60})"), "the remote engine does not answer yet: {1}"),
)


def _symptom(id: str, pattern: str, meaning: str, advice: str) -> Symptom:
    return Symptom(id, re.compile(pattern), meaning, advice, fatal=True)


_SYMPTOMS = (
    _symptom(
        "remote_key_unusable",
        r"relay: the API key of the remote engine can't be used",
        "the API key file contains no key",
        "Write the key into engine.remote.api_key_file: one line and nothing else.",
    ),
    _symptom(
        "remote_refused_key",
        _FAILED + r"Layer7 wrong status, code: 40[13]",
        "the remote engine refuses the API key, or requires one",
        "Check engine.remote.api_key_file, and whether the key was revoked.",
    ),
    _symptom(
        "remote_certificate",
        _FAILED + r"Layer6 invalid response",
        "no TLS connection with the remote engine: most often its certificate can't be verified",
        "Check engine.remote.ca_file, and whether the certificate names the host of base_url.",
    ),
    _symptom(
        "remote_no_api",
        _FAILED + r"Layer7 wrong status, code: 404",
        "the remote engine has no list of models below the base URL",
        "Check engine.remote.base_url: it ends where /models begins, with most APIs at /v1.",
    ),
    _symptom(
        "remote_unreachable",
        _FAILED + r"(?:Layer4|Layer6 timeout|Layer7 timeout|Socket error)",
        "the remote engine does not answer",
        "Check whether it runs, and whether this host reaches it: firewall, routes, name servers.",
    ),
    _symptom(
        "remote_fails",
        _FAILED + r"Layer7 (?:wrong status, code: (\d+)|invalid)",
        "the remote engine answers with an error",
        "Check the remote engine: it answers GET /models with {1}.",
    ),
    _symptom(
        "port_in_use",
        r"(?:config : )?.{0,60}cannot bind socket",
        "the engine's port was taken",
        "See who holds it: `ss -ltnp`.",
    ),
)


class OpenAI(Kind):
    name = "openai"
    title = "An engine elsewhere"
    remote = True
    length_setting = "max_model_len"
    sequences_setting = "max_num_seqs"
    neutral = ("max_num_seqs",)
    pool = Pool("openai_remote")
    steps = _STEPS
    symptoms = _SYMPTOMS

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

    def message_of(self, line: str) -> str:
        found = _PREFIX.match(line)
        return line[found.end() :] if found else line


OPENAI = OpenAI()
