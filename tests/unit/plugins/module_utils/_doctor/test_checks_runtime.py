# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of the vendor's software."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import parse
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.checks import machine, runtime
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Level, Output, Read
from unit.plugins.module_utils._doctor.hosts import (
    PINNED,
    captured,
    judge,
    out,
    profile,
    site,
    stack,
)


def test_level_zero_loader():
    cache = captured("ldconfig.txt")
    assert judge("level-zero-loader", site(), (runtime.LDCONFIG, out(cache))).level is Level.PASS
    without = "\n".join(line for line in cache.splitlines() if "libze_intel_gpu" not in line)
    found = judge("level-zero-loader", site(), (runtime.LDCONFIG, out(without)))
    assert (found.level, found.summary) == (Level.FAIL, "the system lacks libze_intel_gpu.so.1")
    assert "libze-intel-gpu1" in found.fix


def test_level_zero_devices_by_sycl_ls_and_by_xpu_smi():
    where = site()
    sycl = runtime.sycl_ls(where)
    assert sycl.argv == ("/opt/intel/oneapi/compiler/2025.3/bin/sycl-ls",)
    assert sycl.env == (("LD_LIBRARY_PATH", "/opt/intel/oneapi/compiler/2025.3/lib"),)
    assert judge("level-zero-devices", where, (sycl, out(captured("sycl-ls.txt")))).level is Level.PASS
    three = judge("level-zero-devices", site(cards=3), (sycl, out(captured("sycl-ls.txt"))))
    assert (three.level, three.summary) == (Level.FAIL, "Level Zero shows 2 of 3 cards (sycl-ls)")
    absent = (sycl, Output(problem="sycl-ls is not installed"))
    by_smi = judge("level-zero-devices", where, absent, (runtime.XPU_SMI, out(captured("xpu-smi-discovery.txt"))))
    assert by_smi.level is Level.PASS
    assert "(xpu-smi discovery)" in by_smi.summary
    neither = judge("level-zero-devices", where, absent, (runtime.XPU_SMI, Output(problem="xpu-smi is not installed")))
    assert (neither.level, "see torch-xpu" in neither.summary) == (Level.SKIP, True)


def test_opencl_devices():
    assert judge("opencl-devices", site(), (runtime.CLINFO, out(captured("clinfo-l.txt")))).level is Level.PASS
    assert judge("opencl-devices", site(cards=3), (runtime.CLINFO, out(captured("clinfo-l.txt")))).level is Level.FAIL
    assert judge("opencl-devices", site(), (runtime.CLINFO, Output(problem="x"))).level is Level.SKIP


def test_another_card_or_an_igpu_does_not_stand_in_for_a_card_that_is_missing():
    sycl = runtime.sycl_ls(site())
    found = judge("level-zero-devices", site(), (sycl, out(captured("sycl-ls-mixed.txt"))))
    assert (found.level, found.summary) == (Level.FAIL, "Level Zero shows 1 of 2 cards (sycl-ls)")
    assert "Arc(TM) Pro B60" in found.evidence[1]
    assert judge("level-zero-devices", site(cards=1), (sycl, out(captured("sycl-ls-mixed.txt")))).level is Level.PASS
    smi = captured("xpu-smi-discovery.txt")
    other = smi.replace("Arc(TM) Pro B70", "Arc(TM) Pro B60", 1)
    absent = (sycl, Output(problem="sycl-ls is not installed"))
    assert judge("level-zero-devices", site(), absent, (runtime.XPU_SMI, out(other))).level is Level.FAIL
    igpu = judge("opencl-devices", site(), (runtime.CLINFO, out(captured("clinfo-l-igpu.txt"))))
    assert (igpu.level, igpu.summary) == (Level.FAIL, "OpenCL shows 1 of 2 cards")
    assert igpu.evidence[1].endswith("Intel(R) UHD Graphics 770")


def dpkg(source: str, text: str, packages: dict[str, str] | None = None):
    """(host whose driver is to be of `source`, what dpkg-query answers)."""
    known = PINNED[source] if packages is None else packages
    return site(settings={"driver_source": source, "driver_packages": known}), (machine.DPKG, out(text))


GITHUB = captured("dpkg.txt")


def test_packages_against_what_the_role_pins():
    assert judge("packages", *dpkg("github", GITHUB)).level is Level.PASS
    drifted = judge("packages", *dpkg("github", GITHUB.replace("libze1 1.32.0", "libze1 1.33.0")))
    assert (drifted.level, drifted.evidence) == (Level.WARN, ("libze1: 1.33.0+u24.04, the role wants 1.32.0*",))
    gone = "\n".join(line for line in GITHUB.splitlines() if "libze1" not in line)
    missing = judge("packages", *dpkg("github", gone))
    assert (missing.level, missing.evidence) == (Level.FAIL, ("libze1: not installed, the role wants 1.32.0*",))
    assert (
        judge("packages", *dpkg("github", GITHUB.replace("installed clinfo", "config-files clinfo"))).level
        is Level.WARN
    )
    assert judge("packages", *dpkg("github", GITHUB, packages={})).level is Level.SKIP
    where, _answer = dpkg("github", "")
    with pytest.raises(LookupError, match="dpkg-query: it ended with 2"):
        judge("packages", where, (machine.DPKG, Output(2)))


def test_packages_of_another_source_are_the_matter_of_another_check():
    assert judge("packages", *dpkg("omix", GITHUB)).level is Level.SKIP
    clean: tuple[Read, dict[str, str]] = (runtime.APT_SOURCES, {})
    assert judge("driver-sources", *dpkg("github", GITHUB), clean).level is Level.PASS
    other = judge("driver-sources", *dpkg("omix", GITHUB), clean)
    assert (other.level, other.summary) == (Level.WARN, "the driver does not come from omix alone")
    assert "apt-get remove intel-igc-core-2" in other.fix
    mixed = judge("driver-sources", *dpkg("github", GITHUB + "installed libigc2 2.36.3-1~24.04\n"), clean)
    assert (mixed.level, mixed.summary) == (Level.FAIL, "the driver packages come from several sources")
    assert "libigc2 2.36.3-1~24.04" in mixed.fix
    assert judge("driver-sources", *dpkg("github", "installed bash 5.2\n"), clean).level is Level.SKIP


def test_a_repository_of_another_source_is_named():
    file = "/etc/apt/sources.list.d/kobuk-team-ubuntu-intel-graphics-noble.sources"
    text = (
        "Types: deb\nURIs: https://ppa.launchpadcontent.net/kobuk-team/intel-graphics/ubuntu\n"
        "Suites: noble\nComponents: main\n"
    )
    found = judge("driver-sources", *dpkg("github", GITHUB), (runtime.APT_SOURCES, {file: text}))
    assert (found.level, file in found.fix) == (Level.WARN, True)


def libraries_of(text: str, files: dict[str, str]):
    rows = [{"name": name, "path": path, "file": files.get(path, path)} for name, path in parse.libraries(text)]
    return runtime.LIBRARIES, [row for row in rows if runtime.DRIVER_LIBRARY.fullmatch(row["name"])]


def test_a_library_that_hides_a_newer_one():
    two = captured("ldconfig-two.txt")
    old, new = "/usr/local/lib/libigc.so.2.36.3+1781103806", "/usr/lib/x86_64-linux-gnu/libigc.so.2.41.5+1790000000"
    hidden = {"/usr/local/lib/libigc.so.2": old, "/lib/x86_64-linux-gnu/libigc.so.2": new}
    found = judge("driver-libraries", site(), libraries_of(two, hidden))
    assert (found.level, found.summary) == (Level.FAIL, f"{old} hides the newer {new}")
    newest_first = {"/usr/local/lib/libigc.so.2": new, "/lib/x86_64-linux-gnu/libigc.so.2": old}
    assert judge("driver-libraries", site(), libraries_of(two, newest_first)).level is Level.WARN
    # Both ways lead to one file where /lib is a link to /usr/lib.
    same = dict.fromkeys(hidden, new)
    assert judge("driver-libraries", site(), libraries_of(two, same)).level is Level.PASS
    assert judge("driver-libraries", site(), libraries_of("", {})).level is Level.SKIP


WHEELS = site(stacks=[stack("xpu")], wanted=[profile(stack=stack("xpu"))])


def around(files: Mapping[str, str] = MappingProxyType({}), icpx: tuple[str, ...] = ()):
    where = WHEELS
    return judge(
        "sycl-runtimes", where, (runtime.ICPX, dict.fromkeys(icpx, "\x7f")), (runtime.surroundings(where), files)
    )


def test_a_second_sycl_runtime_beside_the_one_of_the_wheels():
    assert around().level is Level.PASS
    found = around(icpx=("/usr/local/bin/icpx",))
    assert (found.level, "Remove /usr/local/bin/icpx" in found.fix) == (Level.FAIL, True)
    profiled = around({"/etc/profile.d/oneapi.sh": "# Intel\nsource /opt/intel/oneapi/setvars.sh >/dev/null\n"})
    assert (profiled.level, profiled.evidence) == (
        Level.WARN,
        ("/etc/profile.d/oneapi.sh: source /opt/intel/oneapi/setvars.sh >/dev/null",),
    )
    loaded = around({"/etc/ld.so.conf.d/oneapi.conf": "/opt/intel/oneapi/compiler/2025.3/lib\n"})
    assert loaded.level is Level.WARN
    assert around({"/etc/bash.bashrc": "  # source /opt/intel/oneapi/setvars.sh\n"}).level is Level.PASS
    # lab-minimax is compiled with it and says so.
    assert judge("sycl-runtimes", site()).level is Level.SKIP


def compilers(*releases: str):
    return runtime.COMPILERS, list(releases)


def test_oneapi_installations():
    assert judge("oneapi", site(), compilers("2025.3")).level is Level.PASS
    assert judge("oneapi", site(), compilers("2025.3", "2026.0")).level is Level.WARN
    assert judge("oneapi", site(), compilers("2026.0")).level is Level.FAIL
    assert judge("oneapi", site(), compilers()).level is Level.SKIP
    path = "/opt/intel/oneapi/compiler/2026.0/lib:/opt/intel/oneapi/compiler/2025.3/lib"
    mixed = site(wanted=[profile(engine={"env": {"LD_LIBRARY_PATH": path}, "argv": []})])
    found = judge("oneapi", mixed, compilers("2025.3", "2026.0"))
    assert found.level is Level.FAIL
    assert found.summary == (
        "profile big loads the libraries of oneAPI 2025.3, 2026.0 into the engine; its stack is for 2025.3"
    )
    shipped = profile(
        stack=stack("xpu"), engine={"env": {"LD_LIBRARY_PATH": "/opt/intel/oneapi/2026.1/lib"}, "argv": []}
    )
    wheels = judge("oneapi", site(stacks=[stack("xpu")], wanted=[shipped]), compilers())
    assert (wheels.level, wheels.summary.endswith("its stack brings its own")) == (Level.FAIL, True)
