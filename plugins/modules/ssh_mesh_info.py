# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read the state of a node's sshd and the key of its user
description:
  - Reads what the role P(muster.training.ssh_mesh#role) must know about a node. Changes nothing. Needs root.
  - Reads the user's key with the user's rights.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
options:
  user:
    description: User who logs in from node to node. If empty, the login user of this task, before becoming root.
    type: str
    default: ""
  key:
    description: The user's private key, relative to the home directory.
    type: str
    default: .ssh/id_ed25519
  host_key:
    description: The private host key.
    type: path
    default: /etc/ssh/ssh_host_ed25519_key
  sshd_file:
    description: The sshd configuration file that the role writes.
    type: path
    required: true
  revoked_file:
    description: The revocation list that the role writes.
    type: path
    required: true
  proof_file:
    description: The file in which the role notes which logins from this node worked.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Read the state of sshd
  muster.training.ssh_mesh_info:
    sshd_file: /etc/ssh/sshd_config.d/10-muster-ssh-mesh.conf
    revoked_file: /etc/ssh/muster_ssh_mesh_revoked
    proof_file: /var/lib/muster/ssh_mesh.proved
  register: node
  become: true
"""

RETURN = r"""
user:
  description: User who logs in from node to node.
  returned: success
  type: str
  sample: ubuntu
home:
  description: The user's home directory. Empty if there is no such user.
  returned: success
  type: str
  sample: /home/ubuntu
group:
  description: Group ID of the user.
  returned: success
  type: int
  sample: 1000
has_key:
  description: Whether anything exists at the path of the user's key.
  returned: success
  type: bool
  sample: true
user_key:
  description: The public key of the user's private key. Empty if that cannot be used without a prompt.
  returned: success
  type: str
  sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEpJ
unusable:
  description: Why it cannot be used, in the words of ssh-keygen.
  returned: success
  type: str
  sample: ""
host_key:
  description: The public host key.
  returned: success
  type: str
  sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKxq
ports:
  description: Ports set in files other than the role's, or V(22).
  returned: success
  type: list
  elements: int
  sample: [22]
has_port_line:
  description: Whether one of these files has a line C(Port).
  returned: success
  type: bool
  sample: false
socket:
  description: Whether systemd listens instead of sshd.
  returned: success
  type: bool
  sample: false
up_to_date:
  description: Whether sshd has read its files since their last change.
  returned: success
  type: bool
  sample: true
proof:
  description: Which logins from this node worked, as the role noted it.
  returned: success
  type: str
  sample: ""
faults:
  description: What keeps the node from taking part, one sentence each.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils import _ssh_mesh_node

ARGUMENT_SPEC: dict[str, Any] = {
    "user": {"type": "str", "default": ""},
    "key": {"type": "str", "default": ".ssh/id_ed25519", "no_log": False},
    "host_key": {"type": "path", "default": "/etc/ssh/ssh_host_ed25519_key", "no_log": False},
    "sshd_file": {"type": "path", "required": True},
    "revoked_file": {"type": "path", "required": True},
    "proof_file": {"type": "path", "required": True},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(changed=False, **_ssh_mesh_node.state(module.params))


if __name__ == "__main__":
    main()
