# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.lookup.source_archive import pack
from shipped import elsewhere

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"meta", "plugins", "roles", "playbooks", "docs", "group_vars", "inventory", "templates", "LICENSES"}
FILES = {
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "FILES.json",
    "LICENSE",
    "MANIFEST.json",
    "README.md",
    "REUSE.toml",
    "SECURITY.md",
    "execution-environment.yml",
}
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def run(*command: str, cwd: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=540,
        check=False,
    )


def test_the_tarball_holds_the_collection_and_nothing_else(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        names = [member.name for member in archive.getmembers()]
    assert {name for name in names if "/" not in name} == FILES | FOLDERS
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name or name.endswith(".pyc")]


def test_the_tarball_has_what_its_readme_links_to(installed: Path) -> None:
    """Tests and tools of the checkout are left out: who reads of them has the checkout."""
    collection = installed / "ansible_collections/arcpro/b70"
    links = set(LINK.findall((collection / "README.md").read_text(encoding="utf-8")))
    assert len(links) > 10
    assert [link for link in sorted(links) if not (collection / link).exists() and not link.startswith("tests/")] == []


def test_the_installed_frontdoor_is_that_of_the_checkout(installed: Path) -> None:
    """One of its modules is a link to one of the slot engine's, and its page is built."""
    package = Path("roles/frontdoor/files/frontdoor")
    assert pack(installed / "ansible_collections/arcpro/b70" / package) == pack(ROOT / package)


def test_every_playbook_is_found_by_name_and_complete(installed: Path, tmp_path: Path) -> None:
    names = sorted(file.stem for file in (ROOT / "playbooks").glob("*.yml"))
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("b70_hosts: {hosts: {h1: {ansible_connection: local}}}\n")
    words = ("-i", str(inventory), "--syntax-check", "-e", "profile=tiny-a", *(f"arcpro.b70.{name}" for name in names))
    done = run("ansible-playbook", *words, cwd=tmp_path, environment=elsewhere(tmp_path, installed))
    assert done.returncode == 0, done.stdout
    checked = [Path(file) for file in re.findall(r"^playbook: (.+)$", done.stdout, re.MULTILINE)]
    assert [file.stem for file in checked] == names
    assert {file.parent for file in checked} == {installed / "ansible_collections/arcpro/b70/playbooks"}


def test_a_playbook_that_is_not_shipped_is_not_found(installed: Path, tmp_path: Path) -> None:
    command = ("ansible-playbook", "-i", "localhost,", "arcpro.b70.no_such_playbook", "--syntax-check")
    assert run(*command, cwd=tmp_path, environment=elsewhere(tmp_path, installed)).returncode != 0


def lint_docs(collection: Path) -> subprocess.CompletedProcess[str]:
    return run("antsibull-docs", "lint-collection-docs", "--plugin-docs", str(collection), cwd=collection)


@pytest.mark.release
def test_the_documentation_of_every_plugin_and_role_is_sound(source: Path) -> None:
    done = lint_docs(source)
    assert done.returncode == 0, done.stdout


def import_to_galaxy(tarball: Path, place: Path) -> subprocess.CompletedProcess[str]:
    settings = place / "galaxy-importer.cfg"
    # Linters run as steps of their own, with stricter settings.
    settings.write_text(
        "[galaxy-importer]\nCHECK_CHANGELOG = True\nCHECK_REQUIRED_TAGS = True\nRUN_ANSIBLE_DOC = True\n"
        "RUN_ANSIBLE_LINT = False\nRUN_FLAKE8 = False\n"
    )
    environment = {"GALAXY_IMPORTER_CONFIG": str(settings)}
    return run(sys.executable, "-m", "galaxy_importer.main", str(tarball), cwd=place, environment=environment)


@pytest.mark.release
def test_galaxy_would_import_the_tarball_without_a_word_of_warning(tarball: Path, tmp_path: Path) -> None:
    done = import_to_galaxy(tarball, tmp_path)
    assert done.returncode == 0, done.stdout
    assert not re.findall(r"^(?:WARNING|ERROR).*", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.release
def test_galaxy_would_refuse_a_role_without_a_readme(source: Path, tmp_path: Path) -> None:
    broken = tmp_path / "source"
    shutil.copytree(source, broken, ignore=lambda folder, names: ["README.md"] if Path(folder).name == "host" else [])
    build = run("ansible-galaxy", "collection", "build", "--output-path", str(tmp_path), cwd=broken)
    assert build.returncode == 0, build.stdout
    (tarball,) = tmp_path.glob("*.tar.gz")
    done = import_to_galaxy(tarball, tmp_path)
    assert "No role readme found" in done.stdout


@pytest.mark.release
def test_unsound_documentation_is_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "galaxy.yml", tmp_path)
    broken = tmp_path / "plugins" / "filter" / "broken.yml"
    broken.parent.mkdir(parents=True)
    broken.write_text(
        "DOCUMENTATION:\n  name: broken\n  author: a (@a)\n  short_description: Does nothing.\n"
        "  description: [See O(missing).]\n  options: {_input: {description: [It.], type: str}}\n"
    )
    broken.with_suffix(".py").write_text("class FilterModule:\n    def filters(self): return {'broken': str}\n")
    done = lint_docs(tmp_path)
    assert done.returncode != 0
    assert "missing" in done.stdout
