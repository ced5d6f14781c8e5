# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of mounts, disk space, limits, clocks and left-over environment variables. Pure. Private."""

from __future__ import annotations

import posixpath
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._facts.storage import AT_BOOT, OPTIONAL, WANTED, below
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import listing_differences
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, gibibytes, listed
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, merge, warning

NO_RUN_BYTES = 256 * 2**20  # with less, a run cannot even keep its logs
FEW_INODES = 1000
CLOCK_LIMIT = (
    10.0  # seconds; torchrun's c10d counts a node as dead after 15 s without a heartbeat, by each node's clock
)
# Arguments that tell Hugging Face's Trainer, Lightning and many scripts where to write.
WRITTEN = re.compile(
    r"--?(output|out|save|default[-_]root|results?)([-_](dir|directory|folder|path|root))?"
    r"|--?((checkpoints?|ckpt|log|logging)[-_](dir|directory|folder|root)|model[-_]folder)",
    re.IGNORECASE,
)
PURPOSES = {"runs": "logs and checkpoints of runs", "work": "the working directory", "temporary": "temporary files"}


def job_paths(case: Case, name: str) -> list[str]:
    """All known paths that a job uses: directories, script, interpreter, argument values."""
    facts = case.facts[name]
    directory = facts["working_directory"]["path"]
    values = [argument.partition("=")[2] or argument for argument in case.job.args]
    volumes = [volume.partition(":")[0] for volume in case.job.container_mounts]
    named = [facts["runs_directory"], facts["interpreter"] or "", (facts["script"] or {}).get("path", "")]
    given = [posixpath.join(facts["home"], path[2:]) if path.startswith("~/") else path for path in values + volumes]
    return [posixpath.normpath(posixpath.join(directory, path)) for path in ["", *named, *given]]


def mount_severity(case: Case, name: str, mount: Mapping[str, Any]) -> str:
    """The severity of a broken mount: "error", "warning", or "" if the job does not use it.

    A mount that hangs always counts: programs that list all mounts would hang, too. A mount that the run's user may
    not read counts only if the job uses it: it may be another user's, or root's backup.
    """
    state, needed = mount["state"], mount["needed"]
    if state not in ("missing", "unreadable"):
        return "error"
    if needed == WANTED or any(below(path, mount["point"]) for path in job_paths(case, name)):
        return "error"
    if needed == AT_BOOT and state == "missing":
        return "error"
    return "warning" if needed in (AT_BOOT, OPTIONAL) else ""


def check_mounts(case: Case) -> list[Finding]:
    """All mounts must answer, those that the job needs must be readable, and expected ones must be mounted."""
    findings: dict[tuple[str, str, str], tuple[list[str], dict[str, Any]]] = {}
    for node, storage in case.part("storage"):
        for mount in storage["mounts"]:
            if mount["state"] != "ok":
                severity = mount_severity(case, node.name, mount)
                findings.setdefault((mount["point"], mount["state"], severity), ([], mount))[0].append(node.name)
    made = []
    for (point, state, severity), (nodes, mount) in findings.items():
        if not severity:
            continue
        make = error if severity == "error" else warning
        source = f" ({mount['type']} of {mount['source']})" if mount["source"] else ""
        if state == "missing":
            made.append(
                make(
                    "mount-missing",
                    nodes,
                    f"nothing is mounted at {point}{source}",
                    "the data at the same path on each node",
                    f"mount it (mount {point}), and check why it was not mounted: journalctl -b",
                )
            )
        elif state == "unreadable":
            made.append(
                make(
                    "mount-unreadable",
                    nodes,
                    f"{point}{source} cannot be read by {case.facts[nodes[0]]['user']}: {mount['error']}",
                    "a mount the run's user can read",
                    "mount it with allow_other (FUSE) or with this user's uid, or correct the permissions of the share",
                )
            )
        else:
            made.append(
                make(
                    "mount-stale",
                    nodes,
                    f"{point}{source} does not answer: {mount['error']}",
                    "a mount whose server responds: a job that accesses it would hang",
                    f"umount -l {point}, then mount it again, and check that its server is up",
                )
            )
    return made


def check_listings(case: Case) -> list[Finding]:
    """Mounts made by site.yml must have the same contents on all nodes."""
    listings = {
        node.name: {mount["point"]: mount["listing"] for mount in storage["mounts"] if "listing" in mount}
        for node, storage in case.part("storage")
    }
    return [
        warning(
            "mount-differs",
            sorted({name for name, points in listings.items() if line.partition(": ")[0] in points}),
            line,
            "the same data on each node: ranks that see different files wait for each other forever",
            "check that all mount the same source and that nothing is writing there now",
        )
        for line in listing_differences(listings)
    ]


def check_written(case: Case) -> list[Finding]:
    """A run must not write to mount-s3, which cannot rename, change or append to files."""
    findings = []
    for node, storage in case.part("storage"):
        points = [mount["point"] for mount in storage["mounts"] if mount["type"] == "mount-s3"]
        facts = case.facts[node.name]
        directory, home = facts["working_directory"]["path"], facts["home"]
        places = {"launch_node_directory": facts["runs_directory"], "launch_working_directory": directory}
        for option, value in written_options(case.job.args).items():
            value = posixpath.join(home, value[2:]) if value.startswith("~/") else value
            places[option] = posixpath.normpath(posixpath.join(directory, value))
        for name, path in places.items():
            for point in points:
                if below(path, point):
                    findings.append(
                        warning(
                            "mount-no-rename",
                            [node.name],
                            f"{name} is {path}, on {point}, which mount-s3 mounts: files there cannot be renamed, "
                            "changed "
                            "or appended to, so writing logs and checkpoints fails",
                            "a directory on a local disk or network drive for everything a run writes",
                            f"read data from {point} but write elsewhere: set {name} to a directory on a local disk "
                            "and copy what you want to keep (aws s3 sync); s3fs and CIFS can rename, slowly",
                        )
                    )
    return merge(findings)


def written_options(arguments: Sequence[str]) -> dict[str, str]:
    """A job's arguments that name a directory to write to, with that directory."""
    found = {}
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if WRITTEN.fullmatch(name):
            value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
            if value and not value.startswith("-"):
                found[name] = value
    return found


def check_space(case: Case) -> list[Finding]:
    """Disk space for logs and checkpoints, and shared memory for data loaders and NCCL."""
    full: dict[tuple[str, str], list[tuple[str, str]]] = {}
    small: list[tuple[str, float]] = []
    for node, storage in case.part("storage"):
        seen = set()
        for purpose in PURPOSES:
            disk = storage["disks"].get(purpose)
            if not disk or disk["device"] in seen:
                continue
            seen.add(disk["device"])
            free, inodes = disk["free_bytes"], disk["free_inodes"]
            if free < NO_RUN_BYTES or (inodes is not None and inodes < FEW_INODES):
                severity = "error"
            elif free < case.thresholds.disk_gib * 2**30 and purpose != "temporary":
                severity = "warning"
            else:
                continue
            left = gibibytes(free) if inodes is None or inodes >= FEW_INODES else f"{inodes} inodes"
            full.setdefault((severity, purpose), []).append((node.name, f"{left} free at {disk['path']}"))
        shm = storage["shm"]
        if shm is None or shm["total_bytes"] < case.thresholds.shm_gib * 2**30:
            small.append((node.name, shm["total_bytes"] if shm else 0.0))
    findings = []
    for (severity, purpose), places in full.items():
        make = error if severity == "error" else warning
        findings.append(
            make(
                "disk-full",
                [name for name, _found in places],
                f"{listed(dict.fromkeys(found for _name, found in places))}, where {PURPOSES[purpose]} lie",
                f"{case.thresholds.disk_gib:g} GiB free",
                "free up space, or choose another location (launch_node_directory, launch_working_directory)",
            )
        )
    if small:
        findings.append(
            warning(
                "shm-small",
                [name for name, _size in small],
                f"/dev/shm has {gibibytes(min(size for _name, size in small))}",
                f"{case.thresholds.shm_gib:g} GiB or more: data loaders and NCCL exchange data through it",
                "mount -o remount,size=50% /dev/shm; in a container start it with --ipc=host or --shm-size",
            )
        )
    return findings


def check_limits(case: Case) -> list[Finding]:
    """A run's limits for locked memory and open files."""
    locked: dict[str, int] = {}
    rdma: dict[str, int] = {}
    files: dict[str, int] = {}
    for node, system in case.part("system"):
        memlock, nofile = system["limits"]["memlock"], system["limits"]["nofile"]
        if memlock >= 0:
            if system["rdma"]:
                rdma[node.name] = memlock
            elif memlock < case.thresholds.memlock_mib * 2**20:
                locked[node.name] = memlock
        if 0 <= nofile < case.thresholds.nofile:
            files[node.name] = nofile
    findings = []
    for make, nodes, needed in (
        (error, rdma, "no limit: otherwise RDMA memory registration fails with 'Cannot allocate memory'"),
        (warning, locked, f"{case.thresholds.memlock_mib:g} MiB, the kernel's own default, or no limit"),
    ):
        if nodes:
            findings.append(
                make(
                    "memlock-small",
                    nodes,
                    f"a run can lock only {min(nodes.values()) // 1024} KiB of memory (according to "
                    f"{case.facts[next(iter(nodes))]['system']['limits']['from']})",
                    needed,
                    "set DefaultLimitMEMLOCK=infinity in /etc/systemd/system.conf.d and memlock in "
                    "/etc/security/limits.d; in a container start it with --ulimit memlock=-1",
                )
            )
    if files:
        findings.append(
            warning(
                "nofile-small",
                files,
                f"a run can open only {min(files.values())} files",
                f"{case.thresholds.nofile} or more: each data loader worker needs some",
                "set DefaultLimitNOFILE in /etc/systemd/system.conf.d and nofile in /etc/security/limits.d",
            )
        )
    return findings


def clock_offset(clock: Mapping[str, float]) -> tuple[float, float]:
    """The range, in seconds, of how far a node's clock is ahead of the controller's.

    The node read its clock at the start and the end of the call; both are between the controller's before and after.
    """
    return clock["end"] - clock["after"], clock["start"] - clock["before"]


def check_clocks(case: Case) -> list[Finding]:
    """The nodes' clocks must agree. Only a difference beyond the uncertainty from the call's duration counts."""
    offsets = {node.name: clock_offset(clock) for node, clock in case.part("clock") if "before" in clock}
    if len(offsets) < 2:
        return []
    middles = [(low + high) / 2 for low, high in offsets.values()]
    usual = statistics.median_low([*middles, 0.0]) if len(middles) == 2 else statistics.median_low(middles)
    findings = []
    for name, (low, high) in offsets.items():
        skew = low - usual if low > usual else min(0.0, high - usual)
        if abs(skew) > case.thresholds.clock_skew:
            make = error if abs(skew) > CLOCK_LIMIT else warning
            findings.append(
                make(
                    "clock-skew",
                    [name],
                    f"its clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the others",
                    f"clocks that agree within {case.thresholds.clock_skew:g} s: leases, logs and S3 depend on them",
                    "enable time synchronisation: timedatectl set-ntp true",
                )
            )
    return findings


def check_left_over(case: Case) -> list[Finding]:
    """Left-over variables of an earlier setup: they affect jobs started by hand, not muster's clean environment."""
    findings = []
    for node, system in case.part("system"):
        ranks = [one for one in system["left_over"] if not one["name"].endswith("_SOCKET_IFNAME")]
        if ranks:
            findings.append(
                warning(
                    "environment-left-over",
                    [node.name],
                    listed(dict.fromkeys(f"{one['name']}={one['value']} is set in {one['where']}" for one in ranks), 4),
                    "these variables set only by launchers: torchrun, DeepSpeed and Lightning would use them",
                    f"remove the line{'s' if len(ranks) > 1 else ''}",
                )
            )
        interfaces = set(case.facts[node.name]["interfaces"])
        wrong = {
            f"{one['name']}={one['value']} is set in {one['where']}"
            for one in system["left_over"]
            if one["name"].endswith("_SOCKET_IFNAME") and not names_interface(one["name"], one["value"], interfaces)
        }
        if wrong:
            findings.append(
                warning(
                    "interface-variable",
                    [node.name],
                    f"{listed(sorted(wrong), 3)}, but there is no such interface",
                    f"the name of an interface: {listed(sorted(interfaces - {'lo'}))}",
                    "remove the line; a run gets the interface of its node_address",
                )
            )
    return findings


def names_interface(variable: str, value: str, interfaces: set[str]) -> bool:
    """Whether a value names an existing interface, as its reader interprets it.

    NCCL takes prefixes, `=` for exact names, `^` to exclude (src/misc/socket.cc); gloo and TensorPipe take only exact
    names, and each must exist.
    """
    if not variable.startswith("NCCL"):
        return all(name in interfaces for name in value.split(","))
    others, whole = value.startswith("^"), value.lstrip("^").startswith("=")
    names = [name for name in value.lstrip("^=").split(",") if name]
    hits = [any(one == name if whole else one.startswith(name) for one in interfaces) for name in names]
    return others or any(hits)


def check_system(case: Case) -> list[Finding]:
    """All checks of this file."""
    return [
        *check_mounts(case),
        *check_listings(case),
        *check_written(case),
        *check_space(case),
        *check_limits(case),
        *check_clocks(case),
        *check_left_over(case),
    ]
