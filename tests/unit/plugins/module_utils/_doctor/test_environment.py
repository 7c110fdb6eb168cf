# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether extensions fit torch, on real libraries that gcc makes: a torch in small, and wheels for another one."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import subprocess
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import abi, elf, environment

# What the prebuilt vllm-xpu-kernels wheel missed in torch 2.11: torch::Library::_def with another signature.
DEF = "_ZN5torch7Library4_defEON3c106eitherINS1_12OperatorNameENS1_14FunctionSchemaEEE"
CHECK = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
GIVEN = "_ZN2at4_ops5zeros4callEv"


def compiled(path: Path, source: str, *options: str) -> Path:
    """A shared library of this C source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.with_suffix(".c")
    text.write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(path), str(text), *options], check=True, timeout=60)
    text.unlink()
    return path


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stack with a small torch, whose libtorch_cpu.so defines one name."""
    root = tmp_path_factory.mktemp("stack")
    packages = root / "venv/lib/python3.12/site-packages"
    compiled(packages / "torch/lib/libc10.so", "void c10_here(void) {}\n", "-Wl,-soname,libc10.so")
    compiled(packages / "torch/lib/libtorch_cpu.so", f"void {GIVEN}(void) {{}}\n", "-Wl,-soname,libtorch_cpu.so")
    (packages / "torch-2.11.0+xpu.dist-info").mkdir()
    return root


def extension(stack: Path, name: str, *symbols: str, options: tuple[str, ...] = (), body: str = "") -> Path:
    calls = "".join(f"extern void {symbol}(void);\n" for symbol in symbols)
    calls += body + "void start(void) {" + "".join(f"{symbol}();" for symbol in symbols) + "}\n"
    torch = stack / "venv/lib/python3.12/site-packages/torch/lib"
    return compiled(environment.site_packages(stack) / name, calls, f"-L{torch}", *options)


def looked(stack: Path, path: Path, search: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """The misfits with only this extension beside torch."""
    try:
        found = environment.extensions(stack, search)
    finally:
        path.unlink()
    assert found["torch"] == "2.11.0+xpu"
    assert found["looked_at"] == 1
    misfits: list[dict[str, str]] = found["misfits"]
    return misfits


def test_an_extension_that_finds_all_it_needs_is_fine(stack: Path):
    fits = extension(stack, "kernels/_C.abi3.so", GIVEN, options=("-ltorch_cpu",))
    assert looked(stack, fits) == []


def test_the_other_torch_is_named_with_symbol_library_and_extension(stack: Path):
    other = extension(stack, "vllm_xpu_kernels/_C.abi3.so", GIVEN, DEF, options=("-ltorch_cpu",))
    (found,) = looked(stack, other)
    assert found["extension"] == "vllm_xpu_kernels/_C.abi3.so"
    assert found["problem"] == f"undefined symbol: torch::Library::_def ({DEF})"
    assert found["library"] == "libtorch_cpu.so"


def test_a_name_of_c10_belongs_to_libc10(stack: Path):
    (found,) = looked(stack, extension(stack, "old/_C.so", CHECK))
    assert found["problem"] == f"undefined symbol: c10::detail::torchCheckFail ({CHECK})"
    assert found["library"] == "libc10.so"


def test_many_missing_names_are_counted(stack: Path):
    names = [f"_ZN2at4_ops4op{number:02}4callEv" for number in range(5)]
    (found,) = looked(stack, extension(stack, "many/_C.so", *names))
    assert found["problem"].endswith("and 2 more")


def test_a_weak_name_and_one_of_another_library_are_not_torchs_business(stack: Path):
    weak = f"extern void {DEF}(void) __attribute__((weak));\n"
    path = extension(stack, "weak/_C.so", "somebody_elses", DEF, GIVEN, body=weak)
    assert looked(stack, path) == []


def test_a_name_that_a_library_beside_it_defines_is_found(stack: Path):
    packages = environment.site_packages(stack)
    helper = compiled(packages / "pair/libhelper.so", f"void {DEF}(void) {{}}\n", "-Wl,-soname,libhelper.so")
    options = (f"-L{helper.parent}", "-lhelper", "-Wl,-rpath,$ORIGIN")
    path = extension(stack, "pair/_C.so", DEF, options=options)
    assert looked(stack, path) == []
    helper.unlink()


def test_a_library_that_is_nowhere_is_named(stack: Path, tmp_path: Path):
    sycl = compiled(tmp_path / "libsycl.so.9", "void sycl(void) {}\n", "-Wl,-soname,libsycl.so.9")
    path = extension(stack, "next/_C.so", "sycl", GIVEN, options=(str(sycl), "-ltorch_cpu"))
    with_it = environment.extensions(stack, (str(tmp_path),))
    assert with_it["misfits"] == []
    (found,) = looked(stack, path)
    assert found == {
        "extension": "next/_C.so",
        "problem": "needs libsycl.so.9: not found in any folder that is searched",
        "library": "libsycl.so.9",
    }


def test_a_version_that_the_library_does_not_have_is_named(stack: Path, tmp_path: Path):
    def versioned(folder: str, *versions: str) -> Path:
        script = tmp_path / "versions.map"
        script.write_text(
            "".join(f"GLIBCXX_3.4.{n} {{ {'global: made;' if n == versions[-1] else ''} }};\n" for n in versions)
        )
        options = ("-Wl,-soname,libnew.so.6", f"-Wl,--version-script={script}")
        return compiled(tmp_path / folder / "libnew.so.6", "void made(void) {}\n", *options)

    there, here = versioned("there", "11", "32"), versioned("here", "11")
    path = extension(stack, "newer/_C.so", "made", GIVEN, options=(str(there), "-ltorch_cpu"))
    assert environment.extensions(stack, (str(there.parent),))["misfits"] == []
    (found,) = looked(stack, path, (str(here.parent),))
    assert found["problem"] == "needs GLIBCXX_3.4.32, which this host's libnew.so.6 does not have"


def test_what_does_not_use_torch_is_not_looked_at(stack: Path):
    path = compiled(environment.site_packages(stack) / "plain/_x.so", "void f(void) {}\n", "-L/nowhere")
    assert environment.extensions(stack, ())["looked_at"] == 0
    path.unlink()


def test_without_torch_there_is_nothing_to_fit(tmp_path: Path):
    (tmp_path / "venv/lib/python3.12/site-packages").mkdir(parents=True)
    with pytest.raises(LookupError, match="no torch"):
        environment.extensions(tmp_path, ())
    with pytest.raises(LookupError, match="no site-packages"):
        environment.extensions(tmp_path / "venv", ())


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_both_kinds_of_symbol_tables(tmp_path: Path, style: str):
    source = "void here(void) {}\nextern void there(void);\nvoid call(void) { there(); }\n"
    file = elf.Elf(compiled(tmp_path / "lib.so", source, f"-Wl,--hash-style={style}").read_bytes())
    assert file.defines("here")
    assert not file.defines("there")
    assert not file.defines("nowhere")
    assert "there" in {symbol.name for symbol in file.undefined()}


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60), b"\x7fELF\x02\x01" + bytes(10)])
def test_what_is_no_elf_file_is_said_to_be_none(data: bytes):
    with pytest.raises(elf.NotElf):
        elf.Elf(data)


def test_every_cut_of_a_library_is_refused_or_ends_in_a_plain_error(tmp_path: Path):
    whole = compiled(tmp_path / "lib.so", "void here(void) {}\n").read_bytes()
    refused = 0
    for end in range(0, len(whole), 97):
        try:
            file = elf.Elf(whole[:end])
            list(file.undefined())
            file.defines("here")
        except (elf.NotElf, IndexError, struct.error):
            refused += 1
    assert refused
    assert elf.Elf(whole).defines("here")


@pytest.mark.parametrize(
    ("symbol", "needed", "library"),
    [
        (CHECK, (), "libc10.so"),
        ("_ZN3c103xpu12device_countEv", (), "libc10_xpu.so"),
        (DEF, (), "libtorch_cpu.so"),
        (GIVEN, ("libc10.so", "libtorch_xpu.so"), "libtorch_xpu.so"),
    ],
)
def test_the_library_in_which_a_name_should_be(symbol: str, needed: tuple[str, ...], library: str):
    assert abi.home_of(symbol, needed) == library


@pytest.mark.parametrize(
    ("symbol", "text"),
    [
        (DEF, "torch::Library::_def"),
        ("_ZNK2at10TensorBase4sizeEl", "at::TensorBase::size"),
        ("_ZN5torch7LibraryC1ENS0_4KindESs", "torch::Library::Library"),
        ("aoti_torch_empty", "aoti_torch_empty"),
    ],
)
def test_names_as_people_write_them(symbol: str, text: str):
    assert elf.readable(symbol) == text


def installed(root: Path, name: str, version: str, files: dict[str, str]) -> None:
    packages = root / "venv/lib/python3.12/site-packages"
    info = packages / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    rows = []
    for path, text in files.items():
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f'"{path}",sha256={digest},{len(text)}')
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    installed(tmp_path, "vllm", "0.20.1", {"vllm/__init__.py": "a\n", "vllm/a, b.py": "bb\n"})
    installed(tmp_path, "xgrammar_x", "1.0", {"xgrammar_x.py": "c\n", "__pycache__/xgrammar_x.cpython-312.pyc": "old"})
    listed = [{"name": "vllm", "version": "0.20.1"}, {"name": "xgrammar-x", "version": "1.0"}]
    (tmp_path / "fingerprint.json").write_text(json.dumps({"distributions": listed}))
    return tmp_path


def test_a_whole_environment_has_no_problem(whole: Path):
    (whole / "venv/lib/python3.12/site-packages/__pycache__/xgrammar_x.cpython-312.pyc").write_text("made anew")
    found = environment.record(whole, deep=True)
    assert found == {"files": 3, "problems": [], "distributions": {"vllm": "0.20.1", "xgrammar-x": "1.0"}}


def test_what_was_changed_removed_upgraded_and_added_is_named(whole: Path):
    packages = whole / "venv/lib/python3.12/site-packages"
    (packages / "vllm/__init__.py").write_text("a\n# patched by hand\n")
    (packages / "xgrammar_x.py").unlink()
    (packages / "vllm-0.20.1.dist-info").rename(packages / "vllm-0.21.0.dist-info")
    installed(whole, "extra", "3", {"extra.py": ""})
    assert environment.record(whole, deep=False)["problems"] == [
        "vllm is 0.21.0, verified was 0.20.1",
        "extra 3 was added after the verification",
        "vllm: vllm/__init__.py has 20 bytes instead of 2",
        "xgrammar-x: xgrammar_x.py is missing",
    ]


def test_a_change_of_the_same_size_is_only_found_by_reading(whole: Path):
    (whole / "venv/lib/python3.12/site-packages/vllm/__init__.py").write_text("b\n")
    assert environment.record(whole, deep=False)["problems"] == []
    assert environment.record(whole, deep=True)["problems"] == ["vllm: vllm/__init__.py has other contents"]


def test_a_stack_without_a_fingerprint_says_so(whole: Path):
    (whole / "fingerprint.json").write_text("[]")
    assert environment.record(whole, deep=False)["problems"] == [
        "fingerprint.json does not say what was installed (TypeError)"
    ]
