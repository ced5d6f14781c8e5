# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's mounts and disk space.

A mount whose server is unavailable blocks every access forever, so a child process tries each mount first, and paths
below a dead mount are not touched.
"""

from __future__ import annotations

import functools
import glob
import os
import re

from ansible_collections.muster.training.plugins.module_utils._facts.commands import call_in_children
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import (
    UNITS,
    parse_unit,
    summarize_names,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

MOUNT_TIMEOUT = 3.0  # seconds; a live server answers within milliseconds
# File systems that depend on another machine or on a process, so they can fail while mounted.
REMOTE = re.compile(
    r"(fuse(\..*)?|nfs4?|cifs|smb3|ceph|lustre|9p|virtiofs|glusterfs|afs|beegfs|gpfs|ocfs2|gfs2|wekafs)\Z"
)
# FUSE mounts created by desktops and container engines, which are private to one user and irrelevant to training.
PRIVATE = re.compile(r"fuse\.(gvfsd-fuse|portal|lxcfs|fuse-overlayfs|snapfuse)\Z")


# How the job needs a mount, according to the node's configuration.
REQUESTED = "requested"  # requested by the caller or by one of our units
AT_BOOT = "boot"  # mounted at boot by /etc/fstab
OPTIONAL = "optional"  # a local disk in /etc/fstab that the machine can boot without (nofail)
UNREQUESTED = ""  # mounted, but not configured


def normalize(path: str) -> str:
    """Return a path in the form the kernel uses for mount points: /mnt/data for /mnt//data/; expands ~."""
    return re.sub("^//+", "/", os.path.normpath(os.path.expanduser(path)))


def unescape(field: str) -> str:
    """Unescape a field of mountinfo or fstab, where a space is written \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def parse_mountinfo(text: str) -> dict[str, dict[str, str]]:
    """Parse /proc/self/mountinfo: {mount point: {"type", "source", "options"}}; the last mount on a point counts."""
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
    """Parse /etc/fstab: {mount point: {"type", "source", "options"}} of mounts at boot, without swap.

    Normalizes /mnt/data/ to /mnt/data.
    """
    entries = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4 and not line.lstrip().startswith("#") and fields[1].startswith("/"):
            options = fields[3].split(",")
            if "noauto" not in options and fields[2] != "swap":
                point = normalize(unescape(fields[1]))
                entries[point] = {"type": fields[2], "source": unescape(fields[0]), "options": fields[3]}
    return entries


def read_units() -> dict[str, dict[str, str]]:
    """Return the mounts in our units that are mounted at boot, in parse_unit's format."""
    units: dict[str, dict[str, str]] = {}
    for path in glob.glob(f"{UNITS}/remote-fs.target.wants/*.mount"):
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as stream:
                units.update((normalize(point), unit) for point, unit in parse_unit(stream.read()).items())
        except OSError:  # the mount belongs to another user, or was just removed
            continue
    return units


def list_mount(point: str) -> Callable[[], dict[str, Any] | None]:
    """Return a function that lists a mount's top directory: count and digest of its names, or None on error."""

    def list_names() -> dict[str, Any] | None:
        try:
            return summarize_names(os.listdir(point))
        except OSError:
            return None

    return list_names


def touch_mount(point: str) -> Callable[[], dict[str, Any]]:
    """Return a function that reads a mount and returns its state (ok, stale or unreadable) and the error.

    If it is ok, also returns its free_bytes.
    """

    def touch() -> dict[str, Any]:
        try:
            space = os.statvfs(point)
        except PermissionError:  # another user's FUSE mount without allow_other
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
        return {"state": "ok", "error": "", "free_bytes": space.f_bavail * space.f_frsize}

    return touch


def resolve_links(paths: Iterable[str]) -> dict[str, str]:
    """Return {path: the path without symbolic links}, omitting paths that pass through a hanging mount."""
    return call_in_children({path: functools.partial(os.path.realpath, path) for path in paths}, MOUNT_TIMEOUT)


def mount_needs(
    requested: Iterable[str], units: Iterable[str], at_boot: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Return {mount point: REQUESTED, AT_BOOT or OPTIONAL} for all mounts that should exist."""
    need_by_point = {}
    for point, entry in at_boot.items():
        local = not REMOTE.match(entry["type"])
        need_by_point[point] = OPTIONAL if local and "nofail" in entry["options"].split(",") else AT_BOOT
    return {**need_by_point, **dict.fromkeys([*units, *requested], REQUESTED)}


def read_mounts(requested: list[str]) -> list[dict[str, Any]]:
    """Return the remote mounts, those of /etc/fstab and of our units, and the requested ones.

    Each: point, type, source, state, error, needed; free_bytes if it responds; for our units' mounts that respond,
    also the listing of their top directory. state: ok, stale, unreadable, hangs or missing (should be mounted).
    requirement: requested, boot, optional or "" (see REQUESTED and the constants after it).
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        mounted = parse_mountinfo(stream.read())
    try:
        with open("/etc/fstab", encoding="utf-8", errors="surrogateescape") as stream:
            at_boot = parse_fstab(stream.read())
    except OSError:
        at_boot = {}
    units = read_units()
    need_by_point = mount_needs(map(normalize, requested), units, at_boot)
    # the kernel mounts on a symbolic link's target and reports only that path
    targets = resolve_links(point for point in need_by_point if point not in mounted)
    need_by_point = {
        targets[point] if targets.get(point) in mounted else point: need for point, need in need_by_point.items()
    }
    watched = {
        point: mount
        for point, mount in mounted.items()
        if need_by_point.get(point) == REQUESTED or (REMOTE.match(mount["type"]) and not PRIVATE.match(mount["type"]))
    }
    states = call_in_children({point: touch_mount(point) for point in watched}, MOUNT_TIMEOUT)
    hangs = {"state": "hangs", "error": f"no reply within {MOUNT_TIMEOUT:.0f} s"}
    missing = {"state": "missing", "error": ""}
    responding = [point for point in units if states.get(point, hangs)["state"] == "ok"]
    listings = call_in_children({point: list_mount(point) for point in responding}, MOUNT_TIMEOUT)
    facts = []
    for point, mount in watched.items():
        # the kernel reports little or nothing about the program behind a FUSE mount
        description = units.get(point, {"type": "mount-s3"} if mount["source"] == "mountpoint-s3" else {})
        fact = {
            "point": point,
            "type": mount["type"],
            "source": mount["source"],
            **description,
            **states.get(point, hangs),
        }
        listing = {"listing": listings[point]} if listings.get(point) else {}
        facts.append({**fact, "requirement": need_by_point.get(point, UNREQUESTED), **listing})
    for point, need in need_by_point.items():
        if point not in mounted:
            entry = units.get(point) or at_boot.get(point) or {"type": "", "source": ""}
            description = {"type": entry["type"], "source": entry["source"]}
            facts.append({"point": point, **description, **missing, "requirement": need})
    return facts


def is_below(path: str, point: str) -> bool:
    """Return whether a path is a mount point or below it."""
    return path == point or path.startswith(point.rstrip("/") + "/")


def dead_mount(path: str, mounts: list[dict[str, Any]]) -> str:
    """Return the dead mount that a path leads to, directly or through a symbolic link, or ""."""
    dead = [str(mount["point"]) for mount in mounts if mount["state"] in ("hangs", "stale")]
    path = normalize(path)
    if not dead or not path.startswith("/"):  # a bare program name is not a path
        return ""
    if not any(is_below(path, point) for point in dead):
        path = resolve_links([path]).get(path, dead[0])  # resolving a path hangs only if it crosses a dead mount
    return next((point for point in dead if is_below(path, point)), "")


def existing_parent(path: str) -> str:
    """Return the path, or the nearest directory above it that exists."""
    while path != "/" and not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def disk_space(path: str) -> dict[str, Any]:
    """Return path, device, total_bytes, free_bytes and free_inodes (None if the file system does not count inodes)."""
    status = os.statvfs(path)
    return {
        "path": path,
        "device": os.stat(path).st_dev,
        "total_bytes": status.f_blocks * status.f_frsize,
        "free_bytes": status.f_bavail * status.f_frsize,
        "free_inodes": status.f_favail if status.f_files else None,
    }


def read_disks(paths: dict[str, str], mounts: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return {purpose: space} for {purpose: path}; omit paths on dead mounts."""
    disks = {}
    for purpose, path in paths.items():
        if not dead_mount(path, mounts):
            disks[purpose] = disk_space(existing_parent(path))
    return disks
