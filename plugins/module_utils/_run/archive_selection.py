# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose which files of a run directory are packed for the controller.

This runs as the run's user. The job may have put anything there, and may still be writing, so links are not followed,
only regular files are opened, and each file is read once.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import json
import os
import re

from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    FileWalk,
    list_directory,
    open_regular,
)
from ansible_collections.muster.training.plugins.module_utils._run import gpu_samples, job_results
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import ATTEMPT_LOGS

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterator
    from typing import IO, Any, Dict, TypedDict

    Data = Dict[str, Any]

    class OmittedFile(TypedDict):
        """A file that is not packed completely."""

        file: str  # its path relative to the run directory
        size: int  # size of the file in bytes
        retained: int  # number of bytes packed, from the end of the file

    class Omissions(TypedDict):
        """Content of left_out.json."""

        limit: int  # limit on the packed bytes of the job's measurements
        limit_count: int  # limit on the number of these files
        files: list[OmittedFile]  # at most MAX_OMITTED_LISTED
        count: int  # number of all omitted files
        size: int  # bytes of these files that were not packed


FILE = "left_out.json"
MEASURED = "measured"  # the directory for files that contain the job's measurements
MEASURED_LIMIT = 64 * 2**20  # bytes of measurements packed per node
MEASURED_COUNT = 10_000  # measurement files packed per node
NAMED_LIMIT = 32 * 2**20  # bytes packed from the end of a file in SUMMARY_FILES, unless all logs are requested
LOG_LIMIT = 8 * 2**20  # bytes packed from the end of one of rank 0's logs
MAX_SCANNED_FILES = 100_000  # number of files scanned in a run directory
MAX_OMITTED_LISTED = 1000  # files
# number of files scanned in the working directory, which may be a home directory on a network drive
MAX_WORK_FILES = 20_000
CLOCK_TOLERANCE = 5.0  # seconds by which a file server's clock may be behind
PROGRAM = "supervisor.py"  # in the run directory, written when the run starts
SNAPSHOT_FILE = "nvidia-smi.txt"  # nvidia-smi's full output, taken once in the middle of the run
SNAPSHOT_LIMIT = 65536  # bytes; 16 GPUs take about 8 KB
SKIPPED = (errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EACCES, errno.EISDIR)  # anything other than a readable file
SUMMARY_FILES = ("events.jsonl", gpu_samples.FILE, job_results.FILE)
LOGS = (*SUMMARY_FILES, "plan.json", "status.json", "result.json", "ranks")
# Files that contain curves, in any directory: from TensorBoard, Lightning's CSVLogger, timm, Ultralytics, and
# Transformers.
CURVES = re.compile(r"events\.out\.tfevents\..*|(?:metrics|summary|results)\.csv|trainer_state\.json", re.DOTALL)


def is_log_directory(name: str) -> bool:
    """Return whether a name belongs to a log or log directory: the ranks', or a later attempt's."""
    return name in LOGS or bool(name and ATTEMPT_LOGS.fullmatch(name))


def is_log(name: str) -> bool:
    """Return whether a file or directory with this name in a run directory is packed when all logs are requested."""
    return name.endswith(".log") or name.startswith("flight_recorder_rank_") or is_log_directory(name)


def output_paths(plan: Data, extra: list[str]) -> list[str]:
    """Return the absolute paths that match the plan's launch_outputs or `extra`, each once."""
    work = plan["working_directory"]
    patterns = [
        os.path.join(work, os.path.expanduser(output))
        for output in dict.fromkeys([*(plan.get("outputs") or ()), *extra])
    ]
    paths: list[str] = []
    for pattern in patterns:
        # directories that a hostile job may have nested thousands of levels deep
        with contextlib.suppress(RecursionError):
            paths += sorted(glob.glob(pattern, recursive=True))
    return list(dict.fromkeys(os.path.normpath(path) for path in paths))


def output_files(
    directory: str, plan: Data, extra: list[str], limit: int, walks: list[FileWalk] | None = None
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the absolute path and lstat result of each output file outside the run directory, once.

    limit: maximum number of files to scan in each output directory. walks: list to which the walk of each is appended.
    """
    seen_paths = set()
    for root in output_paths(plan, extra):
        if root == directory or root.startswith(directory + "/"):
            continue
        if os.path.isdir(root):
            walk = FileWalk(root, limit)
            files = ((os.path.join(walk.directory, path), status) for path, status in walk)
            if walks is not None:
                walks.append(walk)
        else:
            files = ((path, os.lstat(path)) for path in [root] if os.path.isfile(path) and not os.path.islink(path))
        for path, status in files:
            if path not in seen_paths and not path.startswith(directory + "/"):
                seen_paths.add(path)
                yield path, status


def archive_name(path: str, plan: Data) -> str:
    """Return the name of a file outside the run directory: work/PATH in the working directory, otherwise root/PATH."""
    work = plan["working_directory"].rstrip("/") + "/"
    return f"work/{path[len(work) :]}" if path.startswith(work) else f"root{path}"


def measured_files(directory: str, plan: Data, logs: bool) -> list[tuple[str, int, str]]:
    """Return the name, size in bytes and absolute path of each measurement file, smallest first.

    These are all files in MEASURED, and files with curves: in the run directory, in launch_outputs, and in the working
    directory if they changed during the run. The latter are named outputs/NAME. logs: whether the files in `ranks` are
    packed anyway.
    """
    files = [
        (path, status.st_size, os.path.join(directory, path))
        for path, status in FileWalk(directory, MAX_SCANNED_FILES)
        if path.startswith(MEASURED + os.sep)
        or (CURVES.fullmatch(os.path.basename(path)) and not (logs and is_log_directory(path.partition(os.sep)[0])))
    ]
    outside = {
        path: status.st_size
        for path, status in output_files(directory, plan, [], MAX_SCANNED_FILES)
        if CURVES.fullmatch(os.path.basename(path))
    }
    outside.update(working_curves(directory, plan))
    files += [(f"outputs/{archive_name(path, plan)}", size, path) for path, size in outside.items()]
    return sorted(files, key=lambda file: (file[1], file[0]))


def working_curves(directory: str, plan: Data) -> dict[str, int]:
    """Return the absolute path and size in bytes of each curve file in the working directory that the run changed.

    Most scripts write such files there.
    """
    return {
        path: status.st_size
        for path, status in changed_files(directory, plan)
        if CURVES.fullmatch(os.path.basename(path))
    }


def changed_files(directory: str, plan: Data) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the absolute path and lstat result of each file in the working directory that changed since the run began.

    Those of another run that uses the same directory are attributed to this run.
    """
    try:
        started = os.lstat(os.path.join(directory, PROGRAM)).st_mtime
    except OSError:
        return
    walk = FileWalk(plan["working_directory"], MAX_WORK_FILES)
    for name, status in walk:
        path = os.path.join(walk.directory, name)
        if (
            status.st_mtime >= started - CLOCK_TOLERANCE
            and not path.startswith(f"{directory}/")
            and "/.muster/" not in path  # other runs
        ):
            yield path, status


def read_end(path: str, limit: int) -> tuple[bytes, int]:
    """Return the end of a file and its size; the end has at most `limit` bytes and, if the file is longer, whole lines
    if possible.

    Raise OSError if it is not a regular file.
    """
    with open(path, "rb", opener=open_regular) as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - limit))
        data = stream.read(limit)
    first_line = data.find(b"\n") + 1 if size > limit else 0
    # the end of a single long line, such as a progress bar's, is better than nothing
    return (data if first_line == len(data) else data[first_line:]), size


class SteadySize:
    """Reads a file that may be changing as if its size were fixed: cuts it off if it grows, pads with zeros if it
    shrinks.
    """

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self.stream = stream
        self.remaining = size

    def read(self, size: int) -> bytes:
        size = min(size, self.remaining)
        self.remaining -= size
        return self.stream.read(size).ljust(size, b"\0")


class ArchiveWriter:
    """Writes files into an archive, and records which it omits."""

    def __init__(self, tar: tarfile.TarFile, directory: str, base: str) -> None:
        self.tar = tar
        self.directory = directory
        self.base = base  # name of the top-level directory in the archive
        self.omitted: list[OmittedFile] = []

    def write(self, name: str, data: bytes) -> None:
        """Add a file with this content to the archive."""
        import tarfile

        member = tarfile.TarInfo(os.path.join(self.base, name))
        member.size, member.mode = len(data), 0o600
        self.tar.addfile(member, io.BytesIO(data))

    def add_whole(self, name: str) -> None:
        """Add a regular file to the archive, or all regular files below a directory."""
        import tarfile

        path = os.path.join(self.directory, name)
        names = [name] if not os.path.isdir(path) or os.path.islink(path) else None
        if names is None:
            names = [os.path.join(name, below) for below, _status in FileWalk(path, MAX_SCANNED_FILES)]
        for file in names:
            member = tarfile.TarInfo(os.path.join(self.base, file))
            try:
                with open(os.path.join(self.directory, file), "rb", opener=open_regular) as stream:
                    status = os.fstat(stream.fileno())
                    member.size, member.mode, member.mtime = status.st_size, 0o600, int(status.st_mtime)
                    self.tar.addfile(member, SteadySize(stream, member.size))  # type: ignore[arg-type]
            except FileNotFoundError:  # removed in the meantime
                continue
            except OSError as error:
                if error.errno not in SKIPPED:
                    raise

    def add_end(self, name: str, limit: int) -> None:
        """Add the end of a file to the archive, if it exists."""
        try:
            data, size = read_end(os.path.join(self.directory, name), limit)
        except OSError:
            return
        self.write(name, data)
        if len(data) < size and size > limit:
            self.omitted.append({"file": name, "size": size, "retained": len(data)})

    def add_measured(self, plan: Data, logs: bool) -> None:
        """Add the job's measurement files to the archive, only as whole files, up to the limit."""
        room, count = MEASURED_LIMIT, 0
        for name, size, path in measured_files(self.directory, plan, logs):
            if size > room or count == MEASURED_COUNT:
                self.omitted.append({"file": name, "size": size, "retained": 0})
                continue
            try:
                data = read_end(path, size)[0]
            except OSError:  # removed in the meantime
                continue
            room, count = room - len(data), count + 1
            self.write(name, data)

    def omissions(self) -> Omissions:
        """Return the omitted files."""
        return {
            "limit": MEASURED_LIMIT,
            "limit_count": MEASURED_COUNT,
            "files": self.omitted[:MAX_OMITTED_LISTED],
            "count": len(self.omitted),
            "size": sum(file["size"] - file["retained"] for file in self.omitted),
        }


def pack_run(tar: tarfile.TarFile, path: str, plan: Data, logs: bool, rank_logs: tuple[str, ...]) -> Omissions:
    """Pack the run in the directory `path` on this node; return the omitted files.

    Args:
        tar: the archive.
        path: the run directory.
        plan: the run's plan.
        logs: whether to pack all logs, or only the files about the outcome of the run.
        rank_logs: rank 0's logs, whose ends are always packed.
    """
    archive = ArchiveWriter(tar, path, f"node{plan['node']['node_rank']}")
    if logs:
        for name in filter(is_log, list_directory(path)):
            archive.add_whole(name)
    else:
        for name in SUMMARY_FILES:
            archive.add_end(name, NAMED_LIMIT)
        for log in dict.fromkeys(rank_logs):
            archive.add_end(os.path.relpath(log, path), LOG_LIMIT)
    archive.add_end(SNAPSHOT_FILE, SNAPSHOT_LIMIT)
    archive.add_end(gpu_samples.ACCOUNTING_FILE, NAMED_LIMIT)
    archive.add_measured(plan, logs)
    omissions = archive.omissions()
    if omissions["count"]:
        archive.write(FILE, json.dumps(omissions).encode())
    return omissions
