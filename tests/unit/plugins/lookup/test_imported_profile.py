# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup as Ansible calls it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleLookupError

from ansible_collections.arcpro.b70.plugins.lookup import imported_profile

COMPOSE = "services: {s: {image: vllm/vllm-openai-xpu:v0.31.0, command: '${MODEL:-a/b} --max-model-len 4096'}}\n"


class Lookup(imported_profile.LookupModule):
    """The lookup with options as its documentation declares them; Ansible's loader wants an installed collection."""

    def set_options(self, task_keys=None, var_options=None, direct=None):
        declared = yaml.safe_load(imported_profile.DOCUMENTATION)["options"]
        assert set(direct or {}) <= set(declared)
        self.chosen = {name: option.get("default") for name, option in declared.items()} | (direct or {})

    def get_option(self, option, hostvars=None):
        return self.chosen[option]


def test_variables_come_from_the_file_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    (found,) = Lookup().run([str(file)], {}, name="mine")
    assert found["profile"]["model"]["hf_repo"] == "a/b"
    assert found["profile"]["stack"] == "vllm-openai-xpu-0.31.0"
    assert "(variables) MODEL: not in .env" in "\n".join(found["lines"])
    (tmp_path / ".env").write_text("MODEL=c/d\n")
    (found,) = Lookup().run([str(file)], {}, name="mine")
    assert yaml.safe_load(found["text"])["model"]["hf_repo"] == "c/d"


def test_faults_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    with pytest.raises(AnsibleLookupError, match=r"compose\.yaml cannot be read"):
        Lookup().run([str(file)], {}, name="mine")
    file.write_text(COMPOSE)
    with pytest.raises(AnsibleLookupError, match=r'compose\.yaml: has no service "x"; it has s'):
        Lookup().run([str(file)], {}, name="mine", entry="x")
    with pytest.raises(AnsibleLookupError, match=r"compose\.yaml: has no models"):
        Lookup().run([str(file)], {}, name="mine", form="llama_swap")
    (tmp_path / ".env").write_text("A='\n")
    with pytest.raises(AnsibleLookupError, match=r"in \.env, the value of A cannot be read"):
        Lookup().run([str(file)], {}, name="mine")
