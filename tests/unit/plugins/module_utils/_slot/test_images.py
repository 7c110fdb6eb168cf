# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The question for an image: it is there, it is missing, or Podman could not be asked."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import images
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import HostFault

IMAGE = f"docker.io/vllm/vllm-openai-xpu@sha256:{'f' * 64}"
Answer = tuple[int, str, str]
# As Podman 4.9 says it.
UNKNOWN = f"Error: {IMAGE}: image not known"
DENIED = "Error: open /var/lib/containers/storage/overlay-images/images.lock: read-only file system"
LOCKED = "Error: creating lock file directory: mkdir /run/libpod: permission denied"
NO_BUS = "Failed to connect to bus: No such file or directory"
NO_PODMAN = "Failed to find executable /usr/bin/podman: No such file or directory"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    def answer(inspect: Answer, exists: Answer = (0, "", "")) -> list[list[str]]:
        argvs: list[list[str]] = []

        def run(argv: list[str], **_given: Any) -> subprocess.CompletedProcess[bytes]:
            argvs.append(argv)
            code, *texts = exists if "exists" in argv else inspect
            return subprocess.CompletedProcess(argv, code, *(text.encode() for text in texts))

        monkeypatch.setattr(subprocess, "run", run)
        return argvs

    return answer


def test_podman_is_asked_in_a_unit_of_its_own_whose_rights_are_not_those_of_who_asks(asked) -> None:
    argvs = asked((0, "f00d\n", ""))
    assert images.PodmanImages().id_of(IMAGE) == "f00d"
    (argv,) = argvs
    assert argv[0] == "systemd-run"
    assert {"--pipe", "--wait", "--collect", "--property=RuntimeMaxSec=60"} < set(argv)
    assert argv[argv.index("--") + 1 :] == [
        "/usr/bin/podman", "image", "inspect", "--format", "{{.Id}}", IMAGE,
    ]  # fmt: skip


def test_an_image_is_missing_only_when_podman_says_so(asked) -> None:
    asked((125, "", UNKNOWN), (1, "", ""))
    assert images.PodmanImages().id_of(IMAGE) == ""


@pytest.mark.parametrize(
    ("inspect", "exists", "words"),
    [
        ((125, "", DENIED), (125, "", DENIED), "read-only file system"),
        ((125, "", LOCKED), (125, "", LOCKED), "permission denied"),
        # Another process let go of the lock between the two questions.
        ((125, "", LOCKED), (0, "", ""), "permission denied"),
        ((1, "", NO_BUS), (1, "", NO_BUS), "Failed to connect to bus"),
        ((1, "", NO_PODMAN), (1, "", NO_PODMAN), "Failed to find executable /usr/bin/podman"),
        ((203, "", ""), (203, "", ""), "it ended with 203"),
    ],
)
def test_a_podman_that_cannot_be_asked_says_nothing_about_the_image(asked, inspect, exists, words) -> None:
    asked(inspect, exists)
    with pytest.raises(HostFault, match=words) as raised:
        images.PodmanImages().id_of(IMAGE)
    assert "does not tell" in raised.value.message


def test_a_podman_that_hangs_is_a_fault_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], *, timeout: float, **_given: Any) -> None:
        raise subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(HostFault, match="gave no answer"):
        images.PodmanImages().id_of(IMAGE)
