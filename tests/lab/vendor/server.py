# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors' web server: files over HTTP on the lab's bridge, where its hosts and nobody else can reach it.

By hand: `python3 -m vendor.server DIRECTORY [--lab NAME]` in tests/lab makes the repositories and serves them until it
is interrupted; it writes the variables for ansible-playbook, to be given as `-e @FILE`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from labkit.layout import State, open_lab
from vendor import gitrepos, goods, packages, repository

ROLE = Path(__file__).resolve().parents[3] / "roles/gpu_driver"
# Where the sources of the driver are below the server's root, and the suite of Intel's own.
FOLDERS = {"omix": "gpu/ubuntu", "ppa": "kobuk-team/intel-graphics/ubuntu"}
OMIX = "noble/intel-omix/0.4.0"
PYTORCH = "https://download.pytorch.org/whl/xpu"


@dataclass(frozen=True)
class Vendors:
    """What is served at `url` out of `root`; `ring` signs; the fingerprints of the keys that sign each repository.

    `debs` are the packages of releases on GitHub, by release, as the role gpu_driver takes them.
    stacks: the manifests, with the address of PyTorch's index here in the place of the real one.
    """

    url: str
    root: Path
    ring: repository.Keys
    gpu_driver: str
    former: str
    oneapi: str
    stranger: str
    debs: dict[str, list[dict[str, str]]]

    def driver(self, system: str, source: str = "omix", release: str = "26.27") -> dict[str, Any]:
        """The variables of gpu_driver that lead to one of its sources here; `system` is ID and VERSION_ID."""
        said: dict[str, Any] = {"gpu_driver_force": True, "gpu_driver_source": source}
        if source == "github":
            return {
                **said,
                "gpu_driver_repository_url": "",
                "gpu_driver_repository_suites": {system: []},
                "gpu_driver_debs": self.debs[release],
            }
        return {
            **said,
            "gpu_driver_repository_suites": {system: [OMIX if source == "omix" else "noble"]},
            "gpu_driver_repository_url": f"{self.url}/{FOLDERS[source]}",
            "gpu_driver_repository_key_url": f"{self.url}/gpu.asc",
            "gpu_driver_repository_key_fingerprints": [self.gpu_driver, self.former],
        }

    stacks: Path

    def variables(self, system: str) -> dict[str, Any]:
        """The roles' variables that lead to this server, with the driver from its usual source."""
        return {
            **self.driver(system),
            "oneapi_force": True,
            "oneapi_repository_url": f"{self.url}/oneapi",
            "oneapi_repository_key_url": f"{self.url}/oneapi.asc",
            "oneapi_repository_key_fingerprint": self.oneapi,
        }

    def sources(self) -> dict[str, Any]:
        """The variables for a stack from source, for hosts or for a mirror that is filled from here."""
        return {
            "b70_stack_dirs": [str(self.stacks)],
            "stack_find_links": [f"{self.url}/wheels/"],
            "stack_git_mirrors": {f"{gitrepos.GITHUB}/": f"{self.url}/git/"},
            "mirror_stacks": ["lab-2.11-fixture", "small-fixture"],
            "mirror_find_links": [f"{self.url}/wheels/"],
            "mirror_git_mirrors": {f"{gitrepos.GITHUB}/": f"{self.url}/git/"},
        }


def github_releases(root: Path, url: str) -> dict[str, list[dict[str, str]]]:
    """Make the packages that the role takes from GitHub, at the paths that they have there; `url` is the server's."""
    data = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    found: dict[str, list[dict[str, str]]] = {}
    for release in data["__gpu_driver_releases"]:
        shipped = data["__gpu_driver_loader"] + data[f"__gpu_driver_{release.replace('.', '_')}"]
        found[release] = []
        for deb in shipped:
            at = root / urlsplit(deb["url"]).path.lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            if not at.exists():
                repository.build(packages.github(deb["name"], deb["version"]), at.parent).rename(at)
            found[release].append({**deb, "url": f"{url}/{at.relative_to(root)}", "sha256": goods.digest(at)})
    return found


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serve(directory: Path, address: str) -> Iterator[str]:
    """Serve `directory` on a free port of `address`; yields the URL without a slash at its end."""
    handler = functools.partial(_Quiet, directory=str(directory))
    server = ThreadingHTTPServer((address, 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextlib.contextmanager
def vendors(directory: Path, address: str, made: goods.Goods | None = None) -> Iterator[Vendors]:
    """Make both repositories in the empty `directory` and serve them on `address`, with what sources are made of."""
    root = directory / "www"
    with repository.keys(directory / "gnupg") as ring, serve(root, address) as url:
        stranger, gpu, former, oneapi = (
            ring.make(name) for name in ("stranger", "gpu driver", "former gpu driver", "oneapi")
        )
        repository.make(root / FOLDERS["omix"], OMIX, packages.omix(), ring, gpu, "unified")
        repository.make(root / FOLDERS["ppa"], "noble", packages.ppa(), ring, gpu)
        debs = github_releases(root, url)
        repository.make(root / "oneapi", "all", packages.oneapi(), ring, oneapi)
        # Intel publishes former keys and the present one in one file.
        (root / "gpu.asc").write_text(ring.public(former, gpu), encoding="ascii")
        (root / "oneapi.asc").write_text(ring.public(stranger, oneapi), encoding="ascii")
        (root / "stranger.asc").write_text(ring.public(stranger), encoding="ascii")
        if made is not None:
            for name in ("wheels", "index", "git"):
                (root / name).symlink_to(made.www / name)
            shutil.copytree(made.stacks, directory / "stacks")
            for manifest in (directory / "stacks").glob("*.yml"):
                manifest.write_text(
                    manifest.read_text(encoding="utf-8").replace(PYTORCH, f"{url}/index"), encoding="utf-8"
                )
        yield Vendors(url, root, ring, gpu, former, oneapi, stranger, debs, directory / "stacks")


def gateway(lab: str | None = None) -> str:
    """The address of this machine on the lab's bridge. Raises SystemExit when that lab is not up."""
    state = State.load(open_lab(lab))
    if state is None:
        raise SystemExit("that lab is not up: make lab-up")
    return state.gateway


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="must not exist")
    parser.add_argument("--lab")
    parser.add_argument("--system", default="debian 12", help="what the hosts are, as ID and VERSION_ID")
    parser.add_argument("--sources", action="store_true", help="also what the stack lab-2.11-fixture is made of")
    given = parser.parse_args(arguments)
    given.directory.mkdir(parents=True)
    stock = goods.make() if given.sources else None
    with vendors(given.directory, gateway(given.lab), stock) as made:
        file = given.directory / "variables.json"
        variables = {**made.variables(given.system), **(made.sources() if stock else {})}
        file.write_text(json.dumps(variables, indent=2) + "\n", encoding="utf-8")
        print(f"serving at {made.url}; use it with: -e @{file}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
