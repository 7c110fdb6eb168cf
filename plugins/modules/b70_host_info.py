#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_host_info
short_description: Inspect a host for the roles
version_added: 0.2.0
description:
  - Reads, in one round trip, the facts that the roles need - the system, its Arc Pro B70 cards, the installed stacks,
    the service user, missing packages, the state of directories, and files that differ from what is wanted.
  - Changes nothing.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
options:
  stack_root:
    description: The directory that holds the stacks.
    type: path
    default: /opt/b70/stacks
  tools_dir:
    description: The virtual environment with uv.
    type: path
    default: /opt/b70/tools
  python:
    description: The Python that stacks are created with.
    type: path
    default: /usr/bin/python3
  user:
    description: The service user.
    type: str
    default: b70
  groups:
    description: Groups to look up.
    type: list
    elements: str
    default: [render, video]
  packages:
    description: Distribution packages to look up.
    type: list
    elements: str
    default: []
  kernel_packages:
    description: Packages with a kernel that the host must run. They count as O(packages).
    type: list
    elements: str
    default: []
  kernel_arguments:
    description: Arguments that the running kernel must have been given.
    type: list
    elements: str
    default: []
  card_kernels:
    description:
      - Kernels for hosts with cards, by system (ID and VERSION_ID of os-release).
      - Each has C(oldest), the oldest kernel that knows the cards, and C(packages), which count as
        O(kernel_packages) on a host that has a card and runs an older one.
    type: dict
    default: {}
  directories:
    description: Directories that the roles need.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The path. Links are followed.
        type: path
        required: true
      writable:
        description: Whether O(user) must be able to write to it.
        type: bool
        default: false
  paths:
    description: Other paths to inspect.
    type: list
    elements: path
    default: []
  files:
    description: Files, directories and links in their wanted state. Omitted attributes are not compared.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The path. Links are not followed.
        type: path
        required: true
      state:
        description: The kind of file. Without it the file is only read.
        type: str
        choices: [file, directory, link, absent]
      sha256:
        description: SHA-256 digest of a file's content.
        type: str
      target:
        description: Target of a link, exactly as stored in the link.
        type: str
      owner:
        description: Name of its owner.
        type: str
      group:
        description: Name of its group.
        type: str
      mode:
        description: Its mode in four octal digits.
        type: str
  slot:
    description: The slot whose profiles are inspected. The default is none.
    type: dict
    suboptions:
      slot:
        description: Its name.
        type: str
        default: main
      config_dir:
        description: Directory of rendered profiles.
        type: path
        default: /etc/b70-vllm-slot
      run_dir:
        description: Directory of the state file.
        type: path
        default: /run/b70
      state_dir:
        description: Directory of the journal.
        type: path
        default: /var/lib/b70
      unit_dir:
        description: Directory of the units.
        type: path
        default: /etc/systemd/system
  listen:
    description: An address and a port that a program of the roles listens on.
    type: dict
    suboptions:
      host:
        description: The address.
        type: str
        required: true
      port:
        description: The port.
        type: int
        required: true
  sysfs_root:
    description: The mount point of sysfs.
    type: path
    default: /sys
"""

EXAMPLES = r"""
- name: Look at the host
  arcpro.b70.b70_host_info:
  register: host

- name: Say which cards it has
  ansible.builtin.debug:
    msg: "{{ host.cards | map(attribute='address') }}"
"""

RETURN = r"""
system:
  description: The operating system and machine.
  returned: always
  type: dict
  contains:
    id:
      description: Name of the system as in os-release.
      type: str
      sample: debian
    version:
      description: Release, empty for a rolling one.
      type: str
      sample: "12"
    name:
      description: The readable name.
      type: str
    kernel:
      description: Release of the running kernel.
      type: str
    guc_file:
      description: Version of the GuC firmware in C(/lib/firmware/updates), which the next boot loads, or empty.
      type: str
      sample: 70.65.0
    kernel_arguments:
      description: The command line of the running kernel.
      type: list
      elements: str
    next_kernel:
      description: Release of the kernel that the next boot uses, or null if no link names it.
      type: str
    machine:
      description: Hardware name.
      type: str
      sample: x86_64
python:
  description: Version of the Python at O(python), or null.
  returned: always
  type: str
  sample: 3.11.2
cards:
  description: The Arc Pro B70 cards (PCI id 8086:e223) of all PCI domains, ordered by address.
  returned: always
  type: list
  elements: dict
  contains:
    number:
      description: Its number in masks, xpu-smi and Level Zero, which count RV(other_cards) too.
      type: int
    model:
      description: The model.
      type: str
      sample: Arc Pro B70
    address:
      description: PCI address with domain.
      type: str
      sample: "0000:03:00.0"
    driver:
      description: Bound kernel driver, or empty.
      type: str
      sample: xe
    guc:
      description: Version of the running GuC firmware, or empty if neither debugfs nor the kernel's log names it.
      type: str
      sample: 70.65.0
    guc_wanted:
      description: Version of the GuC firmware that the kernel asks for, or empty if neither of them names it.
      type: str
      sample: 70.54.0
    numa_node:
      description: NUMA node, or null.
      type: int
    card_node:
      description: Display node, or null.
      type: str
    render_node:
      description: Render node, or null.
      type: str
      sample: /dev/dri/renderD128
other_cards:
  description: The other cards of the family, such as an Arc Pro B60, in the form of RV(cards). No profile is for them.
  returned: always
  type: list
  elements: dict
render_nodes:
  description: All render nodes of the host.
  returned: always
  type: list
  elements: str
stacks:
  description: The stacks below O(stack_root).
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Id of the stack, which is also its directory's name.
      type: str
    dir:
      description: Its directory.
      type: str
    complete:
      description: Whether it is completely installed and verified, and still has its programs.
      type: bool
    reason:
      description: Why it is not complete, else empty.
      type: str
    name:
      description: Name of its manifest, or null.
      type: str
    digest:
      description: Digest of the installed versions and files, or null.
      type: str
    created:
      description: When it was verified, or null.
      type: str
uv:
  description: Version of uv in O(tools_dir), or null.
  returned: always
  type: str
account:
  description: The service user with its uid, group, groups and gids, or null.
  returned: always
  type: dict
groups:
  description: Those of O(groups) that exist.
  returned: always
  type: list
  elements: str
groups_missing:
  description: Those of RV(groups) that O(user) is not a member of.
  returned: always
  type: list
  elements: str
kernels_missing:
  description: Those of O(kernel_packages), and of O(card_kernels) that this host needs, that are not installed.
  returned: always
  type: list
  elements: str
packages_missing:
  description: Those of O(packages) that are not installed, and RV(kernels_missing).
  returned: always
  type: list
  elements: str
restart_reasons:
  description: Why the host needs a restart. Empty if it needs none.
  returned: always
  type: list
  elements: str
  sample: ["the next boot uses the kernel 6.17.0-1010-intel"]
directory_faults:
  description: Those of O(directories) that do not serve their purpose.
  returned: always
  type: dict
  contains:
    missing:
      description: Nothing exists at these paths.
      type: list
      elements: str
    obstructed:
      description: Something that is not a directory exists at these paths.
      type: list
      elements: str
    not_writable:
      description: The existing O(user) must be able to write to these directories and cannot.
      type: list
      elements: str
paths:
  description: For each of O(directories) and O(paths) whether something exists there and is a directory, its mode
    and uid, whether O(user) may write to it, and the free space in MiB.
  returned: always
  type: dict
files:
  description: For each of O(files) its C(state), C(owner), C(group), C(mode), C(target) and C(sha256).
  returned: always
  type: dict
differences:
  description: The differences of O(files) from their wanted state, one line each. Empty if there are none.
  returned: always
  type: list
  elements: str
  sample:
    - "/etc/b70-frontdoor/frontdoor.toml: mode is 0600, wanted is 0644"
slot:
  description: The content of O(slot), or null. It is also null if systemd does not run.
  returned: always
  type: dict
  contains:
    profile:
      description: The profile that it serves, or else the last verified one. Null if there is none.
      type: str
    profiles:
      description: That profile and those that start at boot, each with C(name), C(stack) and C(stack_id) as on the
        host.
      type: list
      elements: dict
listen_holders:
  description: The processes that keep a program from listening as O(listen) says. Empty if it can.
  returned: when O(listen) is given
  type: list
  elements: dict
  contains:
    unit:
      description: The systemd unit of the process, or empty.
      type: str
    container:
      description: The name of the container that holds the port, or empty.
      type: str
    text:
      description: The process in words.
      type: str
      sample: "port 8000: pid 812 (/usr/bin/docker-proxy -proto tcp, user root, unit docker.service)"
outdated_services:
  description: The services of the collection that use files which an update has replaced, with these files. A restart
    is due.
  returned: always
  type: dict
  sample: {"b70-openai-frontdoor.service": ["/usr/lib/x86_64-linux-gnu/libz.so.1.3"]}
problems:
  description: Why the host is unsuitable for the roles, with a fix. Empty if it is suitable.
  returned: always
  type: list
  elements: str
"""

import grp
import os
import platform
import pwd
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments, _desired_state, _host, _paths
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.effects import host_effects
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.images import PodmanImages
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import occupied
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault, layout_of

FILE = {
    "path": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["file", "directory", "link", "absent"]},
    **{key: {"type": "str"} for key in ("sha256", "target", "owner", "group", "mode")},
}

DIRECTORY = {
    "path": {"type": "path", "required": True},
    "writable": {"type": "bool", "default": False},
}


LISTEN = {"host": {"type": "str", "required": True}, "port": {"type": "int", "required": True}}


def listen_holders(module: AnsibleModule, host: str, port: int) -> list[dict[str, str]]:
    """Return the processes that hold the port, with the names of their containers where Docker or Podman tell them."""
    found = []
    for holder in _host.holders(host, port):
        argv = _host.container_argv(holder, port)
        names = module.run_command(argv)[1] if argv and module.get_bin_path(argv[0]) else ""
        found.append({"unit": holder.unit, "container": " ".join(names.split()), "text": holder.describe()})
    return found


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "stack_root": {"type": "path", "default": _paths.STACK_ROOT},
            "tools_dir": {"type": "path", "default": _paths.TOOLS_DIR},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "user": {"type": "str", "default": "b70"},
            "groups": {"type": "list", "elements": "str", "default": ["render", "video"]},
            "packages": {"type": "list", "elements": "str", "default": []},
            "kernel_packages": {"type": "list", "elements": "str", "default": []},
            "kernel_arguments": {"type": "list", "elements": "str", "default": []},
            "card_kernels": {"type": "dict", "default": {}},
            "directories": {"type": "list", "elements": "dict", "default": [], "options": DIRECTORY},
            "paths": {"type": "list", "elements": "path", "default": []},
            "files": {"type": "list", "elements": "dict", "default": [], "options": FILE},
            "slot": {"type": "dict", "options": _arguments.SLOT_PATHS},
            "listen": {"type": "dict", "options": LISTEN},
            "sysfs_root": {"type": "path", "default": "/sys"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    release = _host.parse_os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
    system: dict[str, Any] = {
        "id": release.get("ID", ""),
        "version": release.get("VERSION_ID", ""),
        "name": release.get("PRETTY_NAME", ""),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "kernel_arguments": Path("/proc/cmdline").read_text(encoding="utf-8").split(),
        "next_kernel": _host.next_kernel(Path("/")),
        "guc_file": _host.guc_of_file(Path("/") / _host.GUC_FILE),
    }
    python = None
    if os.access(wanted["python"], os.X_OK):
        code, output, _errors = module.run_command(
            [wanted["python"], "-c", "import platform; print(platform.python_version())"]
        )
        python = output.strip() if code == 0 else None
    sysfs = Path(wanted["sysfs_root"])
    cards = _host.cards(sysfs)
    if any(card["driver"] and not card["guc"] for card in cards):
        log = ["journalctl", "--dmesg", "--boot", "--no-pager", "--output=cat"]
        cards = _host.guc_from_log(cards, module.run_command(log)[1])
    kernels = [
        *wanted["kernel_packages"],
        *_host.kernel_packages(wanted["card_kernels"], system, bool(cards)),
    ]
    packages = [*wanted["packages"], *kernels]
    installed = ""
    if packages:
        query = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\\n", *packages]
        installed = module.run_command(query)[1]
    kernels_missing = _host.packages_missing(kernels, installed)
    everyone = grp.getgrall()
    account = _host.account_facts(wanted["user"], pwd.getpwnam, everyone)
    groups = [name for name in wanted["groups"] if name in {group.gr_name for group in everyone}]
    joined = account["groups"] if account else []
    places = [*(one["path"] for one in wanted["directories"]), *wanted["paths"]]
    paths = {path: _host.path_facts(path, account) for path in places}
    systemd = os.path.isdir("/run/systemd/system")
    files = {item["path"]: _desired_state.file_facts(item["path"]) for item in wanted["files"]}
    differences = _desired_state.file_differences(wanted["files"], files)
    try:
        layout = layout_of({**wanted["slot"], "frontdoor_url": ""}) if wanted["slot"] and systemd else None
        slot = layout and occupied(host_effects(SystemClock()), layout)
    except SlotFault as fault:
        module.fail_json(msg=fault.message)
    module.exit_json(
        changed=False,
        system=system,
        python=python,
        cards=cards,
        other_cards=_host.other_cards(sysfs),
        render_nodes=_host.render_nodes(sysfs),
        stacks=_host.stacks(Path(wanted["stack_root"]), PodmanImages().id_of),
        uv=_host.uv_version(Path(wanted["tools_dir"])),
        account=account,
        groups=groups,
        groups_missing=[name for name in groups if name not in joined],
        kernels_missing=kernels_missing,
        packages_missing=_host.packages_missing(packages, installed),
        restart_reasons=_host.restart_reasons(kernels_missing, wanted["kernel_arguments"], system, cards),
        directory_faults=_host.directory_faults(wanted["directories"], paths, account),
        paths=paths,
        files=files,
        differences=differences,
        slot=slot,
        **({"listen_holders": listen_holders(module, **wanted["listen"])} if wanted["listen"] else {}),
        outdated_services=_host.outdated_services(Path("/proc")),
        problems=_host.problems(system, python, wanted["python"], systemd, os.geteuid() == 0),
    )


if __name__ == "__main__":
    main()
