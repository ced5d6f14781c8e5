# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the state that decides whether a node is fit for Slurm jobs. Needs root."""

from __future__ import annotations

import functools
import glob
import os
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import call_in_children
from ansible_collections.muster.training.plugins.module_utils._facts.gpus import (
    GPU_FIELDS,
    SMI_TIMEOUT,
    diagnose,
    find_smi,
    start_smi_query,
)
from ansible_collections.muster.training.plugins.module_utils._facts.health import HealthQuery, KernelLogQuery
from ansible_collections.muster.training.plugins.module_utils._facts.slurm_jobs import ROOT, STEP
from ansible_collections.muster.training.plugins.module_utils._files.text import read
from ansible_collections.muster.training.plugins.module_utils._health.host_health import read_ports
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import UNITS, parse_unit
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import (
    find_supervisors,
    owner_of,
    parent_of,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import MOUNT_CHECK_TIMEOUT

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator

    Data = Dict[str, Any]

DISKS = ("/", "/tmp", "/var/lib/slurm/slurmd")
MAX_ANCESTORS = 64


def read_node(gpu_files: Iterable[str], quick: bool) -> Data:
    """Return the readings of this node.

    Args:
        gpu_files: the device files that it should have.
        quick: leave out nvidia-smi, which takes seconds on some nodes; the kernel log has its errors as well.
    """
    gpus = {"smi": "", "gpus": [], "nvlinks": []} if quick else read_gpus()
    return {
        "missing_gpus": [path for path in gpu_files if not os.path.exists(path)],
        "kernel_errors": read_kernel_errors(),
        "ports": read_ports(),
        "mounts": read_mounts(),
        "disks": read_disks(DISKS),
        "runs": read_runs(),
        **gpus,
    }


def read_gpus() -> Data:
    """Return the state of nvidia-smi, or "" if it is missing, and the health of the GPUs that it reports."""
    smi = find_smi()
    if smi is None:
        return {"smi": "", "gpus": [], "nvlinks": []}
    query, health = start_smi_query(smi, "gpu", GPU_FIELDS), HealthQuery()
    state, _message = diagnose(query.output(time.monotonic() + SMI_TIMEOUT))
    readings = health.result()
    return {"smi": state, "gpus": readings["gpus"], "nvlinks": readings["nvlinks"]}


def read_kernel_errors() -> list[Data]:
    """Return the GPU errors in the kernel log since boot."""
    errors: list[Data] = KernelLogQuery().result(time.monotonic() + SMI_TIMEOUT)["errors"]
    return errors


def read_mounts(units: str = UNITS) -> dict[str, str]:
    """Return the error for each mount of the role data by mount point; "" if the mount works."""
    points = [
        point
        for path in sorted(glob.glob(f"{glob.escape(units)}/*.mount") + glob.glob(f"{glob.escape(units)}/*.service"))
        for point in parse_unit(read(path))
    ]
    results = call_in_children({point: functools.partial(error_of, point) for point in points}, MOUNT_CHECK_TIMEOUT)
    return {point: results.get(point, "the mount is not responding") for point in points}


def error_of(point: str) -> str:
    """Return why a mount point cannot be used, or "" if it can."""
    try:
        os.listdir(point)
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.path.ismount(point) else "nothing is mounted there"


def read_disks(paths: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the free bytes and inodes of each disk that contains these paths, by the first path on it."""
    disks: dict[str, dict[str, int]] = {}
    devices = set()
    for path in paths:
        try:
            device, status = os.stat(path).st_dev, os.statvfs(path)
        except OSError:
            continue
        if device not in devices:
            devices.add(device)
            # file systems without a fixed number of inodes report 0
            inodes = status.f_ffree if status.f_files else 1 << 62
            disks[path] = {"bytes": status.f_bavail * status.f_frsize, "inodes": inodes}
    return disks


def read_runs() -> list[dict[str, str]]:
    """Return the name and owner of the muster runs on this machine that Slurm did not start."""
    runs = {
        supervisor["run_id"]: supervisor["owner"]
        for supervisor in find_supervisors()
        if not is_in_step(supervisor["pid"])
    }
    return [{"run_id": run_id, "owner": owner} for run_id, owner in sorted(runs.items())]


def is_in_step(pid: int) -> bool:
    """Return whether a process descends from the process that root started for a Slurm step."""
    return any(owner_of(ancestor) == ROOT and STEP.match(read_title(ancestor)) for ancestor in ancestors_of(pid))


def read_title(pid: int) -> bytes:
    """Return the beginning of a process's command line, or b"" if it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read(64)
    except OSError:
        return b""


def ancestors_of(pid: int) -> Iterator[int]:
    """Yield the ancestors of a process, its parent first."""
    for _generation in range(MAX_ANCESTORS):
        pid = parent_of(pid)
        if pid <= 1:
            return
        yield pid
