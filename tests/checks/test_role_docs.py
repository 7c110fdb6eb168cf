# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from tools import role_docs

SPECS = """
argument_specs:
  main:
    options:
      door_port: {type: int, default: 80, description: Where O(door_host) listens.}
      door_list: {type: list, elements: str, default: [], choices: [a, b], description: [One., Two.]}
  open:
    short_description: Opens it.
    options:
      door_port: {type: int, default: 80, description: Shown above.}
      door_key: {type: str, required: true, description: A|B.}
      door_name: {type: str, default: "{{ a | b }}", description: C.}
      door_dir: {type: path, default: "{{ __paths_cache_dir }}/door", description: D.}
"""


def test_every_readme_of_this_collection_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    code = role_docs.main(["--check"])
    assert code == 0, capsys.readouterr().out


def test_tables_are_written_between_the_comments_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    role = tmp_path / "roles" / "door"
    home = tmp_path / role_docs.PATHS
    home.parent.mkdir(parents=True)
    home.write_text('__paths_own: {x: /var/x}\n__paths_cache_dir: "{{ host_x | default(__paths_own.x) }}"\n')
    (role / "meta").mkdir(parents=True)
    (role / "meta" / "argument_specs.yml").write_text(SPECS)
    readme = role / "README.md"
    readme.write_text("# door\n")
    root = ["--root", str(tmp_path)]

    assert role_docs.main(root) == 1
    assert "has no place for its variables" in capsys.readouterr().out

    readme.write_text(f"# door\n\n{role_docs.BEGIN}\nold\n{role_docs.END}\n\nThe end.\n")
    assert role_docs.main([*root, "--check"]) == 1
    assert "is not up to date" in capsys.readouterr().out
    assert role_docs.main(root) == 0
    assert role_docs.main([*root, "--check"]) == 0
    assert readme.read_text().splitlines()[2:] == [
        role_docs.BEGIN,
        "| variable | type | default | what it is |",
        "|---|---|---|---|",
        "| `door_port` | int | `80` | Where `door_host` listens. |",
        "| `door_list` | list of str: a, b | `[]` | One. Two. |",
        "",
        "Entry point `open`: Opens it.",
        "",
        "| variable | type | default | what it is |",
        "|---|---|---|---|",
        "| `door_key` | str | required | A\\|B. |",
        "| `door_name` | str | `{{ a \\| b }}` | C. |",
        "| `door_dir` | path | `/var/x/door`, by `host_x` | D. |",
        role_docs.END,
        "",
        "The end.",
    ]
