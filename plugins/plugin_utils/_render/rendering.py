# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From catalogue and host settings to the files of a slot: resolved profiles, environments, units. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._environment import Variable, environment_file
from ansible_collections.arcpro.b70.plugins.module_utils._slot_place import MARKER

from .._catalogue.places import weights_path
from .._catalogue.problems import did_you_mean
from .._catalogue.stacks import canonical, stack_id
from .._catalogue.typed import expanded, numa_directives
from .engine import engine_argv, engine_environment
from .program import program_files, program_path
from .unit import network_directives, settle_name, settle_text, unit_name, unit_text

SCHEMA = 1
_TEXT = (
    "slot",
    "config_dir",
    "unit_dir",
    "tmpfiles_dir",
    "run_dir",
    "state_dir",
    "lib_dir",
    "bin_dir",
    "frontdoor_url",
    "models_dir",
    "stacks_dir",
    "cache_dir",
    "hf_home",
    "user",
    "group",
    "backend_host",
)
# Settings of the engine that cannot change a token: they may differ between hosts that are compared.
_NEUTRAL = (
    "allowed_media_domains",
    "shutdown_timeout",
    "disable_log_stats",
    "enable_log_requests",
    "disable_uvicorn_access_log",
    "uvicorn_log_level",
    "max_log_len",
    "api_server_count",
)

_NETWORKS = ("any", "localhost", "link-local", "multicast")  # systemd's words for some
# systemd reads paths in several ways (quoted, raw, with specifiers); these characters mean the same in all of them.
_PATH = re.compile(r"/[A-Za-z0-9./_+:@-]*")


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the slot's settings, complete and of the right types; raise ValueError naming the key.

    Text: slot, config_dir, unit_dir, tmpfiles_dir, run_dir, state_dir, lib_dir, bin_dir, models_dir, stacks_dir,
    cache_dir, hf_home, user, group, backend_host, frontdoor_url; the directories absolute. backend_port: 1 to 65535.
    stacks: ``{name: manifest}``. env: names to text. legacy_units: names. refused_statuses: statuses of profiles.
    engine_ip_allow: addresses, networks, or systemd's words for some.
    """
    known = {*_TEXT, "backend_port", "stacks", "env", "legacy_units", "refused_statuses", "engine_ip_allow"}
    lists = {"legacy_units": [], "refused_statuses": ["rejected", "blocked"], "engine_ip_allow": []}
    checked = {"env": {}, **lists, "backend_host": "127.0.0.1", "slot": "main", **settings}
    for key in settings:
        if key not in known:
            raise ValueError(f'unknown slot setting "{key}"{did_you_mean(key, known)}')
    for key in _TEXT:
        if not isinstance(checked.get(key), str) or not checked[key]:
            raise ValueError(f"the slot setting {key} must be text, not {checked.get(key)!r}")
        if key.endswith(("_dir", "_home")):
            checked[key] = checked[key].rstrip("/") or "/"
            if not _PATH.fullmatch(checked[key]):
                raise ValueError(
                    f"slot setting {key} must be an absolute path of letters, digits and ./_+:@-, not {checked[key]!r}"
                )
    if not re.fullmatch(r"[a-z0-9]+", checked["slot"]):
        # A dash would make the units of slot "a" and of slot "a-b" overlap.
        raise ValueError(f"a slot name is lower-case letters and digits, not {checked['slot']!r}")
    checked["backend_port"] = int(checked.get("backend_port") or 0)
    if not 1 <= checked["backend_port"] <= 65535:
        raise ValueError(f"the slot setting backend_port must be 1 to 65535, not {settings.get('backend_port')!r}")
    if isinstance(checked["engine_ip_allow"], (str, Mapping)):
        raise ValueError(f"the slot setting engine_ip_allow is a list, not {checked['engine_ip_allow']!r}")
    for network in checked["engine_ip_allow"]:
        _check_network(network)
    if not isinstance(checked.get("stacks"), Mapping) or not isinstance(checked["env"], Mapping):
        raise ValueError("the slot settings stacks and env are mappings; take stacks from the lookup (kind=stacks)")
    return checked


def _check_network(text: Any) -> None:
    try:
        if text not in _NETWORKS:
            ipaddress.ip_network(str(text), strict=False)
    except ValueError as error:
        words = f"an address, a network like 10.0.0.0/8, or one of {', '.join(_NETWORKS)}; no name"
        raise ValueError(f"the slot setting engine_ip_allow wants {words}: {text!r}") from error


def _places(profile: Mapping[str, Any], identity: str, settings: Mapping[str, Any]) -> dict[str, str]:
    stack_dir = f"{settings['stacks_dir']}/{identity}"
    return {
        "stack_dir": stack_dir,
        "venv": f"{stack_dir}/venv",
        "models_dir": settings["models_dir"],
        "model_path": weights_path(profile, settings["models_dir"]),
        "cache_dir": settings["cache_dir"],
        "cache_root": f"{settings['cache_dir']}/{profile['engine']['cache_key']}",
        "hf_home": settings["hf_home"],
    }


def fingerprint(profile: Mapping[str, Any], manifest: Mapping[str, Any], identity: str, site: Mapping[str, Any]) -> str:
    """Return ``sha256:`` and 64 hex digits over everything in catalogue and stack that can change a token.

    Paths of the host are left out (placeholders stay as written), so that equal hosts have equal fingerprints.
    """
    engine, model = profile["engine"], profile["model"]
    facts = {
        "stack": identity,
        "kind": engine["kind"],
        "cards": profile["cards"],
        "modalities": sorted(profile["modalities"]),
        "model": {key: model[key] for key in ("hf_repo", "revision", "directory", "sha256")},
        "settings": {key: value for key, value in engine["settings"].items() if key not in _NEUTRAL},
        "extra_args": engine["extra_args"],
        "env": {**manifest.get("env", {}), **engine["env"], **{key: str(value) for key, value in site.items()}},
        "chat_template_kwargs": profile["frontdoor"]["chat_template_kwargs"],
    }
    return "sha256:" + hashlib.sha256(canonical(facts)).hexdigest()


def resolve(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Variable]]:
    """Return the resolved profile (the JSON that a host reads) and its environment with origins.

    :param profile: a profile as the catalogue returns it.
    :param settings: checked slot settings.
    :raises ValueError: when the profile's stack has no manifest in ``settings["stacks"]``.
    """
    manifest = settings["stacks"].get(profile["stack"])
    if manifest is None:
        hint = did_you_mean(profile["stack"], settings["stacks"])
        raise ValueError(f'profile {profile["name"]}: there is no stack manifest "{profile["stack"]}"{hint}')
    profile = expanded(profile, manifest)
    identity = stack_id(manifest)
    places = _places(profile, identity, settings)
    engine, canary = profile["engine"], profile["canary"]
    environment = engine_environment(profile, manifest, settings["env"], places, settings["slot"])
    resolved = {
        "schema": SCHEMA,
        "name": profile["name"],
        "title": profile["title"],
        "status": profile["status"],
        "status_reason": profile["status_reason"],
        "accepted_rules": [f"{rule['id']}: {rule['reason']}" for rule in profile["accepted_rules"]],
        "modalities": profile["modalities"],
        "slot": settings["slot"],
        "unit": unit_name(profile["name"], settings["slot"]),
        "stack": {
            "name": profile["stack"],
            "id": identity,
            "dir": places["stack_dir"],
            "device": manifest.get("device"),
        },
        "cards": profile["cards"],
        "model": {
            "hf_repo": profile["model"]["hf_repo"],
            "revision": profile["model"]["revision"],
            "path": places["model_path"],
            "size_gb": profile["model"]["size_gb"],
            "sha256": profile["model"]["sha256"],
        },
        "engine": {
            "kind": engine["kind"],
            "task": engine["task"],
            "served_model_name": engine["served_model_name"],
            "max_model_len": engine["settings"]["max_model_len"],
            "backend_url": f"http://{settings['backend_host']}:{settings['backend_port']}",
            "argv": engine_argv(profile, places, settings["backend_host"], settings["backend_port"]),
            "env": {name: variable.value for name, variable in environment.items()},
            "settings": engine["settings"],
            "reasoning": engine["reasoning"],
            "measured_kv_tokens": profile["evidence"].get("kv_cache_tokens"),
            "start_timeout_s": engine["start_timeout_s"],
            "stop_timeout_s": engine["stop_timeout_s"],
            # What of the unit is the profile's own; only a start applies it.
            "directives": [
                f"KillSignal={engine['kill_signal']}",
                *numa_directives(engine["numa"]),
                *network_directives(profile, settings),
            ],
            "allowed_media_domains": engine["allowed_media_domains"],
        },
        "frontdoor": profile["frontdoor"],
        "canary": canary,
        "fingerprint": fingerprint(profile, manifest, identity, settings["env"]),
    }
    return resolved, environment


def _slot_file(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what the slot engine on the host must know of the slot as a whole."""
    data = {
        "schema": SCHEMA,
        "slot": settings["slot"],
        "legacy_units": list(settings["legacy_units"]),
        "refused_statuses": list(settings["refused_statuses"]),
    }
    return {"path": f"{settings['config_dir']}/slot.json", "content": json.dumps(data, indent=2) + "\n", "mode": "0644"}


def render_slot(profiles: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return ``[{path, content, mode}]`` for every file of a slot; units come last.

    :raises ValueError: naming the profile or the setting that is wrong.
    """
    checked = check_settings(settings)
    run_dir, slot = checked["run_dir"], checked["slot"]
    directories = f"{MARKER}\nd {run_dir} 0755 root root -\nd {run_dir}/{slot} 0755 root root -\n"
    tmpfiles = f"{checked['tmpfiles_dir']}/b70-slot-{slot}.conf"
    files = [{"path": tmpfiles, "content": directories, "mode": "0644"}, _slot_file(checked)]
    units: list[dict[str, str]] = []
    names = sorted(profiles, key=lambda name: unit_name(name, checked["slot"]))
    for name in names:
        resolved, environment = resolve(profiles[name], checked)
        base = f"{checked['config_dir']}/profiles/{name}"
        header = f"{MARKER[2:]}\nEnvironment of {resolved['unit']}; not a shell script."
        engine = profiles[name]["engine"]
        numa, network = list(numa_directives(engine["numa"])), network_directives(profiles[name], checked)
        directives = {**checked, "kill_signal": engine["kill_signal"], "numa": numa, "network": network}
        text = unit_text(resolved, directives)
        # Lets the host see that a unit was edited by hand.
        resolved["unit_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        files.append({"path": f"{base}.json", "content": json.dumps(resolved, indent=2) + "\n", "mode": "0644"})
        files.append({"path": f"{base}.env", "content": environment_file(environment, header), "mode": "0644"})
        units.append({"path": f"{checked['unit_dir']}/{resolved['unit']}", "content": text, "mode": "0644"})
    settle = settle_text(program_path(checked), slot, [unit_name(name, slot) for name in names])
    units.append({"path": f"{checked['unit_dir']}/{settle_name(slot)}", "content": settle, "mode": "0644"})
    return files + program_files(checked) + units
