# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

from ansible_collections.arcpro.b70.plugins.lookup.rendered import SharedVariables


def test_a_template_gets_variables_of_its_own_with_the_same_values() -> None:
    found = {"paths": ["/a"]}
    given = SharedVariables(found=found)
    own = copy.deepcopy(given)
    own["more"] = 1
    assert type(own) is dict
    assert own["found"] is found
    assert list(given) == ["found"]
