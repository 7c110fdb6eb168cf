# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known signatures in engine logs: what they mean and what to do. Data, and one pure search.

Ordered by how much they explain: the first that is found is the one that is named. `{1}` in an advice is what the
first group of the pattern found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .logline import by_clients, message_of


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


# What stands before the words of an exception, in Python and in C++.
_RAISED = r"(?:[\w.]+(?:Error|Exception|Exit|Compiler)(?:\([\w.]*\))?: |what\(\): +)?"
_WORKER = r"(?:Worker failed with error ')?"
_DRIVER = (
    _WORKER + r"(?:(?:\w+ backend failed with error|Native API failed\. Native API returns|"
    r"UR backend failed\. UR backend returns): ?-?\d+ \(|ur error )?"
)


def _symptom(
    id: str, pattern: str, meaning: str, advice: str, *, fatal: bool = False, harmless: bool = False
) -> Symptom:
    return Symptom(id, re.compile(_RAISED + f"(?:{pattern})"), meaning, advice, fatal, harmless)


SYMPTOMS = (
    _symptom(
        "device_lost",
        rf"{_DRIVER}UR_RESULT_ERROR_DEVICE_LOST|{_WORKER}level_zero backend failed with error: 20\b|GPU HANG",
        "a card was lost: a fault of driver or runtime under load",
        "Keep the log, reboot the host when the next engine fails too, then lower max_num_seqs.",
        fatal=True,
    ),
    _symptom(
        "out_of_resources",
        rf"{_DRIVER}UR_RESULT_ERROR_OUT_OF_(?:RESOURCES|DEVICE_MEMORY)|XPU out of memory|torch\.OutOfMemoryError",
        "a card ran out of memory or of command space",
        "Lower max_num_seqs and the frontdoor's max_active_generations, or max_model_len.",
        fatal=True,
    ),
    _symptom(
        "context_does_not_fit",
        r"(?:To serve at least one request .{0,500}?\b)?(?:the )?estimated maximum model length is (\d+)",
        "the context does not fit into the memory that is left for the KV cache",
        "Set max_model_len to at most {1}, or free memory on the cards.",
        fatal=True,
    ),
    _symptom(
        "context_does_not_fit",
        r"To serve at least one request with the model(?:s)?'s max seq len",
        "the context does not fit into the memory that is left for the KV cache",
        "Lower max_model_len, or free memory on the cards (a display takes some).",
        fatal=True,
    ),
    _symptom(
        "vram_share_too_high",
        r"Free memory on device .{0,120} is less than desired",
        "gpu_memory_utilization asks for more memory than is free on the card",
        "Lower gpu_memory_utilization to 0.95 or below, and see who else holds the card.",
        fatal=True,
    ),
    _symptom(
        "kernels_abi",
        r"(?:Failed to import from .{0,200})?\S+: undefined symbol: \S*(?:torch|c10|at)\S*",
        "a binary was built for another version of PyTorch",
        "Build vllm-xpu-kernels from source against the installed torch: run the role stack again.",
        fatal=True,
    ),
    _symptom(
        "duplicate_handler",
        r"Handler already registered for",
        "this version of PyTorch can't compile the model ahead of time",
        "Use the torch version that the stack manifest pins (2.11.0+xpu).",
        fatal=True,
    ),
    _symptom(
        "removed_argument",
        r"(?:[\w .-]{1,60}: error: )?unrecognized arguments: (.{1,120})",
        "the installed engine does not know an argument of the profile",
        "Remove {1} from the profile: engines drop arguments between versions.",
        fatal=True,
    ),
    _symptom(
        "fp8_scales",
        r"could not set scales primitive attribute",
        "the cards' FP8 primitive refuses these scales",
        "Use an INT4 profile of the model.",
        fatal=True,
    ),
    _symptom(
        "mamba_pointer",
        r"OverflowError: Python int too large to convert to C long",
        "a device pointer is converted as a signed number when Mamba states are copied",
        "Install a stack with the unsigned pointer patch.",
        fatal=True,
    ),
    _symptom(
        "turboquant_workspace",
        r"Workspace is locked but allocation from",
        "the workspace of a quantised KV cache was locked before it had its size",
        "Do not use a TurboQuant KV cache type on these cards.",
        fatal=True,
    ),
    _symptom(
        "kv_offload",
        r"CPU Offloading is currently only supported on CUDA-alike GPUs",
        "offloading the KV cache to the host is not there for these cards",
        "Remove kv_offloading_size from the profile.",
        fatal=True,
    ),
    _symptom(
        "nan_logprobs",
        r"Out of range float values are not JSON compliant",
        "the engine computed NaN",
        "Do not request log probabilities with a long context; if a short one does it too, the stack is broken.",
    ),
    _symptom(
        "multimodal_profiling",
        r"[\w ,']{0,60}(?:image token.{0,40}no images|[Ff]ound \d+ image token)",
        "the engine profiles picture input with none allowed",
        "Keep only the image count in limit_mm_per_prompt.",
        fatal=True,
    ),
    _symptom(
        "shm_stall",
        r"No available shared memory broadcast block found",
        "a worker stands still and the others wait for it",
        "Restart the engine; when it comes back, see the kernel log for resets of a card.",
    ),
    _symptom(
        "too_little_memory",
        r"(?:\S+\.service: )?[\w ,=']{0,60}"
        r"(?:Out of memory: Killed process|oom-kill|signal=9/KILL|Main process exited, code=killed, status=9)",
        "the kernel or systemd ended the process, most often for want of memory",
        "See `journalctl -k` for the kernel's reason; add swap or lower the load on the host's memory.",
        fatal=True,
    ),
    _symptom(
        "no_compiler",
        r"(?:[\w.]+: )?(?:No working C\+\+ compiler found|InvalidCxxCompiler|Failed to find C compiler)",
        "the engine compiles a kernel at run time and the host has no compiler",
        "Install g++ on the host (role host or the stack's packages).",
        fatal=True,
    ),
    _symptom(
        "port_in_use",
        r"[Aa]ddress already in use|\[?Errno 98\b",
        "the engine's port was taken",
        "See who holds it: `ss -ltnp`.",
        fatal=True,
    ),
    _symptom(
        "missing_module",
        r"(?:ModuleNotFoundError|ImportError): (.{1,120})",
        "the stack is incomplete",
        "Run the role stack again ({1}).",
        fatal=True,
    ),
    _symptom(
        "missing_weights",
        r"(?:\[Errno 2\] )?No such file or directory: '([^']+)'|\S+ does not appear to have a file named (\S+)",
        "a file is missing",
        "Run the role model_weights again.",
        fatal=True,
    ),
    _symptom(
        "engine_core_died",
        r"(?:[\w.]+\.)?EngineDeadError|EngineCore (?:failed to start|encountered an issue)",
        "the engine's core process died",
        "The reason stands before that in the unit's log (journalctl -u UNIT).",
    ),
    _symptom(
        "compiler_crash",
        r"[\w .:'\[\]-]{0,60}(?:IGC: Internal Compiler Error|Build failed with error code: -11|ocloc.{0,80}\b245\b)",
        "the kernel compiler crashed and another way was taken",
        "Harmless as long as the engine starts; when it does not, use a new cache key and lower max_num_seqs.",
        harmless=True,
    ),
    _symptom(
        "unknown_variable",
        r"Unknown vLLM environment variable detected: (\w+)",
        "the engine does not know a variable of the profile",
        "Harmless: {1} belongs to a patch or to another version.",
        harmless=True,
    ),
)


@dataclass(frozen=True)
class Match:
    """line: where it was found. logged: that is a line of the engine's log."""

    symptom: Symptom
    advice: str
    line: str
    logged: bool = True


def diagnose(lines: Iterable[str], said: Sequence[str] = ()) -> Match | None:
    """The most telling known symptom in an engine's log, newest line first; a harmless one only where there is no
    other. said: what was found to be wrong, in words that are no lines of a log.

    A line counts by what it begins to say, behind its prefixes: further on it may repeat what a client sent. What
    ends in quarantine is not believed of the process that listens to clients, however the line begins.
    """
    newest_first = [(line, message_of(line), by_clients(line)) for line in lines][::-1]
    for symptom in SYMPTOMS:
        for line, message, doubtful in newest_first:
            found = None if symptom.quarantines and doubtful else symptom.pattern.match(message)
            if found is not None:
                return Match(symptom, symptom.advice.replace("{1}", _group(found)), line)
        for text in said:
            found = symptom.pattern.search(text)
            if found is not None:
                return Match(symptom, symptom.advice.replace("{1}", _group(found)), text, logged=False)
    return None


def _group(found: re.Match[str]) -> str:
    return next((group for group in found.groups() if group), "").strip()
