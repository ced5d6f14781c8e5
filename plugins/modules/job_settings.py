# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: job_settings
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Determine which settings of a project a job file replaces
description:
  - Reads the variable C(job), which a job file sets. Each of its keys is the default of a variable, as C(script) of
    C(launch_script). If the inventory sets that variable too, the job file takes precedence, and a line on the screen
    names the replaced settings. Variables set with C(-e) override both.
  - With C(script) or C(module), the project's C(launch_args), C(launch_no_python) and other program are not used, and
    with other C(code) neither its C(code_directory), C(code_repository), C(launch_working_directory) nor its
    requirements, since they belong to another program.
  - A relative path after C(code) is resolved against the directory of the job file.
  - Connects to nothing. Fails if a value of the job cannot be evaluated, and names its key.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  extra_args:
    description: Arguments to append to those of the job, a list or a string that is split as by a shell.
    type: raw
    default: []
  show:
    description: Whether to show a line with the replaced settings.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Read the job file
  muster.training.job_settings:
  register: job_settings
  run_once: true
"""

RETURN = r"""
variables:
  description: Variables to set on all hosts, which the inventory sets to other values, or which need an absolute path.
  returned: success
  type: dict
  sample: {launch_script: train.py, launch_args: [--epochs, "3"]}
"""
