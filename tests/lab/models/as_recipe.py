# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`tiny-recipe` in the place of the model that a profile names: what it is told by its chat template. Plain Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FORMATS = ("hermes", "coder")
# How vLLM's parsers of tool calls want them.
_OF_PARSER = {"hermes": "hermes", "qwen3_coder": "coder", "qwen3_xml": "coder"}
# `tool_format` and `thinks` are set in front of it.
_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\\nTools: ' + tool_format + '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>\\n' }}{% endif %}{% endfor %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if thinks %}{{ '<think>\\n' if enable_thinking is not defined or enable_thinking "
    "else '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)


def template(tool_format: str, thinks: bool) -> str:
    """The chat template of a model that calls tools in this format, and thinks or does not."""
    return f"{{% set tool_format = '{tool_format}' %}}{{% set thinks = {str(thinks).lower()} %}}{_TEMPLATE}"


def recipe_model(profile: Mapping[str, Any], folder: Path) -> None:
    """Make `folder` the tiny model as this profile's engine expects its own."""
    settings = profile["engine"]["settings"]
    parser = settings.get("tool_call_parser")
    if parser is not None and parser not in _OF_PARSER:
        raise ValueError(f"{profile['name']}: tiny-recipe has not learned to call tools as {parser} reads it")
    shutil.copytree(HERE / "tiny-recipe", folder)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["chat_template"] = template(_OF_PARSER.get(parser, FORMATS[0]), bool(settings.get("reasoning_parser")))
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
