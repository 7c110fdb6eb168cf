# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of the measuring tools can be made with the Python of every host."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
VARS = (ROOT / "roles/evidence/vars/main.yml").read_text()
# From Debian 12 to Ubuntu 26.04.
SERIES = ["3.11", "3.12", "3.13", "3.14"]


def test_torch_has_a_hash_for_each_series() -> None:
    found = dict(re.findall(r"sha256:([0-9a-f]{64}) # Python (\S+)", VARS))
    assert list(found.values()) == SERIES
    assert [f"sha256:{digest}" for digest in found] == yaml.safe_load(VARS)["__evidence_torch_hashes"]


def test_it_is_the_torch_of_the_stack_without_cards() -> None:
    (torch,) = yaml.safe_load((ROOT / "roles/profiles/files/stacks/cpu.yml").read_text())["first"]
    known = yaml.safe_load(VARS)
    assert torch["requirement"] == known["__evidence_torch"]
    for digests in torch["hashes"].values():
        assert set(digests) < set(known["__evidence_torch_hashes"])


def test_the_option_says_which_pythons() -> None:
    spec = yaml.safe_load((ROOT / "roles/evidence/meta/argument_specs.yml").read_text())
    options = {name: option for entry in spec["argument_specs"].values() for name, option in entry["options"].items()}
    assert f"{SERIES[0]} to {SERIES[-1]}" in options["evidence_python"]["description"]
