# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights for hosts of the lab, from a hub that the lab plays, by the roles of site.yml."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from demo import inventory_hosts
from hub.server import Hub
from system.product import INVENTORY, ROOT, Play, play, reach

MODELS = "/mnt/fast-ai/llm-models"
TOKEN = "hf_secret_of_the_lab"
AUTHORITY = "/etc/ssl/lab-hub.pem"


class Operator:
    """Runs roles as site.yml does, with the hub's address and token and whatever else is said."""

    def __init__(self, hub: Hub, folder: Path, limit: str = "b70_hosts", **variables: Any) -> None:
        roles = [{"role": f"arcpro.b70.{name}", "tags": [name]} for name in ("host", "model_weights")]
        self.playbook = folder / "roles.yml"
        self.playbook.write_text(json.dumps([{"hosts": "b70_hosts", "gather_facts": False, "roles": roles}]))
        self.pins, self.limit = folder / "b70-pins.yml", limit
        (folder / "token").write_text(f"{TOKEN}\n")
        for host in inventory_hosts(str(INVENTORY), "b70_hosts").values():
            reach(host).check_output(f"printf %s '{hub.authority}' > {AUTHORITY}")
        self.variables: dict[str, Any] = {
            "model_weights_hub_url": hub.url,
            "model_weights_hub_token_file": str(folder / "token"),
            "model_weights_environment": {"SSL_CERT_FILE": AUTHORITY},
            "model_weights_attempts": 2,
            "b70_pins_file": str(self.pins),
            **variables,
        }

    def _words(self, *words: str, tags: str = "model_weights", limit: str = "", **variables: Any) -> list[str]:
        said = json.dumps({**self.variables, **variables})
        return ["--limit", limit or self.limit, "--tags", tags, "-e", said, *words]

    def __call__(self, *words: str, tags: str = "model_weights", limit: str = "", **variables: Any) -> Play:
        done = play(self.playbook, *self._words(*words, tags=tags, limit=limit, **variables), limit_s=1200)
        assert TOKEN not in done.output
        return done

    def begin(self, log: Path, **variables: Any) -> subprocess.Popen[bytes]:
        """Start a run and return at once; what it prints goes to `log`."""
        command = ["ansible-playbook", "-i", str(INVENTORY), str(self.playbook), *self._words("-v", **variables)]
        with log.open("wb") as file:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
