# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where `make demo` finds torch: as this machine's pip is told, else at the index that the manifest names."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from labkit.first import attempts
from labkit.sources import PackageClients
from tools import engines
from tools.torch_source import ROOT, look, missing
from vendor import goods

NAME = "b70-no-such-package"
REQUIREMENT = f"{NAME}==9.9.9+cpu"
NOBODY = "http://127.0.0.1:9/whl/cpu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one wheel that no index has."""
    place = tmp_path / "folder"
    place.mkdir()
    stem = f"{NAME.replace('-', '_')}-9.9.9+cpu"
    with zipfile.ZipFile(place / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 9.9.9+cpu\n")
        wheel.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return place


@pytest.fixture
def indexes(folder: Path, tmp_path: Path) -> Iterator[str]:
    """Two indexes on one server: /other without the wheel, as the usual ones are, and /whl/cpu with it."""
    www = tmp_path / "www"
    (www / "other").mkdir(parents=True)
    (www / "whl/cpu" / NAME).mkdir(parents=True)
    [wheel] = folder.iterdir()
    (www / "whl/cpu" / NAME / wheel.name).write_bytes(wheel.read_bytes())
    quoted = wheel.name.replace("+", "%2B")
    (www / "whl/cpu" / NAME / "index.html").write_text(
        f'<!DOCTYPE html><html><a href="{quoted}">{wheel.name}</a></html>'
    )
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(www))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with contextlib.closing(server.socket):
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_wheel_in_a_folder_that_pip_is_told_of_is_found(folder: Path) -> None:
    assert missing(REQUIREMENT, f'no-index = true\nfind-links = ["{folder}"]\n') == ""


def test_what_nobody_offers_is_reported_with_the_clients_own_reason(tmp_path: Path) -> None:
    assert NAME in missing(REQUIREMENT, f'no-index = true\nfind-links = ["{tmp_path}"]\n')


def test_this_machines_sources_come_first_and_the_manifests_index_only_after_them(folder: Path, indexes: str) -> None:
    step = {"requirement": REQUIREMENT, "index": f"{indexes}/whl/cpu"}
    without = PackageClients(index_url=f"{indexes}/other")
    told = PackageClients(index_url=f"{indexes}/other", find_links=[str(folder)])
    assert look({**step, "index": NOBODY}, told) == (f"{indexes}/other, {folder}", {})
    where, reasons = look(step, without)
    assert where == step["index"]
    assert list(reasons) == [f"{indexes}/other"]


def test_a_step_is_asked_for_with_the_hashes_of_the_host_and_never_shows_a_password() -> None:
    machine = PackageClients(index_url="https://me:secret@index/simple", trusted_hosts=["mine"])
    step = {"requirement": "torch==1+cpu", "index": "https://vendor/whl", "hashes": {"cp311-x86_64": ["sha256:1"]}}
    first, second = attempts(step, machine, "cp311-x86_64")
    assert (first.where, first.line) == ("https://index/simple", "torch==1+cpu --hash=sha256:1")
    assert (second.where, second.clients.index_url, second.clients.extra_index_urls) == (
        "https://vendor/whl",
        "https://vendor/whl",
        [],
    )
    one = attempts(
        {"requirement": "triton==1", "url": "https://v/t.whl", "hashes": {"any": ["sha256:2"]}}, machine, "x"
    )
    assert [attempt.line for attempt in one] == [
        "triton==1 --hash=sha256:2",
        "triton @ https://v/t.whl --hash=sha256:2",
    ]
    assert [attempt.line for attempt in attempts({"requirement": "a==1"}, machine)] == ["a==1"]


@pytest.mark.parametrize("reachable", [True, False])
def test_a_machine_without_any_configuration_finds_it_or_hears_which_address_it_could_not_reach(
    reachable: bool, indexes: str, tmp_path: Path
) -> None:
    index = f"{indexes}/whl/cpu" if reachable else NOBODY
    manifest = tmp_path / "cpu.yml"
    manifest.write_text(yaml.safe_dump({"first": [{"requirement": REQUIREMENT, "index": index}]}))
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/tools/torch_source.py"), "--manifest", str(manifest)],
        env={**plain, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{indexes}/other", "UV_HTTP_RETRIES": "0"},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    if reachable:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{REQUIREMENT}: from {index}\n"
    else:
        assert done.returncode == 2
        assert f"the lab's engine needs {REQUIREMENT}, and it can't be had" in done.stderr
        for address in (f"  {indexes}/other\n", f"  {NOBODY}\n", f"{NOBODY}/{NAME}"):
            assert address in done.stderr
        assert "pip config --global set global.extra-index-url URL" in done.stderr


def test_what_the_tests_install_themselves_comes_from_the_same_places(
    indexes: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_INDEX", "UV_EXTRA"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{indexes}/other")
    digest = f"sha256:{goods.digest(next(folder.iterdir()))}"
    step = {"requirement": REQUIREMENT, "index": f"{indexes}/whl/cpu", "hashes": {"any": [digest]}}
    assert goods.digest(goods._download(step, tmp_path / "downloads")) == digest.removeprefix("sha256:")
    engines._install_first(step, "--python", sys.executable, "--target", str(tmp_path / "target"))
    assert (tmp_path / "target").is_dir()
    nobody = {**step, "index": NOBODY, "requirement": REQUIREMENT.replace("9.9.9", "9.9.8")}
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(RuntimeError) as error:
        engines._install_first(nobody, "--python", sys.executable, "--target", str(tmp_path / "none"))
    assert f"{indexes}/other: " in str(error.value)
    assert f"{NOBODY}: " in str(error.value)
