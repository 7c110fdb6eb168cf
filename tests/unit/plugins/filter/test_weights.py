# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.filter.weights import FilterModule

weight_sources = FilterModule().filters()["weight_sources"]


def test_a_profile_with_a_repository_is_a_source():
    catalogue = {"p": {"model": {"hf_repo": "a/b", "directory": "d", "revision": None}}}
    assert weight_sources(catalogue, ["p"], {"a/b": "c" * 40}) == {
        "d": {"hub": "a/b", "profile": "p", "revision": "c" * 40}
    }
    assert weight_sources(catalogue, []) == {}


def test_what_is_no_catalogue_is_refused():
    with pytest.raises(AnsibleFilterError, match="needs the profiles"):
        weight_sources([], [])
