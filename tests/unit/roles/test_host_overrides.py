# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role host tells other services of a host, as these services read it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"
# As systemd ships it in tmp.conf and private-tmp; an age of 0 stands for one that has passed.
SHIPPED = """\
d /tmp 1777 - - 0
d /var/tmp 1777 - - 0
x /tmp/systemd-private-%b-*
X /tmp/systemd-private-%b-*/tmp
x /var/tmp/systemd-private-%b-*
X /var/tmp/systemd-private-%b-*/tmp
"""


def service(folder: Path, unit: str) -> Path:
    """Make the temporary files of a service with PrivateTmp=yes as systemd places them, and return their folder."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    made = folder / f"systemd-private-{boot}-{unit}-AbCdEf/tmp"
    (made / "pymp-1").mkdir(parents=True)
    for name in ("pymp-1/listener", ".lock"):
        (made / name).touch()
    return made


@pytest.mark.parametrize("folder", ["tmp", "var/tmp"])
def test_the_temporary_files_of_our_services_are_not_cleaned_by_their_age(folder: str, tmp_path: Path) -> None:
    ours, other = (service(tmp_path / folder, unit) for unit in ("b70-slot-main-a.service", "other.service"))
    rules = SHIPPED + (TEMPLATES / "tmpfiles-b70.conf.j2").read_text()
    lines = [line.replace(" /", f" {tmp_path}/", 1) for line in rules.splitlines() if not line.startswith("#")]
    (tmp_path / "rules.conf").write_text("\n".join(lines) + "\n")
    subprocess.run(["systemd-tmpfiles", "--clean", str(tmp_path / "rules.conf")], check=True, timeout=60)
    assert sorted(path.name for path in ours.rglob("*")) == [".lock", "listener", "pymp-1"]
    assert list(other.rglob("*")) == [], "the rules clean as on a host"
