# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose the files to fetch from a run's nodes: each file once, and only if it is missing on this machine.

Whoever controls a node controls the names it reports: a name that points outside the target directory is refused.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

MAX_NAME = 4096  # bytes; Linux's limit on the length of a path
MAX_DEPTH = 256  # number of directories in a name
LATEST = 2**62  # nanoseconds since 1970
PARTIAL = ".part-"


class OutputFile(NamedTuple):
    """An output file of a job on a node."""

    name: str  # run/PATH, work/PATH or root/PATH
    size: int  # bytes
    mtime: int  # nanoseconds since 1970


class PendingFile(NamedTuple):
    """A file that has not been fetched completely."""

    output: OutputFile
    fetched: int  # bytes that have already been fetched


def is_safe(name: object) -> bool:
    """Return whether a name reported by a node stays inside the target directory."""
    try:
        if not isinstance(name, str) or "\0" in name or len(name.encode("utf-8")) > MAX_NAME:
            return False
    except UnicodeEncodeError:
        return False
    parts = name.split("/")
    if len(parts) > MAX_DEPTH:
        return False
    return len(parts) > 1 and parts[0] in ("run", "work", "root") and not {"", ".", ".."} & set(parts)


def parse_output(entry: Mapping[str, Any]) -> OutputFile | None:
    """Parse a file entry from a node's list; return None if it is invalid."""
    name, size, mtime = entry.get("name"), entry.get("size"), entry.get("mtime")
    if not isinstance(name, str) or not is_safe(name):
        return None
    if not isinstance(size, int) or not isinstance(mtime, int) or isinstance(size, bool) or isinstance(mtime, bool):
        return None
    return OutputFile(name, size, mtime) if 0 <= size < LATEST and 0 <= mtime < LATEST else None


def parse_outputs(entries: Any) -> tuple[list[OutputFile], list[str]]:
    """Return the files in a node's list, and the names of invalid and repeated entries."""
    files: list[OutputFile] = []
    refused: list[str] = []
    seen_names = set()
    for entry in entries if isinstance(entries, list) else []:
        output = parse_output(entry) if isinstance(entry, dict) else None
        if output is None or output.name in seen_names:
            refused.append(ascii(entry.get("name") if isinstance(entry, dict) else entry)[:200])
        else:
            seen_names.add(output.name)
            files.append(output)
    return files, refused


def names_to_compare(files: Mapping[str, list[OutputFile]]) -> dict[str, list[str]]:
    """Return, by node, the names of files whose name and size are the same on several nodes: their hashes must be
    compared.
    """
    holders: dict[tuple[str, int], list[str]] = defaultdict(list)
    for node, outputs in files.items():
        for output in outputs:
            holders[output.name, output.size].append(node)
    names_by_node: dict[str, list[str]] = {node: [] for node in files}
    for (name, _size), nodes in holders.items():
        for node in nodes if len(nodes) > 1 else ():
            names_by_node[node].append(name)
    return names_by_node


def deduplicate(
    files: Mapping[str, list[OutputFile]], hashes: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[OutputFile]]:
    """Return the files by node, omitting those that an earlier node has with the same name, size and hash."""
    seen_keys = set()
    unique: dict[str, list[OutputFile]] = {}
    for node, outputs in files.items():
        unique[node] = []
        for output in outputs:
            digest = hashes.get(node, {}).get(output.name)
            if isinstance(digest, str):
                key = (output.name, output.size, digest)
                if key in seen_keys:
                    continue
                seen_keys.add(key)
            unique[node].append(output)
    return unique


def partial_path(target: Path, output: OutputFile) -> Path:
    """Return the path for an incomplete file, which is unique to the file and its version."""
    version = hashlib.sha256("\0".join(map(str, output)).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return target / PurePosixPath(output.name).parent / f"{PARTIAL}{version}"


def find_missing(target: Path, outputs: list[OutputFile]) -> list[PendingFile]:
    """Return a node's files that are missing or outdated locally, by size and mtime, with the bytes already fetched."""
    pending = []
    for output in outputs:
        if not is_complete(target / output.name, output):
            fetched = file_size(partial_path(target, output))
            pending.append(PendingFile(output, fetched if fetched <= output.size else 0))
    return pending


def is_complete(path: Path, output: OutputFile) -> bool:
    """Return whether a file with this size and mtime exists.

    Times are compared in microseconds, since some file systems store no more.
    """
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_size == output.size and status.st_mtime_ns // 1000 == output.mtime // 1000


def file_size(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it does not exist."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def batch_parts(pending: list[PendingFile], limit: int) -> list[list[tuple[OutputFile, int, int]]]:
    """Split files into requests of at most `limit` bytes; return the file, offset and length of each part, request by
    request.

    An empty file is requested with length 0.
    """
    calls: list[list[tuple[OutputFile, int, int]]] = []
    room = 0
    for output, offset in pending:
        while True:
            if room <= 0 or not calls or len(calls[-1]) >= MAX_PARTS:
                calls.append([])
                room = limit
            length = min(room, output.size - offset)
            calls[-1].append((output, offset, length))
            offset += length
            room -= max(length, 1)
            if offset >= output.size:
                break
    return calls


MAX_PARTS = 1000  # number of requests in one call
