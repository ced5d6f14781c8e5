"""Bring a working tree, and nothing else that lies beside it: tree.py VERB DIRECTORY < JSON

    list     print names, sizes and times of what rsync would copy of a source: {"patterns"}
    prepare  on the first node, before its copy: remove what the source no longer has: {"list", "patterns", "delete"}
    bring    on another node: the same, and copy from the first node what was brought there: {"from", "patterns", ...}
    hash     print the hash of what was brought, or of what git has: {"git", "patterns"}
    files    print the hash of each file of it

What was brought stands in a list in the tree itself. What a job has written, or changed since, is in no list, and is
neither copied on, nor compared, nor removed. Runs as the user whose the tree is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Listed = Dict[str, Optional[List[Any]]]

LIST = ".muster-code.json"
"""The list: of a file [size, time in seconds], of a link ["link", where it leads], of a directory, whose name ends with
a slash, null."""


def listed(directory: str, patterns: list[str]) -> list[str]:
    """The files, links and directories of a tree that rsync would copy, sorted. rsync itself judges by the patterns."""
    words = ["rsync", "--recursive", "--links", "--dry-run", "--8-bit-output", "--out-format=%n", "--exclude-from=-"]
    # Names are bytes, of which some are no text.
    done = subprocess.run(
        [*words, f"{directory}/", "/nonexistent/"],
        input="\n".join(patterns),
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if done.returncode:
        sys.exit(f"rsync cannot list {directory}: {done.stderr.strip()}")
    names = (re.sub(r"\\#([0-7]{3})", lambda found: chr(int(found[1], 8)), name) for name in done.stdout.splitlines())
    # What is no file, and says so in a line of its own, is not copied either.
    return sorted(
        name
        for name in names
        if name != "./" and (os.path.islink(path := f"{directory}/{name}".rstrip("/")) or regular(path))
    )


def regular(path: str) -> bool:
    """Whether a path is a file or a directory."""
    return os.path.isfile(path) or os.path.isdir(path)


def state(path: str) -> list[Any] | None:
    """What the list says of a path, null for a directory. Raises OSError where there is nothing."""
    found = os.lstat(path.rstrip("/"))
    if stat.S_ISLNK(found.st_mode):
        return ["link", os.readlink(path.rstrip("/"))]
    return None if stat.S_ISDIR(found.st_mode) else [found.st_size, int(found.st_mtime)]


def is_inside(name: str) -> bool:
    """Whether a name of a list, which another node may have given us, leads nowhere but below the tree."""
    return bool(name) and not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def read_list(directory: str) -> Listed:
    """What was brought into a tree; empty where nothing was."""
    path = os.path.join(directory, LIST)
    if os.path.islink(path) or not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        found: Listed = json.load(file)
    return {name: entry for name, entry in found.items() if is_inside(name)}


def write_list(directory: str, brought: Listed) -> None:
    """Write the list of what was brought, in one step."""
    number, name = tempfile.mkstemp(dir=directory, prefix=f"{LIST}.")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        json.dump(brought, file)
    os.replace(name, os.path.join(directory, LIST))


def remove_old(directory: str, new: Listed, given: dict[str, Any]) -> list[str]:
    """Remove what was brought before, is as it was, and is not in the new list; return the names.

    With `delete` all that is not in the new list, but for what the patterns leave out.
    """
    old = read_list(directory)
    names = set(old) | (set(listed(directory, given["patterns"])) if given["delete"] else set())
    root, removed = os.path.realpath(directory), []
    for name in sorted(names - set(new), reverse=True):  # what lies in a directory comes before it
        path = os.path.join(directory, name)
        above = os.path.realpath(os.path.dirname(path.rstrip("/")))
        if above != root and not above.startswith(f"{root}/"):
            continue  # by a link out of the tree
        try:
            if not given["delete"] and state(path) != old[name]:
                continue
            if name.endswith("/") and not os.path.islink(path.rstrip("/")):
                os.rmdir(path)
            else:
                os.unlink(path.rstrip("/"))
        except OSError:
            continue  # gone already, or a directory in which something lies
        removed.append(name)
    return removed


def prepare(directory: str, given: dict[str, Any]) -> None:
    """Print what was removed."""
    new: Listed = json.loads(given["list"])
    removed = remove_old(directory, new, given)
    if read_list(directory) != new:
        write_list(directory, new)
    print("".join(f"removed {shown(name)}\n" for name in removed), end="")


def rsync(given: dict[str, Any], *words: str, **options: Any) -> str:
    """Run rsync from the first node; return what it prints."""
    done = subprocess.run(
        ["rsync", "--archive", f"--rsh={given['shell']}", *words],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        **options,
    )
    if done.returncode:
        sys.exit(done.stderr.strip())
    return done.stdout


def bring(directory: str, given: dict[str, Any]) -> None:
    """Copy from the first node what was brought there; print what was changed."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            rsync(given, f"{given['from']}/{LIST}", f"{scratch}/")
        except SystemExit as failed:
            if "No such file" not in str(failed):
                raise
            sys.exit("nothing was brought there yet. Run this once without --limit")
        new = read_list(scratch)
    removed = remove_old(directory, new, given)
    # with a slash at its end a directory would mean all that is in it
    names = "".join(f"{name.rstrip('/')}\0" for name in sorted(new))
    words = ["--itemize-changes", "--from0", "--files-from=-", *given["options"], f"{given['from']}/", f"{directory}/"]
    copied = rsync(given, *words, input=names)
    if read_list(directory) != new:
        write_list(directory, new)
    print("".join(f"removed {shown(name)}\n" for name in removed) + shown(copied), end="")


def shown(text: str) -> str:
    """A text that can be printed, whatever bytes it was made of."""
    return text.encode("utf-8", "replace").decode()


def tracked(directory: str, patterns: list[str]) -> list[str]:
    """The files that git has in a tree, but for what the patterns leave out."""
    done = subprocess.run(
        ["git", "-C", directory, "ls-files", "-z", "--recurse-submodules"],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if done.returncode:
        sys.exit(f"git cannot list {directory}: {done.stderr.strip()}")
    return sorted(set(done.stdout.split("\0")) & set(listed(directory, patterns)))


def digest(path: str) -> str:
    """Hash of a file's content and whether it can be run, or of where a link leads."""
    if os.path.islink(path):
        return hashlib.sha256(b"link " + os.fsencode(os.readlink(path))).hexdigest()
    found = hashlib.sha256(b"run " if os.stat(path).st_mode & 0o100 else b"read ")
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def hashes(directory: str, given: dict[str, Any]) -> dict[str, str]:
    """The hash of each file that was brought, and is there."""
    names = tracked(directory, given["patterns"]) if given["git"] else sorted(read_list(directory))
    paths = {name: os.path.join(directory, name) for name in names if not name.endswith("/")}
    return {name: digest(path) for name, path in paths.items() if os.path.islink(path) or os.path.isfile(path)}


def main(verb: str, directory: str) -> None:
    """Do what is asked for."""
    given = json.load(sys.stdin)
    try:
        if verb == "list":
            print(json.dumps({name: state(f"{directory}/{name}") for name in listed(directory, given["patterns"])}))
        elif verb == "prepare":
            prepare(directory, given)
        elif verb == "bring":
            bring(directory, given)
        elif verb == "files":
            print(json.dumps(hashes(directory, given)))
        else:
            files = hashes(directory, given)
            whole = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
            print(json.dumps({"hash": whole[:16], "files": len(files)}))
    except OSError as error:
        sys.exit(f"cannot read {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main(*sys.argv[1:])
