# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render catalogue and host settings to the files of a slot: resolved profiles, environments, units. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._environment import PLAIN, Variable
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS, kind_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.production import examined
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import MASK
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.weights import together
from ansible_collections.arcpro.b70.plugins.module_utils._slot.power import LEAST_W, MOST_W
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import BESIDE, Layout

from .._catalogue.checking import PER_CARD
from .._catalogue.images import runtime_of
from .._catalogue.places import COMPANIONS, companion_paths, directory_of, weights_path
from .._catalogue.problems import did_you_mean
from .._catalogue.rules import left_for_host, left_for_proof
from .._catalogue.secrets import place_of
from .._catalogue.stacks import canonical, stack_id
from .._catalogue.typed import expanded, numa_directives
from .._nodes import NodePlace, node_place
from .._slots import other_config_dirs, slot_places
from .._templates import render
from .engine import engine_argv, engine_environment
from .launch import Launch, launch_of
from .program import program_files, program_path
from .relay import bracketed, relay_dir, with_paths
from .unit import network_directives, node_data, power_directives, unit_data, unit_name

SCHEMA = 1
_OF_SIDE = ("unit", "unit_sha256", "cards", "backend_url", "argv", "env")
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
    "command",
)
_NETWORKS = ("any", "localhost", "link-local", "multicast")  # systemd's names for some
# systemd reads paths in several ways (quoted, raw, with specifiers); these characters mean the same in all of them.
_PATH = re.compile(r"/[A-Za-z0-9./_+:@-]*")


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the slot's settings, complete and of the right types; raise ValueError naming the key.

    Text: slot, config_dir, unit_dir, tmpfiles_dir, run_dir, state_dir, lib_dir, bin_dir, models_dir, stacks_dir,
    cache_dir, hf_home, user, group, backend_host, frontdoor_url, command; the directories are absolute.
    backend_port: 1 to 65535. stacks: ``{name: manifest}``. env: names to text. legacy_units: names.
    refused_statuses: statuses of profiles.
    cards: how many the host has, or None if that is not known; replicas: per_card needs it, and so do second sides.
    mixed: the numbers of the B70 cards on a host that has cards of other models beside them; None on any other host.
    standby: how many engines of the slot may sleep while another one serves, or the profiles whose engines may.
    power_cap_w: watts that no card of the host may exceed while an engine runs; None for no such limit.
    nodes: the variable b70_nodes; node: the name of this host there.
    slots: the variable b70_slots; then cards and port are those of this slot.
    engine_ip_allow: addresses, networks, or systemd's names for some.
    weights: what the host said of the directories of models: by directory, where the model stands (``at``) and the
    digest of its record (``record``, see `weights.digest`).
    template_dirs: the site's folders of templates that replace those of the collection (b70_template_dirs).
    """
    known = {*_TEXT, "backend_port", "cards", "stacks", "env", "legacy_units", "refused_statuses", "engine_ip_allow"}
    known |= {"standby", "slots", "power_cap_w", "nodes", "node", "mixed", "weights", "template_dirs"}
    lists = {"legacy_units": [], "refused_statuses": ["rejected", "blocked"], "engine_ip_allow": []}
    checked: dict[str, Any] = {
        "env": {},
        "weights": {},
        **lists,
        "backend_host": "127.0.0.1",
        "slot": "main",
        "cards": None,
        "power_cap_w": None,
        "standby": 0,
        "command": "b70ctl",
        "mixed": None,
        "template_dirs": [],
    }
    checked |= settings
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
    places = slot_places(checked.pop("slots", None) or {}, checked["backend_port"], checked["slot"])
    place = places[checked["slot"]]
    checked |= {"backend_port": place.port, "ports": place.ports, "card_numbers": place.cards}
    checked["others"] = other_config_dirs(checked["config_dir"], checked["slot"], places)
    if place.cards is not None:
        checked["cards"] = len(place.cards)
    checked["node"] = node_place(checked.pop("nodes", None) or {}, str(checked.get("node") or ""))
    if checked["node"] is not None and checked["slot"] != "main":
        checked["node"] = None  # a group of nodes uses the slot main of each host
    checked["cards"] = None if checked["cards"] in (None, "") else int(checked["cards"])
    checked["power_cap_w"] = None if checked["power_cap_w"] in (None, "") else int(checked["power_cap_w"])
    if checked["power_cap_w"] is not None and not LEAST_W <= checked["power_cap_w"] <= MOST_W:
        raise ValueError(f"slot_power_cap_w is {checked['power_cap_w']}; it is {LEAST_W} to {MOST_W} (watts per card)")
    standby = checked["standby"] or 0
    named = [*map(str, standby)] if isinstance(standby, (list, tuple)) else []
    if not named and not str(standby).isdigit():
        raise ValueError(
            f"slot_standby is {standby}; it is how many engines may sleep, from 0 on, or a list of profiles"
        )
    checked |= {"standby": len(named) or int(standby), "sleepers": named}
    if isinstance(checked["engine_ip_allow"], (str, Mapping)):
        raise ValueError(f"the slot setting engine_ip_allow is a list, not {checked['engine_ip_allow']!r}")
    for network in checked["engine_ip_allow"]:
        _check_network(network)
    if not isinstance(checked.get("stacks"), Mapping) or not isinstance(checked["env"], Mapping):
        raise ValueError("the slot settings stacks and env are mappings; take stacks from the lookup (kind=stacks)")
    for name, value in checked["env"].items():
        if belongs := place_of(name, value):
            raise ValueError(
                f"slot_env.{name} is a secret, and everybody on the host could read it there; use {belongs}"
            )
    return checked


def _check_network(text: Any) -> None:
    try:
        if text not in _NETWORKS:
            ipaddress.ip_network(str(text), strict=False)
    except ValueError as error:
        words = f"an address, a network like 10.0.0.0/8, or one of {', '.join(_NETWORKS)}; no name"
        raise ValueError(f"the slot setting engine_ip_allow wants {words}: {text!r}") from error


def _places(profile: Mapping[str, Any], identity: str, settings: Mapping[str, Any], launch: Launch) -> dict[str, str]:
    model_path = weights_path(profile, settings["models_dir"], settings["weights"])
    return {
        **launch.places(f"{settings['stacks_dir']}/{identity}", settings["cache_dir"], profile["engine"]["cache_key"]),
        "models_dir": settings["models_dir"],
        "model_path": model_path,
        "model_file": f"{model_path}/{profile['model']['file'] or ''}",
        **_beside(profile, settings),
        "cache_dir": settings["cache_dir"],
        "hf_home": settings["hf_home"],
        "relay_dir": relay_dir(settings["slot"]),
        "relay_bind": f"{bracketed(settings['backend_host'])}:{settings['backend_port']}",
    }


def _beside(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the directory of each model beside the profile's own, and its file if it is one."""
    paths = companion_paths(profile, settings["models_dir"], settings["weights"])
    files = {name: profile["model"][name]["file"] for name in paths}
    return {f"{name}_path": path for name, path in paths.items()} | {
        f"{name}_file": f"{paths[name]}/{file}" for name, file in files.items() if file
    }


def recorded(profile: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the digest of the record of a profile's models on a host; empty if one has none. found: see settings."""
    model = profile["model"]
    beside = sorted(directory_of(model[name]) for name in COMPANIONS if model.get(name))
    return together(found.get(name, {}).get("record", "") for name in (directory_of(model), *beside))


def fingerprint(
    profile: Mapping[str, Any], manifest: Mapping[str, Any], identity: str, site: Mapping[str, Any], record: str = ""
) -> str:
    """Return ``sha256:`` and 64 hex digits over everything in catalogue, stack and weights that can change a token.

    Paths of the host are left out (placeholders stay as written), so that equal hosts have equal fingerprints.

    :param record: the digest of the record of the weights, see `recorded`.
    """
    engine, model = profile["engine"], profile["model"]
    kind = kind_of(engine["kind"])
    remote = engine.get("remote")
    weights = ("hf_repo", "revision", "directory", "sha256", *(["file"] if kind.loads_file else []))
    beside = {name: model[name] for name in COMPANIONS if name in model}
    facts = {
        "stack": identity,
        "kind": engine["kind"],
        "cards": profile["cards"],
        "modalities": sorted(profile["modalities"]),
        "model": {key: model[key] for key in weights}
        | {name: {key: companion[key] for key in weights} for name, companion in beside.items()}
        | ({"record": record} if record else {}),
        "settings": {
            key: value for key, value in engine["settings"].items() if key not in kind_of(engine["kind"]).neutral
        },
        "extra_args": engine["extra_args"],
        "env": {**manifest.get("env", {}), **engine["env"], **{key: str(value) for key, value in site.items()}},
        "chat_template_kwargs": profile["frontdoor"]["chat_template_kwargs"],
    }
    if remote:
        # The relay gets none of the site's variables.
        facts |= {"remote": {key: remote[key] for key in ("base_url", "model")}, "env": {}}
    if profile["nodes"] > 1:
        facts["nodes"] = profile["nodes"]
    if engine["mounts"]:
        facts["mounts"] = engine["mounts"]
    return "sha256:" + hashlib.sha256(canonical(facts)).hexdigest()


def _runtimes(profile: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the host's compute runtime must be; empty if the stack brings one, or any will do."""
    if manifest.get("device") != "xpu" or "image" in manifest:
        return {}
    found = {"least": profile["min_runtime"], "refused": left_for_host(profile, manifest)}
    return found if any(found.values()) else {}


def replica_count(profile: Mapping[str, Any], cards: int | None) -> int:
    """Return how many engines a profile has on a host with so many cards.

    :raises ValueError: for ``per_card`` if the number is not known.
    """
    if profile["replicas"] != PER_CARD:
        return int(profile["replicas"])
    if cards is None:
        raise ValueError(
            f"profile {profile['name']}: replicas is {PER_CARD}, but the number of cards of this host is not known; "
            "set slot_cards for it, or write a number"
        )
    return max(1, cards // int(profile["cards"]))


def power_cap(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> int | None:
    """Return the watts that a card of the profile may take: the lower of the host's cap and its own; None for no cap.

    The host's cap is what it can feed and cool, so no profile gets more.
    """
    caps = [cap for cap in (settings["power_cap_w"], profile["power_cap_w"]) if cap is not None]
    return min(caps) if caps and profile["cards"] else None


def asks_for_cards(profiles: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether any profile can't be rendered without the number of cards of the host."""
    return any(profile["replicas"] == PER_CARD for profile in profiles.values())


def may_have_sides(profile: Mapping[str, Any]) -> bool:
    """Return whether the profile has one engine on cards of one host, where cards may be left for a second one."""
    return bool(profile["replicas"] == 1 and profile["nodes"] == 1 and profile["cards"])


_FIRST_STANDBY = 16  # the ports before it are those of replicas


def _standby_ports(profiles: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, int]:
    """Return the port of each profile whose engine may sleep: it keeps it while another engine serves.

    :raises ValueError: where the slot has too few ports, or a cap is for one engine of several on a card.
    """
    if not settings["standby"]:
        return {}
    names = [name for name in sorted(profiles) if _sleeps(profiles[name]) and _is_one(profiles[name])]
    if unknown := sorted({*settings["sleepers"]} - {*names}):
        raise ValueError(f"slot_standby names {unknown[0]}, which is no profile of this slot whose engine may sleep")
    for name in names:
        if power_cap(profiles[name], settings) is not None:
            raise ValueError(
                f"profile {name} has a power cap (power_cap_w, slot_power_cap_w), which is set when an engine starts, "
                "not when it wakes; leave out the cap, slot_standby, or engine.settings.enable_sleep_mode"
            )
    if names and _FIRST_STANDBY + len(names) > settings["ports"]:
        raise ValueError(
            f"slot_standby needs a port for each of {len(names)} profiles, the first is "
            f"{settings['backend_port'] + _FIRST_STANDBY}, and the slot has the ports before "
            f"{settings['backend_port'] + settings['ports']}"
        )
    return {name: settings["backend_port"] + _FIRST_STANDBY + place for place, name in enumerate(names)}


def _sleeps(profile: Mapping[str, Any]) -> bool:
    return kind_of(profile["engine"]["kind"]).sleeps(profile["engine"]["settings"])


def _is_one(profile: Mapping[str, Any]) -> bool:
    return bool(profile["replicas"] == 1 and profile["nodes"] == 1)


def _guarded_port(profile: Mapping[str, Any], settings: Mapping[str, Any], backend_url: str) -> int:
    """Return the port that only root, the frontdoor and the engine's user may reach, because it can put the engine to
    sleep; 0 for none.

    :raises ValueError: where other hosts could reach it.
    """
    if not _sleeps(profile):
        return 0
    if settings["backend_host"] not in ("127.0.0.1", "::1"):
        raise ValueError(
            f"profile {profile['name']}: engine.settings.enable_sleep_mode opens requests that nobody but the slot may "
            f"reach, so slot_backend_host must be 127.0.0.1, not {settings['backend_host']}"
        )
    return int(backend_url.rpartition(":")[2])


def _second_cards(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> list[int] | None:
    """Return the cards of a second side, or None if the slot has none left for it."""
    count, first, numbers = profile["cards"], profile["engine"]["devices"], _pool(settings)
    pool = list(range(settings["cards"] or 0) if numbers is None else numbers)
    kind = kind_of(profile["engine"]["kind"])
    if profile["name"] in settings.get("standby_ports", ()):
        return None
    if not may_have_sides(profile) or kind.remote or (kind.takes_what_it_sees and not first):
        return None
    left = [number for number in pool if number not in (first or pool[:count])]
    return left[:count] if len(left) >= count and settings["ports"] > 1 else None


def _pool(settings: Mapping[str, Any]) -> Sequence[int] | None:
    """Return the cards that engines of the slot may use; None for all."""
    numbers: Sequence[int] | None = settings["card_numbers"]
    return settings["mixed"] if numbers is None else numbers


def _on_cards(profile: Mapping[str, Any], settings: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the profile with the cards of its slot, if that has some of the host's alone, or the host others beside.

    The slot's replace the cards that the profile names. A profile that needs more than there are is refused when it is
    to be served.
    """
    numbers = settings["card_numbers"]
    own = list((settings["mixed"] if numbers is None and not profile["engine"]["devices"] else numbers) or ())
    own = own[: profile["cards"] * count]
    return {**profile, "engine": {**profile["engine"], "devices": own}} if own else dict(profile)


def _on_node(profile: Mapping[str, Any], place: NodePlace | None) -> dict[str, Any]:
    """Return the profile with the interface of its node, and the node as ``node``, if it has several nodes."""
    if profile["nodes"] == 1 or place is None:
        return dict(profile)
    engine = profile["engine"]
    collectives = {**engine["collectives"], "interface": place.interface}
    return {**profile, "engine": {**engine, "collectives": collectives}, "node": place.first(profile["nodes"])}


def is_here(profile: Mapping[str, Any], place: NodePlace | None) -> bool:
    """Return whether a host takes part in the profile: the first nodes of a group do, as many as the profile has."""
    return bool(profile["nodes"] == 1 or (place and place.rank < profile["nodes"] <= len(place.hosts)))


def _replica(profile: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the profile with the cards of one of its replicas."""
    count = profile["cards"]
    if not count:
        return dict(profile)
    known = profile["engine"]["devices"] or range((index + 1) * count)
    return {**profile, "engine": {**profile["engine"], "devices": list(known[index * count : (index + 1) * count])}}


def _check_ports(name: str, first: int, count: int, ports: int) -> None:
    if count > ports:
        raise ValueError(
            f"profile {name}: {count} replicas need the ports from {first} on, and the last one is {first + ports - 1}"
        )


def _frontdoor(profile: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return what the frontdoor reads of the profile.

    For several replicas, this is what they give together, and how requests find their replica.
    """
    own = profile["frontdoor"]
    if count > 1:
        return {**own, "max_active_generations": count * own["max_active_generations"]}
    return {key: value for key, value in own.items() if key != "routing"}


def _apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether a site's or a profile's own mask leaves each side its cards."""
    return all(one["env"].get(MASK, "") == ",".join(map(str, one["cards"])) for one in (first, second))


def resolve(
    profile: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[dict[str, Variable], ...]]:
    """Return the resolved profile (the JSON that a host reads) and the environment of each engine, with origins.

    :param profile: a profile as the catalogue returns it.
    :param settings: checked slot settings.
    :raises ValueError: when the profile's stack has no manifest in ``settings["stacks"]``.
    """
    manifest = settings["stacks"].get(profile["stack"])
    if manifest is None:
        hint = did_you_mean(profile["stack"], settings["stacks"])
        raise ValueError(f'profile {profile["name"]}: there is no stack manifest "{profile["stack"]}"{hint}')
    count, host, port = replica_count(profile, settings["cards"]), settings["backend_host"], settings["backend_port"]
    standby = settings.get("standby_ports", {}).get(profile["name"])
    port = standby or port
    _check_ports(profile["name"], port, count, settings["ports"])
    # Neither the choice of cards nor a node's interface changes a token, so the fingerprint is that of the profile as
    # it is written.
    placed = _on_node(_on_cards(profile, settings, count), settings["node"])
    node = placed.get("node")
    written = [placed] if count == 1 else [_replica(placed, index) for index in range(count)]
    if second := _second_cards(placed, settings):
        written.append({**placed, "engine": {**placed["engine"], "devices": second}})
    singles = [expanded(single, manifest) for single in written]
    profile = expanded(profile, manifest)
    identity = stack_id(manifest)
    launch = launch_of(manifest)
    places = _places(profile, identity, settings, launch)
    beside = companion_paths(profile, settings["models_dir"], settings["weights"])
    record = recorded(profile, settings["weights"])
    engine, canary = profile["engine"], profile["canary"]
    environments = tuple(
        engine_environment(single, manifest, settings["env"], places, settings["slot"], launch.path)
        for single in singles
    )
    watts = power_cap(profile, settings)
    engines = [
        {
            "index": index,
            "unit": unit_name(profile["name"], settings["slot"], which),
            "unit_sha256": None,
            "cards": single["engine"]["devices"] or [],
            "backend_url": f"http://{host}:{port + index}",
            "argv": launch.engine_argv(engine_argv(single, places, host, port + index)),
            "env": {name: variable.value for name, variable in environment.items()},
            "start_after_s": index * engine["start_stagger_s"],
        }
        for index, (which, single, environment) in enumerate(
            zip((None, BESIDE) if count == 1 else range(count), singles, environments, strict=False)
        )
    ]
    if count == 1 and len(engines) > 1 and not _apart(*engines):
        engines, environments = engines[:1], environments[:1]
    resolved = {
        "schema": SCHEMA,
        "name": profile["name"],
        "title": profile["title"],
        "status": profile["status"],
        "status_reason": profile["status_reason"],
        "accepted_rules": [f"{rule['id']}: {rule['reason']}" for rule in profile["accepted_rules"]],
        "modalities": profile["modalities"],
        "slot": settings["slot"],
        "unit": engines[0]["unit"],
        "stack": {
            "name": profile["stack"],
            "id": identity,
            "dir": "" if engine.get("remote") else places["stack_dir"],
            "device": manifest.get("device"),
            **({"image": launch.image, "user": settings["user"]} if launch.image else {}),
            **({"runtime": runtime} if (runtime := runtime_of(manifest)) else {}),
        },
        "cards": profile["cards"],
        **({} if watts is None else {"power_cap_w": watts}),
        **({"runtimes": runtimes} if (runtimes := _runtimes(profile, manifest)) else {}),
        **left_for_proof(profile, manifest),
        **({"standby": True} if standby else {}),
        **({"node": {"rank": node.rank, "count": profile["nodes"]}} if node else {}),
        "model": {
            "hf_repo": profile["model"]["hf_repo"],
            "revision": profile["model"]["revision"],
            "path": places["model_path"],
            "size_gb": profile["model"]["size_gb"],
            "sha256": profile["model"]["sha256"],
            **({"companions": sorted(beside.values())} if beside else {}),
            **({"record": record} if record else {}),
        },
        "engine": {
            "kind": engine["kind"],
            "version": (manifest.get("engine") or {}).get("version"),
            "task": engine["task"],
            "served_model_name": engine["served_model_name"],
            "max_model_len": kind_of(engine["kind"]).context_length(engine["settings"]),
            **{key: engines[0][key] for key in ("backend_url", "argv", "env")},
            "settings": engine["settings"],
            **({"mounts": engine["mounts"]} if engine["mounts"] else {}),
            "reasoning": engine["reasoning"],
            **({"remote": with_paths(engine["remote"], settings["config_dir"])} if engine.get("remote") else {}),
            "measured_kv_tokens": profile["evidence"].get("kv_cache_tokens"),
            "start_timeout_s": engine["start_timeout_s"],
            "stop_timeout_s": engine["stop_timeout_s"],
            # The profile's own directives of the unit; only a start applies them.
            "directives": [
                f"KillSignal={engine['kill_signal']}",
                *numa_directives(engine["numa"]),
                *network_directives(profile | {"node": node}, settings),
                *power_directives(watts),
            ],
            "allowed_media_domains": engine["allowed_media_domains"],
            **({"replicas": engines} if count > 1 else {}),
            **({"beside": {key: engines[1][key] for key in _OF_SIDE}} if count == 1 and len(engines) > 1 else {}),
        },
        "frontdoor": _frontdoor(profile, count),
        "canary": canary,
        **({"warmup": profile["warmup"]} if profile["warmup"] else {}),
        "accuracy": profile["accuracy"],
        "liveness": profile["liveness"],
        "fingerprint": fingerprint(profile, manifest, identity, settings["env"], record),
    }
    resolved["examined"] = examined(resolved)
    return resolved, environments


def _slot_file(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the file with what the slot engine on the host must know of the slot as a whole."""
    data = {
        "schema": SCHEMA,
        "slot": settings["slot"],
        "legacy_units": list(settings["legacy_units"]),
        "refused_statuses": list(settings["refused_statuses"]),
        "kinds": {name: asdict(kind.pool) for name, kind in KINDS.items()},
        **({"others": settings["others"]} if settings["others"] else {}),
        **{key: settings[key] for key in ("standby", "sleepers") if settings[key]},
        **({} if settings["card_numbers"] is None else {"cards": list(settings["card_numbers"])}),
        **({"nodes": settings["node"].as_dict()} if settings["node"] else {}),
    }
    return {"path": f"{settings['config_dir']}/slot.json", "content": json.dumps(data, indent=2) + "\n", "mode": "0644"}


def render_slot(profiles: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return ``[{path, content, mode}]`` for every file of a slot; units come last.

    :raises ValueError: naming the profile or the setting that is wrong.
    """
    checked = check_settings(settings)
    config_dir, layout, dirs = checked["config_dir"], Layout(slot=checked["slot"]), checked["template_dirs"]
    checked["program"] = program_path(checked)

    def file(path: str, template: str, data: Mapping[str, Any]) -> dict[str, str]:
        return {"path": path, "content": render(template, data, dirs), "mode": "0644"}

    tmpfiles = f"{checked['tmpfiles_dir']}/b70-slot-{layout.slot}.conf"
    files = [file(tmpfiles, "b70-slot-tmpfiles.conf", checked), _slot_file(checked)]
    units: list[dict[str, str]] = []
    here = [name for name in profiles if is_here(profiles[name], checked["node"])]
    checked["standby_ports"] = _standby_ports({name: profiles[name] for name in here}, checked)
    for name in sorted(here, key=lambda name: unit_name(name, checked["slot"])):
        resolved, environments = resolve(profiles[name], checked)
        base = f"{config_dir}/profiles/{name}"
        engine = profiles[name]["engine"]
        launch = launch_of(checked["stacks"][profiles[name]["stack"]])
        settings = {
            **checked,
            "kill_signal": engine["kill_signal"],
            "directives": [
                *numa_directives(engine["numa"]),
                *network_directives(_on_node(profiles[name], checked["node"]), checked),
            ],
            "cache_root": launch.places("", checked["cache_dir"], engine["cache_key"])["cache_root"],
        }
        variables: list[dict[str, str]] = []
        several, beside = resolved["engine"].get("replicas"), resolved["engine"].get("beside")
        of_engines = several or [{}, *([beside] if beside else [])]
        for one, environment in zip(of_engines, environments, strict=True):
            single = {**resolved, **one, "engine": {**resolved["engine"], **one}}
            which = BESIDE if one is beside else one.get("index")
            env_file = f"{base}.env" if which is None else f"{base}@{which}.env"
            template = "b70-slot-relay.service" if engine.get("remote") else "b70-slot.service"
            guarded = _guarded_port(profiles[name], checked, single["engine"]["backend_url"])
            data = unit_data(single, {**settings, "env_file": env_file, "guarded_port": guarded}, launch)
            unit = file(f"{checked['unit_dir']}/{single['unit']}", template, data)
            units.append(unit)
            # Lets the host see that a unit was edited by hand.
            one["unit_sha256"] = hashlib.sha256(unit["content"].encode()).hexdigest()
            shown = {"unit": single["unit"], "variables": environment, "container": launch.image, "plain": PLAIN}
            variables.append(file(env_file, "b70-slot.env", shown))
        resolved["unit_sha256"] = of_engines[0]["unit_sha256"]
        files.append({"path": f"{base}.json", "content": json.dumps(resolved, indent=2) + "\n", "mode": "0644"})
        files += variables
    if any(launch_of(checked["stacks"][profile["stack"]]).image for profile in profiles.values()):
        files.append(file(f"{config_dir}/account.env", "b70-slot-account.env", checked))
    if checked["node"]:
        node = node_data(checked["node"], checked)
        units.append(file(f"{checked['unit_dir']}/{layout.node_unit}", "b70-node.service", node))
    units.append(file(f"{checked['unit_dir']}/{layout.controller_unit}", "b70-controller.service", checked))
    return files + program_files(checked) + units
