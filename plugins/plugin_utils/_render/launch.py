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
from typing import Any, Protocol

from ansible_collections.arcpro.b70.plugins.module_utils._environment import (
    SYSTEM_PATH,
    Variable,
    environment_file,
    plain_file,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import PODMAN

from .._catalogue.images import reference
from .._catalogue.places import texts_of
from .._catalogue.stacks import stack_id
from .program import PACKAGE
from .quoting import Substituted, plain_value, quote_path

# The limit on the memory that workers share; it reserves nothing.
_SHARED_MEMORY = "16g"
STOP_MARGIN_S = 15
# The variables with the user and group of engines in containers and with the groups of devices, and the file on a host
# that has them.
ACCOUNT, ACCOUNT_FILE = "B70_ACCOUNT", "account.env"
DEVICE_GROUPS = {"B70_RENDER": "render", "B70_VIDEO": "video"}
# Private devices, private users and no writable-executable memory would break /dev/dri, the render group and the JIT.
# ProtectClock= is left out as well: it turns on a device policy that hides /dev/dri.
HARDENING = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
UMask=0027
# A killed engine leaves its shared memory behind; it goes when the last unit of the user has stopped.
RemoveIPC=yes"""


_FOLDER = re.compile(r"(?:.*_)?(?:HOME|DIR|ROOT|CACHE)")


@dataclass(frozen=True)
class Service:
    """A launch's part of the unit of an engine.

    :param head: directives on how systemd runs the process.
    :param argv: the whole command line.
    :param folders: the command line that makes the folders for compiled files, and sets stale ones aside.
    :param mounts: paths that must be mounted first, besides weights and caches.
    :param missing: exit statuses after which another try does not help.
    :param stop: directives on how it is ended.
    :param confined: directives on what it may do.
    """

    head: Sequence[str]
    argv: Sequence[str]
    folders: Sequence[str]
    mounts: Sequence[str]
    stop_timeout_s: int
    missing: str
    stop: Sequence[str] = ()
    confined: Sequence[str] = ()


class Launch(Protocol):
    """The way in which the program of one stack is started. image: the image that is run, or empty."""

    @property
    def image(self) -> str: ...

    @property
    def path(self) -> str:
        """Return the PATH of the engine; empty if its image has one."""

    def places(self, stack_dir: str, cache_dir: str, cache_key: str) -> dict[str, str]:
        """Return the places that depend on the stack: ``stack_dir``, ``venv`` and ``cache_root``.

        Each stack has a cache of its own: replicas that still serve with another one go on using theirs.
        """

    def engine_argv(self, argv: Sequence[str]) -> list[str]:
        """Return the engine's command line as its process shows it."""

    def environment(self, variables: Mapping[str, Variable], header: str) -> str:
        """Return the text of the file with the engine's variables."""

    def service(self, resolved: Mapping[str, Any], settings: Mapping[str, Any]) -> Service:
        """Return the launch's part of the unit of a resolved profile."""


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
        root = f"{cache_dir}/{self.identity}/{cache_key}"
        return {"stack_dir": stack_dir, "venv": f"{stack_dir}/venv", "cache_root": root}

    def engine_argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def environment(self, variables: Mapping[str, Variable], header: str) -> str:
        return environment_file(variables, header)

    def service(self, resolved: Mapping[str, Any], settings: Mapping[str, Any]) -> Service:
        writable = list(dict.fromkeys([settings["cache_dir"], settings["hf_home"]]))
        return Service(
            head=(
                "Type=exec",
                f"User={settings['user']}",
                f"Group={settings['group']}",
                f"WorkingDirectory={plain_value(settings['cache_dir'])}",
                f"EnvironmentFile={plain_value(settings['env_file'])}",
            ),
            argv=resolved["engine"]["argv"],
            folders=cache_words(resolved, settings, folders(resolved["engine"]["env"], writable)),
            mounts=(resolved["stack"]["dir"],),
            stop_timeout_s=resolved["engine"]["stop_timeout_s"],
            missing="203",
            confined=(
                "LimitNOFILE=1048576",
                *settings["numa"],
                *settings["network"],
                HARDENING,
                f"ReadWritePaths={' '.join(quote_path(path) for path in writable)}",
            ),
        )


@dataclass(frozen=True)
class Container:
    """A program in an image, run by Podman.

    The unit is what Podman's generator (Quadlet) makes of a ``.container`` file, written out: systemd can't enable a
    generated unit, and a switch enables what it has verified.

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

    def environment(self, variables: Mapping[str, Variable], header: str) -> str:
        return plain_file(variables, header)

    def service(self, resolved: Mapping[str, Any], settings: Mapping[str, Any]) -> Service:
        # Podman's names can't have the @ of the units of replicas.
        name, engine = resolved["unit"].removesuffix(".service").replace("@", "_"), resolved["engine"]
        # The folders that the engine's variables name, in the caches of this image.
        made = folders(engine["env"], [settings["cache_dir"], settings["hf_home"]])
        written = outermost([*made, settings["hf_home"]])
        account = (f"--reuid={settings['user']}", f"--regid={settings['group']}", "--init-groups")
        # Remove it by name: a file with the id outlives a failed start, and Podman then refuses every later one.
        remove = f"{PODMAN} rm -v -f -i {name}"
        return Service(
            head=(
                "Type=notify",
                "NotifyAccess=all",
                "Delegate=yes",
                "Environment=PODMAN_SYSTEMD_UNIT=%n",
                f"EnvironmentFile={plain_value(settings['config_dir'])}/{ACCOUNT_FILE}",
            ),
            argv=self._argv(name, resolved, settings, written),
            folders=("/usr/bin/setpriv", *account, *cache_words(resolved, settings, made)),
            mounts=(
                *("/run/containers", "/var/lib/containers"),
                *model_paths(resolved, settings["models_dir"]),
                *sorted(engine.get("mounts", {})),
            ),
            # Podman kills what does not end by itself; systemd's own limit comes after that.
            stop_timeout_s=engine["stop_timeout_s"] + STOP_MARGIN_S,
            # Podman's statuses: the program can't be run, or is not in the image.
            missing="126 127 203",
            stop=(f"ExecStop={remove}", f"ExecStopPost=-{remove}"),
            # The container takes over the limits of Podman.
            confined=("LimitNOFILE=1048576", "LimitCORE=0", *settings["numa"], *settings["network"]),
        )

    def _argv(
        self, name: str, resolved: Mapping[str, Any], settings: Mapping[str, Any], written: Sequence[str]
    ) -> list[str]:
        engine = resolved["engine"]
        start = [*self.about.get("start", []), *engine["argv"]]
        return [
            *(PODMAN, "run", f"--name={name}", "--replace", "--rm", "-d"),
            *("--cgroups=split", "--sdnotify=conmon"),
            "--pull=never",
            # The output is the unit's own, so its log is the same as without a container.
            "--log-driver=passthrough",
            "--network=host",
            # An image does not know the account, whose numbers are the host's and stand in a file there.
            Substituted(f"--user=${{{ACCOUNT}}}"),
            "--cap-drop=all",
            "--security-opt=no-new-privileges",
            "--read-only",
            "--pids-limit=-1",
            "--ulimit=host",
            f"--stop-signal={settings['kill_signal']}",
            f"--stop-timeout={engine['stop_timeout_s']}",
            f"--env-file={settings['env_file']}",
            "--workdir=/tmp",
            *(f"--volume={path}:{path}:ro" for path in model_paths(resolved, settings["models_dir"])),
            *(f"--volume={path}:{path}" for path in written),
            # A mount over what the image has replaces it there: that is how a file of it is patched.
            *(f"--volume={path}:{inside}:ro" for path, inside in sorted(engine.get("mounts", {}).items())),
            *_devices(resolved),
            f"--entrypoint={start[0]}",
            self.image,
            *start[1:],
        ]


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


def _devices(resolved: Mapping[str, Any]) -> list[str]:
    settings = resolved["engine"]["settings"]
    workers = max(settings.get(key) or 1 for key in ("tensor_parallel_size", "pipeline_parallel_size"))
    if settings.get("enable_expert_parallel"):
        # Experts are spread over the replicas inside of the engine, which then exchange what each has computed.
        workers = max(workers, settings.get("data_parallel_size") or 1)
    if not _on_cards(resolved):
        return [f"--shm-size={_SHARED_MEMORY}"]
    # The collectives look for the cards by their place on the bus, even if there is only one.
    words = ["--device=/dev/dri", "--volume=/dev/dri/by-path:/dev/dri/by-path:ro"]
    # In an image, groups have other numbers or none. Only crun could keep the host's without naming them.
    words += [Substituted(f"--group-add=${{{variable}}}") for variable in DEVICE_GROUPS]
    if workers > 1:
        # Workers take file descriptors from each other, and share segments of memory.
        return [*words, "--ipc=host", "--cap-add=SYS_PTRACE"]
    return [*words, f"--shm-size={_SHARED_MEMORY}"]


def account_file(settings: Mapping[str, Any]) -> str:
    """Return the text of the file with the account and groups of engines in containers; the host fills in numbers."""
    account = {ACCOUNT: f"@uid:{settings['user']}@:@gid:{settings['group']}@"}
    groups = {variable: f"@gid:{name}@" for variable, name in DEVICE_GROUPS.items()}
    return "".join(f'{variable}="{numbers}"\n' for variable, numbers in (account | groups).items())
