# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about files, whatever is in them. Each takes a tree and returns what breaks the rule, one line per finding."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

HEADER = ("# Copyright (c) 2026, arcpro.b70 contributors", "# SPDX-License-Identifier: GPL-3.0-or-later")
# What Ansible's own tests want to read in plugins; it says the same as the line with the identifier.
LICENSE = "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)"
# Homes, and what an administrator put on one machine; the collection's own and the vendor's folders are not among them.
# /opt/venv is in the images of vLLM.
FOREIGN_PATHS = re.compile(
    r"(?<![\w.}])/(?:home/(?!me\b|user\b)[a-z]\w*|root/(?!\.(?:ansible|ssh)\b)[\w.-]+|work/\w+|Users/\w+|opt/(?!b70\b|intel\b|venv\b)[\w.-]+)"
)
BINARY = frozenset({".safetensors", ".png", ".gz", ".whl"})
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
# Beginnings that leave open what a docstring is about; ruff (D401) refuses other words that are no imperatives.
QUESTIONS = frozenset({"How", "Those", "What", "When", "Where", "Whether", "Which", "Who", "Whoever", "Whose", "Why"})
ANSIBLE_CLASSES = frozenset({"ActionModule", "CallbackModule", "LookupModule", "ModuleDocFragment"})
PLAYBOOK_WORD = re.compile(r"ansible-playbook (?:-i \S+ )?(?:([\w/]+\.yml)|arcpro\.b70\.(\w+))")
MAKE_WORD = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)


def tracked(root: Path) -> list[Path]:
    """Return the files that git tracks or would track and that are there, sorted."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(root / name for name in names if name and (root / name).is_file())


def text_files(files: Iterable[Path]) -> list[Path]:
    """Leave out what is not text."""
    return [file for file in files if file.suffix not in BINARY and b"\0" not in file.read_bytes()[:4096]]


def check_headers(root: Path, files: Sequence[Path]) -> list[str]:
    """Every Python file says under which licence it stands and defers annotations."""
    found = []
    for file in files:
        if file.suffix == ".py" and file.stat().st_size:
            text = file.read_text()
            lines = text.splitlines()
            start = 1 if lines[0].startswith("#!") else 0
            if tuple(line for line in lines[start : start + 3] if line != LICENSE)[:2] != HEADER:
                found.append(f"{file.relative_to(root)}: does not start with the copyright and licence lines")
            only_words = all(isinstance(part, ast.Expr) for part in ast.parse(text).body)
            if "from __future__ import annotations" not in lines and not only_words:
                found.append(f"{file.relative_to(root)}: from __future__ import annotations is missing")
    return found


def check_foreign_paths(root: Path, files: Sequence[Path], addresses: Sequence[str] = ()) -> list[str]:
    """No file names a place of the machine it was written on: homes, the checkout itself, or one of ``addresses``."""
    own = (str(root), *addresses)
    found = []
    for file in text_files(files):
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            hit = FOREIGN_PATHS.search(line)
            word = hit[0] if hit else next((text for text in own if text in line), "")
            if word:
                found.append(f"{file.relative_to(root)}:{number}: {word} is a place of one machine")
    return found


def package_indexes() -> list[str]:
    """Return the package index addresses and folders that pip is configured with on this machine."""
    listing = subprocess.run(["pip", "config", "list"], capture_output=True, text=True, timeout=60, check=False).stdout
    words = re.findall(r"[\w+]+://[^\s'\"]+|/[^\s'\"]+", listing)
    # Certificates stand in the same place on every Debian.
    return [word for word in words if not word.startswith(("/etc/ssl/", "https://pypi.org"))]


def check_links(root: Path, files: Sequence[Path]) -> list[str]:
    """Every relative link in a Markdown file leads to a file of the tree."""
    found = []
    for file in files:
        if file.suffix == ".md":
            for target in LINK.findall(file.read_text()):
                if "://" not in target and not target.startswith("mailto:") and not (file.parent / target).exists():
                    found.append(f"{file.relative_to(root)}: {target} does not exist")
    return found


def check_make_words(root: Path, files: Sequence[Path]) -> list[str]:
    """Every ``make TARGET`` that a document tells a person to type is a target of the Makefile."""
    targets = set()
    for line in (root / "Makefile").read_text().splitlines():
        if not line.startswith(("\t", "#", ".")) and ":" in line and ":=" not in line:
            targets.update(line.partition(":")[0].split())
    found = []
    for file in files:
        if file.suffix == ".md":
            for word in MAKE_WORD.findall(file.read_text()):
                if word not in targets:
                    found.append(f"{file.relative_to(root)}: make {word} is not a target")
    return found


def check_playbook_words(root: Path, files: Sequence[Path]) -> list[str]:
    """Every playbook that a document tells a person to run is there, by its path or by its name."""
    found = []
    for file in files:
        if file.suffix == ".md":
            for path, name in PLAYBOOK_WORD.findall(file.read_text()):
                playbook = f"playbooks/{name}.yml" if name else path
                if not (root / playbook).exists():
                    found.append(f"{file.relative_to(root)}: {playbook} does not exist")
    return found


def check_docstrings(root: Path, files: Sequence[Path]) -> list[str]:
    """Check that docstrings of the product name their subject, and that those of functions begin with a verb."""
    found = []
    for file in files:
        folders = file.relative_to(root).parts
        if file.suffix != ".py" or folders[0] not in ("plugins", "roles") or "tests" in folders:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            first = (ast.get_docstring(node) or "").partition(" ")[0].rstrip(",.:;")
            verb = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
                "property" in ast.unparse(one) for one in node.decorator_list
            )
            if first in QUESTIONS or (first and verb and not re.fullmatch("[A-Z][a-z]+", first)):
                name = getattr(node, "name", "the file")
                found.append(f"{file.relative_to(root)}: the docstring of {name} begins with {first}")
    return found


def check_class_names(root: Path, files: Sequence[Path]) -> list[str]:
    """Check that no two modules of the plugins define a class of one name, but for names that Ansible looks for."""
    found: dict[str, set[str]] = {}
    for file in files:
        if file.suffix == ".py" and file.relative_to(root).parts[0] == "plugins":
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and node.name not in ANSIBLE_CLASSES:
                    found.setdefault(node.name, set()).add(str(file.relative_to(root)))
    return [f"{name} is defined in {' and '.join(sorted(of))}" for name, of in found.items() if len(of) > 1]


def check_no_exceptions(root: Path, files: Sequence[Path]) -> list[str]:
    """No list of exceptions: sanity ignore files are empty, ansible-lint skips and tolerates nothing."""
    found = []
    for file in files:
        if file.match("tests/sanity/ignore*.txt") and file.read_text().strip():
            found.append(f"{file.relative_to(root)}: is not empty")
    settings = yaml.safe_load((root / ".ansible-lint").read_text())
    if settings.get("profile") != "production":
        found.append(".ansible-lint: profile is not production")
    return found + [f".ansible-lint: has a {key}" for key in ("skip_list", "warn_list") if settings.get(key)]


def check_action_group(root: Path) -> list[str]:
    """The action groups of meta/runtime.yml are the list of modules, and of those with options for where a slot is."""
    groups = yaml.safe_load((root / "meta" / "runtime.yml").read_text()).get("action_groups", {})
    files = sorted((root / "plugins" / "modules").glob("b70_*.py"))
    wanted = {
        "b70": [file.stem for file in files],
        "slot": [file.stem for file in files if "  - arcpro.b70.slot\n" in file.read_text()],
    }
    return [
        f"meta/runtime.yml: group {name} is {sorted(groups.get(name, []))}, the modules are {present}"
        for name, present in wanted.items()
        if sorted(groups.get(name, [])) != present
    ]


def check_lock(root: Path) -> list[str]:
    """Every requirement stands in its lock, and everything in a lock is pinned and hashed."""
    found = []
    for wanted in sorted([*root.glob("requirements/*.in"), *root.glob("roles/*/files/*/*requirements.in")]):
        lock = wanted.with_suffix(".txt").read_text()
        entries = [entry for entry in re.split(r"\n(?=\S)", lock) if not entry.startswith("#")]
        names = set()
        for entry in entries:
            name = re.match(r"([A-Za-z0-9._-]+)==\S+", entry)
            if name is None or "--hash=sha256:" not in entry:
                found.append(
                    f"{wanted.with_suffix('.txt').relative_to(root)}: not pinned and hashed: {entry.splitlines()[0]}"
                )
            else:
                names.add(canonical(name[1]))
        for line in wanted.read_text().splitlines():
            name = re.match(r"[A-Za-z0-9._-]+", line)
            if name and canonical(name[0]) not in names:
                found.append(f"{wanted.relative_to(root)}: {name[0]} is not in the lock; run: make lock")
    return found


def canonical(name: str) -> str:
    """Return a distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
