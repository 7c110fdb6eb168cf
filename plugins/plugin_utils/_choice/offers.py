# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines for people: what a number of cards can serve, how fast it was measured, and by whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import KINDS
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face.table import columns
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of_engine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.production import examined, holds, promotion
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.card_memory import GIB, mirror_bytes

from .._catalogue.checking import PER_CARD, cards_needed
from .._catalogue.typed import derived_environment, of_first_engine
from .._fleet_status import short
from .._stacks import planning
from .choose import REFUSED, STATUSES, Profile, Stacks, against_cards, against_profile, counted, replicas

OVERVIEW = ("profile", "status", "takes", "cards", "context", "at once", "measured, and where")


def rate(figure: Mapping[str, Any]) -> str:
    """Return one measured rate with its conditions."""
    top = f" to {figure['up_to']:g}" if "up_to" in figure else ""
    conditions = [_streams(figure)]
    for key, text in (
        ("measure", "{}"),
        ("cards", "on {} cards"),
        ("prompt_tokens", "{:,} tokens loaded"),
        ("output_tokens", "{:,} tokens out"),
        ("ttft_s", "first token after {:g} s"),
        ("note", "{}"),
    ):
        if key in figure:
            conditions.append(text.format(figure[key]))
    return f"{figure['value']:g}{top} tok/s ({', '.join(conditions)})"


def summary(evidence: Mapping[str, Any]) -> str:
    """Return the expected rate and the highest one in a few words; empty if there are no figures."""
    figures = evidence.get("tok_s") or []
    if not figures:
        return ""
    best = max(figures, key=lambda figure: figure.get("up_to", figure["value"]))
    words = f"{figures[0]['value']:g} tok/s with {_streams(figures[0])}"
    top = best.get("up_to", best["value"])
    return words if top == figures[0]["value"] else f"{words}, up to {top:g} with {_streams(best)}"


def _streams(figure: Mapping[str, Any]) -> str:
    streams = figure.get("streams", 1)
    return f"{streams} stream{'s' if streams > 1 else ''}"


def provenance(evidence: Mapping[str, Any]) -> str:
    """Return who recorded the evidence, when, on which host and stack, and how reliable it is."""
    words = [evidence.get("source", "none recorded"), evidence.get("date"), evidence.get("grade")]
    said = ", ".join(str(word) for word in words if word)
    host = evidence.get("host_class") or ("unknown" if evidence.get("tok_s") else "")
    more = [f"host: {host}" if host else "", f"on {evidence['stack']}" if evidence.get("stack") else ""]
    quality = evidence.get("quality")
    if quality:
        detail = f" ({quality['detail']})" if quality.get("detail") else ""
        more.append(f"quality {quality['verdict']}{detail}")
    elif evidence.get("tok_s"):
        more.append("quality not recorded")
    return "; ".join([said, *(word for word in more if word)])


def offers(
    profiles: Mapping[str, Profile],
    stacks: Stacks,
    cards: int | None = None,
    model: str = "",
    refused: Sequence[str] = REFUSED,
    recorded: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    *,
    everything: bool = False,
) -> list[str]:
    """Return lines about all profiles for a number of cards: those recommended for it first, then the most cards.

    :param cards: how many there are; None for all profiles.
    :param model: part of a profile's or model's name, case ignored; empty for all.
    :param recorded: rows of the operator's own records, by host.
    :param everything: all that is known, and also the profiles that are not served, with the reason.
    """
    own = recorded or {}
    found = [profile for profile in profiles.values() if _named(profile, model)]
    fitting = [profile for profile in found if cards is None or bool(profile["cards"]) == bool(cards)]
    shown = [profile for profile in fitting if cards is None or not against_cards(profile, cards)]
    served = {profile["name"] for profile in shown if not not_served(profile, stacks, refused)}

    best = [profile for profile in ranked(shown, served, cards) if everything or profile["name"] in served]
    lines: list[str] = []
    if everything:
        told = [[*_lines(profile, stacks, refused)] for profile in best]
    else:
        head, *rows = columns(("PROFILE", "CARDS", "STATUS", "SPEED"), [_row(profile) for profile in best])
        told = [[row, *_about(profile)] for profile, row in zip(best, rows, strict=True)]
        lines += [head] if best else []
    for profile, about in zip(best, told, strict=True):
        lines += [*about, *_promoted(profile, own), *_recorded(profile["name"], own)]
    where = "" if cards is None else f" on {counted(cards)}"
    lines.append(f"{len(served)} of {len(shown)} profiles can be served{where}; a host's own check comes with site.yml")
    if len(fitting) > len(shown):
        lines.append(f"{len(fitting) - len(shown)} more need more or other cards")
    if not everything:
        lines.append("All that is known of them, and why the others are not served: -e b70_all=true")
    return lines


def ranked(profiles: Iterable[Profile], served: Collection[str], cards: int | None = None) -> list[Profile]:
    """Return the profiles in the order of a list: recommended for so many cards, more cards, served, best status.

    :param served: the names of those that can be served.
    """

    def rank(profile: Profile) -> tuple[Any, ...]:
        name, first = profile["name"], cards in _recommended(profile)
        return (not first, -cards_needed(profile), name not in served, STATUSES.index(profile["status"]), name)

    return sorted(profiles, key=rank)


def overview(profile: Profile) -> tuple[str, ...]:
    """Return the cells of a profile's row; OVERVIEW has their heads."""
    found = profile["evidence"]
    verdict = (found.get("quality") or {}).get("verdict")
    said = ", ".join(str(found[key]) for key in ("source", "date", "stack") if found.get(key))
    measured = (summary(found), said, f"quality {verdict}" if verdict else "")
    return (
        profile["name"],
        profile["status"],
        ", ".join(profile["modalities"]),
        str(profile["cards"]),
        str(kind_of_engine(profile["engine"]).context_length(profile["engine"]["settings"])),
        str(profile["frontdoor"]["max_active_generations"]),
        "; ".join(word for word in measured if word),
    )


def _recommended(profile: Profile) -> Sequence[int]:
    return list((profile["recommended"] or {}).get("cards", []))


def _row(profile: Profile) -> tuple[str, str, str, str]:
    status = f"{profile['status']}, recommended" if _recommended(profile) else profile["status"]
    needs = f"{cards_needed(profile)}{replicas(profile)}"
    return profile["name"], needs, status, summary(profile["evidence"]) or "not measured"


def _about(profile: Profile) -> Iterator[str]:
    yield f"  {_model(profile)}; stack {profile['stack']}"
    evidence = profile["evidence"]
    yield f"  {provenance({key: evidence[key] for key in ('source', 'date', 'grade') if key in evidence})}"


def _promoted(profile: Profile, recorded: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield a line for each fingerprint of the profile that is production somewhere, with the hosts."""
    hosts: dict[str, list[str]] = {}
    for host, rows in recorded.items():
        oldest_first = sorted(rows, key=lambda row: int(row["number"]))
        for fingerprint in dict.fromkeys(row["fingerprint"] for row in oldest_first if row["fingerprint"]):
            if holds(profile["status"], promotion(oldest_first, profile["name"], fingerprint, examined(profile))):
                hosts.setdefault(fingerprint, []).append(host)
    for fingerprint, names in hosts.items():
        yield f"  production on {', '.join(names)}, as fingerprint {short(fingerprint)}"


def _recorded(name: str, recorded: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield a line for the newest record of each kind, on whichever host."""
    found = [(row, host) for host, rows in recorded.items() for row in rows if row["profile"] == name]
    for kind in KINDS:
        of_kind = [(row["id"], host, row) for row, host in found if row["kind"] == kind]
        if of_kind:
            _id, host, newest = max(of_kind, key=lambda one: one[:2])
            said = newest["summary"]
            others = len({other for _id, other, _row in of_kind} - {host})
            more = f", and on {others} other host{'s' if others > 1 else ''}" if others else ""
            line = f"{kind.replace('_', ' ')} {newest['verdict']} on {host}, {newest['began_at'][:10]}{more}"
            yield f"  recorded: {line}{f': {said}' if said else ''}"


def _named(profile: Profile, model: str) -> bool:
    return model.lower() in profile["name"].lower() or model.lower() in str(profile["model"]["hf_repo"]).lower()


def _model(profile: Profile) -> str:
    if remote := profile["engine"].get("remote"):
        return f"remote: {remote['base_url']} serves it as {remote['model']}"
    return f"model {profile['model']['hf_repo'] or profile['model']['directory']}"


def not_served(profile: Profile, stacks: Stacks, refused: Sequence[str] = REFUSED) -> list[str]:
    """Return why no host serves the profile, whatever its cards; empty if one may."""
    return [*against_profile(profile, refused), *planning.uninstallable(stacks[profile["stack"]])]


def _mirrored_gib(profile: Profile, manifest: Mapping[str, Any]) -> float:
    """Return the GiB of the host's memory that mirror cards, for all replicas if their number is known."""
    if manifest.get("device") != "xpu":
        return 0.0
    engine = of_first_engine(profile)["engine"]
    env = {**manifest.get("env", {}), **derived_environment(engine, profile["cards"], manifest), **engine["env"]}
    version, count = (manifest.get("engine") or {}).get("version", ""), profile["replicas"]
    size = mirror_bytes(profile["cards"], engine["settings"], env, version, profile["model"]["size_gb"])
    return size * (1 if count == PER_CARD else int(count)) / GIB


def _lines(profile: Profile, stacks: Stacks, refused: Sequence[str]) -> Iterator[str]:
    against, evidence = not_served(profile, stacks, refused), profile["evidence"]
    each = f" on each of {profile['nodes']} nodes" if profile["nodes"] > 1 else ""
    needs = f"{counted(cards_needed(profile))}{replicas(profile)}{each}"
    head = f"{profile['name']}: {needs}, {profile['status']}, stack {profile['stack']}"
    for count in _recommended(profile):
        head += f", recommended for {counted(count)}"
    yield f"{head}; {_model(profile)}"
    for reason in against:
        yield f"  NOT SERVED: {' '.join(reason.split())}"
    if mirrored := _mirrored_gib(profile, stacks[profile["stack"]]):
        yield f"  takes {mirrored:.0f} GiB of the host's memory, in which the driver mirrors what the cards hold"
    for rule in profile["accepted_rules"]:
        yield f"  breaks the rule {rule['id']} of its stack on purpose: {rule['reason']}"
    for figure in (evidence.get("tok_s") or [])[:3]:
        yield f"  {rate(figure)}"
    yield f"  {provenance(evidence)}"
