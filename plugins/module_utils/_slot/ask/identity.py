# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the process that runs the one that was rendered? Pure comparisons.

A process may replace its own title (vLLM does for some of its processes); then its command line can't be read and
nothing is concluded from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..kinds.table import kind_of
from ..model.profile import Profile
from ..words.types import Reply, SlotFault

_SHOWN = 6


def check_served(profile: Profile, reply: Reply) -> str:
    """Return the served id; raise SlotFault unless it and the context length are the profile's."""
    got_id, got_length = kind_of(profile.engine.kind).served(reply, profile.engine.served_model_name)
    want = profile.engine
    if got_id != want.served_model_name:
        raise SlotFault("the engine serves another model", expected=want.served_model_name, got=got_id)
    if want.max_model_len is not None and got_length is not None and got_length != want.max_model_len:
        raise SlotFault(
            "the engine serves another context length",
            expected=f"max_model_len {want.max_model_len}",
            got=f"max_model_len {got_length}",
        )
    return got_id


def _readable(cmdline: Sequence[str]) -> bool:
    """Tell whether a command line is readable: a replaced title is one string, padded with empty ones."""
    return len([part for part in cmdline if part]) > 1


def command_drift(argv: Sequence[str], cmdline: Sequence[str]) -> str | None:
    """Return how the process's command line differs from the rendered one, or None.

    A script run through its interpreter shows the interpreter first, so the rendered argv is looked for at the end.
    """
    if not _readable(cmdline):
        return None
    if list(cmdline[-len(argv) :]) == list(argv):
        return None
    extra = [part for part in cmdline if part not in argv][:_SHOWN]
    missing = [part for part in argv if part not in cmdline][:_SHOWN]
    if not missing and not extra:
        return "the arguments are in another order"
    return f"missing {missing}, unexpected {extra}"


def environment_drift(env: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Return the names of rendered variables that the process lacks or has with another value; None when all agree."""
    if not environ:
        return None
    wrong = sorted(key for key, value in env.items() if environ.get(key) != value)
    return f"variables that differ: {', '.join(wrong[:_SHOWN])}" if wrong else None


def check_process(profile: Profile, cmdline: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise SlotFault when the running process is not the rendered one."""
    drift = command_drift(profile.engine.argv, cmdline) or environment_drift(profile.engine.env, environ)
    if drift is not None:
        raise SlotFault(
            f"the process of {profile.unit} is not the one that was rendered for {profile.name}",
            expected="the rendered command line and environment",
            got=drift,
        )
