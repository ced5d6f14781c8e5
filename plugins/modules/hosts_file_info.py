# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts_file_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read what a machine calls itself and the other nodes
description:
  - Reads C(/etc/hosts) and the machine's own name, looks whether cloud-init would write the file again, and asks the
    resolver for all names of the block that P(muster.training.etc_hosts#filter) writes. Changes nothing.
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

- name: Fail if names lead elsewhere
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
  description: The text of C(/etc/hosts), in Base64, since it may be no UTF-8.
  returned: success
  type: str
  sample: MTI3LjAuMC4xIGxvY2FsaG9zdAo=
sound:
  description: Whether the file is root's, and its permissions are V(0644).
  returned: success
  type: bool
  sample: true
cloud_init:
  description: What cloud-init has to do with the file.
  returned: success
  type: dict
  contains:
    present: {description: Whether cloud-init is installed., type: bool, sample: true}
    wanted: {description: Whether the machine's user data has cloud-init write the file., type: bool, sample: false}
    config:
      description: The text of C(/etc/cloud/cloud.cfg) where that is so, in Base64.
      type: str
      sample: ""
    ours:
      description: The text by which cloud-init is told to leave the file alone, in Base64. Empty where it is not sound.
      type: str
      sample: ""
differences:
  description: What the resolver says otherwise than the block of the cluster, a line each.
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
