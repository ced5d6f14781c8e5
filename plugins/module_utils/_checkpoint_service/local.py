# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on this node, and the checkpoints that they save."""

from __future__ import annotations

import contextlib
import datetime
import fnmatch
import glob
import hashlib
import json
import os
import re
import stat
import time
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json, write_atomically
from ansible_collections.muster.training.plugins.module_utils._files.walk import raise_error

MAX_DEPTH = 100  # directory levels in a checkpoint
STATUS = "checkpoints.json"  # file in the run directory that says which checkpoints are copied
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class CheckpointFile(NamedTuple):
    """A checkpoint file. Its path is relative to the checkpoint, or "" if the file itself is the checkpoint."""

    path: str
    size: int
    modified_ns: int
    inode: int


class LocalCheckpoint(NamedTuple):
    """One checkpoint of a run."""

    name: str
    path: str
    files: tuple[CheckpointFile, ...]
    changed_at: float  # time of the last change to its files or their names

    @property
    def stamp(self) -> str:
        """The version: UTC time of the newest file, and a digest of all files' paths, sizes and times."""
        newest = max(file.modified_ns for file in self.files)
        when = datetime.datetime.fromtimestamp(newest // 10**9, datetime.timezone.utc)
        files = sorted((file.path, file.size, file.modified_ns) for file in self.files)
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        return f"{when:%Y%m%dT%H%M%S}.{newest % 10**9:09}-{digest[:16]}"

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files)


class LocalRun(NamedTuple):
    """A run with a directory on this node."""

    directory: str
    run_id: str
    node: str
    node_rank: int
    nnodes: int


def read_object(path: str) -> dict[str, Any]:
    """Return the JSON object in a file that a job may have replaced, or {} if the file holds anything else."""
    value = read_json(path)
    return value if isinstance(value, dict) else {}


def is_plan(plan: Any) -> bool:
    """Return whether a value has the fields of a plan that are used here."""
    node = plan.get("node") if isinstance(plan, dict) else None
    return (
        isinstance(node, dict)
        and isinstance(node.get("node_rank"), int)
        and isinstance(node.get("name"), str)
        and isinstance(plan.get("nodes"), list)
        and isinstance(plan.get("run_id"), str)
        and RUN_ID.fullmatch(plan["run_id"]) is not None
    )


def write_json(path: str, value: Any) -> None:
    """Write a file atomically, replacing whatever a job has created at its path."""
    write_atomically(path, json.dumps(value, indent=1), 0o644)


def read_status(run: LocalRun) -> dict[str, Any]:
    """Return which checkpoints of a run have been copied; fields that are missing or of the wrong type get their
    defaults.
    """
    status = read_object(os.path.join(run.directory, STATUS))
    default: dict[str, Any] = {"alive": True, "copied": [], "pending": [], "seen": [], "to": "", "problem": ""}
    fields = {name: status[name] if type(status.get(name)) is type(value) else value for name, value in default.items()}
    return {**fields, "pending": [text for text in fields["pending"] if isinstance(text, str)]}


def find_runs(settings: dict[str, Any]) -> list[LocalRun]:
    """Return the runs whose checkpoints this node is responsible for copying, newest first."""
    runs = []
    pattern = os.path.join(glob.escape(os.path.expanduser(settings["runs_directory"])), "*", "node*", "plan.json")
    for path in glob.glob(pattern):
        plan = read_json(path)
        if is_plan(plan) and (settings["nodes"] == "all" or plan["node"]["node_rank"] == 0):
            node = plan["node"]
            run = LocalRun(os.path.dirname(path), plan["run_id"], node["name"], node["node_rank"], len(plan["nodes"]))
            with contextlib.suppress(OSError):
                runs.append((os.lstat(path).st_mtime, run))
    return [run for _time, run in sorted(runs, reverse=True)]


def is_alive(run: LocalRun) -> bool:
    """Return whether the run may still be writing: its supervisor is alive, or the run has only just started."""
    pid = read_object(os.path.join(run.directory, "supervisor.json")).get("pid")
    try:
        with open(f"/proc/{pid if isinstance(pid, int) else 0}/cmdline", "rb") as stream:
            if os.fsencode(run.directory) in stream.read().split(b"\0"):
                return True
    except OSError:
        pass
    status = read_json(os.path.join(run.directory, "status.json"))
    # just started, without any output yet
    return status is None and time.time() - os.stat(run.directory).st_mtime < 60


def checkpoint_directory(run: LocalRun, settings: dict[str, Any]) -> str:
    """Return the directory in which a run saves its checkpoints."""
    path = settings["directory"].replace("{run_id}", run.run_id).replace("{node_rank}", str(run.node_rank))
    return os.path.join(run.directory, os.path.expanduser(path))


def has_directory_per_run(settings: dict[str, Any]) -> bool:
    """Return whether each run has its own directory."""
    path = os.path.expanduser(settings["directory"])
    return "{run_id}" in path or not os.path.isabs(path)


def unreadable_error(error: OSError) -> StepError:
    """Return the error for a path that exists but is unreadable."""
    return StepError(
        f"{error.filename} cannot be read ({error.strerror}). The checkpoint is not copied, since the copy would be "
        "incomplete. Let the service's user read it, or exclude it with checkpoints_exclude"
    )


def broken_link_error(link: str) -> StepError:
    """Return the error for a broken link in a checkpoint, whose content would be missing in S3."""
    return StepError(
        f"{link} points to {os.readlink(link)}, which does not exist. The checkpoint is not copied, since "
        "the copy would be incomplete. Create the target, or remove the link"
    )


def read_checkpoint(path: str, name: str, marker: str) -> LocalCheckpoint | None:
    """Return a checkpoint with its files, or None if it does not exist or has just been removed. Raise StepError."""
    files, changed_at = [], 0.0
    try:
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode):
            return LocalCheckpoint(
                name, path, (CheckpointFile("", status.st_size, status.st_mtime_ns, status.st_ino),), status.st_ctime
            )
        if not stat.S_ISDIR(status.st_mode):
            return None
        for directory, directory_names, file_names in os.walk(path, onerror=raise_error):
            if directory.count(os.sep) - path.count(os.sep) > MAX_DEPTH:  # os.walk would recurse endlessly
                raise StepError(
                    f"{path} has more than {MAX_DEPTH} directory levels. The checkpoint is not copied. Remove the "
                    "excess levels, or exclude the path with checkpoints_exclude"
                )
            changed_at = max(changed_at, os.stat(directory).st_ctime)
            directory_names.sort()
            for file_name in sorted(file_names):
                file_path = os.path.join(directory, file_name)
                try:
                    status = os.stat(file_path)  # follows links to files
                except FileNotFoundError:
                    if os.path.islink(file_path):
                        raise broken_link_error(file_path) from None
                    raise
                relative_path = os.path.relpath(file_path, path)
                if relative_path != marker:
                    files.append(CheckpointFile(relative_path, status.st_size, status.st_mtime_ns, status.st_ino))
                changed_at = max(changed_at, status.st_ctime)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable_error(error) from None
    return LocalCheckpoint(name, path, tuple(files), changed_at) if files else None


def find_checkpoints(directory: str, settings: dict[str, Any]) -> list[LocalCheckpoint]:
    """Return all checkpoints in a directory, complete or not, newest first. Raise StepError."""
    marker, checkpoints = settings["marker"], []
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable_error(error) from None
    for name in names:
        if name == "lost+found":  # belongs to the file system and is readable only by root
            continue
        if any(fnmatch.fnmatch(name, pattern) for pattern in settings["exclude"]):
            continue
        if marker and name.endswith(marker) and name != marker:
            continue
        checkpoint = read_checkpoint(os.path.join(directory, name), name, marker)
        if checkpoint:
            checkpoints.append(checkpoint)
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.stamp, reverse=True)


def is_complete(checkpoint: LocalCheckpoint, settings: dict[str, Any], now: float) -> bool:
    """Return whether a checkpoint seems to have been written completely."""
    marker = settings["marker"]
    if marker:
        marker_path = checkpoint.path + ("" if marker.startswith(".") else ".") + marker
        return os.path.exists(os.path.join(checkpoint.path, marker) if os.path.isdir(checkpoint.path) else marker_path)
    return now - checkpoint.changed_at >= settings["stable_for"]


def select_checkpoints(checkpoints: list[LocalCheckpoint], patterns: list[str]) -> list[LocalCheckpoint]:
    """Return the checkpoints whose names match the patterns."""
    return [
        checkpoint
        for checkpoint in checkpoints
        if any(fnmatch.fnmatch(checkpoint.name, pattern) for pattern in patterns)
    ]


def remove_checkpoint(checkpoint: LocalCheckpoint, marker: str) -> None:
    """Remove a checkpoint: its files, its marker, and any directories that become empty."""
    if not os.path.isdir(checkpoint.path):
        os.unlink(checkpoint.path)
        return
    known_paths = {file.path for file in checkpoint.files} | {marker}
    for directory, directory_names, file_names, descriptor in os.fwalk(checkpoint.path, topdown=False):
        for file_name in file_names:
            if os.path.relpath(os.path.join(directory, file_name), checkpoint.path) in known_paths:
                os.unlink(file_name, dir_fd=descriptor)
        for directory_name in directory_names:
            is_link = stat.S_ISLNK(os.stat(directory_name, dir_fd=descriptor, follow_symlinks=False).st_mode)
            (os.unlink if is_link else os.rmdir)(directory_name, dir_fd=descriptor)
    os.rmdir(checkpoint.path)
