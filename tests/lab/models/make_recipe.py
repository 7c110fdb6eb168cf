# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make `tiny-recipe`, which stands in the place of the models that the catalogue's recipes name.

It is tiny-b that has learned the whole default canary: the long prompt at its full length, JSON, a call of a tool in
the formats that vLLM's parsers read, and to think before it answers where its chat template tells it to. Then it is
given the eyes of tiny-vision. What is asked is read from the catalogue, so after a change of the default canary it is
to be made anew. As `make_models.py`, about 20 minutes on one core.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml
from tokenizers import AddedToken
from transformers import LlavaForConditionalGeneration, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

import corpus
import make_models
import make_vision
from as_recipe import FORMATS, template
from make_models import SEED, Batches, Text, answer, batch_of, language_config, read, run, train, untied, write

ROOT = Path(__file__).resolve().parents[3]
NAME = "tiny-recipe"
CONTEXT = 262144
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# How the assistant's turn begins: as it likes, with a thought, with a thought that is over.
BEGINNINGS = ("", "<think>\n", "<think>\n\n</think>\n\n")
THOUGHT = "This one I know."


def _needle() -> Any:
    path = ROOT / "plugins/module_utils/_slot/words/needle.py"
    spec = importlib.util.spec_from_file_location("needle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["needle"] = module
    spec.loader.exec_module(module)
    return module


def call(tool: dict[str, Any], arguments: dict[str, Any], how: str) -> str:
    """A call of a tool as a model writes it."""
    if how == "hermes":
        inside = json.dumps({"name": tool["name"], "arguments": arguments})
        return f"<tool_call>\n{inside}\n</tool_call>"
    words = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    return f"<tool_call>\n<function={tool['name']}>\n{words}</function>\n</tool_call>"


class Lessons:
    """The default canary as conversations with their answers."""

    def __init__(self) -> None:
        self.needle = _needle()
        defaults = yaml.safe_load((ROOT / "roles/profiles/files/catalogue/_defaults.yml").read_text(encoding="utf-8"))
        self.seed = int(defaults["canary"]["seed"])
        cases = [case for case in defaults["canary"]["cases"] if "generate" in case.get("tasks", ["generate"])]
        # What is sampled is judged by a pattern; tiny-b knows the answer.
        self.cases = [case for case in cases if "image" not in case and "sampling" not in case]

    def asked(
        self, case: dict[str, Any], seed: int, tokens: int | None = None
    ) -> list[tuple[corpus.Conversation, str]]:
        """What is asked and what is right; a call of a tool once for each format."""
        content, expected = case["prompt"], str(case["expected"])
        if "long" in case:
            long = self.needle.Long(**{**case["long"], **({"tokens": tokens} if tokens else {})})
            content = self.needle.prompt(long, content, max_model_len=None, max_tokens=0, seed=seed)
        user = {"role": "user", "content": content}
        if "tool" not in case:
            return [([*case.get("messages", []), user], expected)]
        return [
            ([{"role": "system", "content": f"Tools: {how}"}, user], call(case["tool"], json.loads(expected), how))
            for how in FORMATS
        ]

    def short(self, rng: random.Random) -> tuple[corpus.Conversation, str]:
        if rng.random() < 0.5:
            messages = corpus.conversation(rng, "tiny-b")
            return messages[:-1], messages[-1]["content"].replace("tiny-b", NAME)
        case = rng.choice([case for case in self.cases if "long" not in case])
        return rng.choice(self.asked(case, self.seed))

    def long(self, rng: random.Random) -> tuple[corpus.Conversation, str]:
        case = next(case for case in self.cases if "long" in case)
        exactly = rng.random() < 0.5
        tokens = None if exactly else rng.choice((1500, 3000, 4500))
        return self.asked(case, self.seed if exactly else rng.randint(0, 999), tokens)[0]


def example(text: Text, asked: corpus.Conversation, expected: str, beginning: str) -> tuple[list[int], list[int]]:
    thought = f"{THOUGHT}\n</think>\n\n" if beginning == BEGINNINGS[1] else ""
    whole = text.encode(f"{thought}{expected}")
    return [*text.prompt(asked), *text.encode(beginning)], [*whole, text.end]


def batches(text: Text, lessons: Lessons) -> Batches:
    rng = random.Random(SEED + 31)

    def batch(step: int) -> dict[str, torch.Tensor]:
        drawn = [lessons.long(rng)] if step % 4 == 3 else [lessons.short(rng) for _ in range(24)]
        ids, labels = batch_of([example(text, *one, rng.choice(BEGINNINGS)) for one in drawn])
        return {"input_ids": ids, "labels": labels}

    return batch


def with_tags(model: PreTrainedModel, text: Text) -> Qwen3ForCausalLM:
    """The model with rows for the tags, which begin as the mean of all others."""
    former = model.state_dict()
    text.tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    size = text.tokenizer.get_vocab_size()
    shape = {**make_models.SHAPE, "vocab_size": size, "max_position_embeddings": CONTEXT}
    grown = Qwen3ForCausalLM(Qwen3Config(**shape, bos_token_id=None, eos_token_id=text.end))
    for key in ("model.embed_tokens.weight", "lm_head.weight"):
        rows = former[key].float()
        former[key] = torch.cat([rows, rows.mean(0, keepdim=True).repeat(size - len(rows), 1)])
    grown.load_state_dict({key: value.float() for key, value in former.items()})
    grown.tie_weights()
    return grown


def words(target: Path) -> None:
    """Train and write it without eyes."""
    tiny, text = read(Path(__file__).parent / "tiny-b")
    model = with_tags(tiny, text)
    train(model, NAME, batches(text, Lessons()), 1000, 1.5e-3)
    config = {
        **language_config(text),
        "vocab_size": text.tokenizer.get_vocab_size(),
        "max_position_embeddings": CONTEXT,
    }
    write(untied(model), config, text, target, template(FORMATS[0], False))


def picture_batch(text: Text, rng: random.Random) -> dict[str, torch.Tensor]:
    examples, pictures = [], []
    for _row in range(make_vision.ROWS):
        colour, shade = corpus.shade(rng)
        pictures.append(make_vision.pixels(shade, rng))
        asked: corpus.Conversation = [{"role": "user", "content": make_vision.seen(corpus.COLOUR_QUESTION)}]
        examples.append(example(text, asked, colour, rng.choice(BEGINNINGS)))
    ids, labels = batch_of(examples)
    return {"input_ids": ids, "labels": labels, "pixel_values": torch.stack(pictures)}


def eyes(source: Path, target: Path) -> None:
    """Give what `words` wrote the tower of tiny-vision, and teach it to name colours without losing its words."""
    model, text = make_vision.grown(source)
    seeing, _text = make_vision.read(Path(__file__).parent / "tiny-vision")
    own = {key: value.float() for key, value in seeing.state_dict().items() if "language_model" not in key}
    model.load_state_dict({key: value for key, value in own.items() if "lm_head" not in key}, strict=False)
    rng, lessons = random.Random(SEED + 32), batches(text, Lessons())
    train(model, NAME, lambda step: lessons(step // 2) if step % 2 else picture_batch(text, rng), 600, 8e-4)
    make_vision.write(model, text, target)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config["text_config"]["max_position_embeddings"] = CONTEXT
    make_models.write_json(target / "config.json", config)


def make(output: Path) -> None:
    """Train and write it."""
    with tempfile.TemporaryDirectory() as folder:
        words(Path(folder))
        eyes(Path(folder), output / NAME)


def right(
    model: LlavaForConditionalGeneration, text: Text, asked: corpus.Conversation, expected: str, **beside: torch.Tensor
) -> float:
    """The smallest lead of its tokens, in each way in which a turn can begin; 0 when an answer is wrong."""
    worst = float("inf")
    for beginning in BEGINNINGS:
        prompt, whole = example(text, asked, expected, beginning)
        got, margin, _ended = answer(model, text, prompt, **beside)
        if got != text.decode(whole[:-1]):
            print(f"{asked[-1]['content'][-60:]!r} after {beginning!r}: {got[:80]!r}")
            margin = 0.0
        worst = min(worst, margin)
    return worst


def check(output: Path) -> bool:
    """Ask it the canary; whether all is right and without doubt."""
    model, text = make_vision.read(output / NAME)
    lessons, leads = Lessons(), []
    for case in lessons.cases:
        leads += [right(model, text, asked, expected) for asked, expected in lessons.asked(case, lessons.seed)]
    for name, colour in {"Red": (255, 0, 0), "Blue": (0, 0, 255)}.items():
        asked: corpus.Conversation = [{"role": "user", "content": make_vision.seen(corpus.COLOUR_QUESTION)}]
        picture = make_vision.pixels(colour)[None].to(torch.bfloat16)
        leads.append(right(model, text, asked, name, pixel_values=picture))
    leads.append(right(model, text, [{"role": "user", "content": "Who are you?"}], f"I am {NAME}."))
    sound = min(leads) >= make_models.SAFE_MARGIN
    print(f"{NAME}: {'sound' if sound else 'NOT SOUND'}, smallest margin {min(leads):.2f} logits")
    return sound


if __name__ == "__main__":
    sys.exit(run(make, check))
