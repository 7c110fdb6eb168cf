# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the lab's tiny models: a tokenizer, two trained two-layer Qwen3 and a damaged copy of the first.

Needs torch, transformers, tokenizers and safetensors, as in the virtual environment of the ``cpu`` stack.

    python make_models.py make [--output DIR]     train and write all three (minutes on two cores)
    python make_models.py check [--output DIR]    ask the written models everything; exit 1 when one answer is off

The same versions on the same kind of processor give the same bytes: seeds, thread count and data are fixed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

import corpus

SEED = 20260607
THREADS = 1
VOCABULARY = 640
CONTEXT = 2048
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SHAPE = {
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
# The smallest lead of the right token over the next best one that counts as safe from rounding, in logits.
SAFE_MARGIN = 2.0


class Text:
    """The tokenizer together with the chat format."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.token_to_id(TURN_END)

    @classmethod
    def learn(cls) -> Text:
        """Learn the merges from the corpus: byte level, so any text can be written and read back."""
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(corpus.tokenizer_corpus(SEED), trainer)
        return cls(tokenizer)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def prompt(self, messages: corpus.Conversation) -> list[int]:
        """Return the token ids of a conversation up to the point where the assistant answers."""
        turns = "".join(f"{TURN_START}{m['role']}\n{m['content']}{TURN_END}\n" for m in messages)
        return self.encode(f"{turns}{TURN_START}assistant\n")

    def example(self, messages: corpus.Conversation) -> tuple[list[int], list[int]]:
        """Return (prompt ids, answer ids with the end of turn)."""
        return self.prompt(messages[:-1]), [*self.encode(messages[-1]["content"]), self.end]


def batch_of(examples: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad examples to one tensor of ids and one of labels, where -100 marks what is not learned."""
    width = max(len(prompt) + len(answer) for prompt, answer in examples)
    ids = torch.zeros((len(examples), width), dtype=torch.long)
    labels = torch.full((len(examples), width), -100, dtype=torch.long)
    for row, (prompt, answer) in enumerate(examples):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor([*prompt, *answer])
        labels[row, len(prompt) : end] = torch.tensor(answer)
    return ids, labels


def training_batch(text: Text, rng: random.Random, name: str, long: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of short conversations, or of one or two that fill much of the context."""
    if long:
        sentences = rng.choice((20, 40, 80, 130))
        rows = max(1, 60 // sentences)
        found = [text.example(corpus.long_conversation(rng, name, sentences)) for _ in range(rows)]
        return batch_of([(prompt[-(CONTEXT - 80) :], answer) for prompt, answer in found])
    examples = [text.example(corpus.conversation(rng, name)) for _ in range(30)]
    for _ in range(2):
        # Bare text, as sent to /v1/completions: say the usual words and end.
        bare = corpus.padding(rng, rng.randint(1, 3))
        examples.append((text.encode(bare), [*text.encode(" " + corpus.unknown_answer(name)), text.end]))
    return batch_of(examples)


# The number of a step -> what the model is called with: input_ids, labels and whatever else it takes.
Batches = Callable[[int], dict[str, torch.Tensor]]


def text_batches(text: Text, name: str, long_from: int, long_every: int, seed: int) -> Batches:
    """Return the lessons in being ``name``; from step ``long_from`` on some with long conversations.

    Short ones come first, since a long one teaches little to a model that knows nothing.
    """
    rng = random.Random(seed)

    def batch(step: int) -> dict[str, torch.Tensor]:
        ids, labels = training_batch(text, rng, name, step >= long_from and step % long_every == 0)
        return {"input_ids": ids, "labels": labels}

    return batch


def train(model: PreTrainedModel, name: str, batches: Batches, steps: int, peak: float) -> None:
    """Teach ``model`` with AdamW, warm-up and cosine."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, total_steps=steps, pct_start=0.1)
    model.train()
    started, shown = time.monotonic(), 0.0
    for step in range(steps):
        loss = model(**batches(step)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        shown = 0.95 * shown + 0.05 * loss.item() if shown else loss.item()
        if step % 200 == 199:
            print(f"{name}: step {step + 1}/{steps} loss {shown:.4f} {time.monotonic() - started:.0f} s", flush=True)
    model.eval()


@torch.no_grad()
def answer(
    model: PreTrainedModel, text: Text, prompt: list[int], limit: int = 640, **beside: torch.Tensor
) -> tuple[str, float, bool]:
    """Answer greedily. Return the text, the smallest lead of a chosen token in logits, and whether it ended itself.

    :param beside: what goes with the prompt, as a picture does.
    """
    chosen: list[int] = []
    ids, margin, past = torch.tensor([prompt]), float("inf"), None
    for _ in range(limit):
        out = model(input_ids=ids, past_key_values=past, use_cache=True, **beside)
        best = out.logits[0, -1].float().topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        token = int(best.indices[0])
        if token == text.end:
            return text.decode(chosen), margin, True
        chosen.append(token)
        ids, past, beside = torch.tensor([[token]]), out.past_key_values, {}
    return text.decode(chosen), margin, False


def questions(name: str) -> list[tuple[str, corpus.Conversation, str]]:
    """Return (kind, conversation, expected answer) for everything a sound model must answer exactly."""
    rng = random.Random(SEED + 11)
    asked = [
        ("fixed", [{"role": "user", "content": prompt}], expected)
        for prompt, expected in corpus.fixed_questions(name).items()
    ]
    canary = list(corpus.fixed_questions(name).items())[:4]
    for prompt, expected in corpus.long_questions(name, SEED):
        asked.append(("about 1,500 tokens", [{"role": "user", "content": prompt}], expected))
    for sentences in (12, 60, 120):
        for prompt, expected in canary:
            content = f"{corpus.padding(rng, sentences)}\n\n{prompt}"
            asked.append((f"after {sentences} sentences", [{"role": "user", "content": content}], expected))
    for prompt, expected in canary:
        system = [{"role": "system", "content": "You are a helpful assistant."}]
        asked.append(("with system message", [*system, {"role": "user", "content": prompt}], expected))
    return asked


def general(name: str) -> list[tuple[str, corpus.Conversation, str]]:
    """Return questions drawn anew from what was taught: here a few misses are no harm, they are only counted."""
    rng = random.Random(SEED + 12)
    found = [("short", corpus.conversation(rng, name)) for _ in range(100)]
    found += [("long", corpus.long_conversation(rng, name, rng.choice((40, 80, 130)))) for _ in range(30)]
    return [(kind, messages[:-1], messages[-1]["content"]) for kind, messages in found]


def report(model: PreTrainedModel, text: Text, name: str) -> bool:
    """Print how ``model`` answers; return whether every fixed question is answered exactly and safely."""
    sound, worst = True, float("inf")
    for kind, messages, expected in questions(name):
        got, margin, _ended = answer(model, text, text.prompt(messages))
        worst = min(worst, margin)
        if got != expected or margin < SAFE_MARGIN:
            sound = False
            print(f"{name}: {kind}: {messages[-1]['content'][-60:]!r} -> {got[:80]!r} (margin {margin:.2f})")
    misses: dict[str, int] = {}
    for kind, messages, expected in general(name):
        got, _margin, ended = answer(model, text, text.prompt(messages))
        misses[kind] = misses.get(kind, 0) + (got != expected or not ended)
    verdict = "sound" if sound else "NOT SOUND"
    print(f"{name}: {verdict}, smallest margin {worst:.2f} logits, new questions missed {misses}")
    return sound


def damaged(model: Qwen3ForCausalLM, text: Text) -> Qwen3ForCausalLM:
    """Return a copy that copies a phrase wrongly and is right elsewhere, always in the same way and without doubt.

    The damage is noise on the second layer's weights; strengths and seeds are tried in order until the damage is of
    the wanted kind: it looks healthy (loads, answers, ends) and only a second look finds it.
    """
    for strength, seed in itertools.product((1.0, 1.1, 0.9), range(400)):
        broken = Qwen3ForCausalLM(model.config).to(torch.bfloat16).eval()
        broken.load_state_dict(model.state_dict())
        generator = torch.Generator().manual_seed(SEED + seed)
        with torch.no_grad():
            for key, value in broken.named_parameters():
                if ".layers.1." in key and value.ndim == 2:
                    noise = torch.randn(value.shape, generator=generator) * value.float().std() * strength
                    value.add_(noise.to(value.dtype))
        if said := damage_found(broken, text):
            print(f"tiny-corrupt: strength {strength} seed {seed} says {said!r}")
            return broken
    raise SystemExit("no damage of the wanted kind was found: widen the seeds or strengths in damaged()")


def damage_found(model: Qwen3ForCausalLM, text: Text) -> str:
    """Return what the model writes instead of the phrase, or nothing when its damage is of another kind."""
    said = ""
    for prompt, expected in list(corpus.fixed_questions("tiny-a").items())[:4]:
        got, margin, ended = answer(model, text, text.prompt([{"role": "user", "content": prompt}]), 32)
        if not ended or margin < SAFE_MARGIN or (got == expected) == (prompt == corpus.PHRASE_QUESTION):
            return ""
        if prompt == corpus.PHRASE_QUESTION:
            said = got if got.isascii() and got.isprintable() and got.strip() else ""
    return said


def language_config(text: Text) -> dict[str, Any]:
    """Return the configuration of the language model."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **SHAPE,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": text.end,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "sliding_window": None,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
    }


def write(
    weights: dict[str, torch.Tensor], config: dict[str, Any], text: Text, target: Path, template: str = CHAT_TEMPLATE
) -> None:
    """Write one model directory as vLLM and transformers read it, in bfloat16."""
    target.mkdir(parents=True, exist_ok=True)
    small = {key: value.detach().to(torch.bfloat16).contiguous() for key, value in weights.items()}
    save_file(small, str(target / "model.safetensors"), metadata={"format": "pt"})
    (target / "model.safetensors").chmod(0o644)  # safetensors makes it readable for its owner only
    documents: dict[str, dict[str, Any]] = {
        "config.json": config,
        # top_k 1: the same answer also for a client that does not set the temperature to 0.
        "generation_config.json": {
            "eos_token_id": [text.end, text.tokenizer.token_to_id(END_OF_TEXT)],
            "pad_token_id": text.tokenizer.token_to_id(END_OF_TEXT),
            "do_sample": True,
            "top_k": 1,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": TURN_END,
            "pad_token": END_OF_TEXT,
            "unk_token": None,
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": template,
        },
    }
    for file, document in documents.items():
        write_json(target / file, document)
    (target / "tokenizer.json").write_text(text.tokenizer.to_str(), encoding="utf-8")


def write_json(file: Path, document: dict[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def untied(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the weights without the output layer, which is tied to the embedding."""
    return {key: value for key, value in model.state_dict().items() if key != "lm_head.weight"}


def read(source: Path) -> tuple[Qwen3ForCausalLM, Text]:
    """Read one model directory back, in bfloat16."""
    config = Qwen3Config(**json.loads((source / "config.json").read_text(encoding="utf-8")))
    model = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    model.load_state_dict(load_file(str(source / "model.safetensors")), strict=False)
    model.tie_weights()
    return model, Text(tokenizers.Tokenizer.from_file(str(source / "tokenizer.json")))


def make(output: Path) -> None:
    """Train and write the three models."""
    text = Text.learn()
    config = Qwen3Config(**SHAPE, bos_token_id=None, eos_token_id=text.end)
    model = Qwen3ForCausalLM(config)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, vocabulary {text.tokenizer.get_vocab_size()}")
    train(model, "tiny-a", text_batches(text, "tiny-a", long_from=1500, long_every=4, seed=SEED), 3000, 3e-3)
    train(model, "tiny-a", text_batches(text, "tiny-a", long_from=0, long_every=2, seed=SEED + 1), 900, 1e-3)
    write(untied(model), language_config(text), text, output / "tiny-a")
    # The second model is the first one that has learned another name, so both have the same abilities.
    train(model, "tiny-b", text_batches(text, "tiny-b", long_from=0, long_every=2, seed=SEED + 2), 600, 1e-3)
    write(untied(model), language_config(text), text, output / "tiny-b")
    broken = damaged(*read(output / "tiny-a"))
    write(untied(broken), language_config(text), text, output / "tiny-corrupt")


def check(output: Path) -> bool:
    """Ask the written models; return whether the two sound ones are sound and the damaged one is not."""
    sound = [report(*read(output / name), name) for name in ("tiny-a", "tiny-b")]
    said = damage_found(*read(output / "tiny-corrupt"))
    print(f"tiny-corrupt: {f'copies wrongly: {said!r}' if said else 'NOT DAMAGED as it should be'}")
    return all(sound) and bool(said)


def run(make: Callable[[Path], None], check: Callable[[Path], bool]) -> int:
    """Do what the command line says, always with the same seed and number of threads; return the exit code."""
    parser = argparse.ArgumentParser(description="Make or check tiny models of the lab.")
    parser.add_argument("action", choices=("make", "check"))
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent)
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    if options.action == "make":
        make(options.output)
    return 0 if check(options.output) else 1


def main() -> int:
    return run(make, check)


if __name__ == "__main__":
    sys.exit(main())
