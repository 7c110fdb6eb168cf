# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab needs of the machine it runs on, and how to get what is missing."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .common import LabError, run, say

SUITES = {"debian": {"12": "bookworm"}, "ubuntu": {"24.04": "noble"}}
# What hosts can be on such a machine, beside its own suite.
OTHER_SUITES = {"debian": ("trixie",), "ubuntu": ()}
# command -> Debian package that has it (the same on Ubuntu)
COMMANDS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "nft": "nftables",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "tar": "tar",
    # The package repositories that it plays.
    "apt-ftparchive": "apt-utils",
    "gpg": "gpg",
    "gpg-agent": "gpg-agent",
}
_NAMESPACES = {"mnt": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "pid": 0x20000000, "net": 0x40000000}
INSTALL = "tests/lab/lab.py prerequisites --install"


@dataclass(frozen=True)
class Check:
    """One thing the machine must have; `fix` is a command or an explanation, `package` what apt installs for it."""

    name: str
    passed: bool
    detail: str
    fix: str = ""
    package: str | None = None


def os_release(path: Path = Path("/etc/os-release")) -> dict[str, str]:
    """The fields of os-release, unquoted; empty when the file is missing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def suite_of(release: dict[str, str]) -> tuple[str, str]:
    """(distribution, suite) of the machine, which the hosts get as well. Raises LabError for any other system."""
    distribution, version = release.get("ID", ""), release.get("VERSION_ID", "")
    suite = SUITES.get(distribution, {}).get(version)
    if suite is None:
        named = release.get("PRETTY_NAME") or "this system"
        raise LabError(
            f"the lab builds hosts on Debian 12 and Ubuntu 24.04, not on {named}",
            "use such a machine (a virtual one will do), or inventory/localhost.yml on a machine with systemd",
            2,
        )
    return distribution, suite


def host_suite(distribution: str, own: str, wanted: str) -> str:
    """The suite of hosts: the wanted one, else this machine's own. Raises LabError for one that it cannot make."""
    known = (own, *OTHER_SUITES[distribution])
    if wanted and wanted not in known:
        raise LabError(f"the lab makes no hosts with {wanted} here", f"choose one of {', '.join(known)}", 2)
    return wanted or own


def _namespaces() -> str:
    """Empty when all namespaces of a host can be made, else what the kernel said. Tried in a child that then ends."""
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        flags = 0
        for flag in _NAMESPACES.values():
            flags |= flag
        os._exit(0 if libc.unshare(flags) == 0 else min(ctypes.get_errno(), 255))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if status == 0 else os.strerror(status)


def _cgroup() -> str:
    """Empty when a control group can be made where systemd in a host needs one, else why not."""
    try:
        from .cgroup import Cgroup

        Cgroup("b70-lab-check").make().remove()
    except (LabError, OSError) as exc:
        return str(exc)
    return ""


def _missing_kernel_part(argv: list[str], undo: list[str] | None) -> str:
    done = run(argv, check=False, timeout=90)
    if undo:
        run(undo, check=False, timeout=90)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[0]


def checks() -> list[Check]:
    """Every requirement in the order in which a person would meet it. Makes nothing that stays."""
    found = []
    root = os.geteuid() == 0
    found.append(Check("root", root, "running as root" if root else "not root", "run it as root: sudo -E make …"))
    release = os_release()
    try:
        found.append(Check("system", True, " ".join(suite_of(release))))
    except LabError as exc:
        found.append(Check("system", False, str(exc), exc.fix))
    for command, package in COMMANDS.items():
        where = shutil.which(command)
        found.append(Check(command, where is not None, where or "not installed", INSTALL, package))
    if not root:
        return found
    why = _namespaces()
    hint = "needs a full machine or a privileged container (mount, pid, net, uts, ipc namespaces)"
    found.append(Check("namespaces", not why, why or "mount, uts, ipc, pid, net", hint))
    why = _cgroup()
    found.append(Check("cgroup", not why, why or "can be made", "mount the cgroup file systems writable"))
    if shutil.which("ip"):
        name = f"b70c{os.getpid() % 10**8}"
        why = _missing_kernel_part(["ip", "link", "add", name, "type", "bridge"], ["ip", "link", "del", name])
        found.append(Check("bridge", not why, why or "can be made", "load the kernel module: modprobe bridge"))
    if shutil.which("nft"):
        rule = ["nft", "-c", "add table ip b70c; add chain ip b70c p { type nat hook postrouting priority 100; }"]
        why = _missing_kernel_part(rule, None)
        found.append(
            Check("nat", not why, why or "nft can do it", "load the kernel modules: modprobe nf_tables nft_masq")
        )
    return found


def require() -> None:
    """Raise one LabError (exit code 2) that names all that is missing and the commands that fix it."""
    failed = [check for check in checks() if not check.passed]
    if not failed:
        return
    listed = "; ".join(f"{check.name}: {check.detail}" for check in failed)
    fixes = list(dict.fromkeys(check.fix for check in failed if check.fix))
    raise LabError(f"the lab cannot work here. {listed}", " · ".join(fixes), 2)


def install() -> None:
    """Install the missing packages with apt-get. Raises LabError when that is not possible here."""
    failed = [check for check in checks() if not check.passed]
    packages = sorted({check.package for check in failed if check.package})
    blocking = [check for check in failed if not check.package and check.name in ("root", "system")]
    if blocking:
        raise LabError("; ".join(check.detail for check in blocking), blocking[0].fix, 2)
    if not packages:
        return
    say(f"installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wait = ["-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0"]
    for argv in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        if subprocess.run(["apt-get", *wait, *argv], env=environment, stdout=2, check=False, timeout=1800).returncode:
            raise LabError(f"apt-get could not install {' '.join(packages)}", "see its messages above", 2)
