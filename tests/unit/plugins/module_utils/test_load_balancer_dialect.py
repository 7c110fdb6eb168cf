# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What HAProxy 2.6 and 2.8 answered, word for word; tests/checks/test_load_balancer.py asks a real one."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._load_balancer import dialect

WORKERS = """\
#<PID>          <type>          <reloads>       <uptime>        <version>
26031           master          1 [failed: 0]   0d00h00m18s     2.6.12-1+deb12u4
# workers
26342           worker          0               0d00h00m01s     2.6.12-1+deb12u4
# old workers
26032           worker          1               0d00h00m18s     2.6.12-1+deb12u4
# programs

"""
HEAD = (
    "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight "
    "srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state "
    "bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr "
    "srv_agent_addr srv_agent_port"
)
ROW = "2 {backend} 1 {name} 127.0.0.1 {op} {admin} 1 1 7 {status} {result} 4 6 0 0 0 - 18001 - 0 0 - - 0"


def row(name: str, *, backend: str = "b70", op: int = 2, admin: int = 0, status: int = 15, result: int = 3) -> str:
    return ROW.format(backend=backend, name=name, op=op, admin=admin, status=status, result=result)


def servers(*rows: str) -> dialect.Servers:
    return dialect.parse_servers("\n".join(("1", HEAD, *rows, "")))


def test_workers_of_before_a_reload_are_old() -> None:
    found = dialect.parse_workers(WORKERS)
    assert (found.current, found.old) == ((26342,), (26032,))
    assert found.all == (26342, 26032)


def test_a_master_without_a_worker_is_a_fault() -> None:
    with pytest.raises(dialect.LoadBalancerFault, match="journalctl -u haproxy"):
        dialect.parse_workers("#<PID> <type>\n1 master 0\n# workers\n# programs\n")


@pytest.mark.parametrize(
    ("text", "state", "in_service"),
    [
        (row("h1"), "ready", True),
        (row("h1", admin=8), "drained", False),
        (row("h1", admin=1), "maintenance", False),
        # its first check, and a later one, are under way
        (row("h1", status=1, result=0), "ready", False),
        (row("h1", result=0), "ready", True),
        # failed, once more under way after that, and stopping because /ready said so
        (row("h1", op=0, status=17, result=2), "ready", False),
        (row("h1", op=0, status=17, result=0), "ready", False),
        (row("h1", op=3, result=4), "ready", False),
    ],
)
def test_states_of_a_server(text: str, state: str, in_service: bool) -> None:
    (server,) = servers(text).servers
    assert (server.state, server.in_service) == (state, in_service)


def test_a_host_has_a_server_in_each_backend() -> None:
    found = servers(row("h1", backend="one"), row("h2", backend="one"), row("h1", backend="two"))
    assert [server.backend for server in found.of("h1")] == ["one", "two"]


def test_the_state_file_has_only_what_is_drained() -> None:
    drained = row("h2", admin=8)
    text = servers(row("h1"), drained, row("h3", op=0)).state_file()
    assert text == f"1\n{HEAD}\n{drained}\n"
    assert dialect.without(text, "h2") == f"1\n{HEAD}\n"
    assert dialect.without(text, "h") == text


@pytest.mark.parametrize("text", ["", "No such backend.\n", "2\n# be_id be_name\n"])
def test_another_form_is_a_fault(text: str) -> None:
    with pytest.raises(dialect.LoadBalancerFault, match="another form"):
        dialect.parse_servers(text)


def test_sessions_of_all_backends_count() -> None:
    stat = "# pxname,svname,qcur,qmax,scur,smax\nb70,h1,0,0,3,4\nb70,h2,0,0,1,4\nother,h1,0,0,2,4\n\n"
    assert dialect.parse_sessions(stat, "h1") == 5
    assert dialect.parse_sessions("Can't find the target PID matching the prefix '@!9'\n", "h1") == 0


def test_commands() -> None:
    (server,) = servers(row("h1")).servers
    assert dialect.to_worker(12, dialect.set_state(server, "drained")) == "@!12 set server b70/h1 state drain"
    assert dialect.set_state(server, "ready") == "set server b70/h1 state ready"


def test_a_host_whose_check_has_not_passed_is_not_called_ready() -> None:
    assert dialect.summary("h1", "ready", 0, in_service=True) == "h1 is ready, with 0 requests under way"
    assert dialect.summary("h1", "ready", 0, in_service=False) == "h1 gets requests as soon as its health check passes"
    assert dialect.summary("h1", "drained", 2, in_service=False) == "h1 is drained, with 2 requests under way"


@pytest.mark.parametrize(
    ("floors", "why"),
    [
        ({}, ""),
        ({"": 1}, ""),
        ({"": 2}, "draining h1 would leave 1 of 3 hosts in service in the backend b70, and b70_min_ready keeps 2"),
        ({"": "34%"}, "draining h1 would leave 1 of 3 hosts in service in the backend b70, and b70_min_ready keeps 2"),
        ({"": 2, "b70": "1"}, ""),
    ],
)
def test_a_host_is_drained_only_if_enough_others_are_in_service(floors: dict[str, int | str], why: str) -> None:
    found = servers(row("h1"), row("h2"), row("h3", admin=8), row("h1", backend="single"))
    assert found.refusal("h1", floors) == why
    # What gives clients nothing takes nothing away from them.
    assert found.refusal("h3", floors) == ""


def test_the_last_host_in_service_stays_and_the_only_one_of_a_backend_may_go() -> None:
    assert "would leave 0 of 2" in servers(row("h1"), row("h2", op=0, result=2)).refusal("h1", {"": 1})
    assert servers(row("h1"), row("h2", backend="other")).refusal("h1", {"": 1}) == ""
