# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stacks that are images: what is planned, said, pulled and pinned."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins_file
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, stack_id
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks import host as stack_host
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks import planning
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks.host import OPTIONS, Installer, StackFault

STACKS = load_stacks()
STOCK, NEWER, UNPINNED = "vllm-openai-xpu-0.30.0", "vllm-openai-xpu-0.30.0-runtime-26.35", "vllm-openai-xpu-0.31.0"
INDEX, CHILD = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
NAME = "docker.io/vllm/vllm-openai-xpu"


def found(free_mib: int = 10**6, **more: Any) -> dict[str, Any]:
    """What b70_host_info returns of a host."""
    return {
        "system": {"id": "ubuntu", "version": "24.04", "machine": "x86_64"},
        "python": "3.12.3",
        "stacks": [],
        "paths": {"/stacks": {"free_mib": 10**6}, "/var/lib/containers": {"free_mib": free_mib}},
        **more,
    }


def item(name: str, **more: Any) -> dict[str, Any]:
    return planning.plan([(stack_id(STACKS[name]), STACKS[name])], found(**more), "/stacks", "/usr/bin/python3")[0]


def test_an_image_is_planned_without_packages_and_needs_room_where_podman_keeps_it() -> None:
    planned = item(STOCK)
    assert (planned["steps"], planned["builds"], planned["problems"]) == ([], [], [])
    (problem,) = item(STOCK, free_mib=100)["problems"]
    assert "needs 24000 MiB below /var/lib/containers, 100 MiB are free" in problem


def test_what_would_be_pulled_is_said_with_its_digest_and_size() -> None:
    said = planning.image_said(item(STOCK), "would install")
    assert f"the image {NAME}@{STACKS[STOCK]['image']['digest']}, 4.31 GB" in said
    assert planning.image_said(item(NEWER), "installing").endswith("4.31 GB and 5 packages in it")
    assert "v0.31.0" in planning.image_said(item(UNPINNED), "installing")


class Host(Installer):
    """A host whose registry gives an image; its systemd is never slow."""

    def __init__(self, pins: Path | None, **answer: Any) -> None:
        given = {key: option.get("default") for key, option in OPTIONS.items()} | {"pins_file": str(pins or "")}
        super().__init__(
            SimpleNamespace(_connection=SimpleNamespace(transport="local")), given, {"inventory_hostname": "h"}
        )
        self.answer = {
            "id": "f00d",
            "digest": CHILD,
            "digests": [INDEX, CHILD],
            "bytes": 1,
            "has_program": True,
            **answer,
        }
        self.calls: list[dict[str, Any]] = []
        self.files: dict[str, str] = {}
        self.states = ["absent", "running", "running", "present"]
        self.moved: list[int | None] = []

    def _module(self, name: str, arguments: Any, *, check: bool = True) -> dict[str, Any]:
        self.calls.append({"module": name, **arguments})
        if name != "arcpro.b70.b70_container_image":
            return {}
        state = self.states.pop(0)
        if state == "failed":
            raise StackFault("no room")
        moved = self.moved.pop(0) if self.moved else 1
        seen = {"state": state, "bytes": 5 * 10**8, "moved_mib": moved}
        return {**seen, "image": {**self.answer, "source": arguments["source"]}}

    def _act(self, name: str, arguments: Any, *, check: bool | None = None) -> dict[str, Any]:
        assert name == "ansible.legacy.copy"
        self.files[arguments["dest"]] = arguments["content"]
        return {}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_host, "PAUSES_S", (0.0, 0.0))


PLANNED = {"system": {"id": "ubuntu"}}


def test_the_record_of_an_image_is_written_when_it_is_there() -> None:
    lines: list[str] = []
    host = Host(None)
    assert host.finish_image(item(STOCK), PLANNED, lines.append) == {}
    path = f"/stacks/{stack_id(STACKS[STOCK])}/fingerprint.json"
    assert list(host.files) == [path]
    assert '"id": "f00d"' in host.files[path]
    assert lines[0].startswith("pulling or building the image: 0.5 GB of about 4.31 GB")


def test_packages_are_downloaded_by_digest_before_the_build() -> None:
    host = Host(None)
    host.finish_image(item(NEWER), PLANNED, lambda _text: None)
    fetched = [call for call in host.calls if call["module"] == "ansible.legacy.get_url"]
    assert len(fetched) == 5
    assert all(call["checksum"].startswith("sha256:") for call in fetched)
    asked = next(call for call in host.calls if call["module"] == "arcpro.b70.b70_container_image")
    assert [package["file"] for package in asked["packages"]] == [call["dest"] for call in fetched]


def test_the_first_host_pins_an_image_that_nobody_has_pinned(tmp_path: Path) -> None:
    pins = tmp_path / "pins.yml"
    first = Host(pins)
    assert first.finish_image(item(UNPINNED), PLANNED, lambda _text: None) == {f"{NAME}:v0.31.0": INDEX}
    assert next(call for call in first.calls if "source" in call)["source"] == f"{NAME}:v0.31.0"
    assert _pins_file.read(str(pins)).value("images", f"{NAME}:v0.31.0") == INDEX
    later = Host(pins)
    assert later.finish_image(item(UNPINNED), PLANNED, lambda _text: None) == {}
    assert {call["source"] for call in later.calls if "source" in call} == {f"{NAME}@{INDEX}"}


def test_the_digest_of_the_image_in_a_pinned_index_is_no_drift() -> None:
    about = STACKS[UNPINNED]["image"]
    assert planning.new_pin(about, {"digest": CHILD, "digests": [CHILD, INDEX]}, CHILD) == ""
    assert planning.new_pin(about, {"digest": CHILD, "digests": [CHILD]}, "") == CHILD


def test_an_image_without_the_program_is_refused() -> None:
    with pytest.raises(StackFault, match="has no program /opt/venv/bin/vllm"):
        Host(None, has_program=False).finish_image(item(STOCK), PLANNED, lambda _text: None)


def test_a_pull_that_ends_without_a_word_is_begun_again_and_not_for_ever() -> None:
    host = Host(None)
    host.states = ["absent"] * 9
    with pytest.raises(StackFault, match="is not there after its pull"):
        host.finish_image(item(STOCK), PLANNED, lambda _text: None)
    assert len([call for call in host.calls if call.get("step") == "start"]) == stack_host.IMAGE_STEPS


@pytest.mark.parametrize(
    ("moved", "steps"),
    [
        ([0, 7, 7, 7], ["look", "start", "look", "stop"]),  # it stands still
        ([0, 7, 8, 9], ["look", "start", "look", "look"]),  # it goes on
        ([0, None, None, None], ["look", "start", "look", "look"]),  # a build, whose steps say nothing
    ],
)
def test_a_pull_that_stands_still_is_ended(moved: list[int | None], steps: list[str]) -> None:
    host = Host(None)
    host.moved = moved
    host._given = {**host._given, "stall_timeout": 0}
    ended = "stop" in steps
    host.states = ["absent", "running", "running", "absent" if ended else "present"]
    if ended:
        with pytest.raises(
            StackFault, match=r"transferred nothing for 0 s and was ended: check docker\.io and the way to it"
        ):
            host.finish_image(item(STOCK), PLANNED, lambda _text: None)
    else:
        host.finish_image(item(STOCK), PLANNED, lambda _text: None)
    assert [call["step"] for call in host.calls if "step" in call] == steps
    assert bool(host.files) is not ended


def test_a_failed_pull_leaves_no_record() -> None:
    host = Host(None)
    host.states = ["absent", "failed"]
    with pytest.raises(StackFault, match="no room"):
        host.finish_image(item(STOCK), PLANNED, lambda _text: None)
    assert not host.files


def mirrored(name: str) -> dict[str, Any]:
    return planning.contents([(stack_id(STACKS[name]), STACKS[name])], {"machine": "x86_64"}, "3.12.3")[0]


def test_a_mirror_brings_an_image_by_its_digest_with_the_packages_of_a_derived_one() -> None:
    assert mirrored(STOCK)["images"] == [{"source": f"{NAME}@{STACKS[STOCK]['image']['digest']}", "debs": []}]
    (image,) = mirrored(NEWER)["images"]
    host = Host(None)
    host._given = {**host._given, "image_mirror": "http://mirror/images"}
    host.finish_image(item(NEWER), PLANNED, lambda _text: None)
    asked = [call["url"] for call in host.calls if call["module"] == "ansible.legacy.get_url"]
    assert asked == [f"http://mirror/images/packages/{deb['file']}" for deb in image["debs"]]
    with pytest.raises(ValueError, match="without a digest"):
        mirrored(UNPINNED)
