#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: b70_container_image
short_description: Pull or build the container image of a stack as a job of the host
version_added: 0.2.0
description:
  - Each call takes one step and returns at once. M(arcpro.b70.b70_stacks) calls it until the image is there, and shows
    how far it is.
  - A pull or a build is a unit of the host, so a lost connection does not end it. A call during one joins it.
extends_documentation_fragment:
  - arcpro.b70.attributes
attributes:
  check_mode:
    description: Only looks.
  platform:
    platforms: linux
options:
  stack:
    description: The id of the stack, which names the job.
    type: str
    required: true
  source:
    description: The image in its registry, by digest or by tag.
    type: str
    required: true
  name:
    description: What units run. The same as O(source), or a name of the host's own.
    type: str
    required: true
  program:
    description: The engine's program in the image, which must be there.
    type: path
    required: true
  packages:
    description: Debian packages on the host that are installed into an image built from O(source).
    type: list
    elements: dict
    default: []
    suboptions:
      file:
        description: The file on the host.
        type: str
        required: true
      sha256:
        description: Its digest, 64 hex digits.
        type: str
        required: true
  authfile:
    description: A file on the host with logins for registries, as C(podman login --authfile) writes it.
    type: path
  mirror:
    description: Where a mirror has images as files, as M(arcpro.b70.b70_image_mirror) brings them. Empty pulls from the
      registry.
    type: str
    default: ""
  work_dir:
    description: The directory for what is downloaded.
    type: path
    required: true
  timeout:
    description: Time limit of a pull or a build, in seconds.
    type: int
    default: 7200
  step:
    description: Whether to look, to take the next step, or to end one that goes on.
    type: str
    choices: [look, start, stop]
    default: look
"""

EXAMPLES = r"""
- name: Look for the image of a stack
  arcpro.b70.b70_container_image:
    stack: vllm-openai-xpu-0.30.0-0123456789
    source: docker.io/vllm/vllm-openai-xpu@sha256:fc0e112afb64e3a06fe8daff34652435822a629412f38efce8f0f67a46636b8d
    name: docker.io/vllm/vllm-openai-xpu@sha256:fc0e112afb64e3a06fe8daff34652435822a629412f38efce8f0f67a46636b8d
    program: /opt/venv/bin/vllm
    work_dir: /mnt/fast-ai/src
"""

RETURN = r"""
state:
  description: V(present), V(running), V(failed) or V(absent).
  returned: success
  type: str
image:
  description: The image.
  returned: when it is present
  type: dict
  contains:
    id:
      description: The id of the image on this host.
      type: str
    digest:
      description: The digest of the image.
      type: str
    digests:
      description: Every digest under which it came, that of its index among them.
      type: list
      elements: str
    bytes:
      description: Its size in the host's storage.
      type: int
    source:
      description: What was pulled.
      type: str
    has_program:
      description: Whether the engine's program is in it.
      type: bool
bytes:
  description: How much was downloaded.
  returned: while it is pulled
  type: int
moved_mib:
  description: How much the pull has read and written, in MiB; none for a build.
  returned: while it is pulled
  type: int
message:
  description: Why the pull or the build failed.
  returned: after a failed one
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _image
from ansible_collections.arcpro.b70.plugins.module_utils._image_mirror import ImageFault


def main() -> None:
    module = AnsibleModule(argument_spec=_image.ARGUMENTS, supports_check_mode=True)
    given = module.params
    try:
        image = _image.Image(
            stack=given["stack"],
            source=given["source"],
            name=given["name"],
            program=given["program"],
            work_dir=Path(given["work_dir"]),
            packages=given["packages"],
            authfile=given["authfile"],
            mirror=given["mirror"],
            limit_s=given["timeout"],
        )
        steps = {"look": _image.look, "start": _image.start, "stop": _image.stop}
        found = steps["look" if module.check_mode else given["step"]](image)
    except ImageFault as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or given['work_dir']}: {error.strerror}")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
