# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a Compose file or a configuration of llama-swap as they are written: every scalar is text or nothing."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_MERGE, _NULL = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:null"
_VARIABLE = re.compile(r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-+?])(?P<word>[^{}$]*))?\})")
_MACRO = re.compile(r"\$\{([A-Za-z0-9_.-]+)\}")
_ENDS = re.compile(r"[;&|\n()<>]+")


class Unusable(Exception):
    """The file or the request cannot be used: says what is wrong, where, and what to do next."""


@functools.cache
def _loader() -> Any:
    # Imported on use, so that the rest of this file works without PyYAML.
    import yaml

    class TextLoader(yaml.SafeLoader):
        """A loader that leaves words as they are, "on" and 0.90 too, and refuses a key given twice."""

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            seen: set[str] = set()
            for key, _value in node.value:
                if key.tag != _MERGE and key.value in seen:
                    raise Unusable(f'line {key.start_mark.line + 1}: the key "{key.value}" is given twice')
                seen.add(key.value)
            return node

    TextLoader.yaml_implicit_resolvers = {
        first: [one for one in ways if one[0] in (_MERGE, _NULL)]
        for first, ways in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return TextLoader


def load(text: str) -> dict[str, Any]:
    """Return the mapping in a text; raise :class:`Unusable`."""
    import yaml

    try:
        found = yaml.load(text, Loader=_loader())
    except yaml.YAMLError as error:
        raise Unusable(f"is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise Unusable("is no YAML mapping")
    return found


def join(path: str, key: Any) -> str:
    """Return the path of an entry: ``a.b`` in a mapping, ``a[0]`` in a list."""
    return f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else str(key)


def leaves(node: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each value that holds no other one."""
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    found = [leaf for key, item in items for leaf in leaves(item, join(path, key))]
    yield from found or [path]


def mapped(node: Any, change: Callable[[str], str]) -> Any:
    """Return a document with each text in it changed."""
    if isinstance(node, Mapping):
        return {key: mapped(item, change) for key, item in node.items()}
    return [mapped(item, change) for item in node] if isinstance(node, list) else change(node) if node else node


def environment_of(text: str) -> dict[str, str]:
    """Return the variables of a file like Compose's ``.env``."""
    lines = (line.strip().removeprefix("export ") for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    found = {}
    for name, _equals, value in pairs:
        try:
            found[name.strip()] = (shlex.split(value, comments=True) or [""])[0]
        except ValueError as error:
            raise Unusable(f"in .env, the value of {name.strip()} cannot be read ({error})") from error
    return found


class ComposeVariables:
    """The variables that Compose replaces in a file. ``unset`` collects those that only the file's defaults give."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.known, self.unset = {"HOME": "~", **known}, dict[str, None]()

    def _value(self, found: re.Match[str]) -> str:
        name, how, word = found["bare"] or found["name"], found["how"] or "", found["word"] or ""
        value = self.known.get(name)
        given = bool(value) if how.startswith(":") else value is not None
        if not given:
            self.unset[name] = None
        if how.endswith("+"):
            return word if given else ""
        return (value or "") if given else word if how.endswith("-") else ""

    def replace(self, text: str) -> str:
        """Return a text with its variables replaced, those in defaults too."""
        parts = text.split("$$")
        for index, part in enumerate(parts):
            while (done := _VARIABLE.sub(self._value, part)) != part:
                part = done
            parts[index] = part
        return "$".join(parts)


def expand(text: str, macros: Mapping[str, str]) -> str:
    """Return a text with llama-swap's macros replaced; one that nothing defines stays."""
    for _depth in range(9):  # a macro may use those before it
        done = _MACRO.sub(lambda found: str(macros.get(found[1], found[0])), text)
        if done == text:
            break
        text = done
    return text


def uncommented(text: str) -> str:
    """Return a command line without lines that are comments, as one line where it goes on after a backslash."""
    return re.sub(r"\\\r?\n", " ", re.sub(r"(?m)^\s*#.*$", "", text))


def split(text: str, *, shell: bool = False) -> list[list[str]]:
    """Return the words of a command line; with ``shell``, those of each command of a script.

    :raises Unusable: a quotation mark has no second one.
    """
    lexer = shlex.shlex(uncommented(text), posix=True, punctuation_chars=";&|\n()<>" if shell else False)
    lexer.commenters, lexer.whitespace_split = "", True
    if shell:
        lexer.whitespace = " \t\r"
    try:
        words = list(lexer)
    except ValueError as error:
        raise Unusable(f"a command cannot be split into words ({error}): {text.strip()[:60]}…") from error
    commands: list[list[str]] = [[]]
    for word in words:
        if shell and _ENDS.fullmatch(word):
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]
