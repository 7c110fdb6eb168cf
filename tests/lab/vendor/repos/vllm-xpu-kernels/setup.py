# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds as the project of this name does: against the installed torch, with the compiler that SYCL_HOME names."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import setup  # type: ignore[import-untyped]
from torch.utils.cpp_extension import BuildExtension, CppExtension

# The one is a submodule; the other is downloaded by the build of this name unless it is told where it is.
HEADERS = (Path("third_party/xpu-kernel-headers"), Path(os.environ["VLLM_CUTLASS_SRC_DIR"]))

compiler = Path(os.environ["SYCL_HOME"]) / "bin" / "icpx"
os.environ["CXX"] = os.environ["CC"] = str(compiler)

setup(
    name="vllm-xpu-kernels",
    version="0.1.9",
    packages=["vllm_xpu_kernels"],
    ext_modules=[
        CppExtension(
            "vllm_xpu_kernels._C",
            sorted(str(path) for path in Path("csrc").glob("*.cpp")),
            include_dirs=[str((folder / "include").resolve()) for folder in HEADERS],
            extra_compile_args=["-fsycl", "-O1", "-g0"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
