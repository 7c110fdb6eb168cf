# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters as Ansible calls them; what they do is tested with the code they call."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.filter.catalogue import FilterModule

FILTERS = FilterModule().filters()


def test_names_and_ids():
    assert FILTERS["stack_id"]({"name": "x"}).startswith("x-")


def test_closest():
    known = ["tiny-a", "tiny-b", "minimax-m27-c1"]
    assert FILTERS["closest"]("tiny-c", known) == ["tiny-b", "tiny-a"]
    assert FILTERS["closest"]("MiniMax", dict.fromkeys(known)) == ["minimax-m27-c1"]
    assert FILTERS["closest"]("tiny-c", known, 1) == ["tiny-b"]
    assert FILTERS["closest"]("zzzzzz", known) == []
    long = ["gemma4-12b-it-int4-autoround-c8-nolog", "gemma4-12b-it-int4-autoround-c8", "gemma3-12b"]
    assert FILTERS["closest"]("gemma4-c8", long, 2) == [long[1], long[0]]
    assert FILTERS["closest"]("", known) == []


def test_a_host_is_told_its_group():
    hosts = [{"name": "alpha", "address": "10.0.0.1"}, {"name": "beta", "address": "10.0.0.2"}]
    group = {"interface": "eth1", "hosts": hosts}
    assert FILTERS["node_group"](group, "beta") == {
        "rank": 1, "interface": "eth1", "port": 18200, "hosts": hosts,
        "floor": {"bandwidth_gb_s": 1.0, "latency_us": 500.0}}  # fmt: skip
    assert FILTERS["node_group"](group, "gamma") == {}
    assert FILTERS["node_group"]({}, "alpha") == {}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("stack_id", ["cpu"], "needs a stack manifest"),
        ("stack_id", [{}], "with a name"),
        ("closest", ["a", "text"], "list or mapping"),
        ("explain_profile", [{}, {}], "as the lookup arcpro.b70.catalogue returns it"),
        ("explain_profile", [{"origin_files": {}, "stack": "cpu"}, {}], "the stack manifests, among them cpu"),
        ("known_models", [[], {}], "two mappings"),
        ("node_group", [{"interface": "eth1"}, "alpha"], "b70_nodes.hosts is a list of two hosts or more"),
        ("known_models", [{}, {}, "", "int3"], 'no list has the precision "int3"'),
    ],
)
def test_wrong_input_is_explained(name, arguments, message):
    with pytest.raises(AnsibleFilterError, match=message):
        FILTERS[name](*arguments)
