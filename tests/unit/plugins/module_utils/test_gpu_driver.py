# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils import _apt, _gpu_driver

SYSTEM = {"kernel": "6.17.0-23-generic", "next_kernel": "6.17.0-23-generic", "kernel_arguments": ["quiet"]}
ROLE = Path(__file__).parents[4] / "roles/gpu_driver"
OURS = "/etc/apt/sources.list.d/b70-gpu-driver.sources"
# What hosts have that took the driver from one of the sources; names and versions as dpkg shows them.
GITHUB = {
    "intel-igc-core-2": "2.38.2",
    "intel-igc-opencl-2": "2.38.2",
    "intel-ocloc": "26.27.39122.11-0",
    "intel-opencl-icd": "26.27.39122.11-0",
    "libigdgmm12": "22.10.0",
    "libze-dev": "1.32.0+u24.04",
    "libze-intel-gpu1": "26.27.39122.11-0",
    "libze1": "1.32.0+u24.04",
}
PPA = {
    "intel-ocloc": "26.31.39395.14-1~24.04~ppa1",
    "intel-opencl-icd": "26.31.39395.14-1~24.04~ppa1",
    "libigc2": "2.40.13+ds1-1~24.04",
    "libigdfcl2": "2.40.13+ds1-1~24.04",
    "libigdgmm12": "22.10.1-1~24.04~ppa1",
    "libze-dev": "1.32.0-1~24.04~ppa1",
    "libze-intel-gpu1": "26.31.39395.14-1~24.04~ppa1",
    "libze1": "1.32.0-1~24.04~ppa1",
    "xpu-smi": "2.0.1-1~24.04~ppa1",
}
OMIX = {
    "intel-gpu-compute": "0.4.0-9~24.04",
    "intel-ocloc": "26.31.39395.13-1146~24.04",
    "libigc2": "2.40.13-1146~24.04",
    "libze1": "1.32.0-1146~24.04",
}
HOSTS = {"github": GITHUB, "ppa": PPA, "omix": OMIX}


def card(driver: str = "xe", guc: str = "70.65.0", address: str = "0000:03:00.0") -> dict[str, str]:
    return {"address": address, "driver": driver, "guc": guc}


def test_cards_that_are_driven_with_good_firmware_are_no_matter():
    assert _gpu_driver.judge_cards([card(), card(address="0000:83:00.0")], SYSTEM, []) == ([], [])


@pytest.mark.parametrize(
    ("driver", "system", "words"),
    [
        (
            "",
            {"kernel": "6.8.0-87-generic"},
            "under the kernel 6.8.0-87-generic: a kernel of the series 6.17",
        ),
        (
            "",
            {"kernel": "6.8.0-87-generic", "next_kernel": "6.17.0-23-generic"},
            "the next boot uses 6.17.0-23-generic",
        ),
        ("", {**SYSTEM, "kernel_arguments": ["nomodeset"]}, "its argument nomodeset prevents that"),
        ("vfio-pci", SYSTEM, "0000:03:00.0 is bound to vfio-pci, not to xe"),
    ],
)
def test_a_card_without_its_driver_is_a_problem_with_a_remedy(driver, system, words):
    ((problem,), notes) = _gpu_driver.judge_cards([card(driver, guc="")], system, [])
    assert words in problem
    assert notes == []


@pytest.mark.parametrize("version", ["70.58.0", "70.58", "70.49.4", "70.36.0"])
def test_bad_firmware_is_refused_with_its_reason_unless_it_is_accepted(version):
    ((problem,), _notes) = _gpu_driver.judge_cards([card(guc=version)], SYSTEM, [])
    assert f"0000:03:00.0 runs the GuC firmware {version}: " in problem
    assert "of linux-firmware with 70.65 or 70.72.1 below /lib/firmware/updates" in problem
    assert f"gpu_driver_guc_accepted: ['{version}']" in problem
    (nothing, (note,)) = _gpu_driver.judge_cards([card(guc=version)], SYSTEM, [version])
    assert (nothing, problem.startswith(note)) == ([], True)


def test_accepting_one_version_accepts_no_other():
    assert _gpu_driver.judge_cards([card(guc="70.58.0")], SYSTEM, ["70.5"])[0]
    assert not _gpu_driver.judge_cards([card(guc="70.58.1")], SYSTEM, ["70.58"])[0]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("70.44.1", "older than what the kernel recommends"),
        ("70.72.1", "a hang at the start"),
        ("70.99.0", "nothing is known of it"),
        ("", "neither debugfs nor the kernel's log says"),
    ],
)
def test_firmware_that_is_usable_or_unknown_is_only_said(version, words):
    (problems, (note,)) = _gpu_driver.judge_cards([card(guc=version)], SYSTEM, [])
    assert problems == []
    assert words in note


def test_a_kernel_under_which_cards_were_lost_is_said():
    (problems, (note,)) = _gpu_driver.judge_cards([card()], {"kernel": "7.0.0-31-generic"}, [])
    assert problems == []
    assert note.startswith("The kernel is 7.0.0-31-generic: permanent resets")


def test_the_packages_from_github_are_named_as_their_files_are():
    data = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    debs = [deb for key in ("loader", "26_27", "26_35") for deb in data[f"__gpu_driver_{key}"]]
    assert len({deb["sha256"] for deb in debs}) == len(debs) == 13
    for deb in debs:
        assert re.fullmatch("[0-9a-f]{64}", deb["sha256"])
        assert deb["url"].rpartition("/")[2].startswith(f"{deb['name']}_{deb['version'].rstrip('*')}")
        assert deb["url"].endswith("_amd64.deb")


@pytest.mark.parametrize("source", _gpu_driver.SOURCES)
def test_what_a_source_has_itself_is_not_of_others(source):
    assert _gpu_driver.others(HOSTS[source], source) == {}


@pytest.mark.parametrize(
    ("has", "source", "names"),
    [
        ("ppa", "github", ["libigc2", "libigdfcl2", "libze1"]),
        ("ppa", "omix", ["libigc2", "libze-intel-gpu1", "libze1", "xpu-smi"]),
        ("github", "ppa", ["intel-igc-core-2", "intel-opencl-icd", "libze1"]),
        ("github", "omix", ["intel-igc-core-2", "intel-igc-opencl-2", "libze-dev"]),
        ("omix", "github", ["intel-gpu-compute", "intel-ocloc", "libigc2", "libze1"]),
        ("omix", "ppa", ["intel-gpu-compute", "libigc2", "libze1"]),
    ],
)
def test_what_another_source_left_is_found_by_name_or_version(has, source, names):
    found = _gpu_driver.others(HOSTS[has], source)
    assert [name for name in names if name not in found] == []


def test_mixed_packages_are_named_with_the_remedy_and_are_none_when_they_are_to_be_removed():
    installed = {**GITHUB, "libigc2": "2.36.3-1~24.04", "level-zero": "1.26.0", "bash": "5.2.21-2ubuntu4"}
    (problem,) = _gpu_driver.problems(installed, [], "github", OURS, remove=False)
    assert "of another source than github: level-zero 1.26.0, libigc2 2.36.3-1~24.04." in problem
    assert "apt-get remove level-zero libigc2" in problem
    assert _gpu_driver.problems(installed, [], "github", OURS, remove=True) == []


def test_another_sources_repository_in_a_file_of_the_administrator_is_named():
    url = "https://ppa.launchpadcontent.net/kobuk-team/intel-graphics/ubuntu"
    entries = _apt.entries(
        {
            "/etc/apt/sources.list.d/kobuk.list": f"deb {url} noble main\n",
            OURS: "Types: deb\nURIs: https://repositories.intel.com/gpu/ubuntu\nSuites: noble/intel-omix/0.4.0\n",
            "/etc/apt/sources.list.d/ubuntu.sources": "Types: deb\nURIs: http://archive.example.org\nSuites: noble\n",
        }
    )
    (problem,) = _gpu_driver.problems({}, entries, "omix", OURS, remove=True)
    assert problem.startswith(f"/etc/apt/sources.list.d/kobuk.list names {url}, the source ppa;")
    assert _gpu_driver.problems({}, entries, "ppa", OURS, remove=False) == []
