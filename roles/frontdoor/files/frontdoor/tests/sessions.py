# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The turns of sessions, in the shapes in which programs send them.

Recorded from Claude Code 2.1.197, Codex 0.171.0, Cline 3.0.65 and aider 0.86.2 with a server that answers with calls of
tools, and taken from the source of Open WebUI: members, their order, what is sent otherwise in the next turn, and how
long each text was. The texts are not theirs. Dates, billing headers, summaries and files change as their sources say.
"""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from collections.abc import Callable
from typing import Any

from frontdoor.policy.routes import CHAT, MESSAGES, RESPONSES


@dataclasses.dataclass(frozen=True)
class Turn:
    """One request."""

    path: str
    body: dict[str, Any]
    fields: tuple[str, ...] = ()


def text(seed: str, size: int) -> str:
    """Words of a length, other ones for another seed."""
    words = hashlib.sha256(seed.encode()).hexdigest() + " "
    return f"{seed}: {words * (size // len(words) + 1)}"[:size]


def _id(seed: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, seed))


def _tools(program: str, count: int, size: int, **members: Any) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    return [
        {**members, "name": f"tool{number}", "description": text(f"{program} tool {number}", size // count)}
        | ({"parameters": schema} if members else {"input_schema": schema})
        for number in range(count)
    ]


def claude_code(session: str, turn: int, *, named: bool = True) -> Turn:
    """The mark of the cache moves with the end; a text with it is a list of parts, without it a string.

    The billing header changes with each request of the interactive program. At midnight the date in the first message
    does, and the conversation is computed anew. Where `named` is false a proxy has left out the names of the session.
    """

    def asked(number: int) -> dict[str, Any]:
        if number % 3:
            result = {
                "tool_use_id": f"toolu_{number}",
                "type": "tool_result",
                "content": text(f"{session}{number}", 900),
            }
            return {"role": "user", "content": [{**result, "is_error": False, **(mark if number == turn else {})}]}
        words = text(f"{session} asks {number}", 80)
        if number == turn or not number:
            return {"role": "user", "content": [{"type": "text", "text": words, **(mark if number == turn else {})}]}
        return {"role": "user", "content": words}

    mark = {"cache_control": {"type": "ephemeral"}}
    date = "2026-11-29" if named and turn >= 12 else "2026-11-28"
    reminders = [("agents", 1800), ("skills", 4650), (f"project {date}", 640)]
    first = asked(0)
    first["content"] = [{"type": "text", "text": text(name, size)} for name, size in reminders] + first["content"]
    messages = [first]
    for number in range(1, turn + 1):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "tool1", "input": {"command": f"echo {number}"}}
        told = {"type": "text", "text": text(f"{session} says {number}", 300)}
        messages += [{"role": "assistant", "content": [told, *([call] if number % 3 else [])]}, asked(number)]
    billing = (
        f"x-anthropic-billing-header: cc_version=2.1.197.b91; cc_entrypoint=cli; cch={_id(f'{session}{turn}')[:5]};"
    )
    names = f'{{"device_id":"{_id(session)}","account_uuid":"","session_id":"{_id(session)}"}}'
    body = {
        "model": "m",
        "messages": messages,
        "system": [
            {"type": "text", "text": billing},
            {"type": "text", "text": "You are an agent.", **mark},
            {"type": "text", "text": text("system", 26000) + text(f"git status {session}", 700), **mark},
        ],
        "tools": _tools("claude", 24, 80000),
        **({"metadata": {"user_id": names}} if named else {}),
        "max_tokens": 32000,
        "stream": True,
    }
    return Turn(f"{MESSAGES}?beta=true", body, (f"X-Claude-Code-Session-Id: {_id(session)}",) if named else ())


def claude_code_unnamed(session: str, turn: int) -> Turn:
    return claude_code(session, turn, named=False)


def codex(session: str, turn: int) -> Turn:
    """Instructions of the developer and two messages about the project precede the first question."""

    def said(role: str, words: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}

    items = [
        *(said("developer", text(f"developer {size}", size)) for size in (17500, 2100, 350)),
        *(said("user", text(f"project {size}", size)) for size in (110, 360)),
        said("user", text(f"{session} asks", 60)),
    ]
    for number in range(1, turn + 1):
        if number % 3:
            call = {"type": "function_call", "name": "tool1", "arguments": '{"cmd":"ls"}', "call_id": f"call_{number}"}
            given = {"type": "function_call_output", "id": f"fco_{number}", "call_id": f"call_{number}"}
            items += [call, {**given, "output": text(f"{session} output {number}", 800)}]
        else:
            items += [
                said("assistant", text(f"{session} says {number}", 300)),
                said("user", text(f"{session} {number}", 60)),
            ]
    body = {
        "model": "m",
        "stream": True,
        "input": items,
        "tools": _tools("codex", 9, 18000, type="function", strict=False),
        "store": False,
        "prompt_cache_key": _id(session),
        "client_metadata": {"turn_id": _id(f"{session}{turn}"), "thread_id": _id(session)},
    }
    name = _id(session)
    return Turn(RESPONSES, body, (f"session-id: {name}", f"thread-id: {name}", f"x-codex-turn-metadata: {turn}"))


def cline(session: str, turn: int) -> Turn:
    """No name of the session, and nothing that changes."""
    messages = [
        {"role": "system", "content": text("cline", 4300)},
        {"role": "user", "content": text(f"{session} asks", 60)},
    ]
    for number in range(1, turn + 1):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "tool1", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": text(f"{session} {number}", 900)},
        ]
    tools = [{"type": "function", "function": tool} for tool in _tools("cline", 25, 17000)]
    return Turn(CHAT, {"model": "m", "messages": messages, "tools": tools, "tool_choice": "auto", "stream": True})


def aider(session: str, turn: int) -> Turn:
    """Every session begins with the same example, and each question ends with a reminder that the next turn leaves out.

    The summary of the repository changes with what is asked, and the files with each change.
    """

    def said(role: str, words: str) -> dict[str, Any]:
        return {"role": role, "content": words}

    messages = [
        said("system", text("aider", 1200)),
        said("user", "Change the greeting to be more casual"),
        said("assistant", text("example", 200)),
        said("user", "I switched to a new code base."),
        said("assistant", "Ok."),
        said("user", text(f"repository {turn // 2}", 3000)),
        said("assistant", "Ok, I won't try and edit those files without asking first."),
    ]
    for number in range(turn):
        messages += [
            said("user", text(f"{session} {number}", 60)),
            said("assistant", text(f"{session} answer {number}", 900)),
        ]
    messages += [
        said("user", text(f"{session} files {turn}", 6000)),
        said("assistant", "Ok, any changes I propose will be to those files."),
        said("user", text(f"{session} {turn}", 60) + text("reminder", 800)),
    ]
    return Turn(CHAT, {"model": "m", "messages": messages, "temperature": 0, "stream": True})


def open_webui(session: str, turn: int, *, named: bool = True) -> Turn:
    """Short texts; the chat is named where the administrator lets it forward what it knows of users."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a helpful assistant."}]
    for number in range(turn + 1):
        messages.append({"role": "user", "content": text(f"{session} {number}", 60)})
        if number < turn:
            messages.append({"role": "assistant", "content": text(f"{session} answer {number}", 700)})
    fields = (f"X-OpenWebUI-Chat-Id: {_id(session)}",) if named else ()
    return Turn(CHAT, {"stream": True, "model": "m", "messages": messages}, fields)


def open_webui_unnamed(session: str, turn: int) -> Turn:
    return open_webui(session, turn, named=False)


PROGRAMS: list[Callable[[str, int], Turn]] = [
    *(claude_code, claude_code_unnamed, codex, cline, aider, open_webui, open_webui_unnamed)
]
