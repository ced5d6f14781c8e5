# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack a run's files on a node and send the archive in chunks."""

from __future__ import annotations

import base64
import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    file_size,
    open_regular,
    remove_entry,
)
from ansible_collections.muster.training.plugins.module_utils._run.archive_selection import pack_run
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import node_directories
from ansible_collections.muster.training.plugins.module_utils._run.hub_node import leads_run
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.job_results import load_reports
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import earlier_logs, rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import is_alive

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

PIECE_BYTES = 8 * 1024 * 1024  # bytes of the archive per reply


def archive_path(path: str) -> str:
    """Return the path of a run's archive."""
    return os.path.join(path, "logs.tar.gz")


def pack(request: Data) -> Data:
    """Pack a run's files into one archive on the node: all logs, or only the files relevant to its outcome.

    Return its size in bytes (None if the run does not exist), its first piece, and the omitted files.
    """
    runs = node_directories(request)
    if not runs:
        return {"changed": False, "size": None}
    path, plan = runs[0]
    is_first = leads_run(plan)
    if is_first and not is_alive(path):
        load_reports(path, plan)  # writes the file that is being packed
    remove_entry(archive_path(path))  # the job may have put anything there
    descriptor = os.open(archive_path(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    import tarfile  # takes as long as all other imports together, and only this call needs it

    logs = logs_of_rank_zero(plan, path) if is_first else ()
    with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as tar:
        omissions = pack_run(tar, path, plan, request["selection"] == "logs", logs)
    size = file_size(archive_path(path))
    return {"size": size, "left_out": omissions, **read_piece({**request, "offset": 0})}


def logs_of_rank_zero(plan: Data, path: str) -> tuple[str, ...]:
    """Return rank 0's logs and, after a restart, those of earlier attempts, with which its curves begin."""
    earlier = earlier_logs(plan, path, 0) if plan.get("attempt") else []
    return (*earlier, *rank_logs(plan, path, 0))


def read_piece(request: Data) -> Data:
    """Return an archive chunk in base64, and remove the archive after the last chunk."""
    runs = node_directories(request)
    if not runs:
        raise RunError(f"run {request['run_id']} was removed from this node while its logs were being fetched")
    path = runs[0][0]
    with open(archive_path(path), "rb", opener=open_regular) as stream:
        stream.seek(request["offset"])
        data = stream.read(PIECE_BYTES)
    if len(data) < PIECE_BYTES:
        os.unlink(archive_path(path))
    return {"changed": False, "data": base64.b64encode(data).decode("ascii"), "last": len(data) < PIECE_BYTES}
