# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A form that uploads a recording is judged by the model that it names, and reaches the engine as it came."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import bench, on_loop

from frontdoor.policy.form import INVALID_FORM, Form, Marks, boundary_of
from frontdoor.policy.routes import FORM_PATHS

AUDIO = FORM_PATHS[0]
B = "----WebKitFormBoundaryx"
RECORDING = b"RIFF\r\n--" + B.encode()[:-1] + b"\r\n\r\n" + bytes(range(256))
FILE = b'name="file"; filename="a.wav"\r\nContent-Type: audio/wav'
STATE = {"request": {"model_policy": "reject", "model_aliases": ["whisper-1"]}}


def form(*parts: tuple[bytes, bytes], end: bytes = b"--\r\n", boundary: str = B) -> bytes:
    """A form as curl writes it."""
    line = b"--" + boundary.encode()
    fields = (line + b"\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + value for head, value in parts)
    return b"".join(field + b"\r\n" for field in fields) + line + end


def named(model: bytes) -> bytes:
    return form((FILE, RECORDING), (b'name="model"', model), (b'name="language"', b"de"))


async def sent(client: object, body: bytes, path: str = AUDIO, kind: str = f"multipart/form-data; boundary={B}") -> int:
    """The status of an upload."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    client.send(head.encode() + body)  # type: ignore[attr-defined]
    return int((await client.answer()).status)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", FORM_PATHS)
@pytest.mark.parametrize("filling", [b"", b"x" * 700_000])
@on_loop
async def test_the_model_of_a_form_is_judged_like_any_other(tmp_path: Path, path: str, filling: bytes) -> None:
    async with bench(tmp_path, state=STATE) as run:
        client = await run.client()
        upload = named(b"tiny-a").replace(b"RIFF", b"RIFF" + filling)
        assert await sent(client, upload, path) == 200
        assert await sent(client, upload.replace(b"\ntiny-a\r", b"\nwhisper-1\r"), path) == 200
        assert [one.body for one in run.engine.requests] == [upload, upload]
        assert await sent(client, upload.replace(b"\ntiny-a\r", b"\nother\r"), path) == 404
        assert await sent(client, form((FILE, RECORDING)), path) == 404
        assert await sent(client, b'{"model":"other"}', path, "application/json") == 404
        assert len(run.engine.requests) == 2


@on_loop
async def test_a_model_that_is_not_named_is_added_where_it_is_rewritten(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"request": {"model_policy": "rewrite"}}) as run:
        client = await run.client()
        assert await sent(client, form((FILE, RECORDING))) == 200
        assert run.engine.requests[0].body == form((b'name="model"', b"tiny-a"), (FILE, RECORDING))


@pytest.mark.parametrize(
    "head",
    [
        *(b'name="model"', b"name=model", b'name="model"; filename="x"', b"name=model; filename*=utf-8''%C3%A9"),
        b'name="model"\r\nContent-Type: text/plain',
    ],
)
def test_the_model_is_found_however_clients_write_it(head: bytes) -> None:
    assert Form(form((FILE, RECORDING), (head, b"m")), B.encode()).content == {"model": "m"}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", form(end=b"\r\n"), form((b'name="model"', b"a"), (b'name="model"', b"b"))),
        *(
            form((b'name="mod\\el"', b"a")),
            form((b"name*=utf-8''model", b"a")),
            form((b'name="x"; name="model"', b"a")),
        ),
        form((b'name="model"\r\nContent-Transfer-Encoding: base64', b"YQ==")),
        form((b'name="x"\r\nContent-Disposition: form-data; name="model"', b"a")),
        form(*[(b'name="x"', b"")] * 70),
        *(b"preamble\r\n" + named(b"a"), named(b"a") + named(b"b"), named(b"a") + b"x" * 100),
        form((b'name="x"\r\nX: ' + b"y" * 5000, b"a")),
    ],
)
@on_loop
async def test_what_readers_could_take_differently_is_refused(tmp_path: Path, body: bytes) -> None:
    assert Form(body, B.encode()).content is INVALID_FORM
    async with bench(tmp_path, state=STATE) as run:
        assert await sent(await run.client(), body) == 400
        # where no rule reads it, the engine says what is wrong with it
        run.write_state(sequence=8)
        assert await sent(await run.client(), body) == 200
        assert run.engine.requests[0].body == body


@pytest.mark.parametrize(
    ("kind", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data;boundary="a c"', b"a c"),
        *[(kind, b"") for kind in ("application/json", "multipart/form-data", 'multipart/form-data; boundary="', "")],
    ],
)
def test_the_boundary_is_told_by_the_type(kind: str, boundary: bytes) -> None:
    assert boundary_of(kind.encode()) == boundary


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=40) | st.just(RECORDING), max_size=4), st.lists(st.integers(0, 900), max_size=5))
def test_marks_are_found_in_any_pieces(values: list[bytes], cuts: list[int]) -> None:
    values = [value.replace(b"--" + B.encode(), b"") for value in values]
    body = form(*((b'name="x"', value) for value in values), (b'name="model"', b"m"))
    marks, ends = Marks(B.encode()), sorted({min(cut, len(body)) for cut in cuts})
    for start, end in zip([0, *ends], [*ends, len(body)], strict=True):
        marks.feed(body[start:end])
    assert marks.found == Marks(B.encode(), body).found
    assert Form(body, B.encode(), marks).content == {"model": "m"}


@on_loop
async def test_a_path_without_its_beginning_names_the_right_one(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for path, right in (
            ("/chat/completions", "/v1/chat/completions"),
            ("/v1/v1/models", "/v1/models"),
            ("/audio/transcriptions", AUDIO),
            ("/v1/tokenize", "/tokenize"),
        ):
            answer = await client.ask("POST", path, b"{}")
            assert answer.status == 404
            assert answer.json["error"]["message"] == f"{path} is not served here; send it to {right}"
        assert (await client.ask("GET", "/v1/nowhere")).json["error"]["message"] == "/v1/nowhere is not served here"
        # what some engines have beyond OpenAI's API
        for path in ("/v2/embed", "/v1/audio/speech", "/v1/chat/completions/batch", "/infill", "/completion"):
            assert (await client.ask("POST", path, b"{}")).status == 200
        assert (await client.ask("GET", "/props")).status == 200
        assert (await client.ask("POST", "/props", b"{}")).status == 405
