# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor and the report on a real host: nothing wrong, then everything wrong at once."""

from __future__ import annotations

import base64
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from system.product import ROOT, play

CACHE = "/mnt/fast-ai/vllm-cache-exp"
QUARANTINE = "/var/lib/b70/quarantine.json"
EVIDENCE = "/var/lib/b70/evidence/planted.txt"
FRONTDOOR = "b70-openai-frontdoor.service"
# A real name of torch's interface in a form that no release has had since: what a wheel for another torch looks like.
SYMBOL = "_ZN5torch7Library4_defEON3c106eitherINS1_12OperatorNameENS1_14FunctionSchemaEEEONS_11CppFunctionE"
SECRETS = {
    "token": "hf_" + "QrStUvWxYz0123456789abcd",
    "key": "s3cr3t-frontdoor-key-0815",
    "header": "dG9wLXNlY3JldC1iZWFyZXI",
    "password": "korrekt-pferd-batterie",
}
PERSON = "janedoe"
# A value without quotes may have blanks: a line after its own name shows that the rest is still read.
PLANTED = rf"password={SECRETS['password']}\nby {PERSON} with {SECRETS['token']}\nserve --api-key {SECRETS['key']}\n"


def findings(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the doctor; (exit status, finding by id)."""
    # a busy machine reads the files of a stack for longer than the limit out of the box
    run = play(ROOT / "doctor.yml", "-e", f"doctor_json_dir={tmp_path} doctor_limit=900", *arguments)
    assert run.changed == 0, run.output
    file = next(tmp_path.glob("*.json"))
    return run.code, {item["id"]: item for item in json.loads(file.read_text())["findings"]}


def test_a_converged_host_has_nothing_that_does_not_work(tmp_path: Path) -> None:
    code, found = findings(tmp_path)
    assert code == 0, [item for item in found.values() if item["level"] == "FAIL"]
    for name in ("stacks", "stack-files", "versions", "native-extensions", "vllm-platform", "units", "slot",
                 "quarantine", "frontdoor", "profiles", "weights", "cache-directories"):  # fmt: skip
        assert found[name]["level"] == "PASS", found[name]
    # There is no card here, and none is needed.
    assert {found[name]["level"] for name in ("card-count", "card-power", "level-zero-devices", "torch-xpu")} == {
        "SKIP"
    }


@pytest.fixture(scope="module")
def broken(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Break what the doctor should find, and repair it. Yields the folder of installed packages."""
    packages = host.check_output("ls -d /opt/b70/stacks/*/venv/lib/python3*/site-packages")
    boot = host.check_output("cat /proc/sys/kernel/random/boot_id")
    folder = tmp_path_factory.mktemp("extension")
    source, built = folder / "extension.c", folder / "extension.so"
    source.write_text(f"extern void {SYMBOL}(void);\nvoid start(void) {{ {SYMBOL}(); }}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(built), str(source)], check=True, timeout=60)
    extension = base64.b64encode(built.read_bytes()).decode()
    note = json.dumps(
        {
            "schema": 1, "slot": "main", "since": "2026-06-07T09:00:00Z", "boot_id": boot, "symptom": "device_lost",
            "line": "backend failed with error: 20", "switch_id": "x", "profile": "tiny-a", "evidence": EVIDENCE,
        }
    )  # fmt: skip
    log = f"Authorization: Bearer {SECRETS['header']} from /home/{PERSON}/run.sh"
    owner = host.check_output(f"stat -c %U:%G {CACHE}")
    commands = {
        f"systemctl stop {FRONTDOOR}": f"systemctl start {FRONTDOOR}",
        f"chown root:root {CACHE}": f"chown {owner} {CACHE}",
        f"cp -p {packages}/certifi/__main__.py /var/tmp/kept && echo '#' >> {packages}/certifi/__main__.py": (
            f"cp -p /var/tmp/kept {packages}/certifi/__main__.py; rm /var/tmp/kept"
        ),
        f"mkdir {packages}/stranger && echo {extension} | base64 -d > {packages}/stranger/_C.abi3.so": (
            f"rm -r {packages}/stranger"
        ),
        f"echo '{note}' > {QUARANTINE}": f"rm -f {QUARANTINE}",
        f"systemd-run --quiet --wait --unit=b70-planted sh -c 'echo \"{log}\"; exit 3'; true": (
            "systemctl reset-failed b70-planted.service"
        ),
        f"useradd --create-home {PERSON}": f"userdel --remove {PERSON}",
        f"cp -p /etc/environment /var/tmp/environment && echo 'HF_TOKEN={SECRETS['token']}' >> /etc/environment": (
            "mv /var/tmp/environment /etc/environment"
        ),
        f"printf '{PLANTED}' > {EVIDENCE}": f"rm -f {EVIDENCE}",
    }
    done: list[str] = []
    try:
        for there, back in commands.items():
            done.append(back)
            host.check_output(there.replace("%", "%%"))
        yield packages
    finally:
        for back in reversed(done):
            host.run(back)


def test_what_is_broken_is_found_and_named(broken: str, tmp_path: Path) -> None:
    code, found = findings(tmp_path)
    assert code != 0
    assert {name for name, item in found.items() if item["level"] == "FAIL"} == {
        "stack-files", "native-extensions", "units", "quarantine", "frontdoor", "cache-directories"
    }, found  # fmt: skip
    assert "certifi/__main__.py" in found["stack-files"]["summary"]
    extension = found["native-extensions"]
    assert "stranger/_C.abi3.so" in extension["summary"]
    assert "torch::Library::_def" in extension["summary"]
    assert "libtorch_cpu.so" in extension["summary"]
    assert "build it from source against torch 2.13.0+cpu" in extension["fix"]
    assert "b70-planted.service" in found["units"]["summary"]
    assert "device_lost" in found["quarantine"]["summary"]
    assert CACHE in found["cache-directories"]["summary"]
    assert all(item["fix"] and item["meaning"] for item in found.values() if item["level"] == "FAIL")


def test_the_report_of_that_host_holds_it_all_and_no_secret(broken: str, tmp_path: Path) -> None:
    made = play(ROOT / "playbooks" / "report.yml", "-e", f"report_dir={tmp_path}")
    assert made.code == 0, made.output
    folder = next(path for path in tmp_path.iterdir() if path.is_dir())
    page = (folder / "index.html").read_text()
    texts = {"index.html": page}
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None, member
            texts[member.name.partition("/")[2]] = file.read().decode()
    for name, secret in {**SECRETS, "person": PERSON}.items():
        held = [file for file, text in texts.items() if secret in text]
        assert not held, f"{name} is in {held}"
    planted = next(text for file, text in texts.items() if file.endswith("planted.txt"))
    assert planted == "password=<secret>\nby <user1> with <secret>\nserve --api-key <secret>\n"
    assert (
        "Authorization: Bearer <secret>" in texts["logs/units.txt"]
        or "Authorization: <secret>" in texts["logs/units.txt"]
    )
    contents = {item["name"]: item for item in json.loads(texts["manifest.json"])["items"]}
    assert "not installed" in contents["cards/xpu-smi-discovery.txt"]["problem"]
    assert contents["logs/units.txt"]["bytes"] > 0
    assert "stack-files" in texts["doctor.txt"]
    assert "stack-files" in page
