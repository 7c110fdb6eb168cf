# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compiled build: with FRONTDOOR_COMPILE=1, mypyc compiles the modules that every request passes.

Without it the package is pure Python. Both have the same sources and behave alike.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup

# Not all modules: the others take as long to compile again, save nothing, and some read their own annotations. A class
# and its base must be on the same side.
COMPILED = [
    *("app", "follower", "admission/bounds", "admission/limiter", "admission/permits", "admission/router"),
    *("http/body", "http/chunks", "http/client", "http/exchange", "http/head", "http/listing", "http/measured"),
    *("http/relay", "http/upstream", "observability/activity", "observability/events", "observability/ledger"),
    *("observability/metrics", "observability/sentinel"),
    *("policy/asked", "policy/document", "policy/editing", "policy/form", "policy/modality"),
    *("policy/outline", "policy/prefix", "policy/routing", "slot/current", "slot/replicas"),
]


def extensions() -> list[object]:
    """Return the modules to compile; end the build where that cannot work."""
    # A backend also runs this file to ask about the package.
    if os.environ.get("FRONTDOOR_COMPILE") != "1" or {"dist_info", "egg_info"} & {*sys.argv}:
        return []
    headers = Path(sysconfig.get_path("include"), "Python.h")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not headers.exists():
        sys.exit(f"{sys.executable} cannot be compiled for: {headers} is missing; install the headers of this Python")
    if shutil.which(compiler) is None:
        sys.exit(f"there is no C compiler {compiler}, which {sys.executable} was built with; install it")
    from mypyc.build import mypycify

    # The higher levels take half as long again and twice as long, and save less than a tenth of a request.
    return list(mypycify([f"src/frontdoor/{name}.py" for name in COMPILED], opt_level="1", debug_level="0"))


setup(ext_modules=extensions())
