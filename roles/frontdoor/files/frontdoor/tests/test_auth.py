# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""API keys and TLS: off unless configured, strict when on."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from pathlib import Path

import pytest
from kit import Call, Client, bench, on_loop

from frontdoor.cli import main
from frontdoor.config import ConfigError
from frontdoor.policy.keys import Keys, digest, make_key, parse_keys

CHAT = "/v1/chat/completions"


def write_keys(path: Path, **keys: str) -> str:
    new = path / "keys.new"
    new.write_text("[keys]\n" + "".join(f'{name} = "{digest(secret)}"\n' for name, secret in keys.items()))
    os.replace(new, path / "keys.toml")
    return str(path / "keys.toml")


def test_keys_are_known_by_their_digest(tmp_path: Path) -> None:
    keys = Keys(write_keys(tmp_path, alice="secret-a", bob="secret-b"))
    for _ in range(2):
        assert keys.identify(b"secret-a") == "alice"
        assert keys.identify(b"secret-b") == "bob"
        assert keys.identify(b"secret-c") is None
    assert not keys.refresh()
    write_keys(tmp_path, bob="secret-b2")
    assert keys.refresh()
    assert keys.identify(b"secret-a") is None
    assert keys.identify(b"secret-b") is None
    assert keys.identify(b"secret-b2") == "bob"
    (tmp_path / "keys.toml").unlink()
    with pytest.raises(ConfigError, match=r"keys\.toml: cannot be read"):
        keys.refresh()
    assert keys.identify(b"secret-b2") == "bob"


ONE = f'[keys]\na = "{digest("x")}"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold one table"),
        ("[keys]\n", "must hold one table"),
        ("[keys", "not valid TOML"),
        ('[keys]\na = "plain text"\n', "the key 'a' is not"),
        ('[keys]\n"a b" = "sha256:' + "0" * 64 + '"\n', "the key 'a b' is not"),
        ('[keys]\na.b = "sha256:' + "0" * 64 + '"\n', "a name with a dot needs quotes"),
        (f'limits = 7\n[keys]\na = "{digest("x")}"\n', "must hold one table"),
        (f"{ONE}[limits]\nb = {{}}\n", 'limits."b": there is no such key'),
        (f"{ONE}[limits]\na = 7\n", 'limits."a": expected a table, got 7'),
        (f'{ONE}[limits."*"]\ntokens_per_day = "9"\n', r'limits."\*"\.tokens_per_day: expected int, got .9.'),
        (f"{ONE}[limits.a]\ntokens_per_day = -1\n", "tokens_per_day: -1 is below the minimum 0"),
        (f"{ONE}[limits.a]\ntokens_per_day = true\n", "tokens_per_day: expected int, got True"),
        (f"{ONE}[limits.a]\ntokens_per_dy = 1\n", r"tokens_per_dy: .* did you mean tokens_per_day\?"),
        ('[other]\nx = 1\n[keys]\na = "sha256:' + "0" * 64 + '"\n', "must hold one table"),
    ],
)
def test_a_wrong_file_of_keys_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_keys(text)


def test_a_key_is_made_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--make-key", "alice"]) == 0
    secret, line = capsys.readouterr().out.splitlines()
    assert len(secret) > 40
    assert parse_keys(f"[keys]\n{line}\n") == ({"alice": bytes.fromhex(digest(secret)[7:])}, {})
    assert make_key() != make_key()
    assert main(["--make-key", "team.alice-1_x"]) == 0
    secret, line = capsys.readouterr().out.splitlines()
    assert parse_keys(f"[keys]\n{line}\n") == ({"team.alice-1_x": bytes.fromhex(digest(secret)[7:])}, {})
    for name in ('a b"', "", "x" * 65, "ä", "a\n"):
        assert main(["--make-key", name]) == 2
        told = capsys.readouterr()
        assert "cannot be the name of a key" in told.err
        assert not told.out


def test_a_file_of_keys_is_checked_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check-keys", write_keys(tmp_path, alice="a", bob="b")]) == 0
    assert capsys.readouterr().out.endswith("ok, 2 keys\n")
    (tmp_path / "keys.toml").write_text('[keys]\nbob = "raw-secret"\n')
    assert main(["--check-keys", str(tmp_path / "keys.toml")]) == 2
    told = capsys.readouterr().err
    assert "keys.toml: the key 'bob' is not" in told
    assert "raw-secret" not in told


@on_loop
async def test_only_who_has_a_key_gets_in(tmp_path: Path) -> None:
    keys_file = write_keys(tmp_path, alice="secret-a")
    async with bench(tmp_path, auth={"keys_file": keys_file}) as run:
        client = await run.client()
        for fields in ([], ["Authorization: Bearer nope"], ["Authorization: Basic secret-a"], ["X-Api-Key: nope"]):
            answer = await client.ask("POST", CHAT, b"{}", *fields)
            assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")
            assert answer.header("WWW-Authenticate") == 'Bearer realm="b70"'
        assert (await client.ask("GET", "/v1/models")).status == 401
        assert (await client.ask("GET", "/nothing")).status == 401
        assert (await client.ask("POST", "/v1/messages", b"{}")).json["error"]["type"] == "authentication_error"
        assert (await client.ask("OPTIONS", CHAT, None, "Origin: x")).status == 204
        assert (await client.ask("GET", "/health")).status == 200
        assert (await client.ask("GET", "/ready")).status == 200
        assert not run.engine.requests
        for field in ("Authorization: Bearer secret-a", "authorization: bearer secret-a", "X-Api-Key: secret-a"):
            assert (await client.ask("POST", CHAT, b"{}", field)).status == 200
        for request in run.engine.requests:
            assert request.header("authorization") is None
            assert request.header("x-api-key") is None
        # the machine itself may look: the switch asks without a key
        status = (await client.ask("GET", "/status")).json
        assert status["frontdoor"]["auth"] == "api_key"
        for connection in run.app.connections:
            connection.from_this_host = False
        assert (await client.ask("GET", "/status")).status == 401
        assert (await client.ask("GET", "/status", None, "Authorization: Bearer secret-a")).status == 200
        metrics = (await client.ask("GET", "/metrics", None, "Authorization: Bearer secret-a")).body
        assert b'b70_frontdoor_key_requests_total{key="alice",outcome="ok"} 3' in metrics
        text = str(run.events())
        assert "secret-a" not in text


@on_loop
async def test_a_large_body_without_a_key_is_not_read(tmp_path: Path) -> None:
    async with bench(tmp_path, auth={"keys_file": write_keys(tmp_path, alice="secret-a")}) as run:
        client = await run.client()
        client.send(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n".encode() + b"x" * 100_000)
        assert (await client.answer()).status == 401
        assert await client.closed()
        assert run.app.memory.held == 0


@on_loop
async def test_changed_keys_count_without_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path, auth={"keys_file": write_keys(tmp_path, alice="secret-a")}) as run:
        client = await run.client()
        old, new = "Authorization: Bearer secret-a", "Authorization: Bearer secret-n"
        assert (await client.ask("POST", CHAT, b"{}", old)).status == 200
        write_keys(tmp_path, alice="secret-n")
        while (await client.ask("POST", CHAT, b"{}", new)).status != 200:
            await asyncio.sleep(0.02)
        assert (await client.ask("POST", CHAT, b"{}", old)).status == 401
        for text, wrong in (("[keys", "not valid TOML"), ('[keys]\nbob = "raw-secret"\n', "the key 'bob' is not")):
            (tmp_path / "keys.toml").write_text(text)
            while wrong not in (await client.ask("GET", "/status")).json["frontdoor"]["keys_error"]:
                await asyncio.sleep(0.02)
            # it stays so however often it is looked at, until the file is right
            run.look()
            about = (await client.ask("GET", "/status")).json["frontdoor"]
            assert wrong in about["keys_error"]
            assert "raw-secret" not in str(about)
            assert (await client.ask("POST", CHAT, b"{}", new)).status == 200
            assert b"b70_frontdoor_keys_unusable 1\n" in (await client.ask("GET", "/metrics")).body
            unusable = [e for e in run.events() if e["event"] == "keys_unusable"]
            assert [wrong in e["error"] and e["kept"] for e in unusable] == [1]
        os.rename(tmp_path / "keys.toml", tmp_path / "away")
        while "cannot be read" not in (await client.ask("GET", "/status")).json["frontdoor"]["keys_error"]:
            await asyncio.sleep(0.02)
        write_keys(tmp_path, carol="secret-c")
        while (await client.ask("GET", "/status")).json["frontdoor"]["keys_error"]:
            await asyncio.sleep(0.02)
        assert (await client.ask("POST", CHAT, b"{}", new)).status == 401
        assert (await client.ask("POST", CHAT, b"{}", "Authorization: Bearer secret-c")).status == 200
        assert b"b70_frontdoor_keys_unusable 0\n" in (await client.ask("GET", "/metrics")).body


@on_loop
async def test_turns_are_fair_between_keys_of_one_address(tmp_path: Path) -> None:
    limits = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
    keys_file = write_keys(tmp_path, greedy="g", modest="m")
    async with bench(tmp_path, state={"limits": limits}, auth={"keys_file": keys_file}) as run:
        go = asyncio.Event()

        async def hold(call: Call) -> None:
            await go.wait()
            await call.json({})

        run.engine.script = hold
        clients: list[Client] = []
        for number, key in enumerate("ggggm"):
            clients.append(await run.client())
            clients[-1].request("POST", CHAT, b"%d" % number, f"Authorization: Bearer {key}")
            await run.arrived(number + 1)
        go.set()
        for client in clients:
            assert (await client.answer()).status == 200
        assert [request.body for request in run.engine.requests] == [b"0", b"4", b"1", b"2", b"3"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=door", "-addext", "subjectAltName=IP:127.0.0.1", "-out", cert, "-keyout", key]
    subprocess.run(argv, check=True, capture_output=True)
    return cert, key


@pytest.mark.interpreted
@on_loop
async def test_everything_works_over_tls(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    trust = ssl.create_default_context(cafile=cert)
    async with bench(tmp_path, tls={"cert_file": cert, "key_file": key}) as run:

        async def stream(call: Call) -> None:
            await call.begin_events()
            for number in range(20):
                await call.event(f"{number} " + "x" * 5000)
            await call.send(b"0\r\n\r\n")

        client = await run.client(trust)
        body = b'{"x":"' + b"y" * 2_000_000 + b'"}'
        assert (await client.ask("POST", CHAT, body)).status == 200
        assert run.engine.requests[0].body == body
        assert run.engine.requests[0].header("X-Forwarded-Proto") == "https"
        run.engine.script = stream
        assert len((await client.chat()).body) > 100_000
        client.send(b"nonsense\r\n\r\n")
        assert (await client.answer()).status == 400
        assert await client.closed()
        gone = await run.client(trust)
        gone.request("POST", CHAT, b"{}")
        gone.leave()
        plain = await run.client()
        plain.request("GET", "/health")
        assert await plain.closed()


def test_a_wrong_certificate_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[tls]\ncert_file = "{tmp_path}/none.pem"\n')
    assert main(["--config", str(config), "--check-config"]) == 2
    assert "none.pem" in capsys.readouterr().err
    config.write_text('[tls]\nkey_file = "x"\n')
    assert main(["--config", str(config), "--check-config"]) == 2
    config.write_text('[auth]\nkeys_file = "/none/keys.toml"\n')
    assert main(["--config", str(config), "--check-config"]) == 2
    assert "/none/keys.toml: cannot be read" in capsys.readouterr().err
