# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records that the controller has of its hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: evidence
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.2.0
short_description: Read the records of all hosts on the controller
description:
  - Reads the records of benchmarks, soaks, context searches and promotions in a folder that
    M(arcpro.b70.b70_evidence) filled. A folder that does not exist has no records.
  - A record that cannot be read or breaks the schema is named and left out.
options:
  _terms:
    description: The folders.
    required: true
  show:
    description:
      - V(records) returns all records, V(rows) what an index has of each.
      - V(page) returns one self-contained HTML page with the newest benchmark of every profile on every host, its
        plots, the verdicts of soaks and promotions, and what changed since the benchmark before. The same records give
        the same page.
    type: str
    choices: [records, rows, page]
    default: records
seealso:
  - module: arcpro.b70.b70_evidence
"""

EXAMPLES = r"""
- name: Show the verdicts of a profile on all hosts
  ansible.builtin.debug:
    msg: "{{ item.value | selectattr('profile', 'equalto', 'tiny-a') | map(attribute='verdict') }}"
  loop: "{{ lookup('arcpro.b70.evidence', inventory_dir ~ '/records', show='rows').records | dict2items }}"

- name: Write the page
  ansible.builtin.copy:
    dest: records/index.html
    content: "{{ lookup('arcpro.b70.evidence', 'records', show='page') }}"
    mode: "0644"
"""

RETURN = r"""
_raw:
  description:
    - For each folder, C(records) with the records or rows of each host, newest first, and C(problems) with what is
      wrong with the others; or the page.
  type: list
  elements: raw
"""

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import row
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence import folder
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.page import evidence_page


class LookupModule(LookupBase):
    """The lookup as Ansible finds it."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        self.set_options(var_options=variables, direct=kwargs)
        try:
            found = [folder.read(Path(term).expanduser()) for term in terms]
        except OSError as error:
            raise AnsibleLookupError(f"evidence: the records cannot be read: {error}") from error
        show = self.get_option("show")
        if show == "page":
            return [evidence_page(*one) for one in found]
        if show == "rows":
            found = [({host: list(map(row, of)) for host, of in records.items()}, faults) for records, faults in found]
        return [{"records": records, "problems": problems} for records, problems in found]
