# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: own_environment
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read variables of the controller's environment by name or pattern
description:
  - Returns the variables of C(ansible-playbook)'s environment whose names match, as one dictionary.
  - A name that is not set is an error, unless O(missing=ignore). A pattern may match nothing.
options:
  _terms:
    description:
      - Names, such as V(HF_TOKEN), and patterns with C(*) and C(?), such as V(WANDB_*).
      - Each may also be a list of these, or a string separated by commas or spaces, as set with C(-e).
    type: list
    elements: raw
    required: true
  missing:
    description: Reaction to a name that is not set. V(error) fails. V(ignore) omits the variable.
    type: str
    choices: [error, ignore]
    default: error
"""

EXAMPLES = r"""
- name: Show which variables a job would get from the controller
  ansible.builtin.debug:
    msg: "{{ lookup('muster.training.own_environment', 'HOME', 'WANDB_*') | list }}"
"""

RETURN = r"""
_value:
  description: The variables, by name.
  type: list
  elements: dict
  sample: [{HF_TOKEN: hf_0123456789}]
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.muster.training.plugins.plugin_utils._controller_env import (
    matching_environment,
    missing_names,
    missing_names_message,
    parse_patterns,
)


class LookupModule(LookupBase):
    """Implemented as a lookup because Ansible reloads all filters of a collection for each node."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, str]]:
        """Return a list with one dictionary."""
        self.set_options(var_options=variables, direct=kwargs)
        patterns = parse_patterns(terms)
        missing = missing_names(patterns)
        if missing and self.get_option("missing") == "error":
            raise AnsibleLookupError(missing_names_message(missing))
        return [matching_environment(patterns)]
