#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_removal
short_description: Remove the files that the collection made on a host
version_added: 0.2.0
description:
  - Removes what is known by its name in the directories of O(places), and each of these directories that is empty then.
    What somebody else has there stays, and its directory too.
  - Also says which units, works, users and groups of the collection are on the host. Stops and removes none of them.
  - Does not enter other file systems that are mounted below, and removes nothing on a network file system, which other
    hosts may use.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  diff_mode:
    support: full
    details:
      - Shows paths only.
options:
  places:
    description: Directories, each before the one that it is in.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: The directory. A pattern names several. V({slot}) here and in O(places[].entries) stands for each
          slot of the host.
        type: path
        required: true
      entries:
        description: Patterns of names in it that are the collection's.
        type: list
        elements: str
        default: []
      has:
        description: Only entries that have one of these, such as a record of the collection.
        type: list
        elements: str
        default: []
      links_into:
        description: Only links to something in this directory.
        type: str
        default: ""
      stays:
        description: Why the entries stay. Empty removes them.
        type: str
        default: ""
      shared:
        description: Whether the directory belongs to the system and stays.
        type: bool
        default: false
      unmounted:
        description: Whether everything stays if the directory is a file system of its own.
        type: bool
        default: false
  sources:
    description: Names of repositories, as in M(arcpro.b70.b70_apt_source). One stays while a package that it pins is
      installed.
    type: list
    elements: str
    default: []
  stack_root:
    description: The directory of the stacks. The images of those that are container images stay.
    type: path
    required: true
  unit_dir:
    description: The directory of the administrator's units.
    type: path
    default: /etc/systemd/system
  apt_dir:
    description: The directory of apt's configuration.
    type: path
    default: /etc/apt
  accounts:
    description: Users as the roles make them. One that differs stays, and so does one that owns something that stays.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The user.
        type: str
        required: true
      group:
        description: The user's group.
        type: str
        required: true
      home:
        description: The home directory.
        type: str
        required: true
      comment:
        description: The comment.
        type: str
        required: true
"""

EXAMPLES = r"""
- name: Say what the collection made
  arcpro.b70.b70_removal:
    places:
      - {path: /opt/b70/bin, entries: ['b70ctl*']}
      - {path: /opt/b70}
    stack_root: /opt/b70/stacks
  check_mode: true
"""

RETURN = r"""
removed:
  description: Paths that were, or in check mode would be, removed.
  returned: success
  type: list
  elements: str
units:
  description: The lasting units that run, in the order in which they stop; without the frontdoor's.
  returned: success
  type: list
  elements: str
failed_units:
  description: The units of the collection that have failed. systemd remembers them until it is told to forget.
  returned: success
  type: list
  elements: str
works:
  description: The units that do work which somebody began.
  returned: success
  type: list
  elements: dict
  contains:
    unit:
      description: The unit.
      type: str
    what:
      description: What it does.
      type: str
users:
  description: Users that nothing needs.
  returned: success
  type: list
  elements: str
groups:
  description: Groups that nothing needs.
  returned: success
  type: list
  elements: str
summary:
  description: A line for each path that goes, and for each thing that stays, with the reason.
  returned: success
  type: list
  elements: str
"""

import grp
import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _apt, _files, _removal

_STRINGS = {"type": "list", "elements": "str", "default": []}
_TEXT = {"type": "str", "required": True}
PLACE = {
    "path": {"type": "path", "required": True},
    "entries": _STRINGS,
    "has": _STRINGS,
    "links_into": {"type": "str", "default": ""},
    "stays": {"type": "str", "default": ""},
    "shared": {"type": "bool", "default": False},
    "unmounted": {"type": "bool", "default": False},
}
ACCOUNT = dict.fromkeys(("name", "group", "home", "comment"), _TEXT)


def _source_places(module: AnsibleModule) -> list[_removal.OwnedDirectory]:
    places = []
    apt_dir = Path(module.params["apt_dir"])
    for name in module.params["sources"]:
        text = (_files.content_of(apt_dir / "preferences.d" / name) or b"").decode(errors="replace")
        query = ["dpkg-query", "--show", f"--showformat={_apt.DPKG_FORMAT}", *_removal.pinned(text)]
        installed = _apt.installed_versions(module.run_command(query)[1]) if text else {}
        places += _removal.apt_places(name, apt_dir, sorted(installed))
    return places


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "places": {"type": "list", "elements": "dict", "required": True, "options": PLACE},
            "sources": _STRINGS,
            "stack_root": {"type": "path", "required": True},
            "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
            "apt_dir": {"type": "path", "default": "/etc/apt"},
            "accounts": {"type": "list", "elements": "dict", "default": [], "options": ACCOUNT},
        },
        supports_check_mode=True,
    )
    slots = _removal.slots(Path(module.params["unit_dir"]))
    places = [place for one in module.params["places"] for place in _removal.OwnedDirectory(**one).of(slots)]
    places += _source_places(module)
    found = _removal.find(places, _removal.mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8")))
    listing = module.run_command(["systemctl", "list-units", "--all", "--plain", "--no-legend", "b70-*"])[1]
    units = _removal.units(listing)
    users, groups, stays = _removal.accounts(
        [_removal.Account(**one) for one in module.params["accounts"]],
        {entry.pw_name: entry for entry in pwd.getpwall()},
        {entry.gr_name: entry for entry in grp.getgrall()},
        _removal.owners_of([*found.stays, *found.others]),
    )
    stays += _removal.images(Path(module.params["stack_root"]))
    if not module.check_mode:
        _removal.remove(found.gone)
    module.exit_json(
        changed=bool(found.gone),
        removed=[str(path) for path in found.gone],
        units=_removal.to_stop(units),
        failed_units=_removal.failed(units),
        works=[{"unit": unit.name, "what": unit.description} for unit in _removal.works(units)],
        users=users,
        groups=groups,
        summary=_removal.summary(found, stays, check_mode=module.check_mode),
        diff={"before": "".join(f"{path}\n" for path in found.gone), "after": ""},
    )


if __name__ == "__main__":
    main()
