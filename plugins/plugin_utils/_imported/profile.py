# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a profile of one start of an engine. What the catalogue refuses is left out, in the catalogue's own words."""

from __future__ import annotations

import copy
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of

from .._catalogue import engines, rules, secrets
from .._catalogue.catalogue import faults_of
from .._catalogue.checking import value_at, workers_of
from .._catalogue.images import known_as
from .._catalogue.merging import ROOT, ProfileSource, merge_chain
from .._catalogue.reading import SHIPPED, read_yaml, schema
from .._catalogue.schema import faults
from . import launch as starts
from . import reading
from .launch import Fate, Launch, Word, said
from .reading import Unusable

# Variables that keys of a profile replace: the key, and its values for those of the variable.
_KEYS = {
    "CCL_TOPO_P2P_ACCESS": ("memory", {"0": "usm", "1": "p2p"}),
    "CCL_ATL_TRANSPORT": ("transport", {}),
    "CCL_ZE_IPC_EXCHANGE": ("ipc_exchange", {}),
}
# Options that are other keys of a profile, and whether these take all values.
_ELSEWHERE = {
    "hf_file": ("model.file", False),
    "revision": ("model.revision", False),
    "allowed_media_domains": ("engine.allowed_media_domains", True),
}
_MASKS = ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "GGML_VK_VISIBLE_DEVICES")
_OTHER_CARDS = ("CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "HSA_")
_CACHES = ("HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE", "VLLM_CACHE_ROOT")
_TASKS = {"embedding": "embed", "reward": "score", "auto": "generate", "pooling": "embed"}
_STACKS = {"vllm": "xpu", "llama-server": "llama-sycl"}
_TRUE, _FALSE = ("true", "1", "on", "enabled", "yes"), ("false", "0", "off", "disabled", "no")
_SUFFIXES = {"k": 1000, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_PAIRS = re.compile(r"\w+=\w+(,\w+=\w+)*")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_HIDDEN = re.compile(r"/(home|root|tmp|var/tmp|run/user)(/|$)")
_LENGTH = 8192


class Importer:
    """Makes a profile of a start. ``profile`` is it so far, ``fates`` what became of the file."""

    def __init__(self, name: str, launch: Launch, stacks: Mapping[str, Mapping[str, Any]]) -> None:
        self.launch, self.stacks, self.kind = launch, stacks, kind_of(launch.engine)
        self.fates = list(launch.fates)
        self.behind: dict[str, int] = {}  # where a value of the profile stands: the fate of what it was made of
        self.stack = self._stack()
        self.manifest = stacks[self.stack]
        known = engines.table_of(self.manifest)
        newest = engines.table(self.kind.name, engines.versions(self.kind.name)[-1])
        self.recorded, self.options = known is not None, (known or newest or {})["options"]
        self.typed = schema(f"{self.kind.name}-settings.schema.json")["properties"]
        self.profile: dict[str, Any] = {
            "name": name,
            "title": launch.title or name,
            "status": "experiment",
            "stack": self.stack,
            "cards": 1,
            "model": {},
            "engine": {"kind": self.kind.name, "settings": {}, "cache_key": name},
        }
        if launch.purpose:
            self.profile["purpose"] = launch.purpose
        self.devices: list[int] = []
        self.model = ""  # as the command line names it
        self.extra: list[tuple[list[str], int]] = []

    def run(self) -> None:
        """Make the whole profile.

        :raises Unusable: there is no model, or the catalogue refuses what no value of the file can be taken back for.
        """
        options = {key or "model": values for _words, key, values in self._read(self.launch.arguments) if values}
        self.model = (options.get("model") or [""])[0]
        variables = [entry for entry in self.launch.environment if not self._is_option(*entry)]
        for words, key, values in self._read(self.launch.arguments):
            self._option(words, key, values)
        for key, name, value in variables:
            self._variable(key, name, value)
        self._names()
        self._mounts()
        while wrong := next(faults(self.profile, schema("profile.schema.json")), None):
            self._take_back(*wrong)
        self._place()
        self._settle()

    # --- fates

    def _say(self, fate: Fate, *paths: str) -> int:
        self.fates.append(fate)
        self.behind.update(dict.fromkeys(paths, len(self.fates) - 1))
        return len(self.fates) - 1

    def _note(self, label: str, became: str, *paths: str) -> None:
        self._say(Fate((), label, became), *paths)

    def _set(self, path: str, value: Any, fate: Fate) -> None:
        if path in self.behind and value_at(self.profile, path) is not None:
            self._change(self.behind[path], "what stands behind it precedes it")
        _put(self.profile, path, value)
        self._say(fate, path)

    # --- stack

    def _stack(self) -> str:
        name, _at, digest = self.launch.image.partition("@")
        wanted = {name.removeprefix("docker.io/"), digest} - {""}
        for stack, manifest in self.stacks.items():
            names = {text.removeprefix("docker.io/") for text in known_as(manifest.get("image") or {})[:3]}
            own = (manifest.get("engine") or {}).get("kind", "vllm")
            if wanted & names and own == self.kind.name and manifest.get("installable"):
                self._image(f"stack: {stack}")
                return stack
        stack = "llama-vulkan" if self.kind.name == "llama-server" and "vulkan" in name else _STACKS[self.kind.name]
        self._image(f"no stack has it; stack: {stack} is taken, and docs/images.md says how to write one for an image")
        return stack

    def _image(self, became: str) -> None:
        if self.launch.image_key and self.launch.image:
            key, name = self.launch.image_key, self.launch.image
            whole = key.endswith(".image")
            self.fates.append(Fate((key,), key if whole else f"{key} {name}", became, () if whole else (name,)))

    # --- the command line

    def _is_option(self, key: str, name: str, value: str | None) -> bool:
        """Take a variable that stands for an option of llama-server, unless the command line gives the option."""
        if self.kind.name != "llama-server" or not name.startswith("LLAMA_ARG_") or value is None:
            return False
        short = name.removeprefix("LLAMA_ARG_")
        option = starts.known()["variables"].get(short, short.lower())
        off = option.startswith("no_") and option not in self.options
        option = option.removeprefix("no_") if off else option
        option = str(self.options.get(option, {}).get("same_as", option))
        given = {found for _words, found, _values in self._read(self.launch.arguments)}
        word = Word(key, name)
        if option not in self.options:
            release = self._release()
            self._say(said([word], f"not carried over: {release} has no option for it"))
        elif option in given:
            self._say(said([word], f"not carried over: --{option.replace('_', '-')} of the command line precedes it"))
        elif off or self.options[option]["form"] in ("flag", "switch"):
            on = (value.lower() in _TRUE) is not off
            self._option([word], option, [] if on else None)
        else:
            self._option([word], option, [value])
        return True

    def _release(self) -> str:
        return f"{self.kind.title} {(self.manifest.get('engine') or {}).get('version', '')} of the stack {self.stack}"

    def _read(self, words: Sequence[Word]) -> Iterator[tuple[list[Word], str, list[str] | None]]:
        """Yield the words of each option with its name and values, None for an option that is turned off."""
        index = 0
        while index < len(words):
            word, text = words[index], words[index].text
            index += 1
            if not _is_flag(text):
                yield [word], "", [text]
                continue
            flag, equals, value = text.partition("=")
            key, on = self._name(flag)
            option = self.options.get(key.partition(".")[0])
            taken, values = [word], [value] if equals else []
            form = option["form"] if option else "value"
            if form in ("flag", "switch") or not on:
                yield taken, key, values if on else None
                continue
            while not equals and index < len(words) and not _is_flag(words[index].text):
                if values and form != "values":
                    break
                taken.append(words[index])
                values.append(words[index].text)
                index += 1
            yield taken, key, values

    def _name(self, flag: str) -> tuple[str, bool]:
        """Return the option that a flag means, and False if it turns it off."""
        key = flag.lstrip("-").replace("-", "_")
        if not flag.startswith("--"):
            key = starts.known()["short"][self.kind.name].get(key, key)
        for name, on in ((key, True), (key.removeprefix("no_"), not key.startswith("no_"))):
            base = name.partition(".")[0]
            if base in self.options:
                return str(self.options[base].get("same_as", base)) + name[len(base) :], on
            # Like Python's argparse, vLLM takes the beginning of a name that only one option has.
            begun = [option for option in self.options if option.startswith(base)]
            if self.kind.name == "vllm" and flag.startswith("--") and len(begun) == 1:
                return begun[0] + name[len(base) :], on
        return key, True

    def _option(self, words: list[Word], key: str, values: list[str] | None) -> None:
        base, _dot, inner = key.partition(".")
        dashed, text = base.replace("_", "-"), values[0] if values else ""
        where = f"engine.settings.{base}"
        handler = getattr(self, f"_on_{base or 'model'}", None)
        place = secrets.place_of(base.upper(), " ".join(values or []))
        if place and dashed not in self.kind.owned_flags:
            self._say(said(words, f"not carried over: it is a secret, which belongs in {place}"))
        elif handler and text:
            handler(words, values)
        elif base in _ELSEWHERE and values:
            path, whole = _ELSEWHERE[base]
            self._set(path, values if whole else text, said(words, path))
        elif dashed in self.kind.owned_flags:
            self._say(said(words, f"belongs to the slot; use {self.kind.owned_flags[dashed]}"))
        elif base not in self.options and self.recorded:
            self._say(said(words, f"not carried over: {self._release()} has no {words[0].text.partition('=')[0]}"))
        elif not text and base in self.options and not self._needs_no_value(base, values):
            self._say(said(words, "not carried over: it has no value, which turns nothing on here"))
        elif base not in self.typed:
            flag = f"--{'no-' if values is None else ''}{dashed}"
            try:
                extra = [flag, *(self._located(value) for value in values or [])]
            except Unusable as error:
                self._say(said(words, f"not carried over: {error}"))
                return
            self.extra.append((extra, self._say(said(words, "engine.extra_args"))))
        else:
            try:
                value = _scalar(text) if inner else self._value(base, values)
                where = f"{where}.{inner}" if inner else where
                # The model that it names is placed like the model itself.
                value = value if base == "speculative_config" else self._located(value)
            except Unusable as error:
                self._say(said(words, f"not carried over: {error}"))
                return
            if self.options.get(base, {}).get("form") == "repeated":
                value = [*(value_at(self.profile, where) or []), *value]
                self.behind.pop(where, None)
            told = where if isinstance(value, (Mapping, list)) or "/" in str(value) else f"{where}: {value}"
            self._set(where, value, said(words, told))

    def _needs_no_value(self, key: str, values: list[str] | None) -> bool:
        option = self.options[key]
        return option["form"] in ("flag", "switch") or (values == [] and "on" in option.get("choices", []))

    def _value(self, key: str, values: list[str] | None) -> Any:
        """Return the value of a setting from the words of a command line."""
        option = self.options.get(key, {"form": "value"})
        kinds, text = self.typed[key].get("type", ["string"]), " ".join(values or [])
        choices = [*option.get("choices", []), *map(str, self.typed[key].get("enum", []))]
        if option["form"] in ("flag", "switch"):
            return values is not None and text.lower() not in _FALSE
        if "on" in choices:
            return "on" if text.lower() in ("", *_TRUE) else "off" if text.lower() in _FALSE else text
        if "object" in kinds and _PAIRS.fullmatch(text):  # as older releases of vLLM take it
            return {one: _scalar(two) for one, two in (pair.split("=") for pair in text.split(","))}
        if "array" in kinds and text[:1] != "[":
            return [_scalar(value) for value in values or []]
        if {"object", "array"} & set(kinds):
            found = _scalar(text)
            if not isinstance(found, (dict, list)):
                raise Unusable("its value is neither a mapping nor a list in JSON")
            return found
        if {"integer", "number"} & set(kinds):
            number = re.fullmatch(r"(-?\d+(?:\.\d*)?|-?\.\d+)([kKmMgG]?)", text)
            if number and (not number[2] or self.kind.name == "vllm"):
                exact = float(number[1]) * _SUFFIXES.get(number[2], 1)
                return int(exact) if exact == int(exact) and "integer" in kinds else exact
            if "string" not in kinds:
                raise Unusable("its value is no number")
        return text

    # --- options that are more than a setting

    def _on_model(self, words: list[Word], values: list[str]) -> None:
        if self.profile["model"]:
            self._say(said(words, "not carried over: the model is given already"))
            return
        self.model = values[0]
        self.profile["model"], became = self._weights(self.model, self.profile["name"])
        self._say(said(words, became), "model.directory", "model.hf_repo", "model.file")

    def _on_hf_repo(self, words: list[Word], values: list[str]) -> None:
        repository, _colon, quant = values[0].partition(":")
        file = f"{repository.rpartition('/')[2].removesuffix('-GGUF')}-{quant or 'Q4_K_M'}.gguf"
        directory = self.profile["name"]
        self.profile["model"] = {"hf_repo": repository, "directory": directory, "file": file, **self.profile["model"]}
        told = f"model.hf_repo, and model.file: {file}, which is a guess: look it up in the repository"
        self._say(said(words, told), "model.hf_repo")

    def _on_served_model_name(self, words: list[Word], values: list[str]) -> None:
        names = ",".join(values).split(",") if self.kind.name == "llama-server" else values
        self.launch.served[:0] = [Word("", name) for name in names]
        self._say(said(words, "engine.served_model_name" + (", frontdoor.model_aliases" if names[1:] else "")))

    _on_alias = _on_served_model_name

    def _on_task(self, words: list[Word], values: list[str]) -> None:
        task = _TASKS.get(values[0], values[0])
        if task == "generate" and words[0].text.startswith("--convert"):
            self._say(said(words, "is what the model does anyway"))
            return
        self._set("engine.task", task, said(words, f"engine.task: {task}"))

    _on_runner = _on_convert = _on_task

    def _on_spec_draft_model(self, words: list[Word], values: list[str]) -> None:
        self._beside("draft", "spec_draft_model", words, values)

    def _on_mmproj(self, words: list[Word], values: list[str]) -> None:
        self.profile["modalities"] = ["text", "image"]
        self._beside("projector", "mmproj", words, values)

    def _beside(self, name: str, setting: str, words: list[Word], values: list[str]) -> None:
        found, told = self._weights(values[0], f"{self.profile['name']}-{name}")
        if posixpath.dirname(self.model) == posixpath.dirname(values[0]):
            value, told = f"@model_path@/{posixpath.basename(values[0])}", "beside the model"
        else:
            value = f"@{name}_file@"
            self.profile["model"] = {**self.profile["model"], name: found}
        self._set(f"engine.settings.{setting}", value, said(words, f"engine.settings.{setting}, {told}"))

    # --- places

    def _weights(self, text: str, directory: str) -> tuple[dict[str, Any], str]:
        """Return the model that a path or the name of a repository stands for, and what to do about it."""
        file = posixpath.basename(text) if self.kind.loads_file else ""
        if not file and _HUB.fullmatch(text) and not text.startswith("."):
            return {"hf_repo": text, "directory": directory}, f"model.hf_repo: {text}"
        folder = posixpath.dirname(text) if file else text
        host = self._host_path(folder) if folder.startswith("/") else ""
        more = {"file": file} if file else {}
        if host.startswith("/") and not _HIDDEN.match(host):
            return {"directory": host, **more}, f"model.directory: {host}" + (f", model.file: {file}" if file else "")
        mounted = folder.rstrip("/") in {target for _keys, _source, target in self.launch.volumes}
        name = (not mounted and posixpath.basename(folder)) or directory
        told = f"model.directory: {name}; put its files there, below model_weights_dir, or set model.hf_repo"
        return {"directory": name, **more}, told

    def _host_path(self, path: str) -> str:
        """Return where a path of the container stands on the host: empty if no volume of the host has it."""
        if not self.launch.contained:
            return path
        holding = [(target, source) for _keys, source, target in self.launch.volumes if _below(path, target)]
        target, source = max(holding, key=lambda found: len(found[0]), default=("", ""))
        return posixpath.normpath(source + path[len(target.rstrip("/")) :]) if source.startswith("/") else ""

    def _located(self, value: Any) -> Any:
        """Return a value with the paths in it as the engine of the profile sees them."""
        if isinstance(value, Mapping):
            return {key: self._located(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._located(item) for item in value]
        if isinstance(value, str) and "${" in value:
            raise Unusable(f"{value} has a variable that only the host knows")
        found = re.fullmatch(r"(\w[\w.-]*=)?((?:/|\.{1,2}/|~)\S+)", value) if isinstance(value, str) else None
        if value == self.model:
            return "@model_path@"
        if found is None:
            return value
        named, value = found[1] or "", found[2]
        return named + self._path(value)

    def _path(self, value: str) -> str:
        """Return where a file or a folder of the command line is for the engine of the profile."""
        model = posixpath.dirname(self.model) if self.kind.loads_file else self.model
        if _below(value, model):
            return f"@model_path@{value[len(model.rstrip('/')) :]}"
        host = self._host_path(value) if value.startswith("/") else ""
        if "image" in self.manifest and self._host_path(value) != value:
            if host:
                self.profile["engine"].setdefault("mounts", {})[host] = value
            return value
        if not host:
            raise Unusable(f"no folder of the host is mounted at {value}; put the file below /srv, and write that path")
        return host

    def _mounts(self) -> None:
        """Say what became of volumes; what replaces a file of an image becomes a mount."""
        caches = [value for _key, name, value in self.launch.environment if name in _CACHES]
        named = [self.model, *(word.text for word in self.launch.arguments)]
        mounts = self.profile["engine"].get("mounts") or {}
        for keys, source, target in self.launch.volumes:
            if not keys:
                continue
            path = f"engine.mounts.{source}"
            if any(_below(text, target) for text in named):
                became = "holds what the command line names, see there"
            elif re.match(r"/(dev|sys|proc)(/|$)", target):
                became = starts.same_as("devices")
            elif "/.cache" in target or not source or target in caches:
                became = "not carried over: the slot has caches of its own, and model_weights downloads"
            elif not source.startswith(("/", ".", "~")):
                became = "not carried over: it is a volume of the file itself"
            elif "image" not in self.manifest:
                became = f"not carried over: engine.mounts is for stacks of images, and {self.stack} is none"
            elif not source.startswith("/") or source in mounts:
                became = f"not carried over: put it on the host, and write engine.mounts: {{/srv/…: {target}}}"
            else:
                became = path
                self.profile["engine"].setdefault("mounts", {})[source] = target
            self._say(Fate(keys, keys[0].removesuffix(".type"), became), *([path] if became == path else []))

    # --- variables

    def _variable(self, key: str, name: str, value: str | None) -> None:
        word, where = [Word(key, name)], f"engine.env.{name}"
        if value is None:
            self._say(said(word, "not carried over: its value comes from the shell that starts Compose"))
        elif name in _MASKS:
            found = [int(number) for number in re.findall(r"\d+", value.partition(":")[2] if ":" in value else value)]
            self.devices = self.devices or list(dict.fromkeys(found))
            slot = "not carried over: the slot shows the engine its cards (engine.devices)"
            self._say(said(word, "engine.devices" if found else slot))
        elif name.startswith(_OTHER_CARDS):
            self._say(said(word, "not carried over: it is for cards of another maker"))
        elif name in _KEYS and (chosen := _KEYS[name][1].get(value, "" if _KEYS[name][1] else value)):
            path = f"engine.collectives.{_KEYS[name][0]}"
            self._set(path, chosen, said(word, f"{path}: {chosen}"))
        elif str((self.manifest.get("env") or {}).get(name)) == value:
            self._say(said(word, f"the stack {self.stack} sets it so"))
        else:
            self._set(where, value, said(word, where))

    # --- the whole

    def _names(self) -> None:
        if not self.profile["model"]:
            raise Unusable(f"{self.launch.name} names no model: its command line has none, or an empty variable there")
        names = list(dict.fromkeys(word.text for word in self.launch.served))
        if not names and self.kind.name == "vllm":
            names = [self.model]  # as vLLM does
        if names:
            self.profile["engine"]["served_model_name"] = names[0]
        if names[1:]:
            self.profile["frontdoor"] = {"model_aliases": names[1:]}
        if self.launch.active:
            self.profile.setdefault("frontdoor", {})["max_active_generations"] = self.launch.active

    def _place(self) -> None:
        """Set what a profile needs and a command line need not say: context, cards, modalities, reasoning."""
        settings, length = self.profile["engine"]["settings"], self.kind.length_setting
        if not isinstance(settings.get(length), int) or settings[length] <= 0:
            settings[length] = _LENGTH
            self._note(f"(no {length})", f"engine.settings.{length}: {_LENGTH}; raise it as far as memory allows")
        if self.kind.sequences(settings) is None and not self.launch.active:
            limit = self.kind.sequences_setting
            self._note(f"(no {limit})", f"the frontdoor admits one request at a time; set engine.settings.{limit}")
        cards = workers_of(settings)
        if self.kind.takes_what_it_sees:
            cards = len(self.devices) or len(str(settings.get("tensor_split") or "1").split(","))
        self.profile["cards"] = cards
        speculation = settings.get("speculative_config") or {}
        if speculation.get("model"):
            draft, told = self._weights(str(speculation["model"]), f"{self.profile['name']}-draft")
            self.profile["model"]["draft"], speculation["model"] = draft, "@draft_path@"
            self._note("(draft model)", told.replace("model.", "model.draft."))
        if len(self.devices) >= cards:
            self.profile["engine"]["devices"] = self.devices[:cards]
        self._note("(cards)", f"cards: {cards}, as many as the engine spreads the model over")
        kinds = [kind for kind, count in (settings.get("limit_mm_per_prompt") or {}).items() if count]
        if kinds:
            self.profile["modalities"] = ["text", *kinds]
        if self.kind.name == "vllm" and settings.get("reasoning_parser"):
            self.profile["engine"]["reasoning"] = {"how": "separate"}
            became = "engine.reasoning: {how: separate}, as --reasoning-parser says"
            self._note("(reasoning)", became, "engine.reasoning")

    def _check(self) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        extra = [word for words, _fate in self.extra for word in words]
        _put(self.profile, "engine.extra_args", extra or None)
        root = ProfileSource(ROOT, "", 0, read_yaml(SHIPPED / "catalogue" / f"{ROOT}.yml"))
        merged, _origins = merge_chain([root, ProfileSource(self.profile["name"], "", 1, self.profile)])
        return merged, list(faults(self.profile, schema("profile.schema.json"))) or list(faults_of(merged, self.stacks))

    def _settle(self) -> None:
        """Take back what the catalogue refuses, and take the remedies of the stack's rules."""
        for _round in range(200):
            merged, found = self._check()
            if not found:
                self.profile["engine"] = {
                    key: one for key, one in self.profile["engine"].items() if one not in ({}, [])
                }
                return
            path, message = found[0]
            if message.startswith('breaks the rule "'):
                self._remedy(merged)
            else:
                self._take_back(path, message)
        raise Unusable(f"the catalogue accepts no profile of it; the last fault is {path}: {message}")

    def _take_back(self, path: str, message: str) -> None:
        if argument := re.match(r"engine\.extra_args\[(\d+)\]", path):
            ends = 0
            for index, (words, fate) in enumerate(self.extra):
                ends += len(words)
                if int(argument[1]) < ends:
                    del self.extra[index]
                    self._change(fate, message)
                    return
        where = _longest(self.behind, path)
        if where not in self.behind:
            raise Unusable(f"cannot become a profile: {path}: {message}")
        self._change(self.behind.pop(where), message)
        if where.startswith("engine.mounts."):
            self.profile["engine"]["mounts"].pop(where.removeprefix("engine.mounts."), None)
        else:
            _put(self.profile, where, None)

    def _change(self, index: int, message: str) -> None:
        fate = self.fates[index]
        self.fates[index] = Fate(fate.keys, fate.label, f"not carried over: {message}", fate.words)

    def _remedy(self, merged: Mapping[str, Any]) -> None:
        before = rules.broken(merged, self.manifest)
        for remedy in before[0].get("remedies") or []:
            if any("*" in path for path in remedy):
                continue
            kept, stack = copy.deepcopy(self.profile), self.stack
            for path, value in remedy.items():
                _put(self.profile, path, value)
            self.stack = self.profile["stack"]
            self.manifest = self.stacks[self.stack]
            if before[0]["id"] not in {rule["id"] for rule in rules.broken(self._check()[0], self.manifest)}:
                told = ", ".join(f"{path}: {json.dumps(value)}" for path, value in remedy.items())
                for path in filter(None, (_longest(self.behind, path) for path in remedy)):
                    self._change(self.behind[path], f"the remedy of the rule {before[0]['id']} precedes it")
                self._note(f"(rule {before[0]['id']})", f"{told}. {' '.join(str(before[0]['reason']).split())}")
                return
            self.profile, self.stack = kept, stack
            self.manifest = self.stacks[stack]
        raise Unusable(f"cannot become a profile of the stack {self.stack}: {rules.in_words(before[0])}")


def _is_flag(text: str) -> bool:
    return len(text) > 1 and text.startswith("-") and not re.match(r"-[\d.]", text)


def _longest(paths: Iterable[str], path: str) -> str:
    """Return the longest of some paths that a path is, or is below; empty without one."""
    return max((one for one in paths if re.match(rf"{re.escape(one)}(?![\w-])", path)), key=len, default="")


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(profile: dict[str, Any], path: str, value: Any) -> None:
    """Set a value at a dotted path; None removes it, and a mapping is merged into the one that is there."""
    *parents, last = path.split(".")
    node = profile
    for key in parents:
        if not isinstance(node.get(key), dict):
            node[key] = {}
        node = node[key]
    if value is None:
        node.pop(last, None)
    elif isinstance(value, Mapping) and isinstance(node.get(last), dict):
        node[last].update(value)
    else:
        node[last] = copy.deepcopy(value)


def _below(path: str, folder: str) -> bool:
    return folder.startswith("/") and f"{path}/".startswith(f"{folder.rstrip('/')}/")


def import_text(
    text: str,
    name: str,
    stacks: Mapping[str, Mapping[str, Any]],
    *,
    form: str = "compose",
    chosen: str = "",
    variables: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], list[Fate]]:
    """Return the profile of what a file starts, and what became of every value of the file.

    :param form: compose or llama_swap.
    :param chosen: the service or the model; without it, the only one that starts an engine.
    :param variables: what stands in Compose's ``.env``.
    :raises Unusable: with what is wrong and what to do next.
    """
    document, known = reading.load(text), reading.ComposeVariables(variables or {})
    if form == "compose":
        launch = starts.compose(reading.mapped(document, known.replace), chosen)
    else:
        launch = starts.llama_swap(document, chosen)
    importer = Importer(name, launch, stacks)
    importer.run()
    done = {key for fate in importer.fates for key in fate.keys}
    fates = list(importer.fates)
    for leaf in reading.leaves(document):
        if leaf not in done:
            begun = _longest(launch.reasons, leaf)
            became = launch.reasons.get(begun, "not carried over: nothing here has such a key")
            fates.append(Fate((leaf,), begun or leaf, became))
    if known.unset:
        became = "not in .env: the file's own default is taken, or nothing where it has none"
        fates.append(Fate((), f"(variables) {', '.join(known.unset)}", became))
    return importer.profile, fates


def as_yaml(profile: Mapping[str, Any]) -> str:
    """Return a profile as the text of its file, without the lines before it."""
    import yaml

    class IndentedDumper(yaml.SafeDumper):
        """A dumper that indents the entries of lists, as the shipped profiles do."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    first = ("name", "title", "purpose", "status", "stack", "cards", "modalities", "model", "engine", "frontdoor")
    # Through JSON, because what comes from Ansible is text and numbers of its own kinds.
    ordered = json.loads(json.dumps({key: profile[key] for key in (*first, *profile) if key in profile}))
    return str(yaml.dump(ordered, Dumper=IndentedDumper, sort_keys=False, width=130, allow_unicode=True))


def lines(fates: Sequence[Fate]) -> list[str]:
    """Return what became of a file as lines, each once."""
    return list(dict.fromkeys(f"{fate.label}: {fate.became}" for fate in fates))
