# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A typed runner of systemctl and journalctl: argv in, records out."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ..words.logline import last_part
from ..words.redact import clean
from ..words.types import HostFault, UnitState
from .commands import done, ran

_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,MainPID,InvocationID,NRestarts,ExecMainCode,ExecMainStatus,"
    "UnitFileState,ExecMainStartTimestamp,Job,NeedDaemonReload,TimeoutStopUSec,User"
)
# Where systemd looks for units, the first one first, and what it calls a unit that is wanted by a link there.
_UNIT_DIRS = {
    Path("/etc/systemd/system"): "enabled",
    Path("/run/systemd/system"): "enabled-runtime",
    Path("/usr/local/lib/systemd/system"): "enabled",
    Path("/usr/lib/systemd/system"): "enabled",
}
_COMMAND_LIMIT_S = 60.0
_LOG_LIMIT_S = 15.0
_TRIES, _AGAIN_S = 3, 0.5
_LOOKED = re.compile(r'"GET /(?:health|metrics|v1/models)\b[^"]*" 200')
_LOOKS = 5  # how many lines are read for one that tells something
_LINE_CHARS = 400
_SPAN_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(rf"([\d.]+)({'|'.join(_SPAN_UNITS)})")
# The message of systemd-coredump, which writes from a unit of its own (systemd's catalogue, sd-messages.h).
_COREDUMP = "fc2e22bc6ee647b6b90729ab34a250b1"
_EXIT_CODES = {"1": "exited", "2": "killed", "3": "dumped"}


def _run(argv: Sequence[str], limit_s: float = _COMMAND_LIMIT_S) -> subprocess.CompletedProcess[str]:
    return ran(argv, limit_s, needs="; a slot needs systemd")


def _asked(argv: Sequence[str]) -> str:
    """Run a command that changes nothing, and try again: a manager that reloads itself may miss one question."""
    for _attempt in range(_TRIES - 1):
        try:
            return _checked(argv)
        except HostFault:
            time.sleep(_AGAIN_S)
    return _checked(argv)


def _checked(argv: Sequence[str]) -> str:
    """Run a command and return its output; raise HostFault where it fails."""
    found = _run(argv)
    if found.returncode != 0:
        words = (found.stderr or found.stdout).strip().splitlines()
        raise HostFault(f"`{' '.join(argv)}` failed with {found.returncode}", got=" ".join(words[-3:])[:300])
    return found.stdout


def _journal(lines: int, *options: str) -> bytes:
    """Return the last lines of the journal, several times as many as wanted.

    None where it can't be read in time: that must not fail what goes well.
    """
    asked = f"--lines={lines * _LOOKS}"
    try:
        return done(["journalctl", "--no-pager", "--quiet", asked, *options], _LOG_LIMIT_S).stdout
    except HostFault:
        return b""


def telling(text: str) -> tuple[str, ...]:
    """Return the shortened lines of a log, without those that only report a request to look at the engine.

    An engine may flood its log, and write lines without an end.
    """
    kept = [last_part(line)[:_LINE_CHARS] for line in text.split("\n")]
    return tuple(line for line in kept if line and not _LOOKED.search(line))


def whole_lines(exported: bytes) -> str:
    """Return the messages in journalctl's export format, as the lines that their writers wrote.

    The journal begins a new line after a NUL, after many bytes, and where another process writes in the middle of one.
    The rest belongs to the line before: a client that may choose it must not begin a line of the log with it. A core
    dump counts if its process has written one of the other lines: it names its unit, and not which start of it.
    """
    lines: list[list[str]] = []
    open_lines: dict[str, list[str]] = {}
    entries = list(_entries(exported))
    writers = {entry.get("_PID", "") for entry in entries if "COREDUMP_PID" not in entry}
    for entry in entries:
        if "COREDUMP_PID" in entry and entry["COREDUMP_PID"] not in writers:
            continue
        writer, text = entry.get("_PID", ""), entry.get("MESSAGE", "")
        line = open_lines.pop(writer, None)
        if line is None:
            lines.append(line := [])
        line.append(text)
        if entry.get("_LINE_BREAK", ""):
            open_lines[writer] = line
    return "\n".join("".join(line).replace("\n", " ") for line in lines)


def _entries(exported: bytes) -> Iterator[dict[str, str]]:
    """Yield the records of the export format: NAME=value, or NAME and a counted value where that is no plain text."""
    entry: dict[str, str] = {}
    at = 0
    while at < len(exported):
        end = exported.find(b"\n", at)
        end = len(exported) if end < 0 else end
        name, plain, value = exported[at:end].partition(b"=")
        at = end + 1
        if not name:
            yield entry
            entry = {}
            continue
        if not plain:
            size = int.from_bytes(exported[at : at + 8], "little")
            value = exported[at + 8 : at + 8 + size]
            at += 8 + size + 1
        entry[name.decode("ascii", "replace")] = value.decode("utf-8", "replace")
    if entry:
        yield entry


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def parse_show(text: str) -> tuple[UnitState, ...]:
    """Return the records in the output of `systemctl show --timestamp=unix`, in its order."""
    units = []
    for block in text.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" not in values:
            continue
        started = values.get("ExecMainStartTimestamp", "").lstrip("@")
        units.append(
            UnitState(
                name=values["Id"],
                load=values.get("LoadState", ""),
                active=values.get("ActiveState", ""),
                sub=values.get("SubState", ""),
                result=values.get("Result", ""),
                main_pid=_number(values.get("MainPID", "")),
                invocation_id=values.get("InvocationID", ""),
                restarts=_number(values.get("NRestarts", "")),
                exit_code=_EXIT_CODES.get(values.get("ExecMainCode", ""), ""),
                exit_status=values.get("ExecMainStatus", ""),
                file_state=values.get("UnitFileState", ""),
                started_at=_iso(started),
                job=_number(values.get("Job", "").split(" ")[0]),
                needs_reload=values.get("NeedDaemonReload", "") == "yes",
                stop_limit_s=seconds_of(values.get("TimeoutStopUSec", "")),
                user=values.get("User", ""),
            )
        )
    return tuple(units)


def seconds_of(span: str) -> float:
    """Return the seconds of a time span as systemd writes it, such as "1min 30s"; 0 of an endless or unreadable one."""
    words = [_SPAN.fullmatch(word) for word in span.split()]
    return sum(float(word[1]) * _SPAN_UNITS[word[2]] for word in words if word) if all(words) else 0.0


def _iso(unix: str) -> str:
    if not unix.isdigit() or unix == "0":
        return ""
    return datetime.fromtimestamp(int(unix), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _show(names: Sequence[str]) -> dict[str, UnitState]:
    text = _asked(["systemctl", "show", "--timestamp=unix", f"--property={_PROPERTIES}", "--", *names])
    return {unit.name: unit for unit in parse_show(text)}


def _installed(wanted: Callable[[str], bool]) -> dict[str, str]:
    """Return the file states of the service units with a wanted name, read from the disk.

    `systemctl list-unit-files` goes through all links of the host for each of them, and `systemctl show` has the
    manager load each of them with all that it conflicts with: seconds on a host that has a hundred profiles.
    """
    states: dict[str, str] = {}
    for folder, word in reversed(_UNIT_DIRS.items()):
        for file in filter(lambda file: wanted(file.name), folder.glob("*.service")):
            masked = file.is_symlink() and file.resolve() == Path("/dev/null")
            states[file.name] = word.replace("enabled", "masked") if masked else "disabled"
    for folder, word in reversed(_UNIT_DIRS.items()):
        for kind in ("wants", "requires"):
            for link in folder.glob(f"*.{kind}/*.service"):
                if states.get(link.name) in ("disabled", "enabled-runtime"):
                    states[link.name] = word
    return states


class Systemd:
    """Enabling and disabling leave out systemd's reload: links in `.wants` count at the next boot, and every reload
    would cost a part of a second in which no client is served. So the unit files are asked for their state, not the
    manager, which remembers an older one until `reload`.
    """

    def show(self, names: Sequence[str]) -> tuple[UnitState, ...]:
        if not names:
            return ()
        found = _show(names)
        return tuple(found.get(name, UnitState(name)) for name in names)

    def survey(self, prefix: str, names: Sequence[str]) -> tuple[UnitState, ...]:
        states = _installed(lambda name: name.startswith(prefix) or name in names)
        # A pattern finds loaded units only, also those without a file: so each name becomes one. Where there is none,
        # there is no answer.
        found = _show([f"{prefix}*.service", *(f"[{name[0]}]{name[1:]}" for name in names)])
        own = sorted(name for name in {*states, *found} if name.startswith(prefix))
        return tuple(
            replace(found.get(name, UnitState(name, load="")), file_state=states.get(name, ""))
            for name in (*own, *names)
        )

    def running(self, prefix: str) -> tuple[UnitState, ...]:
        found = _show([f"{prefix}*.service"])
        return tuple(found[name] for name in sorted(found) if found[name].running)

    def start(self, name: str) -> None:
        unit = self.show([name])[0]
        if unit.needs_reload:
            self.reload()
        # Every start here is wanted, also the sixth within half an hour: systemd's limit is for those that nobody asked
        # for. A unit that it has not loaded has no count to forget, and says so.
        _run(["systemctl", "reset-failed", "--", name])
        _checked(["systemctl", "start", "--no-block", "--", name])

    def stop(self, name: str) -> None:
        _checked(["systemctl", "stop", "--no-block", "--", name])

    def kill(self, name: str) -> None:
        _checked(["systemctl", "kill", "--signal=SIGKILL", "--", name])

    def reboot(self) -> None:
        _checked(["systemctl", "reboot", "--no-block"])

    def forget_failure(self, name: str) -> None:
        _checked(["systemctl", "reset-failed", "--", name])

    def enable(self, name: str) -> None:
        _checked(["systemctl", "enable", "--no-reload", "--quiet", "--", name])

    def disable(self, name: str) -> None:
        _checked(["systemctl", "disable", "--no-reload", "--quiet", "--", name])

    def reload(self) -> None:
        _checked(["systemctl", "daemon-reload"])

    def stopping(self) -> bool:
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_AGAIN_S)
            try:
                word = _run(["systemctl", "is-system-running"]).stdout.strip()
            except HostFault:
                continue
            if word not in ("offline", "unknown", ""):
                return word == "stopping"
        # Late in a shutdown the bus is gone and the answer is "offline" or none at all. One that is missed once is no
        # answer: the end of a session takes the question with it, and a manager that reloads itself lets it wait.
        return True

    def log(self, unit: UnitState, lines: int) -> tuple[str, ...]:
        # Everybody may write a field like INVOCATION_ID. journald itself adds those that begin with _: the cgroup of
        # the writer, which is the unit's also in a container (--cgroups=split), and that it is systemd or root.
        match = [f"--unit={unit.name}"]
        if unit.invocation_id:
            match = [
                *(f"_SYSTEMD_INVOCATION_ID={unit.invocation_id}", "+"),
                *("_PID=1", f"INVOCATION_ID={unit.invocation_id}", "+"),
                *("_UID=0", f"MESSAGE_ID={_COREDUMP}", f"COREDUMP_UNIT={unit.name}"),
            ]
        fields = "--output-fields=MESSAGE,_LINE_BREAK,_PID,COREDUMP_PID"
        # An engine prints its arguments, keys among them. What is read here goes into errors, records and reports.
        return telling(clean(whole_lines(_journal(lines, "--output=export", fields, *match))))[-lines:]

    def kernel_log(self, lines: int) -> tuple[str, ...]:
        text = _journal(lines, "--output=short-iso", "--dmesg").decode("utf-8", "replace")
        return telling(text)[-lines:]
