# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What building a stack's sources means: which wheels, from which patches, who builds them. On the controller, pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

FORGE = "https://github.com/"
PAGE = "docs/stacks.md"
# What a source and the module that builds it call alike.
SAME = ("submodules", "subdirectory", "script", "probes", "max_jobs", "peak_gib", "job_gib", "disk_gib")


def patches(manifest: Mapping[str, Any], patch_url: str, patch_dir: str) -> list[dict[str, Any]]:
    """Every patch of a stack with where it comes from, and why it cannot be had (`problem`, else empty).

    `patch_url` is a site's own place for patches, which stands above the addresses of manifests; `patch_dir` is where
    they lie on a host, each under its digest. A file that the operator names stands above both.
    """
    found = []
    for patch in manifest.get("patches", []):
        name, digest, path = patch["name"], patch.get("sha256", ""), patch.get("path", "")
        url = "" if path else (f"{patch_url.rstrip('/')}/{name}.patch" if patch_url else patch.get("url", ""))
        found.append(
            {
                "name": name,
                "applies_to": patch["applies_to"],
                "subdirectory": patch.get("subdirectory", ""),
                "without_context": patch.get("without_context", False),
                "sha256": digest,
                "path": path,
                "url": url,
                "file": f"{patch_dir}/{digest}.patch",
                "problem": _patch_problem(patch, digest, path or url, manifest["name"]),
            }
        )
    return found


def _patch_problem(patch: Mapping[str, Any], digest: str, place: str, stack: str) -> str:
    if digest and place:
        return ""
    who = f", which {' and '.join(patch['needed_by'])} need" if patch.get("needed_by") else ""
    lacks = (
        "no digest is known"
        if place
        else ("nobody knows where it is" if digest else "neither place nor digest is known")
    )
    known = f" It is said to be at {patch['url']}." if patch.get("url") and not digest else ""
    return (
        f"Patch {patch['name']} of stack {stack}{who}: {lacks}.{known} Get it, read it, and name it in "
        f"b70_stack_patches with its sha256 and a path or url ({PAGE})."
    )


def builds(
    manifest: Mapping[str, Any],
    pinned: Mapping[str, str],
    host: Mapping[str, Any],
    found: Collection[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The sources of a stack in build order, each with `name`, `distribution` and what b70_source_build is given.

    `pinned` are the versions of the lock, `host` is what b70_host_info returned, `found` is the answer of `patches`.
    """
    build = manifest.get("build", {})
    answers = []
    for source in manifest.get("sources", []):
        answers.append(
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
                    "trees": [
                        {"repository": FORGE + tree["repo"], "commit": tree["commit"], "directory": tree["directory"]}
                        for tree in source.get("trees", [])
                    ],
                    "environment": {**build.get("environment", {}), **source.get("environment", {})},
                    "patches": [
                        {
                            "name": patch["name"],
                            "path": patch["file"],
                            "sha256": patch["sha256"],
                            "subdirectory": patch["subdirectory"],
                            "without_context": patch["without_context"],
                        }
                        for patch in found
                        if patch["applies_to"] == source["name"]
                    ],
                    "uses": _uses(manifest, pinned, host),
                },
            }
        )
    return answers


def _uses(manifest: Mapping[str, Any], pinned: Mapping[str, str], host: Mapping[str, Any]) -> dict[str, str]:
    """What a wheel depends on beside its sources: on other hosts it is as good only where all of this is the same."""
    first = dict(item["requirement"].split("==", 1) for item in manifest.get("first", []))
    system = host["system"]
    return {
        **{name: pinned[name] for name in manifest.get("build", {}).get("requires", []) if name in pinned},
        **first,
        "compiler": str(manifest.get("oneapi", {}).get("compiler", "")),
        "python": ".".join(str(host["python"] or "").split(".")[:2]),
        "machine": system["machine"],
        "system": f"{system.get('id', '')} {system.get('version', '')}".strip(),
    }


def share(hosts: Mapping[str, Mapping[str, Any]], stored: Collection[str], wanting: Collection[str]) -> dict[str, Any]:
    """Who builds a source's wheel and where the others get it, for every host of `wanting`.

    `hosts` are all of the play in its order, each with what b70_source_build found there: `key`, `state`, `problems`.
    Only a wheel of the same key will do: on another system or Python it is another wheel. `stored` are the keys of the
    wheels on the controller. Each answer has `do` (have, copy, build, refuse), `holder` (the host that has or makes it;
    empty for the controller) and `problems`. At most one host builds a key.
    """
    answers: dict[str, Any] = {}
    for key in dict.fromkeys(str(hosts[name]["key"]) for name in wanting):
        alike = {name: look for name, look in hosts.items() if look["key"] == key}
        needing = [name for name in wanting if name in alike]
        holder = next((name for name, look in alike.items() if look["state"] == "built"), "" if key in stored else None)
        builder = _builder(alike, needing) if holder is None else None
        for name in needing:
            if alike[name]["state"] == "built":
                answer = {"do": "have", "holder": name, "problems": []}
            elif holder is not None:
                answer = {"do": "copy", "holder": holder, "problems": []}
            elif builder is None:
                answer = {"do": "refuse", "holder": name, "problems": list(alike[name].get("problems", []))}
            else:
                answer = {"do": "build" if name == builder else "copy", "holder": builder, "problems": []}
            answers[name] = answer
    return answers


def _builder(looks: Mapping[str, Mapping[str, Any]], needing: Collection[str]) -> str | None:
    """The host that builds already, else the first that can; None where no host can."""
    running = [name for name in needing if looks[name]["state"] == "running"]
    able = [name for name in needing if not looks[name].get("problems")]
    return next(iter([*running, *able]), None)


def repositories(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a mirror needs of Git for a stack: repositories with commit, and whether their submodules are needed too."""
    found = []
    for source in manifest.get("sources", []):
        found.append({**_repository(source), "submodules": source.get("submodules", False)})
        found += [{**_repository(tree), "submodules": False} for tree in source.get("trees", [])]
    return found


def _repository(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": item["repo"], "url": FORGE + item["repo"], "commit": item["commit"]}


def questions(plan: Collection[Mapping[str, Any]], plans: Mapping[str, Collection[Mapping[str, Any]]]) -> list[str]:
    """STACK_ID/SOURCE for every source of this host's stacks that some host of the play still lacks: also those of a
    stack that is installed here, because others may take its wheels."""
    lacking = {item["id"] for other in plans.values() for item in other if not item["installed"]}
    return [f"{item['id']}/{build['name']}" for item in plan if item["id"] in lacking for build in item["builds"]]


def shares(
    plans: Mapping[str, Collection[Mapping[str, Any]]],
    looks: Mapping[str, Mapping[str, Mapping[str, Any]]],
    stored: Collection[str],
) -> dict[str, Any]:
    """For every question the answers of `share`, by host. `plans` and `looks` are those of all hosts of the play."""
    answers = {}
    for what in dict.fromkeys(what for found in looks.values() for what in found):
        stack, _slash, name = what.rpartition("/")
        wanting = [host for host, plan in plans.items() if _lacks(plan, stack)]
        hosts = {host: looks[host][what] for host in plans if what in looks.get(host, {})}
        keys = {folder.removeprefix(f"{name}-") for folder in stored if folder.startswith(f"{name}-")}
        answers[what] = share(hosts, keys, [host for host in wanting if host in hosts])
    return answers


def _lacks(plan: Collection[Mapping[str, Any]], stack: str) -> bool:
    return any(item["id"] == stack and not item["installed"] for item in plan)


def said(item: Mapping[str, Any], answers: Mapping[str, Any], looks: Mapping[str, Any], host: str) -> list[str]:
    """One sentence for every source of a stack: what is done for it on a host."""
    lines = []
    for build in item["builds"]:
        what = f"{item['id']}/{build['name']}"
        answer = answers.get(what, {}).get(host, {"do": "have", "holder": host})
        patched = [patch["name"] for patch in build["arguments"]["patches"]]
        source = f"{build['name']} from {build['repo']} at {build['commit'][:12]}"
        with_patches = f" with {', '.join(patched)}" if patched else ""
        if answer["do"] == "build":
            found = looks.get(what, {})
            how = found.get("estimate") or "a build is under way"
            lines.append(
                f"{'joins the build of' if found.get('state') == 'running' else 'builds'} {source}{with_patches}: {how}"
            )
        elif answer["do"] == "copy":
            lines.append(f"takes the wheel of {source}{with_patches} from {answer['holder'] or 'the controller'}")
        else:
            lines.append(f"has the wheel of {source}{with_patches}")
    return lines


def built(item: Mapping[str, Any], looks: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was built into a stack, for its fingerprint: sources, patches, wheels with their digests, the compiler."""
    found = []
    for build in item["builds"]:
        wheel = looks[f"{item['id']}/{build['name']}"]["wheel"]
        kept = {key: wheel[key] for key in ("key", "file", "sha256", "patches", "environment", "uses", "compiler")}
        found.append({"name": build["name"], "repo": build["repo"], "commit": build["commit"], **kept})
    return found
