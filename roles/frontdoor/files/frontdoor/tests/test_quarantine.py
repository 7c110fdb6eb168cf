# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the host is in quarantine, from the record that the slot writes, in status and metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit import bench, on_loop

from frontdoor.slot.reports import quarantine

# as the kernel writes the id, and as systemd does
KERNELS, SYSTEMDS = "0c3a5a4e-5a0c-4c0f-9a57-4f6a2b1f7d11", "0c3a5a4e5a0c4c0f9a574f6a2b1f7d11"


@pytest.mark.parametrize(
    ("record", "boot_id", "holds"),
    [
        (json.dumps({"schema": 1, "boot_id": KERNELS}), SYSTEMDS, True),
        (json.dumps({"schema": 1, "boot_id": KERNELS}), "f" * 32, False),
        # set by hand: no reboot ends it
        (json.dumps({"schema": 1, "boot_id": ""}), SYSTEMDS, True),
        # who does not know the boot believes the record
        (json.dumps({"schema": 1, "boot_id": KERNELS}), "", True),
        ("{torn", SYSTEMDS, True),
        ("[]", SYSTEMDS, True),
        ('{"boot_id": null}', SYSTEMDS, True),
    ],
)
def test_a_record_holds_until_its_boot_ends(tmp_path: Path, record: str, boot_id: str, holds: bool) -> None:
    file = tmp_path / "quarantine.json"
    file.write_text(record)
    host = quarantine(str(file), boot_id)
    assert (host.read(), host.read()) == (holds, holds)


def test_it_comes_and_goes_with_the_record(tmp_path: Path) -> None:
    file = tmp_path / "quarantine.json"
    host = quarantine(str(file), SYSTEMDS)
    assert not host.read()
    file.write_text(json.dumps({"boot_id": KERNELS}))
    assert host.read()
    file.unlink()
    assert not host.read()
    file.mkdir()
    assert host.read()
    assert not quarantine("").read()


@on_loop
async def test_status_and_metrics_tell_it(tmp_path: Path) -> None:
    file = tmp_path / "quarantine.json"
    async with bench(tmp_path, slot={"quarantine_file": str(file)}) as run:
        client = await run.client()
        assert (await client.ask("GET", "/status")).json["quarantined"] is False
        assert b"b70_frontdoor_quarantined 0\n" in (await client.ask("GET", "/metrics")).body
        file.write_text(json.dumps({"boot_id": ""}))
        assert (await client.ask("GET", "/status")).json["quarantined"] is True
        assert b"b70_frontdoor_quarantined 1\n" in (await client.ask("GET", "/metrics")).body
