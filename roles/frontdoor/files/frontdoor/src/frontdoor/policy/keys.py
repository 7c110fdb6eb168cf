# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""API keys: known by name, kept as digests, compared in constant time; and how much work each may ask for."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Callable
from typing import Any, NamedTuple

from frontdoor.config import Amount, ConfigError, section_of
from frontdoor.slot.regular import Watched

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class KeyLimits(NamedTuple):
    """The limits of the work of one key, 0 for none; and its right to have models loaded."""

    requests_per_minute: Amount = 0
    requests_per_day: Amount = 0
    tokens_per_minute: Amount = 0
    tokens_per_day: Amount = 0
    may_load: bool = False


def digest(secret: str) -> str:
    """Return a key as the file has it; keys are long and random, so a plain digest tells nothing about them."""
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def make_key() -> str:
    """Return a new key, 256 bits of it."""
    return "b70-" + secrets.token_urlsafe(32)


def key_line(name: str, secret: str) -> str:
    """Return the line for the file of keys; raise ConfigError unless the name can be one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a key: 1 to 64 letters, digits and _ . - are")
    # in quotes, because a dot would make a table of it
    return f'"{name}" = "{digest(secret)}"'


# stands for every key without limits of its own
_OTHERS = "*"
_TABLES = 'one table [keys] with "NAME" = "sha256:<64 hexadecimal digits>", and maybe one [limits."NAME"] for each key'


def parse_keys(text: str) -> tuple[dict[str, bytes], dict[str, KeyLimits]]:
    """Read `[keys]` with `NAME = "sha256:..."`, and the limits; raise ConfigError that names what is wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"not valid TOML: {exc}") from exc
    keys = table.get("keys")
    limits = table.get("limits", {})
    if not {"keys"} <= set(table) <= {"keys", "limits"} or not isinstance(keys, dict) or not keys:
        raise ConfigError(f"must hold {_TABLES}")
    found = {}
    for name, value in keys.items():
        match = _DIGEST.fullmatch(value) if isinstance(value, str) else None
        if not _NAME.fullmatch(name) or not match:
            dotted = "; a name with a dot needs quotes" if isinstance(value, dict) else ""
            raise ConfigError(
                f'the key {name!r} is not "NAME" = "sha256:<64 hexadecimal digits>" (see --make-key){dotted}'
            )
        found[name] = bytes.fromhex(match[1])
    if not isinstance(limits, dict):
        raise ConfigError(f"must hold {_TABLES}")
    return found, {name: _limits(name, value, found) for name, value in limits.items()}


def _limits(name: str, value: Any, keys: dict[str, bytes]) -> KeyLimits:
    """Return the limits of one key; raise ConfigError for faulty ones."""
    where = f'limits."{name}"'
    if name not in keys and name != _OTHERS:
        raise ConfigError(f'{where}: there is no such key; "{_OTHERS}" is for all that have no limits of their own')
    limits: KeyLimits = section_of(KeyLimits, value, where)
    return limits


class Keys:
    """The keys of one file, which may change at any time."""

    def __init__(self, path: str) -> None:
        """Read the file; raise ConfigError."""
        self._file = Watched(path)
        #: what is wrong with the file now, while the keys of before are kept; empty when nothing is
        self.error = ""
        self._keys: dict[str, bytes] = {}
        self._limits: dict[str, KeyLimits] = {}
        self.refresh()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def limits(self, name: str) -> KeyLimits | None:
        """Return the limits of a key; None where it has none."""
        return self._limits.get(name) or self._limits.get(_OTHERS)

    def refresh(self) -> bool:
        """Read the file again when it changed; True when it did. If it is wrong, keep the keys; raise ConfigError."""
        try:
            raw = self._file.read()
            if raw is None:
                return False
            self._keys, self._limits = parse_keys(raw.decode())
        except (OSError, UnicodeDecodeError) as exc:
            self.error = f"{self._file.path}: cannot be read: {exc}"
        except ConfigError as exc:
            self.error = f"{self._file.path}: {exc}"
        else:
            self.error = ""
            return True
        raise ConfigError(self.error)

    def refreshed(self, emit: Callable[..., None]) -> None:
        """Read the keys again if they changed, and log that, or once what is wrong with them."""
        known = self.error
        try:
            if self.refresh():
                emit("keys_read", file=self._file.path, count=len(self._keys))
        except ConfigError as exc:
            if str(exc) != known:
                emit("keys_unusable", error=str(exc), kept=len(self._keys))

    def identify(self, secret: bytes) -> str | None:
        """Name of the key, or None. Every key is compared, so time does not tell which one came close."""
        offered = hashlib.sha256(secret).digest()
        name = None
        for known, expected in self._keys.items():
            if hmac.compare_digest(offered, expected):
                name = known
        return name
