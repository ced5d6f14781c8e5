# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack the logs of a run on a node, and hand the archive over in pieces. Private to this collection."""

from __future__ import annotations

import base64
import os

from ansible_collections.muster.training.plugins.module_utils._run.runs import node_directories

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

PIECE = 8 * 1024 * 1024  # bytes of an archive that one answer carries


def archive_of(path: str) -> str:
    return os.path.join(path, "logs.tar.gz")


def pack(request: Data) -> Data:
    """Write the logs of a run into one archive on the node.

    Return its size in bytes, None where there is no such run.
    """
    found = node_directories(request)
    if not found:
        return {"changed": False, "size": None}
    path, plan = found[0]
    descriptor = os.open(archive_of(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    import tarfile  # costs as much as all else that is imported here, and no other call needs it

    with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in sorted(os.listdir(path)):
            told = name.endswith(".log") or name.startswith("flight_recorder_rank_")
            if told or name in ("plan.json", "status.json", "result.json", "events.jsonl", "gpus.csv", "ranks"):
                tar.add(os.path.join(path, name), arcname=os.path.join(f"node{plan['node']['node_rank']}", name))
    return {"changed": False, "size": os.path.getsize(archive_of(path))}


def piece(request: Data) -> Data:
    """Return a piece of the archive in base64, and remove the archive with the last one."""
    path = node_directories(request)[0][0]
    with open(archive_of(path), "rb") as stream:
        stream.seek(request["offset"])
        data = stream.read(PIECE)
    if len(data) < PIECE:
        os.unlink(archive_of(path))
    return {"changed": False, "data": base64.b64encode(data).decode("ascii"), "last": len(data) < PIECE}
