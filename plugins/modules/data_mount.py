# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: data_mount
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Mount a bucket or a share at every boot, and verify that it works
description:
  - Writes a systemd mount unit and a credentials file that only root can read. Enables and starts the unit.
  - Then verifies the mount, since mount programs may report success for a broken mount. Stats and lists it and, where
    deleting is possible, writes, reads and removes a file, all as O(user) and within O(timeout).
  - A boot never waits for such a mount. The machine starts and accepts logins even if the server is unavailable.
  - A dead mount is unmounted and mounted again. If that fails, nothing is mounted, and the task fails with the cause
    from the systemd journal and a remedy. The unit stays enabled, so that the next boot or run tries again.
  - Leaves mounts made by others and non-empty directories alone. Never removes data.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.all
attributes:
  check_mode: {support: full}
  diff_mode: {support: full, details: Credentials are only shown as changed.}
  platform: {platforms: linux}
options:
  path:
    description:
      - Mount point, an absolute path without symbolic links, in a directory that only root can change. Created if
        missing.
    type: str
    required: true
  kind:
    description:
      - Program that mounts it. It must be installed, for example by the role of the same name, or C(cifs_share) for
        V(cifs).
    type: str
    required: true
    choices: [cifs, s3fs, mount-s3]
  source:
    description:
      - A bucket, such as V(BUCKET) or V(BUCKET:/PREFIX).
      - Or a share, such as V(//ADDRESS/SHARE), or with backslashes as Windows and Paperspace write it.
    type: str
    required: true
  options:
    description:
      - Options of the program by name, in addition to those that are always set. V(true) means an option without a
        value; V(false) and V(null) omit the option.
    type: dict
    default: {}
  credentials:
    description:
      - Credentials. If omitted, a bucket uses those of the instance's IAM role, and a share is mounted as guest.
    type: dict
    suboptions:
      access_key:
        description: S3 access key.
        type: str
      secret_key:
        description: S3 secret key.
        type: str
      session_token:
        description: S3 session token, for temporary keys.
        type: str
      username:
        description: User of a share.
        type: str
      password:
        description: Password of this user. Any characters except line breaks, at most 512 bytes.
        type: str
      domain:
        description: Domain of this user, if the server has one.
        type: str
  read_only:
    description: Mount it read-only.
    type: bool
    default: false
  user:
    description: User who owns the files and as whom the mount is verified.
    type: str
    default: root
  state:
    description:
      - V(mounted) mounts it now and at each boot.
      - V(unmounted) keeps it unmounted now and after each boot; unit and credentials stay.
      - V(absent) is V(unmounted), and also removes unit and credentials.
    type: str
    choices: [mounted, unmounted, absent]
    default: mounted
  timeout:
    description: Timeout of mounting and verification, in seconds, from 5 to 300.
    type: int
    default: 30
"""

EXAMPLES = r"""
- name: Mount a bucket
  muster.training.data_mount:
    path: /mnt/training-data
    kind: s3fs
    source: my-bucket:/imagenet
    options:
      url: https://s3.us-east-1.amazonaws.com
      allow_other: true
    credentials:
      access_key: "{{ lookup('ansible.builtin.env', 'AWS_ACCESS_KEY_ID') }}"
      secret_key: "{{ lookup('ansible.builtin.env', 'AWS_SECRET_ACCESS_KEY') }}"
    read_only: true
    user: ubuntu
  become: true
  register: data

- name: Mount a network drive
  muster.training.data_mount:
    path: /mnt/drive
    kind: cifs
    source: \\10.64.92.2\share
    options:
      seal: true
    credentials:
      username: trainer
      password: "{{ lookup('ansible.builtin.env', 'DRIVE_PASSWORD') }}"
    user: ubuntu
  become: true

- name: Ensure the bucket is unmounted and its credentials are removed
  muster.training.data_mount:
    path: /mnt/training-data
    kind: s3fs
    source: my-bucket:/imagenet
    state: absent
  become: true
"""

RETURN = r"""
unit:
  description: Name of the mount unit.
  returned: success
  type: str
  sample: mnt-training\x2ddata.mount
listing:
  description:
    - Number of names at the top level, and a digest of them. Equal on all nodes that see the same data. V(null) if it
      is not mounted, or in check mode not yet mounted.
  returned: success
  type: dict
  sample: {count: 12, digest: 9e107d9d372bb6826bd81d3542a419d6}
probe:
  description: Whether a file was written, read and removed.
  returned: success
  type: bool
  sample: true
"""

import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._mounts import ensure
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import DesiredMount, MountError
from ansible_collections.muster.training.plugins.module_utils._mounts.registry import KINDS

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "str", "required": True},
    "kind": {"type": "str", "required": True, "choices": ["cifs", "s3fs", "mount-s3"]},
    "source": {"type": "str", "required": True},
    "options": {"type": "dict", "default": {}},
    "credentials": {
        "type": "dict",
        # for the whole dictionary: Ansible logs its repr() to the journal, and would not recognize a secret there that
        # contains a quote or a backslash
        "no_log": True,
        "options": {
            "access_key": {"type": "str", "no_log": True},
            "secret_key": {"type": "str", "no_log": True},
            "session_token": {"type": "str", "no_log": True},
            "username": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "domain": {"type": "str"},
        },
    },
    "read_only": {"type": "bool", "default": False},
    "user": {"type": "str", "default": "root"},
    "state": {"type": "str", "choices": ["mounted", "unmounted", "absent"], "default": "mounted"},
    "timeout": {"type": "int", "default": 30},
}

NO_SECRETS = ("username", "domain")
"""The credentials that may be shown."""


def desired_mount(params: dict[str, Any]) -> DesiredMount:
    """Return the mount described by the parameters."""
    try:
        user = pwd.getpwnam(params["user"])
    except KeyError as error:
        raise MountError(
            f"{params['path']}: there is no user {params['user']!r} on this node. Create the user who runs the jobs, "
            "or correct its name"
        ) from error
    return DesiredMount(
        path=params["path"],
        source=params["source"],
        options=params["options"],
        credentials={name: value for name, value in (params["credentials"] or {}).items() if value},
        read_only=params["read_only"],
        uid=user.pw_uid,
        gid=user.pw_gid,
        timeout=params["timeout"],
    )


def apply_state(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Bring the mount to the desired state."""
    if os.geteuid() != 0:
        raise MountError(f"{params['path']}: mounting needs root. Set become: true")
    kind, desired = KINDS[params["kind"]], desired_mount(params)
    if params["state"] == "mounted":
        return ensure.ensure_mounted(kind, desired, check_mode)
    return ensure.ensure_unmounted(kind, desired, check_mode, absent=params["state"] == "absent")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    for name in NO_SECRETS:
        # otherwise every path containing this word would be hidden
        module.no_log_values.discard((module.params["credentials"] or {}).get(name))
    try:
        result = apply_state(module.params, module.check_mode)
    except MountError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{module.params['path']}: {error}. Check whether the disk is full or read-only")
    if result["listing"] and result["listing"]["count"] == 0 and module.params["read_only"]:
        module.warn(
            f"{module.params['path']} ({module.params['source']}) is empty: check the bucket or share, and the prefix"
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
