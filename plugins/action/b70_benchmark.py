# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_benchmark: watches the work of the host, writes table and pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import report
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import essence
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.generators import GENERATORS
from ansible_collections.arcpro.b70.plugins.module_utils._files import Wanted, write
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import newest_good
from ansible_collections.arcpro.b70.plugins.plugin_utils._look import GONE_LOOKS, Look, poll_script, read_look
from ansible_collections.arcpro.b70.plugins.plugin_utils._work import HostJob

display = Display()

MODULE = "arcpro.b70.b70_benchmark"
PAUSES_S = (1.0, 5.0)


class ActionModule(ActionBase):
    """A benchmark belongs to its host: a lost connection, or a killed play, ends only the watching."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._host = str(self._vars.get("inventory_hostname", "host"))
        given = dict(self._task.args)
        dest = str(given.pop("dest", None) or "")
        self._arguments = {**given, "name": given.get("name") or self._host, **_known(given, dest)}
        try:
            if self._task.check_mode or given.get("state") == "foreseen":
                return {**result, **self._ask("start")}
            found = self._measured()
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        if found.get("failed"):
            return {**result, **found}
        record = found["record"]
        files = _files(record, found["pictures"], dest, self._host)
        told = {
            "changed": True,
            "record": record,
            "regressions": record["data"]["comparison"]["regressions"],
            "files": [str(item.path) for item in files],
            "summary": report.lines(record),
        }
        write(files)
        if record["verdict"] == "failed":
            reasons = "; ".join(record["reasons"])
            told.update(failed=True, msg=f"{self._host}: the benchmark of {record['profile']}: {reasons}")
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
        self._watch(started)
        found = self._job.ask(lambda: self._ask("collect"))
        self._job.ask(lambda: self._ask("forget"))
        return found

    def _watch(self, started: Mapping[str, Any]) -> None:
        """Show progress until the unit has ended. The looks must not cost the host what is being measured there."""
        offset, missing = 0, 0
        while missing < GONE_LOOKS:
            script = poll_script(started["progress"], started["result"], offset, started["unit"])
            look = self._job.look(partial(self._look, script))
            whole = look.progress[: look.progress.rfind("\n") + 1]
            for line in whole.splitlines():
                self._say(line)
            offset += len(whole.encode())
            missing = 0 if look.alive else GONE_LOOKS if look.finished else missing + 1

    def _look(self, script: str) -> Look:
        return read_look(self._low_level_execute_command(script).get("stdout", ""))

    def _ask(self, step: str) -> dict[str, Any]:
        arguments = {**self._arguments, "step": step}
        return dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars))

    def _say(self, text: str, color: str = C.COLOR_VERBOSE) -> None:
        display.display(f"{self._host} | {text}", color=color)


def _known(given: Mapping[str, Any], dest: str) -> dict[str, Any]:
    """What the catalogue and, of the profile that is named, other hosts have recorded; only what is compared."""
    recorded = {
        name: {key: entry[key] for key in ("host_class", "tok_s") if key in entry}
        for name, entry in (given.get("evidence") or {}).items()
    }
    name = given.get("profile")
    others = (
        newest_good(Path(dest).expanduser(), name, given.get("generator") or GENERATORS[0]) if name and dest else []
    )
    return {"evidence": recorded, "others": [essence(record) for record in others]}


def _files(record: dict[str, Any], pictures: dict[str, str], dest: str, host: str) -> list[Wanted]:
    """The table and the pictures, beside the record that the role evidence copies."""
    if not dest:
        return []
    folder, name = Path(dest).expanduser() / host / "benchmark", record["id"]
    names = {kind: f"{name}-{kind}" for kind in pictures}
    shown = [names[kind] for kind in sorted(names) if kind.endswith(".png")]
    drawn = [Wanted(folder / names[kind], base64.b64decode(content)) for kind, content in pictures.items()]
    return [Wanted(folder / f"{name}.md", report.markdown(record, shown).encode()), *drawn]
