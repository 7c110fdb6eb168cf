# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge whether a host is as a role would make it, by a look at the host itself instead of a stamp."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


def file_facts(path: str) -> dict[str, Any]:
    """Return the facts of `path`, links not followed.

    `state` is `absent`, `file`, `directory`, `link` or `other`; `owner`, `group` and `mode` are null where nothing is,
    `target` is that of a link, `sha256` that of a file.
    """
    facts: dict[str, Any] = dict.fromkeys(("owner", "group", "mode", "target", "sha256"))
    try:
        about = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"state": "absent", **facts}
    facts |= {"owner": _name(pwd.getpwuid, about.st_uid), "group": _name(grp.getgrgid, about.st_gid)}
    facts["mode"] = f"{stat.S_IMODE(about.st_mode):04o}"
    if stat.S_ISLNK(about.st_mode):
        return {"state": "link", **facts, "target": os.readlink(path)}
    if stat.S_ISREG(about.st_mode):
        return {"state": "file", **facts, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
    return {"state": "directory" if stat.S_ISDIR(about.st_mode) else "other", **facts}


def _name(look: Callable[[int], Any], number: int) -> str:
    """Return the name of a user or group, else its number."""
    try:
        return str(look(number)[0])
    except KeyError:
        return str(number)


def file_differences(wanted: Iterable[Mapping[str, Any]], facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the differences of the wanted files on the host, one line each.

    A key that a wanted file lacks is not compared.
    """
    found = []
    for item in wanted:
        seen = facts[item["path"]]
        keys = [key for key in ("state", "owner", "group", "mode", "target", "sha256") if item.get(key) is not None]
        wrong = [key for key in keys if item[key] != seen[key]]
        if "state" in wrong:
            wrong = ["state"]
        found += [f"{item['path']}: {key} is {seen[key]}, wanted is {item[key]}" for key in wrong]
    return found
