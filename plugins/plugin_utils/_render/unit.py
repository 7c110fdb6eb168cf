# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a slot's systemd units. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Layout
from ansible_collections.arcpro.b70.plugins.module_utils._slot_place import MARKER

FRONTDOOR = "b70-openai-frontdoor.service"
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
# A killed engine leaves its shared memory behind; it goes when the last unit of the user has stopped.
RemoveIPC=yes
"""
_FOLDER = re.compile(r"(?:.*_)?(?:HOME|DIR|ROOT|CACHE)")


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


def network_directives(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the directives for the IP addresses of an engine: this host, and what ``engine_ip_allow`` names.

    A profile that may fetch media reaches every address but the link-local ones, unless that list says which.
    """
    host, named = settings["backend_host"], list(settings["engine_ip_allow"])
    own = [] if host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::") else [host]
    domains, interface = profile["engine"]["allowed_media_domains"], profile["engine"]["collectives"].get("interface")
    if interface not in (None, "lo") and not named:
        raise ValueError(
            f"profile {profile['name']}: engine.collectives.interface is {interface}, so the setting "
            "slot_engine_ip_allow must name the addresses that the workers use there"
        )
    denied = "link-local multicast" if domains and not named else "any"
    return [f"IPAddressDeny={denied}", f"IPAddressAllow={' '.join(['localhost', *own, *named])}"]


def folders(env: Mapping[str, str], writable: Sequence[str]) -> list[str]:
    """Return the folders below the writable ones that variables name: HOME, X_DIR, X_CACHE and the like."""
    below = tuple(f"{path}/" for path in writable)
    return sorted({value for name, value in env.items() if _FOLDER.fullmatch(name) and value.startswith(below)})


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
        and the directives ``numa`` and ``network``.
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
        # Five starts in half an hour that nobody asked for are no accident: stay down, and let the frontdoor say so.
        "StartLimitIntervalSec=1800",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=exec",
        f"User={settings['user']}",
        f"Group={settings['group']}",
        f"WorkingDirectory={plain_value(settings['cache_dir'])}",
        f"EnvironmentFile={plain_value(profile_file)}.env",
        # A compiler does without its cache where the folder for it is missing.
        f"ExecStartPre=-/usr/bin/mkdir -p {' '.join(quote(path) for path in folders(engine['env'], list(writable)))}",
        "ExecStart=" + " \\\n    ".join(_grouped(engine["argv"])),
        # Whoever starts it, it is verified before a client reaches it. During a switch that waits for the switch.
        f"ExecStartPost=-+/usr/bin/systemctl start --no-block {settle_name(resolved['slot'])}",
        "KillMode=mixed",
        f"KillSignal={settings['kill_signal']}",
        f"TimeoutStopSec={engine['stop_timeout_s']}",
        "SuccessExitStatus=130 143",
        # Not on-failure: an engine whose worker died ends with status 0. Who stops the unit still stops it.
        "Restart=always",
        "RestartSec=15",
        # A program that is not there does not appear by trying again.
        "RestartPreventExitStatus=203",
        "OOMPolicy=stop",
        "LimitNOFILE=1048576",
        *settings["numa"],
        *settings["network"],
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
