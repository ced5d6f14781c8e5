# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: python_layer
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Solve packages once, and install the same wheels on all nodes
description:
  - What the role P(muster.training.python_env#role) asks of the nodes, a step each. The packages that are installed
    together are a layer. The first node solves which versions these are and gets their wheels; all nodes install those.
  - Runs as the user of the task, whose the environment is. It does not depend on the connection. What takes long shows
    that it lives; if the play is interrupted it goes on, and the next run of the same task follows it to its end.
  - Neither addresses with passwords nor environment variables are in an argument, where others could read them.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.long
attributes:
  check_mode:
    support: partial
    details: The steps V(read_lock) and V(compare) change nothing and are run. Of others it says that they would be.
  diff_mode: {support: full, details: Names of packages.}
options:
  step:
    description:
      - V(read_lock), on the first node, returns the lock that stands for what is wanted now.
      - V(solve), on the first node, makes the environment and the lock, and gets the wheels.
      - V(compare) says what this node lacks of O(lock), and fails where it could not be installed.
      - V(install) brings this node to O(lock).
      - V(serve), on the first node, begins to hand its wheels to the others; V(stop_serving) ends that.
    type: str
    choices: [read_lock, solve, compare, install, serve, stop_serving]
    required: true
  directory:
    description: Below it lie the environment, the wheels and the locks. The same on all nodes.
    type: path
    required: true
  layer:
    description: The name of what is installed together.
    type: str
    required: true
  order:
    description: Layers with a higher number leave alone what those with a lower one have.
    type: int
    default: 0
  manager:
    description: What makes the environment and installs into it.
    type: str
    choices: [venv, uv, conda]
    default: venv
  python:
    description: The interpreter by which it is made, by name, path or version.
    type: str
    default: python3
  python_asked:
    description: What the user has asked for. Another one, and the layer is solved again.
    type: str
    default: auto
  space:
    description: GB that must be free where something is to be installed.
    type: float
    default: 0
  pip_version:
    description: The release of pip.
    type: str
    default: ""
  uv_version:
    description: The release of uv.
    type: str
    default: ""
  index_url:
    description:
      - The index of packages, with a user and a password in it where it asks for them. If empty, that of the
        configuration of pip.
    type: str
    default: ""
  extra_index_urls:
    description: Further indexes.
    type: list
    elements: str
    default: []
  find_links:
    description: Further places of wheels.
    type: list
    elements: str
    default: []
  requirements:
    description: What is wanted, as pip takes it.
    type: list
    elements: str
    default: []
  files:
    description: Files of requirements on the first node.
    type: list
    elements: str
    default: []
  editable:
    description: Source trees on the nodes that are installed to be edited.
    type: list
    elements: str
    default: []
  project:
    description:
      - What a project on the controller requires, as P(muster.training.project_requirements#lookup) returns it.
    type: dict
    default: {}
  environment:
    description: Environment variables of a build.
    type: dict
    default: {}
  options:
    description: Further options of pip.
    type: list
    elements: str
    default: []
  conda_installer_url:
    description: Where the installer of conda is.
    type: str
    default: ""
  conda_installer_sha256:
    description: Its hash.
    type: str
    default: ""
  conda_channels:
    description: Channels of conda.
    type: list
    elements: str
    default: []
  conda_packages:
    description: What conda installs beside the interpreter.
    type: list
    elements: str
    default: []
  conda_accept_terms:
    description: Whether the terms of service of the channels are accepted.
    type: bool
    default: false
  conda_init:
    description: Whether conda is made known to shells of the user.
    type: bool
    default: false
  lock:
    description: What O(step=read_lock) or O(step=solve) has returned. If empty, not solved yet.
    type: dict
    default: {}
  from:
    description: The name of the first node, for a message.
    type: str
    default: ""
  url:
    description: Where the first node hands out its wheels, with the token behind it. Empty on that node itself.
    type: str
    default: ""
  address:
    description: The address at which O(step=serve) listens.
    type: str
    default: ""
  token:
    description: By which the nodes are let in.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Choose the packages on the first node
  muster.training.python_layer:
    step: solve
    directory: /opt/muster
    layer: mine
    order: 50
    pip_version: "26.3"
    requirements: [numpy]
  delegate_to: "{{ groups.training[0] }}"
  run_once: true
  register: solved

- name: Read what the node lacks
  muster.training.python_layer:
    step: compare
    directory: /opt/muster
    layer: mine
    order: 50
    lock: "{{ solved.lock }}"
"""

RETURN = r"""
lock:
  description: The versions and files of the layer. Empty for O(step=read_lock) where nothing stands for what is wanted.
  returned: for O(step=read_lock) and O(step=solve)
  type: dict
  sample: {layer: mine, order: 50, key: 6b86b273, packages: [{name: numpy, version: 2.4.0}]}
missing:
  description: What the node lacks of it.
  returned: for O(step=compare)
  type: list
  elements: str
  sample: [numpy]
unneeded:
  description: What this layer has installed before, and now no layer needs.
  returned: for O(step=compare)
  type: list
  elements: str
  sample: []
layers:
  description: Layers that have installed something here.
  returned: for O(step=compare)
  type: list
  elements: str
  sample: [base]
python:
  description: The version of the environment's interpreter. Empty where there is no environment yet.
  returned: for O(step=compare)
  type: str
  sample: 3.12.4
installed:
  description: What was missing, and is there.
  returned: for O(step=install), where something was missing
  type: list
  elements: str
  sample: [numpy]
removed:
  description: What was not needed any more, and is gone.
  returned: for O(step=install), where something was missing
  type: list
  elements: str
  sample: []
url:
  description: Where the wheels are handed out, without the token.
  returned: for O(step=serve)
  type: str
  sample: http://10.0.0.10:40127
"""
