# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: shell_command
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the command that opens a shell in a rank's environment
description:
  - Shows the command that opens a shell on the node from this machine. The shell is in the job's working directory,
    with its interpreter first on the path and the network variables set, or in the job's image.
  - The job's own variables are not included, since they may be secrets.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._job.container
  - muster.training._job.container_options
  - muster.training._attributes.all
attributes:
  action: {support: full}
  async: {support: none}
  become: {support: none}
  bypass_host_loop: {support: none}
  check_mode: {support: full}
  connection: {support: none}
  delegation: {support: none}
  diff_mode: {support: none}
  platform: {platforms: all}
options:
  facts:
    description: Facts of the node, from M(muster.training.node_facts) with the part V(gpus).
    type: dict
    required: true
  address:
    description: Address at which the other nodes reach the node. If empty, no network variables are set.
    type: str
    default: ""
  image:
    description:
      - Container image of the job, as in O(muster.training.launch_plan#module:image). If empty, the shell runs without
        a container.
    type: str
    default: ""
  container_engine:
    description: Container engine.
    type: str
    choices: [docker, podman]
    default: docker
  run_id:
    description: Name of the run in whose container the shell is opened. If empty, the shell gets a new container.
    type: str
    default: ""
  user:
    description: User of the job. If empty, defaults to the login user.
    type: str
    default: ""
  json_file:
    description:
      - File on the controller to which the arguments of the command are written as JSON. If omitted, no file is
        written.
    type: path
seealso:
  - module: muster.training.node_facts
"""

EXAMPLES = r"""
- name: Read the facts that the command needs
  muster.training.node_facts:
    interpreter: python3
    working_directory: ~/project
    parts: [gpus]
  register: node

- name: Show the command
  muster.training.shell_command:
    facts: "{{ node.facts }}"
    image: pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
"""

RETURN = r"""
argv:
  description: The command, one argument per item.
  returned: success
  type: list
  elements: str
  sample: [ssh, -t, -l, ubuntu, 203.0.113.10, "sh -c 'cd /home/ubuntu/project; exec \"$SHELL\" -i'"]
"""
