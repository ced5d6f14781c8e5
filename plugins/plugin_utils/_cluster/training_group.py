# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory group that contains the nodes."""

from __future__ import annotations

from collections.abc import Mapping

from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import abbreviate


def group_members(group: str, groups: Mapping[str, list[str]]) -> list[str]:
    """Return the hosts of the group.

    Raise AnsibleActionFail if it is empty: Ansible itself would skip all tasks and succeed.
    """
    members = list(groups.get(group, []))
    if not members:
        raise AnsibleActionFail(
            f"the group '{group}' has no hosts. Add your machines to it. {empty_group_remedy(groups)}"
        )
    return members


def empty_group_remedy(groups: Mapping[str, list[str]]) -> str:
    """Return the remedy for a group without hosts: name a different group, or pass another inventory."""
    other_groups = sorted(name for name, hosts in groups.items() if hosts and name not in ("all", "ungrouped"))
    if other_groups:
        name = other_groups[0] if len(other_groups) == 1 else "NAME"
        return (
            f"The inventory has the group{'' if len(other_groups) == 1 else 's'} {abbreviate(other_groups)}: "
            f"rename yours, or choose it with -e launch_group={name} (for site.yml: -e site_group={name})"
        )
    return (
        "Show the inventory with `ansible-inventory --graph`, or choose one with -i (see the warnings above if it "
        "could not be read)"
    )
