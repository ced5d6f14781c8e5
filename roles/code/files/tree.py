"""Print the hash of a working tree, or with --list each file's, as JSON: tree.py DIRECTORY [--list] < patterns

The patterns of rsync to leave out come on standard input. rsync itself lists the files, as the judge of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys


def listed(directory: str, patterns: str) -> list[str]:
    """The files and links of the tree that rsync would copy, sorted."""
    words = ["rsync", "--recursive", "--links", "--dry-run", "--8-bit-output", "--out-format=%n", "--exclude-from=-"]
    # Names are bytes, of which some are no text.
    done = subprocess.run(
        [*words, f"{directory}/", "/nonexistent/"],
        input=patterns,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if done.returncode:
        sys.exit(f"rsync cannot list {directory}: {done.stderr.strip()}")
    names = (re.sub(r"\\#([0-7]{3})", lambda found: chr(int(found[1], 8)), name) for name in done.stdout.splitlines())
    # What is no file, and says so in a line of its own, is not copied either.
    return sorted(name for name in names if os.path.islink(path := f"{directory}/{name}") or os.path.isfile(path))


def digest(path: str) -> str:
    """Hash of a file's content and whether it can be run, or of where a link leads."""
    if os.path.islink(path):
        return hashlib.sha256(b"link " + os.fsencode(os.readlink(path))).hexdigest()
    found = hashlib.sha256(b"run " if os.stat(path).st_mode & 0o100 else b"read ")
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def main(directory: str, *options: str) -> None:
    """Print what is asked for."""
    try:
        files = {name: digest(os.path.join(directory, name)) for name in listed(directory, sys.stdin.read())}
    except OSError as error:
        sys.exit(f"cannot read {error.filename}: {error.strerror}")
    if options:
        print(json.dumps(files))
    else:
        whole = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
        print(json.dumps({"hash": whole[:16], "files": len(files)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
