# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts and disk space of a node. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. A mount whose server is gone blocks every access forever, so a
child process tries each mount first, and paths below one that does not answer are not touched.
"""

from __future__ import annotations

import functools
import glob
import os
import re

from ansible_collections.muster.training.plugins.module_utils._facts.commands import call_apart
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import UNITS, listing_of, parse_unit

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

MOUNT_TIMEOUT = 3.0  # seconds; a live server answers within milliseconds
# File systems that depend on another machine or a process, so they can fail while mounted.
REMOTE = re.compile(
    r"(fuse(\..*)?|nfs4?|cifs|smb3|ceph|lustre|9p|virtiofs|glusterfs|afs|beegfs|gpfs|ocfs2|gfs2|wekafs)\Z"
)
# FUSE mounts of desktops and container engines, which are private to one user and irrelevant to training.
PRIVATE = re.compile(r"fuse\.(gvfsd-fuse|portal|lxcfs|fuse-overlayfs|snapfuse)\Z")


# How a mount matters to the job, as far as the node's configuration shows.
WANTED = "wanted"  # requested by the caller, or by a unit of ours
AT_BOOT = "boot"  # in /etc/fstab
OPTIONAL = "optional"  # in /etc/fstab, a local disk that the machine can do without (nofail)
NOBODYS = ""  # only seen mounted


def plain(path: str) -> str:
    """Return a path in the kernel's form of a mount point: /mnt/data for /mnt//data/; expands ~."""
    return re.sub("^//+", "/", os.path.normpath(os.path.expanduser(path)))


def unescape(field: str) -> str:
    """Unescape a field of mountinfo or fstab, where a space is written \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def parse_mountinfo(text: str) -> dict[str, dict[str, str]]:
    """Read /proc/self/mountinfo: {mount point: {"type", "source", "options"}}; the last mount on a point counts."""
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
    """Read /etc/fstab: {mount point: {"type", "source", "options"}} of mounts at boot, without swap.

    Normalizes /mnt/data/ to /mnt/data.
    """
    entries = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4 and not line.lstrip().startswith("#") and fields[1].startswith("/"):
            options = fields[3].split(",")
            if "noauto" not in options and fields[2] != "swap":
                point = plain(unescape(fields[1]))
                entries[point] = {"type": fields[2], "source": unescape(fields[0]), "options": fields[3]}
    return entries


def read_units() -> dict[str, dict[str, str]]:
    """Return the mounts of our units that are mounted at boot, in parse_unit's form."""
    found: dict[str, dict[str, str]] = {}
    for path in glob.glob(f"{UNITS}/remote-fs.target.wants/*.mount"):
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as stream:
                found.update((plain(point), unit) for point, unit in parse_unit(stream.read()).items())
        except OSError:  # another user's, or just removed
            continue
    return found


def list_mount(point: str) -> Callable[[], dict[str, Any] | None]:
    """Return a function that lists a mount's top directory: count and digest of its names, None if it cannot."""

    def look() -> dict[str, Any] | None:
        try:
            return listing_of(os.listdir(point))
        except OSError:
            return None

    return look


def touch_mount(point: str) -> Callable[[], dict[str, str]]:
    """Return a function that looks into a mount and returns its state: ok, stale or unreadable, and the error."""

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


def where_they_lead(paths: Iterable[str]) -> dict[str, str]:
    """Return {path: the path without symbolic links}. Paths through a hanging mount are missing."""
    return call_apart({path: functools.partial(os.path.realpath, path) for path in paths}, MOUNT_TIMEOUT)


def needs(wanted: Iterable[str], ours: Iterable[str], at_boot: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return {mount point: WANTED, AT_BOOT or OPTIONAL} for all that should be mounted."""
    found = {}
    for point, entry in at_boot.items():
        local = not REMOTE.match(entry["type"])
        found[point] = OPTIONAL if local and "nofail" in entry["options"].split(",") else AT_BOOT
    return {**found, **dict.fromkeys([*ours, *wanted], WANTED)}


def read_mounts(wanted: list[str]) -> list[dict[str, Any]]:
    """Return the remote mounts, those of /etc/fstab and of our units, and the wanted ones.

    Each: point, type, source, state, error, needed; for our units' mounts that answer, also the listing of their top
    directory. state: ok, stale, unreadable, hangs or missing (should be mounted, but is not).
    needed: wanted, boot, optional or "" (see WANTED and the constants after it).
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        mounted = parse_mountinfo(stream.read())
    try:
        with open("/etc/fstab", encoding="utf-8", errors="surrogateescape") as stream:
            at_boot = parse_fstab(stream.read())
    except OSError:
        at_boot = {}
    ours = read_units()
    needed = needs(map(plain, wanted), ours, at_boot)
    # the kernel mounts on a symbolic link's target, and knows only that path
    led = where_they_lead(point for point in needed if point not in mounted)
    needed = {led[point] if led.get(point) in mounted else point: why for point, why in needed.items()}
    watched = {
        point: mount
        for point, mount in mounted.items()
        if needed.get(point) == WANTED or (REMOTE.match(mount["type"]) and not PRIVATE.match(mount["type"]))
    }
    states = call_apart({point: touch_mount(point) for point in watched}, MOUNT_TIMEOUT)
    hangs = {"state": "hangs", "error": f"no answer within {MOUNT_TIMEOUT:.0f} s"}
    missing = {"state": "missing", "error": ""}
    answering = [point for point in ours if states.get(point, hangs)["state"] == "ok"]
    listings = call_apart({point: list_mount(point) for point in answering}, MOUNT_TIMEOUT)
    found = []
    for point, mount in watched.items():
        # the kernel says little or nothing about a FUSE mount's program
        named = ours.get(point, {"type": "mount-s3"} if mount["source"] == "mountpoint-s3" else {})
        one = {"point": point, "type": mount["type"], "source": mount["source"], **named, **states.get(point, hangs)}
        listing = {"listing": listings[point]} if listings.get(point) else {}
        found.append({**one, "needed": needed.get(point, NOBODYS), **listing})
    for point, why in needed.items():
        if point not in mounted:
            entry = ours.get(point) or at_boot.get(point) or {"type": "", "source": ""}
            named = {"type": entry["type"], "source": entry["source"]}
            found.append({"point": point, **named, **missing, "needed": why})
    return found


def below(path: str, point: str) -> bool:
    """Return whether a path is a mount point or below it."""
    return path == point or path.startswith(point.rstrip("/") + "/")


def dead_mount(path: str, mounts: list[dict[str, Any]]) -> str:
    """Return the dead mount that a path leads to, directly or through a symbolic link, "" if there is none."""
    dead = [str(mount["point"]) for mount in mounts if mount["state"] in ("hangs", "stale")]
    path = plain(path)
    if not dead or not path.startswith("/"):  # a bare program name is not a path
        return ""
    if not any(below(path, point) for point in dead):
        path = where_they_lead([path]).get(path, dead[0])  # a path that leads through no dead mount does not hang
    return next((point for point in dead if below(path, point)), "")


def existing_parent(path: str) -> str:
    """Return the path, or the nearest directory above it that exists."""
    while path != "/" and not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def space(path: str) -> dict[str, Any]:
    """Return path, total_bytes, free_bytes and free_inodes (None if the file system does not count inodes)."""
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
