# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host serves the real engine from a container image of a real registry, and goes back to its own environment.

The tests are one story in this order, on the host of `test_llama.py` and `test_kinds.py`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from testinfra.host import Host

from ansible_collections.arcpro.b70.plugins.plugin_utils._nodes import NodePlace
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.unit import node_data
from ansible_collections.arcpro.b70.plugins.plugin_utils._templates import render
from system.kinds import LAB, SITE, SWITCH, Image, Operator, run, served
from system.product import (
    Frontdoor,
    answer_of,
    lab_command,
    play,
    served_process,
    wait_served_anew,
    words_of,
)

UNIT = "b70-slot-main-tiny-image.service"
# A site with the packages of a derived image, whose certificate the host trusts.
PACKAGES = "/srv/packages"
CONTROL = """\
Package: lab-runtime
Version: {version}
Architecture: all
Maintainer: Lab <lab@example.org>
Description: Lab
"""
SERVER = """\
import http.server
import ssl
server = http.server.ThreadingHTTPServer(("", 8443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/srv/lab.crt", "/srv/lab.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


@pytest.fixture(scope="session")
def host_vars(kinds_vars: dict[str, Any]) -> dict[str, Any]:
    return kinds_vars


@pytest.fixture(scope="module")
def image(kinds_image: Image) -> Image:
    return kinds_image


@pytest.fixture(scope="module")
def operator(kinds_native: Operator, kinds_image: Image) -> Operator:
    return kinds_native


@pytest.fixture(scope="module")
def packages(operator: Operator, host: Host) -> list[dict[str, str]]:
    """Two releases of a package on an HTTPS server: `url` and `sha256` of each."""
    address = operator.address
    run(
        host,
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab -keyout /srv/lab.key -out /srv/lab.crt "
        f"-addext subjectAltName=IP:{address} && install -m 644 /srv/lab.crt /usr/local/share/ca-certificates/ && "
        "update-ca-certificates",
    )
    found = []
    for version in ("1", "2"):
        tree, file = f"/srv/tree-{version}", f"lab-runtime_{version}_all.deb"
        run(
            host,
            f"mkdir -p {PACKAGES} {tree}/DEBIAN {tree}/usr/share/lab && "
            f"echo {version} > {tree}/usr/share/lab/runtime && "
            f"cat > {tree}/DEBIAN/control <<'END' && dpkg-deb --build --root-owner-group {tree} {PACKAGES}/{file}\n"
            f"{CONTROL.format(version=version)}END",
        )
        digest = run(host, f"sha256sum {PACKAGES}/{file}").split()[0]
        found.append({"url": f"https://{address}:8443/{file}", "sha256": digest})
    run(host, f"cat > /srv/server.py <<'END'\n{SERVER}END")
    run(host, f"systemd-run --unit=lab-packages --working-directory={PACKAGES} python3 /srv/server.py")
    return found


def main_pid(host: Host) -> int:
    return int(run(host, f"systemctl show --property=MainPID --value {UNIT}"))


def engine_pid(host: Host) -> int:
    pid = main_pid(host)
    return int(run(host, f"cat /proc/{pid}/task/{pid}/children").split()[0])


def test_check_mode_says_what_it_would_pull_and_changes_nothing(operator: Operator, image: Image, host: Host) -> None:
    done = play(SITE, "--check", *operator.words("tiny-image"))
    assert done.code == 0, done.output[-4000:]
    assert "would install stack lab-image-" in done.output
    assert f"the image {image.name}@{image.digest}, 1 GB" in words_of(done.output)
    assert run(host, "podman image ls --quiet") == ""


def test_a_digest_that_the_registry_has_not_is_refused_in_its_words(operator: Operator, frontdoor: Frontdoor) -> None:
    done = play(SITE, *operator.words("tiny-image-gone"))
    assert done.code != 0
    said = words_of(done.output)
    assert "manifest unknown" in said
    assert "the registry has no image of this name and digest" in said
    assert answer_of(frontdoor.ask()) == "I am tiny-a."


def test_a_pull_from_a_registry_that_says_nothing_more_is_ended(
    operator: Operator, host: Host, frontdoor: Frontdoor
) -> None:
    run(host, "systemctl kill --signal=STOP docker-registry")
    try:
        done = play(SITE, *operator.words("tiny-image", stack_stall_timeout=10))
    finally:
        run(host, "systemctl kill --signal=CONT docker-registry")
    assert done.code != 0
    assert "transferred nothing for 10 s and was ended" in words_of(done.output), done.output[-4000:]
    assert run(host, "systemctl list-units --plain --no-legend --state=active 'b70-image-*'") == ""
    assert answer_of(frontdoor.ask()) == "I am tiny-a."


def test_a_switch_pulls_the_image_and_serves_it_with_its_canary(
    operator: Operator, image: Image, host: Host, frontdoor: Frontdoor
) -> None:
    done = play(SWITCH, *operator.words("tiny-image"))
    assert done.code == 0, done.output[-6000:]
    assert "pulling or building the image" in done.output
    assert served(frontdoor, "tiny-image")
    assert run(host, f"systemctl is-enabled {UNIT}") == "enabled"
    record = json.loads(run(host, "cat /opt/b70/stacks/lab-image-*/fingerprint.json"))
    assert record["image"]["id"] == run(
        host, f"podman image inspect --format '{{{{.Id}}}}' {image.name}@{image.digest}"
    )


def test_the_engine_in_the_container_has_no_rights(operator: Operator, image: Image, host: Host) -> None:
    pid = engine_pid(host)
    status = run(host, f"cat /proc/{pid}/status")
    uid = run(host, "id -u b70")
    assert re.search(rf"^Uid:\s+{uid}\s+{uid}", status, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    assert "serve" in run(host, f"tr '\\0' ' ' < /proc/{pid}/cmdline")
    argv = run(host, f"cat /proc/{pid}/cgroup")
    assert UNIT in argv
    assert host.run(f"nsenter --target {pid} --mount touch {image.program}").rc != 0, "the image cannot be written"


def test_nothing_differs_from_the_rendering_and_a_second_run_changes_nothing(operator: Operator, host: Host) -> None:
    assert "drift" not in run(host, "b70ctl status").lower()
    again = play(SITE, *operator.words("tiny-image"))
    assert (again.code, again.changed) == (0, 0), again.output[-4000:]


def test_a_killed_container_is_started_and_verified_again(operator: Operator, host: Host, frontdoor: Frontdoor) -> None:
    before = served_process(host)
    run(host, f"kill -9 {engine_pid(host)}")
    wait_served_anew(host, before)
    assert served(frontdoor, "tiny-image")


def test_a_wrong_model_in_the_image_is_rolled_back(operator: Operator, frontdoor: Frontdoor) -> None:
    done = play(SWITCH, *operator.words("tiny-a"))
    assert done.code == 0, done.output[-4000:]
    done = play(SWITCH, *operator.words("tiny-image-corrupt"))
    assert done.code != 0
    assert "canary" in done.output
    assert served(frontdoor, "tiny-a"), "from the image back to the environment"


def test_a_switch_with_the_rights_of_a_service_finds_the_image(
    operator: Operator, host: Host, frontdoor: Frontdoor
) -> None:
    """The frontdoor's helper and the service of a node may not write where Podman keeps its state."""
    place = NodePlace(0, "lo", 18200, (("lab", "127.0.0.1"),), 0, 0)
    settings = {"frontdoor_url": "http://127.0.0.1:8000", "config_dir": "/etc/b70-vllm-slot", "run_dir": "/run/b70",
                "state_dir": "/var/lib/b70", "unit_dir": "/etc/systemd/system",
                "slot": "main", "program": "/opt/b70/bin/b70ctl"}  # fmt: skip
    names = ("Protect", "Capability", "Restrict", "SystemCall", "NoNew", "Private", "Device", "ReadWrite", "Memory")
    lines = render("b70-node.service", node_data(place, settings)).splitlines()
    confined = " ".join(f"--property='{line}'" for line in lines if line.startswith(names))
    run(host, f"systemd-run --quiet --pipe --wait --collect {confined} b70ctl switch tiny-image")
    assert served(frontdoor, "tiny-image")


def test_the_host_itself_refuses_an_image_that_is_gone_and_a_play_pulls_it_again(
    operator: Operator, host: Host, frontdoor: Frontdoor
) -> None:
    before = served_process(host)
    run(host, "podman image rm --all --force")
    refused = host.run("b70ctl switch tiny-image")
    assert refused.rc != 0
    assert "the image of tiny-image is not on this host" in words_of(refused.stdout + refused.stderr)
    assert served_process(host) == before
    done = play(SWITCH, *operator.words("tiny-image"))
    assert done.code == 0, done.output[-4000:]
    assert served(frontdoor, "tiny-image")


def derived(host: Host) -> dict[str, dict[str, Any]]:
    """The records of the derived image, by what its package says; each is that of an image that is there."""
    found = {}
    for file in run(host, "ls /opt/b70/stacks/lab-derived-*/fingerprint.json").split():
        record = json.loads(run(host, f"cat {file}"))["image"]
        inside = f"podman run --rm --pull=never --network=none --pids-limit=-1 --entrypoint=/usr/bin/cat {record['id']}"
        found[run(host, f"{inside} /usr/share/lab/runtime")] = record
    return found


def test_a_derived_image_is_built_once_from_the_base_and_the_packages_of_its_manifest(
    operator: Operator, image: Image, host: Host, packages: list[dict[str, str]]
) -> None:
    operator.stack("lab-derived", image, debs=packages[:1])
    words = operator.words("tiny-image", stack_names=["lab-image", "lab-derived"])
    done = play(SITE, *words)
    assert done.code == 0, done.output[-6000:]
    assert "and 1 packages in it" in words_of(done.output)
    record = derived(host)["1"]
    assert record["source"] == f"{image.name}@{image.digest}"
    assert record["id"] == run(host, f"podman image inspect --format '{{{{.Id}}}}' {record['reference']}")
    again = play(SITE, *words)
    assert (again.code, again.changed) == (0, 0), again.output[-4000:]
    assert derived(host) == {"1": record}


def test_a_package_that_is_not_the_one_of_the_manifest_is_refused(
    operator: Operator, image: Image, host: Host, frontdoor: Frontdoor, packages: list[dict[str, str]]
) -> None:
    operator.stack("lab-derived", image, debs=[{**packages[1], "sha256": "0" * 64}])
    done = play(SITE, *operator.words("tiny-derived"))
    assert done.code != 0
    assert "did not match" in words_of(done.output), done.output[-4000:]
    assert answer_of(frontdoor.ask()) == "I am tiny-a."


def test_a_changed_manifest_builds_another_image_which_is_served(
    operator: Operator, image: Image, host: Host, frontdoor: Frontdoor, packages: list[dict[str, str]]
) -> None:
    operator.stack("lab-derived", image, debs=packages[1:])
    done = play(SITE, *operator.words("tiny-derived"))
    assert done.code == 0, done.output[-6000:]
    assert served(frontdoor, "tiny-derived")
    both = derived(host)
    assert both["1"]["id"] != both["2"]["id"]
    unit = run(host, "systemctl cat b70-slot-main-tiny-derived.service")
    assert both["2"]["reference"] in unit
    done = play(SWITCH, *operator.words("tiny-image"))
    assert done.code == 0, done.output[-4000:]


def test_a_reboot_brings_the_container_back_verified(operator: Operator, host: Host, frontdoor: Frontdoor) -> None:
    before = served_process(host)
    lab_command("reboot", f"{LAB}1")
    wait_served_anew(host, before)
    assert served(frontdoor, "tiny-image")
