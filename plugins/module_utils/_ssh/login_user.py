# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The user who logged in to a node, as seen by root."""

from __future__ import annotations

import os
import pwd
import re

from ansible_collections.muster.training.plugins.module_utils._files.text import read


def owner(pid: int, proc: str = "/proc") -> tuple[int, int]:
    """Return a process's parent and its owner's UID, or (0, 0) if it has ended."""
    text = read(f"{proc}/{pid}/status")
    parent, uid = re.search(r"(?m)^PPid:\s*(\d+)$", text), re.search(r"(?m)^Uid:\s*(\d+)", text)
    return (int(parent.group(1)), int(uid.group(1))) if parent and uid else (0, 0)


def login_user(pid: int = 0, proc: str = "/proc") -> str:
    """Return the name of the user who logged in and became root with sudo or su.

    This is the owner of the nearest ancestor process that is not root's: the user's shell, or its sshd process. If all
    are root's, root has logged in.
    """
    pid = pid or os.getpid()
    while pid > 1:
        pid, uid = owner(pid, proc)
        if uid:
            return pwd.getpwuid(uid).pw_name
    return pwd.getpwuid(0).pw_name
