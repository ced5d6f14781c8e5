# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts and space of a node. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. A mount whose server is gone blocks whoever touches it, for
ever: such mounts are first touched by a child process, and nothing below one that does not answer is touched at all.
"""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.muster.training.plugins.module_utils._data_mounts import UNITS, listing_of, parse_unit
from ansible_collections.muster.training.plugins.module_utils._node_commands import call_apart

TYPE_CHECKING = False  # typing itself would cost more than all we import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOUNT_TIMEOUT = 3.0  # seconds; a server that lives answers within milliseconds
# File systems that depend on another machine or on a process, and so can go away while they are mounted.
REMOTE = re.compile(
    r"(fuse(\..*)?|nfs4?|cifs|smb3|ceph|lustre|9p|virtiofs|glusterfs|afs|beegfs|gpfs|ocfs2|gfs2|wekafs)\Z"
)
# FUSE mounts of desktops and of containers' engines that belong to one user and to nobody's training.
PRIVATE = re.compile(r"fuse\.(gvfsd-fuse|portal|lxcfs|fuse-overlayfs|snapfuse)\Z")


def unescape(field: str) -> str:
    """Return a field of mountinfo or fstab as it was meant: a space is written \\040 there."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def parse_mountinfo(text: str) -> dict[str, dict[str, str]]:
    """Read /proc/self/mountinfo: {mount point: {"type", "source", "options"}}; what was mounted last there counts."""
    mounts = {}
    for line in text.splitlines():
        fields = line.split(" ")
        dash = fields.index("-")
        mounts[unescape(fields[4])] = {
            "type": fields[dash + 1],
            "source": unescape(fields[dash + 2]),
            "options": fields[5],
        }
    return mounts


def parse_fstab(text: str) -> dict[str, dict[str, str]]:
    """Read /etc/fstab: {mount point: {"type", "source", "options"}} of what is mounted at boot and is no swap."""
    entries = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4 and not line.lstrip().startswith("#") and fields[1].startswith("/"):
            options = fields[3].split(",")
            if "noauto" not in options and fields[2] != "swap":
                entries[unescape(fields[1])] = {"type": fields[2], "source": unescape(fields[0]), "options": fields[3]}
    return entries


def read_units() -> dict[str, dict[str, str]]:
    """Return the mounts of our own units that are mounted at boot, as parse_unit does."""
    found = {}
    for path in glob.glob(f"{UNITS}/remote-fs.target.wants/*.mount"):
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as stream:
                found.update(parse_unit(stream.read()))
        except OSError:  # another user's, or gone at this moment
            continue
    return found


def list_mount(point: str) -> Callable[[], dict[str, Any] | None]:
    """Return a function that lists the top of a mount: count and digest of its names, None where it cannot."""

    def look() -> dict[str, Any] | None:
        try:
            return listing_of(os.listdir(point))
        except OSError:
            return None

    return look


def touch_mount(point: str) -> Callable[[], dict[str, str]]:
    """Return a function that looks into a mount and tells its state: ok, stale or unreadable, and the error."""

    def touch() -> dict[str, str]:
        try:
            os.statvfs(point)
        except PermissionError:  # a FUSE mount of another user without allow_other
            return {"state": "unreadable", "error": "permission denied"}
        except OSError as error:
            return {"state": "stale", "error": error.strerror or str(error)}
        try:
            with os.scandir(point) as entries:
                next(entries, None)
        except PermissionError:
            return {"state": "unreadable", "error": "permission denied"}
        except OSError as error:
            return {"state": "stale", "error": error.strerror or str(error)}
        return {"state": "ok", "error": ""}

    return touch


def read_mounts(wanted: list[str]) -> list[dict[str, Any]]:
    """Return the mounts that depend on others, those of /etc/fstab, of our units, and those wanted.

    Each: point, type, source, state, error; of those of our units, where they answer, the listing of their top.
    state: ok, stale, unreadable, hangs or missing (to be there, and not mounted).
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        mounted = parse_mountinfo(stream.read())
    try:
        with open("/etc/fstab", encoding="utf-8", errors="surrogateescape") as stream:
            at_boot = parse_fstab(stream.read())
    except OSError:
        at_boot = {}
    ours = read_units()
    at_boot.update(ours)
    watched = {
        point: mount
        for point, mount in mounted.items()
        if point in wanted or point in ours or (REMOTE.match(mount["type"]) and not PRIVATE.match(mount["type"]))
    }
    states = call_apart({point: touch_mount(point) for point in watched}, MOUNT_TIMEOUT)
    hangs = {"state": "hangs", "error": f"no answer within {MOUNT_TIMEOUT:.0f} s"}
    missing = {"state": "missing", "error": ""}
    answering = [point for point in ours if states.get(point, hangs)["state"] == "ok"]
    listings = call_apart({point: list_mount(point) for point in answering}, MOUNT_TIMEOUT)
    found = []
    for point, mount in watched.items():
        # what the kernel says of a mount of FUSE tells of its program little or nothing
        named = ours.get(point, {"type": "mount-s3"} if mount["source"] == "mountpoint-s3" else {})
        listing = {"listing": listings[point]} if listings.get(point) else {}
        found.append(
            {"point": point, "type": mount["type"], "source": mount["source"], **named, **states.get(point, hangs)}
        )
        found[-1].update(listing)
    for point, mount in at_boot.items():
        if point not in mounted:
            found.append({"point": point, "type": mount["type"], "source": mount["source"], **missing})
    found += [
        {"point": point, "type": "", "source": "", **missing}
        for point in wanted
        if point not in mounted and point not in at_boot
    ]
    return found


def dead_mount(path: str, mounts: list[dict[str, Any]]) -> str:
    """Return the mount point that makes a path untouchable, "" where there is none."""
    for mount in mounts:
        point = mount["point"]
        if mount["state"] in ("hangs", "stale") and (path == point or path.startswith(point.rstrip("/") + "/")):
            return str(point)
    return ""


def existing_parent(path: str) -> str:
    """Return the path, or the nearest directory above it that exists."""
    while path != "/" and not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def space(path: str) -> dict[str, Any]:
    """Return path, total_bytes, free_bytes and free_inodes (None where a file system does not count them)."""
    status = os.statvfs(path)
    return {
        "path": path,
        "device": os.stat(path).st_dev,
        "total_bytes": status.f_blocks * status.f_frsize,
        "free_bytes": status.f_bavail * status.f_frsize,
        "free_inodes": status.f_favail if status.f_files else None,
    }


def read_disks(paths: dict[str, str], mounts: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return {purpose: space} for {purpose: path}; paths on mounts that do not answer are left out."""
    disks = {}
    for purpose, path in paths.items():
        if not dead_mount(path, mounts):
            disks[purpose] = space(existing_parent(path))
    return disks
