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
  - Gives those variables of the environment of C(ansible-playbook) whose names match, and no others, as one dictionary.
  - A name that is not set is left out, unless it is written without a pattern, which is then an error.
options:
  _terms:
    description:
      - Names, such as V(HF_TOKEN), and patterns with C(*) and C(?), such as V(WANDB_*).
      - Each may also be a list of such, or text with commas or blanks between them, as C(-e) gives it.
    type: list
    elements: raw
    required: true
"""

EXAMPLES = r"""
- name: Show which variables a job would get from here
  ansible.builtin.debug:
    msg: "{{ lookup('muster.training.own_environment', 'HOME', 'WANDB_*') | list }}"
"""

RETURN = r"""
_value:
  description: The variables, by their names.
  type: list
  elements: dict
  sample: [{HF_TOKEN: hf_0123456789}]
"""

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase


def own_environment(patterns: Iterable[str]) -> dict[str, str]:
    """The variables of this process whose names match."""
    found: dict[str, str] = {}
    missing = []
    for pattern in patterns:
        names = [name for name in os.environ if fnmatchcase(name, pattern)]
        found.update({name: os.environ[name] for name in names})
        if not names and not re.search(r"[*?\[]", pattern):
            missing.append(pattern)
    if missing:
        raise AnsibleLookupError(
            f"not set in the environment of ansible-playbook: {', '.join(missing)}; export them here first, or leave "
            "them out"
        )
    return found


def patterns_in(terms: Iterable[Any]) -> list[str]:
    """Names and patterns, one by one."""
    found: list[str] = []
    for term in terms:
        if isinstance(term, str):
            found += [one for one in re.split(r"[,\s]+", term.strip("[]")) if one]
        else:
            found += [str(one) for one in term]
    return found


class LookupModule(LookupBase):
    """A lookup, not a filter: of those Ansible loads all that a collection has, for each node anew."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, str]]:
        """Return one dictionary."""
        return [own_environment(patterns_in(terms))]
