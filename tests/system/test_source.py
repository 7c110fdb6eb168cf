# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stack from source on hosts that reach nothing but a mirror: filled, predicted, built, killed, resumed, shared.

The first host fills the mirror out of the vendors as the lab plays them; then the way out is closed. The second builds
and serves, the third takes its wheels. The tests are one story in this order, in a lab of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from demo import inventory_hosts
from system.product import (
    INVENTORY,
    ROOT,
    Frontdoor,
    Play,
    answer_of,
    bare_hosts,
    lab_command,
    play,
    reach,
    until,
    words_of,
)
from system.test_pristine import MARKER, changed_files
from vendor import goods, repository
from vendor.server import Vendors, gateway, serve, vendors

LAB = "source"
MIRROR, BUILDER, OTHER = (f"{LAB}{number}" for number in (1, 2, 3))
SYSTEM = "debian 12"
STACK = "lab-2.11-fixture"
# On the hosts: not the cache that all hosts of the lab share, so that nothing can come from an earlier run.
CACHE = "/var/cache/source"
# On the first host, in the cache that they do share: only what is new has to be downloaded the next time.
KEPT = "/var/cache/b70/vendor-mirror"
SRC = "/mnt/fast-ai/src"
OBJECTS = f"find {SRC} -name '*.o' -path '*vllm-xpu-kernels*' -printf '%f %T@ %i\\n'"
UNITS = "systemctl list-units --all --no-legend --plain 'b70-build-*.service'"
PATCH = "patches/kernels-for-another-torch.patch"
PACK = f"git/steveseguin/b70-optimization-lab/b70-*-{hashlib.sha256(PATCH.encode()).hexdigest()[:12]}.pack"
ALL = "host,gpu_driver,oneapi,stack"


@pytest.fixture(scope="session")
def stock() -> goods.Goods:
    return goods.make()


@pytest.fixture(scope="session")
def hosts() -> Iterator[dict[str, dict[str, Any]]]:
    """Three bare hosts, by name."""
    missing = repository.missing_tools()
    assert not missing, f"install them first: apt-get install {' '.join(missing)}"
    with bare_hosts(LAB, 3):
        lab_command("nat", "on")
        yield inventory_hosts(str(INVENTORY), "b70_hosts")


@pytest.fixture(scope="session")
def builder(hosts: dict[str, dict[str, Any]]) -> Host:
    return reach(hosts[BUILDER])


@pytest.fixture(scope="session")
def other(hosts: dict[str, dict[str, Any]]) -> Host:
    return reach(hosts[OTHER])


@pytest.fixture(scope="session")
def shop(hosts: dict[str, Any], stock: goods.Goods, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vendors]:
    with vendors(tmp_path_factory.mktemp("vendor"), gateway(), stock) as made:
        yield made


@dataclass(frozen=True)
class Mirror:
    """`root` is what is served at `url`."""

    url: str
    fingerprint: str
    root: Path


@pytest.fixture(scope="session")
def mirror(shop: Vendors) -> Iterator[Mirror]:
    """What the first host brings from the vendors; afterwards no host has a way out."""
    given = {
        **shop.variables(SYSTEM),
        **shop.sources(),
        "b70_mirror_machine": MIRROR,
        "mirror_dir": f"{KEPT}/www",
        "mirror_key_home": f"{KEPT}/key",
        # Large, and nothing is measured here; tests/checks/test_mirror_measuring_tools.py has them.
        "mirror_measuring_tools": False,
    }
    done = play(ROOT / "playbooks" / "mirror.yml", "-e", json.dumps(given), limit_s=3600)
    assert done.code == 0, done.output[-6000:]
    found = re.search(r"b70_mirror_key_fingerprint: ([0-9A-F]{40})", done.output)
    assert found, done.output[-3000:]
    lab_command("nat", "off")
    root = ROOT / ".lab/cache/host" / Path(KEPT).name / "www"
    with serve(root, gateway()) as url:
        yield Mirror(url, found[1], root)


class Operator:
    """Runs the shipped plays with nothing but the mirror's variables and what the lab's hosts lack."""

    def __init__(self, mirror: Mirror, stacks: Path, folder: Path) -> None:
        self.store = folder / "store"
        profiles = folder / "profiles"
        profiles.mkdir()
        tiny = {"name": "tiny-source", "extends": "tiny-a", "stack": STACK, "status": "candidate"}
        (profiles / "tiny-source.yml").write_text(yaml.safe_dump(tiny))
        given = {
            "b70_mirror_url": mirror.url,
            "b70_mirror_key_fingerprint": mirror.fingerprint,
            "b70_stack_dirs": [str(stacks)],
            "b70_profile_dirs": [str(ROOT / "inventory/lab_profiles"), str(profiles)],
            "gpu_driver_force": True,
            "gpu_driver_repository_suites": {SYSTEM: []},
            "oneapi_force": True,
            "stack_names": [STACK],
            "stack_wheel_store": str(self.store),
            "host_cache_dir": CACHE,
        }
        self.file = folder / "variables.json"
        self.file.write_text(json.dumps(given))

    def words(self, hosts: str, *more: str, **variables: object) -> list[str]:
        extra = ["-e", json.dumps(variables)] if variables else []
        return ["--limit", hosts, "-e", f"@{self.file}", *extra, *more]

    def __call__(self, hosts: str, *more: str, tags: str = "", **variables: object) -> Play:
        tagged = ("--tags", tags) if tags else ()
        return play(ROOT / "site.yml", *self.words(hosts, *tagged, *more, **variables), limit_s=3600)

    def begin(self, hosts: str, log: Path, *more: str) -> subprocess.Popen[bytes]:
        """Start site.yml and return at once; what it prints goes to `log`."""
        command = ["ansible-playbook", "-i", str(INVENTORY), str(ROOT / "site.yml"), *self.words(hosts, *more)]
        with log.open("wb") as file:
            return subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )


@pytest.fixture(scope="session")
def run(mirror: Mirror, shop: Vendors, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator(mirror, shop.stacks, tmp_path_factory.mktemp("operator"))


def objects(host: Host) -> dict[str, tuple[str, str]]:
    """The compiled objects of the kernels: name -> time and inode."""
    rows = [line.split() for line in host.check_output(OBJECTS).splitlines()]
    return {name: (at, inode) for name, at, inode in rows}


def stack_dir(host: Host, name: str = STACK) -> str:
    found: list[str] = host.check_output(f"ls -d /opt/b70/stacks/{name}-*").splitlines()
    assert len(found) == 1, found
    return found[0]


def in_stack(host: Host, program: str) -> str:
    return str(host.check_output("%s -c %s", f"{stack_dir(host)}/venv/bin/python", program)).strip()


def test_what_the_manifests_pin_is_what_is_made(stock: goods.Goods) -> None:
    assert stock.unpinned() == []


def test_the_hosts_reach_the_mirror_and_nothing_else(mirror: Mirror, builder: Host) -> None:
    lists = builder.check_output("cat /etc/apt/sources.list")
    archive = re.findall(r"https?://([^/ ]+)", lists)[0].partition(":")
    fetch = "python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)' {} {}"
    assert builder.run(fetch.format(archive[0], archive[2] or 80)).rc != 0
    assert builder.run(fetch.format(*mirror.url.removeprefix("http://").split(":"))).rc == 0


def test_a_prediction_on_the_bare_host_tells_what_would_be_built_and_touches_nothing(
    run: Operator, builder: Host, stock: goods.Goods
) -> None:
    builder.check_output(f"touch {MARKER}")
    predicted = run(BUILDER, "--check", "--diff", profile="tiny-source")
    assert predicted.code == 0, predicted.output[-6000:]
    said = words_of(predicted.output)
    assert "would install libgomp1" in said
    assert "intel-gpu-compute" in said
    assert "intel-oneapi-compiler-dpcpp-cpp-2025.3=2025.3.2-*" in said
    assert f"would install stack {STACK}-" in said
    for repo, patch in (
        ("vllm-project/vllm-xpu-kernels", ""),
        ("intel/llm-scaler", " with llm-scaler-active-promoted-minimax-89tps-20260520"),
        ("vllm-project/vllm", " with vllm-active-promoted-minimax-89tps-20260520, vllm-xpu-mamba-copy"),
    ):
        assert f"from {repo} at {stock.pins[repo][:12]}{patch}" in said
    assert changed_files(builder) == []
    assert builder.run("ls -d /opt/b70 /opt/intel /mnt/fast-ai /etc/b70-vllm-slot").stdout == ""


@pytest.fixture(scope="session")
def killed(run: Operator, builder: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """The objects that were finished when the build's unit was killed."""
    log = tmp_path_factory.mktemp("killed") / "play.log"
    with run.begin(BUILDER, log, "--tags", ALL) as first:
        until(lambda: builder.run(OBJECTS).stdout or first.poll() is not None, "an object")
        assert first.poll() is None, log.read_text()[-6000:]
        unit = builder.check_output(UNITS).split()[0]
        # ninja has put down what it finished; what is half done has no object yet.
        done = objects(builder)
        builder.check_output(f"systemctl kill --signal=KILL --kill-whom=all {unit}")
        assert first.wait(600) != 0
    said = words_of(log.read_text())
    assert "the build of vllm-xpu-kernels failed (signal, exit status 9)" in said, said[-3000:]
    assert "is never used; run again to go on, what was downloaded and compiled is kept" in said
    return done


def test_a_killed_build_is_not_used(killed: dict[str, tuple[str, str]], builder: Host) -> None:
    assert 1 <= len(killed) < 4, killed
    assert not builder.file(f"{stack_dir(builder)}/fingerprint.json").exists


@pytest.fixture(scope="session")
def built(run: Operator, builder: Host, killed: dict[str, Any]) -> Play:
    done = run(BUILDER, profile="tiny-source")
    assert done.code == 0, done.output[-6000:]
    return done


def test_the_next_run_takes_up_what_is_there_and_serves_it_verified(
    built: Play, killed: dict[str, Any], builder: Host, hosts: dict[str, dict[str, Any]]
) -> None:
    # No object is compiled twice.
    assert killed.items() < objects(builder).items()
    frontdoor = Frontdoor(f"http://{hosts[BUILDER]['ansible_host']}:8000")
    assert frontdoor.status()["verified"] is True
    assert answer_of(frontdoor.ask()) == "I am tiny-a."


def test_what_runs_is_the_patched_source(built: Play, builder: Host) -> None:
    # The engine itself is asked: curl is not on a host.
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:18080/v1/models').read().decode())"
    models = json.loads(builder.check_output("python3 -c %s", ask))
    assert models["data"][0]["owned_by"] == "vllm, patched twice"
    program = (
        "import torch, vllm_xpu_kernels, custom_esimd_kernels_vllm.moe_int4_ops; "
        "print(torch.__version__, torch.ops.custom_esimd_kernels_vllm.variant(), torch.ops.vllm_xpu_kernels.tile())"
    )
    assert in_stack(builder, program) == "2.11.0+xpu promoted 128"
    fingerprint = json.loads(builder.file(f"{stack_dir(builder)}/fingerprint.json").content_string)
    assert [source["name"] for source in fingerprint["sources"]] == ["vllm-xpu-kernels", "llm-scaler", "vllm"]


def test_a_second_run_changes_nothing(built: Play, run: Operator) -> None:
    again = run(BUILDER, profile="tiny-source")
    assert (again.code, again.changed) == (0, 0), again.output[-6000:]


def test_another_host_takes_the_wheels_and_builds_nothing(
    built: Play, run: Operator, builder: Host, other: Host
) -> None:
    done = run(f"{BUILDER},{OTHER}", tags=ALL)
    assert done.code == 0, done.output[-6000:]
    said = words_of(done.output)
    assert "takes the wheel of vllm-xpu-kernels from vllm-project/vllm-xpu-kernels" in said
    assert other.run("command -v g++").rc != 0
    assert other.run(f"{UNITS}; ls -d {SRC}/*").stdout == ""
    digests = [
        host.check_output(f"cd {stack_dir(host)} && find . -name '*.so' -path '*kernels*' | sort | xargs sha256sum")
        for host in (builder, other)
    ]
    assert digests[0] == digests[1]
    assert "vllm_xpu_kernels" in digests[0]


@contextlib.contextmanager
def corrupted(file: Path) -> Iterator[None]:
    """One bit of a file of the mirror is another while this lasts."""
    right = file.read_bytes()
    wrong = bytearray(right)
    wrong[len(wrong) // 2] ^= 1
    file.write_bytes(bytes(wrong))
    try:
        yield
    finally:
        file.write_bytes(right)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("wheels/small_fixture_wheel-*.whl", "small-fixture-wheel"),
        (PACK, "kernels-for-another-torch"),
        ("git/vllm-project/xpu-kernel-headers*/objects/pack/*.pack", "xpu-kernel-headers"),
    ],
    ids=["wheel", "patch", "object of Git"],
)
def test_a_corrupted_download_is_refused_by_name_and_not_used(
    built: Play, run: Operator, builder: Host, mirror: Mirror, pattern: str, named: str
) -> None:
    with corrupted(next(mirror.root.glob(pattern))):
        refused = run(BUILDER, tags="stack", stack_names=["small-fixture"])
    assert refused.code != 0
    last = words_of(refused.output)[-4000:]
    assert named in last
    assert "is never used; run again to go on" in last
    assert not builder.file(f"{stack_dir(builder, 'small-fixture')}/fingerprint.json").exists
    assert builder.run(UNITS).stdout == ""


@pytest.fixture(scope="session")
def misfit(built: Play, run: Operator) -> Play:
    """The small stack: its kernels ask their torch for a name that it does not have, which no compiler can know."""
    return run(BUILDER, tags="stack", stack_names=["small-fixture"])


def test_kernels_for_another_torch_are_refused_by_the_verification(misfit: Play, builder: Host) -> None:
    assert misfit.code != 0
    said = words_of(misfit.output)
    assert "undefined symbol" in said
    assert "torch7Library4_def" in said or "torch::Library::_def" in said
    assert not builder.file(f"{stack_dir(builder, 'small-fixture')}/fingerprint.json").exists


def test_the_doctor_names_such_kernels_in_an_installed_stack_and_what_to_do(
    misfit: Play, run: Operator, builder: Host, other: Host, tmp_path: Path
) -> None:
    """As when somebody installs a published wheel into a stack by hand."""
    target = other.check_output(f"ls {stack_dir(other)}/venv/lib/python3*/site-packages/vllm_xpu_kernels/_C*.so")
    wrong = f"ls {stack_dir(builder, 'small-fixture')}/venv/lib/python3*/site-packages/vllm_xpu_kernels/_C*.so"
    content = builder.check_output(f"base64 -w0 $({wrong})")
    kept = other.check_output(f"cp -p {target} /var/tmp/kept.so && echo kept")
    assert kept == "kept"
    other.run_expect([0], f"base64 -d > {target} <<'END'\n{content}\nEND")
    given = ["--limit", OTHER, "-e", f"@{run.file}", "-e", f"doctor_json_dir={tmp_path}"]
    examined = play(ROOT / "doctor.yml", *given, "-e", "doctor_only=native-extensions,stack-files doctor_limit=900")
    other.check_output(f"mv /var/tmp/kept.so {target}")
    assert examined.code != 0
    found = {item["id"]: item for item in json.loads(next(tmp_path.glob("*.json")).read_text())["findings"]}
    extension = found["native-extensions"]
    assert extension["level"] == "FAIL", found
    assert "vllm_xpu_kernels/_C" in extension["summary"]
    assert "torch::Library::_def" in extension["summary"]
    assert "build it from source against torch 2.11.0+xpu" in extension["fix"]
