# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that this machine's disk has room for data from nodes. Private to this collection, controller only."""

from __future__ import annotations

import shutil
from pathlib import Path

from ansible.errors import AnsibleActionFail

KEEP_FREE = 1 << 30  # bytes to keep free of data from nodes


def require_room(where: Path, size: int, what: str, remedy: str = "look at the logs on the node") -> None:
    """Raise AnsibleActionFail if a disk would have less than KEEP_FREE bytes free after `size` more.

    what: the data, as a plural. remedy: what to do other than make room.
    """
    free = shutil.disk_usage(where).free
    if free - size < KEEP_FREE:
        raise AnsibleActionFail(
            f"{what} take {size / 1e9:.1f} GB, and the disk of {where} has {free / 1e9:.1f} GB free, of which "
            f"{KEEP_FREE / 1e9:.1f} GB are kept free: free up space here, or {remedy}"
        )
