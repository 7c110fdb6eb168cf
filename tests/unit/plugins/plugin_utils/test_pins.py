# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins
from ansible_collections.arcpro.b70.plugins.plugin_utils._pins import Pins, PinsError

A, B = "a" * 40, "b" * 40
DIGEST = f"sha256:{'1' * 64}"
NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)


def entry(revision: str, host: str = "b70-1") -> dict[str, str]:
    return _pins.seen("weights", revision, host, "https://hub", "ann", NOW)


def test_what_is_rendered_is_read_again_and_sorted():
    pins = _pins.with_new(Pins(), "weights", {"z/z": entry(B), "a/a": entry("1" * 40)})
    pins = _pins.with_new(pins, "wheels", {"x==1+xpu": _pins.seen("wheels", DIGEST, "b70-2", "https://i", "ann", NOW)})
    text = _pins.render(pins)
    assert _pins.parse(text, "f") == pins
    assert text.index("a/a") < text.index("z/z") < text.index("x==1+xpu")
    assert yaml.safe_load(text)["all"]["vars"]["b70_pins"]["weights"]["a/a"] == {
        "revision": "1" * 40,
        "host": "b70-1",
        "from": "https://hub",
        "at": "2026-11-22T15:00:00Z",
        "by": "ann",
    }


def test_text_as_ansible_marks_it_is_text():
    class Marked(str):
        """Like the strings of variables."""

    pins = _pins.with_new(Pins(), "weights", {Marked("o/n"): {"revision": Marked(A), "host": Marked("b70-1")}})
    assert _pins.parse(_pins.render(pins), "f") == pins


def test_an_entry_may_be_the_bare_value_and_an_empty_file_has_none():
    pins = _pins.parse(f"weights: {{o/n: {A}}}\nwheels: {{'x==1': '{DIGEST}'}}\n", "f")
    assert (pins.value("weights", "o/n"), pins.values("wheels")) == (A, {"x==1": DIGEST})
    assert _pins.parse("", "f") == Pins()
    assert _pins.parse("weights:\n", "f").values("weights") == {}
    assert Pins().value("weights", "o/n") == ""


def test_who_came_first_stays():
    first = _pins.with_new(Pins(), "weights", {"o/n": entry(A)})
    second = _pins.with_new(first, "weights", {"o/n": entry(B, "b70-2"), "o/m": entry(B)})
    assert second.values("weights") == {"o/n": A, "o/m": B}
    assert first.values("weights") == {"o/n": A}


def test_another_value_is_said_with_both_and_the_two_ways_out():
    pinned = _pins.seen("images", DIGEST, "b70-1", "https://hub", "ann", NOW)
    pins, other = _pins.with_new(Pins(), "images", {"r/n:1": pinned}), f"sha256:{'2' * 64}"
    assert _pins.conflict(pins, "images", "r/n:1", DIGEST, "b70-2", "/i/b70-pins.yml") == ""
    assert _pins.conflict(pins, "images", "r/other:1", other, "b70-2", "/i/b70-pins.yml") == ""
    said = _pins.conflict(pins, "images", "r/n:1", other, "b70-2", "/i/b70-pins.yml")
    assert f"r/n:1: b70-2 has the digest {other}, and /i/b70-pins.yml pins {DIGEST}" in said
    assert "first seen by b70-1, at https://hub, on 2026-11-22T15:00:00Z" in said
    assert "Either keep the pin: remove the image on that host" in said
    assert f"write {other} into the pin" in said
    bare = _pins.parse(f"wheels: {{'x==1': '{DIGEST}'}}", "f")
    said = _pins.conflict(bare, "wheels", "x==1", other, "the index", "f")
    assert f"pins {DIGEST}. Either keep the pin: bring the wheel" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("weights: [", "f is not valid YAML"),
        ("- weights", "f must be a mapping with weights and wheels"),
        ("models: {}", "f must be a mapping with weights and wheels"),
        ("all: {hosts: {}}", "f has no all.vars.b70_pins"),
        ("weights: [a]", "f: weights must be a mapping"),
        ("weights: {o/n: main}", "the revision must be a commit of 40 hex digits (in quotes), not 'main'"),
        (f"weights: {{o/n: {'1' * 40}}}", "(in quotes), not 1111"),
        ("weights: {o/n: {host: b70-1}}", "not None"),
        ("wheels: {x==1: abc}", "the digest must be sha256: and 64 hex digits"),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_place(text: str, said: str):
    with pytest.raises(PinsError) as error:
        _pins.parse(text, "f")
    assert said in str(error.value)
