# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a support bundle holds, how it is bounded, and what it says of what it does not hold."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._build.service import BuildPaths
from ansible_collections.arcpro.b70.plugins.module_utils._doctor import bundle, examine
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.checks import machine
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.host import DoctorHost
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Answers, Command, Look, Output, Read
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.redact import Redactor
from unit.plugins.module_utils._doctor.hosts import SETTINGS, SHIPPED, FakeEffects, captured, out, profile, site

NOBODY = Redactor.of([], [])


def test_everything_that_reports_ask_for_is_collected():
    where = site()
    sources = " | ".join(item.source for item in bundle.items(where))
    for wanted in (
        "xpu-smi discovery", "clinfo -l", "dpkg-query -W intel-* libze* xpu-smi", "torch, asked", "fingerprint.json",
        "profiles/big.json", "profiles/big.env", "journal/*.jsonl", "quarantine.json", "evidence/*", "state.json",
        "bench-results", "*.spv", "ocloc", "--dmesg --boot=-1", "xpu-smi config -d 1", "xpu-smi stats -d 0",
        "systemctl cat --no-pager b70-slot-main-big.service",
    ):  # fmt: skip
        assert wanted in sources, wanted
    assert bundle.items(site(cards=0, wanted=[], stacks=[], installed=False))


def test_every_command_has_a_limit_and_no_shell():
    for item in [*bundle.items(site()), *bundle.checkouts({"/src/vllm/.git/HEAD": "r"})]:
        if isinstance(item.probe, Command):
            assert 0 < item.probe.limit_s <= 60, item
            assert item.probe.argv[0] not in ("sh", "bash"), item


def test_the_checkouts_of_stacks_are_found_where_builds_make_them(tmp_path: Path):
    """With the recipes of the shipped stack, in the folders that the build itself names."""
    place = BuildPaths(tmp_path / "src", tmp_path, tmp_path, "uv", "b70", "b70")
    made = [place.tree(recipe) for recipe in machine.recipes(SHIPPED["lab-minimax"])]
    for tree in (*made, place.work_dir / "my-vllm"):
        (tree / ".git").mkdir(parents=True)
        (tree / ".git/HEAD").write_text("ref")
    where = site(settings={"build_dir": str(place.work_dir)})
    heads = DoctorHost(where).read(bundle.heads_of(where))
    names = [item.name for item in bundle.checkouts(heads)]
    assert len(names) == 2 * (len(made) + 1)
    for tree in made:
        assert f"sources/{tree.parent.name}.patch" in names
    assert "sources/my-vllm.txt" in names


def test_sources_are_read_without_running_what_they_name():
    (log, patch) = (item.probe for item in bundle.checkouts({"/mnt/fast-ai/src/vllm-0123/src/.git/HEAD": "r"}))
    assert isinstance(log, Command)
    assert isinstance(patch, Command)
    assert {"--no-ext-diff", "--no-textconv", "core.fsmonitor=false"} <= set(patch.argv)


def kept(item: bundle.Item, answer: Any, most: int = 1000, redactor: Redactor = NOBODY):
    return bundle.contents([item], Answers({item.probe: answer}), redactor, most)


def test_what_could_not_be_had_is_named_with_the_reason():
    tool = bundle.command("cards/x.txt", "xpu-smi", "discovery")
    held, rows = kept(tool, Output(problem="xpu-smi is not installed"))
    assert (held, rows[0].problem) == ({}, "xpu-smi is not installed")
    assert kept(tool, Output(0, "  \n"))[1][0].problem == "it is empty"
    assert kept(tool, out("", code=3))[1][0].problem == "it ended with 3"
    failed, rows = kept(tool, Output(1, "", "Error: no device"))
    assert (failed["cards/x.txt"], rows[0].problem) == (b"Error: no device", "")
    assert kept(bundle.files("slot/", "/x/*"), {})[1][0].problem == "there is no such file"
    door = bundle.Item("frontdoor/status.json", "GET", Look("http", "u"))
    assert kept(door, {"status": 0, "body": "", "error": "refused"})[1][0].problem == "refused"
    assert kept(door, Output(problem="was not looked at in time"))[1][0].problem == "was not looked at in time"


def test_of_what_is_long_the_end_is_kept():
    held, rows = kept(bundle.command("a", "x"), out("old " * 500 + "ü" * 40), most=51)
    assert held["a"].decode() == "ü" * 25
    assert (rows[0].truncated, rows[0].bytes) == (True, 50)


def test_only_the_last_files_of_a_folder_are_kept():
    texts = {f"/e/{number:03}": "x" for number in range(60)}
    held, _rows = kept(bundle.files("slot/", "/e/*"), texts)
    assert len(held) == bundle.MOST_FILES
    assert "slot/e_059" in held


def test_names_sources_and_contents_are_redacted():
    redactor, home = Redactor.of(["topsecret"], ["jane"]), "/home/" + "jane"
    held, rows = kept(bundle.files("slot/", f"{home}/*"), {f"{home}/topsecret": "topsecret\n"}, redactor=redactor)
    text = json.dumps([list(held), [vars(row) for row in rows]]) + "".join(data.decode() for data in held.values())
    assert "jane" not in text
    assert "topsecret" not in text


def test_what_is_known_to_be_secret_is_gathered_from_configuration_tokens_and_profiles():
    where = site(
        wanted=[profile(engine={"argv": ["vllm", "--api-key", "argv-secret"], "env": {"HF_TOKEN": "env-secret"}})]
    )
    named, whole = bundle.secret_places(where)
    assert any(pattern.endswith("profiles/*.env") for pattern in named.patterns)
    assert f"{SETTINGS['cache_dirs'][0]}/token" in whole.patterns
    answers = Answers(
        {named: {"/etc/environment": "HF_TOKEN=file-secret\nLANG=C.UTF-8\n"}, whole: {"/t": "token-file\n"}}
    )
    assert bundle.secrets_in(where, answers) == {"argv-secret", "env-secret", "file-secret", "token-file"}


def test_the_archive_is_a_folder_with_its_table_of_contents():
    rows = [bundle.BundleRow("logs/a.txt", "x", 3)]
    data = bundle.archive({"logs/a.txt": b"abc"}, rows, {"doctor.txt": b"fine"}, "host1")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = archive.getnames()
        manifest = archive.extractfile("host1/manifest.json")
        assert manifest is not None
        listed = json.load(manifest)
    assert names == ["host1/doctor.txt", "host1/logs/a.txt", "host1/manifest.json"]
    assert listed["items"][0] == {"name": "logs/a.txt", "source": "x", "bytes": 3, "truncated": False, "problem": ""}
    assert data == bundle.archive({"logs/a.txt": b"abc"}, rows, {"doctor.txt": b"fine"}, "host1")


def test_a_whole_host_without_its_tools_still_makes_a_bundle():
    where = site()
    effects = FakeEffects({"journalctl": out(captured("kernel-fault.txt")), "/etc/os-release": "ID=ubuntu\n"})
    listed = bundle.items(where)
    answers = examine.collect(effects, [item.probe for item in listed], 5)
    held, rows = bundle.contents(listed, answers, NOBODY, 4096)
    assert {"logs/kernel.txt", "system/etc_os-release"} <= set(held)
    assert len(rows) >= len(listed)
    assert all(row.problem or row.bytes for row in rows)
    assert sum(len(data) for data in held.values()) <= 4096 * len(held)


def test_findings_are_redacted_as_data():
    redactor = Redactor.of(["topsecret"], [])
    assert bundle.clean_data(redactor, [{"a": ("x topsecret", 3)}, None]) == [{"a": ["x <secret>", 3]}, None]
    assert isinstance(bundle.secret_places(site())[0], Read)
