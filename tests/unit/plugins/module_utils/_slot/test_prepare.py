# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done while clients are still served: the weights of the next model are read into memory."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.do.prepare import LIMIT_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.files import HostFiles
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.kind import Weights
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.memory import SPARED_BYTES, bytes_of
from unit.plugins.module_utils._slot.calls import host, names, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed, request

WEIGHTS = PurePosixPath("/models/b/model.safetensors")
MEMINFO = "MemTotal:       24684136 kB\nMemFree:        21076476 kB\nMemAvailable:   23191884 kB\n"


@pytest.fixture
def fake_host():
    made = host("ab", load_s=1.0)
    switch(made, "a")
    made.mono += 60
    made.prefetched.clear()
    return made


def hints(fake_host):
    text = fake_host.effects().files.read(LAYOUT.progress_file)
    return [line for line in text.splitlines() if '"hint"' in line and '"prepare"' in line]


def test_the_weights_are_read_while_the_engine_before_is_served(fake_host):
    effects = fake_host.effects()
    prefetch, served = effects.files.prefetch, []

    def watched(path):
        served.append((fake_host.open, fake_host.state.profile_name))
        return prefetch(path)

    effects.files.prefetch = watched
    result = api.switch(effects, LAYOUT, request("b"))
    assert result["outcome"] == "committed"
    assert (fake_host.prefetched, served) == ([WEIGHTS], [(True, "a")])
    assert names(result)[3:6] == ["journal", "prepare", "close"]


def test_what_is_beside_the_model_is_read_as_well(fake_host):
    fake_host.render(
        "d",
        model__companions=["/models/d-draft"],
        engine__kind="llama-server",
        engine__argv=[
            "/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/llama-server",
            *("--model", "/models/d/model.gguf", "--spec-draft-model", "/models/d-draft/draft.gguf", "--port", "18080"),
        ],
    )
    loaded = [PurePosixPath("/models/d/model.gguf"), PurePosixPath("/models/d-draft/draft.gguf")]
    for path in (*loaded, PurePosixPath("/models/d-draft/other.gguf")):
        fake_host.put(path, "x")
    fake_host.put(PurePosixPath("/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/llama-server"), "#!")
    switch(fake_host, "d")
    assert fake_host.prefetched == loaded


def test_where_nothing_is_served_nothing_is_read_twice():
    fake_host = host("ab", load_s=1.0)
    result = switch(fake_host, "a")
    assert fake_host.prefetched == []
    assert "prepare" not in names(result)


def test_what_settles_an_interrupted_switch_waits_for_nothing(fake_host):
    effects = fake_host.effects()
    start = effects.units.start

    def killed(name):
        start(name)
        raise Killed

    effects.units.start = killed
    with pytest.raises(Killed):
        api.switch(effects, LAYOUT, request("b"))
    fake_host.prefetched.clear()
    settled = recover(fake_host)
    assert "start" in names(settled)
    assert "prepare" not in names(settled)
    assert fake_host.prefetched == []
    assert (fake_host.open, fake_host.state.profile_name) == (True, "a")


def test_weights_that_memory_has_no_room_for_are_left_where_they_are(fake_host):
    fake_host.available = SPARED_BYTES
    assert switch(fake_host, "b")["outcome"] == "committed"
    assert fake_host.prefetched == []
    assert "not read ahead: memory has room for 0.0 GB" in hints(fake_host)[0]


def test_a_disk_that_is_too_slow_holds_up_nobody(fake_host):
    fake_host.prefetch_s = LIMIT_S + 1
    assert switch(fake_host, "b")["outcome"] == "committed"
    assert f"of the weights were read within {LIMIT_S:g} s" in hints(fake_host)[0]


def test_weights_that_cannot_be_read_are_left_to_the_engine(fake_host):
    fake_host.unreadable.add(WEIGHTS)
    result = switch(fake_host, "b")
    assert (result["outcome"], result["warnings"]) == ("committed", [])
    assert "the weights are not read ahead: is not a regular file" in hints(fake_host)[0]


def test_who_ends_the_switch_meanwhile_has_touched_nothing(fake_host):
    engine = fake_host.engine().invocation
    effects = fake_host.effects()
    prefetch = effects.files.prefetch

    def told(path):
        fake_host.told = True
        return prefetch(path)

    effects.files.prefetch = told
    result = api.switch(effects, LAYOUT, request("b"))
    assert (result["outcome"], result["failure"]["phase"], result["profile"]) == ("untouched", "prepare", "a")
    assert (fake_host.open, fake_host.engine().invocation) == (True, engine)
    assert recover(fake_host)["outcome"] == "unchanged"


def test_available_memory_is_what_the_kernel_says():
    assert bytes_of(MEMINFO, "MemAvailable") == 23191884 * 1024
    assert bytes_of("MemTotal: 1 kB\n", "MemAvailable") == bytes_of(None, "MemTotal") == 0


def test_a_file_is_read_to_its_end(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(40 * 2**20))
    pieces = list(HostFiles().prefetch(PurePosixPath(path)))
    assert (sum(pieces), len(pieces) > 1) == (40 * 2**20, True)


@pytest.mark.parametrize(
    ("kind", "argv", "loaded"),
    [
        ("vllm", ["vllm", "serve", "/models/b"], ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.gguf")),
        (
            "llama-server",
            ["llama-server", "--model", "/models/b/a-00001-of-00002.gguf"],
            ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf"),
        ),
        ("openai", ["/usr/sbin/haproxy"], ()),
    ],
)
def test_what_is_loaded_is_what_the_kind_of_engine_loads(kind, argv, loaded):
    there = ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.gguf", "config.json")
    weights = Weights("b", PurePosixPath("/models/b"), there, argv, lambda path: None)
    assert kind_of(kind).weight_files(weights) == loaded
