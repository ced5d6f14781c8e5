# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: firewall_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read which ports sshd listens on, and the state of a node's firewall
description:
  - Reads what the role P(muster.training.firewall#role) must know about a node before it writes rules. Changes nothing.
    Needs root.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
options:
  program:
    description:
      - Path of the role's program. If it is there, it tells of the rules.
    type: path
    required: true
  files:
    description: Paths of files of root to read.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read the ports of sshd
  muster.training.firewall_info:
    program: /usr/local/lib/muster/firewall.py
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
rules:
  description: What the program says of the rules. Empty without it, and where it fails.
  returned: success
  type: dict
  contains:
    kept:
      description: The kept rules as text. Empty without any.
      type: str
    in_force:
      description: Whether they are active, and no others are being tried.
      type: bool
    at_boot:
      description: Whether systemd activates them at each boot, and has done so at this one.
      type: bool
  sample: {kept: "{}", in_force: true, at_boot: true}
files:
  description: By path, mode and SHA-256 of those of O(files) that are files of root.
  returned: success
  type: dict
  sample:
    /usr/local/lib/muster/firewall.py:
      mode: "0755"
      sha256: 2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806
"""

import json
import os
import subprocess
import sys
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils import _root_files, _sshd

ARGUMENT_SPEC: dict[str, Any] = {
    "program": {"type": "path", "required": True},
    "files": {"type": "list", "elements": "str", "default": []},
}


def rules(program: str) -> dict[str, Any]:
    """What the role's program says of the rules; nothing without it, and where it fails: trying them tells why."""
    if not os.path.exists(program):
        return {}
    done = subprocess.run([sys.executable, "-I", program, "state"], capture_output=True, text=True, check=False)
    said: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return said


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    settings, said = _sshd.settings()
    ports = [int(value) for name, value in settings if name == "port" and value.isdigit()]
    module.exit_json(
        changed=False,
        ssh_ports=ports,
        sshd_says=said,
        nftables=os.path.exists("/usr/sbin/nft"),
        rules=rules(module.params["program"]),
        files=_root_files.as_they_are(module.params["files"]),
    )


if __name__ == "__main__":
    main()
