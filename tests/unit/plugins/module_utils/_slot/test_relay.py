# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay to an engine elsewhere: what it writes, and what the kind makes of what it says."""

from __future__ import annotations

import json
import stat

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.openai import OPENAI
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import diagnose
from ansible_collections.arcpro.b70.plugins.module_utils._slot.relay import (
    BIND,
    CA,
    CONFIG,
    KEY,
    SYSTEM_CA,
    URL,
    Remote,
    configuration,
    is_private,
    main,
    parse_key,
    parse_url,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply, SlotFault

SECRET = "sk-a'b%c"


@pytest.fixture
def unit(tmp_path):
    """The directories and variables that systemd gives the unit, with a key."""
    for name in ("run", "credentials"):
        (tmp_path / name).mkdir()
    (tmp_path / "credentials" / KEY).write_text(f"{SECRET}\n")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n10.0.0.7 near.example.org near  # the other host\n")
    return {
        "RUNTIME_DIRECTORY": str(tmp_path / "run"),
        "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"),
        URL: "https://api.example.org/openai/v1",
        BIND: "127.0.0.1:18080",
    }


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://api.example.org/openai/v1/", Remote("api.example.org", 443, "/openai/v1", True)),
        ("http://10.0.0.2:8000/v1", Remote("10.0.0.2", 8000, "/v1", False)),
        ("https://[fd00::2]:8443", Remote("fd00::2", 8443, "", True)),
    ],
)
def test_a_base_url_is_read(url, parts):
    assert parse_url(url) == parts


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a/v1", "must begin with"),
        ("https://me:secret@a/v1", "must not contain a user or password"),
        ("https://a/v1?key=x", "no query"),
        ("https:///v1", "names no valid host"),
        ("https://a b/v1", "names no valid host"),
        ("https://a/v1 ssl", "characters that no API path has"),
        ("https://a/../v1", "characters that no API path has"),
        ("https://a:99999/v1", "no port"),
    ],
)
def test_a_base_url_that_could_mean_something_else_is_refused(url, why):
    with pytest.raises(ValueError, match=why) as found:
        parse_url(url)
    assert "secret" not in str(found.value)


def test_private_addresses_are_known_by_their_number_alone():
    assert [is_private(host) for host in ("10.1.2.3", "127.0.0.1", "fd00::1", "8.8.8.8", "0.0.0.0", "gpu2")] == [
        *(True, True, True),
        *(False, False, False),
    ]


@pytest.mark.parametrize("text", ["", " \n", "two words", "two\nlines", "käy"])
def test_a_file_without_a_key_is_refused_and_not_quoted(text):
    with pytest.raises(ValueError, match=r"^it (is empty|must contain only the key)") as found:
        parse_key(text)
    assert not text.strip() or text not in str(found.value)


def test_the_configuration_is_for_the_units_own_user_alone(unit, tmp_path, capsys):
    assert main(unit, tmp_path / "hosts") == 0
    file = tmp_path / "run" / CONFIG
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "hdr Authorization 'Bearer sk-a'\\''b%%c'" in text
    assert f"ssl verify required ca-file '{SYSTEM_CA}' verifyhost api.example.org" in text
    assert "sni str(api.example.org) check-sni api.example.org" in text
    assert "replace-path /v1/(.*) /openai/v1/\\1" in text
    assert "resolvers system" in text
    assert capsys.readouterr() == ("", "")


def test_certificates_of_the_profile_take_the_place_of_the_systems(unit, tmp_path):
    (tmp_path / "credentials" / CA).write_text("certificates")
    assert main(unit, tmp_path / "hosts") == 0
    assert f"ca-file '{tmp_path}/credentials/{CA}'" in (tmp_path / "run" / CONFIG).read_text()


@pytest.mark.parametrize("place", ["https://near.example.org", "http://10.0.0.7"])
def test_a_name_of_the_hosts_file_is_not_looked_up_elsewhere(unit, tmp_path, place):
    assert main({**unit, URL: f"{place}/v1"}, tmp_path / "hosts") == 0
    text = (tmp_path / "run" / CONFIG).read_text()
    assert "resolvers" not in text
    assert "replace-path" not in text


def test_without_a_key_none_is_sent(unit, tmp_path):
    (tmp_path / "credentials" / KEY).unlink()
    assert main(unit, tmp_path / "hosts") == 0
    assert "Bearer" not in (tmp_path / "run" / CONFIG).read_text()


def test_a_key_that_cannot_be_used_ends_the_start_with_a_known_symptom(unit, tmp_path, capsys):
    (tmp_path / "credentials" / KEY).write_text("not a key")
    assert main(unit, tmp_path / "hosts") == 1
    said = capsys.readouterr().err
    assert "not a key" not in said
    assert not (tmp_path / "run" / CONFIG).exists()
    match = diagnose(said.splitlines(), kind=OPENAI)
    assert match
    assert match.symptom.id == "remote_key_unusable"


def test_an_address_to_listen_on_is_one_word():
    with pytest.raises(ValueError, match=BIND):
        configuration(parse_url("https://a/v1"), "127.0.0.1:1 ssl", "", "", resolve=False)


def listed(*models):
    return Reply(200, json.dumps({"object": "list", "data": list(models)}))


def test_the_model_may_stand_anywhere_in_the_list():
    reply = listed({"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 2048})
    assert OPENAI.served(reply, "m") == ("m", 2048)
    assert OPENAI.served(listed({"id": "m"}), "m") == ("m", None)


def test_a_remote_without_the_model_is_refused_with_what_it_serves():
    with pytest.raises(SlotFault) as found:
        OPENAI.served(listed({"id": "x"}, {"id": "y"}), "m")
    assert (found.value.expected, found.value.got) == ("m", "x, y")


@pytest.mark.parametrize(
    ("said", "symptom"),
    [
        ('Layer4 connection problem, info: "Connection refused", check duration: 0ms', "remote_unreachable"),
        ('Layer7 wrong status, code: 401, info: "Unauthorized", check duration: 2ms', "remote_refused_key"),
        ('Layer7 wrong status, code: 404, info: "Not Found", check duration: 2ms', "remote_no_api"),
        ('Layer7 wrong status, code: 500, info: "Internal", check duration: 2ms', "remote_fails"),
        ('Layer6 invalid response, info: "SSL handshake failure", check duration: 3ms', "remote_certificate"),
    ],
)
@pytest.mark.parametrize("before", ["", "[WARNING]  (14454) : "])
def test_what_haproxy_says_of_a_remote_is_explained(before, said, symptom):
    line = f"{before}Health check for server remote/remote failed, reason: {said}, status: 0/1 DOWN."
    match = diagnose([line], kind=OPENAI)
    assert match
    assert match.symptom.id == symptom
