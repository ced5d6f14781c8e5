# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_engine_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read the settings and running containers of a Docker engine
description:
  - Reads the state that the role P(muster.training.docker_engine#role) needs before it changes settings of the engine.
    Changes nothing. Needs root.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
"""

EXAMPLES = r"""
- name: Read the settings of the engine
  muster.training.docker_engine_info:
  register: engine
  become: true

- name: Fail if containers are running
  ansible.builtin.assert:
    that: engine.running | length == 0 and engine.containers_error | length == 0
"""

RETURN = r"""
settings:
  description: Content of C(/etc/docker/daemon.json). Empty if the file does not exist.
  returned: success
  type: dict
  sample: {log-driver: journald}
settings_error:
  description: Why these settings cannot be changed. Empty if they can.
  returned: success
  type: str
  sample: ""
running:
  description: Names of running containers.
  returned: success
  type: list
  elements: str
  sample: [serve]
containers_error:
  description: Why the running containers could not be determined. Empty if they could.
  returned: success
  type: str
  sample: ""
nvidia:
  description: Whether the machine has an NVIDIA GPU.
  returned: success
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._containers import docker_state


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        state = docker_state.state()
    except OSError as error:
        module.fail_json(msg=f"cannot read {error.filename}: {error.strerror}. This needs root: set become: true")
    module.exit_json(changed=False, **state)


if __name__ == "__main__":
    main()
