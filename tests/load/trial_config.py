# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the frontdoor of a trial has to do besides passing on: rules for bodies, API keys, administration, TLS."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

SERVED = "tiny-a"
ALIAS = "gpt-of-the-house"
DEFAULT, CAP = 16, 64
KEYS = {"alice": "b70-key-of-alice", "bob": "b70-key-of-bob", "carol": "b70-key-of-carol"}
ADMIN_KEY = "b70-key-of-the-admin"
_THINKING = {"chat_template_kwargs": {"enable_thinking": False, "depth": 3}}
_TOKENS = {"max_tokens_default": DEFAULT, "max_tokens_cap": CAP}
_SAMPLING = {"sampling_defaults": {"temperature": 0.25, "top_p": 0.5}}
_ALIASES = {"model_aliases": [ALIAS]}
_TEXT, _ALL = ["text"], ["text", "image", "audio", "video"]


@dataclasses.dataclass(frozen=True)
class Rules:
    """One set of rules, as the state file says it."""

    request: dict[str, Any]
    modalities: list[str]

    def state(self) -> dict[str, Any]:
        """The parts of the state file."""
        profile = {
            "name": "tiny-a",
            "served_model_name": SERVED,
            "modalities": self.modalities,
            "fingerprint": "sha256:0",
        }
        return {"request": self.request, "profile": profile}


ALL_RULES = (
    Rules({**_THINKING, **_TOKENS, **_SAMPLING, **_ALIASES, "model_policy": "rewrite"}, _TEXT),
    Rules({**_THINKING, **_TOKENS, **_ALIASES, "model_policy": "reject"}, _TEXT),
    Rules({"max_tokens_cap": CAP, **_SAMPLING, **_ALIASES, "model_policy": "pass"}, ["text", "image"]),
    # defaults alone, and nothing at all
    Rules({**_THINKING, "model_policy": "pass"}, _ALL),
    Rules({"model_policy": "pass"}, _ALL),
)


@dataclasses.dataclass(frozen=True)
class TrialConfig:
    """Of a trial with this seed: three in four ask for keys, one of these over TLS."""

    seed: int

    @property
    def keys(self) -> bool:
        return self.seed % 4 != 0

    @property
    def tls(self) -> bool:
        return self.seed % 4 == 3

    def rules(self, turn: int) -> Rules:
        """Those of a turn; each trial begins with others."""
        return ALL_RULES[(self.seed + turn) % len(ALL_RULES)]

    def __str__(self) -> str:
        return f"seed {self.seed}: {'API keys' if self.keys else 'no keys'}, {'TLS' if self.tls else 'clear text'}"

    def sections(self, folder: Path) -> str:
        """Sections of the configuration, whose files are written into a folder."""
        profiles = folder / "profiles"
        profiles.mkdir()
        (profiles / "tiny-b.json").write_text(json.dumps({"name": "tiny-b", "title": "Tiny B"}))
        _write_keys(folder / "admin.toml", {"root": ADMIN_KEY})
        text = f'[admin]\nkeys_file = "{folder}/admin.toml"\nsocket = "{folder}/no.sock"\n'
        if self.keys:
            _write_keys(folder / "keys.toml", KEYS)
            text += f'[auth]\nkeys_file = "{folder}/keys.toml"\n'
        if self.tls:
            certificate, key = folder / "cert.pem", folder / "key.pem"
            argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
            argv += ["-days", "2", "-subj", "/CN=door", "-addext", "subjectAltName=IP:127.0.0.1"]
            subprocess.run([*argv, "-out", certificate, "-keyout", key], check=True, capture_output=True)
            text += f'[tls]\ncert_file = "{certificate}"\nkey_file = "{key}"\n'
        return text

    def trust(self, folder: Path) -> ssl.SSLContext | None:
        """What clients need to trust it."""
        return ssl.create_default_context(cafile=folder / "cert.pem") if self.tls else None


def _write_keys(path: Path, keys: dict[str, str]) -> None:
    lines = [f'{name} = "sha256:{hashlib.sha256(key.encode()).hexdigest()}"' for name, key in keys.items()]
    path.write_text("\n".join(["[keys]", *lines, ""]))
