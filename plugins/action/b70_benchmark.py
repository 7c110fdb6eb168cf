# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_benchmark: watches the work of the host, writes table and pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import report
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import essence
from ansible_collections.arcpro.b70.plugins.module_utils._files import WantedFile, write
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import chosen
from ansible_collections.arcpro.b70.plugins.plugin_utils._work import RecordedWork, glance_script, read_glance


class ActionModule(RecordedWork):
    """A benchmark belongs to its host: a lost connection, or a killed play, ends only the watching."""

    MODULE = "arcpro.b70.b70_benchmark"
    WORK = "the benchmark"
    PAUSES_S = (1.0, 5.0)

    _offset = 0

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        given = dict(self._task.args)
        dest = str(given.pop("dest", None) or "")
        self._arguments = {**given, **_known(given, dest)}
        found = super().run(tmp, task_vars)
        record, pictures = found.get("record"), found.pop("pictures", None)
        if found.get("failed") or not record:
            return found
        if found["joined"]:
            self._say(f"{self.WORK} began before this play")
        files = _files(record, pictures, dest, self._host)
        if not self._task.check_mode:
            write(files)
        regressions = record["data"]["comparison"]["regressions"]
        found.update(changed=True, regressions=regressions, files=[str(item.path) for item in files])
        if record["verdict"] == "failed":
            reasons = "; ".join(record["reasons"])
            found.update(failed=True, msg=f"{self._host}: the benchmark of {record['profile']}: {reasons}")
        return found

    def _glance(self, found: dict[str, Any]) -> bool:
        """Show new lines, and return whether the unit lives. It must not cost the host what is being measured there."""
        script = glance_script(found["progress"], self._offset, found["unit"])
        text, alive = read_glance(self._low_level_execute_command(script).get("stdout", ""))
        whole = text[: text.rfind("\n") + 1]
        for line in whole.splitlines():
            self._say(line)
        self._offset += len(whole.encode())
        return alive

    def _words(self, found: dict[str, Any]) -> list[str]:
        if self._task.args.get("state") == "foreseen":
            return list(found["summary"])
        return report.lines(found["record"]) if found["record"] else super()._words(found)


def _known(given: Mapping[str, Any], dest: str) -> dict[str, Any]:
    """Return the rates in the catalogue and the baselines that a person chose, reduced to what is compared."""
    recorded = {
        name: {key: entry[key] for key in ("host_class", "tok_s") if key in entry}
        for name, entry in (given.get("evidence") or {}).items()
    }
    wanted = given.get("baselines") or []
    try:
        baselines = chosen(Path(dest).expanduser(), wanted) if wanted else []
    except (OSError, ValueError) as error:
        raise AnsibleActionFail(f"b70_benchmark: {error}") from error
    return {"evidence": recorded, "baselines": [essence(record) for record in baselines]}


def _files(record: dict[str, Any], pictures: dict[str, str], dest: str, host: str) -> list[WantedFile]:
    """Return the table and the pictures as files beside the record, which the role evidence copies."""
    if not dest:
        return []
    folder, name = Path(dest).expanduser() / host / "benchmark", record["id"]
    names = {kind: f"{name}-{kind}" for kind in pictures}
    shown = [names[kind] for kind in sorted(names) if kind.endswith(".png")]
    drawn = [WantedFile(folder / names[kind], base64.b64decode(content)) for kind, content in pictures.items()]
    return [WantedFile(folder / f"{name}.md", report.markdown(record, shown).encode()), *drawn]
