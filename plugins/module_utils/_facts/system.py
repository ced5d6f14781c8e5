# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's kernel, memory, limits and leftover environment variables."""

from __future__ import annotations

import glob
import os
import re
import resource
import shutil
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

# Variables that configure a launcher or library; none holds a secret.
LAUNCHER_VARIABLES = (
    r"RANK|WORLD_SIZE|NODE_RANK|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_RANK|ROLE_WORLD_SIZE|"
    r"MASTER_ADDR|MASTER_PORT|PET_[A-Z_]+|TORCHELASTIC_[A-Z_]+|(?:NCCL|GLOO|TP)_SOCKET_IFNAME"
)
ASSIGNMENT = re.compile(rf"\s*(?:export\s+|declare\s+-x\s+)?({LAUNCHER_VARIABLES})=(\S*)")
# Files that set the environment for SSH logins and systemd sessions. ~ is the home directory of the run's user.
ENVIRONMENT_FILES = (
    "/etc/environment",
    "/etc/profile",
    "/etc/profile.d/*.sh",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "~/.profile",
    "~/.bash_profile",
    "~/.bashrc",
    "~/.pam_environment",
    "~/.ssh/environment",
)
UNLIMITED = -1
SYSTEMCTL_TIMEOUT = 3.0  # seconds


def read_memory() -> dict[str, int]:
    """Return total_bytes and available_bytes of memory."""
    values = {}
    with open("/proc/meminfo", encoding="ascii") as stream:
        for line in stream:
            name, _colon, value = line.partition(":")
            values[name] = int(value.split()[0]) * 1024
    return {"total_bytes": values["MemTotal"], "available_bytes": values.get("MemAvailable", values["MemFree"])}


def operating_system() -> str:
    """Return the distribution's name and version, or "" if unknown."""
    try:
        with open("/etc/os-release", encoding="utf-8") as stream:
            match = re.search(r'^PRETTY_NAME="?([^"\n]*)', stream.read(), re.MULTILINE)
    except OSError:
        return ""
    return match[1] if match else ""


def leftover_variables(home: str) -> list[dict[str, str]]:
    """Return the variables of LAUNCHER_VARIABLES that are set on this node: name, value, where (file, or session)."""
    variables = [
        {"name": name, "value": value, "where": "the environment of a login"}
        for name, value in sorted(os.environ.items())
        if re.fullmatch(LAUNCHER_VARIABLES, name)
    ]
    for pattern in ENVIRONMENT_FILES:
        if pattern.startswith("~"):
            if not home:
                continue
            pattern = home + pattern[1:]
        for path in sorted(glob.glob(pattern)):
            try:
                with open(path, encoding="utf-8", errors="replace") as stream:
                    text = stream.read(262144)
            except OSError:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                match = ASSIGNMENT.match(line)
                if match:
                    value = match[2].strip("\"'")
                    variables.append({"name": match[1], "value": value, "where": f"{path} line {number}"})
    return variables


def parse_limit(text: str) -> int:
    """Parse a limit as printed by systemctl."""
    return UNLIMITED if text == "infinity" else int(text)


class LimitsQuery:
    """A query for a run's limits, started on creation."""

    def __init__(self, has_systemd: bool, raises_limits: bool) -> None:
        self.raised_by_unit = has_systemd and raises_limits
        self.command = None
        if has_systemd and not raises_limits and shutil.which("systemctl"):
            names = "DefaultLimitNOFILESoft,DefaultLimitMEMLOCKSoft"
            self.command = Command(["systemctl", "show", f"--property={names}"])
            self.deadline = time.monotonic() + SYSTEMCTL_TIMEOUT

    def result(self) -> dict[str, Any]:
        """Return a run's nofile and memlock (bytes), -1: unlimited, and from: what sets them."""
        if self.raised_by_unit:  # the run's unit raises these limits
            return {"nofile": 1048576, "memlock": UNLIMITED, "from": "the run's unit"}
        if self.command:
            values = dict(re.findall(r"^DefaultLimit(\w+)Soft=(\w+)$", self.command.output(self.deadline).text, re.M))
            if {"NOFILE", "MEMLOCK"} <= set(values):
                return {
                    "nofile": parse_limit(values["NOFILE"]),
                    "memlock": parse_limit(values["MEMLOCK"]),
                    "from": "systemd's defaults",
                }
        return {
            "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            "from": "the login",
        }


def read_rdma() -> list[str]:
    """Return the names of the machine's RDMA devices (InfiniBand, RoCE, EFA)."""
    return sorted(os.path.basename(path) for path in glob.glob("/sys/class/infiniband/*"))
