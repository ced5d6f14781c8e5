# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify that a mount can be used, in child processes that may hang.

Access to a mount whose server is unavailable may block forever, so only these child processes access mounts.
"""

from __future__ import annotations

import contextlib
import errno
import os

from ansible_collections.muster.training.plugins.module_utils._facts.commands import call_in_children
from ansible_collections.muster.training.plugins.module_utils._facts.storage import parse_mountinfo
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import summarize_names

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

# seconds allowed for a first check of an existing mount; a live server answers within milliseconds
INSPECT_TIMEOUT = 5.0
# Errors of a file system that is broken for all users. The last two come from CIFS: it is reconnecting, or the server
# no longer has the share.
BROKEN = (
    *(errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ESTALE, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENODEV),
    *(errno.EAGAIN, errno.EREMCHG),
)


def mounted_at(path: str) -> dict[str, str] | None:
    """Return type, source and options of the mount at a path, or None if there is none."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        return parse_mountinfo(stream.read()).get(path)


def _become(uid: int, gid: int) -> None:
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([gid])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def _error(step: str, problem: OSError) -> dict[str, Any]:
    return {"step": step, "errno": problem.errno, "error": problem.strerror or str(problem)}


def use_mount(path: str, uid: int, gid: int, probe: str = "") -> dict[str, Any]:
    """Use a mount as its user, and write a file if `probe` is its name; return the result or the error:

    {"listing": ..., "probe": bool}, or {"step": stat | list | write | read | remove, "errno", "error"}.
    """
    try:
        _become(uid, gid)
        os.stat(path)
    except OSError as problem:
        return _error("stat", problem)
    try:
        listing = summarize_names(os.listdir(path))
    except OSError as problem:
        return _error("list", problem)
    if not probe:
        return {"listing": listing, "probe": False}
    probe_path, content, step = os.path.join(path, probe), os.urandom(64), "write"
    try:
        with open(probe_path, "xb") as stream:
            stream.write(content)
        step = "read"
        with open(probe_path, "rb") as stream:
            if stream.read() != content:
                raise OSError(errno.EIO, "the content read differs from the content written")
        step = "remove"
        os.unlink(probe_path)
    except OSError as problem:
        if step != "write":
            with contextlib.suppress(OSError):
                os.unlink(probe_path)
        return _error(step, problem)
    return {"listing": listing, "probe": True}


def inspect_path(path: str) -> dict[str, Any]:
    """Describe a path: real (its path without links), exists, is_directory, entries (at most one of them).

    For paths where nothing is mounted. Has only `hangs` if a parent directory does not respond.
    """

    def describe() -> dict[str, Any]:
        try:
            entries = os.listdir(path)[:1]
        except OSError:
            entries = []
        return {
            "real": os.path.realpath(path),
            "exists": os.path.lexists(path),
            "is_directory": os.path.isdir(path),
            "entries": [name.encode("utf-8", "replace").decode() for name in entries],
        }

    return call_in_children({"it": describe}, INSPECT_TIMEOUT).get("it", {"hangs": True})


def verify_access(path: str, uid: int, gid: int, probe: str, seconds: float) -> dict[str, Any]:
    """Return the result of use_mount(), or {"step": "stat", "error": ..., "hangs": True} after the timeout."""
    result = call_in_children({"it": lambda: use_mount(path, uid, gid, probe)}, max(0.5, seconds)).get("it")
    if result is None:
        return {"step": "stat", "errno": errno.ETIMEDOUT, "error": f"no reply within {seconds:.0f} s", "hangs": True}
    return dict(result)


def is_broken(result: dict[str, Any]) -> bool:
    """Return whether a check failed because the mount is dead, not because of permissions or a full disk."""
    return bool(result.get("hangs")) or (result.get("step") in ("stat", "list") and result.get("errno") in BROKEN)


def is_orphaned(result: dict[str, Any]) -> bool:
    """Return whether the program behind a FUSE mount has died: Transport endpoint is not connected."""
    return result.get("step") == "stat" and result.get("errno") in (errno.ENOTCONN, errno.ECONNABORTED)
