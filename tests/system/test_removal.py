# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``site.yml -e b70_state=absent`` leaves of a served host what was there before, weights and packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from demo import inventory_hosts
from system.product import INVENTORY, ROOT, Frontdoor, Play, answer_of, bare_hosts, play, reach, words_of

LAB = "removal"
SITE = ROOT / "site.yml"
ABSENT = ("-e", "b70_state=absent")
CACHE = "/var/cache/b70"  # the lab mounts it, for all its hosts
DATA = "/mnt/fast-ai"
EVIDENCE = "/var/lib/b70/evidence"
# Of the system itself: what runs, logs, apt's state, what Python and ld.so keep of packages.
LIVES = (
    *(
        "/run",
        "/tmp",
        "/var/tmp",
        "/var/log",
        "/var/backups",
        "/root/.ansible",
        "/proc",
        "/sys",
        "/dev",
    ),
    *("/var/lib/systemd", "/var/lib/apt", "/var/lib/dpkg", "/var/cache", "/var/lib/private"),
)
# Somebody else's, in places of ours: each stays, with its directory.
STRANGERS = (
    "/etc/systemd/system/b70-controller-main.service.d/mine.conf",
    "/etc/b70-vllm-slot/notes.txt",
    "/opt/b70/bin/mine",
    f"{DATA}/llm-models/mine/model.safetensors",
)
# As if the driver had come from the vendor: a package that is installed, and one that is not.
DRIVER = ("/etc/apt/sources.list.d/b70-gpu-driver.sources", "/etc/apt/preferences.d/b70-gpu-driver")
COMPILER = ("/etc/apt/sources.list.d/b70-oneapi.sources", "/etc/apt/preferences.d/b70-oneapi")


@dataclass(frozen=True)
class Look:
    """A host at one moment."""

    files: frozenset[str]
    accounts: frozenset[str]
    enabled: frozenset[str]


def look(host: Host) -> Look:
    """Look at everything but what lives by itself and what a package brought."""
    prune = " -o ".join(f"-path {path}" for path in LIVES)
    files = set(
        host.check_output(
            f"find / -xdev \\( {prune} \\) -prune -o ! -name __pycache__ ! -name '*.pyc' -print"
        ).splitlines()
    )
    files -= set(host.check_output("cat /var/lib/dpkg/info/*.list").splitlines())
    enabled = host.check_output("systemctl list-unit-files --no-legend --plain --state=enabled").splitlines()
    accounts = host.check_output("cut -d: -f1 /etc/passwd /etc/group").splitlines()
    return Look(frozenset(files), frozenset(accounts), frozenset(line.split()[0] for line in enabled))


def with_parents(paths: set[str]) -> set[str]:
    return paths | {str(parent) for path in paths for parent in Path(path).parents}


@dataclass(frozen=True)
class Story:
    """One host from bare to bare, and again."""

    host: Host
    frontdoor: Frontdoor
    bare: Look
    refused: Play
    predicted: Play
    untouched: bool
    removed: Play
    after: Look
    again: Play
    emptied: Play
    empty: Look


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Host, Frontdoor, Look]]:
    """A bare host that site.yml made serve, and what it was before."""
    with bare_hosts(LAB, 1):
        variables: dict[str, Any] = next(iter(inventory_hosts(str(INVENTORY), "b70_hosts").values()))
        host, frontdoor = reach(variables), Frontdoor(f"http://{variables['ansible_host']}:8000")
        bare = look(host)
        done = play(SITE)
        assert done.code == 0, done.output[-6000:]
        assert answer_of(frontdoor.ask()) == "I am tiny-a."
        yield host, frontdoor, bare


@pytest.fixture(scope="module")
def story(served: tuple[Host, Frontdoor, Look]) -> Story:
    host, frontdoor, bare = served
    for path in STRANGERS:
        host.check_output(f"mkdir -p $(dirname {path}) && echo mine > {path}")
    for (source, pins), package in ((DRIVER, "python3"), (COMPILER, "intel-oneapi-*")):
        text = f"Package: {package}\\nPin: version 1\\nPin-Priority: 1\\n"
        host.check_output(f"echo '# ours' > {source}; printf '{text}' > {pins}")
    host.check_output(f"mkdir -p {EVIDENCE} && echo kept > {EVIDENCE}/kept.json")
    host.check_output("systemd-run --unit=b70-soak-main.service --description='Soak of slot main' sleep infinity")
    refused = play(SITE, *ABSENT)
    host.check_output("systemctl stop b70-soak-main.service")
    before = look(host)
    predicted = play(SITE, *ABSENT, "--check", "--diff")
    untouched = look(host) == before and frontdoor.status()["verified"] is True
    removed = play(SITE, *ABSENT)
    after = look(host)
    again = play(SITE, *ABSENT)
    emptied = play(SITE, *ABSENT, "-e", "b70_remove_data=true")
    return Story(host, frontdoor, bare, refused, predicted, untouched, removed, after, again, emptied, look(host))


def test_work_that_is_under_way_is_named_and_nothing_is_removed(story: Story) -> None:
    assert story.refused.code == 2, story.refused.output
    assert "work is under way: b70-soak-main.service: Soak of slot main." in words_of(story.refused.output)


def test_a_prediction_names_everything_that_goes_and_changes_nothing(story: Story) -> None:
    assert story.predicted.code == 0, story.predicted.output
    assert story.untouched
    would = set(re.findall(r"- would remove (/\S+)", words_of(story.predicted.output)))
    went = set(re.findall(r"- removed (/\S+)", words_of(story.removed.output)))
    # Its own role has told of the frontdoor's.
    assert would - went == {path for path in would if path.startswith("/opt/b70/frontdoor")}
    assert went - would == set()
    assert "/opt/b70/lib/b70slot" in went


def test_nothing_of_the_collection_is_left_but_what_took_hours(story: Story) -> None:
    assert story.removed.code == 0, story.removed.output
    kept = {*STRANGERS, *DRIVER, f"{EVIDENCE}/kept.json"}
    weights = f"{DATA}/llm-models/tiny-"
    left = {path for path in story.after.files - story.bare.files if not path.startswith(weights)}
    assert left == with_parents(kept) & story.after.files - story.bare.files
    assert kept <= story.after.files
    assert f"{weights}a/model.safetensors" in story.after.files
    assert story.bare.files - story.after.files == frozenset()
    assert story.after.accounts == story.bare.accounts
    assert story.after.enabled - story.bare.enabled == frozenset()
    assert story.host.run("systemctl list-units --all --no-legend 'b70-*'").stdout == ""
    assert story.host.run("ss -Hltn sport = :8000").stdout == ""


def test_the_report_names_what_stays_and_how_it_goes(story: Story) -> None:
    said = words_of(story.removed.output)
    assert f"stays: {DATA}/llm-models/tiny-a: weights; -e b70_remove_data=true removes them" in said
    assert "`apt-get purge python3` removes that" in said
    for path in STRANGERS[:3]:
        assert f"stays: {path}: it is not of this collection" in said


def test_a_second_run_changes_nothing(story: Story) -> None:
    assert (story.again.code, story.again.changed) == (0, 0), story.again.output


def test_data_goes_when_it_is_asked_for_and_strangers_stay(story: Story) -> None:
    assert story.emptied.code == 0, story.emptied.output
    kept = {*STRANGERS, *DRIVER}
    assert story.empty.files - story.bare.files == with_parents(kept) & story.empty.files - story.bare.files
    assert kept <= story.empty.files


def test_the_host_can_be_made_serve_again(story: Story) -> None:
    done = play(SITE)
    assert done.code == 0, done.output[-6000:]
    assert answer_of(story.frontdoor.ask()) == "I am tiny-a."
