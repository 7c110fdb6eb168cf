# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab on this machine, for real: made, broken in many ways, repaired, removed without a trace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit import image
from labkit.cgroup import Cgroup
from labkit.layout import Lab, open_lab, read_pid

pytestmark = pytest.mark.lab
LAB_PY = Path(__file__).with_name("lab.py")
NAME = "labtest"


class Driver:
    """lab.py as a person calls it, with a lab directory of its own."""

    def __init__(self, base: Path, name: str = NAME) -> None:
        self.lab = Lab(name, base)
        self.environment = {**os.environ, "B70_LAB": name, "B70_LAB_DIR": str(base)}

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        settings: dict[str, Any] = {"env": self.environment, **options}
        argv = [sys.executable, str(LAB_PY), *words]
        return subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)

    def __call__(self, *words: str, code: int = 0, **options: Any) -> str:
        """Run a command; returns what it printed on both streams."""
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=1200)
        assert process.returncode == code, f"{words}: {process.returncode}\n{out}\n{err}"
        return out + err

    def status(self, code: int = 0) -> dict[str, Any]:
        process = self.start("status", "--json")
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, err
        found: dict[str, Any] = json.loads(out)
        return found

    def ssh(self, host: str, command: str, code: int = 0) -> str:
        return self("ssh", host, command, code=code).strip()


def traces(lab: Lab) -> list[str]:
    """Everything on this machine that belongs to `lab`, whatever its state file says."""

    def output(*argv: str) -> list[str]:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()

    found = [f"link {line}" for line in output("ip", "-br", "link") if lab.tag in line or f"vb-{lab.name}" in line]
    found += [f"route {line}" for line in output("ip", "route") if lab.bridge in line]
    found += [f"nft {line}" for line in output("nft", "list", "tables") if lab.tag in line]
    own = {str(os.getpid()), str(os.getppid())}
    for line in output("ps", "-e", "-o", "pid=,args="):
        if str(lab.base) in line and "pytest" not in line and line.split()[0] not in own:
            found.append(f"process {line}")
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"*/b70-lab-*{lab.tag}*")]
    found += [
        f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(lab.base) in line
    ]
    found += [f"nspawn {path}" for path in Path("/run/systemd/nspawn").glob(f"*/*{lab.tag}*")]
    found += [f"scratch {path}" for path in Path("/dev/shm").glob(f"b70-lab-{lab.base_tag}*")]
    if lab.directory.exists():
        found.append(f"files {lab.directory}")
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lab directory of our own, with the image of the checkout's cache so that it is not built again."""
    place = tmp_path_factory.mktemp("labs")
    tar = image.image(open_lab("lab", {}))
    images = Lab(NAME, place).images
    images.mkdir(parents=True)
    try:
        os.link(tar, images / tar.name)
    except OSError:
        (images / tar.name).symlink_to(tar)
    yield place
    for name in (NAME, "labtwo"):
        Driver(place, name)("down")


@pytest.fixture(scope="module")
def lab(base: Path) -> Driver:
    driver = Driver(base)
    driver("up", "--hosts", "2")
    return driver


LOOK = "cat /sys/bus/pci/devices/0000:[0-9a-f]3:00.0/device; stat -c '%n %G %a' /dev/dri/renderD*"
TWO = "0xe223\n0xe223\n/dev/dri/renderD128 render 660\n/dev/dri/renderD129 render 660"


def test_hosts_are_up_named_and_connected(lab: Driver) -> None:
    found = lab.status()
    assert found["up"] is True
    assert [(row["name"], row["state"], row["system"]) for row in found["hosts"]] == [
        (f"{NAME}1", "running", "running"),
        (f"{NAME}2", "running", "running"),
    ]
    assert lab.ssh(f"{NAME}1", "hostname") == f"{NAME}1"
    lab.ssh(f"{NAME}1", f"ping -c1 -W20 {NAME}2 && systemctl is-system-running && apt-get update -q")


def test_a_fresh_host_has_what_ansible_needs_and_nothing_of_the_product(lab: Driver) -> None:
    lab.ssh(f"{NAME}1", "python3 -c 'import apt'")
    lab.ssh(f"{NAME}1", "python3 -c 'import requests'", code=1)
    assert lab.ssh(f"{NAME}1", "ls /opt/b70 /etc/b70-vllm-slot 2>/dev/null || true") == ""


def test_the_download_cache_is_shared_between_hosts(lab: Driver) -> None:
    lab.ssh(f"{NAME}1", "echo once > /var/cache/b70/test-shared")
    assert lab.ssh(f"{NAME}2", "cat /var/cache/b70/test-shared; rm /var/cache/b70/test-shared") == "once"


def test_up_again_changes_nothing(lab: Driver) -> None:
    before = lab.ssh(f"{NAME}1", "cat /proc/sys/kernel/random/boot_id")
    assert "booting" not in lab("up")
    assert lab.ssh(f"{NAME}1", "cat /proc/sys/kernel/random/boot_id") == before


def test_the_services_of_one_host_are_not_those_of_the_other(lab: Driver) -> None:
    for host in (f"{NAME}1", f"{NAME}2"):
        lab.ssh(host, "systemd-run --quiet --unit=probe sleep 300")
    lab.ssh(f"{NAME}1", "systemctl stop probe")
    assert lab.ssh(f"{NAME}2", "systemctl is-active probe") == "active"
    lab.ssh(f"{NAME}2", "systemctl stop probe")


SANDBOX = {
    "NoNewPrivileges=yes": "grep -q 'NoNewPrivs:.1' /proc/self/status",
    "ProtectSystem=strict": "! touch /usr/x /etc/x",
    "ProtectHome=yes": "! ls /root/.ssh",
    "PrivateTmp=yes": "! test -e /tmp/outside",
    "PrivateDevices=yes": "! test -e /dev/console",
    "ProtectKernelTunables=yes": "! sh -c 'echo 1 > /proc/sys/kernel/domainname'",
    "ProtectControlGroups=yes": "! mkdir /sys/fs/cgroup/unified/x /sys/fs/cgroup/x",
    "RestrictNamespaces=yes": "! unshare -m true",
    "RestrictSUIDSGID=yes": "! { touch /tmp/s && chmod u+s /tmp/s; }",
    "RestrictAddressFamilies=AF_INET": "! python3 -c 'import socket; socket.socket(socket.AF_UNIX)'",
    "SystemCallFilter=~chroot": "! python3 -c 'import os; os.chroot(\"/\")'",
    "DynamicUser=yes": 'test "$(id -u)" -gt 60000',
    "CPUAffinity=0": "grep -qP 'Cpus_allowed_list:\\t0$' /proc/self/status",
    "NUMAPolicy=bind": "grep -q bind:0 /proc/self/numa_maps",
    "Nice=-5": 'test "$(nice)" = -5',
    "OOMScoreAdjust=500": 'test "$(cat /proc/self/oom_score_adj)" = 500',
    "UMask=0077": 'test "$(umask)" = 0077',
}


@pytest.mark.parametrize("directive", SANDBOX)
def test_hardening_directives_take_effect(lab: Driver, directive: str) -> None:
    """What the units rely on must be enforced here, or tests of them would prove nothing."""
    if directive == "NUMAPolicy=bind" and not Path("/sys/devices/system/node/node0").exists():
        pytest.skip("this kernel has no NUMA")
    extra = "-p NUMAMask=0" if directive == "NUMAPolicy=bind" else "-p SystemCallErrorNumber=EPERM"
    check = SANDBOX[directive].replace("'", "'\\''")
    words = f"touch /tmp/outside; systemd-run --quiet --wait --pipe --collect -p {directive} {extra} bash -c '{check}'"
    lab.ssh(f"{NAME}1", words)


def test_a_reboot_from_inside_comes_back_with_its_files(lab: Driver) -> None:
    before = lab.ssh(f"{NAME}1", "touch /srv/kept; cat /proc/sys/kernel/random/boot_id")
    lab("reboot", f"{NAME}1")
    assert lab.ssh(f"{NAME}1", "ls /srv/kept >/dev/null && cat /proc/sys/kernel/random/boot_id") != before
    assert lab.status()["up"] is True


def test_recreate_makes_one_host_fresh_and_leaves_the_other(lab: Driver) -> None:
    for host in (f"{NAME}1", f"{NAME}2"):
        lab.ssh(host, "touch /srv/mark")
    lab("recreate", f"{NAME}2")
    lab.ssh(f"{NAME}2", "test -e /srv/mark", code=1)
    lab.ssh(f"{NAME}1", "test -e /srv/mark")


def test_the_way_out_closes_opens_and_stays_as_it_was_put(lab: Driver) -> None:
    outside = "timeout 240 apt-get update -q -o Acquire::Retries=0 -o APT::Update::Error-Mode=any"
    lab("nat", "off")
    lab.ssh(f"{NAME}1", outside, code=100)
    lab("up")
    lab.ssh(f"{NAME}1", outside, code=100)
    lab.ssh(f"{NAME}1", f"ping -c1 -W20 {NAME}2")
    lab("nat", "on")
    lab.ssh(f"{NAME}1", outside)


def _kill_all(lab: Lab) -> None:
    for pid in Cgroup(lab.host(1).cgroup).processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_supervisor(lab: Lab) -> None:
    pid = read_pid(lab.host(1).pid_file)
    assert pid
    os.kill(pid, signal.SIGKILL)


def _damage(lab: Lab) -> None:
    _kill_all(lab)
    (lab.host(1).root / "etc/machine-id").unlink()


BREAKAGES = {
    "every process of a host killed": _kill_all,
    "the supervisor of a host killed": _kill_supervisor,
    "the bridge deleted": lambda lab: subprocess.run(["ip", "link", "del", lab.bridge], check=True),
    "the rules deleted": lambda lab: subprocess.run(["nft", "delete", "table", "ip", lab.table], check=True),
    "the state file lost": lambda lab: lab.state_file.unlink(),
    "the state file damaged": lambda lab: lab.state_file.write_text('{"subnet": '),
    "the key lost": lambda lab: lab.key.unlink(),
    "known_hosts lost": lambda lab: lab.known_hosts.unlink(),
    "a host half gone": _damage,
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_up_repairs(lab: Driver, breakage: str) -> None:
    BREAKAGES[breakage](lab.lab)
    lab("up")
    assert [row["state"] for row in lab.status()["hosts"]] == ["running", "running"]
    lab.ssh(f"{NAME}1", f"ping -c1 -W20 {NAME}2 && apt-get update -q")


@pytest.mark.parametrize("seconds", [0.1, 0.6, 1.6, 3.5])
def test_up_killed_on_its_way_is_finished_by_the_next(lab: Driver, seconds: float) -> None:
    first = lab.start("up", "--hosts", "2", "--fresh", start_new_session=True)
    time.sleep(seconds)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    lab("up", "--hosts", "2")
    assert lab.status()["up"] is True
    lab.ssh(f"{NAME}2", f"ping -c1 -W20 {NAME}1")


def test_two_at_once_take_turns(lab: Driver) -> None:
    first = lab.start("up", "--fresh")
    while not lab.lab.lock.exists() or not lab.lab.lock.read_text().startswith(f"process {first.pid} "):
        assert first.poll() is None, "it ended without ever holding the lab"
        time.sleep(0.02)
    processes = [first, lab.start("up", "--hosts", "2")]
    said = [process.communicate(timeout=1200)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert any("waiting for process" in text for text in said)
    assert lab.status()["up"] is True


def test_two_labs_stand_side_by_side_and_one_leaves_without_the_other(lab: Driver, base: Path) -> None:
    other = Driver(base, "labtwo")
    other("up")
    assert other.status()["subnet"] != lab.status()["subnet"]
    assert "in use by" in lab("down", "--purge-cache", code=1)
    other("down")
    assert traces(other.lab) == []
    assert lab.status()["up"] is True
    lab.ssh(f"{NAME}1", "apt-get update -q")


@pytest.mark.parametrize("seconds", [None, 0.2, 1.0])
def test_down_leaves_nothing_also_after_a_killed_up(base: Path, seconds: float | None) -> None:
    lab = Driver(base)
    if seconds is None:
        lab("up", "--hosts", "2")
        assert traces(lab.lab)
    else:
        first = lab.start("up", "--hosts", "2", "--fresh", start_new_session=True)
        time.sleep(seconds)
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    lab("down")
    assert traces(lab.lab) == []
    assert lab.lab.images.exists()
    assert lab.status(code=3)["hosts"] == []
    lab("down")


def test_purging_the_cache_leaves_no_file(base: Path, tmp_path: Path) -> None:
    lab = Driver(tmp_path / "labs")
    lab.lab.images.mkdir(parents=True)
    (lab.lab.images / "x.tar").write_text("")
    lab("down", "--purge-cache")
    assert not lab.lab.base.exists()


def test_without_root_it_says_so_and_makes_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    lab = Driver(tmp_path / "labs")
    lab.environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    interpreter = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
    for words in (["up"], ["down"]):
        done = subprocess.run(
            [*interpreter, str(LAB_PY), *words], env=lab.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, done.stderr
        assert "only root can" in done.stderr
        assert "sudo" in done.stderr
    assert not lab.lab.base.exists()


def test_missing_tools_are_named_with_the_command_that_installs_them(tmp_path: Path) -> None:
    lab = Driver(tmp_path / "labs")
    lab.environment |= {"PATH": str(tmp_path)}
    said = lab("up", code=2)
    assert "mmdebstrap: not installed" in said
    assert "systemd-nspawn: not installed" in said
    assert "prerequisites --install" in said
    assert not lab.lab.base.exists()


def test_cards_are_seen_after_a_reboot_and_by_a_host_made_anew(base: Path) -> None:
    lab = Driver(base, "labtwo")
    lab("up", "--hosts", "1")
    try:
        lab("cards", "labtwo1", "2")
        assert lab.ssh("labtwo1", LOOK) == TWO
        lab("reboot", "labtwo1")
        assert lab.ssh("labtwo1", LOOK) == TWO
        assert lab.ssh("labtwo1", "cat /sys/class/net/host0/operstate; systemctl is-system-running") == "up\nrunning"
        lab("recreate", "labtwo1")
        assert lab.ssh("labtwo1", LOOK) == TWO
        lab("cards", "labtwo1", "0")
        assert lab.ssh("labtwo1", "ls /dev/dri /sys/class/drm 2>/dev/null || echo none") == "none"
    finally:
        lab("down")
    assert traces(lab.lab) == []
