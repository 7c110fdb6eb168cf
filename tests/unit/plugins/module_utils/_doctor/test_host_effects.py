# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real effects: programs that end, hang or are not there, files, sysfs, and the script inside the stack."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build.memory import Room
from ansible_collections.arcpro.b70.plugins.module_utils._doctor import bundle, host, inside, report
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Command, Look, Output, Read
from machine import assert_ends
from unit.plugins.module_utils._doctor.hosts import SETTINGS, card, out, site


def run(*argv: str, **more: Any):
    return host.run_command(Command(argv, **more), {})


def test_a_command_gives_its_output_its_code_and_what_it_is_told():
    told = run(sys.executable, "-c", "import os,sys; print(os.environ['A'], sys.stdin.read()); sys.exit(3)",
               env=(("A", "b"),), stdin="in")  # fmt: skip
    assert (told.code, told.out, told.problem, told.ok) == (3, "b in\n", "", False)
    assert run("true").ok
    assert run("sh", "-c", "echo first; echo why >&2; exit 2").why() == "it ended with 2: why"


def test_a_program_that_is_not_there_or_may_not_be_run(tmp_path: Path):
    assert run("no-such-program").problem == "no-such-program is not installed"
    plain = tmp_path / "plain"
    plain.write_text("")
    assert run(str(plain)).problem == f"{plain} cannot be run: Permission denied"


@pytest.mark.real_time
def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path):
    pid = tmp_path / "pid"
    told = run("sh", "-c", f"sleep 600 & echo $! > {pid}; wait", limit_s=1)
    assert told.problem == "sh did not end within 1 s"
    assert_ends(pid)


def test_files_are_read_up_to_their_limit(tmp_path: Path):
    for name in ("b", "a"):
        (tmp_path / name).write_text(name * 10)
    (tmp_path / "folder").mkdir()
    effects = host.DoctorHost(site())
    read = effects.read(Read((f"{tmp_path}/*", "/no/such"), max_bytes=3))
    assert read == {f"{tmp_path}/a": "aaa", f"{tmp_path}/b": "bbb"}


class Quiet(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503 if self.path == "/status" else 200)
        self.end_headers()
        self.wfile.write(b'{"open": false}')

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_http_answers_with_any_status_and_refusals_with_their_reason():
    server = HTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    assert host.http_get(f"{url}/status") == {"status": 503, "body": '{"open": false}', "error": ""}
    assert host.http_get(f"{url}/")["status"] == 200
    server.shutdown()
    server.server_close()
    gone = host.http_get(f"{url}/status")
    assert (gone["status"], "refused" in gone["error"]) == (0, True)


def test_cache_directories(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("")
    assert host.existing(str(tmp_path / "a" / "b")) == str(tmp_path)
    assert host.cache_problem(str(tmp_path), str(tmp_path), True) == ""
    assert host.cache_problem(str(file), str(file), True) == "it is not a directory"
    missing = host.cache_problem(str(tmp_path / "a"), str(tmp_path), False)
    assert missing == f"it does not exist and {tmp_path} is not writable"
    tmp_path.chmod(0o555)
    assert host.cache_problem(str(tmp_path), str(tmp_path), False).startswith("mode 0555, owner uid ")
    tmp_path.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="asks the kernel as another user")
def test_the_kernel_is_asked_as_the_service_user():
    nobody = {"uid": 65534, "group": "nogroup", "groups": ["nogroup"], "gids": [65534]}
    # pytest's own folders are closed for others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o755)
        closed, free = Path(name, "closed"), Path(name, "free")
        for folder, mode in ((closed, 0o700), (free, 0o777)):
            folder.mkdir()
            folder.chmod(mode)
        settings = {"cache_dirs": [str(closed), str(free)], "user": "nobody"}
        rows = host.DoctorHost(site(account=nobody, wanted=[], settings=settings)).look(Look("cache-directories"))
    assert [bool(row["problem"]) for row in rows] == [True, False]


@pytest.mark.skipif(os.geteuid() != 0, reason="a checkout of another user")
def test_programs_that_a_checkout_names_run_as_its_owner():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o755)
        tree, seen = Path(name, "src"), Path(name, "seen")
        tree.mkdir()
        seen.touch()
        seen.chmod(0o666)
        git = ["git", "-C", str(tree), "-c", "user.name=x", "-c", "user.email=x@example.org"]
        (tree / "file").write_text("one\n")
        for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"],
                      ["config", "filter.mine.clean", f"sh -c 'id -u > {seen}; cat'"]):  # fmt: skip
            subprocess.run([*git, *words], check=True)
        (tree / ".git/info/attributes").write_text("* filter=mine\n")
        (tree / "file").write_text("two\n")
        for path in (tree, *tree.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        effects = host.DoctorHost(site())
        asked = [item.probe for item in bundle.checkouts({f"{tree}/.git/HEAD": "r"})]
        said = [effects.run(probe) for probe in asked if isinstance(probe, Command)]
        assert [output.ok for output in said] == [True, True]
        assert "+two" in said[1].out
        assert seen.read_text() == "65534\n"


def test_the_way_to_a_card_with_the_link_files_of_every_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host, "SYSFS", str(tmp_path))
    way = ["0000:00:01.1", "0000:01:00.0", "0000:02:01.0", "0000:03:00.0"]
    folder = tmp_path / "devices" / "pci0000:00"
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    for number, address in enumerate(way):
        folder = folder / address
        folder.mkdir(parents=True)
        (folder / "current_link_width").write_text(f"{16 if number < 2 else 1}\n")
        (folder / "link").mkdir()
        (folder / "link/l1_1_aspm").write_text(f"{int(number == 1)}\n")
        (tmp_path / "bus/pci/devices" / address).symlink_to(folder)
    found = host.DoctorHost(site(cards=1)).look(Look("pci-paths"))
    assert list(found[card(0)["address"]]) == way
    assert [device["current_link_width"] for device in found[card(0)["address"]].values()] == ["16", "16", "1", "1"]
    assert [device["link/l1_1_aspm"] for device in found[card(0)["address"]].values()] == ["0", "1", "0", "0"]


def test_a_device_file_that_is_not_there_is_no_crash():
    gone = site(cards=1, account={"uid": os.getuid(), "group": "x", "groups": [], "gids": [os.getgid()]})
    gone = replace(gone, cards=[card(0, render_node="/dev/dri/renderD250")])
    (row,) = host.DoctorHost(gone).look(Look("device-nodes"))
    assert (row["path"], row["usable"]) == ("/dev/dri/renderD250", False)


def test_the_room_for_a_build_is_that_of_the_folder_where_it_is_made(tmp_path: Path):
    where = site(settings={"build_dir": str(tmp_path / "a/src"), "build_swap": None})
    room = Room(**host.DoctorHost(where).look(Look("build-room")))
    assert (room.addable_gib, room.why_not) == (0.0, "")
    assert room.disk_gib == pytest.approx(shutil.disk_usage(tmp_path).free / 2**30, abs=1)


def test_libraries_of_the_driver_with_the_files_that_links_lead_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "libigc.so.2.38.2+1782393643").write_text("")
    (tmp_path / "libigc.so.2").symlink_to("libigc.so.2.38.2+1782393643")
    listing = f"\tlibigc.so.2 (libc6,x86-64) => {tmp_path}/libigc.so.2\n\tlibz.so.1 (libc6,x86-64) => /lib/libz.so.1\n"
    effects = host.DoctorHost(site())
    monkeypatch.setattr(effects, "run", lambda command: out(listing))
    assert effects.look(Look("driver-libraries")) == [
        {"name": "libigc.so.2", "path": f"{tmp_path}/libigc.so.2", "file": f"{tmp_path}/libigc.so.2.38.2+1782393643"}
    ]
    monkeypatch.setattr(effects, "run", lambda command: Output(problem="ldconfig is not installed"))
    with pytest.raises(LookupError, match="ldconfig is not installed"):
        effects.look(Look("driver-libraries"))


def test_what_is_wanted_is_what_boots_what_is_served_and_what_was_named(tmp_path: Path):
    settings = {**SETTINGS, "config_dir": str(tmp_path / "etc"), "run_dir": str(tmp_path / "run"),
                "profiles": ["named", "gone"], "unit_dir": str(tmp_path / "units")}  # fmt: skip
    (tmp_path / "etc/profiles").mkdir(parents=True)
    for name in ("boots", "served", "named", "other"):
        (tmp_path / f"etc/profiles/{name}.json").write_text(json.dumps({"name": name, "engine": {}, "model": {}}))
    (tmp_path / "units/multi-user.target.wants").mkdir(parents=True)
    (tmp_path / "units/multi-user.target.wants/b70-slot-main-boots.service").symlink_to("/x")
    (tmp_path / "run/main").mkdir(parents=True)
    state = {"phase": "serving", "verified": True, "profile": {"name": "served"}}
    (tmp_path / "run/main/state.json").write_text(json.dumps(state))
    found = host.survey(settings, {})
    assert [item["name"] for item in found.wanted] == ["named", "boots", "served"]
    assert found.serving == "served"
    (tmp_path / "run/main/state.json").write_text(json.dumps({**state, "phase": "stopped"}))
    assert host.slot_state(settings) == {}


TORCH = """
class xpu:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    get_device_name = staticmethod(lambda number: f"card {number}")
print("an import that talks")
"""


def asked_inside(folder: Path, files: dict[str, str]) -> dict[str, Any]:
    """What the script says in an environment with these modules, run as the doctor runs it: on standard input."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-B", "-", json.dumps({"torch": True, "vllm": True})],
        input=Path(inside.__file__).read_text(), env={"PYTHONPATH": str(folder)}, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout)
    assert "talks" in done.stderr or "torch" in answer["errors"]
    return answer


def test_the_script_inside_tells_what_torch_and_vllm_find(tmp_path: Path):
    platforms = "class current_platform:\n    device_type = 'xpu'\n"
    files = {"torch/__init__.py": TORCH, "torch/distributed.py": "is_xccl_available = lambda: True\n",
             "vllm/__init__.py": "", "vllm/platforms.py": platforms}  # fmt: skip
    answer = asked_inside(tmp_path, files)
    assert answer["xpu"] == {"available": True, "count": 2, "names": ["card 0", "card 1"]}
    assert (answer["xccl"], answer["platform"], answer["errors"]) == (True, "xpu", {})


def test_the_script_inside_tells_what_cannot_be_imported(tmp_path: Path):
    answer = asked_inside(tmp_path, {"torch.py": "raise ImportError('undefined symbol: _ZN5torch')\n"})
    assert answer["errors"] == {"torch": "ImportError: undefined symbol: _ZN5torch"}
    assert (answer["xpu"], answer["platform"]) == (None, None)


def test_the_archive_is_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "report.tar.gz"
    assert report.write(str(path), b"abc") == 3
    assert path.stat().st_mode & 0o777 == 0o600
