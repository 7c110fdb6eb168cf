# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site with engines of several kinds: from environments of a host, and from images that are made of these.

A host of the lab has the registry, at its address on the bridge, and fills it from its own system and stacks, so an
image has the very engine that the host runs without a container.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from testinfra.host import Host

from system.product import ROOT, Frontdoor, answer_of, until
from vendor import llama

LAB = "kinds"
SITE, SWITCH = ROOT / "site.yml", ROOT / "switch.yml"
VLLM = {"kind": "vllm", "version": "0.32.0"}
LLAMA = {"kind": "llama-server", "version": "0.5.0"}
# Debian 12 has an older crun, which cannot start a container inside of one. Later systems have one that can, but not
# without the controller of pids, which a lab host has none of: theirs is called without the limit.
CONTAINERS_CONF = {
    "12": '[engine]\nruntime = "runc"\n',
    "13": '[containers]\npids_limit = 0\n[engine.runtimes]\ncrun = ["/usr/local/bin/crun"]\n',
}
CRUN = """\
#!/usr/bin/python3
import json, os, sys
if "--bundle" in sys.argv:
    path = os.path.join(sys.argv[sys.argv.index("--bundle") + 1], "config.json")
    with open(path) as file:
        config = json.load(file)
    config["linux"]["resources"].pop("pids", None)
    with open(path, "w") as file:
        json.dump(config, file)
os.execv("/usr/bin/crun", ["crun", *sys.argv[1:]])
"""
REGISTRY_CONF = """\
version: 0.1
storage: {filesystem: {rootdirectory: /var/lib/docker-registry}, delete: {enabled: true}}
http: {addr: ":5000"}
"""
FOLDERS = "usr/bin usr/sbin usr/lib usr/lib64 bin lib lib64 sbin etc/ld.so.conf etc/ld.so.conf.d etc/ld.so.cache"
# What dpkg knows of the packages in these folders: an image with it can get other packages. Owners of single files are
# names of accounts, which the image has none of.
FOLDERS = f"--exclude=var/lib/dpkg/statoverride {FOLDERS} var/lib/dpkg etc/dpkg"
GGUF = {"engine": {"kind": "llama-server"}}
PROFILES: dict[str, dict[str, Any]] = {
    "tiny-image": {"extends": "tiny-a", "stack": "lab-image"},
    "tiny-image-corrupt": {"extends": "tiny-corrupt", "stack": "lab-image"},
    "tiny-image-gone": {"extends": "tiny-a", "stack": "lab-image-gone"},
    "tiny-image-cards": {"extends": "tiny-a", "stack": "lab-cards", "cards": 1},
    "tiny-derived": {"extends": "tiny-a", "stack": "lab-derived"},
    "tiny-gguf-image": {"extends": "tiny-a-gguf", "stack": "lab-llama", **GGUF},
    "tiny-gguf-image-corrupt": {"extends": "tiny-corrupt-gguf", "stack": "lab-llama", **GGUF},
}


def run(host: Host, command: str) -> str:
    done = host.run(command)
    assert done.rc == 0, f"{command}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    return str(done.stdout).strip()


def write(host: Host, path: str, text: str) -> None:
    run(host, f"mkdir -p {Path(path).parent}; cat > {path} <<'END'\n{text}END")


@dataclass(frozen=True)
class Image:
    """An image in the registry: its name without its digest, and the engine in it."""

    name: str
    digest: str
    program: str
    engine: Mapping[str, str]


@dataclass(frozen=True)
class Operator:
    """Runs the shipped plays with the stacks and profiles of the site; folder: where its manifests are."""

    folder: Path
    address: str  # of the host with the registry
    more: Mapping[str, Any] = field(default_factory=dict)  # variables of the site

    def stack(self, name: str, image: Image, **more: Any) -> None:
        """Write the manifest of a stack that is this image; more: what it says of the image beside."""
        manifest = {
            "name": name,
            "installable": True,
            "reason": "",
            "engine": dict(image.engine),
            **({"device": "cpu", "cards": 0} if "device" not in more else {"device": more.pop("device")}),
            "machines": ["x86_64"],
            "disk_mib": 3000,
            "image": {"name": image.name, "digest": image.digest, "size_gb": 1, "program": image.program, **more},
            "env": {"TORCHDYNAMO_DISABLE": "1"} if image.engine == VLLM else {},
        }
        (self.folder / f"{name}.yml").write_text(yaml.safe_dump(manifest))

    def words(self, profile: str, **more: Any) -> list[str]:
        """The words of a play about this profile, with the profiles whose stacks there are."""
        made = {
            name: {**about, "status": "candidate", "engine": {**about.get("engine", {}), "cache_key": name}}
            for name, about in PROFILES.items()
            if (self.folder / f"{about['stack']}.yml").exists()
        }
        folders = [str(llama.STACKS), str(self.folder)]
        given = {"b70_profiles": made, "b70_stack_dirs": folders, "profile": profile, **self.more, **more}
        return ["-e", json.dumps(given)]

    def publish(self, builder: Host, repository: str, program: str, engine: Mapping[str, str]) -> Image:
        """Make an image of the host's system and the environment with this program, and push it."""
        name, venv = f"{self.address}:5000/{repository}", str(Path(program).parents[1]).lstrip("/")
        run(builder, f"tar -C / -c {FOLDERS} {venv} | podman import - {name}:1")
        run(builder, f"podman push --compression-format=zstd --digestfile=/tmp/digest {name}:1")
        return Image(name, run(builder, "cat /tmp/digest"), program, engine)


def with_containers(host: Host, registry: str) -> None:
    """Have Podman on a host, which trusts the registry at this address of the bridge."""
    release = run(host, ". /etc/os-release; echo $VERSION_ID")
    runtime = "runc" if release == "12" else "crun"
    run(host, f"apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends podman {runtime}")
    write(host, "/etc/containers/containers.conf", CONTAINERS_CONF[release])
    if release != "12":
        write(host, "/usr/local/bin/crun", CRUN)
        run(host, "chmod 755 /usr/local/bin/crun")
    location = f'[[registry]]\nlocation = "{registry}:5000"\ninsecure = true\n'
    write(host, "/etc/containers/registries.conf.d/lab.conf", location)


def with_registry(host: Host) -> None:
    """Have the registry on a host."""
    run(host, "apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends docker-registry")
    write(host, "/etc/docker/registry/config.yml", REGISTRY_CONF)
    run(host, "systemctl restart docker-registry")
    answers = "python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:5000/v2/')\""
    until(lambda: host.run(answers).rc == 0, "registry")


def served(frontdoor: Frontdoor, profile: str) -> bool:
    """Whether the profile is served verified, and answers."""
    status = frontdoor.status()
    found = (status["model_slot"]["name"], status["verified"], answer_of(frontdoor.ask()))
    return found == (profile, True, "I am tiny-a.")
