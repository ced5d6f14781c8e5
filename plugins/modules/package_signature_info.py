# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_signature_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Check whether a package is signed by a trusted key
description:
  - Verifies the detached signature of a file on the node. A key is trusted by its fingerprint alone, whatever its
    source. Changes nothing. Needs C(gpgv).
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
options:
  path:
    description: Path of the package.
    type: path
    required: true
  signature:
    description: Path of its detached signature.
    type: path
    required: true
  keys:
    description: Path of a file with armored keys, including the signing key.
    type: path
    required: true
  fingerprints:
    description: Fingerprints of the trusted keys, 40 hexadecimal digits each. Spaces are ignored.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Read which key signed the package
  muster.training.package_signature_info:
    path: /var/cache/fetched/mount-s3.deb
    signature: /var/cache/fetched/mount-s3.deb.asc
    keys: /var/cache/fetched/KEYS
    fingerprints: [8AEFE705EBE329C0948C75A66F1C3B3AEF4B030B]
  register: package

- name: Check that the package is signed by a trusted key
  ansible.builtin.assert:
    that: package.valid
    fail_msg: "{{ package.detail }}"
"""

RETURN = r"""
valid:
  description: Whether the signature matches this file and a trusted key.
  returned: success
  type: bool
  sample: true
detail:
  description: The signing key, or why the signature is invalid.
  returned: success
  type: str
  sample: signed by 8AEFE705EBE329C0948C75A66F1C3B3AEF4B030B
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._apt import package_signature

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "signature": {"type": "path", "required": True},
    "keys": {"type": "path", "required": True, "no_log": False},
    "fingerprints": {"type": "list", "elements": "str", "required": True},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path, signature, keys = (module.params[name] for name in ("path", "signature", "keys"))
    trusted = {package_signature.normalize(text) for text in module.params["fingerprints"]}
    try:
        is_signed, message = package_signature.verify_signature(path, signature, keys, trusted)
    except OSError as error:
        module.fail_json(
            msg=f"cannot verify the signature of {path}: {error.filename}: {error.strerror}. Download the package, its "
            "signature and the keys, and install gpgv"
        )
    module.exit_json(changed=False, valid=is_signed, detail=message)


if __name__ == "__main__":
    main()
