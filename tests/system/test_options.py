# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frontdoor with everything on that is off out of the box. Begins with a model served; nothing is taken back."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
import requests
from testinfra.host import Host

from system.product import ROOT, Frontdoor, Play, play

KEYS = {"alice": "key-of-alice", "bob": "key-of-bob"}
UNIT = "b70-openai-frontdoor.service"
CERTIFICATE, SECRET = "/etc/ssl/certs/b70-lab.pem", "/etc/ssl/private/b70-lab.key"


def digest(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def apply(options: dict[str, Any]) -> Play:
    """Run the role with these variables, and that of the slot, which must know how to reach the frontdoor."""
    return play(ROOT / "site.yml", "--diff", "--tags", "always,slot,frontdoor", "-e", json.dumps(options))


@pytest.fixture(scope="module")
def options(host: Host) -> dict[str, Any]:
    """All of them."""
    openssl = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=b70-lab -keyout %s -out %s"
    host.check_output(openssl, SECRET, CERTIFICATE)
    host.check_output("chmod 600 %s", SECRET)
    return {
        "frontdoor_api_keys": {name: digest(key) for name, key in KEYS.items()},
        "frontdoor_admin_keys": {"root": digest("key-of-root")},
        "frontdoor_tls_certificate": CERTIFICATE,
        "frontdoor_tls_key": SECRET,
        "frontdoor_allowed_networks": ["10.0.0.0/8", "fd00::/8"],
        "frontdoor_model_policy": "rewrite",
        "frontdoor_model_aliases": ["gpt-of-the-house"],
        "frontdoor_default_max_tokens": 4,
        "frontdoor_max_tokens": 8,
        "frontdoor_sampling_defaults": {"temperature": 0},
        "frontdoor_max_connections": 50,
        "frontdoor_max_body_bytes": 100000,
        "frontdoor_event_log": False,
        "frontdoor_settings": {"limits": {"header_timeout_s": 30}},
    }


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_everything_at_once(options: dict[str, Any], frontdoor: Frontdoor, host: Host) -> None:
    done = apply(options)
    assert done.code == 0, done.output
    for key in (*KEYS.values(), "key-of-root"):
        assert digest(key)[7:] not in done.output
    process = "systemctl show --property=InvocationID,MainPID,ActiveState %s"
    before = host.check_output(process, UNIT)
    again = apply(options)
    assert (again.code, again.changed) == (0, 0), again.output
    assert host.check_output(process, UNIT) == before
    secure = frontdoor.url.replace("http://", "https://")

    def ask(path: str, key: str = "", body: Any = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        method = "GET" if body is None else "POST"
        return requests.request(method, secure + path, json=body, headers=headers, verify=False, timeout=180)

    with pytest.raises(requests.ConnectionError):
        requests.get(f"{frontdoor.url}/health", timeout=60)
    assert ask("/ready").status_code == 200
    for path in ("/status", "/metrics", "/v1/models", "/engine/metrics"):
        assert ask(path).status_code == 401, path
        assert ask(path, KEYS["alice"]).status_code == 200, path
    about = ask("/status", KEYS["bob"]).json()["frontdoor"]
    assert (about["auth"], about["tls"], about["admin"], about["event_logging"]) == ("api_key", True, True, False)
    assert ask("/v1/admin/models", KEYS["bob"]).status_code == 403
    assert ask("/v1/admin/models", "key-of-root").status_code == 200
    # through the helper; the lab has no cards, and says so instead of numbers
    memory = ask("/v1/admin/gpu-memory", "key-of-root").json()
    assert (memory["gpus"], memory["error"]) == ([], "this host shows no cards")
    messages = [{"role": "user", "content": "Who are you?"}]
    answer = ask("/v1/chat/completions", KEYS["alice"], {"model": "gpt-of-the-house", "messages": messages})
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 4
    answer = ask("/v1/chat/completions", KEYS["alice"], {"model": "any", "messages": messages, "max_tokens": 500})
    assert answer.json()["usage"]["completion_tokens"] <= 8
    assert ask("/v1/chat/completions", KEYS["alice"], {"user": "x" * 200000}).status_code == 413
    metrics = ask("/metrics", KEYS["alice"]).text
    assert 'b70_frontdoor_key_requests_total{key="alice",outcome="ok"}' in metrics
    # and the slot still reaches it: a switch would be heard
    assert host.run("/opt/b70/bin/b70ctl verify").rc == 0
    reached = host.run("grep -o 'https://127.0.0.1:8000' /opt/b70/bin/b70ctl")
    assert reached.rc == 0, reached
    judged = host.run("systemd-analyze security --no-pager %s", UNIT).stdout
    exposure = re.search(r"exposure level for \S+: ([0-9.]+)", judged)
    assert exposure is not None, judged
    assert float(exposure[1]) <= 1.5, judged
    journal = host.check_output("journalctl --sync; journalctl -u %s --since -60min -o cat --no-pager", UNIT)
    assert not [key for key in KEYS.values() if key in journal]
