# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removing what the collection made: what goes, what stays, and why."""

from __future__ import annotations

import grp
import json
import os
import pwd
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _removal
from ansible_collections.arcpro.b70.plugins.module_utils._removal import Account, Mount, OwnedDirectory

B70 = Account("b70", "b70", "/nonexistent", "Language models")


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def told(found: _removal.Leftovers, root: Path) -> tuple[list[str], dict[str, str], list[str]]:
    return (
        [str(path.relative_to(root)) for path in found.gone],
        {str(path.relative_to(root)): why for path, why in found.stays.items()},
        [str(path.relative_to(root)) for path in found.others],
    )


def test_only_what_is_named_goes_and_a_directory_once_it_is_empty(tmp_path):
    make(tmp_path, "etc/ours/profiles/a.json", "etc/ours/slot.json", "opt/bin/b70ctl", "opt/bin/mine", "opt/lib/x/y")
    places = [
        OwnedDirectory(f"{tmp_path}/etc/ours", ["profiles", "slot.json", "keys"]),
        OwnedDirectory(f"{tmp_path}/opt/bin", ["b70ctl*"]),
        OwnedDirectory(f"{tmp_path}/opt/lib", ["x"]),
        OwnedDirectory(f"{tmp_path}/opt"),
        OwnedDirectory(f"{tmp_path}/nowhere", ["*"]),
    ]
    found = _removal.find(places, [])
    gone = ["etc/ours/profiles", "etc/ours/slot.json", "etc/ours", "opt/bin/b70ctl", "opt/lib/x", "opt/lib"]
    assert told(found, tmp_path) == (gone, {}, ["opt/bin/mine"])
    assert (tmp_path / "etc/ours/slot.json").exists()
    _removal.remove(found.gone)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bin", "etc", "mine", "opt"]
    assert _removal.find(places, []).gone == []


def test_what_took_hours_stays_until_it_is_asked_for(tmp_path):
    make(tmp_path, "state/records/1.json", "state/journal/main.jsonl", "models/a/.b70-weights.json", "models/mine/x")

    def places(why: str) -> list[OwnedDirectory]:
        return [
            OwnedDirectory(f"{tmp_path}/state", ["records"], stays=why),
            OwnedDirectory(f"{tmp_path}/state", ["journal"]),
            OwnedDirectory(f"{tmp_path}/models", ["*"], has=[".b70-weights.json"], stays=why),
        ]

    kept = {"state/records": "evidence", "models/a": "evidence"}
    assert told(_removal.find(places("evidence"), []), tmp_path) == (["state/journal"], kept, ["models/mine"])
    gone = ["state/records", "state/journal", "state", "models/a"]
    assert told(_removal.find(places(""), []), tmp_path) == (gone, {}, ["models/mine"])


def test_a_link_goes_only_if_it_leads_to_ours_and_what_it_leads_to_stays(tmp_path):
    make(tmp_path, "opt/b70ctl", "other/b70ctl")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/b70ctl").symlink_to(tmp_path / "opt/b70ctl")
    (tmp_path / "bin/b70ctl-mine").symlink_to(tmp_path / "other/b70ctl")
    place = OwnedDirectory(f"{tmp_path}/bin", ["b70ctl*"], links_into=f"{tmp_path}/opt", shared=True)
    found = _removal.find([place], [])
    assert told(found, tmp_path) == (["bin/b70ctl"], {}, [])
    _removal.remove(found.gone)
    assert (tmp_path / "opt/b70ctl").exists()


def test_a_directory_that_an_operator_has_linked_elsewhere_is_emptied_and_its_link_stays(tmp_path):
    make(tmp_path, "disk/stack/a")
    (tmp_path / "stacks").symlink_to(tmp_path / "disk")
    found = _removal.find([OwnedDirectory(f"{tmp_path}/stacks", ["stack"])], [])
    assert told(found, tmp_path) == (["stacks/stack"], {}, [])


def test_other_file_systems_are_not_entered(tmp_path):
    make(tmp_path, "cache/uv/a", "data/src/x/a", "data/models/b")
    mounted = [
        Mount(Path("/"), "ext4"),
        Mount(tmp_path / "cache", "ext4"),
        Mount(tmp_path / "data/src/x", "xfs"),
        Mount(tmp_path / "data/models", "nfs4"),
    ]
    places = [
        OwnedDirectory(f"{tmp_path}/cache", ["uv"], unmounted=True),
        OwnedDirectory(f"{tmp_path}/data", ["src"]),
        OwnedDirectory(f"{tmp_path}/data/models", ["b"]),
    ]
    gone, stays, _others = told(_removal.find(places, mounted), tmp_path)
    assert gone == []
    assert set(stays) == {"cache/uv", "data/src", "data/models/b"}
    assert "network" in stays["data/models/b"]
    # A disk of its own for the data is the usual case: it is emptied, and stays mounted.
    usual = _removal.find([OwnedDirectory(f"{tmp_path}/cache", ["uv"])], mounted)
    assert told(usual, tmp_path) == (["cache/uv"], {}, [])


def test_mounts_are_read_as_the_kernel_writes_them():
    text = "36 35 98:0 /r /mnt/a\\040b rw,noatime shared:1 - ext3 /dev/root rw\n40 35 0:20 / /run rw - tmpfs tmpfs rw\n"
    assert _removal.mounts(text) == [Mount(Path("/mnt/a b"), "ext3"), Mount(Path("/run"), "tmpfs")]


def test_each_slot_of_the_host_has_its_places_and_a_copy_by_hand_is_none(tmp_path):
    make(tmp_path, "units/b70-controller-main.service", "units/b70-controller-beta.service")
    make(tmp_path, "etc/slot-beta/profiles/a", "etc/slot-backup/profiles/a", "run/main/x", "run/beta/x", "run/mine")
    slots = _removal.slots(tmp_path / "units")
    assert slots == ["beta", "main"]
    listed = [
        OwnedDirectory(f"{tmp_path}/etc/slot-{{slot}}", ["profiles"]),
        OwnedDirectory(f"{tmp_path}/run", ["{slot}", "cards"]),
    ]
    found = _removal.find([place for one in listed for place in one.of(slots)], [])
    assert told(found, tmp_path) == (
        ["etc/slot-beta/profiles", "etc/slot-beta", "run/beta", "run/main"],
        {},
        ["run/mine"],
    )


LISTING = """\
b70-build-vllm-0123.service                loaded active   running Build of vllm
b70-controller-main.service                loaded active   running Keep slot main serving
b70-openai-frontdoor.service               loaded active   running Frontdoor
b70-slot-admin.socket                      loaded active   listening Loading models
b70-slot-admin@1-22-0.service              loaded active   running Load a model in main
b70-slot-main-tiny@0.service               loaded failed   failed  tiny
b70-slot-main-tiny@1.service               loaded active   running tiny
b70-backup.service                         loaded active   running Somebody's backup
b70-build-swap.service                     loaded active   exited  Swap
b70-switch-main-1.service                  loaded inactive dead    Switch
"""


def test_units_stop_in_an_order_in_which_nothing_starts_them_again():
    units = _removal.units(LISTING)
    stops = ["b70-controller-main.service", "b70-slot-main-tiny@1.service", "b70-build-swap.service"]
    assert _removal.to_stop(units) == stops
    assert _removal.failed(units) == ["b70-slot-main-tiny@0.service"]


def test_work_that_somebody_began_is_told_from_what_lasts():
    named = [(unit.name, unit.description) for unit in _removal.works(_removal.units(LISTING))]
    assert named == [
        ("b70-build-vllm-0123.service", "Build of vllm"),
        ("b70-slot-admin@1-22-0.service", "Load a model in main"),
    ]


def user(name: str, uid: int = 990, home: str = "/nonexistent", comment: str = B70.comment) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, comment, home, "/usr/sbin/nologin"))


def group(name: str, gid: int = 990, *members: str) -> grp.struct_group:
    return grp.struct_group((name, "x", gid, list(members)))


@pytest.mark.parametrize(
    ("users", "groups", "owners", "expected"),
    [
        ([user("b70")], [group("b70")], [], (["b70"], ["b70"])),
        ([user("b70", home="/srv/b70")], [group("b70")], [], ([], [])),
        ([user("b70", comment="")], [group("b70")], [], ([], [])),
        ([user("b70", uid=1001)], [group("b70")], [], ([], [])),
        ([user("b70")], [group("b70")], [990], ([], [])),
        ([user("b70")], [group("b70", 990, "operator")], [], (["b70"], [])),
        ([user("b70"), user("other")], [group("b70")], [], (["b70"], [])),
        ([], [group("b70")], [], ([], ["b70"])),
        ([], [], [], ([], [])),
    ],
)
def test_an_account_goes_only_if_it_is_as_we_make_it_and_nothing_needs_it(users, groups, owners, expected):
    named = {one.pw_name: one for one in users}, {one.gr_name: one for one in groups}
    gone, gone_groups, stays = _removal.accounts([B70], *named, frozenset(owners))
    assert (gone, gone_groups) == expected
    assert bool(stays) == (bool(users) and not gone)


def test_owners_are_found_at_any_depth(tmp_path):
    make(tmp_path, "a/b/c")
    (tmp_path / "link").symlink_to("/proc/1")
    assert _removal.owners_of([tmp_path]) == {os.getuid()}


def test_a_repository_stays_while_its_packages_are_installed(tmp_path):
    make(tmp_path, "sources.list.d/b70-x.sources", "keyrings/b70-x.gpg", "preferences.d/b70-x", "preferences.d/mine")
    found = _removal.find(_removal.apt_places("b70-x", tmp_path, ["clinfo", "libze1"]), [])
    assert found.gone == []
    assert "`apt-get purge clinfo libze1`" in found.stays[tmp_path / "keyrings/b70-x.gpg"]
    found = _removal.find(_removal.apt_places("b70-x", tmp_path, []), [])
    gone = ["sources.list.d/b70-x.sources", "keyrings/b70-x.gpg", "preferences.d/b70-x"]
    assert told(found, tmp_path) == (gone, {}, [])


def test_pinned_packages_are_read_from_what_we_write():
    text = 'Explanation: x\nPackage: intel-*\nPin: version 1\n\nPackage: clinfo libze-dev\nPin: origin "a"\n'
    assert _removal.pinned(text) == ["intel-*", "clinfo", "libze-dev"]


def test_images_are_named_with_the_command_that_removes_them(tmp_path):
    make(tmp_path, "cpu-1/fingerprint.json")
    (tmp_path / "image-2").mkdir()
    (tmp_path / "image-2/fingerprint.json").write_text(json.dumps({"image": {"reference": "localhost/b70:1"}}))
    assert _removal.images(tmp_path) == ["image localhost/b70:1: `podman image rm localhost/b70:1` removes it"]


def test_the_summary_says_what_goes_and_why_the_rest_stays():
    found = _removal.Leftovers([Path("/a")], {Path("/b"): "weights"}, [Path("/c")])
    assert _removal.summary(found, ["user b70: files"], check_mode=True) == [
        "would remove /a",
        "stays: /b: weights",
        "stays: user b70: files",
        "stays: /c: it is not of this collection",
    ]
