# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Revisions of a model beside each other: what another revision costs, what is never replaced, what a switch goes back
to. The files are real, the slot is that of the slot engine's fakes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.action import b70_weights
from ansible_collections.arcpro.b70.plugins.module_utils._files import sha256
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import rendering
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import weights as recorded
from ansible_collections.arcpro.b70.plugins.module_utils._weights import host, job, service, sources, unneeded
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import (
    NO_TIME,
    SourceFile,
    WeightsError,
    size_in_words,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils import _work
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.places import WeightsSettings
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.rendering import check_settings, resolve
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights import hub
from unit.plugins.module_utils._slot.calls import host as fake_slot
from unit.plugins.module_utils._slot.calls import switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT
from unit.plugins.module_utils._weights.files import safetensors
from unit.plugins.plugin_utils._render.test_rendering import SETTINGS

A, B = "a" * 40, "b" * 40
UID = os.geteuid()
PROFILE: dict[str, Any] = {
    "status": "experiment",
    "stack": "cpu",
    "cards": 0,
    "model": {"hf_repo": "o/n", "revision": A, "directory": "m"},
    "engine": {"settings": {"max_model_len": 512}},
}
STACKS = load_stacks()
PROGRAM = "/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/vllm"


def upstream(revision: str) -> dict[str, bytes]:
    """The files of a repository at a commit: the large one is the same at each."""
    return {
        "config.json": b"{}",
        "tokenizer.json": b'{"t": 1}',
        "model-00001-of-00002.safetensors": safetensors(b"same" * 9, "1"),
        "model-00002-of-00002.safetensors": safetensors(revision.encode(), "2"),
        "model.safetensors.index.json": json.dumps(
            {"weight_map": {str(n): f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}}
        ).encode(),
    }


class Machine(b70_weights.ActionModule):
    """A host: the controller's half of the module, the host's half on files, and a hub that answers at once."""

    def __init__(self, root: Path, revisions: dict[str, str] | None = None, pins_file: str = "") -> None:
        self.root, self.models = root, root / "models"
        self._vars = {"inventory_hostname": "h1"}
        self._task = SimpleNamespace(check_mode=False, diff=False, args={"directory": str(self.models)})
        self._options = {key: value["default"] for key, value in {**sources.OPTIONS, **sources.PEERS}.items()}
        self._full, self._pins_file, self._token, self._connection = False, pins_file, "", None
        self._slots = {"config_dir": str(root / "etc"), "state_dir": str(root / "var"), "proc": str(root / "proc")}
        self.revisions = revisions or {}
        self.came: list[str] = []

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["step"] == "resolve":
            return {"revision": B}
        if request["step"] == "start":
            self._begun = request
            used = unneeded.Slots(**self._slots).used(str(self.models)).get(request["name"], "")
            files = {
                name: SourceFile(len(data), NO_TIME, None if name.endswith(".json") else digest(data))
                for name, data in upstream(request["source"]["revision"]).items()
            }
            self._staging, self._left = host.prepare(str(self.models / request["name"]), files, UID, used=used)
            return {"state": "running", "left": len(self._left), "bytes": 0, "joined": False, "progress": None}
        if request["step"] == "acknowledge":
            return {}
        if request["step"] == "look":
            content = upstream(self._begun["source"]["revision"])
            for name in self._left:
                Path(self._staging, name).write_bytes(content[name])
            self.came += self._left
            wanted = {name: SourceFile(len(data), 0, digest(data)) for name, data in content.items()}
            host.commit(str(self.models / request["name"]), wanted, self._begun["source"])
            return {"state": "ended", "files": len(wanted), "size": 0, "brought": len(self._left)}
        return service.answer(str(self.models), {**request, "slots": self._slots}, write=not self._task.check_mode)

    def bring(self, models: dict[str, Any], lenient: tuple[str, ...] = ()) -> dict[str, Any]:
        arguments = {"models": models, "wanted": None, "lenient": list(lenient), "report": []}
        return self._bring({"directory": str(self.models), **arguments})

    def play(self, slot: Any, profiles: dict[str, Any], *, env: dict[str, str] | None = None) -> None:
        """Bring the weights of all profiles and render them, as the two roles do."""
        catalogue = load_catalogue((), profiles, STACKS, WeightsSettings(revisions=self.revisions))
        self.bring(hub.from_catalogue(catalogue, profiles, self.revisions), lenient=("m",))
        models = {one["directory"]: one["repository"] for name in profiles for one in catalogue[name]["weights"]}
        found = self._ask({"step": "stand", "models": models})["models"]
        settings = check_settings({**SETTINGS, "models_dir": str(self.models), "stacks": STACKS, "weights": found})
        self.sync(slot)
        for name in profiles:
            done, _environments = resolve(catalogue[name], settings)
            changes = {"model": done["model"], "fingerprint": done["fingerprint"], "engine__env": env or {}}
            changes["engine__argv"] = [PROGRAM, "serve", done["model"]["path"]]
            serves = rendering.committed(slot.effects().files, LAYOUT)
            held = serves is not None and serves.name == name
            (slot.render_held if held else slot.render)(name, **changes)
        self.sync(slot)

    def sync(self, slot: Any) -> None:
        """Let the fake see the model directories as they are, and the module what the slot has committed."""
        for path in [path for path in slot.texts if path.is_relative_to(self.models)]:
            del slot.texts[path]
        for file in self.models.rglob("*"):
            if file.is_file():
                slot.put(PurePosixPath(file), file.read_text())
        committed = self.root / "var/committed/main.json"
        committed.parent.mkdir(parents=True, exist_ok=True)
        committed.write_text(slot.effects().files.read(LAYOUT.committed_file) or "")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(_work, "keep_alive", lambda _connection: None)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return Machine(tmp_path)


def served(slot: Any) -> str:
    """The directory that the running engine was started with."""
    return str(slot.engine().cmdline[-1])


def last_file(directory: Path) -> str:
    return (directory / "model-00002-of-00002.safetensors").read_bytes()[-len(A) :].decode()


def test_a_profile_that_extends_another_with_another_revision_leads_back_to_the_files_of_the_old_one(machine):
    slot = fake_slot("")
    old = {"old": PROFILE}
    machine.play(slot, old)
    assert switch(slot, "old")["verified"]
    machine.play(slot, {**old, "new": {"extends": "old", "status": "experiment", "model": {"revision": B}}})
    assert sorted(path.name for path in machine.models.iterdir()) == [f"m@{A}", f"m@{B}"]
    slot.unit("new").fault = "wrong_answer"
    result = switch(slot, "new")
    assert (result["rolled_back"], result["profile"], result["verified"]) == (True, "old", True)
    assert served(slot) == str(machine.models / f"m@{A}")
    assert (last_file(machine.models / f"m@{A}"), last_file(machine.models / f"m@{B}")) == (A, B)
    slot.assert_invariants()


def test_another_commit_of_the_site_that_fails_leads_back_to_the_files_of_the_old_one(machine):
    slot = fake_slot("")
    machine.play(slot, {"old": PROFILE})
    assert switch(slot, "old")["verified"]
    before = rendering.committed(slot.effects().files, LAYOUT)
    assert before is not None
    record = (machine.models / f"m@{A}/.b70-weights.json").read_text()
    assert json.loads(before.profile)["model"]["record"] == recorded.together([recorded.digest(record)])
    machine.revisions = {"o/n": B}
    machine.play(slot, {"old": PROFILE}, env={"FAULT": "wrong_answer"})
    result = switch(slot, "old")
    assert (result["rolled_back"], result["profile"], result["verified"]) == (True, "old", True)
    assert served(slot) == str(machine.models / f"m@{A}")
    assert last_file(machine.models / f"m@{A}") == A
    assert rendering.committed(slot.effects().files, LAYOUT) == before
    slot.reboot()
    assert served(slot) == str(machine.models / f"m@{A}")
    machine.play(slot, {"old": PROFILE})
    assert switch(slot, "old")["changed"]
    assert served(slot) == str(machine.models / f"m@{B}")


def inodes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in directory.glob("*.safetensors")}


def by_hand(machine: Machine, name: str = "m", revision: str = A) -> Path:
    folder = machine.models / name
    folder.mkdir(parents=True)
    for file, data in upstream(revision).items():
        (folder / file).write_bytes(data)
    return folder


def test_a_second_revision_costs_what_differs(machine):
    machine.bring({"m": {"hub": "o/n", "revision": A}})
    machine.came.clear()
    done = machine.bring({"m": {"hub": "o/n", "revision": B}})
    # A file of which the hub tells no SHA-256 comes again. Such files are small.
    assert sorted(set(upstream(B)) - set(machine.came)) == ["model-00001-of-00002.safetensors"]
    one, other = (inodes(machine.models / f"m@{revision}") for revision in (A, B))
    assert {name for name in one if one[name] == other[name]} == {"model-00001-of-00002.safetensors"}
    assert (done["directories"], done["brings"]) == ({"m": f"m@{B}"}, [str(machine.models / f"m@{B}")])
    assert not machine.bring({"m": {"hub": "o/n", "revision": A}})["changed"]


def test_a_directory_that_somebody_filled_is_used_as_it_is_for_a_profile_and_linked_for_the_operator(machine):
    folder = by_hand(machine)
    source = {"m": {"hub": "o/n", "revision": B}}
    done = machine.bring(source, lenient=("m",))
    assert (done["changed"], done["directories"], machine.came) == (False, {"m": "m"}, [])
    assert machine._ask({"step": "stand", "models": {f"m@{B}": "o/n"}})["models"][f"m@{B}"] == {"at": "m", "record": ""}
    assert machine.bring(source)["directories"] == {"m": f"m@{B}"}
    assert inodes(folder)["model-00001-of-00002.safetensors"] in inodes(machine.models / f"m@{B}").values()
    assert last_file(folder) == A


def test_half_a_model_that_somebody_put_there_is_completed_beside_it(machine):
    folder = by_hand(machine)
    (folder / "tokenizer.json").unlink()
    machine._task.check_mode = True
    source = {"m": {"hub": "o/n", "revision": A}}
    foretold = machine.bring(source, lenient=("m",))
    assert foretold["brings"] == [str(machine.models / f"m@{A}")]
    found = machine._ask({"step": "stand", "models": {f"m@{A}": "o/n"}})["models"]
    assert found[f"m@{A}"]["at"] == f"m@{A}"  # where check mode expects what would be brought
    machine._task.check_mode = False
    assert machine.bring(source, lenient=("m",))["brings"] == foretold["brings"]
    assert inodes(folder) == inodes(machine.models / f"m@{A}")


def test_a_link_of_the_operator_is_such_a_directory_and_that_of_a_mirror_is_none(machine):
    by_hand(machine, "elsewhere")
    (machine.models / "m").symlink_to("elsewhere")
    assert machine.bring({"m": {"hub": "o/n"}}, lenient=("m",))["directories"] == {"m": "m"}
    (machine.models / "m").unlink()
    machine.bring({"m": {"hub": "o/n", "revision": A}})
    (machine.models / "m").symlink_to(f"m@{A}")
    assert machine.bring({"m": {"hub": "o/n", "revision": B}}, lenient=("m",))["directories"] == {"m": f"m@{B}"}


def test_what_a_profile_has_no_commit_for_is_the_revision_that_the_host_recorded(machine, tmp_path):
    machine.bring({"m": {"hub": "o/n", "revision": A}})
    machine._pins_file = str(tmp_path / "b70-pins.yml")
    done = machine.bring({"m": {"hub": "o/n"}}, lenient=("m",))
    assert (done["directories"], machine.bring({}, ())["models"]) == ({"m": f"m@{A}"}, {})
    assert done["pins"] == [f"o/n: revision {A} is recorded in {machine._pins_file}"]


def test_without_any_commit_the_first_one_that_is_pinned_names_the_directory(machine, tmp_path):
    machine._pins_file = str(tmp_path / "b70-pins.yml")
    assert machine.bring({"m": {"hub": "o/n"}}, lenient=("m",))["directories"] == {"m": f"m@{B}"}


@pytest.mark.parametrize("use", ["committed", "process"])
def test_files_that_are_in_use_are_repaired_and_added_to_but_never_replaced(machine, tmp_path, use):
    folder = by_hand(machine)
    files = host.read_source(str(folder))
    wanted = {name: replace(want, sha256=sha256(str(folder / name))) for name, want in files.items()}
    assert host.inspect(str(folder), wanted, {"kind": "path"}, True, True).state == "complete"
    if use == "committed":
        file = tmp_path / "var/committed/main.json"
        text = json.dumps({"profile": json.dumps({"model": {"path": str(folder)}})})
    else:
        file, text = tmp_path / "proc/7/cmdline", f"vllm\0serve\0{folder}\0"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    prepare = {"step": "prepare", "uploader": UID, "full": False}
    changed = {**wanted, "tokenizer.json": replace(wanted["tokenizer.json"], sha256="0" * 64)}
    for other in (changed, {name: want for name, want in wanted.items() if name != "tokenizer.json"}):
        with pytest.raises(
            WeightsError, match=r"m is in use \(.* it.*\), and tokenizer.json would be .*another directory"
        ):
            machine._ask({**prepare, "models": {"m": service.pack(other)}})
    (folder / "tokenizer.json").write_text("damaged")
    more = {**wanted, "README.md": SourceFile(1, 1, "1" * 64)}
    assert machine._ask({**prepare, "models": {"m": service.pack(more)}})["models"]["m"]["files"] == [
        "README.md",
        "tokenizer.json",
    ]
    shutil.rmtree(file.parent)
    machine._ask({**prepare, "models": {"m": service.pack(changed)}})


def rendered(machine: Machine, *profiles: str, slot: str = "etc") -> None:
    """Write the files of a slot that name model directories."""
    folder = machine.root / slot / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    (machine.root / slot / "slot.json").write_text("{}")
    for number, path in enumerate(profiles):
        text = {"model": {"path": str(machine.models / path)}}
        (folder / f"p{number}.json").write_text(json.dumps(text))


def removal(machine: Machine, models: dict[str, Any] | None = None, *, check: bool = False) -> dict[str, Any]:
    machine._task.check_mode, machine._task.diff = check, True
    return machine._remove({"models": models or {}})


def test_what_nobody_needs_is_removed_by_a_command_that_says_why(machine, monkeypatch):
    monkeypatch.setattr(job, "running", lambda _directory: False)
    for revision in (A, B):
        machine.bring({"m": {"hub": "o/n", "revision": revision}})
    by_hand(machine, "hand")
    left = machine.models / f".m@{'c' * 40}.incoming"
    left.mkdir()
    rendered(machine, f"m@{B}")
    before = sorted(machine.models.iterdir())
    nobody = "no profile, slot or process of this host names it"
    foretold = removal(machine, check=True)
    assert sorted(machine.models.iterdir()) == before
    assert foretold["summary"] == [
        f"{left.name}: would be removed, an interrupted download left it, and {nobody}",
        f"m@{A}: would be removed, {nobody}",
        f"m@{B}: stays, profile p0 names it",
        foretold["summary"][-1],
    ]
    done = removal(machine)
    assert (done["changed"], done["removed"], done["diff"]) == (True, foretold["removed"], foretold["diff"])
    assert sorted(path.name for path in machine.models.iterdir()) == ["hand", f"m@{B}"]
    assert last_file(machine.models / f"m@{B}") == B
    again = removal(machine)
    assert (again["changed"], again["removed"]) == (False, {})


def test_what_the_host_or_the_operator_needs_is_never_removed(machine, monkeypatch, tmp_path):
    for revision in (A, B):
        for name in ("m", "n", "o"):
            machine.bring({name: {"hub": "o/n", "revision": revision}})
    committed, process = tmp_path / "var/committed/aux.json", tmp_path / "proc/7/cmdline"
    for file, name in ((committed, f"m@{A}"), (process, f"m@{B}")):
        file.parent.mkdir(parents=True)
        file.write_text(f"\0{machine.models / name}/x\0")
    rendered(machine)
    rendered(machine, f"n@{A}", slot="etc-aux")
    (machine.models / ".n@.fetch").mkdir()
    monkeypatch.setattr(job, "running", lambda _directory: True)
    found = removal(machine, {"o": {"hub": "o/n", "revision": A}})
    assert found["kept"] == {
        ".n@.fetch": "a download is under way",
        f"m@{A}": "slot aux serves it, or goes back to it",
        f"m@{B}": "process 7 names it",
        f"n@{A}": "profile p0 names it",
        f"o@{A}": "model_weights_models names it",
    }
    assert set(found["removed"]) == {f"n@{B}", f"o@{B}"}


def test_files_that_another_revision_shares_free_nothing(machine):
    for revision in (A, B):
        machine.bring({"m": {"hub": "o/n", "revision": revision}})
    rendered(machine, f"m@{B}")
    sizes = {file.name: file.stat().st_blocks * 512 for file in (machine.models / f"m@{A}").iterdir()}
    own = sum(sizes.values()) - sizes["model-00001-of-00002.safetensors"]
    assert removal(machine, check=True)["summary"][-1] == f"{size_in_words(own)} would be free"
    assert unneeded._freed([machine.models / f"m@{A}", machine.models / f"m@{B}"]) > own * 2


def test_a_removal_that_is_cut_off_leaves_no_half_of_a_model_and_is_completed(machine, monkeypatch):
    monkeypatch.setattr(job, "running", lambda _directory: False)
    machine.bring({"m": {"hub": "o/n", "revision": A}})
    rendered(machine)

    def cut_off(path: str, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(f"cut off at {path}")

    with monkeypatch.context() as now:
        now.setattr(shutil, "rmtree", cut_off)
        with pytest.raises(OSError, match="cut off"):
            removal(machine)
    assert [path.name for path in machine.models.iterdir()] == [f".m@{A}.old"]
    assert removal(machine)["changed"]
    assert not list(machine.models.iterdir())


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_host_whose_slots_are_not_known_loses_nothing(machine, text):
    machine.bring({"m": {"hub": "o/n", "revision": A}})
    rendered(machine)
    file = machine.root / "etc/slot.json"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(
        WeightsError, match=r"none were removed: run the role slot first|can't be read .* role slot again"
    ):
        removal(machine)
    assert (machine.models / f"m@{A}").is_dir()
