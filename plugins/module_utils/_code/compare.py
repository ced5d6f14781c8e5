# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a node's code tree with the controller's, which lists its own tree with the same functions.

Files that a job has written next to the code are not in a list, so they are neither examined nor reported.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pwd
import stat
import zlib

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_bytes, read_json

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, TypedDict

    # File: [size in bytes, modification time in seconds, 1 if executable, hash or ""]. Link: ["link", target].
    # Directory (its name ends with a slash): null. Anything else, such as a pipe: ["other"].
    TreeEntry = Optional[List[Any]]
    Tree = Dict[str, TreeEntry]

    class CodeFacts(TypedDict):
        """A node's facts about its code copy: the number of names, and some of them, for each kind of difference
        (KINDS).
        """

        path: str
        same: bool
        counts: dict[str, int]
        names: dict[str, list[str]]
        script: bool  # whether the source contains the job's script, so that the script exists once the code is copied
        required: str | None  # hash of the installed requirements; null if they are not in one of our environments
        required_by: str  # name of the other project that the requirements belong to


LIST = ".muster-code.json"
"""The role code's list of copied files, stored in the tree itself: [size, time in seconds] for a file, ["link", target]
for a link, and null for a directory, whose name ends with a slash. A job may replace it.
"""
MAX_LIST_BYTES = 64 << 20  # about half a million files
KINDS = ("missing", "older", "newer", "other", "extra")
MAX_NAMES = 3  # number of names listed for each kind
HASH_LIMIT = 1 << 20  # bytes; up to this size, files that differ only in their times are compared by hash


def hash_of(path: str) -> str:
    """Return the first digits of the SHA-256 of a file's content. Raise OSError if the file exceeds HASH_LIMIT."""
    return hashlib.sha256(read_bytes(path, HASH_LIMIT)).hexdigest()[:16]


def is_file(entry: TreeEntry) -> bool:
    """Return whether a tree entry is a regular file."""
    return entry is not None and isinstance(entry[0], int)


def entry_of(path: str) -> TreeEntry:
    """Return the tree entry for a path, without a hash. Raise OSError if the path does not exist."""
    status = os.lstat(path.rstrip("/"))
    if stat.S_ISLNK(status.st_mode):
        return ["link", os.readlink(path.rstrip("/"))]
    if stat.S_ISDIR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        return ["other"]
    return [status.st_size, int(status.st_mtime), int(bool(status.st_mode & 0o100)), ""]


def unpack(text: str) -> Tree:
    """Return the tree encoded by the controller's pack(): plugin_utils/_project/local_code.py."""
    tree: Tree = json.loads(zlib.decompress(base64.b64decode(text)))
    return tree


def digest_of(tree: Tree) -> str:
    """Return a single hash of all names, sizes, times and permissions."""
    plain = {name: entry[:3] if entry else entry for name, entry in tree.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_list(directory: str) -> Tree:
    """Return the role code's list of the files it copied into a directory, or {}."""
    entries = read_json(os.path.join(directory, LIST), MAX_LIST_BYTES)
    if not isinstance(entries, dict):
        return {}
    return {name: entry for name, entry in entries.items() if is_inside(name) and is_entry(entry)}


def is_inside(name: str) -> bool:
    """Return whether a name, which may come from another node's list, is a path inside the tree."""
    try:
        os.fsencode(name)
    except ValueError:
        return False
    return bool(name) and not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def is_entry(entry: Any) -> bool:
    """Return whether a value is a well-formed entry of the role code's list."""
    if entry is None:
        return True
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    size_or_kind, time_or_target = entry
    if size_or_kind == "link":
        return isinstance(time_or_target, str)
    return isinstance(size_or_kind, int) and isinstance(time_or_target, int)


def difference_kind(expected: TreeEntry, path: str) -> str:
    """Return how a path differs from an entry, as one of KINDS, or "" if it does not."""
    try:
        actual = entry_of(path)
    except OSError:
        return "missing"
    if actual is None or expected is None or not (is_file(actual) and is_file(expected)):
        return "" if actual == expected else "other"
    if actual[2] == expected[2] and actual[0] == expected[0]:
        if actual[1] == expected[1]:
            return ""
        try:
            if expected[3] and hash_of(path) == expected[3]:
                return ""
        except OSError:
            return "other"
    if actual[1] == expected[1]:
        return "other"
    return "older" if actual[1] < expected[1] else "newer"


def is_stale(directory: str, name: str, copied: Tree) -> bool:
    """Return whether a previously copied file still exists unchanged, so that the role code would remove it."""
    try:
        actual = entry_of(os.path.join(directory, name))
    except OSError:
        return False
    if actual is None or copied[name] is None or not is_file(actual):
        return actual is not None and actual == copied[name]  # a directory may contain a job's files
    return actual[:2] == copied[name]


def differences(directory: str, expected: Tree) -> dict[str, list[str]]:
    """Return the names of files that differ, by kind of difference."""
    names_by_kind: dict[str, list[str]] = {}
    for name, entry in expected.items():
        kind = difference_kind(entry, os.path.join(directory, name))
        if kind:
            names_by_kind.setdefault(kind, []).append(name)
    copied = read_list(directory)
    for name in sorted(set(copied) - set(expected)):
        if is_stale(directory, name, copied):
            names_by_kind.setdefault("extra", []).append(name)
    return names_by_kind


def tree_of(directory: str, names: Mapping[str, Any]) -> Tree:
    """Return the entries of the names that exist."""
    tree: Tree = {}
    for name in names:
        try:
            tree[name] = entry_of(os.path.join(directory, name))
        except OSError:
            continue
    return tree


def installed_requirements(interpreter: str) -> tuple[str | None, str]:
    """Return what the role python_env installed in an interpreter's environment: a hash of its requirements, and its
    project.

    The hash is "" if the role has installed no requirements of a project, and None if the interpreter is not in an
    environment of that role. The project is the name of its code's directory, or "" if it is unknown.
    """
    environment = os.path.dirname(os.path.dirname(interpreter))
    if not interpreter or not os.path.isfile(os.path.join(environment, ".muster")):
        return None, ""
    record = read_json(os.path.join(os.path.dirname(environment), "installed", "requirements"))
    if not isinstance(record, dict):
        return "", ""
    return str(record.get("project") or ""), str(record.get("project_name") or "")


def home_of(user: str) -> str:
    """Return a user's home directory, or "". An empty name means the login user."""
    try:
        name = user or os.environ.get("SUDO_USER") or pwd.getpwuid(os.geteuid()).pw_name
        return pwd.getpwnam(name).pw_dir
    except KeyError:
        return ""


def code_directory(code: Mapping[str, Any]) -> str:
    """Return the code directory on this node."""
    return os.path.join(home_of(code["user"]), code["directory"])


def read_code(directory: str, code: Mapping[str, Any], script: str, interpreter: str) -> CodeFacts:
    """Compare the tree in a directory with the controller's.

    code: listing (see unpack(); empty if it is too long to transfer), its digest, and the directory and user from which
    the path was derived. script: path of the job's script, or "".
    """
    listing = code["listing"]
    expected = unpack(listing) if listing else None
    names: Mapping[str, Any] = read_list(directory) if expected is None else expected
    names_by_kind = {} if expected is None else differences(directory, expected)
    same = digest_of(tree_of(directory, names)) == code["digest"] if expected is None else not names_by_kind
    relative_script = os.path.relpath(script, directory) if script else ""
    required, project = installed_requirements(interpreter)
    return {
        "path": directory,
        "same": same,
        "counts": {kind: len(names_by_kind[kind]) for kind in KINDS if kind in names_by_kind},
        "names": {kind: names_by_kind[kind][:MAX_NAMES] for kind in KINDS if kind in names_by_kind},
        "script": bool(script)
        and (relative_script in names if expected is not None else not relative_script.startswith("..")),
        "required": required,
        "required_by": project if project != os.path.basename(code["directory"]) else "",
    }
