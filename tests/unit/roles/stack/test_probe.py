# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILES = Path(__file__).parents[4] / "roles/stack/files"


@pytest.fixture(scope="module")
def probe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stack_probe", FILES / "probe.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Distribution:
    def __init__(self, record: str | None) -> None:
        self.record = record

    def read_text(self, name: str) -> str | None:
        assert name == "RECORD"
        return self.record


def test_the_digest_of_a_distribution_ignores_order_scripts_and_the_installers_own_files(probe):
    one = "a.py,sha256=1,10\nb.py,sha256=2,10\n../../../bin/a,sha256=3,5\nx/INSTALLER,sha256=4,2\nx/RECORD,,\n"
    other = "b.py,sha256=2,10\na.py,sha256=1,10\n../../../bin/a,sha256=9,9\n"
    assert probe.content_digest(Distribution(one)) == probe.content_digest(Distribution(other))
    assert probe.content_digest(Distribution(one)) != probe.content_digest(Distribution("a.py,sha256=7,10\n"))


def test_an_alias_without_a_record_has_no_digest(probe):
    assert probe.content_digest(Distribution(None)) is None


def test_what_does_not_hold_is_a_sentence_each(probe):
    found = probe.probe({"imports": ["json", "no_such_module"], "distributions": {"no-such": "1"}, "device": "cpu"})
    assert found["problems"] == [
        "distribution no-such is not installed, wanted 1",
        "import no_such_module failed: ModuleNotFoundError: No module named 'no_such_module'",
    ]
    assert set(found["imports"]) == {"json", "no_such_module"}


def test_the_answer_is_the_last_line_whatever_imports_print():
    wanted = json.dumps({"imports": ["this"], "distributions": {}, "device": None})
    script = (FILES / "probe.py").read_text()
    run = subprocess.run(
        [sys.executable, "-", wanted], input=script, capture_output=True, text=True, timeout=60, check=True
    )
    assert len(run.stdout.splitlines()) == 1
    assert "Zen of Python" in run.stderr
    assert json.loads(run.stdout)["problems"] == []


def test_native_libraries_that_do_not_load_are_named_with_the_symbol(probe, tmp_path, monkeypatch):
    source = tmp_path / "ext.c"
    source.write_text(
        "extern int no_such_symbol_of_torch(void); int call(void) { return no_such_symbol_of_torch(); }\n"
    )
    broken, whole = tmp_path / "_broken.so", tmp_path / "_whole.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", broken, source], check=True)
    source.write_text("int call(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", whole, source], check=True)
    (tmp_path / "torch.py").write_text("")
    for name, library in (("broken", broken), ("whole", whole)):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "RECORD").write_text(f"{library.name},,\nx.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    problems = probe.load(["whole", "broken", "absent"])
    assert len(problems) == 2
    assert "broken cannot be loaded beside this torch" in problems[0]
    assert "undefined symbol: no_such_symbol_of_torch" in problems[0]
    assert problems[1] == "distribution absent is not installed"
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.mark.parametrize(
    ("count", "cards", "problem"),
    [(4, 4, ""), (3, 4, "torch sees 3 xpu devices, the host has 4 cards"), (2, 1, "torch sees 2 xpu devices"),
     (0, 1, "torch sees 0 xpu devices"), (1, 1, "")],
)  # fmt: skip
def test_torch_must_see_as_many_devices_as_the_host_has_cards(probe, tmp_path, monkeypatch, count, cards, problem):
    text = f"class xpu:\n    is_available = staticmethod(lambda: {count} > 0)\n"
    (tmp_path / "torch.py").write_text(text + f"    device_count = staticmethod(lambda: {count})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    problems, seen = probe.look_at_devices({"device_type": "xpu", "cards": cards})
    assert seen == count
    assert [text.startswith(problem) for text in problems] == [True] * bool(problem)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_devices_are_not_asked_for_where_there_are_none(probe):
    found = probe.probe({"cards": 0, "device": "xpu", "device_type": "xpu"})
    assert (found["problems"], found["devices"]) == ([], None)


@pytest.fixture
def program(probe, tmp_path, monkeypatch):
    """A program in the bin of an environment that says what llama-server does."""
    path = tmp_path / "llama-server"
    path.write_text(
        "#!/bin/sh\n"
        "case $1 in\n"
        "--version) echo 'version: 0.5.0 (0c1e57098)' >&2;;\n"
        "--help) echo '-c,    --ctx-size N   size of the prompt context'; echo '--mmap, --no-mmap';;\n"
        "--list-devices) echo 'Available devices:'; echo '  SYCL0: Intel Arc Pro B70 (32656 MiB)';;\n"
        "*) exit 1;;\n"
        "esac\n"
    )
    path.chmod(0o755)
    monkeypatch.setattr(probe.sys, "executable", str(tmp_path / "python"))
    return path


def test_a_program_must_run_and_be_the_release_that_was_recorded(probe, program):
    wanted = {"llama-server": {"says": "0.5.0", "flags": ["ctx_size", "mmap"]}}
    assert probe.probe({"programs": wanted, "device": "cpu"})["problems"] == []
    other = {"llama-server": {"says": "0.6.0", "flags": []}}
    assert probe.probe({"programs": other})["problems"] == [
        "llama-server --version does not say '0.6.0': version: 0.5.0 (0c1e57098)"
    ]
    older = {"llama-server": {"says": "0.5.0", "flags": ["ctx_size", "spec_type"]}}
    assert "it has no --spec-type" in probe.probe({"programs": older})["problems"][0]
    program.unlink()
    assert "llama-server --version does not run" in probe.probe({"programs": wanted})["problems"][0]


def test_a_program_must_see_every_card(probe, program):
    wanted = {"programs": {"llama-server": {"says": "0.5.0", "flags": []}}, "device_type": "SYCL"}
    assert probe.probe({**wanted, "cards": 0})["devices"] is None
    assert probe.probe({**wanted, "cards": 1})["devices"] == 1
    assert probe.probe({**wanted, "cards": 2})["problems"] == [
        "llama-server sees 1 SYCL devices, the host has 2 cards: run doctor.yml"
    ]
