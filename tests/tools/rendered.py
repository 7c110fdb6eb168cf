# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what one profile of each kind and the hosts around render to: readable files, which a test compares.

A line of a unit, an environment or a profile that changes restarts engines, and a changed fingerprint voids what was
recorded for it. Run this when that is meant, and read the difference.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/unit/plugins/plugin_utils/_render/golden"
sys.path[:0] = [str(ROOT / ".cache/collections"), str(ROOT / "tests")]

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
        if case != "vllm":  # the part of the catalogue alone, which that one has
            resolved = {key: part for key, part in resolved.items() if part != profile.get(key)}
        resolved["frontdoor"] = {
            key: value for key, value in resolved.get("frontdoor", {}).items() if value is not None
        }
        own = fingerprint(expanded(profile, manifest), manifest, manifest["name"], {})
        parts = {"fingerprint": f"{own}\n", "profile": f"{json.dumps(resolved, indent=2)}\n"}
        # The units beside the engine's are the same for all kinds.
        kept = [f"{name}.service", "@", f"{name}.env", "b70-node-main", "account.env"]
        kept = [".service", ".env", ".conf", ".bash"] if case == "vllm" else kept
        parts |= {file: text for file, text in sorted(files.items()) if any(word in file for word in kept)}
        found[f"{case}.txt"] = joined(parts).replace(stack_id(manifest), manifest["name"])
    return found | {f"{name}.txt": joined(parts) for name, parts in around().items()}


def joined(parts: Mapping[str, str]) -> str:
    """Return the files as one text, each below its name."""
    return "".join(f"==> {part} <==\n{content.rstrip()}\n\n" for part, content in parts.items()).rstrip() + "\n"


def around() -> dict[str, dict[str, str]]:
    """Return the files of a load balancer and of a host with Prometheus, with all that may stand in them."""
    from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer import keepalived
    from ansible_collections.arcpro.b70.plugins.plugin_utils._monitoring import alertmanager, prometheus
    from unit.plugins.plugin_utils._load_balancer import test_load_balancer_rendering as balancing
    from unit.plugins.plugin_utils._monitoring.test_monitoring_rendering import GIVEN

    tls = {"ansible_host": "b.example", "frontdoor_tls_certificate": "/cert.pem"}
    told = {"a": {"b70_profile": "small"}, "b": {"b70_profile": "large", **tls}}
    settings = {"sticky": "header", "keys_file": "/keys.map", "api_keys": {"alice": "sha256:11"}}
    settings |= {"allowed_networks": ["192.0.2.0/24"], "tls_certificate": "/lb.pem"}
    hosts = [balancing.host(name, **own) for name, own in told.items()]
    scraped = prometheus.settings_of({**GIVEN, "key_file": "/key", "ca_file": "/ca.pem", "rule_files": ["/own.yml"]})
    receiver = {"webhook_configs": [{"url": "https://alerts.example"}]}
    return {
        "load-balancer": {
            "haproxy.cfg": balancing.rendered(*hosts, **settings),
            "keepalived.conf": keepalived.configuration(balancing.VRRP),
        },
        "monitoring": {
            **prometheus.files(scraped, told, {"lb": {"load_balancer_metrics_host": "0.0.0.0"}}, {}),
            "alertmanager.yml": alertmanager.configuration(receiver, receiver, receiver),
        },
    }


def main() -> None:
    """Write the files."""
    for name, text in texts().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
