# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live run's secrets, such as its token: removed with the run or at the next boot."""

from __future__ import annotations

import contextlib
import os

# URLs of webhooks and mail servers, on the first two nodes and on those that may take over the lead of the run
NOTIFY = "notify.json"
SECRETS = ("token", "environment.json", NOTIFY)  # files that are no longer needed after the run
MEMORY_ROOT = "/run/muster"  # owned by root; in memory, so it is empty after a power loss


def memory_directory() -> str:
    """Return this user's directory for files that must not survive a reboot, such as a run's secrets."""
    return os.path.join(MEMORY_ROOT, str(os.geteuid()))


def remove_secrets(directory: str) -> None:
    """Remove a run's secrets: the files in its directory, or its links and their targets in memory."""
    for name in SECRETS:
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            target = os.readlink(path)
            if os.path.dirname(os.path.dirname(target)) == os.path.join(MEMORY_ROOT, str(os.geteuid())):
                os.unlink(target)
                os.rmdir(os.path.dirname(target))
        with contextlib.suppress(OSError):
            os.unlink(path)
