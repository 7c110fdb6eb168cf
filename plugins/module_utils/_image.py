# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container image of a stack on a host: pulled or built as a job of the host, and looked at.

An image is ready when the host's storage has it under the name that units run. Until then there is one step to take: to
pull what it is made of, to build it, or to give it its name.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _files, _image_mirror, _proxy, _transient
from ._image_mirror import ImageFault
from ._slot.host.commands import ran
from ._slot.host.images import inspected
from ._slot.words.effects import PODMAN
from ._slot.words.types import HostFault
from ._weights.fetching.way import way

ARGUMENTS: dict[str, dict[str, Any]] = {
    "stack": {"type": "str", "required": True},
    "source": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "program": {"type": "path", "required": True},
    "packages": {"type": "list", "elements": "dict", "default": [], "options": {
        "file": {"type": "str", "required": True},
        "sha256": {"type": "str", "required": True},
    }},
    "authfile": {"type": "path"},
    "mirror": {"type": "str", "default": ""},
    "work_dir": {"type": "path", "required": True},
    "timeout": {"type": "int", "default": 7200},
    "step": {"type": "str", "choices": ["look", "start", "stop"], "default": "look"},
}  # fmt: skip
STORAGE = "/var/lib/containers"
_ANSWER_S = 120.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
# Words of a registry or Podman, and what to do about each.
_MEANINGS = (
    (
        r"manifest unknown|manifest for .* not found|name unknown|digest .* does not match|Digest did not match",
        "the registry has no image of this name and digest: compare it with the source that the manifest names",
    ),
    (
        r"unauthorized|authentication required|denied|403 \(?Forbidden",
        "the registry requires a login: name a file with one in stack_image_authfile (see podman login --authfile)",
    ),
    (r"no space left", "the disk of /var/lib/containers is full: free some, or move Podman's storage to a larger disk"),
    (
        r"requested URL returned error",
        "the mirror lacks a file of this image: fill it again (playbooks/mirror.yml with mirror_stacks)",
    ),
    (
        r"connection refused|no such host|i/o timeout|network is unreachable|Temporary failure in name resolution",
        "the registry cannot be reached from this host: check its network, or use a mirror",
    ),
)


SYSTEMD = _transient.TransientUnits(ImageFault, "the pull of an image")


@dataclass(frozen=True)
class Image:
    """One image of one stack.

    :param stack: the id of the stack, which names job and folder.
    :param source: what is pulled, by digest or by tag.
    :param name: what units run: the source itself, or a name of the host's own.
    :param packages: `file` (a path on the host) and `sha256` of packages that are installed into it.
    :param mirror: where a mirror has images as files; empty: they come from their registry.
    """

    stack: str
    source: str
    name: str
    program: str
    work_dir: Path
    packages: Sequence[Mapping[str, str]] = ()
    authfile: str | None = None
    mirror: str = ""
    limit_s: int = 7200

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.stack):
            raise ImageFault(f"{self.stack!r} is no id of a stack: lower-case letters, digits, dots and dashes")

    @property
    def unit(self) -> str:
        return f"b70-image-{self.stack}.service"

    @property
    def folder(self) -> Path:
        return self.work_dir / f"image-{self.stack}"

    @property
    def layout(self) -> Path:
        return self.folder / "layout"


def inspect(reference: str) -> dict[str, Any] | None:
    """Return ``id``, ``digest``, ``digests`` and ``bytes`` of an image in the host's storage; None without one.

    A host without Podman, which the role stack installs, has none. Raise ImageFault if Podman cannot tell.
    """
    try:
        text = inspected(reference, _run)
    except ImageFault as fault:
        if isinstance(fault.__cause__, FileNotFoundError):
            return None
        raise
    except HostFault as fault:
        raise ImageFault(fault.message) from fault
    if text is None:
        return None
    try:
        found = json.loads(text)[0]
        names = [str(name).rpartition("@")[2] for name in found.get("RepoDigests") or []]
        size = int(found.get("Size") or 0)
        return {"id": str(found["Id"]), "digest": str(found["Digest"]), "digests": sorted(set(names)), "bytes": size}
    except (ValueError, LookupError, TypeError) as error:
        raise ImageFault(f"podman image inspect {reference} answers with something unknown: {error!r}") from error


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return ran(argv, _ANSWER_S, ImageFault)


def stage(image: Image, named: Mapping[str, Any] | None, source: Mapping[str, Any] | None) -> str:
    """Return what is to be done next: nothing (empty), ``pull``, ``build`` or ``name``. Pure.

    named, source: what the storage has under the two names.
    """
    if named is not None:
        return ""
    if source is None:
        return "pull"
    return "build" if image.packages else "name"


def look(image: Image) -> dict[str, Any]:
    """Return ``state`` (present, running, failed, absent) and what belongs to it. Changes nothing."""
    seen = SYSTEMD.state(image.unit)
    if seen.running:
        return {"state": "running", "bytes": size_of(image.folder), "moved_mib": moved_mib(image)}
    named = inspect(image.name)
    if named is not None:
        source = inspect(image.source) or named
        found = {**named, "digests": source["digests"], "source": image.source, "has_program": has_program(image)}
        return {"state": "present", "image": found}
    if seen.failed:
        return {"state": "failed", "message": failure(image, _log(image))}
    return {"state": "absent"}


def _log(image: Image) -> list[str]:
    wanted = ["journalctl", f"--unit={image.unit}", "--output=cat", "--no-pager", "--lines=40"]
    return [line.strip()[:400] for line in SYSTEMD.ask(wanted, check=False).splitlines() if line.strip()]


def failure(image: Image, lines: Sequence[str]) -> str:
    """Return why a pull or a build failed, from the lines of its log."""
    told = [line for line in lines if not line.startswith(f"{image.unit}: ")]  # without systemd's own words
    said = [line for line in told if re.search(r"error|fail|denied|unknown|unauthor|mismatch", line, re.IGNORECASE)]
    text = " | ".join((said or told or list(lines))[-2:]) or "its log is empty"
    meant = next((words for pattern, words in _MEANINGS if re.search(pattern, " ".join(lines), re.IGNORECASE)), "")
    went = f"Podman went {way(_proxy.variables())}."
    return f"{image.source} could not be made ready: {text}{f'. That is: {meant}' if meant else ''}. {went}"


def moved_mib(image: Image) -> int | None:
    """Return how much a pull has read and written, in MiB: from the registry, and of what it unpacks. None for a build,
    whose work other processes do."""
    if (image.folder / "context").is_dir():
        return None
    pid = SYSTEMD.ask(["systemctl", "show", "--property=MainPID", "--value", image.unit], check=False).strip()
    try:
        return moved(Path(f"/proc/{int(pid)}/io").read_text(encoding="ascii"))
    except (ValueError, OSError):
        # It has just ended.
        return None


def moved(text: str) -> int:
    """Return the MiB of a process that the text of its /proc/PID/io counts. Pure."""
    counts = dict(line.split(": ") for line in text.splitlines())
    return sum(int(counts[key]) for key in ("rchar", "wchar")) // 2**20


def size_of(folder: Path) -> int:
    """Return the bytes below a folder. What vanishes meanwhile is not counted."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
        except OSError:
            continue
    return total


def start(image: Image) -> dict[str, Any]:
    """Take the next step; a pull or a build goes on as a job of the host. Return what `look` sees then."""
    failed = SYSTEMD.state(image.unit).failed
    SYSTEMD.forget(image.unit)
    named = inspect(image.name)
    todo = stage(image, named, None if named is not None else inspect(image.source))
    if todo == "name":
        done = _run([PODMAN, "tag", image.source, image.name])
        if done.returncode != 0:
            raise ImageFault(f"{image.source} could not be named {image.name}: {done.stderr.strip()}")
    elif todo == "pull" and image.mirror:
        SYSTEMD.start(task(image, *_from_mirror(image, failed=failed)))
    elif todo:
        # The remains of an ended pull are of no use to this one.
        shutil.rmtree(image.folder, ignore_errors=True)
        image.folder.mkdir(parents=True)
        if todo == "build":
            _write_context(image)
        SYSTEMD.start(task(image, todo, command(image, todo)))
    return look(image)


def _from_mirror(image: Image, *, failed: bool) -> tuple[str, list[str]]:
    """Return the next step to an image out of a mirror, and its argv: to download what lacks, then to load it."""
    lacks = _image_mirror.lacking(image.layout, image.mirror, image.source)
    if failed and not lacks:
        # All was there and could not be loaded: its bytes are wrong.
        shutil.rmtree(image.layout)
        lacks = _image_mirror.lacking(image.layout, image.mirror, image.source)
    if lacks:
        return "download", _image_mirror.download_argv(image.folder, lacks)
    return "load", _image_mirror.load_argv(image.layout, image.source)


def stop(image: Image) -> dict[str, Any]:
    """End a pull or a build. The layers that it finished stay. Return what `look` sees then."""
    SYSTEMD.stop(image.unit)
    return look(image)


def _write_context(image: Image) -> None:
    context = image.folder / "context"
    context.mkdir()
    for package in image.packages:
        path = Path(package["file"])
        found = _files.sha256(path)
        if found != package["sha256"]:
            wanted = package["sha256"]
            raise ImageFault(f"{path} has sha256 {found}, the manifest says {wanted}: remove it and run again")
        (context / path.name).write_bytes(path.read_bytes())
    (context / "Containerfile").write_text(containerfile(image), encoding="utf-8")


def containerfile(image: Image) -> str:
    """Return what an image with other packages is built from. Pure.

    dpkg installs them in place of the image's own: they have been verified, and a resolver would bring others. It
    refuses to start without a PATH, or with one that lacks the system's folders, and images may have either.
    """
    names = [Path(package["file"]).name for package in image.packages]
    pairs = zip(image.packages, names, strict=True)
    sums = " && ".join(f"echo '{package['sha256']}  {name}' | sha256sum --check --strict" for package, name in pairs)
    return (
        f"FROM {image.source}\n"
        "USER 0\n"
        f"COPY {json.dumps([*names, '/tmp/b70/'])}\n"
        f"RUN cd /tmp/b70 && {sums} && PATH={_PATH} dpkg --install {' '.join(f'./{name}' for name in names)} "
        "&& rm -r /tmp/b70\n"
    )


def command(image: Image, todo: str) -> list[str]:
    """Return the argv of a pull or a build. Pure."""
    if todo == "build":
        context = str(image.folder / "context")
        return [PODMAN, "build", "--pull=never", "--network=none", "--no-cache", f"--tag={image.name}", context]
    login = [f"--authfile={image.authfile}"] if image.authfile else []
    return [PODMAN, "pull", *login, image.source]


def task(image: Image, todo: str, argv: Sequence[str]) -> _transient.Task:
    """Return the job of the host. Podman unpacks files of any owner and mode, so it keeps root's rights."""
    return _transient.Task(
        unit=image.unit,
        description=f"{todo.capitalize()} the image of {image.stack}",
        argv=argv,
        limit_s=image.limit_s,
        environment={"HOME": "/root", "TMPDIR": str(image.folder), **_proxy.variables()},
        properties={"ProtectSystem": "no", "RestrictSUIDSGID": "no", "NoNewPrivileges": "no", "PrivateTmp": "no"},
    )


def has_program(image: Image) -> bool:
    """Return whether the image has the engine's program."""
    argv = [PODMAN, "run", "--rm", "--pull=never", "--network=none", "--read-only", "--cap-drop=all", "--pids-limit=-1"]
    done = _run([*argv, "--entrypoint=/usr/bin/test", image.name, "-x", image.program])
    if done.returncode not in (0, 1):
        raise ImageFault(f"a container of {image.name} cannot be started on this host: {done.stderr.strip()[-300:]}")
    return done.returncode == 0
