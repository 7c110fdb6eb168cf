#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: b70_source_build
short_description: Build a wheel from pinned, patched sources, once for each set of inputs
version_added: 0.1.0
description:
  - Makes a clean checkout of exactly one commit, applies exactly the named patches, proves the sources, and builds one
    wheel in a transient unit of systemd. A lost connection does not end the build; the next run takes it up again.
  - The wheel is kept under a key over everything that can change it. A finished wheel is never built again, whether it
    was built on this host or brought from another one.
  - An interrupted or failed build goes on where it was, objects included.
  - Memory, swap and disk are looked at before anything is done; a build that cannot fit is refused with the figures.
  - While the build runs, its progress is shown, and a slow compiler is told from one that hangs.
author:
  - arcpro.b70 contributors (@arcpro)
extends_documentation_fragment:
  - arcpro.b70.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
  platform:
    platforms: linux with systemd
options:
  name:
    description: Name of the source, as in the stack's manifest.
    type: str
    required: true
  repository:
    description: Address for Git. A mirror is as good as the origin, the commit decides.
    type: str
    required: true
  commit:
    description: The full commit.
    type: str
    required: true
  submodules:
    description: Whether submodules are checked out too.
    type: bool
    default: false
  mirrors:
    description: Beginnings of addresses and what stands in their place, for submodules too.
    type: dict
    default: {}
  patches:
    description: Changes to the sources, applied in this order.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Its name, for messages.
        type: str
        required: true
      repository:
        description: Address for Git of the repository that has it.
        type: str
        required: true
      commit:
        description: The full commit there. It pins the patch, so a mirror is as good as the origin.
        type: str
        required: true
      path:
        description: The file of that commit. Nothing else of the repository is fetched where the server allows it.
        type: str
        required: true
      encoding:
        description: How the file holds the patch.
        type: str
        choices: [plain, gzip+base64]
        default: plain
      sha256:
        description: Digest of the decoded patch, which is then checked too.
        type: str
        default: ""
      subdirectory:
        description: Where in the checkout it applies.
        type: str
        default: ""
      without_context:
        description: Whether its hunks have no lines around them.
        type: bool
        default: false
  trees:
    description: Further repositories that the build looks for in directories of the checkout.
    type: list
    elements: dict
    default: []
    suboptions:
      repository:
        description: Address for Git.
        type: str
        required: true
      commit:
        description: The full commit.
        type: str
        required: true
      directory:
        description: The directory of the checkout.
        type: str
        required: true
  probes:
    description: Text that files of the patched sources must hold.
    type: list
    elements: dict
    default: []
    suboptions:
      file:
        description: File of the checkout.
        type: str
        required: true
      contains:
        description: The text.
        type: str
        required: true
  subdirectory:
    description: Where in the checkout the wheel is built.
    type: str
    default: ""
  script:
    description: A setup script that is run with C(bdist_wheel) in place of the project's own build system.
    type: str
    default: ""
  python:
    description: Python of the environment that the wheel is built with and for, which has all build requirements.
    type: path
    required: true
  environment:
    description: Variables of the build; they count into the key.
    type: dict
    default: {}
  environment_file:
    description:
      - A file with further variables on the host, such as those of the compiler.
      - Its C(PATH) comes after the programs of O(python)'s environment.
    type: path
  uses:
    description:
      - Names and versions of what the wheel depends on, such as torch and the compiler. They count into the key.
    type: dict
    default: {}
  max_jobs:
    description: Compilers at once, at most; fewer where there is less memory.
    type: int
    default: 4
  peak_gib:
    description: Memory of the largest compiler process in GiB.
    type: float
    default: 2
  job_gib:
    description: Memory of any other compiler process in GiB.
    type: float
    default: 2
  disk_gib:
    description: Space for sources and objects in GiB.
    type: float
    default: 2
  swap_file:
    description: Where C(b70-build-swap.service) of the role arcpro.b70.host makes swap for the time of a build.
    type: path
  swap_gib:
    description: What RAM and swap are to be together then, in GiB. With V(0) no swap is made.
    type: int
    default: 0
  swap_reserve_gib:
    description: What must stay free on that disk, in GiB.
    type: int
    default: 10
  build:
    description: Whether to build where there is no finished wheel. Otherwise one must have been brought and be whole.
    type: bool
    default: true
  network:
    description: Whether the build itself may use the network; otherwise it has none.
    type: bool
    default: false
  work_dir:
    description: Directory for checkouts and objects.
    type: path
    required: true
  wheel_dir:
    description: Directory for finished wheels, each in a directory of its own.
    type: path
    required: true
  ccache_dir:
    description: Directory for ccache, where it is installed.
    type: path
    required: true
  uv:
    description: The program uv.
    type: path
    required: true
  user:
    description: User that builds.
    type: str
    required: true
  group:
    description: Group that builds.
    type: str
    required: true
  source_timeout:
    description: Limit for each step of the checkout, in seconds.
    type: int
    default: 1800
  build_timeout:
    description: Limit for the build, in seconds.
    type: int
    default: 43200
  stall_timeout:
    description: A build that computes nothing for this many seconds is ended.
    type: int
    default: 900
  step:
    description: Used between the two halves of this module; leave it alone.
    type: str
    choices: [look, start, stop]
    default: look
"""

EXAMPLES = r"""
- name: Build the kernels against the stack's torch
  arcpro.b70.b70_source_build:
    name: vllm-xpu-kernels
    repository: https://github.com/vllm-project/vllm-xpu-kernels
    commit: 28e1f5e74c15744b69cf3b760f6160ceabd15de0
    submodules: true
    trees:
      - repository: https://github.com/intel/sycl-tla
        commit: cd763790ad2f74d7294435ecf77682bac0062c3a
        directory: .deps/sycl-tla
    python: /opt/b70/stacks/lab-minimax-0123456789/venv/bin/python
    environment: {SYCL_HOME: /opt/intel/oneapi/compiler/2025.3, TORCH_XPU_ARCH_LIST: bmg}
    environment_file: /etc/b70-vllm-slot/oneapi.env
    uses: {torch: 2.11.0+xpu, compiler: "2025.3"}
    max_jobs: 8
    peak_gib: 120
    disk_gib: 80
    swap_file: /mnt/fast-ai/b70-build.swap
    swap_gib: 176
    work_dir: /mnt/fast-ai/src
    wheel_dir: /var/cache/b70/wheels
    ccache_dir: /var/cache/b70/ccache
    uv: /opt/b70/tools/bin/uv
    user: b70
    group: b70
"""

RETURN = r"""
state:
  description: V(built); in check mode also V(absent), V(running) or V(failed).
  returned: success
  type: str
estimate:
  description: What building it on this host would take.
  returned: when it is not built
  type: str
swap:
  description: Whether swap would be made for the time of the build.
  returned: when it is not built
  type: bool
problems:
  description: What stands against building it on this host, with the figures.
  returned: when it is not built
  type: list
  elements: str
key:
  description: The key over everything that can change the wheel.
  returned: always
  type: str
wheel:
  description: The finished wheel.
  returned: when it is built
  type: dict
  contains:
    path:
      description: The file on the host.
      type: str
    sha256:
      description: Its digest.
      type: str
    size:
      description: Its bytes.
      type: int
    patches:
      description: Names and digests of the decoded patches in it.
      type: dict
    compiler:
      description: What the compiler says of itself.
      type: str
budget:
  description: How many jobs it was built with and why.
  returned: when it was built now
  type: str
log:
  description: The build's log on the host.
  returned: on a failed build
  type: str
log_tail:
  description: The end of the log.
  returned: on a failed build
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._build import service
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError, parse
from ansible_collections.arcpro.b70.plugins.module_utils._build.spec import ARGUMENTS


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    try:
        recipe = parse(given)
        place = service.Place(
            work_dir=Path(given["work_dir"]),
            wheel_dir=Path(given["wheel_dir"]),
            ccache_dir=Path(given["ccache_dir"]),
            uv=given["uv"],
            user=given["user"],
            group=given["group"],
            environment_file=given["environment_file"] or "",
            swap_file=given["swap_file"] or "",
            swap_gib=given["swap_gib"],
            swap_reserve_gib=given["swap_reserve_gib"],
        )
        if given["step"] == "stop":
            service.stop(recipe)
        if given["step"] == "start" and not module.check_mode:
            found = service.start(recipe, place, given["mirrors"], given["source_timeout"], given["build_timeout"])
        else:
            found = service.look(recipe, place, write=not module.check_mode)
    except BuildError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or given['work_dir']}: {error.strerror}")
    module.exit_json(changed=False, key=recipe.key(), **found)


if __name__ == "__main__":
    main()
