#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_profile_check
short_description: Check the command lines of profiles with the installed engines
version_added: 0.2.0
description:
  - Makes the engine of each installed stack parse the command line of every rendered profile of that stack, without
    starting the engine. If the engine rejects one, fails or warns with its message, depending on O(on_refusal).
  - Accepted command lines are recorded with their stack, so that only changed ones are checked again. A rejected
    command line is checked again with O(on_refusal=fail). With O(on_refusal=warn) the recorded message is returned.
  - Profiles whose stack is not installed are skipped and listed in the result.
  - Estimates whether weights, KV cache and one full context of the profiles in O(fit) fit on their cards, and warns
    with the figures if they may not.
extends_documentation_fragment:
  - arcpro.b70.attributes
attributes:
  check_mode:
    details:
      - Check mode also runs the engines' parsers, but records nothing.
  diff_mode:
    details:
      - Only the module's own record changes.
options:
  config_dir:
    description: The directory that contains the resolved profiles in C(profiles).
    type: path
    default: /etc/b70-vllm-slot
  memory_dir:
    description: The directory of the accepted command lines, one file per stack. It may be removed at any time.
    type: path
    default: /var/cache/b70/profile-check
  estimates_file:
    description: The file that records what the checked profiles hold of their cards. It may be removed at any time.
    type: path
    default: /var/lib/b70/estimates/main.json
  user:
    description: The user that engines run as. Their parsers run as that user if it exists.
    type: str
    default: b70
  ask:
    description: Whether to check the command lines with the engines.
    type: bool
    default: true
  profiles:
    description: Check only these profiles. Empty checks all rendered profiles.
    type: list
    elements: str
    default: []
  on_refusal:
    description:
      - What to do if an engine rejects a profile or does not answer.
      - V(warn) is for a whole catalogue, where one broken profile must not prevent the others from being served.
    type: str
    choices: [fail, warn]
    default: fail
  fit:
    description: Profiles whose memory use to estimate.
    type: list
    elements: str
    default: []
  timeout:
    description: How long an engine may take to answer, in seconds.
    type: int
    default: 300
"""

EXAMPLES = r"""
- name: Have the engines read the command lines
  arcpro.b70.b70_profile_check:
    fit: [minimax-m27-c1]
"""

RETURN = r"""
complaints:
  description: A mapping of profiles to their engine's error.
  returned: always
  type: dict
unanswered:
  description: A mapping of profiles to the reason why their engine could not check them, although the stack is
    installed.
  returned: always
  type: dict
asked:
  description: Profiles that an engine checked in this run.
  returned: success
  type: list
  elements: str
passed_before:
  description: Profiles whose command line was accepted earlier.
  returned: success
  type: list
  elements: str
not_asked:
  description: A mapping of profiles to the reason why no engine checked them.
  returned: success
  type: dict
fit:
  description: A mapping of profiles to C(verdict) (fits, tight, no or unknown) and C(text) with the figures.
  returned: success
  type: dict
"""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._engine import ask, check


def asker(user: str, timeout: int) -> check.Ask:
    """Return the way to ask: the engine's program as the user, with a home of its own that is removed again.

    With the user's groups, as its engines run: without them no card can be opened, and vLLM then finds no device.
    """
    known = [entry for entry in pwd.getpwall() if entry.pw_name == user]
    account = known[0] if known and os.geteuid() == 0 else None
    groups = os.getgrouplist(account.pw_name, account.pw_gid) if account else []

    def question(command: Sequence[str], environment: Mapping[str, str], text: str) -> tuple[int, str, str]:
        with tempfile.TemporaryDirectory(prefix="b70-ask-") as home:
            variables = {"LC_ALL": "C.UTF-8", **environment, "HOME": home, "VLLM_LOGGING_LEVEL": "ERROR"}
            who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups} if account else {}
            if account:
                os.chown(home, account.pw_uid, account.pw_gid)
            try:
                done = subprocess.run(
                    list(command),
                    input=text,
                    env=variables,
                    cwd=home,
                    capture_output=True,
                    text=True,
                    timeout=timeout,
                    check=False,
                    **who,  # type: ignore[call-overload]
                )
            except subprocess.TimeoutExpired:
                return 124, "", f"no answer within {timeout} s"
            except OSError as error:
                return 127, "", f"{command[0]}: {error.strerror}"
            return done.returncode, str(done.stdout), str(done.stderr)

    return question


def program_text() -> str:
    """Return the text of the program that asks; it also works inside the archive that Ansible sends."""
    loader = ask.__spec__.loader if ask.__spec__ else None
    text = loader.get_source(ask.__name__) if hasattr(loader, "get_source") else None  # type: ignore[union-attr]
    return text or Path(ask.__file__).read_text(encoding="utf-8")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "config_dir": {"type": "path", "default": _paths.CONFIG_DIR},
            "memory_dir": {"type": "path", "default": f"{_paths.CACHE_DIR}/profile-check"},
            "estimates_file": {"type": "path", "default": f"{_paths.STATE_DIR}/estimates/main.json"},
            "user": {"type": "str", "default": "b70"},
            "ask": {"type": "bool", "default": True},
            "profiles": {"type": "list", "elements": "str", "default": []},
            "on_refusal": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
            "fit": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    params = module.params
    folder, memory = Path(params["config_dir"], "profiles"), Path(params["memory_dir"])
    report, fits, rendered = check.EngineCheckReport(), {}, {}
    try:
        if params["ask"]:
            way = asker(params["user"], params["timeout"])
            rendered = check.read_profiles(folder, params["profiles"])
            report = check.check(
                rendered,
                memory,
                program_text(),
                way,
                write=not module.check_mode,
                some=bool(params["profiles"]),
                again=params["on_refusal"] == "fail",
            )
        if params["fit"]:
            rendered |= check.read_profiles(folder, params["fit"])
        host = check.memory_of(_text("/var/lib/dpkg/status"), _text("/proc/meminfo"))
        estimates = {name: check.fitting(name, profile, host) for name, profile in rendered.items()}
        for name in params["fit"]:
            found = estimates[name]
            fits[name] = {"verdict": found.verdict, "text": found.text}
            if found.verdict in ("tight", "no"):
                module.warn(found.text)
        if rendered and not module.check_mode:
            held = {name: found.held_mib for name, found in estimates.items()}
            every = params["ask"] and not params["profiles"]
            check.remember_estimates(Path(params["estimates_file"]), held, rendered, some=not every)
    except (check.CheckError, OSError) as error:
        module.fail_json(msg=str(error))
    against = {"complaints": report.complaints, "unanswered": report.unanswered}
    for text in check.sentences(report):
        if params["on_refusal"] == "fail":
            module.fail_json(msg=f"{'. '.join(check.sentences(report))}. Nothing is switched", **against)
        module.warn(f"{text}. The others can be served")
    module.exit_json(
        changed=False,
        **against,
        asked=report.asked,
        passed_before=report.passed_before,
        not_asked=report.skipped,
        fit=fits,
    )


if __name__ == "__main__":
    main()
