# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a node's code tree with the controller's. Private to this collection.

Runs on the node, standard library only, Python >= 3.8; the controller lists its own tree with the same functions.
Files that a job has written beside the code are not in a list, so they are neither examined nor reported.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pwd
import stat
import zlib

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, TypedDict

    # File: [size in bytes, modification time in seconds, 1 if executable, hash or ""]. Link: ["link", target].
    # Directory, whose name ends with a slash: null.
    Entry = Optional[List[Any]]
    Tree = Dict[str, Entry]

    class CodeFacts(TypedDict):
        """A node's facts about its copy: for each kind of difference (KINDS), the number of names and some of them."""

        path: str
        same: bool
        counts: dict[str, int]
        names: dict[str, list[str]]
        script: bool  # the source has the job's script, so it exists once the code is copied
        required: str | None  # hash of the installed requirements; null: not in an environment of ours


LIST = ".muster-code.json"  # the role code's list of what it has copied, in the tree itself
KINDS = ("missing", "older", "newer", "other", "extra")
MOST_NAMES = 3  # per kind
HASHED = 1 << 20  # bytes; up to this size, files that differ only in time are compared by hash


def hash_of(path: str) -> str:
    """The first digits of the SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def entry_of(path: str) -> Entry:
    """The tree's entry for a path, without a hash. Raises OSError if the path does not exist."""
    found = os.lstat(path.rstrip("/"))
    if stat.S_ISLNK(found.st_mode):
        return ["link", os.readlink(path.rstrip("/"))]
    if stat.S_ISDIR(found.st_mode):
        return None
    return [found.st_size, int(found.st_mtime), int(bool(found.st_mode & 0o100)), ""]


def packed(tree: Tree) -> str:
    """A tree as compact text for sending."""
    return base64.b64encode(zlib.compress(json.dumps(tree).encode())).decode()


def unpacked(text: str) -> Tree:
    """The tree in such a text."""
    tree: Tree = json.loads(zlib.decompress(base64.b64decode(text)))
    return tree


def digest_of(tree: Tree) -> str:
    """One hash of all names, sizes, times and permissions."""
    plain = {name: entry[:3] if entry else entry for name, entry in tree.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def brought_to(directory: str) -> Tree:
    """The role code's list of what it has copied into a directory; empty if there is none."""
    path = os.path.join(directory, LIST)
    try:
        if os.path.islink(path):
            return {}
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    inside = {name for name in found if not name.startswith("/") and ".." not in name.split("/") and "\0" not in name}
    return {name: found[name] for name in inside}


def kind_of(wanted: Entry, path: str) -> str:
    """How a path differs from an entry, one of KINDS; empty if it does not."""
    try:
        here = entry_of(path)
    except OSError:
        return "missing"
    if here is None or wanted is None or here[0] == "link" or wanted[0] == "link":
        return "" if here == wanted else "other"
    if here[2] == wanted[2] and here[0] == wanted[0]:
        if here[1] == wanted[1]:
            return ""
        try:
            if wanted[3] and hash_of(path) == wanted[3]:
                return ""
        except OSError:
            return "other"
    if here[1] == wanted[1]:
        return "other"
    return "older" if here[1] < wanted[1] else "newer"


def is_left(directory: str, name: str, brought: Tree) -> bool:
    """Whether a formerly copied name is still there unchanged, so that the role code would remove it."""
    try:
        here = entry_of(os.path.join(directory, name))
    except OSError:
        return False
    if here is None or brought[name] is None or here[0] == "link":
        return here is not None and here == brought[name]  # a directory may hold a job's files
    return here[:2] == brought[name]


def differences(directory: str, wanted: Tree) -> dict[str, list[str]]:
    """Names by kind of difference."""
    found: dict[str, list[str]] = {}
    for name, entry in wanted.items():
        kind = kind_of(entry, os.path.join(directory, name))
        if kind:
            found.setdefault(kind, []).append(name)
    brought = brought_to(directory)
    for name in sorted(set(brought) - set(wanted)):
        if is_left(directory, name, brought):
            found.setdefault("extra", []).append(name)
    return found


def tree_of(directory: str, names: Mapping[str, Any]) -> Tree:
    """The entries of the names that exist."""
    tree: Tree = {}
    for name in names:
        try:
            tree[name] = entry_of(os.path.join(directory, name))
        except OSError:
            continue
    return tree


def required_in(interpreter: str) -> str | None:
    """The hash of the project's requirements that the role python_env has installed in an interpreter's environment.

    Empty if it has installed none, None if the interpreter is not in an environment of that role.
    """
    environment = os.path.dirname(os.path.dirname(interpreter))
    if not interpreter or not os.path.isfile(os.path.join(environment, ".muster")):
        return None
    try:
        with open(os.path.join(os.path.dirname(environment), "installed", "requirements"), encoding="utf-8") as file:
            return str(json.load(file).get("project") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def home_of(user: str) -> str:
    """A user's home; user "": the one who logged in. "" if there is none."""
    try:
        name = user or os.environ.get("SUDO_USER") or pwd.getpwuid(os.geteuid()).pw_name
        return pwd.getpwnam(name).pw_dir
    except KeyError:
        return ""


def code_directory(code: Mapping[str, Any]) -> str:
    """The directory of the code on this node."""
    return os.path.join(home_of(code["user"]), code["directory"])


def read_code(directory: str, code: Mapping[str, Any], script: str, interpreter: str) -> CodeFacts:
    """Compare the tree in a directory with the controller's.

    code: listing (see packed; empty if it is too long to send), its digest, and the directory and user that the path
    was derived from. script: path of the job's script, or "".
    """
    listing = code["listing"]
    wanted = unpacked(listing) if listing else None
    names: Mapping[str, Any] = brought_to(directory) if wanted is None else wanted
    found = {} if wanted is None else differences(directory, wanted)
    same = digest_of(tree_of(directory, names)) == code["digest"] if wanted is None else not found
    below = os.path.relpath(script, directory) if script else ""
    return {
        "path": directory,
        "same": same,
        "counts": {kind: len(found[kind]) for kind in KINDS if kind in found},
        "names": {kind: found[kind][:MOST_NAMES] for kind in KINDS if kind in found},
        "script": bool(script) and (below in names if wanted is not None else not below.startswith("..")),
        "required": required_in(interpreter),
    }
