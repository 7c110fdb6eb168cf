#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: b70_evaluate
short_description: Benchmark a host's memory, links, collectives and matrix products, and the network between nodes
version_added: 0.2.0
description:
  - Runs benchmarks one after the other, each with a limit, and compares what they measure with a reference.
  - Uses the vendor's tools (C(ze_peak), C(ze_peer), C(1ccl_benchmark)) where the host has them, and the torch of an
    installed stack. On a host without cards torch measures the processor.
  - On the host that leads a group of nodes, measures the network to the others with C(iperf3) and C(ping), and keeps
    the result on the host, where the guard of a switch reads it. Each of the others runs O(step=listen) before and
    O(step=close) afterwards.
  - Keeps on the host, for the same guard, whether V(peer_access) proved direct access between its cards.
  - Changes nothing else and stops nothing. Fails while an engine runs, unless O(while_served) is set.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    details: Reports the benchmarks that would run, and runs none.
options:
  step:
    description:
      - V(measure) runs the benchmarks.
      - V(listen) starts a server for one measure by the node that leads, as a transient unit without rights. It ends by
        itself after that, or after two minutes for each node of the group. V(close) ends it at once.
    type: str
    choices: [measure, listen, close]
    default: measure
  group:
    description: The group of nodes, as the filter P(arcpro.b70.node_group#filter) returns it for the host that
      measures. Empty is no group.
    type: dict
    default: {}
  node:
    description: With O(step=listen), the name of this host in O(group).
    type: str
    default: ''
  servers:
    description: What RV(reason) said on each of the other nodes, by name.
    type: dict
    default: {}
  state_dir:
    description: The directory that keeps what was measured of the network, and what was proven of direct access between
      cards.
    type: path
    default: /var/lib/b70
  only:
    description:
      - Groups of benchmarks to run - V(network), V(memory), V(p2p), V(collectives), V(gemm), V(peer_access). Empty runs
        all but V(peer_access), by which hosts have lost their cards until a reboot.
    type: list
    elements: str
    default: []
  skip:
    description: Groups of benchmarks to skip.
    type: list
    elements: str
    default: []
  while_served:
    description: Run the benchmarks while an engine runs. They slow it down, and the figures are not comparable.
    type: bool
    default: false
  reference:
    description: Reference figures by name of measure, or the result of an earlier run.
    type: dict
    default: {}
  warn_below:
    description: A measure below this share of its reference is a WARN.
    type: float
    default: 0.95
  fail_below:
    description: A measure below this share of its reference is a FAIL.
    type: float
    default: 0.85
  limit:
    description: Seconds that one benchmark may take.
    type: int
    default: 600
  stack:
    description: Id or name of the stack whose torch runs the benchmarks. The default is the newest for the host's
      device.
    type: str
    default: ''
  stack_root:
    description: The directory of the installed stacks.
    type: path
    default: /opt/b70/stacks
  tool_dirs:
    description: Folders with the vendor's tools, searched before C(PATH).
    type: list
    elements: path
    default: []
  environment_file:
    description: A file with environment variables for the benchmarks, such as those of the compiler.
    type: path
  environment:
    description: Additional environment variables. They override O(environment_file).
    type: dict
    default: {}
  name:
    description: The name of the host, for the summary.
    type: str
    default: host
  fail_on:
    description: The level of the measures that RV(stops) names. V(WARN) includes V(FAIL).
    type: str
    choices: [FAIL, WARN, never]
    default: FAIL
"""

EXAMPLES = r"""
- name: Measure matrix products only
  arcpro.b70.b70_evaluate:
    only: [gemm]
  register: measured
"""

RETURN = r"""
reason:
  description: Why there is no server; empty if there is one.
  returned: with O(step=listen)
  type: str
rows:
  description: One entry per measure, with C(id), C(value), C(unit), C(level), C(reference), C(share), C(tool), C(note).
  returned: with O(step=measure)
  type: list
  elements: dict
counts:
  description: The number of rows of each level.
  returned: always
  type: dict
device:
  description: The measured device, V(xpu) or V(cpu), with the number of cards.
  returned: always
  type: dict
seconds:
  description: The duration in seconds.
  returned: always
  type: float
stops:
  description: Names of the measures at the level of O(fail_on).
  returned: always
  type: list
  elements: str
summary:
  description: The measures as readable lines.
  returned: always
  type: list
  elements: str
"""

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _host, _paths
from ansible_collections.arcpro.b70.plugins.module_utils._evaluate import (
    bench_torch,
    host,
    network,
    peers,
    plan,
    verdicts,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.nodes import Group
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.peer_access import GROUP
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import MASK
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.decode import decode
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Layout


def source_of_script() -> str:
    """Return the source of the script for torch, which runs by itself; a host has it in Ansible's archive."""
    loader: Any = bench_torch.__loader__
    return str(loader.get_source(bench_torch.__name__))


def _mask(cards: Sequence[Mapping[str, Any]], sysfs: Path) -> dict[str, str]:
    """Return the variable that restricts benchmarks to the B70 cards, on a host that also has cards of other models."""
    return {MASK: ",".join(str(card["number"]) for card in cards)} if _host.other_cards(sysfs) and cards else {}


def _rows(bench: plan.Bench, limit: int, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    out, error = ("", "") if bench.reason else host.run(bench, limit, environment)
    return plan.rows_of(bench, out, error)


def measure(wanted: dict[str, Any], check_mode: bool, folder: str) -> dict[str, Any]:
    reference = verdicts.reference_of(wanted["reference"]) if wanted["reference"] else {}
    sysfs = Path("/sys")
    b70 = _host.cards(sysfs)
    cards = len(b70)
    device = "xpu" if cards else "cpu"
    script = os.path.join(folder, "bench_torch.py")
    Path(script).write_text(source_of_script(), encoding="utf-8")
    python = host.stack_python(wanted["stack_root"], wanted["stack"], device)
    serves = wanted["while_served"] and bool(host.served())
    here = plan.HostTools(cards, host.tools(wanted["tool_dirs"]), python, device, script, serves)
    group = decode(Group, wanted["group"]) if wanted["group"] else None
    to_nodes = network.benches(group, here.tools, wanted["servers"], wanted["limit"]) if group else []
    benches = plan.plan(here, wanted["only"], wanted["skip"], to_nodes)
    reference = plan.concerning(benches, reference)
    if not wanted["while_served"] and not check_mode:
        host.check_free()
    file = wanted["environment_file"]
    environment = {**(host.variables(file) if file else {}), **_mask(b70, sysfs), **wanted["environment"]}
    layout = Layout(state_dir=PurePosixPath(wanted["state_dir"]))
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    rows: list[dict[str, Any]] = []
    for bench in benches:
        if check_mode:
            note = bench.reason or "would be measured"
            rows.append({"id": bench.id, "value": None, "unit": "", "tool": bench.tool, "level": "SKIP", "note": note})
            continue
        measured = partial(_rows, bench, wanted["limit"], environment)
        if bench.group != GROUP or bench.reason:
            rows += measured()
        else:
            faults = partial(host.card_faults, time.time())
            rows += peers.prove(bench, measured, faults, Path(layout.peer_access_file), peers.place(), now)
    if group and not check_mode:
        links = network.links_of(group, rows, now)
        if links:
            network.remember(Path(layout.network_file), links)
    compared = verdicts.compare(rows, {} if check_mode else reference, wanted["warn_below"], wanted["fail_below"])
    return {
        "rows": compared,
        "counts": verdicts.counts(compared),
        "device": {"kind": device, "cards": cards},
        "stops": verdicts.stops(compared, wanted["fail_on"]),
        "summary": verdicts.table(compared, wanted["name"]),
    }


def listen(wanted: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    group = decode(Group, wanted["group"])
    node = next((node for node in group.hosts if node.name == wanted["node"]), None)
    if node is None:
        raise ValueError(f"node {wanted['node']!r} is none of the group ({', '.join(one.name for one in group.hosts)})")
    iperf3 = host.tools(wanted["tool_dirs"]).get("iperf3", "")
    if not iperf3:
        return {"reason": network.LACKS.format("iperf3", node.name)}
    if not check_mode:
        if not wanted["while_served"]:
            host.check_free()
        network.listen(group, node, iperf3)
    return {"reason": ""}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "choices": ["measure", "listen", "close"], "default": "measure"},
            "group": {"type": "dict", "default": {}},
            "node": {"type": "str", "default": ""},
            "servers": {"type": "dict", "default": {}},
            "state_dir": {"type": "path", "default": _paths.STATE_DIR},
            "only": {"type": "list", "elements": "str", "default": []},
            "skip": {"type": "list", "elements": "str", "default": []},
            "while_served": {"type": "bool", "default": False},
            "reference": {"type": "dict", "default": {}},
            "warn_below": {"type": "float", "default": 0.95},
            "fail_below": {"type": "float", "default": 0.85},
            "limit": {"type": "int", "default": 600},
            "stack": {"type": "str", "default": ""},
            "stack_root": {"type": "path", "default": _paths.STACK_ROOT},
            "tool_dirs": {"type": "list", "elements": "path", "default": []},
            "environment_file": {"type": "path"},
            "environment": {"type": "dict", "default": {}},
            "name": {"type": "str", "default": "host"},
            "fail_on": {"type": "str", "choices": ["FAIL", "WARN", "never"], "default": "FAIL"},
        },
        supports_check_mode=True,
    )
    started = time.monotonic()
    try:
        if module.params["step"] == "listen":
            module.exit_json(changed=False, **listen(module.params, module.check_mode))
        if module.params["step"] == "close":
            if not module.check_mode:
                network.close()
            module.exit_json(changed=False)
        with tempfile.TemporaryDirectory(prefix="b70-evaluate-") as folder:
            result = measure(module.params, module.check_mode, folder)
    except (host.EvaluateError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, seconds=round(time.monotonic() - started, 1), **result)


if __name__ == "__main__":
    main()
