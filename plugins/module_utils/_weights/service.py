# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's part of b70_weights: one request of the controller and its answer, both plain data.

NAME is that of the model's directory, NAME@COMMIT for a model of a repository. An inspection takes the name without a
commit too, and answers ``at``, the directory that it found.

inspect: ``{"models": {NAME: {"wanted": FILES | null, "source": {...}, "strict": bool}}, "full": bool}``
-> ``{"models": {NAME: ...}}``; ``strict`` is there for models that the host fetches by itself
stand: ``{"models": {NAME: REPOSITORY | null}}`` -> ``{"models": {NAME: {"at": name, "record": digest}}}``; NAME may be
an absolute path
prepare: ``{"models": {NAME: FILES}, "uploader": uid, "full": bool}``
-> ``{"models": {NAME: {"folder": path, "files": [...]}}}``
commit: ``{"name": NAME, "wanted": FILES, "source": {...}}`` -> ``{}``
start, resolve: ``{"name": NAME, "spec": {...}, "source": {...}, "options": {...}}``, a token of the hub
look, acknowledge: ``{"name": NAME}``; what these four answer stands in job.py; ``play`` tells a play's calls
start and resolve answer ``{"wait_s", "said", "advice"}`` if the source wants to be asked again later
serve: ``{"models": {name in the address: NAME}, "address", "port", "allowed": [address], "limit_s"}`` -> ``{}``
close: ``{}`` -> ``{}``
remove: ``{"wanted": [NAME or pattern]}`` -> see unneeded.remove

With ``"slots": {"config_dir", "state_dir"}`` the slots are not where they are by default.

With ``"peers": {"network"}`` an inspection also answers ``peer`` (see peers.facts) and, for models that the host
fetches by itself, ``records`` (``{NAME: {file: [size, sha256]}}``, of those that came from the wanted source) and
``standing`` (see job.standing) of those that are not complete.

FILES is ``{relative name: [size, mtime_ns, sha256 | null]}``; sizes are bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._files import sha256
from .._slot.model import weights
from . import host, job, peers, unneeded
from .manifest import SourceFile, WeightsError, at_revision, check_name, check_relative
from .sources import same

Files = Mapping[str, SourceFile]


def pack(files: Files) -> dict[str, list[Any]]:
    """Return files as they travel in a request."""
    return {name: [want.size, want.mtime_ns, want.sha256] for name, want in files.items()}


def unpack(files: Mapping[str, Any]) -> dict[str, SourceFile]:
    """Return the files of a request; raise WeightsError on a name that leads out of the model's directory."""
    for name in files:
        check_relative(name)
    return {name: SourceFile(int(entry[0]), int(entry[1]), entry[2]) for name, entry in files.items()}


def _for_peers(directory: str, sources: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    records: dict[str, Any] = {}
    standing: dict[str, Any] = {}
    for name, source in sources.items():
        path = _below(directory, found[name]["at"])
        if found[name]["state"] != "complete":
            standing[name] = job.standing(path)
        elif same(host.read_origin(path), source):
            manifest = host.read_manifest(path) or {}
            records[name] = {file: [entry.size, entry.sha256] for file, entry in manifest.items()}
    return {"records": records, "standing": standing}


def _stand(directory: str, name: str, repository: str | None) -> dict[str, str]:
    at = name if os.path.isabs(name) else host.stand(directory, name, repository)
    return {"at": at, "record": weights.digest(host.read_record(os.path.join(directory, at)))}


def answer(directory: str, request: Mapping[str, Any] | None, write: bool, token: str = "") -> dict[str, Any]:
    """Do what is asked below ``directory`` and return the answer; ``write`` is false in check mode."""
    if not request:
        raise WeightsError("this module works through its action plugin: call it as a task of a play")
    slots = unneeded.Slots(**request.get("slots", {}))
    if request["step"] == "inspect":
        found = {}
        for name, model in request["models"].items():
            at = name if os.path.isabs(name) else _at(directory, name, model)
            path = at if os.path.isabs(name) else _below(directory, at)
            found[name] = _inspect(path, model, request["full"], write).as_result() | {"at": at}
        inspected: dict[str, Any] = {"models": found}
        if "peers" in request:
            fetched = {name: model["source"] for name, model in request["models"].items() if "strict" in model}
            inspected.update(_for_peers(directory, fetched, found), peer=peers.facts(request["peers"]["network"]))
        return inspected
    if request["step"] == "stand":
        return {"models": {name: _stand(directory, name, of) for name, of in request["models"].items()}}
    if request["step"] == "remove":
        return unneeded.remove(directory, slots, request["wanted"], write)
    if request["step"] == "serve":
        models = {name: _below(directory, at) for name, at in request["models"].items()}
        where = (request["address"], request["port"], request["allowed"], request["limit_s"])
        peers.serve(models, *where)
        return {}
    if request["step"] == "close":
        peers.close()
        return {}
    if request["step"] == "prepare":
        prepared = {}
        for name, files in request["models"].items():
            used = slots.used(directory).get(name, "")
            folder, left = host.prepare(
                _below(directory, name), unpack(files), request["uploader"], full=request["full"], used=used
            )
            prepared[name] = {"folder": folder, "files": left}
        return {"models": prepared}
    if request["step"] == "commit":
        host.commit(_below(directory, request["name"]), unpack(request["wanted"]), request["source"])
        return {}
    path, play = _below(directory, request["name"]), {"token": request.get("play", "")}
    if request["step"] in ("look", "acknowledge"):
        return job.Download(play, path).answer(request["step"])
    if request["step"] in ("start", "resolve"):
        used = slots.used(directory).get(request["name"], "")
        asked = job.FetchRequest(path, request["spec"], request["source"], request["options"], token, used)
        try:
            if request["step"] == "start":
                return job.Download(play, path, asked).answer("start")
            return {"revision": job.resolve(asked)}
        except job.Later as later:
            return {"wait_s": later.wait_s, "said": later.said, "advice": later.advice}
    raise WeightsError(f"the step {request['step']!r} is not known: the collection's files are not of one version")


def _inspect(path: str, model: Mapping[str, Any], full: bool, write: bool) -> host.WeightsState:
    source = model["source"]
    if "strict" not in model:
        wanted = None if model["wanted"] is None else unpack(model["wanted"])
        return host.inspect(path, wanted, source, full, write)
    if source["kind"] != "host_path":
        return host.inspect_fetched(path, source, model["strict"], full, write)
    try:
        files = host.read_source(source["path"])
    except WeightsError:
        if same(host.read_origin(path), source):
            return host.inspect_fetched(path, source, True, full, write)  # a share that is not there now
        raise
    found = host.inspect(path, files, source, full, write)
    if found.unknown:
        for name in found.unknown:
            files[name] = replace(files[name], sha256=sha256(os.path.join(source["path"], name)))
        found = host.inspect(path, files, source, full, write)
    return found


def _at(directory: str, name: str, model: Mapping[str, Any]) -> str:
    """Return the name of the directory in which a model is looked for."""
    source = model["source"]
    if source["kind"] not in ("hub", "host"):
        return name
    at = host.stand(directory, name, source.get("repository"), source.get("revision"))
    strict = source["kind"] == "hub" and model.get("strict") and source.get("revision")
    # Files of unknown origin do for a profile, but not where the operator names their source.
    if strict and "@" not in at and not same(host.read_origin(os.path.join(directory, at)), source):
        return at_revision(name, source["revision"])
    return at


def _below(directory: str, name: str) -> str:
    check_name(name)
    return os.path.join(directory, name)
