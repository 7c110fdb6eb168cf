# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp on a host: built from source, switched to from vLLM and back, and rolled back across kinds of engines.

The sources are the real ones, out of a package; the engine is the real one, on the processor. The tests are one story
in this order, on a host that `test_images.py` and `test_kinds.py` use after it. What was built is kept in the
checkout's cache by its key, so that only the first run builds.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from testinfra.host import Host

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import rendering
from system.kinds import LAB, SITE, SWITCH, Operator
from system.product import (
    ROOT,
    Frontdoor,
    Play,
    answer_of,
    lab_command,
    play,
    served_process,
    wait_served_anew,
    words_of,
)
from vendor import llama

SLOT = {
    **dict.fromkeys(("config_dir", "unit_dir", "tmpfiles_dir", "run_dir", "state_dir", "lib_dir", "bin_dir"), "/d"),
    **dict.fromkeys(("models_dir", "stacks_dir", "cache_dir", "hf_home"), "/data"),
    "frontdoor_url": "u",
    "user": "b70",
    "group": "b70",
    "backend_port": 18080,
}


@pytest.fixture(scope="session")
def host_vars(kinds_vars: dict[str, Any]) -> dict[str, Any]:
    return kinds_vars


@pytest.fixture(scope="module")
def site(kinds_native: Operator) -> Operator:
    """vLLM serves tiny-a."""
    return kinds_native


def served(frontdoor: Frontdoor) -> tuple[str, bool]:
    status = frontdoor.status()
    return status["model_slot"]["name"], status["verified"]


def enabled(host: Host) -> list[str]:
    listing = host.check_output("systemctl list-unit-files 'b70-slot-*' --state=enabled --no-legend")
    return [line.split()[0] for line in listing.splitlines()]


def test_the_commit_that_is_served_is_the_pinned_one() -> None:
    assert llama.make().commit == llama.pinned()


@pytest.fixture(scope="module")
def predicted(site: Operator) -> Play:
    return play(SITE, *site.words("tiny-a-gguf"), "--check", "--diff")


def test_a_prediction_tells_what_would_be_installed_and_does_nothing(
    predicted: Play, host: Host, frontdoor: Frontdoor
) -> None:
    assert predicted.code == 0, predicted.output[-6000:]
    assert "would install stack llama-cpu-" in words_of(predicted.output)
    assert host.run("ls -d /opt/b70/stacks/llama-cpu-*").rc != 0
    assert served(frontdoor) == ("tiny-a", True)


@pytest.fixture(scope="module")
def switched(predicted: Play, site: Operator) -> Play:
    """The host builds llama.cpp, or takes what an earlier run built, and serves a GGUF file with it."""
    done = play(SITE, *site.words("tiny-a-gguf"), limit_s=5400)
    assert done.code == 0, done.output[-6000:]
    return done


def test_the_engine_is_the_built_program_and_answers_verified(switched: Play, host: Host, frontdoor: Frontdoor) -> None:
    assert served(frontdoor) == ("tiny-a-gguf", True)
    assert answer_of(frontdoor.ask()) == "I am tiny-a."
    assert enabled(host) == ["b70-slot-main-tiny-a-gguf.service"]
    program = host.check_output("readlink -f /proc/$(systemctl show -P MainPID b70-slot-main-tiny-a-gguf)/exe")
    assert program.startswith("/opt/b70/stacks/llama-cpu-")
    assert program.endswith("/venv/bin/llama-server")


def test_the_fingerprint_of_the_stack_names_the_source_and_the_release(switched: Play, host: Host) -> None:
    found = json.loads(host.check_output("cat /opt/b70/stacks/llama-cpu-*/fingerprint.json"))
    assert found["engine"] == {"kind": "llama-server", "version": "0.5.0"}
    assert [(one["name"], one["commit"]) for one in found["sources"]] == [("llama-cpp", llama.pinned())]


def test_the_libraries_of_the_program_are_those_that_were_built_with_it(switched: Play, host: Host) -> None:
    linked = host.check_output("ldd /opt/b70/stacks/llama-cpu-*/venv/bin/llama-server")
    assert "not found" not in linked
    assert "/venv/lib/libllama" in linked.replace("bin/../", "")


def test_a_second_run_changes_nothing(switched: Play, site: Operator) -> None:
    again = play(SITE, *site.words("tiny-a-gguf"), limit_s=3600)
    assert (again.code, again.changed) == (0, 0), again.output[-6000:]


def test_the_engine_of_a_switch_reads_the_command_line_first(
    switched: Play, site: Operator, frontdoor: Frontdoor
) -> None:
    # The recorded table takes any text there; what devices there are only the program knows.
    engine = {"kind": "llama-server", "settings": {"device": "SYCL7"}}
    wrong = {"tiny-wrong-gguf": {"extends": "tiny-a-gguf", "status": "experiment", "engine": engine}}
    refused = play(SWITCH, *site.words("tiny-wrong-gguf", b70_profiles=wrong))
    assert refused.code != 0
    said = words_of(refused.output)
    assert "the installed engine refuses 1 profile. tiny-wrong-gguf:" in said, refused.output[-3000:]
    assert served(frontdoor) == ("tiny-a-gguf", True)


def test_the_program_reads_every_shipped_profile_of_its_kind(switched: Play, host: Host) -> None:
    stacks = load_stacks()
    settings = rendering.check_settings({**SLOT, "stacks": stacks})
    program = host.check_output("ls /opt/b70/stacks/llama-cpu-*/venv/bin/llama-server")
    read = 0
    for name, profile in load_catalogue([ROOT / "inventory/lab_profiles"], stacks=stacks).items():
        if profile["engine"]["kind"] != "llama-server":
            continue
        argv = rendering.resolve(profile, settings)[0]["engine"]["argv"]
        done = host.run(shlex.join([program, *argv[1:], "--version"]))
        assert (done.rc, "0.5.0" in done.stdout + done.stderr) == (0, True), (name, done.stderr)
        refused = host.run(shlex.join([program, *argv[1:], "--no-such-option", "--version"]))
        assert refused.rc != 0, name
        read += 1
    assert read >= 7


def test_the_doctor_finds_nothing_wrong_with_the_stack(switched: Play, site: Operator) -> None:
    done = play(ROOT / "doctor.yml", *site.words("tiny-a-gguf"))
    said = words_of(done.output)
    assert "PASS engine-program" in said, done.output[-6000:]
    assert " 0 FAIL," in said, done.output[-6000:]


@pytest.mark.parametrize("how", ["kill", "reboot"])
def test_an_engine_that_ends_is_started_and_verified_again(
    switched: Play, host: Host, frontdoor: Frontdoor, how: str
) -> None:
    before = served_process(host)
    if how == "kill":
        host.check_output("systemctl kill --signal=KILL b70-slot-main-tiny-a-gguf.service")
    else:
        lab_command("reboot", f"{LAB}1")
    wait_served_anew(host, before)
    assert served(frontdoor) == ("tiny-a-gguf", True)
    assert answer_of(frontdoor.ask()) == "I am tiny-a."


def test_damaged_weights_of_this_kind_are_rolled_back(switched: Play, site: Operator, frontdoor: Frontdoor) -> None:
    failed = play(SITE, *site.words("tiny-corrupt-gguf"))
    assert failed.code != 0
    assert "tiny-a-gguf is served again, verified" in words_of(failed.output), failed.output[-6000:]
    assert served(frontdoor) == ("tiny-a-gguf", True)


def test_the_way_leads_back_to_vllm(switched: Play, site: Operator, host: Host, frontdoor: Frontdoor) -> None:
    back = play(SWITCH, *site.words("tiny-a"))
    assert back.code == 0, back.output[-6000:]
    assert served(frontdoor) == ("tiny-a", True)
    assert enabled(host) == ["b70-slot-main-tiny-a.service"]


def test_damaged_weights_are_rolled_back_to_the_other_kind(
    switched: Play, site: Operator, host: Host, frontdoor: Frontdoor
) -> None:
    failed = play(SWITCH, *site.words("tiny-corrupt-gguf"))
    assert failed.code != 0
    assert "tiny-a is served again, verified" in words_of(failed.output), failed.output[-6000:]
    assert served(frontdoor) == ("tiny-a", True)
    assert answer_of(frontdoor.ask()) == "I am tiny-a."
    assert enabled(host) == ["b70-slot-main-tiny-a.service"]


def test_a_file_that_is_no_gguf_is_refused_before_anything_stops(
    switched: Play, site: Operator, host: Host, frontdoor: Frontdoor
) -> None:
    gone = "mv /mnt/fast-ai/llm-models/tiny-a-gguf/tiny-a-BF16.gguf /mnt/fast-ai/llm-models/tiny-a-gguf/x.gguf"
    host.check_output(gone)
    refused = host.run("b70ctl switch tiny-a-gguf")
    assert refused.rc != 0
    assert "tiny-a-BF16.gguf" in refused.stdout + refused.stderr
    assert served(frontdoor) == ("tiny-a", True)
    again = play(SITE, *site.words("tiny-a-gguf"), limit_s=3600)
    assert again.code == 0, again.output[-6000:]
    assert served(frontdoor) == ("tiny-a-gguf", True)
