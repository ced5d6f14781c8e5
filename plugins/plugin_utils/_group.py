# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The group that holds the nodes. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Mapping

from ansible.errors import AnsibleActionFail


def members_of(group: str, groups: Mapping[str, list[str]]) -> list[str]:
    """The hosts of the group.

    Raises AnsibleActionFail where there are none: Ansible itself would skip all and succeed.
    """
    members = list(groups.get(group, []))
    if not members:
        raise AnsibleActionFail(
            f"the group '{group}' has no hosts. Needed: your machines in this group. See what the inventory holds with "
            "`ansible-inventory --graph`; give one with -i (see the warnings above if it could not be read)"
        )
    return members
