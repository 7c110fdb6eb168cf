# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Redacts secrets in text before it leaves a host. Pure: text and known secrets in, text and counts out.

Two ways together: values that are known to be secret (from environment files and configuration, by the names of their
keys) are taken out wherever they stand; and what looks like a secret is taken out by its form. What is taken out leaves
a word in its place, so that the rest can still be read: `<secret>`, `<user1>`, `/home/<user1>`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

SECRET = "<secret>"
# Shorter values are too likely to be ordinary words; a real key is longer.
SHORTEST_KNOWN = 6
# Accounts of images: their names are common words and belong to nobody.
ORDINARY = frozenset({"admin", "b70", "debian", "ubuntu", "user", "vagrant"})
# Values of a sensitive name that are not secrets.
_HARMLESS = re.compile(r"^(?:true|false|none|null|yes|no|on|off|auto|\d{1,5}|/[\w./-]*|<\w+>|\{+|\[+|)$", re.IGNORECASE)

# A key whose value is a secret. Counted things (max_tokens, token_ids, tokenizer) only sound like it.
_NAME = (
    r"(?:[\w.-]*(?:password|passwd|passphrase|secret|credential|api[_-]?keys?|apikey|private[_-]?key|access[_-]?key"
    r"|auth[_-]?key|bearer|client[_-]?key)[\w.-]*|(?:[\w.-]*[_.-])?(?:token|pwd|pat)|[\w.-]*(?:_|-)(?:token|key))"
)
_NOT_SECRET_NAME = re.compile(
    r"(?:^|[_.-])(?:num|max|min|n|eos|bos|pad|stop|cache|primary|foreign|sort|public|host|per)(?:[_.-]\w+)*[_.-](?:token|key)$"
    r"|tokenizer|make-key",
    re.IGNORECASE,
)
_VALUE = r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s,;&\"'}\])]+"

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_HEADER = re.compile(
    r"((?:proxy-)?authorization|x-api-key|api-key|x-auth-token|(?:set-)?cookie)([\"']?\s*[:=]\s*[\"']?)([^\r\n\"']+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer|basic)(\s+)([A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE)
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://)([^\s/@:]*):([^\s/@]+)@", re.IGNORECASE)
_ASSIGNMENT = re.compile(rf"(?<![\w-])([\"']?)({_NAME})(\1\s*[:=]\s*)({_VALUE})", re.IGNORECASE)
_FLAG = re.compile(rf"(--{_NAME})(\s+|=|\",\s*\"|',\s*')({_VALUE})", re.IGNORECASE)
# Forms that are always secrets.
_FORMS = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}|\bsk-[A-Za-z0-9_-]{8,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{12,}"
    r"|\bxox[abprs]-[\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*|\bnpm_[A-Za-z0-9]{20,}|\bAIza[\w-]{20,}"
)
_HOME = re.compile(r"(/(?:home|Users)/)([^/\s\"':;,<>]+)")
_SERIAL = re.compile(r"((?:serial(?: number)?|asset tag|service tag)\s*:\s*)(\S[^\r\n]*)", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether the value of this name counts as a secret."""
    return re.fullmatch(_NAME, name, re.IGNORECASE) is not None and not _NOT_SECRET_NAME.search(name)


def known_secrets(text: str) -> set[str]:
    """The values of sensitive names in an environment file, configuration or process environment."""
    found = set()
    for match in (*_ASSIGNMENT.finditer(text), *_FLAG.finditer(text)):
        name = match[2] if match.re is _ASSIGNMENT else match[1].lstrip("-")
        value = (match[4] if match.re is _ASSIGNMENT else match[3]).strip("\"'")
        if is_secret_name(name) and len(value) >= SHORTEST_KNOWN and not _HARMLESS.match(value):
            found.add(value)
    return found | {match[3] for match in _USERINFO.finditer(text) if len(match[3]) >= SHORTEST_KNOWN}


@dataclass
class Redactor:
    """Knows the secrets of one host. `counts` is the number of redactions of each kind."""

    secrets: frozenset[str] = frozenset()
    people: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, secrets: Iterable[str], people: Iterable[str]) -> Redactor:
        """`people`: account names to redact. A name of fewer than three letters is redacted only in home paths."""
        return cls(frozenset(secrets), tuple(sorted(set(people) - ORDINARY)))

    def __post_init__(self) -> None:
        # The longest first, so that no part of a longer secret remains.
        known = sorted((re.escape(text) for text in self.secrets), key=len, reverse=True)
        self._known = re.compile("|".join(known)) if known else None
        names = [re.escape(name) for name in self.people if len(name) > 2]
        self._people = re.compile(rf"(?<![\w.-])(?:{'|'.join(names)})(?![\w-])") if names else None
        self._alias = {name: f"<user{number}>" for number, name in enumerate(self.people, 1)}

    def clean(self, text: str) -> str:
        """The text without secrets."""
        text = self._count("key", *_PEM.subn(SECRET, text))
        if self._known is not None:
            text = self._count("known secret", *self._known.subn(SECRET, text))
        text = self._count("form", *_FORMS.subn(SECRET, text))
        text = self._count("header", *_HEADER.subn(rf"\1\2{SECRET}", text))
        text = self._count("header", *_BEARER.subn(rf"\1\2{SECRET}", text))
        text = self._count("address", *_USERINFO.subn(rf"\1{SECRET}:{SECRET}@", text))
        text = _FLAG.sub(self._flag, text)
        text = _ASSIGNMENT.sub(self._assignment, text)
        text = self._count("serial number", *_SERIAL.subn(rf"\1{SECRET}", text))
        text = _HOME.sub(self._home, text)
        if self._people is not None:
            text = self._people.sub(self._person, text)
        return text

    def _count(self, kind: str, text: str, number: int) -> str:
        if number:
            self.counts[kind] += number
        return text

    def _assignment(self, match: re.Match[str]) -> str:
        return self._value(match[0], match[2], match[1] + match[2] + match[3], match[4])

    def _flag(self, match: re.Match[str]) -> str:
        return self._value(match[0], match[1].lstrip("-"), match[1] + match[2], match[3])

    def _value(self, whole: str, name: str, before: str, value: str) -> str:
        quote = value[0] if value[:1] in "\"'" else ""
        if not is_secret_name(name) or SECRET in value or _HARMLESS.match(value.strip("\"'")):
            return whole
        self.counts["value"] += 1
        return f"{before}{quote}{SECRET}{quote}"

    def _home(self, match: re.Match[str]) -> str:
        if match[2].startswith("<"):
            return match[0]
        self.counts["home"] += 1
        return match[1] + self._alias.setdefault(match[2], f"<user{len(self._alias) + 1}>")

    def _person(self, match: re.Match[str]) -> str:
        self.counts["user"] += 1
        return self._alias[match[0]]
