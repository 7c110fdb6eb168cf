# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stack: is it whole, do its parts fit each other, does it find the cards, is it what was tested?"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..._slot.model.profile import MASK
from .. import inside
from ..model import Answers, Check, Command, Finding, Look, Output, Probe, Site, failed, passed, skipped, warned
from ..parse import cards_among

# Combinations that are known not to work: distribution, pattern of its version, the version of torch, what happens.
KNOWN_BAD = (
    ("torch", r"2\.13\.0\.dev20260520\+xpu", "", "vLLM's compilation stops with a duplicate handler assertion"),
    ("oneccl", r"2022\.", r"2\.1[13]\.", "all-reduce is reported to hang beside this torch; 2021.17.2 does not"),
    ("vllm-xpu-kernels", r"0\.1\.14(\.|$)", "", "the grouped product of its experts races on these cards (issue 586)"),
)
INSIDE_LIMIT_S = 45.0


def engine_env(site: Site, stack: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the variables in which the stack is inspected: the engine's of a wanted profile, else the manifest's."""
    quiet = {"HOME": "/tmp", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONDONTWRITEBYTECODE": "1",
             "VLLM_CONFIGURE_LOGGING": "0"}  # fmt: skip
    own = [
        profile["engine"].get("env", {}) for profile in site.wanted if profile.get("stack", {}).get("id") == stack["id"]
    ]
    manifest = {
        name: str(text).replace("@venv@", f"{stack['dir']}/venv")
        for name, text in site.manifest_of(stack).get("env", {}).items()
    }
    return tuple(sorted({**(own[0] if own else manifest), **quiet}.items()))


def cards_for(site: Site, stack: Mapping[str, Any]) -> int:
    """Count the B70 cards that the environment of the stack leaves to an engine."""
    mask = dict(engine_env(site, stack)).get(MASK, "")
    return sum(str(number) in mask.split(",") for number in site.numbers) if mask else len(site.cards)


def inside_of(site: Site, stack: Mapping[str, Any], vllm: bool) -> Command:
    """Import torch, and vLLM too where told, in the stack's interpreter, as the service user, and ask them."""
    return Command(
        (f"{stack['dir']}/venv/bin/python", "-B", "-", json.dumps({"torch": True, "vllm": vllm})),
        limit_s=INSIDE_LIMIT_S,
        as_user=True,
        env=engine_env(site, stack),
        stdin=inspect.getsource(inside),
    )


def asked(site: Site, stack: Mapping[str, Any]) -> Command | None:
    """Return the command that inspects the stack, or None where it would tell nothing.

    Where an engine of the stack serves, only torch is asked about the cards, because importing vLLM takes longer than
    everything else together.
    """
    if site.settings.get("deep") or not site.serves(stack):
        return inside_of(site, stack, vllm=True)
    return inside_of(site, stack, vllm=False) if site.manifest_of(stack).get("device") == "xpu" else None


def told(site: Site, answers: Answers, stack: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stack's answer about itself; raise LookupError where it gives none."""
    command = asked(site, stack)
    output = answers.output(command) if command else Output(problem="it was not asked")
    try:
        answer: dict[str, Any] = json.loads(output.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise LookupError(f"the interpreter of {stack['id']} does not answer: {output.why()}") from None
    return answer


def card_stacks(site: Site) -> tuple[Mapping[str, Any], ...]:
    """Return the used stacks whose torch is for the cards."""
    return tuple(stack for stack in site.torch_stacks if site.manifest_of(stack).get("device") == "xpu")


def complete(site: Site, answers: Answers) -> Finding:
    lines = [
        f"{stack['id']}: {'complete, ' + str(stack['created']) if stack['complete'] else stack['reason']}"
        for stack in site.stacks
    ]
    ids = {stack["id"]: stack for stack in site.stacks}
    for profile in site.wanted:
        wanted = str(profile.get("stack", {}).get("id"))
        if not profile.get("stack", {}).get("dir", True):
            lines.append(f"{profile['name']} needs no stack: its engine is elsewhere")
            continue
        if wanted not in ids:
            return failed(f"{profile['name']} needs stack {wanted}, which is not installed", *lines)
        if not ids[wanted]["complete"]:
            return failed(f"{profile['name']} needs stack {wanted}: {ids[wanted]['reason']}", *lines)
    broken = [stack["id"] for stack in site.stacks if not stack["complete"]]
    if broken:
        return warned(f"{', '.join(broken)} is not complete; nothing that is served or boots needs it", *lines)
    if not lines:
        return skipped(f"there is no stack in {site.settings['stack_root']}")
    return passed(f"{len(lines)} stacks are complete", *lines)


def files(site: Site, answers: Answers) -> Finding:
    wrong: list[str] = []
    counted = 0
    for stack in site.environments:
        record = answers.look(Look("record", str(stack["dir"])))
        counted += record["files"]
        wrong += [f"{stack['id']}: {line}" for line in record["problems"]]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return failed(f"the installed files are not what was verified: {wrong[0]}{more}", *wrong)
    how = "sizes and digests" if site.settings.get("deep") else "sizes"
    return passed(f"{counted} files are as installed ({how}), distributions are those of the fingerprint")


def extensions(site: Site, answers: Answers) -> Finding:
    wrong, looked = [], 0
    if not site.torch_stacks:
        return skipped("no used stack has torch")
    for stack in site.torch_stacks:
        fit = answers.look(Look("extensions", str(stack["dir"])))
        looked += fit["looked_at"]
        wrong += [(stack["id"], fit["torch"], item) for item in fit["misfits"]]
    if not wrong:
        return passed(f"{looked} extensions that use torch find all their symbols")
    stack_id, torch, first = wrong[0]
    lines = [f"{item['extension']}: {item['problem']}{_home(item)}" for _stack, _torch, item in wrong]
    package = first["extension"].split("/")[0].split(".")[0]
    return failed(
        f"{first['extension']} does not fit torch {torch} of {stack_id}: {first['problem']}{_home(first)}",
        *lines,
        fix=f"{package} was built for another torch: build it from source against torch {torch}, or install the wheel "
        f"that was made for it; then remove {stack_id}'s directory and run site.yml --tags stack.",
    )


def _home(misfit: Mapping[str, str]) -> str:
    """Return the words that name the library where a missing symbol should be; empty for other problems."""
    return f" (should be in {misfit['library']})" if misfit["problem"].startswith("undefined symbol") else ""


def torch_xpu(site: Site, answers: Answers) -> Finding:
    stacks = card_stacks(site)
    if not stacks:
        return skipped("no used stack is for the cards")
    lines: list[str] = []
    for stack in stacks:
        answer = told(site, answers, stack)
        if "torch" in answer["errors"]:
            return failed(f"torch of {stack['id']} cannot be imported: {answer['errors']['torch']}", *lines)
        xpu = answer["xpu"]
        lines += [f"{stack['id']}: torch {answer['torch']}, {xpu['count']} devices", *xpu["names"]]
        found = cards_among(xpu["names"])
        if not xpu["available"] or found < cards_for(site, stack):
            return failed(f"torch {answer['torch']} sees {found} of {cards_for(site, stack)} cards", *lines)
    return passed(f"torch sees all {len(site.cards)} cards", *lines)


def collectives(site: Site, answers: Answers) -> Finding:
    stacks = card_stacks(site)
    if not stacks:
        return skipped("no used stack is for the cards")
    for stack in stacks:
        answer = told(site, answers, stack)
        if not answer["xccl"]:
            return failed(
                f"torch of {stack['id']} has no XCCL: engines on more than one card cannot start",
                f"oneccl {answer['oneccl']}",
            )
    return passed(f"torch has XCCL, oneccl {answer['oneccl'] or 'of the system'}")


def platform(site: Site, answers: Answers) -> Finding:
    lines: list[str] = []
    if not site.torch_stacks:
        return skipped("no used stack has vLLM")
    for stack in site.torch_stacks:
        if site.serves(stack) and not site.settings.get("deep"):
            if not answers.look(Look("slot")).get("verified"):
                return skipped(f"an engine of {stack['id']} should be serving (see the check slot)")
            lines.append(f"{stack['id']}: a verified engine runs on it")
            continue
        answer, wanted = told(site, answers, stack), site.manifest_of(stack).get("device")
        for name in ("torch", "vllm"):
            if name in answer["errors"]:
                return failed(f"{name} of {stack['id']} cannot be imported: {answer['errors'][name]}", *lines)
        lines.append(f"{stack['id']}: vLLM {answer['vllm']} detects the platform {answer['platform']!r}")
        if wanted and answer["platform"] != wanted:
            return failed(
                f"vLLM of {stack['id']} detects the platform {answer['platform']!r}, it should be {wanted!r}", *lines
            )
    return passed(lines[0], *lines)


def matrix(site: Site, answers: Answers) -> Finding:
    """Judge the distributions in the used stacks by their manifests and by the known bad combinations."""
    bad, other, seen = [], [], 0
    for stack in site.environments:
        manifest = site.manifest_of(stack)
        have = answers.look(Look("record", str(stack["dir"])))["distributions"]
        pins = {**manifest.get("torch", {}), **manifest.get("packages", {}), **_verified(manifest)}
        seen += len(pins)
        for name, pattern, torch, effect in KNOWN_BAD:
            if re.match(pattern, have.get(name, "")) and re.match(torch, have.get("torch", "")):
                bad.append(f"{stack['id']}: {name} {have[name]}: {effect}")
        for name, text in pins.items():
            key = name.lower().replace("_", "-")
            if have.get(key) != str(text):
                other.append(f"{stack['id']}: {name} is {have.get(key, 'not installed')}, tested with {text}")
        named = str(manifest.get("os", ""))
        here = f"{site.system.get('id', '')} {site.system.get('version', '')}".strip()
        if named and named.lower() != here.lower():
            other.append(f"{stack['id']}: the system is {here}, tested on {named}")
    if bad:
        return failed(f"a version is known to fail: {bad[0]}", *bad, *other)
    if other:
        return warned(f"{len(other)} versions are not the tested ones: {other[0]}", *other)
    return passed(f"{seen} pinned versions are the tested ones")


def _verified(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    distributions = manifest.get("verify", {}).get("distributions", {})
    return distributions if isinstance(distributions, Mapping) else {}


def _inside(site: Site) -> Sequence[Probe]:
    commands = [asked(site, stack) for stack in site.torch_stacks]
    return (Look("slot"), *(command for command in commands if command))


def _records(site: Site) -> Sequence[Probe]:
    return tuple(Look("record", str(stack["dir"])) for stack in site.environments)


def _extensions(site: Site) -> Sequence[Probe]:
    return tuple(Look("extensions", str(stack["dir"])) for stack in site.torch_stacks)


def devices_of(site: Site, stack: Mapping[str, Any]) -> Command:
    """Ask an engine that is a program of its own what it can compute on, as the service user."""
    program = f"{stack['dir']}/venv/bin/{site.kind_of(stack).program}"
    return Command((program, "--list-devices"), limit_s=INSIDE_LIMIT_S, as_user=True, env=engine_env(site, stack))


def program(site: Site, answers: Answers) -> Finding:
    if not site.other_stacks:
        return skipped("no used stack has an engine without torch")
    lines: list[str] = []
    for stack in site.other_stacks:
        manifest, output = site.manifest_of(stack), answers.output(devices_of(site, stack))
        name, kind = site.kind_of(stack).program, manifest.get("verify", {}).get("device_type")
        if not output.ok:
            return failed(f"{name} of {stack['id']} does not run: {output.why()}", *lines)
        named = re.findall(rf"^\s*{re.escape(str(kind))}\d+:(.*)$", output.out, re.MULTILINE) if kind else []
        count = cards_among(named)
        wanted = cards_for(site, stack)
        if kind and count < wanted:
            return failed(f"{name} of {stack['id']} sees {count} of {wanted} cards", *output.out.splitlines())
        lines.append(f"{stack['id']}: {name} runs" + (f" and sees {count} {kind} devices" if kind else ""))
    return passed(lines[0], *lines)


def _programs(site: Site) -> Sequence[Probe]:
    return tuple(devices_of(site, stack) for stack in site.other_stacks)


AGAIN = "Remove the stack's directory and run site.yml --tags stack; what was downloaded is kept."
CHECKS = (
    Check(
        "stacks", "stack", "whether the stacks that profiles need are complete",
        "A stack without a fingerprint was interrupted during its installation, and no engine is started on it.",
        "Run site.yml --tags stack.", lambda site: (), complete,
    ),
    Check(
        "stack-files", "stack", "whether the stack's files and distributions are those that were verified",
        "The environment was changed after its verification, so its fingerprint no longer describes it.",
        AGAIN, _records, files, needs_stack=True,
    ),
    Check(
        "versions", "stack", "the stack's versions against those that were tested together",
        "Results are known only for the tested combination, and some others are known to fail.",
        "Install the stack as its manifest says (site.yml --tags stack), or prove the new combination with the canary.",
        _records, matrix, needs_stack=True,
    ),
    Check(
        "native-extensions", "stack", "whether compiled extensions fit the installed torch and the system's libraries",
        "An extension that was built for another torch cannot be loaded, or calls symbols that do not exist.",
        "Build the extension against the installed torch.", _extensions, extensions, needs_stack=True,
    ),
    Check(
        "vllm-platform", "stack", "the platform that vLLM detects; skipped while a verified engine runs on the stack",
        "vLLM cannot serve the stack's profiles on another platform than the stack is made for.",
        "See the checks native-extensions, torch-xpu and stack-files; " + AGAIN, _inside, platform, needs_stack=True,
    ),
    Check(
        "engine-program", "stack", "whether an engine that is a program of its own runs, and sees every card",
        "Nothing of its stack can be served.",
        "See the checks level-zero-devices, driver-sources and packages; " + AGAIN, _programs, program,
        needs_stack=True,
    ),
    Check(
        "torch-xpu", "stack", "whether torch sees every card",
        "vLLM can use only the cards that torch sees.",
        "See the checks level-zero-devices, driver-sources and packages: torch goes through the vendor's driver.",
        _inside, torch_xpu, needs_cards=True, needs_stack=True, captured_only=True,
    ),
    Check(
        "collectives", "stack", "whether torch has the collectives for the cards (XCCL, oneCCL)",
        "Tensor parallelism over several cards uses XCCL.",
        "Install the stack as its manifest says: its torch brings XCCL, its lock oneCCL.",
        _inside, collectives, needs_cards=True, needs_stack=True, captured_only=True,
    ),
)  # fmt: skip
