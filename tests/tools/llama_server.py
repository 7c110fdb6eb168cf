# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real llama-server accepts and says, recorded as data: its options, its answers and its log.

    python tests/tools/llama_server.py options BINARY --source 'llama.cpp 0123abc, cmake -DFLAG=ON'
    python tests/tools/llama_server.py answers BINARY MODEL.gguf --source …
    python tests/tools/llama_server.py variables SOURCES --source 'llama.cpp 0123abc'

``options`` writes the table below roles/profiles/files/engines, from where the catalogue reads it. ``answers`` writes
what the tests of the kind are made of; ``python tests/lab/models/as_gguf.py tiny-a FILE`` makes the model. The server
listens on loopback only. ``variables`` adds to the newest table what the sources read besides.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".cache/collections"), str(ROOT / "tests")]
TABLES = ROOT / "roles/profiles/files/engines"
ANSWERS = ROOT / "tests/unit/plugins/module_utils/_slot/llama_server"
START_S = 60
QUESTION = "Answer with the two letters OK and nothing more."
_HEAD = re.compile(r"^(?P<names>-\S.*?)(?:\s{2,}|$)(?P<words>.*)$")
_FLAG = re.compile(r"^(?P<flag>--?[A-Za-z][\w.-]*)(?: (?P<value>.+))?$")
_CHOICES = re.compile(r"^(?:\{([\w,|-]+)\}|\[([\w|-]+)\]|<([\w|-]+)>)$")
_ALLOWED = re.compile(r"allowed values: ([\w, ]+?) \(")
_NUMBER = re.compile(r"^(?:N|PORT|SEED|SECONDS|INDEX|<0\.\.\.100>)$")
_FRACTION = re.compile(r"\(default: -?\d+\.\d+")
_WORD_TOO = re.compile(r"'(?:auto|all)'")
_REMOVED = "the argument has been removed"


def _said(binary: Path, *arguments: str) -> str:
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=START_S, check=True)
    return done.stdout + done.stderr


def _entries(text: str) -> Iterator[tuple[list[str], str, str]]:
    """Yield (flags, name of the value or "", words) of each option in the text of ``--help``."""
    block: list[str] = []
    for line in [*text.splitlines(), "-----"]:
        if block and (line.startswith("-") or not line.strip()):
            yield _entry(block)
            block = []
        if line.startswith("-") and not line.startswith("-----"):
            block = [line]
        elif block:
            block.append(line)


def _entry(block: Sequence[str]) -> tuple[list[str], str, str]:
    found = _HEAD.match(block[0])
    if found is None:
        raise ValueError(f"not the head of an option: {block[0]!r}")
    names, words = found["names"], found["words"]
    rest = list(block[1:])
    flags: list[str] = []
    value = ""
    while True:
        # "-a,    --bc, --no-bc VALUE": spaces pad the columns, and a long list of names goes on in the words.
        parts = [part.strip() for part in re.split(r",\s+(?=-)", names)]
        for part in parts:
            flag = _FLAG.match(part.rstrip(","))
            if flag is None:
                raise ValueError(f"not a flag: {part!r} in {block[0]!r}")
            flags.append(flag["flag"])
            value = flag["value"] or value
        if not names.endswith(",") and not words.startswith("--"):
            break
        again = _HEAD.match(words)
        if again is None:
            break
        names, words = again["names"], again["words"]
    return flags, value, " ".join([words, *(line.strip() for line in rest)])


def options(text: str) -> dict[str, dict[str, Any]]:
    """Return the options of ``--help`` by snake_case name, as `_engine/ask.py` describes those of vLLM."""
    found: dict[str, dict[str, Any]] = {}
    for flags, value, words in _entries(text):
        names = [flag[2:] for flag in flags if flag.startswith("--")]
        positive = [name for name in names if not name.startswith("no-")]
        if not positive and names:
            positive = names
        if not positive or words.startswith(_REMOVED):
            continue
        option: dict[str, Any]
        listed = _CHOICES.match(value) or _ALLOWED.search(words)
        if not value:
            option = {"form": "switch" if any(f"no-{name}" in names for name in positive) else "flag"}
        elif listed:
            choices = re.split(r"[,|] ?", next(group for group in listed.groups() if group))
            option = {"form": "value", "accepts": ["text"], "choices": sorted(choices)}
        elif _NUMBER.match(value):
            accepts = ["number"] if _FRACTION.search(words) else ["integer", "number"]
            option = {"form": "value", "accepts": [*accepts, *(["text"] if _WORD_TOO.search(words) else [])]}
        else:
            option = {"form": "value", "accepts": ["text"]}
        for index, name in enumerate(positive):
            key = name.replace("-", "_")
            found[key] = option if index == 0 else {**option, "same_as": positive[0].replace("-", "_")}
    return found


def variables(text: str) -> list[str]:
    """Return the environment variables that ``--help`` names."""
    return sorted(set(re.findall(r"\(env: ([A-Z0-9_]+)", text)))


def read_by_sources(sources: Path) -> list[str]:
    """Return the variables that the engine's and its backends' sources read."""
    folders = [sources / name for name in ("common", "src", "tools/server", "ggml/src")]
    texts = (file.read_text(errors="replace") for folder in folders for file in folder.rglob("*.[ch]*"))
    found = re.compile(r'get_?env\w*\(\s*"((?:GGML|LLAMA)_[A-Z0-9_]+)"')
    return sorted({name for text in texts for name in found.findall(text)})


def write_variables(sources: Path, source: str) -> None:
    """Add to the newest table what the sources read beside what ``--help`` names."""
    release = "llama-server-"
    file = max(
        TABLES.glob(f"{release}*.json"), key=lambda path: [*map(int, path.stem.removeprefix(release).split("."))]
    )
    head, _comma, _rest = file.read_text().rpartition(',\n  "sources"')
    head = head or file.read_text().removesuffix("\n}\n")
    more = sorted({*read_by_sources(sources)} - {*json.loads(file.read_text())["environment"]})
    told = {"recorded_from": f"{source}, by tests/tools/llama_server.py", "environment": more}
    file.write_text(f'{head},\n  "sources": {json.dumps(told)}\n}}\n')
    print(file)


def write_options(binary: Path, source: str) -> None:
    """Write the table of a release."""
    version = re.search(r"(\d+\.\d+\.\d+)", _said(binary, "--version"))
    if version is None:
        raise SystemExit(f"{binary} --version names no release")
    text = _said(binary, "--help")
    head = {
        "engine": "llama-server",
        "version": version[1],
        "recorded_from": f"the help of llama-server itself ({source}), by tests/tools/llama_server.py",
    }
    rows = ",\n".join(
        f"    {json.dumps(key)}: {json.dumps(row, sort_keys=True)}" for key, row in sorted(options(text).items())
    )
    lines = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    file = TABLES / f"llama-server-{version[1]}.json"
    file.write_text(f'{{\n{lines}  "options": {{\n{rows}\n  }},\n  "environment": {json.dumps(variables(text))}\n}}\n')
    print(file)


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ask(port: int, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, str]:
    """Return (status, text) of one request, or (0, reason)."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        data = None if body is None else json.dumps(body)
        link.request("GET" if body is None else "POST", path, data, {"Content-Type": "application/json"})
        reply = link.getresponse()
        return reply.status, reply.read().decode()
    except OSError as error:
        return 0, str(error)
    finally:
        link.close()


def chat(words: str, **more: Any) -> dict[str, Any]:
    """Return the body of a question as the canary asks it."""
    message = {"role": "user", "content": words}
    return {"model": "tiny", "messages": [message], "max_tokens": 16, "temperature": 0, "seed": 1, **more}


def _ended(binary: Path, *arguments: str) -> dict[str, Any]:
    """What it says, and how it ends, when it cannot start."""
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=START_S, check=False)
    return {"status": done.returncode, "log": done.stdout + done.stderr}


def write_answers(binary: Path, model: Path, source: str) -> None:
    """Start the server, ask it what the slot and the frontdoor ask, end it, and write all that it said."""
    port = _port()
    found: dict[str, Any] = {}
    ANSWERS.mkdir(exist_ok=True)
    from unit.plugins.module_utils._slot import exchanges

    ours = {exchanges.PLACES["model_file"]: model.name}
    argv = [str(binary), *(ours.get(word, word) for word in exchanges.command(port)[1:])]
    with tempfile.TemporaryFile("w+") as log:
        begun = time.monotonic()
        server = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, cwd=model.parent)
        loading = []
        try:
            while (reply := ask(port, "/health"))[0] != 200:
                loading.append(reply)
                if time.monotonic() - begun > START_S or server.poll() is not None:
                    raise SystemExit("it did not become healthy")
            found["health_while_loading"] = next((reply for reply in loading if reply[0]), None)
            found["health"] = reply
            for path in ("/v1/models", "/props", "/slots", "/metrics"):
                found[path.rpartition("/")[2] + "_idle"] = ask(port, path)
            found["first_token"] = ask(port, "/v1/chat/completions", chat("Say one word.", max_tokens=1, logprobs=True))
            found["cold"] = ask(port, "/v1/chat/completions", chat(QUESTION, cache_prompt=False, logprobs=True))
            found["again_cold"] = ask(port, "/v1/chat/completions", chat(QUESTION, cache_prompt=False))
            found["warm"] = ask(port, "/v1/chat/completions", chat(QUESTION, cache_prompt=True))
            found["salted"] = ask(port, "/v1/chat/completions", chat(QUESTION, cache_salt="s"))
            found["too_long"] = ask(port, "/v1/chat/completions", chat("word " * 4000))
            found["metrics"], found["slots"] = ask(port, "/metrics"), ask(port, "/slots")
            found["switch"] = _switch(port)
        finally:
            server.send_signal(signal.SIGTERM)
            status = server.wait(START_S)
        log.seek(0)
        found["log"] = {"status": status, "log": log.read()}
    found["no_such_option"] = _ended(binary, "--no-such-option")
    found["no_such_model"] = _ended(binary, "--model", "missing.gguf", "--port", str(_port()))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found["port_in_use"] = _ended(binary, "--model", str(model), "--host", "127.0.0.1", "--port", str(port))
    found["interrupted"] = {"status": _interrupted(binary, model)}
    for name, value in found.items():
        data = {"source": source, "said": value}
        (ANSWERS / f"{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(found)} answers in {ANSWERS}")


def _switch(port: int) -> list[tuple[str, tuple[int, str]]]:
    """Have the slot itself switch to this engine: everything that it asked, and what it was told."""
    from unit.plugins.module_utils._slot import exchanges

    told: list[tuple[str, tuple[int, str]]] = []

    def send(path: str, body: Mapping[str, Any] | None) -> tuple[int, str]:
        reply = ask(port, path, body)
        told.append((exchanges.key(path, body), reply))
        return reply

    result = exchanges.switched(exchanges.llama_host(), send)
    if result["outcome"] != "committed":
        raise SystemExit(result["msg"])
    return told


def _interrupted(binary: Path, model: Path) -> int:
    port = _port()
    argv = [str(binary), "--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begun = time.monotonic()
    while ask(port, "/health")[0] != 200 and time.monotonic() - begun < START_S:
        time.sleep(0.05)
    server.send_signal(signal.SIGINT)
    return server.wait(START_S)


def main() -> None:
    """Record what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("options", "answers", "variables"))
    parser.add_argument("binary", type=Path, help="for variables, the folder of the sources")
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--source", required=True, help="the commit, and the flags that it was built with")
    given = parser.parse_args()
    if given.what == "options":
        write_options(given.binary.resolve(), given.source)
    elif given.what == "variables":
        write_variables(given.binary.resolve(), given.source)
    elif given.model is None:
        parser.error("answers needs a model")
    else:
        write_answers(given.binary.resolve(), given.model.resolve(), given.source)


if __name__ == "__main__":
    main()
