#!/usr/bin/python3 -I
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine that behaves like `vllm serve` towards systemd and its clients, and badly when it is told to.

    engine_sim.py serve MODEL --port 18080 --served-model-name sim-a --max-model-len 512 --sim-dir /run/b70-sim
    engine_sim.py keeper --sim-dir /run/b70-sim
    engine_sim.py bench serve --base-url http://127.0.0.1:8000 ... (see sim_bench.py)
    llama-server --model FILE --alias sim-gguf --port 18080 --ctx-size 4096 --parallel 8 --sim-dir /run/b70-sim

Under the last name it has the words of llama.cpp's server, on its command line and of itself.
Faults come from SIM_DIR/NAME.json, such as {"faults": ["wrong-answer", "ignore-term"], "load_s": 1}. It is read once,
at the start: an engine that runs stays as it is while its next start is told something else. Only "live" (a list of
faults) and "wrong_at" (numbers of the canary's questions that are answered wrongly, from 1 on) are read before every
answer. With "until", the path of a file, all of this holds as long as that file is empty; with "env", only for a
process that has these variables. The keeper is the process
that a leaked worker would be: what the faults keep-port and keep-device leave behind is handed to it, because systemd
ends everything that stays in the engine's control group.

With "kv_table", rows of a length and the tokens that the cache has room for with it, the engine says at its start how
much room its own length leaves; between two rows the room is on the line through them. A request of more tokens than
"most_tokens" is answered with 500.

Every answer carries who gave it, in the field `system_fingerprint` that OpenAI has for that purpose:
`NAME INVOCATION ASKED WRONG`; the last two count the canary's questions (known by their seed) that it has answered, and
those that it answered wrongly. With "thinks": true it writes a thought before each answer of a chat, unless
enable_thinking is false; with --reasoning-parser it gives the thought apart.

With --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1 it has vLLM's sleep API, as
vllm/entrypoints/serve/dev/sleep/api_router.py of 0.32.0 has it: POST /sleep?level=1|2 and POST /wake_up[?tags=] answer
200 and what became of it, GET /is_sleeping answers {"is_sleeping": BOOL}, and /health answers 200 all the time. From
level 2 it comes back without weights, and answers with a run of one token until POST /collective_rpc with the method
reload_weights. Without both there are no such paths (404). llama.cpp's server has no sleep: all that stays of its model
is the file in the kernel's page cache.

Each token, and each chunk of a prompt, is a step of a child process that is called as vLLM's core is. Stop it with
SIGSTOP, and nothing is generated, while /health, /v1/models and /metrics answer as ever. Standard library only."""

from __future__ import annotations

import argparse
import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))  # an isolated Python looks nowhere else

import sim_answers
from sim_answers import CANARY_SEED, error_body, prompt_of, tokens_of
from sim_keeper import keep, log

FAULTS = {
    "never-ready": "loads for ever",
    "slow-ready": "listens at once, answers 503 until it is loaded",
    "exit-at-start": "exits with 3 while it loads, naming a context that does not fit",
    "end-at-start": "ends with 0 while it loads, as vLLM's server does when a worker has died",
    "end": "the same at the first generation",
    "leave-shm": "has a segment of shared memory, which stays there when it is killed",
    "crash-loop": "exits with 3 half a second after every start",
    "health-500": "answers /health with 500",
    "wrong-id": "serves under another name",
    "wrong-length": "serves another max_model_len",
    "wrong-answer": "answers every question wrongly",
    "other-words": "says who it is in other words, which its canary accepts",
    "wrong-one-in-four": "answers every fourth question wrongly",
    "wrong-together": "answers wrongly while it answers somebody else as well",
    "wrong-later": "answers wrongly from the second turn of a conversation on",
    "wrong-stream": "answers wrongly in streams",
    "wrong-sampled": "answers wrongly where it samples",
    "wrong-reused": "answers wrongly what begins like an earlier prompt of the same cache salt",
    "no-usage": "does not tell the usage of a stream",
    "no-finish": "does not tell why a stream ends",
    "no-done": "does not mark the end of a stream",
    "never-streams": "answers as a whole what is asked for as a stream",
    "endless-thought": "never stops thinking",
    "broken-call": "gives the arguments of a call cut off",
    "broken-call-stream": "does so in streams",
    "call-as-text": "gives calls as text in streams",
    "nan": "has NaN as log probability",
    "garbage": "answers with a run of one token",
    "empty": "answers with nothing",
    "hang": "never answers a generation",
    "wedge": "counts generations, answers /health and /metrics, and does nothing else as long as it is told so",
    "crawl": "does not end with its prompt as long as it is told so, but takes a chunk of it every chunk_s",
    "hang-stream": "stops in the middle of a client's stream",
    "hold-stream": "holds a client's stream after its first word as long as it is told so",
    "slow-stream": "takes two seconds for each word of a client's stream",
    "die-stream": "dies in the middle of a client's stream and logs a lost device",
    "die": "dies at the first generation and logs a lost device",
    "ignore-term": "takes no notice of SIGTERM and SIGINT",
    "slow-stop": "needs stop_s to stop",
    "share-port": "shares its port with whoever asks for that too",
    "keep-port": "leaves the port behind with another process for hold_s",
    "keep-device": "leaves the device file behind with another process for hold_s",
    "never-sleeps": "says that it went to sleep, and keeps all that it has",
    "hang-sleep": "never answers POST /sleep",
    "hang-wake": "never answers POST /wake_up",
    "never-wakes": "says that it woke up, and sleeps on",
    "die-asleep": "dies half a second after it went to sleep",
    "wrong-awake": "answers wrongly once it woke up",
    "garbage-awake": "answers with a run of one token once it woke up",
    "forgets-asleep": "has lost its weights when it wakes up, and answers with nothing",
    "forgets-reload": "says that it read its weights again, and has none",
    "fails-reload": "does not find its weights again",
    "hang-reload": "never answers POST /collective_rpc",
    "flood": "writes flood_per_s lines into its log while it loads",
}
DEFAULTS = {"load_s": 0.3, "stop_s": 2.0, "hold_s": 2.0, "flood_per_s": 10000.0, "token_s": 0.01, "most_tokens": 1e9}
DEFAULTS |= {"prefill_s": 0.0, "chunk_s": 1.0}  # of every generation, and of each of its steps
PREFIX = 64  # words, of which the cache keeps what was computed
DEVICE = f"/dev/dri/renderD{128 + int((os.environ.get('ZE_AFFINITY_MASK') or '0').partition(',')[0])}"
DEVICE_LOST = "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"
NO_ROOM = (
    "ValueError: To serve at least one request with the models's max seq len (512), 0.44 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (0.31 GiB). Based on the available memory, the estimated "
    "maximum model length is 352."
)
WORKER_DIED = (
    "ERROR 06-07 09:00:00 [multiproc_executor.py:1] Worker proc VllmWorker-1 died unexpectedly, shutting down."
)
STAMP = "INFO 06-07 09:00:00"


class Core:
    """The child process that does each step of a generation: it gives back a byte for each that it gets."""

    NAME = "VLLM::EngineCore"

    def __init__(self) -> None:
        told = {signal.SIGTERM, signal.SIGINT}
        # It inherits that it hears of neither: it ends with the process that reads from it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, told)
        self._process = subprocess.Popen(
            [self.NAME], executable="/bin/cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._changed = threading.Condition()
        self._asked = self._done = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        assert self._process.stdout is not None
        while come := self._process.stdout.read(4096):
            with self._changed:
                self._done += len(come)
                self._changed.notify_all()

    def step(self, given_up: Callable[[], bool]) -> bool:
        """Does one; False where it was given up before."""
        assert self._process.stdin is not None
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._process.stdin.write(b".")
            while not self._changed.wait_for(lambda: self._done >= mine, 0.1):
                if given_up():
                    return False
        return True


class Engine:
    """What all requests share: what this process was told, and what it has answered."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.name, self.length = str(given.served_model_name), int(given.max_model_len)
        self.port, self.host = int(given.port), str(given.host)
        self.sim_dir = Path(given.sim_dir)
        told = self._told()
        self.values = {key: float(told.get(key, value)) for key, value in DEFAULTS.items()}
        self.at_start = frozenset(map(str, told.get("faults") or ()))
        unknown = self.at_start - FAULTS.keys()
        if unknown:
            sys.exit(f"no such fault: {', '.join(sorted(unknown))} (there are {', '.join(FAULTS)})")
        self.kv_table = [(int(length), int(tokens)) for length, tokens in told.get("kv_table") or ()]
        self.invocation = ""
        self.core = Core()
        self.loaded = False
        self.server: Server | None = None
        self.device: int | None = None
        self.segment = Path(f"/dev/shm/sim-{self.name}-{os.getpid()}")
        self.thinks = bool(told.get("thinks"))
        self.parser = str(given.reasoning_parser)
        self.has_sleep = bool(given.enable_sleep_mode) and os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
        self.asleep = self.woke = False
        self.given_up: set[str] = set()  # whose memory it has given up, as vLLM's tags name it
        self.empty = False  # its weights were dropped, and not read again
        self._lock = threading.Lock()
        self._busy = 0
        self.waiting = 0  # generations that it has begun
        self.tokens = 0  # that it has generated
        self.cached = 0.0  # share of its cache in use
        self._answered = self._asked = self._wrong = 0
        self._prefixes: set[tuple[str, ...]] = set()
        self.begin()

    def _told(self) -> dict[str, Any]:
        """What is told to this engine by its port, or else to all engines of its name."""
        for name in (f"{self.name}@{self.port}", self.name):
            with contextlib.suppress(OSError, ValueError):
                told = json.loads((self.sim_dir / f"{name}.json").read_text())
                over = "until" in told and Path(told["until"]).stat().st_size
                return told if told.get("env", {}).items() <= os.environ.items() and not over else {}
        return {}

    def begin(self) -> None:
        """Take the start of its unit for its own.

        The unit of a container, and that of a relay, say in a file which it is; an engine elsewhere is a new one then.
        """
        now = os.environ.get("INVOCATION_ID", "")
        with contextlib.suppress(OSError):
            now = now or (self.sim_dir / f"b70-slot-main-{self.name}.invocation").read_text().strip()
        if now and now != self.invocation:
            self.invocation, self._answered, self._asked, self._wrong = now, 0, 0, 0
            self.at_start = frozenset(map(str, self._told().get("faults") or ()))

    def has(self, fault: str) -> bool:
        return fault in self.at_start or fault in (self._told().get("live") or ())

    def sleep(self, level: int) -> None:
        """As POST /sleep does it."""
        if self.has("hang-sleep"):
            time.sleep(86400)
        self.asleep = not self.has("never-sleeps")
        if self.asleep:
            self.given_up, self.empty = {"weights", "kv_cache"}, level == 2
        log(f"{STAMP} [sim.py:1] It {'sleeps' if self.asleep else 'keeps what it has'}")
        if self.has("die-asleep"):
            threading.Timer(0.5, die, ("Segmentation fault in a worker", 139)).start()

    def wake(self, tags: list[str]) -> None:
        """As POST /wake_up does it. No tags are all."""
        if self.has("hang-wake"):
            time.sleep(86400)
        self.given_up -= {*(tags or self.given_up)}
        self.asleep, self.woke = self.asleep and (bool(self.given_up) or self.has("never-wakes")), True

    def reload(self) -> bool:
        """As POST /collective_rpc does it; False where it fails."""
        if self.has("hang-reload"):
            time.sleep(86400)
        if "weights" in self.given_up or self.has("fails-reload"):
            return False
        self.empty = self.has("forgets-reload")
        return True

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """A generation, as /metrics counts them."""
        with self._lock:
            self.waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self.waiting -= 1

    def generate(self, given_up: Callable[[], bool]) -> bool:
        """One token; False where its client has left before."""
        if not self.core.step(given_up):
            return False
        with self._lock:
            self.tokens += 1
        return True

    def metrics(self) -> str:
        """As vLLM words it, as far as anybody reads it."""
        rows = {"num_requests_running": self.waiting, "num_requests_waiting": 0, "kv_cache_usage_perc": self.cached}
        rows |= {"generation_tokens_total": self.tokens, "prompt_tokens_total": 0, "prefix_cache_queries_total": 0}
        labels = f'{{engine="0",model_name="{self.name}"}}'
        text = "".join(f"vllm:{name}{labels} {float(value)}\n" for name, value in rows.items())
        rows = {"requests_processing": self.waiting, "requests_deferred": 0, "tokens_predicted_total": self.tokens}
        rows |= {"n_decode_total": self.tokens, "prompt_tokens_total": 0, "prompt_tokens_cached_total": 0}
        return text + "".join(f"llamacpp:{name} {value}\n" for name, value in rows.items())

    def _wrong_at(self) -> list[int]:
        return list(self._told().get("wrong_at") or ())

    @property
    def served_name(self) -> str:
        return "another-model" if self.has("wrong-id") else self.name

    @property
    def served_length(self) -> int:
        return 99 if self.has("wrong-length") else self.length

    @contextlib.contextmanager
    def company(self) -> Iterator[bool]:
        """Whether somebody else is answered meanwhile; looked at only where that matters."""
        with self._lock:
            self._busy += 1
        try:
            if self.has("wrong-together"):
                time.sleep(0.2)
            yield self._busy > 1
        finally:
            with self._lock:
                self._busy -= 1

    def answer(self, body: dict[str, Any], prompt: str, *, together: bool) -> tuple[str, str]:
        """Return (the text, the stamp)."""
        right = sim_answers.right_answer(body, prompt, self.name)
        with self._lock:
            self._answered += 1
            text = self._told_text(right, self._answered)
            canary = body.get("seed") == CANARY_SEED
            self._asked += canary
            struck = self._struck(body) or (together and self.has("wrong-together"))
            if struck or (canary and self._asked in self._wrong_at()):
                text = "slh cobalt"
            if canary:
                self._wrong += text != right
            return text, f"{self.name} {self.invocation} {self._asked} {self._wrong}"

    def _struck(self, body: dict[str, Any]) -> bool:
        """Whether the engine answers wrongly what is asked in this shape."""
        words = " ".join(str(message.get("content")) for message in body.get("messages") or []).split()
        prefix = (str(body.get("cache_salt")), *words[:PREFIX])
        reused = prefix in self._prefixes
        if len(words) >= PREFIX:
            self._prefixes.add(prefix)
        turns = sum(message.get("role") == "user" for message in body.get("messages") or [])
        shapes = {
            "wrong-later": turns > 1,
            "wrong-stream": bool(body.get("stream")),
            "wrong-sampled": body.get("temperature", 1) != 0,
            "wrong-reused": reused,
        }
        return any(strikes and self.has(fault) for fault, strikes in shapes.items())

    def _told_text(self, right: str, number: int) -> str:
        if self.empty:
            return "!" * 64
        if self.woke and any(map(self.has, ("garbage-awake", "forgets-asleep"))):
            return "!" * 64 if self.has("garbage-awake") else ""
        if (
            self.has("wrong-answer")
            or (self.woke and self.has("wrong-awake"))
            or (self.has("wrong-one-in-four") and number % 4 == 0)
        ):
            return "slh cobalt"
        if self.has("other-words") and right.startswith("I am"):
            return f"{right} Indeed."
        return "!" * 64 if self.has("garbage") else "" if self.has("empty") else right


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine

    def log_message(self, format: str, *arguments: Any) -> None:
        return

    def _send(self, status: int, data: Any) -> None:
        payload = json.dumps(data).encode() if data is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _send_text(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        engine = self.engine
        engine.begin()
        if self.path == "/health":
            self._send(500 if engine.has("health-500") else 200 if engine.loaded else 503, None)
        elif self.path == "/props":
            self._send(200, {"build_info": "b0-simulated"})
        elif self.path == "/version":
            self._send(200, {"version": "0.0.0+simulated"})
        elif self.path == "/v1/models":
            model = {"id": engine.served_name, "object": "model", "created": int(time.time()), "owned_by": "vllm"}
            model |= {"root": engine.name, "parent": None, "max_model_len": engine.served_length}
            model["meta"] = {"n_ctx": engine.served_length}
            self._send(200, {"object": "list", "data": [model]})
        elif self.path == "/is_sleeping" and engine.has_sleep:
            self._send(200, {"is_sleeping": engine.asleep})
        elif self.path == "/metrics":
            self._send_text(engine.metrics())
        else:
            self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        self.engine.begin()
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.engine.has_sleep and self._slept(raw):
            return
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path not in ("/v1/completions", "/tokenize"):
            self._send(404, {"detail": "Not Found"})
            return
        try:
            body = json.loads(raw)
            prompt, limit = prompt_of(body), int(body.get("max_completion_tokens") or body.get("max_tokens") or 256)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            self._send(400, error_body(f"the body is no request: {error}", "BadRequestError", 400))
            return
        if body.get("model") not in (None, self.engine.served_name):
            words = f"The model `{body.get('model')}` does not exist."
            self._send(404, error_body(words, "NotFoundError", 404))
            return
        size = len(prompt.split())
        if self.path == "/tokenize":
            room = {"count": size, "max_model_len": self.engine.served_length}
            self._send(200, {**room, "tokens": list(range(size)), "token_strs": None})
            return
        if size + limit > self.engine.served_length:
            words = f"This model's maximum context length is {self.engine.served_length} tokens."
            self._send(400, error_body(words, "BadRequestError", 400))
            return
        if size + limit > self.engine.values["most_tokens"]:
            words = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            self._send(500, error_body(words, "InternalServerError", 500))
            return
        self._generate(body, prompt, limit, chat=chat)

    def _slept(self, raw: bytes) -> bool:
        """Answer a request of vLLM's dev mode; return whether it is one."""
        engine, asked = self.engine, urlsplit(self.path)
        told = parse_qs(asked.query)
        if asked.path == "/sleep":
            level = int(told.get("level", ["1"])[0])
            engine.sleep(level)
            # vLLM says so to each that was carried out.
            self._send(200, {"status": "sleeping", "level": level})
        elif asked.path == "/wake_up":
            engine.wake(told.get("tags", []))
            self._send(200, {"status": "sleeping" if engine.asleep else "awake", "tags": told.get("tags")})
        elif asked.path == "/collective_rpc" and json.loads(raw) == {"method": "reload_weights"}:
            done = engine.reload()
            self._send(200, {"results": [None]}) if done else self._send(500, {"detail": "Internal Server Error"})
        elif asked.path == "/reset_prefix_cache":
            self._send(200, {"success": True})
        else:
            return False
        return True

    def _generate(self, body: dict[str, Any], prompt: str, limit: int, *, chat: bool) -> None:
        engine = self.engine
        if engine.asleep:
            words = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            self._send(500, error_body(words, "InternalServerError", 500))
            return
        if engine.has("die"):
            die()
        if engine.has("end"):
            die(WORKER_DIED, 0)
        if engine.has("hang"):
            time.sleep(86400)
        with engine.counted(), engine.company() as together:
            if not self._prefill():
                return
            self._say(body, prompt, limit, chat=chat, together=together)

    def _prefill(self) -> bool:
        """Reads the prompt in chunks, each of which takes some of the cache; stands still while it is wedged. Returns
        whether the client is still there."""
        engine, until = self.engine, time.monotonic() + self.engine.values["prefill_s"]
        step_at = time.monotonic() + engine.values["chunk_s"]
        while (stands := engine.has("wedge")) or engine.has("crawl") or time.monotonic() < until:
            time.sleep(0.1)
            if self._left():
                self.close_connection = True
                return False
            if time.monotonic() >= step_at and not stands:
                if not engine.core.step(self._left):
                    self.close_connection = True
                    return False
                engine.cached = (engine.cached + 0.001) % 1
                step_at = time.monotonic() + engine.values["chunk_s"]
        return True

    def _say(self, body: dict[str, Any], prompt: str, limit: int, *, chat: bool, together: bool) -> None:
        engine = self.engine
        text, who = engine.answer(body, prompt, together=together)
        whole = tokens_of(text)
        if body.get("ignore_eos"):
            whole = (whole * limit)[:limit]
        why, tokens = "length" if len(whole) > limit else "stop", whole[:limit]
        kind = "chat.completion" if chat else "text_completion"
        head = {"id": f"sim-{os.getpid()}", "created": int(time.time()), "model": engine.served_name}
        head |= {"system_fingerprint": who}
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(tokens)}
        usage["total_tokens"] = sum(usage.values())
        if body.get("stream") and not engine.has("never-streams"):
            options = body.get("stream_options") or {}
            head["object"] = f"{kind}.chunk" if chat else kind
            parts: list[dict[str, Any]] = [{"text": token} for token in tokens]
            if chat:
                message, why, usage["completion_tokens"] = self._message(body, prompt, whole, limit)
                parts = [{"delta": delta} for delta in sim_answers.deltas_of(message)]
            told = options.get("include_usage") and not engine.has("no-usage")
            self._stream(body, head, parts, why, usage if told else None)
            return
        for _token in tokens:
            time.sleep(engine.values["token_s"])
            if self._left() or not engine.generate(self._left):
                log(f"{STAMP} [sim.py:1] Aborted a request: its client has left")
                self.close_connection = True
                return
        choice: dict[str, Any] = {"index": 0, "finish_reason": why, "logprobs": self._logprobs(body, tokens)}
        if chat:
            message, choice["finish_reason"], usage["completion_tokens"] = self._message(body, prompt, whole, limit)
            choice["message"] = message
        else:
            choice["text"] = "".join(tokens)
        self._send(200, {**head, "object": kind, "choices": [choice], "usage": usage})

    def _message(
        self, body: dict[str, Any], prompt: str, tokens: list[str], limit: int
    ) -> tuple[dict[str, Any], str, int]:
        engine, thought = self.engine, ""
        if engine.thinks and sim_answers.thinks(body):
            thought = sim_answers.ENDLESS if engine.has("endless-thought") else sim_answers.THOUGHT
        call, streams = sim_answers.CALL[1] if sim_answers.calls(body, prompt) else "", bool(body.get("stream"))
        if call and streams and engine.has("call-as-text"):
            call, tokens = "", tokens_of(call)
        if call and (engine.has("broken-call") or (streams and engine.has("broken-call-stream"))):
            call = sim_answers.broken(call)
        return sim_answers.message_of(tokens, limit, thought=thought, parsed=bool(engine.parser), call=call)

    def _logprobs(self, body: dict[str, Any], tokens: list[str]) -> dict[str, Any] | None:
        if not body.get("logprobs"):
            return None
        value = float("nan") if self.engine.has("nan") else -0.01
        row = {"logprob": value, "top_logprobs": []}
        return {"content": [{"token": token, "bytes": list(token.encode()), **row} for token in tokens]}

    def _left(self) -> bool:
        """Has the client closed its connection?"""
        ready, _write, _error = select.select([self.connection], [], [], 0)
        return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)

    def _stream(
        self,
        body: dict[str, Any],
        head: dict[str, Any],
        parts: list[dict[str, Any]],
        why: str,
        usage: dict[str, int] | None,
    ) -> None:
        """Stream the parts of choices. An engine that broke the canary's stream would not be served."""
        engine, clients = self.engine, body.get("seed") != CANARY_SEED
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            if "delta" in parts[0]:
                self._event({**head, "choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})
            for number, part in enumerate(parts):
                if clients and number * 2 >= len(parts):
                    if engine.has("hang-stream"):
                        time.sleep(86400)
                    if engine.has("die-stream"):
                        die()
                token = part.get("text") or part.get("delta", {}).get("content") or ""
                last = number == len(parts) - 1 and not engine.has("no-finish")
                about = {"index": 0, "logprobs": self._logprobs(body, [token]), "finish_reason": why if last else None}
                if not engine.generate(self._left):
                    raise BrokenPipeError
                self._event({**head, "choices": [part | about]})
                time.sleep(2.0 if clients and engine.has("slow-stream") else engine.values["token_s"])
                while clients and engine.has("hold-stream"):
                    if self._left():
                        raise BrokenPipeError
                    time.sleep(0.05)
            if usage is not None:
                self._event({**head, "choices": [], "usage": usage})
            if not engine.has("no-done"):
                self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
        except OSError:
            log(f"{STAMP} [sim.py:1] Aborted a request: its client has left")
            self.close_connection = True

    def _event(self, data: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def die(words: str = DEVICE_LOST, code: int = 1) -> None:
    log(words)
    os._exit(code)


def load(engine: Engine) -> None:
    """Takes as long as a load takes, with the words of one."""
    log(f"{STAMP} [api_server.py:1] vLLM API server version 0.0.0 (simulated)")
    begun, load_s = time.monotonic(), engine.values["load_s"]
    flood = flooding(engine.values["flood_per_s"]) if engine.has("flood") else None
    while True:
        age = time.monotonic() - begun
        if engine.has("exit-at-start") or (engine.has("crash-loop") and age >= 0.5):
            log(NO_ROOM if engine.has("exit-at-start") else "Segmentation fault in a worker")
            sys.exit(3)
        if engine.has("end-at-start"):
            die(WORKER_DIED, 0)
        endless = engine.has("never-ready") or engine.has("crash-loop")
        if not endless and age >= load_s:
            log(f"{STAMP} [loader.py:1] Loading weights took {age:.1f} seconds")
            say_room(engine)
            return
        done = 10 if endless else int(100 * age / load_s)
        log(f"{STAMP} [loader.py:1] Loading safetensors checkpoint shards: {done}% Completed")
        pause = min(0.5, max(0.05, load_s / 10))
        if flood is None:
            time.sleep(pause)
        else:
            until = time.monotonic() + pause
            while time.monotonic() < until:
                next(flood)


def say_room(engine: Engine) -> None:
    """What vLLM logs of its cache once it has measured the memory."""
    if not engine.kv_table:
        return
    length, rows = engine.length, sorted(engine.kv_table)
    place = min(max(sum(row[0] < length for row in rows), 1), len(rows) - 1)
    (left, low), (right, high) = rows[place - 1], rows[place]
    tokens = round(low + (high - low) * (length - left) / (right - left))
    log(f"(EngineCore pid=7) {STAMP} [kv_cache_utils.py:1] GPU KV cache size: {tokens:,} tokens")
    words = f"Maximum concurrency for {length:,} tokens per request: {tokens / length:.2f}x"
    log(f"(EngineCore pid=7) {STAMP} [kv_cache_utils.py:1] {words}")


def flooding(per_s: float) -> Iterator[None]:
    """Each step writes lines for the twentieth part of a second, and sleeps for the rest of it."""
    number = 0
    while True:
        begun = time.monotonic()
        lines = [f"WARNING 06-07 09:00:00 [flood.py:1] line {number + i} " + "x" * 80 for i in range(int(per_s / 20))]
        number += len(lines)
        log("\n".join(lines))
        time.sleep(max(0.0, 0.05 - (time.monotonic() - begun)))
        yield


def leave_behind(engine: Engine, descriptor: int) -> None:
    """Hands an open descriptor to the keeper."""
    order = json.dumps({"hold_s": engine.values["hold_s"], "of": engine.name}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(5)
        channel.connect(str(engine.sim_dir / "keeper.sock"))
        channel.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
        channel.recv(1)  # it has it


def serve(engine: Engine) -> None:
    def stop(_number: int, _frame: object) -> None:
        if engine.has("ignore-term"):
            return
        if engine.has("slow-stop"):
            time.sleep(engine.values["stop_s"])
        if engine.has("keep-port") and engine.server is not None:
            leave_behind(engine, engine.server.fileno())
        if engine.has("keep-device") and engine.device is not None:
            leave_behind(engine, engine.device)
        engine.segment.unlink(missing_ok=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with contextlib.suppress(OSError):
        engine.device = os.open(DEVICE, os.O_RDWR)
    if engine.has("leave-shm"):
        engine.segment.write_bytes(bytes(2**20))
    handler = type("BoundHandler", (Handler,), {"engine": engine})
    early = engine.has("slow-ready")
    if not early:
        load(engine)
    Server.allow_reuse_port = engine.has("share-port")
    engine.server = Server((engine.host, engine.port), handler)
    threading.Thread(target=engine.server.serve_forever, daemon=True).start()
    if early:
        load(engine)
    engine.loaded = True
    log("INFO:     Application startup complete.")
    while True:
        signal.pause()


def as_vllm(arguments: list[str]) -> list[str]:
    """Return the words of llama.cpp's server as those of vLLM's; end as it does where it is asked for its version."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model")
    parser.add_argument("--alias")
    parser.add_argument("--ctx-size", type=int, default=512)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--version", action="version", version="version: 0 (simulated)")
    given, others = parser.parse_known_args(arguments)
    length = str(given.ctx_size // given.parallel)
    return ["serve", given.model, "--served-model-name", given.alias, "--max-model-len", length, *others]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="A simulated engine with faults.")
    words = parser.add_subparsers(dest="word", required=True)
    server = words.add_parser("serve")
    server.add_argument("model")
    server.add_argument("--host", default="127.0.0.1")
    server.add_argument("--port", type=int, default=18080)
    server.add_argument("--served-model-name", default="sim")
    server.add_argument("--max-model-len", type=int, default=512)
    server.add_argument("--reasoning-parser", default="")
    server.add_argument("--enable-sleep-mode", action="store_true")
    for form in (server, words.add_parser("keeper")):
        form.add_argument("--sim-dir", default="/run/b70-sim")
    if Path(sys.argv[0]).name == "llama-server":
        arguments = as_vllm(arguments)
    if arguments[:2] == ["bench", "serve"]:
        import sim_bench  # a client of HTTP, which no engine needs to start

        sim_bench.main(arguments[2:])
        return
    given, _others = parser.parse_known_args(arguments)  # the settings of a real engine mean nothing here
    if given.word == "keeper":
        keep(Path(given.sim_dir))
    serve(Engine(given))


if __name__ == "__main__":
    main(sys.argv[1:])
