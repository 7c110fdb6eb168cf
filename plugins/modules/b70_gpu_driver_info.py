#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_gpu_driver_info
short_description: Check the driver of a host's cards
version_added: 0.2.0
description:
  - Reports whether the kernel's C(xe) drives every card, and what is known of its GuC firmware under this kernel.
  - Reports driver packages and repositories that do not belong to O(source).
  - Changes nothing.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
options:
  source:
    description: The expected source of the driver.
    type: str
    required: true
    choices: [omix, github, ppa]
  host:
    description: The host, as M(arcpro.b70.b70_host_info) returns it.
    type: dict
    required: true
  suites:
    description: The systems (ID and VERSION_ID of os-release) that the source has packages for.
    type: list
    elements: str
    default: []
  guc_file:
    description: The file of GuC firmware that may replace a refused one. Only its C(version) matters here.
    type: dict
    default: {}
  reboot:
    description: Whether the play may restart the host. RV(outlook) says so.
    type: bool
    default: false
  guc_accepted:
    description: Known bad versions of GuC that are accepted. C(70.58) stands for all versions that start with it.
    type: list
    elements: str
    default: []
  remove_others:
    description: Whether packages of other sources will be removed and are therefore no problem.
    type: bool
    default: false
  own_file:
    description: The role's own file with the repository of the driver, which the role rewrites.
    type: path
    default: /etc/apt/sources.list.d/b70-gpu-driver.sources
  apt_dir:
    description: The directory of apt's configuration.
    type: path
    default: /etc/apt
"""

EXAMPLES = r"""
- name: Look at the host
  arcpro.b70.b70_host_info:
  register: host

- name: Judge what drives its cards
  arcpro.b70.b70_gpu_driver_info:
    source: omix
    host: "{{ host }}"
  register: driver
"""

RETURN = r"""
card_problems:
  description: Cards that cannot be used, with a fix, one sentence each.
  returned: always
  type: list
  elements: str
notes:
  description: Notes for the operator on the cards' firmware.
  returned: always
  type: list
  elements: str
firmware:
  description: Version of O(guc_file), if it is to replace the firmware of the cards. Otherwise empty.
  returned: always
  type: str
  sample: "70.65"
outlook:
  description: What the owner of the host has to know before anything is changed, one sentence each.
  returned: always
  type: list
  elements: str
package_problems:
  description: Packages and repositories of other sources, with a fix.
  returned: always
  type: list
  elements: str
others:
  description: Installed packages of other sources, name to version.
  returned: always
  type: dict
  sample: {"libigc2": "2.40.13+ds1-1~24.04"}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _apt, _files, _gpu_driver


def main() -> None:
    strings = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "str", "required": True, "choices": list(_gpu_driver.SOURCES)},
            "host": {"type": "dict", "required": True},
            "suites": strings,
            "guc_file": {"type": "dict", "default": {}},
            "reboot": {"type": "bool", "default": False},
            "guc_accepted": strings,
            "remove_others": {"type": "bool", "default": False},
            "own_file": {"type": "path", "default": "/etc/apt/sources.list.d/b70-gpu-driver.sources"},
            "apt_dir": {"type": "path", "default": "/etc/apt"},
        },
        supports_check_mode=True,
    )
    params = module.params
    output = module.run_command(["dpkg-query", "--show", f"--showformat={_apt.DPKG_FORMAT}"], check_rc=True)[1]
    installed = _apt.installed_versions(output)
    apt_dir = Path(params["apt_dir"])
    entries = _apt.entries(_files.texts(_apt.source_files(apt_dir, apt_dir / "sources.list.d")))
    host, offer, accepted = params["host"], params["guc_file"], params["guc_accepted"]
    problems, notes = _gpu_driver.judge_cards(host["cards"], host["system"], accepted)
    module.exit_json(
        changed=False,
        card_problems=problems,
        notes=notes,
        firmware=_gpu_driver.firmware_to_install(host, offer, accepted),
        outlook=_gpu_driver.outlook(
            host, {"suites": params["suites"], "offer": offer, "accepted": accepted, "reboot": params["reboot"]}
        ),
        package_problems=_gpu_driver.problems(
            installed, entries, params["source"], params["own_file"], params["remove_others"]
        ),
        others=_gpu_driver.others(installed, params["source"]),
    )


if __name__ == "__main__":
    main()
