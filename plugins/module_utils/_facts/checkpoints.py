# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine where a job's checkpoints are, whether they outlive this node, and which of them are complete."""

from __future__ import annotations

import functools
import os

from ansible_collections.muster.training.plugins.module_utils._checkpoints.detect import URL, detect
from ansible_collections.muster.training.plugins.module_utils._facts.commands import call_in_children
from ansible_collections.muster.training.plugins.module_utils._facts.storage import (
    PRIVATE,
    REMOTE,
    disk_space,
    existing_parent,
    is_below,
    parse_mountinfo,
)
from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import CHECKPOINT_READ_TIMEOUT

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

MAX_LISTED = 4  # number of newest checkpoints that a node describes
# Unit and settings of the role checkpoints, whose program directory is s3_client_directory.
SERVICE = "/etc/systemd/system/multi-user.target.wants/muster_checkpoints.service"
SERVICE_SETTINGS = "/usr/local/lib/muster/s3/checkpoints.json"
IN_RUN = ("{run_directory}", "{run_id}")  # placeholders in launch_checkpoints that give each run a directory of its own


def name_directory(configured: str, arguments: Sequence[str], directory: str, home: str) -> tuple[str, str]:
    """Return the absolute path or URL of a job's checkpoint directory, and where it is named, or ("", "")."""
    path, source = (configured, "launch_checkpoints") if configured else detect(arguments, directory)
    if not path or URL.match(path):
        return path, source
    if path.startswith("~/"):
        path = os.path.join(home, path[2:])
    if path.startswith(IN_RUN[0]):
        return os.path.normpath(path), source
    return os.path.normpath(os.path.join(directory, path)), source


def mount_of(path: str, mounts: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the mount point, type and source of the mount that contains an existing path without links."""
    points = [point for point in mounts if is_below(path, point)]
    point = max(points, key=len, default="/")
    mount = mounts.get(point, {"type": "", "source": ""})
    return {"point": point, "type": mount["type"], "source": mount["source"]}


def read_location(path: str) -> dict[str, Any]:
    """Return a path's mount and free space; the path need not exist yet."""
    parent = os.path.realpath(existing_parent(path))
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        mount = mount_of(parent, parse_mountinfo(stream.read()))
    remote = bool(REMOTE.match(mount["type"])) and not PRIVATE.match(mount["type"])
    return {"exists": os.path.isdir(path), "mount": mount, "remote": remote, "disk": disk_space(parent)}


def read_service() -> dict[str, Any] | None:
    """Return the bucket and directory of the service that copies checkpoints to S3, or None if it is not enabled
    here.
    """
    settings = read_json(SERVICE_SETTINGS) if os.path.exists(SERVICE) else None
    if not isinstance(settings, dict):
        return None
    return {name: settings[name] for name in ("bucket", "directory", "nodes") if isinstance(settings.get(name), str)}


def read_checkpoints(path: str, source: str) -> dict[str, Any]:
    """Return the facts about a checkpoint directory. Accesses it only in child processes, since its disk may hang."""
    from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints

    facts: dict[str, Any] = {"path": path, "source": source, "listing": [], "location": None, "service": read_service()}
    if URL.match(path) or any(name in path for name in IN_RUN):
        return facts
    calls: dict[str, Callable[[], Any]] = {
        "location": functools.partial(read_location, path),
        "listing": functools.partial(find_checkpoints, path, MAX_LISTED),
    }
    facts.update(call_in_children(calls, CHECKPOINT_READ_TIMEOUT))
    return facts
