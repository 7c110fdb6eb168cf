# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of mistakes that a new user makes: each is told in few lines before a host is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.plays import play, said

LINES = 12
UNREACHABLE = "one ansible_host=192.0.2.1 ansible_timeout=1"  # of a network that is for documentation alone


def told(text: str) -> list[str]:
    """Return the lines of the answer of the host, without Ansible's frame."""
    answer = text.partition("fatal: [one]: FAILED! => ")[2].partition("PLAY RECAP")[0]
    return [line for line in answer.splitlines() if line.strip() and "NO MORE HOSTS" not in line]


@pytest.mark.parametrize(
    ("playbook", "variables", "words", "expected"),
    [
        (
            "site",
            "frontdoor_prot: 8001\nfrontdoor_port: abc\nb70_slot: {}\n",
            [],
            [
                "all.yml:1: frontdoor_prot is no variable of this collection; did you mean frontdoor_port?",
                "all.yml:2: frontdoor_port is text (abc) and must be a whole number.",
                "all.yml:3: b70_slot is no variable of this collection; did you mean b70_slots?",
            ],
        ),
        (
            "site",
            "model_weights_revisions: {Qwen/Qwen3-0.6B: main}\nmodel_weights_models: {my model: {hub: Qwen}}\n",
            [],
            ["'my model' cannot name a model directory", "Qwen/Qwen3-0.6B has 'main', which must be a commit"],
        ),
        (
            "site",
            "b70_profiles: {mine: {extends: nothing}}\n",
            [],
            ["b70_profiles[mine]: extends: there is no profile"],
        ),
        ("switch", "", ["profile=flash-next-awk"], ['no profile "flash-next-awk"; did you mean "flash-next-awq"']),
    ],
)
def test_a_mistake_is_told_in_few_lines_with_its_place_and_what_to_do(
    tmp_path: Path, playbook: str, variables: str, words: list[str], expected: list[str]
) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text(variables or "{}")
    (tmp_path / "hosts").write_text(f"[b70_hosts]\n{UNREACHABLE}\n")
    done = play(playbook, *words, inventory=str(tmp_path / "hosts"), check=True)
    assert done.returncode == 2, done.stdout
    lines = told(done.stdout)
    assert 0 < len(lines) <= LINES, done.stdout
    assert [text for text in expected if text not in said(" ".join(lines))] == [], done.stdout
    assert "The lookup plugin" not in done.stdout


def test_a_mistake_of_one_host_is_told_with_its_name(tmp_path: Path) -> None:
    two = UNREACHABLE.replace("one", "two")
    (tmp_path / "hosts").write_text(f"[b70_hosts]\n{UNREACHABLE}\n{two} b70_profile=flash-next-awk\n")
    done = play("site", inventory=str(tmp_path / "hosts"), check=True)
    assert 'there is no profile "flash-next-awk"' in said(done.stdout.partition("fatal: [two]: FAILED!")[2]), (
        done.stdout
    )
    (tmp_path / "hosts").write_text(f"[b70_hosts]\n{UNREACHABLE}\n{two} report_people=abc\n")
    done = play("report", inventory=str(tmp_path / "hosts"), check=True)
    assert "(on two)" in said(done.stdout), done.stdout
