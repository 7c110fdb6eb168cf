# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where and to whom the chat page is served. What it does is tested in a browser: tests/page."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from kit import Answer, bench, on_loop

from frontdoor.config import ConfigError, from_table
from frontdoor.policy.routes import CHAT_PAGE_PATHS

KINDS = dict(zip(CHAT_PAGE_PATHS, ("text/html", "text/javascript", "text/css"), strict=True))


def keys(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "keys.toml"
    file.write_text(f'[keys]\nanna = "sha256:{hashlib.sha256(b"s-anna").hexdigest()}"\n')
    return {"keys_file": str(file)}


@on_loop
async def test_the_page_and_its_files_are_served(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for path, kind in KINDS.items():
            answer = await client.ask("GET", path)
            assert (answer.status, answer.header("content-type")) == (200, f"{kind}; charset=utf-8")
            assert answer.header("x-content-type-options") == "nosniff"
            head = await client.ask("HEAD", path)
            assert (head.status, head.header("content-length")) == (200, str(len(answer.body)))
        assert (await client.ask("POST", "/chat", b"{}")).status == 405
        # its files are found from there as well
        assert (await client.ask("GET", "/chat/")).status == 200
        assert (await client.ask("GET", "/status")).json["frontdoor"]["chat_page"] is True


@on_loop
async def test_the_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        answer = await client.ask("GET", "/chat")
        page = answer.body.decode()
        assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,", "/chat/app.css", "/chat/app.js"]
        assert not re.search(r"<script[^>]*>[^<]|<style| on\w+=| style=", page)
        policy = dict(
            part.strip().split(" ", 1) for part in (answer.header("content-security-policy") or "").split(";")
        )
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["img-src"] == "data:"
        assert "unsafe" not in str(policy)


@pytest.mark.parametrize(
    ("setting", "with_keys", "served"),
    [("auto", False, True), ("auto", True, False), ("on", True, True), ("off", False, False)],
)
@on_loop
async def test_the_page_is_there_as_the_setting_says(
    tmp_path: Path, setting: str, with_keys: bool, served: bool
) -> None:
    sections = {"pages": {"chat": setting}} | ({"auth": keys(tmp_path)} if with_keys else {})
    async with bench(tmp_path, **sections) as run:
        # as a stranger whom a proxy on this host speaks for
        client, stranger = await run.client(), "X-Forwarded-For: 192.0.2.7"

        async def ask(path: str, *fields: str) -> Answer:
            return await client.ask("GET", path, None, stranger, *fields)

        for path in CHAT_PAGE_PATHS:
            assert (await ask(path)).status == (200 if served else 401 if with_keys else 404)
            assert (await ask(path, "Authorization: Bearer s-anna")).status == (200 if served else 404)
        if with_keys:
            # what it shows needs a key all the same
            assert (await ask("/v1/models")).status == (await ask("/status")).status == 401


def test_another_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"pages\.chat: 'yes' is none of auto, on, off"):
        from_table({"pages": {"chat": "yes"}})
