#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_oneapi_env
short_description: Capture the environment of a oneAPI compiler in a file
version_added: 0.2.0
description:
  - Runs the compiler's own C(env/vars.sh) in an empty environment and writes the resulting variables to a systemd
    EnvironmentFile. Units and builds then need no shell and cannot get the environment of another release.
  - Never uses C(setvars.sh), which selects the newest installed release of every component.
  - Fails if a required variable is missing or a value names another compiler release.
  - Returns the other installed compiler releases.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  diff_mode:
    support: full
options:
  release:
    description: The compiler's release, which is also the name of its directory.
    type: str
    required: true
  root:
    description: The installation directory of oneAPI.
    type: path
    default: /opt/intel/oneapi
  dest:
    description: The file to write.
    type: path
    required: true
  required:
    description: Variables that the environment must contain.
    type: list
    elements: str
    default: [PATH, LD_LIBRARY_PATH]
  extra:
    description: Variables to add or replace.
    type: dict
    default: {}
  timeout:
    description: Time limit of the script, in seconds.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Capture the environment of compiler 2025.3
  arcpro.b70.b70_oneapi_env:
    release: "2025.3"
    dest: /etc/b70-vllm-slot/oneapi.env
"""

RETURN = r"""
present:
  description: Whether that compiler is installed. If not, nothing was written and nothing else is returned.
  returned: success
  type: bool
variables:
  description: The variables in the file.
  returned: when the compiler is installed
  type: dict
others:
  description: Other compiler releases on the host.
  returned: success
  type: list
  elements: str
  sample: ["2026.0"]
latest:
  description: The release that the link C(latest) names, or empty.
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _files, _oneapi


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "release": {"type": "str", "required": True},
            "root": {"type": "path", "default": "/opt/intel/oneapi"},
            "dest": {"type": "path", "required": True},
            "required": {"type": "list", "elements": "str", "default": ["PATH", "LD_LIBRARY_PATH"]},
            "extra": {"type": "dict", "default": {}},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    params = module.params
    release, root = params["release"], Path(params["root"])
    link = root / "compiler" / "latest"
    seen = {
        "others": [name for name in _oneapi.releases(root) if name != release],
        "latest": link.resolve().name if link.exists() else "",
    }
    script = root / "compiler" / release / "env" / "vars.sh"
    if not script.is_file():
        module.exit_json(changed=False, present=False, **seen)
    limited = ["timeout", str(params["timeout"]), *_oneapi.capture_argv(str(script))]
    code, output, errors = module.run_command(limited)
    if code != 0:
        why = f"it did not end within {params['timeout']} s" if code == 124 else f"it ended with {code}"
        module.fail_json(msg=f"{script} cannot be captured: {why}. It said: {errors.strip()[-500:] or 'nothing'}")
    captured = _oneapi.parse(output)
    extra = {name: str(value) for name, value in params["extra"].items()}
    try:
        _oneapi.check({**captured, **extra}, root, release, params["required"])
    except _oneapi.CaptureProblem as problem:
        module.fail_json(msg=f"The environment of {script} is refused: {problem}")
    wanted = _files.WantedFile(Path(params["dest"]), _oneapi.text(captured, extra, str(script), release).encode())
    changes = _files.differing([wanted])
    diff = _files.diffs(changes)
    if not module.check_mode:
        _files.write(changes)
    module.exit_json(changed=bool(changes), present=True, variables={**captured, **extra}, diff=diff, **seen)


if __name__ == "__main__":
    main()
