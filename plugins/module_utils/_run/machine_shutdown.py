# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detect whether this machine is being shut down or rebooted."""

from __future__ import annotations

import os
import subprocess

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import SHUTDOWN_QUERY_TIMEOUT

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

SIGNS = ("/run/nologin", "/run/systemd/shutdown/scheduled")  # files that exist from the beginning of a shutdown onward


def is_shutting_down() -> bool:
    """Return whether this machine is being shut down or rebooted, according to systemd."""
    if any(map(os.path.exists, SIGNS)):
        return True
    if not os.path.isdir("/run/systemd/system"):
        return False
    try:
        completed = subprocess.run(
            ["systemctl", "is-system-running"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SHUTDOWN_QUERY_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.stdout.strip() == b"stopping"
