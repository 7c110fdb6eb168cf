# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the command lines of rendered profiles with the installed engines, and estimates whether a model fits.

Each engine runs once for all profiles of its stack, and only for command lines that it has not accepted before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._slot import caches
from .._slot.kinds import gguf
from .._slot.kinds.table import kind_of_engine
from .._slot.look.memory import bytes_of
from .._slot.words.card_memory import GIB, WHOLE_SINCE, card_gib, mirror_bytes
from . import fit

SCHEMA = 1
MARK = "b70-answer: "
# The file with which the role stack marks a stack as complete.
COMPLETE = "fingerprint.json"
PYTHON = "venv/bin/python"
# (command, its environment, standard input) -> (exit code, standard output, standard error)
Ask = Callable[[Sequence[str], Mapping[str, str], str], tuple[int, str, str]]


class CheckError(Exception):
    """The check cannot run on this host. The text gives the reason and a fix."""


@dataclass
class EngineCheckReport:
    """The findings by profile.

    complaints: the engine's error; unanswered: why no engine could be asked; the others: who was asked, passed before
    or skipped.
    """

    complaints: dict[str, str] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    passed_before: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def read_profiles(folder: Path, names: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the resolved profiles of a slot by name, all or the named ones. Raise CheckError for an unreadable one.

    For a profile in use with a new rendering, return the rendering that a switch would start.
    """
    found = {}
    wanted = [folder / f"{name}.json" for name in names] or sorted(folder.glob("*.json"))
    for file in wanted:
        pending = folder.parent / "pending" / file.name
        try:
            if pending.exists():
                found[file.stem] = json.loads(json.loads(pending.read_text(encoding="utf-8"))["profile"])
                continue
            found[file.stem] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckError(
                f"{pending if pending.exists() else file} cannot be read ({error}); run the role slot to render it"
            ) from error
    return found


def digest(profile: Mapping[str, Any], program: str) -> str:
    """Return the key of an accepted command line: a digest of the command line and of the program that checks it."""
    text = json.dumps([profile["engine"]["argv"][1:], hashlib.sha256(program.encode()).hexdigest()])
    return hashlib.sha256(text.encode()).hexdigest()


def shared_environment(profiles: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the variables that profiles share, with which one process can parse all their command lines."""
    environments = [set(profile["engine"]["env"].items()) for profile in profiles]
    return dict(set.intersection(*environments)) if environments else {}


def check(
    profiles: Mapping[str, Mapping[str, Any]],
    memory: Path,
    program: str,
    ask: Ask,
    write: bool,
    *,
    some: bool = False,
    again: bool = True,
) -> EngineCheckReport:
    """Check the command lines that have not been accepted before with every installed engine.

    :param profiles: resolved profiles by name.
    :param memory: the directory that remembers what has passed, one file per stack.
    :param program: the text of ``ask.py``.
    :param write: whether to remember.
    :param some: there are more profiles than these, so what is remembered of others is kept.
    :param again: ask anew about what was refused before; otherwise it is refused in the words of then.
    """
    report = EngineCheckReport()
    stacks: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, profile in sorted(profiles.items()):
        stack = profile["stack"]
        if not Path(stack["dir"], COMPLETE).is_file():
            report.skipped[name] = f"the stack {stack['id']} is not installed"
        elif stack.get("image"):
            report.skipped[name] = f"the stack {stack['id']} is a container image, whose engine is not asked"
        elif not (asked := _asked(profile)).exists():
            where = asked.relative_to(stack["dir"]) if asked.is_relative_to(stack["dir"]) else asked
            report.skipped[name] = f"the stack {stack['id']} has no {where} that could be asked"
        else:
            stacks.setdefault(stack["id"], {})[name] = profile
    for identity, members in stacks.items():
        file = memory / f"{identity}.json"
        known = _remembered(file)
        digests = {name: digest(profile, program) for name, profile in members.items()}
        report.passed_before += sorted(name for name, value in digests.items() if known.get(value) == "")
        settled = {name for name, value in digests.items() if value in known and not (again and known[value])}
        report.complaints |= {name: known[digests[name]] for name in settled if known[digests[name]]}
        new = {name: profile for name, profile in members.items() if name not in settled}
        if not new:
            continue
        try:
            said = _ask(new, program, ask)
        except CheckError as error:
            # One broken stack must not prevent the check of the others.
            report.unanswered |= dict.fromkeys(new, str(error))
            continue
        report.asked += sorted(new)
        report.complaints |= {name: words for name, words in said.items() if words}
        kept = known if some else {digests[name]: known[digests[name]] for name in settled}
        if write:
            _remember(file, {**kept, **{digests[name]: said.get(name, "") for name in new}})
    return report


def _remembered(file: Path) -> dict[str, str]:
    """Return the engine's error by the digest of a command line, empty where it passed."""
    # An unreadable record is checked again.
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, KeyError):
        data = json.loads(file.read_text(encoding="utf-8"))
        if data.get("schema") == SCHEMA:
            refused = {str(value): str(words) for value, words in data["refused"].items()}
            return {**dict.fromkeys(data["passed"], ""), **refused}
    return {}


def _remember(file: Path, known: Mapping[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    passed = sorted(value for value, words in known.items() if not words)
    refused = {value: words for value, words in known.items() if words}
    partial = file.with_suffix(".new")
    partial.write_text(json.dumps({"schema": SCHEMA, "passed": passed, "refused": refused}) + "\n", encoding="utf-8")
    partial.replace(file)


def _parsing(profile: Mapping[str, Any]) -> list[str] | None:
    engine = profile["engine"]
    return kind_of_engine(engine).parsing(engine["argv"])


def _asked(profile: Mapping[str, Any]) -> Path:
    """Return the program that reads the profile's command line."""
    command = _parsing(profile)
    return Path(command[0]) if command else Path(profile["stack"]["dir"], PYTHON)


def _ask_each(profiles: Mapping[str, Mapping[str, Any]], ask: Ask) -> dict[str, str]:
    """Ask an engine that reads one command line at a time."""
    found = {}
    for name, profile in profiles.items():
        command = _parsing(profile) or []
        code, output, errors = ask(command, profile["engine"]["env"], "")
        if code in (124, 126, 127):
            raise CheckError(f"{command[0]} could not be asked: {errors.strip() or f'exit code {code}'}")
        lines = [line.strip() for line in f"{output}\n{errors}".splitlines() if line.strip()]
        told = [line for line in lines if line.startswith("error")] or lines
        found[name] = "" if code == 0 else told[-1] if told else f"it ended with {code}"
    return found


def _ask(profiles: Mapping[str, Mapping[str, Any]], program: str, ask: Ask) -> dict[str, str]:
    first = next(iter(profiles.values()))
    if _parsing(first):
        return _ask_each(profiles, ask)
    python = f"{first['stack']['dir']}/{PYTHON}"
    question = {"argv": {name: profile["engine"]["argv"][2:] for name, profile in profiles.items()}}
    code, output, errors = ask(
        [python, "-B", "-c", program], shared_environment(profiles.values()), json.dumps(question)
    )
    lines = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if code != 0 or not lines:
        tail = " | ".join(errors.strip().splitlines()[-3:]) or f"exit code {code}"
        raise CheckError(
            f"the engine of the stack {first['stack']['id']} could not be asked about its profiles: {tail}. "
            f"Try: {python} -c 'import vllm.entrypoints.cli.serve'"
        )
    answer: dict[str, str] = json.loads(lines[-1])["complaints"]
    return answer


def sentences(report: EngineCheckReport) -> list[str]:
    """Return the warnings about refused profiles and about engines that did not answer."""
    told = []
    if report.complaints:
        words = "; ".join(f"{name}: {text}" for name, text in sorted(report.complaints.items()))
        count = len(report.complaints)
        told.append(
            f"the installed engine refuses {count} {'profile' if count == 1 else 'profiles'}. {words}. "
            "The playbook show_profile names the file of each value"
        )
    for reason in dict.fromkeys(report.unanswered.values()):
        names = ", ".join(sorted(name for name, text in report.unanswered.items() if text == reason))
        told.append(f"not read by an engine: {names}; {reason}")
    return told


@dataclass(frozen=True)
class Fitting:
    """The fit of a profile on this host's cards.

    verdict: fits, tight, no or unknown. text: the figures or the reason. The last value: MiB that one replica holds of
    its cards together, None where it is unknown.
    """

    verdict: str
    text: str
    held_mib: int | None = None


def _unknown(text: str) -> Fitting:
    return Fitting("unknown", f"{text}, so there is no estimate")


@dataclass(frozen=True)
class HostMemory:
    """The memory of a host: the version of its compute runtime, and the host's bytes; empty and 0 if not known."""

    runtime: str = ""
    total: int = 0


def memory_of(dpkg_status: str, meminfo: str) -> HostMemory:
    """Return what a host has, from the texts of dpkg's status file and of /proc/meminfo."""
    return HostMemory(caches.runtime(dpkg_status), bytes_of(meminfo, "MemTotal"))


def fitting(name: str, profile: Mapping[str, Any], host: HostMemory = HostMemory()) -> Fitting:
    """Return the estimate for a resolved profile on this host."""
    if profile["stack"].get("device") != "xpu" or not profile["cards"]:
        return _unknown(f"{name} uses no card")
    stack = profile["stack"]
    # An image brings a runtime of its own; on hosts the role gpu_driver installs one that gives the whole card.
    memory = card_gib(stack.get("runtime", "") if stack.get("image") else host.runtime or WHOLE_SINCE)
    of = _fitting_gguf if kind_of_engine(profile["engine"]).loads_file else _fitting
    found, mirrored = of(name, profile, memory), mirrored_bytes(profile)
    if not mirrored:
        return found
    text = f"{found.text} The driver mirrors what the cards hold in the host's memory, {mirrored / GIB:.1f} GiB"
    if host.total and mirrored > host.total:
        return Fitting(
            "no", f"{text}, of which the host has {host.total / GIB:.1f}; engine.host_mirror ends that.", found.held_mib
        )
    return Fitting(found.verdict, f"{text}; engine.host_mirror ends that.", found.held_mib)


def mirrored_bytes(profile: Mapping[str, Any]) -> int:
    """Return the bytes of the host's memory in which all engines of a resolved profile have their cards mirrored."""
    engine = profile["engine"]
    if profile["stack"].get("device") != "xpu":
        return 0
    settings, version, size = engine["settings"], str(engine.get("version") or ""), profile["model"].get("size_gb")
    environments = [one["env"] for one in engine.get("replicas") or [engine] if "env" in one] or [{}]
    return sum(mirror_bytes(profile["cards"], settings, env, version, size) for env in environments)


def _fitting(name: str, profile: Mapping[str, Any], memory: float) -> Fitting:
    """Return the fit of an engine that loads a directory, on cards of so many GiB."""
    folder = Path(profile["model"]["path"])
    beside = profile["model"].get("companions", [])
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        sizes = {path: _weights(Path(path)) for path in (str(folder), *beside)}
        if not all(sizes.values()):
            return _unknown(f"{name}: no weights in {next(path for path, size in sizes.items() if not size)}")
        settings = profile["engine"]["settings"]
        version, env = str(profile["engine"].get("version") or ""), profile["engine"].get("env") or {}
        files = [Path(path) / "config.json" for path in beside if settings.get("speculative_config")]
        drafting = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
        found = fit.estimate(config, settings, sum(sizes.values()), memory, version, env, drafting)
    except (OSError, ValueError, TypeError, ArithmeticError) as error:
        return _unknown(f"{name}: {folder}/config.json cannot be used ({error})")
    except KeyError as error:
        return _unknown(f"{name}: {folder}/config.json has no {error}")
    measured = profile["engine"].get("measured_kv_tokens")
    text = fit.sentence(name, _cards(profile), found, settings["max_model_len"], measured)
    return Fitting(found.verdict, text, _held_mib(profile, found))


def _weights(folder: Path) -> int:
    """Return the bytes of the weights in a directory."""
    files = [*folder.glob("*.safetensors")] or [*folder.glob("*.bin")]
    return sum(file.stat().st_size for file in files)


def _cards(profile: Mapping[str, Any]) -> int:
    """Return how many cards one replica has, on all its nodes together."""
    return int(profile["cards"]) * int((profile.get("node") or {}).get("count", 1))


def _held_mib(profile: Mapping[str, Any], found: fit.Fit) -> int:
    return round(found.held_gib * _cards(profile) * 1024)


def _fitting_gguf(name: str, profile: Mapping[str, Any], memory: float) -> Fitting:
    """Return the fit of an engine that loads the GGUF files that its command line names."""
    folders = [profile["model"]["path"], *profile["model"].get("companions", [])]
    words = [Path(word) for word in profile["engine"]["argv"] if word.endswith(".gguf")]
    named = [path for path in words if any(path.is_relative_to(folder) for folder in folders)]
    try:
        files = [path.with_name(Path(part).name) for path in named for part in gguf.parts(path.name)]
        size = sum(path.stat().st_size for path in files)
        with named[0].open("rb") as stream:
            head = gguf.head(stream)
    except (OSError, ValueError, IndexError) as error:
        return _unknown(f"{name}: its GGUF files cannot be read ({error})")
    settings = profile["engine"]["settings"]
    try:
        found = fit.estimate_gguf(head, settings, size, profile["cards"], memory)
    except (ValueError, TypeError) as error:
        return Fitting("unknown", f"{name}: there is no estimate, because {error}")
    except KeyError as error:
        return _unknown(f"{name}: the head of {named[0]} has no {error}")
    text = fit.sentence(name, profile["cards"], found, settings["ctx_size"], None, "ctx_size")
    return Fitting(found.verdict, text, _held_mib(profile, found))


def remember_estimates(
    file: Path, estimates: Mapping[str, int | None], profiles: Mapping[str, Mapping[str, Any]], *, some: bool
) -> None:
    """Write what profiles hold of their cards for the frontdoor: ``{NAME: {fingerprint, held_mib}}``.

    :param estimates: MiB by profile.
    :param some: there are more profiles than these, so what is remembered of others is kept.
    """
    kept = estimates_of(file)
    made = {
        name: {"fingerprint": profiles[name].get("fingerprint", ""), "held_mib": mib}
        for name, mib in estimates.items()
        if mib is not None
    }
    wanted = {**{name: told for name, told in kept.items() if some and name not in estimates}, **made}
    if wanted == kept and file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".new")
    partial.write_text(json.dumps({"schema": 1, "profiles": wanted}, sort_keys=True) + "\n", encoding="utf-8")
    # The frontdoor reads it, as a user of its own.
    partial.chmod(0o644)
    partial.replace(file)


def estimates_of(file: Path) -> dict[str, Any]:
    """Return what ``remember_estimates`` wrote, by profile; nothing where it cannot be read."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] == 1:
            return dict(data["profiles"])
    return {}
