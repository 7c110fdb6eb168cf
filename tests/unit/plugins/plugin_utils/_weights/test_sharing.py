# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who downloads a model and who takes it from whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._weights import sharing
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights.sharing import Copy, part, rounds, turn

RECORD = {"config.json": [2, "a" * 64]}
OTHER = {"config.json": [2, "b" * 64]}
IDENTITY = {"kind": "hub", "repository": "o/n", "revision": "c" * 40, "include": [], "exclude": []}


def lacks(*hosts: str) -> list[Copy]:
    return [Copy(host, "m") for host in hosts]


def has(host: str, **more: Any) -> Copy:
    return Copy(host, "m", has=True, **{"record": RECORD, **more})


def names(copies: tuple[Copy, ...]) -> list[str]:
    return [copy.host for copy in copies]


def steps(copies: list[Copy]) -> list[tuple[list[str], list[str]]]:
    return [(names(one.sources), names(one.takers)) for one in rounds(copies)]


def test_if_nobody_has_it_one_host_downloads_and_what_has_it_doubles_each_round() -> None:
    assert steps(lacks("a", "b", "c", "d", "e")) == [
        ([], ["a"]),
        (["a"], ["b"]),
        (["a", "b"], ["c", "d"]),
        (["a", "b", "c", "d"], ["e"]),
    ]
    assert len(rounds(lacks(*map(str, range(33))))) == 1 + 6


def test_a_host_that_has_it_gives_it_and_nobody_downloads() -> None:
    assert steps([*lacks("a"), has("b"), has("c"), *lacks("d", "e")]) == [
        (["b", "c"], ["a", "d"]),
        (["a", "b", "c", "d"], ["e"]),
    ]


def test_hosts_with_nothing_to_take_from_each_other_have_no_rounds() -> None:
    assert rounds(lacks("a")) == rounds([has("a"), has("b")]) == rounds([]) == []
    assert rounds([*lacks("a"), Copy("b", "m", has=True)]) == []  # complete, but nobody knows what it is


def test_who_downloads_is_who_already_does_then_who_has_most_of_it_and_last_who_failed() -> None:
    copies = lacks("a", "b", "c")
    assert names(turn(copies).takers) == ["a"]
    assert names(turn([copies[0], replace(copies[1], begun=9), copies[2]]).takers) == ["b"]
    assert names(turn([copies[0], replace(copies[1], begun=9), replace(copies[2], running=True)]).takers) == ["c"]
    assert names(turn([replace(copies[0], failed=True, begun=9), *copies[1:]]).takers) == ["b"]
    assert names(turn([replace(copies[0], failed=True)]).takers) == ["a"]


def test_a_host_that_gave_wrong_bytes_is_no_source_for_anybody() -> None:
    assert names(turn([has("a", wrong=True), has("b"), *lacks("c")]).sources) == ["b"]
    assert turn([has("a", wrong=True), *lacks("b")]).sources == ()


def test_records_that_differ_make_no_source_until_a_download_says_which_is_right() -> None:
    copies = [has("a"), has("b", record=OTHER), *lacks("c", "d")]
    now = turn(copies)
    assert (now.sources, now.conflict, names(now.takers)) == ((), ("a", "b"), ["c"])
    downloaded = [*copies[:2], has("c", record=OTHER, downloaded=True), copies[3]]
    assert names(turn(downloaded).sources) == ["b", "c"]
    assert turn(downloaded).record == OTHER
    said = sharing.conflicts({"k": copies}, "a")
    assert len(said) == 1
    assert "m has other digests on a, b" in said[0]
    assert sharing.conflicts({"k": copies}, "c") == []


def test_each_host_knows_its_part_and_the_number_of_rounds_is_the_same_for_all() -> None:
    copies = {"k": lacks("a", "b", "c", "d"), "other": [Copy("d", "n")]}
    parts = {host: part(copies, host) for host in "abcd"}
    assert {one.rounds for one in parts.values()} == {3 + sharing.SPARE_ROUNDS}
    assert [host for host, one in parts.items() if one.serves] == ["a", "b"]
    assert [host for host, one in parts.items() if one.takes] == ["b", "c", "d"]
    assert {host: one.downloads for host, one in parts.items()} == {"a": ("m",), "b": (), "c": (), "d": ("n",)}
    assert parts["d"].sources == {"m": ("a", "b")}
    assert [one.gives for one in parts.values()] == [()] * 4
    assert part({"k": [has("a"), *lacks("b")]}, "a").gives == ("m",)
    converged = part({"k": [has("a"), has("b")]}, "a")
    assert (converged.rounds, converged.serves, converged.takes, converged.downloads) == (0, False, False, ())


def found(**more: Any) -> dict[str, Any]:
    return {"m": {"identity": IDENTITY, "revision": "", "has": False, "record": None, **more}}


def test_models_of_one_source_are_one_whatever_each_host_calls_them() -> None:
    of_a = {"has": True, "record": RECORD, "revision": "c" * 40}
    hosts = {"a": found(**of_a), "b": {"another": found()["m"]}, "c": found(identity={**IDENTITY, "exclude": ["x"]})}
    copies = sharing.copies_of(hosts, {})
    assert [[(copy.host, copy.name) for copy in held] for held in copies.values()] == [
        [("a", "m"), ("b", "another")],
        [("c", "m")],
    ]
    assert list(sharing.lookup(copies, "b")) == ["another"]


def test_a_revision_that_nobody_names_is_the_pinned_one() -> None:
    open_one = {**IDENTITY, "revision": None}
    hosts = {
        "a": found(identity=open_one, has=True, record=RECORD, revision="c" * 40),
        "b": found(identity=open_one),
    }
    assert len(sharing.copies_of(hosts, {"o/n": "c" * 40})) == 1
    assert len(sharing.copies_of(hosts, {})) == 2  # nothing says that b wants what a has
    assert len(sharing.copies_of({"a": found(identity=open_one), "b": found(identity=open_one)}, {})) == 1


def test_what_one_host_got_wrong_holds_for_all() -> None:
    hosts = {"a": found(has=True, record=RECORD), "b": found(wrong_hosts=["a"], failed=True), "c": found()}
    copies = next(iter(sharing.copies_of(hosts, {}).values()))
    assert [copy.wrong for copy in copies] == [True, False, False]
    assert names(turn(copies).takers) == ["c"]


def test_a_model_is_taken_where_it_is_served_by_the_name_it_has_there() -> None:
    sources = [Copy("a", "one", has=True), Copy("b", "two", has=True)]
    assert sharing.usable(sources, {"b": "http://b:1"}) == [{"host": "b", "url": "http://b:1/two"}]
