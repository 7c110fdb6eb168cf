# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The meaning of each path. Only canonical spellings reach the engine, so no spelling evades a rule."""

from __future__ import annotations

import dataclasses
import enum
import posixpath
import re
import urllib.parse


class Kind(enum.Enum):
    """The kind of the one who answers."""

    ENGINE = "engine"
    LOCAL = "local"
    ADMIN = "admin"
    UNKNOWN = "unknown"


class Style(enum.IntEnum):
    """Shape of errors and of an error inside a stream."""

    OPENAI = 0
    RESPONSES = 1
    ANTHROPIC = 2
    #: of llm-pool's administration
    DETAIL = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """One classified path; `gated` paths take permits on POST."""

    kind: Kind
    path: str
    gated: bool = False
    #: one of the gated paths whose work is a generation
    generates: bool = False
    style: Style = Style.OPENAI
    #: stands for the path where their number must be bounded
    label: str = "other"
    #: answered by the engine whether the slot is open or not
    always: bool = False
    #: the list of models, or one of them
    lists_models: bool = False
    #: the only methods; without any they are the engine's matter
    methods: tuple[bytes, ...] = ()
    #: asked with a form
    form: bool = False


COMPLETIONS, CHAT, RESPONSES, MESSAGES = "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"
GENERATE = "/inference/v1/generate"
BATCH = f"{CHAT}/batch"
# llama.cpp's own
COMPLETION, INFILL = "/completion", "/infill"
#: where a request of that path has its numbers
PARAMETERS = "sampling_params"
GENERATION_PATHS = (
    *(COMPLETIONS, CHAT, RESPONSES, MESSAGES, GENERATE, "/generative_scoring"),
    *(BATCH, COMPLETION, INFILL),
)
#: whose streams may begin with comments
STREAMING_PATHS = frozenset((COMPLETIONS, CHAT, RESPONSES, MESSAGES))
#: the fields that limit the length of an answer; the first, which older engines know too, is where a default goes
TOKEN_FIELDS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    COMPLETIONS: ("max_tokens",),
    MESSAGES: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
    GENERATE: ("max_tokens",),
    BATCH: ("max_tokens", "max_completion_tokens"),
    COMPLETION: ("n_predict", "max_tokens"),
    INFILL: ("n_predict", "max_tokens"),
}
MODELS = "/v1/models"
ADMIN = "/v1/admin"
ADMIN_MODELS = "/v1/admin/models"
ADMIN_MEMORY = "/v1/admin/gpu-memory"
ADMIN_RELOAD = "/v1/admin/settings/reload"
# Asked with JSON: other work of the cards, and what a processor does.
_WORK_PATHS = (
    *("/v1/embeddings", "/v2/embed", "/v1/score", "/score", "/v1/rerank", "/v2/rerank", "/rerank", "/classify"),
    *("/pooling", "/v1/audio/speech"),
)
JSON_PATHS = (*_WORK_PATHS, f"{MESSAGES}/count_tokens", "/tokenize", "/detokenize")
# Asked with a form.
FORM_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations")
# All work of the cards takes permits, so that a switch waits for it, and no more of it runs than the profile allows.
GATED_PATHS = (*GENERATION_PATHS, *_WORK_PATHS, *FORM_PATHS)
# Everything else the engine may be asked; its development and administration endpoints are not among them.
ENGINE_PATHS = (MODELS, *JSON_PATHS, *FORM_PATHS, "/version")
ENGINE_PATTERNS = re.compile(r"/v1/models/[^/]+(?:/[^/]+)?|/v1/responses/[^/]+(?:/cancel)?")
# Paths that an engine elsewhere may be asked, after a check. All else would reach whatever the key of this host opens
# there: answers and completions that are kept, other models by the fields of a form.
REMOTE_PATHS = frozenset((*GENERATION_PATHS, *JSON_PATHS))
# the page, its script and its style
CHAT_PAGE_PATHS = ("/chat", "/chat/app.js", "/chat/app.css")
LOCAL_PATHS = ("/", "/status", "/frontdoor/activity", "/health", "/ready", "/metrics", *CHAT_PAGE_PATHS)
# The engine's own metrics under a path of ours; its /metrics is not to be had otherwise.
ENGINE_METRICS = "/engine/metrics"
# settings of llama.cpp, which a POST would change
_PROPS = "/props"

_UNRESERVED = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/-]*")
_READ = (b"GET", b"HEAD")


def canonical_path(raw: str) -> str | None:
    """Decode percent escapes, drop empty and dot segments and the trailing slash; None when it is no path.

    `raw` is the path without its query. A path that still holds control characters after decoding, or is not
    UTF-8, is None.
    """
    if not raw.startswith("/"):
        return None
    if "%" in raw:
        try:
            raw = urllib.parse.unquote(raw, errors="strict")
        except UnicodeDecodeError:
            return None
    if not raw.isprintable() or "\\" in raw:
        return None
    return posixpath.normpath("/" + raw.lstrip("/"))


def quote_path(path: str) -> str:
    """Return the canonical path as it is written on the wire."""
    return path if _UNRESERVED.fullmatch(path) else urllib.parse.quote(path, safe="/!$&'()*+,;=:@")


def _style(path: str) -> Style:
    if path == MESSAGES or path.startswith(MESSAGES + "/"):
        return Style.ANTHROPIC
    return Style.RESPONSES if path == RESPONSES else Style.OPENAI


def style_of(head: bytes) -> Style:
    """Return the shape of errors for a head that cannot be understood, or is not complete."""
    _method, _space, target = head.partition(b" ")
    path = re.split(rb"[ ?\r\n]", target, maxsplit=1)[0]
    return _style(canonical_path(path.decode("latin-1")) or "")


def _engine(path: str, label: str = "") -> Route:
    """Return the route of a path that the engine answers."""
    style = _style(path)
    # an engine's answer to another method has not the shape that these clients read
    methods = (b"POST",) if style is Style.ANTHROPIC else ()
    lists = path == MODELS or path.startswith(MODELS + "/")
    return Route(
        Kind.ENGINE,
        path,
        gated=path in GATED_PATHS,
        generates=path in GENERATION_PATHS,
        style=style,
        label=label or path,
        lists_models=lists,
        methods=methods,
        form=path in FORM_PATHS,
    )


_ROUTES = {
    **{path: _engine(path) for path in (*GENERATION_PATHS, *ENGINE_PATHS)},
    **{path: Route(Kind.LOCAL, path, methods=_READ) for path in LOCAL_PATHS},
    "/frontdoor/status": Route(Kind.LOCAL, "/status", methods=_READ),
    _PROPS: Route(Kind.ENGINE, _PROPS, label=_PROPS, methods=_READ),
    ENGINE_METRICS: Route(Kind.ENGINE, "/metrics", label=ENGINE_METRICS, always=True, methods=_READ),
}


def meant(path: str) -> str:
    """Return the engine's path that is meant where /v1 is left out or doubled; empty if there is none."""
    within = path.removeprefix("/v1")
    return next((one for one in (f"/v1{within}", within) if one != path and classify(one).kind is Kind.ENGINE), "")


def classify(path: str) -> Route:
    """Find the route of a canonical path."""
    route = _ROUTES.get(path)
    if route is not None:
        return route
    if ENGINE_PATTERNS.fullmatch(path):
        return _engine(path, "/".join((*path.split("/")[:3], "{id}")))
    if path == ADMIN or path.startswith(ADMIN + "/"):
        return Route(Kind.ADMIN, path, style=Style.DETAIL)
    return Route(Kind.UNKNOWN, path, style=_style(path))
