# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effects of benchmarks: see what is served and installed, run commands with a limit, stop no engine."""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import _files
from .._slot.host.commands import said, whole
from .._slot.kinds import kernel
from .plan import Bench

_ASK_LIMIT_S = 30.0
_LAST = 300
TOOLS = ("ze_peak", "ze_peer", "1ccl_benchmark", "mpirun", "xpu-smi", "iperf3", "ping")


class EvaluateError(Exception):
    """Nothing can be measured here now; the text says why and what to do."""


def served() -> list[str]:
    """Return the units of engines that run, start or stop."""
    states = "--state=active,activating,deactivating,reloading"
    argv = ["systemctl", "list-units", "--plain", "--no-legend", "--full", states, "b70-slot-*.service"]
    try:
        listed = said(argv, _ASK_LIMIT_S, EvaluateError)
    except EvaluateError as error:
        raise EvaluateError(f"systemd does not say what is served: {error}") from error
    units = [line.split()[0] for line in listed.splitlines() if line.split()]
    return [unit for unit in units if not unit.startswith("b70-slot-admin")]


def check_free() -> None:
    """Raise EvaluateError if an engine runs, starts or stops."""
    if engines := served():
        raise EvaluateError(
            f"{', '.join(engines)} runs: nothing was measured and nothing stopped. Stop the slot first (b70ctl stop; "
            "clients then get 503), or set evaluate_while_served for figures that are not comparable"
        )


def tools(folders: Sequence[str]) -> dict[str, str]:
    """Return the paths of the tools, those in ``folders`` first."""
    path = os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/local/bin", "/usr/bin", "/bin"])
    found = {name: shutil.which(name, path=path) for name in TOOLS}
    return {name: where for name, where in found.items() if where}


def stack_python(root: str, wanted: str, device: str) -> str:
    """Return the Python of the newest complete stack for ``device`` whose id begins with ``wanted``, if given."""
    found = []
    for file in glob.glob(os.path.join(root, f"{wanted or ''}*", "fingerprint.json")):
        python = os.path.join(os.path.dirname(file), "venv/bin/python")
        try:
            with open(file, encoding="utf-8") as stream:
                data = json.load(stream)
            versions = {item["name"]: item["version"] for item in data["distributions"]}
            kind = "xpu" if versions["torch"].endswith("+xpu") else "cpu"
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if os.path.exists(python) and kind == device:
            found.append((os.path.getmtime(file), python))
    if wanted and not found:
        raise EvaluateError(
            f"no stack {wanted} for {device} is completely installed below {root}: site.yml --tags stack"
        )
    return max(found)[1] if found else ""


def variables(file: str) -> dict[str, str]:
    """Return the NAME=VALUE lines of a unit's environment file; none if there is no file."""
    try:
        with open(file, encoding="utf-8") as stream:
            lines = [line.strip() for line in stream]
    except OSError:
        return {}
    pairs = [line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", ";"))]
    return {name: value.strip("\"'") for name, value in pairs}


def card_faults(since: float) -> list[str]:
    """Return the faults of cards that the kernel reported since this time, in seconds of the epoch.

    A log that can't be read is one, because nothing then says that there was none.
    """
    argv = ["journalctl", "--dmesg", "--output=short-iso", "--no-pager", "--quiet", f"--since=@{int(since)}"]
    try:
        log = said(argv, _ASK_LIMIT_S, EvaluateError)
    except EvaluateError as error:
        return [f"the kernel's log can't be read: {error}"]
    return [f"the kernel reports: {fault.line}" for fault in kernel.card_faults(log.splitlines())]


def save(file: Path, text: str) -> None:
    """Save a result for the guard of a switch."""
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _files.replace(file, text.encode(), 0o644)


def run(bench: Bench, limit_s: float, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return (output, error). A command that takes longer than ``limit_s`` is killed with everything it started."""
    given = {**os.environ, **environment, **bench.environment}
    try:
        code, *texts = whole(bench.argv, limit_s, cwd=bench.directory or "/", env=given)
    except OSError as error:
        return "", f"{bench.argv[0]} can't be run: {error.strerror}"
    out, err = (text.decode("utf-8", "replace") for text in texts)
    if code is None:
        return out, f"did not end within {limit_s:g} s (evaluate_limit)"
    if code != 0:
        lines = (err.strip() or out.strip()).splitlines()
        return out, f"ended with {code}: {' / '.join(lines[-2:])[-_LAST:]}"
    return out, ""
