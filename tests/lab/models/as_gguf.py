# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write one of the lab's text models as a GGUF file, for llama.cpp.

Needs numpy and gguf, which are both in the package index.

    python as_gguf.py tiny-a tiny-a.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy

HERE = Path(__file__).resolve().parent
# What the tokenizer splits text by before it joins bytes: the pattern of GPT-2, which "ByteLevel" stands for.
SPLITS_LIKE = "gpt-2"


def tensors(file: Path) -> dict[str, numpy.ndarray[Any, Any]]:
    """Return the tensors of a safetensors file of bfloat16, as its bits."""
    with file.open("rb") as stream:
        table = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        data = stream.read()
    found = {}
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        found[name] = numpy.frombuffer(data[begin:end], "<u2").reshape(entry["shape"])
    return found


def write(model: Path, target: Path) -> None:
    """Write the model of a folder: a Qwen3 with a byte-level tokenizer."""
    config = json.loads((model / "config.json").read_text())
    words = json.loads((model / "tokenizer.json").read_text())
    template = json.loads((model / "tokenizer_config.json").read_text())["chat_template"]
    out = gguf.GGUFWriter(target, "qwen3")
    out.add_name(model.name)
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(config["head_dim"])
    out.add_value_length(config["head_dim"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    special = {entry["id"] for entry in words["added_tokens"]}
    vocabulary = sorted(words["model"]["vocab"].items(), key=lambda item: item[1])
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(SPLITS_LIKE)
    out.add_token_list([word for word, _number in vocabulary])
    kinds = [gguf.TokenType.CONTROL if number in special else gguf.TokenType.NORMAL for _word, number in vocabulary]
    out.add_token_types(kinds)
    out.add_token_merges([" ".join(pair) for pair in words["model"]["merges"]])
    out.add_eos_token_id(config["eos_token_id"])
    out.add_pad_token_id(0)
    out.add_add_bos_token(False)
    out.add_chat_template(template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for name, values in tensors(model / "model.safetensors").items():
        known = names.get_name(name, try_suffixes=(".weight",))
        if known is None:
            raise SystemExit(f"{name}: GGUF has no name for this tensor")
        if values.ndim == 1:
            # llama.cpp computes with vectors, such as those of norms, in full precision alone.
            out.add_tensor(known, (values.astype("<u4") << 16).view("<f4"))
        else:
            out.add_tensor(known, values.view("u1"), raw_dtype=gguf.GGMLQuantizationType.BF16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    write(HERE / sys.argv[1], Path(sys.argv[2]))
