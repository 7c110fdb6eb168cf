# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the slot knows of a kind of engine: how it is started, and how what it says is read. Pure.

The controller renders by it and the host judges by it, so it stands here, in the package that both have. A kind is one
module with an instance of its class, and one line in `table.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ..types import Reply, SlotFault

# What a log says, and its words for a person; {1} is what the pattern's first group found.
Step = tuple[re.Pattern[str], str]
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")


@dataclass(frozen=True)
class Symptom:
    """id: stable name. fatal: the engine won't come back by itself. harmless: explains a line, not a failure.
    quarantines: no other profile is taken by a host whose engine says so."""

    id: str
    pattern: re.Pattern[str]
    meaning: str
    advice: str
    fatal: bool = False
    harmless: bool = False

    @property
    def quarantines(self) -> bool:
        return self.id == "device_lost"


@dataclass(frozen=True)
class Weights:
    """The directory of a profile's weights: the names of its files, and how one of them is read.

    argv: the engine's command line, which may name some of them.
    """

    profile: str
    path: PurePosixPath
    names: Collection[str]
    argv: Sequence[str]
    read: Callable[[PurePosixPath], str | None]

    def incomplete(self, why: str) -> SlotFault:
        return SlotFault(f"the weights of {self.profile} are incomplete: {why}")


@dataclass(frozen=True)
class Metrics:
    """Names in the text that GET /metrics answers, empty where the engine has no such one.

    tokens: generated since it started. cache: share of its cache in use, 0 to 1.
    cache_hits: tokens of prompts that it took from its cache since it started.
    asked: together how many requests it works on, or will. progress: of what moves while it works, in a long prefill
    too, and in no other process than the one that computes.
    """

    tokens: str = ""
    cache: str = ""
    cache_hits: str = ""
    asked: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()


class Kind:
    """An engine of which is known only that it speaks OpenAI's API. Each kind overrides what it does otherwise."""

    name = ""
    title = ""  # in messages
    program = ""  # in the bin of a stack's environment
    # --- what a profile may say of it
    tasks: tuple[str, ...] = ("generate",)
    length_setting = ""  # the setting that limits the context
    sequences_setting = ""  # the setting that limits how many requests are worked on at once
    reasoning_setting = ""  # the setting by which what a model thinks is parted from its answer
    remote = False  # whether it runs elsewhere, and this host only relays to it
    loads_file = False  # whether model.file names what it loads; otherwise it loads the directory
    spans_nodes = False  # whether one engine can have parts on several hosts
    takes_what_it_sees = False  # whether it takes all cards of the host that it is not kept from
    neutral: tuple[str, ...] = ()  # settings that cannot change a token: hosts that are compared may differ in them
    owned_flags: Mapping[str, str] = {}  # flags that the slot itself passes, and what a profile sets instead
    owned_env: Mapping[str, str] = {}  # the same of variables; a name that ends with _ stands for all that begin so
    # --- how it is started
    kill_signal = "SIGTERM"
    success_statuses = "143"  # exit statuses of an engine that was told to end
    cache_variable: str | None = None  # which variable names the folder of what it has compiled
    metrics = Metrics()
    version_at: tuple[str, str] = ("/version", "version")  # where it tells its version, and the key of the answer
    # --- what it says while it starts and when it fails, the most telling first
    steps: tuple[Step, ...] = ()
    symptoms: tuple[Symptom, ...] = ()

    # These two are not abstract: the base itself stands for a kind of another version, of which the host only reads.
    def command(self, places: Mapping[str, str], host: str, port: int | str, served_name: str) -> list[str]:
        """The program, and the arguments that the slot owns."""
        raise NotImplementedError

    def arguments(self, key: str, value: Any, recorded: Sequence[Mapping[str, Any]]) -> list[str]:
        """The arguments of one setting of a profile. recorded: the option in each release that has a table."""
        raise NotImplementedError

    def node_arguments(self, rank: int, count: int, leader: str, port: int) -> list[str]:
        """The arguments of one of several parts of an engine. leader: address of the first; port: it listens on."""
        raise NotImplementedError

    def node_environment(self, address: str) -> dict[str, str]:
        """The variables of such a part, which has this address for the others."""
        return {}

    def parsing(self, argv: Sequence[str]) -> list[str] | None:
        """The command that reads a command line as a start does and ends; None where its Python is asked instead."""
        return None

    def environment(self, places: Mapping[str, str]) -> dict[str, str]:
        """The variables that it needs beside those of every engine."""
        return {}

    def cache_folder(self, env: Mapping[str, str]) -> str | None:
        """Where it keeps what it has compiled."""
        return env.get(self.cache_variable) if self.cache_variable else None

    def derived_settings(self, engine: Mapping[str, Any], release: tuple[int, ...]) -> dict[str, tuple[Any, str]]:
        """``{setting: (value, the key it comes from)}``: what other keys of a profile's engine section set."""
        return {}

    def context_length(self, settings: Mapping[str, Any]) -> int | None:
        """How many tokens a request may have by a profile's settings, prompt and answer together."""
        length: int | None = settings.get(self.length_setting)
        return length

    def sequences(self, settings: Mapping[str, Any]) -> int | None:
        """How many requests it works on at once by a profile's settings."""
        count: int | None = settings.get(self.sequences_setting)
        return count

    def parts_reasoning(self, settings: Mapping[str, Any]) -> str:
        """By what it parts what a model thinks from its answer; empty where it leaves both together."""
        return settings.get(self.reasoning_setting) or ""

    def calls_tools(self, settings: Mapping[str, Any]) -> bool:
        """Do a profile's settings let clients have tools called?"""
        return False

    def caches_prompts(self, settings: Mapping[str, Any]) -> bool:
        """May a prompt be answered by what was computed for an earlier one?"""
        return False

    def host_cache_bytes(self, settings: Mapping[str, Any]) -> int:
        """How much of the host's memory it takes for keys and values by a profile's settings."""
        return 0

    def served(self, reply: Reply, wanted: str = "") -> tuple[str, int | None]:
        """(id, context length) of the first model in the list of models. Raises SlotFault when there is none.

        wanted: the id that is to be among them, for an engine that serves several.
        """
        if reply.status != 200:
            got = reply.error or f"{reply.status} {reply.text[:200]}"
            raise SlotFault("GET /v1/models of the engine failed", expected="200", got=got.strip())
        try:
            first = json.loads(reply.text)["data"][0]
            length = self.served_length(first)
            return str(first["id"]), length if isinstance(length, int) else None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise SlotFault(
                "GET /v1/models of the engine is not a model list", expected="data[0].id", got=reply.text[:200]
            ) from error

    def served_length(self, model: Mapping[str, Any]) -> Any:
        """The context length in an entry of the list of models, or None."""
        return None

    def tokenize(self, model: str, text: str) -> dict[str, Any] | None:
        """The body of POST /tokenize, whose answer has the text's `tokens`; None where it has no such thing."""
        return None

    def apart(self, body: Mapping[str, Any], salt: str, *, again: bool = False) -> dict[str, Any]:
        """The request with what keeps it apart from all prompts in the cache but those of the same salt.

        again: there was one of the same salt, and this one is to find what it left.
        """
        return dict(body)

    def full_length(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request with what makes its answer as long as it may be, so that rates of answers can be compared."""
        return dict(body)

    def check_weights(self, weights: Weights) -> None:
        """Raises SlotFault when files are missing that the engine will ask for."""

    def weight_files(self, weights: Weights) -> tuple[str, ...]:
        """Names of the files that it loads, of those that are there."""
        return tuple(name for name in weights.names if name.endswith(WEIGHTS))

    def message_of(self, line: str) -> str:
        """What a line of the log says, without its prefixes."""
        return line

    def by_clients(self, line: str) -> bool:
        """May the line repeat what a client sent?"""
        return True
