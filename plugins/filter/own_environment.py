# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: own_environment
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Take variables of this machine's environment by name or pattern
description:
  - Gives those variables of the environment of C(ansible-playbook) whose names match, and no others.
  - A name that is not set is left out, unless it is written without a pattern, which is then an error.
positional: _input
options:
  _input:
    description: Names, such as V(HF_TOKEN), and patterns with C(*) and C(?), such as V(WANDB_*).
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show which variables a job would get from here
  ansible.builtin.debug:
    msg: "{{ ['HOME', 'WANDB_*'] | muster.training.own_environment | list }}"
"""

RETURN = r"""
_value:
  description: The variables, by their names.
  type: dict
  sample: {HF_TOKEN: hf_0123456789}
"""

import os
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from ansible.errors import AnsibleFilterError


def own_environment(patterns: Iterable[str]) -> dict[str, str]:
    """The variables of this process whose names match."""
    if isinstance(patterns, str):
        patterns = [one for one in re.split(r"[,\s]+", patterns.strip("[]")) if one]
    found: dict[str, str] = {}
    missing = []
    for pattern in patterns:
        names = [name for name in os.environ if fnmatchcase(name, str(pattern))]
        found.update({name: os.environ[name] for name in names})
        if not names and not re.search(r"[*?\[]", str(pattern)):
            missing.append(str(pattern))
    if missing:
        raise AnsibleFilterError(
            f"not set in the environment of ansible-playbook: {', '.join(missing)}; export them here first, or leave "
            "them out"
        )
    return found


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., dict[str, str]]]:
        return {"own_environment": own_environment}
