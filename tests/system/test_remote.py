# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine elsewhere: of two real hosts one serves the real vLLM behind a key, and the other relays.

The tests are one story, in this order. They have a lab of their own, which is taken down afterwards.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from testinfra.host import Host

from system.product import QUESTION, Play, lab_command, play, reach, words_of

SECRET = "lab-secret-3f9a7c51e2"
DIGEST = f"sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}"
LIMIT_S = 90.0


@dataclass
class Site:
    """Two hosts: `near` relays, `far` computes. outputs: what every play printed."""

    names: tuple[str, str]
    addresses: tuple[str, str]
    near: Host
    far: Host
    variables: Path
    outputs: list[str]

    def run(self, playbook: str, host: int, profile: str, *more: str) -> Play:
        words = ["--limit", self.names[host], "-e", f"profile={profile}", "-e", f"@{self.variables}", *more]
        done = play(playbook, *words)
        self.outputs.append(done.output)
        return done

    def ask(self, **more: Any) -> requests.Response:
        """Ask for the model elsewhere, unless more says another one. more: further members of the body."""
        body = {
            "model": "assistant",
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": 12,
            "temperature": 0,
        }
        body |= more
        headers = {"Authorization": f"Bearer {SECRET}"}
        url = f"http://{self.addresses[0]}:8000/v1/chat/completions"
        return requests.post(url, json=body, headers=headers, timeout=60)

    def answers(self) -> bool:
        try:
            answer = self.ask()
        except requests.ConnectionError:
            return False
        return answer.status_code == 200 and said(answer) == "I am tiny-a."

    def verified_at(self) -> str:
        """Return when what is served was verified last (ISO 8601, UTC)."""
        return str(json.loads(self.near.check_output("b70ctl status --json"))["verified_at"])


def said(answer: requests.Response) -> str:
    return str(answer.json()["choices"][0]["message"]["content"]).strip()


def becomes(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not wanted():
        assert time.monotonic() < end
        time.sleep(1)


def profile(address: str, port: int, identity: str) -> dict[str, Any]:
    cases = [
        ("exact_ok", "Answer with the two letters OK and nothing more.", "OK"),
        ("copy_phrase", "Write these three words back to me unchanged: satin cobalt orbit", "satin cobalt orbit"),
        ("identity", QUESTION, identity),
    ]
    return {
        "extends": "_remote",
        "title": "Tiny A on the other host",
        "status": "candidate",
        "modalities": ["text"],
        "engine": {
            "served_model_name": "assistant",
            "remote": {
                "base_url": f"http://{address}:{port}/v1",
                "model": "tiny-a",
                "api_key_file": "far",
                "allow_plain_http": True,
            },
            "settings": {"max_model_len": 2048, "max_num_seqs": 2},
            "start_timeout_s": 20,
        },
        "canary": {
            "cases": [
                {"name": name, "prompt": prompt, "max_tokens": 12, "compare": "exact", "expected": expected}
                for name, prompt, expected in cases
            ]
        },
    }


@pytest.fixture(scope="session")
def site(two_hosts: list[tuple[str, dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> Site:
    hosts = two_hosts
    names, addresses = (hosts[0][0], hosts[1][0]), (hosts[0][1]["ansible_host"], hosts[1][1]["ansible_host"])
    variables = tmp_path_factory.mktemp("site") / "variables.json"
    profiles = {
        "elsewhere": profile(addresses[1], 8000, "I am tiny-a."),
        "elsewhere-gone": profile(addresses[1], 8999, "I am tiny-a."),
        "elsewhere-wrong": profile(addresses[1], 8000, "I am tiny-b."),
    }
    keys = {"slot_remote_keys": {"far": SECRET}, "frontdoor_api_keys": {"near": DIGEST}}
    variables.write_text(json.dumps({"b70_profiles": profiles, **keys}))
    return Site(names, addresses, reach(hosts[0][1]), reach(hosts[1][1]), variables, [])


def test_the_far_host_serves_a_model(site: Site) -> None:
    done = site.run("site.yml", 1, "tiny-a")
    assert done.code == 0, done.output


def test_a_bare_host_serves_it_as_its_own(site: Site) -> None:
    done = site.run("site.yml", 0, "elsewhere", "--diff")
    assert done.code == 0, done.output
    answer = site.ask()
    assert answer.status_code == 200, answer.text
    assert said(answer) == "I am tiny-a."
    status = site.near.check_output("b70ctl status")
    assert f"remote: the engine is elsewhere, at http://{site.addresses[1]}:8000/v1" in status
    # What the key pays for elsewhere is nobody's but this model.
    assert site.ask(model="tiny-a").status_code == 200
    for other in ("tiny-b", None):
        assert site.ask(model=other).status_code == 404
    # Neither a stack nor the package's own service.
    assert not site.near.file("/opt/b70/stacks").exists or not site.near.file("/opt/b70/stacks").listdir()
    assert not site.near.service("haproxy").is_running
    assert not site.near.service("haproxy").is_enabled


def test_a_second_run_changes_nothing(site: Site) -> None:
    done = site.run("site.yml", 0, "elsewhere")
    assert done.code == 0, done.output
    assert done.changed == 0, done.output


def test_the_doctor_misses_nothing_that_an_engine_elsewhere_does_without(site: Site, tmp_path: Path) -> None:
    done = site.run("doctor.yml", 0, "elsewhere", "-e", f"doctor_json_dir={tmp_path} doctor_limit=900")
    assert done.code == 0, done.output
    (file,) = tmp_path.glob("*.json")
    found = {item["id"]: item for item in json.loads(file.read_text())["findings"]}
    assert found["weights"]["summary"] == "elsewhere needs no weights: its engine is elsewhere"
    assert found["stacks"]["level"] == "PASS", found["stacks"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("elsewhere-gone", "known symptom remote_unreachable"),
        ("elsewhere-wrong", "canary case identity of elsewhere-wrong failed"),
    ],
)
def test_a_remote_that_is_gone_or_wrong_is_refused_and_the_one_before_comes_back(
    site: Site, name: str, why: str
) -> None:
    done = site.run("switch.yml", 0, name)
    assert done.code != 0
    assert why in words_of(done.output)
    assert site.answers()


def test_a_switch_to_an_engine_of_this_host_and_back(site: Site) -> None:
    done = site.run("site.yml", 0, "tiny-b")
    assert done.code == 0, done.output
    answer = site.ask(model="tiny-b")
    assert answer.status_code == 200, answer.text
    assert said(answer) == "I am tiny-b."
    done = site.run("switch.yml", 0, "elsewhere")
    assert done.code == 0, done.output
    assert site.answers()


def test_a_remote_that_dies_is_told_to_clients_and_is_verified_again_when_it_comes_back(site: Site) -> None:
    before = site.verified_at()
    site.far.check_output("systemctl stop b70-openai-frontdoor")
    becomes(lambda: site.ask().status_code in (502, 503))
    error = site.ask().json()["error"]
    assert error["message"]
    site.far.check_output("systemctl start b70-openai-frontdoor")
    becomes(site.answers)
    # It may have come back as another engine.
    becomes(lambda: site.verified_at() > before)


def test_it_is_served_again_after_a_reboot(site: Site) -> None:
    lab_command("reboot", site.names[0])
    becomes(site.answers)


def test_the_key_is_nowhere_but_in_its_files(site: Site) -> None:
    assert not [text for text in site.outputs if SECRET in text]
    assert SECRET not in site.near.check_output("journalctl --no-pager")
    # The command that looks does not hold the key itself, which comes from the file.
    file = "/etc/b70-vllm-slot/keys/far"
    places = "/proc/[0-9]*/cmdline /proc/[0-9]*/environ"
    assert site.near.run(f"cat {places} 2>/dev/null | tr '\\0' '\\n' | grep -F -f {file}").stdout == ""
    # Files: the key's own, the credential, and the configuration below /run.
    found = site.near.run(f"grep -rlF -f {file} /etc /run /var/lib/b70 /opt/b70 /var/log 2>/dev/null").stdout.split()
    assert file in found
    assert {Path(path).name for path in found} <= {"far", "key", "haproxy.cfg"}
    assert site.near.file(file).mode == 0o600
