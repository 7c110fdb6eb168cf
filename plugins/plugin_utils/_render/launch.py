# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launch of a stack's program: from an environment on the host, or from a container image. Pure.

The kind of an engine decides which words start it, and its stack decides where the program comes from. A launch is the
part of an engine's unit that depends on the stack; everything else in a unit is the same for both.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._environment import SYSTEM_PATH

from .._catalogue.images import reference
from .._catalogue.places import texts_of
from .._catalogue.stacks import stack_id
from .program import PACKAGE

STOP_MARGIN_S = 15
_FOLDER = re.compile(r"(?:.*_)?(?:HOME|DIR|ROOT|CACHE)")


def launch_of(manifest: Mapping[str, Any]) -> Launch:
    """Return how the stack of a manifest is launched."""
    identity = stack_id(manifest)
    if "image" not in manifest:
        return Native(identity)
    return Container(identity, reference(manifest, identity), manifest["image"])


def folders(env: Mapping[str, str], writable: Sequence[str]) -> list[str]:
    """Return the folders below the writable ones that variables such as HOME, X_DIR and X_CACHE name."""
    below = tuple(f"{path}/" for path in writable)
    return sorted({value for name, value in env.items() if _FOLDER.fullmatch(name) and value.startswith(below)})


def cache_words(resolved: Mapping[str, Any], settings: Mapping[str, Any], made: Sequence[str]) -> list[str]:
    """Return the command line that settles the cache of compiled files, and makes the folders."""
    stack = resolved["stack"]
    image = ["--image", stack["image"]] if stack.get("image") else []
    cards = ["--cards"] if resolved["cards"] else []
    program = f"{settings['lib_dir']}/{PACKAGE}/caches.py"
    words = ["/usr/bin/python3", "-I", "-B", program, "--stack", stack["id"], *image, *cards]
    return [*words, "--root", settings["cache_root"], *made]


def outermost(paths: Sequence[str]) -> list[str]:
    """Return the paths that are not below another of them."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{outer}/") for outer in found):
            found.append(path)
    return found


@dataclass(frozen=True)
class Native:
    """A program in the environment of the stack's folder, confined by systemd."""

    identity: str
    image: str = ""
    # The stack's own tools first (ninja, ocloc wrappers): kernels are compiled at run time.
    path: str = f"@venv@/bin:{SYSTEM_PATH}"

    def places(self, stack_dir: str, cache_dir: str, cache_key: str) -> dict[str, str]:
        """Return the places that depend on the stack: ``stack_dir``, ``venv`` and ``cache_root``.

        Each stack has a cache of its own: replicas that still serve with another one go on using theirs.
        """
        root = f"{cache_dir}/{self.identity}/{cache_key}"
        return {"stack_dir": stack_dir, "venv": f"{stack_dir}/venv", "cache_root": root}

    def engine_argv(self, argv: Sequence[str]) -> list[str]:
        """Return the engine's command line as its process shows it."""
        return list(argv)

    def data(self, resolved: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the launch's part of what the unit of a resolved profile is rendered with.

        - argv: what follows the program that systemd starts, or that the container starts with.
        - folders: the command line that makes the folders for compiled files, and sets stale ones aside.
        - mounts: paths that must be mounted first, besides weights and caches.
        """
        writable = list(dict.fromkeys([settings["cache_dir"], settings["hf_home"]]))
        return {
            "container": None,
            "argv": resolved["engine"]["argv"],
            "folders": cache_words(resolved, settings, folders(resolved["engine"]["env"], writable)),
            "mounts": [resolved["stack"]["dir"]],
            "stop_timeout_s": resolved["engine"]["stop_timeout_s"],
            "writable": writable,
        }


@dataclass(frozen=True)
class Container:
    """A program in an image, run by Podman.

    The container has the host's network, so port and peers are judged as for any other process, and the directives that
    confine an engine's network apply too. Folders have the host's paths in it, so one command line fits both.
    """

    identity: str
    image: str
    about: Mapping[str, Any]
    path: str = ""

    def places(self, stack_dir: str, cache_dir: str, cache_key: str) -> dict[str, str]:
        venv = str(PurePosixPath(self.about["program"]).parent.parent)
        return {"stack_dir": stack_dir, "venv": venv, "cache_root": f"{cache_dir}/{self.identity}/{cache_key}"}

    def engine_argv(self, argv: Sequence[str]) -> list[str]:
        return [self.about["program"], *argv[1:]]

    def data(self, resolved: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        engine = resolved["engine"]
        # The folders that the engine's variables name, in the caches of this image.
        made = folders(engine["env"], [settings["cache_dir"], settings["hf_home"]])
        account = (f"--reuid={settings['user']}", f"--regid={settings['group']}", "--init-groups")
        start = [*self.about.get("start", []), *engine["argv"]]
        models, mounts = model_paths(resolved, settings["models_dir"]), sorted(engine.get("mounts", {}).items())
        return {
            "container": {
                # Podman's names can't have the @ of the units of replicas.
                "name": resolved["unit"].removesuffix(".service").replace("@", "_"),
                "models": models,
                "written": outermost([*made, settings["hf_home"]]),
                "mounts": mounts,
                "cards": _on_cards(resolved),
                "several": _on_cards(resolved) and _workers(engine["settings"]) > 1,
                "program": start[0],
            },
            "argv": [self.image, *start[1:]],
            "folders": ["/usr/bin/setpriv", *account, *cache_words(resolved, settings, made)],
            "mounts": ["/run/containers", "/var/lib/containers", *models, *(path for path, _inside in mounts)],
            # Podman kills what does not end by itself; systemd's own limit comes after that.
            "stop_timeout_s": engine["stop_timeout_s"] + STOP_MARGIN_S,
        }


Launch = Native | Container


def model_paths(resolved: Mapping[str, Any], models_dir: str) -> list[str]:
    """Return what an engine reads of models.

    This is the model's directory, those beside it, and all below ``models_dir`` that its command line or its variables
    name, such as a draft in ``speculative_config``.
    """
    model, engine = resolved["model"], resolved["engine"]
    texts = [text for word in engine["argv"] for text in texts_of(word)]
    texts += [part for value in engine["env"].values() for part in value.split(":")]
    named = [posixpath.normpath(text) for text in texts if text.startswith(f"{models_dir}/")]
    below = [path for path in named if path.startswith(f"{models_dir}/")]
    return outermost([model["path"], *model.get("companions", []), *below])


def _on_cards(resolved: Mapping[str, Any]) -> bool:
    return bool(resolved["stack"]["device"] == "xpu")


def _workers(settings: Mapping[str, Any]) -> int:
    workers = max(settings.get(key) or 1 for key in ("tensor_parallel_size", "pipeline_parallel_size"))
    if settings.get("enable_expert_parallel"):
        # Experts are spread over the replicas inside of the engine, which then exchange what each has computed.
        workers = max(workers, settings.get("data_parallel_size") or 1)
    return int(workers)
