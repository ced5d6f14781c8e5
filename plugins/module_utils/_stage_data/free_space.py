# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that a node's disk has space for the files, before any is copied.

    free_space.py DIRECTORY RESERVE_GIB < SIZES

SIZES is JSON: bytes of the directories below DIRECTORY, by name. Files that they already contain count as present; the
program that copies the files verifies each of them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, run_and_report
from ansible_collections.muster.training.plugins.module_utils._files.content import format_size


def directory_size(directory: str) -> int:
    """Return the total size in bytes of the files below a directory."""
    size = 0
    for parent, _directories, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(parent, name)).st_size
    return size


def missing_bytes(directory: str, sizes: dict[str, int]) -> int:
    """Return how many bytes are still missing."""
    return sum(max(0, size - directory_size(os.path.join(directory, name))) for name, size in sizes.items())


def check_space(directory: str, reserve: float, sizes: dict[str, int]) -> dict[str, Any]:
    """Return the required bytes. Raise StepError if the disk does not have enough space for them.

    Args:
        reserve: Space to keep free, in GiB.
    """
    needed, free = missing_bytes(directory, sizes), shutil.disk_usage(directory).free
    if needed and free < needed + reserve * 2**30:
        raise StepError(
            f"{directory} has {format_size(free)} free, but needs {format_size(needed)} plus a reserve of "
            f"{reserve:g} GiB. Free some space, or choose a larger disk"
        )
    return {"changed": False, "needed": needed}


def main(arguments: list[str]) -> int:
    """Print the result, or an error; return the exit status."""
    directory, reserve = arguments
    return run_and_report(functools.partial(check_space, directory, float(reserve)), json.load(sys.stdin))
