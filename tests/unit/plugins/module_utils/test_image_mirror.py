# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images as files: what a mirror keeps of a registry, and what a host puts together from it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _image_mirror
from ansible_collections.arcpro.b70.plugins.module_utils._image_mirror import ImageFault

NAME = "registry.example/lab/vllm"
LAYER, CONFIG = b"a layer", b'{"architecture": "amd64"}'


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def blob(data: bytes) -> dict[str, Any]:
    return {"digest": digest(data), "size": len(data)}


IMAGE = json.dumps({"schemaVersion": 2, "config": blob(CONFIG), "layers": [blob(LAYER)]}).encode()
PLATFORMS = (("arm64", digest(b"another")), ("amd64", digest(IMAGE)))
INDEX = json.dumps(
    {"manifests": [{"digest": one, "platform": {"os": "linux", "architecture": name}} for name, one in PLATFORMS]}
).encode()
SOURCE = f"{NAME}@{digest(INDEX)}"


@pytest.fixture(autouse=True)
def amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_image_mirror, "architecture", lambda: "amd64")


class Registry:
    """skopeo before a registry that has the index and the image in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[list[str]] = []
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, argv: list[str], **_more: Any) -> subprocess.CompletedProcess[bytes]:
        self.calls.append(argv)
        if argv[1] == "inspect":
            raw = {SOURCE: INDEX, f"{NAME}@{digest(IMAGE)}": IMAGE}.get(argv[-1].removeprefix("docker://"))
            return subprocess.CompletedProcess(argv, 1 if raw is None else 0, raw or b"", b"manifest unknown")
        assert argv[1:3] == ["copy", "--preserve-digests"]
        assert argv[-2] == f"docker://{NAME}@{digest(IMAGE)}"
        folder = Path(argv[-1].removeprefix("dir:"))
        folder.mkdir()
        for name, data in (("manifest.json", IMAGE), (digest(LAYER)[7:], LAYER), (digest(CONFIG)[7:], CONFIG)):
            (folder / name).write_bytes(data)
        return subprocess.CompletedProcess(argv, 0, b"", b"")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry(monkeypatch)


@pytest.fixture
def mirror(tmp_path: Path, registry: Registry) -> Iterator[tuple[str, Path]]:
    """A mirror with the image, and its address."""
    folder = tmp_path / "images"
    folder.mkdir()
    assert _image_mirror.bring(folder, SOURCE, None, 9, write=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


def test_an_index_and_the_image_in_it_are_brought_once(tmp_path: Path, registry: Registry) -> None:
    assert _image_mirror.bring(tmp_path, SOURCE, None, 9, write=False)
    assert not registry.calls, "check mode asks nobody"
    assert _image_mirror.bring(tmp_path, SOURCE, "/auth.json", 9, write=True)
    assert [call[1] for call in registry.calls] == ["inspect", "copy"]
    assert all("--authfile=/auth.json" in call for call in registry.calls)
    assert (tmp_path / digest(INDEX)[7:] / "manifest.json").read_bytes() == INDEX
    assert not _image_mirror.bring(tmp_path, SOURCE, None, 9, write=True)
    assert not _image_mirror.bring(tmp_path, f"{NAME}@{digest(IMAGE)}", None, 9, write=True), "either digest"
    assert len(registry.calls) == 2


def test_an_image_that_the_registry_has_not_leaves_nothing(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(ImageFault, match="could not be copied from its registry: manifest unknown"):
        _image_mirror.bring(tmp_path, f"{NAME}@sha256:{'0' * 64}", None, 9, write=True)
    assert not list(tmp_path.iterdir())
    assert len(registry.calls) == 1


def test_a_host_takes_what_it_lacks_and_nothing_else(mirror: tuple[str, Path], tmp_path: Path) -> None:
    address, _folder = mirror
    layout = tmp_path / "layout"
    whole = f"{address}/{digest(IMAGE)[7:]}"
    paths = {f"{whole}/{digest(data)[7:]}": layout / digest(data)[7:] for data in (LAYER, CONFIG)}
    assert _image_mirror.lacking(layout, address, SOURCE) == paths
    assert (layout / "manifest.json").read_bytes() == INDEX
    assert (layout / f"{digest(IMAGE)[7:]}.manifest.json").read_bytes() == IMAGE
    (layout / digest(LAYER)[7:]).write_bytes(LAYER[:3])
    (layout / digest(CONFIG)[7:]).write_bytes(CONFIG)
    assert list(_image_mirror.lacking(layout, address, SOURCE)) == [f"{whole}/{digest(LAYER)[7:]}"], "half is none"
    argv = _image_mirror.download_argv(tmp_path, {f"{whole}/{digest(LAYER)[7:]}": layout / "x"})
    assert Path(argv[-1]).read_text() == f'url = "{whole}/{digest(LAYER)[7:]}"\noutput = "{layout}/x"\n'


def test_a_mirror_without_the_image_and_one_with_another_are_told(mirror: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = mirror
    with pytest.raises(ImageFault, match=r"404 .*playbooks/mirror\.yml with mirror_stacks"):
        _image_mirror.lacking(tmp_path / "layout", address, f"{NAME}@sha256:{'0' * 64}")
    (folder / digest(IMAGE)[7:] / "manifest.json").write_bytes(IMAGE.replace(b"2", b"3", 1))
    with pytest.raises(ImageFault, match="is not that: remove it"):
        _image_mirror.lacking(tmp_path / "layout", address, SOURCE)
    with pytest.raises(ImageFault, match="cannot be had"):
        _image_mirror.lacking(tmp_path / "layout", "http://127.0.0.1:1", SOURCE)


def test_an_image_for_other_machines_or_without_a_digest_is_refused() -> None:
    with pytest.raises(ImageFault, match="no image for linux/riscv64"):
        _image_mirror.child(INDEX, digest(INDEX), "riscv64")
    with pytest.raises(ImageFault, match="has no digest"):
        _image_mirror.bring(Path(), f"{NAME}:1", None, 9, write=False)
