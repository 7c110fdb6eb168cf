# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves a stack from inside and describes it: runs in the engine's interpreter, on standard input, needs nothing else.

The one argument is a JSON object, every key of it optional: `imports` (modules that must import), `distributions`
(name: version that must be installed), `extensions` (distributions whose native libraries must load, beside torch where
there is one), `programs` (name in the environment's bin: `says`, a text in what it prints for --version, and `flags`,
in snake_case, that its --help must name), `cards` (how many the host has), and where it has any `device` (what vLLM
must find as its platform) and `device_type` (the module of torch that must see as many; of a program the kind in its
list of devices). A `device` of cpu is asked for in any case. The last line of standard output is a JSON object with
`problems` (sentences, empty when all holds), `python`, `distributions`, `imports` (seconds each), `devices` (how many
are seen, or null) and `digest`.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import time
from typing import Any

PROGRAM_S = 60


def content_digest(distribution: importlib.metadata.Distribution) -> str | None:
    """Return a digest of what the distribution's RECORD says about its files; None without one.

    The installer's own rows (scripts carry the environment's path) are left out, so that two hosts with the same wheels
    agree.
    """
    record = distribution.read_text("RECORD")
    if record is None:
        return None
    own = ("/INSTALLER,", "/REQUESTED,", "/RECORD,", "/direct_url.json,")
    rows = [
        row for row in record.splitlines() if row and not row.startswith("../") and not any(name in row for name in own)
    ]
    return "sha256:" + hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


def installed() -> list[dict[str, Any]]:
    """Return every installed distribution with its name, version and content digest, ordered by name."""
    found = {
        (item.metadata["Name"].lower().replace("_", "-"), item.version): content_digest(item)
        for item in importlib.metadata.distributions()
    }
    return [{"name": name, "version": version, "sha256": found[name, version]} for name, version in sorted(found)]


def libraries(name: str) -> list[str]:
    """Return the native libraries of a distribution, those that others are linked with first."""
    files = importlib.metadata.files(name) or []
    found = [file for file in files if file.name.endswith(".so") or ".so." in file.name]
    return [str(file.locate()) for file in sorted(found, key=lambda file: (not file.name.startswith("lib"), str(file)))]


def load(names: list[str]) -> list[str]:
    """Load the native libraries of distributions now, with every name that they use, and return the problems."""
    problems = []
    beside = ""
    if importlib.util.find_spec("torch"):
        importlib.import_module("torch")
        beside = " beside this torch"
    for name in names:
        try:
            paths = libraries(name)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"distribution {name} is not installed")
            continue
        for path in paths:
            try:
                ctypes.CDLL(path, mode=os.RTLD_NOW)
            except OSError as error:
                problems.append(f"{name} cannot be loaded{beside}: {error}; build it again for this stack")
    return problems


def run(name: str, wanted: dict[str, Any]) -> list[str]:
    """Run a program of the environment, and return what is wrong with it."""
    path = os.path.join(os.path.dirname(sys.executable), name)
    said = {}
    for flag in ("--version", *(["--help"] if wanted["flags"] else [])):
        try:
            done = subprocess.run([path, flag], capture_output=True, text=True, timeout=PROGRAM_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return [f"{name} {flag} does not run: {error}"]
        said[flag] = done.stdout + done.stderr
        if done.returncode != 0:
            return [f"{name} {flag} ends with {done.returncode}: {said[flag].strip()[-300:]}"]
    if wanted["says"] not in said["--version"]:
        return [f"{name} --version does not say {wanted['says']!r}: {said['--version'].strip()[:200]}"]
    known = set(re.findall(r"--[A-Za-z](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", said.get("--help", "")))
    unknown = [flag for flag in ("--" + word.replace("_", "-") for word in wanted["flags"]) if flag not in known]
    if unknown:
        return [f"{name} is not the release that its options were recorded from: it has no {', '.join(unknown[:5])}"]
    return []


def list_devices(wanted: dict[str, Any]) -> tuple[list[str], int | None]:
    """Return the problems of llama.cpp's devices, and their number.

    The programs list them by kind and number, such as SYCL0.
    """
    kind, name = wanted.get("device_type"), next(iter(wanted["programs"]))
    if not kind or not wanted.get("cards"):
        return [], None
    path = os.path.join(os.path.dirname(sys.executable), name)
    try:
        done = subprocess.run([path, "--list-devices"], capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{name} --list-devices does not run: {error}"], None
    count = len(re.findall(rf"^\s*{re.escape(kind)}\d+:", done.stdout + done.stderr, re.MULTILINE))
    if count != wanted["cards"]:
        return [f"{name} sees {count} {kind} devices, the host has {wanted['cards']} cards: run doctor.yml"], count
    return [], count


def look_at_devices(wanted: dict[str, Any]) -> tuple[list[str], int | None]:
    """Return the problems of vLLM's platform and of the devices that torch sees, and their number."""
    problems, count = [], None
    if wanted.get("device"):
        device = importlib.import_module("vllm.platforms").current_platform.device_type
        if device != wanted["device"]:
            problems.append(f"vLLM detects the platform {device!r}, wanted {wanted['device']!r}")
    kind = wanted.get("device_type")
    if kind:
        module = getattr(importlib.import_module("torch"), kind)
        count = module.device_count() if module.is_available() else 0
        if count != wanted.get("cards"):
            cards = wanted.get("cards")
            problems.append(f"torch sees {count} {kind} devices, the host has {cards} cards: run doctor.yml")
    return problems, count


def probe(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the answers to what is wanted; never raise for what is found."""
    problems = []
    distributions = installed()
    versions = {item["name"]: item["version"] for item in distributions}
    for name, version in wanted.get("distributions", {}).items():
        if versions.get(name) != version:
            problems.append(f"distribution {name} is {versions.get(name, 'not installed')}, wanted {version}")
    imports = {}
    for name in wanted.get("imports", []):
        start = time.monotonic()
        try:
            importlib.import_module(name)
        except Exception as error:
            problems.append(f"import {name} failed: {type(error).__name__}: {error}")
        imports[name] = round(time.monotonic() - start, 2)
    if wanted.get("extensions"):
        problems += load(wanted["extensions"])
    for name, program in wanted.get("programs", {}).items():
        problems += run(name, program)
    count = None
    if not problems and wanted.get("programs"):
        problems, count = list_devices(wanted)
    elif not problems and (wanted.get("cards") or wanted.get("device") == "cpu"):
        problems, count = look_at_devices(wanted)
    python = {"version": platform.python_version(), "implementation": platform.python_implementation()}
    identity = json.dumps([python, distributions], sort_keys=True)
    return {
        "problems": problems,
        "python": python,
        "distributions": distributions,
        "imports": imports,
        "devices": count,
        "digest": "sha256:" + hashlib.sha256(identity.encode()).hexdigest(),
    }


def main() -> None:
    # Imported modules may print: keep the answer's stream apart and send everything else to standard error.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    result = probe(json.loads(sys.argv[1]))
    print(json.dumps(result), file=answer, flush=True)


if __name__ == "__main__":
    main()
