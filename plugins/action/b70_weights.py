# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The half of b70_weights on the controller: it reads the sources, asks the host, and copies what is missing there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils._weights import service
from ansible_collections.arcpro.b70.plugins.module_utils._weights.host import read_source, sha256
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import (
    ALWAYS_HASH_BELOW,
    Wanted,
    WeightsError,
    check_name,
    size_in_words,
)

display = Display()

# The kinds of source, and the keys a source of that kind may have.
SOURCE_KINDS: dict[str, frozenset[str]] = {"path": frozenset({"path"})}


def source_kind(name: str, source: Any) -> str:
    """Return the kind of a model's source; raises WeightsError with what is accepted."""
    kinds = [kind for kind in SOURCE_KINDS if isinstance(source, Mapping) and kind in source]
    if len(kinds) != 1 or set(source) - SOURCE_KINDS[kinds[0]] or not isinstance(source[kinds[0]], str):
        raise WeightsError(
            f"the source of model {name} must be a dictionary with exactly one of: {', '.join(SOURCE_KINDS)}"
        )
    return kinds[0]


def read_digests(root: str, files: Mapping[str, Wanted], names: list[str]) -> dict[str, Wanted]:
    """Return ``files`` with the digests of ``names`` read below ``root``."""
    read = {name: replace(files[name], sha256=sha256(os.path.join(root, name))) for name in names}
    return {**files, **read}


def summary_of(models: Mapping[str, Any]) -> list[str]:
    """Return one line for each model: its state, size, and what is wrong or not known."""
    lines = []
    for name, model in models.items():
        size = f", {model['files']} files, {size_in_words(model['size'])}" if model["files"] else ""
        why = f" ({model['reason']})" if model["reason"] else ""
        lines.append(f"{name}: {model['state']}{size}{why}")
    return lines


def diff_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Return the diff of the models that change: one line each."""
    names = [name for name in sorted(after) if before[name] != after[name]]
    texts = ["".join(f"{line}\n" for line in summary_of({n: side[n] for n in names})) for side in (before, after)]
    headers = {"before_header": "model directories", "after_header": "model directories"}
    return {**headers, "before": texts[0], "after": texts[1]}


class ActionModule(ActionBase):
    """Bring models to one host."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        _validated, arguments = self.validate_argument_spec(
            {
                "directory": {"type": "path", "required": True},
                "models": {"type": "dict", "default": {}},
                "wanted": {"type": "list", "elements": "str"},
                "report": {"type": "list", "elements": "str", "default": []},
                "verify": {"type": "str", "choices": ["stat", "checksum"], "default": "stat"},
            }
        )
        self._full = arguments["verify"] == "checksum"
        try:
            result.update(self._bring(arguments))
        except WeightsError as error:
            raise AnsibleActionFail(str(error)) from error
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _bring(self, arguments: dict[str, Any]) -> dict[str, Any]:
        sources: dict[str, Any] = arguments["models"]
        wanted = list(sources) if arguments["wanted"] is None else arguments["wanted"]
        roots, files = {}, {}
        for name in wanted:
            if name in sources:
                check_name(name)
                source_kind(name, sources[name])
                roots[name] = sources[name]["path"]
                files[name] = self._look(roots[name])
        others = list(dict.fromkeys(name for name in [*wanted, *arguments["report"]] if name not in files))
        found = self._inspect(files, others)
        unknown = {name: found[name]["unknown"] for name in files if found[name]["unknown"]}
        if unknown:
            for name, left in unknown.items():
                files[name] = read_digests(roots[name], files[name], left)
            found.update(self._inspect({name: files[name] for name in unknown}, []))
        self._refuse([name for name in others if name in wanted], found)

        to_bring = [name for name in files if found[name]["state"] != "complete"]
        for model in found.values():
            model.pop("unknown")
            model["brought"] = 0
        after = {name: dict(model) for name, model in found.items()}
        for name in to_bring:
            unread = [file for file, want in files[name].items() if want.sha256 is None]
            files[name] = read_digests(roots[name], files[name], unread)
        if to_bring and not self._task.check_mode:
            brought = self._copy({name: files[name] for name in to_bring}, roots)
        else:
            brought = dict.fromkeys(to_bring, 0)
        for name in to_bring:
            size = sum(want.size for want in files[name].values())
            after[name].update(state="complete", reason="", files=len(files[name]), size=size, brought=brought[name])
        adopted = [name for name in found if found[name]["adopted"]]
        for name in adopted:
            after[name].update(adopted=False, reason="")
        changed = bool(to_bring or adopted)
        now = found if self._task.check_mode else after
        answer: dict[str, Any] = {"changed": changed, "models": now, "summary": summary_of(now)}
        if self._task.diff:
            answer["diff"] = diff_of(found, after)
        return answer

    def _look(self, root: str) -> dict[str, Wanted]:
        """A source's files; the small ones are read at once, the large ones only if the host cannot vouch for them."""
        files = read_source(root)
        small = [name for name, want in files.items() if self._full or want.size < ALWAYS_HASH_BELOW]
        return read_digests(root, files, small)

    def _inspect(self, files: Mapping[str, service.Files], others: list[str]) -> dict[str, Any]:
        models: dict[str, Any] = {name: {"wanted": None, "source": {"kind": "host"}} for name in others}
        for name, wanted in files.items():
            models[name] = {"wanted": service.pack(wanted), "source": {"kind": "path"}}
        if not models:
            return {}
        found: dict[str, Any] = self._ask({"step": "inspect", "models": models, "full": self._full})["models"]
        return found

    def _refuse(self, names: list[str], found: Mapping[str, Any]) -> None:
        """Fail for a wanted model that is not right and that nothing here can bring."""
        bad = [name for name in names if found[name]["state"] != "complete"]
        wrong = [f"{name} is {found[name]['state']} ({found[name]['reason']})" for name in bad]
        if wrong:
            raise WeightsError(
                f"{'; '.join(wrong)}. No source is known for {'it' if len(wrong) == 1 else 'them'}: "
                "give one in models, or put the files there"
            )

    def _copy(self, models: Mapping[str, service.Files], roots: Mapping[str, str]) -> dict[str, int]:
        """Copy models file by file; each is in place before the next begins."""
        login = self._low_level_execute_command("id -u", sudoable=False)
        if login["rc"] != 0:
            raise WeightsError(f"the user id of the login on the host could not be read: {login['stderr'].strip()}")
        request = {"step": "prepare", "models": {name: service.pack(files) for name, files in models.items()}}
        prepared = self._ask({**request, "uploader": int(login["stdout"])})["models"]
        brought = {}
        for name, files in models.items():
            folder, left = prepared[name]["folder"], prepared[name]["files"]
            size = size_in_words(sum(files[file].size for file in left))
            display.display(f"{self._vars['inventory_hostname']}: copying {name}, {len(left)} files, {size}")
            for file in left:
                self._connection.put_file(os.path.join(roots[name], file), f"{folder}/{file}")
            self._ask({"step": "commit", "name": name, "wanted": service.pack(files), "source": {"kind": "path"}})
            brought[name] = len(left)
        return brought

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the half on the host."""
        answer: dict[str, Any] = self._execute_module(
            module_name="arcpro.b70.b70_weights",
            module_args={"directory": self._task.args["directory"], "request": request},
            task_vars=self._vars,
        )
        if answer.get("failed"):
            raise WeightsError(str(answer.get("msg", "the module on the host failed without a message")))
        return answer
