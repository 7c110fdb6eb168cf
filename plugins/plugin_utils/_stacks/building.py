# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The builds of a stack's sources: which wheels, from which patches, on which host. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import FORGE

# Keys that a source (and a patch) has in common with the module that builds it.
SAME = ("submodules", "subdirectory", "script", "cmake", "probes", "max_jobs", "peak_gib", "job_gib", "disk_gib")
SAME_OF_PATCH = ("name", "commit", "path", "encoding", "sha256", "subdirectory", "without_context")

Looks = Mapping[str, Mapping[str, Any]]


def builds(
    manifest: Mapping[str, Any], pinned: Mapping[str, str], series: str, system: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the sources of a stack in build order, each with its name and the arguments of b70_source_build.

    `pinned` are the versions of the lock, `series` is that of the environment's Python, `system` the host's.
    """
    build = manifest.get("build", {})
    return [
        {
            "name": source["name"],
            "distribution": source.get("distribution", source["name"]),
            "commit": source["commit"],
            "repo": source["repo"],
            "arguments": {
                "name": source["name"],
                "repository": FORGE + source["repo"],
                "commit": source["commit"],
                **{key: source[key] for key in SAME if key in source},
                # The name that a wheel's own project gives it is none of a build's inputs.
                **({"distribution": source.get("distribution", source["name"])} if "cmake" in source else {}),
                "trees": [
                    {"repository": FORGE + tree["repo"], "commit": tree["commit"], "directory": tree["directory"]}
                    for tree in source.get("trees", [])
                ],
                "environment": {**build.get("environment", {}), **source.get("environment", {})},
                "patches": [
                    {"repository": FORGE + patch["repo"], **{key: patch[key] for key in SAME_OF_PATCH if key in patch}}
                    for patch in manifest.get("patches", [])
                    if patch["applies_to"] == source["name"]
                ],
                "uses": _uses(manifest, pinned, series, system),
            },
        }
        for source in manifest.get("sources", [])
    ]


def _uses(
    manifest: Mapping[str, Any], pinned: Mapping[str, str], series: str, system: Mapping[str, str]
) -> dict[str, str]:
    """Return what a wheel depends on beside its sources. Hosts where all of this is equal can share the wheel."""
    first = dict(item["requirement"].split("==", 1) for item in manifest.get("first", []))
    return {
        **{name: pinned[name] for name in manifest.get("build", {}).get("requires", []) if name in pinned},
        **first,
        "compiler": str(manifest.get("oneapi", {}).get("compiler", "")),
        "python": series,
        "machine": system["machine"],
        "system": f"{system.get('id', '')} {system.get('version', '')}".strip(),
    }


def share(looks: Mapping[str, Looks], stored: Collection[str], wanting: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return, for every host of `wanting`, which wheels of a stack it builds and where it gets the others.

    `looks` are all hosts of the play in its order, each with what b70_source_build found there for every source: `key`,
    `state`, `problems`. Only a wheel of the same key will do: on another system or Python it is another wheel. `stored`
    are the wheels on the controller, SOURCE-KEY. Each answer has for every source `do` (have, copy, build, refuse),
    `holder` (the host that has or makes it; empty for the controller) and `problems`. Of hosts that want the same
    wheels, one builds all that nobody has.
    """
    answers: dict[str, dict[str, Any]] = {}
    for keys in dict.fromkeys(_keys(looks[name]) for name in wanting):
        needing = [name for name in wanting if _keys(looks[name]) == keys]
        holders = {source: _holder(source, key, looks, stored) for source, key in keys}
        lacking = [source for source, holder in holders.items() if holder is None]
        builder = _builder({name: looks[name] for name in needing}, lacking) if lacking else None
        for name in needing:
            answers[name] = {
                source: _answer(name, looks[name][source], holder, builder) for source, holder in holders.items()
            }
    return answers


def _keys(look: Looks) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((source, str(found["key"])) for source, found in look.items()))


def _holder(source: str, key: str, looks: Mapping[str, Looks], stored: Collection[str]) -> str | None:
    """Return the host that has a wheel; empty if the controller has it, None if nobody does."""
    for name, look in looks.items():
        if source in look and look[source]["key"] == key and look[source]["state"] == "built":
            return name
    return "" if f"{source}-{key}" in stored else None


def _builder(looks: Mapping[str, Looks], lacking: Collection[str]) -> str | None:
    """Return the host that already builds, else the first that can build all that is missing; None if none can."""
    able = [
        name
        for name, look in looks.items()
        if all(look[source]["state"] == "running" or not look[source].get("problems") for source in lacking)
    ]
    running = [name for name in able if any(looks[name][source]["state"] == "running" for source in lacking)]
    return next(iter([*running, *able]), None)


def _answer(host: str, look: Mapping[str, Any], holder: str | None, builder: str | None) -> dict[str, Any]:
    if look["state"] == "built":
        return {"do": "have", "holder": host, "problems": []}
    if holder is not None:
        return {"do": "copy", "holder": holder, "problems": []}
    if builder is None:
        return {"do": "refuse", "holder": host, "problems": list(look.get("problems", []))}
    return {"do": "build" if host == builder else "copy", "holder": builder, "problems": []}


def repositories(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the repositories that a mirror needs for a stack.

    Each has its commit, `submodules` (whether they are needed too) and `files`, the only files that are needed, empty
    for all.
    """
    found = []
    for source in manifest.get("sources", []):
        found.append({**_repository(source), "submodules": source.get("submodules", False), "files": []})
        found += [{**_repository(tree), "submodules": False, "files": []} for tree in source.get("trees", [])]
    for patch in manifest.get("patches", []):
        found.append({**_repository(patch), "submodules": False, "files": [patch["path"]]})
    return found


def _repository(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": item["repo"], "url": FORGE + item["repo"], "commit": item["commit"]}


def questions(plan: Collection[Mapping[str, Any]], plans: Mapping[str, Collection[Mapping[str, Any]]]) -> list[str]:
    """Return the ids of this host's stacks with sources that some host of the play still lacks.

    Stacks that are installed here count too, because others may take their wheels.
    """
    lacking = {item["id"] for other in plans.values() for item in other if not item["installed"]}
    return [item["id"] for item in plan if item["id"] in lacking and item["builds"]]


def shares(
    plans: Mapping[str, Collection[Mapping[str, Any]]],
    looks: Mapping[str, Mapping[str, Looks]],
    stored: Collection[str],
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the answers of `share` by stack and host.

    `plans` and `looks` (by stack and source) are those of all hosts.
    """
    answers = {}
    for stack in dict.fromkeys(stack for found in looks.values() for stack in found):
        asked = {host: looks[host][stack] for host in plans if stack in looks.get(host, {})}
        wanting = [host for host in asked if _lacks(plans[host], stack)]
        answers[stack] = share(asked, stored, wanting)
    return answers


def _lacks(plan: Collection[Mapping[str, Any]], stack: str) -> bool:
    return any(item["id"] == stack and not item["installed"] for item in plan)


def waits_for(answers: Mapping[str, Mapping[str, Any]], host: str, looks: Mapping[str, Looks]) -> str:
    """Return the host that is still to build something of a stack for `host`, empty where there is none.

    `looks` are those of all hosts at the stack.
    """
    for source, answer in answers.items():
        holder = answer["holder"]
        if answer["do"] == "copy" and holder and looks[holder][source]["state"] != "built":
            return str(holder)
    return ""


def lent(answers: Mapping[str, Mapping[str, Mapping[str, Any]]], host: str, looks: Looks) -> list[str]:
    """Return the sources of a stack whose finished wheels `host` gives to other hosts of the play."""
    wanted = [
        source
        for other in answers.values()
        for source, answer in other.items()
        if answer["do"] == "copy" and answer["holder"] == host and looks[source]["state"] == "built"
    ]
    return list(dict.fromkeys(wanted))


def said(item: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]], looks: Looks) -> list[str]:
    """Return one sentence for each source of a stack: what is done for it on a host."""
    lines = []
    for build in item["builds"]:
        answer, found = answers[build["name"]], looks[build["name"]]
        patched = [patch["name"] for patch in build["arguments"]["patches"]]
        source = f"{build['name']} from {build['repo']} at {build['commit'][:12]}"
        with_patches = f" with {', '.join(patched)}" if patched else ""
        if answer["do"] == "build":
            how = found.get("estimate") or "a build is under way"
            verb = "joins the build of" if found["state"] == "running" else "builds"
            lines.append(f"{verb} {source}{with_patches}: {how}")
        elif answer["do"] == "copy":
            lines.append(f"takes the wheel of {source}{with_patches} from {answer['holder'] or 'the controller'}")
        else:
            lines.append(f"has the wheel of {source}{with_patches}")
    return lines


def built(item: Mapping[str, Any], wheels: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what was built into a stack, for its fingerprint: sources, patches, wheel digests, the compiler."""
    found = []
    for build in item["builds"]:
        wheel = wheels[build["name"]]
        kept = {key: wheel[key] for key in ("key", "file", "sha256", "patches", "environment", "uses", "compiler")}
        found.append({"name": build["name"], "repo": build["repo"], "commit": build["commit"], **kept})
    return found
