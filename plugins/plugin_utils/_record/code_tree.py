# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The code of a run as kept in its record: a fingerprint of each file that the nodes had, so that runs can be
compared.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_mapping

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._code.compare import Tree

FILE = "code.json"  # file in the record
MAX_FILES = 100_000  # files that are read from a record
MAX_ROWS = 50  # number of files listed in a comparison
MISSING = "-"


class CodeTree(TypedDict):
    """The content of code.json."""

    source: str  # the directory on this machine
    files: dict[str, str]  # fingerprint by name


def make_code_tree(source: str, tree: Tree) -> CodeTree:
    """Return a tree's files and links with their fingerprints: a hash of the content or, for large files, size and
    time.
    """
    files = {}
    for name, entry in sorted(tree.items()):
        if entry is None or entry == ["other"]:  # a directory, or a file that was replaced while it was being read
            continue
        if entry[0] == "link":
            files[name] = f"link to {entry[1]}"
        else:
            content = str(entry[3]) or f"{entry[0]} bytes of {entry[1]}"
            files[name] = f"{content} executable" if entry[2] else content
    return {"source": source, "files": files}


def is_safe_name(name: str) -> bool:
    """Return whether a name denotes a file inside its directory, is in normal form, and is not one of git's own
    files.
    """
    parts = name.split("/")
    usual = name == posixpath.normpath(name) and not name.startswith("/") and "\0" not in name
    return usual and name != "." and ".." not in parts and ".git" not in map(str.lower, parts)


def read_files(document: Any) -> dict[str, str] | None:
    """Return the files listed in a code.json, which may contain anything; None if it lists none.

    Names that would point outside the directory are omitted.
    """
    files = to_mapping(to_mapping(document).get("files"))
    entries = list(files.items())[:MAX_FILES]
    cleaned = {clean_text(str(name), 300): clean_text(str(value), 300) for name, value in entries}
    return {name: value for name, value in cleaned.items() if is_safe_name(name)} or None


def digest_of_files(files: Mapping[str, str]) -> str:
    """Return a short hash of all names and fingerprints."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:12]


def differing_files(trees: Sequence[Mapping[str, str] | None]) -> tuple[list[list[str]], int]:
    """Return a row for each file that differs between runs, and how many rows were omitted.

    A row has the file's name, and for each run the beginning of its fingerprint. trees: None for a run without one.
    """
    if sum(tree is not None for tree in trees) < 2:
        return [], 0
    names = sorted({name for tree in trees if tree is not None for name in tree})
    rows = []
    for name in names:
        values = ["" if tree is None else tree.get(name, MISSING) for tree in trees]
        if len({value for value, tree in zip(values, trees, strict=True) if tree is not None}) > 1:
            rows.append([name, *(value.partition(" ")[0][:12] or "?" for value in values)])
    return rows[:MAX_ROWS], max(0, len(rows) - MAX_ROWS)
