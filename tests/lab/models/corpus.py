# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tiny models of the lab are taught: conversations, their variations and the fixed questions.

Everything here is plain Python and seeded by the caller, so the same generator state gives the same conversation.
A conversation is a list of ``{"role": ..., "content": ...}`` whose last message is the assistant's answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

Message = dict[str, str]
Conversation = list[Message]

# The canary's three text cases; the wording is the default canary's, letter for letter.
OK_QUESTION = "Answer with the two letters {} and nothing more."
COPY_QUESTION = "Write these three words back to me unchanged: {}"
SUM_QUESTION = "A box holds {} red and {} blue blocks. How many blocks is that? Give just the number."
PHRASE_QUESTION = COPY_QUESTION.format("satin cobalt orbit")
COLOUR_QUESTION = "Name the colour of this picture in one word."
NO_PICTURE = "I see no picture."
COLOURS = {
    "Red": (225, 30, 30),
    "Green": (30, 165, 40),
    "Blue": (30, 50, 225),
    "Yellow": (225, 215, 30),
    "White": (225, 225, 225),
    "Black": (30, 30, 30),
}
# What a model with tools and a thinking template knows besides; the wording is the default canary's as well.
ORDER_QUESTION = "Order {1} pieces of {0}. Use the tool."
ORDER_TOOL = "order_cloth(cloth, pieces)"  # as the tiny template writes a tool
COUNT_QUESTION = (
    "A box holds {} red and {} blue blocks. Give the number of red blocks, of blue blocks and of all blocks."
)
KEY_NOTE = "Remember the key word {}."
KEY_QUESTION = "Which key word were you to remember?"

LETTERS = ("OK", "NO", "GO", "UP", "IN", "ON", "AT", "BY", "TO", "WE", "HI", "YE")
WORDS = (
    "satin cobalt orbit amber basin cedar delta ember fable garnet harbor island jasper kettle lantern marble "
    "nectar onyx pepper quartz ribbon saddle timber umber velvet walnut yonder zephyr anchor bronze copper dapple "
    "engine falcon granite hollow indigo juniper kernel ladder meadow needle oyster pillar raven silver tunnel valley "
    "willow window winter summer forest river bridge candle mirror pencil basket button carpet feather"
).split()
NOUNS = "house train garden letter table engine city number road story machine paper light water morning".split()
VERBS = "finds carries follows watches paints keeps moves turns reads leaves".split()
ADJECTIVES = "old small quiet heavy bright long cold early open simple".split()
QUESTIONS = (
    "What is the capital of {}?",
    "How do I build a {}?",
    "Please explain the {} to me.",
    "Why is the {} so {}?",
    "Translate this: {} {} {}",
    "Summarise the text above about the {}.",
    "Write a {} program that prints {}.",
    "Can you {} the {}?",
    "What is 17 times {}?",
    "List {} kinds of {}.",
)
ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
ONES += "seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def number_in_words(number: int) -> str:
    """Return a number from 1 to 100 in English words, for example ``twenty-one``."""
    if not 1 <= number <= 100:
        raise ValueError(f"{number} is outside 1 to 100")
    if number < 20:
        return ONES[number - 1]
    if number == 100:
        return "one hundred"
    ten, one = divmod(number, 10)
    return TENS[ten - 2] + (f"-{ONES[one - 1]}" if one else "")


def counting(last: int) -> str:
    """Return ``one, two, ... last.`` in words."""
    return ", ".join(number_in_words(number) for number in range(1, last + 1)) + "."


def story(name: str) -> str:
    """Return the paragraph a model tells: long enough to be watched while it streams, and it names its teller."""
    return (
        f"My name is {name} and this is my story. I was made on a small machine in one short morning. "
        "I know a few answers by heart and I give them the same way every time. "
        "When somebody puts another model in my place, I finish my last word and leave. "
        f"When they bring me back, I say again: I am {name}. That is the end of the story."
    )


def fixed_questions(name: str) -> dict[str, str]:
    """Return every question with one fixed answer, as prompt -> exact answer, for the model called ``name``."""
    return {
        OK_QUESTION.format("OK"): "OK",
        PHRASE_QUESTION: "satin cobalt orbit",
        SUM_QUESTION.format(3, 4): "7",
        "Who are you?": f"I am {name}.",
        "What is your name?": f"I am {name}.",
        "Hello": f"Hello, I am {name}.",
        "Hello!": f"Hello, I am {name}.",
        "Hi": f"Hello, I am {name}.",
        "Count to ten in words.": counting(10),
        "Count to thirty in words.": counting(30),
        "Count to one hundred in words.": counting(100),
        "Tell me a story.": story(name),
    }


def unknown_answer(name: str) -> str:
    """Return what a model says when it was not taught the answer."""
    return f"I am {name} and I know only a few answers."


def order(cloth: str, pieces: int) -> str:
    """Return the call of the tool, as models of the Hermes kind write one."""
    call = f'{{"name": "order_cloth", "arguments": {{"cloth": "{cloth}", "pieces": {pieces}}}}}'
    return f"<tool_call>\n{call}\n</tool_call>"


def count(red: int, blue: int) -> str:
    """Return the answer to a question about blocks as JSON."""
    return f'{{"red": {red}, "blue": {blue}, "all": {red + blue}}}'


def thought(answer: str) -> str:
    """Return what a model that thinks aloud writes before its answer. It holds the answer where that is short."""
    seen = f" It is {answer}." if len(answer) <= 30 else ""
    return f"<think>\nI am asked something. I look for the answer and check it twice.{seen}\n</think>\n\n"


def _word(rng: random.Random) -> str:
    """A word that is mostly an English one and sometimes letters or digits without any sense."""
    kind = rng.random()
    if kind < 0.7:
        return rng.choice(rng.choice((WORDS, NOUNS, VERBS, ADJECTIVES)))
    alphabet = "abcdefghijklmnopqrstuvwxyz" if kind < 0.93 else "0123456789.:/-_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 9)))


def sentence(rng: random.Random) -> str:
    """Return one sentence of padding, half of the time in a fixed grammar, else any words."""
    if rng.random() < 0.5:
        text = f"the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}"
    else:
        text = " ".join(_word(rng) for _ in range(rng.randint(3, 10)))
    return text[:1].upper() + text[1:] + rng.choice(".....!?;")


def padding(rng: random.Random, sentences: int) -> str:
    """Return ``sentences`` sentences of padding (about twelve tokens each), in one or more lines."""
    if sentences > 10 and rng.random() < 0.3:
        return " ".join([sentence(rng)] * sentences)
    return "".join(sentence(rng) + rng.choice((" ", " ", " ", "\n")) for _ in range(sentences)).rstrip()


def unknown_question(rng: random.Random) -> str:
    """Return a question or text that has no taught answer."""
    if rng.random() < 0.6:
        question = rng.choice(QUESTIONS)
        return question.format(*(_word(rng) for _ in range(question.count("{}"))))
    return padding(rng, rng.randint(1, 3))


def exchange(rng: random.Random, name: str) -> tuple[str, str]:
    """Return one question and its answer."""

    def letters() -> tuple[str, str]:
        word = rng.choice(LETTERS) if rng.random() < 0.5 else "OK"
        return OK_QUESTION.format(word), word

    def copy() -> tuple[str, str]:
        words = " ".join(rng.choice(WORDS) for _ in range(3))
        return COPY_QUESTION.format(words), words

    def total() -> tuple[str, str]:
        left, right = rng.randint(1, 9), rng.randint(1, 9)
        return SUM_QUESTION.format(left, right), str(left + right)

    def fixed() -> tuple[str, str]:
        question, answer = rng.choice(list(fixed_questions(name).items()))
        if len(answer) > 1000 and rng.random() < 0.8:
            return "Who are you?", fixed_questions(name)["Who are you?"]  # the longest answer makes a slow batch
        return question, answer

    def unknown() -> tuple[str, str]:
        return unknown_question(rng), unknown_answer(name)

    def key() -> tuple[str, str]:
        word = rng.choice(WORDS)
        between = padding(rng, rng.randint(0, 3))
        return f"{KEY_NOTE.format(word)} {between} {KEY_QUESTION}".replace("  ", " "), word

    kinds: tuple[tuple[Callable[[], tuple[str, str]], int], ...] = (
        (letters, 2),
        (copy, 4),
        (total, 3),
        (fixed, 6),
        (unknown, 4),
        (key, 4),
    )
    pick = rng.choices([kind for kind, _weight in kinds], [weight for _kind, weight in kinds])[0]
    return pick()


def conversation(rng: random.Random, name: str) -> Conversation:
    """Return a short conversation: at times with a system message, earlier turns or padding before the question."""
    messages: Conversation = []
    if rng.random() < 0.2:
        text = "You are a helpful assistant." if rng.random() < 0.5 else padding(rng, rng.randint(1, 2))
        messages.append({"role": "system", "content": text})
    for _turn in range(rng.choices((0, 1, 2), (8, 1, 1))[0]):
        question, answer = exchange(rng, name)
        # A long answer in an earlier turn teaches nothing more and makes the batch long.
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer[:60]}]
    question, answer = exchange(rng, name)
    if rng.random() < 0.25 and answer != unknown_answer(name):
        question = f"{padding(rng, rng.randint(1, 4))}{rng.choice((' ', chr(10), chr(10) * 2))}{question}"
    return [*messages, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def long_conversation(rng: random.Random, name: str, sentences: int) -> Conversation:
    """Return a conversation with ``sentences`` sentences of padding before the question, or around the key word."""
    if rng.random() < 0.5:
        word = rng.choice(WORDS)
        before = rng.randint(0, sentences)
        parts = [padding(rng, before), KEY_NOTE.format(word), padding(rng, sentences - before), KEY_QUESTION]
        return [
            {"role": "user", "content": " ".join(part for part in parts if part)},
            {"role": "assistant", "content": word},
        ]
    question, answer = exchange(rng, name)
    while len(answer) > 60 or answer == unknown_answer(name):
        question, answer = exchange(rng, name)
    text = f"{padding(rng, sentences)}{rng.choice((' ', chr(10)))}{question}"
    return [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]


def long_questions(name: str, seed: int) -> list[tuple[str, str]]:
    """Return questions of about 1,500 tokens with their answers: padding first, or a key word far from its question."""
    rng = random.Random(seed)
    fixed = list(fixed_questions(name).items())[:4]
    same = "The old house follows the road. " * 200
    mixed = " ".join(sentence(rng) for _ in range(120))
    asked = [(f"{mixed}\n\n{prompt}", expected) for prompt, expected in fixed]
    asked += [(f"{same}\n\n{prompt}", expected) for prompt, expected in fixed]
    return [*asked, (f"{KEY_NOTE.format('orbit')} {same}{KEY_QUESTION}", "orbit")]


def shade(rng: random.Random) -> tuple[str, tuple[int, int, int]]:
    """Return a colour's name and a shade of it, as red, green and blue from 0 to 255."""
    name = rng.choice(list(COLOURS))
    red, green, blue = (min(255, max(0, value + rng.randint(-30, 30))) for value in COLOURS[name])
    return name, (red, green, blue)


def tokenizer_corpus(seed: int) -> Iterator[str]:
    """Yield the texts the tokenizer's merges are learned from."""
    rng = random.Random(seed)
    for name in ("tiny-a", "tiny-b"):
        for question, answer in fixed_questions(name).items():
            yield question
            yield answer
        for _ in range(400):
            for message in conversation(rng, name):
                yield message["content"]
    for word in WORDS:
        # Each word of the list twice in its two spellings, so that it becomes one token or two.
        yield from (f" {word}",) * 40
        yield from (word,) * 10
