# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way in which a host can differ from what a role would make of it is found."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _desired_state

TEXT = b"a = 1\n"


@pytest.fixture
def wanted(tmp_path: Path) -> list[dict[str, Any]]:
    """A file, a directory, a link and nothing, as they are."""
    owner = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}
    file, folder, link = tmp_path / "file", tmp_path / "folder", tmp_path / "link"
    file.write_bytes(TEXT)
    file.chmod(0o644)
    folder.mkdir()
    folder.chmod(0o755)
    link.symlink_to("file")
    return [
        {"path": str(file), "state": "file", "mode": "0644", "sha256": hashlib.sha256(TEXT).hexdigest(), **owner},
        {"path": str(folder), "state": "directory", "mode": "0755", **owner},
        {"path": str(link), "state": "link", "target": "file", "sha256": None},
        {"path": str(tmp_path / "none"), "state": "absent"},
        {"path": str(tmp_path / "only read"), "state": None},
    ]


def differences(wanted: list[dict[str, Any]]) -> list[str]:
    return _desired_state.file_differences(
        wanted, {item["path"]: _desired_state.file_facts(item["path"]) for item in wanted}
    )


def relink(folder: Path, target: str) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to(target)


def test_what_is_as_wanted_differs_in_nothing(wanted: list[dict[str, Any]]) -> None:
    assert differences(wanted) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "file").write_bytes(TEXT + b"#"), "file: sha256 is"),
        (lambda folder: (folder / "file").chmod(0o600), "file: mode is 0600, wanted is 0644"),
        (lambda folder: (folder / "file").unlink(), "file: state is absent, wanted is file"),
        (lambda folder: (folder / "folder").chmod(0o777), "folder: mode is 0777, wanted is 0755"),
        (lambda folder: (folder / "folder").rmdir(), "folder: state is absent, wanted is directory"),
        (lambda folder: relink(folder, "folder"), "link: target is folder, wanted is file"),
        (lambda folder: (folder / "none").write_text(""), "none: state is file, wanted is absent"),
        (lambda folder: os.mkfifo(folder / "none"), "none: state is other, wanted is absent"),
        (lambda folder: (folder / "none").symlink_to("nowhere"), "none: state is link, wanted is absent"),
    ],
)
def test_each_difference_is_named(
    wanted: list[dict[str, Any]], tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(tmp_path)
    (found,) = differences(wanted)
    assert found.startswith(f"{tmp_path}/{said}")


def test_another_owner_is_named(wanted: list[dict[str, Any]]) -> None:
    assert [line.rpartition("/")[2] for line in differences([{**wanted[0], "owner": "x", "group": "y"}])] == [
        f"file: owner is {wanted[0]['owner']}, wanted is x",
        f"file: group is {wanted[0]['group']}, wanted is y",
    ]


def test_a_file_in_the_place_of_a_folder_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("")
    path = str(tmp_path / "folder/below")
    assert _desired_state.file_facts(path)["state"] == "absent"
