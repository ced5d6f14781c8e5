# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: inventory_cloud
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Determine the provider of the inventory's machines
description:
  - Reads the files given with C(-i) or by C(inventory) in C(ansible.cfg), including those in directories, and
    determines whether one is a source for C(amazon.aws.aws_ec2) or for P(muster.training.paperspace#inventory).
  - If there is neither, defaults to Paperspace. Fails if there are both, since the provider at which to create machines
    would be ambiguous.
"""

EXAMPLES = r"""
- name: Show the provider of the inventory, and its region
  ansible.builtin.debug:
    msg: "{{ lookup('muster.training.inventory_cloud') }}"
"""

RETURN = r"""
_value:
  description:
    - One dictionary with C(cloud) (V(ec2) or V(paperspace)) and C(region) (of EC2, if the source names exactly one,
      otherwise empty).
  type: list
  elements: dict
  sample: [{cloud: ec2, region: us-east-1}]
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.muster.training.plugins.plugin_utils._clouds.inventory_provider import (
    AmbiguousCloudError,
    InventoryCloud,
    detect_cloud,
)


class LookupModule(LookupBase):
    """Reads the variable ansible_inventory_sources, and the files it lists."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[InventoryCloud]:
        """Return a list with one dictionary."""
        self.set_options(var_options=variables, direct=kwargs)
        try:
            return [detect_cloud((variables or {}).get("ansible_inventory_sources") or [])]
        except AmbiguousCloudError as error:
            raise AnsibleLookupError(str(error)) from None
