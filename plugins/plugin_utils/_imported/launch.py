# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The start of an engine in a file: its command line, variables, volumes and image, each with its key."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .._catalogue.reading import SHIPPED, read_yaml
from . import reading
from .reading import Unusable, join

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHELLS = ("sh", "bash", "dash", "zsh")
_SERVERS = {"vllm.entrypoints.openai.api_server": "vllm", "vllm.entrypoints.cli.main": "vllm"}
RESOLVE = "write what `docker compose config` prints into a file, and give that"


class Word(NamedTuple):
    """One word of a command line, and the key of the file that it stands at."""

    key: str
    text: str


@dataclass(frozen=True)
class Fate:
    """The fate of a part of a file.

    :param keys: the paths of the values that it is about; none for what no value says.
    :param label: how it is shown: a path, with an option of a command line behind it.
    :param words: the words of a command line that it is about.
    """

    keys: tuple[str, ...]
    label: str
    became: str
    words: tuple[str, ...] = ()


@dataclass
class Launch:
    """One start of an engine, as the file says it."""

    name: str
    engine: str = ""
    contained: bool = True  # whether paths are those of a container
    image: str = ""
    image_key: str = ""
    arguments: list[Word] = field(default_factory=list)
    environment: list[tuple[str, str, str | None]] = field(default_factory=list)  # key, name, value
    volumes: list[tuple[tuple[str, ...], str, str]] = field(default_factory=list)  # keys, source, target
    fates: list[Fate] = field(default_factory=list)
    served: list[Word] = field(default_factory=list)  # names of the model, besides those of the command line
    title: str = ""
    purpose: str = ""
    active: int | None = None  # requests at once
    reasons: Mapping[str, str] = field(default_factory=dict)  # what becomes of other keys, by the beginning of a path


@functools.cache
def known() -> dict[str, Any]:
    """Return what roles/profiles/files/imports.yml says of options, variables and keys."""
    return dict(read_yaml(SHIPPED / "imports.yml"))


def _reasons(of: str, path: str = "") -> dict[str, str]:
    return {join(path, key): became for became, keys in known()["keys"][of].items() for key in keys}


def same_as(key: str) -> str:
    """Return what becomes of a key of a service."""
    return _reasons("service")[key]


def compose(document: Mapping[str, Any], name: str) -> Launch:
    """Return how a service of a Compose file starts an engine; without a name, the only one that does.

    :raises Unusable: no service does, several do, or the file leaves to other files what the service is.
    """
    services = document.get("services") or {}
    if not isinstance(services, Mapping) or not services:
        raise Unusable("has no services")
    if "include" in document:
        raise Unusable(f"include: other files are not read; {RESOLVE}")
    found = _chosen(services, name, "service", lambda key: _service(key, f"services.{key}", services[key]))
    found.reasons = {
        **{f"services.{key}": "is another service of the file" for key in services if key != found.name},
        **_reasons("service", f"services.{found.name}"),
        **{key: "is read where the file merges it" for key in document if key.startswith("x-")},
        **_reasons("compose"),
    }
    return found


def llama_swap(document: Mapping[str, Any], name: str) -> Launch:
    """Return how a model of a configuration of llama-swap is started; without a name, the only one."""
    models = document.get("models") or {}
    if not isinstance(models, Mapping) or not models:
        raise Unusable("has no models")
    found = _chosen(models, name, "model", lambda key: _model(key, models[key], document.get("macros") or {}))
    found.reasons = {
        **{f"models.{key}": "is another model of the file" for key in models if key != found.name},
        **_reasons("model", f"models.{found.name}"),
        **_reasons("llama_swap"),
    }
    return found


def _chosen(entries: Mapping[str, Any], name: str, what: str, start: Callable[[str], Launch]) -> Launch:
    for key, entry in entries.items():
        if not isinstance(entry, Mapping):
            raise Unusable(f"the {what} {key} is no mapping")
    if name:
        if name not in entries:
            raise Unusable(f'has no {what} "{name}"; it has {", ".join(entries)}')
        launch = start(name)
        if not launch.engine:
            raise Unusable(f'the {what} "{name}" starts neither vLLM nor llama-server')
        return launch
    starting = [launch for key in entries if (launch := start(key)).engine]
    if len(starting) != 1:
        names = ", ".join(launch.name for launch in starting)
        told = f"several start an engine: name one of {names}, -e {what}={starting[0].name}" if starting else ""
        raise Unusable(told or f"no {what} of it starts vLLM or llama-server; it has {', '.join(entries)}")
    return starting[0]


def _service(name: str, path: str, service: Mapping[str, Any]) -> Launch:
    if "extends" in service:
        raise Unusable(f"{path}.extends: other services are not read; {RESOLVE}")
    launch = Launch(name, image=str(service.get("image") or ""), image_key=f"{path}.image")
    words = [word for key in ("entrypoint", "command") for word in _words(join(path, key), service.get(key))]
    launch.environment = list(_pairs(f"{path}.environment", service.get("environment")))
    launch.volumes = list(_volumes(f"{path}.volumes", service.get("volumes")))
    _start(launch, words)
    return launch


def _words(path: str, value: Any) -> list[Word]:
    if isinstance(value, list):
        return [Word(f"{path}[{index}]", str(word or "")) for index, word in enumerate(value)]
    return [Word(path, word) for line in reading.split(str(value or "")) for word in line]


def _pairs(path: str, value: Any) -> Iterator[tuple[str, str, str | None]]:
    if isinstance(value, Mapping):
        yield from ((join(path, name), name, None if text is None else str(text)) for name, text in value.items())
        return
    for index, entry in enumerate(_listed(path, value)):
        name, equals, text = str(entry).partition("=")
        yield f"{path}[{index}]", name, text if equals else None


def _volumes(path: str, value: Any) -> Iterator[tuple[tuple[str, ...], str, str]]:
    for index, entry in enumerate(_listed(path, value)):
        key = f"{path}[{index}]"
        if isinstance(entry, Mapping):
            yield tuple(reading.leaves(entry, key)), str(entry.get("source") or ""), str(entry.get("target") or "")
            continue
        parts = str(entry).split(":")
        yield (key,), parts[0] if len(parts) > 1 else "", posixpath.normpath(parts[min(1, len(parts) - 1)])


def _listed(path: str, value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise Unusable(f"{path} is no list")
    return value or []


def _model(name: str, model: Mapping[str, Any], macros: Mapping[str, Any]) -> Launch:
    path = f"models.{name}"
    words_of = {"PORT": "0", "MODEL_ID": name, "env.HOME": "~", **macros, **(model.get("macros") or {})}
    launch = Launch(name, contained=False, title=str(model.get("name") or ""), served=[Word("", name)])
    lines = reading.split(reading.expand(reading.uncommented(str(model.get("cmd") or "")), words_of))
    words = [Word(f"{path}.cmd", word) for line in lines for word in line]
    env = reading.mapped(model.get("env"), lambda text: reading.expand(text, words_of))
    launch.environment = list(_pairs(f"{path}.env", env))
    for index, alias in enumerate(_listed(f"{path}.aliases", model.get("aliases"))):
        key = f"{path}.aliases[{index}]"
        launch.served.append(Word(key, str(alias.get("id") if isinstance(alias, Mapping) else alias)))
        launch.fates += [Fate((leaf,), key, "frontdoor.model_aliases") for leaf in reading.leaves(alias, key)]
    launch.purpose = str(model.get("description") or "")
    for key, became in (("name", "title"), ("description", "purpose")):
        if key in model:
            launch.fates.append(Fate((f"{path}.{key}",), f"{path}.{key}", became))
    limit = str(model.get("concurrencyLimit") or "0")
    if limit.isdecimal() and int(limit):
        launch.active = int(limit)
        key = f"{path}.concurrencyLimit"
        launch.fates.append(Fate((key,), key, "frontdoor.max_active_generations"))
    if len(words) > 1 and posixpath.basename(words[0].text) in ("docker", "podman") and words[1].text == "run":
        words = _run(launch, words)
    _start(launch, words)
    return launch


def _run(launch: Launch, words: list[Word]) -> list[Word]:
    """Read `docker run`: take image, variables and volumes from it, and return the command line of the container."""
    launch.contained = True
    launch.fates.append(said(words[:2], same_as("restart")))
    rest, entry = words[2:], list[Word]()
    while rest and rest[0].text.startswith("-"):
        option, equals, value = rest[0].text.partition("=")
        name = option.lstrip("-")
        bare = name in known()["bare"] or (not option.startswith("--") and set(name) <= set("dit"))
        taken = rest[:1] if equals or bare else rest[:2]
        rest, value = rest[len(taken) :], value if equals else taken[-1].text
        if name in ("v", "volume"):
            launch.volumes += [((), source, target) for _keys, source, target in _volumes("", [value])]
            launch.fates.append(said(taken, "says where files stand in the container"))
        elif name in ("e", "env"):
            launch.environment += [(taken[0].key, key, text) for _path, key, text in _pairs("", [value])]
            launch.fates.append(said(taken, f"is the variable {value.partition('=')[0]}, see there"))
        elif name == "entrypoint":
            entry = [Word(taken[-1].key, value)]
            launch.fates.append(said(taken, "is the program"))
        else:
            launch.fates.append(
                said(taken, same_as("ports" if name in ("p", "publish", "net", "network") else "devices"))
            )
    if rest:
        launch.image, launch.image_key = rest[0].text, rest[0].key
    return [*entry, *rest[1:]]


def said(words: Iterable[Word], became: str) -> Fate:
    """Return the fate of words of a command line. Of an option only its name is shown: its value may be a secret."""
    words = list(words)
    shown = words[0].text.partition("=")[0]
    keys = tuple(dict.fromkeys(word.key for word in words))
    label = keys[0] if keys[0].endswith(f".{shown}") else f"{keys[0]} {shown}"
    return Fate(keys, label, became, tuple(word.text for word in words))


def _start(launch: Launch, words: list[Word]) -> None:
    """Find the engine in a command line, and its arguments; without one, an image may start it by itself."""
    words = _unwrapped(launch, words)
    for index, word in enumerate(words):
        program, after = posixpath.basename(word.text), words[index + 1 : index + 2]
        following = after[0].text if after else ""
        if program == "vllm" and following in ("serve", ""):
            engine, first = "vllm", index + 2
        elif word.text == "-m" and following in _SERVERS:
            engine, first = _SERVERS[following], index + 2
            first += first < len(words) and words[first].text == "serve"
        elif program in ("llama-server", "llama-server.exe"):
            engine, first = "llama-server", index + 1
        else:
            continue
        launch.engine, launch.arguments = engine, words[first:]
        begun = index - 1 if word.text == "-m" and index else index
        _before(launch, words[:begun])
        launch.fates.append(said(words[begun:first], f"engine.kind: {engine}"))
        return
    image = launch.image.partition("@")[0].lower()
    launch.engine = "llama-server" if "llama.cpp" in image or "llamacpp" in image else "vllm" if "vllm" in image else ""
    if launch.engine and words and not words[0].text.startswith("-") and "/" not in words[0].text:
        launch.engine = ""  # it starts something else, such as a shell
    elif launch.engine == "llama-server" and words and words[0].text in ("--server", "-s"):
        launch.fates.append(said(words[:1], "engine.kind: llama-server"))
        words = words[1:]
    launch.arguments = words


def _before(launch: Launch, words: list[Word]) -> None:
    for word in words:
        if assigned := _ASSIGNED.fullmatch(word.text):
            launch.environment.append((word.key, assigned[1], assigned[2]))
            launch.fates.append(said([word], f"is the variable {assigned[1]}, see there"))
        else:
            launch.fates.append(said([word], "not carried over: the unit starts the engine itself"))


def _unwrapped(launch: Launch, words: list[Word]) -> list[Word]:
    """Return the command that a shell starts, in place of the shell and its script."""
    shell = next((index for index, word in enumerate(words) if posixpath.basename(word.text) in _SHELLS), None)
    if shell is None:
        alone = len(words) == 1 and re.match(r"\S+\s+\S", words[0].text)
        # Somebody wrote a whole command line as the only entry of a list.
        return [Word(words[0].key, text) for line in reading.split(words[0].text) for text in line] if alone else words
    for index in range(shell + 1, len(words) - 1):
        if re.fullmatch(r"-[a-z]*c", words[index].text):
            break
    else:
        return words
    script = words[index + 1]
    commands = reading.split(script.text, shell=True)
    serving = [command for command in commands if any(_serves(text, command) for text in command)]
    if not serving:
        return words
    launch.fates.append(
        said([*words[shell : index + 1], *words[index + 2 :]], "not carried over: no shell starts an engine here")
    )
    for command in commands:
        if command[0] == "export" and len(command) > 1:
            launch.fates.append(said([Word(script.key, command[0])], "gives the engine variables, see there"))
            _before(launch, [Word(script.key, text) for text in command[1:]])
        elif command is not serving[-1]:
            became = "not carried over: nothing runs before an engine; stacks install, engine.mounts patches images"
            launch.fates.append(said([Word(script.key, text) for text in command], became))
    return [*words[:shell], *(Word(script.key, text) for text in serving[-1] if text != "exec")]


def _serves(text: str, command: list[str]) -> bool:
    return (
        posixpath.basename(text) == "llama-server"
        or text in _SERVERS
        or (posixpath.basename(text) == "vllm" and "serve" in command)
    )
