# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A download that the host does by itself: what is to be fetched, and its way into the place of the model.

A download continues where an earlier run stopped, whoever began it. The folder ``.NAME.fetch`` beside the model holds
the program and its output; it is removed when a play has the result.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import _files, _proxy
from .._transient import Task
from .._work.folder import WorkFolder, own_archive
from .._work.protocol import Beginning, Job
from . import host
from .fetching.program import part_name
from .fetching.transports import ARIA2, arrived
from .manifest import (
    MANIFEST,
    NO_TIME,
    Manifest,
    ManifestEntry,
    SourceFile,
    WeightsError,
    base_of,
    check_relative,
    missing_parts,
)

_LIST_LIMIT_S = 300.0
_LOCKS = Path("/run/b70-weights")  # the locks of downloads, and the tokens of those that begin


class Later(WeightsError):
    """The source wants to be asked again after `wait_s` seconds; `advice` is what to do if it goes on."""

    def __init__(self, said: str, wait_s: float, advice: str) -> None:
        super().__init__(f"{said}: {advice}")
        self.said, self.wait_s, self.advice = said, wait_s, advice


@dataclass(frozen=True)
class FetchRequest:
    """A model to fetch.

    ``spec`` is the program's task, ``identity`` is recorded, ``used`` names what uses the directory now.
    """

    directory: str
    spec: Mapping[str, Any]
    identity: Mapping[str, Any]
    options: Mapping[str, Any]
    token: str = ""
    used: str = ""


def unit_of(directory: str) -> str:
    # systemd would take what follows an @ for the instance of a template
    return f"b70-weights-{os.path.basename(directory).replace('@', '-')}.service"


@dataclass(frozen=True)
class Download(Job):
    """The download of one model. request: None where it is only looked at."""

    noun = "download"
    passing = True
    directory: str
    request: FetchRequest | None = None

    @property
    def unit(self) -> str:
        return unit_of(self.directory)

    @property
    def folder(self) -> WorkFolder:
        return WorkFolder(Path(host.beside(self.directory, "fetch")), _LOCKS)

    @property
    def _asked(self) -> FetchRequest:
        if self.request is None:
            raise TypeError(f"the download to {self.directory} is looked at without a request")
        return self.request

    def answer(self, step: str) -> dict[str, Any]:
        """Take the step and return the download's ``state``: none, running or ended.

        With ``error`` of one that brought nothing, and ``broke_off`` if it was killed.
        """
        found = self.start() if step == "start" else self.acknowledge() if step == "acknowledge" else self.look()
        if found.state == "running":
            given, progress = found.given, self.folder.read(self.folder.out / "progress.json")
            size = sum(given["wanted"][name][0] for name in given["files"])
            told = {"left": len(given["files"]), "bytes": size, "progress": progress}
            return {"state": "running", "joined": found.joined, **told}
        return {"state": found.state, **{key: value for key, value in found.result.items() if key != "failed"}}

    def differs(self, given: Mapping[str, Any]) -> list[str]:
        request = self._asked
        # A download is joined whoever gives the files.
        asked = {**request.spec, "source": dict(request.identity)}
        others = [key for key, value in asked.items() if key != "peers" and given["asked"].get(key) != value]
        there = os.path.exists(os.path.join(self.directory, MANIFEST)) or "files" not in (self.folder.result() or {})
        return [*([f"another {', '.join(others)}"] if others else ()), *(() if there else ["what was removed since"])]

    def begin(self) -> Beginning:
        request, folder = self._asked, self.folder
        user = _user(request.options["user"])
        os.chown(folder.out, user.pw_uid, user.pw_gid)
        found = listed(request, folder, user)
        files = found["files"]
        wanted = _wanted(found)
        record = host.read_manifest(request.directory) or {}
        staging, left = host.prepare(
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
        given = {
            **request.spec,
            "asked": {**request.spec, "source": dict(request.identity)},
            "identity": identity,
            "folder": staging,
            "out": str(folder.out),
            "files": {name: files[name] for name in left},
            "wanted": {name: [want.size, max(0, want.mtime_ns), want.sha256] for name, want in wanted.items()},
            # aria2 takes a file from all hosts at once, and limits the rate of one file.
            "workers": 1 if request.spec["kind"] == "peers" else request.options["workers"],
        }
        if not left:
            _files.replace(folder.out / "result.json", json.dumps({"digests": {}}).encode(), 0o644)
        return Beginning(given, self.unit_for(request, user.pw_name) if left else None)

    def unit_for(self, request: FetchRequest, user: str) -> Task:
        """Return the unit of a download: it has no rights but its user's."""
        folder = self.folder
        properties = {
            "CapabilityBoundingSet": "",
            "ProtectHome": "read-only",
            "PrivateDevices": "yes",
            "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
        }
        if request.token:
            properties["LoadCredential"] = f"token:{self._credential}"
        return self.task(
            request.options["limit_s"],
            argv=_program(request, folder, "fetch", "given.json"),
            log=str(folder.path / "log"),
            user=user,
            writable=(host.beside(self.directory, "incoming"), str(folder.out)),
            environment=_environment(request, folder),
            properties=properties,
        )

    @property
    def _credential(self) -> str:
        return str(_LOCKS / os.path.basename(self.directory))

    def launch(self, task: Task) -> None:
        if self.request is None or not self.request.token:
            super().launch(task)
            return
        credential = self._credential
        with open(os.open(credential, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
            stream.write(self.request.token)
        try:
            super().launch(task)
        finally:
            os.unlink(credential)  # systemd has read it

    def outcome(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
        """Put the fetched files in the place of the model; return their number and size."""
        said = self.folder.read(self.folder.out / "result.json") or {}
        wrong = {"wrong": said["wrong"]} if "wrong" in said else {}
        if "digests" not in said:
            broke_off = "error" not in said and self.systemd.state(self.unit).result != "timeout"
            return {"failed": True, "error": said.get("error", seen["ended"]["why"]), "broke_off": broke_off, **wrong}
        try:
            return {**_finish(self.directory, given, said["digests"]), **wrong}
        except WeightsError as error:
            return {"failed": True, "error": str(error), "broke_off": False, **wrong}


def _wanted(found: Mapping[str, Any]) -> dict[str, SourceFile]:
    """Return the files of a listing. Only those of a folder have times; others are told by their SHA-256 alone."""
    times = found.get("times", {})
    return {
        name: SourceFile(entry[0], times.get(name, NO_TIME), entry[1]) for name, entry in sorted(found["files"].items())
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


def _python(request: FetchRequest) -> str:
    if request.spec["kind"] != "hub":
        return sys.executable
    python = str(request.options["hub_python"])
    if not os.path.exists(python):
        raise WeightsError(f"{python} is not there: the role model_weights installs the hub's client (tag install)")
    return python


def _program(request: FetchRequest, folder: WorkFolder, *words: str) -> tuple[str, ...]:
    """Return the command that runs the program of the archive."""
    module = f"{__package__}.fetching.program"
    code = f"import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; sys.exit(main(sys.argv[2:]))"
    return (_python(request), "-c", code, str(folder.program), *words)


def _environment(request: FetchRequest, folder: WorkFolder) -> dict[str, str]:
    out = str(folder.out)
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
        **(_proxy.variables() if request.spec["kind"] in ("hub", "url") else {}),
        **request.options["environment"],
    }


def listed(request: FetchRequest, folder: WorkFolder, user: pwd.struct_passwd) -> dict[str, Any]:
    """Return what the source has: ``{"files": {name: [size, sha256, git sha1]}, "revision"}``; raise WeightsError."""
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
    _files.replace(folder.path / "list.json", json.dumps({**request.spec, "token_on_stdin": True}).encode(), 0o644)
    rights: dict[str, Any] = {}
    if os.geteuid() == 0:
        rights = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    try:
        done = subprocess.run(
            _program(request, folder, "list", "list.json"),
            cwd=folder.path,
            input=f"{request.token}\n",
            env=_environment(request, folder),
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


def _judge(request: FetchRequest, files: Mapping[str, list[Any]]) -> None:
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


def resolve(request: FetchRequest, archive: Path | None = None) -> str:
    """Return the commit of the source, or the one with which a download began; empty if the source names none."""
    parent, name = os.path.split(request.directory)
    for path in sorted(Path(parent).glob(f".{base_of(name)}@*.fetch")):
        begun = (WorkFolder(path).given() or {}).get("identity", {})
        if begun.get("repository") == request.identity["repository"] and begun.get("revision"):
            return str(begun["revision"])
    user = _user(request.options["user"])
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        folder = WorkFolder(Path(place, "asked"))
        folder.prepare(archive or own_archive())
        os.chown(folder.out, user.pw_uid, user.pw_gid)
        return str(listed(request, folder, user)["revision"] or "")


def _finish(directory: str, given: Mapping[str, Any], digests: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {
        name: SourceFile(size, mtime_ns, sha256 or digests.get(name, [None])[0])
        for name, (size, mtime_ns, sha256) in given["wanted"].items()
    }
    for name, digest in (given.get("sha256") or {}).items():
        has = wanted[name].sha256 if name in wanted else None
        if digest and has != digest:
            if name in digests:
                os.unlink(os.path.join(given["folder"], name))
            raise WeightsError(f"{name} came with sha256 {has}, and the profile wants {digest}: it is not used")
    verified: Manifest = {
        name: ManifestEntry(wanted[name].size, sha256, mtime_ns, wanted[name].mtime_ns)
        for name, (sha256, mtime_ns) in digests.items()
    }
    host.commit(directory, wanted, given["identity"], verified)
    return {"files": len(wanted), "size": sum(want.size for want in wanted.values()), "brought": len(digests)}


def running(directory: str) -> bool:
    """Return whether a download of the model is under way."""
    return Job.systemd.state(unit_of(directory)).running


def standing(directory: str) -> dict[str, Any]:
    """Return ``{"running": bool, "begun": bytes}`` of a model that is not in place."""
    begun = 0
    for folder, _folders, files in os.walk(host.beside(directory, "incoming")):
        begun += sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in files)
    return {"running": running(directory), "begun": begun}
