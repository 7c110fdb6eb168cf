# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A CMake project as a wheel: programs go to its bin, the libraries that they are linked with to its lib.

scikit-build-core, which the stack's lock pins beside cmake and ninja, does the building. Pure: texts of files.
"""

from __future__ import annotations

import json

from .recipe import WRAPPER, Recipe

# The project in the parent folder is built as it is, but only what the programs need: a project installs all of its
# targets or none. Of the libraries that a program is linked with, the project's own are installed beside it; those of
# the compiler and of the system are the stack's business.
_LISTS = """\
cmake_minimum_required(VERSION 3.21)
project(b70_wheel LANGUAGES C CXX)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
add_subdirectory(.. project EXCLUDE_FROM_ALL)
add_custom_target(programs ALL DEPENDS {programs})
install(TARGETS {programs} RUNTIME DESTINATION "${{SKBUILD_SCRIPTS_DIR}}")
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES {files}
    RESOLVED_DEPENDENCIES_VAR libraries
    UNRESOLVED_DEPENDENCIES_VAR others
    POST_INCLUDE_REGEXES \\"^${{CMAKE_BINARY_DIR}}/\\"
    POST_EXCLUDE_REGEXES \\".*\\")
  file(MAKE_DIRECTORY \\"${{SKBUILD_DATA_DIR}}/lib\\")
  foreach(library IN LISTS libraries)
    get_filename_component(name \\"\\${{library}}\\" NAME)
    file(COPY_FILE \\"\\${{library}}\\" \\"${{SKBUILD_DATA_DIR}}/lib/\\${{name}}\\")
  endforeach()")
"""
_PROJECT = """\
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"

[project]
name = {name}
version = {version}

[tool.scikit-build]
build-dir = "build"
build.targets = ["programs"]
cmake.build-type = "Release"
ninja.make-fallback = false
wheel.packages = []
wheel.py-api = "py3"

[tool.scikit-build.cmake.define]
{options}"""


def version(recipe: Recipe) -> str:
    """Return the version of the wheel, from the commit: a project of programs has none that Python knows."""
    return f"0+g{recipe.commit[:12]}"


def files(recipe: Recipe) -> dict[str, str]:
    """Return the files that are added to a checkout, by path; none for a recipe without CMake."""
    if recipe.cmake is None:
        return {}
    # A basic string of TOML has the escapes of JSON.
    options = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in recipe.cmake.options)
    name, release = json.dumps(recipe.distribution), json.dumps(version(recipe))
    return {
        f"{WRAPPER}/CMakeLists.txt": _LISTS.format(
            programs=" ".join(recipe.cmake.programs),
            files=" ".join(f'\\"$<TARGET_FILE:{name}>\\"' for name in recipe.cmake.programs),
        ),
        f"{WRAPPER}/pyproject.toml": _PROJECT.format(name=name, version=release, options=options),
    }
