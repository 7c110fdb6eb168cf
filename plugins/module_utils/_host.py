# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts about a host that the roles need, read without changing it.

Everything here is a function of a file system root, of a tool's output or of plain values, so that it runs in tests
without a host. The module b70_host_info gathers the inputs.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ._doctor.parse import guc_versions, guc_wanted, replaced
from ._slot import power
from ._slot.host.processes import ProcTable, unit_of
from ._slot.kinds.table import kind_of_engine
from ._slot.words.firmware import guc_version
from ._slot.words.types import Holder, HostFault

# A file that takes the place of the distribution's firmware, and where its version stands (CSS header of the kernel's
# xe_uc_fw_abi.h): one byte each for patch, minor and major.
GUC_FILE = "lib/firmware/updates/xe/bmg_guc_70.bin"
_GUC_VERSION_AT = 64

# The oldest release of each system that the roles are written for.
OLDEST_SYSTEM = {"debian": "12", "ubuntu": "24.04"}
OLDEST_PYTHON = "3.11"

FINGERPRINT_FILE = "fingerprint.json"

# The scope of a container's process, or of what looks after it.
_CONTAINER = re.compile(r"(docker|libpod)(?:-conmon)?-([0-9a-f]{64})\.scope")

# Services that run until somebody restarts them. What else is named b70-* ends by itself.
_SERVICE = re.compile(r"b70-(?:openai-frontdoor|(?:controller|node)-[a-z0-9]+|slot-[a-z0-9]+-.+)\.service")


def parse_os_release(text: str) -> dict[str, str]:
    """Return the assignments of an os-release file, quotes removed; other lines are ignored."""
    values = {}
    for line in text.splitlines():
        key, sep, value = line.strip().partition("=")
        if sep and re.fullmatch(r"[A-Z_][A-Z0-9_]*", key):
            values[key] = value.strip().strip("\"'")
    return values


def version_key(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: `24.04.1` is `(24, 4, 1)`, and no number at all is `()`."""
    match = re.match(r"\d+(\.\d+)*", version.strip())
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _read(path: Path) -> str:
    """Return the stripped text of a small file; empty where it is absent or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _names(folder: Path, pattern: str) -> list[str]:
    return sorted(entry.name for entry in folder.glob(pattern)) if folder.is_dir() else []


def family(sysfs: Path) -> list[dict[str, Any]]:
    """Return the cards of the family (Battlemage) of all PCI domains, in the order of their addresses.

    Each has `number` (as masks, xpu-smi and Level Zero count: all cards of the family together), `model`, `address`
    (domain:bus:device.function), `driver` (bound kernel driver, or empty), `guc` and `guc_wanted` (version of the
    firmware that it runs and that its kernel asks for, or empty), `numa_node` (null where the kernel names none),
    `card_node` and `render_node` (device paths, null while no driver is bound).
    """
    found = []
    for number, (device, model) in enumerate(power.devices(sysfs)):
        driver = device / "driver"
        numa_node = _read(device / "numa_node")
        nodes = {kind: _names(device / "drm", f"{kind}[0-9]*") for kind in ("card", "renderD")}
        names = [device.name, *nodes["card"], *nodes["renderD"]]
        guc, wanted = guc_version(lambda path: _read(sysfs / "kernel/debug/dri" / path), names)
        found.append(
            {
                "number": number,
                "model": model,
                "address": device.name,
                "driver": os.path.basename(os.path.realpath(driver)) if driver.exists() else "",
                "guc": guc,
                "guc_wanted": wanted,
                "numa_node": int(numa_node) if numa_node.isdigit() else None,
                "card_node": f"/dev/dri/{nodes['card'][0]}" if nodes["card"] else None,
                "render_node": f"/dev/dri/{nodes['renderD'][0]}" if nodes["renderD"] else None,
            }
        )
    return found


def cards(sysfs: Path) -> list[dict[str, Any]]:
    """Return the B70 cards of `family`."""
    return [card for card in family(sysfs) if card["model"] == power.B70]


def other_cards(sysfs: Path) -> list[dict[str, Any]]:
    """Return the cards of `family` that are no B70."""
    return [card for card in family(sysfs) if card["model"] != power.B70]


def named(card: Mapping[str, Any]) -> str:
    """Return a card in words, such as `card 0, Arc Pro B60 at 0000:18:00.0`."""
    number = "" if card.get("number") is None else f"card {card['number']}, "
    return f"{number}{card.get('model') or power.B70} at {card['address']}"


def guc_from_log(cards: Iterable[Mapping[str, Any]], log: str) -> list[dict[str, Any]]:
    """Return `cards` with the firmware versions from the kernel's log where the debug files have none."""
    loaded, wanted = guc_versions(log), guc_wanted(log)
    filled = []
    for card in cards:
        address = card["address"] if card["driver"] else ""
        guc, asked = card["guc"] or loaded.get(address, ""), card.get("guc_wanted") or wanted.get(address, "")
        filled.append({**card, "guc": guc, "guc_wanted": asked})
    return filled


def guc_of_file(path: Path) -> str:
    """Return the version of a file of GuC firmware, such as `70.65.0`; empty where it is absent or no such file."""
    try:
        with open(path, "rb") as file:
            head = file.read(_GUC_VERSION_AT + 4)
    except OSError:
        return ""
    patch, minor, major = head[_GUC_VERSION_AT : _GUC_VERSION_AT + 3] if len(head) == _GUC_VERSION_AT + 4 else (0, 0, 0)
    return f"{major}.{minor}.{patch}" if major else ""


def kernel_packages(table: Mapping[str, Any], system: Mapping[str, Any], has_cards: bool) -> list[str]:
    """Return the packages with a kernel that knows the cards, where a card is there and the kernel is too old.

    `table` is system (ID and VERSION_ID of os-release) -> `oldest`, a kernel that knows them, and `packages`.
    """
    entry = table.get(f"{system.get('id')} {system.get('version')}")
    if not has_cards or not entry or version_key(system["kernel"]) >= version_key(entry["oldest"]):
        return []
    return list(entry["packages"])


def render_nodes(sysfs: Path) -> list[str]:
    """Return the device paths of all render nodes, whichever card they belong to."""
    return [f"/dev/dri/{name}" for name in _names(sysfs / "class/drm", "renderD[0-9]*")]


def stacks(root: Path, image_id: Callable[[str], str] = lambda reference: "") -> list[dict[str, Any]]:
    """Return the stacks below `root`, complete or not, in the order of their ids; `image_id` gives the id of an image.

    Each has `id`, `dir`, `complete`, `reason` (why it is not complete, else empty), `name`, `digest` and
    `created` of its fingerprint (null without one).
    """
    if not root.is_dir():
        return []
    return [
        _stack(entry, image_id) for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.name.startswith(".")
    ]


def _image_missing(record: Mapping[str, Any], image_id: Callable[[str], str]) -> str:
    """Return why the image of a record is not what units may run; empty when it is."""
    reference, wanted = str(record.get("reference")), record.get("id")
    try:
        found = image_id(reference)
    except HostFault as fault:
        return fault.message
    if not found:
        return f"the image {reference} is not on the host"
    return "" if found == wanted else f"the image {reference} is {found}, verified was {wanted}"


def outdated_services(proc: Path) -> dict[str, list[str]]:
    """Return, by service, the files that its processes use and an update has replaced: its restart is due."""
    found: dict[str, set[str]] = {}
    for folder in proc.glob("[0-9]*"):
        try:
            unit = unit_of((folder / "cgroup").read_text(encoding="utf-8"))
            files = replaced((folder / "maps").read_text(encoding="utf-8")) if _SERVICE.fullmatch(unit) else []
        except OSError:
            continue  # it has ended
        if files:
            found.setdefault(unit, set()).update(files)
    return {unit: sorted(files) for unit, files in sorted(found.items())}


def holders(host: str, port: int) -> list[Holder]:
    """Return the processes that keep a program from listening on this address and port; empty if none does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
            tried.listen()
        except OSError as error:
            return list(ProcTable().port_holders(port)) if error.errno == errno.EADDRINUSE else []
    return []


def container_argv(holder: Holder, port: int) -> list[str]:
    """Return the command that asks for the name of the container that holds a port; empty if no container does."""
    ask = ["ps", "--format", "{{.Names}}", "--filter"]
    if scope := _CONTAINER.search(holder.unit):
        return ["docker" if scope[1] == "docker" else "podman", *ask, f"id={scope[2]}"]
    # Docker gives a container's port to a process of its own.
    if holder.command.split(maxsplit=1)[0].endswith("docker-proxy"):
        return ["docker", *ask, f"publish={port}"]
    return []


def _stack(folder: Path, image_id: Callable[[str], str]) -> dict[str, Any]:
    fingerprint: dict[str, Any] = {}
    reason = ""
    try:
        loaded = json.loads((folder / FINGERPRINT_FILE).read_text(encoding="utf-8"))
        if not isinstance(loaded, dict):
            raise ValueError("not an object")
        fingerprint = loaded
    except FileNotFoundError:
        reason = f"it has no {FINGERPRINT_FILE}: its installation was interrupted"
    except (OSError, ValueError) as error:
        reason = f"its {FINGERPRINT_FILE} cannot be read: {error}"
    if not reason and fingerprint.get("stack_id") != folder.name:
        reason = f"its {FINGERPRINT_FILE} belongs to {fingerprint.get('stack_id')}"
    if not reason and isinstance(fingerprint.get("image"), dict):
        reason = _image_missing(fingerprint["image"], image_id)
    elif not reason:
        program = kind_of_engine(fingerprint.get("engine") or {}).program
        missing = [name for name in ("python", program) if name and not os.access(folder / "venv/bin" / name, os.X_OK)]
        if missing:
            reason = f"venv/bin has no executable {' and '.join(missing)}"
    return {
        "id": folder.name,
        "dir": str(folder),
        "complete": not reason,
        "reason": reason,
        **{key: fingerprint.get(key) for key in ("name", "digest", "created")},
    }


def uv_version(tools: Path) -> str | None:
    """Return the version of uv in the tools environment, or None where it has none."""
    found = [path.name for path in tools.glob("lib/python3*/site-packages/uv-*.dist-info")]
    return found[0].removeprefix("uv-").removesuffix(".dist-info") if found and (tools / "bin/uv").exists() else None


def packages_missing(wanted: Iterable[str], dpkg_output: str) -> list[str]:
    """Return the packages of `wanted` that are not installed.

    `dpkg_output` is what `dpkg-query --show --showformat='${db:Status-Status} ${Package}\\n'` prints.
    """
    installed = {line.split()[1] for line in dpkg_output.splitlines() if line.startswith("installed ")}
    return [name for name in wanted if name not in installed]


def restart_reasons(
    kernels_missing: Iterable[str],
    wanted_arguments: Iterable[str],
    system: Mapping[str, Any],
    cards: Iterable[Mapping[str, Any]] = (),
) -> list[str]:
    """Return the reasons why the host needs a restart; empty where it needs none.

    `kernels_missing` are packages with a kernel that are wanted and not installed. `system` has `kernel`,
    `kernel_arguments`, `next_kernel`, which may be None, and `guc_file`, the version of the firmware in GUC_FILE.
    """
    lacking = [one for one in wanted_arguments if one not in system["kernel_arguments"]]
    reasons = [f"the running kernel was not given {' '.join(lacking)}"] if lacking else []
    if kernels := list(dict.fromkeys(kernels_missing)):
        reasons.append(f"a kernel is installed with {', '.join(kernels)}")
    if system["next_kernel"] not in (None, "", system["kernel"]):
        reasons.append(f"the next boot uses the kernel {system['next_kernel']}")
    file = system.get("guc_file")
    if runs := sorted({str(card["guc"]) for card in cards if file and card.get("guc") not in ("", None, file)}):
        reasons.append(f"the next boot loads the GuC firmware {file} from /{GUC_FILE} in place of {', '.join(runs)}")
    return reasons


def directory_faults(
    wanted: Iterable[Mapping[str, Any]], paths: Mapping[str, Mapping[str, Any]], account: Mapping[str, Any] | None
) -> dict[str, list[str]]:
    """Return the wanted directories that are `missing`, `obstructed` (no directory) or `not_writable` by the account.

    Each of `wanted` has `path`, and `writable` where the account must be able to write to it; `paths` are `path_facts`
    by path. Before the account exists, nothing is called not writable.
    """
    faults: dict[str, list[str]] = {"missing": [], "obstructed": [], "not_writable": []}
    for one in wanted:
        facts = paths[one["path"]]
        if not facts["exists"]:
            faults["missing"].append(one["path"])
        elif not facts["is_dir"]:
            faults["obstructed"].append(one["path"])
        elif one.get("writable") and account is not None and not facts["writable"]:
            faults["not_writable"].append(one["path"])
    return faults


def next_kernel(root: Path) -> str | None:
    """Return the kernel that the next boot uses, by the link that Debian and Ubuntu keep; None where there is none."""
    for link in (root / "vmlinuz", root / "boot/vmlinuz"):
        if link.is_symlink():
            return os.path.basename(os.readlink(link)).removeprefix("vmlinuz-")
    return None


def path_facts(path: str, account: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the facts of `path`, links followed.

    Its `exists`, `is_dir`, `mode` (four octal digits) and `uid` (null where it is absent), `writable` (may the account
    create files in it, by owner and mode), and `free_mib` on the nearest existing folder.
    """
    nearest = Path(path)
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    space = os.statvfs(nearest)
    facts: dict[str, Any] = {
        "exists": False,
        "is_dir": False,
        "mode": None,
        "uid": None,
        "writable": False,
        "free_mib": space.f_bavail * space.f_frsize // 2**20,
    }
    try:
        status = os.stat(path)
    except OSError:
        return facts
    return facts | {
        "exists": True,
        "is_dir": stat.S_ISDIR(status.st_mode),
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "uid": status.st_uid,
        "writable": may_write(status.st_mode, status.st_uid, status.st_gid, account),
    }


def may_write(mode: int, uid: int, gid: int, account: Mapping[str, Any] | None) -> bool:
    """Tell whether an account may create entries in a folder of this mode and owner; root always may."""
    if account is None:
        return False
    if account["uid"] == 0:
        return True
    if account["uid"] == uid:
        wanted = stat.S_IWUSR | stat.S_IXUSR
    elif gid in account["gids"]:
        wanted = stat.S_IWGRP | stat.S_IXGRP
    else:
        wanted = stat.S_IWOTH | stat.S_IXOTH
    return mode & wanted == wanted


def account_facts(name: str, users: Callable[[str], Any], groups: Iterable[Any]) -> dict[str, Any] | None:
    """Return a user as `uid`, `group`, `groups` (names, primary first) and `gids`; None where there is none.

    `users` is `pwd.getpwnam` and `groups` is `grp.getgrall`'s answer.
    """
    try:
        entry = users(name)
    except KeyError:
        return None
    everyone = list(groups)
    mine = [group for group in everyone if group.gr_gid == entry.pw_gid]
    mine += [group for group in everyone if name in group.gr_mem and group.gr_gid != entry.pw_gid]
    return {
        "uid": entry.pw_uid,
        "group": mine[0].gr_name if mine and mine[0].gr_gid == entry.pw_gid else None,
        "groups": [group.gr_name for group in mine],
        "gids": sorted({entry.pw_gid} | {group.gr_gid for group in mine}),
    }


def problems(system: Mapping[str, str], python: str | None, python_path: str, systemd: bool, root: bool) -> list[str]:
    """Return the problems of this host and their remedies, one sentence each; empty when the roles can serve it."""
    found = []
    name, release = system.get("id", ""), system.get("version", "")
    supported = " or ".join(f"{key.capitalize()} {value}" for key, value in OLDEST_SYSTEM.items())
    if name not in OLDEST_SYSTEM:
        found.append(f"The system is '{system.get('name') or 'unknown'}': use a host with {supported} or newer.")
    elif version_key(release) and version_key(release) < version_key(OLDEST_SYSTEM[name]):
        found.append(f"{system.get('name')} is too old: upgrade the host to {supported} or newer.")
    if python is None:
        found.append(f"There is no working Python at {python_path}: install the package python3.")
    elif version_key(python) < version_key(OLDEST_PYTHON):
        found.append(f"{python_path} is Python {python}: Python {OLDEST_PYTHON} or newer is needed.")
    if not systemd:
        found.append(
            "systemd is not running: engines and the frontdoor are systemd units, so use a booted host or machine."
        )
    if not root:
        found.append("The tasks do not run as root: set become to true and let the login user become root.")
    return found
