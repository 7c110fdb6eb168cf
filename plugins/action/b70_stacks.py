# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installs stacks in steps that all hosts of a play take together: plan, look, share, install, take.

What a host found is its registered result, and hosts read each other's. So one builds and the others wait: a step
begins when every host has taken the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import is_relay, stack_id
from ansible_collections.arcpro.b70.plugins.plugin_utils._fleet_run import found_on
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks import building, planning
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks.host import OPTIONS, Installer, StackFault

display = Display()

# The names under which the steps' results are registered.
PLANNED, LOOKED, SHARED = "__stack_planned", "__stack_looked", "__stack_shared"


class ActionModule(ActionBase):
    """One step on one host."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._host = str(self._vars.get("inventory_hostname", "host"))
        _validated, self._given = self.validate_argument_spec(OPTIONS)
        self._installer = Installer(self, self._given, self._vars)
        steps = {"plan": self._plan, "look": self._look, "share": self._share, "contents": self._contents}
        step = self._given["step"]
        try:
            result.update(steps[step]() if step in steps else self._install(taking=step == "take"))
        except StackFault as fault:
            # Without its causes, whose words it has: Ansible would say them again.
            raise AnsibleActionFail(str(fault), result=fault.details) from None
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _manifests(self, names: list[str]) -> list[tuple[str, dict[str, Any]]]:
        """Return the ids and manifests of stacks, as the lookup knows them."""
        lookup = lookup_loader.get("arcpro.b70.catalogue", loader=self._loader, templar=self._templar)
        known = lookup.run(names, self._vars, kind="stacks", stack_dirs=self._given["dirs"])[0]
        return [(stack_id(known[name]), known[name]) for name in dict.fromkeys(names)]

    def _plan(self) -> dict[str, Any]:
        """Plan the stacks on the host: what it has and what it lacks."""
        named = [manifest for _id, manifest in self._manifests(self._given["names"] or [])]
        host = self._installer.host_facts(planning.system_packages(named, building=True))
        cards = len(host["cards"])
        manifests = self._manifests(planning.chosen(self._given["names"], cards))
        relays = {identity: manifest for identity, manifest in manifests if is_relay(manifest)}
        engines = [one for one in manifests if one[0] not in relays]
        plan = planning.plan(engines, host, self._given["root"], self._given["python"])
        problems = [problem for item in plan for problem in item["problems"]]
        if problems:
            raise StackFault(f"{self._host}: {' '.join(problems)}")
        lacks = [item["id"] for item in plan if not item["installed"]]
        runtime = cards and any(name in self._given["runtime_packages"] for name in host["packages_missing"])
        if lacks and not self._task.check_mode and (host["uv"] is None or host["account"] is None):
            raise StackFault(
                f"{self._host} has no uv in {self._given['tools_dir']} or no user {self._given['user']}: run the role "
                "arcpro.b70.host first (in site.yml: the tag host)."
            )
        of_relays = planning.system_packages(relays.values(), building=False)
        relay_packages = [name for name in host["packages_missing"] if name in of_relays]
        return {
            "changed": False,
            "plan": plan,
            "lacks": [*lacks, *(relays if relay_packages else [])],
            "settled": not (lacks or relay_packages or runtime),
            "relay_packages": relay_packages,
            "cards": cards,
            "system": host["system"],
            "packages_missing": host["packages_missing"],
        }

    def _look(self) -> dict[str, Any]:
        """Return, by stack and source, the wheels that the host has and what building the others would take."""
        items = {item["id"]: item for item in self._own(PLANNED)["plan"]}
        plans = {host: found["plan"] for host, found in self._of_hosts(PLANNED).items()}
        looks = {
            name: {build["name"]: self._installer.look(items[name], build) for build in items[name]["builds"]}
            for name in building.questions(list(items.values()), plans)
        }
        return {"changed": False, "looks": looks}

    def _share(self) -> dict[str, Any]:
        """Decide once who builds what, so that a host that fails later changes nobody's part."""
        planned = self._own(PLANNED)
        looked = self._of_hosts(LOOKED)
        looks = {host: found["looks"] for host, found in looked.items()}
        plans = {host: found["plan"] for host, found in self._of_hosts(PLANNED).items() if host in looked}
        answers = building.shares(plans, looks, self._installer.stored())
        shares: dict[str, Any] = {}
        builds = []
        for name, of_hosts in answers.items():
            at_stack = {host: look[name] for host, look in looks.items() if name in look}
            if not self._task.check_mode and name in looks[self._host]:
                for source in building.lent(of_hosts, self._host, at_stack[self._host]):
                    self._installer.to_store(source, at_stack[self._host][source]["wheel"])
            if self._host not in of_hosts:
                continue
            mine = of_hosts[self._host]
            problems = [problem for answer in mine.values() for problem in answer["problems"]]
            if problems:
                raise StackFault(f"{self._host}: {' '.join(problems)}")
            shares[name] = {"sources": mine, "waits": building.waits_for(mine, self._host, at_stack)}
            builds += [at_stack[self._host][source] for source, answer in mine.items() if answer["do"] == "build"]
        wanted = [*(self._given["runtime_packages"] if planned["cards"] else [])]
        wanted += self._given["build_packages"] if builds else []
        wanted += planned["relay_packages"]
        lacking = [item for item in planned["plan"] if not item["installed"]]
        wanted += planning.system_packages([item["manifest"] for item in lacking], building=bool(builds))
        packages = [name for name in planned["packages_missing"] if name in wanted]
        self._foretell(planned, shares, looks.get(self._host, {}), packages)
        return {
            "changed": bool(self._task.check_mode and (planned["lacks"] or packages)),
            "shares": shares,
            "packages_missing": packages,
            "builds": bool(builds),
            "swap": {
                "wanted": any(look["swap"] for look in builds),
                "memory_gib": self._given["build_memory_gib"],
                "file": self._given["build_swap_file"],
                "reserve_gib": self._given["build_swap_reserve_gib"],
            },
        }

    def _foretell(
        self, planned: Mapping[str, Any], shares: Mapping[str, Any], looks: Mapping[str, Any], packages: list[str]
    ) -> None:
        would = "would install" if self._task.check_mode else "installing"
        if packages:
            self.say(f"{would} {', '.join(packages)}")
        for item in planned["plan"]:
            if item["installed"]:
                continue
            if "image" in item["manifest"]:
                self.say(planning.image_said(item, would))
                continue
            lock = item["manifest"].get("lock_file")
            text = Path(lock).read_text(encoding="utf-8") if lock else ""
            locked = planning.lock_requirements(text, item["series"], planned["system"]["machine"])
            why = f", again because {item['reason']}" if item["reason"] else ""
            self.say(
                f"{would} stack {item['id']}: {len(locked) + len(item['steps'])} distributions, up to "
                f"{item['manifest']['disk_mib']} MiB, in {item['dir']}{why}"
            )
            if item["id"] in shares:
                for line in building.said(item, shares[item["id"]]["sources"], looks[item["id"]]):
                    self.say(f"{item['id']} {line}")

    def _install(self, taking: bool) -> dict[str, Any]:
        """Install what the host lacks; what waits for another host's wheel only with `taking`, else up to there."""
        planned = self._own(PLANNED)
        learned: dict[str, str] = {}
        installed = []
        for item in [] if self._task.check_mode else planned["plan"]:
            share = self._own(SHARED)["shares"].get(item["id"], {"sources": {}, "waits": ""})
            if item["installed"] or (taking and not share["waits"]):
                continue
            if "image" in item["manifest"]:
                self._installer.begin(item, waits=False)
                learned |= self._installer.finish_image(item, planned, self.say)
                installed.append(item["id"])
                continue
            looks = self._own(LOOKED)["looks"].get(item["id"], {})
            if not taking:
                self._installer.begin(item, bool(share["waits"]))
            if taking or not share["waits"]:
                learned |= self._installer.finish(item, share["sources"], looks, planned)
                installed.append(item["id"])
        return {"changed": bool(installed), "installed": installed, "learned": learned}

    def _contents(self) -> dict[str, Any]:
        """Return what a mirror brings for these stacks."""
        host = self._installer.host_facts()
        manifests = self._manifests(self._given["names"] or [])
        engines = [one for one in manifests if not is_relay(one[1])]
        try:
            found = planning.contents(engines, host["system"], host["python"])
        except ValueError as error:
            raise StackFault(str(error)) from error
        repositories: list[dict[str, Any]] = []
        for stack in found:
            repositories += [one for one in stack["repositories"] if one not in repositories]
        packages = planning.system_packages([one for _id, one in manifests], building=True)
        images = [image for stack in found for image in stack["images"]]
        return {"changed": False, "stacks": found, "repositories": repositories, "packages": packages, "images": images}

    def _own(self, name: str) -> dict[str, Any]:
        found = self._of_hosts(name, [self._host]).get(self._host)
        if found is None:
            raise StackFault(f"{self._host} has no result {name} of the step before: run the role arcpro.b70.stack")
        return found

    def _of_hosts(self, name: str, hosts: list[str] | None = None) -> dict[str, dict[str, Any]]:
        return found_on(
            self._vars, name, self._vars.get("ansible_play_batch", [self._host]) if hosts is None else hosts
        )

    def say(self, text: str) -> None:
        display.display(f"{self._host} | {text}", color=C.COLOR_VERBOSE)
