# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line that tells how far a download is."""

from __future__ import annotations

from ansible_collections.arcpro.b70.plugins.plugin_utils._weights import progress


def test_progress_is_one_line_with_what_is_left():
    begun = {"files": 12, "files_done": 2, "total": 16_100_000_000, "at_start": 0, "start": 0.0, "waiting": ""}
    now = {**begun, "done": 4_200_000_000, "time": 50.0}
    later = {**begun, "done": 5_200_000_000, "time": 60.0}
    assert progress.say(now, None) == "file 3 of 12, 4.20 of 16.10 GB, 84.0 MB/s, 2 min 22 s left"
    assert progress.say(later, now) == "file 3 of 12, 5.20 of 16.10 GB, 100.0 MB/s, 1 min 49 s left"
    assert progress.say({**later, "time": 70.0}, later).endswith("0.0 MB/s, nothing comes")
    assert progress.say({**later, "waiting": "hub sends nothing, attempt 2 of 5"}, now).endswith("attempt 2 of 5")
    done = {**later, "done": 16_100_000_000, "files_done": 12}
    assert progress.say(done, now).endswith("reading back what came")
    assert progress.duration(3725) == "1 h 02 min"
