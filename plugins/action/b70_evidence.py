# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_evidence: says what it has, checks what it is given, and writes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.handing import digest
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import parse
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store, StoreError
from ansible_collections.arcpro.b70.plugins.module_utils._files import WantedFile, write
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import faults_of

MODULE = "arcpro.b70.b70_evidence"


class ActionModule(ActionBase):
    """Copies what the controller lacks, in as many parts as the host makes of it; in check mode it writes nothing.

    What the controller has collected stays as it is: a record that a host has otherwise by now is a finding.
    """

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        if not arguments.get("dest"):
            raise AnsibleActionFail("b70_evidence needs the option dest, a folder on the controller")
        host = str(variables["inventory_hostname"])
        store = Store(Path(arguments["dest"]).expanduser() / host)
        copied: list[str] = []
        problems: list[str] = []
        try:
            known = dict(_digests(store))
            received: set[str] = set()
            more = True
            while more:
                arguments["known"] = known
                found = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=variables)
                if found.get("failed") or found.get("unreachable"):
                    return {**result, **found}
                new = {name: content for name, content in found["records"].items() if name not in received}
                received.update(new)
                for name, content in new.items():
                    known[name] = digest(content)
                    wrong = _wrong(store, name, content) or _other(store, name, content)
                    if wrong:
                        problems.append(f"{name}: {wrong}")
                        continue
                    path = store.path(name)
                    copied.append(f"{host}/{path.relative_to(store.root)}")
                    if not self._task.check_mode:
                        write([WantedFile(path, content.encode())])
                more = found["more"]
                if more and not new:
                    problems.append(f"{host} says that it has more records, and hands over none that is new")
                    break
            problems += found["problems"]
        except OSError as error:
            raise AnsibleActionFail(f"the records cannot be kept in {store.root}: {error}") from error
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return {**result, **_told(str(arguments["dest"]), copied, problems, self._task.check_mode)}


def _digests(store: Store) -> Iterator[tuple[str, str]]:
    """Yield the id and digest of each record on the controller; one that is no UTF-8 text is left out."""
    for name in store.ids():
        with contextlib.suppress(UnicodeDecodeError):
            yield name, digest(store.path(name).read_text(encoding="utf-8"))


def _wrong(store: Store, name: str, content: str) -> str:
    """Return the faults of a host's record as one text, empty when there are none."""
    try:
        store.path(name)
        return "; ".join(faults_of(parse(content, name)))
    except (StoreError, ValueError) as error:
        return str(error)


def _other(store: Store, name: str, content: str) -> str:
    """Return how a host's record differs from the one on the controller, empty when it does not.

    An unreadable record on the controller is not compared: it is collected again.
    """
    path = store.path(name)
    try:
        kept = path.read_text(encoding="utf-8")
        parse(kept, name)
    except (OSError, ValueError):
        return ""
    return (
        f"the host has another record of this id than the one that was collected: sha256 {digest(content)}, not "
        f"{digest(kept)}. {path} stays as it is: find out what changed it on the host"
    )


def _told(dest: str, copied: list[str], problems: list[str], check_mode: bool) -> dict[str, Any]:
    did = "would be copied" if check_mode else "copied"
    line = f"{len(copied)} new record{'' if len(copied) == 1 else 's'} {did} to {dest}"
    return {
        "changed": bool(copied),
        "copied": copied,
        "problems": problems,
        "warnings": [f"a record was not copied: {problem}" for problem in problems],
        "summary": [line, *(f"not copied: {problem}" for problem in problems)],
        "diff": {"before": "", "after": "".join(f"{name}\n" for name in copied), "after_header": dest},
    }
