# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that this machine has enough disk space for data from nodes."""

from __future__ import annotations

import shutil
from pathlib import Path

from ansible.errors import AnsibleActionFail

KEEP_FREE = 1 << 30  # bytes of disk space to keep free of data from nodes


def require_free_space(path: Path, size: int, label: str, remedy: str = "read the logs on the node") -> None:
    """Raise AnsibleActionFail if `size` more bytes would leave less than KEEP_FREE bytes free on a disk.

    Args:
        path: A path on the disk.
        size: Bytes to write.
        label: The written data, as a plural noun.
        remedy: An alternative to freeing up space.
    """
    free = shutil.disk_usage(path).free
    if free - size < KEEP_FREE:
        raise AnsibleActionFail(
            f"{label} take {size / 1e9:.1f} GB, but the disk that holds {path} has {free / 1e9:.1f} GB free, of "
            f"which {KEEP_FREE / 1e9:.1f} GB are reserved: free up space on this machine, or {remedy}"
        )
