# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What leaves a host holds no secret, and stays readable."""

from __future__ import annotations

import json
import shlex
import string
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.redact import (
    ORDINARY,
    SECRET,
    Redactor,
    is_secret_name,
    known_secrets,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.redact import clean as without_secrets

from . import planted

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


@pytest.mark.parametrize("form", planted.EVERY)
def test_a_planted_secret_does_not_come_out(form: str):
    text, secrets = planted.planted(form)
    cleaned = without_secrets(text)
    assert secrets
    assert len(planted.EVERY) >= 200
    parts = {secret[at : at + 5] for secret in secrets for at in range(len(secret) - 4)}
    assert not [part for part in parts if part in cleaned]
    assert without_secrets(cleaned) == cleaned


READABLE = [
    "INFO 11-28 03:12:45 [api_server.py:1234] vLLM API server version 0.31.0",
    "INFO args: Namespace(model='Qwen/Qwen3-30B-A3B-Instruct-2507-FP8', tokenizer_mode='auto', max_tokens=8192)",
    "non-default args: {'model_tag': '/models/gemma-4-31b', 'num_speculative_tokens': 3, 'skip_tokenizer_init': False}",
    "{'api_key': None, 'api_keys': [], 'hf_token': None, 'ssl_keyfile': None}",
    "Avg prompt throughput: 120.3 tokens/s, Avg generation throughput: 33.0 tokens/s, Running: 3 reqs",
    "# GPU blocks: 2112, token capacity: 33,792",
    "speculative_config={'method': 'mtp', 'num_speculative_tokens': 2}, reasoning_parser='qwen3'",
    '{"num_key_value_heads": 8, "num_attention_heads": 32, "bos_token_id": 1, "eos_token_id": [2, 107]}',
    '{"eos_token": "<|im_end|>", "pad_token": {"content": "<pad>", "lstrip": false}}',
    '{"id": 435, "token": " cobalt", "bytes": [32, 99], "logprob": -0.2}',
    "sha256:3f786850e387550fdab836ed7e6dc881de23001b3f786850e387550fdab836ed",
    "image: ghcr.io/ggml-org/llama.cpp@sha256:3f786850e387550fdab836ed7e6dc881de23001b3f786850e387550fdab836ed",
    "registry.example.org:5000/b70/engine:0.31.0@sha256:3f786850e387550fdab836ed7e6dc881de23001b",
    "fingerprint: 3f786850e387550fdab836ed7e6dc881de23001b",
    "cache_key: 3f786850e387550fdab836ed7e6dc881de23001b3f786850e387550fdab836ed",
    "key 3FA7E0328081BFF6A14DA29AA6A19B38D3D831EF signed it",
    "Accepted publickey for root from 10.0.0.1 port 2 ssh2: RSA SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Zk4Qp9XwT7mB2vLs8RdYJh6Rt3NcW8yF5qGz1KsV",
    "/var/cache/vllm/torch_compile_cache/3f786850e3/rank_0_0/backbone",
    "/var/cache/b70/neo_compiler_cache/8a1b2c3d4e5f.cl_cache",
    "keys_file = '/etc/b70-frontdoor/keys.toml'",
    "token_file: /run/credentials/b70/token",
    "LoadCredential=key:/etc/b70/relay/key",
    "HF_TOKEN_PATH=/var/cache/huggingface/token",
    "HF_HOME=/srv/models/huggingface",
    "KeyringMode=private",
    "PasswordAuthentication no",
    "[signed-by=/usr/share/keyrings/intel-graphics.gpg] https://repositories.intel.com/gpu/ubuntu noble unified",
    "curl -u 1000:1000 x",
    "journalctl -u b70-slot-main-gemma.service -n 50",
    "docker run -u 1000:1000 -p 8000:8000 -v /srv:/srv image",
    "git clone https://github.com/vllm-project/vllm.git@v0.31.0",
    "git@github.com:vllm-project/vllm.git",
    "ssh://git@github.com/vllm-project/vllm.git",
    "https://pypi.org/simple/torch/torch-2.9.0%2Bxpu-cp312-cp312-linux_x86_64.whl#sha256=3f786850e387550fdab836ed7e6dc881",
    "https://index.example.org:8443/@scope/pkg@1.2.3",
    "Intel Corporation Battlemage G31 [8086:e223] 0000:03:00.0",
    "xe 0000:03:00.0: [drm] Using GuC firmware from xe/bmg_guc_70.bin version 70.65.1",
    "Failed password for root from 10.0.0.1 port 22 ssh2",
    "pam_unix(sudo:auth): authentication failure",
    "kernel: Loaded X.509 cert 'Build time autogenerated kernel key: 3f786850e387550fdab836ed7e6dc881de23001b'",
    "Basic authentication is required",
    "bearer authentication is off",
    "no token was given; set HF_TOKEN and try again",
    "password: {{ vault_password }}",
    "api_key: ${API_KEY}",
    "tiktoken==0.14.0 \\\n    --hash=sha256:3f786850e387550fdab836ed7e6dc881de23001b3f786850e387550fdab836ed",
    "B70FrontdoorRestarts, B70KeysUnusable: no key of the keys file is usable",
    "2026:07:17-12:29:15:(  532) |CCL_ERROR| ze_call.cpp:43 do_call: ze error at zeMemOpenIpcHandle",
]


@pytest.mark.parametrize("text", READABLE)
def test_paths_digests_versions_and_models_stay_readable(text: str):
    assert without_secrets(text) == text


def test_the_logs_of_engines_stay_as_they_are():
    folder = Path(__file__).parent / "logs"
    texts = {file: file.read_text() for file in sorted(folder.rglob("*.txt"))}
    assert len(texts) > 20
    assert {file.name for file, text in texts.items() if without_secrets(text) != text} == set()


def test_a_long_line_and_a_large_log_are_read_once():
    many = "x" * 200_000 + " " + '"' * 5_000 + "\\" * 50_000 + "a" * 50_000 + "=:@" * 10_000
    assert SECRET not in without_secrets(many)


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


# Every way to write a name and its secret, and every way to write such a text into another one.
NAMED = ["api_key", "HF_TOKEN", "password", "OPENAI_KEY_2", "clientSecret", "api-key", "AWS_SECRET_ACCESS_KEY"]


def _yaml(data: object, default_style: str | None = None) -> str:
    return yaml.safe_dump(data, width=10**6, sort_keys=False, default_style=default_style)


def _flag(name: str) -> str:
    return "--" + name.lower().replace("_", "-")


WRITTEN: list[Callable[[str, str], str]] = [
    lambda name, key: json.dumps({"model": "m", name: key, "port": 1}),
    lambda name, key: json.dumps({"model": "m", name: [key, key], "port": 1}, indent=2),
    lambda name, key: repr({"model": "m", name: [key], "port": (1,)}),
    lambda name, key: repr([("host", "h"), (name, key)]),
    lambda name, key: json.dumps({"env": [{"name": name, "value": key}, {"name": "A", "value": "1"}]}),
    lambda name, key: _yaml({"model": "m", name: key, "port": 1}),
    lambda name, key: _yaml({"model": "m", name: key, "port": 1}, default_style='"'),
    lambda name, key: _yaml({"model": "m", name: key, "port": 1}, default_style="'"),
    lambda name, key: _yaml({"model": "m", name: [key, key], "port": 1}),
    lambda name, key: _yaml({"model": "m", name: {"alice": key}, "port": 1}),
    lambda name, key: _yaml({"args": [_flag(name), key, "--port"]}),
    lambda name, key: _yaml({"env": [{"name": name, "value": key}, {"name": "A", "value": "1"}]}),
    lambda name, key: f'model = "m"\n{name} = {json.dumps(key)}\nport = 1\n',
    lambda name, key: f'[api_keys]\nalice = {json.dumps(key)}\n"bob" = {json.dumps(key)}\n\n[x]\ny = 2\n',
    lambda name, key: f"api_keys = [\n  {json.dumps(key)},\n]\nport = 1\n",
    lambda name, key: shlex.join(["vllm", "serve", "m", _flag(name), key, "--port", "1"]),
    lambda name, key: shlex.join(["vllm", "serve", "m", f"{_flag(name)}={key}", "--port", "1"]),
    lambda name, key: json.dumps(["vllm", "serve", _flag(name), key, "--port", "1"]),
    lambda name, key: repr(["vllm", "serve", _flag(name), key, "--port", "1"]),
    lambda name, key: shlex.join(["curl", "-H", f"Authorization: Bearer {key}", "http://h"]),
    lambda name, key: f"PATH=/usr/bin\n{name.replace('-', '_')}={shlex.quote(key)}\nB=1\n",
    lambda name, key: json.dumps([f"{name}={key}", "B=1"]),
]
WITHIN: list[Callable[[str], str]] = [
    lambda text: json.dumps({"msg": text, "n": 1}),
    lambda text: json.dumps({"level": "info", "x": {"msg": text}}, indent=2),
    lambda text: repr({"msg": text, "n": 1}),
    lambda text: f"got {text!r} here",
    lambda text: _yaml({"msg": text, "n": 1}),
    lambda text: _yaml({"msg": text}, default_style='"'),
    lambda text: f"a = 1\nmsg = {json.dumps(text)}\nb = 2\n",
    lambda text: shlex.join(["sh", "-c", text]),
    lambda text: "".join(f"Nov 28 03:12:45 host vllm[123]: {line}\n" for line in text.split("\n")),
]
PART = st.text(string.ascii_letters + string.digits, min_size=6, max_size=9)
JOINT = st.sampled_from(["", *"-_@/,&+=~!#%:;$*. \"'()<>|", ", ", "; "])


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(NAMED), st.lists(PART, min_size=2, max_size=3), JOINT, st.sampled_from(WRITTEN),
    st.lists(st.sampled_from(WITHIN), max_size=2),
)  # fmt: skip
def test_no_nesting_lets_a_secret_out(
    name: str, parts: list[str], joint: str, written: Callable[[str, str], str], within: list[Callable[[str], str]]
):
    text = written(name, joint.join(parts))
    for wrap in within:
        text = wrap(text)
    cleaned = without_secrets(text)
    assert not [part for part in parts if part in cleaned.replace(SECRET, "")]


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
