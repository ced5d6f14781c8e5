# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine why a supervisor ended without a result: this machine shut down or restarted, or only the supervisor
died.
"""

from __future__ import annotations

SHUT_DOWN = "was rebooted or shut down"  # describes a node whose supervisor was still able to report it
RESTARTED = "the node was restarted during the run"
SUPERVISOR_DIED = "the supervisor was killed, or stopped because it hung, while the node itself stayed up"
UNKNOWN = "the supervisor died without reporting a result (killed, stopped because it hung, or the node went down)"


def boot_identity() -> str:
    """Return an identifier that changes with each boot of this machine or container."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            boot = stream.read().strip()
        with open("/proc/1/stat", "rb") as stat:
            # start time of the first process, in ticks since boot
            started = stat.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""
    return f"{boot} {started}"


def death_message(recorded: str) -> str:
    """Return why a supervisor died; recorded: boot_identity() when it started, or "" if unknown."""
    current = boot_identity()
    if not recorded or not current:
        return UNKNOWN
    return SUPERVISOR_DIED if recorded == current else RESTARTED
