# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""List, compare and send in chunks the files that a run's job wrote on this node.

This runs as the run's user. A file is named run/PATH below the run directory, work/PATH below the job's working
directory, and root/PATH elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import FileWalk, open_regular
from ansible_collections.muster.training.plugins.module_utils._run import archive_selection
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import node_directories
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, drop_privileges
from ansible_collections.muster.training.plugins.module_utils._run.internal_files import is_internal
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import FINAL_STATES, read_status

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Dict, TypedDict

    Data = Dict[str, Any]

    class ListedFile(TypedDict):
        """An entry of the list of a node's files."""

        name: str
        size: int  # bytes
        mtime: int  # nanoseconds since 1970


MAX_LISTED_FILES = 100_000  # number of files listed per node
MAX_SCANNED_FILES = 2_000_000  # number of files in a directory, including those that are not the job's
MAX_UNLISTED = 20  # names of files and directories that are not part of the output
BLOCK = 2**20  # bytes read at once


def path_of(name: str, directory: str, plan: Data) -> str:
    """Return the path of the file with this name. directory: the run directory."""
    location, _slash, relative_path = name.partition("/")
    return os.path.join({"run": directory, "work": plan["working_directory"], "root": "/"}[location], relative_path)


def job_files(
    directory: str, plan: Data, extra: list[str], walks: list[FileWalk]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the name and lstat result of each file that the job wrote; only links in launch_outputs are followed.

    walks: list to which the walk of each directory is appended.
    """
    walks.append(FileWalk(directory, MAX_SCANNED_FILES))
    for path, status in walks[0]:
        if not is_internal(path, plan):
            yield f"run/{path}", status
    for path, status in archive_selection.output_files(directory, plan, extra, MAX_SCANNED_FILES, walks):
        yield archive_selection.archive_name(path, plan), status


def list_files(directory: str, plan: Data, request: Data) -> Data:
    """Return the job's files as `files`, and whether some could not be listed as `incomplete`."""
    files: list[ListedFile] = []
    walks: list[FileWalk] = []
    truncated = False
    for name, status in job_files(directory, plan, request["outputs"], walks):
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:  # a name in another encoding cannot be sent unchanged
            truncated = True
            continue
        if len(files) == MAX_LISTED_FILES:
            truncated = True
            break
        files.append({"name": name, "size": status.st_size, "mtime": status.st_mtime_ns})
    return {
        "node_rank": plan["node"]["node_rank"],
        "files": files,
        "incomplete": truncated or any(walk.truncated for walk in walks),
        "unlisted": count_unlisted(directory, plan, {file["name"] for file in files}),
    }


def count_unlisted(directory: str, plan: Data, listed: set[str]) -> dict[str, int]:
    """Return the number of files that the job may have written in its working directory, except outputs.

    The keys are their directories in it, or their names if they are directly in it. Hidden files, Python's caches and
    files that changed after the run ended are omitted.
    """
    counts: dict[str, int] = {}
    status = read_status(directory)
    ended = status["since"] if status and status["state"] in FINAL_STATES else float("inf")
    for path, file_status in archive_selection.changed_files(directory, plan):
        if file_status.st_mtime > ended + archive_selection.CLOCK_TOLERANCE:
            continue
        location, _slash, name = archive_selection.archive_name(path, plan).partition("/")
        top = name.partition("/")[0]
        hidden = any(part.startswith(".") or part == "__pycache__" for part in name.split("/"))
        has_room = top in counts or len(counts) < MAX_UNLISTED
        if location == "work" and f"work/{name}" not in listed and not hidden and top.isprintable() and has_room:
            counts[top] = counts.get(top, 0) + 1
    return counts


def open_file(path: str) -> int:
    """Open a file that the job may have replaced. Raise OSError if it is not a regular file."""
    return open_regular(path, os.O_RDONLY)


def file_hash(path: str) -> str | None:
    """Return a file's SHA-256, or None if it cannot be read."""
    try:
        digest = hashlib.sha256()
        with os.fdopen(open_file(path), "rb") as stream:
            while True:
                block = stream.read(BLOCK)
                if not block:
                    return digest.hexdigest()
                digest.update(block)
    except OSError:
        return None


def compare(directory: str, plan: Data, request: Data) -> Data:
    """Return the SHA-256 of each requested file."""
    return {"hashes": {name: file_hash(path_of(name, directory, plan)) for name in request["names"]}}


def read_part(path: str, part: Data) -> str:
    """Return a part of a file in base64. Raise OSError if it is no longer the file that was listed."""
    with os.fdopen(open_file(path), "rb") as stream:
        stream.seek(part["offset"])
        data = stream.read(part["length"])
        status = os.fstat(stream.fileno())
    if (status.st_size, status.st_mtime_ns) != (part["size"], part["mtime"]):
        raise OSError("the file has changed since it was listed")
    return base64.b64encode(data).decode("ascii")


def read_parts(directory: str, plan: Data, request: Data) -> Data:
    """Return `parts` of files, each with its data in base64 or an error as `problem`."""
    parts = []
    for part in request["parts"]:
        try:
            parts.append({"data": read_part(path_of(part["name"], directory, plan), part)})
        except OSError as error:
            parts.append({"problem": error.strerror or str(error)})
    return {"parts": parts}


OPERATIONS = {"tell": list_files, "compare": compare, "hand_out": read_parts}


def main(request: Data) -> Data:
    """Return the reply to a request; ``error`` in it is a message for the user."""
    try:
        if request.get("user"):
            drop_privileges(request["user"])
        runs = node_directories(request)
        if not runs:
            return {"changed": False, "node_rank": None, "files": [], "incomplete": False}
        directory, plan = runs[0]
        return {"changed": False, **OPERATIONS[request["operation"]](directory, plan, request)}
    except RunError as error:
        return {"error": str(error)}
