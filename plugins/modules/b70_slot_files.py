#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_slot_files
short_description: Write all files of a slot in one round trip
version_added: 0.2.0
description:
  - Renders the catalogue with the settings of a host on the controller - the resolved profile (JSON), the engine's
    environment and the systemd unit of every profile, the command C(b70ctl) with its Python package, and the unit that
    verifies the running engine. Sends everything to the host at once.
  - Writes the rendered profiles, environments and systemd units of a slot, and removes those of profiles that are no
    longer in the catalogue.
  - Looks first at the weights on the host, because their record is part of a profile's fingerprint.
  - Validates everything before it replaces anything. C(systemd-analyze verify) checks the units, and only a program
    that is not installed yet is tolerated. Each file is replaced atomically.
  - A profile is in use if it runs, starts at boot, is named by the slot's state or was verified last. Its files stay
    unchanged, and a new rendering waits in C(pending) below O(config_dir) for the switch that starts it. Its files are
    never removed, but the module warns about them.
  - Every unit whose program is installed gets a drop-in that makes it exclusive with the slot's other units and with
    legacy ones. Replicas of one profile run beside each other.
  - The module holds the slot's lock, except in check mode, so that no switch reads files that are being replaced.
  - The unit that verifies the running engine is enabled at boot. Engines are never started, stopped or enabled.
  - If a unit has changed, the module reloads systemd, and checks that systemd uses the units as written.
extends_documentation_fragment:
  - arcpro.b70.catalogue
  - arcpro.b70.attributes
attributes:
  diff_mode:
    support: full
    details:
      - New and removed files, and programs, are shown by their path only.
options:
  settings:
    description: The settings of the host. Everything else comes from the catalogue.
    type: dict
    suboptions:
      tmpfiles_dir:
        description: The directory of the administrator's files for C(systemd-tmpfiles).
        type: str
        required: true
      lib_dir:
        description: The directory of the package C(b70slot), which performs the switches.
        type: str
        required: true
      bin_dir:
        description: The directory of the command C(b70ctl).
        type: str
        required: true
      frontdoor_url:
        description: The frontdoor's URL, as the host itself reaches it.
        type: str
        required: true
      models_dir:
        description: The base of relative model directories.
        type: str
        required: true
      stacks_dir:
        description: The directory of the stacks, each in a subdirectory named by its id.
        type: str
        required: true
      cache_dir:
        description: The directory of the compile caches.
        type: str
        required: true
      hf_home:
        description: The hub's cache.
        type: str
        required: true
      user:
        description: The user that engines run as.
        type: str
        required: true
      group:
        description: The group that engines run as.
        type: str
        required: true
      backend_host:
        description: The address that engines listen on.
        type: str
        default: 127.0.0.1
      backend_port:
        description: The port that engines listen on. Replicas of a profile use the ports that follow.
        type: int
        required: true
      cards:
        description:
          - How many cards the host has. Only profiles with C(replicas=per_card) need it.
          - The default is the number that C(arcpro.b70.b70_host_info) finds on the host.
        type: int
      power_cap_w:
        description:
          - Watts that each card may take while an engine runs, 160 to 290. A profile with a lower cap gets that.
          - The default is no cap of the host.
        type: int
      env:
        description: Environment variables of the site. They override all others.
        type: dict
        default: {}
      engine_ip_allow:
        description: Addresses, networks, or systemd's keywords for some, that engines may reach outside this host.
        type: list
        elements: str
        default: []
      legacy_units:
        description: Other units that must never run beside an engine.
        type: list
        elements: str
        default: []
      refused_statuses:
        description: Statuses of profiles that a switch refuses, unless it is told to accept them.
        type: list
        elements: str
        default: [rejected, blocked]
      template_dirs:
        description: Folders on the controller with templates that replace those of the collection; the first one wins.
        type: list
        elements: str
        default: []
  host:
    description: What M(arcpro.b70.b70_host_info) returned of the host. Without it, the cards are counted anew.
    type: dict
    default: {}
  files:
    description: Internal, between the action plugin and the module.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Path of the file - in C(profiles) below O(config_dir), in O(unit_dir), or in C(tmpfiles.d).
        type: path
        required: true
      content:
        description: Its whole text.
        type: str
        required: true
      mode:
        description: Its mode in octal digits.
        type: str
        default: "0644"
  directories:
    description: Directories that must exist. Missing ones are created in this order. Existing ones keep their owner and
      mode, unless others may look into them and O(directories[].mode) does not let them.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The directory. Missing parents are created with the mode of the system's umask.
        type: path
        required: true
      owner:
        description: Owner of a newly created directory.
        type: str
        default: root
      group:
        description: Group of a newly created directory.
        type: str
        default: root
      mode:
        description: Mode of the directory in octal digits.
        type: str
        default: "0755"
  slot:
    description: The slot's name.
    type: str
    default: main
  config_dir:
    description: The directory that contains C(profiles).
    type: path
    default: /etc/b70-vllm-slot
  unit_dir:
    description: The directory of the administrator's units.
    type: path
    default: /etc/systemd/system
  run_dir:
    description: The directory of the slot's state, in C(SLOT/state.json).
    type: path
    default: /run/b70
  state_dir:
    description: The directory of the slot's journal and of a copy of the last verified profile.
    type: path
    default: /var/lib/b70
  lock_timeout:
    description: Seconds to wait for a switch of this slot to end. The module always waits for one that only verifies
      the running engine.
    type: float
    default: 60
  program_dir:
    description: The directory of the Python package of C(b70ctl). Python files there that are not in O(files) are
      removed.
    type: path
    default: /opt/b70/lib/b70slot
  command:
    description: The command C(b70ctl).
    type: path
    default: /opt/b70/bin/b70ctl
  command_link:
    description: Path of a link to O(command), so that people find it in their C(PATH). By default none is created.
    type: path
  owner:
    description: User that owns the files.
    type: str
    default: root
  group:
    description: Group that owns the files.
    type: str
    default: root
"""

EXAMPLES = r"""
- name: Write every file of the slot
  arcpro.b70.b70_slot_files:
    settings: "{{ slot_settings }}"
    profile_dirs: [profiles]
"""

RETURN = r"""
created_directories:
  description: Directories that were, or in check mode would be, created.
  returned: success
  type: list
  elements: str
changed_paths:
  description: Files that were, or in check mode would be, written.
  returned: success
  type: list
  elements: str
removed_paths:
  description: Files that were, or in check mode would be, removed.
  returned: success
  type: list
  elements: str
planned_files:
  description:
    - Only in check mode, the files of profiles that would be written, in the form of the option C(planned_files) of
      M(arcpro.b70.b70_model_slot). An empty text stands for a file that would be removed.
  returned: check mode
  type: list
  elements: dict
pending_profiles:
  description: Profiles in use whose new rendering waits for a switch.
  returned: success
  type: list
  elements: str
kept_profiles:
  description: Profiles that are no longer in the catalogue but still in use, so that their files stay.
  returned: success
  type: list
  elements: str
units_changed:
  description: Whether a unit was written or removed.
  returned: success
  type: bool
reload_needed:
  description: Whether systemd had to reload its units, because of this run or an interrupted one.
  returned: success
  type: bool
"""

import contextlib
import dataclasses
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments, _paths, _slot_deployment, _slot_paths

_TEXT = {"type": "str", "required": True}
SETTINGS = {
    "tmpfiles_dir": _TEXT,
    "lib_dir": _TEXT,
    "bin_dir": _TEXT,
    "frontdoor_url": _TEXT,
    "models_dir": _TEXT,
    "stacks_dir": _TEXT,
    "cache_dir": _TEXT,
    "hf_home": _TEXT,
    "user": _TEXT,
    "group": _TEXT,
    "backend_host": {"type": "str", "default": "127.0.0.1"},
    "backend_port": {"type": "int", "required": True},
    "cards": {"type": "int"},
    "power_cap_w": {"type": "int"},
    "env": {"type": "dict", "default": {}},
    "engine_ip_allow": {"type": "list", "elements": "str", "default": []},
    "legacy_units": {"type": "list", "elements": "str", "default": []},
    "refused_statuses": {"type": "list", "elements": "str", "default": ["rejected", "blocked"]},
    "template_dirs": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    file_spec = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "required": True},
        "mode": {"type": "str", "default": "0644"},
    }
    directory_spec = {
        "path": {"type": "path", "required": True},
        "owner": {"type": "str", "default": "root"},
        "group": {"type": "str", "default": "root"},
        "mode": {"type": "str", "default": "0755"},
    }
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "default": [], "options": directory_spec},
            "settings": {"type": "dict", "options": SETTINGS},
            "host": {"type": "dict", "default": {}},
            "profile_dirs": {"type": "list", "elements": "str", "default": []},
            "stack_dirs": {"type": "list", "elements": "str", "default": []},
            "inline_profiles": {"type": "dict", "default": {}},
            "weights": {"type": "dict", "default": {}},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file_spec},
            **_arguments.SLOT_PATHS,
            "lock_timeout": {"type": "float", "default": 60.0},
            "program_dir": {"type": "path", "default": f"{_paths.LIB_DIR}/b70slot"},
            "command": {"type": "path", "default": f"{_paths.BIN_DIR}/b70ctl"},
            "command_link": {"type": "path"},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
        },
        supports_check_mode=True,
    )

    def run(argv: list[str]) -> tuple[int, str, str]:
        program = module.get_bin_path(argv[0])
        if program is None:
            return 127, "", f"{argv[0]} is not installed"
        code, output, errors = module.run_command(
            [program, *argv[1:]], environ_update={"LC_ALL": "C", "SYSTEMD_COLORS": "0"}
        )
        return int(code), str(output), str(errors)

    params = module.params
    places = ("config_dir", "unit_dir", "run_dir", "state_dir", "program_dir", "command")
    place = _slot_paths.SlotPaths(
        params["slot"],
        **{key: Path(params[key]) for key in places},
        command_link=Path(params["command_link"]) if params["command_link"] else None,
    )
    wanted = [_slot_paths.RenderedFile(Path(item["path"]), item["content"], item["mode"]) for item in params["files"]]
    wanted = [
        dataclasses.replace(item, content=_slot_deployment.numbered(item.content))
        if item.path.name == "account.env"
        else item
        for item in wanted
    ]
    directories = [_slot_paths.Directory(**{**item, "path": Path(item["path"])}) for item in params["directories"]]
    lock = contextlib.nullcontext() if module.check_mode else _slot_deployment.locked(place, params["lock_timeout"])
    try:
        owner = _slot_deployment.owner_ids(params["owner"], params["group"])
        # Before the lock: that makes the directory it is in.
        lacking = _slot_deployment.lacking(directories)
        with lock:
            plan = _slot_deployment.make_plan(wanted, place, owner, run, lacking)
            _slot_deployment.validate(plan, run)
            if not module.check_mode:
                _slot_deployment.apply(plan, owner)
                _slot_deployment.reload(plan, run)
                _slot_deployment.start(plan, place, run)
    except (_slot_paths.SlotFilesError, OSError) as error:
        module.fail_json(msg=str(error))
    for warning in plan.warnings:
        module.warn(warning)
    module.exit_json(
        changed=plan.changed,
        created_directories=[str(item.path) for item in plan.directories],
        changed_paths=[str(item.path) for item in plan.writes],
        removed_paths=[str(path) for path in plan.removals],
        kept_profiles=plan.kept,
        pending_profiles=[held.name for held in plan.held],
        **({"planned_files": _slot_deployment.planned_files(plan, place)} if module.check_mode else {}),
        units_changed=plan.units_changed,
        reload_needed=plan.reload_needed,
        diff=_slot_deployment.diff(plan),
        # Without the files: megabytes, which may have what is nobody's business.
        invocation={"module_args": {key: value for key, value in params.items() if key != "files"}},
    )


if __name__ == "__main__":
    main()
