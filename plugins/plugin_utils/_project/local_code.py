# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the local code tree, which the nodes should have."""

from __future__ import annotations

import base64
import json
import os
import shutil
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.muster.training.plugins.module_utils._code.compare import (
    HASH_LIMIT,
    digest_of,
    entry_of,
    hash_of,
    is_file,
)
from ansible_collections.muster.training.plugins.module_utils._code.copy import TreeError, list_tree
from ansible_collections.muster.training.plugins.plugin_utils._project.requirements import read_project

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._code.compare import Tree

MAX_HASHED = 32 << 20  # total bytes of the files that a launch reads: about 20 ms
MAX_SENT = 64 << 10  # number of characters per node: about 2,000 files. If there are more, nodes compare only one hash


class LocalCode(TypedDict):
    """The code on this machine: its directory, the directory on the nodes, and its contents or why they are unknown."""

    source: str
    directory: str
    user: str
    listing: str
    digest: str
    files: int
    problem: str
    requirements: str  # path of the requirements file, or "" if there is none
    required: str  # the requirements' hash, or "" if there are none


class ReadCode(NamedTuple):
    """The code in the form that the nodes compare, and its full contents, which are kept in a run's record."""

    code: LocalCode
    tree: Tree


def list_names(source: str, patterns: Sequence[str]) -> list[str]:
    """Return the names that a copy would include. Raise ValueError with the reason if they cannot be determined."""
    if not os.path.isdir(source):
        kind = "is not a directory" if os.path.exists(source) else "does not exist on this machine"
        raise ValueError(f"code_source is {source}, which {kind}")
    if not shutil.which("rsync"):
        raise ValueError(f"rsync, which copies {source}, is missing on this machine: install it")
    try:
        return list_tree(source, list(patterns))
    except TreeError as error:
        raise ValueError(str(error)[-500:]) from error


def read_tree(source: str, patterns: Sequence[str]) -> Tree:
    """Return a directory's contents that should be on the nodes. Raise ValueError if the directory cannot be read."""
    tree: Tree = {}
    remaining_bytes = MAX_HASHED
    for name in list_names(source, patterns):
        path = os.path.join(source, name)
        try:
            entry = entry_of(path)
            if entry and is_file(entry) and entry[0] <= min(HASH_LIMIT, remaining_bytes):
                remaining_bytes -= entry[0]
                entry[3] = hash_of(path)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from error
        tree[name] = entry
    return tree


def pack(tree: Tree) -> str:
    """Return a tree as compact text for transfer."""
    return base64.b64encode(zlib.compress(json.dumps(tree).encode())).decode()


def read_local_code(source: str, patterns: Sequence[str], directory: str, user: str) -> ReadCode:
    """Read the code in a directory. directory, user: its location on the nodes, as in the code role."""
    code: LocalCode = {
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
    except ValueError as error:
        code["problem"] = str(error)
        return ReadCode(code, {})
    listing = pack(tree)
    code["listing"] = listing if len(listing) <= MAX_SENT else ""
    code["digest"] = digest_of(tree)
    code["files"] = sum(not name.endswith("/") for name in tree)
    return ReadCode(code, tree)


def add_requirements(code: LocalCode) -> None:
    """Add the project's requirements. Errors in them are reported by site.yml, which installs the requirements."""
    try:
        project = read_project(code["source"])
    except ValueError:
        return
    if project:
        code["requirements"], code["required"] = project["file"], project["digest"]
