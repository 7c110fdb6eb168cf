# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile of several engines that was rendered anew while it is served."""

from __future__ import annotations

import json
import time

from scenarios.rig import Rig

CONFIG = "etc/b70-vllm-slot"
VARIABLE = "B70_ROLL"  # that no engine reads: another command line, or another stack, takes the same way


def render_anew(rig: Rig, name: str) -> str:
    """Write what the role writes after the profile was changed, to wait for a switch; return what tells it apart."""
    number = str(time.time_ns())
    profile = json.loads(rig.read(f"{CONFIG}/profiles/{name}.json"))
    profile["fingerprint"] = f"sha256:{int(number):064x}"
    texts = []
    for row in profile["engine"]["replicas"]:
        row["env"] = {**row["env"], VARIABLE: number}
        env = rig.read(f"{CONFIG}/profiles/{name}@{row['index']}.env").splitlines()
        lines = [line for line in env if not line.startswith(f"{VARIABLE}=")]
        unit = rig.read(f"etc/systemd/system/{row['unit']}")
        texts.append([unit, "\n".join([*lines, f'{VARIABLE}="{number}"']) + "\n"])
    data = {"schema": 1, "name": name, "unit": texts[0][0], "env": texts[0][1], "more": texts[1:]}
    rig.must("mkdir", "-p", f"/{CONFIG}/pending")
    rig.write(f"{CONFIG}/pending/{name}.json", json.dumps({**data, "profile": json.dumps(profile)}))
    return number
