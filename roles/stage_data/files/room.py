"""Check that a node's disk has room for the files, before any is copied.

    room.py DIRECTORY RESERVE_GIB < SIZES

SIZES is JSON: bytes of the directories below DIRECTORY, by name. Files that they already contain count as present; the
program that copies the files verifies each of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys

from transfer import format_size

MARK = "MUSTER-RESULT "


def directory_size(directory: str) -> int:
    """Return the total bytes of the files below a directory."""
    size = 0
    for parent, _directories, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(parent, name)).st_size
    return size


def missing_bytes(directory: str, sizes: dict[str, int]) -> int:
    """Return the bytes that are still missing."""
    return sum(max(0, size - directory_size(os.path.join(directory, name))) for name, size in sizes.items())


def main() -> int:
    """Print the result, or an error."""
    root, reserve = sys.argv[1], float(sys.argv[2])
    needed, free = missing_bytes(root, json.load(sys.stdin)), shutil.disk_usage(root).free
    if needed and free < needed + reserve * 2**30:
        message = (
            f"{root} has {format_size(free)} free, but needs {format_size(needed)} plus a reserve of {reserve:g} GiB. "
            "Free some space, or choose a larger disk"
        )
        print(MARK + json.dumps({"fault": message}))
        return 1
    print(MARK + json.dumps({"changed": False, "needed": needed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
