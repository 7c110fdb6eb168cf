# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a slot's systemd units. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ._slot.types import Layout

FRONTDOOR = "b70-openai-frontdoor.service"
MARKER = "# Managed by Ansible, collection arcpro.b70, role slot."
# Private devices, private users and no writable-executable memory would break /dev/dri, the render group and the JIT.
# ProtectClock= is left out as well: it turns on a device policy that hides /dev/dri.
_HARDENING = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
UMask=0027
"""


def quote(word: str) -> str:
    """Return one argument as systemd must read it: specifiers and variables switched off, quoted where needed."""
    text = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    text = text.replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return text if re.fullmatch(r"[^\s'\";]+", text) else f'"{text}"'


def plain_value(text: str) -> str:
    """Return text for a directive that takes it as it is (Description=, paths): one line, specifiers switched off."""
    return " ".join(text.replace("%", "%%").split())


def _path(path: str) -> str:
    return quote(path).replace("$$", "$")


def unit_name(name: str, slot: str = "main") -> str:
    """Return the unit of a profile in a slot."""
    return f"b70-slot-{slot}-{name}.service"


def settle_name(slot: str = "main") -> str:
    """Return the unit that verifies what runs in a slot."""
    return Layout(slot=slot).settle_unit


def settle_text(program: str, slot: str, units: Sequence[str]) -> str:
    """Return the unit that verifies the slot's engine at boot and after every start of it.

    :param program: path of b70ctl.
    :param units: the slot's units. Their starts come first, so that there is something to look at.
    """
    lines = [
        MARKER,
        "[Unit]",
        f"Description=Verification of what runs in the b70 slot {slot}",
        "Wants=network-online.target",
        "After=network-online.target",
        f"After={FRONTDOOR}",
        *(f"After={unit}" for unit in units),
        # A start while this runs is none of its own: what started is seen by this one.
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        # Not oneshot: the boot would not be done before the model is loaded.
        "Type=exec",
        f"ExecStart={_path(program)} recover --boot",
        # Nobody else would: it is what settles a switch that was killed.
        "Restart=on-abnormal",
        "RestartSec=2",
        # It ends what it waits for by itself and leaves an entry in the journal that the next one settles.
        "KillMode=mixed",
        "TimeoutStopSec=15",
        "Nice=5",
        "NoNewPrivileges=yes",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "ProtectKernelTunables=yes",
        "ProtectKernelModules=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def unit_text(resolved: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the unit of one resolved profile. What keeps it exclusive is a drop-in, see `b70_slot_files`.

    :param settings: the slot's settings (see ``arcpro.b70.render_slot``), with the profile's ``kill_signal``
        and the directives ``numa``.
    """
    engine = resolved["engine"]
    profile_file = f"{settings['config_dir']}/profiles/{resolved['name']}"
    mounts = dict.fromkeys(
        [resolved["model"]["path"], resolved["stack"]["dir"], settings["cache_dir"], settings["hf_home"]]
    )
    writable = dict.fromkeys([settings["cache_dir"], settings["hf_home"]])
    lines = [
        MARKER,
        f"# Changes of your own belong in a drop-in: systemctl edit {resolved['unit']}",
        "[Unit]",
        f"Description={plain_value('b70 slot ' + resolved['slot'] + ': ' + resolved['title'])}",
        f"Documentation=file:{profile_file}.json",
        "Wants=network-online.target",
        "After=network-online.target",
        f"RequiresMountsFor={' '.join(_path(path) for path in mounts)}",
        # Five failed starts in half an hour are no accident: stay down, and let the frontdoor say so.
        "StartLimitIntervalSec=1800",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=exec",
        f"User={settings['user']}",
        f"Group={settings['group']}",
        f"WorkingDirectory={plain_value(settings['cache_dir'])}",
        f"EnvironmentFile={plain_value(profile_file)}.env",
        "ExecStart=" + " \\\n    ".join(_grouped(engine["argv"])),
        # Whoever starts it, it is verified before a client reaches it. During a switch that waits for the switch.
        f"ExecStartPost=-+/usr/bin/systemctl start --no-block {settle_name(resolved['slot'])}",
        "KillMode=mixed",
        f"KillSignal={settings['kill_signal']}",
        f"TimeoutStopSec={engine['stop_timeout_s']}",
        "SuccessExitStatus=130 143",
        "Restart=on-failure",
        "RestartSec=15",
        # A program that is not there does not appear by trying again.
        "RestartPreventExitStatus=203",
        "OOMPolicy=stop",
        "LimitNOFILE=1048576",
        *settings["numa"],
        _HARDENING.rstrip("\n"),
        f"ReadWritePaths={' '.join(_path(path) for path in writable)}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _grouped(argv: Sequence[str]) -> list[str]:
    """Return the quoted arguments, one flag with its values per line, so that a diff shows what changed."""
    rows: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--"):
            rows.append([])
        rows[-1].append(quote(word))
    return [" ".join(row) for row in rows if row]
