# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tools.torch_source import missing

NAME = "b70-no-such-package"
REQUIREMENT = f"{NAME}==9.9.9+cpu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one wheel that no index has."""
    stem = f"{NAME.replace('-', '_')}-9.9.9+cpu"
    with zipfile.ZipFile(tmp_path / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 9.9.9+cpu\n")
        wheel.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return tmp_path


def test_a_wheel_in_a_folder_that_pip_is_told_of_is_found(folder: Path) -> None:
    assert missing(REQUIREMENT, f'no-index = true\nfind-links = ["{folder}"]\n') == ""


def test_what_nobody_offers_is_reported_with_the_clients_own_reason(tmp_path: Path) -> None:
    assert NAME in missing(REQUIREMENT, f'no-index = true\nfind-links = ["{tmp_path}"]\n')
