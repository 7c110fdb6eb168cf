# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines in containers: the guard of their image, and which process is judged."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.processes import is_first
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import HostFault
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import FakeHost, profile_data

IMAGE = f"docker.io/vllm/vllm-openai-xpu@sha256:{'f' * 64}"
DIR = "/opt/b70/stacks/img-0123456789"
STACK = {"name": "img", "id": "img-0123456789", "dir": DIR, "device": "cpu", "image": IMAGE, "user": "b70"}


@pytest.fixture
def served() -> FakeHost:
    """A host that serves `a` from an environment, and has `b` as an image."""
    made = host("a")
    made.render("b", stack=STACK, engine__argv=["/opt/venv/bin/vllm", "serve", "/models/b", "--port", "18080"])
    assert switch(made, "a")["failure"] is None
    return made


def test_a_switch_leads_to_an_image_and_back(served: FakeHost) -> None:
    assert switch(served, "b")["failure"] is None
    assert served.open
    assert served.enabled == ["b70-slot-main-b.service"]
    assert switch(served, "a")["failure"] is None
    served.assert_invariants()


def test_what_runs_in_the_container_is_judged_and_not_who_looks_after_it(served: FakeHost) -> None:
    served.unit("b").fault = "other_process"
    done = switch(served, "b")
    assert "--max-num-seqs" in str(done["failure"])
    assert served.state.profile_name == "a"
    assert served.open


def test_a_container_without_an_engine_is_not_taken_for_one(served: FakeHost) -> None:
    served.containers_empty = True
    done = switch(served, "b")
    assert "the first process of its container" in str(done["failure"])
    assert served.state.profile_name == "a"
    assert served.open


def lost(made: FakeHost) -> str:
    made.images.clear()
    return f"is not on this host: {IMAGE}"


def replaced(made: FakeHost) -> str:
    made.images[IMAGE] = "another"
    return "is not the one that was verified"


def unrecorded(made: FakeHost) -> str:
    made.put(PurePosixPath(DIR) / "fingerprint.json", json.dumps({"stack_id": STACK["id"]}))
    return "is not the one that was verified"


class Unasked(dict[str, str]):
    """The storage of a Podman that gives no answer."""

    def get(self, key: str, _default: object = None) -> str:
        raise HostFault(f"Podman does not tell whether this host has the image {key}")


def not_told(made: FakeHost) -> str:
    made.images = Unasked()
    return "Podman does not tell"


def without_podman(made: FakeHost) -> str:
    del made.texts[PurePosixPath("/usr/bin/podman")]
    return "/usr/bin/podman is missing"


@pytest.mark.parametrize("spoil", [lost, replaced, unrecorded, not_told, without_podman])
def test_an_image_that_is_not_right_is_refused_before_anything_is_stopped(served: FakeHost, spoil) -> None:
    words = spoil(served)
    starts = served.starts
    done = switch(served, "b")
    assert words in str(done["failure"])
    assert served.starts == starts
    assert served.open


def test_an_engine_in_a_container_that_is_served_needs_no_second_start(served: FakeHost) -> None:
    assert switch(served, "b")["failure"] is None
    starts = served.starts
    done = switch(served, "b")
    assert done["failure"] is None
    assert served.starts == starts


@pytest.mark.parametrize(
    ("status", "first"),
    [
        ("Name:\tvllm\nNSpid:\t4711\t1\n", True),
        ("Name:\tvllm\nNSpid:\t4711\t23\n", False),
        ("Name:\tvllm\nNSpid:\t1\n", False),
        ("", False),
    ],
)
def test_the_first_process_of_a_container_is_known_by_its_number_there(status: str, first: bool) -> None:
    assert is_first(status) is first


def test_the_profile_of_a_container_is_as_the_schema_says() -> None:
    assert profile_data("b", stack=STACK)["stack"]["image"] == IMAGE
