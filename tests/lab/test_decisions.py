# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's decisions: names, subnets, package settings, plans. No effect outside a temporary directory."""

from __future__ import annotations

import os
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from labkit import cgroup, common, hosts, layout, machine, network, sources
from labkit.common import LabError
from labkit.layout import Lab, State

DEBIAN = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
"""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab("lab", tmp_path)


@pytest.mark.parametrize("name", ["lab", "a", "lab-test2", "a" * 20])
def test_names_of_labs(name: str) -> None:
    assert layout.open_lab(name, {}).name == name


@pytest.mark.parametrize("name", ["Lab", "1lab", "lab-", "a" * 21, "a_b", "../x", "a b"])
def test_a_name_that_cannot_be_a_hostname_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="cannot be the name") as caught:
        layout.open_lab(name, {})
    assert caught.value.code == 2


def test_the_environment_names_lab_and_directory(tmp_path: Path) -> None:
    lab = layout.open_lab(None, {"B70_LAB": "other", "B70_LAB_DIR": str(tmp_path)})
    assert (lab.name, lab.directory) == ("other", tmp_path / "labs" / "other")


def test_an_option_beats_the_environment() -> None:
    assert layout.open_lab("mine", {"B70_LAB": "other"}).name == "mine"


@pytest.mark.parametrize("name", ["lab", "a", "abcd-efgh", "a" * 20])
def test_interface_names_fit_the_kernel_and_differ_between_checkouts(name: str, tmp_path: Path) -> None:
    one, two = Lab(name, tmp_path / "one"), Lab(name, tmp_path / "two")
    assert len(one.bridge) <= 15
    assert one.bridge != two.bridge
    assert one.table != two.table
    assert one.host(1).machine != two.host(1).machine
    assert one.host(1).name == two.host(1).name == f"{name}1"


@pytest.mark.parametrize("name", ["images", "cache", "cached-images"])
def test_no_lab_has_the_lock_of_the_images(name: str, tmp_path: Path) -> None:
    found = layout.open_lab(name, {"B70_LAB_DIR": str(tmp_path)})
    assert found.lock != found.images_lock
    with pytest.raises(LabError):
        layout.open_lab(found.images_lock.stem, {"B70_LAB_DIR": str(tmp_path)})


def test_the_state_survives_a_round_trip(lab: Lab) -> None:
    State("10.213.70.0/24", [1, 2], nat=False).save(lab)
    state = State.load(lab)
    assert state == State("10.213.70.0/24", [1, 2], nat=False)
    assert state is not None
    assert state.gateway == "10.213.70.1"
    assert state.address(lab.host(2)) == "10.213.70.12"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"subnet": "x", "hosts": [], "nat": true, "schema": 1}'])
def test_a_damaged_state_counts_as_none(lab: Lab, text: str) -> None:
    common.write_atomic(lab.state_file, text)
    assert State.load(lab) is None


def test_a_host_is_found_by_name_and_an_unknown_one_is_refused(lab: Lab) -> None:
    State("10.213.70.0/24", [1, 2]).save(lab)
    assert lab.host_named("lab2").index == 2
    with pytest.raises(LabError, match="lab1, lab2"):
        lab.host_named("lab3")


def test_routes_tell_the_used_networks() -> None:
    routes = (
        "default via 192.0.2.1 dev eth0\n"
        "10.213.70.0/24 dev b70-x proto kernel scope link src 10.213.70.1\n"
        "172.17.0.5 dev docker0\n"
        "unreachable 10.99.0.0/16\n"
        "0.0.0.0/1 via 10.8.0.1 dev tun0\n"
    )
    assert network.used_networks(routes) == [
        IPv4Network("10.213.70.0/24"),
        IPv4Network("172.17.0.5/32"),
        IPv4Network("10.99.0.0/16"),
        IPv4Network("0.0.0.0/1"),
    ]


def test_the_first_free_subnet_is_taken() -> None:
    assert str(network.free_subnet([])) == "10.213.70.0/24"
    taken = [IPv4Network("10.213.70.0/24"), IPv4Network("10.213.71.128/25"), IPv4Network("192.168.0.0/16")]
    assert str(network.free_subnet(taken)) == "10.213.72.0/24"
    with pytest.raises(LabError, match="in use"):
        network.free_subnet([IPv4Network("10.0.0.0/8")])


def test_rules_open_and_close_the_way_out(lab: Lab) -> None:
    opened, closed = network.rules(lab, "10.213.70.0/24", True), network.rules(lab, "10.213.70.0/24", False)
    assert "masquerade" in opened
    assert "masquerade" not in closed
    assert "reject" in closed
    for text in (opened, closed):
        assert f"delete table ip {lab.table}" in text
        assert f'iifname "{lab.bridge}" oifname "{lab.bridge}" accept' in text


@pytest.mark.parametrize(
    ("made", "running", "answers", "moved", "action"),
    [
        (False, False, False, False, "make"),
        (False, True, True, False, "make"),
        (True, False, False, False, "boot"),
        (True, False, False, True, "boot"),
        (True, True, False, False, "restart"),
        (True, True, True, True, "restart"),
        (True, True, True, False, "keep"),
    ],
)
def test_what_up_does_with_a_host(made: bool, running: bool, answers: bool, moved: bool, action: str) -> None:
    assert hosts.decide(made=made, running=running, answers=answers, moved=moved) == action


def test_a_tree_that_is_killed_while_it_goes_does_not_count(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    host = lab.host(1)
    (host.root / "etc").mkdir(parents=True)
    (host.root / "etc/machine-id").touch()
    host.made.write_text("{}")
    assert host.complete

    def killed(_path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hosts, "stop", lambda _host: None)
    monkeypatch.setattr(hosts, "remove_tree", killed)
    with pytest.raises(KeyboardInterrupt):
        hosts.make(lab, State("10.213.70.0/24", [1]), host, lab.directory / "image.tar")
    assert not host.complete


def test_a_recycled_process_number_is_not_taken_for_ours(tmp_path: Path) -> None:
    path = tmp_path / "pid.json"
    layout.write_pid(path, os.getpid())
    assert layout.read_pid(path) == os.getpid()
    start = layout.process_start(os.getpid())
    path.write_text(path.read_text().replace(str(start), str((start or 0) + 1)))
    assert layout.read_pid(path) is None
    path.write_text(f'{{"pid": {os.getpid()}, "start": {start}, "boot": "another boot"}}')
    assert layout.read_pid(path) is None
    path.write_text("damaged")
    assert layout.read_pid(path) is None
    assert layout.read_pid(tmp_path / "absent") is None


def test_apt_sources_of_the_release_are_found_and_others_are_not() -> None:
    files = {
        "/etc/apt/sources.list": (
            "# deb http://old.example/debian bookworm main\n"
            "deb [arch=amd64 signed-by=/k.gpg] http://m.example/debian/ bookworm-updates main non-free # note\n"
            "deb http://other.example/repo stable main\n"
        ),
        "/etc/apt/sources.list.d/debian.sources": DEBIAN,
        "/etc/apt/sources.list.d/off.sources": DEBIAN.replace("Types: deb\n", "Types: deb\nEnabled: no\n", 1),
    }
    found = sources.parse_sources(files, "debian", "bookworm")
    assert found[0] == sources.AptSource("http://m.example/debian", ("bookworm-updates",), ("main",), "/k.gpg")
    assert found[1].suites == ("bookworm", "bookworm-updates")
    assert found[2].keyring == "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----"
    assert len(found) == 3
    assert found[1].lines("/k.gpg")[0] == "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main"


def test_ubuntu_also_gets_universe() -> None:
    text = "deb http://a.example/ubuntu noble main restricted universe multiverse\n"
    assert sources.parse_sources({"x.list": text}, "ubuntu", "noble")[0].components == ("main", "universe")


def test_apt_settings_that_reach_the_archive_are_carried_over() -> None:
    dump = (
        'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::Retries "3";\nAcquire::https::CAInfo "/x.crt";\n'
        'Acquire::http "";\nAcquire::cdrom::mount "/media/cdrom/";\nAcquire::Check-Date "false";\nDir "/";\n'
    )
    assert sources.parse_apt_settings(dump) == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::Retries "3";',
        'Acquire::Check-Date "false";',
    ]


def test_pip_settings_the_environment_is_strongest() -> None:
    texts = [
        "[global]\nindex-url = https://a.example/simple\nextra-index-url = file:///srv/x/simple\n\thttps://b.example\n",
        "[global]\nfind-links = /srv/wheels /srv/more\n[install]\ntrusted-host = a.example\n",
        "not an ini file",
    ]
    clients = sources.parse_pip(texts, {"PIP_FIND_LINKS": "/srv/env", "PIP_DEFAULT_TIMEOUT": "180", "HOME": "/x"})
    assert clients.index_url == "https://a.example/simple"
    assert clients.extra_index_urls == ["file:///srv/x/simple", "https://b.example"]
    assert clients.find_links == ["/srv/env"]
    assert clients.timeout == "180"
    assert "trusted-host = a.example" in clients.pip_conf()
    assert 'extra-index-url = ["file:///srv/x/simple", "https://b.example"]' in clients.uv_toml()
    assert [str(path) for path in clients.local_directories()] == ["/srv/x", "/srv/env"]


def test_without_settings_a_host_uses_the_public_index_and_the_system_certificates() -> None:
    clients = sources.parse_pip([], {})
    assert clients.pip_conf() == "[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n"
    assert clients.uv_toml() == "system-certs = true\n"
    assert clients.local_directories() == []


def test_a_directory_below_another_is_not_mounted_twice() -> None:
    clients = sources.parse_pip(["[global]\nfind-links = /srv/w /srv/w/deep file:///srv/other\n"], {})
    assert [str(path) for path in clients.local_directories()] == ["/srv/w", "/srv/other"]


def test_pip_files_follow_pips_order() -> None:
    home = Path("/home/me")
    found = sources.pip_files({"XDG_CONFIG_DIRS": "/a:/b", "PIP_CONFIG_FILE": "/c/pip.conf"}, home)
    assert [str(path) for path in found] == [
        "/b/pip/pip.conf", "/a/pip/pip.conf", "/etc/pip.conf", "/home/me/.pip/pip.conf",
        "/home/me/.config/pip/pip.conf", "/c/pip.conf",
    ]  # fmt: skip
    assert sources.pip_files({"PIP_CONFIG_FILE": "/dev/null"}, home) == []


def test_certificates_that_only_the_machine_trusts() -> None:
    def pem(body: str) -> str:
        return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----"

    machine_bundle = f"# proxy\n{pem('AAA')}\n{pem('BBB')}\r\n"
    assert sources.missing_certificates(machine_bundle, pem("BBB") + "\n" + pem("CCC")) == [pem("AAA")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nhost_packages:\n  # why\n  - git\n\n  - 'curl'  # note\n  - \"{{ x }}\"\nb: 2\n", ["curl", "git"]),
        ("host_packages:\n- git\n- g++\nother:\n  - no\n", ["g++", "git"]),
        ("host_packages: [git, curl]\nother: [no]\n", ["curl", "git"]),
        ("host_packages: []\n", []),
        ("other: 1\n", []),
        ("", []),
    ],
)
def test_packages_of_the_host_role_are_read(text: str, expected: list[str]) -> None:
    assert sources.parse_host_packages(text) == expected


def test_a_stub_resolver_is_not_handed_to_the_hosts() -> None:
    stub, real = "nameserver 127.0.0.53\noptions edns0\n", "# x\nnameserver 192.0.2.53\nsearch example\n"
    assert sources.nameservers([stub, real]) == "nameserver 192.0.2.53\nsearch example\n"
    assert sources.nameservers([stub]) == ""


HYBRID = (
    "25 20 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "26 25 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "27 25 0:24 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
    "28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def test_hybrid_and_unified_hierarchies() -> None:
    own = "9:name=systemd:/a\n4:memory:/m\n0::/a\n"
    assert [str(p) for p in cgroup.hierarchies(HYBRID, own)] == ["/sys/fs/cgroup/systemd/a", "/sys/fs/cgroup/unified/a"]
    unified = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
    assert [str(p) for p in cgroup.hierarchies(unified, "0::/user.slice\n")] == ["/sys/fs/cgroup/user.slice"]
    assert cgroup.hierarchies("", own) == []


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ({"ID": "debian", "VERSION_ID": "12"}, ("debian", "bookworm")),
        ({"ID": "ubuntu", "VERSION_ID": "24.04"}, ("ubuntu", "noble")),
    ],
)
def test_supported_systems(release: dict[str, str], expected: tuple[str, str]) -> None:
    assert machine.suite_of(release) == expected


def test_hosts_have_the_machines_suite_or_one_that_its_distribution_has_as_well() -> None:
    assert machine.host_suite("debian", "bookworm", "") == "bookworm"
    assert machine.host_suite("debian", "bookworm", "trixie") == "trixie"
    with pytest.raises(LabError, match="no hosts with trixie here"):
        machine.host_suite("ubuntu", "noble", "trixie")


@pytest.mark.parametrize(
    "release", [{}, {"ID": "fedora", "VERSION_ID": "40", "PRETTY_NAME": "Fedora 40"}, {"ID": "debian"}]
)
def test_other_systems_are_refused_with_exit_code_2(release: dict[str, str]) -> None:
    with pytest.raises(LabError, match="Debian 12 and Ubuntu") as caught:
        machine.suite_of(release)
    assert caught.value.code == 2
    assert caught.value.fix


def test_os_release_is_read(tmp_path: Path) -> None:
    path = tmp_path / "os-release"
    path.write_text('# x\nID=ubuntu\nVERSION_ID="24.04"\n')
    assert machine.os_release(path) == {"ID": "ubuntu", "VERSION_ID": "24.04"}
    assert machine.os_release(tmp_path / "absent") == {}


def test_a_lock_that_is_held_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "a.lock"
    with (
        common.locked(path, "lab 'a'", 1),
        pytest.raises(LabError, match=rf"lab 'a' is held by process {os.getpid()}"),
        common.locked(path, "lab 'a'", 0.3),
    ):
        pytest.fail("both hold it")
    with common.locked(path, "lab 'a'", 0):
        path.unlink()  # as `down` does
    with common.locked(path, "lab 'a'", 0):
        assert path.exists()


def test_a_tree_with_something_mounted_below_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "mounts_below", lambda path: [f"{path}/srv"])
    (tmp_path / "tree").mkdir()
    with pytest.raises(LabError, match="mounted below"):
        common.remove_tree(tmp_path / "tree")
    assert (tmp_path / "tree").exists()


def test_a_tree_is_removed_and_what_its_links_point_to_is_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_text("x")
    (tree / "a" / "link").symlink_to(outside)
    (tree / "dangling").symlink_to("nowhere")
    common.remove_tree(tree)
    common.remove_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").is_dir()


def test_a_command_that_fails_is_named_with_its_output() -> None:
    with pytest.raises(LabError, match=r"exit code 3 from: sh -c[\s\S]*because"):
        common.run(["sh", "-c", "echo because >&2; exit 3"])
    with pytest.raises(LabError, match="command not found") as caught:
        common.run(["b70-no-such-command"])
    assert caught.value.code == 2
    with pytest.raises(LabError, match="longer than"):
        common.run(["sleep", "5"], timeout=0.1)
