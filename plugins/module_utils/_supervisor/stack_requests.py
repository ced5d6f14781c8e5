# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer requests that stacks.yml leaves in the run directory for the stacks of this node's ranks."""

from __future__ import annotations

import contextlib
import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_entry
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object
from ansible_collections.muster.training.plugins.module_utils._run.stacks import REPLY, REQUEST
from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import shorten_groups

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.launcher import LauncherProcess


def handle_stack_request(journal: Journal, launcher: LauncherProcess) -> None:
    """Write the stacks to the run directory if someone has asked for them."""
    path = journal.path(REQUEST)
    if not os.path.lexists(path):
        return
    identifier = read_job_object(path).get("id")
    with contextlib.suppress(OSError):
        remove_entry(path)
    if isinstance(identifier, str):
        journal.write(REPLY, {"id": identifier[:64], "groups": shorten_groups(launcher.collect_stacks())})
