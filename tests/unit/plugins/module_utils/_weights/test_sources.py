# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import getpass
import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _proxy
from ansible_collections.arcpro.b70.plugins.module_utils._weights import host, job, service, sources
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import NO_TIME, WeightsError
from ansible_collections.arcpro.b70.plugins.module_utils._work import protocol
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError, WorkFolder
from unit.plugins.module_utils._work.units import Systemd, packed, program

COMMIT = "a" * 40
OPTIONS: dict[str, Any] = {
    "endpoint": "https://hub",
    "mirror": "",
    "keyring": "/k",
    "accept_unsigned": False,
    "exclude": ["*.bin"],
    "xet": False,
    "stall_s": 60,
    "attempts": 5,
}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x", "exactly one of: path, host_path, url, hub"),
        ({"path": "/a", "url": "http://b"}, "exactly one of"),
        (
            {"hub": "a/b", "branch": "main"},
            "has branch; with hub there may be: exclude, hub, include, manifest_sha256, profile, revision",
        ),
        ({"hub": "a"}, "must be OWNER/NAME"),
        ({"url": "ftp://a/b"}, "must begin with http:// or https://"),
        ({"host_path": "a"}, "must be absolute"),
    ],
)
def test_a_source_that_is_none_is_refused_in_words(source, says):
    with pytest.raises(WeightsError, match=says):
        sources.kind_of("m", source)


def test_a_mirror_takes_the_place_of_the_hub_but_not_its_identity():
    source = {"hub": "a/b", "revision": COMMIT}
    identity = sources.identity("m", source, OPTIONS["exclude"])
    direct = sources.specification("m", source, OPTIONS)
    mirrored = sources.specification("m", source, {**OPTIONS, "mirror": "http://mirror/models/"})
    assert (direct["kind"], direct["repository"], direct["endpoint"]) == ("hub", "a/b", "https://hub")
    assert (mirrored["kind"], mirrored["url"]) == ("url", f"http://mirror/models/m@{COMMIT}")
    assert mirrored["expect"]["revision"] == COMMIT
    proof = {"keyring": "/k", "accept_unsigned": False, "manifest_sha256": None}
    assert {key: mirrored[key] for key in proof} == proof
    pinned = sources.specification(
        "m", {**source, "manifest_sha256": "0"}, {**OPTIONS, "mirror": "http://mirror/models"}
    )
    assert pinned["manifest_sha256"] == "0"
    # Without a commit, the mirror's own link says which revision it has.
    asked = sources.specification("m", {"hub": "a/b"}, {**OPTIONS, "mirror": "http://mirror/models"})
    assert asked["url"] == "http://mirror/models/m"
    assert identity == {"kind": "hub", "repository": "a/b", "revision": COMMIT, "include": [], "exclude": ["*.bin"]}


def test_more_files_than_are_wanted_are_the_wanted_ones_and_fewer_are_not():
    wanted = {"kind": "hub", "repository": "a/b", "revision": COMMIT, "include": ["a", "b"], "exclude": []}
    for include, right in ((["a", "b"], True), (["a", "b", "c"], True), (["a"], False), ([], False)):
        assert sources.same({**wanted, "include": include}, wanted) is right
    assert not sources.same(wanted, {**wanted, "include": []})  # all files


def test_a_file_without_sha256_is_never_kept_for_having_the_same_size():
    wanted = job._wanted({"files": {"config.json": [5, None, "b" * 40]}})
    assert wanted["config.json"].mtime_ns == NO_TIME


LISTED = {"files": {"config.json": [2, None, "b" * 40]}, "revision": COMMIT}


@pytest.fixture
def download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., job.Download]:
    monkeypatch.setattr(job, "_LOCKS", tmp_path / "locks")
    monkeypatch.setattr(job, "listed", lambda *_asked: LISTED)
    monkeypatch.setattr(job.Download, "systemd", Systemd())

    def begun(play: str, **spec: Any) -> job.Download:
        user = getpass.getuser()
        options = {"limit_s": 60, "workers": 2, "user": user, "environment": {"https_proxy": "http://me:hidden@p:3128"}}
        identity = {"kind": "hub", "repository": "a/b", "revision": COMMIT, "include": [], "exclude": []}
        asked = job.FetchRequest(
            str(tmp_path / "m"), {"kind": "url", "stall_s": 60, **spec}, identity, options, "hf_token"
        )
        one = job.Download({"token": play}, asked.directory, asked)
        one.start(program(tmp_path))
        return one

    return begun


@pytest.mark.parametrize(("kind", "expected"), [("hub", "http://site:1"), ("peers", None)])
def test_only_what_is_outside_goes_through_the_proxy_of_the_site(tmp_path, monkeypatch, kind, expected):
    monkeypatch.setattr(_proxy, "variables", lambda: {"http_proxy": "http://site:1"})
    request = job.FetchRequest("/d/m", {"kind": kind, "stall_s": 60}, {}, {"environment": {}})
    assert job._environment(request, WorkFolder(tmp_path)).get("http_proxy") == expected


def test_the_unit_has_no_rights_and_the_token_is_a_credential(download: Callable[..., job.Download], tmp_path: Path):
    one = download("1")
    (task,) = one.systemd.started  # type: ignore[attr-defined]
    argv = task.run_argv()
    assert not [word for word in argv if "hidden" in word or "hf_token" in word]
    assert task.environment["https_proxy"] == "http://me:hidden@p:3128"
    assert {
        "--unit=b70-weights-m.service",
        f"--property=LoadCredential=token:{tmp_path}/locks/m",
        "--property=CapabilityBoundingSet=",
        f"--property=ReadWritePaths={tmp_path}/.m.incoming {tmp_path}/.m.fetch/out",
        f"--property=StandardError=append:{tmp_path}/.m.fetch/log",
    } < set(argv)
    assert argv[-3:] == (f"{tmp_path}/.m.fetch/program.zip", "fetch", "given.json")
    # Systemd has read it, and nothing is left beside the models.
    assert [path.name for path in (tmp_path / "locks").iterdir()] == ["..m.fetch.lock"]


def test_the_program_runs_from_the_archive_of_the_module(tmp_path: Path):
    folder = WorkFolder(tmp_path)
    packed(tmp_path / "program.zip", "_weights/__init__.py", "_weights/fetching/*.py")
    (tmp_path / "list.json").write_text(json.dumps({"kind": "nothing"}))
    request = job.FetchRequest("/d/m", {"kind": "url"}, {}, {})
    command = job._program(request, folder, "list", "list.json")
    done = subprocess.run([command[0], "-I", *command[1:]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "KeyError: 'nothing'" in done.stderr, done.stderr  # which is no source of the program


def test_a_download_is_joined_whoever_gives_the_files_and_another_one_is_left_alone(
    download: Callable[..., job.Download],
):
    download("1", endpoint="https://hub")
    assert download("2", endpoint="https://hub", peers=[{"host": "b70-02"}]).answer("look")["left"] == 1
    with pytest.raises(WorkError, match="another download is under way, with another endpoint: run this again"):
        download("3", endpoint="https://mirror")


def test_what_was_fetched_takes_its_place_once_and_the_folder_goes(
    download: Callable[..., job.Download], monkeypatch: pytest.MonkeyPatch
):
    one, put = download("1"), []
    monkeypatch.setattr(host, "commit", lambda directory, *_files: put.append(directory))
    digests = {"config.json": [hashlib.sha256(b"{}").hexdigest(), 0]}
    (one.folder.out / "result.json").write_text(json.dumps({"digests": digests, "wrong": {"b70-03": "f is wrong"}}))
    one.systemd.end()  # type: ignore[attr-defined]
    brought = {"state": "ended", "files": 1, "size": 2, "brought": 1, "wrong": {"b70-03": "f is wrong"}}
    assert [job.Download({"token": ""}, one.directory).answer("look") for _lost in range(2)] == [brought] * 2
    assert put == [one.directory]
    one.answer("acknowledge")
    assert (one.answer("look"), one.folder.path.exists()) == ({"state": "none"}, False)


@pytest.mark.parametrize(
    ("result", "broke_off", "says"),
    [
        ("signal", True, "the download broke off: its process was killed, or the host restarted"),
        ("oom-kill", True, "the download broke off: the kernel ended it for memory"),
        ("timeout", False, "the download broke off: it took longer than its limit"),
    ],
)
def test_a_download_that_somebody_ended_is_told_from_one_that_failed(
    download: Callable[..., job.Download], result: str, broke_off: bool, says: str
):
    one = download("1")
    one.systemd.end(result)  # type: ignore[attr-defined]
    assert one.answer("look") == {"state": "ended", "error": says, "broke_off": broke_off}
    assert download("2").answer("look")["state"] == "running"


def test_a_source_that_wants_to_be_asked_later_is_the_callers_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    said = {"wait_s": 58, "error": "hub limits the requests", "advice": "run again later"}
    monkeypatch.setattr("subprocess.run", lambda *_words, **_more: SimpleNamespace(stdout=json.dumps(said)))
    monkeypatch.setattr(job.Download, "systemd", Systemd())
    monkeypatch.setattr(job, "_LOCKS", tmp_path / "locks")
    for module in (job, protocol):
        monkeypatch.setattr(module, "own_archive", lambda: program(tmp_path))
    spec = sources.specification("m", {"url": "http://mirror/m"}, OPTIONS)
    options = {"user": getpass.getuser(), "environment": {}, "hub_python": "/python", "workers": 1, "limit_s": 1}
    request = {"name": "m", "spec": spec, "source": {"kind": "hub", "repository": "a/b"}, "options": options}
    for step in ("start", "resolve"):
        answer = service.answer(str(tmp_path), {"step": step, **request}, write=True)
        assert answer == {"wait_s": 58.0, "said": "hub limits the requests", "advice": "run again later"}
    assert not list(tmp_path.glob(".m.*"))


def test_a_listing_that_lacks_the_file_that_a_profile_loads_is_refused():
    files = {"mmproj-F16.gguf": [5, "a", None]}
    identity = {"kind": "hub", "include": ["m-Q4.gguf", "mmproj-F16.gguf"]}
    request = job.FetchRequest("/d/m", {"repository": "a/b"}, identity, {})
    with pytest.raises(WeightsError, match=r"a/b is no complete model, it lacks: m-Q4\.gguf"):
        job._judge(request, files)
    job._judge(request, {**files, "m-Q4.gguf": [5, "a", None]})
