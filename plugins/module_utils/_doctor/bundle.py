# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The support bundle: redacted and bounded information about a host, for remote analysis.

A list defines the items. The doctor's effects collect them. Everything that leaves the host is text from the redactor.
Missing items are listed with the reason.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._slot.words.redact import SHORTEST_KNOWN, Redactor, known_secrets
from .checks.cards import DEBUG, PCI, xpu_smi
from .checks.machine import LIST_BOOTS, kernel_log
from .checks.product import UNITS
from .checks.runtime import CLINFO, XPU_SMI, sycl_ls
from .checks.stack import inside_of
from .model import Answers, Command, Look, Output, Probe, Read, Site

MOST_FILES = 40
# Files that a report on a pair of kernel and firmware, a BAR or copies between cards needs.
CARD_FILES = ("vendor", "device", "resource", "iommu_group/type")
JOURNAL_LINES = 4000
# Messages of the kernel compiler in an engine's log.
COMPILER_WORDS = "ocloc|IGC|SPIR-V|spirv|UR_RESULT_ERROR"


@dataclass(frozen=True)
class Item:
    """One item: its path in the archive, its origin, and how to collect it."""

    name: str
    source: str
    probe: Probe


@dataclass(frozen=True)
class BundleRow:
    """One row of the archive's table of contents. `problem` is the reason for a missing item, else empty."""

    name: str
    source: str
    bytes: int = 0
    truncated: bool = False
    problem: str = ""


def command(name: str, *argv: str, limit_s: float = 10.0, owner_of: str = "") -> Item:
    return Item(name, " ".join(argv), Command(argv, limit_s=limit_s, owner_of=owner_of))


def files(name: str, *patterns: str, max_bytes: int = 2**18) -> Item:
    """Return the item of the files that match; in the archive `name` is their folder."""
    return Item(name, " ".join(patterns), Read(patterns, max_bytes))


def items(site: Site) -> list[Item]:
    """Return the items of the bundle: what reports to the vendor and upstream require, and the slot's history."""
    config, state = site.settings["config_dir"], site.settings["state_dir"]
    names = [str(profile["name"]) for profile in site.wanted]
    caches = site.settings["cache_dirs"]
    units = [str(profile["unit"]) for profile in site.wanted]
    journal = ("journalctl", "--quiet", "--no-pager", "--output=short-iso")
    return [
        files("system/", "/etc/os-release", "/proc/cmdline", "/proc/meminfo", "/proc/swaps", "/proc/cpuinfo"),
        command("system/uname.txt", "uname", "-a"),
        command("system/uptime.txt", "uptime"),
        command("system/lspci.txt", "lspci", "-nn"),
        command("system/lspci-cards.txt", "lspci", "-nnvvv", "-d", "8086:"),
        command("system/numa.txt", "lscpu"),
        command("system/disks.txt", "df", "-hT"),
        Item("logs/boots.txt", "journalctl --list-boots", LIST_BOOTS),
        Item("logs/kernel.txt", "journalctl --dmesg --boot=0", kernel_log(0)),
        Item("logs/kernel-before.txt", "journalctl --dmesg --boot=-1", kernel_log(-1)),
        command("logs/units.txt", *journal, "--unit=b70-*", f"--lines={JOURNAL_LINES}", limit_s=20),
        command(
            "logs/compiler.txt", *journal, "--unit=b70-slot-*", f"--grep={COMPILER_WORDS}", "--lines=500", limit_s=20
        ),
        Item("cards/xpu-smi-discovery.txt", "xpu-smi discovery", XPU_SMI),
        Item("cards/clinfo.txt", "clinfo -l", CLINFO),
        Item("cards/sycl-ls.txt", "sycl-ls", sycl_ls(site)),
        *(
            Item(f"cards/xpu-smi-{words}-{number}.txt", " ".join(asked.argv), asked)
            for words in ("config", "discovery", "stats")
            for number, asked in zip(site.numbers, xpu_smi(site, words), strict=True)
        ),
        files("cards/", *(f"{DEBUG}/{address}/gt0/uc/guc_info" for address in site.addresses)),
        files("cards/", *(f"{PCI}/{address}/{name}" for address in site.addresses for name in CARD_FILES)),
        command("packages/vendor.txt", "dpkg-query", "-W", "intel-*", "libze*", "xpu-smi", "level-zero*", "libig*"),
        command("packages/kernel.txt", "dpkg-query", "-W", "linux-image-*", "linux-firmware*"),
        *(
            Item(f"stacks/{stack['id']}/inside.json", "torch, asked in the stack", inside_of(site, stack, vllm=False))
            for stack in site.torch_stacks
        ),
        files("stacks/", f"{site.settings['stack_root']}/*/fingerprint.json"),
        command("slot/units.txt", *UNITS.argv),
        *((command("slot/unit-files.txt", "systemctl", "cat", "--no-pager", *units),) if units else ()),
        files("slot/", f"{config}/current.env", f"{config}/slot.json", f"{site.settings['run_dir']}/*/state.json"),
        files("slot/", *(f"{config}/profiles/{name}.{kind}" for name in names for kind in ("json", "env"))),
        files("slot/", f"{state}/journal/*.jsonl", max_bytes=2**19),
        files("slot/", f"{state}/quarantine.json", f"{state}/evidence/*", f"{state}/evidence/*/*"),
        files("records/", f"{state}/records/index.json", f"{state}/records/*/*.json"),
        Item("frontdoor/status.json", "GET /status", Look("http", f"{site.settings['frontdoor_url']}/status")),
        files("sources/", f"{site.settings['build_dir']}/*/build.log", max_bytes=2**19),
        files("frontdoor/", "/etc/b70-frontdoor/*.toml"),
        command("caches/compile-caches.txt", "find", *caches, "-maxdepth", "3", "-printf", "%s %TF %p\\n"),
        command("caches/spirv.txt", "find", *caches, "-name", "*.spv", "-printf", "%s %TF %p\\n"),
        *(
            files("bench/", f"{folder}/bench-results/*.json", f"{folder}/bench-results/*/*.json")
            for folder in site.settings["data_dirs"][:1]
        ),
    ]  # fmt: skip


# The configuration of a checkout names programs, such as filters, and git runs them. So it runs as the owner.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "safe.directory=*", "--no-optional-locks")


def checkouts(heads: Mapping[str, str]) -> list[Item]:
    """Commit and local changes of every source checkout; `heads` are the paths of their .git/HEAD."""
    listed = []
    for path in sorted(heads):
        folder = path.removesuffix("/.git/HEAD")
        # A build's folder has the name of its source and the key of its recipe. All checkouts in them have the same
        # name.
        name = folder.removesuffix("/src").rsplit("/", 1)[-1]
        asked, owner_of = (*GIT, "-C", folder), f"{folder}/.git"
        listed.append(command(f"sources/{name}.txt", *asked, "log", "-1", "--format=%H %cI %s", owner_of=owner_of))
        changes = (*asked, "diff", "--no-ext-diff", "--no-textconv", "HEAD")
        listed.append(command(f"sources/{name}.patch", *changes, limit_s=20, owner_of=owner_of))
    return listed


def heads_of(site: Site) -> Read:
    """Return the probe for Git's heads in the directories of builds (KEY/src) and in people's checkouts beside them."""
    work = site.settings["build_dir"]
    return Read((f"{work}/*/src/.git/HEAD", f"{work}/*/.git/HEAD"), max_bytes=1)


HOMES = ("/root", "/home/*")


def secret_places(site: Site) -> tuple[Read, Read]:
    """Return the probes for files with named values and for files that are entirely secret."""
    config = site.settings["config_dir"]
    named = (f"{config}/profiles/*.env", f"{config}/*.env", "/etc/environment", "/etc/b70-frontdoor/*", "/etc/pip.conf",
             f"{site.settings['unit_dir']}/b70-*", f"{site.settings['unit_dir']}/b70-*/*")  # fmt: skip
    hubs = [f"{home}/{folder}" for home in HOMES for folder in (".cache/huggingface", ".huggingface")]
    whole = tuple(f"{folder}/token" for folder in (*hubs, *site.settings["cache_dirs"]))
    return Read(named), Read(whole)


def secrets_in(site: Site, answers: Answers) -> set[str]:
    """Return the known secrets of this host."""
    named, whole = secret_places(site)
    found = {word for text in answers.texts(named).values() for word in known_secrets(text)}
    found |= {value for profile in site.wanted for value in known_secrets(json.dumps(profile.get("engine", {})))}
    return found | {text.strip() for text in answers.texts(whole).values() if len(text.strip()) >= SHORTEST_KNOWN}


def contents(
    listed: Sequence[Item], answers: Answers, redactor: Redactor, most_bytes: int
) -> tuple[dict[str, bytes], list[BundleRow]]:
    """Return the redacted bytes by name in the archive, and the table of contents.

    Of a long item only the end is kept.
    """
    held: dict[str, bytes] = {}
    rows: list[BundleRow] = []

    def keep(name: str, source: str, text: str, problem: str = "") -> None:
        source = redactor.clean(source)
        if not text.strip():
            rows.append(BundleRow(name, source, problem=redactor.clean(problem) or "it is empty"))
            return
        data = redactor.clean(text).encode()
        cut = len(data) > most_bytes
        # A cut inside a character must not leave a broken one.
        held[name] = data[-most_bytes:].decode("utf-8", "ignore").encode() if cut else data
        rows.append(BundleRow(name, source, len(held[name]), cut))

    for item in listed:
        if isinstance(item.probe, Command):
            output = answers.output(item.probe)
            keep(item.name, item.source, output.out or output.err, "" if output.ok else output.why())
        elif isinstance(item.probe, Read):
            texts = answers.texts(item.probe)
            if not texts:
                rows.append(BundleRow(item.name, redactor.clean(item.source), problem="there is no such file"))
            for path, text in list(texts.items())[-MOST_FILES:]:
                keep(item.name + re.sub(r"[^\w.-]+", "_", redactor.clean(path).strip("/")), path, text)
        elif isinstance(item.probe, Look):
            answer = _looked(answers, item.probe)
            problem = answer.problem if isinstance(answer, Output) else str(answer.get("error", ""))
            keep(item.name, item.source, "" if isinstance(answer, Output) else str(answer.get("body", "")), problem)
    return held, rows


def _looked(answers: Answers, probe: Look) -> Any:
    try:
        return answers.look(probe)
    except LookupError as error:
        return Output(problem=str(error))


def clean_data(redactor: Redactor, data: Any) -> Any:
    """Return plain data with every string in it redacted."""
    if isinstance(data, str):
        return redactor.clean(data)
    if isinstance(data, Mapping):
        return {key: clean_data(redactor, value) for key, value in data.items()}
    return [clean_data(redactor, value) for value in data] if isinstance(data, list | tuple) else data


def archive(held: Mapping[str, bytes], rows: Sequence[BundleRow], told: Mapping[str, bytes], folder: str) -> bytes:
    """Return a tar.gz of `held` and `told` below `folder`, with the table of contents as manifest.json."""
    manifest = json.dumps({"schema": 1, "items": [asdict(row) for row in rows]}, indent=1).encode()
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in sorted({**held, **told, "manifest.json": manifest}.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
