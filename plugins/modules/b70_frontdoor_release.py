#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_frontdoor_release
short_description: Activate a release of the frontdoor, or restore the previous one
version_added: 0.2.0
description:
  - Writes configuration, keys, units and the link to the environment, and waits until this build answers.
  - Reloads the service if only its settings differ, and restarts it if its program or unit differs, or if it says that
    its new settings need that.
  - If any of this fails, the module restores the configuration, the units and the environment that served before,
    starts the service with them unless it still runs, and fails with the cause and the running build. New keys stay in
    place.
  - For this purpose a copy of the serving release is kept in C(served) below O(config_dir). A first installation has no
    previous release to restore.
  - Configuration, keys and the service's unit are each checked before they are written. Each file and the link is
    replaced atomically.
  - M(arcpro.b70.b70_python_environment) creates the environment first. This environment and the previous one stay.
    Older ones beside them are removed.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    details:
      - The release's own program, which may not be installed yet, checks nothing.
  diff_mode:
    support: full
    details:
      - Keys are shown only by the path of their file.
options:
  state:
    description:
      - V(absent) stops the service and removes everything that V(present) and the environments created, and no other
        file.
    type: str
    choices: [present, absent]
    default: present
  build:
    description:
      - What tells this program and unit from others. The release reports it as C(frontdoor.build), with a dot and the
        digest of its settings and its certificate, which a reload may change. Required with O(state=present).
    type: str
  certificate:
    description: The digest of the certificate.
    type: str
    default: ""
  environment:
    description: The environment of the release. Required with O(state=present).
    type: path
  status_url:
    description: The URL at which the host reads the status. Required with O(state=present).
    type: str
  config:
    description: The text of C(frontdoor.toml). Required with O(state=present).
    type: str
  unit:
    description:
      - The text of C(b70-openai-frontdoor.service). O(build) is written behind its C(B70_FRONTDOOR_BUILD=). Required
        with O(state=present).
    type: str
  helper_unit:
    description: The text of C(b70-slot-admin@.service). Without it the unit is removed.
    type: str
    default: ""
  helper_socket:
    description: The text of C(b70-slot-admin.socket), which then listens. Without it the unit is removed.
    type: str
    default: ""
  api_keys:
    description: The text of C(keys.toml), with the digests of API keys. Without it the file is removed.
    type: str
    default: ""
  admin_keys:
    description: The text of C(admin-keys.toml), with the digests of admin keys. Without it the file is removed.
    type: str
    default: ""
  group:
    description: The group that may read the digests. It is created if it does not exist.
    type: str
    default: b70-frontdoor
  directory:
    description: The directory of the environments.
    type: path
    default: /opt/b70/frontdoor
  link:
    description: The link to the environment in use. Environments have its name, followed by C(-) and a digest.
    type: path
    default: /opt/b70/frontdoor/venv
  config_dir:
    description: The directory of the configuration.
    type: path
    default: /etc/b70-frontdoor
  start_timeout:
    description: How long the service may take to answer after a start, in seconds.
    type: int
    default: 30
  stop_timeout:
    description: How long a process may take to stop, in seconds.
    type: int
    default: 70
"""

EXAMPLES = r"""
- name: Activate the release
  arcpro.b70.b70_frontdoor_release:
    build: "{{ build }}"
    environment: /opt/b70/frontdoor/venv-0123456789ab
    status_url: http://127.0.0.1:8000/status
    config: "{{ lookup('ansible.builtin.template', 'frontdoor.toml.j2') }}"
    unit: "{{ lookup('ansible.builtin.template', 'b70-openai-frontdoor.service.j2') }}"
"""

RETURN = r"""
installed:
  description: Whether O(environment) is complete.
  returned: always
  type: bool
steps:
  description: The steps in order, or in check mode the planned ones. After a failure the intended steps.
  returned: always
  type: list
  elements: str
  sample: ["write /etc/b70-frontdoor/frontdoor.toml"]
summary:
  description: The same as one readable line.
  returned: always
  type: str
journal:
  description: The last lines that the service wrote after its start, without anything that looks like a key.
  returned: when a release was not activated
  type: list
  elements: str
restored:
  description: Whether the previous release was restored and serves.
  returned: when a release was not activated
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release import host, plan, run, spec
from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release.types import ReleaseFault


def main() -> None:
    module = AnsibleModule(
        argument_spec=spec.ARGUMENTS,
        required_if=spec.REQUIRED_IF,
        supports_check_mode=True,
    )
    given = module.params
    place = spec.place(given)
    release = spec.release(given) if given["state"] == "present" else None
    found = host.look(place, given["status_url"] if release else "")
    planned = plan.presence(release, found) if release else plan.absence(place, found, given["stop_timeout"])
    result = {
        "changed": bool(planned.steps),
        "installed": bool(release) and host.installed(given["environment"]),
        "steps": [step.told for step in planned.steps],
        "summary": plan.summary(planned.steps, check_mode=module.check_mode),
        "diff": plan.diff(planned.steps, found),
    }
    try:
        if not module.check_mode:
            run.carry_out(planned, host.ReleaseHost(), release)
    except ReleaseFault as fault:
        module.fail_json(msg=str(fault), **{**result, **fault.evidence})
    module.exit_json(**result)


if __name__ == "__main__":
    main()
