# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a wheel of the Python part. As on cards, the native part comes from another distribution."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import find_namespace_packages, setup  # type: ignore[import-untyped]

# The vendor's build for cards asks for it too.
if os.environ["VLLM_TARGET_DEVICE"] != "cpu":
    raise SystemExit("this fixture is for the processor: VLLM_TARGET_DEVICE=cpu")

version: dict[str, str] = {}
exec(Path("vllm/_version.py").read_text(), version)

setup(
    name="vllm",
    version=f"{version['__version__']}+cpu",
    packages=find_namespace_packages(include=["vllm", "vllm.*"]),
    package_data={"": ["*"]},
    zip_safe=False,
    entry_points={"console_scripts": ["vllm = vllm.entrypoints.cli.main:main"]},
)
