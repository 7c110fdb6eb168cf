# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup as Ansible calls it."""

from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleLookupError

from ansible_collections.arcpro.b70.plugins.lookup import catalogue


class Lookup(catalogue.LookupModule):
    """The lookup with options as its documentation declares them; Ansible's loader wants an installed collection."""

    def set_options(self, task_keys=None, var_options=None, direct=None):
        declared = yaml.safe_load(catalogue.DOCUMENTATION)["options"]
        assert set(direct or {}) <= set(declared)
        self.chosen = {name: option.get("default") for name, option in declared.items()} | (direct or {})

    def get_option(self, option, hostvars=None):
        return self.chosen[option]


def lookup(*terms, variables=None, **options):
    (answer,) = Lookup().run(list(terms), variables or {}, **options)
    return answer


def test_everything_by_default():
    assert len(lookup()) >= 17
    assert not [name for name in lookup() if name.startswith("_")]


def test_chosen_names_only():
    assert list(lookup("minimax-m27-c1")) == ["minimax-m27-c1"]


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(AnsibleLookupError, match='there is no profile "minimax-m27"; did you mean "minimax-m27-c1"'):
        lookup("minimax-m27")


def test_stacks():
    stacks = lookup(kind="stacks")
    assert len(stacks["cpu"]["lock_sha256"]) == 64
    with pytest.raises(AnsibleLookupError, match='no stack "xpuu"; did you mean "xpu"'):
        lookup("xpuu", kind="stacks")


def test_directories():
    places = lookup("minimax-m27-c1", kind="directories")
    (model,) = lookup("minimax-m27-c1")["minimax-m27-c1"]["weights"]
    assert places == list(dict.fromkeys([model["directory"], model["base"]]))


def test_models():
    assert len(lookup("llm-scaler", kind="models")["llm-scaler"]["models"]) == 85
    with pytest.raises(AnsibleLookupError, match='no list of models "llm-scaller"; did you mean "llm-scaler"'):
        lookup("llm-scaller", kind="models")


def test_folders_beside_the_inventory_then_beside_the_playbook(tmp_path):
    text = "name: mine\nstatus: experiment\nstack: cpu\ncards: 0\nmodel: {directory: x}\n"
    text += "engine: {settings: {max_model_len: 512}}\n"
    for place in ("inventory", "playbook"):
        (tmp_path / place).mkdir()
    places = {"inventory_dir": str(tmp_path / "inventory"), "playbook_dir": str(tmp_path / "playbook")}
    with pytest.raises(AnsibleLookupError, match=r"the folder profiles does not exist \(tried .*inventory.*playbook"):
        lookup(variables=places, dirs=["profiles"])
    (tmp_path / "playbook/profiles").mkdir()
    (tmp_path / "playbook/profiles/mine.yml").write_text(text)
    assert lookup("mine", variables=places, dirs=["profiles"])["mine"]["cards"] == 0
    (tmp_path / "inventory/profiles").mkdir()
    (tmp_path / "inventory/profiles/mine.yml").write_text(text.replace("cards: 0", "cards: 1"))
    assert lookup("mine", variables=places, dirs=["profiles"])["mine"]["cards"] == 1


def test_faults_come_together():
    with pytest.raises(AnsibleLookupError) as caught:
        lookup(inline={"a": {"titel": 1}, "b": {"cards": -1}})
    assert "2 faults in the catalogue" in str(caught.value)
