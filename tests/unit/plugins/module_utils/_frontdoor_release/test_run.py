# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever fails while a release is activated: the one before answers again, or the error says that it does not."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release import plan, run
from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release.types import (
    UNIT,
    Keep,
    ReleaseFault,
    RunCommand,
    Step,
)
from unit.plugins.module_utils._frontdoor_release.fake_host import DIGEST, PLACE, FakeHost, converge, release

# The one before has what the new one has not, and the other way round.
BEFORE, TRIED = release("one", helper=True), release("two", keys=True)


def serving() -> FakeHost:
    host = FakeHost()
    converge(host, BEFORE)
    host.install(TRIED)
    return host


def steps_of_an_upgrade() -> list[Step]:
    return list(plan.presence(TRIED, serving().found()).activate)


def steps_of_the_way_back() -> list[Step]:
    kept = serving().kept(PLACE)
    assert kept.identity
    return list(plan.way_back(TRIED, kept.identity, kept))


def state(host: FakeHost) -> tuple[object, ...]:
    """All that the way back restores. Keys and their group stay as they were given."""
    files = {path: text for path, text in host.files.items() if path not in PLACE.key_files}
    return files, dict(host.links), set(host.enabled), set(host.active), host.running


def upgrade(host: FakeHost) -> ReleaseFault:
    with pytest.raises(ReleaseFault) as caught:
        converge(host, TRIED)
    return caught.value


@pytest.mark.parametrize("failing", steps_of_an_upgrade(), ids=lambda step: step.told)
def test_the_release_before_answers_whatever_fails(failing: Step) -> None:
    host = serving()
    was = state(host)
    # The same command is a step of the way back too, which must then do without it.
    tries = [failing]
    host.fails = lambda step: step == failing and bool(tries and tries.pop())
    fault = upgrade(host)
    assert state(host) == was
    assert str(fault).startswith(f"Could not {failing.told}: no space left on device. ")
    put = f"What served before, {BEFORE.identity.environment} with its configuration and unit, was put back and serves"
    assert f"{put} again. Put right what is named here, then run this again; the version" in str(fault)
    assert str(fault).endswith(f"stays in {TRIED.identity.environment}")
    assert fault.evidence["restored"] is True
    # Nothing is left to do for the one before, and the mended one comes up.
    host.fails = lambda step: False
    for path in PLACE.key_files:
        host.files.pop(path, None)
    assert plan.presence(BEFORE, host.found()).activate == ()
    converge(host, TRIED)
    assert host.running == "build-two.two"


def test_a_release_that_does_not_answer_is_taken_back_with_its_last_words() -> None:
    host = serving()
    was = state(host)
    host.poisoned = {"build-two"}
    fault = upgrade(host)
    assert state(host) == was
    assert "nobody answered within 5 s. Its journal ends with:\nRuntimeError: poisoned\n" in str(fault)
    assert fault.evidence == {"journal": ["RuntimeError: poisoned", "key sha256:<secret>"], "restored": True}
    assert DIGEST not in str(fault)
    assert host.files["/etc/door/keys.toml"], "keys that were given stay"


def test_a_process_that_goes_on_is_not_restarted() -> None:
    host = serving()
    host.fails = lambda step: step.told == "write /etc/door/frontdoor.toml" and TRIED.config in vars(step).values()
    fault = upgrade(host)
    assert "serves again" in str(fault)
    assert not [step for step in host.done if step.told.startswith(f"make sure that {UNIT}")]
    assert fault.evidence["journal"] == [], "it was not started"


@pytest.mark.parametrize("failing", steps_of_the_way_back(), ids=lambda step: step.told)
def test_a_way_back_that_fails_says_so(failing: Step) -> None:
    host = serving()
    host.poisoned = {"build-two"}
    back: list[bool] = []

    def fails(step: Step) -> bool:
        back.append(host.running == "" and step.told.startswith("write /etc/door/frontdoor.toml"))
        return any(back) and step == failing

    host.fails = fails
    fault = upgrade(host)
    assert "Could not see that" in str(fault)
    if isinstance(failing, RunCommand):
        # systemd is asked again by the start.
        assert ("serves again" in str(fault)) == (host.running == "build-one.one")
        return
    assert f"could not be put back (Could not {failing.told}: no space left on device) and DOES NOT" in str(fault)
    assert f"see journalctl -u {UNIT}. Put right what is named here" in str(fault)
    assert fault.evidence["restored"] is False
    assert host.running == "", "it was started on files that are not its own"


def test_settings_that_are_not_taken_are_put_back_and_restart_nothing() -> None:
    host = serving()
    was = state(host)
    with pytest.raises(ReleaseFault) as caught:
        converge(host, release("one", settings="bad", helper=True))
    assert state(host) == was
    assert f"Could not make sure that {UNIT} uses its settings: another build answered" in str(caught.value)
    assert "serves again" in str(caught.value)
    assert not [step for step in host.done if step.told.startswith(f"make sure that {UNIT} runs")]


def test_a_release_before_that_does_not_answer_either_is_told() -> None:
    host = serving()
    host.poisoned = {"build-one", "build-two"}
    fault = upgrade(host)
    assert "was put back and DOES NOT ANSWER at http://127.0.0.1:8000/status either" in str(fault)
    assert fault.evidence["restored"] is False


def test_on_a_first_installation_there_is_nothing_to_go_back_to() -> None:
    host = FakeHost()
    host.poisoned = {"build-two"}
    fault = upgrade(host)
    assert "There is nothing to go back to: no version before is known to have served here. Put right" in str(fault)
    assert fault.evidence["restored"] is False


def test_what_served_last_is_not_put_back_in_place_of_itself() -> None:
    host = FakeHost()
    converge(host, TRIED)
    host.running, host.poisoned = "", {"build-two"}
    assert "what served last was this very version and configuration" in str(upgrade(host))


def test_a_host_that_has_no_record_is_taken_back_too() -> None:
    host = serving()
    was = state(host)
    host._remove(PLACE.kept_dir)
    host.poisoned = {"build-two"}
    upgrade(host)
    assert state(host) == was


def test_a_release_that_serves_stays_when_it_cannot_be_recorded() -> None:
    host = serving()
    host.fails = lambda step: isinstance(step, Keep)
    fault = upgrade(host)
    assert str(fault) == f"Could not record what {TRIED.identity.environment} serves with: no space left on device"
    assert host.running == "build-two.two"


def test_a_removal_that_fails_says_where() -> None:
    host = serving()
    host.fails = lambda step: step.told == "remove /etc/door/frontdoor.toml"
    with pytest.raises(ReleaseFault, match=r"^Could not remove /etc/door/frontdoor.toml: no space left"):
        run.carry_out(plan.absence(PLACE, host.found(), 5), host)
