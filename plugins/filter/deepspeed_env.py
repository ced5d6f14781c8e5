# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: deepspeed_env
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Render variables as a .deepspeed_env file
description:
  - Produces the text of the file C(.deepspeed_env), from which C(deepspeed --hostfile) passes variables to other nodes.
  - DeepSpeed puts these values into command lines, in quotes that only some of its launchers remove. Values that would
    not arrive unchanged are rejected. Do not include secrets, since they appear in process lists.
  - The role P(muster.training.launch#role) does not need this file. It is for starting DeepSpeed manually.
positional: _input
options:
  _input:
    description: The variables, by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Ensure DeepSpeed sets variables on all nodes
  ansible.builtin.copy:
    content: "{{ {'NCCL_DEBUG': 'INFO', 'NCCL_IB_DISABLE': '1'} | muster.training.deepspeed_env }}"
    dest: ~/.deepspeed_env
    mode: "0600"
"""

RETURN = r"""
_value:
  description: The content of the file.
  type: str
  sample: "NCCL_DEBUG=INFO\nNCCL_IB_DISABLE=1\n"
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.plugin_utils._plan.job import VARIABLE_NAME

# Characters that DeepSpeed does not quote (launcher/multinode_runner.py, add_export), except %, which pdsh replaces.
PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]*\Z")


def deepspeed_env(variables: Mapping[str, Any]) -> str:
    """Render a .deepspeed_env file."""
    problems, lines = [], []
    for name, value in variables.items():
        if not VARIABLE_NAME.match(str(name)):
            problems.append(f"{ascii(name)[:60]} is not a valid variable name")
        elif isinstance(value, (bool, list, dict)) or value is None:
            problems.append(
                f"{name} is {'true or false' if isinstance(value, bool) else type(value).__name__}: use a string"
            )
        elif not PLAIN.match(str(value)):
            problems.append(
                f"{name} contains a character that DeepSpeed quotes and some of its launchers do not unquote"
            )
        else:
            lines.append(f"{name}={value}\n")
    if problems:
        raise AnsibleFilterError(
            "these variables cannot be written to a .deepspeed_env:\n  "
            + "\n  ".join(problems)
            + "\nuse only letters, digits and _ @ + = : , . / -; pass other values with launch_environment"
        )
    return "".join(lines)


class FilterModule:
    """Expose the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"deepspeed_env": deepspeed_env}
