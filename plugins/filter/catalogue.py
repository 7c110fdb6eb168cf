# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters around the catalogue: ids, names, words for people, and the group of nodes of a host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue import models, problems, stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice import choose, offers, page
from ansible_collections.arcpro.b70.plugins.plugin_utils._nodes import node_place
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import explain


def stack_id(manifest: Mapping[str, Any]) -> str:
    """Return the id ``NAME-<10 hex digits>`` of a manifest from the lookup arcpro.b70.catalogue (kind=stacks)."""
    if not isinstance(manifest, Mapping):
        raise AnsibleFilterError(f"stack_id needs a stack manifest (a mapping), not {type(manifest).__name__}")
    try:
        return stacks.stack_id(manifest)
    except ValueError as error:
        raise AnsibleFilterError(f"stack_id: {error}") from error


def explain_profile(
    profile: Mapping[str, Any], manifests: Mapping[str, Any], site: Mapping[str, Any] | None = None
) -> list[str]:
    """Return lines for people: each value of a profile with its file, the environment with its origins, the command."""
    if not isinstance(profile, Mapping) or "origin_files" not in profile:
        raise AnsibleFilterError("explain_profile needs a profile as the lookup arcpro.b70.catalogue returns it")
    if not isinstance(manifests, Mapping) or profile["stack"] not in manifests:
        raise AnsibleFilterError(f"explain_profile needs the stack manifests, among them {profile['stack']}")
    return explain.explain(plain(profile), plain(manifests[profile["stack"]]), plain(site or {}))


def known_models(
    lists: Mapping[str, Any],
    profiles: Mapping[str, Any],
    model: str = "",
    precision: str = "",
    category: str = "",
) -> list[str]:
    """Return lines about the models that somebody reports as served on these cards."""
    if not isinstance(lists, Mapping) or not isinstance(profiles, Mapping):
        raise AnsibleFilterError("known_models needs the lists (lookup, kind=models) and the profiles, two mappings")
    try:
        return models.known_models(lists, profiles, str(model), str(precision), str(category))
    except ValueError as error:
        raise AnsibleFilterError(f"known_models: {error}") from error


def _refuse_other(name: str, profiles: object, stacks: object) -> None:
    if not isinstance(profiles, Mapping) or not isinstance(stacks, Mapping):
        raise AnsibleFilterError(f"{name} needs the profiles and the stacks (lookup, kind=stacks), two mappings")


def profile_offers(
    profiles: Mapping[str, Any],
    stacks: Mapping[str, Any],
    cards: str | int = "",
    model: str = "",
    refused_statuses: Sequence[str] = choose.REFUSED,
    recorded: Mapping[str, Any] | None = None,
    everything: bool = False,
) -> list[str]:
    """Return lines about the profiles that so many cards can serve."""
    _refuse_other("profile_offers", profiles, stacks)
    if str(cards) and not str(cards).isdecimal():
        raise AnsibleFilterError(f"profile_offers: cards is a number, as -e cards=2, not {cards!r}")
    count = int(cards) if str(cards) else None
    own = plain(recorded or {})
    statuses = list(refused_statuses)
    return offers.offers(
        plain(profiles), plain(stacks), count, str(model), statuses, own, everything=boolean(everything)
    )


def catalogue_page(
    profiles: Mapping[str, Any], stacks: Mapping[str, Any], refused_statuses: Sequence[str] = choose.REFUSED
) -> str:
    """Return the page of the catalogue as HTML."""
    _refuse_other("catalogue_page", profiles, stacks)
    return page.catalogue_page(plain(profiles), plain(stacks), list(refused_statuses))


def closest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the names of ``known`` that resemble ``name``, best first."""
    if isinstance(known, str) or not isinstance(known, Iterable):
        raise AnsibleFilterError(f"closest needs a list or mapping of known names, not {type(known).__name__}")
    return problems.closest(str(name), [str(item) for item in known], count)


def node_group(nodes: Any, name: str) -> dict[str, Any]:
    """Return the place of a host in its group of nodes; empty where it is in none."""
    try:
        place = node_place(plain(nodes), str(name))
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error
    return {} if place is None else place.as_dict()


class FilterModule:
    """The filters as Ansible finds them."""

    def filters(self) -> dict[str, Any]:
        return {
            "catalogue_page": catalogue_page,
            "closest": closest,
            "explain_profile": explain_profile,
            "known_models": known_models,
            "node_group": node_group,
            "profile_offers": profile_offers,
            "stack_id": stack_id,
        }
