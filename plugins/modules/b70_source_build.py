#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: b70_source_build
short_description: Build a wheel from pinned and patched sources
version_added: 0.2.0
description:
  - Creates a clean checkout of exactly one commit, applies exactly the named patches, verifies the sources, and builds
    one wheel in a transient systemd unit. The build survives a lost connection, and the next run resumes it.
  - The wheel is stored under a key that covers everything that can change it. A finished wheel is never built again,
    whether it was built on this host or copied from another one.
  - An interrupted or failed build continues where it stopped and keeps its objects.
  - Checks memory, swap and disk first, and refuses a build that cannot fit, with the figures.
  - Shows the progress of the build, and distinguishes a slow compiler from one that hangs.
extends_documentation_fragment:
  - arcpro.b70.attributes
attributes:
  platform:
    platforms: linux with systemd
options:
  name:
    description: The name of the source, as in the stack's manifest.
    type: str
    required: true
  repository:
    description: Git URL. A mirror is as good as the origin, because the commit pins the sources.
    type: str
    required: true
  commit:
    description: The full commit hash.
    type: str
    required: true
  submodules:
    description: Whether to check out submodules too.
    type: bool
    default: false
  mirrors:
    description: A mapping of URL prefixes to their replacements, also for submodules.
    type: dict
    default: {}
  patches:
    description: Patches of the sources, applied in this order.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name of the patch, for messages.
        type: str
        required: true
      repository:
        description: Git URL of the repository that contains it.
        type: str
        required: true
      commit:
        description: The full commit hash there. It pins the patch, so a mirror is as good as the origin.
        type: str
        required: true
      path:
        description: The file in that commit. Nothing else of the repository is fetched if the server allows this.
        type: str
        required: true
      encoding:
        description: The encoding of the patch in the file.
        type: str
        choices: [plain, gzip+base64]
        default: plain
      sha256:
        description: SHA-256 digest of the decoded patch, as an additional check.
        type: str
        default: ""
      subdirectory:
        description: The directory of the checkout in which it applies.
        type: str
        default: ""
      without_context:
        description: Whether its hunks have no context lines.
        type: bool
        default: false
  trees:
    description: Additional repositories that the build expects in directories of the checkout.
    type: list
    elements: dict
    default: []
    suboptions:
      repository:
        description: Git URL.
        type: str
        required: true
      commit:
        description: The full commit hash.
        type: str
        required: true
      directory:
        description: The directory of the checkout.
        type: str
        required: true
  probes:
    description: Text that files of the patched sources must contain.
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
    description: The directory of the checkout in which the wheel is built.
    type: str
    default: ""
  script:
    description: A setup script to run with C(bdist_wheel), instead of the project's own build system.
    type: str
    default: ""
  distribution:
    description: The name of the wheel that O(cmake) makes. Without it, that is O(name).
    type: str
    default: ""
  cmake:
    description:
      - Programs that CMake builds. They become the wheel, with the libraries of the checkout that they are linked with.
      - It needs scikit-build-core, cmake and ninja in the environment of O(python).
    type: dict
    suboptions:
      programs:
        description: Targets of the checkout's own project.
        type: list
        elements: str
        required: true
      options:
        description: Entries of CMake's cache, as text. They are part of the key.
        type: dict
        default: {}
  python:
    description: Python of the environment that the wheel is built with and for. It must contain all build requirements.
    type: path
    required: true
  environment:
    description: Environment variables of the build. They are part of the key.
    type: dict
    default: {}
  environment_file:
    description:
      - A file on the host with additional environment variables, such as those of the compiler.
      - Its C(PATH) comes after that of O(python)'s environment.
    type: path
  uses:
    description:
      - Names and versions of the wheel's dependencies, such as torch and the compiler. They are part of the key.
    type: dict
    default: {}
  max_jobs:
    description: The maximum number of compiler processes at once. It is lower if memory is short.
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
    description: Disk space for sources and objects in GiB.
    type: float
    default: 2
  swap_file:
    description: The swap file that C(b70-build-swap.service) of the role arcpro.b70.host creates during a build.
    type: path
  swap_gib:
    description: The total of RAM and swap during a build, in GiB. V(0) creates no swap.
    type: int
    default: 0
  swap_reserve_gib:
    description: Space that must stay free on the swap file's disk, in GiB.
    type: int
    default: 10
  build:
    description: Whether to build a missing wheel. With V(false), a complete wheel must already be on the host.
    type: bool
    default: true
  network:
    description: Whether the build itself may use the network.
    type: bool
    default: false
  work_dir:
    description: The directory of checkouts and objects.
    type: path
    required: true
  wheel_dir:
    description: The directory of finished wheels, each in its own subdirectory.
    type: path
    required: true
  ccache_dir:
    description: The directory of ccache, if it is installed.
    type: path
    required: true
  uv:
    description: The program uv.
    type: path
    required: true
  user:
    description: The user that builds.
    type: str
    required: true
  group:
    description: The group that builds.
    type: str
    required: true
  source_timeout:
    description: Time limit of each step of the checkout, in seconds.
    type: int
    default: 1800
  build_timeout:
    description: Time limit of the build, in seconds.
    type: int
    default: 43200
  stall_timeout:
    description: A build that uses no processor time for this many seconds is ended.
    type: int
    default: 900
  step:
    description: Internal, between the action plugin and the module.
    type: str
    choices: [look, start, stop]
    default: look
  token:
    description: Internal. What the action plugin tells its own calls by.
    type: str
    default: ""
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
  description: The requirements of a build on this host.
  returned: when it is not built
  type: str
swap:
  description: Whether swap would be created during the build.
  returned: when it is not built
  type: bool
problems:
  description: Why this host cannot build it, with the figures.
  returned: when it is not built
  type: list
  elements: str
key:
  description: The key, which covers everything that can change the wheel.
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
      description: Its size in bytes.
      type: int
    patches:
      description: Names and digests of the decoded patches in it.
      type: dict
    compiler:
      description: The compiler's version text.
      type: str
budget:
  description: The number of compiler jobs and the reason.
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

from ansible_collections.arcpro.b70.plugins.module_utils import _proxy
from ansible_collections.arcpro.b70.plugins.module_utils._build import service
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError, parse
from ansible_collections.arcpro.b70.plugins.module_utils._build.spec import ARGUMENTS
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    _proxy.enter()
    given = module.params
    try:
        recipe = parse(given)
        place = service.BuildPaths(
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
        found = service.SourceBuild(given, recipe, place).answer(check_mode=module.check_mode)
    except (BuildError, WorkError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or given['work_dir']}: {error.strerror}")
    module.exit_json(changed=False, key=recipe.key(), **found)


if __name__ == "__main__":
    main()
