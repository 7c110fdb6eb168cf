# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that gives its models to others, and one that takes them: what the programs are told, and what follows from
what they say. tests/system/test_weights_peers.py runs the real ones."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._weights import peers
from ansible_collections.arcpro.b70.plugins.module_utils._weights.fetching import program, transports
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import WeightsError

DATA = b"weights" * 1000


@pytest.mark.parametrize(
    ("known", "outward", "network", "address"),
    [
        (["192.168.1.5", "10.0.0.5"], "10.0.0.5", "", "10.0.0.5"),
        (["192.168.1.5", "10.0.0.5"], "", "", "192.168.1.5"),
        (["192.168.1.5", "10.0.0.5", "fd00::5"], "192.168.1.5", "10.0.0.0/24", "10.0.0.5"),
        (["192.168.1.5", "fd00::5"], "192.168.1.5", "fd00::/64", "fd00::5"),
        (["192.168.1.5"], "192.168.1.5", "10.0.0.0/24", ""),
        ([], "", "", ""),
    ],
)
def test_a_host_serves_in_the_network_that_is_named_else_where_its_default_route_leads(
    known: list[str], outward: str, network: str, address: str
) -> None:
    assert peers.choose_address(known, outward, network) == address


def test_a_faulty_network_is_refused_with_an_example() -> None:
    with pytest.raises(WeightsError, match=r"'10.0.0.7/24' is no network: write it like 10.0.0.0/24"):
        peers.choose_address([], "", "10.0.0.7/24")


def test_nginx_serves_to_the_hosts_of_the_play_only_and_to_read_only() -> None:
    text = peers.configuration("fd00::5", 18090, ["fd00::6", "fd00::5"])
    assert "listen [fd00::5]:18090;" in text
    assert text.index("allow fd00::5;") < text.index("allow fd00::6;") < text.index("deny all;")
    assert "limit_except GET { deny all; }" in text
    assert "location ~ /\\. { deny all; }" in text


def test_the_unit_has_no_rights_and_ends_by_itself() -> None:
    argv = peers.task(3600, ["10.0.0.6", "10.0.0.5"]).run_argv()
    for word in ("DynamicUser=yes", "CapabilityBoundingSet=", "RuntimeMaxSec=3600", "IPAddressDeny=any"):
        assert f"--property={word}" in argv
    assert "--property=IPAddressAllow=10.0.0.5 10.0.0.6" in argv


class Unit:
    """Stands for systemd: it remembers what was started."""

    def __init__(self) -> None:
        self.started: list[Any] = []

    def state(self, _unit: str) -> Any:
        return SimpleNamespace(running=bool(self.started))

    def start(self, task: Any) -> None:
        self.started.append(task)


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unit:
    unit = Unit()
    monkeypatch.setattr(peers, "_SYSTEMD", unit)
    monkeypatch.setattr(peers, "FOLDER", str(tmp_path / "serve"))
    monkeypatch.setattr(peers, "_answers", lambda *_where: True)
    return unit


FAULTY = [
    "all; } server { listen 80; root /; } #",
    "fe80::1%; allow all; #",
    "10.0.0.5 0.0.0.0",
    "10.0.0.0/8",
    "any",
    "",
]


@pytest.mark.parametrize("faulty", FAULTY)
def test_what_is_no_address_reaches_neither_nginx_nor_systemd(tmp_path: Path, unit: Unit, faulty: str) -> None:
    for address, allowed in ((faulty, ["10.0.0.6"]), ("10.0.0.5", ["10.0.0.6", faulty])):
        with pytest.raises(WeightsError, match="is no IP address"):
            peers.serve({"m": "/m/m"}, address, 18090, allowed, 60)
    assert unit.started == []
    assert not (tmp_path / "serve").exists()


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_the_unit_s_user_can_read_what_it_serves_whatever_the_umask_is(tmp_path: Path, unit: Unit, umask: int) -> None:
    before = os.umask(umask)
    try:
        peers.serve({"m": "/m/m"}, "10.0.0.5", 18090, ["10.0.0.6"], 60)
    finally:
        os.umask(before)
    folder = tmp_path / "serve"
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "models", folder / "nginx.conf")
    }
    assert modes == {"serve": 0o755, "models": 0o755, "nginx.conf": 0o644}
    assert len(unit.started) == 1


@pytest.mark.parametrize(("address", "url"), [("10.0.0.5", "http://10.0.0.5:1"), ("fd00::5", "http://[fd00::5]:1")])
def test_the_address_of_a_server_is_built_from_its_parts(address: str, url: str) -> None:
    assert peers.url(address, 1) == url


def test_aria2_is_told_the_rate_where_to_go_on_and_all_hosts() -> None:
    argv = transports.aria2_argv(["http://a/f", "http://b/f"], "/m/.x.part", "200M", 60)
    assert argv[0] == transports.ARIA2
    assert argv[-3:] == ["--", "http://a/f", "http://b/f"]
    assert {"--follow-torrent=false", "--follow-metalink=false"} <= set(argv)
    for word in ("max-overall-download-limit=200M", "continue=true", "dir=/m", "out=.x.part", "no-netrc=true"):
        assert f"--{word}" in argv
    assert "--max-overall-download-limit=0" in transports.aria2_argv(["http://a/f"], "/m/x", "", 60)


def test_what_aria2_says_is_shortened_to_the_last_error_without_addresses() -> None:
    said = (
        "11/22 22:44:10 [ERROR] CUID#9 - Download aborted. URI=http://10.0.0.5:1/f\n"
        "Exception: [AbstractCommand.cc:856] errorCode=1 Failed to establish connection, cause: Connection refused\n"
    )
    assert transports.aria2_said(said) == "Failed to establish connection, cause: Connection refused"
    assert transports.aria2_said("") == "aria2 ended early"


class Fleet:
    """Stands for aria2 and the hosts that it asks: ``gives`` is what each host has as the file."""

    def __init__(self, **gives: bytes | int) -> None:
        self.gives, self.right = gives, DATA
        self.asked: list[list[str]] = []
        # aria2 takes a file of the right size without notes beside it for complete.
        self.continues = False
        # How many times the connection is cut after everything came but the last byte.
        self.cut = 0

    def open(self, request: Any, **_more: Any) -> Any:
        given = self.gives[request.host]
        assert isinstance(given, bytes)
        return io.BytesIO(given[: transports.CHUNK])

    def run(self, argv: list[str], **_more: Any) -> Any:
        hosts = [word.split("/")[2] for word in argv if word.startswith("http://")]
        self.asked.append(hosts)
        given = [self.gives[host] for host in hosts]
        for one in given:
            if isinstance(one, int):
                return SimpleNamespace(returncode=one, stdout="errorCode=1 Connection refused", stderr="")
        contents = [one for one in given if isinstance(one, bytes)]
        wrong = [one for one in contents if one != self.right]
        options = dict(word[2:].split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        part = Path(options["dir"]) / options["out"]
        if self.continues and part.exists():
            return SimpleNamespace(returncode=0, stdout="", stderr="")
        if self.cut:
            self.cut -= 1
            part.write_bytes((wrong or contents)[0][:-1])
            return SimpleNamespace(returncode=1, stdout="errorCode=1 Connection reset", stderr="")
        part.write_bytes((wrong or contents)[0])
        return SimpleNamespace(returncode=0, stdout="", stderr="")


def bring(
    folder: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, files: int = 1, data: bytes = DATA
) -> tuple[Any, Any]:
    fleet.right = data
    monkeypatch.setattr(subprocess, "run", fleet.run)
    monkeypatch.setattr(program, "PAUSE_S", 0.01)
    for name in ("staging", "out"):
        (folder / name).mkdir()
    digest = hashlib.sha256(data).hexdigest()
    spec = {
        "kind": "peers",
        "peers": [{"host": host, "url": f"http://{host}/m"} for host in fleet.gives],
        "rate": "",
        "stall_s": 5,
        "attempts": 2,
        "workers": 1,
        "folder": str(folder / "staging"),
        "out": str(folder / "out"),
        "files": {f"f{number}": [len(data), digest, None] for number in range(files)},
    }
    source = transports.Peers(spec, "")
    return program.WeightsDownload(spec, source), source


def test_a_file_comes_from_all_hosts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(a=DATA, b=DATA)
    job, source = bring(tmp_path, fleet, monkeypatch)
    assert list(job.run()) == ["f0"]
    assert (fleet.asked, source.wrong) == ([["a", "b"]], {})
    assert os.listdir(tmp_path / "staging") == ["f0"]


@pytest.mark.parametrize("wrong", [b"x" * len(DATA), DATA + b"more", DATA[:-1]], ids=["content", "longer", "shorter"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_a_host_with_wrong_bytes_is_named_and_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bytes, first: bool
) -> None:
    fleet = Fleet(**({"bad": wrong, "a": DATA, "c": DATA} if first else {"a": DATA, "c": DATA, "bad": wrong}))
    monkeypatch.setattr(transports, "_NEAR", fleet)
    job, source = bring(tmp_path, fleet, monkeypatch, files=2)
    assert sorted(job.run()) == ["f0", "f1"]
    alone = [["bad"], ["a"]] if first else [["a"]]
    assert fleet.asked == [list(fleet.gives), *alone, ["a", "c"]]
    assert list(source.wrong) == ["bad"]
    assert source.wrong["bad"].startswith("f0 ")


def test_if_all_give_wrong_bytes_all_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, source = bring(tmp_path, Fleet(a=b"x" * len(DATA), b=b"y" * len(DATA)), monkeypatch)
    with pytest.raises(transports.FetchFault, match="no host is left that gives f0 right"):
        job.run()
    assert sorted(source.wrong) == ["a", "b"]
    assert os.listdir(tmp_path / "staging") == []


def leave_behind(folder: Path) -> None:
    """What an interrupted download left: the right size, and a hole."""
    entry = [len(DATA), hashlib.sha256(DATA).hexdigest(), None]
    with (folder / "staging" / program.part_name("f0", entry, "peers")).open("wb") as part:
        part.truncate(len(DATA))


def test_a_host_is_not_blamed_for_what_an_earlier_download_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(a=DATA)
    fleet.continues = True
    job, source = bring(tmp_path, fleet, monkeypatch)
    leave_behind(tmp_path)
    assert list(job.run()) == ["f0"]
    assert (fleet.asked, source.wrong) == ([["a"], ["a"]], {})
    assert (tmp_path / "staging" / "f0").read_bytes() == DATA


def test_a_host_that_gives_wrong_bytes_from_zero_is_blamed_also_after_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(a=b"x" * len(DATA))
    fleet.continues = True
    job, source = bring(tmp_path, fleet, monkeypatch)
    leave_behind(tmp_path)
    with pytest.raises(transports.FetchFault, match="no host is left that gives f0 right"):
        job.run()
    assert (fleet.asked, list(source.wrong)) == ([["a"], ["a"]], ["a"])


def test_several_hosts_are_asked_at_once_again_after_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(a=DATA, b=DATA)
    fleet.continues = True
    job, source = bring(tmp_path, fleet, monkeypatch)
    leave_behind(tmp_path)
    assert list(job.run()) == ["f0"]
    assert (fleet.asked, source.wrong) == ([["a", "b"], ["a", "b"]], {})


def test_what_an_attempt_of_this_download_left_is_blamed_on_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(a=b"x" * len(DATA))
    fleet.cut = 1
    job, source = bring(tmp_path, fleet, monkeypatch)
    with pytest.raises(transports.FetchFault, match="no host is left that gives f0 right"):
        job.run()
    assert (len(fleet.asked), list(source.wrong)) == (2, ["a"])


def test_an_empty_file_that_came_wrong_from_several_hosts_names_the_wrong_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(a=b"", bad=b"more", c=b"")
    monkeypatch.setattr(transports, "_NEAR", fleet)
    job, source = bring(tmp_path, fleet, monkeypatch, data=b"")
    assert list(job.run()) == ["f0"]
    assert fleet.asked == [["a", "bad", "c"], ["a"]]
    assert list(source.wrong) == ["bad"]


def test_hosts_that_cannot_be_reached_are_tried_again_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(a=1)
    job, source = bring(tmp_path, fleet, monkeypatch)
    with pytest.raises(transports.FetchFault, match="f0 from a: Connection refused"):
        job.run()
    assert (len(fleet.asked), source.wrong) == (2, {})


@pytest.mark.parametrize(("code", "said"), [(3, "a no longer gives f0"), (9, "f0: No space left on device")])
def test_what_cannot_change_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    fleet = Fleet(a=code)
    job, _source = bring(tmp_path, fleet, monkeypatch)
    with pytest.raises(transports.FetchFault, match=said):
        job.run()
    assert len(fleet.asked) == 1


def test_holes_are_not_counted_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "part"
    with path.open("wb") as stream:
        stream.truncate(10_000_000)
    assert transports.arrived(str(path), "peers") < 1_000_000
    assert transports.arrived(str(path), "hub") == 10_000_000


def test_what_came_from_hosts_is_never_continued_by_another_source() -> None:
    entry = [3, "a" * 64, None]
    assert program.part_name("f", entry, "peers") != program.part_name("f", entry, "url")
