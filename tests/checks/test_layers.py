# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._render.program import program_files
from checks import layers

ROOT = Path(__file__).resolve().parents[2]
RULES = [layers.check_direction, layers.check_host_only, layers.check_copied, layers.check_rooms]
GOOD = {
    "modules/b70_one.py": f"from {layers.COLLECTION}.module_utils._one import run\n",
    "module_utils/_one.py": "from ._slot.words import types\n",
    "module_utils/_slot/__init__.py": "",
    "module_utils/_slot/command.py": "from .decide import machine\nfrom .host import files\n",
    "module_utils/_slot/words/types.py": "",
    "module_utils/_slot/decide/machine.py": "from ..words import types\n",
    "module_utils/_slot/host/files.py": "from ..words.types import Fault\n",
    "module_utils/_weights/fetching/program.py": "",
    "plugin_utils/_plan.py": f"from {layers.COLLECTION}.module_utils import _one\n",
    "filter/one.py": f"from {layers.COLLECTION}.plugin_utils._plan import plan\n",
}
BROKEN: list[tuple[Callable[[Path], list[str]], str, str, str]] = [
    (
        layers.check_direction,
        "module_utils/_one.py",
        "from ..plugin_utils import _plan\n",
        "plugins/module_utils/_one.py: imports plugins/plugin_utils/_plan.py, which only the controller has",
    ),
    (
        layers.check_host_only,
        "module_utils/_two.py",
        "",
        "plugins/module_utils/_two.py: no module uses it; move it to plugins/plugin_utils",
    ),
    (
        layers.check_copied,
        "module_utils/_slot/decide/two.py",
        "",
        "plugins/module_utils/_slot/decide/two.py: is copied to hosts, where nothing uses it",
    ),
    (
        layers.check_copied,
        "module_utils/_slot/decide/machine.py",
        "from ..._one import run\n",
        "plugins/module_utils/_one.py: module_utils/_slot/command.py needs it and it is not copied",
    ),
    *(
        (layers.check_rooms, name, text, f"plugins/{name}: imports plugins/{other}, which its room may not")
        for name, text, other in [
            (
                "module_utils/_slot/words/types.py",
                "from ..decide import machine\n",
                "module_utils/_slot/decide/machine.py",
            ),
            ("module_utils/_slot/decide/machine.py", "from ..host import files\n", "module_utils/_slot/host/files.py"),
            (
                "module_utils/_slot/host/files.py",
                "from ..decide import machine\n",
                "module_utils/_slot/decide/machine.py",
            ),
            ("module_utils/_one.py", "from ._slot.decide import machine\n", "module_utils/_slot/decide/machine.py"),
        ]
    ),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in GOOD.items():
        write(tmp_path, name, text)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    file = root / "plugins" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_this_collection_keeps(rule: Callable[[Path], list[str]]) -> None:
    found = rule(ROOT)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_good_tree_is_accepted_by(rule: Callable[[Path], list[str]], tree: Path) -> None:
    assert rule(tree) == []


@pytest.mark.parametrize(("rule", "name", "text", "finding"), BROKEN, ids=[case[3] for case in BROKEN])
def test_a_broken_tree_is_refused(
    rule: Callable[[Path], list[str]], name: str, text: str, finding: str, tree: Path
) -> None:
    write(tree, name, text)
    assert finding in rule(tree)


def test_a_host_gets_the_slot_engine_and_nothing_else() -> None:
    """What is rendered for a host is the folder that the rules above judge, and the command."""
    places = ("slot", "config_dir", "run_dir", "state_dir", "unit_dir", "frontdoor_url")
    files = program_files({**dict.fromkeys(places, "x"), "lib_dir": "/lib", "bin_dir": "/bin", "command": "b70ctl"})
    folder = ROOT / "plugins/module_utils/_slot"
    expected = {f"/lib/b70slot/{file.relative_to(folder).as_posix()}" for file in folder.rglob("*.py")}
    assert {file["path"] for file in files} == {*expected, "/bin/b70ctl", "/bin/b70ctl.bash"}


def test_what_every_converge_sends_carries_no_switch() -> None:
    """Ansible sends a module with all that it imports, and the host compiles that anew each time."""
    sent = layers.reached(layers.imports(ROOT), ["modules/b70_host_info.py", "modules/b70_slot_files.py"])
    assert not [name for name in sent if name.startswith(tuple(f"{layers.ENGINE}{room}/" for room in ("do", "face")))]
