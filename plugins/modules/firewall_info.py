# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: firewall_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read which ports sshd listens on, and whether nftables is installed
description:
  - Reads what the role P(muster.training.firewall#role) must know about a node before it writes rules. Changes nothing.
    Needs root.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
"""

EXAMPLES = r"""
- name: Read the ports of sshd
  muster.training.firewall_info:
  register: node
  become: true
"""

RETURN = r"""
ssh_ports:
  description: Ports on which sshd listens. Empty if sshd does not report them.
  returned: success
  type: list
  elements: int
  sample: [22]
sshd_says:
  description: What sshd prints if it does not report its settings.
  returned: success
  type: str
  sample: ""
nftables:
  description: Whether C(nft) is installed.
  returned: success
  type: bool
  sample: true
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils import _sshd


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    settings, said = _sshd.settings()
    ports = [int(value) for name, value in settings if name == "port" and value.isdigit()]
    module.exit_json(changed=False, ssh_ports=ports, sshd_says=said, nftables=os.path.exists("/usr/sbin/nft"))


if __name__ == "__main__":
    main()
