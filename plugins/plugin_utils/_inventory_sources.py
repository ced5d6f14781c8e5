# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reject inventory sources that Ansible could not read and ignored."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ansible.errors import AnsibleActionFail
from ansible.inventory.manager import IGNORED, InventoryManager
from ansible.utils.path import unfrackpath
from ansible.vars.hostvars import HostVars


def reject_unread_sources(hostvars: HostVars) -> None:
    """Raise AnsibleActionFail if an inventory source was not read.

    Ansible itself only warns, unless any_unparsed_is_failed is set, and runs on the remaining hosts.
    """
    unread = unread_sources(hostvars._inventory)
    if unread:
        raise AnsibleActionFail(
            f"the inventory is incomplete: {', '.join(unread)} could not be read (the first warning above says why). "
            "Correct the source, or remove it from -i or from `inventory` in ansible.cfg"
        )


def unread_sources(manager: InventoryManager) -> list[str]:
    """Return the requested sources that were not read, listing the files in directories individually."""
    read = set(manager._inventory.processed_sources)
    return [source for source in _expand(manager._sources) if source not in read]


def _expand(sources: list[str]) -> Iterator[str]:
    """Yield each source under the name that the inventory manager uses, except those that it skips."""
    for source in filter(None, sources):
        path = source if "," in source else unfrackpath(source, follow=False)
        if os.path.isdir(path):
            entries = sorted(entry for entry in os.listdir(path) if not IGNORED.search(entry.encode()))
            yield from _expand([os.path.join(path, entry) for entry in entries])
        elif path != "/etc/ansible/hosts" or os.path.exists(path):  # the default, which does not need to exist
            yield path
