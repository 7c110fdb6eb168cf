# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import yaml

TASKS = Path(__file__).resolve().parents[3] / "roles/model_weights/tasks/together.yml"


def test_nginx_s_own_service_starts_at_no_boot_wherever_the_play_ends():
    """It is masked before its package comes, and only where the package comes; then it is disabled."""
    tasks = yaml.safe_load(TASKS.read_text())[0]["block"]
    modules = [next(key for key in task if key.startswith("ansible.builtin.")) for task in tasks[2:5]]
    units = "ansible.builtin.systemd_service"
    assert modules == [units, "ansible.builtin.apt", units]
    mask, _packages, disable = tasks[2:5]
    assert mask[units] == {"name": "nginx.service", "masked": True}
    assert disable[units] == {"name": "nginx.service", "masked": False, "enabled": False}
    assert mask["when"] == disable["when"]
    assert "'gives' in __model_weights_shared.lacks" in mask["when"]
