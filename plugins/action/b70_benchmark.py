# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_benchmark: watches the work of the host, writes table and pictures."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import report
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import expectations
from ansible_collections.arcpro.b70.plugins.module_utils._files import Wanted, write
from ansible_collections.arcpro.b70.plugins.plugin_utils._host_job import HostJob

display = Display()

MODULE = "arcpro.b70.b70_benchmark"
PAUSES_S = (1.0, 5.0)
# What only the controller needs.
_HERE = ("evidence", "fail_on_regression", "dest")


class ActionModule(ActionBase):
    """A benchmark belongs to its host: a lost connection, or a killed play, ends only the watching."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._host = str(self._vars.get("inventory_hostname", "host"))
        given = dict(self._task.args)
        here = {key: given.pop(key, None) for key in _HERE}
        self._arguments = {**given, "name": given.get("name") or self._host}
        try:
            if self._task.check_mode:
                return {**result, **self._ask("start")}
            found = self._measured()
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        if found.get("failed"):
            return {**result, **found}
        record = found["record"]
        recorded = (here["evidence"] or {}).get(record["profile"])
        record["data"]["expectations"] = expectations(recorded, record["host"]["class"], record["data"])
        files = _files(record, found["pictures"], str(here["dest"] or ""), self._host)
        regressions = list(record["data"]["comparison"]["regressions"])
        worse = bool(regressions) and bool(here["fail_on_regression"])
        failed = record["verdict"] == "failed" or worse
        told = {
            "changed": True,
            "record": record,
            "regressions": regressions,
            "files": [str(item.path) for item in files],
            "summary": report.lines(record),
        }
        write(files)
        if failed:
            reasons = [*record["reasons"], *(regressions if worse else [])]
            told.update(failed=True, msg=f"{self._host}: the benchmark of {record['profile']}: {'; '.join(reasons)}")
        return {**result, **told}

    def _measured(self) -> dict[str, Any]:
        self._low_level_execute_command("true", sudoable=False)
        self._job = HostJob(self._connection, "the benchmark", lambda text: self._say(text, C.COLOR_WARN), PAUSES_S)
        started = self._job.ask(lambda: self._ask("start"))
        if started.get("failed"):
            return started
        known = {"joined": "joins the benchmark that is under way", "found": "collects the result of an earlier run"}
        if started["began"] in known:
            self._say(known[started["began"]])
        offset = 0
        while True:
            seen = self._job.look(lambda offset=offset: self._ask("look", offset=offset))  # type: ignore[misc]
            if seen.get("failed"):
                return dict(seen)
            for line in seen["lines"]:
                self._say(line)
            offset = seen["offset"]
            if not seen["running"]:
                break
        found = self._job.ask(lambda: self._ask("collect"))
        self._job.ask(lambda: self._ask("forget"))
        return found

    def _ask(self, step: str, offset: int = 0) -> dict[str, Any]:
        arguments = {**self._arguments, "step": step, "offset": offset}
        return dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars))

    def _say(self, text: str, color: str = C.COLOR_VERBOSE) -> None:
        display.display(f"{self._host} | {text}", color=color)


def _files(record: dict[str, Any], pictures: dict[str, str], dest: str, host: str) -> list[Wanted]:
    """The table and the pictures, beside the record that the role evidence copies."""
    if not dest:
        return []
    folder, name = Path(dest).expanduser() / host / "benchmark", record["id"]
    names = {kind: f"{name}-{kind}" for kind in pictures}
    shown = [names[kind] for kind in sorted(names) if kind.endswith(".png")]
    drawn = [Wanted(folder / names[kind], base64.b64decode(content)) for kind, content in pictures.items()]
    return [Wanted(folder / f"{name}.md", report.markdown(record, shown).encode()), *drawn]
