# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for installing stacks on a host: what is there, what is missing, what prevents it.

Reads lock files of the controller and has no other effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._host import version_key
from ansible_collections.arcpro.b70.plugins.module_utils._image import STORAGE
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of_engine

from .._catalogue import images
from .._catalogue.engines import table_of
from .._catalogue.stacks import is_relay, locked_versions
from . import building

# The engine's own conditions: its user, nothing writable but a private /tmp, no network.
_SANDBOX = (
    "systemd-run",
    "--quiet",
    "--wait",
    "--pipe",
    "--collect",
    "--property=ProtectSystem=strict",
    "--property=ProtectHome=yes",
    "--property=PrivateTmp=yes",
    "--property=PrivateNetwork=yes",
    "--property=NoNewPrivileges=yes",
    "--setenv=HOME=/tmp",
    "--setenv=HF_HUB_OFFLINE=1",
    "--setenv=VLLM_NO_USAGE_STATS=1",
)

# The distribution's packages of a container image whose manifest names none: what pulls and runs it, and what brings it
# from a mirror.
_OF_IMAGES = {"run": ["podman", "crun", "skopeo", "curl"]}

# Keys of a manifest that later steps need.
_KEPT = (
    "aliases",
    "device",
    "disk_mib",
    "engine",
    "env",
    "image",
    "lock",
    "lock_file",
    "oneapi",
    "system_packages",
    "title",
    "verify",
)


def chosen(names: list[str] | None, cards: int) -> list[str]:
    """Return the stacks of a host: the named ones, even if there are none, else the default for its hardware."""
    return (["xpu"] if cards else ["cpu"]) if names is None else names


def plan(
    stacks: Iterable[tuple[str, Mapping[str, Any]]], host: Mapping[str, Any], root: str, python: str
) -> list[dict[str, Any]]:
    """Return the plan for each of `stacks` (id and manifest) on a host.

    `host` is what b70_host_info returned of the host and of its `python` (a path), with `root` among its paths. Each
    answer has `id`, `dir`, `name`, `manifest`, `installed`, `reason` (what is wrong with an incomplete installation,
    else empty), `python` (what its environment is made from), `steps` (what goes before the lock), `builds` (what is
    built after it) and `problems` (why it cannot be installed; empty for an installed one, which is never touched).
    """
    present = {item["id"]: item for item in host["stacks"]}
    answers = []
    for stack_id, manifest in stacks:
        found = present.get(stack_id, {"complete": False, "reason": ""})
        series = python_series(manifest, host["python"])
        of_system = version_key(host["python"] or "")[:2] == version_key(series)
        answers.append(
            {
                "id": stack_id,
                "dir": f"{root}/{stack_id}",
                "name": manifest["name"],
                "manifest": {key: manifest[key] for key in _KEPT if key in manifest},
                "installed": found["complete"],
                "reason": found["reason"],
                "python": python if of_system else series,
                "series": series,
                "steps": [_step(item, series, host) for item in manifest.get("first", [])],
                "builds": building.builds(manifest, _pinned(manifest), series, host["system"]),
                "problems": [] if found["complete"] else problems(manifest, host, root),
            }
        )
    return answers


def python_series(manifest: Mapping[str, Any], system: str | None) -> str:
    """Return a series such as `3.12`: that of the system if the manifest allows it, else the oldest allowed one."""
    wanted = manifest.get("python")
    found = version_key(system or "0")
    if not wanted or version_key(wanted["min"]) <= found < version_key(wanted["below"]):
        return ".".join(str(part) for part in found[:2])
    return str(wanted["min"])


def _pinned(manifest: Mapping[str, Any]) -> dict[str, str]:
    if not manifest.get("sources") or not manifest.get("lock_file"):
        return {}
    return locked_versions(Path(manifest["lock_file"]).read_text(encoding="utf-8"))


def uninstallable(manifest: Mapping[str, Any]) -> list[str]:
    """Return why a stack cannot be installed on any host; empty when it can."""
    return [] if manifest["installable"] else [f"Stack {manifest['name']} cannot be installed: {manifest['reason']}"]


def problems(manifest: Mapping[str, Any], host: Mapping[str, Any], root: str) -> list[str]:
    """Return why a stack cannot be installed on a host, one sentence each with what to do; empty when it can."""
    name, found = f"Stack {manifest['name']}", uninstallable(manifest)
    if found or is_relay(manifest):
        return found
    machine = host["system"]["machine"]
    if machine not in manifest["machines"]:
        found.append(
            f"{name} is for {' or '.join(manifest['machines'])}, this host is {machine}: choose another stack."
        )
    place = STORAGE if "image" in manifest else root
    free = (host["paths"].get(place) or host["paths"][root])["free_mib"]
    if free < manifest["disk_mib"]:
        instead = "move Podman's storage to a larger disk" if "image" in manifest else "set stack_root"
        found.append(
            f"{name} needs {manifest['disk_mib']} MiB below {place}, {free} MiB are free: free some, or {instead}."
        )
    return found


def _step(item: Mapping[str, Any], series: str, host: Mapping[str, Any]) -> dict[str, Any]:
    """Return one requirement as a step of b70_python_environment, with its digests for this Python and machine."""
    hashes = item.get("hashes", {})
    tag = f"cp{series.replace('.', '')}-{host['system']['machine']}"
    known = hashes.get(tag) or hashes.get("any", [])
    return {
        "label": item["requirement"],
        "requirements": " ".join([item["requirement"], *(f"--hash={digest}" for digest in known)]),
        "hashed": bool(known),
        **{key: item[key] for key in ("index", "url") if key in item},
    }


def pinned_steps(steps: Iterable[Mapping[str, Any]], pins: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the steps; those without a digest get the pinned one (`pins`: requirement to digest)."""
    found = []
    for step in steps:
        digest = "" if step["hashed"] else pins.get(step["label"], "")
        pinned = {"requirements": f"{step['requirements']} --hash={digest}", "hashed": True} if digest else {}
        found.append({**step, **pinned})
    return found


def environment_steps(
    item: Mapping[str, Any], lock: str, wheels: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return all steps of a stack's environment in order: what goes first, the lock, then the wheels of sources.

    `wheels` (by source) holds those that are finished; the others are left out.
    """
    # Engines run where nothing can be written, so bytecode that is not compiled now would be compiled at every start.
    # The last step of all does it for the whole environment.
    steps = [*item["steps"]]
    names = [build["name"] for build in item["builds"]]
    if lock:
        label = f"all that {item['manifest']['lock']} names"
        steps.append({"label": label, "requirements": lock, "hashed": True, "compile": not names})
    for build in item["builds"]:
        wheel = wheels.get(build["name"])
        if wheel:
            line = f"{build['distribution']} @ file://{wheel['path']} --hash=sha256:{wheel['sha256']}"
            last = build["name"] == names[-1]
            steps.append({"label": build["name"], "requirements": line, "hashed": True, "compile": last})
    return steps


def contents(
    stacks: Iterable[tuple[str, Mapping[str, Any]]], system: Mapping[str, str], python: str | None
) -> list[dict[str, Any]]:
    """Return what a mirror brings of stacks, for hosts like its machine.

    Each stack has its `python` series, `wheels` (a list for each run of pip: `name`, `lines`, `hashed` and `index`,
    empty for the default index), `repositories`, and `images` (`source` by digest, and `debs` with the `file` by which
    hosts ask).
    """
    found = []
    for stack_id, manifest in stacks:
        series = python_series(manifest, python)
        wheels = [_list_of(_step(item, series, {"system": system})) for item in manifest.get("first", [])]
        if manifest.get("lock_file"):
            lock = Path(manifest["lock_file"]).read_text(encoding="utf-8")
            wheels.append({"name": manifest["lock"], "lines": lock, "hashed": True, "index": ""})
        repositories = building.repositories(manifest)
        image = [_mirrored(manifest["name"], manifest["image"])] if "image" in manifest else []
        found.append(
            {"id": stack_id, "python": series, "wheels": wheels, "repositories": repositories, "images": image}
        )
    return found


def _mirrored(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    if not images.known_digest(about):
        raise ValueError(
            f"Stack {name} is an image without a digest, and a mirror knows images by nothing else: write a manifest "
            "with the digest that another host has recorded in b70-pins.yml."
        )
    return {"source": images.source(about), "debs": [{**deb, "file": deb_file(deb)} for deb in about.get("debs", [])]}


def deb_file(deb: Mapping[str, str]) -> str:
    """Return what the file of a package of an image is called, on a host and in a mirror."""
    return f"{deb['sha256'][:12]}-{deb['url'].rpartition('/')[2]}"


def _list_of(step: Mapping[str, Any]) -> dict[str, Any]:
    lines = step["requirements"]
    if "url" in step:
        name, _equals, rest = lines.partition("==")
        lines = " ".join([f"{name} @ {step['url']}", *rest.split()[1:]])
    return {"name": step["label"], "lines": lines, "hashed": step["hashed"], "index": step.get("index", "")}


def system_packages(manifests: Iterable[Mapping[str, Any]], *, building: bool) -> list[str]:
    """Return the distribution's packages that stacks need, with those for a build where there is one."""
    kinds = ("run", "build") if building else ("run",)
    wanted: list[str] = []
    for one in manifests:
        named = {**(_OF_IMAGES if "image" in one else {}), **one.get("system_packages", {})}
        wanted += [name for kind in kinds for name in named.get(kind, [])]
    return list(dict.fromkeys(wanted))


def probe_argv(item: Mapping[str, Any], user: str, group: str, limit_s: int) -> list[str]:
    """Return the argv that runs the verification's program from standard input, in the engine's own conditions."""
    venv = f"{item['dir']}/venv"
    env = {name: value.replace("@venv@", venv) for name, value in item["manifest"].get("env", {}).items()}
    return [
        *_SANDBOX,
        f"--property=User={user}",
        f"--property=Group={group}",
        f"--property=RuntimeMaxSec={limit_s}",
        *(f"--setenv={name}={value}" for name, value in env.items()),
        f"{venv}/bin/python",
        "-B",
        "-",
    ]


def probe_asked(item: Mapping[str, Any], cards: int) -> dict[str, Any]:
    """Return what the verification checks: the manifest's list, the built extensions, one device for each card.

    Of a program that has a table of options, the help must name them all.
    """
    verify = item["manifest"].get("verify", {})
    known = table_of(item["manifest"])
    flags = sorted(known["options"]) if known else []
    programs = {
        name: {"says": says, "flags": flags if name == _program(item["manifest"]) else []}
        for name, says in verify.get("programs", {}).items()
    }
    extensions = [build["distribution"] for build in item["builds"]]
    more = {"programs": programs} if programs else {}
    return {**verify, **more, "extensions": extensions, "cards": cards}


def _program(manifest: Mapping[str, Any]) -> str:
    return kind_of_engine(manifest.get("engine") or {}).program


def fingerprint(
    item: Mapping[str, Any],
    host: Mapping[str, Any],
    facts: Mapping[str, Any],
    wheels: Mapping[str, Mapping[str, Any]],
    learned: Mapping[str, str],
    created: str,
) -> dict[str, Any]:
    """Return the record of a verified stack, for b70_host_info and for evidence.

    `facts` is the answer of the verification, `wheels` are those of the sources, `learned` the new digests.
    """
    return {
        "schema": 1,
        "stack_id": item["id"],
        "name": item["name"],
        "title": item["manifest"].get("title", item["name"]),
        "engine": dict(item["manifest"].get("engine") or {}),
        "digest": facts["digest"],
        "created": created,
        "system": host["system"],
        "python": facts["python"],
        "imports_s": facts["imports"],
        "distributions": facts["distributions"],
        "sources": building.built(item, wheels),
        "wheels": dict(learned),
        "devices": facts["devices"],
    }


def lock_requirements(lock: str, python: str, machine: str) -> list[str]:
    """Return the requirements (`name==version`) of a lock that apply to a Python (version or series) and a machine.

    Raises `ValueError` with the line where one cannot be understood.
    """
    # Only on the controller, where ansible-core brings it.
    from packaging.requirements import InvalidRequirement, Requirement

    full = python if python.count(".") > 1 else f"{python}.0"
    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": full,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": "linux",
    }
    found = []
    for line in lock.splitlines():
        if not re.match(r"[A-Za-z0-9]", line):
            continue
        try:
            requirement = Requirement(line.removesuffix("\\").strip())
        except InvalidRequirement as error:
            raise ValueError(f"the lock's line {line!r} is not a requirement: {error}") from error
        if requirement.marker is None or requirement.marker.evaluate(environment):
            found.append(f"{requirement.name}{requirement.specifier}")
    return found


def image_arguments(item: Mapping[str, Any], pinned: str) -> dict[str, Any]:
    """Return which image a stack needs, as arguments of b70_container_image; `pinned` is a digest, or empty."""
    about = item["manifest"]["image"]
    manifest = {"name": item["name"], "image": about}
    return {
        "stack": item["id"],
        "source": images.source(about, pinned),
        "name": images.reference(manifest, item["id"]),
        "program": about["program"],
    }


def image_record(
    item: Mapping[str, Any], host: Mapping[str, Any], image: Mapping[str, Any], created: str
) -> dict[str, Any]:
    """Return the record of a stack that is an image; `image` is what b70_container_image returned of it."""
    reference = images.reference({"name": item["name"], "image": item["manifest"]["image"]}, item["id"])
    return {
        "schema": 1,
        "stack_id": item["id"],
        "name": item["name"],
        "title": item["manifest"].get("title", item["name"]),
        "digest": image["digest"],
        "created": created,
        "system": host["system"],
        "image": {"reference": reference, **{key: image[key] for key in ("id", "digest", "digests", "source")}},
    }


def new_pin(about: Mapping[str, Any], image: Mapping[str, Any], pinned: str) -> str:
    """Return the digest to pin for an image that was pulled by its tag; empty for one that has a digest.

    An index and the image in it have a digest each. Whichever one is pinned stays; else it is that of the index.
    """
    if images.known_digest(about) or pinned in image["digests"]:
        return ""
    return next((digest for digest in image["digests"] if digest != image["digest"]), str(image["digest"]))


def stalled(source: str, seconds: int, mirror: str = "") -> str:
    """Return what is said of a pull that was ended because nothing came."""
    registry = mirror or source.partition("/")[0]
    return (
        f"the pull of {source} transferred nothing for {seconds} s and was ended: check {registry} and the way to it, "
        "then run again; layers that are there are not pulled again"
    )


def pulled(bytes_: int, size_gb: float | None, seconds: float) -> str:
    """Return one line for the person who waits for an image."""
    total = f" of about {size_gb:g} GB" if size_gb else ""
    return f"pulling or building the image: {bytes_ / 1e9:.1f} GB{total}, {seconds:.0f} s"


def image_said(item: Mapping[str, Any], would: str) -> str:
    """Return one line on what is pulled; `would` is `installing` or `would install`."""
    about = item["manifest"]["image"]
    size = f", {about['size_gb']:g} GB" if "size_gb" in about else ""
    debs = f" and {len(about['debs'])} packages in it" if "debs" in about else ""
    why = f", again because {item['reason']}" if item["reason"] else ""
    return f"{would} stack {item['id']}: the image {images.source(about)}{size}{debs}{why}"
