# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page over the records of a fleet, its comparisons, and the lookup and filter that make it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleLookupError

from ansible_collections.arcpro.b70.plugins.lookup import evidence
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import row
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence import figures
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import faults_of
from unit import contracts
from unit.plugins.module_utils._evidence.records import HOST, record
from unit.plugins.plugin_utils._evidence.fleet import benchmark, fleet, soak


def written(root: Path, hosts: dict[str, list[dict[str, Any]]]) -> Path:
    for host, records in hosts.items():
        for one in records:
            Store(root / host).write(one)
    return root


class Lookup(evidence.LookupModule):
    """The lookup with options as its documentation declares them; Ansible's loader wants an installed collection."""

    def set_options(self, task_keys=None, var_options=None, direct=None):
        known = yaml.safe_load(evidence.DOCUMENTATION)["options"]
        self._options = {name: option.get("default") for name, option in known.items()} | direct


def look(root: Path, show: str = "page") -> Any:
    (found,) = Lookup().run([str(root)], {}, show=show)
    return found


def text_of(cell: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", cell).split())


def rows(page: str) -> list[list[str]]:
    """Return the cells of every row of every table, as text."""
    return [
        [text_of(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    ]


def test_the_fixtures_keep_to_the_schema() -> None:
    for records in fleet().values():
        for one in records:
            contracts.check("record", json.dumps(one))
            assert list(faults_of(one)) == []


def test_the_page_has_an_overview_of_every_profile_on_every_host(tmp_path: Path) -> None:
    page = look(written(tmp_path, fleet()))
    assert rows(page)[1:4] == [
        ["gemma4-12b-int4-c8", "b70-02", "935 tok/s", "32 streams, short-512", "-", "passed 2026-11-22", *["none"] * 3],
        ["tiny-a", "b70-01", "1,126 tok/s", "32 streams, short-512", "+9.9 %", "passed 2026-11-22",
         "passed 2026-11-21", "passed 2026-11-20", "passed 2026-11-23"],
        ["tiny-a", "b70-02", "1,103 tok/s", "32 streams, short-512", "-", "passed 2026-11-20", "failed 2026-11-21",
         *["none"] * 2],
    ]  # fmt: skip
    assert "8 records of 2 hosts; the newest ended at 2026-11-23T09:00:00Z." in page
    assert ["2k-128", "8", "353 tok/s", "+9.9 %", "2.04 s", "-9.0 %", "2.67 s", "0"] in rows(page)
    for fact in ("engine: vllm 0.20.1 → vllm 0.21.0", "stack: lab-77aa01 → lab-4ec1d2", "exact_ok in other words"):
        assert fact in page


def test_the_page_loads_nothing_and_runs_nothing_and_its_links_lead_to_records(tmp_path: Path) -> None:
    page = look(written(tmp_path, fleet()))
    assert not re.search(r"<script|<link|<img|\bsrc=|https?:|@import|url\(", page)
    links = re.findall(r'href="([^"]*)"', page)
    assert links
    for link in links:
        if link.startswith("#"):
            assert f'id="{link[1:]}"' in page
        else:
            assert (tmp_path / link).is_file()


def test_the_same_records_give_the_same_page(tmp_path: Path) -> None:
    written(tmp_path, fleet())
    assert look(tmp_path) == look(tmp_path)


def test_what_breaks_the_schema_is_named_and_the_page_is_of_the_others(tmp_path: Path) -> None:
    bad = {**record(began_at="2026-11-23T04:17:00Z"), "verdict": "<fine>"}
    Store(tmp_path / "b70-01").write(bad)
    torn = Store(tmp_path / "b70-01").write(record(began_at="2026-11-23T04:18:00Z"))
    torn.write_text("{")
    Store(tmp_path / "b70-01").write(record())
    page = look(tmp_path)
    assert "1 record of 1 host;" in page
    assert f"{bad['id']}.json: verdict: &#x27;&lt;fine&gt;&#x27; is none of passed" in page
    assert str(torn) in page


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "1e301", "1" * 400])
def test_a_figure_that_is_none_costs_the_page_one_record(tmp_path: Path, value: str) -> None:
    written(tmp_path, {"b70-01": [benchmark("2026-11-22", 1.0), soak("2026-11-21", [777.5, 780.25])]})
    (file,) = tmp_path.glob("b70-01/soak/*.json")
    file.write_text(file.read_text().replace("777.5", value))
    page = look(tmp_path)
    assert "1 record of 1 host;" in page
    assert f"{file}: data.cycles[0].load.tok_s: " in page
    assert "is no finite number" in page


@pytest.mark.parametrize("value", [1e300, 1e-300, 5e-324, 0.0])
def test_a_figure_that_is_far_out_makes_a_page(tmp_path: Path, value: float) -> None:
    one, other = benchmark("2026-11-22", 1.0), benchmark("2026-11-02", 1.0)
    for measured in (one, other):
        shape = next(iter(measured["data"]["shapes"].values()))
        cold = shape["scenarios"]["c8"]["frontdoor"]["cold"]
        cold["wall_tok_s"], cold["ttft_s"]["p50"] = value, value
    hosts = {"b70-01": [one, other, soak("2026-11-21", [value, 780.0]), soak("2026-11-20", [value, value])]}
    assert "4 records of 1 host" in look(written(tmp_path, hosts))
    alone = {"b70-02": [soak("2026-11-20", [value, value])]}
    assert "6 records of 3 hosts" in look(written(tmp_path, {**alone, "b70-03": [one]}))


def test_what_records_say_is_text_on_the_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    one = benchmark("2026-11-22", 1.0, reasons=[evil], host={**HOST, "class": evil, "kernel": evil})
    one["data"] |= {"summary": evil, "shapes": {evil: next(iter(one["data"]["shapes"].values()))}}
    page = look(written(tmp_path, {"b70-01": [one]}))
    assert "<script" not in page
    assert "&lt;script" in page


def test_without_records_the_page_says_so(tmp_path: Path) -> None:
    assert "0 records of 0 hosts." in look(tmp_path / "missing")


def test_records_without_figures_make_a_page(tmp_path: Path) -> None:
    bare = record("benchmark", verdict="failed", reasons=["guidellm ended with 1"])
    page = look(written(tmp_path, {"b70-01": [bare, soak("2026-11-01", [None, 0.0])]}))
    assert "guidellm ended with 1" in page
    assert "<svg" not in page


def test_anomalies_of_the_newest_soak_are_listed_and_the_list_has_an_end(tmp_path: Path) -> None:
    one = soak("2026-11-21")
    line = (
        "cycle 17: copy_phrase was answered &#x27;slh cobalt orbit&#x27; for &#x27;satin cobalt orbit&#x27;: isolated"
    )
    assert line in look(written(tmp_path / "one", {"b70-01": [one]}))
    one["data"]["anomalies"] *= 23
    many = written(tmp_path / "many", {"b70-01": [one]})
    assert look(many).count(line) == 20
    assert "and 3 more" in look(many)


def test_many_places_are_folded(tmp_path: Path) -> None:
    page = look(written(tmp_path, {f"b70-{n:02}": [benchmark("2026-11-22", 1.0)] for n in range(7)}))
    assert page.count("<summary>Figures and records</summary>") == 7


def test_a_kernel_of_another_class_is_compared_with_the_one_before(tmp_path: Path) -> None:
    older = {**HOST, "class": "of another kernel", "kernel": "6.17.0"}
    hosts = {"b70-01": [benchmark("2026-11-22", 1.0), benchmark("2026-11-02", 0.5, host=older)]}
    page = look(written(tmp_path, hosts))
    assert "kernel: 6.17.0 → 7.0.0-38-generic" in page
    assert "+100" in page


def test_two_machines_are_not_compared(tmp_path: Path) -> None:
    smaller = {**HOST, "class": "1 x B70", "cards": HOST["cards"][:1]}
    hosts = {"b70-01": [benchmark("2026-11-22", 1.0), benchmark("2026-11-02", 0.5, host=smaller)]}
    page = look(written(tmp_path, hosts))
    assert "not compared between different machines" in page
    assert "host class: 1 x B70 → 4 x B70" in page
    assert "+100" not in page
    assert 'class="old"' not in page


def test_a_second_slot_is_a_place_of_its_own() -> None:
    found = figures.places({"b70-01": [record(), record(slot="second")]})
    assert [place.name for place in found] == ["b70-01", "b70-01, slot second"]


@pytest.mark.parametrize(("new", "old", "share"), [(110, 100, 0.1), (90, 100, -0.1), (None, 1, None), (1, 0, None)])
def test_a_change_is_a_share_of_what_was(new: float | None, old: float | None, share: float | None) -> None:
    assert figures.change(new, old) == (None if share is None else pytest.approx(share))


def test_the_engine_s_own_figures_stand_in_where_the_frontdoor_was_not_measured_and_warm_ones_have_a_name() -> None:
    one = benchmark("2026-11-22", 1.0)
    for shape in one["data"]["shapes"].values():
        for scenario in shape["scenarios"].values():
            del scenario["frontdoor"]
            scenario["engine"]["warm"] = scenario["engine"]["cold"]
    found = figures.levels(one)
    assert {level.shape for level in found} == {"2k-128", "2k-128, warm", "short-512", "short-512, warm"}
    assert found[0].tok_s == 58.782


def test_the_lookup_returns_records_or_their_rows(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert look(tmp_path / "file", "records") == {"records": {}, "problems": []}
    written(tmp_path, fleet())
    assert look(tmp_path, "records") == {"records": fleet(), "problems": []}
    rows_of = {host: [row(one) for one in records] for host, records in fleet().items()}
    assert look(tmp_path, "rows") == {"records": rows_of, "problems": []}


def test_the_lookup_says_what_it_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(AnsibleLookupError, match=r"evidence: the records cannot be read: .*Permission denied"):
        look(tmp_path)
