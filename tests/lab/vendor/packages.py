# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the vendors' repositories hold, as far as the roles can tell: names, versions, dependencies, places of files.

The pinned versions with the endings that the vendors give them, and of the compiler newer ones beside them, which
nobody may get. What is in the packages is ours: a compiler that calls g++, a tool that prints what it printed on a host
with cards, and for everything else one text that says what it stands for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

_FILES = Path(__file__).with_name("files")
_COMPILERS = {"2025.3": ("2025.3.2-832", "2025.3.3-30"), "2026.0": ("2026.0.0-947",)}
# Where the cards of the lab that is quoted in the catalogue are.
_CARDS = ("0000:03:00.0", "0000:83:00.0", "0000:a3:00.0", "0000:e3:00.0")


# The mode of a link, whose content is its target.
LINK = 0o120777


@dataclass(frozen=True)
class Package:
    """One .deb. `files`: path on the host -> (content, mode)."""

    name: str
    version: str
    depends: tuple[str, ...] = ()
    files: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """As dpkg would name it, without an epoch."""
        return f"{self.name}_{self.version}_amd64.deb"

    def control(self) -> str:
        lines = [
            f"Package: {self.name}",
            f"Version: {self.version}",
            "Architecture: amd64",
            "Maintainer: The lab <lab@localhost>",
            *([f"Depends: {', '.join(self.depends)}"] if self.depends else []),
            f"Description: fixture of the lab in the place of {self.name}",
            " It has the name and version of the vendor's package, and nothing of what is in it.",
        ]
        return "\n".join(lines) + "\n"


def _discovery() -> str:
    rows = [
        {
            "device_function_type": "physical",
            "device_id": number,
            "device_name": "Intel(R) Graphics [0xe223]",
            "device_type": "GPU",
            "drm_device": f"/dev/dri/card{number}",
            "pci_bdf_address": address,
            "pci_device_id": "0xe223",
            "uuid": f"00000000-0000-00{address[5:7]}-0000-0000e2238086",
            "vendor_name": "Intel(R) Corporation",
        }
        for number, address in enumerate(_CARDS)
    ]
    return json.dumps({"device_list": rows}, indent=4) + "\n"


def _runtime(version: str, igc: str, loader: str, compiler: tuple[str, ...], memory: str) -> list[Package]:
    """What all sources name alike; `compiler` are the names that they give to the graphics compiler."""
    needs = tuple(f"{name} (= {igc})" for name in compiler)
    return [
        *(Package(name, igc) for name in compiler),
        Package("libigdgmm12", memory),
        Package("intel-ocloc", version, needs),
        Package("intel-opencl-icd", version, (*needs, "libigdgmm12 (>= 22.10)")),
        Package("libze-intel-gpu1", version, (*needs, "libigdgmm12 (>= 22.10)", "libze1")),
        Package("libze1", loader),
        Package("libze-dev", loader, (f"libze1 (= {loader})",)),
    ]


def _tool(version: str) -> Package:
    files = {
        "/usr/bin/xpu-smi": ((_FILES / "xpu-smi").read_text(encoding="utf-8"), 0o755),
        "/usr/share/xpu-smi/discovery.json": (_discovery(), 0o644),
    }
    return Package("xpu-smi", version, ("libze1 (>= 1.28)",), files)


def omix() -> list[Package]:
    """One release of Intel's own repository: a package that needs all others at exactly its versions."""
    runtime = _runtime(
        "26.31.39395.13-1146~24.04",
        "2.40.13-1146~24.04",
        "1.32.0-1146~24.04",
        ("libigc2", "libigdfcl2"),
        "22.10.0-1146~24.04",
    )
    parts = [*runtime, _tool("2.0.1-1146~24.04")]
    needs = tuple(f"{part.name} (= {part.version})" for part in parts)
    kernel = {
        "/boot/vmlinuz-6.17.0-1010-intel": ("fixture\n", 0o600),
        "/vmlinuz": ("boot/vmlinuz-6.17.0-1010-intel", LINK),
    }
    return [
        *parts,
        Package("intel-gpu-compute", "0.4.0-9~24.04", needs),
        Package("linux-intel-6.17", "6.17.0-1010.10", files=kernel),
    ]


def ppa() -> list[Package]:
    """Intel's graphics PPA."""
    return [
        *_runtime(
            "26.31.39395.14-1~24.04~ppa1",
            "2.40.13+ds1-1~24.04",
            "1.32.0-1~24.04~ppa1",
            ("libigc2", "libigdfcl2"),
            "22.10.1-1~24.04~ppa1",
        ),
        _tool("2.0.1-1~24.04~ppa1"),
    ]


def github(name: str, pinned: str) -> Package:
    """A package of Intel's releases on GitHub; `pinned` is what the role wants of its version."""
    version = pinned.rstrip("*") + ("-0" if name.startswith(("intel-o", "libze-intel")) else "")
    needs = {
        "intel-igc-opencl-2": (f"intel-igc-core-2 (= {version})",),
        "intel-opencl-icd": ("intel-igc-opencl-2", "libigdgmm12 (>= 22.10)"),
        "libze-intel-gpu1": ("intel-igc-opencl-2", "libigdgmm12 (>= 22.10)", "libze1"),
        "libze-dev": (f"libze1 (= {version})",),
    }
    return Package(name, version, needs.get(name, ()))


def _compiler(release: str, version: str) -> list[Package]:
    root = f"/opt/intel/oneapi/compiler/{release}"
    program = (_FILES / "icpx").read_text(encoding="utf-8")
    program = program.replace("@VERSION@", version.partition("-")[0]).replace("@ROOT@", root)
    script = (_FILES / "vars.sh").read_text(encoding="utf-8")
    name = f"intel-oneapi-compiler-dpcpp-cpp-{release}"
    return [
        Package(name, version, files={f"{root}/bin/icpx": (program, 0o755), f"{root}/env/vars.sh": (script, 0o644)}),
        Package(f"intel-oneapi-dpcpp-cpp-{release}", version, (f"{name} (>= {version})",)),
    ]


def oneapi() -> list[Package]:
    """The repository of oneAPI, with a compiler that is wanted and a newer one that is not."""
    found = []
    for release, versions in _COMPILERS.items():
        for version in versions:
            found += _compiler(release, version)
        for library in ("dnnl", "mkl"):
            header = f"/opt/intel/oneapi/{library}/{release}/include/{library}.h"
            text = f"/* a fixture in the place of {library} {release} */\n"
            found.append(
                Package(f"intel-oneapi-{library}-devel-{release}", f"{release}.0-619", files={header: (text, 0o644)})
            )
    return found
