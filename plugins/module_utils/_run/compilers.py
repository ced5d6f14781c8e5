# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the compilers that a silent job is running: DeepSpeed and torch compile extensions for minutes without any
output.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.processes import descendants
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import read_supervisor_pid

# As in /proc/PID/comm. ninja waits for the compilers that it has started.
COMPILERS = frozenset(("cc1", "cc1plus", "cicc", "clang", "clang++", "cudafe++", "ninja", "nvcc", "nvlink", "ptxas"))


def running_compilers(directory: str) -> list[str]:
    """Return the names of the compilers among a run's processes on this node, sorted."""
    supervisor = read_supervisor_pid(directory)
    names = {name_of(pid) for pid in descendants(supervisor)} if supervisor else set()
    return sorted(names & COMPILERS)


def name_of(pid: int) -> str:
    """Return the name of a process, or "" if it has ended."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""
