# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A frontdoor with an engine that answers as it is asked to, for the chat page.

The argument is JSON: `keys_file`, `modalities`, and `second` for another slot. Prints its port. Each line of JSON on
standard input changes the state file. What the engine does is the first word of the last question; else it says what it
was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "roles" / "frontdoor" / "files" / "frontdoor"
sys.path[:0] = [str(PACKAGE / "src"), str(PACKAGE / "tests"), str(ROOT / "tests")]

import uvloop  # noqa: E402
from kit import Call, bench, serving_state  # noqa: E402

from frontdoor.http.client import ClientConnection  # noqa: E402

HOSTILE = """# Heading

<script>document.title = "taken"</script><img src="http://192.0.2.1/leak.png" onerror="document.title = 'taken'">
![a picture](http://192.0.2.1/leak.png)
[link](https://example.org/) [bad](javascript:document.title='taken') <a href="#" onclick="document.title='taken'">c</a>

| a | b |
|---|---|
| 1 | 2 |

```python
print("<b>")
```
<form action="http://192.0.2.1/"><input name="x"></form><style>body { display: none }</style>
"""


#: ends the pause of a paced answer
go_on = asyncio.Event()


async def stream(call: Call, parts: list[dict[str, Any]], reason: str = "stop", *, paced: bool = False) -> None:
    """Chunks as vLLM 0.32 writes them: the role first, then the parts, the end, and the usage."""
    about = {"id": "chatcmpl-97bca254cdda69dd", "object": "chat.completion.chunk", "created": 1795451567, "model": "m"}

    async def chunk(delta: dict[str, Any] | None, end: str | None = None, **more: Any) -> None:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}]
        await call.event(json.dumps({**about, "choices": choices, **more}))

    await call.begin_events()
    await chunk({"role": "assistant", "content": ""})
    for part in parts:
        await chunk(part)
        if paced:
            await go_on.wait()
    await chunk({"content": ""}, reason)
    usage = {"prompt_tokens": 9, "completion_tokens": len(parts), "total_tokens": 9 + len(parts)}
    await chunk(None, usage=usage)
    await call.event("[DONE]")
    await call.send(b"0\r\n\r\n")


async def answer(call: Call) -> None:
    """Do what the last question says."""
    if call.request.line.startswith("GET /v1/models"):
        await call.json({"object": "list", "data": [{"id": "tiny-a", "object": "model"}]})
        return
    if not call.request.line.startswith("POST"):
        if call.request.line.startswith("GET /version "):
            go_on.set()
        await call.json({})
        return
    body = json.loads(call.request.body)
    asked = body["messages"][-1]["content"]
    pictures = [part for part in asked if part["type"] == "image_url"] if isinstance(asked, list) else []
    text = asked if isinstance(asked, str) else "".join(part.get("text", "") for part in asked)
    word = text.partition(" ")[0]
    if word == "forever":
        await call.begin_events()
        while not call.gone.is_set():
            await call.event(json.dumps({"choices": [{"index": 0, "delta": {"content": "on "}}]}))
            await asyncio.sleep(0.01)
        return
    if word == "break":
        await call.begin_events()
        await call.event(json.dumps({"choices": [{"index": 0, "delta": {"content": "half an"}}]}))
        call.writer.transport.abort()
        return
    if word == "refuse":
        await call.json({"error": {"message": "the prompt is too odd", "code": 400}}, status="400 Bad Request")
        return
    told: list[dict[str, Any]] = [{"content": f"{piece} "} for piece in f"{body['model']} heard: {text}".split(" ")]
    if word == "think":
        told = [{"reasoning": "step "}, {"reasoning": "by step"}, {"content": "**42**"}]
    elif word == "tags":
        told = [{"content": piece} for piece in ("<th", "ink>first", " this</think>", "then that")]
    elif word == "markdown":
        told = [{"content": HOSTILE}]
    elif word == "history":
        told = [{"content": f"```\n{json.dumps(body['messages'])}\n```"}]
    elif word == "settings":
        told = [
            {"content": f"```\n{json.dumps({name: body.get(name) for name in ('temperature', 'max_tokens')})}\n```"}
        ]
    elif pictures:
        kinds = [part["image_url"]["url"].partition(";")[0] for part in pictures]
        told = [{"content": f"pictures: {' '.join(kinds)}"}]
    await stream(call, told, "length" if word == "short" else "stop", paced=word == "paced")


async def main() -> None:
    given = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="b70-chatting-") as folder:
        about = serving_state("")["profile"] | {"modalities": given.get("modalities", ["text"])}
        sections: dict[str, Any] = {}
        if given.get("keys_file"):
            sections |= {"auth": {"keys_file": given["keys_file"]}, "pages": {"chat": "on"}}
        other = Path(folder) / "other.json"
        if given.get("second"):
            sections["slots"] = [{"name": "side", "state_file": str(other), "units_dir": folder}]
            other.write_text("{}")
        async with bench(Path(folder), state={"profile": about}, **sections) as run:
            run.engine.script = answer
            if given.get("second"):
                told = serving_state(run.engine.url) | {"slot": "side"}
                told["profile"] |= {"name": "tiny-b", "title": "Tiny B", "served_model_name": "tiny-b"}
                told["profile"]["modalities"] = ["text", "image"]
                other.write_text(json.dumps(told))
                run.app.reload()
            loop = asyncio.get_running_loop()
            # the same door by an address that is not the visitor's own
            door = await loop.create_server(lambda: ClientConnection(run.app.server), "127.0.0.2", run.port)
            print(run.port, flush=True)
            reader = asyncio.StreamReader()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            while line := await reader.readline():
                run.write_state(**{"profile": about, **json.loads(line)})
            door.close()
            # a browser keeps its connections
            with contextlib.suppress(RuntimeError):
                for connection in list(run.app.connections):
                    connection.abort()


if __name__ == "__main__":
    uvloop.run(main())
