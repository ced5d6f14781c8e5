# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose the files to fetch from a run's nodes: each once, and only what is missing here. Private to this collection,
controller only.

Whoever controls a node controls the names it reports: one that points outside the target directory is refused.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

LONGEST_NAME = 4096  # bytes, Linux's limit of a path
LATEST = 2**62  # nanoseconds since 1970
PARTIAL = ".part-"


class Output(NamedTuple):
    """An output file of a job on a node."""

    name: str  # run/PATH, work/PATH or root/PATH
    size: int  # bytes
    mtime: int  # nanoseconds since 1970


class Left(NamedTuple):
    """A file that is not complete here."""

    output: Output
    have: int  # bytes of it that are here


def is_safe(name: object) -> bool:
    """Whether a name from a node stays below the target directory."""
    try:
        if not isinstance(name, str) or "\0" in name or len(name.encode("utf-8")) > LONGEST_NAME:
            return False
    except UnicodeEncodeError:
        return False
    parts = name.split("/")
    return len(parts) > 1 and parts[0] in ("run", "work", "root") and not {"", ".", ".."} & set(parts)


def output_of(told: Mapping[str, Any]) -> Output | None:
    """A file that a node lists, None if the entry is invalid."""
    name, size, mtime = told.get("name"), told.get("size"), told.get("mtime")
    if not isinstance(name, str) or not is_safe(name):
        return None
    if not isinstance(size, int) or not isinstance(mtime, int) or isinstance(size, bool) or isinstance(mtime, bool):
        return None
    return Output(name, size, mtime) if 0 <= size < LATEST and 0 <= mtime < LATEST else None


def outputs_of(told: Any) -> tuple[list[Output], list[str]]:
    """The files that a node lists, and the names of invalid and repeated entries."""
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
    """By node, the names of files whose name and size several nodes share: their hashes must be compared."""
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
    """The files by node, without those that an earlier node has with the same name, size and hash."""
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
    """Where an incomplete file is kept: a path unique to the file and its version."""
    mark = hashlib.sha256("\0".join(map(str, output)).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return target / PurePosixPath(output.name).parent / f"{PARTIAL}{mark}"


def missing(target: Path, outputs: list[Output]) -> list[Left]:
    """A node's files that are missing here, judged by size and mtime, each with the bytes already fetched."""
    left = []
    for output in outputs:
        if not is_here(target / output.name, output):
            have = size_of(partial(target, output))
            left.append(Left(output, have if have <= output.size else 0))
    return left


def is_here(path: Path, output: Output) -> bool:
    """Whether a file of this size and mtime is here; compares microseconds, as some file systems keep no more."""
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
    """The requests, call by call: file, offset and length. most: bytes per call.

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


MOST_PARTS = 1000  # requests in one call
