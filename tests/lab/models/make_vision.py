# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the lab's tiny model with eyes: ``tiny-a`` behind a one-layer CLIP tower, taught the names of six colours.

    python make_vision.py make [--output DIR]     train and write it (minutes on one core); tiny-a must be there
    python make_vision.py check [--output DIR]    ask the written model everything; exit 1 when one answer is off

It is a LLaVA, the architecture with the fewest parts. vLLM's own implementation needs torchvision, which has no build
for processors only; vLLM serves it with that of transformers (``--model-impl transformers``).
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import load_file
from transformers import LlavaConfig, LlavaForConditionalGeneration

import corpus
import make_models
from make_models import SEED, Batches, Text

NAME = "tiny-vision"
IMAGE = "<image>"
SIDE, PATCH = 32, 8  # pixels
PATCHES = (SIDE // PATCH) ** 2
TOWER = {
    "model_type": "clip_vision_model",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
    "projection_dim": 64,
    "hidden_act": "quick_gelu",
}
# The library's version 5 flattened the tower's names; files have the older ones, which every version reads.
HERE, THERE = "model.vision_tower.", "model.vision_tower.vision_model."
# With parts of a message for the engine's own template: pictures before the text, wherever the client put them.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>\\n' }}{% endif %}{% endfor %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ROWS = 24


def configuration(text: Text) -> dict[str, Any]:
    """Return the configuration of the whole model."""
    vocabulary = text.tokenizer.get_vocab_size()
    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "vision_config": TOWER,
        "text_config": {**make_models.language_config(text), "vocab_size": vocabulary},
        "image_token_index": text.tokenizer.token_to_id(IMAGE),
        "image_seq_length": PATCHES,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "projector_hidden_act": "gelu",
        "tie_word_embeddings": True,
        "eos_token_id": text.end,
        "torch_dtype": "bfloat16",
    }


def built(text: Text) -> LlavaForConditionalGeneration:
    return LlavaForConditionalGeneration(LlavaConfig(**configuration(text)))


def grown(source: Path) -> tuple[LlavaForConditionalGeneration, Text]:
    """Return an untrained model with the language model of ``source`` and a token for pictures."""
    language, text = make_models.read(source)
    text.tokenizer.add_special_tokens([tokenizers.AddedToken(IMAGE, special=True, normalized=False)])
    model = built(text)
    with torch.no_grad():
        for key, value in language.model.state_dict().items():
            # The embedding has one row more here, which is never read: a picture's patches stand in its place.
            model.get_submodule("model.language_model").state_dict()[key][: len(value)].copy_(value.float())
    model.tie_weights()
    return model, text


def pixels(colour: tuple[int, int, int], rng: random.Random | None = None) -> torch.Tensor:
    """Return a picture of one colour as the engine's processor makes it, grainy when ``rng`` is given."""
    picture = (torch.tensor(colour) / 127.5 - 1)[:, None, None].expand(3, SIDE, SIDE).clone()
    if rng is not None:
        grain = torch.randn(picture.shape, generator=torch.Generator().manual_seed(rng.getrandbits(32)))
        picture += grain * rng.choice((0.0, 0.02, 0.1))
    return picture.clamp(-1, 1)


def seen(question: str) -> str:
    """Return what the user's message becomes when a picture is sent with it."""
    return f"{IMAGE * PATCHES}\n{question}"


def picture_batch(text: Text, rng: random.Random) -> dict[str, torch.Tensor]:
    """Return a batch of questions with a picture, some of them about something else, and some without one."""
    examples, pictures = [], []
    for row in range(ROWS):
        colour, shade = corpus.shade(rng)
        question, expected = corpus.COLOUR_QUESTION, colour
        if row % 4 == 3:
            question, expected = corpus.exchange(rng, NAME)
            expected = expected[:60] if len(expected) > 60 else expected
        content, expected = (question, corpus.NO_PICTURE) if row % 8 == 0 else (seen(question), expected)
        if row % 8:
            pictures.append(pixels(shade, rng))
        examples.append(
            text.example([{"role": "user", "content": content}, {"role": "assistant", "content": expected}])
        )
    ids, labels = make_models.batch_of(examples)
    return {"input_ids": ids, "labels": labels, "pixel_values": torch.stack(pictures)}


def batches(text: Text, seed: int) -> Batches:
    """Return lessons that keep what ``tiny-a`` knows, in turn with lessons about pictures."""
    rng = random.Random(seed)
    words = make_models.text_batches(text, NAME, long_from=0, long_every=4, seed=seed + 1)
    return lambda step: picture_batch(text, rng) if step % 2 else words(step)


def write(model: LlavaForConditionalGeneration, text: Text, target: Path) -> None:
    weights = {key.replace(HERE, THERE): value for key, value in make_models.untied(model).items()}
    make_models.write(weights, configuration(text), text, target, CHAT_TEMPLATE)
    half = [0.5, 0.5, 0.5]
    processor = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"height": SIDE, "width": SIDE},
        "crop_size": {"height": SIDE, "width": SIDE},
        "image_mean": half,
        "image_std": half,
    }
    make_models.write_json(target / "preprocessor_config.json", processor)
    whole = {
        "processor_class": "LlavaProcessor",
        "patch_size": PATCH,
        "image_token": IMAGE,
        "num_additional_image_tokens": 1,  # the tower's class token, which "default" leaves out again
        "vision_feature_select_strategy": "default",
    }
    make_models.write_json(target / "processor_config.json", whole)


def read(source: Path) -> tuple[LlavaForConditionalGeneration, Text]:
    """Read the model directory back, in bfloat16."""
    text = Text(tokenizers.Tokenizer.from_file(str(source / "tokenizer.json")))
    model = built(text).to(torch.bfloat16).eval()
    weights = load_file(str(source / "model.safetensors"))
    model.load_state_dict({key.replace(THERE, HERE): value for key, value in weights.items()}, strict=False)
    model.tie_weights()
    return model, text


def sees(model: LlavaForConditionalGeneration, text: Text) -> bool:
    """Print how the model names colours; return whether it names all without doubt, and says when there is none."""
    rng, worst, wrong = random.Random(SEED + 13), float("inf"), 0
    plain = {"Red": (255, 0, 0), "Green": (0, 160, 0), "Blue": (0, 0, 255), "White": (255,) * 3, "Black": (0,) * 3}
    asked = [*plain.items(), *(corpus.shade(rng) for _ in range(100))]
    prompt = text.prompt([{"role": "user", "content": seen(corpus.COLOUR_QUESTION)}])
    for expected, colour in asked:
        picture = pixels(colour)[None].to(torch.bfloat16)
        got, margin, ended = make_models.answer(model, text, prompt, 8, pixel_values=picture)
        worst = min(worst, margin)
        if got != expected or not ended:
            wrong += 1
            print(f"{NAME}: a picture of {colour} is {got!r}, not {expected!r} (margin {margin:.2f})")
    blind = text.prompt([{"role": "user", "content": corpus.COLOUR_QUESTION}])
    got, margin, _ended = make_models.answer(model, text, blind, 16)
    print(
        f"{NAME}: {len(asked)} pictures, {wrong} wrong, smallest margin {worst:.2f} logits; "
        f"without one {got!r}, {margin:.2f}"
    )
    return not wrong and got == corpus.NO_PICTURE and min(worst, margin) >= make_models.SAFE_MARGIN


def begin(output: Path) -> None:
    """Teach a copy of ``tiny-a`` to see, and write it."""
    model, text = grown(output / "tiny-a")
    print(f"{sum(value.numel() for value in model.parameters())} parameters")
    make_models.train(model, NAME, batches(text, SEED + 3), 900, 1e-3)
    write(model, text, output / NAME)


def finish(output: Path) -> None:
    """Go over it once more in smaller steps, from what was written."""
    model, text = read(output / NAME)
    make_models.train(model.float(), NAME, batches(text, SEED + 5), 400, 6e-4)
    write(model, text, output / NAME)


def make(output: Path) -> None:
    begin(output)
    finish(output)


def check(output: Path) -> bool:
    model, text = read(output / NAME)
    return all([sees(model, text), make_models.report(model, text, NAME)])


if __name__ == "__main__":
    sys.exit(make_models.run(make, check))
