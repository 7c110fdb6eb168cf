# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A version of the frontdoor that is installed and does not come up: what served before serves again."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.test_frontdoor import CONFIG, UNIT, UNITS, HostFrontdoor, digest
from scenarios.test_frontdoor import door as door
from scenarios.test_frontdoor import source as source

pytestmark = pytest.mark.scenario


FAULTS = {
    "dies": ("    page()\n", f"    raise RuntimeError('poisoned, {digest('a')}')\n"),
    "silent": (
        "        service.keep(await server.open(listen.host, listen.port, service.kept(), listen.unix))\n",
        "        print('poisoned', flush=True)\n",
    ),
}


def test_an_upgrade_that_does_not_come_up_is_taken_back(door: HostFrontdoor, source: Path) -> None:
    # what only the version before needs: the helper, its units and its keys
    options = {"frontdoor_admin_keys": {"b": digest("b")}}
    door.must(options)
    before, was = door.in_use(), door.process()
    unit = door.rig.read(f"etc/systemd/system/{UNIT}")
    # it imports, and takes its configuration and keys; only its start shows it
    program = source / "src/frontdoor/cli.py"
    healthy = program.read_text()
    for wrong in FAULTS.values():
        assert healthy.count(wrong[0]) == 1
        program.write_text(healthy.replace(*wrong))
        code, said = door.apply({"frontdoor_max_connections": 77, "frontdoor_start_timeout": 10}, source=source)
        assert code != 0
        assert "poisoned" in said
        assert digest("a")[7:] not in said
        assert f"What served before, /opt/b70/frontdoor/{before} with its configuration and unit, was put back" in said
        assert "and serves again. Put right what is named here, then run this again" in said
        # another process of the same version, with its own configuration, unit and helper
        assert door.in_use() == before
        assert door.rig.read(f"etc/systemd/system/{UNIT}") == unit
        assert "77" not in door.rig.read(f"{CONFIG.lstrip('/')}/frontdoor.toml")
        now = door.process()
        assert (now["ActiveState"], now["InvocationID"] == was["InvocationID"]) == ("active", False)
        was = now
        assert door.about()["version"] == "1.0.0"
        assert (door.served(), door.ask("/v1/admin/models", key="b")[0]) == (200, 200)
        assert door.rig.must("systemctl", "is-enabled", UNIT, UNITS[2]).split() == ["enabled", "enabled"]
    door.unchanged(options)
    assert door.process() == was
    # the version that was mended comes up, and then what was tried is gone
    program.write_text(healthy)
    door.must(options, source=source)
    assert (door.about()["version"], door.served()) == ("1.0.9", 200)
    assert door.environments() == sorted(["venv", before, door.in_use()])


@pytest.mark.exhaustive
def test_a_wrong_setting_leaves_what_runs_alone(door: HostFrontdoor) -> None:
    door.as_shipped()
    was, config = door.process(), door.rig.read(f"{CONFIG.lstrip('/')}/frontdoor.toml")
    code, said = door.apply({"frontdoor_settings": {"limits": {"no_such_limit": 1}}})
    assert code != 0
    assert "no_such_limit" in said
    assert "serves again" in said
    assert door.process() == was
    assert door.rig.read(f"{CONFIG.lstrip('/')}/frontdoor.toml") == config
