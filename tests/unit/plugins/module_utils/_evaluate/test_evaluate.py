# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evaluate import host, network, parse, plan, verdicts
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.network import Floor, LinkMeasurement, parse_links
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.nodes import Group, Node
from machine import assert_ends

CAPTURED = Path(__file__).parent / "captured"
GROUP = Group(
    0, 18200, (Node("alpha", "10.0.0.1"), Node("beta", "10.0.0.2"), Node("gamma", "fd00::3")), Floor(1.0, 500)
)
TO_BETA = "network.alpha-beta"
ALL = {name: f"/usr/local/bin/{name}" for name in ("ze_peak", "ze_peer", "1ccl_benchmark", "mpirun")}


def text(name: str) -> str:
    return (CAPTURED / name).read_text()


def test_ze_peak_gives_transfers_and_memory():
    assert parse.ze_peak(text("ze_peak-transfer_bw.txt")) == {"h2d": 52.7314, "d2h": 54.0921}
    assert parse.ze_peak(text("ze_peak-global_bw.txt")) == {"float8": 551.4, "float16": 550.0}


def test_ze_peer_gives_every_pair_also_where_a_heading_follows_a_block():
    write = parse.ze_peer(text("ze_peer-write.txt"))
    assert write["unidirectional.write.0-1.128MB"] == 26.44
    assert write["unidirectional.write.1-0.256MB"] == pytest.approx(26.01)
    assert len(write) == 4
    read = parse.ze_peer(text("ze_peer-read-both.txt"))
    assert read["bidirectional.read.0-1.256MB"] == pytest.approx(45.07)
    assert read["bidirectional.read.1-0.128MB"] == 26.44


def test_collectives_are_read_by_their_columns_or_computed():
    computed = parse.ccl(text("ccl-allreduce.txt"), "allreduce", 2)
    assert computed == pytest.approx(134217728 / 5460.02e-6 * 1.0 / 1e9)
    assert parse.ccl(text("ccl-allgather-busbw.txt"), "allgather", 2) == 22.51
    assert parse.bus_factor("allreduce", 4) == 1.5
    assert parse.bus_factor("alltoall", 4) == 0.75


@pytest.mark.parametrize(
    "read",
    [
        *(parse.ze_peak, parse.ze_peer, parse.torch, parse.iperf3, parse.ping),
        lambda said: parse.ccl(said, "allreduce", 2),
    ],
)
def test_output_without_a_figure_is_no_measure(read):
    for said in ("", "terminate called after throwing an instance of 'std::runtime_error'", "{not json"):
        with pytest.raises(parse.ParseError):
            read(said)


def test_an_error_of_torch_is_said_in_its_words():
    with pytest.raises(parse.ParseError, match="torch sees 3 of 4 cards"):
        parse.torch('warning: x\n{"error": "ValueError: torch sees 3 of 4 cards"}\n')


def rows(**values: float | None) -> list[dict[str, object]]:
    return [{"id": name, "value": value, "unit": "GB/s", "tool": "t", "level": "", "note": ""}
            for name, value in values.items()]  # fmt: skip


def test_measures_are_judged_by_their_share_of_the_reference():
    found = verdicts.compare(
        rows(a=100.0, b=94.0, c=80.0, d=5.0), {"a": 100, "b": 100, "c": 100, "gone": 1}, 0.95, 0.85
    )
    assert {row["id"]: row["level"] for row in found} == {
        "a": "PASS", "b": "WARN", "c": "FAIL", "d": "INFO", "gone": "WARN"}  # fmt: skip
    assert verdicts.stops(found, "FAIL") == ["c"]
    assert verdicts.stops(found, "WARN") == ["b", "c", "gone"]
    assert verdicts.stops(found, "never") == []
    lines = verdicts.table(found, "host1")
    assert "80 % of 100.00" in lines[2]
    assert lines[-1] == "host1: 1 PASS, 2 WARN, 1 FAIL, 1 INFO"


def test_a_skipped_benchmark_is_not_missing_from_the_reference():
    skipped = [{**rows(x=None)[0], "id": "collectives.ccl.allreduce", "level": "SKIP", "note": "needs two cards"}]
    found = verdicts.compare(skipped, {"collectives.ccl.allreduce": 20.0}, 0.95, 0.85)
    assert [row["level"] for row in found[:1]] == ["SKIP"]
    assert verdicts.stops(found, "FAIL") == ["reference"]  # a comparison of nothing shows nothing


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0"])
def test_what_is_no_figure_above_nothing_is_no_measure(value):
    bench = plan.Bench("gemm.torch", "gemm", "torch (xpu)", read=lambda text: {"gemm.card0.float16": float(text)})
    found = verdicts.compare(plan.rows_of(bench, value, ""), {"gemm.card0.float16": 100.0}, 0.95, 0.85)
    assert (found[0]["value"], found[0]["note"]) == (None, f"{float(value)} is no measure")
    assert "gemm.card0.float16" in verdicts.stops(found, "FAIL")
    json.dumps(found, allow_nan=False)


def test_memory_that_is_faster_than_its_card_was_compressed():
    fast = [{**rows(x=900.0)[0], "id": "memory.card0.float16"}]
    found = verdicts.compare(fast, {}, 0.95, 0.85)
    assert found[0]["level"] == "WARN"
    assert "compressed" in found[0]["note"]


def test_what_a_run_wrote_is_a_reference_and_nonsense_is_none():
    found = verdicts.compare(rows(a=100.0, b=None), {}, 0.95, 0.85)
    assert verdicts.reference_of(json.loads(json.dumps({"rows": found, "counts": {}}))) == {"a": 100.0}
    nonsense: list[object] = [{}, [], {"a": "fast"}, {"a": 0}, {"a": True}, {"a": float("nan")}]
    for data in nonsense:
        with pytest.raises(ValueError, match="reference"):
            verdicts.reference_of(data)


def test_four_cards_and_all_tools_leave_nothing_out():
    benches = plan.plan(plan.HostTools(4, ALL, "/stack/python", "xpu", "/s.py"))
    assert [bench.reason for bench in benches] == [""] * len(benches)
    by_id = {bench.id: bench for bench in benches}
    assert len([name for name in by_id if name.startswith("memory.card")]) == 8
    peak = by_id["memory.card2.memory"]
    assert peak.argv == ("/usr/local/bin/ze_peak", "-d", "2", "-t", "global_bw")
    assert (peak.directory, peak.environment["RenderCompressedBuffersEnabled"]) == ("/usr/local/bin", "0")
    assert by_id["p2p.bidirectional.read"].argv[1:] == ("-o", "read", "-t", "transfer_bw", "-b")
    assert by_id["collectives.ccl.alltoall"].argv[:4] == (
        "/usr/local/bin/mpirun",
        "-np",
        "4",
        "/usr/local/bin/1ccl_benchmark",
    )
    assert plan.unit_of("gemm.card0.bfloat16") == "TFLOP/s"


def test_a_host_without_cards_or_tools_says_why():
    benches = plan.plan(plan.HostTools(0, {}, "", "cpu", "/s.py"))
    reasons = {bench.id: bench.reason for bench in benches}
    assert reasons["memory.card0.memory"] == "needs a card"
    assert reasons["p2p.torch"] == "no installed stack has a torch for this host: site.yml --tags stack"
    one = {bench.id: bench.reason for bench in plan.plan(plan.HostTools(1, {}, "/p", "xpu", "/s.py"))}
    assert "ze_peak is not on the host" in one["memory.card0.memory"]
    assert one["collectives.torch"] == "needs two cards"
    assert [bench.group for bench in plan.plan(plan.HostTools(1, {}, "/p", "xpu", "/s"), only=["gemm"])] == ["gemm"]
    with pytest.raises(ValueError, match="there is no group speed"):
        plan.plan(plan.HostTools(1, {}, "", "xpu", ""), only=["speed"])


@pytest.mark.real_time
def test_a_benchmark_that_hangs_is_ended_with_its_children(tmp_path):
    pid = tmp_path / "pid"
    argv = ("sh", "-c", f"sleep 600 & echo $! > {pid}; wait")
    bench = plan.Bench("x", "gemm", "t", argv, parse.torch)
    out, error = host.run(bench, 1, {})
    assert "did not end within 1 s" in error
    assert_ends(pid)
    assert plan.rows_of(bench, out, error)[0]["level"] == "FAIL"


def test_a_benchmark_that_fails_says_its_last_lines():
    code = "import sys; sys.stderr.write('one\\nERROR: there are no peer devices\\n'); sys.exit(3)"
    bench = plan.Bench("x", "p2p", "ze_peer", (sys.executable, "-c", code), parse.ze_peer)
    _out, error = host.run(bench, 30, {})
    assert error == "ended with 3: one / ERROR: there are no peer devices"
    assert host.run(plan.Bench("x", "p2p", "t", ("/nowhere/tool",)), 5, {})[1].startswith("/nowhere/tool can't be run")


def test_the_newest_complete_stack_for_the_device_is_taken(tmp_path):
    for number, (name, torch) in enumerate(
        {"cpu-1": "2.13.0+cpu", "lab-2": "2.11.0+xpu", "lab-3": "2.11.0+xpu"}.items()
    ):
        (tmp_path / name / "venv/bin").mkdir(parents=True)
        (tmp_path / name / "venv/bin/python").touch()
        file = tmp_path / name / "fingerprint.json"
        file.write_text(json.dumps({"distributions": [{"name": "torch", "version": torch}]}))
        os.utime(file, (number, number))
    assert host.stack_python(str(tmp_path), "", "xpu") == str(tmp_path / "lab-3/venv/bin/python")
    assert host.stack_python(str(tmp_path), "lab-2", "xpu") == str(tmp_path / "lab-2/venv/bin/python")
    assert host.stack_python(str(tmp_path), "", "cpu") == str(tmp_path / "cpu-1/venv/bin/python")
    with pytest.raises(host.EvaluateError, match="no stack gemma4 for xpu is completely installed"):
        host.stack_python(str(tmp_path), "gemma4", "xpu")


def test_lines_and_stops_of_rows():
    compared = verdicts.compare(rows(a=1.0), {}, 0.95, 0.85)
    assert verdicts.table(compared, "h")[-1] == "h: 1 INFO"
    assert verdicts.stops(compared, "FAIL") == []


def test_iperf3_gives_what_arrived_each_way_and_ping_the_mean_of_its_round_trips():
    found = parse.iperf3(text("iperf3-bidir.json"))
    assert found == {"sent": pytest.approx(0.65995, rel=1e-4), "received": pytest.approx(0.62008, rel=1e-4)}
    assert parse.ping(text("ping.txt")) == pytest.approx(47)
    with pytest.raises(parse.ParseError, match="unable to connect to server: Connection refused"):
        parse.iperf3(text("iperf3-refused.json"))


def test_a_test_of_one_way_alone_is_no_measure():
    said = json.loads(text("iperf3-bidir.json"))
    del said["end"]["sum_received_bidir_reverse"]
    with pytest.raises(parse.ParseError, match="nothing that is a measure of both ways"):
        parse.iperf3(json.dumps(said))


def to_nodes(group=GROUP, tools=None, servers=None):
    tools = {"iperf3": "/usr/bin/iperf3", "ping": "/usr/bin/ping"} if tools is None else tools
    servers = {"beta": "", "gamma": ""} if servers is None else servers
    return {bench.id: bench for bench in network.benches(group, tools, servers, 600)}


def test_the_leader_measures_to_each_follower_from_its_own_address_without_rights():
    found = to_nodes()
    assert list(found) == [
        f"network.alpha-{name}.{what}" for name in ("beta", "gamma") for what in ("bandwidth", "latency")
    ]
    assert {bench.reason for bench in found.values()} == {""}
    argv = found["network.alpha-gamma.bandwidth"].argv
    assert {"--wait", "--pipe", "--property=DynamicUser=yes", "--property=IPAddressAllow=fd00::3"} < set(argv)
    assert (
        " ".join(argv)
        .partition(" -- ")[2]
        .startswith("/usr/bin/iperf3 --client fd00::3 --bind 10.0.0.1 --port 18202 --json --bidir ")
    )
    assert found[f"{TO_BETA}.latency"].argv[-3:] == ("-I", "10.0.0.1", "10.0.0.2")


def test_a_follower_measures_nothing_and_names_who_does():
    (row,) = plan.rows_of(to_nodes(Group(1, 18200, GROUP.hosts))["network"], "", "")
    assert (row["level"], row["note"]) == ("SKIP", "alpha, which leads the nodes, measures it")


def test_what_a_measure_lacks_is_named_with_its_host():
    lacks = network.LACKS.format("iperf3", "beta")
    found = to_nodes(tools={"iperf3": "/usr/bin/iperf3"}, servers={"beta": lacks})
    reasons = {name: bench.reason for name, bench in found.items()}
    assert reasons == {
        f"{TO_BETA}.bandwidth": "iperf3 is not on beta: site.yml --tags host installs it for hosts in b70_nodes",
        f"{TO_BETA}.latency": "ping is not on alpha: site.yml --tags host installs it for hosts in b70_nodes",
        "network.alpha-gamma.bandwidth": "gamma is no host of the inventory",
        "network.alpha-gamma.latency": "ping is not on alpha: site.yml --tags host installs it for hosts in b70_nodes",
    }


def measured(group=GROUP):
    found = to_nodes(group)
    return [
        *plan.rows_of(found[f"{TO_BETA}.bandwidth"], text("iperf3-bidir.json"), ""),
        *plan.rows_of(found[f"{TO_BETA}.latency"], text("ping.txt"), ""),
    ]


@pytest.mark.parametrize(
    ("floor", "stops"),
    [
        (Floor(), []),
        (Floor(0.62, 47), []),
        (Floor(0.63, 47), [f"{TO_BETA}.bandwidth.received"]),
        (Floor(0.67, 46.9), [f"{TO_BETA}.bandwidth.received", f"{TO_BETA}.bandwidth.sent", f"{TO_BETA}.latency"]),
    ],
)
def test_a_link_below_the_floor_fails_whatever_it_is_compared_with(floor, stops):
    group = Group(0, 18200, GROUP.hosts, floor)
    same = {row["id"]: row["value"] for row in measured()}
    found = verdicts.compare(measured(group), same, 0.95, 0.85)
    assert verdicts.stops(found, "FAIL") == stops
    assert {row["level"] for row in found if row["id"] not in stops} <= {"PASS"}
    assert {row["share"] for row in found} == {1.0}


def test_a_link_below_the_floor_is_told_with_the_floor_and_what_to_do():
    lines = verdicts.table(verdicts.compare(measured(), {}, 0.95, 0.85), "alpha")
    assert lines[0].startswith(f"FAIL  {TO_BETA}.bandwidth.received")
    assert (
        "0.62 GB/s is below the floor of 1 GB/s (b70_nodes.bandwidth_min_gb_s); look at the link (ethtool)" in lines[0]
    )
    assert lines[2].startswith(f"INFO  {TO_BETA}.latency")
    assert "47.00 us" in lines[2]


def test_less_is_better_for_a_latency():
    (row,) = verdicts.compare([measured()[2]], {f"{TO_BETA}.latency": 23.5}, 0.95, 0.85)
    assert (row["level"], row["share"]) == ("FAIL", 0.5)
    (row,) = verdicts.compare([measured()[2]], {f"{TO_BETA}.latency": 94}, 0.95, 0.85)
    assert (row["level"], row["share"]) == ("PASS", 2.0)


def test_a_reference_counts_as_far_as_it_could_be_measured():
    reference = {"network.alpha-beta.latency": 1.0, "network.gamma-delta.latency": 1.0, "gemm.card0.float16": 1.0}
    here = plan.HostTools(1, ALL, "/p", "xpu", "/s")
    only = {"network": {"network.alpha-beta.latency"}, "gemm": {"gemm.card0.float16"}}
    for group, names in only.items():
        benches = plan.plan(here, [group], network=list(to_nodes().values()))
        assert set(plan.concerning(benches, reference)) == names
    everything = plan.plan(here, network=list(to_nodes().values()))
    assert set(plan.concerning(everything, reference)) == only["network"] | only["gemm"]
    assert everything[0].group == "network"  # the servers of the followers wait for it


def test_only_a_link_that_was_wholly_measured_is_remembered(tmp_path):
    file = tmp_path / "b70/network.json"
    assert network.links_of(GROUP, measured()[:2], "now") == {}
    first = network.links_of(GROUP, measured(), "now")
    assert first == {"beta": LinkMeasurement(("10.0.0.1", "10.0.0.2"), 0.66, 0.6201, 47.0, "now")}
    network.remember(file, first)
    other = {"gamma": LinkMeasurement(("10.0.0.1", "fd00::3"), 1.1, 1.2, 60.0, "later")}
    network.remember(file, other)
    assert parse_links(file.read_text()) == {**first, **other}
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "torn", [None, "", "{", "[]", '{"schema": 2, "links": {}}', '{"schema": 1, "links": {"b": {}}}']
)
def test_a_record_that_cannot_be_read_holds_nothing(torn):
    assert parse_links(torn) == {}


def test_iperf3_says_in_its_own_words_what_was_wrong():
    bench = to_nodes()[f"{TO_BETA}.bandwidth"]
    for error in ("", "ended with 1: something"):
        (row,) = plan.rows_of(bench, text("iperf3-refused.json"), error)
        assert (row["level"], row["note"]) == ("FAIL", "unable to connect to server: Connection refused")
    assert plan.rows_of(bench, "", "ended with 1: no such user")[0]["note"] == "ended with 1: no such user"
