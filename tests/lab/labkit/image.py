# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root file system of a fresh host: built once with mmdebstrap, cached under a key of all that goes into it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import sources
from .common import LabError, locked, remove_tree, run, say, write_atomic
from .layout import CHECKOUT, Lab
from .machine import host_suite, os_release, suite_of

# What a server fresh from its installer has, no more: what the product needs beyond it, its roles must install.
PACKAGES = (
    "apt", "systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps", "iproute2", "iputils-ping", "ca-certificates",
    "openssh-server", "python3", "python3-apt",
)  # fmt: skip
_OPTIONS = (
    "--mode=root", "--format=tar", "--variant=minbase", "--skip=cleanup/apt,check/empty",
    '--aptopt=Acquire::Languages "none";', '--aptopt=Acquire::Retries "3";',
    # A lab host that loses power is made anew, so dpkg need not wait for the disk.
    "--dpkgopt=force-unsafe-io",
    "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)  # fmt: skip
_HOOK = Path(__file__).with_name("image_hook.py")
_KEPT_IMAGES = 3
_BUILD_TIMEOUT = 1800


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Spec:
    """All inputs of an image. Two equal specs give the same image as far as the lab is concerned."""

    distribution: str
    suite: str
    architecture: str
    sources: list[str]
    apt_settings: list[str]
    keyrings: dict[str, str] = field(default_factory=dict)
    packages: list[str] = field(default_factory=lambda: list(PACKAGES))
    downloads: list[str] = field(default_factory=list)
    ca_digest: str = ""
    options: list[str] = field(default_factory=lambda: list(_OPTIONS))
    hook_digest: str = field(default_factory=lambda: _digest(_read(_HOOK)))

    @property
    def key(self) -> str:
        text = json.dumps(self.__dict__, sort_keys=True)
        return f"{self.suite}-{_digest(text)[:12]}"


def spec_of_machine(keyring_dir: Path, wanted: str = "") -> Spec:
    """The image this machine would build, with its own suite or the wanted one out of the same archives.

    Armoured keys that stand inside apt sources are written to `keyring_dir`.
    """
    distribution, suite = suite_of(os_release())
    chosen = host_suite(distribution, suite, wanted)
    directory = Path("/etc/apt/sources.list.d")
    files = [Path("/etc/apt/sources.list"), *sorted([*directory.glob("*.list"), *directory.glob("*.sources")])]
    found = sources.parse_sources({str(path): _read(path) for path in files}, distribution, suite)
    if not any(suite in source.suites for source in found):
        raise LabError(
            f"no apt source of this machine offers {suite} ({', '.join(map(str, files))})",
            f"add the archive of {distribution} {suite} to /etc/apt/sources.list.d",
            2,
        )
    lines: list[str] = []
    keyrings: dict[str, str] = {}
    for source in found:
        keyring = source.keyring
        if "BEGIN PGP" in keyring:
            path = keyring_dir / f"lab-{_digest(keyring)[:12]}.asc"
            write_atomic(path, keyring.strip() + "\n")
            keyring = f"/etc/apt/keyrings/{path.name}"
            keyrings[keyring] = str(path)
        elif keyring.startswith("/"):
            keyrings[keyring] = keyring
        else:
            keyring = ""
        suites = tuple(chosen + name.removeprefix(suite) for name in source.suites)
        lines += replace(source, suites=suites).lines(keyring)
    return Spec(
        distribution=distribution,
        suite=chosen,
        architecture=run(["dpkg", "--print-architecture"]).stdout.strip(),
        sources=lines,
        apt_settings=sources.parse_apt_settings(run(["apt-config", "dump"]).stdout),
        keyrings=keyrings,
        downloads=sources.parse_host_packages(_read(CHECKOUT / "roles" / "host" / "defaults" / "main.yml")),
        ca_digest=_digest(_read(sources.CA_BUNDLE)),
    )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def image(lab: Lab) -> Path:
    """The image of the lab's hosts, built when the cache lacks it. Raises LabError with the end of mmdebstrap's log."""
    spec = spec_of_machine(lab.images / "keyrings", lab.suite)
    target = lab.images / f"{spec.key}.tar"
    if target.exists():
        return target
    with locked(lab.images_lock, "the image cache", _BUILD_TIMEOUT) as descriptor:
        if target.exists():
            return target
        for leftover in lab.images.glob("*.building"):
            remove_tree(leftover)
        work = lab.images / f"{spec.key}.building"
        scratch = _scratch(lab, work)
        remove_tree(scratch)
        work.mkdir(parents=True)
        scratch.mkdir()
        started = time.monotonic()
        say(f"building the root file system {spec.key} (once; later labs take it from the cache)")
        try:
            _build(spec, work, scratch, descriptor)
        finally:
            remove_tree(scratch)
        os.replace(work / "root.tar", target)
        remove_tree(work)
        say(f"root file system ready after {time.monotonic() - started:.0f} s, {target.stat().st_size >> 20} MiB")
        _forget_old(lab.images)
    return target


def _scratch(lab: Lab, work: Path) -> Path:
    """Where the image is put together: in memory if there is plenty, which takes half the time of a disk."""
    shared = Path("/dev/shm")
    fields = (line.split() for line in _read(Path("/proc/meminfo")).splitlines())
    available = next((int(words[1]) << 10 for words in fields if words[0] == "MemAvailable:"), 0)
    if shared.is_dir() and shutil.disk_usage(shared).free > 2 << 30 and available > 4 << 30:
        return shared / f"b70-lab-{lab.base_tag}"
    return work / "tmp"


def _build(spec: Spec, work: Path, scratch: Path, lock: int) -> None:
    write_atomic(work / "spec.json", json.dumps(spec.__dict__))
    write_atomic(work / "sources.list", "".join(f"{line}\n" for line in spec.sources))
    kit = Path(__file__).resolve().parent
    quoted = f'PYTHONPATH="{kit.parent}" "{sys.executable}" -m labkit.image_hook "$1" "{work / "spec.json"}"'
    # mmdebstrap checks signatures outside the image, where a keyring may have another path than inside.
    signed = (work / "sources.list").read_text(encoding="utf-8")
    for inside, outside in spec.keyrings.items():
        signed = signed.replace(f"signed-by={inside}]", f"signed-by={outside}]")
    write_atomic(work / "build.list", signed)
    argv = [
        "mmdebstrap", *spec.options, f"--architectures={spec.architecture}", f"--include={','.join(spec.packages)}",
        *(f"--aptopt={setting}" for setting in spec.apt_settings),
        f"--customize-hook={quoted}", spec.suite, str(work / "root.tar"), str(work / "build.list"),
    ]  # fmt: skip
    log = work / "build.log"
    environment = {**os.environ, "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
    with open(log, "wb") as output:
        # The lock goes along: should we be killed, the next one waits until mmdebstrap has ended too.
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            pass_fds=(lock,),
            preexec_fn=_die_with_parent,
        )
        try:
            _watch(child, log)
        except BaseException:
            child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)
            child.kill()
            raise
    if child.returncode != 0:
        tail = "\n".join(_read(log).splitlines()[-15:])
        raise LabError(f"mmdebstrap ended with {child.returncode}:\n{tail}", "check the apt sources and the network")


def _watch(child: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for mmdebstrap and tell about every ten seconds what it does."""
    deadline = time.monotonic() + _BUILD_TIMEOUT
    while True:
        try:
            child.wait(10)
            return
        except subprocess.TimeoutExpired:
            stages = [line[3:] for line in _read(log).splitlines() if line.startswith("I: ")]
            say(f"  {stages[-1][:60] if stages else 'starting'}")
        if time.monotonic() > deadline:
            raise LabError(f"mmdebstrap took longer than {_BUILD_TIMEOUT} s", "check the apt sources and the network")


def _forget_old(directory: Path) -> None:
    tars = sorted(directory.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in tars[_KEPT_IMAGES:]:
        old.unlink(missing_ok=True)


def unpack(tar: Path, root: Path) -> None:
    """Make a host's tree from the image. `root` must not exist."""
    root.mkdir(parents=True)
    flags = ["--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls", "-p"]
    try:
        run(["tar", "-C", root, *flags, "-xf", tar], timeout=900)
    except LabError as exc:
        shutil.rmtree(root, ignore_errors=True)
        raise LabError(
            f"cannot unpack {tar}: {exc}", f"free some space, or remove {tar} and run the command again"
        ) from exc
