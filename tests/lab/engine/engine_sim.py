#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine that behaves like `vllm serve` towards its clients, and badly when it is told to.

    engine_sim.py --port 18080 --served-model-name sim-a --load-s 2 --control /run/sim/sim-a.json

Faults come from --fault or from the control file, a JSON such as {"fault": "wrong-answer", "load_s": 1}, which is read
at the start and before every answer, so that a running engine can be told to change. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FAULTS = {
    "": "none",
    "never-ready": "loads for ever",
    "slow-ready": "listens at once, answers 503 until it is loaded",
    "exit-at-start": "exits with 3 while it loads",
    "crash-loop": "exits with 3 half a second after every start",
    "health-500": "answers /health with 500",
    "wrong-id": "serves under another name",
    "wrong-length": "serves another max_model_len",
    "wrong-answer": "answers every question wrongly",
    "wrong-one-in-four": "answers every fourth question wrongly",
    "nan": "has NaN as log probability",
    "garbage": "answers with a run of one token",
    "empty": "answers with nothing",
    "hang": "never answers a generation",
    "hang-stream": "stops in the middle of a stream",
    "die-stream": "dies in the middle of a stream and logs a lost device",
    "die": "dies at the first generation and logs a lost device",
    "ignore-term": "takes no notice of SIGTERM and SIGINT",
    "slow-stop": "needs ten seconds to stop",
    "keep-port": "leaves a process behind that holds the port",
    "keep-device": "leaves a process behind that holds the device file",
    "flood": "writes ten thousand lines into its log while it loads",
}
ANSWERS = {
    "letters OK": "OK",
    "three words": "satin cobalt orbit",
    "red and 4 blue": "7",
    "colour of this picture": "Red",
    "who are you": "{name}",
}
DEVICE_LOST = "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Engine:
    """What the handlers share. The control file outranks the arguments."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.asked = 0
        self.loaded = False
        self.server: ThreadingHTTPServer | None = None
        self._lock = threading.Lock()

    def _control(self) -> dict[str, Any]:
        try:
            found = json.loads(Path(self.given.control).read_text()) if self.given.control else {}
        except (OSError, ValueError):
            found = {}
        return found if isinstance(found, dict) else {}

    @property
    def fault(self) -> str:
        return str(self._control().get("fault", self.given.fault))

    @property
    def load_s(self) -> float:
        return float(self._control().get("load_s", self.given.load_s))

    @property
    def name(self) -> str:
        return "another-model" if self.fault == "wrong-id" else str(self.given.served_model_name)

    @property
    def length(self) -> int:
        return 99 if self.fault == "wrong-length" else int(self.given.max_model_len)

    def answer(self, prompt: str) -> str:
        with self._lock:
            self.asked += 1
            asked = self.asked
        if self.fault == "wrong-answer" or (self.fault == "wrong-one-in-four" and asked % 4 == 0):
            return "slh cobalt"
        if self.fault == "garbage":
            return "!" * 64
        if self.fault == "empty":
            return ""
        found = next((text for words, text in ANSWERS.items() if words in prompt), "{name} heard: " + prompt[:200])
        return found.replace("{name}", str(self.given.served_model_name))


def prompt_of(body: dict[str, Any]) -> str:
    if isinstance(body.get("prompt"), str):
        return str(body["prompt"])
    content = (body.get("messages") or [{}])[-1].get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


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

    def do_GET(self) -> None:
        engine = self.engine
        if self.path == "/health":
            status = 500 if engine.fault == "health-500" else 200 if engine.loaded else 503
            self._send(status, None)
        elif self.path == "/v1/models":
            model = {"id": engine.name, "object": "model", "max_model_len": engine.length}
            self._send(200, {"object": "list", "data": [model]})
        else:
            self._send(404, {"error": {"message": f"no path {self.path}"}})

    def do_POST(self) -> None:
        engine = self.engine
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path not in ("/v1/chat/completions", "/v1/completions"):
            self._send(404, {"error": {"message": f"no path {self.path}"}})
            return
        if engine.fault == "die":
            log(DEVICE_LOST)
            os._exit(1)
        if engine.fault == "hang":
            time.sleep(86400)
        text = engine.answer(prompt_of(body))
        if body.get("stream"):
            self._stream(text, float(body.get("sim_delay_s", 0.02)))
            return
        chat = self.path.startswith("/v1/chat")
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        if body.get("logprobs"):
            value = float("nan") if engine.fault == "nan" else -0.01
            choice["logprobs"] = {"content": [{"token": text[:1], "logprob": value}]}
        usage = {"prompt_tokens": 8, "completion_tokens": len(text.split()), "total_tokens": 8 + len(text.split())}
        self._send(200, {"id": "sim", "model": engine.name, "choices": [choice], "usage": usage})

    def _stream(self, text: str, delay_s: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        words = text.split() or [""]
        for number, word in enumerate(words):
            if number >= len(words) // 2 and self.engine.fault == "hang-stream":
                time.sleep(86400)
            if number >= len(words) // 2 and self.engine.fault == "die-stream":
                log(DEVICE_LOST)
                os._exit(1)
            delta = {"index": 0, "delta": {"content": word + " "}, "finish_reason": None}
            self._chunk("data: " + json.dumps({"id": "sim", "model": self.engine.name, "choices": [delta]}) + "\n\n")
            time.sleep(delay_s)
        self._chunk("data: [DONE]\n\n")
        self._chunk("")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def load(engine: Engine) -> None:
    """Takes as long as a load takes, with the words of one."""
    log("INFO 06-07 09:00:00 [api_server.py:1] vLLM API server version 0.0.0 (simulated)")
    begun = time.monotonic()
    if engine.fault == "flood":
        for number in range(10000):
            log(f"WARNING 06-07 09:00:00 [flood.py:1] line {number} " + "x" * 200)
    while True:
        fault, age = engine.fault, time.monotonic() - begun
        if fault == "exit-at-start" or (fault == "crash-loop" and age >= 0.5):
            log("ValueError: To serve at least one request with the models's max seq len (512), more memory is needed")
            sys.exit(3)
        if fault != "never-ready" and age >= engine.load_s:
            log(f"INFO 06-07 09:00:00 [loader.py:1] Loading weights took {age:.1f} seconds")
            return
        done = int(100 * age / engine.load_s) if fault != "never-ready" else 10
        log(f"INFO 06-07 09:00:00 [loader.py:1] Loading safetensors checkpoint shards: {done}% Completed")
        time.sleep(min(0.5, max(0.05, engine.load_s / 10)))


def leave_behind(given: argparse.Namespace, fault: str) -> None:
    """A process outside of the unit's control group, as a leaked worker would be; ends by itself after --hold-s."""
    hold = [f"--hold-port={given.port}"] if fault == "keep-port" else [f"--hold-device={given.device}"]
    hold.append(f"--hold-s={given.hold_s}")
    runner = ["systemd-run", "--quiet", "--collect", f"--unit=engine-sim-keeper-{os.getpid()}"]
    subprocess.run([*runner, sys.executable, os.path.abspath(__file__), *hold], check=False, timeout=20)


def hold(given: argparse.Namespace) -> None:
    if given.hold_port:
        held = Server(("127.0.0.1", given.hold_port), Handler)
        time.sleep(given.hold_s)
        held.server_close()
    if given.hold_device:
        with open(given.hold_device, "rb"):
            time.sleep(given.hold_s)


def main() -> None:
    parser = argparse.ArgumentParser(description="A simulated engine with faults.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--served-model-name", default="sim")
    parser.add_argument("--max-model-len", type=int, default=512)
    parser.add_argument("--load-s", type=float, default=1.0)
    parser.add_argument("--fault", default="", choices=sorted(FAULTS))
    parser.add_argument("--control", default="", help="JSON file that outranks --fault and --load-s")
    parser.add_argument("--device", default="/dev/null", help="device file which keep-device holds")
    parser.add_argument("--hold-s", type=float, default=45.0, help="how long a process that is left behind holds on")
    parser.add_argument("--hold-port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--hold-device", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.hold_port or given.hold_device:
        hold(given)
        return
    engine = Engine(given)

    def stop(_number: int, _frame: object) -> None:
        fault = engine.fault
        if fault == "ignore-term":
            return
        if fault == "slow-stop":
            time.sleep(10)
        if fault in ("keep-port", "keep-device"):
            if engine.server is not None:
                engine.server.socket.close()
            leave_behind(given, fault)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    handler = type("BoundHandler", (Handler,), {"engine": engine})
    if engine.fault == "slow-ready":
        server = Server((given.host, given.port), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        load(engine)
        engine.loaded = True
        threading.Event().wait()
    load(engine)
    engine.loaded = True
    server = Server((given.host, given.port), handler)
    log("INFO:     Application startup complete.")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    engine.server = server
    threading.Event().wait()


if __name__ == "__main__":
    main()
