# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles monitoring and card_metrics on a real host that serves a real engine, with real systemd and packages.

The tests are one story, in this order. The host is its own monitoring host. Its frontdoor has API keys, a queue, and
TLS with a certificate that ends within days, so that an alert fires. Its card is made of files.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from testinfra.host import Host

import monitored
import panels
from demo import inventory_hosts
from labkit.layout import open_lab
from system.product import (
    INVENTORY,
    QUESTION,
    Play,
    bare_hosts,
    lab_command,
    play,
    reach,
    served_process,
    tunnel,
    until,
    words_of,
)
from vendor.server import gateway

pytestmark = pytest.mark.exhaustive
LAB = "watched"
INTERVAL_S = 5
#: what a busy machine may take for an engine
LIMIT_S = 900
KEYS = {"prometheus": "key-of-prometheus", "anna": "key-of-anna"}
CERTIFICATE, SECRET = "/etc/ssl/certs/b70-lab.pem", "/etc/ssl/private/b70-lab.key"
DIRECTORY = "/etc/b70-monitoring"
OWN_RULES, BAD_RULES = "/etc/own-rules.yml", "/etc/bad-rules.yml"
OWN_RULE = '{"groups": [{"name": "own", "rules": [{"alert": "%s", "expr": "vector(1)"}]}]}\n'
SERVERS = ("prometheus.service", "prometheus-alertmanager.service", "prometheus-blackbox-exporter.service")
EXPORTER, TIMER, CARDS = "prometheus-node-exporter.service", "b70-card-metrics.timer", "b70-card-metrics.service"
#: of all that they listen on, also for other protocols than TCP
LISTENS = {"tcp 127.0.0.1:9090", "tcp 127.0.0.1:9093", "tcp 127.0.0.1:9115", "tcp *:9100"}
_NO_CARD = "the profile uses no card: one that is made of files computes nothing"
#: the panels that this host cannot fill, and why
EMPTY = {
    "host: Verification failed": "the canary is asked again only after a quarter of an hour",
    "cards: Memory in use": _NO_CARD,
    "cards: Resets and faults per hour": _NO_CARD,
}


@dataclass(frozen=True)
class Watched:
    """The host, what it is asked through, and what its Alertmanager told. url: of its frontdoor."""

    name: str
    host: Host
    url: str
    certificate: Path
    inventory: Path
    prometheus: str = ""
    told: list[dict[str, Any]] = field(default_factory=list)

    def run(self, playbook: str, *more: str) -> Play:
        done = play(playbook, "-i", str(self.inventory), *more)
        assert not [key for key in KEYS.values() if key in done.output]
        return done

    def monitoring(self, *more: str) -> Play:
        return self.run("playbooks/monitoring.yml", "--diff", *more)

    def converged(self, *more: str) -> Play:
        done = self.monitoring(*more)
        assert done.code == 0, done.output
        return done

    def asked(self, path: str, **query: str) -> Any:
        """The data of an answer of Prometheus."""
        answer = requests.get(f"{self.prometheus}/api/v1/{path}", params=query, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def value(self, expression: str) -> list[dict[str, Any]]:
        """The rows of a query now."""
        return list(self.asked("query", query=expression)["result"])

    def rules(self) -> dict[str, str]:
        """The alerts that Prometheus runs with, with their expressions."""
        return {rule["name"]: rule["query"] for group in self.asked("rules")["groups"] for rule in group["rules"]}

    def chat(self, **body: Any) -> requests.Response:
        asked = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 12, "temperature": 0, **body}
        headers = {"Authorization": f"Bearer {KEYS['anna']}"}
        url = f"{self.url}/v1/chat/completions"
        return requests.post(url, json=asked, headers=headers, verify=str(self.certificate), timeout=180)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Clients for a while, more than there are permits: they chat, take streams, and ask for what is refused."""
        enough = threading.Event()

        def ask(number: int) -> None:
            while not enough.is_set():
                answer = self.chat(stream=True, max_tokens=40 + number, ignore_eos=True)
                assert answer.text.endswith("data: [DONE]\n\n"), answer.text
                if not number:
                    assert self.chat().status_code == 200
                    statuses.update(self.chat(**wrong).status_code for wrong in ({"n": 99}, {"messages": 1}))

        statuses: set[int] = set()
        failed: list[BaseException] = []

        def client(number: int) -> None:
            try:
                ask(number)
            except BaseException as error:
                failed.append(error)
                raise

        clients = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(4)]
        for one in clients:
            one.start()
        try:
            yield
        finally:
            enough.set()
            for one in clients:
                one.join(180)
        assert not failed
        assert 400 in statuses

    def process(self, unit: str) -> str:
        return str(self.host.check_output("systemctl show --property=ActiveState,InvocationID,MainPID %s", unit))

    def processes(self) -> list[str]:
        return [self.process(unit) for unit in (*SERVERS, EXPORTER)]

    def listens(self) -> set[str]:
        """Protocol and address of everything that programs of Prometheus listen on."""
        rows = [line.split() for line in self.host.check_output("ss -Hltunp").splitlines() if '"prometheus' in line]
        return {f"{row[0]} {row[4]}" for row in rows}

    def digest(self, file: str) -> str:
        return str(self.host.check_output("sha256sum %s/%s", DIRECTORY, file))


class Hook(BaseHTTPRequestHandler):
    """What an operator has an alert sent to."""

    def __init__(self, told: list[dict[str, Any]], *words: Any) -> None:
        self._told = told
        super().__init__(*words)

    def do_POST(self) -> None:
        self._told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def write(host: Host, file: str, text: str, mode: str = "0644") -> None:
    host.check_output("install -m %s /dev/stdin %s <<'END'\n" + text.rstrip("\n") + "\nEND", mode, file)


def certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """A certificate for two days, and its key."""
    made, key = folder / "cert.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=b70-lab", "-addext", f"subjectAltName=IP:{address}", "-out", str(made), "-keyout", str(key)]
    subprocess.run(argv, check=True, capture_output=True)
    return made, key


def settings(address: str, hook: str) -> dict[str, Any]:
    """The inventory beside that of the lab."""
    digests = {name: f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items()}
    queued: dict[str, Any] = {"extends": "tiny-a", "title": "Tiny A with a queue", "status": "candidate"}
    queued |= {"engine": {"start_timeout_s": LIMIT_S}, "frontdoor": {"queue_timeout_s": 60}}
    watched = {
        "b70_profiles": {"queued": queued},
        "frontdoor_api_keys": digests,
        "frontdoor_tls_certificate": CERTIFICATE,
        "frontdoor_tls_key": SECRET,
        "card_metrics_interval": 1,
    }
    watching = {
        "monitoring_scrape_interval": INTERVAL_S,
        "monitoring_api_key": KEYS["prometheus"],
        "monitoring_ca_file": CERTIFICATE,
        "monitoring_rule_files": [OWN_RULES],
        "monitoring_receiver": {"webhook_configs": [{"url": hook}]},
    }
    return {"b70_hosts": {"vars": watched}, "b70_monitoring": {"hosts": {f"{LAB}1": {}}, "vars": watching}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("monitoring")
    told: list[dict[str, Any]] = []
    with bare_hosts(LAB, 1):
        ((name, found),) = inventory_hosts(str(INVENTORY), "b70_hosts").items()
        lab_command("cards", name, "1")
        monitored.played_cards(open_lab().host_named(name).hardware, 0, hot=False)
        lab_command("reboot", name)
        address, host = found["ansible_host"], reach(found)
        server = ThreadingHTTPServer((gateway(), 0), partial(Hook, told))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made, key = certificate(folder, address)
        write(host, CERTIFICATE, made.read_text())
        write(host, SECRET, key.read_text(), "0600")
        write(host, OWN_RULES, OWN_RULE % "OwnFirst")
        inventory = folder / "inventory.json"
        hook = f"http://{gateway()}:{server.server_port}/hook"
        inventory.write_text(json.dumps(settings(address, hook)))
        one = Watched(name, host, f"https://{address}:8000", made, inventory, told=told)
        # The driver of the card is not the lab's to have.
        served = one.run("site.yml", "-e", "profile=queued", "--skip-tags", "gpu_driver")
        assert served.code == 0, served.output
        with tunnel(found, 9090) as port:
            yield Watched(name, host, one.url, made, inventory, f"http://127.0.0.1:{port}", told)
        server.shutdown()
        server.server_close()


def test_check_mode_on_a_host_without_the_packages_changes_nothing(run: Watched) -> None:
    predicted = run.converged("--check")
    assert predicted.changed > 0
    assert run.host.run("ls %s", DIRECTORY).rc != 0
    assert run.host.run("dpkg -s prometheus").rc != 0
    assert run.listens() == set()


def test_a_second_run_changes_nothing(run: Watched) -> None:
    assert run.converged().changed > 0
    before = run.processes()
    again = run.converged()
    assert again.changed == 0, again.output
    assert run.converged("--check").changed == 0
    assert run.processes() == before


def test_the_services_are_hardened_and_listen_where_they_should(run: Watched) -> None:
    for unit in (*SERVERS, EXPORTER):
        about = dict(line.split("=", 1) for line in run.process(unit).splitlines())
        assert about["ActiveState"] == "active", unit
        assert run.host.check_output("systemctl is-enabled %s", unit) == "enabled"
        # What the kernel has put the process under, not what the unit says.
        status = run.host.check_output("cat /proc/%s/status", about["MainPID"])
        bound = dict(re.findall(r"^(CapBnd|CapEff|NoNewPrivs|Seccomp|Uid):\t(\w+)", status, re.M))
        uid = run.host.check_output("id -u prometheus")
        assert bound == {"CapBnd": "0" * 16, "CapEff": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2", "Uid": uid}
    for unit in SERVERS:
        assert run.host.check_output("systemctl show --value --property=ProtectSystem %s", unit) == "strict"
    assert run.listens() == LISTENS
    assert run.host.check_output("stat -c '%%U %%G %%a' %s", f"{DIRECTORY}/frontdoor.key") == "root prometheus 640"
    assert run.host.check_output("stat -c '%%U %%G %%a' %s", f"{DIRECTORY}/alertmanager.yml") == "root prometheus 640"


def test_the_timer_writes_the_metrics_of_the_cards(run: Watched) -> None:
    assert run.host.check_output("systemctl is-active %s", TIMER) == "active"
    assert run.host.check_output("systemctl is-enabled %s", TIMER) == "enabled"
    shown = run.host.check_output(
        "systemctl show --property=User,NoNewPrivileges,PrivateNetwork,ProtectSystem %s", CARDS
    )
    assert {*shown.splitlines()} == {
        "User=b70-card-metrics",
        "NoNewPrivileges=yes",
        "PrivateNetwork=yes",
        "ProtectSystem=strict",
    }
    written = 'node_textfile_mtime_seconds{file=~".*b70_cards[.]prom"}'
    until(lambda: run.value(written), "the metrics of the cards")
    (first,) = run.value(written)
    until(lambda: run.value(written)[0]["value"][1] > first["value"][1], "a second reading of the cards")
    assert run.host.check_output("systemctl show --value --property=Result %s", CARDS) == "success"
    (card,) = run.value("b70_card_temperature_celsius")
    assert (card["metric"]["instance"], card["metric"]["sensor"], card["value"][1]) == (run.name, "pkg", "61")


def test_all_targets_are_up(run: Watched) -> None:
    jobs = ["b70-engine", "b70-frontdoor", "b70-node", "b70-probe"]
    until(lambda: sorted(row["metric"]["job"] for row in run.value("up == 1")) == jobs, "all targets")
    targets = run.asked("targets")["activeTargets"]
    assert sorted(one["scrapePool"] for one in targets) == jobs
    assert [one["lastError"] for one in targets] == [""] * len(jobs)
    assert {row["metric"]["instance"] for row in run.value("up")} == {run.name}


def test_every_query_of_every_dashboard_has_data_of_a_real_engine(run: Watched) -> None:
    lacking: set[str] = set()

    def all_have() -> bool:
        lacking.clear()
        lacking.update(one.panel for one in panels.asked(INTERVAL_S) if not panels.has_number(run.value(one.expr)))
        # a panel that is excused for no reason is wrong, too
        return lacking == {*EMPTY}

    with run.busy():
        try:
            until(all_have, "data of all panels")
        except AssertionError as error:
            raise AssertionError(lacking ^ {*EMPTY}) from error


def test_a_firing_alert_is_told(run: Watched) -> None:
    def alerts() -> list[dict[str, Any]]:
        return [alert for message in run.told for alert in message["alerts"]]

    def told() -> bool:
        return {"OwnFirst", "B70CertificateExpires"} <= {alert["labels"]["alertname"] for alert in alerts()}

    until(told, "the alerts")
    (expires,) = [alert for alert in alerts() if alert["labels"]["alertname"] == "B70CertificateExpires"]
    # the warning of the same certificate is not told
    assert (expires["status"], expires["labels"]["severity"]) == ("firing", "critical")
    assert expires["labels"]["instance"] == run.name
    assert expires["annotations"]["summary"].startswith(f"{run.name}: the certificate expires in")


def test_a_changed_rule_is_reloaded_without_a_restart(run: Watched) -> None:
    before = run.processes()
    write(run.host, OWN_RULES, OWN_RULE % "OwnSecond")
    done = run.converged()
    # the reload alone
    assert done.changed == 1, done.output
    assert "OwnSecond" in run.rules()
    assert "OwnFirst" not in run.rules()
    # one of the shipped ones, that somebody changed by hand
    shipped = run.rules()["B70TokensStall"]
    run.host.check_output("sed -i 's/> 2[.]5$/> 9.5/' %s/rules/b70.yml && systemctl reload prometheus", DIRECTORY)
    until(lambda: run.rules()["B70TokensStall"] == shipped.replace("> 2.5", "> 9.5") != shipped, "the changed rule")
    assert run.converged().changed == 2
    assert run.rules()["B70TokensStall"] == shipped
    assert run.processes() == before


@pytest.mark.parametrize(
    ("file", "wrong", "why"),
    [
        ("alertmanager.yml", {"monitoring_receiver": {"webhook_configs": [{"ulr": "http://x"}]}}, "ulr"),
        ("prometheus.yml", {"monitoring_rule_files": [BAD_RULES]}, "bad-rules.yml"),
    ],
)
def test_a_wrong_configuration_is_refused_before_it_replaces_the_one_in_use(
    run: Watched, file: str, wrong: dict[str, Any], why: str
) -> None:
    write(run.host, BAD_RULES, OWN_RULE.replace("vector(1)", "sum(") % "Bad")
    before, processes = run.digest(file), run.processes()
    refused = run.monitoring("-e", json.dumps(wrong))
    assert refused.code != 0
    assert why in words_of(refused.output), refused.output
    assert (run.digest(file), run.processes()) == (before, processes)


def test_absent_leaves_nothing_that_runs_or_listens(run: Watched) -> None:
    absent = ("-e", "monitoring_state=absent", "-e", "card_metrics_state=absent")
    # the refused configurations have left nothing to correct
    assert run.converged().changed == 0
    engine = served_process(run.host)
    predicted = run.converged("--check", *absent)
    assert run.listens() == LISTENS
    assert run.converged(*absent).changed == predicted.changed > 0
    for unit in (*SERVERS, EXPORTER):
        assert "ActiveState=inactive" in run.process(unit)
        assert run.host.run("systemctl is-enabled %s", unit).stdout.strip() == "disabled"
    assert "not-found" in run.host.check_output("systemctl show --property=LoadState %s %s", TIMER, CARDS)
    assert run.listens() == set()
    assert run.host.run("ls %s", DIRECTORY).rc != 0
    assert run.host.run("find /etc/systemd/system -name 50-b70.conf -path '*prometheus*'").stdout == ""
    assert run.host.check_output("systemctl --failed --no-legend --plain") == ""
    assert run.converged(*absent).changed == 0
    assert served_process(run.host) == engine
    assert run.chat().status_code == 200


def test_the_files_for_a_prometheus_that_is_there_already_are_valid_and_start_nothing(run: Watched) -> None:
    files = ("-e", "monitoring_prometheus=files")
    assert run.converged(*files).changed > 0
    assert run.converged(*files).changed == 0
    # as the Prometheus that is there reads them: the key is for its group
    check = "runuser -u prometheus -- promtool check"
    assert "SUCCESS" in run.host.check_output(f"{check} config %s/prometheus.yml 2>&1", DIRECTORY)
    assert "SUCCESS" in run.host.check_output(f"{check} rules %s/rules/b70.yml 2>&1", DIRECTORY)
    run.host.check_output("prometheus-blackbox-exporter --config.check --config.file=%s/blackbox.yml", DIRECTORY)
    assert run.listens() == {"tcp *:9100"}
    assert all("ActiveState=inactive" in run.process(unit) for unit in SERVERS)
