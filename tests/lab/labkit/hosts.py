# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host: made from the image, booted, watched until it answers, stopped, thrown away."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from . import cards, image, sources
from .cgroup import Cgroup, start_in_scope, systemd_is_init
from .common import LabError, remove_tree, run, say, wait_for, write_atomic
from .layout import Host, Lab, State, read_pid, ssh_options

BOOT_LIMIT = 600.0


def decide(*, made: bool, running: bool, answers: bool, moved: bool) -> str:
    """What `up` does with a host: make | boot | restart | keep.

    made: its tree is complete · running: its supervisor lives · answers: over SSH · moved: the lab's network or
    key is a new one.
    """
    if not made:
        return "make"
    if not running:
        return "boot"
    return "keep" if answers and not moved else "restart"


def running(host: Host) -> bool:
    return read_pid(host.pid_file) is not None


def package_clients() -> sources.PackageClients:
    """pip's settings on this machine."""
    environment = dict(os.environ)
    texts = []
    for path in sources.pip_files(environment, Path.home()):
        with contextlib.suppress(OSError):
            texts.append(path.read_text(encoding="utf-8"))
    return sources.parse_pip(texts, environment)


def make(lab: Lab, state: State, host: Host, tar: Path) -> None:
    """Make the host's tree. Complete when `host.made` exists, which is written last and removed first."""
    stop(host)
    host.made.unlink(missing_ok=True)  # first of all: who is killed while the tree goes leaves none that counts
    remove_tree(host.directory)
    host.directory.mkdir(parents=True)
    image.unpack(tar, host.root)
    settle(lab, state, host)
    hostkey = host.root / "etc/ssh/ssh_host_ed25519_key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", hostkey])
    write_atomic(host.root / "etc/machine-id", uuid.uuid4().hex + "\n", 0o444)
    write_atomic(
        host.made, json.dumps({"image": tar.stem, "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
    )


def settle(lab: Lab, state: State, host: Host) -> None:
    """Write the files in the host that follow from this machine and the lab: they may change between two boots."""
    root = host.root
    write_atomic(root / "etc/hostname", f"{host.name}\n")
    peers = [lab.host(index) for index in state.hosts]
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{state.address(peer)} {peer.name}" for peer in peers]
    write_atomic(root / "etc/hosts", "\n".join(lines) + "\n")
    write_atomic(
        root / "etc/systemd/network/10-lab.network",
        f"[Match]\nName=host0\n\n[Network]\nAddress={state.address(host)}/24\nGateway={state.gateway}\n"
        "IPv6AcceptRA=no\nLinkLocalAddressing=no\n",
    )
    texts = []
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        with contextlib.suppress(OSError):
            texts.append(path.read_text(encoding="utf-8"))
    resolv = sources.nameservers(texts)
    if not resolv:
        say(f"{host.name}: this machine's name server listens on the loopback address only; names will not resolve")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    write_atomic(root / "etc/resolv.conf", resolv)
    clients = package_clients()
    write_atomic(root / "etc/pip.conf", clients.pip_conf())
    write_atomic(root / "etc/uv/uv.toml", clients.uv_toml())
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    write_atomic(root / "root/.ssh/authorized_keys", lab.key.with_suffix(".pub").read_text(encoding="ascii"), 0o600)


def write_known_hosts(lab: Lab, state: State) -> None:
    """The lab's known_hosts, from the keys in the trees of its hosts."""
    lines = []
    for index in state.hosts:
        host = lab.host(index)
        with contextlib.suppress(OSError):
            key = (host.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text(encoding="ascii").split()
            lines.append(f"{state.address(host)},{host.name} {key[0]} {key[1]}")
    write_atomic(lab.known_hosts, "".join(f"{line}\n" for line in lines))


def nspawn_argv(lab: Lab, host: Host) -> list[str]:
    """The command that boots the host."""
    memory = "mode=1777,size=50%,nr_inodes=1m"
    argv = [
        "systemd-nspawn", f"--directory={host.root}", f"--machine={host.machine}", f"--hostname={host.name}",
        "--register=no", "--keep-unit", "--link-journal=no", "--console=passive", "--resolv-conf=off", "--timezone=off",
        f"--network-bridge={lab.bridge}", f"--bind={lab.host_cache}:/var/cache/b70", f"--tmpfs=/dev/shm:{memory}",
        f"--system-call-filter=@swap{' @keyring bpf' if lab.containers.exists() else ''}",
    ]  # fmt: skip
    if lab.containers.exists():
        # A container engine wants the unified hierarchy; with it a unit's denied addresses are denied here too.
        argv[:0] = ["env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"]
    for directory in package_clients().local_directories():
        if directory.is_dir():
            argv.append(f"--bind-ro={directory}")
    return argv + cards.nspawn_words(host)


def boot(lab: Lab, host: Host) -> None:
    """Start the host's supervisor, detached from this command. Returns as soon as it lives."""
    stop(host)
    lab.host_cache.mkdir(parents=True, exist_ok=True)
    package = Path(__file__).resolve().parent
    command = [sys.executable, "-m", f"{package.name}.supervisor", host.cgroup, str(host.pid_file), str(host.log)]
    argv = start_in_scope(Cgroup(host.cgroup).scope, [*command, "--", *nspawn_argv(lab, host)])
    with open(host.log, "ab") as output:
        subprocess.Popen(
            argv,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(package.parent)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    if not wait_for(lambda: running(host), 120, 0.05):
        raise LabError(f"{host.name} did not start\n{log_tail(host)}", f"see {host.log}")


def stop(host: Host, patience: float = 8) -> None:
    """Shut the host down: in order for `patience` seconds, then by force. An absent one is fine."""
    pid = read_pid(host.pid_file)
    group = Cgroup(host.cgroup)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not group.processes() and read_pid(host.pid_file) is None, patience, 0.1)
    if not group.directories and systemd_is_init():
        return
    group.kill()
    _swaps_off(host)
    group.remove()
    host.pid_file.unlink(missing_ok=True)
    _leftovers(host)


def _swaps_off(host: Host) -> None:
    """Switch off the swap files of a host that was killed: they belong to the kernel, which is this machine's."""
    for line in Path("/proc/swaps").read_text(encoding="utf-8").splitlines()[1:]:
        file = host.root / line.split()[0].lstrip("/")
        if file.is_file():
            run(["swapoff", file], check=False)


def _leftovers(host: Host) -> None:
    """What systemd-nspawn leaves behind when it is killed."""
    for kind in ("propagate", "unix-export"):
        directory = Path("/run/systemd/nspawn") / kind / host.machine
        if directory.exists():
            for point in run(["findmnt", "-rno", "TARGET", "-T", directory], check=False).stdout.split():
                if point == str(directory):
                    run(["umount", "-l", point], check=False)
            remove_tree(directory)
    (host.directory / ".#root.lck").unlink(missing_ok=True)


def log_tail(host: Host, lines: int = 12) -> str:
    try:
        return "\n".join(host.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no console log)"


def ssh(lab: Lab, state: State, host: Host, command: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """Run a command on the host over SSH, as Ansible would."""
    options = [*ssh_options(lab), "-o", f"ConnectTimeout={max(1, int(timeout / 2))}", "-i", str(lab.key), "-l", "root"]
    return run(["ssh", *options, state.address(host), command], check=False, timeout=timeout)


def system_state(lab: Lab, state: State, host: Host) -> str:
    """What systemd in the host says of itself (running, starting, degraded …), or `unreachable`."""
    try:
        done = ssh(lab, state, host, "systemctl is-system-running", 15)
    except LabError:
        return "unreachable"
    return done.stdout.strip() or "unreachable"


def wait_ready(lab: Lab, state: State, host: Host, *, fresh: bool, limit: float = BOOT_LIMIT) -> float:
    """Wait until the host's systemd says `running` over SSH; returns the seconds it took.

    Raises LabError as soon as the host ended, with its console, or a fresh one is degraded for good, with its failed
    units. A host in use may be degraded: a failed engine is no failure of the lab.
    """
    started = time.monotonic()
    told = started
    seen = "unreachable"
    degraded_since: float | None = None
    while time.monotonic() - started < limit:
        if not running(host):
            raise LabError(f"{host.name} ended while it booted\n{log_tail(host)}", f"see {host.log}")
        seen = system_state(lab, state, host)
        if seen == "running":
            return time.monotonic() - started
        now = time.monotonic()
        degraded_since = (degraded_since or now) if seen == "degraded" else None
        if degraded_since is not None and now - degraded_since > 5:
            failed = ssh(lab, state, host, "systemctl --failed --no-legend --plain").stdout.strip()
            if fresh:
                raise LabError(f"{host.name} is degraded; failed units:\n{failed}", f"see {host.log}")
            say(f"{host.name} is up and degraded; failed units: {' '.join(failed.split()[::5])}")
            return time.monotonic() - started
        if now - told > 10:
            told = now
            say(f"{host.name}: waiting to be running, is {seen}")
        time.sleep(0.25)
    raise LabError(
        f"{host.name} was not running after {limit:g} s, last seen: {seen}\n{log_tail(host)}", f"see {host.log}"
    )


def image_of(host: Host) -> str | None:
    """The key of the image that the host was made from; None for a half-made one."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(json.loads(host.made.read_text(encoding="utf-8"))["image"])
    return None
