# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ``ansible-test sanity`` on the collection, without an ignore list.

ansible-test wants a tree ``ansible_collections/arcpro/b70`` under git, so the files that git tracks or would track are
copied to one in ``.cache/sanity``: all that ships, and the tests of it. Arguments are handed on:
``sanity.py --test validate-modules``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / ".cache" / "sanity"

# Programs and suites that stand on their own. ansible-test would hold them to the rules for plugins (no executable,
# no name `_`); ruff and mypy read them like every other file.
APART = ("tests/lab/", "tests/scenarios/", "tests/load/", "roles/frontdoor/files/frontdoor/tests/")

# ansible-test downloads this script to put pip into its environments; the standard library can do the same.
BOOTSTRAP = "import ensurepip\n\nensurepip.bootstrap()\n"


def export_tree(source: Path, target: Path, without: tuple[str, ...] = ()) -> None:
    """Make ``target`` a git tree with the files of ``source`` that are tracked or untracked and not ignored.

    Paths that start with one of ``without`` stay behind.
    """
    shutil.rmtree(target, ignore_errors=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, cwd=source, check=True, capture_output=True, text=True).stdout.split("\0"):
        # Tracked but deleted in the working tree: it is not part of what would be committed.
        if name and not name.startswith(without) and (source / name).is_file():
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


def main() -> int:
    """Export, prepare a home for ansible-test's caches, run it, return its exit status."""
    spec = find_spec("ansible_test")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("ansible-test is not in this environment; run: make venv")
    home = WORK / "home"
    tree = WORK / "ansible_collections" / "arcpro" / "b70"
    export_tree(ROOT, tree, APART)
    script = home / ".ansible" / "test" / "cache" / bootstrap_name(Path(spec.submodule_search_locations[0]))
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(BOOTSTRAP)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    environment = {
        **os.environ,
        # Its caches stay here; pip and git go on reading this person's configuration.
        "HOME": str(home),
        "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config")),
        "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL", str(Path.home() / ".gitconfig")),
    }
    environment.pop("ANSIBLE_CONFIG", None)
    command = [
        "ansible-test",
        "sanity",
        "--local",
        "--requirements",
        "--python",
        version,
        "--color",
        "no",
        *sys.argv[1:],
    ]
    return subprocess.run(command, cwd=tree, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
