# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._weights import service
from ansible_collections.arcpro.b70.plugins.modules import b70_weights


def test_what_it_writes_can_be_read_by_others_whatever_the_umask_of_root_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    params = {"directory": str(tmp_path), "request": {}, "hub_token": ""}
    ended: list[Any] = []
    module = SimpleNamespace(params=params, check_mode=False, exit_json=lambda **result: ended.append(result))

    def answer(directory: str, *_words: Any, **_more: Any) -> dict[str, Any]:
        os.makedirs(os.path.join(directory, "models", "m"))
        return {}

    monkeypatch.setattr(b70_weights, "AnsibleModule", lambda **_options: module)
    monkeypatch.setattr(service, "answer", answer)
    before = os.umask(0o077)
    try:
        b70_weights.main()
    finally:
        os.umask(before)
    assert (tmp_path / "models").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "models" / "m").stat().st_mode & 0o777 == 0o755
    assert len(ended) == 1
