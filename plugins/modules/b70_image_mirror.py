#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: b70_image_mirror
short_description: Mirror a container image by its digest for a web server
version_added: 0.2.0
description:
  - Copies an image with C(skopeo) from its registry to plain files, byte for byte. Of an index it copies the image for
    this machine's architecture, and keeps the index.
  - M(arcpro.b70.b70_container_image) takes it from there with its O(arcpro.b70.b70_container_image#module:mirror).
extends_documentation_fragment:
  - arcpro.b70.attributes
attributes:
  platform:
    platforms: linux
options:
  dest:
    description: The directory of all images. Each manifest has a directory below it, named by its digest.
    type: path
    required: true
  source:
    description: The image in its registry, by digest.
    type: str
    required: true
  authfile:
    description: A file with logins for registries, as C(skopeo login --authfile) writes it.
    type: path
  timeout:
    description: Time limit of each step, in seconds.
    type: int
    default: 3600
"""

EXAMPLES = r"""
- name: Mirror the image of a stack
  arcpro.b70.b70_image_mirror:
    dest: /srv/b70-mirror/images
    source: docker.io/vllm/vllm-openai-xpu@sha256:fc0e112afb64e3a06fe8daff34652435822a629412f38efce8f0f67a46636b8d
"""

RETURN = r""" # """

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _image_mirror


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "source": {"type": "str", "required": True},
            "authfile": {"type": "path"},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        brought = _image_mirror.bring(
            Path(given["dest"]), given["source"], given["authfile"], given["timeout"], write=not module.check_mode
        )
    except _image_mirror.ImageFault as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or given['dest']}: {error.strerror}")
    module.exit_json(changed=brought)


if __name__ == "__main__":
    main()
