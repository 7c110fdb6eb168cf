# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Python project on the controller as one file that can travel to a host."""

from __future__ import annotations

DOCUMENTATION = r"""
name: source_archive
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.2.0
short_description: Pack a Python project into one archive
description:
  - Packs C(pyproject.toml), C(README.md) and the source tree of a project into an archive that C(pip) and C(uv)
    install from.
  - The same files always give the same archive, whatever their owner, mode or age, so its digest tells whether a host
    has them.
  - The archive stands in the directory of temporary files of this run and goes with it.
  - Runs on the controller and needs nothing but what ansible-core brings.
options:
  _terms:
    description: Directories of projects.
    type: list
    elements: path
    required: true
"""

EXAMPLES = r"""
- name: Show which sources would be installed
  ansible.builtin.debug:
    msg: "{{ lookup('arcpro.b70.source_archive', role_path ~ '/files/frontdoor').sha256 }}"
"""

RETURN = r"""
_raw:
  description: One entry per project.
  type: list
  elements: dict
  contains:
    path:
      description: The archive on the controller.
      type: path
    name:
      description: The archive's file name, C(NAME-VERSION.tar.gz).
      type: str
    sha256:
      description: Digest over the packed files, 64 hexadecimal digits.
      type: str
"""

import gzip
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

# Not tomllib: the controller's Python may be older than the hosts' tools. Both values are plain strings in [project].
_VALUE = r'(?ms)^\[project\]$.*?^{}\s*=\s*"([^"]+)"'


def project_files(root: Path) -> Iterator[Path]:
    """Yield what is packed, in a fixed order."""
    yield root / "pyproject.toml"
    yield root / "README.md"
    if (root / "setup.py").exists():
        yield root / "setup.py"
    for path in sorted((root / "src").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
            yield path


def pack(root: Path) -> tuple[str, bytes]:
    """Return NAME-VERSION and the uncompressed archive of a project; raise OSError or ValueError."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    words = []
    for key in ("name", "version"):
        found = re.search(_VALUE.format(key), text)
        if not found:
            raise ValueError(f"{root / 'pyproject.toml'} has no {key} in [project]")
        words.append(found[1])
    stem = f"{words[0].replace('-', '_')}-{words[1]}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in project_files(root):
            data = path.read_bytes()
            entry = tarfile.TarInfo(f"{stem}/{path.relative_to(root).as_posix()}")
            entry.size = len(data)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(data))
    return stem, buffer.getvalue()


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, str]]:
        self.set_options(var_options=variables, direct=kwargs)
        result = []
        for term in terms:
            try:
                stem, content = pack(Path(str(term)))
                digest = hashlib.sha256(content).hexdigest()
                name = f"{stem}.tar.gz"
                folder = Path(constants.DEFAULT_LOCAL_TMP) / digest[:16]
                folder.mkdir(parents=True, exist_ok=True)
                if not (folder / name).exists():
                    new = folder / f".{os.getpid()}"
                    new.write_bytes(gzip.compress(content, mtime=0))
                    new.replace(folder / name)
            except (OSError, ValueError) as exc:
                raise AnsibleLookupError(f"source_archive: cannot pack {term}: {exc}") from exc
            result.append({"path": str(folder / name), "name": name, "sha256": digest})
        return result
