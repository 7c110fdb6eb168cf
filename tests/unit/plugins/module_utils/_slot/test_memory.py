# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What engines keep in the host's memory, and that a switch refuses what does not fit there."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of
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
