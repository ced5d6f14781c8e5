# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: base_packages_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Wait until nobody else installs packages, then read what a machine lacks
description:
  - Waits for the end of cloud-init and of other programs that hold the locks of apt and dpkg, then reads what is wrong
    with the package management, and which packages, kernel settings, limits and how much shared memory are missing.
    Changes nothing. Needs root.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
options:
  wait:
    description: Seconds to wait for cloud-init, and as long for each lock.
    type: int
    default: 900
  packages:
    description: Names of packages that are wanted, as apt takes them.
    type: list
    elements: str
    default: []
  sources:
    description: Files of package sources that may be broken. Each that is there is asked for its lists.
    type: list
    elements: str
    default: []
  sysctl:
    description: Kernel settings, each with the least that it should be.
    type: dict
    default: {}
  shm_size:
    description: The least size of C(/dev/shm), a share of memory as V(50%), or a size as V(64G).
    type: str
    default: 50%
"""

EXAMPLES = r"""
- name: Read what the machine lacks
  muster.training.base_packages_info:
    packages: [rsync, git]
    sysctl:
      net.core.somaxconn: 4096
  register: machine
  become: true
"""

RETURN = r"""
fault:
  description:
    - Why the machine cannot be worked on, where the system is neither Debian nor Ubuntu, or others do not come to an
      end in time. Nothing else is returned then.
  returned: where there is one
  type: str
  sample: "the system is Rocky Linux 9.4. Needed: Debian or Ubuntu"
missing:
  description: Packages that are not installed. One that is not given by its plain name is always among them.
  returned: without a fault
  type: list
  elements: str
  sample: [git]
damaged:
  description: Installed packages whose list of files dpkg cannot read, with the path of that list.
  returned: without a fault
  type: dict
  sample: {}
interrupted:
  description: Whether dpkg left something half done.
  returned: without a fault
  type: bool
  sample: false
has_lists:
  description: Whether apt has lists of packages.
  returned: without a fault
  type: bool
  sample: true
broken_sources:
  description: Of O(sources) those that apt refuses, with what it says.
  returned: without a fault
  type: dict
  sample: {}
clocks:
  description: Services that set the clock and are enabled.
  returned: without a fault
  type: list
  elements: str
  sample: [systemd-timesyncd.service]
low:
  description: Of O(sysctl) those that are lower, with the value that is wanted.
  returned: without a fault
  type: dict
  sample: {net.core.somaxconn: 4096}
limits_wait:
  description: Whether systemd has not read the limits of C(/etc/systemd/system.conf.d/90-muster.conf) yet.
  returned: without a fault
  type: bool
  sample: false
most_files:
  description: The most open files that root can allow on this machine; -1 where there is no such limit.
  returned: without a fault
  type: int
  sample: -1
most_memlock:
  description: The most locked memory, in KiB, that root can allow; -1 where there is no such limit.
  returned: without a fault
  type: int
  sample: -1
shm_is_small:
  description: Whether C(/dev/shm) is smaller than O(shm_size).
  returned: without a fault
  type: bool
  sample: false
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils import _machine_state

ARGUMENT_SPEC: dict[str, Any] = {
    "wait": {"type": "int", "default": 900},
    "packages": {"type": "list", "elements": "str", "default": []},
    "sources": {"type": "list", "elements": "str", "default": []},
    "sysctl": {"type": "dict", "default": {}},
    "shm_size": {"type": "str", "default": "50%"},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        state = _machine_state.state(module.params)
    except _machine_state.Fault as fault:
        state = {"fault": str(fault)}
    module.exit_json(changed=False, **state)


if __name__ == "__main__":
    main()
