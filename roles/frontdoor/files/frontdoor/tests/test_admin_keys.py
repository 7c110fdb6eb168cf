# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the key of an administrator opens beside the administration, and what who has none is told."""

from __future__ import annotations

from pathlib import Path

from admin_kit import KEY, MODELS, admin, write_keys
from kit import Answer, Bench, bench, on_loop

LOOKS = ("/status", "/frontdoor/status", "/frontdoor/activity", "/metrics", "/engine/metrics")


def from_elsewhere(run: Bench) -> None:
    """The machine itself may look without a key."""
    for connection in run.app.connections:
        connection.from_this_host = False


def said(answer: Answer) -> str:
    assert answer.status == 401
    assert answer.header("WWW-Authenticate") == 'Bearer realm="b70"'
    about = answer.json.get("error") or answer.json["detail"]
    assert about["code"] == "invalid_api_key"
    return str(about["message"])


@on_loop
async def test_who_administers_may_look(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml", alice="s-alice")
    async with admin(tmp_path, auth={"keys_file": keys}) as (run, client, _):
        for path in LOOKS:
            from_elsewhere(run)
            assert (await client.ask("GET", path, None, KEY)).status == 200, path
            assert (await client.ask("GET", path, None, "X-Api-Key: s-root")).status == 200, path
            assert (await client.ask("GET", path, None, "X-Api-Key: s-alice")).status == 200, path
            words = said(await client.ask("GET", path, None, "X-Api-Key: s-wrong"))
            assert words == said(await client.ask("GET", path))
            assert "a valid API key or administration key is needed" in words


@on_loop
async def test_who_administers_is_told_that_the_model_wants_another_key(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml", alice="s-alice")
    async with admin(tmp_path, auth={"keys_file": keys}) as (run, client, _):
        requests: tuple[tuple[str, str, bytes | None], ...] = (
            ("POST", "/v1/chat/completions", b"{}"),
            ("GET", "/v1/models", None),
            ("GET", "/nothing", None),
        )
        for method, path, body in requests:
            words = said(await client.ask(method, path, body, KEY))
            assert words.startswith("this key is for the administration and the status")
            assert "an API key" in words
            for fields in ((), ("X-Api-Key: s-wrong",)):
                words = said(await client.ask(method, path, body, *fields))
                assert words.startswith("a valid API key is needed")
        # before a body is read, too
        client.request("POST", "/v1/completions", None, "Content-Length: 9000000", KEY)
        assert said(await client.answer()).startswith("this key is for the administration")
        assert not run.engine.requests


@on_loop
async def test_the_administration_says_which_key_it_wants(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml", alice="s-alice")
    async with admin(tmp_path, auth={"keys_file": keys}) as (_, client, _helper):
        for fields in ((), ("X-Api-Key: s-wrong",)):
            assert said(await client.ask("GET", MODELS, None, *fields)).startswith(
                "a valid administration key is needed"
            )


@on_loop
async def test_who_comes_through_a_proxy_on_this_host_is_not_this_host(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml", alice="s-alice")
    async with bench(tmp_path, auth={"keys_file": keys}) as run:
        client = await run.client()
        assert (await client.ask("GET", "/status")).status == 200
        for field in ("X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "X-Real-IP: 192.0.2.1", "Via: 1.1 x"):
            for path in LOOKS:
                assert said(await client.ask("GET", path, None, field))
                assert (await client.ask("GET", path, None, field, "X-Api-Key: s-alice")).status == 200
            assert (await client.ask("GET", "/ready", None, field)).status == 200
        assert (await client.ask("GET", "/status")).status == 200


@on_loop
async def test_without_an_administration_no_key_of_one_is_spoken_of(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml", alice="s-alice")
    async with bench(tmp_path, auth={"keys_file": keys}) as run:
        client = await run.client()
        await client.ask("GET", "/health")
        from_elsewhere(run)
        for path in LOOKS:
            assert said(await client.ask("GET", path)).startswith("a valid API key is needed")
