# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts_file_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read how a machine resolves its own name and the other nodes'
description:
  - Reads C(/etc/hosts) and the machine's own name, checks whether cloud-init would rewrite the file, and resolves all
    names of the block that P(muster.training.etc_hosts#filter) writes. Changes nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
seealso:
  - plugin: muster.training.etc_hosts
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read what the machine calls itself and the other nodes
  muster.training.hosts_file_info:
  register: names

- name: Fail if names resolve to other addresses
  ansible.builtin.assert:
    that: names.differences | length == 0
"""

RETURN = r"""
hostname:
  description: What C(uname -n) says.
  returned: success
  type: str
  sample: psucgene4
hosts:
  description: Text of C(/etc/hosts), in Base64, since it may not be UTF-8.
  returned: success
  type: str
  sample: MTI3LjAuMC4xIGxvY2FsaG9zdAo=
sound:
  description: Whether the file belongs to root and has the permissions V(0644).
  returned: success
  type: bool
  sample: true
cloud_init:
  description: How cloud-init treats the file.
  returned: success
  type: dict
  contains:
    present: {description: Whether cloud-init is installed., type: bool, sample: true}
    wanted: {description: Whether the machine's user data has cloud-init write the file., type: bool, sample: false}
    config:
      description: Text of C(/etc/cloud/cloud.cfg) in that case, in Base64.
      type: str
      sample: ""
    ours:
      description: The text that tells cloud-init to leave the file alone, in Base64. Empty if it is not sound.
      type: str
      sample: ""
differences:
  description: Where the resolver differs from the cluster's block, one line each.
  returned: success
  type: list
  elements: str
  sample: ["gethostbyname(node1) says 127.0.1.1, the block 10.0.0.11"]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils import _hosts_file


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        found = _hosts_file.look()
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be read: {error.strerror}. See whether its disk is well")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
