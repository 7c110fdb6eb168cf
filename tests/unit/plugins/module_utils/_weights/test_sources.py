# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import getpass
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._weights import job, service, sources
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import NO_TIME, WeightsError

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


def test_the_unit_has_no_rights_and_the_token_is_a_credential():
    options = {"limit_s": 60, "environment": {"https_proxy": "http://me:hidden@proxy:3128"}}
    request = job.Request("/d/m", {"kind": "url", "stall_s": 60}, {}, options, {})
    argv = job.task(request, "b70", "/t").run_argv()
    assert "hidden" not in " ".join(argv)
    assert job.task(request, "b70", "/t").environment["https_proxy"] == "http://me:hidden@proxy:3128"
    assert "--unit=b70-weights-m.service" in argv
    assert "--property=LoadCredential=token:/t" in argv
    assert "--property=CapabilityBoundingSet=" in argv
    assert "--property=ReadWritePaths=/d/.m.incoming /d/.m.fetch/out" in argv
    assert {"--property=User=b70", "--property=StandardError=append:/d/.m.fetch/log"} < set(argv)
    assert argv[-4:] == ("-m", "fetching.program", "fetch", "/d/.m.fetch/job.json")
    assert not [word for word in job.task(request, "b70", "").run_argv() if "Credential" in word]


@pytest.mark.parametrize(
    ("result", "state", "says"),
    [
        ("signal", "ended", "the download was ended: somebody ended it, or the host restarted"),
        ("oom-kill", "ended", "the download was ended: the kernel ended it for memory"),
        ("timeout", "failed", "the download took longer than model_weights_timeout. What came is kept: run again"),
    ],
)
def test_a_download_that_somebody_ended_is_told_from_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str, state: str, says: str
):
    unit = SimpleNamespace(running=False, result=result)
    monkeypatch.setattr(job, "_SYSTEMD", SimpleNamespace(state=lambda _unit: unit, forget=lambda _unit: None))
    assert job.look(str(tmp_path / "m"))["state"] == "absent"
    (tmp_path / ".m.fetch").mkdir()
    (tmp_path / ".m.fetch/job.json").write_text("{}")
    found = job.look(str(tmp_path / "m"))
    assert (found["state"], found["message"]) == (state, says)


def test_what_the_downloads_user_puts_in_the_way_of_a_result_does_no_harm(tmp_path):
    victim, result = tmp_path / "victim", tmp_path / "result.json"
    victim.write_text("kept")
    for name in ("result.json", "result.json.new"):
        (tmp_path / name).symlink_to(victim)
    assert job._read(str(result)) is None
    job._write(str(result), {"digests": {}})
    assert (victim.read_text(), job._read(str(result))) == ("kept", {"digests": {}})
    os.mkfifo(tmp_path / "progress.json")
    assert job._read(str(tmp_path / "progress.json")) is None


def test_a_source_that_wants_to_be_asked_later_is_the_callers_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    said = {"wait_s": 58, "error": "hub limits the requests", "advice": "run again later"}
    monkeypatch.setattr("subprocess.run", lambda *_words, **_more: SimpleNamespace(stdout=json.dumps(said)))
    monkeypatch.setattr(job, "_SYSTEMD", SimpleNamespace(state=lambda _unit: SimpleNamespace(running=False)))
    spec = sources.specification("m", {"url": "http://mirror/m"}, OPTIONS)
    options = {"user": getpass.getuser(), "environment": {}, "hub_python": "/python", "workers": 1, "limit_s": 1}
    request = {
        "name": "m",
        "spec": spec,
        "source": {"kind": "hub", "repository": "a/b"},
        "options": options,
        "program": {},
    }
    for step in ("begin", "resolve"):
        answer = service.answer(str(tmp_path), {"step": step, **request}, write=True)
        assert answer == {"wait_s": 58.0, "said": "hub limits the requests", "advice": "run again later"}


def test_a_listing_that_lacks_the_file_that_a_profile_loads_is_refused():
    files = {"mmproj-F16.gguf": [5, "a", None]}
    identity = {"kind": "hub", "include": ["m-Q4.gguf", "mmproj-F16.gguf"]}
    request = job.Request("/d/m", {"repository": "a/b"}, identity, {}, {})
    with pytest.raises(WeightsError, match=r"a/b is no complete model, it lacks: m-Q4\.gguf"):
        job._judge(request, files)
    job._judge(request, {**files, "m-Q4.gguf": [5, "a", None]})
