# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shared code for inventory plugins whose options compose variables and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.inventory import BaseInventoryPlugin, Constructable


class ConstructedInventory(BaseInventoryPlugin, Constructable):
    """An inventory plugin with the options strict, compose, groups and keyed_groups."""

    def _add_constructed_host(
        self, name: str, group: str, variables: Mapping[str, Any], expression_variables: Mapping[str, Any] | None = None
    ) -> None:
        """Add a host and its variables to a group, and apply the options to the host.

        expression_variables: those that the expressions in the options may use, if they differ.
        """
        self.inventory.add_host(name, group=group)
        for variable, value in variables.items():
            self.inventory.set_variable(name, variable, value)
        strict, available = self.get_option("strict"), expression_variables or variables
        self._set_composite_vars(self.get_option("compose"), available, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), available, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), available, name, strict=strict)
