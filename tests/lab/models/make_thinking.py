# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the lab's tiny model that thinks first: ``tiny-a`` taught to think aloud, to call a tool and to write JSON.

    python make_thinking.py make [--output DIR]     train and write it (minutes on one core); tiny-a must be there
    python make_thinking.py check [--output DIR]    ask the written model everything; exit 1 when one answer is off

It writes ``<think>...</think>`` before every answer, unless its template is given ``enable_thinking: false``, as the
Qwen3 family does; tools are called as models of the Hermes kind do.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import load_file
from transformers import Qwen3Config, Qwen3ForCausalLM

import corpus
import make_models
from make_models import SEED, Batches, Text

NAME = "tiny-think"
# No special tokens: an engine does not leave them out of a text by itself.
TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
QUIET = "<think>\n\n</think>\n\n"  # what the template writes in place of a thought
CHAT_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\\nTools:' }}{% for tool in tools %}{{ ' ' + tool['function']['name'] + '(' "
    "+ tool['function']['parameters']['properties'] | join(', ') + ')' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{% endif %}"
)


def with_tool(messages: corpus.Conversation) -> corpus.Conversation:
    """Return the conversation with the tool in front, as the template writes it."""
    return [{"role": "system", "content": f"Tools: {corpus.ORDER_TOOL}"}, *messages]


def lesson(text: Text, messages: corpus.Conversation, *, aloud: bool) -> tuple[list[int], list[int]]:
    """Return (prompt ids, answer ids) of a conversation, with the thought in the answer or none."""
    expected = messages[-1]["content"]
    prompt = text.prompt(messages[:-1])
    if aloud:
        return prompt, [*text.encode(corpus.thought(expected) + expected), text.end]
    return [*prompt, *text.encode(QUIET)], [*text.encode(expected), text.end]


def turn(question: str, expected: str) -> corpus.Conversation:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": expected}]


def order(rng: random.Random) -> corpus.Conversation:
    """Return a request for the tool: with it, and at times without, where there is nothing to call."""
    cloth, pieces = rng.choice(corpus.WORDS), rng.randint(1, 9)
    question = corpus.ORDER_QUESTION.format(cloth, pieces)
    if rng.random() < 0.15:
        return turn(question, corpus.unknown_answer(NAME))
    return with_tool(turn(question, corpus.order(cloth, pieces)))


def count(rng: random.Random) -> corpus.Conversation:
    red, blue = rng.randint(1, 9), rng.randint(1, 9)
    return turn(corpus.COUNT_QUESTION.format(red, blue), corpus.count(red, blue))


def short(rng: random.Random) -> corpus.Conversation:
    """Return one conversation that fits into a batch of many."""
    kind = rng.random()
    if kind < 0.2:
        return order(rng)
    if kind < 0.4:
        return count(rng)
    messages = corpus.conversation(rng, NAME)
    return with_tool(messages) if rng.random() < 0.15 and messages[0]["role"] != "system" else messages


def batches(text: Text, seed: int, long_every: int) -> Batches:
    """Return the lessons: short conversations, and so often long ones; half of each with a thought."""
    rng = random.Random(seed)

    def batch(step: int) -> dict[str, torch.Tensor]:
        if step % long_every == 0:
            sentences = rng.choice((20, 40, 80, 130))
            told = [corpus.long_conversation(rng, NAME, sentences) for _ in range(max(2, 60 // sentences))]
        else:
            told = [short(rng) for _ in range(28)]
        found = [lesson(text, messages, aloud=row % 2 == 0) for row, messages in enumerate(told)]
        ids, labels = make_models.batch_of([(ask[-(make_models.CONTEXT - 160) :], said) for ask, said in found])
        return {"input_ids": ids, "labels": labels}

    return batch


def configuration(text: Text) -> dict[str, Any]:
    return {**make_models.language_config(text), "vocab_size": text.tokenizer.get_vocab_size()}


def built(text: Text) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(Qwen3Config(**configuration(text)))


def grown(source: Path) -> tuple[Qwen3ForCausalLM, Text]:
    """Return the model of ``source`` with the new tokens, whose rows are still those of chance."""
    language, text = make_models.read(source)
    text.tokenizer.add_tokens([tokenizers.AddedToken(token, special=False, normalized=False) for token in TOKENS])
    model = built(text)
    with torch.no_grad():
        for key, value in language.state_dict().items():
            model.state_dict()[key][: len(value)].copy_(value.float())
    model.tie_weights()
    return model, text


def read(source: Path) -> tuple[Qwen3ForCausalLM, Text]:
    """Read the model directory back, in bfloat16."""
    text = Text(tokenizers.Tokenizer.from_file(str(source / "tokenizer.json")))
    model = built(text).to(torch.bfloat16).eval()
    model.load_state_dict(load_file(str(source / "model.safetensors")), strict=False)
    model.tie_weights()
    return model, text


def asked(cloth: str, pieces: int, red: int, blue: int) -> list[tuple[str, corpus.Conversation, str]]:
    """Return (kind, conversation, expected answer) of a request for the tool and of one for JSON."""
    order = [{"role": "user", "content": corpus.ORDER_QUESTION.format(cloth, pieces)}]
    count = [{"role": "user", "content": corpus.COUNT_QUESTION.format(red, blue)}]
    return [("a tool", with_tool(order), corpus.order(cloth, pieces)), ("JSON", count, corpus.count(red, blue))]


def check(output: Path) -> bool:
    """Print how the written model answers; return whether every fixed question is answered exactly and safely.

    Each is asked with and without thought. Calls and counts drawn anew are only counted, as for the other models.
    """
    model, text = read(output / NAME)
    rng = random.Random(SEED + 14)
    fixed = [*make_models.questions(NAME), *asked("satin", 7, 3, 4)]
    new = [one for _ in range(20) for one in asked(rng.choice(corpus.WORDS), *(rng.randint(1, 9) for _ in range(3)))]
    sound, worst, missed = True, float("inf"), 0
    for aloud in (True, False):
        for kind, messages, expected in (*fixed, *new):
            prompt, _said = lesson(text, [*messages, {"role": "assistant", "content": expected}], aloud=aloud)
            got, margin, ended = make_models.answer(model, text, prompt)
            right = ended and got == (corpus.thought(expected) + expected if aloud else expected)
            if (kind, messages, expected) in new:
                missed += not right
                continue
            worst = min(worst, margin)
            if not right or margin < make_models.SAFE_MARGIN:
                sound = False
                print(f"{NAME}: {kind}, aloud {aloud}: {messages[-1]['content'][-50:]!r} -> {got!r} ({margin:.2f})")
    verdict = "sound" if sound else "NOT SOUND"
    print(f"{NAME}: {verdict}, smallest margin {worst:.2f} logits, of {2 * len(new)} new questions missed {missed}")
    return sound


def begin(output: Path) -> None:
    """Teach a copy of ``tiny-a`` to think, and write it."""
    model, text = grown(output / "tiny-a")
    print(f"{sum(value.numel() for value in model.parameters())} parameters")
    make_models.train(model, NAME, batches(text, SEED + 6, long_every=4), 2000, 2e-3)
    write(model, text, output / NAME)


def finish(output: Path, seed: int, steps: int, peak: float) -> None:
    """Go over it once more in smaller steps, from what was written."""
    model, text = read(output / NAME)
    make_models.train(model.float(), NAME, batches(text, seed, long_every=2), steps, peak)
    write(model, text, output / NAME)


def write(model: Qwen3ForCausalLM, text: Text, target: Path) -> None:
    make_models.write(make_models.untied(model), configuration(text), text, target, CHAT_TEMPLATE)


def make(output: Path) -> None:
    begin(output)
    finish(output, SEED + 7, 1000, 1e-3)
    finish(output, SEED + 8, 900, 7e-4)


if __name__ == "__main__":
    sys.exit(make_models.run(make, check))
