# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof of nodes to each other: a key that they share, and HMAC-SHA256 over each question and answer. Pure.

A question names the node that is asked and a nonce of its own, and the answer is bound to that nonce. So neither can be
sent again to another node, or as the answer to another question. Nothing is encrypted: what a node says of itself is no
secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from urllib.parse import parse_qs, urlsplit

from ..words.types import SlotFault

PATH = "/node"
LEAST = 32  # characters of a key
REMEDY = "set b70_nodes.key (docs/nodes.md says how to make one) and run site.yml for all nodes"
OTHER_KEY = f"it does not have the key of this host; {REMEDY}"


def checked(text: str | None, where: str) -> str:
    """Return the key in the text of the file `where`; raise SlotFault where it is none, never with the text."""
    key = (text or "").strip()
    if len(key) < LEAST:
        raise SlotFault(f"{where} has no key of this group of nodes; {REMEDY}")
    return key


def _digest(key: str, *parts: str) -> str:
    return hmac.new(key.encode(), json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def question(key: str, name: str, nonce: str) -> str:
    """Return what is asked of the node with this name: a path with its query."""
    return f"{PATH}?nonce={nonce}&mac={_digest(key, 'question', PATH, name, nonce)}"


def respond(key: str, name: str, asked: str, text: str | None) -> tuple[int, str]:
    """Return the status and body with which the node of this name answers. text: its report; None: none yet."""
    parts = urlsplit(asked)
    if parts.path != PATH:
        return 404, ""
    given = {word: values[-1] for word, values in parse_qs(parts.query).items()}
    nonce, mac = given.get("nonce", ""), given.get("mac", "")
    if not nonce or not _same(mac, _digest(key, "question", PATH, name, nonce)):
        return 403, ""
    if text is None:
        return 503, ""
    return 200, f"{_digest(key, 'answer', PATH, name, nonce, text)}\n{text}"


def believed(key: str, name: str, nonce: str, body: str) -> str:
    """Return the text in the answer of the node with this name; raise SlotFault unless its sender has the key."""
    mac, _line, text = body.partition("\n")
    if not _same(mac, _digest(key, "answer", PATH, name, nonce, text)):
        raise SlotFault(OTHER_KEY)
    return text


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
