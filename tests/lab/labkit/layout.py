# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a lab keeps its things, what they are called, and its state file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from .common import LabError, write_atomic

CHECKOUT = Path(__file__).resolve().parents[3]
DEFAULT_NAME = "lab"
RUN_DIR = Path("/run/b70-lab")
"""What all labs of the machine share until it restarts: the lock of the network, the former value of ip_forward."""

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")


@dataclass(frozen=True)
class Host:
    """One host of a lab: `index` counts from 1; the name is machine name, hostname and inventory name."""

    name: str
    index: int
    directory: Path
    machine: str
    """Name of the container: unlike `name`, unique on the machine, since two checkouts may both have a `lab1`."""

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def made(self) -> Path:
        """Written last when a host is made; a host without it is a broken half."""
        return self.directory / "made.json"

    @property
    def complete(self) -> bool:
        return self.made.exists() and (self.root / "etc/machine-id").exists()

    @property
    def pid_file(self) -> Path:
        return self.directory / "supervisor.json"

    @property
    def log(self) -> Path:
        return self.directory / "console.log"

    @property
    def cgroup(self) -> str:
        return f"b70-lab-{self.machine}"

    @property
    def hardware(self) -> Path:
        """The cards in the host, if it has any (`cards.py`); beside its directory, so that they outlive its disk."""
        return self.directory.parents[1] / "hardware" / self.name


@dataclass(frozen=True)
class Lab:
    """The paths and names of one lab. `base` holds every lab of a checkout, their shared cache and their locks."""

    name: str
    base: Path

    @property
    def directory(self) -> Path:
        return self.base / "labs" / self.name

    @property
    def cache(self) -> Path:
        return self.base / "cache"

    @property
    def images(self) -> Path:
        return self.cache / "images"

    @property
    def host_cache(self) -> Path:
        """Shared by every host of every lab, at /var/cache/b70 on the host."""
        return self.cache / "host"

    @property
    def lock(self) -> Path:
        return self.base / "locks" / f"{self.name}.lock"

    @property
    def images_lock(self) -> Path:
        """Of the cache of images; no lab has a name with a _, so it is no lab's lock."""
        return self.base / "locks" / "cached_images.lock"

    @property
    def state_file(self) -> Path:
        return self.directory / "state.json"

    @property
    def containers(self) -> Path:
        """Is there when the lab's hosts can run containers; they restart to learn of it."""
        return self.directory / "containers"

    @property
    def suite_file(self) -> Path:
        """Names the suite of the hosts that are made from now on, if it is not this machine's own."""
        return self.directory / "suite"

    @property
    def suite(self) -> str:
        try:
            return self.suite_file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""

    @property
    def key(self) -> Path:
        return self.directory / "ssh" / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "ssh" / "known_hosts"

    @property
    def base_tag(self) -> str:
        """Eight hex digits that tell this checkout's labs from another's."""
        return hashlib.sha256(str(self.base).encode()).hexdigest()[:8]

    @property
    def tag(self) -> str:
        """Five hex digits that tell this lab from one of the same name in another checkout."""
        return hashlib.sha256(str(self.directory).encode()).hexdigest()[:5]

    @property
    def bridge(self) -> str:
        return f"b70-{self.name[:5].rstrip('-')}-{self.tag}"

    @property
    def bridge_alias(self) -> str:
        """Stands on the bridge in the kernel: whose it is, even when the state file is gone."""
        return f"b70-lab {self.directory}"[:250]

    @property
    def table(self) -> str:
        return f"b70_lab_{self.tag}"

    def host(self, index: int) -> Host:
        name = f"{self.name}{index}"
        return Host(name, index, self.directory / "hosts" / name, f"{name}-{self.tag}")

    def on_disk(self) -> list[Host]:
        """The hosts that have a directory, whatever the state file says."""
        names = (path.name.removeprefix(self.name) for path in (self.directory / "hosts").glob(f"{self.name}*"))
        return [self.host(index) for index in sorted(int(name) for name in names if name.isdigit())]

    def host_named(self, name: str) -> Host:
        state = State.load(self)
        if state is None:
            raise LabError(f"lab {self.name!r} is not up", "make lab-up")
        names = [self.host(index).name for index in state.hosts]
        if name not in names:
            raise LabError(f"no host {name!r} in lab {self.name!r}: it has {', '.join(names) or 'none'}")
        return self.host(int(name.removeprefix(self.name)))


def open_lab(name: str | None = None, environment: dict[str, str] | None = None) -> Lab:
    """The lab named by `name`, else by B70_LAB, else `lab`; below B70_LAB_DIR, else `.lab` of the checkout.

    Raises LabError for a name that cannot be part of a host name.
    """
    env = dict(os.environ) if environment is None else environment
    chosen = name or env.get("B70_LAB") or DEFAULT_NAME
    if not _NAME.fullmatch(chosen):
        raise LabError(
            f"{chosen!r} cannot be the name of a lab: 1 to 20 lower-case letters, digits and dashes, a letter first",
            "choose another --lab or B70_LAB",
            2,
        )
    base = Path(env.get("B70_LAB_DIR") or CHECKOUT / ".lab").expanduser()
    return Lab(chosen, (base if base.is_absolute() else Path.cwd() / base).resolve())


@dataclass
class State:
    """What a lab made or is about to make. Written before the effect, so that `down` finds everything."""

    subnet: str
    hosts: list[int] = field(default_factory=list)
    nat: bool = True
    schema: int = 1

    @property
    def network(self) -> IPv4Network:
        return IPv4Network(self.subnet)

    @property
    def gateway(self) -> str:
        return str(self.network.network_address + 1)

    def address(self, host: Host) -> str:
        """Host 1 has .11, so that a person reads the host in the address; the bridge has .1."""
        return str(self.network.network_address + 10 + host.index)

    def save(self, lab: Lab) -> None:
        write_atomic(lab.state_file, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, lab: Lab) -> State | None:
        """The state of `lab`; None when it has none. A file that is not a state counts as none: `up` writes it anew."""
        try:
            data: Any = json.loads(lab.state_file.read_text(encoding="utf-8"))
            state = cls(str(data["subnet"]), [int(i) for i in data["hosts"]], bool(data["nat"]), int(data["schema"]))
            _ = state.network
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return state


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def process_start(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None when there is no such process (a zombie counts as none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def write_pid(path: Path, pid: int) -> None:
    """Remember a process so that a later one with the same number is never taken for it."""
    write_atomic(path, json.dumps({"pid": pid, "start": process_start(pid), "boot": boot_id()}) + "\n")


def read_pid(path: Path) -> int | None:
    """The process that `path` names, if it still is that very process."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads(path.read_text(encoding="utf-8"))
        pid = int(data["pid"])
        if data["boot"] == boot_id() and data["start"] is not None and process_start(pid) == data["start"]:
            return pid
    return None


def ssh_options(lab: Lab) -> list[str]:
    """Options with which ssh talks to the lab's hosts and to nothing else: own key, own known_hosts, no prompts."""
    return [
        "-o", "BatchMode=yes",
        "-o", f"UserKnownHostsFile={lab.known_hosts}",
        "-o", "GlobalKnownHostsFile=/dev/null",
        "-o", "StrictHostKeyChecking=yes",
        "-o", "IdentitiesOnly=yes",
        "-o", "ServerAliveInterval=10",
        "-o", "ServerAliveCountMax=6",
    ]  # fmt: skip
