# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_key
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Fetch the key of a package source and check its fingerprint
description:
  - Fetches keys, selects those with the given fingerprints, and writes them to a keyring that apt reads for one package
    source (C(Signed-By)). Other keys in the same file are ignored.
  - If no key matches, the task fails and the keyring is not changed.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.all
attributes:
  check_mode: {support: partial, details: Fetches nothing. An existing keyring counts as correct.}
  diff_mode: {support: full, details: Fingerprints of the keys.}
  platform: {platforms: posix}
options:
  url:
    description: URL of the keys, armored or binary, or a path on the node.
    type: str
    required: true
  path:
    description: Path of the keyring. Parent directories are created.
    type: path
    required: true
  fingerprints:
    description: Fingerprints of the trusted keys, 40 hexadecimal digits each. Spaces are ignored.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Install the key of NVIDIA's package source
  muster.training.package_key:
    url: https://nvidia.github.io/libnvidia-container/gpgkey
    path: /etc/apt/keyrings/nvidia.gpg
    fingerprints: [C95B321B61E88C1809C4F759DDCAE044F796ECB0]
  become: true
"""

RETURN = r"""
kept:
  description: Fingerprints of the keys in the keyring.
  returned: when not in check mode
  type: list
  elements: str
  sample: [C95B321B61E88C1809C4F759DDCAE044F796ECB0]
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._apt import package_key

ARGUMENT_SPEC: dict[str, Any] = {
    "url": {"type": "str", "required": True},
    "path": {"type": "path", "required": True},
    "fingerprints": {"type": "list", "elements": "str", "required": True},
}


def describe_keyring(ring: bytes) -> str:
    """Return the fingerprints of a keyring, one per line."""
    try:
        return "".join(f"{name}\n" for name in package_key.parse_keys(ring))
    except ValueError:
        return "invalid keyring\n"


def ensure_keyring(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Ensure the keyring exists; in check mode, report whether it is missing."""
    path = params["path"]
    if check:
        return {"changed": not os.path.exists(path)}
    trusted = {package_key.normalize(text) for text in params["fingerprints"]}
    ring = package_key.select_trusted(package_key.fetch(params["url"]), trusted)
    texts = {"before": describe_keyring(package_key.read_keyring(path)), "after": describe_keyring(ring)}
    diff = {"before_header": path, "after_header": path, **texts}
    return {"changed": package_key.ensure_keyring(ring, path), "diff": diff, "kept": list(package_key.parse_keys(ring))}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = ensure_keyring(module.params, module.check_mode)
    except package_key.PackageKeyError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"cannot write {error.filename}: {error.strerror}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
