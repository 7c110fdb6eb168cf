# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp as a Git repository for hosts that cannot reach the real one.

The sources are the real ones: the source distribution of llama-cpp-python carries them. What it leaves out makes
another commit of them, which is the same on every machine; `llama/llama-cpu.yml` pins it. After another version was
chosen, `python3 -m vendor.llama --pin` in tests/lab writes its commit there.
"""

from __future__ import annotations

import argparse
import fcntl
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from vendor import gitrepos

HERE = Path(__file__).parent
CACHE = HERE.parents[2] / ".cache/llama"
STACKS = HERE / "llama"
MANIFEST = STACKS / "llama-cpu.yml"
# The one that carries the release that the stack llama-cpu pins.
PACKAGE = "llama-cpp-python==0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
REPO = "ggml-org/llama.cpp"
# Without the link to the repository that it was a submodule of.
_INSIDE = re.compile(r"[^/]+/vendor/llama\.cpp/(?!\.git$)(.+)")


@dataclass(frozen=True)
class Sources:
    """`www` is to be served; below it `git` has the repository, with `commit`."""

    www: Path
    commit: str


def pinned() -> str:
    """The commit that the lab's manifest names."""
    return str(yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))["sources"][0]["commit"])


def _download(folder: Path) -> Path:
    """The source distribution; pip checks its digest."""
    name = PACKAGE.partition("==")[0]
    options = ["--no-input", "--disable-pip-version-check", "--no-deps", f"--no-binary={name}", "--require-hashes"]
    line = f"{PACKAGE} --hash=sha256:{SHA256}\n"
    argv = [sys.executable, "-m", "pip", "download", "-qq", *options, f"--dest={folder}", "--requirement=/dev/stdin"]
    done = subprocess.run(argv, input=line, text=True, capture_output=True, timeout=1800, check=False)
    found = list(folder.glob("*.tar.gz"))
    if done.returncode or not found:
        raise RuntimeError(f"{PACKAGE} can't be had: {done.stderr.strip()}")
    return found[0]


def _unpack(archive: Path, tree: Path) -> None:
    """The files of llama.cpp, with the mode that Git has for files."""
    with tarfile.open(archive) as opened:
        for member in opened:
            inside = _INSIDE.fullmatch(member.name)
            content = opened.extractfile(member) if inside and member.isfile() else None
            if inside and content:
                target = tree / inside[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
                target.chmod(0o644)


def make(cache: Path = CACHE) -> Sources:
    """Make the repository, or take what an earlier run made of the same package."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"sources-{SHA256[:12]}"
    with (cache / "sources.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = folder / "commit"
        if not record.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            tree = folder / "tree"
            _unpack(_download(folder), tree)
            commit = gitrepos.publish(tree, folder / "www/git", REPO, "llama.cpp as a Python package carries it")
            shutil.rmtree(tree)
            record.write_text(commit, encoding="utf-8")
    return Sources(folder / "www", record.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pin", action="store_true", help="write the commit into the manifest")
    given = parser.parse_args(arguments)
    sources = make()
    if given.pin:
        MANIFEST.write_text(MANIFEST.read_text(encoding="utf-8").replace(pinned(), sources.commit), encoding="utf-8")
    print(sources.www)
    return 0 if pinned() == sources.commit else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
