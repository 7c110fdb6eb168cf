# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of the cards and of the way to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ansible_collections.arcpro.b70.plugins.module_utils._doctor.checks import cards, links, machine
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Level, Look, Output
from unit.plugins.module_utils._doctor.hosts import (
    SYSTEM,
    captured,
    card,
    judge,
    out,
    profile,
    site,
)

NOTHING: Mapping[str, str] = MappingProxyType({})
A, B = "0000:03:00.0", "0000:43:00.0"
PCI = "/sys/bus/pci/devices"


def test_the_number_of_cards():
    assert judge("card-count", site()).level is Level.PASS
    assert judge("card-count", site(cards=1)).level is Level.FAIL
    told = judge("card-count", site(settings={"cards": 4}))
    assert (told.level, told.summary) == (Level.FAIL, "2 of the cards are present, 4 are expected")
    assert judge("card-count", site(settings={"cards": 1})).level is Level.WARN
    assert judge("card-count", replace(site(), cards=[card(0), card(1, numa_node=1)])).level is Level.WARN


def test_a_card_without_xe_fails_with_what_to_do_about_it():
    assert judge("kernel-driver", site()).level is Level.PASS
    unbound = judge("kernel-driver", replace(site(), cards=[card(0, driver=""), card(1)]))
    assert (unbound.level, unbound.summary) == (Level.FAIL, "1 of 2 cards are not bound to xe")
    assert unbound.evidence == (f"{A}: no driver", f"{B}: xe")
    assert "under the kernel 6.17.0-23-generic" in unbound.fix
    taken = judge("kernel-driver", replace(site(), cards=[card(0, driver="vfio-pci")]))
    assert "bound to vfio-pci" in taken.fix


def test_the_kernel_that_runs_and_the_next_one():
    def found(running: str, following: str):
        return judge("kernel", site(system={**SYSTEM, "kernel": running, "next_kernel": following}))

    good = found("6.17.0-1010-intel", "6.17.0-1010-intel")
    assert (good.level, good.summary) == (Level.PASS, "kernel 6.17.0-1010-intel")
    bad = found("7.0.0-31-generic", "7.0.0-31-generic")
    assert (bad.level, "permanent resets" in bad.summary) == (Level.WARN, True)
    assert bad.source.endswith("compute-runtime/issues/948")
    assert "lacks a fix: memory of the card handed out twice" in " ".join(bad.evidence)
    assert "lacks" not in " ".join(found("7.0.0-39-generic", "7.0.0-39-generic").evidence)
    coming = found("6.17.0-23-generic", "7.0.0-39-generic")
    assert (coming.level, "the next boot uses kernel 7.0.0-39-generic" in coming.summary) == (Level.WARN, True)
    for known in ("6.18.51-custom", "7.1.0", "7.2.7"):
        assert found(known, "").level is Level.PASS, known
    unknown = found("7.3.1-custom", "")
    assert (unknown.level, "nothing is known of its series" in unknown.summary) == (Level.WARN, True)


def guc(*versions: str, kernel: str = "6.17.0-23-generic", wanted: str = "", accepted=(), log: str = ""):
    where = site(settings={"guc_accepted": list(accepted)}, system={**SYSTEM, "kernel": kernel})
    cards = [card(number, guc=version, guc_wanted=wanted) for number, version in enumerate(versions)]
    return judge("guc-firmware", replace(where, cards=cards), (machine.kernel_log(0), out(log)))


def test_guc_firmware_is_judged_with_the_kernel_that_runs_it():
    assert guc("70.65.0", "70.65.0").level is Level.PASS
    bad = guc("70.54.0", "70.58.0", kernel="7.0.0-27-generic", wanted="70.54.0")
    assert bad.level is Level.FAIL
    assert bad.summary.startswith("GuC firmware 70.58.0 under the kernel 7.0.0-27-generic is known to be bad")
    assert bad.evidence[:2] == (f"{A}: GuC 70.54.0", f"{B}: GuC 70.58.0")
    assert bad.evidence[3].startswith("GuC 70.58.0 (wanted 70.54.0) under the kernel 7.0.0-27-generic: bad: ")
    assert "70.54 or 70.65" in bad.fix
    assert bad.source.endswith("compute-runtime/issues/948")
    assert guc("70.58.0", kernel="7.0.0-27-generic", accepted=("70.58",)).level is Level.WARN
    assert guc("70.58.0", "70.58.0", kernel="7.1.0").level is Level.PASS
    assert guc("70.72.1", "70.72.1", kernel="7.2.7").level is Level.PASS
    assert guc("70.72.1", "70.72.1", kernel="7.0.0-27-generic").level is Level.FAIL
    assert guc("70.44.1").level is Level.WARN
    contrary = guc("70.65.0", kernel="7.0.14")
    assert (contrary.level, "is contradictory" in contrary.summary) == (Level.WARN, True)


def test_guc_firmware_that_nobody_has_reported_is_unknown_and_never_passes():
    for version in ("70.36.0", "70.45.2", "70.49.4", "70.53.0", "70.76.0", "70.99.0"):
        found = guc(version, kernel="7.2.7")
        assert (found.level, "is unknown: " in found.summary) == (Level.WARN, True), version
    older = guc("70.49.4", kernel="7.0.0-27-generic", wanted="70.54.0")
    assert "it is older than 70.54.0, which this kernel asks for" in older.summary
    part = guc("70.65.0", "")
    assert (part.level, part.evidence[1]) == (Level.WARN, f"{B}: GuC unknown")


def test_guc_firmware_by_the_kernels_log_where_debugfs_does_not_say():
    found = guc("", "", kernel="7.0.0-39-generic", log=captured("kernel-good.txt"))
    assert (found.level, found.evidence[:2]) == (Level.FAIL, (f"{A}: GuC 70.58.0", f"{B}: GuC 70.44.1"))
    assert guc("", "").level is Level.SKIP
    wanted = guc("", "", kernel="7.0.0-39-generic", log=captured("kernel-recommended.txt"))
    assert wanted.evidence[:2] == (f"{A}: GuC 70.45.2", f"{B}: GuC 70.58.0")
    assert wanted.evidence[2].startswith("GuC 70.45.2 (wanted 70.54.0) under the kernel 7.0.0-39-generic: unknown: ")


def power(first: str, second: str):
    read = cards.device_files(site(), "power/control", "power/runtime_status")
    return read, {f"{PCI}/{A}/power/control": f"{first}\n", f"{PCI}/{B}/power/control": f"{second}\n",
                  f"{PCI}/{A}/power/runtime_status": "active\n"}  # fmt: skip


def test_a_card_that_may_sleep_fails():
    assert judge("card-power", site(), power("on", "on")).level is Level.PASS
    found = judge("card-power", site(), power("on", "auto"))
    assert (found.level, found.evidence) == (
        Level.FAIL,
        (f"{A}: control=on status=active", f"{B}: control=auto status=?"),
    )


def hop(speed: str, width: int, widest: int = 16, more: Mapping[str, str] = NOTHING) -> dict[str, str]:
    return {"current_link_speed": f"{speed} GT/s PCIe", "current_link_width": str(width),
            "max_link_speed": "32.0 GT/s PCIe", "max_link_width": str(widest), **more}  # fmt: skip


def way(speed: str, width: int, more: Mapping[str, str] = NOTHING) -> dict[str, dict[str, str]]:
    """Root port, the card's own switch (its upstream port 8086:e2ff has the slot's link), and the endpoint."""
    return {
        "0000:00:01.1": hop("16.0", 16),
        "0000:01:00.0": hop(speed, width, more=more),
        "0000:02:01.0": hop("2.5", 1, widest=1),
        A: hop("2.5", 1, widest=1),
    }


def links_of(*ways: dict[str, dict[str, str]]):
    return links.PATHS, dict(zip((A, B), ways, strict=False))


def test_the_link_of_the_bridge_is_judged_not_the_one_inside_the_card():
    good = judge("card-link", site(), links_of(way("16.0", 16), way("32.0", 16)))
    assert (good.level, good.evidence[0]) == (Level.PASS, f"{A}: 16 GT/s x16 at 0000:01:00.0")
    # An owner's B450 board: the bridge has 16 GT/s x8, everything behind it says 2.5 GT/s x1.
    narrow = judge("card-link", site(), links_of(way("16.0", 16), way("16.0", 8)))
    assert (narrow.level, narrow.evidence[1]) == (Level.WARN, f"{B}: 16 GT/s x8 at 0000:01:00.0")
    assert judge("card-link", site(), links_of(way("8.0", 16), way("16.0", 16))).level is Level.WARN
    # Generation 5 gives with eight lanes what generation 4 gives with sixteen.
    assert judge("card-link", site(), links_of(way("32.0", 8), way("16.0", 16))).level is Level.PASS
    assert judge("card-link", site(), links_of(way("32.0", 4), way("16.0", 16))).level is Level.WARN
    passed_through = {A: hop("2.5", 1, widest=1)}
    assert judge("card-link", site(), links_of(way("16.0", 16), passed_through)).level is Level.SKIP


def test_a_card_that_works_alone_does_without_a_wide_link():
    assert judge("card-link", site(cards=1), links_of(way("16.0", 8))).level is Level.PASS
    assert judge("card-link", site(cards=1), links_of(way("16.0", 2))).level is Level.PASS
    assert judge("card-link", site(cards=1), links_of(way("2.5", 8))).level is Level.WARN
    assert judge("card-link", site(cards=1), links_of(way("16.0", 1))).level is Level.WARN


AMD, INTEL = "vendor_id\t: AuthenticAMD\n", "vendor_id\t: GenuineIntel\n"


def sleeping(policy: str, cpu: str = AMD, arguments: tuple[str, ...] = (), on: Mapping[str, str] = NOTHING):
    answers = [links_of(way("16.0", 16, on)), (links.CPUINFO, {"/proc/cpuinfo": cpu})]
    path = links.ASPM_POLICY.patterns[0]
    answers.append((links.ASPM_POLICY, {path: policy} if policy else {}))
    return judge("aspm", site(cards=1, system={**SYSTEM, "kernel_arguments": list(arguments)}), *answers)


def test_links_that_sleep_too_deep_on_amd():
    assert sleeping("[default] performance powersave powersupersave \n").level is Level.PASS
    assert sleeping("default performance [powersave] powersupersave \n").level is Level.PASS
    deep = "default performance powersave [powersupersave] \n"
    found = sleeping(deep)
    assert (found.level, found.evidence) == (Level.WARN, ("policy powersupersave",))
    assert sleeping(deep, cpu=INTEL).level is Level.PASS
    # The policy stays as it is written where the kernel's argument has switched all of it off.
    assert sleeping(deep, arguments=("pcie_aspm=off",)).level is Level.PASS
    one = sleeping("[default] performance powersave powersupersave \n", on={"link/l1_1_aspm": "1", "link/l1_aspm": "1"})
    assert (one.level, one.evidence[1]) == (Level.WARN, "0000:01:00.0: l1_1_aspm")
    assert sleeping("").level is Level.SKIP


def caps(*watts: float):
    where = site(cards=len(watts))
    files = {f"{PCI}/{address}/hwmon/hwmon{7 + number}/power1_cap": f"{int(figure * 10**6)}\n"
             for number, (address, figure) in enumerate(zip((A, B), watts, strict=False)) if figure >= 0}  # fmt: skip
    return judge("power-cap", where, (cards.cap_files(where), files))


def test_power_caps():
    # As a B70 says it under kernel 7.0: power1_label card, power1_cap 275000000 (aristocratos/btop 1457).
    shipped = caps(275, 275)
    assert (shipped.level, shipped.evidence) == (Level.PASS, (f"{A}: 275 W", f"{B}: 275 W"))
    assert caps(160, 160).level is Level.PASS
    assert caps(290).level is Level.PASS
    uneven = caps(275, 230)
    assert (uneven.level, "at the speed of the slowest" in uneven.summary) == (Level.WARN, True)
    assert caps(100, 100).level is Level.WARN
    # No file, and a cap that is switched off, say nothing.
    assert caps(-1, -1).level is Level.SKIP
    assert caps(0, 0).level is Level.SKIP
    assert caps(275, -1).evidence == (f"{A}: 275 W", f"{B}: unknown")


def bar(*texts: str):
    where = site(cards=len(texts))
    names = (f"{PCI}/{address}/resource" for address in (A, B))
    known = {name: text for name, text in zip(names, texts, strict=False) if text}
    return judge("card-bar", where, (cards.device_files(where, "resource"), known))


def test_a_window_that_is_smaller_than_the_memory_of_its_card_fails():
    whole, small = captured("resource.txt"), captured("resource-small.txt")
    found = bar(whole, small)
    assert (found.level, found.evidence) == (Level.FAIL, (f"{A}: BAR 2 is 32768 MiB", f"{B}: BAR 2 is 256 MiB"))
    assert "no engine starts on them" in found.summary
    half = whole.replace("0x00003807ffffffff", "0x00003803ffffffff")
    assert (bar(half).level, bar(half).evidence) == (Level.FAIL, (f"{A}: BAR 2 is 16384 MiB",))
    none = whole.replace("0x0000380000000000 0x00003807ffffffff 0x000000000014220c", "0x0 0x0 0x0")
    assert (bar(none).level, bar(none).evidence) == (Level.FAIL, (f"{A}: BAR 2 is 0 MiB",))
    assert bar(whole).level is Level.PASS
    assert bar("").level is Level.SKIP


def translated(*kinds: str, arguments: tuple[str, ...] = ()):
    where = site(cards=len(kinds), system={**SYSTEM, "kernel_arguments": list(arguments)})
    names = (f"{PCI}/{address}/iommu_group/type" for address in (A, B))
    texts = {name: f"{kind}\n" for name, kind in zip(names, kinds, strict=False) if kind}
    return judge("iommu", where, (cards.device_files(where, "iommu_group/type"), texts))


def test_the_iommu_is_told():
    found = translated("DMA-FQ", "DMA", arguments=("quiet", "iommu=strict"))
    assert (found.level, found.evidence) == (Level.WARN, (f"{A}: DMA-FQ", f"{B}: DMA", "iommu=strict"))
    assert translated("DMA-FQ").level is Level.PASS
    assert "passes the cards' addresses through" in translated("identity", "identity").summary
    assert translated("", "", arguments=("intel_iommu=off",)).summary == "no IOMMU stands before the cards"


def test_the_cards_own_firmware_is_told():
    first, second = cards.xpu_smi(site(), "discovery")
    told = (first, out(captured("xpu-smi-discovery-firmware.txt")))
    absent = (second, Output(problem="xpu-smi is not installed"))
    where = replace(site(), cards=[card(number, guc="70.65.0") for number in range(2)])
    found = judge("guc-firmware", where, (machine.kernel_log(0), out("")), told, absent)
    assert found.evidence[-2:] == (f"{A}: IFWI BMG_31.775", f"{B}: IFWI unknown: xpu-smi is not installed")


def ecc(*names: str):
    commands = cards.xpu_smi(site(), "config")
    assert [command.argv for command in commands] == [
        ("xpu-smi", "config", "-d", "0"),
        ("xpu-smi", "config", "-d", "1"),
    ]
    return [(command, out(captured(name))) for command, name in zip(commands, names, strict=True)]


def test_ecc_of_the_cards_memory():
    off, pending, on = "xpu-smi-config.txt", "xpu-smi-config-pending.txt", "xpu-smi-discovery-d0.txt"
    assert judge("card-ecc", site(), *ecc(off, off)).level is Level.PASS
    assert "becomes disabled after a reboot" in judge("card-ecc", site(), *ecc(pending, pending)).summary
    assert "28 of 32 GB" in judge("card-ecc", site(), *ecc(on, on)).summary
    assert "different ECC settings" in judge("card-ecc", site(), *ecc(off, on)).summary


def test_ecc_by_the_size_of_the_memory_where_xpu_smi_is_not_there():
    absent = [(command, Output(problem="xpu-smi is not installed")) for command in cards.xpu_smi(site(), "config")]
    none = judge("card-ecc", site(), *absent)
    assert (none.level, none.summary) == (Level.SKIP, "xpu-smi config does not report ECC: xpu-smi is not installed")
    whole = captured("vram-mm.txt")
    # An eighth is gone with ECC on.
    less = whole.replace("size: 34242297856", f"size: {34242297856 * 7 // 8}")
    paths = [f"/sys/kernel/debug/dri/{address}/tile0/vram_mm" for address in (A, B)]

    def found(*texts: str):
        return judge("card-ecc", site(), *absent, (cards.vram_files(site()), dict(zip(paths, texts, strict=False))))

    off = found(whole, whole)
    assert (off.level, off.evidence[0]) == (Level.PASS, f"{A}: the driver manages 32656 MiB")
    on = found(whole, less)
    assert (on.level, "1 of 2 cards have less than 30 GiB" in on.summary) == (Level.WARN, True)
    assert found(whole).level is Level.SKIP


def test_ecc_that_nobody_tells_is_unknown_and_the_smaller_memory_wins():
    commands = cards.xpu_smi(site(), "config")
    whole = captured("vram-mm.txt")
    less = whole.replace("size: 34242297856", f"size: {34242297856 * 7 // 8}")
    paths = [f"/sys/kernel/debug/dri/{address}/tile0/vram_mm" for address in (A, B)]

    def found(name: str, *texts: str):
        said = [(command, out(captured(name))) for command in commands]
        return judge("card-ecc", site(), *said, (cards.vram_files(site()), dict(zip(paths, texts, strict=False))))

    unknown = found("xpu-smi-config-na.txt")
    assert (unknown.level, "does not report ECC" in unknown.summary) == (Level.SKIP, True)
    assert found("xpu-smi-config-na.txt", whole, whole).level is Level.PASS
    off, silent = (
        (command, out(captured(f"xpu-smi-config{name}.txt")))
        for command, name in zip(commands, ("", "-na"), strict=True)
    )
    part = judge("card-ecc", site(), off, silent)
    assert (part.level, f"unknown for {B}" in part.summary) == (Level.WARN, True)
    for tool in ("xpu-smi-config-na.txt", "xpu-smi-config.txt"):
        small = found(tool, whole, less)
        assert (small.level, "1 of 2 cards have less than 30 GiB" in small.summary) == (Level.WARN, True), tool
    assert "28 GiB" not in found("xpu-smi-config.txt", whole, whole).summary


def other(number: int, model: str = "Arc Pro B60") -> dict[str, object]:
    return {**card(0), "number": number, "model": model, "address": "0000:01:00.0"}


def test_a_card_of_another_model_is_named_and_has_a_number():
    ours = [{**card(index), "number": index + 1} for index in range(2)]
    masked = profile(engine={"env": {"ZE_AFFINITY_MASK": "1,2"}, "argv": []})
    where = replace(site(), cards=ours, others=[other(0)], wanted=[masked])
    found = judge("card-count", where)
    assert (found.level, found.summary) == (Level.PASS, "2 cards; beside them card 0, Arc Pro B60 at 0000:01:00.0")
    assert [command.argv[-1] for command in cards.xpu_smi(where, "config")] == ["1", "2"]
    # Without a mask, and with one that counts B70 cards only, an engine starts on the B60.
    for mask in ("", "0,1"):
        wrong = profile(engine={"env": {"ZE_AFFINITY_MASK": mask}, "argv": []})
        used = judge("card-count", replace(where, wanted=[wrong]))
        assert (used.level, "big may use card 0, Arc Pro B60 at 0000:01:00.0" in used.summary) == (Level.FAIL, True)
    replicas = profile(cards=1, engine={"env": {}, "replicas": [
        {"env": {"ZE_AFFINITY_MASK": "1"}}, {"env": {"ZE_AFFINITY_MASK": "2"}}]})  # fmt: skip
    assert judge("card-count", replace(where, wanted=[replicas])).level is Level.PASS
    none = judge("card-count", replace(where, cards=[], wanted=[]))
    assert (none.level, "card 0, Arc Pro B60" in none.summary) == (Level.SKIP, True)


def test_errors_of_the_bus():
    read = cards.device_files(site(), "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
    path = f"{PCI}/{A}/aer_dev_correctable"
    found = judge("card-bus-errors", site(), (read, {path: captured("aer-correctable.txt")}))
    assert (found.level, found.evidence) == (Level.WARN, (f"{A} correctable: RxErr 3, NonFatalErr 12",))
    # A request that nobody answered at boot is no damaged transfer.
    assert judge("card-bus-errors", site(), (read, {path: "NonFatalErr 12\nTOTAL_ERR_COR 12\n"})).level is Level.PASS
    assert judge("card-bus-errors", site(), (read, {})).level is Level.SKIP


def test_device_nodes():
    rows = [{"path": "/dev/dri/renderD128", "mode": "0660", "group": "render", "usable": True},
            {"path": "/dev/dri/renderD129", "mode": "0600", "group": "root", "usable": False}]  # fmt: skip
    look = Look("device-nodes")
    assert judge("device-nodes", site(), (look, rows[:1])).level is Level.PASS
    found = judge("device-nodes", site(), (look, rows))
    assert (found.level, found.summary) == (Level.FAIL, "the user b70 cannot open /dev/dri/renderD129")
    gone = replace(site(), cards=[card(0, render_node=None)])
    assert judge("device-nodes", gone, (look, [])).level is Level.FAIL
