# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ``ansible-test sanity`` on the collection, without an ignore list.

ansible-test wants a tree ``ansible_collections/arcpro/b70`` under git, so the files that git tracks or would track are
copied to one in ``.cache/sanity``: all that ships, and the tests of it. Two runs at once share the tests. Other
arguments are handed on to a single run: ``sanity.py --test validate-modules``.

With ``--changed``, only files below ``plugins`` are tested that differ from a commit, and those that import them. The
commit is that of ``--since``, else that of the last recorded pass. Where git does not know it, everything is tested.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import record  # noqa: E402
from checks.layers import imports, reached  # noqa: E402

PLUGINS = "plugins"
FRAGMENTS = f"{PLUGINS}/doc_fragments/"
# The steps of tests/run.py that run this. What passed once with the changes before it has passed as a whole.
STEPS = ("sanity", "sanity-all")
# Takes about as long as all other tests of ansible-test together.
LONGEST = "pylint"
WORK = ROOT / ".cache" / "sanity"
TREE = WORK / "ansible_collections" / "arcpro" / "b70"

# Programs and suites that stand on their own. ansible-test would hold them to the rules for plugins (no executable,
# no name `_`); ruff and mypy read them like every other file.
APART = ("tests/lab/", "tests/scenarios/", "tests/load/", "roles/frontdoor/files/frontdoor/tests/")

# ansible-test downloads this script to put pip into each of its environments. The pip of this one does as well.
BOOTSTRAP = """import os
import sysconfig

os.symlink({pip!r}, os.path.join(sysconfig.get_path("purelib"), "pip"))
"""


def tracked(source: Path, *paths: str) -> list[str]:
    """Return the files of a git tree, or of these paths in it, that are tracked or untracked and not ignored."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    names = subprocess.run(listing, cwd=source, check=True, capture_output=True, text=True).stdout.split("\0")
    # Tracked but deleted in the working tree: it is not part of what would be committed.
    return [name for name in names if name and (source / name).is_file()]


def export_tree(source: Path, target: Path, without: tuple[str, ...] = ()) -> None:
    """Make ``target`` a git tree with the files of ``source`` that are tracked or untracked and not ignored.

    Paths that start with one of ``without`` stay behind.
    """
    shutil.rmtree(target, ignore_errors=True)
    for name in tracked(source):
        if not name.startswith(without):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)
    subprocess.run(["git", "init", "-q", "."], cwd=target, check=True)


def bootstrap_name(ansible_test: Path) -> str:
    """Return the file name under which this ansible-test looks for its pip bootstrap script."""
    found = re.search(r"\bpip='([0-9.]+)'", (ansible_test / "_internal" / "python_requirements.py").read_text())
    if found is None:
        raise SystemExit(
            f"cannot tell which pip {ansible_test} wants; look for its version in _internal/python_requirements.py"
        )
    return f"get_pip_{found[1].replace('.', '_')}.py"


def differing(root: Path, commit: str) -> list[str] | None:
    """Return the plugin files that differ from a commit; None where git does not know it."""
    known = record.changed_since(root, commit, [PLUGINS])
    if known is None:
        return None
    untracked = ["git", "ls-files", "--others", "--exclude-standard", "--", PLUGINS]
    new = subprocess.run(untracked, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted({*known, *new})


def unproven(root: Path) -> list[str] | None:
    """Return the plugin files that differ from the last recorded pass; None where none is known here."""
    passes = record.load(root)
    found = [differing(root, passes[step].commit) for step in STEPS if step in passes and passes[step].commit]
    return min((files for files in found if files is not None), key=len, default=None)


def with_users(root: Path, changed: Collection[str]) -> list[str]:
    """Return those of the changed files that are there, and the plugin files that use one of them, however far."""
    files = set(tracked(root, PLUGINS))
    graph: dict[str, set[str]] = {name: set() for name in {*files, *changed}}
    for name, used in imports(root).items():
        for other in used:
            graph.setdefault(f"{PLUGINS}/{other}", set()).add(f"{PLUGINS}/{name}")
    for name in changed:
        if name.startswith(FRAGMENTS):
            word = f"arcpro.b70.{Path(name).stem}"
            graph[name] |= {other for other in files if word in (root / other).read_text()}
    return sorted(reached(graph, changed) & files)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until nobody else uses the exported tree."""
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare() -> dict[str, str]:
    """Export the collection, and return an environment whose home is for the caches of ansible-test."""
    folders = {name: spec.submodule_search_locations for name in ("ansible_test", "pip") if (spec := find_spec(name))}
    tester, pip = (Path(places[0]) if (places := folders.get(name)) else None for name in ("ansible_test", "pip"))
    if tester is None or pip is None:
        raise SystemExit("ansible-test or pip is not in this environment; run: make venv")
    home = WORK / "home"
    export_tree(ROOT, TREE, APART)
    script = home / ".ansible" / "test" / "cache" / bootstrap_name(tester)
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(BOOTSTRAP.format(pip=str(pip)))
    environment = {
        **os.environ,
        # Its caches stay here; pip and git go on reading this person's configuration.
        "HOME": str(home),
        "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config")),
        "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL", str(Path.home() / ".gitconfig")),
    }
    environment.pop("ANSIBLE_CONFIG", None)
    return environment


def run(environment: Mapping[str, str], *words: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run ``ansible-test sanity`` in the exported tree."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = ["ansible-test", "sanity", "--local", "--requirements", "--python", version, "--color", "no", *words]
    return subprocess.run(command, cwd=TREE, env=environment, text=True, check=False, **streams)


def run_twice(environment: Mapping[str, str], files: Sequence[str]) -> int:
    """Run the longest test beside all others, and return 1 where one of them failed."""
    with ThreadPoolExecutor() as pool:
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        beside = pool.submit(run, environment, "--test", LONGEST, *files, **both)
        others = run(environment, "--skip-test", LONGEST, *files)
        print(beside.result().stdout, end="")
    return int(others.returncode != 0 or beside.result().returncode != 0)


def main() -> int:
    """Test what is wanted, and return an exit status; the last line says how many files were tested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changed", action="store_true", help="test only plugins that changed, and what uses them")
    parser.add_argument("--since", metavar="REV", help="with --changed: the commit to compare with")
    given, words = parser.parse_known_args()
    if words:
        with alone():
            return run(prepare(), *words).returncode
    changed = None
    if given.changed:
        changed = differing(ROOT, given.since) if given.since else unproven(ROOT)
        if changed is None:
            print("no commit is known to compare with: everything is tested", flush=True)
    files = [] if changed is None else with_users(ROOT, changed)
    if changed is not None and not files:
        print("no plugin changed: 0 files tested")
        return 0
    with alone():
        failed = run_twice(prepare(), files)
        print(f"{len(files) or len(tracked(TREE))} files tested")
    return failed


if __name__ == "__main__":
    sys.exit(main())
