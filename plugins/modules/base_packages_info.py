# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: base_packages_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Wait for other package installs to finish, then read what a machine lacks
description:
  - Waits for cloud-init and other programs that hold the locks of apt and dpkg to finish, then reads what is wrong with
    package management, and which packages, kernel settings, limits and how much shared memory are missing. Changes
    nothing. Needs root.
  - Fails if the system is neither Debian nor Ubuntu, and if other programs do not finish in time.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
options:
  wait:
    description: Seconds to wait for cloud-init, and again for each lock.
    type: int
    default: 900
  packages:
    description: Names of the wanted packages, as apt takes them.
    type: list
    elements: str
    default: []
  sources:
    description: Package source files that may be broken. The lists of each existing one are requested.
    type: list
    elements: str
    default: []
  sysctl:
    description: Kernel settings, each with its minimum value.
    type: dict
    default: {}
  shm_size:
    description: Minimum size of C(/dev/shm), as a share of memory such as V(50%) or a size such as V(64G).
    type: str
    default: 50%
  files:
    description: Paths of files of root to read.
    type: list
    elements: str
    default: []
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
missing:
  description: Packages that are not installed. Any that is not given by its plain name is always listed.
  returned: success
  type: list
  elements: str
  sample: [git]
damaged:
  description: Installed packages whose file list dpkg cannot read, with the path of that list.
  returned: success
  type: dict
  sample: {}
interrupted:
  description: Whether dpkg was interrupted midway.
  returned: success
  type: bool
  sample: false
has_lists:
  description: Whether apt has package lists.
  returned: success
  type: bool
  sample: true
broken_sources:
  description: The O(sources) that apt rejects, with its message.
  returned: success
  type: dict
  sample: {}
clocks:
  description: Enabled services that set the clock.
  returned: success
  type: list
  elements: str
  sample: [systemd-timesyncd.service]
low:
  description: The O(sysctl) settings that are too low, with the wanted value.
  returned: success
  type: dict
  sample: {net.core.somaxconn: 4096}
limits_wait:
  description: Whether systemd has yet to read the limits in C(/etc/systemd/system.conf.d/90-muster.conf).
  returned: success
  type: bool
  sample: false
most_files:
  description: Maximum number of open files that root can allow on this machine; -1 if unlimited.
  returned: success
  type: int
  sample: -1
most_memlock:
  description: Maximum locked memory, in KiB, that root can allow; -1 if unlimited.
  returned: success
  type: int
  sample: -1
files:
  description: By path, mode and SHA-256 of those of O(files) that are files of root.
  returned: success
  type: dict
  sample:
    /etc/security/limits.d/90-muster.conf:
      mode: "0644"
      sha256: 2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806
shm_is_small:
  description: Whether C(/dev/shm) is smaller than O(shm_size).
  returned: success
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
    "files": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        state = _machine_state.state(module.params)
    except _machine_state.Fault as fault:
        module.fail_json(msg=f"{fault}.")
    module.exit_json(changed=False, **state)


if __name__ == "__main__":
    main()
