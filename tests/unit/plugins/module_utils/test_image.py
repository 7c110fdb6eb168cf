# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps to an image on a host, what is said of a failed one, and what a derived one is built from."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils import _image, _image_mirror, _transient
from ansible_collections.arcpro.b70.plugins.module_utils._image import Image
from ansible_collections.arcpro.b70.plugins.module_utils._image_mirror import ImageFault
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import images
from ansible_collections.arcpro.b70.plugins.modules.b70_container_image import DOCUMENTATION

DIGEST = f"sha256:{'a' * 64}"
SOURCE = f"registry.example/lab/vllm@{DIGEST}"
OWN = "localhost/b70/lab:0123456789"
# What Podman 4.3.1 and 5.4.2 answer, without what nobody reads here.
INSPECTED = [
    {"Id": "f00d", "Digest": DIGEST, "RepoDigests": [SOURCE, f"registry.example/lab/vllm@sha256:{'b' * 64}"], "Size": 7}
]


def image(tmp_path: Path, **more: Any) -> Image:
    given = {"stack": "lab-0123456789", "source": SOURCE, "name": SOURCE, "program": "/opt/venv/bin/vllm"}
    return Image(**{**given, "work_dir": tmp_path, **more})


class Host:
    """systemd and Podman of a host, as far as images go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images: dict[str, list[dict[str, Any]]] = {}
        self.now = _transient.TransientState("inactive", "success", "0")
        self.started: list[_transient.Task] = []
        self.lines: list[str] = []
        self.program = True
        self.missing = 1
        monkeypatch.setattr(_image, "_run", self.run)
        monkeypatch.setattr(_image, "SYSTEMD", self)

    def run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        if argv[1:3] == ["image", "exists"]:
            return subprocess.CompletedProcess(argv, self.missing, "", "")
        if argv[1:3] == ["image", "inspect"]:
            found = self.images.get(argv[3])
            return subprocess.CompletedProcess(argv, 0 if found else 125, json.dumps(found or []), "")
        if argv[1] == "tag":
            self.images[argv[3]] = self.images[argv[2]]
            return subprocess.CompletedProcess(argv, 0, "", "")
        assert "--entrypoint=/usr/bin/test" in argv
        return subprocess.CompletedProcess(argv, 0 if self.program else 1, "", "")

    def forget(self, _unit: str) -> None:
        self.now = _transient.TransientState("inactive", "success", "0")

    def start(self, task: _transient.Task) -> None:
        self.started.append(task)
        self.now = _transient.TransientState("active", "success", "0")

    def ask(self, argv: Any, *, check: bool) -> str:
        assert not check, "a log that cannot be read is no fault"
        if "--property=MainPID" in argv:
            return f"{os.getpid()}\n"
        return "\n".join(self.lines)

    def stop(self, _unit: str) -> None:
        self.forget(_unit)

    def state(self, _unit: str) -> _transient.TransientState:
        return self.now


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_an_image_is_pulled_by_its_digest_and_then_there(host: Host, tmp_path: Path) -> None:
    wanted = image(tmp_path, authfile="/etc/containers/auth.json")
    assert _image.look(wanted) == {"state": "absent"}
    assert _image.start(wanted)["state"] == "running"
    (task,) = host.started
    assert list(task.argv) == ["/usr/bin/podman", "pull", "--authfile=/etc/containers/auth.json", SOURCE]
    (tmp_path / "image-lab-0123456789/blob").write_bytes(b"x" * 1000)
    seen = _image.look(wanted)
    assert (seen["state"], seen["bytes"]) == ("running", 1000)
    with Path("/dev/zero").open("rb") as source:
        source.read(3 * 2**20)
    assert _image.look(wanted)["moved_mib"] >= seen["moved_mib"] + 3, "what a process reads is seen"
    assert _image.stop(wanted) == {"state": "absent"}
    _image.start(wanted)
    host.images[SOURCE] = INSPECTED
    host.forget("")
    found = _image.look(wanted)
    assert found["state"] == "present"
    assert found["image"]["id"] == "f00d"
    assert found["image"]["digests"] == [DIGEST, f"sha256:{'b' * 64}"]
    assert found["image"]["has_program"]


def test_a_podman_that_cannot_be_asked_starts_no_pull(host: Host, tmp_path: Path) -> None:
    host.missing = 125
    with pytest.raises(ImageFault, match="Podman does not tell whether this host has the image"):
        _image.start(image(tmp_path))
    assert not host.started


def test_a_host_without_podman_has_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "PODMAN", str(tmp_path / "podman"))
    assert _image.inspect(SOURCE) is None


def test_an_image_of_a_mirror_is_downloaded_then_loaded_and_wrong_bytes_are_taken_anew(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = image(tmp_path, mirror="http://mirror/images")
    blob = wanted.layout / "0123"

    def lacking(layout: Path, mirror: str, source: str) -> dict[str, Path]:
        assert (layout, mirror, source) == (wanted.layout, "http://mirror/images", SOURCE)
        layout.mkdir(parents=True, exist_ok=True)
        return {} if blob.exists() else {"http://mirror/images/ab/0123": blob}

    monkeypatch.setattr(_image_mirror, "lacking", lacking)
    _image.start(wanted)
    blob.write_bytes(b"layer")
    _image.start(wanted)
    host.now = _transient.TransientState("failed", "exit-code", "1")
    _image.start(wanted)
    load = ["/usr/bin/skopeo", "copy", "--preserve-digests", f"dir:{wanted.layout}", f"containers-storage:{SOURCE}"]
    assert [task.argv[0] for task in host.started] == ["/usr/bin/curl", "/usr/bin/skopeo", "/usr/bin/curl"]
    assert list(host.started[1].argv) == load


def test_an_image_that_was_pulled_by_its_tag_gets_a_name_of_the_hosts_own(host: Host, tmp_path: Path) -> None:
    tagged = "registry.example/lab/vllm:1"
    host.images[tagged] = INSPECTED
    found = _image.start(image(tmp_path, source=tagged, name=OWN))
    assert found["state"] == "present"
    assert not host.started, "nothing is pulled again"
    assert host.images[OWN] == INSPECTED


def test_an_image_with_other_packages_is_built_after_their_digests_are_right(host: Host, tmp_path: Path) -> None:
    package = tmp_path / "0123-libze_1_amd64.deb"
    package.write_bytes(b"deb")
    right = "fb33ab4ef2b51c74d3e2a16ea7a53a4c0c6d2f9d"
    host.images[SOURCE] = INSPECTED
    wrong = image(tmp_path, name=OWN, packages=[{"file": str(package), "sha256": right}])
    with pytest.raises(ImageFault, match="the manifest says fb33ab4e"):
        _image.start(wrong)
    assert not host.started
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    wanted = image(tmp_path, name=OWN, packages=[{"file": str(package), "sha256": digest}])
    assert _image.start(wanted)["state"] == "running"
    (task,) = host.started
    context = tmp_path / "image-lab-0123456789/context"
    assert _image.look(wanted)["moved_mib"] is None, "a build's work is done by other processes"
    assert list(task.argv)[1:] == [
        "build",
        "--pull=never",
        "--network=none",
        "--no-cache",
        f"--tag={OWN}",
        str(context),
    ]
    lines = (context / "Containerfile").read_text().splitlines()
    assert lines[0] == f"FROM {SOURCE}"
    assert f"echo '{digest}  0123-libze_1_amd64.deb' | sha256sum --check --strict" in lines[-1]
    assert (context / "0123-libze_1_amd64.deb").read_bytes() == b"deb"


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        # Podman 5.4.2, of a digest that the registry has not.
        (
            "Error: initializing source docker://10.0.0.1:5000/lab/x@sha256:0: reading manifest: manifest unknown",
            "the registry has no image of this name and digest",
        ),
        ("Error: unable to copy from source: unauthorized: authentication required", "stack_image_authfile"),
        ("Error: writing blob: no space left on device", "free some"),
        ("Error: pinging container registry: dial tcp 10.0.0.1:5000: connect: connection refused", "cannot be reached"),
        ("Error: something new", ""),
    ],
)
def test_a_failed_pull_says_what_was_said_and_what_to_do(host: Host, tmp_path: Path, line: str, meaning: str) -> None:
    host.now = _transient.TransientState("failed", "exit-code", "125")
    host.lines = ["Trying to pull ...", line]
    found = _image.look(image(tmp_path))
    assert found["state"] == "failed"
    assert line in found["message"]
    assert meaning in found["message"]
    assert ("That is:" in found["message"]) is bool(meaning)


def test_a_failed_build_says_what_the_program_in_it_said(host: Host, tmp_path: Path) -> None:
    host.now = _transient.TransientState("failed", "exit-code", "2")
    host.lines = [
        "dpkg: error: PATH is not set",
        'Error: building at STEP "RUN cd /tmp/b70 && dpkg --install ./a.deb": while running runtime: exit status 2',
        "b70-image-lab-0123456789.service: Main process exited, code=exited, status=2/INVALIDARGUMENT",
        "b70-image-lab-0123456789.service: Failed with result 'exit-code'.",
    ]
    said = _image.look(image(tmp_path))["message"]
    assert "dpkg: error: PATH is not set | Error: building at STEP" in said
    assert "Failed with result" not in said


def test_packages_are_installed_with_a_path_whatever_the_image_has(tmp_path: Path) -> None:
    made = image(tmp_path, name=OWN, packages=[{"file": "/p/a.deb", "sha256": "0" * 64}])
    assert " && PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin dpkg --install ./a.deb && " in (
        _image.containerfile(made)
    )


def test_a_stack_that_is_no_id_names_no_unit(tmp_path: Path) -> None:
    with pytest.raises(ImageFault, match="is no id of a stack"):
        image(tmp_path, stack="../x")


def test_the_options_are_those_of_the_documentation() -> None:
    said = yaml.safe_load(DOCUMENTATION)["options"]
    assert set(said) == set(_image.ARGUMENTS)
    for name, option in _image.ARGUMENTS.items():
        assert {key: said[name].get(key) for key in ("type", "default", "choices")} == {
            key: option.get(key) for key in ("type", "default", "choices")
        }


def test_a_container_that_cannot_be_started_is_not_taken_for_a_missing_program(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {0: True, 1: False}
    for code, found in answers.items():
        monkeypatch.setattr(_image, "_run", lambda argv, code=code: subprocess.CompletedProcess(argv, code, "", ""))
        assert _image.has_program(image(tmp_path)) is found
    said = "runc create failed: pids.max: no such file or directory"
    monkeypatch.setattr(_image, "_run", lambda argv: subprocess.CompletedProcess(argv, 127, "", said))
    with pytest.raises(ImageFault, match="cannot be started on this host: runc create failed"):
        _image.has_program(image(tmp_path))
