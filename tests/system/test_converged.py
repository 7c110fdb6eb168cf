# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host after ``site.yml``, seen over SSH and HTTP."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from testinfra.host import Host

from system.product import ROOT, Frontdoor, answer_of, play

ENGINE = "b70-slot-main-tiny-a.service"
FRONTDOOR = "b70-openai-frontdoor.service"
CONTROLLER = "b70-controller-main.service"

# What both services must have; the engine needs devices and just-in-time compiled code, so it lacks the rest.
HARDENING = {"NoNewPrivileges": "yes", "ProtectHome": "yes", "ProtectKernelModules": "yes", "RestrictSUIDSGID": "yes"}
# systemd's own judgement, from 0 (safe) to 10 (unsafe).
EXPOSURE = {ENGINE: 6.0, FRONTDOOR: 1.5}


def properties(host: Host, unit: str, *names: str) -> dict[str, str]:
    listing = host.check_output("systemctl show %s --property=%s", unit, ",".join(names))
    return dict(line.split("=", 1) for line in listing.splitlines())


def active_engines(host: Host) -> set[str]:
    listing = host.check_output(
        "systemctl list-units 'b70-slot-*' --state=active,activating,deactivating --no-legend --plain"
    )
    return {line.split()[0] for line in listing.splitlines()}


def test_the_frontdoor_answers_as_the_verified_model(frontdoor: Frontdoor) -> None:
    status = frontdoor.status()
    assert (status["phase"], status["open"], status["verified"]) == ("serving", True, True), status
    assert status["model_slot"]["name"] == "tiny-a"
    assert status["frontdoor"]["compiled"] is True
    assert answer_of(frontdoor.ask()) == "I am tiny-a."


def test_only_the_frontdoor_listens_to_the_network(host: Host) -> None:
    listening = host.check_output("ss -Hltn")
    public = {line.split()[3] for line in listing_outside_loopback(listening)}
    assert {address.rpartition(":")[2] for address in public} == {"22", "8000"}, listening


def listing_outside_loopback(listing: str) -> list[str]:
    return [line for line in listing.splitlines() if not re.match(r"(127\.|\[::1\])", line.split()[3])]


def test_exactly_the_verified_engine_runs_and_boots(host: Host) -> None:
    assert active_engines(host) == {ENGINE}
    files = host.check_output("systemctl list-unit-files 'b70-*' --no-legend").splitlines()
    states = {line.split()[0]: line.split()[1] for line in files}
    assert {name for name, state in states.items() if state == "enabled"} == {ENGINE, FRONTDOOR, CONTROLLER}
    # The shipped catalogue is there too, side by side.
    assert len([name for name in states if name.startswith("b70-slot-main-")]) >= 17


def test_the_engine_is_started_without_a_shell(host: Host) -> None:
    command = properties(host, ENGINE, "ExecStart")["ExecStart"]
    program = re.search(r"path=(\S+)", command)
    assert program is not None, command
    assert program[1].startswith("/opt/b70/stacks/"), command
    assert "sh" not in {Path(word).name for word in command.split()}, command


@pytest.mark.parametrize("unit", [ENGINE, FRONTDOOR])
def test_services_are_hardened(host: Host, unit: str) -> None:
    found = properties(host, unit, "User", "ProtectSystem", *HARDENING)
    assert found.pop("User") not in ("", "root")
    assert found.pop("ProtectSystem") in ("strict", "full")
    assert found == HARDENING
    judged = host.run("systemd-analyze security --no-pager %s", unit).stdout
    exposure = re.search(r"exposure level for \S+: ([0-9.]+)", judged)
    assert exposure is not None, judged
    assert float(exposure[1]) <= EXPOSURE[unit], judged


def test_nothing_of_ours_is_world_writable_or_owned_by_strangers(host: Host) -> None:
    places = "/opt/b70 /etc/b70-vllm-slot /etc/b70-frontdoor /var/lib/b70 /run/b70 /mnt/fast-ai /etc/systemd/system"
    assert host.check_output(f"find {places} -xdev -perm -0002 ! -type l") == ""
    strangers = r"\( -nouser -o -nogroup \)"
    assert host.check_output(f"find {places} -xdev {strangers}") == ""
    # What runs as root or decides what runs may be written by root alone.
    decides = "/opt/b70/stacks /opt/b70/tools /opt/b70/lib /opt/b70/bin /etc/b70-vllm-slot /etc/systemd/system"
    assert host.check_output(f"find {decides} -xdev ! -user root -print -quit") == ""


def test_profiles_are_for_root_and_one_group_alone(host: Host) -> None:
    profile = "/etc/b70-vllm-slot/profiles/tiny-a"
    for reader, code in (("nobody", 1), ("b70", 0)):
        for file in (f"{profile}.env", f"{profile}.json"):
            assert host.run("runuser -u %s -- test -r %s", reader, file).rc == code, f"{reader} and {file}"
    assert host.run("runuser -u nobody -- ls /var/lib/b70/committed").rc != 0


def test_the_service_user_has_no_home(host: Host) -> None:
    assert not host.file("/nonexistent").exists


def test_no_secret_lies_in_configuration(host: Host) -> None:
    pattern = r"(BEGIN [A-Z ]*PRIVATE KEY|hf_[A-Za-z0-9]{20,}|://[^/@ ]+:[^/@ ]+@)"
    found = host.run("grep -rIlE %s /etc/b70-vllm-slot /etc/systemd/system /run/b70 /var/lib/b70", pattern)
    assert found.stdout == ""


def test_the_stack_is_complete_and_says_what_it_is(host: Host) -> None:
    stacks = host.check_output("ls /opt/b70/stacks").split()
    assert len(stacks) == 1, stacks
    assert re.fullmatch(r"cpu-[0-9a-f]{10}", stacks[0])
    assert host.file(f"/opt/b70/stacks/{stacks[0]}/fingerprint.json").is_file


def test_a_prediction_on_a_converged_host_predicts_nothing() -> None:
    predicted = play(ROOT / "site.yml", "--check", "--diff")
    assert predicted.code == 0, predicted.output
    assert predicted.changed == 0, predicted.output


def test_the_status_playbook_tells_a_person_what_is_served() -> None:
    told = play(ROOT / "status.yml")
    assert told.code == 0, told.output
    assert told.changed == 0, told.output
    assert "tiny-a" in told.output
    assert "verified" in told.output
