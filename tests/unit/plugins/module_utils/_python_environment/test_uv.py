# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""With the real uv, against small indexes on loopback."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._python_environment import host, job, plan, spec
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError, WorkFolder
from machine import assert_ends
from unit.plugins.module_utils._python_environment.uv_kit import NOWHERE, PYTHON, UV, Server, place, step, wheel
from unit.plugins.module_utils._work.units import Systemd, program


@pytest.fixture
def index(tmp_path):
    server = Server(tmp_path / "index")
    yield server
    server.close()


@pytest.fixture
def other(tmp_path):
    server = Server(tmp_path / "other")
    yield server
    server.close()


def wanted(*steps, **more):
    return plan.WantedEnvironment(PYTHON, steps, **more)


def imports(where, *names):
    done = subprocess.run(
        [where.python, "-I", "-c", f"import {', '.join(names)}"], capture_output=True, timeout=60, check=False
    )
    return done.returncode == 0


def test_steps_come_in_order_from_their_own_addresses_and_a_second_run_asks_nobody(tmp_path, index):
    first = step("demo==1.0+xpu", index.wheel("demo", "1.0+xpu"), index=index.simple)
    lock = step("other==2.0", index.wheel("other", "2.0"), index=index.simple, compile=True)
    where, what = place(tmp_path), wanted(first, lock)
    work, found = host.make(where, what)
    assert work.kind == "anew"
    assert [item["place"] for item in found["came"]] == [index.simple, index.simple]
    assert imports(where, "demo", "other")
    assert list(where.path.glob("lib/*/site-packages/demo/__pycache__/*.pyc"))
    assert not (where.path / ".lock").exists()
    asked = len(index.asked)
    assert host.make(where, what)[0].kind == "nothing"
    assert len(index.asked) == asked


def test_bytecode_is_compiled_only_where_a_step_asks(tmp_path, index):
    where = place(tmp_path)
    host.make(where, wanted(step("demo==1.0", index.wheel("demo", "1.0"), index=index.simple)))
    assert not list(where.path.glob("lib/*/site-packages/demo/__pycache__/*"))


def test_what_the_cache_has_is_installed_without_the_network(tmp_path, index):
    what = wanted(step("demo==1.0", index.wheel("demo", "1.0"), index=index.simple))
    host.make(place(tmp_path), what)
    asked = len(index.asked)
    second = place(tmp_path, path=tmp_path / "second")
    _work, found = host.make(second, what)
    assert found["came"][0]["place"] == "the cache"
    assert len(index.asked) == asked
    assert imports(second, "demo")


def test_a_folder_of_the_operator_comes_before_the_vendor(tmp_path, index):
    digest = wheel(tmp_path / "wheels", "demo", "1.0")
    where = place(tmp_path, sources=plan.Sources(find_links=(str(tmp_path / "wheels"),), no_index=True))
    host.make(where, wanted(step("demo==1.0", digest, index=index.simple)))
    assert index.asked == []


def test_with_no_index_the_vendor_is_never_asked(tmp_path, index):
    digest = index.wheel("demo", "1.0")
    where = place(tmp_path, sources=plan.Sources(no_index=True))
    with pytest.raises(host.EnvironmentProblem, match=r"no source \(no index is allowed, find_links is empty\)"):
        host.make(where, wanted(step("demo==1.0", digest, index=index.simple)))
    assert index.asked == []


def test_without_a_hash_only_its_own_index_is_asked_and_what_came_is_reported(tmp_path, index, other):
    for tag in ("cp39-cp39-linux_x86_64", "py3-none-any"):
        digest = index.wheel("demo", "1.0+xpu", tag)
    other.wheel("demo", "1.0+xpu", body="evil = 1\n")
    where = place(tmp_path, sources=plan.Sources(extra_index_urls=(other.simple,)))
    where.variables = {**where.variables, "UV_DEFAULT_INDEX": other.simple}
    what = wanted(step("demo==1.0+xpu", index=index.simple))
    _work, found = host.make(where, what)
    assert other.asked == []
    assert found["wheels"] == {"demo==1.0+xpu": f"sha256:{digest}"}
    # ... and is known without asking again
    assert host.make(where, what)[1]["wheels"] == found["wheels"]


@pytest.mark.parametrize("published", [True, False])
def test_what_had_no_hash_comes_from_the_cache_where_the_index_gave_its_digest(tmp_path, index, published):
    digest = index.wheel("demo", "1.0")
    if published:
        index.publish("demo")
    what = wanted(step("demo==1.0", index=index.simple))
    host.make(place(tmp_path), what)
    asked = len(index.asked)
    found = host.make(place(tmp_path, path=tmp_path / "second"), what)[1]
    assert found["wheels"] == {"demo==1.0": f"sha256:{digest}"}
    assert (len(index.asked) == asked) == published


def test_the_digest_is_that_of_the_wheel_that_was_taken(tmp_path, index):
    version = subprocess.run(
        [PYTHON, "-c", "import sys; print(*sys.version_info[:2], sep='')"], capture_output=True, text=True, check=True
    )
    mine = f"cp{version.stdout.strip()}"
    index.wheel("demo", "1.0", "py3-none-any")
    digest = index.wheel("demo", "1.0", f"{mine}-{mine}-linux_x86_64")
    _work, found = host.make(place(tmp_path), wanted(step("demo==1.0", index=index.simple)))
    assert found["wheels"] == {"demo==1.0": f"sha256:{digest}"}


def test_without_a_hash_the_mirror_is_as_good_and_the_vendor_is_not_asked(tmp_path, index):
    digest = wheel(tmp_path / "wheels", "demo", "1.0")
    where = place(tmp_path, sources=plan.Sources(find_links=(str(tmp_path / "wheels"),), no_index=True))
    _work, found = host.make(where, wanted(step("demo==1.0", index=index.simple)))
    assert found["wheels"] == {"demo==1.0": f"sha256:{digest}"}
    assert index.asked == []


@pytest.mark.parametrize("hashed", [True, False])
def test_a_wheel_with_an_address_of_its_own_stays_when_the_lock_names_it_too(tmp_path, index, hashed):
    digest = index.wheel("demo", "1.0+xpu")
    url = f"{index.simple}/demo/demo-1.0+xpu-py3-none-any.whl"
    where = place(tmp_path)
    lock = step("demo==1.0+xpu", digest)
    _work, found = host.make(where, wanted(step("demo==1.0+xpu", digest if hashed else "", url=url), lock))
    assert found["wheels"] == ({} if hashed else {"demo==1.0+xpu": f"sha256:{digest}"})
    assert imports(where, "demo")


def test_another_wheel_than_the_pinned_one_is_refused(tmp_path, index):
    index.wheel("demo", "1.0")
    where = place(tmp_path)
    with pytest.raises(host.EnvironmentProblem, match="not what is pinned"):
        host.make(where, wanted(step("demo==1.0", "0" * 64, index=index.simple)))
    assert not imports(where, "demo")
    assert host.look(where, wanted())[0].kind == "anew"


def test_an_unreachable_address_is_named_with_what_to_do(tmp_path):
    own = "http://someone:hunter2@127.0.0.1:9/own"
    with pytest.raises(host.EnvironmentProblem) as caught:
        host.make(place(tmp_path), wanted(step("demo==1.0", "0" * 64, index=own)))
    message = str(caught.value)
    assert "Connection refused" in message
    assert f"{NOWHERE}/demo/" in message
    assert "127.0.0.1:9/own" in message
    assert "Let the host reach" in message
    assert "hunter2" not in message


def test_what_an_index_lacks_is_said(tmp_path, index):
    index.wheel("demo", "1.0")
    where = place(tmp_path)
    with pytest.raises(host.EnvironmentProblem, match=r"no version of demo==3\.0"):
        host.make(where, wanted(step("demo==3.0", "0" * 64, index=index.simple)))


def test_an_interrupted_environment_is_made_anew_from_the_cache(tmp_path, index):
    good = step("demo==1.0", index.wheel("demo", "1.0"), index=index.simple)
    bad = step("gone==1.0", "0" * 64, index=index.simple)
    where = place(tmp_path)
    with pytest.raises(host.EnvironmentProblem):
        host.make(where, wanted(good, bad))
    # half of an installation: registered, but not there
    (package,) = where.path.glob("lib/*/site-packages/demo/__init__.py")
    package.unlink()
    _work, found = host.make(where, wanted(good))
    assert found["came"][0]["place"] == "the cache"
    assert imports(where, "demo")
    assert package.exists()


def test_further_steps_are_added_and_stay_for_the_call_that_announced_them(tmp_path, index):
    one = step("demo==1.0", index.wheel("demo", "1.0"), index=index.simple)
    built = wheel(tmp_path / "built", "kernels", "0.1")
    text = f"kernels @ file://{tmp_path}/built/kernels-0.1-py3-none-any.whl --hash=sha256:{built}"
    two = plan.InstallStep("kernels", text, True, compile=True)
    where = place(tmp_path, sources=plan.Sources(no_index=True))
    host.make(place(tmp_path), wanted(one, more_follows=True))
    marker = where.path / "here"
    marker.touch()
    work, found = host.make(where, wanted(one, two))
    assert (work.kind, work.first, marker.exists(), len(found["came"])) == ("go on", 1, True, 2)
    assert host.make(where, wanted(one, more_follows=True))[0].kind == "nothing"
    assert host.look(where, wanted(one))[0].kind == "anew"
    assert imports(where, "demo", "kernels")


def source_archive(folder, backend):
    """The sources of thing 1.0, which a backend builds."""
    archive = folder / "thing-1.0.tar.gz"
    files = {
        "pyproject.toml": '[project]\nname = "thing"\nversion = "1.0"\nrequires-python = ">=3.9"\n'
        f'[build-system]\nrequires = ["{backend}"]\nbuild-backend = "{backend}"\n',
        "src/thing/__init__.py": "x = 1\n",
    }
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"thing-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive


@pytest.mark.parametrize("hashed", [True, False])
def test_a_source_archive_of_this_host_is_built_offline(tmp_path, hashed):
    archive = source_archive(tmp_path, "uv_build")
    digest = f" --hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}" if hashed else ""
    where = place(tmp_path)
    thing = plan.InstallStep("thing", f"thing @ file://{archive}{digest}", hashed, build=True)
    _work, found = host.make(where, wanted(thing, imports=("thing",)))
    assert found["wheels"] == {}
    assert imports(where, "thing")


BACKEND = """
import os, sys, zipfile

def build_wheel(folder, settings=None, metadata=None):
    if "HOW" not in os.environ:
        print("first\\n" * 200, "thing.c:7: error: there is no HOW", file=sys.stderr)
        sys.exit(1)
    name = "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as file:
        file.writestr("thing.py", f"how = {os.environ['HOW']!r}")
        file.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n")
        file.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr("thing-1.0.dist-info/RECORD", "")
    return name
"""


def test_what_builds_a_step_does_not_stay_and_a_failed_build_says_what_the_compiler_said(tmp_path):
    archive = source_archive(tmp_path, "backend")
    hashed = f"backend==1.0 --hash=sha256:{wheel(tmp_path / 'wheels', 'backend', '1.0', body=BACKEND)}"
    where = place(tmp_path, sources=plan.Sources(find_links=(str(tmp_path / "wheels"),), no_index=True))

    def thing(**variables):
        step = plan.InstallStep(
            label="thing",
            requirements=f"thing @ file://{archive}",
            hashed=False,
            build=True,
            build_requirements=hashed,
            build_variables=variables,
            advice="Set less.",
        )
        return wanted(step, imports=("thing",))

    # the same archive, built in two ways
    for how in ("compiled", "interpreted"):
        assert host.make(where, thing(HOW=how))[0].kind == "anew"
        told = [str(where.python), "-I", "-c", "import thing; print(thing.how)"]
        assert subprocess.run(told, capture_output=True, text=True, timeout=60, check=True).stdout == f"{how}\n"
        assert host.make(where, thing(HOW=how))[0].kind == "nothing"
    assert not imports(where, "backend")
    with pytest.raises(host.EnvironmentProblem) as failed:
        host.make(where, thing())
    lines = str(failed.value).splitlines()
    assert lines[0] == f"thing could not be installed into {where.path}."
    assert lines[-1] == "Set less."
    assert "thing.c:7: error: there is no HOW" in lines[-2]
    assert len(str(failed.value)) < 2000
    (other,) = thing(HOW="x").steps
    left = where.path.parent / f".{where.path.name}-build-left"
    (left / "mypy").mkdir(parents=True)
    with pytest.raises(host.EnvironmentProblem, match=r"(?s)what builds thing could not be installed.*Set less\."):
        host.make(where, wanted(dataclasses.replace(other, build_requirements=hashed.replace("1.0 ", "1.1 "))))
    assert [entry.name for entry in where.path.parent.iterdir() if entry.name.startswith(".")] == []


def test_an_environment_that_cannot_import_what_it_is_for_is_not_finished(tmp_path):
    where = place(tmp_path)
    with pytest.raises(host.EnvironmentProblem, match="No module named 'thing'"):
        host.make(where, wanted(imports=("json", "thing")))
    assert host.look(where, wanted())[0].kind == "anew"


def test_aliases_are_registered(tmp_path, index):
    where = place(tmp_path)
    what = wanted(
        step("demo==1.0", index.wheel("demo", "1.0"), index=index.simple),
        aliases=(plan.Alias("demo-under-another-name", "1.0", "demo"),),
    )
    host.make(where, what)
    asks = "import importlib.metadata as m; print(m.version('demo-under-another-name'))"
    said = subprocess.run([where.python, "-I", "-c", asks], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.strip() == "1.0"
    assert host.make(where, what)[0].kind == "nothing"


def test_two_at_once_download_once(tmp_path, index):
    what = wanted(step("demo==1.0", index.wheel("demo", "1.0"), index=index.simple))
    threads = [threading.Thread(target=host.make, args=(place(tmp_path), what)) for _thread in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len([path for path in index.asked if path.endswith(".whl")]) == 1
    assert imports(place(tmp_path), "demo")


def test_who_holds_the_lock_for_too_long_is_not_waited_for_for_ever(tmp_path):
    with (
        host.alone(tmp_path / "cache/uv", 1),
        pytest.raises(host.EnvironmentProblem, match="another process has held"),
        host.alone(tmp_path / "cache/uv", 0.3),
    ):
        pass


def test_a_uv_that_outlives_its_caller_keeps_the_lock(tmp_path):
    slow = tmp_path / "uv"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nuntil [ -e {tmp_path}/go ]; do sleep 0.1; done\n")
    slow.chmod(0o755)
    program = (
        "from pathlib import Path; from ansible_collections.arcpro.b70.plugins.module_utils._python_environment import "
        f"host, plan; here = Path({str(tmp_path)!r}); "
        f"place = host.EnvironmentPaths(here / 'env', {str(slow)!r}, here / 'cache/uv', here); "
        f"host.make(place, plan.WantedEnvironment({PYTHON!r}, ()))"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    limit = time.monotonic() + 120
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    caller.kill()
    caller.wait(10)
    with pytest.raises(host.EnvironmentProblem, match="another process"), host.alone(tmp_path / "cache/uv", 0.5):
        pass
    (tmp_path / "go").touch()
    with host.alone(tmp_path / "cache/uv", 120):
        pass


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    where = place(tmp_path)
    (where.path / "photos").mkdir(parents=True)
    with pytest.raises(host.EnvironmentProblem, match="it contains photos"):
        host.make(where, wanted())
    assert (where.path / "photos").is_dir()


@pytest.mark.real_time
def test_a_step_that_does_not_end_is_ended_with_all_its_children(tmp_path):
    slow = tmp_path / "uv"
    slow.write_text(f"#!/bin/sh\nsleep 600 & echo $! > {tmp_path}/pid\nwait\n")
    slow.chmod(0o755)
    with pytest.raises(host.EnvironmentProblem, match="did not end within 1 s"):
        host.make(place(tmp_path, uv=str(slow), timeout=1.0), wanted())
    assert_ends(tmp_path / "pid")


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    found = Systemd()
    monkeypatch.setattr(job.Installation, "systemd", found)
    monkeypatch.setattr(job, "_FOLDERS", tmp_path / "run")
    return found


def installation(tmp_path, requirements, token="1", **more):
    given = {key: option.get("default") for key, option in spec.ARGUMENTS.items()}
    one = {"label": "demo", "requirements": requirements, "hashed": True, "index": "", "url": "", "compile": False}
    paths = {"path": str(tmp_path / "env"), "uv": UV, "uv_cache_dir": str(tmp_path / "cache/uv"), "python": PYTHON}
    return job.Installation({**given, **paths, "steps": [one], "token": token, **more})


def test_the_unit_makes_the_environment_says_how_far_it_is_and_is_told_no_password_by_a_file(
    tmp_path, systemd, monkeypatch
):
    requirements = f"demo==1.0 --hash=sha256:{wheel(tmp_path / 'wheels', 'demo', '1.0')}"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://me:hidden@127.0.0.1:9/simple")
    one = installation(tmp_path, requirements, find_links=[str(tmp_path / "wheels")])
    one.start(program(tmp_path))
    holding = [file for file in one.folder.path.rglob("*") if file.is_file() and b"hidden" in file.read_bytes()]
    assert [(file.name, file.stat().st_mode & 0o777) for file in holding] == [("secret", 0o600)]
    said, save = [], WorkFolder.save_seen

    def save_seen(folder, seen):
        save(folder, seen)
        said.append(one.answer("look")["progress"])

    monkeypatch.setattr(WorkFolder, "save_seen", save_seen)
    job.main(str(one.folder.path))
    assert [now["text"] for now in said if now] == ["making an empty environment", "step 1 of 1: demo from the cache"]
    systemd.end()
    found = one.answer("start")
    assert (found["state"], found["changed"], found["reason"]) == ("ended", True, "there is no finished environment")
    one.answer("acknowledge")
    assert not one.folder.path.exists()


def test_an_installation_that_was_killed_goes_on_and_other_steps_for_its_path_wait(tmp_path, systemd):
    installation(tmp_path, "demo==1.0").start(program(tmp_path))
    with pytest.raises(WorkError, match=rf"under way, with other steps for {tmp_path}/env: run this again"):
        installation(tmp_path, "demo==2.0", token="2").start(program(tmp_path))
    systemd.end("oom-kill")
    found = installation(tmp_path, "demo==1.0").answer("look")
    assert found["msg"] == "the installation broke off: the kernel ended it for memory"
    assert installation(tmp_path, "demo==2.0", token="2").start(program(tmp_path)).state == "running"


def test_a_host_without_uv_is_told_how_to_get_it(tmp_path):
    with pytest.raises(host.EnvironmentProblem, match=r"run the role arcpro\.b70\.host first"):
        host.make(place(tmp_path, uv=str(tmp_path / "no/uv")), wanted())


class TestPythons:
    def fixture(self, tmp_path, server, content):
        listing = subprocess.run(
            [place(tmp_path).uv, "python", "list", "--only-downloads", "--output-format", "json", "3.12"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        url = next(item["url"] for item in json.loads(listing.stdout) if item["implementation"] == "cpython")
        release, name = url.split("/")[-2:]
        target = server.folder / "python" / release / name.replace("%2B", "+")
        target.parent.mkdir(parents=True)
        target.write_bytes(content)
        return name

    def test_the_systems_is_taken_where_it_is(self, tmp_path):
        system = tmp_path / "python3.12"
        system.symlink_to(PYTHON)
        where = place(tmp_path, system_python=str(tmp_path / "python{}"))
        assert host.Making(where, plan.WantedEnvironment("3.12", ())).interpreter() == str(system)

    def test_a_wrong_archive_of_the_mirror_is_refused(self, tmp_path, index):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            tar.addfile(tarfile.TarInfo("python/bin/python3.12"), io.BytesIO(b""))
        name = self.fixture(tmp_path, index, packed.getvalue())
        where = place(tmp_path, python_mirror=f"{index.url}/python/", system_python=str(tmp_path / "none{}"))
        with pytest.raises(host.EnvironmentProblem, match=r"(?is)hash mismatch.*b70_mirror_url"):
            host.make(where, plan.WantedEnvironment("3.12", ()))
        assert any(path.endswith(name) for path in index.asked)
        assert not list(tmp_path.glob("python/cpython-*"))

    def test_a_mirror_that_does_not_answer_is_named(self, tmp_path):
        where = place(tmp_path, python_mirror="http://127.0.0.1:9/python", system_python=str(tmp_path / "none{}"))
        with pytest.raises(host.EnvironmentProblem, match=r"Let the host reach http://127\.0\.0\.1:9/python/"):
            host.make(where, plan.WantedEnvironment("3.12", ()))

    def test_an_environment_whose_python_is_gone_is_made_anew(self, tmp_path):
        where = place(tmp_path)
        host.make(where, wanted())
        where.python.unlink()
        where.python.symlink_to("/nowhere/python3")
        assert host.look(where, wanted())[0].why == "its Python cannot be run"
        host.make(where, wanted())
        assert host.look(where, wanted())[0].kind == "nothing"
