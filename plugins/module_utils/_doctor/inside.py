# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inspects a stack from inside: runs in the engine's interpreter, from standard input, and needs nothing else.

The one argument is a JSON object: `torch` and `vllm` say whether to import them. The last line of standard output is a
JSON object with `torch`, `vllm` (versions, or null), `xpu` (available, count, names), `xccl`, `platform` and `errors`
(what failed, by name).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from typing import Any


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def look(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return what the interpreter tells of torch, the cards and vLLM; their failures become `errors`."""
    errors: dict[str, str] = {}
    found: dict[str, Any] = {name: version(name) for name in ("torch", "vllm", "oneccl", "triton-xpu", "transformers")}
    found |= {"xpu": None, "xccl": None, "platform": None, "errors": errors}
    if wanted.get("torch"):
        try:
            torch = importlib.import_module("torch")
            xpu = torch.xpu
            count = xpu.device_count()
            names = [xpu.get_device_name(number) for number in range(count)]
            found["xpu"] = {"available": bool(xpu.is_available()), "count": count, "names": names}
            distributed = importlib.import_module("torch.distributed")
            found["xccl"] = bool(getattr(distributed, "is_xccl_available", lambda: False)())
        except Exception as error:
            errors["torch"] = f"{type(error).__name__}: {error}"
    if wanted.get("vllm") and "torch" not in errors:
        try:
            found["platform"] = importlib.import_module("vllm.platforms").current_platform.device_type
        except Exception as error:
            errors["vllm"] = f"{type(error).__name__}: {error}"
    return found


def main() -> None:
    # Imported modules may print: keep the answer's stream separate and send everything else to standard error.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    result = look(json.loads(sys.argv[1]))
    answer.write(json.dumps(result) + "\n")
    answer.flush()


if __name__ == "__main__":
    main()
