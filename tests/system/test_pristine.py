# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A prediction (``site.yml --check --diff``) of a bare host says what it needs and leaves it as it was."""

from __future__ import annotations

from testinfra.host import Host

from system.product import ROOT, play, words_of

MARKER = "/var/tmp/pristine"
# What a running system writes on its own: logs, timers (dpkg copies its database at midnight), the remains of a login.
ALIVE = (
    *("/run", "/tmp", "/var/tmp", "/var/log", "/var/backups", "/var/lib/systemd", "/root/.ansible"),
    *("/proc", "/sys", "/dev"),
)
# All hosts of a checkout's labs share this one, and other steps may fill it meanwhile. What fills it from this host is
# below /opt/b70, of which nothing may be there.
SHARED = ("/var/cache/b70",)


def changed_files(host: Host, marker: str = MARKER) -> list[str]:
    """Return the files of the host that are newer than the marker, without what lives on its own."""
    prune = " -o ".join(f"-path {path}" for path in ALIVE + SHARED)
    found = host.check_output(f"find / -xdev \\( {prune} \\) -prune -o -cnewer {marker} ! -type d -print")
    return [path for path in found.splitlines() if path != marker]


def test_a_prediction_names_the_stack_of_the_profile_and_changes_nothing(host: Host) -> None:
    predicted = play(ROOT / "site.yml", "--check", "--diff", "-e", "profile=tiny-a")
    assert predicted.code == 0, predicted.output
    assert "tiny-a; it was asked for. Stacks on this host: cpu." in words_of(predicted.output)
    assert "would install stack cpu-" in predicted.output
    assert "would install stack xpu" not in predicted.output
    assert changed_files(host) == []
    for path in ("/opt/b70", "/etc/b70-vllm-slot", "/var/lib/b70", "/run/b70", "/mnt/fast-ai"):
        assert not host.file(path).exists, path
    assert not host.user("b70").exists
    assert host.run("systemctl list-unit-files 'b70-*' --no-legend").stdout == ""
