# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alert rules in docs/examples: Prometheus takes them, they fire when they should, and name metrics that exist."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from frontdoor.observability.metrics import PREFIX, REPLICA_SHOWN, SHOWN, Metrics, render

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
CASES = Path(__file__).with_name("alerts.yml")
PAGE = ROOT / "docs" / "frontdoor.md"
CARD_METRICS = ROOT / "roles" / "card_metrics" / "files" / "b70_card_metrics.py"
_METRIC = re.compile(rf"{PREFIX}[a-z_]+")
_SELECTOR = re.compile(rf"({PREFIX}[a-z_]+)\{{([^}}]*)\}}")


@pytest.fixture(scope="module")
def promtool() -> str:
    done = subprocess.run(
        ["sh", str(ROOT / "tests" / "tools" / "promtool.sh")], capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run(promtool: str, *words: str) -> str:
    done = subprocess.run([promtool, *words], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[dict[str, str]]:
    groups = yaml.safe_load((EXAMPLES / "prometheus-rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def asked_in_the_docs() -> list[str]:
    """The expressions in the table of docs/frontdoor.md."""
    section = PAGE.read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = [row.split("|", 2)[2] for row in section.splitlines() if row.startswith("| ") and "`" in row]
    found = [words for row in rows for words in re.findall(r"`([^`]+)`", row) if PREFIX in words or "vllm:" in words]
    assert len(found) >= 10
    return found


def exported() -> dict[str, set[str]]:
    """Names of metrics, as they stand on the wire, with their labels."""
    metrics = Metrics()
    metrics.keys["anna"].outcomes["ok"] = 1
    gauges = dict.fromkeys(SHOWN, 1.0)
    labels = dict.fromkeys(("slot", "profile", "status", "served_model_name", "fingerprint"), "x")
    row = {key: 1.0 for key, _text in REPLICA_SHOWN.values()}
    replicas = [{**row, "index": index} for index in range(2)]
    text = render(metrics, gauges, labels, "serving", "1", replicas=replicas).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_prometheus_takes_the_configuration_and_the_rules(promtool: str) -> None:
    assert f"{len(alerts())} rules found" in run(promtool, "check", "config", str(EXAMPLES / "prometheus.yml"))


def test_each_alert_fires_when_it_should_and_only_then(promtool: str) -> None:
    assert "SUCCESS" in run(promtool, "test", "rules", str(CASES))
    played = CASES.read_text()
    assert [alert["alert"] for alert in alerts() if alert["alert"] not in played] == []


def test_prometheus_understands_what_the_docs_ask(promtool: str, tmp_path: Path) -> None:
    rules = [{"record": f"docs:{number}", "expr": words} for number, words in enumerate(asked_in_the_docs())]
    file = tmp_path / "docs.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "docs", "rules": rules}]}))
    run(promtool, "check", "rules", str(file))


def test_rules_and_docs_name_metrics_and_labels_that_exist() -> None:
    there = exported()
    for expression in [alert["expr"] for alert in alerts()] + asked_in_the_docs():
        for name in _METRIC.findall(expression):
            assert name in there, f"{name} in {expression}"
        for name, matchers in _SELECTOR.findall(expression):
            for label, wanted in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                assert label in there[name], f"{label} of {name} in {expression}"
                if label in ("code", "phase"):
                    text = render(Metrics(), {}, {}, "serving", "1").decode()
                    for value in wanted.split("|"):
                        assert f'{name}{{{label}="{value}"}}' in text, f"{value} in {expression}"


def test_rules_name_metrics_of_the_cards_that_exist() -> None:
    named = {
        name for alert in alerts() for name in re.findall(r"b70_card[a-z_]*", re.sub(r'"[^"]*"', "", alert["expr"]))
    }
    there = runpy.run_path(str(CARD_METRICS), run_name="b70_card_metrics")["METRICS"]
    assert named
    assert named <= set(there)


def test_each_alert_says_where_and_what_to_do() -> None:
    for alert in alerts():
        said = yaml.safe_load(yaml.safe_dump(alert))
        assert said["labels"]["severity"] in ("critical", "warning"), alert["alert"]
        assert "{{ $labels.instance }}" in said["annotations"]["summary"], alert["alert"]
        assert said["annotations"]["description"].endswith("."), alert["alert"]
