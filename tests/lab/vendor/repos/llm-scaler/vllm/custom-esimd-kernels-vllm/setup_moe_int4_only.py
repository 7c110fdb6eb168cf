# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds nothing but the extension for INT4 mixtures of experts, as the script of this name does."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import setup  # type: ignore[import-untyped]
from torch.utils.cpp_extension import BuildExtension, CppExtension

compiler = Path(os.environ["SYCL_HOME"]) / "bin" / "icpx"
os.environ["CXX"] = os.environ["CC"] = str(compiler)

setup(
    name="custom-esimd-kernels-vllm-moe-int4-only",
    version="0.1.0",
    packages=["custom_esimd_kernels_vllm"],
    package_dir={"": "python"},
    ext_modules=[
        CppExtension(
            "custom_esimd_kernels_vllm.moe_int4_ops", ["csrc/moe_int4.cpp"], extra_compile_args=["-fsycl", "-O1", "-g0"]
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
