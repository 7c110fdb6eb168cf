# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every code that a client may be told: with what status, what it means, and what a client does then. Data.

The tables of docs/frontdoor.md are written from it, and the rows of the metrics begin with it.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """No status means that it only comes in a stream that was begun. `admin`: of the administration alone."""

    statuses: tuple[int, ...]
    means: str
    then: str
    admin: bool = False


_WAIT = "ask again after `Retry-After`"
_MEND = "mend the client"
_SMALLER = "send less"

CODES: dict[str, Code] = {
    # no place for it, or nothing to ask
    "busy": Code(
        (503,), "all slots are in use, or too many for a request that takes several, and there is no queue", _WAIT
    ),
    "queue_timeout": Code(
        (503,),
        "the profile has a queue, and the wait was too long; a changed limit counts for who waits already",
        _WAIT,
    ),
    "queue_full": Code((503,), "the queue is full, or the place went to a client that has fewer", _WAIT),
    "switching": Code(
        (503,),
        "another model is coming; the message says whether it is being loaded already. `error.switch` has `from`, "
        "`to`, `started_at`, and in `eta_s` the seconds that are left; or it came, or the rules changed, while the "
        "request waited",
        _WAIT,
    ),
    "verifying": Code(
        (503,), "it is loaded and answers, and has to give its canary answers first; `error.switch` as before", _WAIT
    ),
    "stopped": Code(
        (503,),
        "nothing is served; the message says why, in [fixed words](#what-a-failure-tells-everybody)",
        "tell the operator, or " + _WAIT,
    ),
    "failed": Code((503,), "the last switch failed, or the engine did, and nothing is served", "tell the operator"),
    "closed": Code((503,), "the slot is closed to new requests", _WAIT),
    "stopping": Code((503,), "the frontdoor is being restarted; a load goes on", _WAIT),
    "too_many_requests": Code(
        (503,), "too many requests that take no slot are under way, such as for the list of models", _WAIT
    ),
    "too_many_connections": Code((503,), "too many connections, of all or from this address", "close some; " + _WAIT),
    "overloaded": Code((503,), "too many bytes of bodies are held, of all or of this client", _WAIT),
    # the engine
    "engine_unreachable": Code((502,), "the engine accepts no connection", "ask again; `/ready` says when"),
    "engine_closed": Code(
        (502,), "the engine ended the connection before the first byte", "ask again, if it may be generated twice"
    ),
    "bad_engine_response": Code((502,), "the engine's answer is no HTTP that can be passed on", "tell the operator"),
    "engine_timeout": Code(
        (504,), "the engine was silent for the profile's `backend_timeout_s`", "ask again, for a shorter answer"
    ),
    "engine_cut": Code(
        (), "the engine ended, or was silent for too long, in the middle of a stream", "take the answer for incomplete"
    ),
    # what is asked for
    "too_many_generations": Code(
        (400,),
        "`n`, `best_of` or the list of prompts asks for more generations at once than there are slots "
        "(`max_active_generations`)",
        "ask for fewer, in several requests",
    ),
    "modality_unsupported": Code(
        (400,),
        "for instance an image for a model that takes text only; looked for in parts of messages and of tool results, "
        "not in calls of tools or metadata",
        "leave it out, or ask another model",
    ),
    "remote_media_refused": Code(
        (400,),
        "a picture, sound or film is named by its URL, and the profile has no `engine.allowed_media_domains`",
        "send it as a `data:` URL",
    ),
    "invalid_json": Code((400,), "the body cannot be held to a limit: it is no JSON object", _MEND),
    "body_too_intricate": Code(
        (400,),
        "reading the body would hold up everybody (more than 200 000 values, nested too deep, or 32 MiB that are not "
        "all ASCII)",
        _SMALLER,
    ),
    "ambiguous_json": Code(
        (400,),
        "a rule reads or changes the body, and readers would not agree on it: it names a member twice in one object, "
        "or holds NaN, a number beyond 64 bits or half of a surrogate pair",
        _MEND,
    ),
    "encoding_unsupported": Code(
        (400, 415), "the body is not UTF-8, or compressed, and has to be read here", "send plain UTF-8"
    ),
    "model_not_found": Code(
        (404,),
        "with `frontdoor_model_policy: reject`, or for `/v1/models/NAME`; the message lists what is served",
        "name one of these",
    ),
    "unknown_path": Code((404,), "the path is not served here", _MEND),
    "method_not_allowed": Code((405,), "the path takes another method, which `Allow` names", _MEND),
    # who asks
    "invalid_api_key": Code(
        (401,),
        "no key, an unknown one, or one of another kind; the message says which kind is needed",
        "send `Authorization: Bearer KEY`",
    ),
    "address_not_allowed": Code(
        (403,), "the client's network is not in `frontdoor_allowed_networks`", "ask the operator"
    ),
    # how it is asked
    "body_too_large": Code((413,), "the body exceeds `frontdoor_max_body_bytes`", _SMALLER),
    "headers_too_large": Code((431,), "the head of the request exceeds its limit", _SMALLER),
    "too_many_headers": Code((431,), "the request has too many header fields", _SMALLER),
    "request_timeout": Code((408,), "the request was not complete in time", "ask again, and send it at once"),
    "bad_request": Code((400,), "it is no HTTP/1.1, or its chunks are not", _MEND),
    "bad_version": Code((400,), "it is of another version of HTTP than 1.0 and 1.1", _MEND),
    "bad_target": Code((400,), "the target of the request is no path, or names no valid host", _MEND),
    "bad_host": Code((400,), "`Host` names no valid host", _MEND),
    "missing_host": Code((400,), "a request of HTTP/1.1 has no `Host`", _MEND),
    "duplicate_header": Code((400,), "a header field that may stand once stands twice", _MEND),
    "bad_framing": Code((400,), "where the body ends can be read in two ways, or not at all", _MEND),
    "coding_not_supported": Code((501,), "a transfer coding other than chunked", _MEND),
    "method_not_supported": Code((501,), "a method of HTTP that has no meaning here", _MEND),
    "bad_expectation": Code((417,), "`Expect` asks for something other than `100-continue`", "leave it out"),
    # the administration
    "not_an_admin_key": Code((403,), "the API key may only ask the model", "send an admin key", admin=True),
    "unknown_model": Code((404,), "no profile of that name on this host", "take one of the list", admin=True),
    "model_loading": Code((409,), "another switch is at work", "ask again when it has ended", admin=True),
    "model_unloading": Code((409,), "the slot is being stopped", "ask again when it has ended", admin=True),
    "model_not_loaded": Code(
        (409,), "something else was served by the time of the unload", "look at the list", admin=True
    ),
    "settings_reload_conflict": Code(
        (409,), "the loaded profile was changed or removed; see below", "unload it, or serve it as it is", admin=True
    ),
    "invalid_load_request": Code(
        (400,),
        "a setting was sent along (`null` is one too): those are the profile's. Or the profile's status is refused; "
        "see below",
        "send an empty body",
        admin=True,
    ),
    "invalid_settings": Code((400,), "a file of a profile cannot be read", "mend it; the message names it", admin=True),
    "invalid_body": Code(
        (422,), "the body is no JSON object, or has an unknown field or a value of the wrong kind", _MEND, admin=True
    ),
    "model_load_failed": Code((500,), "the message says why, and what is served now", "tell the operator", admin=True),
    "model_unload_failed": Code((500,), "the message says why", "tell the operator", admin=True),
    "internal_error": Code(
        (500,), "the frontdoor failed; its journal has an event `admin_error`", "report it", admin=True
    ),
}


def _of(*statuses: int) -> tuple[str, ...]:
    return tuple(name for name, code in CODES.items() if set(code.statuses) & set(statuses))


# by what they say about whom, as the metrics count them
TURNED_AWAY_CODES = _of(503)
# also of streams that were begun, and answers of the engine's own that say that it failed
ENGINE_CODES = (*_of(502, 504), "upstream_cut", "upstream_timeout", "http_500")
OTHER_CODES = tuple(name for name in CODES if name not in TURNED_AWAY_CODES + ENGINE_CODES and CODES[name].statuses)

# the `type` of an error, by its status
OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    417: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    501: "invalid_request_error",
    502: "upstream_error",
    503: "service_unavailable",
    504: "timeout_error",
}
# other 4xx are invalid_request_error, and all else api_error
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
