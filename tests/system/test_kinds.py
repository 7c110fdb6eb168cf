# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switches between kinds of engines, from environments and from images, under clients that never stop asking.

The tests are one story in this order, on Debian 12 and on Debian 13, whose hosts have other Podmans, other OCI runtimes
and, on Debian 13, no Python for the environment of vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from demo import inventory_hosts
from labkit.layout import open_lab
from scenarios.outcome import wait_served
from scenarios.recording import Recording, Watch
from scenarios.rig import Rig, names_of
from system.kinds import LAB, LLAMA, SITE, Image, Operator, run, served, with_containers, write
from system.product import INVENTORY, ROOT, Frontdoor, lab_command, play, reach, until
from unit.quadlet import GENERATED, directives, words
from vendor.server import gateway, serve

GENERATOR = "/usr/lib/systemd/system-generators/podman-system-generator"
# In place of an engine: it says who it is and whether it may open a card, and ends.
OPENS = ["/bin/bash", "-c", "id; : <> /dev/dri/renderD128 && echo opened"]
exhaustive = pytest.mark.exhaustive
# What is served, what is switched to, and what comes of it. test_llama.py and test_images.py have two more pairs with a
# corrupt one. Those that start a vLLM anew take long.
STEPS = [
    ("12", "tiny-a", "tiny-image", "committed"),
    pytest.param("12", "tiny-image", "tiny-corrupt-gguf", "rolled_back", marks=exhaustive),
    ("12", "tiny-image", "tiny-a-gguf", "committed"),
    ("12", "tiny-a-gguf", "tiny-gguf-image-corrupt", "rolled_back"),
    ("12", "tiny-a-gguf", "tiny-gguf-image", "committed"),
    pytest.param("12", "tiny-gguf-image", "tiny-image-corrupt", "rolled_back", marks=exhaustive),
    pytest.param("12", "tiny-gguf-image", "tiny-corrupt", "rolled_back", marks=exhaustive),
    ("12", "tiny-gguf-image", "tiny-a", "committed"),
    pytest.param("12", "tiny-a", "tiny-gguf-image-corrupt", "rolled_back", marks=exhaustive),
    pytest.param("13", "tiny-gguf-image", "tiny-image-corrupt", "rolled_back", marks=exhaustive),
    pytest.param("13", "tiny-gguf-image", "tiny-image", "committed", marks=exhaustive),
    pytest.param("13", "tiny-image", "tiny-gguf-image-corrupt", "rolled_back", marks=exhaustive),
    pytest.param("13", "tiny-image", "tiny-gguf-image", "committed", marks=exhaustive),
]
ENDS = [
    pytest.param("12", "tiny-gguf-image", marks=exhaustive),
    pytest.param("13", "tiny-gguf-image", marks=exhaustive),
    pytest.param("13", "tiny-image", marks=exhaustive),
]


@dataclass(frozen=True)
class Place:
    """A host, who plays on it, and the profiles that its story switches to."""

    operator: Operator
    rig: Rig
    host: Host
    frontdoor: Frontdoor

    def play(self, profile: str, **more: Any) -> None:
        done = play(SITE, "--limit", self.rig.host.name, *self.operator.words(profile, **more), limit_s=3600)
        assert done.code == 0, done.output[-6000:]

    def have(self, profile: str) -> None:
        """Have this profile served."""
        if self.rig.state()["profile"]["name"] != profile:
            self.switch(profile, "committed")

    def switch(self, profile: str, outcome: str) -> None:
        done = self.rig.ctl("switch", profile, limit_s=600)
        assert (done.code, done.data["outcome"]) == (0 if outcome == "committed" else 1, outcome), done


@pytest.fixture(scope="module")
def built(kinds_native: Operator, kinds_image: Image, kinds_vars: dict[str, Any]) -> Operator:
    """All stacks are on the first host, and an image of llama.cpp is in its registry."""
    operator, host = kinds_native, reach(kinds_vars)
    names = ["cpu", "llama-cpu", "lab-image"]
    done = play(SITE, "--limit", f"{LAB}1", *operator.words("tiny-a", stack_names=names), limit_s=5400)
    assert done.code == 0, done.output[-6000:]
    program = run(host, "readlink -e /opt/b70/stacks/llama-cpu-*/venv/bin/llama-server")
    image = operator.publish(host, "lab/llama", program, LLAMA)
    operator.stack("lab-llama", image)
    operator.stack("lab-cards", kinds_image, device="xpu", start=OPENS)
    return operator


@pytest.fixture(scope="module")
def places(built: Operator) -> Callable[[str], Place]:
    """Return the host with a release of Debian, with all its stacks; it serves the first profile of its story."""

    @cache
    def with_release(release: str) -> Place:
        number = 1
        if release == "13":
            number = 2
            lab_command("up", "--hosts", "2", "--containers", "--suite", "trixie")
        variables = inventory_hosts(str(INVENTORY), "b70_hosts")[f"{LAB}{number}"]
        frontdoor = Frontdoor(f"http://{variables['ansible_host']}:8000")
        made = Place(built, Rig(open_lab(LAB), number), reach(variables), frontdoor)
        assert run(made.host, "cat /etc/debian_version").startswith(release)
        if number == 1:
            made.play("tiny-a", stack_names=["cpu", "llama-cpu", "lab-image", "lab-llama"])
        else:
            with_containers(made.host, built.address)
            made.play("tiny-gguf-image", stack_names=["lab-image", "lab-llama"])
        return made

    return with_release


@pytest.fixture
def place(request: pytest.FixtureRequest, places: Callable[[str], Place]) -> Place:
    # Not of the module's scope: pytest would make the host anew for each case that names its release.
    return places(request.param)


@pytest.fixture
def recorded(place: Place) -> Iterator[Callable[[], Recording]]:
    """Begin to record what clients get; each answer must be right, or a refusal that says why."""
    watch = Watch(place.rig)
    try:
        yield watch.begin
        recording = watch.end()
    finally:
        watch.stop()
    recording.check_right("I am tiny-a.")
    assert any(answer.status == 200 for answer in recording.answers)


@pytest.mark.parametrize(("place", "before", "profile", "outcome"), STEPS, indirect=["place"])
def test_a_switch_to_another_kind_gives_clients_right_answers_and_refusals_that_say_why(
    place: Place, recorded: Callable[[], Recording], before: str, profile: str, outcome: str
) -> None:
    place.have(before)
    recorded()
    place.switch(profile, outcome)
    serves = profile if outcome == "committed" else before
    # The clients' answers are looked at when their recording ends; they leave no permit for another one.
    status = place.frontdoor.status()
    assert (status["model_slot"]["name"], status["verified"]) == (serves, True)
    facts = place.rig.facts()
    assert (names_of(facts.running), names_of(facts.enabled)) == ([serves], [serves])


@pytest.mark.parametrize(("place", "profile"), ENDS, indirect=["place"])
def test_an_engine_in_a_container_is_served_verified_again_after_a_kill_and_after_a_reboot(
    place: Place, profile: str
) -> None:
    rig = place.rig
    place.have(profile)
    for end in (lambda: rig.must("podman", "kill", "--signal=KILL", f"b70-slot-main-{profile}"), rig.reboot):
        before = str(rig.state()["engine"]["invocation_id"])
        end()
        wait_served(rig, before)
        assert served(place.frontdoor, profile)


@pytest.mark.parametrize("place", ["12", pytest.param("13", marks=exhaustive)], indirect=True)
def test_the_account_of_an_engine_opens_the_cards_of_its_container(place: Place) -> None:
    """The node is a stand-in that the group render may open, as a card's is."""
    host, unit = place.host, "/etc/systemd/system/b70-slot-main-tiny-image-cards.service"
    node = "/dev/dri/renderD128"
    run(host, f"mkdir -p /dev/dri/by-path; [ -e {node} ] || mknod {node} c 1 3; chgrp render {node}; chmod 660 {node}")
    # As it is rendered, under a name that the slot takes no notice of.
    kept = [
        line for line in run(host, f"cat {unit}").splitlines() if not line.startswith(("ExecStartPost=", "Restart="))
    ]
    write(host, "/etc/systemd/system/lab-cards.service", "\n".join(kept).replace(Path(unit).stem, "lab-cards") + "\n")
    run(host, "systemctl daemon-reload; systemctl start lab-cards.service")
    until(lambda: run(host, "systemctl show -P ActiveState lab-cards").startswith(("inactive", "failed")), "its end")
    said = run(host, "journalctl --output=cat --unit=lab-cards")
    assert f"uid={run(host, 'id -u b70')}" in said, said
    assert "opened" in said.splitlines(), said


@exhaustive
@pytest.mark.parametrize("place", ["13"], indirect=True)
@pytest.mark.parametrize("case", ["one-card", "two-cards"])
def test_the_recorded_output_of_podmans_generator_is_what_it_prints(place: Place, case: str) -> None:
    """`_render/test_launch.py` compares the units with that output. It has options in another order each time."""
    file = GENERATED / case / "b70-slot-main-demo.container"
    write(place.host, f"/srv/quadlet-{case}/{file.name}", file.read_text())
    printed = run(place.host, f"QUADLET_UNIT_DIRS=/srv/quadlet-{case} {GENERATOR} --dryrun")
    recorded = (GENERATED / case / "podman-5.4.2.service").read_text()
    for section in ("Unit", "Service", "Install"):
        now, then = (
            [row for row in directives(text, section) if row[0] not in ("SourcePath", "ExecStart")]
            for text in (printed, recorded)
        )
        assert now == then
    start, before = (dict(directives(text))["ExecStart"] for text in (printed, recorded))
    assert words(start) == words(before)


@exhaustive
@pytest.mark.parametrize("place", ["12"], indirect=True)
def test_a_host_without_a_way_out_gets_its_image_from_a_mirror(place: Place) -> None:
    operator, host, folder = place.operator, place.host, "images-mirror"
    given = {
        "b70_mirror_machine": place.rig.host.name,
        "mirror_stacks": ["lab-llama"],
        "mirror_dir": f"/var/cache/b70/{folder}/www",
        "mirror_key_home": f"/var/cache/b70/{folder}/key",
    }
    filled = play(ROOT / "tests/system/mirror_images.yml", *operator.words("tiny-a-gguf", **given))
    assert filled.code == 0, filled.output[-4000:]
    place.have("tiny-a-gguf")
    run(host, "systemctl stop docker-registry; podman image rm --all --force; rm -r /opt/b70/stacks/lab-llama-*")
    lab_command("nat", "off")
    try:
        with serve(ROOT / ".lab/cache/host" / folder / "www", gateway()) as url:
            place.play("tiny-gguf-image", stack_image_mirror=f"{url}/images")
    finally:
        lab_command("nat", "on")
        run(host, "systemctl start docker-registry")
    assert served(place.frontdoor, "tiny-gguf-image")
    image = yaml.safe_load((operator.folder / "lab-llama.yml").read_text())["image"]
    assert run(host, f"podman image inspect --format '{{{{.Digest}}}}' {image['name']}@{image['digest']}")
