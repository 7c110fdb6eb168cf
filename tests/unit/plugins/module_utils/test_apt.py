# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.arcpro.b70.plugins.module_utils import _apt

PPA = _apt.Source("https://ppa.example.org/ubuntu", ("noble",), ("main",), ("amd64",))
OURS = "/etc/apt/sources.list.d/b70-gpu-driver.sources"


def greater(left: str, right: str) -> bool:
    """Good enough for the numbers of these tests."""
    return [int(part) for part in left.split("-")[0].split(".")] > [
        int(part) for part in right.split("-")[0].split(".")
    ]


def test_a_source_names_the_only_keyring_that_may_sign_it():
    assert PPA.text("Drivers", "/etc/apt/keyrings/k.gpg") == (
        "# Drivers. Written by the collection arcpro.b70; what you change here is changed back.\n"
        "Types: deb\nURIs: https://ppa.example.org/ubuntu\nSuites: noble\nComponents: main\nArchitectures: amd64\n"
        "Signed-By: /etc/apt/keyrings/k.gpg\n"
    )


def test_what_we_write_is_read_back_as_ours():
    (entry,) = _apt.entries({OURS: PPA.text("Drivers", "/k.gpg")})
    assert (entry.url, entry.suites, entry.signed_by) == (PPA.url, PPA.suites, "/k.gpg")
    assert _apt.others([entry], PPA, OURS) == []


def test_the_same_repository_in_somebody_elses_file_is_found_in_both_formats():
    files = {
        "/etc/apt/sources.list.d/add-apt.sources": "Types: deb deb-src\nURIs: https://ppa.example.org/ubuntu/\n"
        "Suites: noble noble-updates\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDM\n",
        "/etc/apt/sources.list.d/old.list": "deb [signed-by=/k.gpg arch=amd64] https://ppa.example.org/ubuntu noble\n",
    }
    found = _apt.others(_apt.entries(files), PPA, OURS)
    assert [entry.file.rpartition("/")[2] for entry in found] == ["add-apt.sources", "old.list"]
    assert found[0].signed_by == "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDM"
    assert found[1].signed_by == "/k.gpg"


def test_another_suite_a_disabled_entry_and_sources_of_source_code_do_not_count():
    files = {
        "/a.list": "deb https://ppa.example.org/ubuntu jammy main\n# deb https://ppa.example.org/ubuntu noble main\n",
        "/b.sources": "Enabled: no\nTypes: deb\nURIs: https://ppa.example.org/ubuntu\nSuites: noble\n",
        "/c.sources": "Types: deb-src\nURIs: https://ppa.example.org/ubuntu\nSuites: noble\n",
        "/d.list": "deb-src https://ppa.example.org/ubuntu noble main\n",
    }
    assert _apt.others(_apt.entries(files), PPA, OURS) == []


def test_pinned_packages_are_held_against_newer_ones_and_unpinned_ones_are_not_named():
    text = _apt.preferences({"xpu-smi": "1.3.6-*", "clinfo": "*", "libze1": "1.28.2-*"}, "Drivers")
    stanzas = text.split("\n\n")
    assert len(stanzas) == 2
    assert stanzas[0].splitlines()[1:] == ["Package: libze1", "Pin: version 1.28.2-*", "Pin-Priority: 1002"]
    assert "clinfo" not in text
    assert _apt.preferences({"clinfo": "*"}, "Drivers") == ""


def test_packages_of_any_version_are_held_to_their_repository():
    text = _apt.preferences({"intel-gpu-compute": "*", "clinfo": "*"}, "Drivers", "https://repo.example.org:8443/gpu")
    assert text.splitlines()[1:] == [
        "Package: clinfo intel-gpu-compute",
        'Pin: origin "repo.example.org"',
        "Pin-Priority: 1001",
    ]


def test_a_pattern_of_names_is_pinned_below_the_names_that_it_fits():
    text = _apt.preferences({"intel-oneapi-*": "2025.3*", "intel-oneapi-dpcpp-cpp-2025.3": "2025.3.2-*"}, "Compiler")
    pins = [tuple(line.split(": ")[1] for line in stanza.splitlines()[1:]) for stanza in text.split("\n\n")]
    assert pins == [
        ("intel-oneapi-dpcpp-cpp-2025.3", "version 2025.3.2-*", "1002"),
        ("intel-oneapi-*", "version 2025.3*", "1001"),
    ]
    assert "name a version" in _apt.problems({"intel-*": "*"}, [], "")[0]


def test_pending_is_what_is_missing_or_at_another_version():
    installed = _apt.installed_versions(
        "installed xpu-smi 1.3.6-1~24.04~ppa1\ninstalled libze1 1.20.0-1\nconfig-files clinfo 3.0\nnot-installed x \n"
        "installed intel-ocloc 26.20.1-0\n"
    )
    wanted = {"xpu-smi": "1.3.6-*", "libze1": "1.28.2-*", "clinfo": "*", "intel-ocloc": "26.18.38308.1-*"}
    found = {item.name: item for item in _apt.pending(wanted, installed, greater)}
    assert sorted(found) == ["clinfo", "intel-ocloc", "libze1"]
    assert (found["clinfo"].specification, found["clinfo"].installed) == ("clinfo", "")
    assert (found["libze1"].specification, found["libze1"].newer) == ("libze1=1.28.2-*", False)
    assert found["intel-ocloc"].newer


def test_a_wildcard_in_the_middle_is_compared_by_what_stands_before_it():
    (item,) = _apt.pending({"libze1": "1.32.0-*~ppa*"}, {"libze1": "1.31.0-1"}, greater)
    assert not item.newer
    assert _apt.pending({"libze1": "1.32.0-*~ppa*"}, {"libze1": "1.32.0-1~24.04~ppa1"}, greater) == []


def test_a_version_matches_as_a_whole_not_by_its_beginning():
    installed = {"igc": "2.34.40"}
    assert [item.name for item in _apt.pending({"igc": "2.34.4"}, installed, greater)] == ["igc"]


def test_wishes_that_apt_would_misread_are_refused():
    found = _apt.problems({"Bad_Name": "1", "ok": "1 2"}, [], "ftp://x")
    assert len(found) == 4
    assert _apt.problems({"libze-intel-gpu1": "26.18.38308.1-*"}, ["noble"], PPA.url) == []
