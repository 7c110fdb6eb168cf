# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Break the product in twenty places, one after the other, and see whether the tests notice.

The places are chosen by a fixed seed. Each mutation is made in a copy of the last commit, where the tests that need no
host run: first those of the mutated module's folder, then all. A test notices a mutation if it fails again by itself,
and passes without the mutation; any other that fails is left out. ``--suite REV`` takes the tests of another commit, so
that two suites are judged by the same mutations. ``--list`` prints the mutations. ``--write`` records the results in
``tests/tools/mutations.md``, one column for each suite.

It is not mutmut or cosmic-ray: both mutate one package by the hundreds, and neither takes the tests of another commit.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path("tests/tools/mutations.md")
HEAD = """# Mutations

Written by `python tests/tools/mutations.py --write`. Each row names a test that fails with the mutation
and passes without it.

"""
SEED = 28
LIMIT_S = 1200
FRONTDOOR = "roles/frontdoor/files/frontdoor"
# Where the product decides, and how many mutations it gets there.
AREAS = {
    "plugins/module_utils/_slot": 10,
    "plugins/plugin_utils/_rollout": 2,
    "plugins/plugin_utils/_render": 2,
    "plugins/plugin_utils/_catalogue": 1,
    f"{FRONTDOOR}/src/frontdoor": 5,
}
SUITE = ("tests", "pyproject.toml", f"{FRONTDOOR}/tests", f"{FRONTDOOR}/pyproject.toml")
SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
NO_GUARDS = ("TYPE_CHECKING", "__name__ == '__main__'")
RARE = ("drop a phase", "lose an await", "another signal")
VERDICTS = {"True": "False", "False": "True"}
SIGNALS = ("signal.SIGTERM", "signal.SIGKILL", "signal.SIGINT")
# What a person reads, and nothing decides by.
SAID = re.compile(r"\b(say|warn|warning|info|debug|log|print|note|write_line)\b")
# Mutations by file and line that change nothing, with the reason: the seed's next one takes their place.
EQUIVALENT: dict[str, str] = {}


@dataclass(frozen=True)
class Mutation:
    """One change of a file: the text between two offsets in bytes becomes another one."""

    file: str
    line: int
    what: str
    start: int
    end: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def of(self, source: bytes) -> bytes:
        """Return the source of the file with this mutation."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutations(file: str, source: str) -> Iterator[Mutation]:
    """Yield every mutation of a module."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def change(what: str, node: ast.expr | ast.stmt, text: str) -> Mutation:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        return Mutation(file, node.lineno, what, start, end, text)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If | ast.While) and ast.unparse(node.test) not in NO_GUARDS:
            yield change("invert a guard", node.test, f"not ({ast.unparse(node.test)})")
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS and ast.unparse(node) not in NO_GUARDS:
            swapped = ast.Compare(node.left, [SWAPS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
            yield change("change a comparison", node, f"({ast.unparse(swapped)})")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Await):
            yield change("lose an await", node, ast.unparse(node.value.value))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not SAID.search(ast.unparse(node)):
            yield change("drop a call", node, "pass")
        elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) in VERDICTS:
            yield change("swap a verdict", node.value, VERDICTS[ast.unparse(node.value)])
        elif isinstance(node, ast.Tuple) and len(node.elts) > 1 and _phases(node):
            rest = ", ".join(ast.unparse(one) for one in node.elts[1:])
            yield change("drop a phase", node, f"({rest},)")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in SIGNALS:
            yield change("another signal", node, "signal.SIGCONT")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and _number(node.right):
            other = ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
            yield change("change a sum", node, f"({ast.unparse(other)})")


def _phases(node: ast.Tuple) -> bool:
    return all(isinstance(one, ast.Attribute) and ast.unparse(one).startswith("Phase.") for one in node.elts)


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def chosen(root: Path) -> list[Mutation]:
    """Return the twenty: one of each rare kind, then in each area files at random with a kind that is rare so far."""
    draw = random.Random(SEED)

    def one_of(rows: Sequence[Mutation]) -> Mutation:
        while True:
            one = draw.choice(rows)
            # Python 3.11 misplaces what is in an f-string.
            with contextlib.suppress(SyntaxError):
                compile(one.of((root / one.file).read_bytes()), one.file, "exec")
                return one

    known: dict[str, list[Mutation]] = {}
    for path in sorted(path for area in AREAS for path in (root / area).rglob("*.py")):
        file = str(path.relative_to(root))
        known[file] = [one for one in mutations(file, path.read_text()) if one.place not in EQUIVALENT]
    every = [one for rows in known.values() for one in rows]
    found = [one_of([one for one in every if one.what == kind]) for kind in RARE]
    for area, count in AREAS.items():
        left = count - sum(one.file.startswith(area) for one in found)
        files = [file for file in known if file.startswith(area) and file not in {one.file for one in found}]
        # Larger files mostly come first.
        files.sort(key=lambda file: draw.random() ** (1 / (1 + len(known[file]))), reverse=True)
        for file in [file for file in files if known[file]][:left]:
            kinds = {kind: sum(one.what == kind for one in found) for kind in sorted({one.what for one in known[file]})}
            kind = draw.choice([kind for kind, times in kinds.items() if times == min(kinds.values())])
            found.append(one_of([one for one in known[file] if one.what == kind]))
    return found


class Copy:
    """A clone of this checkout's last commit, with the tests of a commit."""

    def __init__(self, folder: Path, suite: str) -> None:
        self.root = folder / suite
        self.git("clone", "-q", str(ROOT), str(self.root), cwd=folder)
        if suite != "HEAD":
            self.git("rm", "-rq", *SUITE)
            self.git("checkout", "-q", suite, "--", *SUITE)
        link = self.root / ".cache/collections/ansible_collections/arcpro/b70"
        link.parent.mkdir(parents=True)
        link.symlink_to("../../../..")
        self._left_out: list[str] = []

    def git(self, *words: str, cwd: Path | None = None) -> None:
        subprocess.run(["git", *words], cwd=cwd or self.root, check=True, capture_output=True, timeout=120)

    @contextlib.contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        path = self.root / mutation.file
        before = path.read_bytes()
        path.write_bytes(mutation.of(before))
        try:
            yield
        finally:
            path.write_bytes(before)

    def failing(self, folder: str, *words: str) -> list[str]:
        """Return what fails; one entry for a run that does not end."""
        # All processes of a run that does not end are killed, the workers too.
        argv = ["timeout", "--kill-after=10", str(LIMIT_S), "pytest", "-q", "--tb=no", "-rfE", *words]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PATH"] = f"{ROOT / '.venv/bin'}:{environment['PATH']}"
        done = subprocess.run(
            argv, cwd=self.root / folder, env=environment, capture_output=True, text=True, check=False
        )
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        return failed or ([] if done.returncode in (0, 5) else [f"pytest itself ends, with {done.returncode}"])

    def judge(self, mutation: Mutation) -> str:
        """Return the test that notices a mutation; empty where none does."""
        for folder, *words in stages(self.root, mutation.file):
            while True:
                with self.mutated(mutation):
                    failed = self.failing(folder, "-n2", "-x", *self._left_out, *words)
                    tests = sorted({re.sub(r"\[.*", "", name) for name in failed if ".py" in name})
                    again = self.failing(folder, *tests) if tests else []
                if not failed:
                    break
                if not tests:
                    return failed[0]
                # A busy machine breaks a test as well, and so does an older suite that the product has outgrown.
                if sure := {*again} - {*self.failing(folder, *tests)}:
                    return re.sub(r"\[.*", "", min(sure))
                self._left_out += [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in failed]
        return ""


def stages(root: Path, file: str) -> list[tuple[str, ...]]:
    """Return the folders to run pytest in, with its words, for the tests that can notice a mutation, quickest first."""
    everything = (".", "-m", "not lab and not scenario and not exhaustive", "tests/unit", "tests/lab")
    if file.startswith(FRONTDOOR):
        return [(FRONTDOOR, "tests"), everything]
    near = Path("tests/unit", file).parent
    while not (root / near).is_dir():
        near = near.parent
    return [(".", str(near)), everything]


def main() -> int:
    """Judge the suites by the mutations; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the mutations and do nothing")
    parser.add_argument("--suite", action="append", metavar="REV", help="the tests of this commit too", default=[])
    parser.add_argument("--write", action="store_true", help=f"write {TABLE}")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{one.place}: {one.what}: {one.text}" for one in chosen(ROOT)))
        return 0
    suites = ["HEAD", *arguments.suite]
    columns = ["this suite", *(f"the suite of {suite}" for suite in arguments.suite)]
    rows = [f"| mutation | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    noticed = dict.fromkeys(suites, 0)
    with tempfile.TemporaryDirectory() as folder:
        copies = {suite: Copy(Path(folder), suite) for suite in suites}
        twenty = chosen(copies["HEAD"].root)
        for one in twenty:
            found = {suite: copy.judge(one) for suite, copy in copies.items()}
            for suite, test in found.items():
                noticed[suite] += bool(test)
            row = f"| `{one.place}`: {one.what} | {' | '.join(test or '**none**' for test in found.values())} |"
            print(row, flush=True)
            rows.append(row)
    named = zip(columns, noticed.values(), strict=True)
    total = f"Noticed of {len(twenty)}: " + ", ".join(f"{count} by {name}" for name, count in named)
    print(total)
    if arguments.write:
        (ROOT / TABLE).write_text(HEAD + "\n".join([*rows, "", f"{total}."]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
