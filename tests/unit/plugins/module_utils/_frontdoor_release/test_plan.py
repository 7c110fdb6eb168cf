# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is planned from every state of a host: nothing where all is as wanted, else each thing in its order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release import plan, spec
from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release.types import (
    HELPER,
    SOCKET,
    UNIT,
    Identity,
    Keep,
    Release,
    Step,
    Write,
)
from unit.plugins.module_utils._frontdoor_release.fake_host import DIGEST, PLACE, FakeHost, converge, options, release

RESTART = f"make sure that {UNIT} runs what is configured"
ANSWERS = f"see that {UNIT} answers at http://127.0.0.1:8000/status"
SETTINGS = f"make sure that {UNIT} uses its settings"
RELOAD = "make systemd reread its units"


def served(wanted: Release) -> FakeHost:
    host = FakeHost()
    converge(host, wanted)
    return host


def told(host: FakeHost, wanted: Release) -> list[str]:
    return [step.told for step in plan.presence(wanted, host.found()).steps]


def test_a_first_installation_is_made_in_its_order() -> None:
    one = release(helper=True, keys=True)
    host = FakeHost()
    host.install(one)
    assert told(host, one) == [
        "make the directory /etc/door",
        "make the group door",
        "write /etc/door/keys.toml",
        "write /etc/door/frontdoor.toml",
        f"link /opt/b70/door/venv to {one.identity.environment}",
        f"write /etc/systemd/system/{UNIT}",
        f"write /etc/systemd/system/{HELPER}",
        f"write /etc/systemd/system/{SOCKET}",
        RELOAD,
        f"enable {SOCKET}",
        f"make sure that {SOCKET} runs what is configured",
        f"enable {UNIT}",
        RESTART,
        ANSWERS,
        f"record what {one.identity.environment} serves with",
    ]


def test_a_host_that_is_as_wanted_needs_nothing() -> None:
    for one in (release(), release(helper=True, keys=True)):
        host = served(one)
        assert told(host, one) == []
        assert plan.summary([], check_mode=False) == "as wanted, nothing to do"
        assert plan.diff([], host.found()) == []


def spoil_mode(host: FakeHost, path: str) -> None:
    host.modes[path] = ("0600", "root")


DRIFTS: list[tuple[Callable[[FakeHost], object], list[str]]] = [
    (lambda host: host.files.update({"/etc/door/frontdoor.toml": "#"}), ["write /etc/door/frontdoor.toml"]),
    (lambda host: spoil_mode(host, PLACE.unit_files[0]), [f"write /etc/systemd/system/{UNIT}", RELOAD]),
    (
        lambda host: spoil_mode(host, PLACE.unit_files[1]),
        [f"write /etc/systemd/system/{HELPER}", RELOAD, f"make sure that {SOCKET} runs what is configured"],
    ),
    (lambda host: spoil_mode(host, "/etc/door/keys.toml"), ["write /etc/door/keys.toml"]),
    (lambda host: host.enabled.discard(UNIT), [f"enable {UNIT}"]),
    (lambda host: host.active.discard(UNIT), [RELOAD, RESTART, ANSWERS]),
    (lambda host: host.active.discard(SOCKET), [f"make sure that {SOCKET} runs what is configured"]),
    (lambda host: setattr(host, "running", ""), [RELOAD, RESTART, ANSWERS]),
    (lambda host: setattr(host, "running", "build-other.one"), [RELOAD, RESTART, ANSWERS]),
    (lambda host: setattr(host, "running", "build-one.other"), [SETTINGS]),
    (lambda host: host.groups.clear(), ["make the group door"]),
    (lambda host: host.files.update({"/etc/door/admin-keys.toml": ""}), ["remove /etc/door/admin-keys.toml"]),
    (
        lambda host: host.files.update({PLACE.record_file: "garbage"}),
        [f"record what {release().identity.environment} serves with"],
    ),
]


@pytest.mark.parametrize(("spoil", "steps"), DRIFTS, ids=[steps[0] for _spoil, steps in DRIFTS])
def test_each_drift_is_put_right_and_nothing_else_is_done(
    spoil: Callable[[FakeHost], object], steps: list[str]
) -> None:
    one = release(helper=True, keys=True)
    host = served(one)
    spoil(host)
    assert told(host, one) == steps
    converge(host, one)
    assert told(host, one) == []


def test_an_upgrade_keeps_the_environment_before_and_removes_older_ones() -> None:
    one, two, three = release("one"), release("two"), release("three")
    host = served(one)
    host.folders.add("/opt/b70/door/notes")
    converge(host, two)
    steps = [step.told for step in converge(host, three).steps]
    assert steps[-1] == f"remove {one.identity.environment}"
    assert host.folders >= {two.identity.environment, three.identity.environment, "/opt/b70/door/notes"}
    assert host.running == "build-three.three"


def test_settings_alone_are_read_again_by_the_process_that_runs() -> None:
    host = served(release())
    record = f"record what {release().identity.environment} serves with"
    assert told(host, release(settings="new")) == ["write /etc/door/frontdoor.toml", SETTINGS, record]
    converge(host, release(settings="new"))
    assert host.running == "build-one.new"
    # and what they do not suffice for, says the process
    converge(host, release(settings="fixed"))
    assert host.running == "build-one.fixed"
    assert told(host, release(settings="fixed")) == []


def test_the_helper_is_stopped_before_its_units_go_and_the_service_starts() -> None:
    host = served(release(helper=True, keys=True))
    steps = told(host, release("two"))
    assert steps[3:8] == [
        f"stop and disable {SOCKET}",
        f"remove /etc/systemd/system/{HELPER}",
        f"remove /etc/systemd/system/{SOCKET}",
        RELOAD,
        RESTART,
    ]
    # What runs until then may need its keys.
    assert steps.index("remove /etc/door/keys.toml") > steps.index(ANSWERS)


def test_an_environment_that_is_no_link_yet_is_moved_aside() -> None:
    one, two = release("one"), release("two")
    host = served(one)
    host.links.clear()
    host.folders.add("/opt/b70/door/venv")
    host._remove(PLACE.kept_dir)
    steps = converge(host, two).steps
    assert steps[0] == Keep(PLACE, Identity("build-one.one", "/opt/b70/door/venv-before", one.identity.url))
    moved = [step.told for step in steps].index("move /opt/b70/door/venv to /opt/b70/door/venv-before")
    assert steps[moved + 1].told.startswith("link /opt/b70/door/venv to ")
    assert "/opt/b70/door/venv-before" in host.folders


@pytest.mark.parametrize(
    "spoil",
    [
        lambda host: setattr(host, "running", ""),
        lambda host: host.files.update({PLACE.unit_files[0]: "BUILD=edited\n"}),
        lambda host: host.links.clear(),
    ],
)
def test_only_files_of_the_process_that_answers_are_kept(spoil: Callable[[FakeHost], object]) -> None:
    host = served(release("one"))
    host._remove(PLACE.kept_dir)
    assert plan.presence(release("two"), host.found()).prepare
    spoil(host)
    assert plan.presence(release("two"), host.found()).prepare == ()


def test_removal_takes_all_that_was_made_and_nothing_else() -> None:
    host = served(release(helper=True, keys=True))
    host.files |= {"/opt/b70/door/notes": "", "/opt/b70/door/b70_frontdoor-1.0.0.tar.gz": ""}
    steps = plan.absence(PLACE, host.found(), 5).steps
    assert [step.told for step in steps][:2] == [f"stop and disable {UNIT}", f"stop and disable {SOCKET}"]
    for step in steps:
        host.do(step)
    assert (host.files, host.links, host.folders) == ({"/opt/b70/door/notes": ""}, {}, {"/opt/b70/door"})
    assert (host.groups, host.enabled, host.active, host.running) == (set(), set(), set(), "")
    assert plan.absence(PLACE, host.found(), 5).steps == ()


def test_removal_leaves_a_folder_that_is_no_environment_of_ours() -> None:
    host = FakeHost()
    host.folders.add("/opt/b70/door/venv")
    found = dataclasses.replace(host.found(), own_folder=False)
    assert plan.absence(PLACE, found, 5).steps == ()


def test_a_diff_shows_files_but_no_digest_of_a_key() -> None:
    one, two = release("one"), release("two", keys=True)
    host = served(one)
    steps = plan.presence(two, host.found()).steps
    shown = plan.diff(steps, host.found())
    config = next(entry for entry in shown if entry["before_header"] == "/etc/door/frontdoor.toml")
    assert (config["before"], config["after"]) == ("name = one\n", "name = two\n")
    assert "write /etc/door/keys.toml\n" in shown[-1]["after"]
    assert DIGEST not in str(shown)


def test_the_summary_says_what_would_be_done() -> None:
    steps: list[Step] = [Write(release().config), plan.REREAD]
    foretold = "would write /etc/door/frontdoor.toml; would make systemd reread its units"
    assert plan.summary(steps, check_mode=True) == foretold
    assert plan.summary(steps, check_mode=False) == f"done: {foretold.replace('would ', '')}"


def test_what_looks_like_a_key_is_not_quoted() -> None:
    lines = [f"digest {DIGEST}", "key b70-" + "k" * 43, "Authorization: Bearer abc.def", "nothing"]
    assert plan.redacted(lines) == ["digest sha256:<secret>", "key <secret>", "Authorization: <secret>", "nothing"]


def test_a_build_is_told_by_its_unit_and_by_its_settings_and_certificate() -> None:
    given = options()
    one = spec.release(given)
    assert one.units[0].content == "Environment=B70_FRONTDOOR_BUILD=build-one\n"
    others = [spec.release({**given, name: "another"}) for name in ("config", "certificate", "build")]
    assert len({made.identity.build for made in (one, *others)}) == 4
    assert [made.identity.program == one.identity.program for made in others] == [True, True, False]
