# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effects of b70_stacks on one host. Each is another module or action of this collection."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._image import STORAGE
from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins, _pins_file
from ansible_collections.arcpro.b70.plugins.plugin_utils._nested_action import run_other
from ansible_collections.arcpro.b70.plugins.plugin_utils._work import HostJob, keep_alive

from .._catalogue.images import known_digest, tagged
from . import planning

PROBE = Path(__file__).parents[3] / "roles/stack/files/probe.py"
TAIL_LINES = 12
PAUSES_S = (1.0, 5.0)
IMAGE_STEPS = (
    4  # a pull (from a mirror: a download, then a load), a build or a name; one more for what ended without a word
)
ROOT = {"owner": "root", "group": "root"}

_PATH: dict[str, Any] = {"type": "path"}
_WORDS: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
OPTIONS: dict[str, Any] = {
    "step": {"type": "str", "required": True, "choices": ["plan", "look", "share", "install", "take", "contents"]},
    "names": {"type": "list", "elements": "str"},
    "dirs": _WORDS,
    "root": {**_PATH, "default": _paths.STACK_ROOT},
    "python": {**_PATH, "default": "/usr/bin/python3"},
    "python_dir": {**_PATH, "default": _paths.PYTHON_DIR},
    "python_mirror": {"type": "str", "default": ""},
    "tools_dir": {**_PATH, "default": _paths.TOOLS_DIR},
    "uv_cache_dir": {**_PATH, "default": _paths.UV_CACHE_DIR},
    "find_links": _WORDS,
    "extra_index_urls": _WORDS,
    "no_index": {"type": "bool", "default": False},
    "git_mirrors": {"type": "dict", "default": {}},
    "runtime_packages": _WORDS,
    "image_authfile": {"type": "str", "default": ""},
    "image_mirror": {"type": "str", "default": ""},
    "image_timeout": {"type": "int", "default": 7200},
    "build_packages": _WORDS,
    "user": {"type": "str", "default": "b70"},
    "group": {"type": "str", "default": "b70"},
    "work_dir": {**_PATH, "default": f"{_paths.DATA_DIR}/src"},
    "wheel_dir": {**_PATH, "default": f"{_paths.CACHE_DIR}/wheels"},
    "ccache_dir": {**_PATH, "default": f"{_paths.CACHE_DIR}/ccache"},
    "wheel_store": {**_PATH, "default": "~/.cache/b70/wheels"},
    "pins_file": {"type": "str", "default": ""},
    "oneapi_environment_file": {**_PATH, "default": f"{_paths.CONFIG_DIR}/oneapi.env"},
    "build_memory_gib": {"type": "int", "default": 0},
    "build_swap_file": {"type": "str", "default": ""},
    "build_swap_reserve_gib": {"type": "int", "default": 10},
    "install_timeout": {"type": "int", "default": 1800},
    "verify_timeout": {"type": "int", "default": 300},
    "source_timeout": {"type": "int", "default": 1800},
    "build_timeout": {"type": "int", "default": 43200},
    "stall_timeout": {"type": "int", "default": 900},
}

Item = Mapping[str, Any]
Wheels = dict[str, Mapping[str, Any]]


class StackFault(Exception):
    """Something about a stack is wrong; the text says what, where and what to do. details: what else the result has."""

    def __init__(self, text: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.details = dict(details or {})


class Installer:
    """Carries out the plan of one host. action: the running plugin, whose connection is used."""

    def __init__(self, action: Any, given: Mapping[str, Any], variables: dict[str, Any]) -> None:
        self._action = action
        self._given = given
        self._vars = variables
        self._host = str(variables.get("inventory_hostname", "host"))
        self._store = Path(given["wheel_store"])

    def host_facts(self, packages: Sequence[str] = ()) -> dict[str, Any]:
        """Look at the host; packages: what stacks want of the distribution."""
        given = self._given
        return self._module(
            "arcpro.b70.b70_host_info",
            {
                "stack_root": given["root"],
                "tools_dir": given["tools_dir"],
                "python": given["python"],
                "user": given["user"],
                "paths": [given["root"], STORAGE],
                "packages": list(dict.fromkeys([*given["runtime_packages"], *given["build_packages"], *packages])),
            },
        )

    # The wheels of sources.

    def look(self, item: Item, build: Item) -> dict[str, Any]:
        """Return what the host has of a wheel. Changes nothing."""
        found = self._wheel(item, build, check=True)
        kept = ("key", "state", "problems", "estimate", "swap", "wheel")
        return {"problems": [], "estimate": "", "swap": False, **{key: found[key] for key in kept if key in found}}

    def stored(self) -> list[str]:
        """Return the finished wheels in the controller's store, each as SOURCE-KEY."""
        return sorted(record.parent.name for record in self._store.glob("*/build.json"))

    def to_store(self, source: str, wheel: Mapping[str, Any]) -> None:
        """Copy a finished wheel to the controller. The record is copied last and marks the wheel as complete."""
        folder = f"{source}-{wheel['key']}"
        if (self._store / folder / "build.json").exists():
            return
        for file in (wheel["file"], "build.json"):
            place = {"src": f"{self._given['wheel_dir']}/{folder}/{file}", "dest": str(self._store / folder / file)}
            self._act("ansible.legacy.fetch", {**place, "flat": True})

    def _from_store(self, item: Item, build: Item, look: Mapping[str, Any], holder: str) -> Mapping[str, Any]:
        """Copy a finished wheel to the host, which then checks it."""
        name = build["name"]
        folder = self._store / f"{name}-{look['key']}"
        target = f"{self._given['wheel_dir']}/{folder.name}"
        try:
            record = json.loads((folder / "build.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise StackFault(
                f"{holder or 'another run'} was to give the wheel of {name} to {self._host} too, and has not: see why "
                "above, and run again."
            ) from error
        try:
            self._file(target, state="directory", mode="0755")
            for file in (record["file"], "build.json"):
                place = {"src": str(folder / file), "dest": f"{target}/{file}"}
                self._act("ansible.legacy.copy", {**place, **ROOT, "mode": "0644"})
            found = self._wheel(item, build, brought=True)
        except StackFault as fault:
            raise StackFault(
                f"the wheel of {name} from {folder} is refused on {self._host}: {fault}. Remove that folder on the "
                "controller and run again: it is brought or built anew."
            ) from fault
        return dict(found["wheel"])

    def _wheel(self, item: Item, build: Item, *, check: bool | None = None, brought: bool = False) -> dict[str, Any]:
        given = self._given
        more = {"environment_file": given["oneapi_environment_file"]} if "oneapi" in item["manifest"] else {}
        if given["build_swap_file"]:
            more["swap_file"] = given["build_swap_file"]
        same = ("work_dir", "wheel_dir", "ccache_dir", "user", "group")
        limits = ("source_timeout", "build_timeout", "stall_timeout")
        return self._act(
            "arcpro.b70.b70_source_build",
            {
                **build["arguments"],
                **more,
                **{key: given[key] for key in (*same, *limits)},
                "mirrors": given["git_mirrors"],
                "python": f"{item['dir']}/venv/bin/python",
                "swap_gib": given["build_memory_gib"],
                "swap_reserve_gib": given["build_swap_reserve_gib"],
                "uv": f"{given['tools_dir']}/bin/uv",
                "build": not brought,
            },
            check=check,
        )

    # A stack's directory.

    def begin(self, item: Item, waits: bool) -> None:
        """Make the directory. A stack that waits for the wheel of another host also gets all that does not need it."""
        with self._telling(item):
            self._file(item["dir"], state="directory", mode="0755")
            if item["reason"]:
                self._file(f"{item['dir']}/fingerprint.json", state="absent")
            if waits:
                self._environment(item, {}, more_follows=True)

    def finish(
        self, item: Item, share: Mapping[str, Any], looks: Mapping[str, Any], planned: Mapping[str, Any]
    ) -> dict[str, str]:
        """Copy or build the wheels in order, verify the stack and write its fingerprint.

        Return the digests of what had none before.
        """
        with self._telling(item):
            wheels: Wheels = {}
            for build in item["builds"]:
                name, answer = build["name"], share[build["name"]]
                if answer["do"] == "copy":
                    wheels[name] = self._from_store(item, build, looks[name], answer["holder"])
                elif answer["do"] == "have":
                    wheels[name] = looks[name]["wheel"]
                else:
                    # Built against the very environment, with what was built before it.
                    self._environment(item, wheels, more_follows=True)
                    wheels[name] = dict(self._wheel(item, build)["wheel"])
                    self.to_store(name, wheels[name])
            learned = self._environment(item, wheels)
            facts = self._verify(item, planned["cards"])
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            text = planning.fingerprint(item, planned, facts, wheels, learned, now)
            # Written last: a directory without it counts as interrupted and is built again.
            place = {"dest": f"{item['dir']}/fingerprint.json", "content": json.dumps(text, indent=4) + "\n"}
            self._act("ansible.legacy.copy", {**place, **ROOT, "mode": "0644"})
        return learned

    # A stack that is an image.

    def finish_image(self, item: Item, planned: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, str]:
        """Pull or build the image of a stack and write its record. Return the digest of one that had none before."""
        about, path = item["manifest"]["image"], self._given["pins_file"]
        with self._telling(item):
            pinned = "" if known_digest(about) or not path else _pins_file.read(path).value("images", tagged(about))
            if not known_digest(about) and path and (why := _pins_file.problem(path)):
                raise StackFault(why)
            arguments = {
                **planning.image_arguments(item, pinned),
                "packages": [self._package(deb) for deb in about.get("debs", [])],
                "authfile": self._given["image_authfile"] or None,
                "mirror": self._given["image_mirror"],
                "work_dir": self._given["work_dir"],
                "timeout": self._given["image_timeout"],
            }
            image = self._await_image(arguments, about.get("size_gb"), say)
            if not image["has_program"]:
                raise StackFault(f"{image['source']} has no program {about['program']}: correct image.program")
            self._file(f"{self._given['work_dir']}/image-{item['id']}", state="absent")
            learned = self._pin_image(about, image, pinned, path)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            text = planning.image_record(item, planned, image, now)
            place = {"dest": f"{item['dir']}/fingerprint.json", "content": json.dumps(text, indent=4) + "\n"}
            self._act("ansible.legacy.copy", {**place, **ROOT, "mode": "0644"})
        return learned

    def _package(self, deb: Mapping[str, str]) -> dict[str, str]:
        """Download a package to the host, once; it is checked here and again when it is used."""
        folder = f"{self._given['work_dir']}/packages"
        self._file(folder, state="directory", mode="0755")
        name, mirror = planning.deb_file(deb), self._given["image_mirror"]
        file = f"{folder}/{name}"
        address = f"{mirror}/packages/{name}" if mirror else deb["url"]
        wanted = {"url": address, "dest": file, "checksum": f"sha256:{deb['sha256']}", "mode": "0644", "timeout": 60}
        self._module("ansible.legacy.get_url", wanted)
        return {"file": file, "sha256": deb["sha256"]}

    def _await_image(
        self, arguments: Mapping[str, Any], size_gb: float | None, say: Callable[[str], None]
    ) -> dict[str, Any]:
        """Take the steps to an image, joining what is under way, until it is there."""
        job = HostJob(self._action._connection, f"the pull of {arguments['source']}", say, PAUSES_S)
        begun = time.monotonic()
        found = self._image("look", arguments)
        for _step in range(IMAGE_STEPS):
            if found["state"] == "present":
                break
            found = self._image("start", arguments)
            moved, since = None, begun
            while found["state"] == "running":
                now = time.monotonic()
                say(planning.pulled(found["bytes"], size_gb, now - begun))
                if found["moved_mib"] is None or found["moved_mib"] != moved:
                    moved, since = found["moved_mib"], now
                elif now - since >= self._given["stall_timeout"]:
                    self._image("stop", arguments)
                    raise StackFault(
                        planning.stalled(arguments["source"], self._given["stall_timeout"], arguments["mirror"])
                    )
                found = job.look(lambda: self._image("look", arguments))
            if found["state"] == "failed":
                raise StackFault(found["message"])
        if found["state"] != "present":
            raise StackFault(
                f"{arguments['source']} is not there after its pull: it was ended, as by a reboot; run again"
            )
        return dict(found["image"])

    def _image(self, step: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._module("arcpro.b70.b70_container_image", {**arguments, "step": step})

    def _pin_image(self, about: Item, image: Mapping[str, Any], pinned: str, path: str) -> dict[str, str]:
        """Pin the digest of an image that was pulled by its tag."""
        digest = planning.new_pin(about, image, pinned)
        if not digest:
            return {}
        if path:
            name = tagged(about)
            pins = _pins_file.add(path, "images", {name: _pins_file.seen("images", digest, self._host, about["name"])})
            # Another host may have been first meanwhile.
            if pins.value("images", name) not in image["digests"]:
                raise StackFault(_pins.conflict(pins, "images", name, digest, self._host, path))
        return {tagged(about): digest}

    def _environment(self, item: Item, wheels: Wheels, *, more_follows: bool = False) -> dict[str, str]:
        """Make the environment with these wheels. Return the digests of what had none before."""
        given, path = self._given, self._given["pins_file"]
        pins = _pins_file.read(path) if path else _pins.Pins()
        pinned = {**item, "steps": planning.pinned_steps(item["steps"], pins.values("wheels"))}
        lock = item["manifest"].get("lock_file")
        steps = planning.environment_steps(pinned, Path(lock).read_text(encoding="utf-8") if lock else "", wheels)
        same = ("python_dir", "python_mirror", "uv_cache_dir", "find_links", "extra_index_urls", "no_index")
        made = self._act(
            "arcpro.b70.b70_python_environment",
            {
                **{key: given[key] for key in same},
                "path": f"{item['dir']}/venv",
                "python": item["python"],
                "steps": steps,
                "aliases": item["manifest"].get("aliases", []),
                "more_follows": more_follows,
                "uv": f"{given['tools_dir']}/bin/uv",
                "timeout": given["install_timeout"],
            },
        )
        return self._learn(item, dict(made.get("wheels", {})), path)

    def _learn(self, item: Item, learned: dict[str, str], path: str) -> dict[str, str]:
        """Pin digests that are seen for the first time. A digest that differs from its pin is a fault."""
        if not learned or not path:
            return learned
        places = {step["label"]: step.get("url") or step.get("index", "") for step in item["steps"]}
        found = {
            name: _pins_file.seen("wheels", digest, self._host, places.get(name, ""))
            for name, digest in learned.items()
        }
        pins = _pins_file.add(path, "wheels", found)
        wrong = [_pins.conflict(pins, "wheels", name, digest, self._host, path) for name, digest in learned.items()]
        if any(wrong):
            raise StackFault(" ".join(text for text in wrong if text))
        return learned

    def _verify(self, item: Item, cards: int) -> dict[str, Any]:
        """Import the engine as the service user, with nothing writable and no network."""
        given = self._given
        argv = planning.probe_argv(item, given["user"], given["group"], given["verify_timeout"])
        asked = json.dumps(planning.probe_asked(item, cards))
        keep_alive(self._action._connection)
        stdin = PROBE.read_text(encoding="utf-8")
        done = self._module("ansible.legacy.command", {"argv": [*argv, asked], "stdin": stdin}, check=False)
        if done.get("rc") != 0:
            said = "\n".join(str(done.get("stderr") or done.get("msg", "")).splitlines()[-TAIL_LINES:])
            limit = given["verify_timeout"]
            raise StackFault(
                f"the verification ended with status {done.get('rc')}, within a limit of {limit} s: {said}"
            )
        facts: dict[str, Any] = json.loads(done["stdout"].splitlines()[-1])
        if facts["problems"]:
            raise StackFault(f"it is not what its manifest says: {'; '.join(facts['problems'])}")
        return facts

    @contextlib.contextmanager
    def _telling(self, item: Item) -> Iterator[None]:
        """Add to a fault which stack it concerns and what happens to its directory."""
        try:
            yield
        except (StackFault, _pins.PinsError) as fault:
            raise StackFault(
                f"Stack {item['id']} on {self._host}: {fault}\nThe incomplete {item['dir']} is never used; run again "
                "to go on, what was downloaded and compiled is kept.",
                getattr(fault, "details", {}),
            ) from fault

    # Modules and actions.

    def _file(self, path: str, **wanted: str) -> None:
        self._module("ansible.legacy.file", {"path": path, **({} if wanted["state"] == "absent" else ROOT), **wanted})

    def _module(self, name: str, arguments: Mapping[str, Any], *, check: bool = True) -> dict[str, Any]:
        """Run a module on the host. check: raise where it fails."""
        found = self._action._execute_module(module_name=name, module_args=dict(arguments), task_vars=self._vars)
        return _passed(found) if check else dict(found)

    def _act(self, name: str, arguments: Mapping[str, Any], *, check: bool | None = None) -> dict[str, Any]:
        """Run another action, or the module where no action has this name. check: its check mode, else the task's."""
        return _passed(run_other(self._action, name, arguments, self._vars, check=check))


def _passed(found: Mapping[str, Any]) -> dict[str, Any]:
    if found.get("failed"):
        details = {key: found[key] for key in ("log", "log_tail") if key in found}
        raise StackFault(str(found.get("msg") or found.get("stderr") or "it failed without a message"), details)
    return dict(found)
