# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: check_script
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Check whether a training script is ready for several nodes
description:
  - Reads a Python script and the modules of its project that it imports, and reports code that fails or gives wrong
    results on several nodes, with the code to write instead. Nothing of the script is executed.
  - Runs on the controller, connects to nothing and changes nothing. Does not fail on findings; see RV(error_count).
  - Frameworks that do part of the work are recognized (Lightning, the Trainer of transformers, accelerate, DeepSpeed).
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  script:
    description:
      - The script. If its path is relative, it is below O(directory), below the current directory, or beside a file
        given with C(-e @FILE).
    type: str
    required: true
  directory:
    description: Directory of the project, such as the variable C(code_source).
    type: str
    default: ""
  launcher:
    description: The launcher that will start the script. Some rules depend on it.
    type: str
    default: torchrun
  skip:
    description: Ids of rules to skip.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Check the script
  muster.training.check_script:
    script: train.py
    directory: ~/project
    skip: [print-every-rank]
  register: checked
"""

RETURN = r"""
findings:
  description: The findings, errors first.
  returned: always
  type: list
  elements: dict
  contains:
    severity:
      description: V(error), V(warning) or V(note).
      returned: always
      type: str
      sample: error
    id:
      description: Id of the rule.
      returned: always
      type: str
      sample: save-every-rank
    file:
      description: Path of the file, relative to the project.
      returned: always
      type: str
      sample: train.py
    line:
      description: Line in the file.
      returned: always
      type: int
      sample: 42
    problem:
      description: What is wrong.
      returned: always
      type: str
      sample: all ranks write this file at the same time, which may corrupt it
    change:
      description: The code to write.
      returned: always
      type: str
      sample: "if torch.distributed.get_rank() == 0: torch.save(state, path)"
files:
  description: Paths of the files that were checked, the script first.
  returned: always
  type: list
  elements: str
  sample: [train.py, data/loader.py]
error_count:
  description: Number of findings with the severity V(error).
  returned: always
  type: int
  sample: 1
"""
