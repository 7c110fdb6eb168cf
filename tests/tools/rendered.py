# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what the shipped catalogue renders to: one line of digests per profile.

A line that changes restarts engines, and one whose fingerprint changes voids what was recorded for it. Run this when
that is meant; a test compares otherwise.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests/unit/plugins/plugin_utils/_render/rendered.json"
sys.path[:0] = [str(ROOT / ".cache/collections")]


def digests() -> dict[str, dict[str, str]]:
    """Return ``{profile: {what: digest}}`` of the shipped catalogue, with its stacks by name and not by content."""
    from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
    from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, stack_id
    from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.typed import expanded
    from ansible_collections.arcpro.b70.plugins.plugin_utils._render.rendering import fingerprint, render_slot

    stacks = load_stacks()
    profiles = load_catalogue(stacks=stacks)
    settings = {
        **{f"{name}_dir": f"/{name}" for name in ("config", "unit", "tmpfiles", "run", "state", "lib", "bin")},
        **{f"{name}_dir": f"/{name}" for name in ("models", "stacks", "cache")},
        "hf_home": "/hf",
        "user": "b70",
        "group": "b70",
        "frontdoor_url": "http://127.0.0.1:8000",
        "backend_port": 18080,
        "stacks": stacks,
    }
    files = {Path(file["path"]).name: file["content"] for file in render_slot(profiles, settings)}
    found = {}
    for name, profile in sorted(profiles.items()):
        manifest = stacks[profile["stack"]]
        resolved = json.loads(files[f"{name}.json"])
        own = fingerprint(expanded(profile, manifest), manifest, manifest["name"], {})
        del resolved["fingerprint"], resolved["examined"], resolved["unit_sha256"]
        # The first is the profile's own where it has one engine; several each have a file.
        numbers = [row["index"] for row in resolved["engine"].get("replicas", [])]
        engines = [f"{name}@{number}" for number in numbers] or [name]
        parts = {
            "profile": json.dumps(resolved, sort_keys=True),
            "environment": "".join(files[f"{engine}.env"] for engine in engines),
            "unit": "".join(files[f"b70-slot-main-{engine}.service"] for engine in engines),
            "fingerprint": own,
        }
        identity = stack_id(manifest)
        found[name] = {
            key: hashlib.sha256(text.replace(identity, manifest["name"]).encode()).hexdigest()[:16]
            for key, text in parts.items()
        }
    return found


def main() -> None:
    """Write the file."""
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in digests().items())
    FILE.write_text("{\n" + rows + "\n}\n")


if __name__ == "__main__":
    main()
