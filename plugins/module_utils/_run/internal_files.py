# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files in a run directory that muster itself writes; all others are the job's output files."""

from __future__ import annotations

import os

from ansible_collections.muster.training.plugins.module_utils._run import archive_selection
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import ACCOUNTING_FILE
from ansible_collections.muster.training.plugins.module_utils._run.secrets import SECRETS
from ansible_collections.muster.training.plugins.module_utils._slurm import queued_run

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Mapping

# First components of paths. Those that begin with "supervisor" are internal as well, as are the files that the plan
# lists.
INTERNAL_NAMES = frozenset(
    (
        "attempt.json",  # belongs to _checkpoints/resume.py
        "asked",  # commands of a launcher that starts the other nodes: remote_start.py
        "bin",
        "container.creating",  # belongs to container_creation.py
        "container.id",
        "checkpoints.json",  # belongs to the role checkpoints
        archive_selection.FILE,
        "hooks",  # belongs to stack_hook.py, as do the stacks that it writes
        "stacks",
        "stacks.json",
        "stacks.request",
        "debugger.json",  # belongs to debug_rank.py
        "join.json",  # belongs to new_members.py
        "join.request",
        "notice.json",  # belongs to node_notices.py
        "slurm-end",
        "profile.json",  # belongs to profile.py, as do the traces
        "profile.request",
        "profiles",
        "logs.tar.gz",  # the archive of logs.py
        "program",  # the supervisor's modules
        "samples.jsonl",  # belongs to live_samples.py
        "ranks.json",  # belongs to journal.py
        "reserve",  # disk space reserved by journal.py
        "stop",
        "earlier",  # belongs to lives.py: the files of earlier lives, and what another life needs, with the secrets
        queued_run.KEPT,
        ACCOUNTING_FILE,
        archive_selection.SNAPSHOT_FILE,
        *SECRETS,
        *archive_selection.LOGS,
    )
)


def is_internal(path: str, plan: Mapping[str, Any]) -> bool:
    """Return whether a path in a run directory is not the job's: a log, a file of the run, or a hidden cache."""
    first = path.split(os.sep)[0]
    return (
        first in INTERNAL_NAMES
        or archive_selection.is_log_directory(first)
        or first.startswith((".", "supervisor"))
        or first in (plan.get("files") or {})
        or (first == path and (archive_selection.is_log(path) or path.endswith(".tmp")))
    )
