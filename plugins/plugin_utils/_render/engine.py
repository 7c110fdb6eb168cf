# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a profile's typed settings to the engine's argument vector and environment. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._environment import SYSTEM_PATH, Variable

from .._catalogue.engines import is_repeated, takes_json_list


def compact_json(value: Any) -> str:
    """Return JSON without spaces, keys in the order in which they were written."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def fill(text: str, places: Mapping[str, str]) -> str:
    """Replace ``@name@`` by the host's path of that name; unknown names stay (the catalogue refuses them)."""
    return re.sub(r"@([a-z_]+)@", lambda match: places.get(match[1], match[0]), text)


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return fill(value, places)
    if isinstance(value, Mapping):
        return {key: _filled(item, places) for key, item in value.items()}
    return [_filled(item, places) for item in value] if isinstance(value, list) else value


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return compact_json(value) if isinstance(value, (Mapping, list)) else str(value)


def setting_arguments(key: str, value: Any) -> list[str]:
    """Return the arguments of one typed setting of ``vllm serve``.

    ``true``/``false`` become ``--x``/``--no-x``, mappings compact JSON, lists one argument per entry, or JSON, or the
    flag once per entry, as the option wants it; null gives none.
    """
    flag = "--" + key.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, list) and not takes_json_list(key):
        words = [_word(item) for item in value]
        if is_repeated(key) or any(word.startswith("-") for word in words):
            return [f"{flag}={word}" for word in words]
        return [flag, *words] if words else []
    word = _word(value)
    # A value that looks like a flag must not be taken for one.
    return [f"{flag}={word}"] if word.startswith("-") else [flag, word]


def engine_argv(profile: Mapping[str, Any], places: Mapping[str, str], host: str, port: int | str) -> list[str]:
    """Return the whole command line of the engine: what the slot owns, the settings by name, the rest."""
    engine = profile["engine"]
    argv = [f"{places['venv']}/bin/vllm", "serve", places["model_path"]]
    argv += ["--host", host, "--port", str(port), "--served-model-name", engine["served_model_name"]]
    for key in sorted(engine["settings"]):
        argv += setting_arguments(key, _filled(engine["settings"][key], places))
    return argv + [fill(argument, places) for argument in engine["extra_args"]]


def engine_environment(
    profile: Mapping[str, Any],
    manifest: Mapping[str, Any],
    site: Mapping[str, str],
    places: Mapping[str, str],
    slot: str,
) -> dict[str, Variable]:
    """Return the engine's environment by name; slot < stack < profile < site, each with its origin."""
    own = {
        "HF_HOME": places["hf_home"],
        "HF_HUB_DISABLE_XET": "1",  # transfers through it wedge
        "HOME": f"{places['cache_root']}/home",  # the user's own home is read-only for the engine
        # The stack's own tools first (ninja, ocloc wrappers): kernels are compiled at run time.
        "PATH": f"{places['venv']}/bin:{SYSTEM_PATH}",
        "PYTHONUNBUFFERED": "1",
        "VLLM_CACHE_ROOT": places["cache_root"],
        # The domain of a media URL is only looked at before the first redirect.
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
    variables = {name: Variable(value, f"slot {slot}") for name, value in own.items()}
    for name, value in manifest.get("env", {}).items():
        variables[name] = Variable(fill(value, places), f"stack {manifest['name']}")
    for name, value in profile["engine"]["env"].items():
        author = profile["origins"].get(f"engine.env.{name}", profile["name"])
        variables[name] = Variable(fill(value, places), f"profile {author}")
    for name, value in site.items():
        variables[name] = Variable(fill(str(value), places), "site (slot_env)")
    return dict(sorted(variables.items()))
