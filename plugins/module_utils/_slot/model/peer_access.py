# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access of cards to each other's memory: what evaluate.yml proved on this host, and what that holds for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..words.decode import decode_written, document

SCHEMA = 1
GROUP = "peer_access"  # of benchmarks
VARIABLES = {"CCL_TOPO_P2P_ACCESS": "1"}  # with which oneCCL uses it
MEASURE = f"""playbooks/evaluate.yml -e '{{"evaluate_only": ["{GROUP}"]}}'"""


@dataclass(frozen=True)
class PeerAccessScope:
    """The cards and versions that a proof holds for.

    cards: PCI addresses, each with the version of the GuC firmware that the card runs. kernel: its release. runtime:
    version of the compute runtime. A version is empty where it is not known.
    """

    cards: Mapping[str, str]
    kernel: str
    runtime: str


@dataclass(frozen=True)
class Proof:
    """The last verdict. fault: why peer access does not work; empty if it does. at: when, as text."""

    place: PeerAccessScope
    fault: str
    at: str


def parse_proof(text: str | None) -> Proof | None:
    """Return the verdict in the text of its file; an unreadable file counts as not measured."""
    return decode_written(Proof, text, SCHEMA)


def proof_text(proof: Proof) -> str:
    """Return the text of its file."""
    return document(proof, SCHEMA)


def unproven(proof: Proof | None, now: PeerAccessScope) -> str:
    """Return why a verdict does not prove peer access for these cards as they are now; empty if it does.

    A proof for more cards holds for some of them. A version that is not known is none that was proven.
    """
    if proof is None:
        return "was not measured on this host"
    if proof.fault:
        return f"failed here ({proof.at}): {proof.fault}"
    if missing := sorted({*now.cards} - {*proof.place.cards}):
        return f"was proven without the card at {', '.join(missing)} ({proof.at})"
    pairs = {
        "kernel": (proof.place.kernel, now.kernel),
        "compute runtime": (proof.place.runtime, now.runtime),
        **{f"GuC firmware of {card}": (proof.place.cards[card], version) for card, version in now.cards.items()},
    }
    for what, (before, after) in pairs.items():
        if not after or before != after:
            return f"was proven with {what} {before or 'unknown'}, which is {after or 'unknown'} now ({proof.at})"
    return ""
