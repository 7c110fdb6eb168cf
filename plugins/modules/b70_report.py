#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_report
short_description: Gather what somebody who was not there needs to know of a host
version_added: 0.1.0
description:
  - Makes one archive of the host's system, cards, packages, stacks, slot, logs and of all findings of the doctor.
  - Secrets, names of people and home directories are taken out on the host, before anything leaves it.
  - Every part is bounded, and what could not be had is listed with the reason.
author:
  - arcpro.b70 contributors (@arcpro-b70)
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    support: full
    details:
      - Collects and writes no archive.
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Every run makes an archive of what is there then. It is not reported as a change of the host.
options:
  dest:
    description: The archive to write on the host, a V(.tar.gz). Left out, nothing is written.
    type: path
  name:
    description: Name of the host, for the folder inside the archive.
    type: str
    default: host
  max_item_kib:
    description: Of what is longer than this only the end is kept.
    type: int
    default: 512
  people:
    description: Names of people that are taken out, beside those of the host's accounts.
    type: list
    elements: str
    default: []
  cards:
    description: How many cards there should be. Left out, what the wanted profiles need.
    type: int
  profiles:
    description: Profiles to judge the host by, beside what is served and what starts at boot.
    type: list
    elements: str
    default: []
  manifests:
    description: Stack manifests by name, from the lookup P(arcpro.b70.catalogue#lookup), to judge versions by.
    type: dict
    default: {}
  default_stack:
    description: The manifest by which a host with cards and no used stack for them is judged.
    type: str
    default: lab-2.11
  limit:
    description: After how many seconds what has not answered is reported as such.
    type: int
    default: 60
  slot:
    description: The slot.
    type: str
    default: main
  config_dir:
    description: Directory with the rendered profiles.
    type: path
    default: /etc/b70-vllm-slot
  run_dir:
    description: Directory of the state files.
    type: path
    default: /run/b70
  state_dir:
    description: Directory of journal, evidence and quarantine.
    type: path
    default: /var/lib/b70
  unit_dir:
    description: Where the administrator's systemd units are.
    type: path
    default: /etc/systemd/system
  stack_root:
    description: The directory that holds the stacks.
    type: path
    default: /opt/b70/stacks
  data_dirs:
    description: Directories whose disks need space; sources and results are looked for below the first.
    type: list
    elements: path
    default: [/mnt/fast-ai, /var/cache/b70, /var/lib/b70]
  cache_dirs:
    description: Directories that the service user must be able to write to.
    type: list
    elements: path
    default: [/mnt/fast-ai/vllm-cache-exp, /mnt/fast-ai/llm-cache/hf]
  user:
    description: The service user.
    type: str
    default: b70
  frontdoor_url:
    description: Base URL at which the host reaches its own frontdoor.
    type: str
    default: http://127.0.0.1:8000
seealso:
  - module: arcpro.b70.b70_doctor
"""

EXAMPLES = r"""
- name: Gather
  arcpro.b70.b70_report:
    dest: /var/tmp/report.tar.gz
    name: "{{ inventory_hostname }}"
  register: report

- name: Bring the archive
  ansible.builtin.fetch:
    src: /var/tmp/report.tar.gz
    dest: reports/{{ inventory_hostname }}.tar.gz
    flat: true
"""

RETURN = r"""
size:
  description: Bytes of the archive, 0 where none was written.
  returned: always
  type: int
contents:
  description: What is inside, and what is not and why.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name in the archive; a folder where nothing was found for it.
      type: str
    source:
      description: Command or files it is from.
      type: str
    bytes:
      description: Its size.
      type: int
    truncated:
      description: Whether only its end was kept.
      type: bool
    problem:
      description: Why there is nothing, else empty.
      type: str
redactions:
  description: How often each kind of secret was taken out.
  returned: always
  type: dict
  sample: {header: 2, known secret: 5}
findings:
  description: As of M(arcpro.b70.b70_doctor), redacted.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import options, report


def main() -> None:
    module = AnsibleModule(argument_spec=options.REPORT, supports_check_mode=True)
    made = report.make(module.params)
    data = made.pop("archive")
    size = 0
    if module.params["dest"] and not module.check_mode:
        size = report.write(module.params["dest"], data)
    module.exit_json(changed=False, size=size, **made)


if __name__ == "__main__":
    main()
