# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the vendors' repositories hold, as far as the roles can tell: names, versions, dependencies, places of files.

The pinned versions with the endings that the vendors give them, and newer ones beside them, which nobody may get. What
is in the packages is ours: a compiler that calls g++, a tool that prints what it printed on a host with cards, and for
everything else one text that says what it stands for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

_FILES = Path(__file__).with_name("files")
_COMPILERS = {"2025.3": ("2025.3.2-832", "2025.3.3-30"), "2026.0": ("2026.0.0-947",)}
# Where the cards of the lab that is quoted in the catalogue are.
_CARDS = ("0000:03:00.0", "0000:83:00.0", "0000:a3:00.0", "0000:e3:00.0")


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


def gpu_driver() -> list[Package]:
    """The repository of the GPU driver."""
    tool = {
        "/usr/bin/xpu-smi": ((_FILES / "xpu-smi").read_text(encoding="utf-8"), 0o755),
        "/usr/share/xpu-smi/discovery.json": (_discovery(), 0o644),
    }
    found = []
    for runtime, igc, tool_version in (
        ("26.18.38308.1-1~24.04~ppa1", "2.34.4", "1.3.6-1~24.04~ppa1"),
        ("26.22.39000.1-1~24.04~ppa1", "2.36.1", "1.3.7-1~24.04~ppa1"),
    ):
        compiler = (f"intel-igc-opencl-2 (= {igc})",)
        found += [
            Package("intel-igc-core-2", igc),
            Package("intel-igc-opencl-2", igc, (f"intel-igc-core-2 (= {igc})",)),
            Package("intel-ocloc", runtime, compiler),
            Package("intel-opencl-icd", runtime, (*compiler, "libigdgmm12 (>= 22.10)")),
            Package("libze-intel-gpu1", runtime, (*compiler, "libigdgmm12 (>= 22.10)", "libze1")),
            Package("libxpum1", tool_version, ("libze1 (>= 1.28)",)),
            Package("xpu-smi", tool_version, (f"libxpum1 (= {tool_version})",), tool),
        ]
    found += [
        Package("clinfo", "3.0.25.02.14-1"),
        Package("intel-metrics-discovery", "1.14.182-1"),
        Package("intel-metrics-library", "1.0.196-1"),
        Package("libigdgmm12", "22.10.0-1~24.04~ppa1"),
    ]
    for loader in ("1.28.2-1~24.04~ppa1", "1.29.0-1~24.04~ppa1"):
        found += [Package("libze1", loader), Package("libze-dev", loader, (f"libze1 (= {loader})",))]
    return found


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
