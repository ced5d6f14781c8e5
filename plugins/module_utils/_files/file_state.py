# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of files, for comparison with the desired state. Needs root."""

from __future__ import annotations

import hashlib
import os
import stat

from ansible_collections.muster.training.plugins.module_utils._files.user_files import MAX_BYTES, user_name


def read_files(paths: list[str], mark: str = "") -> dict[str, dict[str, str]]:
    """Return the state of each of these files, by path.

    Omits missing files, links, and files in a directory in which another user could replace them.

    Args:
        mark: the end of a line in files that others also write.

    Returns:
        By path: user (its owner), mode (as "0644"), sha256, and with a mark also line: the last line that ends with it.
    """
    return {path: state for path in paths for state in [read_file(path, mark)] if state}


def read_file(path: str, mark: str) -> dict[str, str]:
    """Return the state of a file, or {} if it is missing or cannot be trusted."""
    try:
        # a user's link could point to any file, and opening a pipe would block
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        status = os.fstat(descriptor)
        parent = os.stat(os.path.dirname(path))
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return {}
        if parent.st_uid not in (0, status.st_uid) or parent.st_mode & 0o022:
            return {}  # another user could replace such a file
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read()
    finally:
        os.close(descriptor)
    state = {
        "user": user_name(status.st_uid),
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    if mark:
        lines = content.decode("utf-8", "surrogateescape").splitlines()
        state["line"] = next((line for line in reversed(lines) if line.endswith(mark)), "")
    return state
