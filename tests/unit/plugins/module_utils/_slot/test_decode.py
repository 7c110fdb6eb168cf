# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON becomes the dataclasses of a document, and an error names the key that is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.decode import (
    ShapeError,
    decode,
    decode_document,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Part:
    name: str
    weight: float = 1.0

    def check(self) -> None:
        if self.weight < 0:
            raise ShapeError("weight", "is negative")


@dataclass(frozen=True)
class Whole:
    count: int
    parts: tuple[Part, ...]
    pair: tuple[str, int] = ("", 0)
    colour: Colour = Colour.RED
    size: Literal["small", "large"] = "small"
    picture: Mapping[str, Any] | str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    more: Part | None = None
    sure: bool = False


WHOLE = {
    "count": 2,
    "parts": [{"name": "a", "weight": 2}, {"name": "b"}],
    "pair": ["x", 3],
    "colour": "blue",
    "size": "large",
    "picture": {"kind": "bars"},
    "env": {"K": "v"},
    "more": {"name": "c"},
    "sure": True,
}


def test_a_document_becomes_its_dataclass():
    parts = (Part("a", 2.0), Part("b"))
    whole = Whole(2, parts, ("x", 3), Colour.BLUE, "large", {"kind": "bars"}, {"K": "v"}, Part("c"), sure=True)
    assert decode(Whole, WHOLE) == whole
    assert decode(Whole, {**WHOLE, "picture": "file.png"}).picture == "file.png"


def test_what_is_missing_or_null_takes_the_default_and_what_is_unknown_is_left_out():
    assert decode(Whole, {"count": 1, "parts": [], "size": None, "later": 7}) == Whole(1, ())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": None}, "count is missing"),
        ({"count": "2"}, "count is '2', wanted int"),
        ({"count": True}, "count is True, wanted int"),
        ({"sure": 1}, "sure is 1, wanted bool"),
        ({"parts": {}}, "parts is {}, wanted a list"),
        ({"parts": ["a"]}, "parts[0] is str, not a mapping"),
        ({"parts": [{"name": "a"}, {}]}, "parts[1].name is missing"),
        ({"parts": [{"name": "a", "weight": -1}]}, "parts[0].weight is negative"),
        ({"pair": ["x"]}, "pair has 1 members, wanted 2"),
        ({"colour": "green"}, "colour is 'green', wanted one of red, blue"),
        ({"colour": ["red"]}, "colour is ['red'], wanted one of red, blue"),
        ({"size": "huge"}, "size is 'huge', wanted one of small, large"),
        ({"picture": 7}, "picture is 7, wanted str"),
        ({"env": {"K": 1}}, "env.K is 1, wanted str"),
        ({"more": {"name": 1}}, "more.name is 1, wanted str"),
    ],
)
def test_an_error_names_the_key(change, words):
    with pytest.raises(ShapeError) as caught:
        decode(Whole, {**WHOLE, **change})
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "/etc/x is not JSON"),
        ("[]", "/etc/x: the document is list, not a mapping"),
        ('{"count": 1}', "/etc/x: schema is missing"),
        ('{"schema": 2}', "/etc/x: schema is 2, this version reads 1"),
        (json.dumps({**WHOLE, "schema": 1, "count": "x"}), "/etc/x: count is 'x', wanted int"),
    ],
)
def test_a_rendered_file_that_cannot_be_read_is_to_be_rendered_again(text, words):
    with pytest.raises(SlotFault) as caught:
        decode_document(Whole, text, "/etc/x", 1)
    assert words in caught.value.message
    assert caught.value.message.endswith("render it again with the role slot")
