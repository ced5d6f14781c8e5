# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is packed of a run's directory for the controller, and what is left out. Private to this collection.

Runs on the node as the run's user, standard library only, Python >= 3.8. The job may have put anything there, and may
still be writing: links are not followed, only regular files are opened, and each file is read once.
"""

from __future__ import annotations

import glob
import io
import json
import os
import re
import stat

from ansible_collections.muster.training.plugins.module_utils._run import gpu_samples, node_clock, reported

TYPE_CHECKING = False  # typing itself would cost more than all we import
if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterator
    from typing import Any, Dict, TypedDict

    Data = Dict[str, Any]

    class LeftFile(TypedDict):
        """A file that is not packed whole."""

        file: str  # its path below the run directory
        size: int  # bytes that it has
        kept: int  # bytes of its end that are packed

    class LeftOut(TypedDict):
        """Content of left_out.json."""

        limit: int  # bytes that are taken of what a job has measured
        files: list[LeftFile]  # at most MOST_TOLD of them
        count: int  # how many there are
        size: int  # bytes of them that are not packed


FILE = "left_out.json"
MEASURED = "measured"  # the directory in which a job puts what it has measured
MEASURED_LIMIT = 64 * 2**20  # bytes of what a job has measured, of a node
NAMED_LIMIT = 32 * 2**20  # bytes of the end of a file of ours, where not all logs are asked for
LOG_LIMIT = 8 * 2**20  # the same of a log of rank 0
MOST_LOOKED_AT = 100_000  # files in a run directory
MOST_TOLD = 1000
PICTURE = "nvidia-smi.txt"  # all that nvidia-smi has shown, once in the middle of the run
PICTURE_LIMIT = 65536  # bytes of it; 16 GPUs take some 8 KB
OURS = ("events.jsonl", gpu_samples.FILE, reported.FILE)
LOGS = (*OURS, "plan.json", "status.json", "result.json", "ranks")
# Files with a curve in them, wherever they lie: of TensorBoard, Lightning's CSVLogger, Transformers' Trainer.
CURVES = re.compile(r"events\.out\.tfevents\..*|metrics\.csv|trainer_state\.json", re.DOTALL)


def is_log(name: str) -> bool:
    """Whether a name in a run directory is one of those that are packed with all logs."""
    return name.endswith(".log") or name.startswith("flight_recorder_rank_") or name in LOGS


def files_below(directory: str, most: int = 0) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files below a directory, in the order of their names: relative path, what lstat says.

    most: how many are looked at, MOST_LOOKED_AT where it is 0.
    """
    most, looked_at = most or MOST_LOOKED_AT, 0
    for place, directories, names in os.walk(directory):  # it follows no link
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
    """Return the paths that launch_outputs names, absolute, each once. more: such besides those in the plan."""
    work = plan["working_directory"]
    patterns = [os.path.join(work, os.path.expanduser(one)) for one in dict.fromkeys([*plan.get("outputs", ()), *more])]
    found = [place for pattern in patterns for place in sorted(glob.glob(pattern, recursive=True))]
    return list(dict.fromkeys(os.path.normpath(place) for place in found))


def told_files(directory: str, plan: Data, more: list[str], most: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files in these places, each once: absolute path, what lstat says. Not those of the run directory.

    most: how many are looked at in each place.
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
    """Return what a file outside of the run directory is called: work/PATH in the working directory, else root/PATH."""
    work = plan["working_directory"].rstrip("/") + "/"
    return f"work/{path[len(work) :]}" if path.startswith(work) else f"root{path}"


def measured_files(directory: str, plan: Data, logs: bool) -> list[tuple[str, int, str]]:
    """Return what a job has measured, the smallest first: name, bytes, absolute path.

    All of MEASURED, and files with curves wherever they lie in the run directory, or where launch_outputs says: those
    are called outputs/NAME. logs: whether what lies in `ranks` is packed anyway.
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
    """Return the end of a file, of whole lines where it is longer than so many bytes, and its size.

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
        self.base = base  # the name of the directory in the archive
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
        """Put what a job has measured into the archive, each file whole, as far as there is room."""
        room = MEASURED_LIMIT
        for name, size, path in measured_files(self.directory, plan, logs):
            if size > room:
                self.left.append({"file": name, "size": size, "kept": 0})
                continue
            try:
                data = read_end(path, size)[0]
            except OSError:  # it is gone
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
    """Pack the run whose directory on this node is `path`; return what was left out.

    logs: all logs, otherwise only what shows how it went. rank_logs: those of rank 0; at least their ends are packed.
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
