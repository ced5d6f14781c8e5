# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose which files of a run directory are packed for the controller. Private to this collection.

Runs on the node as the run's user, standard library only, Python >= 3.8. The job may have put anything there, and may
still be writing, so links are not followed, only regular files are opened, and each file is read once.
"""

from __future__ import annotations

import glob
import io
import json
import os
import re
import stat

from ansible_collections.muster.training.plugins.module_utils._run import gpu_samples, job_results, node_clock

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterator
    from typing import Any, Dict, TypedDict

    Data = Dict[str, Any]

    class LeftFile(TypedDict):
        """A file that is not packed completely."""

        file: str  # its path below the run directory
        size: int  # bytes in the file
        kept: int  # bytes packed, from its end

    class LeftOut(TypedDict):
        """Content of left_out.json."""

        limit: int  # most bytes packed of what the job has measured
        files: list[LeftFile]  # at most MOST_TOLD
        count: int  # number of all such files
        size: int  # bytes not packed, of all of them


FILE = "left_out.json"
MEASURED = "measured"  # the directory for files with the job's measurements
MEASURED_LIMIT = 64 * 2**20  # bytes of measurements packed per node
NAMED_LIMIT = 32 * 2**20  # bytes packed from the end of one of our files, unless all logs are requested
LOG_LIMIT = 8 * 2**20  # the same for a log of rank 0
MOST_LOOKED_AT = 100_000  # files in a run directory
MOST_TOLD = 1000
PICTURE = "nvidia-smi.txt"  # nvidia-smi's full output, taken once in the middle of the run
PICTURE_LIMIT = 65536  # bytes; 16 GPUs take about 8 KB
OURS = ("events.jsonl", gpu_samples.FILE, job_results.FILE)
LOGS = (*OURS, "plan.json", "status.json", "result.json", "ranks")
# Files with curves, in any directory: from TensorBoard, Lightning's CSVLogger, Transformers' Trainer.
CURVES = re.compile(r"events\.out\.tfevents\..*|metrics\.csv|trainer_state\.json", re.DOTALL)


def is_log(name: str) -> bool:
    """Whether a file name in a run directory is packed when all logs are requested."""
    return name.endswith(".log") or name.startswith("flight_recorder_rank_") or name in LOGS


def files_below(directory: str, most: int = 0) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the relative path and lstat result of each regular file below a directory, in name order.

    most: how many files to look at; 0 means MOST_LOOKED_AT.
    """
    most, looked_at = most or MOST_LOOKED_AT, 0
    for place, directories, names in os.walk(directory):  # does not follow links
        directories.sort()
        for name in sorted(names):
            looked_at += 1
            if looked_at > most:
                return
            path = os.path.join(place, name)
            try:
                found = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield os.path.relpath(path, directory), found


def told_places(plan: Data, more: list[str]) -> list[str]:
    """Return the absolute paths in launch_outputs, each once. more: paths in addition to the plan's."""
    work = plan["working_directory"]
    patterns = [os.path.join(work, os.path.expanduser(one)) for one in dict.fromkeys([*plan.get("outputs", ()), *more])]
    found = [place for pattern in patterns for place in sorted(glob.glob(pattern, recursive=True))]
    return list(dict.fromkeys(os.path.normpath(place) for place in found))


def told_files(directory: str, plan: Data, more: list[str], most: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the absolute path and lstat result of each file in these places, once, except for the run directory's.

    most: how many files to look at in each place.
    """
    seen = set()
    for place in told_places(plan, more):
        if place == directory or place.startswith(directory + "/"):
            continue
        if os.path.isdir(place):
            below = ((os.path.join(place, path), found) for path, found in files_below(place, most))
        else:
            below = ((path, os.lstat(path)) for path in [place] if os.path.isfile(path) and not os.path.islink(path))
        for path, found in below:
            if path not in seen and not path.startswith(directory + "/"):
                seen.add(path)
                yield path, found


def name_of(path: str, plan: Data) -> str:
    """Return the name of a file outside the run directory: work/PATH in the working directory, else root/PATH."""
    work = plan["working_directory"].rstrip("/") + "/"
    return f"work/{path[len(work) :]}" if path.startswith(work) else f"root{path}"


def measured_files(directory: str, plan: Data, logs: bool) -> list[tuple[str, int, str]]:
    """Return name, bytes and absolute path of each file of measurements, the smallest first.

    These are all files in MEASURED, and files with curves in the run directory or in a place of launch_outputs, which
    are named outputs/NAME. logs: whether the files in `ranks` are packed anyway.
    """
    found = [
        (path, one.st_size, os.path.join(directory, path))
        for path, one in files_below(directory)
        if path.startswith(MEASURED + os.sep)
        or (CURVES.fullmatch(os.path.basename(path)) and not (logs and path.startswith("ranks" + os.sep)))
    ]
    for path, one in told_files(directory, plan, [], MOST_LOOKED_AT):
        if CURVES.fullmatch(os.path.basename(path)):
            found.append((f"outputs/{name_of(path, plan)}", one.st_size, path))
    return sorted(found, key=lambda one: (one[1], one[0]))


def read_end(path: str, limit: int) -> tuple[bytes, int]:
    """Return the end of a file, at most `limit` bytes and whole lines only if it is longer, and its size.

    Raise OSError if it is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a regular file")
        stream.seek(max(0, found.st_size - limit))
        data = stream.read(limit)
    return (data[data.find(b"\n") + 1 :] if found.st_size > limit else data), found.st_size


class Packing:
    """Puts files into an archive, and records what it leaves out."""

    def __init__(self, tar: tarfile.TarFile, directory: str, base: str) -> None:
        self.tar = tar
        self.directory = directory
        self.base = base  # name of the top directory in the archive
        self.left: list[LeftFile] = []

    def write(self, name: str, data: bytes) -> None:
        """Put a file with this content into the archive."""
        import tarfile

        member = tarfile.TarInfo(os.path.join(self.base, name))
        member.size, member.mode = len(data), 0o600
        self.tar.addfile(member, io.BytesIO(data))

    def add_end(self, name: str, limit: int) -> None:
        """Put the end of a file into the archive, if it exists."""
        try:
            data, size = read_end(os.path.join(self.directory, name), limit)
        except OSError:
            return
        self.write(name, data)
        if len(data) < size and size > limit:
            self.left.append({"file": name, "size": size, "kept": len(data)})

    def add_measured(self, plan: Data, logs: bool) -> None:
        """Put the job's measurements into the archive, whole files only, as far as the limit allows."""
        room = MEASURED_LIMIT
        for name, size, path in measured_files(self.directory, plan, logs):
            if size > room:
                self.left.append({"file": name, "size": size, "kept": 0})
                continue
            try:
                data = read_end(path, size)[0]
            except OSError:  # the file is gone
                continue
            room -= len(data)
            self.write(name, data)

    def left_out(self) -> LeftOut:
        """Return what was left out."""
        return {
            "limit": MEASURED_LIMIT,
            "files": self.left[:MOST_TOLD],
            "count": len(self.left),
            "size": sum(one["size"] - one["kept"] for one in self.left),
        }


def pack_run(tar: tarfile.TarFile, path: str, plan: Data, logs: bool, rank_logs: tuple[str, ...]) -> LeftOut:
    """Pack the run in the directory `path` on this node; return what was left out.

    logs: pack all logs, not only what shows how the run went. rank_logs: rank 0's, whose ends are always packed.
    """
    packing = Packing(tar, path, f"node{plan['node']['node_rank']}")
    packing.write(node_clock.FILE, json.dumps(node_clock.read_clock()).encode())
    if logs:
        for name in sorted(filter(is_log, os.listdir(path))):
            tar.add(os.path.join(path, name), arcname=os.path.join(packing.base, name))
    else:
        for name in OURS:
            packing.add_end(name, NAMED_LIMIT)
        for log in dict.fromkeys(rank_logs):
            packing.add_end(os.path.relpath(log, path), LOG_LIMIT)
    packing.add_end(PICTURE, PICTURE_LIMIT)
    packing.add_end(gpu_samples.ACCOUNTING_FILE, NAMED_LIMIT)
    packing.add_measured(plan, logs)
    left_out = packing.left_out()
    if left_out["count"]:
        packing.write(FILE, json.dumps(left_out).encode())
    return left_out
