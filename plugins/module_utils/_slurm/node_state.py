# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node state that the role slurm compares with the desired state. Needs root."""

from __future__ import annotations

import glob
import os
import platform
import pwd
import re
import subprocess

from ansible_collections.muster.training.plugins.module_utils._apt.state import missing_packages
from ansible_collections.muster.training.plugins.module_utils._files import file_state
from ansible_collections.muster.training.plugins.module_utils._files.text import read
from ansible_collections.muster.training.plugins.module_utils._slurm import munge_key
from ansible_collections.muster.training.plugins.module_utils._ssh.login_user import login_user

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

UNITS = ("munge", "slurmctld", "slurmd", "slurmdbd", "mariadb")
# The driver's own description of each GPU that nvidia-smi lists; reading it does not require starting nvidia-smi.
NVIDIA_DESCRIPTIONS = "/proc/driver/nvidia/gpus/*/information"
CPUS = "/sys/devices/system/cpu"
PAM_SSHD, PAM_MARK = "/etc/pam.d/sshd", "# muster: logins of Slurm"


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """Return the state of each unit, by name without its suffix, from the output of `systemctl show`."""
    units = {}
    for block in text.split("\n\n"):
        fields = dict(line.partition("=")[::2] for line in block.splitlines())
        name = fields.get("Id", "").partition(".service")[0]
        if name:
            units[name] = {"active": fields.get("ActiveState", ""), "enabled": fields.get("UnitFileState", "")}
    return units


def read_units() -> dict[str, dict[str, str]]:
    """Return the state of the role's units."""
    argv = ["systemctl", "show", "--property=Id,ActiveState,UnitFileState", *(f"{name}.service" for name in UNITS)]
    try:
        return parse_units(subprocess.run(argv, capture_output=True, text=True, check=False).stdout)
    except OSError:  # no systemd
        return {}


def read_version() -> dict[str, str]:
    """Return the version of the installed slurmd, or else the version that apt would install; "" if there is none."""
    installed = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", "slurmd"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    if installed[:1] == ["installed"]:
        return {"installed": upstream_version(installed[1]), "available": ""}
    policy = subprocess.run(["apt-cache", "policy", "slurmd"], capture_output=True, text=True, check=False).stdout
    candidate = re.search(r"Candidate:\s*(\d\S*)", policy)
    return {"installed": "", "available": upstream_version(candidate.group(1)) if candidate else ""}


def upstream_version(version: str) -> str:
    """Return the upstream part of a Debian version: "22.05.8" from "22.05.8-4+deb12u3"."""
    match = re.match(r"(?:\d+:)?([0-9.]+)", version)
    return match.group(1) if match else ""


def read_cpus(directory: str = CPUS) -> dict[str, int]:
    """Return sockets, cores per socket and threads per core of the online CPUs.

    A node whose sockets or cores differ is described as single cores, one per CPU.
    """
    total, sockets, cores = 0, set(), set()
    for path in glob.glob(f"{directory}/cpu[0-9]*/topology"):
        socket, core = (read(f"{path}/{name}").strip() for name in ("physical_package_id", "core_id"))
        total += 1
        sockets.add(socket)
        cores.add((socket, core))
    if not total or len(cores) % len(sockets) or total % len(cores):
        return {"sockets": 1, "cores": total or os.cpu_count() or 1, "threads": 1}
    return {"sockets": len(sockets), "cores": len(cores) // len(sockets), "threads": total // len(cores)}


def read_memory() -> int:
    """Return the memory in MiB."""
    match = re.search(r"MemTotal:\s*(\d+)", read("/proc/meminfo"))
    return int(match.group(1)) >> 10 if match else 0


def read_gpus(pattern: str, descriptions: str = NVIDIA_DESCRIPTIONS) -> Data:
    """Return the device files of the GPUs, in the order of their numbers, and the model of the first."""

    def number(path: str) -> list[int]:
        return [int(digits) for digits in re.findall(r"\d+", path)]

    models = [
        match.group(1).strip()
        for path in sorted(glob.glob(descriptions))
        for match in [re.search(r"(?m)^Model:\s*(.*)$", read(path))]
        if match
    ]
    return {"files": sorted(glob.glob(pattern), key=number), "model": models[0] if models else ""}


def read_cgroups() -> str:
    """Return v2 if Slurm can use the node's cgroups, or else hybrid, which means that this process is in several
    hierarchies.
    """
    lines = read("/proc/1/cgroup").splitlines()
    return "v2" if len(lines) == 1 and lines[0].startswith("0::") else "hybrid"


def state(options: Data) -> Data:
    """Return the node's complete state.

    Args:
        options: packages (names), files (paths), gpu_files (a glob pattern), verification_file (path).
    """
    user = pwd.getpwnam(login_user())
    return {
        "hostname": platform.node().partition(".")[0],
        "systemd": os.path.isdir("/run/systemd/system"),
        "debian": os.path.exists("/usr/bin/dpkg-query"),
        "user": {"name": user.pw_name, "uid": user.pw_uid, "gid": user.pw_gid},
        "missing": missing_packages(options["packages"]) if os.path.exists("/usr/bin/dpkg-query") else [],
        "version": read_version() if os.path.exists("/usr/bin/dpkg-query") else {"installed": "", "available": ""},
        "cpus": read_cpus(),
        "memory": read_memory(),
        "gpus": read_gpus(options["gpu_files"]),
        "cgroups": read_cgroups(),
        "units": read_units(),
        "munge_key": munge_key.fingerprint(),
        "files": file_state.read_files(options["files"]),
        "pam": file_state.read_files([PAM_SSHD], PAM_MARK).get(PAM_SSHD, {}).get("line", ""),
        "verification": read(options["verification_file"]).strip(),
    }
