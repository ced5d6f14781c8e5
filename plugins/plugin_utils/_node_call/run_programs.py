# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs that are written to the run directory when a run starts."""

from __future__ import annotations

import functools

from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import PackedTexts, pack_texts
from ansible_collections.muster.training.plugins.plugin_utils._node_call.program_files import program_sources
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.base import RANK_PROGRAM, SHELL_PROGRAM

PROGRAMS = {RANK_PROGRAM: "_supervisor.programs.muster_rank", SHELL_PROGRAM: "_supervisor.programs.ssh_shim"}
SUPERVISOR = "_supervisor.entry"


def supervisor_files() -> dict[str, str]:
    """Return the supervisor's source files, by path in the run directory."""
    return program_sources(SUPERVISOR, "supervisor.py")


@functools.cache
def packed_supervisor() -> PackedTexts:
    """Return supervisor_files() as a field of a request."""
    return pack_texts(supervisor_files())
