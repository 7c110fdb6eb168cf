# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _host
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Holder, HostFault

ACCOUNT = {"uid": 990, "group": "b70", "groups": ["b70", "render"], "gids": [990, 105]}


def pci_device(sysfs: Path, address: str, device: str, driver: str | None = None, node: int = 0) -> None:
    folder = sysfs / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x8086\n")
    (folder / "device").write_text(f"{device}\n")
    (folder / "numa_node").write_text("-1\n")
    if driver:
        (sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(sysfs / "bus/pci/drivers" / driver)
        for name in (f"card{node}", f"renderD{128 + node}"):
            (folder / "drm" / name).mkdir(parents=True)


def test_cards_are_found_in_every_pci_domain_and_ordered_by_address(tmp_path):
    pci_device(tmp_path, "10000:01:00.0", "0xe223")
    pci_device(tmp_path, "0000:0a:00.0", "0xe223", driver="xe", node=1)
    pci_device(tmp_path, "0000:03:00.0", "0xE223", driver="xe")
    pci_device(tmp_path, "0000:04:00.0", "0xe211", driver="xe", node=2)
    found = _host.cards(tmp_path)
    assert [card["address"] for card in found] == ["0000:03:00.0", "0000:0a:00.0", "10000:01:00.0"]
    assert [card["number"] for card in found] == [0, 2, 3], "Level Zero and masks count the B60 at 0000:04:00.0 too"
    assert found[0] == {
        "number": 0,
        "model": "Arc Pro B70",
        "address": "0000:03:00.0",
        "driver": "xe",
        "guc": "",
        "guc_wanted": "",
        "numa_node": None,
        "card_node": "/dev/dri/card0",
        "render_node": "/dev/dri/renderD128",
    }
    assert found[2]["driver"] == ""
    assert found[2]["render_node"] is None


def test_cards_of_other_models_are_named_by_their_numbers(tmp_path):
    for bus, device in (("03", "0xe211"), ("04", "0xe212"), ("05", "0xe223"), ("06", "0xe20b"), ("07", "0xe20c")):
        pci_device(tmp_path, f"0000:{bus}:00.0", device, driver="xe", node=int(bus))
    # What sits on the cards' boards, and an iGPU, have no number.
    pci_device(tmp_path, "0000:02:00.0", "0xe2ff")
    pci_device(tmp_path, "0000:00:02.0", "0xa780", driver="i915", node=9)
    assert [_host.named(card) for card in _host.cards(tmp_path)] == ["card 2, Arc Pro B70 at 0000:05:00.0"]
    assert [_host.named(card) for card in _host.other_cards(tmp_path)] == [
        "card 0, Arc Pro B60 at 0000:03:00.0",
        "card 1, Arc Pro B50 at 0000:04:00.0",
        "card 3, Arc B580 at 0000:06:00.0",
        "card 4, Battlemage 8086:e20c at 0000:07:00.0",
    ]


def test_a_card_of_another_model_that_a_virtual_machine_has_is_not_counted(tmp_path):
    pci_device(tmp_path, "0000:03:00.0", "0xe211", driver="vfio-pci")
    pci_device(tmp_path, "0000:04:00.0", "0xe223", driver="vfio-pci", node=1)
    assert [_host.named(card) for card in _host.family(tmp_path)] == ["card 0, Arc Pro B70 at 0000:04:00.0"]


# As xe writes it (xe_uc_fw_print), and as i915 does; what follows in the file is left out.
XE_GUC = """GuC firmware: xe/bmg_guc_70.bin
\tstatus: RUNNING
\twanted release version 70.54.0
\tfound release version 70.65.0
\tfound compatibility version 1.23.0
\tuCode: 405504 bytes
\tRSA: 384 bytes
"""
I915_GUC = """GuC firmware: i915/dg2_guc_70.bin
        status: RUNNING
        version: found 70.5.1
        uCode: 369088 bytes
GuC status 0x80030020:
        Bootrom status = 0x10
"""
MISSING_GUC = "GuC firmware: xe/bmg_guc_70.bin\n\tstatus: MISSING\n\tversion: wanted 70.12.1, found 0.0.0\n"
# Of a host with an Arc card in another PCI domain, and of one with the prefix that kernels write since 6.16.
LOG = """xe 0001:03:00.0: [drm] GT1: Using GuC firmware from xe/bmg_guc_70.bin version 70.36.0
xe 0001:03:00.0: [drm] GuC firmware (70.45.2) is recommended, but only (70.36.0) was found in xe/bmg_guc_70.bin
xe 0000:03:00.0: [drm] Tile0: GT0: Using GuC firmware from xe/bmg_guc_70.bin version 70.58.0
xe 0000:03:00.0: [drm] Tile0: GT1: Using GuC firmware from xe/bmg_guc_70.bin version 70.58.0
"""


@pytest.mark.parametrize("folder", ["0000:03:00.0/gt0", "0000:03:00.0/tile0/gt0", "0/gt0", "128/gt0"])
@pytest.mark.parametrize(("text", "version"), [(XE_GUC, "70.65.0"), (I915_GUC, "70.5.1"), (MISSING_GUC, "")])
def test_the_firmware_of_a_card_is_read_wherever_the_kernel_shows_it(tmp_path, folder, text, version):
    pci_device(tmp_path, "0000:03:00.0", "0xe223", driver="xe")
    file = tmp_path / "kernel/debug/dri" / folder / "uc/guc_info"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert [card["guc"] for card in _host.cards(tmp_path)] == [version]
    wanted = "70.54.0" if text is XE_GUC else ""
    assert [card["guc_wanted"] for card in _host.cards(tmp_path)] == [wanted]


def test_the_kernels_log_says_what_the_debug_files_do_not(tmp_path):
    pci_device(tmp_path, "0000:03:00.0", "0xe223", driver="xe")
    pci_device(tmp_path, "0000:04:00.0", "0xe223", driver="xe", node=1)
    pci_device(tmp_path, "0001:03:00.0", "0xe223")
    cards = _host.guc_from_log(_host.cards(tmp_path), LOG)
    assert [(card["address"], card["guc"]) for card in cards] == [
        ("0000:03:00.0", "70.58.0"),
        ("0000:04:00.0", ""),
        ("0001:03:00.0", ""),  # nothing drives it now, whatever the log has of earlier
    ]


def guc_file(version: tuple[int, int, int]) -> bytes:
    """The head of a file of GuC firmware, as the kernel's xe_uc_fw_abi.h lays it out, and some of its code."""
    major, minor, patch = version
    return bytes(64) + bytes([patch, minor, major, 0]) + bytes(60) + b"uCode"


def test_the_version_of_a_file_of_firmware_is_in_its_head(tmp_path):
    file = tmp_path / "bmg_guc_70.bin"
    assert _host.guc_of_file(file) == ""
    file.write_bytes(guc_file((70, 65, 0)))
    assert _host.guc_of_file(file) == "70.65.0"
    for damaged in (b"", b"not found", bytes(400)):
        file.write_bytes(damaged)
        assert _host.guc_of_file(file) == ""


def test_firmware_that_waits_for_a_restart_is_a_reason_for_one():
    system = {"kernel": "7.0.0-27-generic", "next_kernel": "7.0.0-27-generic", "kernel_arguments": []}

    def reasons(file: str, *running: str) -> list[str]:
        return _host.restart_reasons([], [], {**system, "guc_file": file}, [{"guc": guc} for guc in running])

    (reason,) = reasons("70.65.0", "70.58.0", "70.58.0", "")
    assert reason.startswith("the next boot loads the GuC firmware 70.65.0 from /lib/firmware/updates/")
    assert reasons("70.65.0", "70.65.0") == reasons("", "70.58.0") == reasons("70.65.0", "") == []


def test_a_kernel_is_wanted_where_a_card_is_and_the_running_one_does_not_know_it():
    table = {"ubuntu 24.04": {"oldest": "6.17", "packages": ["linux-generic-6.17"]}}

    def wanted(kernel: str, cards: bool = True, system: str = "24.04") -> list[str]:
        return _host.kernel_packages(table, {"id": "ubuntu", "version": system, "kernel": kernel}, cards)

    assert wanted("6.8.0-87-generic") == wanted("6.14.0-37-generic") == ["linux-generic-6.17"]
    for kernel in ("6.17.0-23-generic", "6.17.0-1010-intel", "7.0.0-31-generic"):
        assert wanted(kernel) == []
    assert wanted("6.8.0-87-generic", cards=False) == wanted("6.8.0-87-generic", system="26.04") == []


def test_a_host_without_pci_has_no_cards_and_no_nodes(tmp_path):
    assert _host.cards(tmp_path) == []
    assert _host.render_nodes(tmp_path) == []


def test_render_nodes_leave_out_display_nodes(tmp_path):
    for name in ("card0", "card0-DP-1", "renderD128", "renderD129"):
        (tmp_path / "class/drm" / name).mkdir(parents=True)
    assert _host.render_nodes(tmp_path) == ["/dev/dri/renderD128", "/dev/dri/renderD129"]


def stack(root: Path, name: str, fingerprint: object = None, programs: tuple[str, ...] = ("python", "vllm")) -> None:
    (root / name / "venv/bin").mkdir(parents=True)
    for program in programs:
        path = root / name / "venv/bin" / program
        path.touch(mode=0o755)
    if fingerprint is not None:
        text = fingerprint if isinstance(fingerprint, str) else json.dumps(fingerprint)
        (root / name / "fingerprint.json").write_text(text)


def test_only_a_stack_with_its_own_fingerprint_and_programs_is_complete(tmp_path):
    stack(tmp_path, "a-1", {"stack_id": "a-1", "name": "a", "digest": "sha256:00", "created": "2026-06-07T09:08:44Z"})
    stack(tmp_path, "b-interrupted")
    stack(tmp_path, "c-torn", '{"stack_id": "c-to')
    stack(tmp_path, "d-copied", {"stack_id": "a-1"})
    stack(tmp_path, "e-emptied", {"stack_id": "e-emptied"}, programs=("vllm",))
    stack(tmp_path, "f-list", [])
    (tmp_path / "a-file").touch()
    found = {item["id"]: item for item in _host.stacks(tmp_path)}
    assert [name for name, item in found.items() if item["complete"]] == ["a-1"]
    assert found["a-1"] == {
        "id": "a-1",
        "dir": str(tmp_path / "a-1"),
        "complete": True,
        "reason": "",
        "name": "a",
        "digest": "sha256:00",
        "created": "2026-06-07T09:08:44Z",
    }
    assert "interrupted" in found["b-interrupted"]["reason"]
    assert "cannot be read" in found["c-torn"]["reason"]
    assert "belongs to a-1" in found["d-copied"]["reason"]
    assert "no executable python" in found["e-emptied"]["reason"]
    assert "not an object" in found["f-list"]["reason"]


def _id_in(images: dict[str, str], reference: str) -> str:
    if "Podman" in images:
        raise HostFault(images["Podman"])
    return images.get(reference, "")


def test_a_stack_that_is_an_image_is_complete_while_the_host_has_that_image(tmp_path):
    record = {"stack_id": "i-1", "image": {"reference": "r/i@sha256:0", "id": "f00d"}}
    stack(tmp_path, "i-1", record, programs=())
    for there, reason in (
        ({"r/i@sha256:0": "f00d"}, ""),
        ({}, "the image r/i@sha256:0 is not on the host"),
        ({"Podman": "Podman does not tell"}, "Podman does not tell"),
        ({"r/i@sha256:0": "beef"}, "the image r/i@sha256:0 is beef, verified was f00d"),
    ):
        (found,) = _host.stacks(tmp_path, partial(_id_in, there))
        assert (found["complete"], found["reason"]) == (not reason, reason)


MAPPED = "7f54872ea000-7f54872fd000 r-xp 00003000 fe:00 157   /usr/lib/x86_64-linux-gnu/libz.so.1.3 (deleted)\n"


def test_services_with_replaced_files_are_found_by_the_control_groups_of_their_processes(tmp_path):
    def process(pid: int, cgroup: str, maps: str = MAPPED) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")
        (tmp_path / str(pid) / "maps").write_text(maps)

    system = "/system.slice"
    process(100, f"{system}/b70-openai-frontdoor.service")
    process(101, f"{system}/system-b70.slice/b70-slot-main-big@0.service/libpod-payload-0123")
    process(102, f"{system}/b70-controller-main.service", "")
    process(103, f"{system}/ssh.service")
    process(104, f"{system}/b70-weights-tiny.service")
    process(105, f"{system}/b70-slot-admin@7-1-0.service")
    (tmp_path / "106").mkdir()
    (tmp_path / "self").symlink_to("100")
    library = "/usr/lib/x86_64-linux-gnu/libz.so.1.3"
    assert _host.outdated_services(tmp_path) == {
        "b70-openai-frontdoor.service": [library], "b70-slot-main-big@0.service": [library],
    }  # fmt: skip


def test_no_folder_holds_no_stacks(tmp_path):
    assert _host.stacks(tmp_path / "none") == []


def test_a_python_that_went_away_breaks_a_stack(tmp_path):
    stack(tmp_path, "a-1", {"stack_id": "a-1"}, programs=("vllm",))
    (tmp_path / "a-1/venv/bin/python").symlink_to(tmp_path / "python3.11")
    assert not _host.stacks(tmp_path)[0]["complete"]


def test_uv_counts_only_with_its_program(tmp_path):
    assert _host.uv_version(tmp_path) is None
    (tmp_path / "lib/python3.11/site-packages/uv-0.13.8.dist-info").mkdir(parents=True)
    assert _host.uv_version(tmp_path) is None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").touch()
    assert _host.uv_version(tmp_path) == "0.13.8"


def test_half_removed_packages_are_missing():
    output = "installed libnuma1\nconfig-files libgomp1\n"
    assert _host.packages_missing(["libnuma1", "libgomp1", "python3-venv"], output) == ["libgomp1", "python3-venv"]


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "may"),
    [
        (0o755, 990, 0, True),
        (0o755, 0, 0, False),
        (0o775, 0, 105, True),
        (0o765, 0, 105, False),
        (0o1777, 0, 0, True),
        (0o077, 990, 105, False),
    ],
)
def test_may_write_goes_by_the_first_class_that_fits(mode, uid, gid, may):
    assert _host.may_write(mode, uid, gid, ACCOUNT) is may


def test_nobody_may_not_write_and_root_may():
    assert not _host.may_write(0o777, 0, 0, None)
    assert _host.may_write(0o000, 5, 5, {"uid": 0, "gids": [0]})


def test_path_facts_of_a_missing_path_give_the_space_it_would_have(tmp_path):
    facts = _host.path_facts(str(tmp_path / "a/b"), ACCOUNT)
    assert (facts["exists"], facts["is_dir"], facts["mode"], facts["writable"]) == (False, False, None, False)
    assert facts["free_mib"] > 0


def test_path_facts_follow_links(tmp_path):
    (tmp_path / "real").mkdir(mode=0o750)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    facts = _host.path_facts(str(tmp_path / "link"), ACCOUNT)
    assert (facts["exists"], facts["is_dir"], facts["mode"]) == (True, True, "0750")


def test_an_account_has_its_primary_group_first():
    groups = [
        SimpleNamespace(gr_name="render", gr_gid=105, gr_mem=["b70"]),
        SimpleNamespace(gr_name="b70", gr_gid=990, gr_mem=[]),
        SimpleNamespace(gr_name="video", gr_gid=44, gr_mem=["someone"]),
    ]
    users = {"b70": SimpleNamespace(pw_uid=990, pw_gid=990)}
    found = _host.account_facts("b70", users.__getitem__, groups)
    assert found == {"uid": 990, "group": "b70", "groups": ["b70", "render"], "gids": [105, 990]}
    assert _host.account_facts("other", users.__getitem__, groups) is None


def test_os_release_is_read_with_and_without_quotes():
    text = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID='12'\n# a comment\nbroken\n"
    assert _host.parse_os_release(text) == {
        "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)",
        "ID": "debian",
        "VERSION_ID": "12",
    }


@pytest.mark.parametrize(
    ("name", "version"), [("debian", "12"), ("debian", "13"), ("debian", ""), ("ubuntu", "24.04"), ("ubuntu", "26.04")]
)
def test_supported_systems_have_no_problems(name, version):
    system = {"id": name, "version": version, "name": name}
    assert _host.problems(system, "3.11.2", "/usr/bin/python3", systemd=True, root=True) == []


def test_every_problem_says_what_to_do():
    found = _host.problems({"id": "ubuntu", "version": "22.04", "name": "Ubuntu 22.04"}, "3.10.12", "/p", False, False)
    assert len(found) == 4
    assert found[0] == "Ubuntu 22.04 is too old: upgrade the host to Debian 12 or Ubuntu 24.04 or newer."
    assert _host.problems({}, None, "/p", True, True) == [
        "The system is 'unknown': use a host with Debian 12 or Ubuntu 24.04 or newer.",
        "There is no working Python at /p: install the package python3.",
    ]


def test_the_next_kernel_is_what_the_link_names(tmp_path):
    assert _host.next_kernel(tmp_path) is None
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz").symlink_to("vmlinuz-6.17.0-23-generic")
    assert _host.next_kernel(tmp_path) == "6.17.0-23-generic"
    (tmp_path / "vmlinuz").symlink_to("boot/vmlinuz-6.1.0-40-amd64")
    assert _host.next_kernel(tmp_path) == "6.1.0-40-amd64"


def test_a_restart_is_needed_for_arguments_for_a_missing_kernel_and_for_the_kernel_of_the_next_boot():
    system = {"kernel": "6.8.0-87-generic", "kernel_arguments": ["quiet"], "next_kernel": "6.8.0-87-generic"}
    assert _host.restart_reasons([], ["quiet"], system) == []
    assert _host.restart_reasons([], [], system | {"next_kernel": None}) == []
    following = system | {"next_kernel": "6.17.0-1010-intel"}
    assert _host.restart_reasons(["linux-a", "linux-a"], ["quiet", "pcie_aspm=off"], following) == [
        "the running kernel was not given pcie_aspm=off",
        "a kernel is installed with linux-a",
        "the next boot uses the kernel 6.17.0-1010-intel",
    ]


def test_directories_are_missing_obstructed_or_not_writable(tmp_path):
    account = {"uid": 4242, "gids": [4242]}
    (tmp_path / "closed").mkdir(mode=0o755)
    (tmp_path / "file").touch()
    wanted: list[dict[str, Any]] = [
        {"path": str(tmp_path / name), "writable": name == "closed"} for name in ("absent", "closed", "file")
    ]
    wanted.append({"path": str(tmp_path)})
    paths = {one["path"]: _host.path_facts(one["path"], account) for one in wanted}
    absent, closed, file = (one["path"] for one in wanted[:3])
    faults = _host.directory_faults(wanted, paths, account)
    assert faults == {"missing": [absent], "obstructed": [file], "not_writable": [closed]}
    assert _host.directory_faults(wanted, paths, None)["not_writable"] == []


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a listener of this process on one address of this host."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        yield server.getsockname()[1]


def test_who_holds_a_port_is_named(listener: int):
    for host in ("127.0.0.2", "0.0.0.0"):
        (holder,) = _host.holders(host, listener)
        assert (holder.pid, holder.what) == (os.getpid(), f"port {listener}")


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_port_is_free_where_only_another_address_of_the_host_has_it(listener: int, host: str):
    """The second address is not of this host, where the start of the frontdoor says so."""
    assert _host.holders(host, listener) == []


ID = "4f1d" * 16


@pytest.mark.parametrize(
    ("command", "unit", "argv"),
    [
        ("python -m http.server 8000", "session-3.scope", []),
        ("/usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 8000", "docker.service",
         ["docker", "publish=8000"]),
        ("vllm serve /models/a --port 8000", f"docker-{ID}.scope", ["docker", f"id={ID}"]),
        ("/usr/bin/conmon --api-version 1", f"libpod-conmon-{ID}.scope", ["podman", f"id={ID}"]),
        ("vllm serve /models/a", f"libpod-{ID}.scope in user@1000.service", ["podman", f"id={ID}"]),
    ],
)  # fmt: skip
def test_the_container_that_holds_a_port_is_asked_for_by_what_is_known_of_it(command: str, unit: str, argv: list[str]):
    asked = _host.container_argv(Holder(7, command, "root", unit, "port 8000"), 8000)
    assert [asked[0], asked[-1]] == argv if argv else asked == []
