# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between what runs, what systemd would start, and what is rendered."""

from __future__ import annotations

import hashlib

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, request

UNIT_TEXT = "[Service]\nExecStart=/bin/true\n"
UNIT_FILE = LAYOUT.unit_dir / LAYOUT.unit("a")
SHA256 = hashlib.sha256(UNIT_TEXT.encode()).hexdigest()


@pytest.fixture
def fake_host():
    fake_host = FakeHost()
    fake_host.render("a", unit_sha256=SHA256)
    fake_host.put(UNIT_FILE, UNIT_TEXT)
    api.switch(fake_host.effects(), LAYOUT, request("a"))
    return fake_host


def drift(fake_host):
    info = api.info(fake_host.effects(), LAYOUT)
    assert info["drift"] == ("; ".join(info["drift_of"].values()) or None)
    return info["drift_of"]


def test_nothing_differs_after_a_switch(fake_host):
    assert drift(fake_host) == {}


def test_a_profile_that_was_rendered_anew(fake_host):
    fake_host.render("a", fingerprint="sha256:a-2", unit_sha256=SHA256)
    fake_host.put(UNIT_FILE, UNIT_TEXT)
    assert drift(fake_host) == {"rendering": "runs sha256:a-1, rendered is sha256:a-2"}


def test_a_process_with_other_arguments(fake_host):
    engine = fake_host.engine()
    engine.cmdline = (*engine.cmdline, "--max-num-seqs", "99")
    assert list(drift(fake_host)) == ["process"]
    assert "--max-num-seqs" in drift(fake_host)["process"]


def test_a_unit_that_was_edited_by_hand(fake_host):
    fake_host.put(UNIT_FILE, UNIT_TEXT + "Nice=5\n")
    fake_host.effects().units.reload()
    assert "was changed by hand" in drift(fake_host)["unit_file"]
    del fake_host.texts[UNIT_FILE]
    assert "is missing" in drift(fake_host)["unit_file"]


def test_a_unit_that_systemd_has_not_loaded(fake_host):
    fake_host.engine().needs_reload = True
    assert "systemctl daemon-reload" in drift(fake_host)["unit_file"]


def test_a_profile_that_has_left_the_host(fake_host):
    del fake_host.texts[LAYOUT.profile_json("a")]
    assert "is not rendered" in drift(fake_host)["rendering"]


def test_an_empty_slot_has_no_drift(fake_host):
    api.switch(fake_host.effects(), LAYOUT, request(None))
    assert drift(fake_host) == {}
