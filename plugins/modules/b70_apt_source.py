#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_apt_source
short_description: Add an apt repository by its key fingerprints and pin its packages
version_added: 0.2.0
description:
  - Writes a repository's key, its C(.sources) file and the preferences that pin its packages.
  - Uses only the published keys whose fingerprints are in O(key_fingerprints). No other key may sign the repository.
  - Leaves a repository unchanged that another file of the host already names, if that file trusts one of these keys.
    Otherwise the module fails, because apt stops working when two files disagree.
  - Returns the packages that are not installed at their pinned versions. Installs nothing and does not update the
    package lists, so check mode also works on a host that does not know the repository yet.
notes:
  - M(ansible.builtin.deb822_repository) cannot replace this module. It trusts every key in the given file, needs
    C(python3-debian) on the host, and ignores other files of the host that name the same repository.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    details:
      - Check mode also fetches a missing key.
  diff_mode:
    support: full
options:
  name:
    description: The base name of the files.
    type: str
    required: true
  title:
    description: The title of the repository, for people who read the files.
    type: str
    required: true
  url:
    description:
      - Base URL of the repository.
      - Empty means that the packages come from repositories that the host already knows. The module then removes its
        own files.
    type: str
    default: ""
  suites:
    description: Suites of the repository.
    type: list
    elements: str
    default: []
  components:
    description: Components of the suites. Empty for a flat repository.
    type: list
    elements: str
    default: []
  architectures:
    description: Architectures of the packages.
    type: list
    elements: str
    default: [amd64]
  key_url:
    description: The URL of the key, armoured or binary. The key is fetched only if the host does not have it.
    type: str
    default: ""
  key:
    description: The armoured key itself, instead of O(key_url).
    type: str
    default: ""
  key_fingerprints:
    description:
      - Fingerprints of the keys that may sign the repository, 40 hex digits each. Spaces are ignored. Required with
        O(url).
      - At least one of them must be published. A vendor that is about to replace its key publishes several.
    type: list
    elements: str
    default: []
    aliases: [key_fingerprint]
  packages:
    description:
      - Packages and their versions. A version may end in V(*), and V(*) alone means any version.
      - A name with V(*) only pins all packages that match it. It installs none of them.
    type: dict
    default: {}
  sources_dir:
    description: The directory of the C(.sources) file.
    type: path
    default: /etc/apt/sources.list.d
  apt_dir:
    description: The directory of apt's configuration.
    type: path
    default: /etc/apt
  timeout:
    description: Time limit for fetching the key, in seconds.
    type: int
    default: 30
"""

EXAMPLES = r"""
- name: Trust Intel's oneAPI repository
  arcpro.b70.b70_apt_source:
    name: b70-oneapi
    title: Intel oneAPI
    url: https://apt.repos.intel.com/oneapi
    suites: [all]
    components: [main]
    key_url: https://apt.repos.intel.com/intel-gpg-keys/GPG-PUB-KEY-INTEL-SW-PRODUCTS.PUB
    key_fingerprints: [E9BF 0AFC 46D6 E8B7 DA58  82F1 BAC6 F0C3 53D0 4109]
    packages:
      intel-oneapi-dpcpp-cpp-2025.3: 2025.3.2-*
  register: source

- name: Install what is not there at its version
  ansible.builtin.apt:
    name: "{{ source.pending | map(attribute='specification') }}"
    update_cache: true
  when: source.pending | length > 0
"""

RETURN = r"""
pending:
  description: Packages that are not installed at their versions.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The package.
      type: str
    wanted:
      description: The pinned version.
      type: str
    installed:
      description: The installed version, or empty.
      type: str
    newer:
      description: Whether a newer version than the pinned one is installed.
      type: bool
    specification:
      description: The packages to request from apt.
      type: str
      sample: xpu-smi=1.3.6-*
used_file:
  description: The file of another author that already names the repository, or empty.
  returned: success
  type: str
changed_paths:
  description: Files that were, or in check mode would be, written or removed.
  returned: success
  type: list
  elements: str
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url

from ansible_collections.arcpro.b70.plugins.module_utils import _apt, _files, _openpgp, _proxy


def _fetched(module: AnsibleModule) -> bytes:
    """Return the published key; fail the module when it cannot be fetched."""
    params = module.params
    if params["key"]:
        return str(params["key"]).encode()
    if not params["key_url"]:
        module.fail_json(msg=f"{params['url']}: neither key nor key_url says where its key is.")
    response, info = fetch_url(module, params["key_url"], timeout=params["timeout"])
    if info["status"] != 200 or response is None:
        module.fail_json(
            msg=f"The key of {params['url']} cannot be had from {params['key_url']} {_proxy.here()}: {info['msg']}"
        )
    return bytes(response.read(1 << 20))


def _packets(keys: list[_openpgp.PublicKey]) -> bytes:
    return b"".join(key.packets for key in keys)


def _key(module: AnsibleModule, keyring: Path) -> bytes:
    """Return the keyring's content: the present one when it is right, else the accepted keys of the published one."""
    accepted = module.params["key_fingerprints"]
    there = _files.content_of(keyring)
    if there is not None:
        try:
            if _packets(_openpgp.select(there, accepted)) == there:
                return there
        except _openpgp.KeyProblem:
            pass  # damaged, or of a former fingerprint: it is fetched again
    try:
        return _packets(_openpgp.select(_fetched(module), accepted))
    except _openpgp.KeyProblem as problem:
        where = module.params["key_url"] or "the variable with the key"
        module.fail_json(
            msg=f"The key of {module.params['url']} is refused: {problem} (from {where}). Nothing was changed. When "
            "the vendor has replaced its key, check the new fingerprint with the vendor and set it."
        )
        raise AssertionError("unreachable") from problem


def _trusts(entry: _apt.AptEntry, fingerprints: list[str]) -> bool:
    data = entry.signed_by.encode()
    if entry.signed_by.startswith("/"):
        data = _files.content_of(Path(entry.signed_by)) or b""
    try:
        _openpgp.select(data, fingerprints)
    except _openpgp.KeyProblem:
        return False
    return True


def _source_files(module: AnsibleModule) -> tuple[list[_files.WantedFile], str]:
    """Return the wanted keyring and .sources file, and the foreign file that makes them needless (empty if none)."""
    params = module.params
    apt_dir = Path(params["apt_dir"])
    keyring = apt_dir / "keyrings" / f"{params['name']}.gpg"
    file = Path(params["sources_dir"]) / f"{params['name']}.sources"
    absent = [_files.WantedFile(keyring, None), _files.WantedFile(file, None)]
    if not params["url"]:
        return absent, ""
    source = _apt.Source(
        params["url"].rstrip("/"), *(tuple(params[key]) for key in ("suites", "components", "architectures"))
    )
    texts = _files.texts(_apt.source_files(apt_dir, Path(params["sources_dir"])))
    for entry in _apt.others(_apt.entries(texts), source, str(file)):
        if not _trusts(entry, params["key_fingerprints"]):
            accepted = " or ".join(params["key_fingerprints"])
            module.fail_json(
                msg=f"{entry.file} names {source.url} already, but does not trust the key {accepted} "
                f"(Signed-By: {entry.signed_by.splitlines()[0] if entry.signed_by else 'none'}). It is not ours, so it "
                "stays as it is: remove it, or give it that key, or set the repository's address to '' to use it so."
            )
        return absent, entry.file
    content = _key(module, keyring)
    return [
        _files.WantedFile(keyring, content),
        _files.WantedFile(file, source.text(params["title"], str(keyring)).encode()),
    ], ""


def main() -> None:
    strings = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "title": {"type": "str", "required": True},
            "url": {"type": "str", "default": ""},
            "suites": {**strings, "default": []},
            "components": {**strings, "default": []},
            "architectures": {**strings, "default": ["amd64"]},
            "key_url": {"type": "str", "default": "", "no_log": False},
            "key": {"type": "str", "default": "", "no_log": False},
            "key_fingerprints": {**strings, "default": [], "aliases": ["key_fingerprint"], "no_log": False},
            "packages": {"type": "dict", "default": {}},
            "sources_dir": {"type": "path", "default": "/etc/apt/sources.list.d"},
            "apt_dir": {"type": "path", "default": "/etc/apt"},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    _proxy.enter()
    params = module.params
    packages = {name: str(version) for name, version in params["packages"].items()}
    problems = _apt.problems(packages, params["suites"], params["url"])
    if params["url"]:
        try:
            for fingerprint in params["key_fingerprints"] or [""]:
                _openpgp.normalised(fingerprint)
        except _openpgp.KeyProblem as problem:
            problems.append(f"{problem}.")
    if problems:
        module.fail_json(msg=" ".join(problems))

    pins = Path(params["apt_dir"]) / "preferences.d" / params["name"]
    text = _apt.preferences(packages, params["title"], params["url"])
    files, used_file = _source_files(module)
    changes = _files.differing([*files, _files.WantedFile(pins, text.encode() if text else None)])
    diff = _files.diffs(changes)
    if not module.check_mode:
        _files.write(changes)

    def greater(left: str, right: str) -> bool:
        return bool(module.run_command(["dpkg", "--compare-versions", left, "gt", right])[0] == 0)

    named = {name: version for name, version in packages.items() if "*" not in name}
    query = ["dpkg-query", "--show", f"--showformat={_apt.DPKG_FORMAT}", *named]
    output = module.run_command(query)[1] if named else ""
    waiting = _apt.pending(named, _apt.installed_versions(output), greater)
    module.exit_json(
        changed=bool(changes),
        changed_paths=[os.fspath(item.path) for item in changes],
        used_file=used_file,
        pending=[{**vars(item), "specification": item.specification} for item in waiting],
        diff=diff,
    )


if __name__ == "__main__":
    main()
