# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._weights import job, sources
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import WeightsError
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights import progress

COMMIT = "a" * 40
OPTIONS: dict[str, Any] = {
    "endpoint": "https://hub",
    "mirror": "",
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
            "has branch; with hub there may be: exclude, hub, include, profile, revision",
        ),
        ({"hub": "a"}, "must be OWNER/NAME"),
        ({"url": "ftp://a/b"}, "must begin with http:// or https://"),
        ({"host_path": "a"}, "must be absolute"),
    ],
)
def test_a_source_that_is_none_is_refused_in_words(source, says):
    with pytest.raises(WeightsError, match=says):
        sources.kind_of("m", source)


def test_a_branch_is_no_revision():
    assert sources.is_commit(COMMIT)
    for revision in ("main", "", None, COMMIT[:12], COMMIT.upper()):
        assert not sources.is_commit(revision)
    for source in ({"hub": "a/b", "revision": COMMIT}, {"hub": "a/b"}, {"hub": "a/b", "revision": ""}, {"path": "/a"}):
        sources.refuse_branch("m", source)
    with pytest.raises(WeightsError, match=r"model m comes from .* a/b, but its revision 'main' is no full commit"):
        sources.refuse_branch("m", {"hub": "a/b", "revision": "main"})


def test_a_mirror_takes_the_place_of_the_hub_but_not_its_identity():
    source = {"hub": "a/b", "revision": COMMIT}
    identity = sources.identity("m", source, OPTIONS["exclude"])
    direct = sources.specification("m", source, OPTIONS)
    mirrored = sources.specification("m", source, {**OPTIONS, "mirror": "http://mirror/models/"})
    assert (direct["kind"], direct["repository"], direct["endpoint"]) == ("hub", "a/b", "https://hub")
    assert (mirrored["kind"], mirrored["url"]) == ("url", "http://mirror/models/m")
    assert mirrored["expect"]["revision"] == COMMIT
    assert identity == {"kind": "hub", "repository": "a/b", "revision": COMMIT, "include": [], "exclude": ["*.bin"]}


def test_the_catalogue_names_sources_and_the_operator_wins():
    profiles = {
        "one": {"model": {"hf_repo": "a/one", "directory": "one", "revision": COMMIT, "size_gb": 7}},
        "two": {"model": {"hf_repo": "a/two", "directory": "two"}},
        "absolute": {"model": {"hf_repo": "a/three", "directory": "/srv/three"}},
        "local": {"model": {"directory": "four"}},
    }
    found = sources.from_catalogue(profiles, [*profiles, "unknown"], {"a/one": "b" * 40})
    assert found == {
        "one": {"hub": "a/one", "profile": "one", "revision": "b" * 40, "size_gb": 7},
        "two": {"hub": "a/two", "profile": "two"},
    }


def test_progress_is_one_line_with_what_is_left():
    begun = {"files": 12, "files_done": 2, "total": 16_100_000_000, "at_start": 0, "start": 0.0, "waiting": ""}
    now = {**begun, "done": 4_200_000_000, "time": 50.0}
    later = {**begun, "done": 5_200_000_000, "time": 60.0}
    assert progress.say(now, None) == "file 3 of 12, 4.20 of 16.10 GB, 84.0 MB/s, 2 min 22 s left"
    assert progress.say(later, now) == "file 3 of 12, 5.20 of 16.10 GB, 100.0 MB/s, 1 min 49 s left"
    assert progress.say({**later, "time": 70.0}, later).endswith("0.0 MB/s, nothing comes")
    assert progress.say({**later, "waiting": "hub sends nothing, attempt 2 of 5"}, now).endswith("attempt 2 of 5")
    done = {**later, "done": 16_100_000_000, "files_done": 12}
    assert progress.say(done, now).endswith("reading back what came")
    assert progress.duration(3725) == "1 h 02 min"


def test_a_file_without_sha256_is_never_kept_for_having_the_same_size():
    wanted = job._wanted({"files": {"config.json": [5, None, "b" * 40]}})
    assert wanted["config.json"].mtime_ns == job.NO_TIME


def test_the_unit_has_no_rights_and_the_token_is_a_credential():
    options = {"limit_s": 60, "environment": {"A": "1"}}
    request = job.Request("/d/m", {"kind": "url", "stall_s": 60}, {}, options, {})
    argv = job.task(request, "b70", "/t").run_argv()
    assert "--unit=b70-weights-m.service" in argv
    assert "--property=LoadCredential=token:/t" in argv
    assert "--property=CapabilityBoundingSet=" in argv
    assert "--property=ReadWritePaths=/d/.m.incoming /d/.m.fetch/out" in argv
    assert {"--property=User=b70", "--property=StandardError=append:/d/.m.fetch/log", "--setenv=A=1"} < set(argv)
    assert argv[-4:] == ("-m", "fetching.program", "fetch", "/d/.m.fetch/job.json")
    assert not [word for word in job.task(request, "b70", "").run_argv() if "Credential" in word]
