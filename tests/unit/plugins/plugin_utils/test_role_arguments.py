# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that Ansible would take for a mapping or a list, and then leave as text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_role_arguments
from ansible_collections.arcpro.b70.plugins.modules.b70_role_arguments import DOCUMENTATION
from ansible_collections.arcpro.b70.plugins.plugin_utils._role_arguments import (
    commanded_faults,
    faults,
    misspelt,
    site_faults,
    unlike,
)

DICT, NAMES = {"type": "dict"}, {"type": "list", "elements": "str"}


def told(option, value):
    return list(faults({"door_x": option}, {"door_x": value}, lambda value: value))


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
    assert list(faults({"door_x": DICT}, {}, lambda value: value)) == []


def test_where_it_comes_from():
    variables = {"door_x": "{{ b70_dirs | default([]) }}"}
    (said,) = faults({"door_x": NAMES}, variables, lambda _: "/a")
    assert said.endswith("It comes from {{ b70_dirs | default([]) }}.")


def test_what_cannot_be_evaluated_is_the_fault_of_another_or_told():
    def template(value):
        if value == "{{ door_y.keys() }}":
            raise AnsibleError("no attribute keys")
        return value

    options = {"door_x": NAMES, "door_y": DICT}
    (said,) = faults(options, {"door_x": "{{ door_y.keys() }}", "door_y": "a"}, template)
    assert said.startswith("door_y is text")
    with pytest.raises(AnsibleError, match="no attribute keys"):
        list(faults(options, {"door_x": "{{ door_y.keys() }}", "door_y": {}}, template))


def run(monkeypatch, role, variables, **words):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})
    plugin = object.__new__(b70_role_arguments.ActionModule)
    plugin._task = SimpleNamespace(args={"role_path": str(role), **words})
    templar = SimpleNamespace(template=lambda value: value)
    plugin._templar = SimpleNamespace(copy_with_new_env=lambda available_variables: templar)
    alone = {"inventory_hostname": "one", "ansible_play_batch": ["one"], "hostvars": SimpleNamespace(raw_get=None)}
    return plugin.run(None, {**variables, **alone})


@pytest.fixture
def role(tmp_path):
    folder = tmp_path / "door"
    (folder / "meta").mkdir(parents=True)
    specs = {"main": {"options": {"door_x": DICT, "door_only": NAMES, "door_raw": {"type": "raw"}}}}
    specs |= {"other": {"options": {"door_z": NAMES}}, "third": {}}
    (folder / "meta" / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": specs}))
    return folder


def test_all_entry_points_of_a_role_are_looked_at(monkeypatch, role):
    variables = {"door_x": "a=1", "door_only": "a,b", "door_raw": "a", "door_z": "a"}
    result = run(monkeypatch, role, variables, words=["door_only"], mappings=["door_raw"])
    assert result["failed"]
    named = [word for word in result["msg"].split() if word in variables]
    assert sorted(named) == ["door_raw", "door_x", "door_z"]


def test_good_variables_pass(monkeypatch, role):
    result = run(monkeypatch, role, {"door_x": {}, "door_z": [], "door_unknown": 1})
    assert result == {"changed": False, "failed": False, "msg": ""}


def test_a_misspelt_name_is_refused_with_the_nearest_one(monkeypatch, role):
    variables = {"door_onyl": [], "door_qqqqqqqq": 1, "__door_own": 1, "window_x": 1}
    said = run(monkeypatch, role, variables, refuse_unknown=True)["msg"]
    assert said == (
        "The role door has no variable door_onyl; did you mean door_only or door_z or door_x? "
        "The role door has no variable door_qqqqqqqq; did you mean one of those in its README?"
    )


def test_the_options_are_those_of_the_documentation():
    said = yaml.safe_load(DOCUMENTATION)["options"]
    known = ("type", "default", "elements", "required")
    assert {n: {k: one[k] for k in known if k in one} for n, one in said.items()} == b70_role_arguments.OPTIONS


SECRET = {"type": "list", "elements": "dict", "options": {"key": {"type": "str", "no_log": True, "required": True}}}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ({"type": "int"}, "abc", "door_x is text (abc) and must be a whole number."),
        ({"type": "int"}, [80], "door_x is a list ([80]) and must be a whole number."),
        ({"type": "bool"}, "perhaps", "door_x is text (perhaps) and must be true or false."),
        ({"type": "float"}, "1s", "door_x is text (1s) and must be a number."),
        ({"type": "str", "choices": ["a", "b"]}, "c", "door_x is text (c) and must be one of a, b."),
        ({"type": "int", "no_log": True}, "geheim", "door_x is not what the role's README says of it."),
        (SECRET, [{"kay": "geheim"}], "door_x is not what the role's README says of it."),
        (DICT, "a=1", "door_x is text and must be a mapping of names to values"),
    ],
)
def test_a_value_that_is_not_what_its_option_says(option, value, said):
    assert unlike("door_x", option, value).startswith(said)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ({"type": "int"}, "80"),
        ({"type": "int"}, None),
        ({"type": "bool"}, "yes"),
        ({"type": "path"}, "/a"),
        (SECRET, []),
    ],
)
def test_a_value_as_its_option_says(option, value):
    assert unlike("door_x", option, value) == ""


def test_a_misspelt_name_nearly_equals_a_known_one():
    known = ["frontdoor_port", "slot_models_dir", "host_ready", "b70_target"]
    assert misspelt("frontdoor_prot", known) == "frontdoor_port"
    assert misspelt("b70_targets", known) == "b70_target"
    # An operator has variables of his own, and may begin them like ours.
    assert {name: misspelt(name, known) for name in ("host_ip", "slot_model", "host_ready")} == {
        "host_ip": "",
        "slot_model": "",
        "host_ready": "",
    }


def test_each_fault_of_a_site_is_told_once_with_its_place_and_its_hosts():
    options: dict[str, dict[str, Any]] = {"door_port": {"type": "int"}, "door_key": {"type": "str", "no_log": True}}
    hosts: dict[str, dict[str, Any]] = {
        "one": {"door_port": "{{ x }}", "door_prot": 1, "window_prot": 1},
        "two": {"door_port": 80, "door_prot": 1, "door_key": "{{ unknown }}"},
    }
    used = {"{{ x }}": "abc"}

    def value(host, name):
        if hosts[host][name] == "{{ unknown }}":
            raise AnsibleError("unknown is undefined")
        return used.get(hosts[host][name], hosts[host][name])

    told = site_faults(options, ["door"], [], hosts, value, lambda of: "group_vars/all.yml:3" if of == 1 else "")
    misspelling = "door_prot is no variable of this collection; did you mean door_port? Correct it, or rename your own."
    assert told == [
        "door_port is text (abc) and must be a whole number. (on one)",
        f"group_vars/all.yml:3: {misspelling}",
    ]


@pytest.mark.parametrize(
    ("value", "told", "said"),
    [
        ("absent", True, []),
        ("absnt", True, ["b70_state is absnt and must be one of present, absent."]),
        (
            "absent",
            False,
            ["b70_state counts on the command line only (-e b70_state=absent); take it out of the inventory."],
        ),
    ],
)
def test_a_variable_that_counts_on_the_command_line_only(value, told, said):
    hosts = {"one": {"b70_state": value}, "two": {}}
    allowed = {"b70_state": ["present", "absent"]}
    assert commanded_faults(allowed, ["b70_state"] if told else [], hosts) == said
    assert commanded_faults(allowed, [], {"one": {}}) == []
