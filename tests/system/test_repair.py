# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A converged host is looked at, not remembered: what somebody changes there is predicted, put right.

Begins with a model served and verified, and ends so, by the same engine. That the host is at rest then is proven by
``test_converged.py``, which runs next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from testinfra.host import Host

from system.product import ROOT, Frontdoor, answer_of, play

FRONTDOOR = "b70-openai-frontdoor.service"
RELEASE = "frontdoor : Activate the release"
UNIT = f"/etc/systemd/system/{FRONTDOOR}"
CONFIG = "/etc/b70-frontdoor/frontdoor.toml"
RULE = "/etc/udev/rules.d/70-b70-power.rules"
OTHER = "/etc/systemd/system/b70-slot-main-tiny-b.service"
WEIGHTS = "/mnt/fast-ai/llm-models/tiny-b/config.json"
PACKAGE = "libnuma1"


@dataclass(frozen=True)
class Drift:
    """One thing that somebody does to a host, how it is seen, the task that puts it right, and what that task says."""

    done: str
    seen: Callable[[Host], object]
    task: str
    told: str = ""


def text_of(path: str) -> Callable[[Host], object]:
    return lambda host: (host.file(path).content_string, oct(host.file(path).mode)) if host.file(path).exists else None


def says(command: str) -> Callable[[Host], object]:
    return lambda host: host.run(command).stdout


DRIFTS = [
    Drift(f"echo '# by hand' >> {CONFIG}", text_of(CONFIG), RELEASE, f"write {CONFIG}"),
    Drift(f"chmod 0600 {UNIT}", text_of(UNIT), RELEASE, f"write {UNIT}"),
    Drift(f"rm {RULE}", text_of(RULE), "host : Write the udev rule that keeps the cards awake"),
    Drift(f"echo '# by hand' >> {OTHER}", text_of(OTHER), "slot : Write the files of the slot"),
    Drift(
        f"truncate -s 1 {WEIGHTS}", text_of(WEIGHTS), "model_weights : Install the models that are missing or differ"
    ),
    Drift("usermod -G '' b70", says("id -nG b70"), "host : Add the service user to the groups of the cards"),
    Drift(
        f"apt-get -y remove {PACKAGE}",
        says(f"dpkg-query --show --showformat='${{db:Status-Status}}' {PACKAGE}"),
        "host : Install the missing packages",
    ),
    Drift(
        f"systemctl disable --now {FRONTDOOR}",
        says(f"systemctl is-enabled {FRONTDOOR}; systemctl is-active {FRONTDOOR}"),
        RELEASE,
        f"enable {FRONTDOOR}; make sure that {FRONTDOOR} runs what is configured",
    ),
]


def assert_told(output: str) -> None:
    """What one task puts right is told one by one, in lines that Ansible breaks."""
    said = " ".join(output.split()).replace("; would ", "; ")
    for drift in DRIFTS:
        assert drift.told in said, drift.told


def invocation(host: Host) -> str:
    return str(host.check_output("systemctl show --property=InvocationID --value b70-slot-main-tiny-a.service"))


@pytest.fixture(scope="module")
def spoiled(host: Host) -> dict[str, object]:
    """The host as it was, by what is done to it; and all of that is done."""
    before = {drift.done: drift.seen(host) for drift in DRIFTS}
    for drift in DRIFTS:
        host.check_output(f"({drift.done}) >/dev/null 2>&1")
    for drift in DRIFTS:
        assert drift.seen(host) != before[drift.done], f"{drift.done}: changed nothing"
    return before


def test_what_somebody_changed_is_predicted_and_put_right(
    host: Host, frontdoor: Frontdoor, spoiled: dict[str, object]
) -> None:
    engine = invocation(host)
    now = {drift.done: drift.seen(host) for drift in DRIFTS}
    predicted = play(ROOT / "site.yml", "--check", "--diff")
    assert predicted.code == 0, predicted.output
    assert predicted.changed >= len({drift.task for drift in DRIFTS}), predicted.output
    assert_told(predicted.output)
    assert {drift.done: drift.seen(host) for drift in DRIFTS} == now, "a prediction changed the host"
    done = play(ROOT / "site.yml")
    assert done.code == 0, done.output
    for drift in DRIFTS:
        assert drift.seen(host) == spoiled[drift.done], drift.done
        assert drift.task in done.output, drift.task
    assert_told(done.output)
    assert invocation(host) == engine, "the engine was restarted"
    assert answer_of(frontdoor.ask()) == "I am tiny-a."
