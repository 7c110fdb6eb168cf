# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from checks import import_rules, tree_rules

ROOT = Path(__file__).resolve().parents[2]
HEADER = "\n".join(tree_rules.HEADER) + "\n\nfrom __future__ import annotations\n"

FILE_RULES = [
    tree_rules.check_class_names,
    tree_rules.check_docstrings,
    tree_rules.check_headers,
    tree_rules.check_links,
    tree_rules.check_make_words,
    tree_rules.check_playbook_words,
    tree_rules.check_no_exceptions,
]

GOOD = {
    "Makefile": "lint unit: venv\n\t@true\nvenv:\n\t@true\n",
    ".ansible-lint": "profile: production\n",
    "README.md": "[a](docs/a.md#part) [b](https://example.org/x)\n\n```\nmake lint\n```\n",
    "docs/a.md": "text\n",
    "plugins/modules/b70_one.py": HEADER,
    "meta/runtime.yml": "action_groups: {b70: [b70_one], slot: []}\n",
    "plugins/module_utils/a.py": HEADER + "from .b import B\n\n\nclass A:\n    pass\n",
    "plugins/module_utils/b.py": HEADER + 'B = 1\n\n\ndef two():\n    """Return 2."""\n',
    "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['src']\n",
    "src/proxy/__init__.py": HEADER,
    "src/proxy/app.py": HEADER + "from proxy import parts\nfrom proxy.parts import x\nimport os\n",
    "src/proxy/parts.py": HEADER + "from . import app_name\n",
    "tests/test_a.py": HEADER + "from ansible_collections.arcpro.b70.plugins.module_utils import a\nimport kit\n",
    "tests/kit.py": HEADER,
    "requirements/dev.in": "# tools\nPy.Test >= 3\n",
    "requirements/dev.txt": "# made\npy-test==3.1 \\\n    --hash=sha256:00\n    # via x\n",
}

BROKEN: list[tuple[Callable[[Path, Sequence[Path]], list[str]], str, str, str]] = [
    (tree_rules.check_headers, "tests/x.py", "import os\n", "does not start with the copyright"),
    (tree_rules.check_headers, "tests/x.py", "\n".join(tree_rules.HEADER) + "\nx = 1\n", "annotations is missing"),
    (tree_rules.check_links, "README.md", "[a](docs/b.md)\n", "docs/b.md does not exist"),
    (tree_rules.check_make_words, "README.md", "Type `make everything`.\n", "make everything is not a target"),
    (
        tree_rules.check_playbook_words,
        "docs/a.md",
        "    ansible-playbook -i mine.yml arcpro.b70.two -e x=1\n",
        "playbooks/two.yml does not exist",
    ),
    (tree_rules.check_playbook_words, "README.md", "`ansible-playbook two.yml`\n", "two.yml does not exist"),
    (tree_rules.check_no_exceptions, "tests/sanity/ignore-2.19.txt", "a.py pylint\n", "is not empty"),
    (tree_rules.check_no_exceptions, ".ansible-lint", "profile: production\nskip_list: [x]\n", "has a skip_list"),
    (tree_rules.check_no_exceptions, ".ansible-lint", "profile: basic\n", "profile is not production"),
    (
        tree_rules.check_class_names,
        "plugins/module_utils/b.py",
        "class A:\n    pass\n",
        "A is defined in plugins/module_utils/a.py and plugins/module_utils/b.py",
    ),
    (tree_rules.check_docstrings, "plugins/module_utils/b.py", '"""What is one."""\n', "of the file begins with What"),
    (
        tree_rules.check_docstrings,
        "roles/a/files/b.py",
        'def two():\n    """(2, 3)."""\n',
        "of two begins with (2",
    ),
    (
        import_rules.check_import_circles,
        "plugins/module_utils/b.py",
        "if TYPE_CHECKING:\n    from ansible_collections.arcpro.b70.plugins.module_utils.a import A\n",
        "plugins/module_utils/a.py -> plugins/module_utils/b.py -> plugins/module_utils/a.py",
    ),
    (
        import_rules.check_import_circles,
        "src/proxy/parts.py",
        "def late():\n    from . import app\n",
        "src/proxy/app.py -> src/proxy/parts.py -> src/proxy/app.py",
    ),
    (
        import_rules.check_import_circles,
        "tests/kit.py",
        "import test_a\n",
        "kit.py -> tests/test_a.py -> tests/kit.py",
    ),
    (tree_rules.check_foreign_paths, "docs/a.md", "see /home/" + "jane/venv\n", "a place of one machine"),
    (tree_rules.check_foreign_paths, "docs/a.md", "see /opt/" + "wheels/x\n", "a place of one machine"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(tmp_path, GOOD)
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize("rule", FILE_RULES, ids=lambda rule: rule.__name__)
def test_this_collection_keeps(rule: Callable[[Path, Sequence[Path]], list[str]]) -> None:
    found = rule(ROOT, tree_rules.tracked(ROOT))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", FILE_RULES, ids=lambda rule: rule.__name__)
def test_a_good_tree_is_accepted_by(rule: Callable[[Path, Sequence[Path]], list[str]], tree: Path) -> None:
    assert rule(tree, tree_rules.tracked(tree)) == []


@pytest.mark.parametrize(("rule", "name", "text", "finding"), BROKEN, ids=[case[3] for case in BROKEN])
def test_a_broken_tree_is_refused(
    rule: Callable[[Path, Sequence[Path]], list[str]], name: str, text: str, finding: str, tree: Path
) -> None:
    write(tree, {name: text})
    found = rule(tree, tree_rules.tracked(tree))
    assert any(finding in line for line in found), found


def test_no_modules_import_each_other_in_a_circle(tree: Path) -> None:
    assert import_rules.check_import_circles(tree, tree_rules.tracked(tree)) == []
    assert import_rules.check_import_circles(ROOT, tree_rules.tracked(ROOT)) == []


def test_no_file_names_a_place_of_this_machine() -> None:
    found = tree_rules.check_foreign_paths(ROOT, tree_rules.tracked(ROOT), tree_rules.package_indexes())
    assert not found, "\n".join(found)


def test_a_package_index_and_the_checkout_are_places_of_one_machine(tree: Path) -> None:
    write(
        tree,
        {"docs/a.md": f"https://mirror.example/simple\n{tree}/x\n/etc/b70-vllm-slot and /opt/b70/stacks are ours\n"},
    )
    found = tree_rules.check_foreign_paths(tree, tree_rules.tracked(tree), ["https://mirror.example/simple"])
    assert [line.split(":")[1] for line in found] == ["1", "2"]


def test_the_action_group_is_the_list_of_modules(tree: Path) -> None:
    assert tree_rules.check_action_group(ROOT) == []
    assert tree_rules.check_action_group(tree) == []
    write(tree, {"plugins/modules/b70_two.py": HEADER})
    assert tree_rules.check_action_group(tree) != []


def test_locks_are_complete_pinned_and_hashed(tree: Path) -> None:
    assert tree_rules.check_lock(ROOT) == []
    assert tree_rules.check_lock(tree) == []
    write(tree, {"requirements/dev.in": "pytest\nother\n"})
    assert any("other is not in the lock" in line for line in tree_rules.check_lock(tree))
    write(tree, {"requirements/dev.txt": "py-test>=3\n"})
    assert any("not pinned and hashed: py-test>=3" in line for line in tree_rules.check_lock(tree))
