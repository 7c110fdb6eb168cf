# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a slot's systemd units. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import MASK, NODES_LIMIT_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.power import FOLDER
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import NODE_KEY, Layout, Which
from ansible_collections.arcpro.b70.plugins.module_utils._slot_place import MARKER

from .._nodes import NodePlace
from .launch import HARDENING, Launch
from .program import PACKAGE
from .quoting import plain_value, quote, quote_path
from .relay import relay_credentials, relay_name, relay_network

FRONTDOOR = "b70-openai-frontdoor.service"


def unit_name(name: str, slot: str = "main", which: Which = None) -> str:
    """Return the unit of a profile in a slot, or that of one of its engines."""
    return Layout(slot=slot).unit(name, which)


def controller_name(slot: str = "main") -> str:
    """Return the unit that keeps a slot serving what was committed."""
    return Layout(slot=slot).controller_unit


def network_directives(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the directives for the IP addresses of an engine: this host, and what ``engine_ip_allow`` names.

    A profile that may fetch media reaches every address except link-local and multicast ones, unless that list names
    some. One of several nodes reaches the others.
    """
    host, named = settings["backend_host"], list(settings["engine_ip_allow"])
    if profile.get("node"):
        named += profile["node"].addresses
    own = [] if host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::") else [host]
    domains, interface = profile["engine"]["allowed_media_domains"], profile["engine"]["collectives"].get("interface")
    if profile["engine"].get("remote"):
        return relay_network(profile["engine"]["remote"], own)
    if interface not in (None, "lo") and not named:
        raise ValueError(
            f"profile {profile['name']}: engine.collectives.interface is {interface}, so the setting "
            "slot_engine_ip_allow must name the addresses that the workers use there"
        )
    denied = "link-local multicast" if domains and not named else "any"
    node = profile.get("node")
    # Another host that takes an address of a node is not on the node's interface.
    tied = [f"RestrictNetworkInterfaces=lo {node.interface}"] if node and not settings["engine_ip_allow"] else []
    return [f"IPAddressDeny={denied}", f"IPAddressAllow={' '.join(['localhost', *own, *named])}", *tied]


def power_directives(watts: int | None) -> list[str]:
    """Return the directive that marks units with this power cap; systemd ignores keys that begin with X-."""
    return [] if watts is None else [f"X-PowerCapWatts={watts}"]


def _power(resolved: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the directives that cap the cards before the engine starts, and those that undo it after it has ended.

    Root runs them, outside the engine's confinement.
    """
    watts, mask = resolved.get("power_cap_w"), resolved["engine"]["env"].get(MASK, "")
    if watts is None:
        return [], []
    program = f"/usr/bin/python3 -I -B {quote(settings['lib_dir'] + '/' + PACKAGE + '/power.py')}"
    kept = f"--unit %n --keep {quote(settings['run_dir'] + '/' + FOLDER)}"
    cards = f" --cards {mask}" if re.fullmatch(r"\d+(,\d+)*", mask) else ""
    return (
        [*power_directives(watts), f"ExecStartPre=+{program} set {kept} --watts {watts}{cards}"],
        # A failure here does not make a stop fail.
        [f"ExecStopPost=-+{program} restore {kept}"],
    )


def controller_text(program: str, slot: str) -> str:
    """Return the unit of the slot's controller.

    It is ordered neither before nor after the units of engines: however it ends, those go on, and the next one
    continues from what it sees.

    :param program: path of b70ctl.
    """
    lines = [
        MARKER,
        "[Unit]",
        f"Description=Controller of the b70 slot {slot}",
        "Wants=network-online.target",
        f"After=network-online.target {FRONTDOOR}",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={quote_path(program)} run",
        # Engines that start or end have it look at once.
        "ExecReload=/usr/bin/kill -HUP $MAINPID",
        # It ends by itself when its program is replaced.
        "Restart=always",
        "RestartSec=2",
        "KillMode=mixed",
        "TimeoutStopSec=15",
        "Nice=5",
        "NoNewPrivileges=yes",
        # liveness.device_loss: rebind writes here; the rest of /sys stays read-only.
        "ReadWritePaths=-/sys/bus/pci/drivers/xe",
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


def unit_text(resolved: Mapping[str, Any], settings: Mapping[str, Any], launch: Launch) -> str:
    """Return the unit of one resolved profile. A drop-in keeps it exclusive, see `b70_slot_files`.

    :param resolved: as the host gets it; for a replica, with the unit and the engine of that replica.
    :param settings: the slot's settings (see ``arcpro.b70.render_slot``), with the profile's ``kill_signal``, the
        directives ``numa`` and ``network``, and its ``env_file``.
    :param launch: how the program of its stack is started.
    """
    engine = resolved["engine"]
    if engine.get("remote"):
        return _relay_text(resolved, settings)
    profile_file = f"{settings['config_dir']}/profiles/{resolved['name']}"
    later, node = engine.get("start_after_s", 0), resolved.get("node")
    follows = bool(node and node["rank"])
    service = launch.service(resolved, settings)
    capped, uncapped = _power(resolved, settings)
    models = [resolved["model"]["path"], *resolved["model"].get("companions", [])]
    mounts = dict.fromkeys([*models, *service.mounts, settings["cache_dir"], settings["hf_home"]])
    lines = [
        MARKER,
        f"# Changes of your own belong in a drop-in: systemctl edit {resolved['unit']}",
        "[Unit]",
        f"Description={plain_value('b70 slot ' + resolved['slot'] + ': ' + resolved['title'])}",
        f"Documentation=file:{profile_file}.json",
        "Wants=network-online.target",
        "After=network-online.target",
        # The other nodes hear of it through that service.
        *([f"Wants={node_name(resolved['slot'])}", f"After={node_name(resolved['slot'])}"] if node else []),
        f"RequiresMountsFor={' '.join(quote_path(path) for path in mounts)}",
        # Five starts in half an hour that nobody asked for are no accident: stay down, and let the frontdoor say so.
        "StartLimitIntervalSec=1800",
        "StartLimitBurst=5",
        "",
        "[Service]",
        *service.head,
        # The wait is here, so that replicas take turns whatever starts them: a switch, the boot, or systemd after all
        # crashed.
        *([f"ExecStartPre=/usr/bin/sleep {later}", f"TimeoutStartSec={90 + later}"] if later else []),
        *(_awaits_nodes(resolved["name"], settings) if node and not follows else []),
        *capped,
        # If the folder for its cache is missing, a compiler does without it.
        f"ExecStartPre=-{' '.join(quote(word) for word in service.folders)}",
        "ExecStart=" + " \\\n    ".join(_grouped(service.argv)),
        *([] if follows else [f"ExecStartPost={_told(resolved['slot'])}"]),
        *service.stop,
        *([] if follows else [f"ExecStopPost={_told(resolved['slot'])}"]),
        *uncapped,
        "KillMode=mixed",
        f"KillSignal={settings['kill_signal']}",
        f"TimeoutStopSec={service.stop_timeout_s}",
        f"SuccessExitStatus={kind_of(engine['kind']).success_statuses}",
        *(_FOLLOWER_RESTART if follows else _RESTART),
        # Another try does not make a missing program appear.
        f"RestartPreventExitStatus={service.missing}",
        "OOMPolicy=stop",
        # Under pressure, systemd-oomd looks for something else first.
        "ManagedOOMPreference=avoid",
        *service.confined,
        *([] if follows else ["", "[Install]", "WantedBy=multi-user.target"]),
    ]
    return "\n".join(lines) + "\n"


# Not on-failure: an engine whose worker died ends with status 0. Stopping the unit still stops it.
_RESTART = ("Restart=always", "RestartSec=15")
# The process group is formed once: when one part ends, all of them start again.
_FOLLOWER_RESTART = ("Restart=no",)


def _told(slot: str) -> str:
    """Return the command that has the slot's controller look at once. It looks soon anyway."""
    return f"-+/usr/bin/systemctl kill --signal=HUP --kill-whom=main {controller_name(slot)}"


def _awaits_nodes(profile: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the directives that delay the engine until the other nodes have started their parts."""
    program = quote_path(f"{settings['bin_dir']}/{settings['command']}")
    return [f"ExecStartPre=+{program} await-nodes {profile}", f"TimeoutStartSec={NODES_LIMIT_S + 90:g}"]


def node_name(slot: str = "main") -> str:
    """Return the unit that speaks with the other nodes of a group."""
    return Layout(slot=slot).node_unit


_WRITTEN = ("config_dir", "run_dir", "state_dir", "unit_dir")  # by a switch
_NODE_HARDENING = (
    "UMask=0022",
    "NoNewPrivileges=yes",
    "DevicePolicy=closed",
    "DeviceAllow=char-drm rw",
    "PrivateTmp=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "KeyringMode=private",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@resources",
    "SystemCallErrorNumber=EPERM",
    "LimitCORE=0",
)


def node_text(program: str, slot: str, place: NodePlace, settings: Mapping[str, str]) -> str:
    """Return the unit that makes a host part of a group of nodes.

    :param program: path of b70ctl.
    :param settings: the slot's settings (see ``arcpro.b70.render_slot``).
    """
    frontdoor = urlsplit(settings["frontdoor_url"]).hostname or ""
    own = [frontdoor] if re.fullmatch(r"[0-9.]+|[0-9a-f:]+", frontdoor) else []
    lines = [
        MARKER,
        "[Unit]",
        f"Description=Node {place.rank} of the group that {place.hosts[0][0]} leads, b70 slot {slot}",
        "Wants=network-online.target",
        "After=network-online.target",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        f"LoadCredential={NODE_KEY}:{settings['config_dir']}/keys/{NODE_KEY}",
        f"ExecStart={quote_path(program)} node",
        # It ends by itself, with status 0, once the host belongs to no group.
        "Restart=on-failure",
        "RestartSec=2",
        # It brings what it has begun in the slot to an end.
        "KillMode=mixed",
        "TimeoutStopSec=15",
        # It runs as root, because it starts and stops units and runs switches, with the rights that `admin` has for
        # these.
        f"ReadWritePaths={' '.join(quote_path(settings[key]) for key in _WRITTEN)}",
        "CapabilityBoundingSet=CAP_DAC_READ_SEARCH CAP_PERFMON CAP_SYS_PTRACE",
        *_NODE_HARDENING,
        "IPAddressDeny=any",
        f"IPAddressAllow={' '.join(dict.fromkeys(['localhost', *own, *place.addresses]))}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


# A relay does not need what an engine needs: devices, writable and executable memory, a user who owns a cache.
_RELAY_HARDENING = """\
DynamicUser=yes
PrivateDevices=yes
ProtectClock=yes
ProtectProc=invisible
ProcSubset=pid
MemoryDenyWriteExecute=yes
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
# The memory of the relay holds the key.
LimitCORE=0
"""


def _relay_text(resolved: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the unit of a profile whose engine is elsewhere."""
    engine, slot = resolved["engine"], resolved["slot"]
    profile_file = f"{settings['config_dir']}/profiles/{resolved['name']}"
    program = f"{settings['lib_dir']}/b70slot/relay.py"
    lines = [
        MARKER,
        f"# Changes of your own belong in a drop-in: systemctl edit {resolved['unit']}",
        "[Unit]",
        f"Description={plain_value('b70 slot ' + slot + ': relay to ' + resolved['title'])}",
        f"Documentation=file:{profile_file}.json",
        "Wants=network-online.target",
        "After=network-online.target",
        "StartLimitIntervalSec=1800",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=exec",
        f"EnvironmentFile={plain_value(profile_file)}.env",
        *relay_credentials(engine["remote"]),
        f"RuntimeDirectory={relay_name(slot)}",
        "RuntimeDirectoryMode=0700",
        # The key goes from the credential into a file that ends with the unit.
        f"ExecStartPre=/usr/bin/python3 -I -B {quote(program)}",
        f"ExecStart={' '.join(map(quote, engine['argv']))}",
        f"ExecStartPost={_told(slot)}",
        f"ExecStopPost={_told(slot)}",
        f"KillSignal={settings['kill_signal']}",
        f"TimeoutStopSec={engine['stop_timeout_s']}",
        f"SuccessExitStatus={kind_of(engine['kind']).success_statuses}",
        "Restart=always",
        "RestartSec=5",
        "RestartPreventExitStatus=203",
        "LimitNOFILE=65536",
        *settings["network"],
        HARDENING,
        _RELAY_HARDENING.rstrip("\n"),
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
