# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which files of a run's nodes to fetch: each once, and only what is not here yet. Private to this collection,
controller only.

Whoever controls a node controls what it says: a name that leads anywhere else is refused.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

LONGEST_NAME = 4096  # bytes of a path, as Linux has it
LATEST = 2**62  # nanoseconds since 1970
PARTIAL = ".part-"


class Output(NamedTuple):
    """A file that a job has written on a node."""

    name: str  # run/PATH, work/PATH or root/PATH
    size: int  # bytes
    mtime: int  # nanoseconds since 1970


class Left(NamedTuple):
    """A file of which something is missing here."""

    output: Output
    have: int  # bytes of it that are here


def is_safe(name: object) -> bool:
    """Whether a name from a node leads to a place below the target directory."""
    try:
        if not isinstance(name, str) or "\0" in name or len(name.encode("utf-8")) > LONGEST_NAME:
            return False
    except UnicodeEncodeError:
        return False
    parts = name.split("/")
    return len(parts) > 1 and parts[0] in ("run", "work", "root") and not {"", ".", ".."} & set(parts)


def output_of(told: Mapping[str, Any]) -> Output | None:
    """A file that a node lists, None if it cannot be one."""
    name, size, mtime = told.get("name"), told.get("size"), told.get("mtime")
    if not isinstance(name, str) or not is_safe(name):
        return None
    if not isinstance(size, int) or not isinstance(mtime, int) or isinstance(size, bool) or isinstance(mtime, bool):
        return None
    return Output(name, size, mtime) if 0 <= size < LATEST and 0 <= mtime < LATEST else None


def outputs_of(told: Any) -> tuple[list[Output], list[str]]:
    """The files that a node lists, and the names of those that cannot be what it says."""
    files: list[Output] = []
    refused: list[str] = []
    seen = set()
    for one in told if isinstance(told, list) else []:
        output = output_of(one) if isinstance(one, dict) else None
        if output is None or output.name in seen:
            refused.append(ascii(one.get("name") if isinstance(one, dict) else one)[:200])
        else:
            seen.add(output.name)
            files.append(output)
    return files, refused


def to_compare(files: Mapping[str, list[Output]]) -> dict[str, list[str]]:
    """Names by node of those files that several nodes have with the same name and size, in the order of the nodes."""
    holders: dict[tuple[str, int], list[str]] = defaultdict(list)
    for node, outputs in files.items():
        for output in outputs:
            holders[output.name, output.size].append(node)
    asked: dict[str, list[str]] = {node: [] for node in files}
    for (name, _size), nodes in holders.items():
        for node in nodes if len(nodes) > 1 else ():
            asked[node].append(name)
    return asked


def each_once(files: Mapping[str, list[Output]], hashes: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Output]]:
    """The files by node without those that an earlier node has too, of the same name, size and hash."""
    seen = set()
    kept: dict[str, list[Output]] = {}
    for node, outputs in files.items():
        kept[node] = []
        for output in outputs:
            digest = hashes.get(node, {}).get(output.name)
            if isinstance(digest, str):
                mark = (output.name, output.size, digest)
                if mark in seen:
                    continue
                seen.add(mark)
            kept[node].append(output)
    return kept


def partial(target: Path, output: Output) -> Path:
    """Where the beginning of a file is kept until all of it is here: unique to the file and its version."""
    mark = hashlib.sha256("\0".join(map(str, output)).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return target / PurePosixPath(output.name).parent / f"{PARTIAL}{mark}"


def missing(target: Path, outputs: list[Output]) -> list[Left]:
    """What is not here yet of a node's files, by size and time of the last change; a part that is here counts."""
    left = []
    for output in outputs:
        if not is_here(target / output.name, output):
            have = size_of(partial(target, output))
            left.append(Left(output, have if have <= output.size else 0))
    return left


def is_here(path: Path, output: Output) -> bool:
    """Whether a file of this size and time is here. Some file systems keep only microseconds."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_size == output.size and found.st_mtime_ns // 1000 == output.mtime // 1000


def size_of(path: Path) -> int:
    """Bytes of a file, 0 if there is none."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def pieces(left: list[Left], most: int) -> list[list[tuple[Output, int, int]]]:
    """What to request, call by call: file, offset and length, together at most so many bytes per call.

    An empty file is requested with length 0.
    """
    calls: list[list[tuple[Output, int, int]]] = []
    room = 0
    for output, have in left:
        while True:
            if room <= 0 or not calls or len(calls[-1]) >= MOST_PARTS:
                calls.append([])
                room = most
            length = min(room, output.size - have)
            calls[-1].append((output, have, length))
            have += length
            room -= max(length, 1)
            if have >= output.size:
                break
    return calls


MOST_PARTS = 1000  # of files in one call
