# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A download that the host does by itself: begin or join it, look at it, finish it. Each is a short call.

A download continues where an earlier run stopped, whoever began it. The folder ``.NAME.fetch`` beside the model holds
the program and its output; it is removed when the model is in place.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from .. import _files, _transient
from .._slot.host.files import foreign
from . import host
from .fetching.program import part_name
from .fetching.transports import ARIA2, arrived
from .manifest import NO_TIME, Entry, Manifest, Wanted, WeightsError, base_of, check_relative, missing_parts

_SYSTEMD = _transient.Systemd(WeightsError, "a download")
_LIST_LIMIT_S = 300.0
_TOKENS = "/run/b70-weights"
_TAIL = 5


class Later(WeightsError):
    """The source wants to be asked again after `wait_s` seconds; `advice` is what to do if it goes on."""

    def __init__(self, said: str, wait_s: float, advice: str) -> None:
        super().__init__(f"{said}: {advice}")
        self.said, self.wait_s, self.advice = said, wait_s, advice


@dataclass(frozen=True)
class Request:
    """What is to be fetched. ``spec`` is what the program is told, ``identity`` what is recorded, ``used`` what uses
    the directory now."""

    directory: str
    spec: Mapping[str, Any]
    identity: Mapping[str, Any]
    options: Mapping[str, Any]
    program: Mapping[str, str]
    token: str = ""
    used: str = ""

    @property
    def folder(self) -> str:
        return _folder(self.directory)

    @property
    def key(self) -> str:
        # A download is joined whoever gives the files.
        spec = {key: value for key, value in self.spec.items() if key != "peers"}
        said = json.dumps([spec, self.identity, self.program], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()


def _folder(directory: str) -> str:
    parent, name = os.path.split(directory)
    return os.path.join(parent, f".{name}.fetch")


def unit_of(directory: str) -> str:
    # systemd would take what follows an @ for the instance of a template
    return f"b70-weights-{os.path.basename(directory).replace('@', '-')}.service"


def begin(request: Request) -> dict[str, Any]:
    """``{"state": "running" | "ended", "joined": bool, "left": files, "bytes": to bring}``; raises WeightsError."""
    job = _read(os.path.join(request.folder, "job.json"))
    if _SYSTEMD.state(unit_of(request.directory)).running:
        if job is not None and job["key"] == request.key:
            return {"state": "running", "joined": True, "left": len(job["files"]), "bytes": 0}
        _SYSTEMD.stop(unit_of(request.directory))
    user = _user(request.options["user"])
    _place(request, user)
    found = listed(request, user)
    files = found["files"]
    wanted = _wanted(found)
    record = host.read_manifest(request.directory) or {}
    _staging, left = host.prepare(
        request.directory,
        wanted,
        user.pw_uid,
        lambda folder, names: _begun(folder, {n: files[n] for n in names}, request.spec["kind"]),
        full=bool(request.options.get("full")),
        used=request.used,
    )
    for name in set(wanted) - set(left):
        if wanted[name].sha256 is None:  # kept by its time at the source, as it is recorded
            wanted[name] = replace(wanted[name], sha256=record[name].sha256)
    identity = dict(request.identity)
    if identity["kind"] == "hub":
        identity["revision"] = found["revision"] or identity["revision"]
    job = {
        **request.spec,
        "key": request.key,
        "identity": identity,
        "folder": _staging,
        "out": os.path.join(request.folder, "out"),
        "files": {name: files[name] for name in left},
        "wanted": {name: [want.size, max(0, want.mtime_ns), want.sha256] for name, want in wanted.items()},
        # aria2 takes a file from all hosts at once, and limits the rate of one file.
        "workers": 1 if request.spec["kind"] == "peers" else request.options["workers"],
    }
    _write(os.path.join(request.folder, "job.json"), job)
    if left:
        _launch(request, user)
    else:
        _write(os.path.join(request.folder, "out", "result.json"), {"digests": {}})
    size = sum(wanted[name].size for name in left)
    return {"state": "running", "joined": False, "left": len(left), "bytes": size}


def _wanted(found: Mapping[str, Any]) -> dict[str, Wanted]:
    """Return the files of a listing. Only those of a folder have times; others are told by their SHA-256 alone."""
    times = found.get("times", {})
    return {
        name: Wanted(entry[0], times.get(name, NO_TIME), entry[1]) for name, entry in sorted(found["files"].items())
    }


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise WeightsError(
            f"there is no user {name} on the host: correct model_weights_user, or run the role host"
        ) from error


def _begun(folder: str, files: Mapping[str, list[Any]], kind: str) -> int:
    """Return how many bytes of the files an earlier run has brought."""
    total = 0
    for name, entry in files.items():
        path = os.path.join(folder, part_name(name, entry, kind))
        total += arrived(path, kind) if os.path.exists(path) else 0
    return total


def _place(request: Request, user: pwd.struct_passwd) -> None:
    """Write the program and a folder for its output beside the model."""
    shutil.rmtree(request.folder, ignore_errors=True)
    out, program = (os.path.join(request.folder, name) for name in ("out", "fetching"))
    for path in (request.folder, program, out):
        os.makedirs(path, mode=0o755, exist_ok=True)
    os.chown(out, user.pw_uid, user.pw_gid)
    for name, text in request.program.items():
        with open(os.path.join(program, name), "w", encoding="utf-8") as stream:
            stream.write(text)


def _python(request: Request) -> str:
    if request.spec["kind"] != "hub":
        return sys.executable
    python = str(request.options["hub_python"])
    if not os.path.exists(python):
        raise WeightsError(f"{python} is not there: the role model_weights installs the hub's client (tag install)")
    return python


def _environment(request: Request) -> dict[str, str]:
    out = os.path.join(request.folder, "out")
    return {
        "HOME": out,
        "HF_HOME": out,
        "HF_ENDPOINT": str(request.spec.get("endpoint", "")),
        "HF_HUB_DISABLE_XET": "0" if request.spec.get("xet") else "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": str(max(1, round(request.spec["stall_s"]))),
        "HF_HUB_ETAG_TIMEOUT": str(max(1, round(request.spec["stall_s"]))),
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        **request.options["environment"],
    }


def listed(request: Request, user: pwd.struct_passwd) -> dict[str, Any]:
    """What the source has: ``{"files": {name: [size, sha256, git sha1]}, "revision"}``; raises WeightsError."""
    if request.spec["kind"] == "host_path":
        files = host.read_source(request.spec["path"])
        times = {name: want.mtime_ns for name, want in files.items()}
        return {"files": {n: [w.size, None, None] for n, w in files.items()}, "times": times, "revision": None}
    if request.spec["kind"] == "peers":
        if not os.path.exists(ARIA2):
            raise WeightsError(f"{ARIA2} is not there: the role model_weights installs it (tag install)")
        given = {name: [size, sha256, None] for name, (size, sha256) in request.spec["record"].items()}
        _judge(request, given)
        return {"files": given, "revision": None}
    path = os.path.join(request.folder, "list.json")
    _write(path, {**request.spec, "token_on_stdin": True})
    rights: dict[str, Any] = {}
    if os.geteuid() == 0:
        rights = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    try:
        done = subprocess.run(
            [_python(request), "-m", "fetching.program", "list", path],
            cwd=request.folder,
            input=f"{request.token}\n",
            env=_environment(request),
            capture_output=True,
            text=True,
            timeout=_LIST_LIMIT_S,
            check=False,
            **rights,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise WeightsError(f"the source did not say within {_LIST_LIMIT_S:g} s what it has: run again later") from error
    except ValueError as error:
        said = done.stderr.strip().splitlines()[-1:]
        raise WeightsError(f"the program that asks the source failed: {' '.join(said)[:300]}") from error
    if "wait_s" in found:
        raise Later(str(found["error"]), float(found["wait_s"]), str(found["advice"]))
    if "error" in found:
        raise WeightsError(str(found["error"]))
    _judge(request, found["files"])
    return found


def _judge(request: Request, files: Mapping[str, list[Any]]) -> None:
    """Raise WeightsError for files that are no model, or not the one that the profile describes."""
    for name in files:
        check_relative(name)
    missing = missing_parts(files, None, request.identity.get("include") or ())
    if missing:
        raise WeightsError(
            f"{request.spec.get('repository') or request.spec.get('url') or 'what other hosts have'} is no complete "
            f"model, it lacks: {', '.join(missing)}. See include and exclude, or name another repository"
        )
    for name, digest in (request.spec.get("sha256") or {}).items():
        has = files.get(name, [0, "nothing", None])[1]
        if digest and has and has != digest:
            raise WeightsError(
                f"{name} has sha256 {has} at the source, and the profile wants {digest}: nothing was fetched"
            )


def resolve(request: Request) -> str:
    """Return the commit of the source, or the one with which a download began; empty if the source names none."""
    parent, name = os.path.split(request.directory)
    for path in sorted(Path(parent).glob(f".{base_of(name)}@*.fetch/job.json")):
        begun = (_read(str(path)) or {}).get("identity", {})
        if begun.get("repository") == request.identity["repository"] and begun.get("revision"):
            return str(begun["revision"])
    user = _user(request.options["user"])
    _place(request, user)
    try:
        return str(listed(request, user)["revision"] or "")
    finally:
        shutil.rmtree(request.folder, ignore_errors=True)


def _launch(request: Request, user: pwd.struct_passwd) -> None:
    name = os.path.basename(request.directory)
    credential = ""
    if request.token:
        os.makedirs(_TOKENS, mode=0o700, exist_ok=True)
        credential = os.path.join(_TOKENS, name)
        with open(os.open(credential, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
            stream.write(request.token)
    try:
        _SYSTEMD.start(task(request, user.pw_name, credential))
    finally:
        if credential:
            os.unlink(credential)  # systemd has read it


def task(request: Request, user: str, credential: str) -> _transient.Task:
    """Return the unit of a download: it has no rights but its user's. `credential` is the token's file, or empty."""
    parent, name = os.path.split(request.directory)
    properties = {
        "CapabilityBoundingSet": "",
        "ProtectHome": "read-only",
        "PrivateDevices": "yes",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    }
    if credential:
        properties["LoadCredential"] = f"token:{credential}"
    return _transient.Task(
        unit=unit_of(request.directory),
        description="Download of a model",
        argv=(_python(request), "-m", "fetching.program", "fetch", os.path.join(request.folder, "job.json")),
        limit_s=request.options["limit_s"],
        directory=request.folder,
        log=os.path.join(request.folder, "log"),
        user=user,
        writable=(os.path.join(parent, f".{name}.incoming"), os.path.join(request.folder, "out")),
        environment=_environment(request),
        properties=properties,
    )


def look(directory: str) -> dict[str, Any]:
    """``{"state": "running" | "done" | "failed" | "ended" | "absent", "progress", "message"}``. What somebody ended is
    not failed."""
    folder = _folder(directory)
    seen = _SYSTEMD.state(unit_of(directory))
    progress = _read(os.path.join(folder, "out", "progress.json"))
    if seen.running:
        return {"state": "running", "progress": progress, "message": ""}
    said = _read(os.path.join(folder, "out", "result.json"))
    if said is not None and "digests" in said:
        return {"state": "done", "progress": progress, "message": ""}
    _SYSTEMD.forget(unit_of(directory))
    if said is not None:
        wrong = {"wrong": said["wrong"]} if "wrong" in said else {}
        return {"state": "failed", "progress": progress, "message": str(said["error"]), **wrong}
    if not os.path.exists(os.path.join(folder, "job.json")):
        return {"state": "absent", "progress": None, "message": "the download vanished"}
    if seen.result == "timeout":
        message = "the download took longer than model_weights_timeout. What came is kept: run again"
        return {"state": "failed", "progress": progress, "message": message}
    memory = "the kernel ended it for memory" if seen.result == "oom-kill" else ""
    why = memory or _tail(os.path.join(folder, "log")) or "somebody ended it, or the host restarted"
    return {"state": "ended", "progress": progress, "message": f"the download was ended: {why}"}


def finish(directory: str) -> dict[str, Any]:
    """Put the fetched files in the place of the model; return their number and size."""
    folder = _folder(directory)
    job, said = _read(os.path.join(folder, "job.json")), _read(os.path.join(folder, "out", "result.json"))
    if job is None or said is None:
        raise WeightsError(f"{folder} holds no finished download: run again")
    digests = said["digests"]
    wanted = {
        name: Wanted(size, mtime_ns, sha256 or digests.get(name, [None])[0])
        for name, (size, mtime_ns, sha256) in job["wanted"].items()
    }
    for name, digest in (job.get("sha256") or {}).items():
        has = wanted[name].sha256 if name in wanted else None
        if digest and has != digest:
            if name in digests:
                os.unlink(os.path.join(job["folder"], name))
            raise WeightsError(f"{name} came with sha256 {has}, and the profile wants {digest}: it is not used")
    verified: Manifest = {
        name: Entry(wanted[name].size, sha256, mtime_ns, wanted[name].mtime_ns)
        for name, (sha256, mtime_ns) in digests.items()
    }
    host.commit(directory, wanted, job["identity"], verified)
    shutil.rmtree(folder, ignore_errors=True)
    wrong = {"wrong": said["wrong"]} if "wrong" in said else {}
    return {"files": len(wanted), "size": sum(want.size for want in wanted.values()), "brought": len(digests), **wrong}


def running(directory: str) -> bool:
    """Return whether a download of the model is under way."""
    return _SYSTEMD.state(unit_of(directory)).running


def standing(directory: str) -> dict[str, Any]:
    """``{"running": bool, "begun": bytes}``: what there is of a model that is not in place."""
    begun = 0
    for folder, _folders, files in os.walk(host.beside(directory, "incoming")):
        begun += sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in files)
    return {"running": running(directory), "begun": begun}


def _tail(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return " / ".join(
                line.strip()[:200] for line in stream.read()[-4000:].splitlines()[-_TAIL:] if line.strip()
            )
    except OSError:
        return ""


def _read(path: str) -> dict[str, Any] | None:
    """Return the mapping in a file, which the user of the download may have written."""
    try:
        data = json.loads(foreign(PurePosixPath(path)))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _write(path: str, data: Mapping[str, Any]) -> None:
    _files.replace(Path(path), json.dumps(data).encode(), 0o644)
