# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last step of a build, called by mmdebstrap as `python3 -m labkit.image_hook ROOT SPEC`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import sources

# They would run apt at a random moment and hold its lock while a role installs.
_MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "apt-daily.service", "apt-daily-upgrade.service")


def _trust(root: Path) -> None:
    bundle = root / sources.CA_BUNDLE.relative_to("/")
    if not sources.CA_BUNDLE.exists():
        return
    machine, image = sources.CA_BUNDLE.read_text("utf-8"), bundle.read_text("utf-8")
    missing = sources.missing_certificates(machine, image)
    for number, certificate in enumerate(missing):
        target = root / f"usr/local/share/ca-certificates/machine-{number:03d}.crt"
        target.write_text(certificate + "\n", encoding="ascii")
    if missing:
        subprocess.run(["chroot", root, "update-ca-certificates"], check=True)


def _apt(root: Path, spec: dict[str, Any]) -> None:
    for inside, outside in spec["keyrings"].items():
        target = root / inside.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(outside, target)
    for other in (root / "etc/apt/sources.list.d").glob("*"):
        other.unlink()
    (root / "etc/apt/sources.list").write_text("".join(f"{line}\n" for line in spec["sources"]), encoding="utf-8")
    for archive in (root / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    config = os.environ.get("MMDEBSTRAP_APT_CONFIG")
    environment = {**os.environ, **({"APT_CONFIG": config} if config else {})}
    known = subprocess.run(["apt-cache", "pkgnames"], env=environment, check=True, capture_output=True, text=True)
    names = set(known.stdout.split())
    wanted = [name for name in spec["downloads"] if name in names]
    if wanted:
        # Only the archives: the host stays fresh, and no host of the lab downloads them again.
        argv = ["apt-get", "-y", "-q", "--no-install-recommends", "--download-only", "install", *wanted]
        subprocess.run(argv, env=environment, check=True)


def _fresh(root: Path) -> None:
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/ssh/sshd_config.d/10-lab.conf").write_text(
        "HostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\nMaxStartups 100\nMaxSessions 100\n", encoding="ascii"
    )
    (root / "etc/default/locale").write_text("LANG=C.UTF-8\n", encoding="ascii")
    units = root / "etc/systemd/system"
    for unit in _MASKED:
        (units / unit).symlink_to("/dev/null")
    subprocess.run(["systemctl", f"--root={root}", "enable", "systemd-networkd.service"], check=True)


if __name__ == "__main__":
    tree = Path(sys.argv[1])
    data = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    _trust(tree)
    _apt(tree, data)
    _fresh(tree)
