#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: b70_load_balancer_member
short_description: Drain a host on a load balancer, or take it back
version_added: 0.2.0
description:
  - Runs on a load balancer. Sets the state of all HAProxy servers that have the host's name, and waits.
  - A drained host gets no new requests. Its running requests continue. It stays drained when HAProxy reloads or
    restarts.
  - A load balancer that cannot be reached, whose HAProxy does not answer, or that does not know the host, is a warning
    and no failure.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    details:
      - Predicts the change and does not wait.
  diff_mode:
    support: full
options:
  name:
    description: The name of the host in HAProxy's configuration, which is its name in the inventory.
    type: str
    required: true
  state:
    description:
      - With V(drained), the module waits until no request is under way on the host. If that takes longer than
        O(timeout), it warns.
      - With V(ready), it waits until the host's health check has passed. If that takes longer than O(timeout), it
        warns. With O(timeout=0), it neither waits nor warns.
    type: str
    choices: [drained, ready]
    required: true
  timeout:
    description: How long to wait, in seconds.
    type: int
    default: 300
  min_ready:
    description:
      - How many hosts of each backend stay in service, as a number or a share such as V(50%), by the backend's name.
        The value of an empty name is for all others. With V(drained), a host that is needed for that stays as it is,
        and RV(refused) says so. The only host of a backend is always drained.
    type: dict
    default: {}
  socket:
    description: The socket of HAProxy's master process.
    type: path
    default: /run/haproxy-master.sock
  state_file:
    description: The file from which HAProxy reads, when it starts or reloads, which servers are drained.
    type: path
    default: /var/lib/b70-load-balancer/server-state
"""

EXAMPLES = r"""
- name: Drain this host on every load balancer
  arcpro.b70.b70_load_balancer_member:
    name: "{{ inventory_hostname }}"
    state: drained
  delegate_to: "{{ item }}"
  loop: "{{ groups['b70_load_balancers'] }}"
"""

RETURN = r"""
answered:
  description: Whether the load balancer was reached and its HAProxy answered.
  returned: always
  type: bool
known:
  description: Whether HAProxy's configuration has the host. False if HAProxy did not answer.
  returned: always
  type: bool
servers:
  description: The servers of the host, one for each backend, with their states from before.
  returned: always
  type: list
  elements: dict
  sample: [{"backend": "b70", "state": "ready"}]
in_service:
  description: Whether the host gets new requests. With O(state=ready), as far as O(timeout) let the module wait for it.
  returned: always
  type: bool
refused:
  description: Why the host was not drained, because of O(min_ready). Empty if it was.
  returned: always
  type: str
sessions:
  description: How many requests were under way on the host at the end.
  returned: always
  type: int
summary:
  description: The result as one readable line.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._load_balancer import host
from ansible_collections.arcpro.b70.plugins.module_utils._load_balancer.dialect import LoadBalancerFault


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "ready"], "required": True},
            "timeout": {"type": "int", "default": 300},
            "min_ready": {"type": "dict", "default": {}},
            "socket": {"type": "path", "default": "/run/haproxy-master.sock"},
            "state_file": {"type": "path", "default": "/var/lib/b70-load-balancer/server-state"},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        member = host.LoadBalancedHost(host.Master(given["socket"]), given["name"], given["state_file"])
        result = member.bring_to(
            given["state"], given["timeout"], write=not module.check_mode, floors=given["min_ready"]
        )
    except (LoadBalancerFault, OSError, ValueError) as fault:
        module.fail_json(msg=str(fault))
    for warning in result.warnings:
        module.warn(warning)
    module.exit_json(**result.told())


if __name__ == "__main__":
    main()
