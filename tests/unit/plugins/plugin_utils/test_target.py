# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of why a play would run on no host, judged by the lookup itself."""

from __future__ import annotations

from typing import Any

import pytest
from ansible import context
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.utils.context_objects import CLIArgs

from ansible_collections.arcpro.b70.plugins.lookup.target import LookupModule

FLEET = {"all": ["a", "b"], "ungrouped": [], "gpu_hosts": ["a", "b"], "rack": ["b"], "empty": []}


class Lookup(LookupModule):
    """The lookup with its default option; Ansible's loader wants an installed collection."""

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None: ...

    def get_option(self, option: str, hostvars: Any = None) -> str:
        return {"option": "b70_target"}[option]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the command line holds."""
    words: dict[str, Any] = {"inventory": ("hosts.yml",), "syntax": False}
    monkeypatch.setattr(context, "CLIARGS", CLIArgs(words))
    return words


def target(pattern: str, groups: dict[str, list[str]] = FLEET, **variables: str) -> str:
    found = Lookup(loader=DataLoader()).run([pattern], {"groups": groups, **variables})
    assert found == [pattern]
    return pattern


@pytest.mark.parametrize("pattern", ["gpu_hosts", "rack", "a", "gpu_hosts:!rack", "all", "localhost"])
def test_a_pattern_with_hosts_is_returned(given: dict[str, Any], pattern: str) -> None:
    target(pattern)


@pytest.mark.parametrize(
    ("pattern", "groups", "variables", "said"),
    [
        (
            "b70_hosts",
            FLEET,
            {},
            ("hosts.yml", "the groups gpu_hosts, rack", "the hosts a, b", "into the group b70_hosts"),
        ),
        ("b70_hosts", FLEET, {}, ("-e b70_target=GROUP",)),
        (
            "gpu_host",
            FLEET,
            {"b70_target": "gpu_host"},
            ("Did you mean gpu_hosts?", "Name others with -e b70_target=GROUP"),
        ),
        ("empty", FLEET, {}, ("No host matches empty",)),
        ("b70_hosts", {"all": [], "ungrouped": []}, {}, ("has no hosts at all", "inventory/example.yml", "-i")),
        ("rack", FLEET, {"ansible_limit": "a"}, ("--limit a leaves none of the hosts of rack, which has b.",)),
    ],
)
def test_no_host_is_an_error_that_says_what_there_is(
    given: dict[str, Any],
    pattern: str,
    groups: dict[str, list[str]],
    variables: dict[str, str],
    said: tuple[str, ...],
) -> None:
    with pytest.raises(AnsibleError) as caught:
        target(pattern, groups, **variables)
    assert all(part in str(caught.value) for part in said), caught.value


def test_a_limit_that_leaves_some_is_none_of_its_business(given: dict[str, Any]) -> None:
    target("gpu_hosts", ansible_limit="rack")


def test_a_long_inventory_is_cut_short(given: dict[str, Any]) -> None:
    with pytest.raises(AnsibleError, match="and 42 more"):
        target("b70_hosts", {"all": [f"h{number:02}" for number in range(50)]})


def test_a_check_of_the_syntax_looks_at_no_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"syntax": True}))
    target("b70_hosts", {})
