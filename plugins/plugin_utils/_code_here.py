# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tree of code on this machine, as it should be on the nodes. Private to this collection, controller only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.muster.training.plugins.module_utils._code_tree import TreeError, listed
from ansible_collections.muster.training.plugins.module_utils._node_code import (
    HASHED,
    digest_of,
    entry_of,
    hash_of,
    packed,
)
from ansible_collections.muster.training.plugins.plugin_utils._project_requirements import read_project

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._node_code import Tree

MOST_HASHED = 32 << 20  # bytes of all files, which a launch reads: some 20 ms
MOST_SENT = 64 << 10  # characters to each node: some 2,000 files. Of more a node compares one hash of all


class CodeHere(TypedDict):
    """The code here: where it is, where it belongs on the nodes, what it has, or why that is not known."""

    source: str
    directory: str
    user: str
    listing: str
    digest: str
    files: int
    problem: str
    requirements: str  # the file of it that says what the project requires, "" where there is none
    required: str  # the hash of that, "" where there is none


def names_of(source: str, patterns: Sequence[str]) -> list[str]:
    """The names that a copy would bring. Raises ValueError with why it cannot be known."""
    if not os.path.isdir(source):
        kind = "is no directory" if os.path.exists(source) else "is not on this machine"
        raise ValueError(f"code_source is {source}, which {kind}")
    if not shutil.which("rsync"):
        raise ValueError(f"rsync is missing on this machine and needed to copy {source}")
    try:
        return listed(source, list(patterns))
    except TreeError as problem:
        raise ValueError(str(problem)[-500:]) from problem


def read_tree(source: str, patterns: Sequence[str]) -> Tree:
    """What a directory has that should be on the nodes. Raises ValueError with why it cannot be read."""
    tree: Tree = {}
    left = MOST_HASHED
    for name in names_of(source, patterns):
        path = os.path.join(source, name)
        try:
            entry = entry_of(path)
            if entry and entry[0] != "link" and entry[0] <= min(HASHED, left):
                left -= entry[0]
                entry[3] = hash_of(path)
        except OSError as problem:
            raise ValueError(f"{path} cannot be read: {problem.strerror}") from problem
        tree[name] = entry
    return tree


def read_code_here(source: str, patterns: Sequence[str], directory: str, user: str) -> CodeHere:
    """The code in a directory of this machine. directory, user: where it belongs on the nodes, as role code has it."""
    here: CodeHere = {
        "source": source,
        "directory": directory.removeprefix("~/"),
        "user": user,
        "listing": "",
        "digest": "",
        "files": 0,
        "problem": "",
        "requirements": "",
        "required": "",
    }
    try:
        tree = read_tree(source, patterns)
    except ValueError as problem:
        here["problem"] = str(problem)
        return here
    listing = packed(tree)
    here["listing"] = listing if len(listing) <= MOST_SENT else ""
    here["digest"] = digest_of(tree)
    here["files"] = sum(not name.endswith("/") for name in tree)
    return here


def add_requirements(here: CodeHere) -> None:
    """Add what the project requires. What is wrong with it is the business of site.yml, which installs it."""
    try:
        project = read_project(here["source"])
    except ValueError:
        return
    if project:
        here["requirements"], here["required"] = project["file"], project["digest"]
