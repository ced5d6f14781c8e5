# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Query a container engine for facts about a job's image, as the run's user sees it."""

from __future__ import annotations

import glob
import grp
import os
import pwd
import re
import shlex
import shutil
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._facts.commands import CommandOutput

TIMEOUT = 10.0  # seconds; a newly started engine needs one
# Fields of `info`: the image directory, and whether the engine can enforce a memory limit.
INFO = {
    "docker": "{{.DockerRootDir}}|{{.MemoryLimit}}",
    "podman": "{{.Store.GraphRoot}}|{{.Host.CgroupManager}} {{.Host.CgroupControllers}}",
}
MISSING = re.compile(r"no such image|image not known|no such object", re.IGNORECASE)
# Programs that docker needs to give containers access to GPUs, and the directories in which podman looks for devices.
HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
ENGINE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # the PATH of systemd services


class ImageQuery:
    """Queries for an engine's image and disk, started on creation."""

    def __init__(self, engine: str, image: str) -> None:
        self.deadline = time.monotonic() + TIMEOUT
        self.engine = engine
        self.image = Command(add_group(engine, [engine, "image", "inspect", "--format", "{{.Id}} {{.Size}}", image]))
        self.root = Command(add_group(engine, [engine, "info", "--format", INFO[engine]]))

    def result(self) -> dict[str, Any]:
        """Return id ("": missing), size and free (bytes, None: unknown), root, toolkit, error ("": none).

        memory_limit: whether --memory is enforced, None if unknown.
        """
        image_id, size, error = parse_image(self.image.output(self.deadline))
        info = self.root.output(self.deadline)
        if info.code != 0 and self.engine == "podman":  # before 3.3, podman does not report controllers
            argv = [self.engine, "info", "--format", "{{.Store.GraphRoot}}"]
            info = Command(add_group(self.engine, argv)).output(self.deadline)
        root, limit = parse_info(self.engine, info.text if info.code == 0 else "", os.geteuid() == 0)
        return {
            "id": image_id,
            "size": size,
            "root": root,
            "free": free_bytes(root) if root.startswith("/") else None,
            "toolkit": has_toolkit(self.engine),
            "memory_limit": limit,
            "error": error,
        }


def add_group(name: str, argv: list[str]) -> list[str]:
    """Return a command that runs with a group this user joined after logging in, because a run's unit also has that
    group.
    """
    try:
        group = grp.getgrnam(name)
    except KeyError:
        return argv
    is_late_member = group.gr_gid not in os.getgroups() and pwd.getpwuid(os.geteuid()).pw_name in group.gr_mem
    return ["sg", name, "-c", shlex.join(argv)] if is_late_member else argv


def parse_image(output: CommandOutput) -> tuple[str, int | None, str]:
    """Return the id in hex, the size in bytes and the error from the output of `image inspect`."""
    if output.hangs:
        return "", None, f"no reply within {TIMEOUT:.0f} s"
    text = " ".join(output.text.split())
    match = re.search(r"(?:^| )(?:sha256:)?([0-9a-f]{64}) ([0-9]+)$", text)  # warnings may come first
    if output.code == 0 and match:
        return match[1], int(match[2]), ""
    if output.code and MISSING.search(text):
        return "", None, ""
    return "", None, text[-300:] or "no output"


def parse_info(engine: str, text: str, is_root: bool) -> tuple[str, bool | None]:
    """Return the image directory, and whether --memory is enforced, from the output of `info` in our format.

    A rootless podman can enforce it only through the user's systemd, and does not report if it cannot.
    """
    directory, divider, limits = next((line for line in text.splitlines() if line.startswith("/")), "").partition("|")
    if not divider:
        return directory.strip(), None
    if engine == "docker":
        return directory, limits.strip() == "true"
    manager, _space, controllers = limits.partition(" ")
    return directory, "memory" in controllers.strip("[] ").split() and (is_root or manager == "systemd")


def free_bytes(directory: str) -> int | None:
    """Return the free bytes on the disk of a directory or of its nearest accessible parent, or None if there is
    none.
    """
    while directory != "/":
        try:
            return shutil.disk_usage(directory).free
        except OSError:
            directory = os.path.dirname(directory)
    return None


def has_toolkit(engine: str) -> bool:
    """Return whether the engine can give a container access to NVIDIA GPUs, judging by the files that it looks for."""
    if engine == "docker":
        return any(shutil.which(name, path=ENGINE_PATH) for name in HOOKS)
    for directory in CDI_DIRECTORIES:
        for path in glob.glob(os.path.join(directory, "*")):
            try:
                with open(path, encoding="utf-8", errors="replace") as stream:
                    if re.search(r"""["']?kind["']?: *["']?nvidia\.com/gpu\b""", stream.read(4096)):
                        return True
            except OSError:
                continue
    return False
