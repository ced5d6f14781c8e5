# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_cleanup
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Remove credentials and identifiers from a node before an image is made of it
description:
  - "Removes credentials: in all home directories, those of AWS, Docker, Git, GitHub, Google, Hugging Face, Kaggle,
    Kubernetes, Paperspace, rclone, S3, wandb and C(.netrc), all of C(.ssh) except C(authorized_keys), and histories;
    system-wide, the credentials and units of this collection's mounts, and the data stored by cloud-init."
  - "Removes identifiers of a node: SSH host keys, the machine ID, keys and settings of the role C(ssh_mesh). The next
    boot creates a new machine ID and new host keys, on the node and on each machine created from its image."
  - Removes the run directories, C(~/.muster).
  - Run this last, before the node is powered off. It boots with new host keys. C(site.yml) sets it up again.
  - List in O(extra_paths) what your own programs store elsewhere. Disk blocks are not overwritten.
  - Needs root.
extends_documentation_fragment:
  - muster.training._attributes.all
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
options:
  extra_paths:
    description: Further patterns of paths to remove, relative to the home directories, for example V(.config/my-tool).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Remove credentials and identifiers
  muster.training.image_cleanup:
    extra_paths: [.config/my-tool]
  become: true
"""

RETURN = r"""
paths:
  description:
    - Paths that were removed or emptied, or in check mode would be. Of C(authorized_keys), only keys of the role
      C(ssh_mesh) are removed.
  returned: success
  type: list
  elements: str
  sample: [/home/paperspace/.netrc, /etc/ssh/ssh_host_ed25519_key, /etc/machine-id]
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._files.user_files import UserFileError
from ansible_collections.muster.training.plugins.module_utils._machine_image.cleanup import clean, login_users


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"extra_paths": {"type": "list", "elements": "str", "default": []}}, supports_check_mode=True
    )
    if os.geteuid() != 0:
        module.fail_json(msg="cleaning home directories and keys needs root. Set become: true")
    invalid = [
        pattern
        for pattern in module.params["extra_paths"]
        if pattern.startswith(("/", "~")) or ".." in pattern.split("/") or not pattern
    ]
    if invalid:
        module.fail_json(
            msg=(f"the option more contains {invalid[0]!r}. Use paths inside a home directory, such as .config/my-tool")
        )
    try:
        paths = clean("/", login_users(), module.params["extra_paths"], module.check_mode)
    except (OSError, UserFileError) as error:
        module.fail_json(
            msg=f"the node is not clean yet: {error}. Correct this and run it again before you create an image"
        )
    module.exit_json(changed=bool(paths), paths=paths)


if __name__ == "__main__":
    main()
