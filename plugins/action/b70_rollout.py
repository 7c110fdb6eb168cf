# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_rollout: it reads what the hosts of a play returned, asks `_rollout` what comes next, keeps the record.

The record is written before a wave begins and after each step, so a rollout whose controller is killed can be resumed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.plugin_utils import _fleet_run
from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import ControllerAction
from ansible_collections.arcpro.b70.plugins.plugin_utils._fleet import HostSeen, seen_by, taken_away, too_many
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer.capacity import least_of
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout import show
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.begin import (
    HostCheck,
    RolloutSettings,
    plan,
    refusals,
    resumable,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.decide import (
    Decision,
    after_rollback,
    at_the_end,
    decide,
    looked,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.model import (
    SERVES,
    HostResult,
    HostVerdict,
    Rollout,
    Status,
    WaveGate,
    as_dict,
    from_dict,
    listed,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.reading import (
    NO_ANSWER,
    cut_off,
    exposed,
    layout_of,
    look_of,
    measured_of,
    result_of,
    return_of,
)

display = Display()

RECORD = "rollout.json"
OPTIONS: dict[str, dict[str, Any]] = {
    "step": {
        "type": "str",
        "choices": ["plan", "look", "judge", "settle", "gate", "back", "report", "recap"],
        "required": True,
    },
    "results": {"type": "str"},
    "record": {"type": "path"},
    "profile": {"type": "str"},
    "waves": {"type": "str", "default": "1,25%,100%"},
    "canary": {"type": "str", "default": ""},
    "max_fail": {"type": "str", "default": "0"},
    "on_failure": {"type": "str", "default": "stop"},
    "gate": {"type": "str", "default": "verified"},
    "gate_without_record": {"type": "str", "choices": ["hold", "pass"], "default": "hold"},
    "gate_timeout": {"type": "int", "default": 1800},
    "foreseen": {"type": "str", "default": ""},
    "models": {"type": "list", "elements": "str", "default": []},
    "replace": {"type": "list", "elements": "str", "default": []},
    "min_ready": {"type": "raw", "default": 0},
    "refused": {"type": "str", "default": "__load_balancer_refusal"},
    "restored": {"type": "str", "default": ""},
    "looked": {"type": "str", "default": "__slot_looked"},
    "quarantined": {"type": "list", "elements": "dict", "default": []},
    "measure": {"type": "str", "default": ""},
    "dir": {"type": "path"},
}


class ActionModule(ControllerAction):
    """One step, once for all hosts."""

    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        self._given, self._vars = given, variables
        # Ansible runs each task in a process of its own; their parent is the run.
        self._run = _fleet_run.run_of(os.getppid())
        steps = {
            "plan": self._plan,
            "look": self._look,
            "judge": self._judge,
            "settle": self._settle,
            "gate": self._gate,
            "back": self._back,
            "report": self._report,
            "recap": self._recap,
        }
        try:
            return steps[given["step"]]()
        except (ValueError, OSError) as error:
            raise AnsibleActionFail(f"the rollout: {error}") from error

    def _plan(self) -> dict[str, Any]:
        """Plan the rollout, or raise where one host would refuse the switch: then nothing starts."""
        hosts = [str(host) for host in self._vars["ansible_play_hosts_all"]]
        seen = self._seen("ansible_play_hosts_all")
        looks = {host: self._check(host, seen.get(host)) for host in hosts}
        refused = refusals(looks)
        if refused:
            named = "".join(f"\n  {host}: {problem}" for host, problem in refused.items())
            raise AnsibleActionFail(
                f"nothing was started, because {len(refused)} of {len(hosts)} hosts would refuse the switch:{named}\n"
                "A rollout installs nothing: ansible-playbook site.yml "
                f"-e profile={self._given['profile']} --limit HOSTS does. To leave a host out: --limit 'all:!HOST'."
            )
        now = datetime.now(UTC)
        given = RolloutSettings(**{field.name: self._given[field.name] for field in fields(RolloutSettings)})
        name = f"{now:%Y%m%dT%H%M%SZ}-{given.profile}"
        rollout = replace(plan(name, _moment(now), given, looks, self._earlier(given.profile)), run=self._run)
        lines = show.plan_lines(rollout, int(self._vars.get("ansible_forks", 5)))
        if rollout.id != name:
            lines.insert(1, f"resumes the rollout that began at {rollout.began}")
        lines += self._capacity(rollout, seen) + self._foreseen(rollout)
        # The answers of hosts to an earlier run may contradict each other.
        decision = decide(rollout)
        begins = bool(decision.next) and not self._task.check_mode
        self._show(lines)
        record = Path(self._given["dir"]) / rollout.id / RECORD
        if not self._task.check_mode:
            _write(record, decision.rollout)
        return {
            **self._told(decision),
            "changed": bool(rollout.batches),
            "id": rollout.id,
            "profile": rollout.profile,
            "record": str(record),
            "members": [member.host for member in rollout.members],
            "hosts": [host for batch in rollout.batches for host in batch] if begins else [],
            "sizes": [len(batch) for batch in rollout.batches] if begins else [],
            "summary": lines,
        }

    def _capacity(self, rollout: Rollout, seen: Mapping[str, HostSeen]) -> list[str]:
        """Return a line for each model that clients lose; raise ValueError where that needs the operator's consent."""
        if not rollout.batches:
            return []
        least = least_of(self._given["min_ready"])
        hosts = [host for wave in rollout.batches for host in wave]
        lost = taken_away(seen, hosts, self._given["models"], least)
        asked = [model for model in lost if model not in self._given["replace"]]
        if asked:
            words = "; ".join(lost[model] for model in asked)
            raise ValueError(
                f"nothing was started, because clients would lose a model: {words}. If it is to be replaced: "
                f"-e replace={','.join(asked)}"
            )
        many = too_many(seen, rollout.batches, least[""])
        if many:
            raise ValueError(
                f"nothing was started: {many} (b70_min_ready). Take fewer hosts at once, such as -e waves=1, or go on "
                "with -e b70_min_ready=0"
            )
        return [f"replaces a model: {words}" for words in lost.values()]

    def _foreseen(self, rollout: Rollout) -> list[str]:
        """Return lines that foretell the gate; raise ValueError where it could not judge the canary host."""
        if rollout.gate is not WaveGate.PERFORMANCE or not rollout.batches:
            return []
        limit = self._given["gate_timeout"]
        lines = [f"gate performance: the first host that each wave switches is measured, for {limit} s at most"]
        host = rollout.canary.host
        found = self._vars["hostvars"][host].get(self._given["foreseen"]) or {}
        if host not in rollout.batches[0]:
            return lines
        if "comparable" not in found:
            why = str(found.get("msg") or NO_ANSWER).strip()
            raise ValueError(f"nothing was started, because the gate could not ask {host} what it would judge: {why}")
        if not found["comparable"] and self._given["gate_without_record"] == "hold":
            raise ValueError(
                f"nothing was started, because the gate could not judge {host}: {'; '.join(found['summary'])}. "
                "To go on all the same, and record the figures: -e gate_without_record=pass"
            )
        return [*lines, *(f"{host}: {line}" for line in found["summary"])]

    def _earlier(self, profile: str) -> Rollout | None:
        """Return the last rollout of the profile, if it can be resumed.

        Names of folders begin with their time.
        """
        for record in sorted(Path(self._given["dir"]).glob(f"*Z-{profile}/{RECORD}"), reverse=True):
            try:
                found = from_dict(json.loads(record.read_text(encoding="utf-8")))
            except ValueError as error:
                raise ValueError(f"{record} cannot be read ({error}); move it away to begin a new rollout") from error
            if found.profile == profile:
                return self._in_inventory(found) if resumable(found, profile) else None
        return None

    def _in_inventory(self, rollout: Rollout) -> Rollout:
        """Return the rollout without the hosts that left the inventory, which no run can reach."""
        return replace(rollout, members=tuple(m for m in rollout.members if m.host in self._vars["hostvars"]))

    def _seen(self, hosts: str = "ansible_play_batch") -> dict[str, HostSeen]:
        """Return what these hosts saw when they looked last; hosts of other batches looked earlier."""
        results = (self._vars["hostvars"][host].get(self._given["looked"]) for host in self._vars[hosts])
        return seen_by(result for result in results if isinstance(result, Mapping))

    def _check(self, host: str, seen: HostSeen | None) -> HostCheck:
        """Return the state of a host before the rollout begins.

        For a host that is off or in maintenance, the look is the only result.
        """
        lost = seen is not None and not seen.reached
        if seen is not None and seen.maintenance:
            return HostCheck(HostResult(HostVerdict.MAINTENANCE, seen.profile, why=seen.maintenance))
        return HostCheck(problem=seen.why) if seen is not None and lost else look_of(self._result(host))

    def _look(self) -> dict[str, Any]:
        """Look at all hosts before a wave, record it, and return what follows."""
        rollout, record = self._read()
        found = looked(rollout, self._seen())
        decision = decide(found)
        changed = [one.host for one, before in zip(found.members, rollout.members, strict=True) if one != before]
        worse = [m.host for m in found.members if m.host in changed and m.failed]
        told = self._follow(decision, record, worse) if worse else self._told(decision)
        _write(record, decision.rollout)
        return {**told, "at_rest": [m.host for m in found.inside if m.verdict is HostVerdict.MAINTENANCE]}

    def _judge(self) -> dict[str, Any]:
        """Judge the results of the first open wave, and return what follows."""
        rollout, record = self._read()
        wave = rollout.batches[0] if rollout.batches else ()
        at_rest = {member.host for member in rollout.inside if member.verdict is HostVerdict.MAINTENANCE}
        batch = set(self._vars["ansible_play_batch"])
        if batch and batch <= at_rest:
            wave = ()  # its hosts are all left alone, and the next ones have not been switched
        strangers = batch - {*wave, *at_rest}
        if strangers:
            raise ValueError(f"{listed(sorted(strangers))} is in no wave that is open; see {record}")
        rollout = rollout.with_results({host: result_of(self._returned(host)) for host in wave})
        return self._follow(decide(rollout, wave), record, wave)

    def _gate(self) -> dict[str, Any]:
        """Judge the figures of the measured host, and return what follows."""
        rollout, record = self._read()
        # The first: the others are of later waves.
        waiting = [member for member in rollout.inside if member.verdict is HostVerdict.UNMEASURED][:1]
        found = {one.host: measured_of(one.result, self._result(one.host)) for one in waiting}
        return self._follow(decide(rollout.with_results(found)), record, list(found))

    def _follow(self, decision: Decision, record: Path, wave: Collection[str]) -> dict[str, Any]:
        _write(record, decision.rollout)
        judged = replace(decision.rollout, members=tuple(m for m in decision.rollout.members if m.host in wave))
        goes_on = bool(decision.next or decision.measure)
        self._show([*show.table(judged)[:-1], show.sentence(decision.rollout, goes_on=goes_on)])
        return self._told(decision)

    def _settle(self) -> dict[str, Any]:
        """Record the hosts that stayed exposed or cut off after a wave's decisions, and return what follows."""
        rollout, record = self._read()
        missed = exposed(self._given["quarantined"])
        known = {member.host: member.result for member in rollout.members}
        worse = {host: replace(known[host], verdict=HostVerdict.EXPOSED, why=why) for host, why in missed.items()}
        for host in self._vars["ansible_play_batch"] if self._given["restored"] else ():
            why = cut_off(self._vars["hostvars"][host].get(self._given["restored"]) or ())
            if why and known[host].verdict is HostVerdict.VERIFIED:
                worse[host] = replace(known[host], verdict=HostVerdict.CUT_OFF, why=why)
        decision = decide(rollout.with_results(worse))
        if self._given["measure"] and decision.rollout.status is Status.RUNNING:
            decision = replace(decision, next=(), measure=self._given["measure"])
        return self._follow(decision, record, worse) if worse else self._told(decision)

    def _told(self, decision: Decision) -> dict[str, Any]:
        before = {member.host: member.before or "" for member in decision.rollout.members}
        return {
            "next": listed(decision.next),
            "ended": not (decision.next or decision.measure),
            "measure": decision.measure,
            "back": {host: before[host] for host in decision.rollout.back},
            "quarantine": {
                host: {"layout": layout_of(self._result(host)), "reason": why}
                for host, why in decision.quarantine.items()
            },
        }

    def _back(self) -> dict[str, Any]:
        rollout, record = self._read()
        before = {member.host: member.before for member in rollout.members}
        results = {host: return_of(self._returned(host), before[host]) for host in rollout.back}
        rollout = after_rollback(rollout.with_results(results))
        _write(record, rollout)
        return {}

    def _report(self) -> dict[str, Any]:
        """Show the whole table; the result says how the rollout ended."""
        if self._task.check_mode:
            return {}
        rollout, record = self._read()
        rollout = replace(at_the_end(rollout, self._seen()), ended=_moment(datetime.now(UTC)))
        _write(record, rollout)
        lines = show.table(rollout)
        self._show([*lines, *(f"written: {record.with_suffix(kind)}" for kind in (".json", ".md", ".html"))])
        return {"msg": lines[-1], "rollout": as_dict(rollout)}

    def _recap(self) -> dict[str, Any]:
        """Return the verdict on the host of the task, so that Ansible's recap counts it as the table does."""
        rollout, _record = self._read()
        host = str(self._vars["inventory_hostname"])
        own = next((member for member in rollout.inside if member.host == host), None)
        sound = SERVES | {HostVerdict.MAINTENANCE}
        good = all(member.verdict in sound for member in rollout.inside)
        if own is not None and own.verdict is HostVerdict.UNREACHABLE:
            return {"unreachable": True, "msg": own.result.why or str(own.verdict)}
        if own is not None and own.verdict not in sound:
            return {"failed": True, "msg": own.result.why or str(own.verdict)}
        # Where every host of this run serves the profile, the rollout may still miss one that the limit leaves out.
        missed = good and rollout.status is not Status.FINISHED and host == rollout.inside[0].host
        return {"failed": True, "msg": show.sentence(rollout)} if missed else {}

    def _result(self, host: str) -> Mapping[str, Any] | None:
        found = self._vars["hostvars"][host].get(self._given["results"])
        return found if isinstance(found, Mapping) else None

    def _returned(self, host: str) -> Mapping[str, Any] | None:
        """Return the result of a host's switch; a host that clients need was not drained and counts as untouched."""
        found, refusal = self._result(host), self._vars["hostvars"][host].get(self._given["refused"])
        if not refusal:
            return found
        return {"outcome": "untouched", "profile": (found or {}).get("previous_profile"), "msg": refusal}

    def _read(self) -> tuple[Rollout, Path]:
        record = Path(self._given["record"])
        rollout = from_dict(json.loads(record.read_text(encoding="utf-8")))
        if rollout.run != self._run:
            raise ValueError(f"another run of the playbook has gone on with it, so this one ends here; see {record}")
        return rollout, record

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            display.display(line)


def _moment(now: datetime) -> str:
    return f"{now:%Y-%m-%dT%H:%M:%SZ}"


def _write(record: Path, rollout: Rollout) -> None:
    """Write the record, and the same as Markdown and HTML.

    The record is replaced in one step, because the next run depends on it.
    """
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps(as_dict(rollout), ensure_ascii=False, indent=1) + "\n"
    new = record.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, record)
    record.with_suffix(".md").write_text(show.markdown(rollout), encoding="utf-8")
    record.with_suffix(".html").write_text(show.page(rollout), encoding="utf-8")
