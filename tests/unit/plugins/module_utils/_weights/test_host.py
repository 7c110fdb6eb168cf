# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._files import sha256
from ansible_collections.arcpro.b70.plugins.module_utils._weights import host, manifest, service
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import (
    MANIFEST,
    ManifestEntry,
    SourceFile,
    WeightsError,
)
from unit.plugins.module_utils._weights.files import safetensors

SOURCE = {"kind": "path"}
UID = os.geteuid()
WEIGHTS = safetensors(b"w" * 48)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "extra").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "x").write_text("not part of a model")
    for name, text in {
        "config.json": "{}",
        "tokenizer.json": "[]",
        "extra/a.txt": "a",
    }.items():
        (root / name).write_text(text)
    (root / "model.safetensors").write_bytes(WEIGHTS)
    return root


def wanted_of(source: Path) -> dict[str, SourceFile]:
    files = host.read_source(str(source))
    return {name: SourceFile(want.size, want.mtime_ns, sha256(str(source / name))) for name, want in files.items()}


def bring(source: Path, target: Path) -> list[str]:
    wanted = wanted_of(source)
    folder, left = host.prepare(str(target), wanted, UID)
    for name in left:
        shutil.copy(source / name, Path(folder) / name)
    host.commit(str(target), wanted, SOURCE)
    return left


def state(source: Path | None, target: Path, full: bool = False, write: bool = True) -> str:
    wanted = None if source is None else wanted_of(source)
    return host.inspect(str(target), wanted, SOURCE, full, write).state


def test_a_model_is_brought_whole_and_then_right(source, tmp_path):
    target = tmp_path / "models" / "m"
    assert state(source, target) == "missing"
    assert bring(source, target) == ["config.json", "extra/a.txt", "model.safetensors", "tokenizer.json"]
    assert state(source, target) == state(None, target) == state(source, target, full=True) == "complete"
    assert [path.name for path in target.parent.iterdir()] == ["m"]
    assert not (target / ".git").exists()


def test_a_damaged_file_is_found_and_only_that_one_is_brought_again(source, tmp_path):
    target = tmp_path / "m"
    bring(source, target)
    kept = (target / "model.safetensors").stat().st_ino
    (target / "tokenizer.json").write_text("{}")
    assert state(source, target) == state(None, target) == "differs"
    assert bring(source, target) == ["tokenizer.json"]
    assert (target / "model.safetensors").stat().st_ino == kept
    assert state(source, target) == "complete"


def test_a_file_that_rotted_with_its_recorded_size_and_time_is_brought_again_when_all_is_read(
    source, tmp_path, monkeypatch
):
    target = tmp_path / "m"
    bring(source, target)
    monkeypatch.setattr(manifest, "ALWAYS_HASH_BELOW", 0)
    path = target / "model.safetensors"
    status, content = path.stat(), path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert host.prepare(str(target), wanted_of(source), UID)[1] == []
    shutil.rmtree(tmp_path / ".m.incoming")
    assert host.prepare(str(target), wanted_of(source), UID, full=True)[1] == ["model.safetensors"]


def test_a_reader_keeps_the_old_files(source, tmp_path):
    target = tmp_path / "m"
    bring(source, target)
    with open(target / "model.safetensors", "rb") as reader:
        (source / "model.safetensors").write_bytes(safetensors(b"x" * 48))
        bring(source, target)
        assert reader.read() == WEIGHTS


def test_an_interrupted_copy_is_not_a_model_and_is_taken_up(source, tmp_path):
    target = tmp_path / "m"
    wanted = wanted_of(source)
    folder, left = host.prepare(str(target), wanted, UID)
    shutil.copy(source / left[0], Path(folder) / left[0])
    (Path(folder) / "model.safetensors").write_text("w" * 20)
    assert state(source, target, write=False) == "missing"
    assert bring(source, target) == [name for name in left if name != left[0]]


def test_what_arrives_wrong_never_becomes_the_model(source, tmp_path):
    target = tmp_path / "m"
    wanted = wanted_of(source)
    folder, left = host.prepare(str(target), wanted, UID)
    for name in left:
        (Path(folder) / name).write_bytes(b"?" * wanted[name].size)
    with pytest.raises(WeightsError, match="not what was sent"):
        host.commit(str(target), wanted, SOURCE)
    assert not target.exists()
    assert bring(source, target) == left


def test_a_run_cut_off_between_its_renames_is_completed(source, tmp_path):
    target = tmp_path / "m"
    bring(source, target)
    os.rename(target, tmp_path / ".m.old")
    assert state(source, target) == "missing"
    bring(source, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "source"]


def test_files_put_there_by_hand_are_adopted_without_a_copy(source, tmp_path):
    target = tmp_path / "m"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".git"))
    assert not (target / MANIFEST).exists()
    found = host.inspect(str(target), wanted_of(source), SOURCE, False, write=False)
    assert (found.state, found.adopted, (target / MANIFEST).exists()) == ("complete", True, False)
    assert state(source, target) == "complete"
    assert (target / MANIFEST).exists()


def test_a_foreign_model_is_judged_by_its_parts(source, tmp_path):
    target = tmp_path / "m"
    shutil.copytree(source, target)
    assert host.inspect(str(target), None, SOURCE, False, True).reason == "no digests are known for it"
    (target / "tokenizer.json").unlink()
    assert state(None, target) == "incomplete"


def test_an_incomplete_source_is_refused(source):
    (source / "model.safetensors").rename(source / "model-00001-of-00002.safetensors")
    (source / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00002-of-00002.safetensors"}}')
    with pytest.raises(WeightsError, match=r"lacks: model-00002-of-00002\.safetensors"):
        host.read_source(str(source))


def test_a_full_disk_is_said_before_anything_is_copied(source, tmp_path):
    wanted = {**wanted_of(source), "huge.safetensors": SourceFile(10**18, 1, "aa")}
    with pytest.raises(WeightsError, match=r"free and m needs 1000000000.0 GB more"):
        host.prepare(str(tmp_path / "m"), wanted, UID)


@pytest.mark.skipif(UID != 0, reason="only root can give files away")
def test_a_login_that_is_not_root_may_write_only_until_the_model_is_in_place(source, tmp_path):
    wanted = wanted_of(source)
    folder, left = host.prepare(str(tmp_path / "m"), wanted, 65534)
    assert {Path(root).stat().st_uid for root, _folders, _files in os.walk(folder)} == {65534}
    for name in left:
        shutil.copy(source / name, Path(folder) / name)
        os.chown(Path(folder) / name, 65534, 65534)
    host.commit(str(tmp_path / "m"), wanted, SOURCE)
    assert {path.stat().st_uid for path in (tmp_path / "m").rglob("*")} == {0}


@pytest.mark.parametrize("begins", [True, False], ids=["prepare", "commit"])
def test_a_link_of_the_downloads_user_leads_root_to_no_other_file(source, tmp_path, begins):
    target, outside = tmp_path / "m", tmp_path / "outside"
    outside.mkdir()
    secret = outside / "shadow"
    secret.write_text("root:x")
    secret.chmod(0o600)
    wanted = wanted_of(source)
    staging = Path(host.prepare(str(target), wanted, UID)[0])
    for name in wanted:
        shutil.copy2(source / name, staging / name)
    os.mkfifo(staging / "pipe")
    for link, leads in ((".config.json.part", secret), ("more.json", secret), ("folder", outside)):
        (staging / link).symlink_to(leads)
    before = secret.stat()
    if begins:
        host.prepare(str(target), wanted, 65534)
        assert sorted(host.scan(str(staging))) == sorted(wanted)
    else:
        host.commit(str(target), wanted, SOURCE)
        assert sorted(host.scan(str(target))) == sorted(wanted)
    assert not [path for folder in (staging, target) for path in folder.rglob("*") if path.is_symlink()]
    assert secret.stat() == before
    assert [path.name for path in outside.iterdir()] == ["shadow"]


def test_links_are_followed(source, tmp_path):
    (source / "model.safetensors").rename(tmp_path / "blob")
    (source / "model.safetensors").symlink_to(tmp_path / "blob")
    bring(source, tmp_path / "m")
    assert not (tmp_path / "m" / "model.safetensors").is_symlink()


def test_a_request_cannot_lead_out_of_the_directory(tmp_path):
    request = {"step": "prepare", "models": {"../x": {}}, "uploader": UID, "full": False}
    with pytest.raises(WeightsError, match="cannot name a model directory"):
        service.answer(str(tmp_path), request, write=True)
    request = {"step": "commit", "name": "m", "wanted": {"../x": [1, 1, "a"]}, "source": SOURCE}
    with pytest.raises(WeightsError, match="not a file name"):
        service.answer(str(tmp_path), request, write=True)


def test_the_module_alone_says_what_it_is():
    with pytest.raises(WeightsError, match="action plugin"):
        service.answer("/nowhere", None, write=False)


def test_a_fetched_model_is_judged_by_its_own_record(source, tmp_path):
    target = tmp_path / "m"
    hub = {"kind": "hub", "repository": "a/b", "revision": "1" * 40, "include": [], "exclude": []}
    assert host.inspect_fetched(str(target), hub, True, False, True).state == "missing"
    wanted = wanted_of(source)
    folder, left = host.prepare(str(target), wanted, UID)
    for name in left:
        shutil.copy(source / name, Path(folder) / name)
    host.commit(str(target), wanted, hub)
    assert host.inspect_fetched(str(target), hub, True, True, True).state == "complete"
    assert host.inspect_fetched(str(target), {**hub, "revision": None}, True, False, True).state == "complete"
    other = host.inspect_fetched(str(target), {**hub, "revision": "2" * 40}, False, False, True)
    assert other.state == "differs"
    assert "is recorded as coming from a/b at 111111111111, not from a/b at 222222222222" in other.reason
    (target / "tokenizer.json").write_text("{}")
    assert host.inspect_fetched(str(target), hub, False, False, True).state == "differs"


def test_files_of_unknown_origin_are_left_alone_only_where_that_is_allowed(source, tmp_path):
    target = tmp_path / "m"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".git"))
    hub = {"kind": "hub", "repository": "a/b", "revision": "1" * 40, "include": [], "exclude": []}
    left = host.inspect_fetched(str(target), hub, False, False, True)
    assert (left.state, left.reason) == ("complete", "its files were not compared with a/b at 111111111111")
    assert host.inspect_fetched(str(target), hub, True, False, True).state == "differs"
    (target / "tokenizer.json").unlink()
    assert host.inspect_fetched(str(target), hub, False, False, True).state == "incomplete"


def test_files_that_were_read_back_are_not_read_again_unless_they_changed_since(source, tmp_path):
    target = tmp_path / "m"
    wanted = wanted_of(source)
    folder, left = host.prepare(str(target), wanted, UID)
    for name in left:
        shutil.copy(source / name, Path(folder) / name)
    stat = (Path(folder) / "model.safetensors").stat()
    verified = {"model.safetensors": ManifestEntry(len(WEIGHTS), "0" * 64, stat.st_mtime_ns - 1, 0)}
    host.commit(str(target), wanted, SOURCE, verified)
    assert state(None, target, full=True) == "complete"
