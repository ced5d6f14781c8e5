# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: python_layer
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Resolve packages once and install the same wheels on all nodes
description:
  - Runs the steps that the role P(muster.training.python_env#role) needs on the nodes. Packages that are installed
    together form a layer. The first node resolves their versions and downloads the wheels; all nodes install the same
    wheels.
  - Runs as the user of the task, who owns the environment, and independently of the connection. Long steps show their
    progress. If the play is interrupted, they continue, and the next run of the same task follows them to their end.
  - URLs with passwords and environment variables are never passed as arguments, which other users could read.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.long
attributes:
  check_mode:
    support: partial
    details: The steps V(read_lock) and V(compare) change nothing and run normally. Other steps are only reported.
  diff_mode: {support: full, details: Names of packages.}
options:
  step:
    description:
      - V(read_lock), on the first node, returns the lock that matches the current requirements.
      - V(solve), on the first node, creates the environment and the lock, and downloads the wheels.
      - V(restore), on the first node, creates the environment and downloads the wheels of O(lock), which an earlier run
        had, and fails if one of them is unavailable.
      - V(compare) returns the packages of O(lock) that this node lacks, and fails if they could not be installed.
      - V(install) installs O(lock) on this node.
      - V(serve), on the first node, starts serving its wheels to the others; V(stop_serving) stops that.
    type: str
    choices: [read_lock, solve, restore, compare, install, serve, stop_serving]
    required: true
  directory:
    description: Directory of the environment, the wheels and the locks. The same on all nodes.
    type: path
    required: true
  layer:
    description: Name of the layer.
    type: str
    required: true
  order:
    description: Position of the layer. A layer does not change the packages of layers with a lower position.
    type: int
    default: 0
  manager:
    description: Tool that creates the environment and installs into it.
    type: str
    choices: [venv, uv, conda]
    default: venv
  python:
    description: Interpreter of the environment, as a name, path or version.
    type: str
    default: python3
  requested_python:
    description: The interpreter as the user requested it. When it changes, the layer is resolved again.
    type: str
    default: auto
  min_free_gb:
    description: Space that must be free before packages are installed, in GB.
    type: float
    default: 0
  pip_version:
    description: Release of pip to install.
    type: str
    default: ""
  uv_version:
    description: Release of uv to install.
    type: str
    default: ""
  index_url:
    description:
      - Package index, including user and password if it needs them. If empty, defaults to the one in pip's
        configuration.
    type: str
    default: ""
  torch_index_url:
    description:
      - Index of torch's own packages, including user and password if it needs them. Packages that are built against
        torch, such as torchvision, are taken from it after a layer has installed torch, so that their build matches.
        If empty, they are taken from the same indexes as all others.
    type: str
    default: ""
  extra_index_urls:
    description: URLs of further package indexes.
    type: list
    elements: str
    default: []
  find_links:
    description: Further locations of wheels, as C(pip --find-links) takes them.
    type: list
    elements: str
    default: []
  requirements:
    description: Requirements in pip's format.
    type: list
    elements: str
    default: []
  files:
    description: Paths of requirements files on the first node.
    type: list
    elements: str
    default: []
  editable:
    description: Paths of source trees on the nodes to install in editable mode.
    type: list
    elements: str
    default: []
  project:
    description:
      - Requirements of a project on the controller, as P(muster.training.project_requirements#lookup) returns them.
    type: dict
    default: {}
  project_name:
    description: Name of the directory of the project on the nodes, kept to tell its environment from others.
    type: str
    default: ""
  environment:
    description: Environment variables for builds.
    type: dict
    default: {}
  options:
    description: Further pip options.
    type: list
    elements: str
    default: []
  conda_installer_url:
    description: URL of the conda installer.
    type: str
    default: ""
  conda_installer_sha256:
    description: SHA-256 hash of the conda installer.
    type: str
    default: ""
  conda_channels:
    description: Conda channels.
    type: list
    elements: str
    default: []
  conda_packages:
    description: Packages that conda installs in addition to the interpreter.
    type: list
    elements: str
    default: []
  conda_accept_terms:
    description: Accept the channels' terms of service.
    type: bool
    default: false
  conda_init:
    description: Set up conda in the user's shells.
    type: bool
    default: false
  lock:
    description: The lock that O(step=read_lock) or O(step=solve) returned. Empty means that it is not resolved yet.
    type: dict
    default: {}
  from:
    description: Name of the first node, for messages.
    type: str
    default: ""
  url:
    description: URL at which the first node serves its wheels, ending with the token. Empty on the first node itself.
    type: str
    default: ""
  address:
    description: Address on which O(step=serve) listens.
    type: str
    default: ""
  token:
    description: Token that grants the nodes access to the wheels.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Resolve the packages on the first node
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

- name: Read which packages the node lacks
  muster.training.python_layer:
    step: compare
    directory: /opt/muster
    layer: mine
    order: 50
    lock: "{{ solved.lock }}"
"""

RETURN = r"""
lock:
  description: Versions and files of the layer. Empty for O(step=read_lock) if no lock matches the requirements.
  returned: for O(step=read_lock) and O(step=solve)
  type: dict
  sample: {layer: mine, order: 50, key: 6b86b273, packages: [{name: numpy, version: 2.4.0}]}
missing:
  description: Packages of the lock that the node lacks.
  returned: for O(step=compare)
  type: list
  elements: str
  sample: [numpy]
unneeded:
  description: Packages that this layer installed earlier and no layer needs now.
  returned: for O(step=compare)
  type: list
  elements: str
  sample: []
layers:
  description: Layers that have installed packages on this node.
  returned: for O(step=compare)
  type: list
  elements: str
  sample: [base]
python:
  description: Version of the environment's interpreter. Empty if the environment does not exist yet.
  returned: for O(step=compare)
  type: str
  sample: 3.12.4
installed:
  description: Packages that were missing and are now installed.
  returned: for O(step=install), if something was missing
  type: list
  elements: str
  sample: [numpy]
removed:
  description: Packages that were no longer needed and have been removed.
  returned: for O(step=install), if something was missing
  type: list
  elements: str
  sample: []
url:
  description: URL at which the wheels are served, without the token.
  returned: for O(step=serve)
  type: str
  sample: http://10.0.0.10:40127
"""
