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


def card(driver: str = "xe", guc: str = "70.65.0", address: str = "0000:03:00.0") -> dict[str, object]:
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


BAD = {**SYSTEM, "kernel": "7.0.0-31-generic"}


@pytest.mark.parametrize("version", ["70.58.0", "70.58", "70.58.1"])
def test_a_bad_pair_is_refused_with_its_reason_unless_its_firmware_is_accepted(version):
    ((problem,), (kernel,)) = _gpu_driver.judge_cards([card(guc=version)], BAD, [])
    assert f"0000:03:00.0 runs the GuC firmware {version} under the kernel 7.0.0-31-generic: under sustained" in problem
    assert "of linux-firmware with 70.54 or 70.65 below /lib/firmware/updates" in problem
    assert "boot a kernel of the series 7.1" in problem
    assert f"gpu_driver_guc_accepted: ['{version}']" in problem
    assert kernel.startswith("The kernel is 7.0.0-31-generic: permanent resets")
    (nothing, (_kernel, note)) = _gpu_driver.judge_cards([card(guc=version)], BAD, [version])
    assert (nothing, problem.startswith(note)) == ([], True)


def test_accepting_one_version_accepts_no_other():
    assert _gpu_driver.judge_cards([card(guc="70.58.0")], BAD, ["70.5"])[0]
    assert not _gpu_driver.judge_cards([card(guc="70.58.1")], BAD, ["70.58"])[0]


@pytest.mark.parametrize(
    ("kernel", "guc", "wanted", "cards", "verdict", "words"),
    [
        # The pairs of public records.
        ("7.1.0", "70.58.0", "", 2, "good", "six weeks"),
        ("7.1.0", "70.58.0", "70.58.0", 2, "good", "six weeks"),
        ("7.0.0-27-generic", "70.58.0", "70.54.0", 1, "bad", "does not come back"),
        ("7.0.0-27-generic", "70.58.0", "", 1, "bad", "does not come back"),
        ("7.0.0-27-generic", "70.54.0", "70.54.0", 2, "usable", "what this kernel asks for"),
        ("7.2.7", "70.72.1", "", 2, "good", "7.2.7"),
        ("7.0.0-27-generic", "70.72.1", "70.54.0", 2, "bad", "two cards hangs"),
        ("7.0.14", "70.65.0", "", 1, "contradictory", "B60"),
        ("6.17.0-1010-intel", "70.65.0", "", 4, "good", "validated"),
        ("6.17.0-23-generic", "70.44.1", "", 2, "usable", "64 streams"),
        # What was bad for a kernel is bad for every kernel that asks for the same firmware.
        ("7.1.0", "70.58.0", "70.54.0", 2, "bad", "does not come back"),
        ("6.18.4", "70.58.0", "70.54.0", 2, "bad", "does not come back"),
        # Nobody has reported these.
        (
            "6.17.0-23-generic",
            "70.58.0",
            "",
            1,
            "unknown",
            "nobody has reported this pair; the firmware is bad under 7.0",
        ),
        (
            "7.0.0-27-generic",
            "70.72.1",
            "70.54.0",
            1,
            "unknown",
            "it is newer than 70.54.0, which this kernel asks for",
        ),
        ("7.0.0-27-generic", "70.49.4", "", 1, "unknown", "it is older than 70.54, which supported kernels ask for"),
        (
            "7.0.0-27-generic",
            "70.45.2",
            "70.54.0",
            1,
            "unknown",
            "it is older than 70.54.0, which this kernel asks for",
        ),
        ("7.1.0", "70.54.0", "70.58.0", 1, "unknown", "it is older than 70.58.0"),
        ("7.2.7", "70.76.0", "70.72.1", 1, "unknown", "it is newer than 70.72.1"),
        ("7.10.1", "70.58.0", "", 1, "unknown", "nobody"),
        ("7.2.7", "", "", 1, "unknown", "neither debugfs nor the kernel's log"),
    ],
)
def test_firmware_and_kernel_are_judged_as_a_pair(kernel, guc, wanted, cards, verdict, words):
    pair = _gpu_driver.judge_pair(kernel, guc, wanted, cards)
    assert (pair.verdict, words in pair.reason) == (verdict, True), pair


def test_every_pair_has_a_verdict_of_its_own_and_a_bad_one_names_its_source():
    assert {pair.verdict for pair in _gpu_driver.PAIRS} == {"good", "usable", "bad", "contradictory"}
    assert [pair for pair in _gpu_driver.PAIRS if pair.verdict == "bad" and not pair.source] == []
    assert len({(pair.kernel, pair.guc) for pair in _gpu_driver.PAIRS}) == len(_gpu_driver.PAIRS)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("70.44.1", "usable: it is older than what the kernel recommends"),
        ("70.72.1", "unknown: nobody has reported this pair"),
        ("70.99.0", "unknown: nobody has reported this pair"),
        ("70.49.4", "unknown: it is older than 70.54"),
        ("", "the GuC firmware is unknown: neither debugfs nor the kernel's log says"),
    ],
)
def test_firmware_that_is_usable_or_unknown_is_only_said(version, words):
    (problems, (note,)) = _gpu_driver.judge_cards([card(guc=version)], SYSTEM, [])
    assert problems == []
    assert words in note


@pytest.mark.parametrize("kernel", ["6.17.0-1010-intel", "6.18.3", "7.1.0", "7.2.7-generic"])
def test_known_series_of_the_kernel_need_no_word(kernel):
    assert _gpu_driver.judge_kernel(kernel).verdict in ("good", "usable")


def test_a_kernel_that_nobody_knows_is_said():
    note = _gpu_driver.judge_cards([card()], {"kernel": "7.3.0"}, [])[1][0]
    assert note == "The kernel is 7.3.0: nothing is known of its series on these cards."


OFFER = {"version": "70.65", "url": "https://firmware.example.com/bmg_guc_70.bin"}


def a_host(*cards: dict[str, object], **more: object) -> dict[str, object]:
    return {"system": BAD, "cards": list(cards), "other_cards": [], "restart_reasons": [], **more}


def test_the_offered_file_replaces_what_is_refused_and_nothing_else():
    def wanted(*cards, offer=OFFER, accepted=(), **system):
        return _gpu_driver.firmware_to_install(a_host(*cards, system={**BAD, **system}), offer, accepted)

    bad = card(guc="70.58.0")
    assert wanted(bad) == wanted(card(guc="70.54.0"), bad) == "70.65"
    assert wanted(bad, accepted=["70.58"]) == wanted(bad, offer={}) == wanted(bad, guc_file="70.65.0") == ""
    assert wanted(card(guc="70.54.0")) == wanted(card(guc="70.99.0")) == wanted(card(guc="")) == ""
    assert wanted(bad, kernel="7.1.0") == ""
    # A file that is bad here itself is no offer.
    assert wanted(bad, card(guc="70.58.0"), offer={"version": "70.72.1"}) == ""


def test_a_file_that_waits_for_a_restart_is_the_remedy():
    ((problem,), _notes) = _gpu_driver.judge_cards([card(guc="70.58.0")], {**BAD, "guc_file": "70.65.0"}, [])
    assert problem.endswith(
        "/lib/firmware/updates/xe/bmg_guc_70.bin has 70.65.0: restart the host, or set host_reboot to true."
    )


def outlook(host, reboot=False, accepted=()):
    suites = ["ubuntu 24.04", "ubuntu 26.04"]
    settings = {"suites": suites, "offer": OFFER, "accepted": accepted, "reboot": reboot}
    return "\n".join(_gpu_driver.outlook(host, settings))


def system(version: str, kernel: str, **more: object) -> dict[str, object]:
    name = f"Ubuntu {version} LTS"
    return {"id": "ubuntu", "version": version, "name": name, "kernel": kernel, "next_kernel": kernel, **more}


def several(count: int, guc: str, wanted: str = "", first: int = 0) -> list[dict[str, object]]:
    buses = (0x03, 0x43, 0x83, 0xC3)
    return [
        {
            "number": number,
            "model": "Arc Pro B70",
            "address": f"0000:{buses[number]:02x}:00.0",
            "driver": "xe" if guc else "",
            "guc": guc,
            "guc_wanted": wanted,
        }
        for number in range(first, count)
    ]


def test_a_fresh_24_04_with_one_card_hears_of_the_kernel_and_the_restart():
    reason = "a kernel is installed with linux-generic-6.17"
    host = a_host(*several(1, ""), system=system("24.04", "6.8.0-87-generic"), restart_reasons=[reason])
    said = outlook(host)
    assert said.startswith("Ubuntu 24.04 LTS, kernel 6.8.0-87-generic, with card 0, Arc Pro B70 at 0000:03:00.0.")
    assert "has no driver under the kernel 6.8.0-87-generic" in said
    assert f"The host needs a restart, set host_reboot to true, or restart it yourself: {reason}." in said
    assert f"The host needs a restart, site.yml restarts it: {reason}." in outlook(host, reboot=True)


def test_a_26_04_with_two_cards_hears_of_its_bad_pair_and_the_offered_file():
    host = a_host(*several(2, "70.58.0", "70.54.0"), system=system("26.04", "7.0.0-27-generic"))
    said = outlook(host, reboot=True)
    assert (
        said.count("runs the GuC firmware 70.58.0 (wanted 70.54.0) under the kernel 7.0.0-27-generic: under sust") == 2
    )
    assert "site.yml puts the GuC firmware 70.65 at /lib/firmware/updates/xe/bmg_guc_70.bin" in said
    assert "The host needs a restart, site.yml restarts it: the GuC firmware 70.65 is new." in said
    after = outlook(a_host(*several(2, "70.65.0", "70.54.0"), system=system("26.04", "7.0.0-27-generic")))
    assert "contradictory: Intel's own releases" in after
    assert "send in what report.yml collects" in after
    assert "restart" not in after


def test_a_24_04_with_the_hwe_kernel_and_four_cards_hears_that_the_firmware_decides():
    host = a_host(*several(4, "70.54.0", "70.54.0"), system=system("24.04", "7.0.0-39-generic"))
    said = outlook(host)
    assert "with card 0, Arc Pro B70 at 0000:03:00.0, card 1," in said
    assert "card 3, Arc Pro B70 at 0000:c3:00.0." in said
    assert "The kernel is 7.0.0-39-generic: permanent resets of cards under load were reported with GuC 70.58" in said
    assert said.count("usable: it is what this kernel asks for") == 4
    assert "restart" not in said


def test_a_b60_beside_a_b70_is_named_with_its_number():
    other = {"number": 0, "model": "Arc Pro B60", "address": "0000:03:00.0", "driver": "xe", "guc": "70.65.0"}
    host = a_host(*several(2, "70.65.0", first=1), other_cards=[other], system=system("24.04", "6.17.0-1010-intel"))
    said = outlook(host)
    assert "with card 1, Arc Pro B70 at 0000:43:00.0." in said
    assert "An Arc Pro B60 at 0000:03:00.0 is left out: profiles are for the B70." in said
    assert "as card 0." in said


def test_a_release_without_packages_is_said_before_anything_is_changed():
    said = outlook(a_host(*several(1, "70.65.0"), system=system("25.10", "6.17.0-5-generic")))
    assert "has no packages for ubuntu 25.10: install the host with ubuntu 24.04 or ubuntu 26.04." in said


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
