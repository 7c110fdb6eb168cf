# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver and compiler on a bare host, from the vendors as the lab plays them: trusted, pinned, refused, repeated.

The tests are one story on one host, in this order. It has a lab of its own, which is taken down afterwards.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testinfra.host import Host

from system.product import Play, bare_hosts, play
from vendor import repository
from vendor.packages import Package
from vendor.server import FOLDERS, OMIX, Vendors, gateway, vendors

LAB = "vendor"
SYSTEMS = {"bookworm": "debian 12", "noble": "ubuntu 24.04"}
ENVIRONMENT_FILE = "/etc/b70-vllm-slot/oneapi.env"
COMPILER = "/opt/intel/oneapi/compiler/2025.3"
SOURCES = "/etc/apt/sources.list.d/b70-gpu-driver.sources"
OURS = "/etc/apt/keyrings/b70-* /etc/apt/sources.list.d/b70-* /etc/apt/preferences.d/b70-*"


@pytest.fixture(scope="session", autouse=True)
def lab() -> Iterator[None]:
    """One bare host."""
    missing = repository.missing_tools()
    assert not missing, f"install them first: apt-get install {' '.join(missing)}"
    with bare_hosts(LAB, 1):
        yield


@pytest.fixture(scope="session")
def shop(lab: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vendors]:
    with vendors(tmp_path_factory.mktemp("vendor"), gateway()) as made:
        yield made


class Operator:
    """Runs the roles under test as site.yml does, with the vendors' variables and whatever else is said."""

    def __init__(self, shop: Vendors, host: Host, folder: Path) -> None:
        names = ("host", "gpu_driver", "oneapi")
        roles = [{"role": f"arcpro.b70.{name}", "tags": [name]} for name in names]
        self.playbook = folder / "roles.yml"
        self.playbook.write_text(json.dumps([{"hosts": "b70_hosts", "gather_facts": False, "roles": roles}]))
        self.file = folder / "variables.json"
        self.file.write_text(json.dumps(shop.variables(SYSTEMS[host.system_info.codename])))

        self.system = SYSTEMS[host.system_info.codename]

    def __call__(self, *words: str, tags: str = "gpu_driver,oneapi", **variables: object) -> Play:
        more = ["-e", json.dumps(variables)] if variables else []
        return play(self.playbook, "--tags", tags, "-e", f"@{self.file}", *more, *words)


@pytest.fixture(scope="session")
def run(shop: Vendors, host: Host, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator(shop, host, tmp_path_factory.mktemp("operator"))


def versions(host: Host) -> dict[str, str]:
    listed = host.check_output("dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n'")
    rows = [line.split() for line in listed.splitlines()]
    return {row[1]: row[2] for row in rows if row[0] == "installed"}


def words_of(output: str) -> str:
    """A play's output with its line breaks and indentation taken out, to look for sentences in it."""
    return " ".join(output.split())


def test_a_prediction_on_the_bare_host_names_everything_and_changes_nothing(run: Operator, host: Host):
    predicted = run("--check", tags="host,gpu_driver,oneapi")
    assert predicted.code == 0, predicted.output
    said = words_of(predicted.output)
    assert "would install libgomp1, libnuma1, python3-venv" in said
    assert "would install clinfo, intel-gpu-compute, libze-dev" in said
    assert "would install intel-oneapi-compiler-dpcpp-cpp-2025.3=2025.3.2-*" in said
    assert f"would capture the environment of compiler 2025.3 in {ENVIRONMENT_FILE}" in said
    assert host.run(f"ls -d {OURS} /opt/intel /etc/b70-vllm-slot /etc/udev/rules.d/70-b70-power.rules").stdout == ""


def test_a_key_with_another_fingerprint_is_refused_before_anything_is_written(run: Operator, host: Host, shop: Vendors):
    refused = run(tags="gpu_driver", gpu_driver_repository_key_url=f"{shop.url}/stranger.asc")
    assert refused.code != 0
    said = words_of(refused.output)
    assert f"the key {shop.gpu_driver} or {shop.former} is not in it; the keys in it are: {shop.stranger}" in said
    assert host.run(f"ls -d {OURS}").stdout == ""


def test_a_system_without_packages_is_refused_by_name(run: Operator, host: Host):
    refused = run(tags="gpu_driver", gpu_driver_repository_suites={"ubuntu 31.04": ["noble"]})
    assert refused.code != 0
    assert "the packages of omix are made for ubuntu 31.04" in words_of(refused.output)
    assert host.run(f"ls -d {OURS}").stdout == ""


def test_a_host_without_a_card_is_left_alone_unless_told_otherwise(run: Operator, host: Host):
    skipped = run(gpu_driver_force=False, oneapi_force=False)
    assert skipped.code == 0, skipped.output
    assert skipped.changed == 0
    assert "has no Arc Pro B70 card (8086:e223): no driver is installed" in words_of(skipped.output)
    assert "gets no stack that is compiled: no compiler is installed" in words_of(skipped.output)
    assert host.run(f"ls -d {OURS}").stdout == ""


def plug(host: Host, guc: str = "", driver: str = "xe") -> None:
    """Show a card in the host until its next boot: in place of the PCI bus and of the kernel's debug files."""
    card = "/sys/bus/pci/devices/0000:03:00.0"
    debug = "/sys/kernel/debug/dri/0000:03:00.0/gt0/uc"
    text = "GuC firmware: xe/bmg_guc_70.bin\\n\\tstatus: RUNNING\\n\\twanted release version 70.54.0\\n"
    text += f"\\tfound release version {guc}\\n"
    lines = [
        "for place in /sys/bus/pci /sys/kernel/debug; do umount $place 2>/dev/null; mount -t tmpfs card $place; done",
        f"mkdir -p {card} {debug} /sys/bus/pci/drivers/xe /sys/bus/pci/drivers/vfio-pci",
        f"echo 0x8086 > {card}/vendor",
        f"echo 0xe223 > {card}/device",
        f"printf '{text}' > {debug}/guc_info",
        f"ln -s ../../drivers/{driver} {card}/driver" if driver else "true",
    ]
    host.check_output("; ".join(lines))


def unplug(host: Host) -> None:
    host.check_output("umount /sys/bus/pci /sys/kernel/debug")


def test_a_card_that_an_engine_would_lose_stops_the_play_before_anything_is_installed(run: Operator, host: Host):
    for guc, driver, words in (
        ("", "", "0000:03:00.0 has no driver under the kernel"),
        ("", "vfio-pci", "0000:03:00.0 is bound to vfio-pci, not to xe"),
        ("70.58.0", "xe", "0000:03:00.0 runs the GuC firmware 70.58.0 (wanted 70.54.0) under the kernel"),
    ):
        plug(host, guc, driver)
        refused = run(tags="gpu_driver", gpu_driver_force=False, gpu_driver_guc_file={})
        assert refused.code != 0
        assert words in words_of(refused.output)
    predicted = run("--check", tags="gpu_driver", gpu_driver_force=False)
    assert predicted.code == 0, predicted.output
    assert words in words_of(predicted.output)
    assert host.run(f"ls -d {OURS}").stdout == ""


def test_the_driver_is_intels_own_release_and_the_compiler_is_held_although_newer_is_offered(run: Operator, host: Host):
    done = run(tags="host,gpu_driver,oneapi", gpu_driver_force=False, gpu_driver_guc_accepted=["70.58"])
    assert done.code == 0, done.output
    unplug(host)
    installed = versions(host)
    assert installed["intel-gpu-compute"] == "0.4.0-9~24.04"
    assert installed["libze-dev"] == "1.32.0-1146~24.04"
    assert installed["libze-intel-gpu1"] == "26.31.39395.13-1146~24.04"
    assert "clinfo" in installed
    assert installed["intel-oneapi-compiler-dpcpp-cpp-2025.3"] == "2025.3.2-832"
    assert not [name for name in installed if "2026" in name]
    assert len(json.loads(host.check_output("xpu-smi discovery -j"))["device_list"]) == 4
    assert f"Suites: {OMIX}\n" in host.file(SOURCES).content_string


def test_a_second_run_changes_nothing(run: Operator):
    again = run(tags="host,gpu_driver,oneapi")
    assert (again.code, again.changed) == (0, 0), again.output


def test_no_upgrade_moves_what_is_pinned(host: Host):
    offered = host.check_output("apt-cache madison intel-oneapi-compiler-dpcpp-cpp-2025.3").splitlines()[0]
    assert "2025.3.3" in offered
    host.check_output("apt-get update -q")
    assert host.check_output("apt-get -s -q dist-upgrade | grep -c ^Inst || true") == "0"


def test_the_former_key_may_sign_too_and_a_strangers_may_not(run: Operator, host: Host, shop: Vendors):
    for key, fits in ((shop.former, True), (shop.stranger, False), (shop.gpu_driver, True)):
        repository.publish(shop.root / FOLDERS["omix"], OMIX, shop.ring, key, "unified")
        told = host.run("apt-get update -q")
        assert ("NO_PUBKEY" in told.stdout + told.stderr) is not fits, told.stdout + told.stderr


def test_a_kernel_that_was_just_installed_is_started_in_the_same_play(run: Operator, host: Host):
    plug(host, "70.65.0")
    wanted = {"host_card_kernels": {run.system: {"oldest": "99.0", "packages": ["linux-intel-6.17"]}}}
    predicted = words_of(run("--check", tags="host", **wanted).output)
    assert "needs a restart, which is yours to do, or set host_reboot to true: a kernel is installed with" in predicted
    began = host.check_output("cut -d' ' -f22 /proc/1/stat")
    restarted = run(tags="host", host_reboot=True, host_reboot_timeout=400, **wanted)
    assert versions(host)["linux-intel-6.17"] == "6.17.0-1010.10"
    assert host.check_output("cut -d' ' -f22 /proc/1/stat") != began
    # The lab's kernel is this machine's, which the role must notice.
    assert restarted.code != 0
    assert "was restarted, but still the next boot uses the kernel 6.17.0-1010-intel" in words_of(restarted.output)
    host.check_output("apt-get remove -qq -y linux-intel-6.17")


def test_a_unit_gets_the_compiler_from_the_environment_file(host: Host):
    said = host.check_output(f"systemd-run -q --wait --pipe -p EnvironmentFile={ENVIRONMENT_FILE} env icpx --version")
    assert said.startswith("Intel(R) oneAPI DPC++/C++ Compiler 2025.3.2")
    printed = host.check_output(f"systemd-run -q --wait --pipe -p EnvironmentFile={ENVIRONMENT_FILE} env")
    values = dict(line.split("=", 1) for line in printed.splitlines())
    assert values["LD_LIBRARY_PATH"] == f"{COMPILER}/opt/compiler/lib:{COMPILER}/lib"
    assert values["SYCL_HOME"] == values["CMPLR_ROOT"] == COMPILER


def test_another_compiler_beside_it_is_named_and_not_used(run: Operator, host: Host):
    before = host.file(ENVIRONMENT_FILE).content_string
    host.check_output("apt-get install -qq -y intel-oneapi-dpcpp-cpp-2026.0")
    host.check_output("ln -s 2026.0 /opt/intel/oneapi/compiler/latest")
    done = run(tags="oneapi")
    assert (done.code, done.changed) == (0, 0), done.output
    assert "also has oneAPI compiler 2026.0, and `latest` is 2026.0" in words_of(done.output)
    assert host.file(ENVIRONMENT_FILE).content_string == before


def test_an_environment_of_another_release_is_refused(run: Operator, host: Host):
    before = host.file(ENVIRONMENT_FILE).content_string
    refused = run(tags="oneapi", oneapi_environment={"SYCL_HOME": "/opt/intel/oneapi/compiler/2026.0"})
    assert refused.code != 0
    assert "SYCL_HOME names /opt/intel/oneapi/compiler/2026.0, another compiler than 2025.3" in words_of(refused.output)
    assert host.file(ENVIRONMENT_FILE).content_string == before


def github(run: Operator, shop: Vendors, release: str, *words: str, **variables: object) -> Play:
    return run(*words, tags="gpu_driver", **{**shop.driver(run.system, "github", release), **variables})


def test_what_another_source_installed_stops_a_switch_and_is_named(run: Operator, host: Host, shop: Vendors):
    before = versions(host)
    refused = github(run, shop, "26.27")
    assert refused.code != 0
    said = words_of(refused.output)
    assert "of another source than github: intel-gpu-compute 0.4.0-9~24.04, intel-ocloc 26.31.39395.13" in said
    assert "apt-get remove intel-gpu-compute intel-ocloc intel-opencl-icd libigc2 libigdfcl2" in said
    assert "set gpu_driver_remove_others to true" in said
    assert versions(host) == before
    assert OMIX in host.file(SOURCES).content_string


def test_a_switch_to_the_releases_on_github_takes_the_files_by_their_digests(run: Operator, host: Host, shop: Vendors):
    told = {"gpu_driver_remove_others": True, "gpu_driver_allow_downgrade": True}
    predicted = github(run, shop, "26.27", "--check", **told)
    assert predicted.code == 0, predicted.output
    assert "would remove intel-gpu-compute, intel-ocloc, intel-opencl-icd, libigc2" in words_of(predicted.output)
    assert "libigc2" in versions(host)
    done = github(run, shop, "26.27", **told)
    assert done.code == 0, done.output
    installed = versions(host)
    assert not {"intel-gpu-compute", "libigc2", "libigdfcl2"} & set(installed)
    assert installed["intel-igc-core-2"] == "2.38.2"
    assert installed["libze-intel-gpu1"] == "26.27.39122.11-0"
    assert installed["libze-dev"] == "1.32.0"
    assert not host.file(SOURCES).exists
    again = github(run, shop, "26.27")
    assert (again.code, again.changed) == (0, 0), again.output


def test_another_release_takes_one_word_and_the_way_back_two(run: Operator, host: Host, shop: Vendors):
    newer = github(run, shop, "26.35")
    assert newer.code == 0, newer.output
    assert versions(host)["libze-intel-gpu1"] == "26.35.39758.10-0"
    refused = github(run, shop, "26.27")
    assert "has newer versions than the pinned ones: intel-igc-core-2 2.41.5" in words_of(refused.output)
    assert github(run, shop, "26.27", gpu_driver_allow_downgrade=True).code == 0
    assert versions(host)["intel-igc-core-2"] == "2.38.2"


def test_a_file_with_another_digest_is_not_installed(run: Operator, host: Host, shop: Vendors):
    damaged = [{**deb, "sha256": "0" * 64} for deb in shop.debs["26.35"]]
    host.check_output("rm -r /var/cache/b70/b70-gpu-driver")
    refused = github(run, shop, "26.35", gpu_driver_debs=damaged)
    assert refused.code != 0
    assert "did not match 0000000000" in words_of(refused.output)
    assert versions(host)["libze-intel-gpu1"] == "26.27.39122.11-0"


def test_a_mirror_carries_the_files_as_packages(run: Operator, host: Host, shop: Vendors, tmp_path: Path):
    fill = {"name": "arcpro.b70.gpu_driver", "tasks_from": "to_mirror"}
    tasks = [{"ansible.builtin.include_role": role} for role in ({"name": "arcpro.b70.mirror", "public": True}, fill)]
    playbook = tmp_path / "mirror.yml"
    playbook.write_text(json.dumps([{"hosts": "b70_hosts", "gather_facts": False, "tasks": tasks}]))
    given = {**shop.driver(run.system, "github", "26.35"), "mirror_dir": "/srv/mirror"}
    done = play(playbook, "-e", json.dumps(given))
    assert done.code == 0, done.output
    brought = host.check_output("ls /srv/mirror/apt/*/").split()
    assert {deb["url"].rpartition("/")[2] for deb in shop.debs["26.35"]} <= set(brought)
    assert [name for name in brought if name.startswith("clinfo_")]


def ppa(run: Operator, shop: Vendors, **variables: object) -> Play:
    return run(tags="gpu_driver", **{**shop.driver(run.system, "ppa"), **variables})


def test_a_switch_to_the_ppa_takes_the_names_that_it_has(run: Operator, host: Host, shop: Vendors):
    assert "intel-igc-core-2 2.38.2" in words_of(ppa(run, shop).output)
    done = ppa(run, shop, gpu_driver_remove_others=True)
    assert done.code == 0, done.output
    installed = versions(host)
    assert installed["libigc2"] == "2.40.13+ds1-1~24.04"
    assert installed["libze1"] == "1.32.0-1~24.04~ppa1"
    assert not [name for name in installed if name.startswith("intel-igc-")]
    assert f"URIs: {shop.url}/{FOLDERS['ppa']}\n" in host.file(SOURCES).content_string
    again = ppa(run, shop)
    assert (again.code, again.changed) == (0, 0), again.output


def test_a_repository_of_another_source_in_somebodys_file_is_named(run: Operator, host: Host, shop: Vendors):
    file = "/etc/apt/sources.list.d/intel-gpu-noble.list"
    host.check_output(f"echo 'deb [trusted=yes] {shop.url}/gpu/ubuntu {OMIX} unified' > {file}")
    refused = ppa(run, shop)
    host.check_output(f"rm {file}")
    assert refused.code != 0
    assert f"{file} names {shop.url}/gpu/ubuntu, the source omix" in words_of(refused.output)


def test_a_package_that_is_not_offered_is_an_answer_with_what_is(run: Operator, shop: Vendors):
    refused = ppa(run, shop, gpu_driver_packages={"xpu-smi": "1.3.9-*"}, gpu_driver_allow_downgrade=True)
    assert refused.code != 0
    said = words_of(refused.output)
    assert "Wanted: xpu-smi=1.3.9-*" in said
    assert "xpu-smi 2.0.1-1~24.04~ppa1" in said.partition("Offered:")[2]


def test_a_corrupted_package_is_refused_by_its_hash(run: Operator, host: Host, shop: Vendors):
    root = shop.root / FOLDERS["ppa"]
    deb = repository.build(Package("xpu-smi", "2.0.8-1~24.04~ppa1", ("libze1",)), root / "pool")
    repository.publish(root, "noble", shop.ring, shop.gpu_driver)
    content = bytearray(deb.read_bytes())
    content[-40] ^= 1
    deb.write_bytes(bytes(content))
    refused = ppa(run, shop, gpu_driver_packages={"xpu-smi": "2.0.8-*"})
    assert refused.code != 0
    assert "Hash Sum mismatch" in refused.output
    assert versions(host)["xpu-smi"] == "2.0.1-1~24.04~ppa1"


def test_an_administrators_source_for_the_same_repository_is_respected(run: Operator, host: Host, shop: Vendors):
    line = f"deb [signed-by=/etc/apt/keyrings/own.asc] {shop.url}/oneapi all main"
    host.check_output("rm /etc/apt/sources.list.d/b70-oneapi.sources")
    host.check_output(f"echo '{line}' > /etc/apt/sources.list.d/own.list")
    with_stranger = (shop.root / "oneapi.asc").read_text()
    for key, fits in ((shop.ring.public(shop.stranger), False), (with_stranger, True)):
        host.check_output("printf %%s %s > /etc/apt/keyrings/own.asc", key)
        done = run(tags="oneapi")
        assert (done.code == 0) is fits, done.output
        if not fits:
            assert "own.list names" in words_of(done.output)
    assert not host.file("/etc/apt/sources.list.d/b70-oneapi.sources").exists
    assert host.file("/etc/apt/sources.list.d/own.list").content_string == line + "\n"


def test_the_rule_that_keeps_cards_awake_is_there_and_kernel_arguments_need_a_boot_loader(run: Operator, host: Host):
    rule = host.file("/etc/udev/rules.d/70-b70-power.rules").content_string
    assert 'ATTR{device}=="0xe223|0xe211|0xe212|0xe20b"' in rule
    refused = run(tags="host", host_kernel_arguments=["xe.disable_display=1"])
    assert refused.code != 0
    assert "has no update-grub, so this role cannot set host_kernel_arguments" in words_of(refused.output)
    assert not host.file("/etc/default/grub.d/b70.cfg").exists


def test_kernel_arguments_have_a_file_of_their_own_and_a_restart_is_only_named(run: Operator, host: Host):
    host.check_output("printf '#!/bin/sh\\necho ran >> /var/tmp/grub.log\\n' > /usr/sbin/update-grub")
    host.check_output("chmod 755 /usr/sbin/update-grub")
    wanted = {"host_kernel_arguments": ["xe.disable_display=1", "intel_iommu=off"]}
    done = run(tags="host", **wanted)
    assert (done.code, done.changed) == (0, 3), done.output  # the directory, the file, the boot loader
    assert "the running kernel was not given xe.disable_display=1 intel_iommu=off" in words_of(done.output)
    set_by = host.check_output(
        "GRUB_CMDLINE_LINUX_DEFAULT=quiet; . /etc/default/grub.d/b70.cfg; echo $GRUB_CMDLINE_LINUX_DEFAULT"
    )
    assert set_by == "quiet xe.disable_display=1 intel_iommu=off"
    again = run(tags="host", **wanted)
    assert (again.code, again.changed) == (0, 0), again.output
    began = host.check_output("cut -d' ' -f22 /proc/1/stat")
    restarted = run(tags="host", host_reboot=True, host_reboot_timeout=400, **wanted)
    assert host.check_output("cut -d' ' -f22 /proc/1/stat") != began
    # The lab's kernel is this machine's and gets no arguments, which the role must notice.
    assert restarted.code != 0
    assert "was restarted, but still the running kernel was not given xe.disable_display=1" in words_of(
        restarted.output
    )
    gone = run(tags="host")
    assert (gone.code, gone.changed) == (0, 2), gone.output
    assert host.check_output("grep -c ran /var/tmp/grub.log") == "2"


@pytest.fixture(scope="session")
def swap_file(run: Operator, host: Host, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A build on this host lacks between half a GiB and one and a half."""
    memory = dict(line.split(":", 1) for line in host.file("/proc/meminfo").content_string.splitlines())
    kib = sum(int(memory[key].split()[0]) for key in ("MemTotal", "SwapFree"))
    playbook = tmp_path_factory.mktemp("swap") / "build_swap.yml"
    task = {"ansible.builtin.include_role": {"name": "arcpro.b70.host", "tasks_from": "build_swap"}}
    playbook.write_text(json.dumps([{"hosts": "b70_hosts", "gather_facts": False, "tasks": [task]}]))
    wanted = {"host_build_memory_gib": round(kib / 2**20) + 1, "host_build_swap_file": "/mnt/fast-ai/b70-build.swap"}
    done = play(playbook, "-e", json.dumps({**wanted, "host_build_swap_reserve_gib": 1}))
    assert done.code == 0, done.output
    again = play(playbook, "-e", json.dumps({**wanted, "host_build_swap_reserve_gib": 1}))
    assert (again.code, again.changed) == (0, 0), again.output
    return str(wanted["host_build_swap_file"])


BUILD = "systemd-run -q -p Requires=b70-build-swap.service -p After=b70-build-swap.service"


def gone(host: Host, file: str) -> bool:
    """Whether the swap is away; systemd takes it a moment after the build."""
    deadline = time.monotonic() + 120
    while host.run(f"test -e {file} || grep -q {file} /proc/swaps").rc == 0:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True


@pytest.mark.parametrize(("build", "code"), [("true", 0), ("false", 1)], ids=["that succeeds", "that fails"])
def test_a_build_has_its_swap_and_leaves_none(host: Host, swap_file: str, build: str, code: int):
    look = f"grep {swap_file} /proc/swaps; stat -c %a {swap_file}; {build}"
    done = host.run(f"{BUILD} --wait --pipe sh -c '{look}'")
    assert done.rc == code, done.stderr
    assert swap_file in done.stdout
    assert done.stdout.endswith("600\n")
    assert gone(host, swap_file), host.run("journalctl -u b70-build-swap.service --no-pager -n 20").stdout


def test_a_build_that_is_killed_leaves_none(host: Host, swap_file: str):
    host.check_output(f"{BUILD} --unit=killed-build sleep 3600")
    assert host.run(f"grep {swap_file} /proc/swaps").rc == 0
    host.check_output("systemctl kill --signal=KILL killed-build.service")
    assert gone(host, swap_file)


def test_a_file_that_is_not_ours_stops_the_build_and_stays(host: Host, swap_file: str):
    host.check_output(f"echo precious > {swap_file}")
    assert "compiled" not in host.run(f"{BUILD} --wait --pipe echo compiled").stdout
    assert f"{swap_file} exists and is not ours" in host.check_output(
        "journalctl --sync; journalctl -u b70-build-swap.service -n 20"
    )
    assert host.file(swap_file).content_string == "precious\n"
