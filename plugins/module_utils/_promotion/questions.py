# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions that test the accuracy of a served model whose profile has none of its own. Pure.

All are made here, from a seed and short lists of words, so nothing is downloaded and every host asks the same. They are
easy for a sound model of 7B or more, and varied enough that damaged weights, a wrong template or a broken kernel shows:
numbers, letters and words, short and longer contexts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from .._slot.model.profile import Question

SEED = 20261123
OF_A_TASK = 25

_ONE_WORD = "Answer with one word and nothing more."
_NUMBER = "Answer with the number and nothing more."
_LETTER = "Answer with the letter and nothing more."

_LETTERS = "ABCD"
NAMES = "Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Karla Leon Maria Nina Oscar Paula".split()
_TOWNS = "Berlin Cairo Dublin Lima London Madrid Oslo Paris Rome Sydney Tokyo Vienna".split()
_TRADES = "baker carpenter dentist farmer gardener lawyer nurse painter pilot plumber tailor teacher".split()
_THINGS = "apples books bottles boxes chairs coins cups eggs keys lamps pencils plates shirts stamps tickets".split()
_WORDS = (
    "anchor basket bridge button candle carpet copper desert engine feather forest garden hammer island jacket "
    "kettle ladder lantern marble meadow mirror needle orchard paper pepper pillow river saddle silver spoon "
    "summer table tunnel valley velvet village walnut window winter yellow"
).split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November December".split()
# No word belongs to two kinds; copper, for example, would also be a colour.
KINDS: Mapping[str, tuple[str, ...]] = {
    "an animal": ("horse", "dog", "elephant", "rabbit", "tiger", "sheep", "wolf"),
    "a fruit": ("banana", "apple", "grape", "pear", "kiwi", "mango", "pineapple"),
    "a metal": ("iron", "zinc", "tin", "aluminium", "nickel", "titanium", "chromium"),
    "a musical instrument": ("violin", "piano", "trumpet", "flute", "guitar", "cello", "drum"),
    "a piece of furniture": ("table", "chair", "sofa", "wardrobe", "desk", "bookcase", "bench"),
    "a colour": ("purple", "red", "green", "brown", "blue", "black", "white"),
    "a country": ("France", "Japan", "Brazil", "Egypt", "Canada", "Norway", "India"),
    "a part of the body": ("knee", "elbow", "nose", "shoulder", "ankle", "finger", "ear"),
    "a vehicle": ("bus", "bicycle", "lorry", "tram", "ship", "aeroplane", "tractor"),
}


def usual() -> tuple[Question, ...]:
    """Return the questions for profiles that have none of their own."""
    return tuple(
        Question(task, *make(random.Random(f"{SEED} {task} {number}"), number))
        for task, make in _TASKS.items()
        for number in range(OF_A_TASK)
    )


def _arithmetic(rng: random.Random, number: int) -> tuple[str, str]:
    things, name = rng.choice(_THINGS), rng.choice(NAMES)
    if number % 3 == 0:
        one, two = rng.randint(11, 60), rng.randint(11, 39)
        text, result = (
            f"{name} has {one} {things} and gets {two} more. How many {things} does {name} have now?",
            one + two,
        )
    elif number % 3 == 1:
        one, two = rng.randint(40, 99), rng.randint(11, 39)
        text, result = f"{name} has {one} {things} and gives {two} away. How many {things} are left?", one - two
    else:
        one, two = rng.randint(2, 9), rng.randint(2, 9)
        text, result = f"There are {one} rows of {two} {things}. How many {things} is that in total?", one * two
    return f"{text} {_NUMBER}", str(result)


def _calendar(rng: random.Random, number: int) -> tuple[str, str]:
    names, kind = (_DAYS, "day of the week") if number < 2 * len(_DAYS) else (_MONTHS, "month")
    place, (order, side) = number // 2 % len(names), (("after", 1), ("before", -1))[number % 2]
    return f"Which {kind} comes right {order} {names[place]}? {_ONE_WORD}", names[(place + side) % len(names)]


def _choice(rng: random.Random, number: int) -> tuple[str, str]:
    kind, *others = rng.sample(list(KINDS), len(_LETTERS))
    offered, right = [rng.choice(KINDS[other]) for other in others], number % len(_LETTERS)
    offered.insert(right, rng.choice(KINDS[kind]))
    lines = [f"{letter}) {word}" for letter, word in zip(_LETTERS, offered, strict=True)]
    return "\n".join([f"Which of these is {kind}?", *lines, _LETTER]), _LETTERS[right]


def _people(rng: random.Random, number: int, count: int) -> tuple[str, list[str]]:
    """Return the person who is the answer, and all persons in random order.

    Each name is the answer of some question, so a task's answers are all its choices.
    """
    right = NAMES[number % len(NAMES)]
    names = [right, *rng.sample([name for name in NAMES if name != right], count - 1)]
    rng.shuffle(names)
    return right, names


def _comparison(rng: random.Random, number: int) -> tuple[str, str]:
    right, names = _people(rng, number, 3)
    ages = sorted(rng.sample(range(20, 80), 3))
    most, word = (ages.pop(), "oldest") if number % 2 == 0 else (ages.pop(0), "youngest")
    facts = ", ".join(f"{name} is {most if name == right else ages.pop()}" for name in names)
    return f"{facts} years old. Who is the {word}? {_ONE_WORD}", right


def _copying(rng: random.Random, number: int) -> tuple[str, str]:
    words = " ".join(rng.sample(_WORDS, 5))
    return f"Write these five words back to me unchanged, and nothing more: {words}", words


def _reading(rng: random.Random, number: int) -> tuple[str, str]:
    right, names = _people(rng, number, 6)
    towns, trades = rng.sample(_TOWNS, 6), rng.sample(_TRADES, 6)
    years = [rng.randint(2, 30) for _person in names]
    told = [
        f"{name} lives in {town} and has worked there as a {trade} for {year} years."
        for name, town, trade, year in zip(names, towns, trades, years, strict=True)
    ]
    who = names.index(right)
    question = f"Who lives in {towns[who]}?" if number % 2 == 0 else f"Who is the {trades[who]}?"
    return f"{' '.join(told)}\n\n{question} {_ONE_WORD}", right


_TASKS: Mapping[str, Callable[[random.Random, int], tuple[str, str]]] = {
    "arithmetic": _arithmetic,
    "calendar": _calendar,
    "choice": _choice,
    "comparison": _comparison,
    "copying": _copying,
    "reading": _reading,
}
