# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container engine's facts about a job's image, as seen by the run's user. Private to this collection.

Runs on the node, standard library only, Python >= 3.8.
"""

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

    from ansible_collections.muster.training.plugins.module_utils._facts.commands import Output

TIMEOUT = 10.0  # seconds; a newly started engine takes one
# Fields of `info`: where images are kept, and whether the engine can enforce a memory limit.
INFO = {
    "docker": "{{.DockerRootDir}}|{{.MemoryLimit}}",
    "podman": "{{.Store.GraphRoot}}|{{.Host.CgroupManager}} {{.Host.CgroupControllers}}",
}
MISSING = re.compile(r"no such image|image not known|no such object", re.IGNORECASE)
# What docker looks for to give a container GPUs, and the directories in which podman looks.
HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
ENGINE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # the PATH of systemd services


class ImageQuestion:
    """The queries of an engine's image and its disk, started on creation."""

    def __init__(self, engine: str, image: str) -> None:
        self.deadline = time.monotonic() + TIMEOUT
        self.engine = engine
        self.image = Command(in_group(engine, [engine, "image", "inspect", "--format", "{{.Id}} {{.Size}}", image]))
        self.root = Command(in_group(engine, [engine, "info", "--format", INFO[engine]]))

    def answer(self) -> dict[str, Any]:
        """Return id ("": missing), size and free (bytes, None: unknown), root, toolkit, error ("": none).

        memory_limit: whether --memory is enforced, None if unknown.
        """
        identity, size, error = parse_image(self.image.output(self.deadline))
        info = self.root.output(self.deadline)
        if info.code != 0 and self.engine == "podman":  # before 3.3, podman does not report controllers
            words = [self.engine, "info", "--format", "{{.Store.GraphRoot}}"]
            info = Command(in_group(self.engine, words)).output(self.deadline)
        place, limit = parse_info(self.engine, info.text if info.code == 0 else "", os.geteuid() == 0)
        return {
            "id": identity,
            "size": size,
            "root": place,
            "free": free_bytes(place) if place.startswith("/") else None,
            "toolkit": has_toolkit(self.engine),
            "memory_limit": limit,
            "error": error,
        }


def in_group(name: str, words: list[str]) -> list[str]:
    """Return a command with a group that this user got after the login, since a run's unit has it, too."""
    try:
        group = grp.getgrnam(name)
    except KeyError:
        return words
    late = group.gr_gid not in os.getgroups() and pwd.getpwuid(os.geteuid()).pw_name in group.gr_mem
    return ["sg", name, "-c", shlex.join(words)] if late else words


def parse_image(output: Output) -> tuple[str, int | None, str]:
    """Return the id in hex, the size in bytes, and why they are unknown, from the output of `image inspect`."""
    if output.hangs:
        return "", None, "it does not answer"
    said = " ".join(output.text.split())
    found = re.search(r"(?:^| )(?:sha256:)?([0-9a-f]{64}) ([0-9]+)$", said)  # warnings may come first
    if output.code == 0 and found:
        return found[1], int(found[2]), ""
    if output.code and MISSING.search(said):
        return "", None, ""
    return "", None, said[-300:] or "it says nothing"


def parse_info(engine: str, text: str, root: bool) -> tuple[str, bool | None]:
    """Return where images are kept, and whether --memory is enforced, from the output of `info` in our format.

    A rootless podman can enforce it only through the user's systemd, and is silent if it does not.
    """
    place, divider, told = next((line for line in text.splitlines() if line.startswith("/")), "").partition("|")
    if not divider:
        return place.strip(), None
    if engine == "docker":
        return place, told.strip() == "true"
    manager, _space, controllers = told.partition(" ")
    return place, "memory" in controllers.strip("[] ").split() and (root or manager == "systemd")


def free_bytes(directory: str) -> int | None:
    """Return the free bytes on a directory's disk; if root's directory is hidden from us, ask its parents."""
    while directory != "/":
        try:
            return shutil.disk_usage(directory).free
        except OSError:
            directory = os.path.dirname(directory)
    return None


def has_toolkit(engine: str) -> bool:
    """Whether the engine can give a container NVIDIA GPUs, judging by the files it looks for itself."""
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
