# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pins: the revisions and digests that a site saw first and has used ever since. Pure functions over their file.

The file lies beside the inventory, see plugin_utils/_pins_file.py. It is data for people and version control::

    all:
      vars:
        b70_pins:
          weights:
            OWNER/NAME: {revision: <40 hex digits>, host: b70-1, from: <address>, at: 2026-11-22T15:00:00Z, by: ann}
          wheels:
            NAME==VERSION: {digest: sha256:<64 hex digits>, host: ..., from: ..., at: ..., by: ...}
          images:
            REGISTRY/NAME:TAG: {digest: sha256:<64 hex digits>, host: ..., from: ..., at: ..., by: ...}
          firmware:
            FILE VERSION: {digest: sha256:<64 hex digits>, host: ..., from: ..., at: ..., by: ...}

Ansible reads a whole directory as an inventory, so this file is one too: it has a variable and no group. In a file that
is written by hand, the sections may stand at the top, and an entry may be the bare value.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

Entry = dict[str, str]
HEADER = """\
# What hosts of this inventory saw of upstream for the first time; every later host takes the same. Written by the
# plays of arcpro.b70. Keep it in version control. Where an entry is removed, the next host records what it finds.
---
"""


class PinsError(Exception):
    """The pins cannot be used. The text says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Section:
    """One kind of pin: the key of its value, the pattern and name of a valid value, and how to replace one."""

    key: str
    pattern: re.Pattern[str]
    shape: str
    other: str = ""  # of weights there may be several revisions on a host, so none is in the way


SECTIONS = {
    "weights": Section(
        "revision",
        re.compile(r"[0-9a-f]{40}"),
        "a commit of 40 hex digits",
    ),
    "wheels": Section(
        "digest",
        re.compile(r"sha256:[0-9a-f]{64}"),
        "sha256: and 64 hex digits",
        "bring the wheel with the pinned digest, in a folder or a mirror that is asked first",
    ),
    "images": Section(
        "digest",
        re.compile(r"sha256:[0-9a-f]{64}"),
        "sha256: and 64 hex digits",
        "remove the image on that host (podman image rm), and the next run pulls the pinned one",
    ),
    "firmware": Section(
        "digest",
        re.compile(r"sha256:[0-9a-f]{64}"),
        "sha256: and 64 hex digits",
        "name an address that has the file with the pinned digest (gpu_driver_guc_file)",
    ),
}


@dataclass(frozen=True)
class Pins:
    """The content of the file: section to name to entry."""

    entries: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)

    def entry(self, section: str, name: str) -> Entry | None:
        return self.entries.get(section, {}).get(name)

    def value(self, section: str, name: str) -> str:
        """Return the pinned value; empty if there is none."""
        return (self.entry(section, name) or {}).get(SECTIONS[section].key, "")

    def values(self, section: str) -> dict[str, str]:
        """Return all pins of a section: name to value."""
        return {name: self.value(section, name) for name in self.entries.get(section, {})}


def seen(section: str, value: str, host: str, origin: str, by: str, now: datetime.datetime) -> Entry:
    """Return an entry for what a host saw at ``origin``; ``by`` names who ran the play."""
    at = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {SECTIONS[section].key: value, "host": host, "from": origin, "at": at, "by": by}


def parse(text: str, path: str) -> Pins:
    """Return the pins of a text; raise PinsError, which names the wrong entry."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PinsError(f"{path} is not valid YAML: correct it, or bring back the version before") from error
    if data is None:
        return Pins()
    if isinstance(data, dict) and set(data) == {"all"}:
        try:
            data = data["all"]["vars"]["b70_pins"]
        except (KeyError, TypeError) as error:
            raise PinsError(f"{path} has no all.vars.b70_pins: correct it, or bring back the version before") from error
    if not isinstance(data, dict) or not set(data) <= set(SECTIONS):
        raise PinsError(
            f"{path} must be a mapping with {' and '.join(SECTIONS)}: correct it, or remove what is not theirs"
        )
    entries = {name: _entries(name, found or {}, path) for name, found in data.items()}
    return Pins(entries)


def _entries(section: str, found: object, path: str) -> dict[str, Entry]:
    if not isinstance(found, dict):
        raise PinsError(f"{path}: {section} must be a mapping of names to entries")
    kind = SECTIONS[section]
    result = {}
    for name, entry in found.items():
        fields = entry if isinstance(entry, dict) else {kind.key: entry}
        value = fields.get(kind.key)
        if not isinstance(value, str) or not kind.pattern.fullmatch(value):
            raise PinsError(
                f"{path}: {section}, {name}: the {kind.key} must be {kind.shape} (in quotes), not {value!r}. "
                "Correct it, or remove the entry: then the next host records what it finds"
            )
        result[str(name)] = {str(key): str(text) for key, text in fields.items()}
    return result


def render(pins: Pins) -> str:
    """Return the text of the file, sorted, with one line for each fact."""

    class PlainDumper(yaml.SafeDumper):
        """Writes the marked strings of Ansible as plain strings."""

    PlainDumper.add_multi_representer(str, lambda dumper, text: dumper.represent_str(text))
    pins_of = {section: {name: dict(entry) for name, entry in found.items()} for section, found in pins.entries.items()}
    data = {"all": {"vars": {"b70_pins": pins_of}}}
    return HEADER + yaml.dump(data, Dumper=PlainDumper, default_flow_style=False, allow_unicode=True, width=1000)


def with_new(pins: Pins, section: str, found: Mapping[str, Entry]) -> Pins:
    """Return the pins and what is new in ``found``. Existing entries stay as they are."""
    return Pins({**pins.entries, section: {**found, **pins.entries.get(section, {})}})


def conflict(pins: Pins, section: str, name: str, found: str, where: str, path: str) -> str:
    """Return an error text if ``where`` has another value than the pinned one; else an empty text."""
    entry, kind = pins.entry(section, name) or {}, SECTIONS[section]
    if not entry or entry[kind.key] == found:
        return ""
    history = ", ".join(f"{word} {entry[key]}" for key, word in _HISTORY.items() if entry.get(key))
    return (
        f"{name}: {where} has the {kind.key} {found}, and {path} pins {entry[kind.key]}"
        f"{f' ({history})' if history else ''}. Either keep the pin: {kind.other}. Or take what is there now: write "
        f"{found} into the pin, for all hosts"
    )


_HISTORY = {"host": "first seen by", "from": "at", "at": "on"}
