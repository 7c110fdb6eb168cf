# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alert rules of the role monitoring: they fire when they should and only then, and what they name exists."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Phase
from frontdoor.observability.metrics import OUTCOMES, PREFIX, REPLICA_SHOWN, SHOWN, SLOT_SHOWN, Metrics, render
from frontdoor.slot.state import PHASES

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "roles" / "monitoring" / "files" / "rules" / "b70.yml"
DOCUMENTATION = yaml.safe_load((ROOT / "galaxy.yml").read_text())["documentation"]
CASES = Path(__file__).with_name("alerts.yml")
PAGE = ROOT / "docs" / "metrics.md"
CARD_METRICS = ROOT / "roles" / "card_metrics" / "files" / "b70_card_metrics.py"
# What some labels may have; of codes, each metric has its own.
VALUES: dict[str, tuple[str, ...]] = {"phase": PHASES, "outcome": OUTCOMES, "failed_phase": tuple(Phase)}
AT = "2026-06-07T09:00:00Z"
_METRIC = re.compile(rf"{PREFIX}[a-z_]+")
_SELECTOR = re.compile(rf"({PREFIX}[a-z_]+)\{{([^}}]*)\}}")


def run(monitors: Path, *words: str) -> str:
    done = subprocess.run(
        [str(monitors / "promtool"), *words], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[dict[str, str]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def asked_in_the_docs() -> list[str]:
    """The expressions in the table of docs/metrics.md."""
    section = PAGE.read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = [row.split("|", 2)[2] for row in section.splitlines() if row.startswith("| ") and "`" in row]
    found = [words for row in rows for words in re.findall(r"`([^`]+)`", row) if PREFIX in words or "vllm:" in words]
    assert len(found) >= 10
    return found


def exported() -> dict[str, set[str]]:
    """Names of metrics, as they stand on the wire, with their labels."""
    metrics = Metrics()
    metrics.keys["anna"].outcomes["ok"] = 1
    metrics.models["tiny"].signs["repetition"] = 1
    gauges = dict.fromkeys(SHOWN, 1.0)
    labels = dict.fromkeys(("slot", "profile", "status", "served_model_name", "fingerprint"), "x")
    row = {key: 1.0 for key, _text in REPLICA_SHOWN.values()}
    replicas = [{**row, "index": index} for index in range(2)]
    slot: dict[str, Any] = {key: 1.0 for key, _text in SLOT_SHOWN.values()}
    slot |= dict.fromkeys(("profile", "served_model_name", "fingerprint", "phase"), "x")
    slot["last_switch"] = dict.fromkeys(("kind", "outcome", "failed_phase", "at"), "x") | {"seconds": 1.0}
    slot["liveness"] = {
        "at": AT,
        "counts": {"close": 0},
        "cards": [{"pci": "0000:03:00.0", "used": 1, "total": 2, "ecc": False, "faults": 0}],
        "engines": [{"index": None, "verdict": "wedged"}],
        "standby": [{"profile": "x", "bytes": 1, "level": 1}],
        "verification": {"at": AT, "passed": True},
    }
    text = render(metrics, gauges, labels, "serving", "1", replicas=replicas, slots={"main": slot}).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_prometheus_takes_the_rules(monitors: Path) -> None:
    assert f"{len(alerts())} rules found" in run(monitors, "check", "rules", str(RULES))


def test_each_alert_fires_when_it_should_and_only_then(monitors: Path) -> None:
    assert "SUCCESS" in run(monitors, "test", "rules", str(CASES))
    played = CASES.read_text()
    assert [alert["alert"] for alert in alerts() if alert["alert"] not in played] == []


def test_prometheus_understands_what_the_docs_ask(monitors: Path, tmp_path: Path) -> None:
    rules = [{"record": f"docs:{number}", "expr": words} for number, words in enumerate(asked_in_the_docs())]
    file = tmp_path / "docs.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "docs", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(monitors, "check", "rules", str(file))


def test_rules_and_docs_name_metrics_and_labels_that_exist() -> None:
    there = exported()
    for expression in [alert["expr"] for alert in alerts()] + asked_in_the_docs():
        for name in set(_METRIC.findall(expression)):
            assert name in there, f"{name} in {expression}"
        for name, matchers in _SELECTOR.findall(expression):
            for label, wanted in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                assert label in there[name], f"{label} of {name} in {expression}"
                for value in wanted.split("|"):
                    if label == "code":
                        text = render(Metrics(), {}, {}, "serving", "1").decode()
                        assert f'{name}{{{label}="{value}"}}' in text, f"{value} in {expression}"
                    assert value in VALUES.get(label, (value,)), f"{value} in {expression}"


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
        always = alert["alert"] == "Watchdog"
        assert said["labels"]["severity"] in (("none",) if always else ("critical", "warning")), alert["alert"]
        where = ("{{ $labels.instance }}", "{{ $labels.site }}", "{{ $externalLabels.site }}")
        assert said["annotations"]["summary"].startswith(where), alert["alert"]
        assert said["annotations"]["description"].endswith("."), alert["alert"]
        page, _hash, anchor = said["annotations"]["runbook_url"].removeprefix(f"{DOCUMENTATION}/").partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), re.M)
        anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, alert["alert"]
