# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards that ship have the types that Grafana's own schema gives dashboards and their panels."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tools import dashboards

TYPES = "@grafana/schema/dist/esm/raw"
#: where the schema has the options of each type of panel
PANELS = {
    "stat": "stat/panelcfg/x/StatPanelCfg_types.gen",
    "statetimeline": "statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen",
    "table": "table/panelcfg/x/TablePanelCfg_types.gen",
    "timeseries": "timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen",
}
#: types of panels that have settings of each field
FIELDS = ("statetimeline", "timeseries")
# Of an enumeration of texts TypeScript takes the member alone, and JSON has its text.
PLAIN = """
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
"""
COMPILE = "--noEmit --strict --skipLibCheck --module esnext --moduleResolution bundler --target es2022"

pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(shutil.which("npm") is None, reason="only npm brings Grafana's schema"),
]


def program(shown: Mapping[str, Any]) -> Iterator[str]:
    """A dashboard as TypeScript: its compiler refuses what the schema does not know, and values of another type."""
    yield f"import type {{ Dashboard }} from '{TYPES}/dashboard/x/Dashboard_types.gen';"
    for kind, place in PANELS.items():
        yield f"import type * as {kind} from '{TYPES}/composable/{place}';"
    yield PLAIN
    yield f"export const shown: Dashboard = {json.dumps(shown)};"
    for panel in shown["panels"]:
        kind = panel["type"].replace("-", "")
        if kind != "row":
            yield f"export const options{panel['id']}: Plain<Partial<{kind}.Options>> = {json.dumps(panel['options'])};"
        if kind in FIELDS:
            custom = panel["fieldConfig"]["defaults"].get("custom", {})
            yield f"export const fields{panel['id']}: Plain<Partial<{kind}.FieldConfig>> = {json.dumps(custom)};"


@pytest.fixture(scope="module")
def schema() -> Path:
    """The folder with Grafana's schema and the compiler."""
    argv = ["sh", str(dashboards.ROOT / "tests/tools/grafana.sh")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def faults(schema: Path, folder: Path, programs: Mapping[str, Mapping[str, Any]]) -> str:
    """What the compiler says of these dashboards."""
    (folder / "node_modules").symlink_to(schema / "node_modules")
    for name, shown in programs.items():
        (folder / f"{name}.ts").write_text("\n".join(program(shown)))
    argv = ["node", "node_modules/typescript/bin/tsc", *COMPILE.split(), *(f"{name}.ts" for name in programs)]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode == 0) == (not done.stdout), done.stderr
    return done.stdout


def test_the_dashboards_fit_the_schema_of_grafana(schema: Path, tmp_path: Path) -> None:
    files = sorted((dashboards.ROOT / dashboards.FOLDER).glob("*.json"))
    assert len(files) == len(dashboards.dashboards())
    assert faults(schema, tmp_path, {file.stem: json.loads(file.read_text()) for file in files}) == ""


def test_what_does_not_fit_is_found(schema: Path, tmp_path: Path) -> None:
    shown = json.loads((dashboards.ROOT / dashboards.FOLDER / "fleet.json").read_text())
    stat = next(panel for panel in shown["panels"] if panel["type"] == "stat")
    lines = next(panel for panel in shown["panels"] if panel["type"] == "timeseries")
    title, stat["title"] = stat["title"], 7
    stat["options"] |= {"graphModus": "area"}
    lines["fieldConfig"]["defaults"]["custom"] |= {"fillOpacity": "8"}
    said = faults(schema, tmp_path, {"fleet": shown})
    assert said.count("error TS") == 3, said
    assert "graphModus" in said
    assert title not in said
