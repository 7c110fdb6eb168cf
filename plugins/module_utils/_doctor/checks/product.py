# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of this collection on the host: units, slot, frontdoor, weights, caches."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..._slot.face.table import replicas
from ..._slot.model.quarantine import Quarantine
from ..model import Answers, Check, Command, Finding, Look, Probe, Site, failed, passed, skipped, warned
from ..parse import failed_units

UNITS = Command(("systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", "b70-*"))
OUTDATED = Look("outdated-services")
FRONTDOOR_UNIT = "b70-openai-frontdoor.service"


def units(site: Site, answers: Answers) -> Finding:
    output = answers.output(UNITS)
    if not output.ok:
        raise LookupError(f"systemctl: {output.why()}")
    broken = failed_units(output.out)
    if broken:
        rows = [line.split() for line in output.out.splitlines()]
        return failed(
            f"{', '.join(broken)} failed", *(" ".join(row) for row in rows if row and row[0] in broken),
            fix=f"See journalctl -u {broken[0]} -n 50; then systemctl reset-failed {broken[0]} and switch again.",
        )  # fmt: skip
    return passed(f"none of {len(output.out.splitlines())} units failed")


def restarts(site: Site, answers: Answers) -> Finding:
    services = answers.look(OUTDATED)
    if not services:
        return passed("no service uses a file that an update has replaced")
    files = sorted({file for used in services.values() for file in used})
    more = f" and {len(files) - 1} more" if files[1:] else ""
    return warned(
        f"a restart is due because of {files[0]}{more}: {', '.join(services)}",
        *(f"{unit} uses {file}, which was replaced" for unit, used in services.items() for file in used),
    )


def slot(site: Site, answers: Answers) -> Finding:
    info = answers.look(Look("slot"))
    if info.get("failed"):
        return failed(str(info.get("msg")))
    lines = [f"phase {info['phase']}, open {info['open']}, {info['reason'] or 'no reason given'}"]
    engine, boots = info.get("engine"), info.get("enabled_units") or []
    lines.append(f"at boot: {', '.join(boots) or 'nothing'}")
    if info.get("legacy_units"):
        return failed(
            f"units of an older installation run or start at boot: {', '.join(info['legacy_units'])}", *lines,
            fix=f"systemctl disable --now {' '.join(info['legacy_units'])}",
        )  # fmt: skip
    if info["phase"] in ("switching", "verifying"):
        return warned(
            f"a switch is in progress, or was interrupted: {info['phase']}",
            *lines,
            fix="Check again in a minute; b70ctl recover settles an interrupted switch.",
        )
    if info.get("interrupted"):
        return warned("a switch was interrupted and is not settled", *lines, fix="Run b70ctl recover, or switch again.")
    if engine is None:
        if boots:
            return failed(
                f"{', '.join(boots)} should run and does not",
                *lines,
                fix="Run b70ctl recover; b70ctl history says what happened.",
            )
        if info["phase"] == "failed":
            return failed("nothing is served: the last switch failed", *lines)
        return warned(
            "nothing is served, and nothing starts at boot",
            *lines,
            fix="Switch to a profile: switch.yml -e profile=NAME.",
        )
    rows = info.get("replicas") or []
    lines += replicas(rows) if rows else [f"{engine['unit']} is {engine['state']}, {engine['restarts']} restarts"]
    if not engine["healthy"]:
        return failed(
            f"{engine['unit']} does not answer /health",
            *lines,
            fix=f"See journalctl -u {engine['unit']} -n 50; then b70ctl recover.",
        )
    if not info["verified"]:
        return failed(
            f"{info['profile']} runs and is not verified, so clients get 503", *lines, fix="Run b70ctl verify."
        )
    if info.get("degraded"):
        closed = [row for row in rows if not row["open"]]
        units = ", ".join(row["engine"]["unit"] for row in closed) or "a replica that is not verified"
        return failed(
            f"{info['profile']} is served by {len(rows) - len(closed)} of {len(rows)} replicas, without {units}",
            *lines,
            fix="Run b70ctl recover: it starts and verifies what is closed; b70ctl history says why it failed before.",
        )
    if info.get("drift"):
        return warned(
            f"{info['profile']} runs with settings that differ from the rendered ones: {info['drift']}", *lines
        )
    if engine["restarts"]:
        return warned(
            f"{info['profile']} is served, verified, and was restarted {engine['restarts']} times by systemd", *lines
        )
    return passed(f"{info['profile']} is served, verified {info['verified_at']}", *lines)


def quarantine(site: Site, answers: Answers) -> Finding:
    held = answers.look(Look("slot")).get("quarantine")
    if held is None:
        return passed("this host is not in quarantine")
    note = Quarantine(**held)
    if note.reason:
        return failed(note.describe())
    return failed(note.describe(), f"log: {note.line}", f"switch: {note.switch_id}")


def frontdoor(site: Site, answers: Answers) -> Finding:
    seen = answers.look(Look("http", f"{site.settings['frontdoor_url']}/status"))
    if not seen["status"]:
        return failed(f"the frontdoor does not answer at {site.settings['frontdoor_url']}: {seen['error']}")
    try:
        body = json.loads(seen["body"])
        door = body["frontdoor"]
    except (ValueError, KeyError, TypeError):
        return failed(
            f"{site.settings['frontdoor_url']}/status is not answered by the frontdoor (HTTP {seen['status']})"
        )
    lines = [
        f"phase {body.get('phase')}, open {body.get('open')}",
        f"running {door.get('active_generations')}, waiting {door.get('queued_generations')}",
    ]
    if not body.get("open"):
        return warned(
            f"the frontdoor answers and is closed: {body.get('reason') or body.get('phase')}",
            *lines,
            fix="See the check slot: it opens by itself as soon as a verified engine runs.",
        )
    for error, what in (
        ("keys_error", "a file of API keys is invalid, so the previous keys still count, revoked ones included"),
        ("settings_error", "the frontdoor read settings that are invalid, so the previous ones still count"),
    ):
        if door.get(error):
            fix = "Run site.yml --tags frontdoor again: the role writes the file from its variables."
            return warned(what, str(door[error]), *lines, fix=fix)
    if door.get("restart_needed"):
        return warned(
            f"the frontdoor has read settings that only a restart makes count: {', '.join(door['restart_needed'])}",
            *lines,
            fix="Run site.yml --tags frontdoor, or: systemctl restart b70-openai-frontdoor",
        )
    return passed(f"the frontdoor is open for {(body.get('model_slot') or {}).get('name')}", *lines)


def profiles(site: Site, answers: Answers) -> Finding:
    info = answers.look(Look("slot"))
    known = info.get("profiles") or []
    broken = [f"{row['name']}: {row['title']}" for row in known if row["status"] == "unreadable"]
    if broken:
        return failed(f"{len(broken)} of {len(known)} rendered profiles cannot be read", *broken)
    if not known:
        return warned("no profile is rendered on this host")
    return passed(f"{len(known)} profiles are rendered")


def weights(site: Site, answers: Answers) -> Finding:
    if not site.wanted:
        return skipped("no profile is served, starts at boot or was named")
    lines, bad = [], []
    for profile in site.wanted:
        path = profile["model"]["path"]
        if not path:
            lines.append(f"{profile['name']} needs no weights: its engine is elsewhere")
            continue
        found = answers.look(Look("weights", path))
        lines.append(f"{profile['name']}: {path}: {found['state']}{', ' + found['reason'] if found['reason'] else ''}")
        if found["state"] != "complete":
            bad.append(profile["name"])
    if bad:
        return failed(f"the weights of {', '.join(bad)} are incomplete", *lines)
    return passed(lines[0], *lines[1:])


def caches(site: Site, answers: Answers) -> Finding:
    if site.account is None:
        return skipped(f"the service user {site.settings['user']} does not exist yet")
    rows = answers.look(Look("cache-directories"))
    lines = [f"{row['path']}: {row['problem'] or 'writable'}" for row in rows]
    closed = [row for row in rows if row["problem"]]
    if closed:
        return failed(
            f"the user {site.settings['user']} cannot write to {closed[0]['path']}: {closed[0]['problem']}", *lines
        )
    return passed(f"the user {site.settings['user']} can write to all {len(rows)}", *lines)


def _weights(site: Site) -> Sequence[Probe]:
    return tuple(Look("weights", path) for profile in site.wanted if (path := profile["model"]["path"]))


CHECKS = (
    Check(
        "units", "product", "failed systemd units of this collection",
        "systemd does not start a failed unit again.",
        "See its journal.", lambda site: (UNITS,), units, needs_product=True,
    ),
    Check(
        "restarts", "product", "services that use files which an update has replaced",
        "They go on with what they have loaded, security holes included. needrestart does not restart them, because a "
        "restart closes the slot until the model is verified again.",
        "ansible-playbook arcpro.b70.recycle drains and restarts one host after the other, when clients can bear it.",
        lambda site: (OUTDATED,), restarts, needs_product=True,
    ),
    Check(
        "slot", "product", "what is served, whether it is verified, and whether it matches the rendered profile",
        "Clients get answers from a verified engine only.",
        "Switch to the profile again, or run b70ctl recover.", lambda site: (Look("slot"),), slot, needs_product=True,
    ),
    Check(
        "quarantine", "product", "whether a card was lost in this boot, or somebody has set a quarantine",
        "After a lost device nothing is switched to until the host was rebooted or somebody who looked at the evidence "
        "has cleared it: the next engine may answer wrongly.",
        "Keep the evidence (ansible-playbook arcpro.b70.report), then reboot the host, or run b70ctl clear-quarantine.",
        lambda site: (Look("slot"),), quarantine, needs_product=True,
    ),
    Check(
        "frontdoor", "product", "whether the frontdoor answers, and is open",
        "Clients reach the model only through it.",
        f"systemctl restart {FRONTDOOR_UNIT}; see journalctl -u {FRONTDOOR_UNIT} -n 50.",
        lambda site: (Look("http", f"{site.settings['frontdoor_url']}/status"),), frontdoor, needs_product=True,
    ),
    Check(
        "profiles", "product", "whether every rendered profile can be read",
        "A profile that cannot be read cannot be switched to.",
        "Render it again: site.yml --tags slot.", lambda site: (Look("slot"),), profiles, needs_product=True,
    ),
    Check(
        "weights", "product", "whether the weights of the profiles that are served or start at boot are complete",
        "With incomplete weights, the next start fails or loads something that was not verified.",
        "Run site.yml --tags model_weights.", _weights, weights, needs_product=True,
    ),
    Check(
        "cache-directories", "product", "whether the service user can write to the caches",
        "Engines compile kernels when they start and cache them. Without the cache they fail, or start minutes later.",
        "chown the directory to the service user, free or remount the disk; site.yml --tags slot makes missing ones.",
        lambda site: (Look("cache-directories"),), caches, needs_product=True,
    ),
)  # fmt: skip
