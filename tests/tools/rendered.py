# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what one profile of each kind renders to: a readable file for each, which a test compares.

A line of a unit, an environment or a profile that changes restarts engines, and a changed fingerprint voids what was
recorded for it. Run this when that is meant, and read the difference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/unit/plugins/plugin_utils/_render/golden"
sys.path[:0] = [str(ROOT / ".cache/collections")]

NODES = {
    "interface": "ens2f0np0",
    "hosts": [{"name": "alpha", "address": "10.20.0.1"}, {"name": "beta", "address": "10.20.0.2"}],
}
# By the name of the file: a shipped profile or example, what is changed of it, and settings of its slot.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "vllm": ("qwen38-27b-fp8-tp2", {}, {}),
    "replicas": ("qwen35-9b-w4a16", {"replicas": 2}, {}),
    "beside": ("qwen35-9b-w4a16", {}, {"cards": 2}),
    "llama-server": ("lfm25-2.6b-q8-gguf", {}, {}),
    "image": ("qwen35-9b-w4a16-image", {}, {}),
    "nodes": ("two-hosts", {}, {"nodes": NODES, "node": "alpha"}),
    "remote": ("remote", {}, {}),
}


def texts() -> dict[str, str]:
    """Return ``{name of the file: its text}``, with stacks by name and not by content."""
    from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
    from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import SHIPPED
    from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, stack_id
    from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.typed import expanded
    from ansible_collections.arcpro.b70.plugins.plugin_utils._render.rendering import fingerprint, render_slot

    stacks = load_stacks()
    profiles = load_catalogue([SHIPPED / "examples"], stacks=stacks)
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
    found = {}
    for case, (name, changes, more) in CASES.items():
        profile = {**profiles[name], **changes}
        manifest = stacks[profile["stack"]]
        files = {Path(row["path"]).name: row["content"] for row in render_slot({name: profile}, {**settings, **more})}
        resolved = json.loads(files.pop(f"{name}.json"))
        # What follows from the content of the stack, the profile and the unit, and what stands in the other files.
        engines = (resolved["engine"], *resolved["engine"].get("replicas", []), resolved["engine"].get("beside", {}))
        for part in (resolved, *engines):
            for key in ("fingerprint", "examined", "unit_sha256", "argv", "env"):
                part.pop(key, None)
        own = fingerprint(expanded(profile, manifest), manifest, manifest["name"], {})
        parts = {"fingerprint": f"{own}\n", "profile": f"{json.dumps(resolved, indent=2)}\n"}
        # The units beside the engine's are the same for all kinds.
        kept = (".service", ".env") if case == "vllm" else (f"{name}.service", "@", f"{name}.env", "b70-node-main")
        parts |= {file: text for file, text in sorted(files.items()) if any(word in file for word in kept)}
        text = "".join(f"==> {part} <==\n{content.rstrip()}\n\n" for part, content in parts.items())
        found[f"{case}.txt"] = text.replace(stack_id(manifest), manifest["name"]).rstrip() + "\n"
    return found


def main() -> None:
    """Write the files."""
    for name, text in texts().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
