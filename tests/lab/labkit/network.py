# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own bridge, subnet and nft table, and the way out through this machine."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path

from .common import LabError, locked, run, say, write_atomic
from .layout import RUN_DIR, Lab, State

_CANDIDATES = [IPv4Network((0x0AD50000 | third << 8, 24)) for third in range(70, 256)]  # 10.213.70.0/24 upward
_IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
_FORWARD_BEFORE = RUN_DIR / "ip_forward"


def used_networks(routes: str) -> list[IPv4Network]:
    """The networks in the output of `ip -4 route show table all`; the default route is none."""
    found = []
    for line in routes.splitlines():
        words = line.split()
        if words and words[0] in ("unreachable", "blackhole", "prohibit", "local", "broadcast", "multicast"):
            words = words[1:]
        if not words or words[0] == "default":
            continue
        with contextlib.suppress(ValueError):
            network = IPv4Network(words[0], strict=False)
            if network.prefixlen > 0:
                found.append(network)
    return found


def free_subnet(used: Iterable[IPv4Network]) -> IPv4Network:
    """The first candidate that overlaps no route of the machine. Raises LabError when all are taken."""
    taken = list(used)
    for candidate in _CANDIDATES:
        if not any(candidate.overlaps(network) for network in taken):
            return candidate
    raise LabError("every subnet from 10.213.70.0/24 to 10.213.255.0/24 is in use", "take down labs you do not need")


def rules(lab: Lab, subnet: str, nat: bool) -> str:
    """The lab's nft table as a script that replaces the former one in one step."""
    outside = (
        f'iifname "{lab.bridge}" accept\n    oifname "{lab.bridge}" ct state established,related accept'
        if nat
        else f'iifname "{lab.bridge}" reject with icmp type admin-prohibited\n    oifname "{lab.bridge}" drop'
    )
    masquerade = (
        f"""
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {subnet} oifname != "{lab.bridge}" masquerade
  }}"""
        if nat
        else ""
    )
    return f"""table ip {lab.table}
delete table ip {lab.table}
table ip {lab.table} {{
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{lab.bridge}" oifname "{lab.bridge}" accept
    iifname "{lab.bridge}" tcp flags syn / syn,rst tcp option maxseg size set rt mtu
    {outside}
  }}{masquerade}
}}
"""


def bridges() -> dict[str, str]:
    """Bridge -> alias of every lab bridge of the machine."""
    links = json.loads(run(["ip", "-j", "link", "show", "type", "bridge"]).stdout or "[]")
    aliases = {link["ifname"]: link.get("ifalias", "") for link in links if link}
    return {name: alias for name, alias in aliases.items() if alias.startswith("b70-lab ")}


def choose(lab: Lab, state: State | None) -> State:
    """The lab's state with a subnet that is free now: the one it has, unless somebody else took it meanwhile."""
    routes = run(["ip", "-4", "route", "show", "table", "all"]).stdout
    others = "\n".join(line for line in routes.splitlines() if f"dev {lab.bridge}" not in line)
    used = used_networks(others)
    if state is not None and not any(state.network.overlaps(network) for network in used):
        return state
    subnet = str(free_subnet(used))
    return State(subnet, state.hosts if state else [], state.nat if state else True)


def up(lab: Lab, state: State | None) -> tuple[State, bool]:
    """Make or repair bridge, address, forwarding and rules.

    Returns the state, saved, and whether the hosts have lost it: another subnet, a new bridge, no state.
    """
    with locked(RUN_DIR / "network.lock", "the network of the labs", 240):
        chosen = choose(lab, state)
        moved = state is None or state.subnet != chosen.subnet
        chosen.save(lab)
        moved = _bridge(lab, chosen) or moved
        if _IP_FORWARD.read_text(encoding="ascii").strip() == "0":
            write_atomic(_FORWARD_BEFORE, "0\n")
            _IP_FORWARD.write_text("1", encoding="ascii")
        apply_rules(lab, chosen)
    return chosen, moved


def _bridge(lab: Lab, state: State) -> bool:
    """Make or repair the bridge; returns whether it is a new one."""
    wanted = f"{state.gateway}/24"
    links = json.loads(run(["ip", "-j", "link", "show"]).stdout)
    existing = next((link for link in links if link["ifname"] == lab.bridge), None)
    if existing is not None and existing.get("ifalias") not in (lab.bridge_alias, None):
        raise LabError(f"interface {lab.bridge} exists and is not of this lab", f"ip link del {lab.bridge}")
    if existing is None:
        say(f"network {state.subnet} on bridge {lab.bridge}")
        run(["ip", "link", "add", lab.bridge, "type", "bridge"])
    # Without an alias it is ours too: we were killed between these two commands, and the name has our hash in it.
    run(["ip", "link", "set", lab.bridge, "alias", lab.bridge_alias])
    present = json.loads(run(["ip", "-j", "-4", "address", "show", "dev", lab.bridge]).stdout)
    addresses = [f"{a['local']}/{a['prefixlen']}" for link in present for a in link.get("addr_info", [])]
    for stale in (address for address in addresses if address != wanted):
        run(["ip", "address", "del", stale, "dev", lab.bridge])
    if wanted not in addresses:
        run(["ip", "address", "add", wanted, "dev", lab.bridge])
    run(["ip", "link", "set", lab.bridge, "up"])
    return existing is None


def apply_rules(lab: Lab, state: State) -> None:
    run(["nft", "-f", "-"], stdin=rules(lab, state.subnet, state.nat))
    _through_foreign_drop(lab, state.nat)


def _through_foreign_drop(lab: Lab, nat: bool) -> None:
    """Docker and firewalls set the policy of the FORWARD chain to drop; an accept in our own table cannot undo that.

    So two rules go into their chain, marked with a comment; `down` takes them out.
    """
    if shutil.which("iptables") is None:
        return
    listed = run(["iptables", "-w", "5", "-S"], check=False).stdout
    ours = [line for line in listed.splitlines() if _comment(lab) in line]
    dropping = re.search(r"^-P FORWARD DROP$", listed, re.MULTILINE) is not None
    if nat and dropping and not ours:
        chain = "DOCKER-USER" if "-N DOCKER-USER" in listed else "FORWARD"
        for side in ("-i", "-o"):
            comment = ["-m", "comment", "--comment", _comment(lab)]
            run(["iptables", "-w", "5", "-I", chain, side, lab.bridge, *comment, "-j", "ACCEPT"])
    elif ours and not nat:
        _remove_foreign(lab)


def _remove_foreign(lab: Lab) -> None:
    if shutil.which("iptables") is None:
        return
    for line in run(["iptables", "-w", "5", "-S"], check=False).stdout.splitlines():
        if line.startswith("-A ") and _comment(lab) in line:
            words = [word.strip('"') for word in line.split()]
            run(["iptables", "-w", "5", "-D", *words[1:]], check=False)


def _comment(lab: Lab) -> str:
    return f"b70-lab-{lab.tag}"


def down(lab: Lab) -> list[str]:
    """Remove what `up` made; returns the names of what there was. ip_forward returns with the last lab."""
    removed = []
    with locked(RUN_DIR / "network.lock", "the network of the labs", 240):
        listed = shutil.which("nft") and run(["nft", "list", "table", "ip", lab.table], check=False)
        if listed and listed.returncode == 0:
            run(["nft", "delete", "table", "ip", lab.table])
            removed.append(f"nft table {lab.table}")
        _remove_foreign(lab)
        if Path(f"/sys/class/net/{lab.bridge}").exists():
            run(["ip", "link", "del", lab.bridge])
            removed.append(f"bridge {lab.bridge}")
        if not bridges():
            if _FORWARD_BEFORE.exists():
                _IP_FORWARD.write_text(_FORWARD_BEFORE.read_text(encoding="ascii").strip(), encoding="ascii")
                removed.append("ip_forward (set back)")
            shutil.rmtree(RUN_DIR)
    return removed
