# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What leaves a host holds no secret, and stays readable."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._doctor.redact import (
    ORDINARY,
    SECRET,
    Redactor,
    is_secret_name,
    known_secrets,
)

PLAIN = Redactor.of([], [])
HOME = "/home"


def clean(text: str) -> str:
    return Redactor.of([], ["jane", "bo"]).clean(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('HF_TOKEN="hf_AbCdEfGhIjKl"', 'HF_TOKEN="<secret>"'),
        ("VLLM_API_KEY=abc123def", "VLLM_API_KEY=<secret>"),
        ("export DB_PASSWORD='x y'", "export DB_PASSWORD='<secret>'"),
        ('{"api_key": "k-1", "model": "m"}', '{"api_key": "<secret>", "model": "m"}'),
        ("password: hunter2", "password: <secret>"),
        ("vllm serve --api-key k1 --port 1", "vllm serve --api-key <secret> --port 1"),
        ("['--hf-token', 'abc', '--port']", "['--hf-token', '<secret>', '--port']"),
        ("--token=abc --x", "--token=<secret> --x"),
        ("Authorization: Bearer abc.def", "Authorization: <secret>"),
        ("curl -H 'x-api-key: abc'", "curl -H 'x-api-key: <secret>'"),
        ("got bearer abcdef123 here", "got bearer <secret> here"),
        ("https://jane:pw@example.org/x", "https://<secret>:<secret>@example.org/x"),
        ("GET /v1?token=abcdef&n=1", "GET /v1?token=<secret>&n=1"),
        ("see sk-abcdefgh1234 and ghp_0123456789abcdef", "see <secret> and <secret>"),
        ("-----BEGIN RSA PRIVATE KEY-----\nab\n-----END RSA PRIVATE KEY-----\nx", "<secret>\nx"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "<secret>"),
        (f"{HOME}/jane/venv by jane", f"{HOME}/<user2>/venv by <user2>"),
        (f"{HOME}/bo/x, bo", f"{HOME}/<user1>/x, bo"),
        (f"{HOME}/eve/a {HOME}/jane {HOME}/eve/b", f"{HOME}/<user3>/a {HOME}/<user2> {HOME}/<user3>/b"),
        ("Serial Number: A1B2", "Serial Number: <secret>"),
    ],
)
def test_a_secret_is_taken_out_and_the_rest_stays(text: str, wanted: str):
    assert clean(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096",
        '{"max_tokens": 512, "eos_token": "</s>", "num_tokens": 3}',
        "tokenizer: auto",
        "vllm:prompt_tokens_total 1234.0",
        "GPU KV cache size: 33,792 tokens",
        "cache_key: gemma4-c8",
        "keys_file = ''",
        "api_keys: {}",
        "token: null",
        "VLLM_CACHE_ROOT=/mnt/fast-ai/vllm-cache-exp/x",
        "janet and jane-x stay",
        "libze1 1.28.2-1~24.04~ppa1",
        "Fault response: Unsuccessful -ENOENT",
        "basic 24 hours",
        "/homework/x",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str):
    assert clean(text) == text


def test_a_value_known_from_one_place_is_taken_out_everywhere():
    secrets = known_secrets(
        'HF_TOKEN=abcdef-123\nMAX_TOKENS=100000\nDEBUG=1\napi_key = "quoted value"\nhttp://u:pass-word@h/\n'
    )
    assert secrets == {"abcdef-123", "quoted value", "pass-word"}
    redactor = Redactor.of(secrets, [])
    assert redactor.clean("the log says abcdef-123 twice: abcdef-123") == "the log says <secret> twice: <secret>"
    assert redactor.counts["known secret"] == 2


def test_of_two_known_secrets_the_longer_leaves_no_rest():
    assert Redactor.of({"secret1", "secret1-and-more"}, []).clean("x secret1-and-more y") == f"x {SECRET} y"


def test_accounts_that_images_come_with_are_nobody():
    assert "ubuntu" in ORDINARY
    assert Redactor.of([], ["ubuntu"]).clean("ubuntu 24.04") == "ubuntu 24.04"


def test_names_of_secrets():
    for name in (
        "HF_TOKEN",
        "token",
        "api_key",
        "OPENAI_API_KEY",
        "client-secret",
        "AWS_SECRET_ACCESS_KEY",
        "db.password",
    ):
        assert is_secret_name(name), name
    for name in ("max_tokens", "eos_token", "tokenizer", "cache_key", "monkey", "path", "author", "make-key"):
        assert not is_secret_name(name), name


# A secret as people choose them: no space, nothing that ends a value, and long enough to be one.
SECRETS = st.text(string.ascii_letters + string.digits + "-_.+/=~", min_size=12, max_size=60)
NAMES = st.sampled_from(
    [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "VLLM_API_KEY",
        "api_key",
        "password",
        "Client-Secret",
        "my.secret",
        "AUTH_KEY",
    ]
)
FORMS = st.sampled_from(
    ['{name}={value}', '{name}="{value}"', "{name}: {value}", '"{name}": "{value}"', "'{name}': '{value}'",
     "Environment={name}={value}", "x={name}={value};y", "--{name} {value}", "--{name}={value}"]
)  # fmt: skip
TEXT = st.text(max_size=80)


@settings(max_examples=300, deadline=None)
@given(NAMES, SECRETS, FORMS, TEXT, TEXT)
def test_a_value_under_a_secret_name_never_leaves(name: str, value: str, form: str, before: str, after: str):
    assume(any(letter.isalnum() for letter in value) and value[0].isalnum())
    text = f"{before}\n{form.format(name=name, value=value)}\n{after}"
    assume(value not in before + after)
    assert value not in Redactor.of([], []).clean(text)


@settings(max_examples=300, deadline=None)
@given(
    st.sets(SECRETS, min_size=1, max_size=4), st.lists(TEXT, min_size=2, max_size=5), st.randoms(use_true_random=False)
)
def test_a_known_secret_never_leaves_wherever_it_stands(secrets: set[str], parts: list[str], chance):
    words = [word for part in parts for word in (part, chance.choice(sorted(secrets)))]
    cleaned = Redactor.of(secrets, []).clean("".join(words))
    assert not [secret for secret in secrets if secret in cleaned and secret not in SECRET]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["hf_", "sk-", "ghp_", "glpat-"]),
    st.text(string.ascii_letters + string.digits, min_size=20, max_size=40),
    st.text(" \n\t\"'=:,;()[]{}", max_size=3),
)
def test_a_token_by_its_form_never_leaves(prefix: str, rest: str, edge: str):
    assert rest not in PLAIN.clean(f"line{edge or ' '}{prefix}{rest}{edge or ' '}end")


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_cleaning_twice_is_cleaning_once(text: str):
    redactor = Redactor.of(["abcdefgh"], ["jane"])
    once = redactor.clean(text)
    assert redactor.clean(once) == once
