# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings that make a node unfit for Slurm jobs, and the actions that follow. Pure functions."""

from __future__ import annotations

import collections
import re

from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import (
    MACHINE,
    GpuError,
    describe_error,
    normalize_pci,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, Mapping, Sequence

    Data = Dict[str, Any]

PREFIX = "muster: "  # prefix of the reason for a node that the health check drains
MAX_REASON = 200  # number of characters; squeue and sinfo cut longer reasons
MIN_FREE_BYTES = 1 << 30
MIN_FREE_INODES = 1000
SMI_PROBLEMS = {
    "hangs": "nvidia-smi is not responding",
    "mismatch": "the NVIDIA driver and its library have different versions: reboot the node",
    "no-driver": "the NVIDIA driver is not loaded",
    "gpu-lost": "nvidia-smi has lost a GPU: reboot the node",
}

# A reason not to give a node to jobs. id: that of the preflight check. text: a sentence. subject: what distinguishes it
# from others with the same id, without values that change from check to check.
NodeFinding = collections.namedtuple("NodeFinding", "id text subject")
# The decision about the node. action: drain, explain (replace our own reason), resume, or "". drained_for: keys of the
# findings to record. accepted: whether jobs may run despite the findings.
Decision = collections.namedtuple("Decision", "action reason drained_for accepted")


def find_problems(readings: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[NodeFinding]:
    """Return the findings of a node, the most specific ones first.

    Args:
        readings: the result of health_readings.read_node.
        baseline: the result of update_baseline: the hardware that the node once had.
    """
    return [
        *run_findings(readings["runs"]),
        *gpu_findings(readings),
        *fabric_findings(readings, baseline),
        *mount_findings(readings["mounts"]),
        *disk_findings(readings["disks"]),
    ]


def run_findings(runs: Iterable[Mapping[str, str]]) -> Iterator[NodeFinding]:
    """Yield muster runs that were started without Slurm and would share the node with Slurm jobs."""
    for run in runs:
        text = f"run {run['run_id']}, owned by {run['owner']}, was started without Slurm and is active"
        yield NodeFinding("busy", text, run["run_id"])


def gpu_findings(readings: Mapping[str, Any]) -> Iterator[NodeFinding]:
    """Yield missing and broken GPUs, and a broken driver."""
    missing = readings["missing_gpus"]
    if missing:
        yield NodeFinding("gpu-missing", f"no device {', '.join(missing)}", " ".join(missing))
    if readings["smi"] in SMI_PROBLEMS:
        yield NodeFinding("gpu-driver", SMI_PROBLEMS[readings["smi"]], readings["smi"])
    names = {normalize_pci(gpu["pci"]): f"GPU {gpu['index']}" for gpu in readings["gpus"] if gpu["pci"]}
    for fields in readings["kernel_errors"]:
        if fields["level"] == MACHINE:
            error = GpuError(*(fields[name] for name in GpuError._fields))
            text = describe_error(error, names.get(error.pci, ""))
            yield NodeFinding("gpu-xid", text, f"{error.kind} {error.code} {error.pci} {fields['time']:.0f}")
    for gpu in readings["gpus"]:
        if (gpu["rows"] or {}).get("failure"):
            text = f"GPU {gpu['index']} has no spare memory rows: have it replaced"
            yield NodeFinding("gpu-memory-rows", text, gpu["uuid"])


def fabric_findings(readings: Mapping[str, Any], baseline: Mapping[str, Any]) -> Iterator[NodeFinding]:
    """Yield RDMA ports and NVLinks that the node once had and no longer has."""
    active = {port["name"] for port in readings["ports"] if port["state"] == "ACTIVE"}
    for name in baseline["ports"]:
        if name not in active:
            yield NodeFinding("rdma-port-down", f"RDMA port {name} is no longer active", name)
    links = {str(gpu["index"]): len(gpu["active"]) for gpu in readings["nvlinks"]}
    for index, count in baseline["nvlinks"].items():
        if index in links and links[index] < count:
            text = f"GPU {index} has {links[index]} active NVLinks, down from {count}"
            yield NodeFinding("nvlink-down", text, index)


def mount_findings(mounts: Mapping[str, str]) -> Iterator[NodeFinding]:
    """Yield mounts that are not working; mounts: error by mount point, or "" if the mount works."""
    for path, error in mounts.items():
        if error:
            yield NodeFinding("mount-dead", f"{path}: {error}", path)


def disk_findings(disks: Mapping[str, Mapping[str, int]]) -> Iterator[NodeFinding]:
    """Yield disks that a job could not write to; disks: free bytes and inodes by path."""
    for path, disk in disks.items():
        if disk["bytes"] < MIN_FREE_BYTES:
            yield NodeFinding("disk-full", f"less than 1 GiB is free on {path}", path)
        elif disk["inodes"] < MIN_FREE_INODES:
            yield NodeFinding(
                "disk-full", f"hardly any more files can be created on {path}: too few inodes are free", path
            )


def update_baseline(baseline: Any, readings: Mapping[str, Any]) -> Data:
    """Return the RDMA ports that have ever been active, and the maximum number of NVLinks each GPU has had.

    baseline: that of the last check, from a file; anything else counts as none.
    """
    known = baseline if isinstance(baseline, dict) else {}
    known_ports, known_links = known.get("ports"), known.get("nvlinks")
    ports = {name for name in known_ports if isinstance(name, str)} if isinstance(known_ports, list) else set()
    links = {
        str(index): count
        for index, count in (known_links.items() if isinstance(known_links, dict) else ())
        if isinstance(count, int)
    }
    ports |= {port["name"] for port in readings["ports"] if port["state"] == "ACTIVE"}
    for gpu in readings["nvlinks"]:
        links[str(gpu["index"])] = max(links.get(str(gpu["index"]), 0), len(gpu["active"]))
    return {"ports": sorted(ports), "nvlinks": links}


def reason_for(findings: Sequence[NodeFinding]) -> str:
    """Return the reason for draining a node: its first finding, and the number of other findings."""
    first, more = findings[0], len(findings) - 1
    text = f"{PREFIX}{first.id}: {first.text}"
    suffix = f" (and {more} more)" if more else ""
    plain = re.sub(r"[^\x20-\x7e]+", " ", text)  # the reason is displayed on terminals
    return plain[: MAX_REASON - len(suffix)].rstrip() + suffix


def keys_of(findings: Iterable[NodeFinding]) -> list[str]:
    """Return keys that identify findings across checks."""
    return sorted(f"{finding.id} {finding.subject}" for finding in findings)


def parse_node(text: str) -> dict[str, str]:
    """Return the node's State and Reason from the output of `scontrol show node --oneliner`; "" if unknown."""
    state = re.search(r"\bState=(\S+)", text)
    reason = re.search(r"\bReason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?(?: [A-Z]\w*=.*)?$", text.strip())
    return {"state": state.group(1) if state else "", "reason": reason.group(1) if reason else ""}


def decide(node: Mapping[str, str], findings: Sequence[NodeFinding], drained_for: Sequence[str]) -> Decision:
    """Decide what to do with a node.

    A node that someone else drained is left alone. A node that someone resumed despite its findings is drained again
    only for other findings.

    Args:
        node: the result of parse_node.
        findings: those of this check.
        drained_for: keys of the findings that the node was drained for; emptied once it has none.
    """
    is_drained = "DRAIN" in node["state"].upper()
    is_ours = is_drained and node["reason"].startswith(PREFIX)
    if not findings:
        return Decision("resume" if is_ours else "", "", [], True)
    reason, keys = reason_for(findings), keys_of(findings)
    if is_ours:
        return Decision("" if node["reason"] == reason else "explain", reason, keys, False)
    if is_drained:
        return Decision("", reason, list(drained_for), False)
    if set(keys) <= set(drained_for):
        return Decision("", reason, list(drained_for), True)
    return Decision("drain", reason, keys, False)
