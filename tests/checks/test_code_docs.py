# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tools import code_docs
from tools.code_docs import CODES

SOURCE = code_docs.ROOT / "roles/frontdoor/files/frontdoor/src/frontdoor"
# what carries a status and a code to a client
CARRIERS = ("Refusal", "HeadError", "_Refused", "SettingsError")
# Where the code is not written out: what it can be. `*` hands on what another carrier brought.
DERIVED = {
    ("admin/api.py", "f'model_{what}'"): ("model_loading", "model_unloading"),
    ("admin/api.py", "word"): (
        *("unknown_model", "model_loading", "model_not_loaded", "model_load_failed", "model_unload_failed", "stopping"),
    ),
    ("admin/api.py", "exc.code"): ("*",),
    ("http/head.py", "code"): ("*",),
    ("policy/llm_pool.py", "code"): ("*",),
    ("errors.py", "code"): ("closed", "stopped", "switching", "verifying", "failed"),
    ("http/exchange.py", "code"): ("engine_cut", "stopping"),
}


class Said(NamedTuple):
    """A place where a client is told something; no code where it is derived from this expression."""

    where: str
    status: int | None
    code: str | None
    expression: str


def said(source: Path) -> Iterator[Said]:
    """Every place of a package where a carrier is made."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CARRIERS):
                continue
            named = {word.arg: word.value for word in node.keywords}
            status, code = [*node.args, named.get("status"), named.get("code")][:2]
            assert code is not None, f"{path.name}:{node.lineno} names no code"
            yield Said(
                path.relative_to(source).as_posix(),
                status.value if isinstance(status, ast.Constant) and isinstance(status.value, int) else None,
                code.value if isinstance(code, ast.Constant) and isinstance(code.value, str) else None,
                ast.unparse(code),
            )


def faults(source: Path) -> list[str]:
    """What of a package is not as the list says."""
    found, used = [], set()
    for one in said(source):
        names = (one.code,) if one.code is not None else DERIVED.get((one.where, one.expression))
        if names is None:
            found.append(f"{one.where}: say in DERIVED what {one.expression} can be")
            continue
        for name in names:
            used.add(name)
            if name != "*" and name not in CODES:
                found.append(f"{one.where}: {name} is not in codes.toml")
            elif one.code is not None and one.status is not None and one.status not in CODES[name].statuses:
                found.append(f"{one.where}: {name} comes with {one.status}, codes.toml says {CODES[name].statuses}")
    return found + [f"nobody says {name}, which is in codes.toml" for name in CODES if name not in used]


def test_every_code_that_the_frontdoor_says_is_listed_and_the_other_way_round() -> None:
    assert not faults(SOURCE)


def test_what_is_not_listed_is_found(tmp_path: Path) -> None:
    lines = (
        "Refusal(503, 'brand_new', 'x')",
        "HeadError(400, 'busy', 'x')",
        "Refusal(status=503, code=d, message='x')",
    )
    (tmp_path / "new.py").write_text("\n".join(lines))
    assert faults(tmp_path)[:3] == [
        "new.py: brand_new is not in codes.toml",
        "new.py: busy comes with 400, codes.toml says (503,)",
        "new.py: say in DERIVED what d can be",
    ]


def test_the_page_of_this_collection_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    code = code_docs.main(["--check"])
    assert code == 0, capsys.readouterr().out


def test_the_tables_are_written_between_the_comments_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / code_docs.PAGE
    page.parent.mkdir()
    page.write_text("# codes\n")
    root = ["--root", str(tmp_path)]
    assert code_docs.main(root) == 1
    assert "has no place for this part" in capsys.readouterr().out
    places = "\n".join(f"{code_docs.begin(subject)}\nold\n{code_docs.END}\n" for subject in code_docs.TABLES)
    page.write_text(f"# codes\n\n{places}\nThe end.\n")
    assert code_docs.main([*root, "--check"]) == 1
    assert code_docs.main(root) == 0
    assert code_docs.main([*root, "--check"]) == 0
    lines = page.read_text().splitlines()
    assert lines[-1] == "The end."
    codes = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert codes == list(CODES)
    # those that were missing from the page
    for name in ("engine_cut", "request_timeout", "bad_request", "missing_host", "method_not_supported"):
        assert name in codes
