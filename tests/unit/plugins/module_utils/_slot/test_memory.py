# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What engines keep in the host's memory, and that a switch refuses what does not fit there."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.card_memory import mirror_bytes
from unit.plugins.module_utils._slot.calls import check, host, switch
from unit.plugins.module_utils._slot.fake_host import FakeFiles

GIB = 2**30
CONNECTOR = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"cpu_bytes_to_use": 8 * GIB}}


@pytest.mark.parametrize(
    ("kind", "settings", "gib"),
    [
        ("vllm", {}, 0),
        ("vllm", {"kv_offloading_size": None}, 0),
        ("vllm", {"kv_offloading_size": 8}, 8),
        ("vllm", {"kv_offloading_size": 0.5}, 0.5),
        # one figure for all ranks, but each engine of a data parallel group has its own
        ("vllm", {"kv_offloading_size": 8, "tensor_parallel_size": 4}, 8),
        ("vllm", {"kv_offloading_size": 8, "data_parallel_size": 2}, 16),
        ("vllm", {"kv_transfer_config": CONNECTOR}, 8),
        ("vllm", {"kv_transfer_config": {**CONNECTOR, "kv_connector": "NixlConnector"}}, 0),
        ("llama-server", {"cache_ram": 2048}, 2),
        ("llama-server", {"cache_ram": 0}, 0),
        # its own default
        ("llama-server", {}, 8),
        ("llama-server", {"cache_ram": None}, 8),
        ("openai", {}, 0),
    ],
)
def test_what_a_kind_keeps_there(kind, settings, gib):
    assert kind_of(kind).host_cache_bytes(settings) == gib * GIB


@pytest.fixture
def fake_host(monkeypatch):
    """Weights of 16 GiB, and 64 GiB of memory."""
    size = FakeFiles.size
    weights = PurePosixPath("/models/b/model.safetensors")
    monkeypatch.setattr(FakeFiles, "size", lambda self, path: 16 * GIB if path == weights else size(self, path))
    found = host("ab", load_s=1.0)
    switch(found, "a")
    return found


def offload(fake_host, gib, **more):
    fake_host.render("b", engine__settings={"kv_offloading_size": gib}, **more)


def test_what_fits_is_served(fake_host):
    offload(fake_host, 44)
    assert not check(fake_host, "b")["failed"]
    assert not switch(fake_host, "b")["failed"]


def test_what_does_not_fit_is_refused_with_what_would(fake_host):
    offload(fake_host, 45)
    engine = fake_host.engine().invocation
    result = switch(fake_host, "b")
    assert (result["outcome"], result["failure"]["phase"]) == ("untouched", "guard")
    assert (
        "with the weights (16.0 GiB) and 4.0 GiB for everything else, an engine can have up to 44.0 GiB"
        in result["msg"]
    )
    assert "expected 65.0 GiB of memory; got 64.0 GiB" in result["msg"]
    assert (fake_host.engine().invocation, fake_host.open) == (engine, True)


def test_replicas_have_a_part_each(fake_host):
    offload(fake_host, 30, replicas=2)
    said = switch(fake_host, "b")["msg"]
    assert "(2 replicas with 30.0 GiB each)" in said
    assert "an engine can have up to 22.0 GiB" in said


def test_a_host_that_does_not_tell_its_memory_is_not_judged(fake_host):
    offload(fake_host, 500)
    fake_host.memory = 0
    assert not check(fake_host, "b")["failed"]


def test_an_engine_that_keeps_nothing_there_needs_no_room(fake_host):
    fake_host.memory = 1 * GIB
    fake_host.render("b")
    assert not check(fake_host, "b")["failed"]


NEO = {"NEOReadDebugKeys": "1", "EnableDeferBacking": "0"}
RESIDENT = {"SYCL_UR_USE_LEVEL_ZERO_V2": "0", "UR_L0_USM_RESIDENT": "0x1"}


@pytest.mark.parametrize(
    ("cards", "settings", "env", "gib"),
    [
        (1, {"gpu_memory_utilization": 0.92}, {}, 0),
        (2, {"gpu_memory_utilization": 0.92}, {}, 58.7),
        (4, {"gpu_memory_utilization": 0.92}, {}, 117.4),
        # the release's own share
        (2, {}, {}, 58.7),
        (2, {"kv_cache_memory_bytes": 8 * GIB}, {}, 2 * 9.5 + 18),
        (2, {"ctx_size": 8192}, {}, 2 * 1.5 + 18),
        (2, {"gpu_memory_utilization": 0.92}, NEO, 0),
        (2, {"gpu_memory_utilization": 0.92}, {"EnableDeferBacking": "0"}, 58.7),
        (2, {"gpu_memory_utilization": 0.92}, RESIDENT, 19.1),
        (1, {"gpu_memory_utilization": 0.92}, {"ZE_AFFINITY_MASK": "1"}, 0),
        (2, {"ctx_size": 8192}, {"ZE_AFFINITY_MASK": "0,1", "GGML_VK_VISIBLE_DEVICES": "0,1"}, 0),
    ],
)
def test_the_mirror_of_several_cards(cards, settings, env, gib):
    found = mirror_bytes(cards, settings, env, "0.32.0", 18 * GIB / 1e9)
    assert found / GIB == pytest.approx(gib, abs=0.05)


def two_cards(fake_host, **more):
    settings = {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.92}
    fake_host.cards = 2
    fake_host.render("b", stack__device="xpu", cards=2, engine__settings=settings, **more)


@pytest.mark.parametrize(("gib", "served"), [(16, False), (30, False), (62, False), (64, True)])
def test_a_switch_counts_the_mirror(fake_host, gib, served):
    two_cards(fake_host)
    fake_host.memory = gib * GIB
    told = check(fake_host, "b")
    assert told["failed"] is not served
    if not served:
        assert "whose engine sees several: 58.7 GiB and 4.0 GiB for everything else" in told["msg"]
        assert "Set engine.host_mirror to no_deferred_backing or resident" in told["msg"]


@pytest.mark.parametrize(("mask", "served"), [({}, False), ({"ZE_AFFINITY_MASK": "1"}, True)])
def test_an_engine_without_a_mask_sees_all_cards_of_the_host(fake_host, mask, served):
    fake_host.render(
        "b", stack__device="xpu", cards=1, engine__settings={"gpu_memory_utilization": 0.92}, engine__env=mask
    )
    fake_host.cards, fake_host.memory = 2, 30 * GIB
    assert check(fake_host, "b")["failed"] is not served


def test_an_option_of_the_profile_ends_the_mirror(fake_host):
    two_cards(fake_host, engine__env=NEO)
    fake_host.memory = 30 * GIB
    assert not check(fake_host, "b")["failed"]


DPKG = "Package: libze-intel-gpu1\nStatus: install ok installed\nVersion: {version}\n"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("26.27.39122.11-0", "on compute runtime 26.27.39122.11-0 of this host: It hangs."),
        ("26.22.38646.4-0", "needs a newer compute runtime"),
        ("26.31.39395.13-1146~24.04", ""),
        (None, ""),
    ],
)
def test_a_switch_judges_the_runtime_of_the_host(fake_host, version, said):
    least = "26.31" if said != "on compute runtime 26.27.39122.11-0 of this host: It hangs." else ""
    refused = [{"matches": r"^26\.27(\.|$)", "reason": "It hangs."}]
    fake_host.render("b", runtimes={"least": least, "refused": refused})
    if version:
        fake_host.put(PurePosixPath("/var/lib/dpkg/status"), DPKG.format(version=version))
    told = check(fake_host, "b")
    assert told["failed"] is bool(said)
    assert said in told["msg"]


def test_a_file_that_the_container_is_given_must_be_there(fake_host):
    fake_host.render("b", engine__mounts={"/srv/templates/x.jinja": "/x.jinja"})
    assert "/srv/templates/x.jinja, which engine.mounts of b names, is not on this host" in check(fake_host, "b")["msg"]
    fake_host.put(PurePosixPath("/srv/templates/x.jinja"), "x")
    assert not check(fake_host, "b")["failed"]
