# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of b70_stacks over several hosts, taken together as Ansible does; hosts are what their modules answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.action import b70_stacks
from ansible_collections.arcpro.b70.plugins.modules.b70_stacks import DOCUMENTATION
from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins_file
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks import host as stack_host
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks.host import OPTIONS, Installer, StackFault

DEFAULTS = {key: option.get("default") for key, option in OPTIONS.items()}
FACTS = {"digest": "sha256:d", "python": {}, "imports": {}, "distributions": [], "devices": 0, "problems": []}
BUILT = {"patches": {}, "environment": {}, "uses": {}, "compiler": "c++"}
SOURCES = [{"name": name, "repo": f"o/{name}", "commit": "1" * 40} for name in ("kernels", "vllm")]
MANIFEST = {
    "name": "mine",
    "installable": True,
    "machines": ["x86_64"],
    "python": {"min": "3.11", "below": "3.13"},
    "disk_mib": 1,
    "first": [{"requirement": "torch==2", "index": "https://i"}],
}


def test_the_options_are_those_of_the_documentation() -> None:
    said = yaml.safe_load(DOCUMENTATION)["options"]
    known = ("type", "default", "choices", "elements", "required")
    assert {name: {key: one[key] for key in known if key in one} for name, one in said.items()} == OPTIONS


IMAGE = {"name": "registry.example/vllm", "digest": f"sha256:{'a' * 64}", "program": "/opt/venv/bin/vllm", "size_gb": 4}
OF_IMAGE = {"name": "mine", "installable": True, "machines": ["x86_64"], "disk_mib": 1, "image": IMAGE}


class Host(Installer):
    """A host: its cards, what keeps it from building, its files, and what its index gives for torch."""

    def __init__(self, name: str, folder: Path, *, cards: int = 0, problem: str = "", torch: str = "a") -> None:
        self.name, self.folder, self.cards, self.problem = name, folder / name, cards, problem
        self.digest = f"sha256:{torch * 64}"
        self.builds: list[str] = []
        self.pulls = 0
        self.environments: list[list[str]] = []
        self.uv: str | None = "0.13"
        self.broken = ""

    def given(self, given: dict[str, Any]) -> Host:
        super().__init__(
            SimpleNamespace(_connection=SimpleNamespace(transport="local")), given, {"inventory_hostname": self.name}
        )
        return self

    def _module(self, name: str, arguments: Any, *, check: bool = True) -> dict[str, Any]:
        if name == "arcpro.b70.b70_host_info":
            stacks = sorted((self.folder / "stacks").glob("*"))
            facts = {"id": "debian", "version": "12", "machine": "x86_64"}
            return {
                "system": facts,
                "python": "3.11.2",
                "cards": [{}] * self.cards,
                "uv": self.uv,
                "account": {},
                "packages_missing": arguments["packages"],
                "paths": {arguments["stack_root"]: {"free_mib": 10**6}},
                "stacks": [
                    {"id": path.name, "complete": (path / "fingerprint.json").exists(), "reason": "it was interrupted"}
                    for path in stacks
                ],
            }
        if name == "arcpro.b70.b70_container_image":
            self.pulls += arguments["step"] == "start"
            image = {"id": "f00d", "digest": IMAGE["digest"], "digests": [IMAGE["digest"]], "has_program": True}
            return {"state": "present" if self.pulls else "absent", "image": {**image, "source": arguments["source"]}}
        if name == "ansible.legacy.command":
            return {"rc": 0, "stdout": "noise\n" + json.dumps(FACTS | {"devices": self.cards})}
        if name == "ansible.legacy.file" and arguments["state"] == "directory":
            self.at(arguments["path"]).mkdir(parents=True, exist_ok=True)
        return {}

    def at(self, path: str) -> Path:
        return self.folder / path.removeprefix("/opt/b70/")

    def _act(self, name: str, arguments: Any, *, check: bool | None = None) -> dict[str, Any]:
        kind = name.rpartition(".")[2]
        if kind == "b70_python_environment":
            self.environments.append([step["label"] for step in arguments["steps"]])
            open_ = [step["label"] for step in arguments["steps"] if not step["hashed"]]
            return {"changed": True, "wheels": dict.fromkeys(open_, self.digest)}
        if kind == "b70_source_build":
            return self.source_build(arguments, bool(check))
        target = Path(arguments["dest"]) if kind == "fetch" else self.at(arguments["dest"])
        target.parent.mkdir(parents=True, exist_ok=True)
        if "content" in arguments:
            target.write_text(arguments["content"])
        else:
            shutil.copyfile(self.at(arguments["src"]) if kind == "fetch" else Path(arguments["src"]), target)
        return {}

    def source_build(self, arguments: Any, check: bool) -> dict[str, Any]:
        name = arguments["name"]
        folder = self.folder / f"wheels/{name}-0"
        wheel = {"key": "0", "file": "w.whl", "sha256": "s", "path": str(folder / "w.whl"), **BUILT}
        if (folder / "build.json").exists():
            return {"key": "0", "state": "built", "wheel": wheel}
        if check:
            problems = [self.problem] if self.problem else []
            return {"key": "0", "state": "absent", "problems": problems, "estimate": "2 jobs", "swap": False}
        if self.broken == name:
            raise StackFault(f"the build of {name} failed", {"log": "/l"})
        self.builds.append(name)
        folder.mkdir(parents=True)
        (folder / "w.whl").write_text("wheel")
        (folder / "build.json").write_text(json.dumps(wheel))
        return {"key": "0", "state": "built", "wheel": wheel}


class Step(b70_stacks.ActionModule):
    """One step on one host."""

    def __init__(self, site: Site, host: Host, step: str, manifest: dict[str, Any]) -> None:
        self._vars = {"ansible_play_batch": list(site.hosts), "hostvars": site.results}
        self._host, self._given = host.name, {**site.given, "step": step}
        self._task = SimpleNamespace(check_mode=site.check)
        self._installer = host.given(self._given)
        self._site, self._manifest = site, manifest

    def _manifests(self, names: list[str]) -> list[tuple[str, dict[str, Any]]]:
        return [("mine-1", self._manifest)]

    def say(self, text: str) -> None:
        self._site.said.append(f"{self._host} {text}")

    def take(self) -> dict[str, Any]:
        steps = {"plan": self._plan, "look": self._look, "share": self._share}
        step = self._given["step"]
        return steps[step]() if step in steps else self._install(taking=step == "take")


class Site:
    """A play over hosts: each step on all that are still there before the next one."""

    def __init__(self, folder: Path, *hosts: Host, check: bool = False, **given: Any) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.failed: dict[str, str] = {}
        self.said: list[str] = []
        self.results: dict[str, dict[str, Any]] = {name: {} for name in self.hosts}
        paths = {"root": "/opt/b70/stacks", "wheel_dir": "/opt/b70/wheels", "wheel_store": str(folder / "store")}
        self.given = {**DEFAULTS, **paths, "runtime_packages": ["g++"], "build_packages": ["ccache"], **given}
        self.check = check

    def run(self, *sources: dict[str, Any], manifest: dict[str, Any] | None = None) -> Site:
        manifest = manifest or MANIFEST | {"sources": list(sources)}
        names = ("__stack_planned", "__stack_looked", "__stack_shared", "installed", "taken")
        for step, register in zip(("plan", "look", "share", "install", "take"), names, strict=True):
            for name in [name for name in self.hosts if name not in self.failed]:
                try:
                    self.results[name][register] = Step(self, self.hosts[name], step, manifest).take()
                except StackFault as fault:
                    self.failed[name] = str(fault)
                    self.results[name][register] = {"failed": True}
        return self

    def settled(self) -> list[str]:
        return [name for name, found in self.results.items() if found["__stack_planned"]["settled"]]

    def changed(self) -> list[str]:
        return [name for name, found in self.results.items() if any(one.get("changed") for one in found.values())]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_host, "keep_alive", lambda _connection: None)


def test_one_host_builds_for_all_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    one, two, three = Host("one", tmp_path, problem="16 GiB"), Host("two", tmp_path), Host("three", tmp_path)
    site = Site(tmp_path, one, two, three).run(*SOURCES)
    assert site.failed == {}
    assert [host.builds for host in (one, two, three)] == [[], ["kernels", "vllm"], []]
    assert site.changed() == ["one", "two", "three"]
    # What is built with the kernels finds them; all end with the same.
    assert two.environments == [["torch==2"], ["torch==2", "kernels"], ["torch==2", "kernels", "vllm"]]
    assert one.environments == [["torch==2"], ["torch==2", "kernels", "vllm"]]
    fingerprint = json.loads((tmp_path / "one/stacks/mine-1/fingerprint.json").read_text())
    assert [source["name"] for source in fingerprint["sources"]] == ["kernels", "vllm"]
    assert fingerprint["wheels"] == {"torch==2": one.digest}
    again = Site(tmp_path, one, two, three).run(*SOURCES)
    assert (again.failed, again.changed(), again.said) == ({}, [], [])
    assert (site.settled(), again.settled()) == ([], ["one", "two", "three"])
    one.cards = 2  # and so lacks a package of engines
    assert Site(tmp_path, one, two).run(*SOURCES).settled() == ["two"]


def test_a_later_host_takes_the_wheels_of_one_that_has_the_stack_or_of_the_controller(tmp_path: Path) -> None:
    one, two, three = (Host(name, tmp_path) for name in ("one", "two", "three"))
    Site(tmp_path, one).run(*SOURCES)
    shutil.rmtree(tmp_path / "store")
    both = Site(tmp_path, one, two).run(*SOURCES)
    assert (both.failed, both.changed(), two.builds) == ({}, ["two"], [])
    assert "two mine-1 takes the wheel of kernels from o/kernels at 111111111111 from one" in both.said
    alone = Site(tmp_path, three).run(*SOURCES)
    assert (alone.failed, three.builds) == ({}, [])
    assert "three mine-1 takes the wheel of vllm from o/vllm at 111111111111 from the controller" in alone.said


def test_a_builder_that_fails_fails_those_that_wait_for_it_and_the_next_run_goes_on(tmp_path: Path) -> None:
    one, two = Host("one", tmp_path), Host("two", tmp_path)
    one.broken = "vllm"
    site = Site(tmp_path, one, two).run(*SOURCES)
    assert site.failed["one"].startswith(
        "Stack mine-1 on one: the build of vllm failed\nThe incomplete /opt/b70/stacks"
    )
    assert "one was to give the wheel of vllm to two too, and has not: see why above" in site.failed["two"]
    assert "is never used; run again to go on, what was downloaded and compiled is kept" in site.failed["two"]
    one.broken = ""
    assert Site(tmp_path, one, two).run(*SOURCES).failed == {}
    assert (one.builds, two.builds) == (["kernels", "vllm"], [])


def test_where_nobody_can_build_nothing_is_begun(tmp_path: Path) -> None:
    site = Site(tmp_path, Host("one", tmp_path, problem="16 GiB are lacking.")).run(*SOURCES)
    assert site.failed == {"one": "one: 16 GiB are lacking. 16 GiB are lacking."}
    assert not (tmp_path / "one").exists()


def test_check_mode_says_what_would_be_done_and_does_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, Host("one", tmp_path, cards=2), Host("two", tmp_path), check=True).run(*SOURCES)
    assert site.said == [
        "one would install g++, ccache",
        "one would install stack mine-1: 1 distributions, up to 1 MiB, in /opt/b70/stacks/mine-1",
        "one mine-1 builds kernels from o/kernels at 111111111111: 2 jobs",
        "one mine-1 builds vllm from o/vllm at 111111111111: 2 jobs",
        "two would install stack mine-1: 1 distributions, up to 1 MiB, in /opt/b70/stacks/mine-1",
        "two mine-1 takes the wheel of kernels from o/kernels at 111111111111 from one",
        "two mine-1 takes the wheel of vllm from o/vllm at 111111111111 from one",
    ]
    assert (site.failed, site.changed()) == ({}, ["one", "two"])
    assert list(tmp_path.iterdir()) == []


def test_a_host_without_uv_is_told_which_role_brings_it(tmp_path: Path) -> None:
    host = Host("one", tmp_path)
    host.uv = None
    assert "run the role arcpro.b70.host first" in Site(tmp_path, host).run().failed["one"]
    assert Site(tmp_path, host, check=True).run().failed == {}


def test_what_had_no_digest_is_recorded_once_and_every_later_host_takes_the_same(tmp_path: Path) -> None:
    pins = tmp_path / "b70-pins.yml"
    one, two = Host("one", tmp_path, torch="a"), Host("two", tmp_path, torch="b")
    Site(tmp_path, one, pins_file=str(pins)).run()
    entry = _pins_file.read(str(pins)).entry("wheels", "torch==2")
    assert entry
    assert (entry["digest"], entry["host"], entry["from"]) == (one.digest, "one", "https://i")
    # The pinned digest is asked for; the module refuses any other.
    site = Site(tmp_path, two, pins_file=str(pins)).run()
    assert (site.failed, site.results["two"]["installed"]["learned"]) == ({}, {})


def test_two_hosts_that_saw_different_wheels_at_once_do_not_both_install(tmp_path: Path) -> None:
    pins = tmp_path / "b70-pins.yml"
    one, two = Host("one", tmp_path, torch="a"), Host("two", tmp_path, torch="b")
    one.given({**DEFAULTS, "pins_file": str(pins)})
    two.given({**DEFAULTS, "pins_file": str(pins)})
    item = {"id": "mine-1", "dir": "/d", "steps": [{"label": "torch==2", "index": "https://i"}]}
    assert one._learn(item, {"torch==2": one.digest}, str(pins))
    with pytest.raises(StackFault, match=r"torch==2: two has the digest sha256:b{64}, and .* pins sha256:a{64}"):
        two._learn(item, {"torch==2": two.digest}, str(pins))
    pins.write_text("wheels: 3\n")
    with pytest.raises(StackFault, match=r"Stack mine-1 on one: .*wheels must be a mapping"), one._telling(item):
        one._learn(item, {"torch==2": one.digest}, str(pins))


def test_an_image_is_pulled_once_with_podman_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    foreseen = Site(tmp_path, Host("one", tmp_path), check=True).run(manifest=OF_IMAGE)
    assert foreseen.said == [
        "one would install podman, crun, skopeo, curl",
        f"one would install stack mine-1: the image registry.example/vllm@{IMAGE['digest']}, 4 GB",
    ]
    assert not (tmp_path / "one/stacks").exists()
    one = Host("one", tmp_path)
    site = Site(tmp_path, one).run(manifest=OF_IMAGE)
    assert (site.failed, one.pulls, one.environments) == ({}, 1, [])
    assert site.results["one"]["__stack_shared"]["packages_missing"] == ["podman", "crun", "skopeo", "curl"]
    assert json.loads((tmp_path / "one/stacks/mine-1/fingerprint.json").read_text())["image"]["id"] == "f00d"
    again = Site(tmp_path, one).run(manifest=OF_IMAGE)
    assert (again.failed, again.changed(), again.settled(), one.pulls) == ({}, [], ["one"], 1)


def test_a_relay_gets_the_packages_of_its_manifest_and_no_directory(tmp_path: Path) -> None:
    relay = {"name": "mine", "device": "none", "installable": True, "system_packages": {"run": ["haproxy"]}}
    site = Site(tmp_path, Host("one", tmp_path)).run(manifest=relay)
    assert (site.failed, site.said) == ({}, ["one installing haproxy"])
    assert site.results["one"]["__stack_shared"]["packages_missing"] == ["haproxy"]
    assert (site.results["one"]["__stack_planned"]["lacks"], site.settled()) == (["mine-1"], [])
    assert not (tmp_path / "one/stacks").exists()
