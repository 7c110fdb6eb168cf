# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that Ansible would take for a mapping or a list, and then leave as text."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import yaml
from ansible.errors import AnsibleError

from ansible_collections.arcpro.b70.plugins.lookup import misshapen

DICT, NAMES = {"type": "dict"}, {"type": "list", "elements": "str"}


def told(option, value):
    return list(misshapen.faults({"door_x": option}, {"door_x": value}, lambda value: value))


@pytest.mark.parametrize("value", ["a=1", '{"a": 1}', "a", "", ["a"], None, 3, True])
def test_no_mapping(value):
    (said,) = told(DICT, value)
    assert said.startswith("door_x is ")
    assert said.endswith(
        """must be a mapping of names to values; on a command line: -e '{"door_x": {"NAME": "VALUE"}}'."""
    )


@pytest.mark.parametrize("value", ["a,b", '["a"]', "a", "", {"a": 1}, None, 3, True])
def test_no_list(value):
    (said,) = told(NAMES, value)
    assert said.endswith("""must be a list; on a command line: -e '{"door_x": ["ONE", "TWO"]}'.""")


@pytest.mark.parametrize("value", [{}, {"a": 1}])
def test_a_mapping(value):
    assert told(DICT, value) == []


@pytest.mark.parametrize("value", [[], ["a"], ("a", "b")])
def test_a_list(value):
    assert told(NAMES, value) == []


@pytest.mark.parametrize(
    ("item", "kind"),
    [({"a": 1}, "a mapping"), (3, "a number"), (False, "true or false"), (["a"], "a list"), (None, "nothing (null)")],
)
def test_an_entry_that_is_no_text(item, kind):
    assert told(NAMES, ["a", item]) == [f"Entry 2 of door_x is {kind} and must be text; put it in quotes."]
    assert told({"type": "list", "elements": "dict"}, [{"a": 1}]) == []


def test_no_value_is_told():
    assert "geheim" not in str(told(DICT, "geheim") + told(NAMES, "geheim") + told(NAMES, [{"geheim": 1}]))


def test_other_types_and_what_is_not_there_are_left_alone():
    assert told({"type": "int"}, "x") == []
    assert list(misshapen.faults({"door_x": DICT}, {}, lambda value: value)) == []


def test_where_it_comes_from():
    variables = {"door_x": "{{ b70_dirs | default([]) }}"}
    (said,) = misshapen.faults({"door_x": NAMES}, variables, lambda _: "/a")
    assert said.endswith("It comes from {{ b70_dirs | default([]) }}.")


def test_what_cannot_be_evaluated_is_the_fault_of_another_or_told():
    def template(value):
        if value == "{{ door_y.keys() }}":
            raise AnsibleError("no attribute keys")
        return value

    options = {"door_x": NAMES, "door_y": DICT}
    (said,) = misshapen.faults(options, {"door_x": "{{ door_y.keys() }}", "door_y": "a"}, template)
    assert said.startswith("door_y is text")
    with pytest.raises(AnsibleError, match="no attribute keys"):
        list(misshapen.faults(options, {"door_x": "{{ door_y.keys() }}", "door_y": {}}, template))


class Lookup(misshapen.LookupModule):
    """The lookup with options as its documentation declares them; Ansible's loader wants an installed collection."""

    def set_options(self, task_keys=None, var_options=None, direct=None):
        declared = yaml.safe_load(misshapen.DOCUMENTATION)["options"]
        self.chosen = {name: option.get("default") for name, option in declared.items()} | (direct or {})

    def get_option(self, option, hostvars=None):
        return self.chosen[option]


def test_all_entry_points_of_a_role_are_looked_at(tmp_path):
    (tmp_path / "meta").mkdir()
    specs = {"main": {"options": {"door_x": DICT, "door_only": NAMES, "door_raw": {"type": "raw"}}}}
    specs |= {"other": {"options": {"door_z": NAMES}}, "third": {}}
    (tmp_path / "meta" / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": specs}))
    lookup = Lookup()
    lookup._templar = SimpleNamespace(template=lambda value: value)
    variables = {"door_x": "a=1", "door_only": "a,b", "door_raw": "a", "door_z": "a"}
    (found,) = lookup.run([str(tmp_path)], variables, words=["door_only"], mappings=["door_raw"])
    assert sorted(said.split()[0] for said in found) == ["door_raw", "door_x", "door_z"]
