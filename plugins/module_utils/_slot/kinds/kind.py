# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The knowledge of the slot about a kind of engine: how to start it, and how to read its answers and its log. Pure.

The controller renders with it and the host judges with it, so it is in the package that both have. A kind is one module
with an instance of its class, and one line in `table.py`.

To add a kind NAME:

1. Write `NAME.py`: a subclass of `Kind`, and one instance. It imports only the standard library and its own package.
2. Name the instance in `table.py`, and what its log says when it fails in `known.py`.
3. Record the options of the pinned release, from the program itself, in
   `roles/profiles/files/engines/NAME-VERSION.json`, and write `roles/profiles/files/schema/NAME-settings.schema.json`.
4. Write the tests with captured output: the list of models, the metrics, the log of a successful start and of a failed
   one. Tests fail if a module of the frontdoor names a kind, or if a line of `tests/tools/rendered.py` changes.
5. Name the kind in `engine.kind` of `profile.schema.json` and `stack.schema.json`, and its settings in the `if` below
   `engine` of the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from ..words.logline import Parts
from ..words.types import Reply, SlotFault

# A pattern for a log line, and what it means to a person; {1} is what the pattern's first group found.
Step = tuple[re.Pattern[str], str]
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")


@dataclass(frozen=True)
class Symptom:
    """A known message of an engine, of what it runs on, or of the kernel.

    id: stable name. words: a regular expression. fatal: the engine won't come back by itself. harmless: it explains a
    line, not a failure. vague: it names what ended and not why, so the kernel's word about a card explains more. warns:
    the engine serves, but not as it should. needs: what another line has to say beside it. quarantines: a host whose
    engine logs this takes no other profile.
    """

    id: str
    words: str
    meaning: str
    advice: str
    fatal: bool = False
    harmless: bool = False
    vague: bool = False
    warns: bool = False
    needs: re.Pattern[str] | None = None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Its words, compiled when a log is searched: for a hundred symptoms that takes longer than most commands."""
        return re.compile(self.words)

    @property
    def quarantines(self) -> bool:
        return self.id == "device_lost"


@dataclass(frozen=True)
class Weights:
    """The directory of a profile's weights.

    names: its files. argv: the engine's command line, which may name some of them. read: returns the text of a file.
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
    """Names of metrics in the answer to GET /metrics; empty if the engine has no such metric.

    tokens: generated tokens since its start. cache: share of its cache in use, 0 to 1. cache_hits: prompt tokens taken
    from its cache since its start. asked: metrics that add up to the requests it works on, or will. progress: metrics
    that move while it works, also in a long prefill; they come only from the process that computes.
    """

    tokens: str = ""
    cache: str = ""
    cache_hits: str = ""
    asked: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dialect:
    """The properties of an engine's API by which the frontdoor translates requests of other APIs, from the state file.

    penalty: its name for a repetition penalty; empty if it is not known to take one, or a top_k. templates_responses:
    its /v1/responses takes arguments of the chat template. formats_responses: its /v1/responses reads the format of a
    chat completion. counts_answer: it refuses a request whose answer might not fit.
    """

    penalty: str = ""
    templates_responses: bool = False
    formats_responses: bool = False
    counts_answer: bool = False


@dataclass(frozen=True)
class LlmPoolBackend:
    """The engine in the words of llm-pool's API; slot.json has this for every kind.

    backend: its name there. structured: whether its answers can follow a schema. settings: the setting of a profile for
    each field of a load, as a dotted path.
    """

    backend: str = ""
    structured: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


Posts = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Sleep:
    """The requests by which an engine gives back its cards' memory and takes it again, keeping its weights on the host.

    It may sleep at level 1, or, where it can read its weights again, at level 2, which keeps none.

    setting: the setting of a profile that allows it. variables: what it needs besides. fall, rise: by level, the paths
    to post to, with the bodies. asks: the path that tells whether it sleeps, and the key in the answer.
    """

    setting: str
    variables: Mapping[str, str]
    fall: Mapping[int, Posts]
    rise: Mapping[int, Posts]
    asks: tuple[str, str]


class Kind:
    """An engine that is only known to speak OpenAI's API. Each kind overrides what it does differently."""

    name = ""
    title = ""  # its name in messages
    program = ""  # its name in the bin folder of a stack's environment
    # --- what a profile may say about it
    tasks: tuple[str, ...] = ("generate",)
    length_setting = ""  # the setting that limits the context
    sequences_setting = ""  # the setting that limits how many requests run at once
    reasoning_setting = ""  # the setting that separates a model's reasoning from its answer
    remote = False  # whether it runs elsewhere, and this host only relays to it
    loads_file = False  # whether model.file names what it loads; otherwise it loads the directory
    spans_nodes = False  # whether one engine can have parts on several hosts
    takes_what_it_sees = False  # whether it uses all cards that are not hidden from it
    neutral: tuple[str, ...] = ()  # settings that cannot change a token: hosts that are compared may differ in them
    owned_flags: Mapping[str, str] = {}  # flags that the slot itself passes, and what a profile sets instead
    owned_env: Mapping[str, str] = {}  # the same for variables; a name that ends with _ stands for all with that prefix
    # --- how it is started
    kill_signal = "SIGTERM"
    success_statuses = "143"  # exit statuses of an engine that was told to end
    card_variables: Mapping[
        str, str
    ] = {}  # for each interface to the cards: the variable that numbers those it may use
    cache_variable: str | None = None  # the variable that names the folder of its compile cache
    metrics = Metrics()
    pool = LlmPoolBackend()
    sleep: Sleep | None = None  # None: it has no such requests
    version_at: tuple[str, str] = ("/version", "version")  # the path that tells its version, and the key in the answer
    # --- what it logs while it starts and when it fails, the most telling lines first
    steps: tuple[Step, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    raises = False  # whether its errors are Python's exceptions; otherwise each line of the level ERROR is one

    # These are not abstract: the base itself stands for a kind of another version, which the host only reads.
    def command(self, places: Mapping[str, str], host: str, port: int | str, served_name: str) -> list[str]:
        """Return the program, and the arguments that the slot owns."""
        raise NotImplementedError

    def arguments(self, key: str, value: Any, recorded: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the arguments for one setting of a profile: ``--x``/``--no-x`` for ``true``/``false``, nothing for
        null.

        Any other value is a word of its own: some releases change one that follows a ``=``. recorded: the option in
        each release that has a table.
        """
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            return [flag if value else f"--no-{flag[2:]}"]
        return [] if value is None else [flag, str(value)]

    def node_arguments(self, rank: int, count: int, leader: str, port: int) -> list[str]:
        """Return the arguments of one of several parts of an engine. leader, port: where the first part listens."""
        raise NotImplementedError

    def node_environment(self, address: str, workers: int) -> dict[str, str]:
        """Return the variables of such a part. address: its own, for the others. workers: its computing processes."""
        return {}

    def parsing(self, argv: Sequence[str]) -> list[str] | None:
        """Return the command that reads a command line as a start does, and ends; None to ask its Python instead."""
        return None

    def environment(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that it needs besides those of every engine."""
        return {}

    def cache_folder(self, env: Mapping[str, str]) -> str | None:
        """Return the folder of its compile cache."""
        return env.get(self.cache_variable) if self.cache_variable else None

    def compiles(self, settings: Mapping[str, Any], env: Mapping[str, str]) -> bool:
        """Return whether a start compiles what it does not find in that folder."""
        return False

    def derived_settings(self, engine: Mapping[str, Any], release: tuple[int, ...]) -> dict[str, tuple[Any, str]]:
        """Return ``{setting: (value, key)}``: the settings that other keys of a profile's engine section determine."""
        return {}

    def context_length(self, settings: Mapping[str, Any]) -> int | None:
        """Return how many tokens a request may have with these settings, prompt and answer together."""
        length: int | None = settings.get(self.length_setting)
        return length

    def sequences(self, settings: Mapping[str, Any]) -> int | None:
        """Return how many requests run at once with these settings."""
        count: int | None = settings.get(self.sequences_setting)
        return count

    def parts_reasoning(self, settings: Mapping[str, Any]) -> str:
        """Return how it separates a model's reasoning from its answer; empty if it leaves both together."""
        return settings.get(self.reasoning_setting) or ""

    def calls_tools(self, settings: Mapping[str, Any]) -> bool:
        """Return whether clients can have tools called with these settings."""
        return False

    def caches_prompts(self, settings: Mapping[str, Any]) -> bool:
        """Return whether a prompt may be answered from what was computed for an earlier one."""
        return False

    def sleeps(self, settings: Mapping[str, Any]) -> bool:
        """Return whether it can be put to sleep with these settings."""
        return self.sleep is not None and bool(settings.get(self.sleep.setting))

    def rereads(self, settings: Mapping[str, Any]) -> bool:
        """Return whether it can read its weights again, without a start, with these settings."""
        return False

    def host_cache_bytes(self, settings: Mapping[str, Any]) -> int:
        """Return how much of the host's memory it uses for keys and values with these settings."""
        return 0

    def served(self, reply: Reply, wanted: str = "") -> tuple[str, int | None]:
        """Return (id, context length) of the first model in the list of models. Raise SlotFault if there is none.

        wanted: the id to look for, for an engine that serves several.
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
        """Return the context length in an entry of the list of models, or None."""
        return None

    def tokenize(self, model: str, text: str) -> dict[str, Any] | None:
        """Return the body of POST /tokenize, whose answer has the text's `tokens`; None if it has no such endpoint."""
        return None

    def apart(self, body: Mapping[str, Any], salt: str, *, again: bool = False) -> dict[str, Any]:
        """Return the request changed so that it shares cached prompts only with requests of the same salt.

        again: there was a request of the same salt, and this one is to find what that left.
        """
        return dict(body)

    def full_length(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request changed so that its answer is as long as it may be, which makes rates comparable."""
        return dict(body)

    def dialect(self, version: str) -> Dialect:
        """Return what the frontdoor must know about its API. version: that of its release; empty if it is not known."""
        return Dialect()

    def check_weights(self, weights: Weights) -> None:
        """Raise SlotFault if files are missing that the engine will need."""

    def weight_files(self, weights: Weights) -> tuple[str, ...]:
        """Return the names of the files that it loads and that are there."""
        return tuple(name for name in weights.names if name.endswith(WEIGHTS))

    def message_of(self, line: str) -> str:
        """Return what a line of the log says, without its prefixes."""
        return self.parts_of(line).text.lstrip(" |")

    def parts_of(self, line: str) -> Parts:
        """Return the parts of a line of the log: its process, its level, and its text with the spaces before it."""
        return Parts("", "", line)

    def by_clients(self, line: str) -> bool:
        """Return whether the line may repeat what a client sent."""
        return True
