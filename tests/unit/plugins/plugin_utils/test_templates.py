# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of the collection, and those of a site in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._templates import render
from unit.plugins.plugin_utils._render.test_rendering import C8, CATALOGUE, rendered

UNIT = f"b70-slot-main-{C8}.service"


def test_a_site_replaces_a_template_and_the_part_of_another_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, text in ((first, "d {{ run_dir }} 0700 root root -\n"), (second, "never read\n")):
        folder.mkdir()
        (folder / "b70-slot-tmpfiles.conf.j2").write_text(text)
    (second / "b70-slot-hardening.j2").write_text("ProtectSystem=full\n")
    before = rendered({C8: CATALOGUE[C8]})
    now = rendered({C8: CATALOGUE[C8]}, template_dirs=[str(first), str(second)])
    assert now["b70-slot-main.conf"] == "d /run/b70 0700 root root -\n"
    assert "ProtectSystem=strict" in before[UNIT]
    assert "ProtectSystem=full\nReadWritePaths=" in now[UNIT]
    assert {name for name in now if now[name] != before[name]} == {"b70-slot-main.conf", UNIT, f"{C8}.json"}


def test_a_template_that_names_what_there_is_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "b70-controller.service.j2").write_text("ExecStart={{ programme }}\n")
    with pytest.raises(ValueError, match=r"b70-controller\.service\.j2 cannot be rendered: 'programme' is undefined"):
        render("b70-controller.service", {"program": "/bin/x"}, [str(tmp_path)])


def test_a_template_that_replaces_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b70-slots.service.j2").write_text("")
    with pytest.raises(ValueError, match=r'replaces no template of the collection.*"b70-slot.service.j2"'):
        render("b70ctl", {}, [str(tmp_path)])


@pytest.mark.parametrize("folder", ["templates", "/nowhere/templates"])
def test_a_folder_that_is_not_there_is_refused(folder: str) -> None:
    with pytest.raises(ValueError, match=r"b70_template_dirs names .*templates, which is no folder"):
        render("b70ctl", {}, [folder])


def test_values_are_text_whatever_they_look_like() -> None:
    text = render("b70ctl.bash", {"path": "{{ 1 + 1 }}", "name": "{% raw %}\\n"})
    assert text.splitlines()[1] == "source <({{ 1 + 1 }} completion) && complete -F _b70ctl {% raw %}\\n"
