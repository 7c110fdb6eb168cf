# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page with all profiles of the catalogue, which a reader narrows down. Pure: data in, text out."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from .._page import document
from .choose import REFUSED, STATUSES, Profile, Stacks
from .offers import OVERVIEW, not_served, overview, ranked

_STYLE = """
form { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; align-items: center; margin: 1rem 0; }
.wide { overflow-x: auto; } td small { display: block; }
td:first-child { min-width: 18rem; overflow-wrap: anywhere; } td:last-child { min-width: 14rem; }
"""
# Without it the table is whole, and there is no form.
_SCRIPT = """
const form = document.querySelector("form"), rows = [...document.querySelectorAll("tbody tr")];
form.hidden = false;
function narrow() {
  const { words, cards, status, served } = form.elements;
  const all = words.value.toLowerCase().split(/\\s+/);
  for (const row of rows) {
    const text = row.textContent.toLowerCase(), { dataset } = row;
    row.hidden = !(all.every((word) => text.includes(word)) && (!cards.value || dataset.cards === cards.value)
      && (!status.value || dataset.status === status.value) && (!served.checked || dataset.served === "yes"));
  }
  form.elements.count.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} profiles`;
}
form.addEventListener("input", narrow);
form.addEventListener("submit", (event) => event.preventDefault());
narrow();
"""


def catalogue_page(profiles: Mapping[str, Profile], stacks: Stacks, refused: Sequence[str] = REFUSED) -> str:
    """Return the page: one row for each profile, the recommended first, with what is known and how sure that is."""
    against = {name: not_served(profile, stacks, refused) for name, profile in profiles.items()}
    found = ranked(profiles.values(), [name for name, reasons in against.items() if not reasons])
    cards = sorted({profile["cards"] for profile in found})
    statuses = [status for status in STATUSES if any(profile["status"] == status for profile in found)]
    form = (
        '<form hidden><label>Words <input name="words" type="search" placeholder="model, stack, source"></label>'
        f"{_choice('cards', 'Cards', cards)}{_choice('status', 'Status', statuses)}"
        '<label><input name="served" type="checkbox"> only what can be served</label>'
        '<output name="count"></output></form>'
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in OVERVIEW)
    rows = "".join(_row(profile, against[profile["name"]]) for profile in found)
    table = f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    return document("Profiles for Intel Arc Pro B70", form + table, _STYLE, _SCRIPT)


def _choice(name: str, label: str, values: Iterable[object]) -> str:
    options = "".join(f"<option>{html.escape(str(value))}</option>" for value in values)
    return f'<label>{label} <select name="{name}"><option value="">all</option>{options}</select></label>'


def _row(profile: Profile, against: Sequence[str]) -> str:
    name, status, *others = (html.escape(cell) for cell in overview(profile))
    reasons = "".join(f"<small>{html.escape(reason)}</small>" for reason in against)
    model = html.escape(str(profile["model"]["hf_repo"] or profile["model"]["directory"]))
    switch = "" if against else f"<code>ansible-playbook switch.yml -e profile={name}</code>"
    known = f"<td><strong>{name}</strong><small>{model}; stack {html.escape(profile['stack'])}</small>{switch}</td>"
    level = "FAIL" if against else "PASS"
    cells = "".join(f"<td>{cell}</td>" for cell in others)
    data = f'data-cards="{profile["cards"]}" data-status="{status}" data-served="{"no" if against else "yes"}"'
    return f'<tr {data}>{known}<td><span class="{level}">{status}</span>{reasons}</td>{cells}</tr>'
