# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn a profile's typed settings into the engine's argument vector and environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._environment import Variable
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.kind import Kind
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import DEFAULT, kind_of_engine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.relay import BIND, URL

from .._catalogue.checking import workers_of
from .._catalogue.engines import recorded


def fill(text: str, places: Mapping[str, str]) -> str:
    """Replace ``@name@`` by the host's path of that name; unknown names stay (the catalogue refuses them)."""
    return re.sub(r"@([a-z_]+)@", lambda match: places.get(match[1], match[0]), text)


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return fill(value, places)
    if isinstance(value, Mapping):
        return {key: _filled(item, places) for key, item in value.items()}
    return [_filled(item, places) for item in value] if isinstance(value, list) else value


def setting_arguments(key: str, value: Any, kind: Kind = DEFAULT) -> list[str]:
    """Return the arguments of one typed setting of an engine; null gives none."""
    return kind.arguments(key, value, recorded(kind.name, key))


def engine_argv(profile: Mapping[str, Any], places: Mapping[str, str], host: str, port: int | str) -> list[str]:
    """Return the whole command line of the engine: what the slot owns, the settings by name, the rest."""
    engine = profile["engine"]
    kind = kind_of_engine(engine)
    argv = kind.command(places, host, port, engine["served_model_name"])
    for key in sorted(engine["settings"]):
        argv += setting_arguments(key, _filled(engine["settings"][key], places), kind)
    node = profile.get("node")
    if node:
        argv += kind.node_arguments(node.rank, profile["nodes"], node.hosts[0][1], node.rendezvous_port)
    return argv + [fill(argument, places) for argument in engine["extra_args"]]


def engine_environment(
    profile: Mapping[str, Any],
    manifest: Mapping[str, Any],
    site: Mapping[str, str],
    places: Mapping[str, str],
    slot: str,
    path: str,
) -> dict[str, Variable]:
    """Return the engine's environment by name; slot < stack < profile < site, each with its origin.

    :param path: its PATH, with placeholders; empty if its image has one.
    """
    remote = profile["engine"].get("remote")
    if remote:
        # The relay gets none of the site's variables, which are for engines on this host.
        values = {URL: remote["base_url"], BIND: places["relay_bind"]}
        return {name: Variable(value, f"slot {slot}") for name, value in sorted(values.items())}
    own = {
        "HF_HOME": places["hf_home"],
        "HOME": f"{places['cache_root']}/home",  # the user's own home is read-only for the engine
        **({"PATH": fill(path, places)} if path else {}),
        **kind_of_engine(profile["engine"]).environment(places),
    }
    if profile.get("node"):
        workers = workers_of(profile["engine"]["settings"]) // profile["nodes"]
        own |= kind_of_engine(profile["engine"]).node_environment(profile["node"].address, workers)
    variables = {name: Variable(value, f"slot {slot}") for name, value in own.items()}
    for name, value in manifest.get("env", {}).items():
        variables[name] = Variable(fill(value, places), f"stack {manifest['name']}")
    for name, value in profile["engine"]["env"].items():
        author = profile["origins"].get(f"engine.env.{name}", profile["name"])
        variables[name] = Variable(fill(value, places), f"profile {author}")
    for name, value in site.items():
        variables[name] = Variable(fill(str(value), places), "site (slot_env)")
    return dict(sorted(variables.items()))
