# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests for the list of models or for one of them: the engine is asked for its list, the slot adds what it knows."""

from __future__ import annotations

import re
from typing import Any

import orjson

from frontdoor.errors import not_served_here
from frontdoor.http.client import ClientConnection, Target
from frontdoor.http.exchange import Exchange
from frontdoor.http.head import RequestHead, ResponseHead, response_head
from frontdoor.observability.metrics import OK
from frontdoor.policy.routes import MODELS
from frontdoor.slot.state import SlotState

#: what the slot knows stands under this key of each model
_KEY = "b70"
_TIMEOUT_S = 10.0
# headers about a form of the answer that the client will not get: it is read, changed, and given whole
_NOT_SENT = re.compile(rb"(?im)^(?:accept-encoding|content-[a-z]+|if-[a-z-]+|range):.*\n")


class Listing(Exchange):
    """An exchange whose answer is collected and completed before the client gets it."""

    def __init__(self, client: ClientConnection, target: Target, head: RequestHead) -> None:
        _path, mark, query = head.line.split(b" ")[1].partition(b"?")
        line = b"GET %b%b%b HTTP/1.1\r\n" % (MODELS.encode(), mark, query)
        head.line, head.fields = line, _NOT_SENT.sub(b"", head.fields)
        super().__init__(client, target, head, 0, b"")

    @property
    def _limit_s(self) -> float:
        return _TIMEOUT_S

    def _parsed(self, raw: bytes) -> ResponseHead:
        # the engine is asked for the list even where the client asks for the head alone
        return response_head(raw, False, self._server.cors.on)

    def _collects(self, response: ResponseHead) -> bool:
        return True

    def _tell(self, response: ResponseHead, content: bytes) -> None:
        """Pass on what the engine and the slot say."""
        listed = _list(content) if response.status == 200 else None
        # no list, or a failure, passes as it came
        if listed is not None:
            models = _complete(listed["data"], self._target.slot.state)
            for other in self._server.targets:
                if other is not self._target and other.slot.closed is None:
                    _add(listed["data"], models, other.slot.state)
            for name, offer in self._server.offers(self._client).items():
                if name not in models:
                    models[name] = offer
                    listed["data"].append(offer)
            wanted = self._head.route.path.removeprefix(MODELS).lstrip("/")
            known = self._server.by_model.get(wanted)
            if wanted and wanted not in models and known is not None and known.slot.closed is not None:
                self.refuse(known.slot.closed)
                return
            if wanted and wanted not in models:
                self._fail(not_served_here(wanted, models), OK)
                return
            content = orjson.dumps(models[wanted] if wanted else listed)
        self._tell_whole(response, content)


def _list(content: bytes) -> dict[str, Any] | None:
    """Return the engine's list, None where the content is none."""
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) and isinstance(answer.get("data"), list) else None


def _complete(data: list[Any], state: SlotState) -> dict[str, dict[str, Any]]:
    """Add what the slot knows, and the aliases; return the models by name, of those of one name the first one."""
    about, models = _about(state), dict[str, dict[str, Any]]()
    if (state.profile or {}).get("remote"):
        # other models of an engine elsewhere are not served here
        data[:] = [one for one in data if isinstance(one, dict) and one.get("id") == about["served_model_name"]]
    for model in data:
        if isinstance(model, dict):
            model[_KEY] = about
            if isinstance(model.get("id"), str):
                models.setdefault(model["id"], model)
    name = about["served_model_name"]
    for alias in state.rules.model_aliases if name in models else ():
        if alias not in models:
            models[alias] = {**models[name], "id": alias, "parent": name, _KEY: {**about, "alias_of": name}}
            data.append(models[alias])
    return models


def _add(data: list[Any], models: dict[str, dict[str, Any]], state: SlotState) -> None:
    """Add what another slot serves, by its state: its engine is not asked. A name that is there already stays."""
    profile = state.profile or {}
    row = {"id": profile.get("served_model_name") or "", "object": "model", "created": 0, "owned_by": "b70"}
    row["max_model_len"] = profile.get("max_model_len")
    rows: list[Any] = [row]
    for name, model in _complete(rows, state).items():
        if name and name not in models:
            models[name] = model
            data.append(model)


def _about(state: SlotState) -> dict[str, Any]:
    profile = state.profile or {}
    return {
        "profile": profile.get("name", ""),
        **{text: profile.get(text, "") for text in ("title", "status", "served_model_name", "fingerprint")},
        "modalities": profile.get("modalities") or [],
        "state": "served",
        "verified": state.verified,
        "verified_at": state.verified_at,
        "limits": {
            "max_model_len": profile.get("max_model_len"),
            "max_active_generations": state.max_active_generations,
            "queue_timeout_s": state.queue_timeout_s,
            "max_tokens_default": state.rules.max_tokens_default,
            "max_tokens_cap": state.rules.max_tokens_cap,
        },
    }
