# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare hosts with one, two and four cards become served, verified models, and nothing is set but the mirror.

One machine fills a mirror with playbooks/mirror.yml, from vendors that answer under their real names. Then the way
out is closed, and the shipped site.yml runs with a recipe's name alone. What is not as on a real host: no card computes
(the cards are files, the engine behind vLLM's wheel is the real one for the processor), the models are tiny, and the
collection is the built one with other digests and another Python in its manifests, which is proven to be all.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from as_recipe import recipe_model
from demo import inventory_hosts
from hub import server as hub_server
from hub.server import Hub
from shipped import elsewhere
from system.product import INVENTORY, ROOT, Frontdoor, Play, answer_of, bare_hosts, lab_command, play, reach
from system.test_pristine import MARKER, changed_files
from vendor import repository, shipped_copy, upstream
from vendor.internet import Internet, internet
from vendor.packages import Package
from vendor.server import Vendors, gateway, serve, vendors

LAB = "bare"
MIRROR = f"{LAB}1"
# Cards -> the host that has them.
HOSTS = {cards: f"{LAB}{number}" for number, cards in enumerate((1, 2, 4), 2)}
# On the mirror's machine, in the cache that all hosts of the lab share: only what is new is downloaded the next time.
KEPT = "/var/cache/b70/bare-mirror"
UBUNTU = (
    'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\n'
    "VERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n"
)
# The driver mirrors there what an engine holds of several cards, and what has no room for it is refused.
MEMORY_KIB = 256 * 2**20
TASK = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(?:[\w.]+\.)?(\w+) : ", re.MULTILINE)


def roles_that_change(output: str) -> set[str]:
    """The roles of which a task changed something, or is predicted to."""
    parts = TASK.split(output)
    return {role for role, text in zip(parts[1::2], parts[2::2], strict=True) if re.search(r"^changed: ", text, re.M)}


@pytest.fixture(scope="session")
def recipes() -> dict[int, dict[str, Any]]:
    """Cards -> a profile of the makers' wheels for so many: images have no stand-in here."""
    names = {1: "qwen38-27b-int4", 2: "qwen38-27b-int4-tp2", 4: "qwen38-27b-fp8-tp4"}
    found = load_catalogue(stacks=load_stacks())
    return {cards: dict(found[names[cards]]) for cards in HOSTS}


@pytest.fixture(scope="session")
def stacks(recipes: dict[int, dict[str, Any]]) -> list[str]:
    return sorted({profile["stack"] for profile in recipes.values()})


@pytest.fixture(scope="session")
def stock(stacks: list[str]) -> upstream.Upstream:
    return upstream.make(ROOT / shipped_copy.STACKS, stacks)


@pytest.fixture(scope="session")
def collections(
    installed: Path, stock: upstream.Upstream, stacks: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The installed tarball with the fixtures' digests."""
    place = tmp_path_factory.mktemp("copy") / "collections"
    shutil.copytree(installed, place, symlinks=True)
    shipped_copy.rewrite(place / "ansible_collections/arcpro/b70", stacks, stock)
    return place


@pytest.fixture(scope="session")
def lab_hosts() -> Iterator[dict[str, dict[str, Any]]]:
    """The mirror's machine and a host for each number of cards, all of them bare, by name."""
    missing = repository.missing_tools()
    assert not missing, f"install them first: apt-get install {' '.join(missing)}"
    with bare_hosts(LAB, 1 + len(HOSTS)):
        lab_command("nat", "on")
        for cards, name in HOSTS.items():
            lab_command("cards", name, str(cards))
        # How to reach them, and nothing of what the checkout's inventory sets for the lab.
        yield {
            name: {key: value for key, value in variables.items() if key.startswith("ansible_")}
            for name, variables in inventory_hosts(str(INVENTORY), "b70_hosts").items()
        }


@pytest.fixture(scope="session")
def reached(lab_hosts: dict[str, dict[str, Any]]) -> dict[str, Host]:
    """Connections to them, as hosts of Ubuntu 24.04 with caches of their own, and with the memory for their cards."""
    found = {name: reach(variables) for name, variables in lab_hosts.items()}
    for name, host in found.items():
        host.check_output("rm /etc/os-release && printf %%s %s > /etc/os-release", UBUNTU)
        if name != MIRROR:
            host.check_output("umount /var/cache/b70 && rmdir /var/cache/b70")
            memory = f"s/^(MemTotal|MemFree|MemAvailable):.*/\\1: {MEMORY_KIB} kB/"
            host.check_output(f"sed -E '{memory}' /proc/meminfo > /run/b70-lab.meminfo")
            host.check_output("mount --bind /run/b70-lab.meminfo /proc/meminfo")
    return found


@pytest.fixture(scope="session")
def hubs(recipes: dict[int, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Hub]]:
    """The repositories that the recipes name, each with the tiny model in its place."""
    made = []
    for profile in recipes.values():
        folder = tmp_path_factory.mktemp("model") / "tiny"
        recipe_model(profile, folder)
        model = profile["model"]
        made.append(Hub(folder, model["hf_repo"], model.get("revision") or hub_server.COMMIT))
    servers = [hub_server.serve(hub, gateway()) for hub in made]
    for server in servers:
        server.__enter__()
    yield made
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def shop(
    lab_hosts: dict[str, Any], stock: upstream.Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Vendors]:
    with vendors(tmp_path_factory.mktemp("vendor"), gateway()) as made:
        (made.root / upstream.STAND_INS).symlink_to(stock.www / upstream.STAND_INS)
        shutil.copyfile(made.root / "gpu.asc", made.root / "gpu/intel-graphics.key")
        keys = made.root / "intel-gpg-keys"
        keys.mkdir()
        shutil.copyfile(made.root / "oneapi.asc", keys / "GPG-PUB-KEY-INTEL-SW-PRODUCTS.PUB")
        defaults = yaml.safe_load((ROOT / "roles/host/defaults/main.yml").read_text())
        kernels = defaults["host_card_kernels"]["ubuntu 24.04"]["packages"]
        wanted = [Package(name, "6.17.0-1") for name in kernels]
        repository.make(made.root / "ubuntu", "noble", wanted, made.ring, made.gpu_driver)
        yield made


@pytest.fixture(scope="session")
def net(
    shop: Vendors, stock: upstream.Upstream, hubs: list[Hub], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Internet]:
    """All vendors under their names."""
    sites = {path.name: path for path in stock.www.iterdir() if "." in path.name}
    sites |= dict.fromkeys(("repositories.intel.com", "apt.repos.intel.com"), shop.root)
    with internet(tmp_path_factory.mktemp("tls"), gateway(), sites, hubs) as made:
        yield made


@dataclass(frozen=True)
class Operator:
    """Who runs the shipped plays: an installed collection, an inventory, no other setting."""

    place: Path
    collections: Path

    def __call__(self, playbook: str, *words: str, limit_s: float = 1800) -> Play:
        return play(
            f"arcpro.b70.{playbook}",
            *words,
            cwd=self.place,
            environment=elsewhere(self.place, self.collections),
            inventory=self.place / "inventory/hosts.yml",
            limit_s=limit_s,
        )

    def write(self, groups: dict[str, Any]) -> None:
        (self.place / "inventory").mkdir(exist_ok=True)
        (self.place / "inventory/hosts.yml").write_text(yaml.safe_dump(groups))


@pytest.fixture(scope="session")
def operator(collections: Path, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator(tmp_path_factory.mktemp("operator"), collections)


@dataclass(frozen=True)
class Mirror:
    """What hosts are told of it: all that is set for them."""

    url: str
    fingerprint: str

    def variables(self) -> dict[str, Any]:
        # Nothing of the frontdoor is compiled here, to save time.
        given = {"b70_mirror_url": self.url, "b70_mirror_key_fingerprint": self.fingerprint}
        return {**given, "frontdoor_compile": False}


@pytest.fixture(scope="session")
def mirror(
    operator: Operator,
    lab_hosts: dict[str, dict[str, Any]],
    reached: dict[str, Host],
    shop: Vendors,
    net: Internet,
    recipes: dict[int, dict[str, Any]],
    stacks: list[str],
) -> Iterator[Mirror]:
    """What the first machine brings from the vendors; afterwards no host has a way out."""
    # The distribution's own packages come from where this machine has its own; Debian has no kernel of Ubuntu's.
    ubuntu = f"echo 'deb [trusted=yes] {shop.url}/ubuntu noble main' > /etc/apt/sources.list.d/ubuntu.list"
    for command in [*net.commands_for(MIRROR), ubuntu]:
        reached[MIRROR].run_expect([0], command)
    given = {
        "mirror_dir": f"{KEPT}/www",
        "mirror_key_home": f"{KEPT}/key",
        # Large, and nothing is measured here; tests/checks/test_mirror_measuring_tools.py has them.
        "mirror_measuring_tools": False,
        "mirror_stacks": stacks,
        "mirror_profiles": sorted(profile["name"] for profile in recipes.values()),
        "mirror_find_links": [f"{shop.url}/{upstream.STAND_INS}/"],
        "gpu_driver_repository_key_fingerprints": [shop.gpu_driver, shop.former],
        "oneapi_repository_key_fingerprint": shop.oneapi,
        "model_weights_environment": {"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"},
    }
    operator.write({"mirrors": {"hosts": {MIRROR: {**lab_hosts[MIRROR], **given}}}})
    done = operator("mirror", "-e", "b70_mirror_machine=mirrors", limit_s=3600)
    assert done.code == 0, done.output[-8000:]
    found = re.search(r"b70_mirror_key_fingerprint: ([0-9A-F]{40})", done.output)
    assert found, done.output[-3000:]
    lab_command("nat", "off")
    root = ROOT / ".lab/cache/host" / Path(KEPT).name / "www"
    with serve(root, gateway()) as url:
        made = Mirror(url, found[1])
        members = {name: lab_hosts[name] for name in HOSTS.values()}
        operator.write({"b70_hosts": {"hosts": members, "vars": made.variables()}})
        yield made


def test_only_digests_and_the_python_differ_from_what_is_shipped(
    installed: Path, collections: Path, stacks: list[str]
) -> None:
    one, other = (path / "ansible_collections/arcpro/b70" for path in (installed, collections))
    assert shipped_copy.differences(one, other) == []
    for name in stacks:
        assert (one / shipped_copy.STACKS / f"{name}.yml").read_text() != (
            other / shipped_copy.STACKS / f"{name}.yml"
        ).read_text()


def test_the_hosts_reach_the_mirror_and_nothing_else(
    mirror: Mirror, reached: dict[str, Host], lab_hosts: dict[str, dict[str, Any]]
) -> None:
    connect = "python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)' {} {}"
    for name in HOSTS.values():
        lists = reached[name].check_output("cat /etc/apt/sources.list")
        archive = re.findall(r"https?://([^/ ]+)", lists)[0].partition(":")
        assert reached[name].run(connect.format(archive[0], archive[2] or 80)).rc != 0
        assert reached[name].run(connect.format(*mirror.url.removeprefix("http://").split(":"))).rc == 0


@dataclass(frozen=True)
class Story:
    """What became of one host: each run of site.yml with the recipe's name, in this order."""

    cards: int
    recipe: dict[str, Any]
    host: Host
    address: str
    predicted: Play
    untouched: list[str]
    served: Play
    again: Play


@pytest.fixture(scope="module", params=sorted(HOSTS), ids=lambda cards: f"{cards}-cards")
def story(
    request: pytest.FixtureRequest,
    operator: Operator,
    mirror: Mirror,
    reached: dict[str, Host],
    lab_hosts: dict[str, dict[str, Any]],
    recipes: dict[int, dict[str, Any]],
) -> Story:
    cards = request.param
    name, recipe = HOSTS[cards], recipes[cards]
    host, words = reached[name], ("--limit", name, "-e", f"profile={recipe['name']}")
    host.check_output(f"touch {MARKER}")
    predicted = operator("site", "--check", "--diff", *words)
    untouched = changed_files(host)
    served = operator("site", *words)
    assert served.code == 0, served.output[-8000:]
    again = operator("site", *words)
    return Story(cards, recipe, host, lab_hosts[name]["ansible_host"], predicted, untouched, served, again)


def test_a_bare_host_ends_served_and_verified(story: Story) -> None:
    frontdoor = Frontdoor(f"http://{story.address}:8000")
    status = frontdoor.status()
    assert status["verified"] is True, status
    assert status["model_slot"]["name"] == story.recipe["name"], status
    assert answer_of(frontdoor.ask()) == "I am tiny-recipe."


def test_the_engine_holds_as_many_cards_as_the_recipe_asks_for(story: Story) -> None:
    held = story.host.check_output("readlink /proc/[0-9]*/fd/* | grep ^/dev/dri/ | sort -u").split()
    assert held == [f"/dev/dri/renderD{128 + number}" for number in range(story.cards)]


def test_a_second_run_changes_nothing(story: Story) -> None:
    assert (story.again.code, story.again.changed) == (0, 0), story.again.output[-6000:]


def test_the_prediction_on_the_bare_host_was_right_and_touched_nothing(story: Story) -> None:
    assert story.predicted.code == 0, story.predicted.output[-6000:]
    assert story.untouched == []
    assert roles_that_change(story.predicted.output) == roles_that_change(story.served.output)
    said = " ".join(story.predicted.output.split())
    for words in (
        f"would install stack {story.recipe['stack']}-",
        story.recipe["model"]["hf_repo"],
        story.recipe["name"],
    ):
        assert words in said


def test_nothing_was_set_for_the_hosts_but_the_mirror(operator: Operator, mirror: Mirror, story: Story) -> None:
    everything = yaml.safe_load((operator.place / "inventory/hosts.yml").read_text())["b70_hosts"]
    assert everything["vars"] == mirror.variables()
    given = {key for variables in everything["hosts"].values() for key in variables}
    assert {key for key in given if not key.startswith("ansible_")} == set()
