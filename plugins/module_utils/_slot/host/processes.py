# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process and device tables, read from /proc and /sys."""

from __future__ import annotations

import array
import fcntl
import os
import pwd
import socket
import stat
import struct
from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address

from ..power import MODELS, VENDOR
from ..words.types import Holder
from .cards import card_memory, pci_address, resident_bytes, write_driver

_LISTEN = "0A"
_SIOCGIFCONF = 0x8912


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(2**20)
    except OSError:
        return b""


def _words(path: str) -> tuple[str, ...]:
    data = _read(path).decode("utf-8", "replace")
    return tuple(data.removesuffix("\0").split("\0")) if data else ()


def unit_of(cgroup: str) -> str:
    """Return the systemd service or scope in the text of /proc/PID/cgroup, or an empty text.

    A unit of a user's own systemd, or of a container, is named with its owner: it is no unit of this host's systemd.
    """
    for line in cgroup.splitlines():
        units = [part for part in line.rsplit(":", 1)[-1].split("/") if part.endswith((".service", ".scope"))]
        if units:
            foreign = [unit for unit in units[:-1] if unit.startswith("user@") or unit.endswith(".scope")]
            return f"{units[-1]} in {foreign[0]}" if foreign else units[-1]
    return ""


def listeners(table: str, port: int) -> set[str]:
    """Return the inodes of the sockets that listen on the port, from the text of /proc/net/tcp or tcp6."""
    inodes = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rsplit(":", 1)[1], 16) == port:
            inodes.add(fields[9])
    return inodes


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _targets(pid: int) -> set[str]:
    folder = f"/proc/{pid}/fd"
    found = set()
    for name in _names(folder):
        try:
            found.add(os.readlink(f"{folder}/{name}"))
        except OSError:
            continue
    return found


def _identity(path: str) -> tuple[int, ...] | None:
    """Return what a file is whatever it is called: a device by its number, another file by its place on its disk."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return (about.st_rdev,) if stat.S_ISCHR(about.st_mode) else (about.st_dev, about.st_ino)


def _held(pid: int, wanted: Mapping[tuple[int, ...], str]) -> dict[str, str]:
    """Return which of its open files are among the wanted ones: their number as text, and the wanted path.

    A process with a mount namespace of its own (a container, a hardened service) has them under other paths, and when
    that namespace is gone the kernel shows the end of the path only. Just files of the same last name are looked at
    more closely: a look at any file could wait for a server that does not answer.
    """
    folder = f"/proc/{pid}/fd"
    names = {os.path.basename(path) for path in wanted.values()}
    found = {}
    for number in _names(folder):
        try:
            if os.path.basename(os.readlink(f"{folder}/{number}")) not in names:
                continue
        except OSError:
            continue
        identity = _identity(f"{folder}/{number}")
        if identity is not None and identity in wanted:
            found[number] = wanted[identity]
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _holder(pid: int, what: str) -> Holder:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        user = pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        user = "unknown"
    command = " ".join(_words(f"/proc/{pid}/cmdline"))[:100] or _read(f"/proc/{pid}/comm").decode().strip()
    return Holder(pid, command or "gone", user, unit_of(_read(f"/proc/{pid}/cgroup").decode()), what)


def _address(node: str) -> tuple[int, str, str]:
    name = os.path.basename(node)
    address = os.path.basename(os.path.realpath(f"/sys/class/drm/{name}/device"))
    return len(address), address, name


def is_first(status: str) -> bool:
    """Tell whether a process is the first of a container, by the text of its /proc/PID/status."""
    for line in status.splitlines():
        name, _colon, numbers = line.partition(":")
        if name == "NSpid":
            return len(numbers.split()) > 1 and numbers.split()[-1] == "1"
    return False


def _ipv4() -> list[tuple[str, str]]:
    """Return each IPv4 address of this host, with its network device; that of an alias is the device itself."""
    size, room = 40, 40 * 512  # struct ifreq: a name in 16 bytes, then an address in 24
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        buffer = array.array("B", bytes(room))
        asked = struct.pack("iL", room, buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(any_socket.fileno(), _SIOCGIFCONF, asked))[0]
    rows = [buffer.tobytes()[start : start + size] for start in range(0, used, size)]
    names = [row[:16].partition(b"\0")[0].decode().partition(":")[0] for row in rows]
    return [(name, socket.inet_ntoa(row[20:24])) for name, row in zip(names, rows, strict=True)]


class ProcTable:
    def cmdline(self, pid: int) -> tuple[str, ...]:
        return _words(f"/proc/{pid}/cmdline") if pid > 0 else ()

    def environ(self, pid: int) -> Mapping[str, str]:
        words = _words(f"/proc/{pid}/environ") if pid > 0 else ()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def contained(self, pid: int) -> int:
        children = _read(f"/proc/{pid}/task/{pid}/children").decode().split() if pid > 0 else []
        return next((int(child) for child in children if is_first(_read(f"/proc/{child}/status").decode())), 0)

    def port_holders(self, port: int) -> tuple[Holder, ...]:
        inodes: set[str] = set()
        for name in ("tcp", "tcp6"):
            inodes |= listeners(_read(f"/proc/net/{name}").decode(), port)
        if not inodes:
            return ()
        wanted = {f"socket:[{inode}]" for inode in inodes}
        what = f"port {port}"
        pids = [pid for pid in _pids() if wanted & _targets(pid)]
        # systemd keeps sockets for services, which have them too.
        found = tuple(_holder(pid, what) for pid in pids if pid != 1 or len(pids) == 1)
        return found or (Holder(0, "a process that can't be seen", "unknown", "", what),)

    def render_nodes(self) -> tuple[str, ...]:
        root = "/sys/class/drm"
        nodes = []
        for name in sorted(name for name in _names(root) if name.startswith("renderD")):
            vendor = _read(f"{root}/{name}/device/vendor").decode().strip()
            device = _read(f"{root}/{name}/device/device").decode().strip()
            if vendor == VENDOR and device in MODELS:
                nodes.append(f"/dev/dri/{name}")
        # By address, as a mask of cards counts them; the kernel numbers them as they come.
        return tuple(sorted(nodes, key=_address))

    def addresses(self, interface: str) -> tuple[str, ...] | None:
        if interface not in _names("/sys/class/net"):
            return None
        rows = (line.split() for line in _read("/proc/net/if_inet6").decode().splitlines())
        six = [str(IPv6Address(bytes.fromhex(row[0]))) for row in rows if len(row) == 6 and row[5] == interface]
        return (*(address for name, address in _ipv4() if name == interface), *six)

    def device_holders(self, paths: Sequence[str]) -> tuple[Holder, ...]:
        if not paths:
            return ()
        wanted = {identity: path for path in paths if (identity := _identity(path))}
        holders = []
        for pid in _pids():
            held = _held(pid, wanted)
            if held:
                texts = [_read(f"/proc/{pid}/fdinfo/{number}").decode("utf-8", "replace") for number in held]
                resident = resident_bytes(texts)
                amount = f" ({resident / 2**30:.1f} GiB of card memory)" if resident else ""
                holders.append(_holder(pid, ", ".join(sorted(set(held.values()))) + amount))
        return tuple(holders)

    pci_address, card_memory = staticmethod(pci_address), staticmethod(card_memory)

    def unbind(self, address: str) -> None:
        write_driver("unbind", address)

    def bind(self, address: str) -> None:
        write_driver("bind", address)
