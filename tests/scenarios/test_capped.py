# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd does around an engine: it caps the card, uncaps it however the engine ends, and keeps its cache."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

import pytest

from scenarios.outcome import assert_serves, wait_served
from scenarios.recording import Recording
from scenarios.rig import JOURNAL, PREFIX, Rig
from scenarios.test_trouble import mounted

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
UNIT = f"{PREFIX}sim-capped.service"
DEVICE = "/sys/bus/pci/devices/0000:03:00.0"
CACHES = "mnt/fast-ai/vllm-cache-exp"
# The files of the card and of its sensors, as xe names them.
FILES = {"vendor": "0x8086", "device": "0xe223", "hwmon/hwmon4/name": "xe", "hwmon/hwmon4/power1_cap": "275000000"}


@contextlib.contextmanager
def card(rig: Rig) -> Iterator[None]:
    """The bus has the one card that simulated engines hold."""
    with mounted(rig, "/sys/bus/pci", "-t", "tmpfs", "sim-bus"):
        for name, text in FILES.items():
            rig.must("install", "-D", "/dev/null", f"{DEVICE}/{name}")
            rig.must("sh", "-c", f"echo {text} > {DEVICE}/{name}")
        sensors = "/sys/class/drm/renderD128/device/hwmon"
        rig.must("ln", "-sfn", f"{DEVICE}/hwmon", sensors)
        try:
            yield
        finally:
            rig.must("rm", sensors)


def watts(rig: Rig) -> int:
    return int(rig.must("cat", f"{DEVICE}/hwmon/hwmon4/power1_cap")) // 10**6


def test_a_cap_lasts_as_long_as_its_engine(rig: Rig, recorded: Begin) -> None:
    rig.serve("sim-a")
    with card(rig):
        recorded()
        done = rig.ctl("switch", "sim-capped")
        rig.wait_settled()
        assert done.code == 0, done
        assert_serves(rig, "sim-capped")
        assert watts(rig) == 210
        end = json.loads((rig.root / JOURNAL).read_text().splitlines()[-1])
        assert [row["prompt_tokens"] for row in end["warmup"]] == [300, 20]
        (provenance,) = (rig.root / CACHES).glob("sim-*/sim/provenance.json")
        assert json.loads(provenance.read_text())["stack"].startswith("sim-")
        assert provenance.stat().st_uid != 0, "the engine's cache belongs to somebody else"

        before = rig.facts().invocation
        rig.must("systemctl", "kill", "--signal=SIGKILL", UNIT)
        wait_served(rig, before)
        assert watts(rig) == 210

        done = rig.ctl("switch", "sim-a")
        rig.wait_settled()
        assert done.code == 0, done
        assert watts(rig) == 275
        assert not list((rig.root / "run/b70/power").iterdir())


def test_a_card_without_a_cap_is_refused_and_the_model_stays(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recording = recorded()
    done = rig.ctl("switch", "sim-capped")
    rig.wait_settled()
    assert (done.code, done.data["outcome"], done.data["failure"]["phase"]) == (1, "untouched", "guard"), done
    assert "can't be capped at 210 W" in done.data["msg"], done
    assert_serves(rig, "sim-a")
    assert recording.refusals() == []
