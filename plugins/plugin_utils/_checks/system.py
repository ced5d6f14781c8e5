# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check mounts, disk space, limits, clocks and leftover environment variables."""

from __future__ import annotations

import posixpath
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._facts.storage import (
    AT_BOOT,
    OPTIONAL,
    REQUESTED,
    is_below,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext, format_gib
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, merge, warning
from ansible_collections.muster.training.plugins.plugin_utils._cluster.mount_listings import listing_differences
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

MIN_FREE_BYTES = 256 * 2**20  # bytes; with less, a run cannot even write its logs
MIN_FREE_INODES = 1000
MAX_CLOCK_SKEW = (
    # seconds; torchrun's c10d considers a node dead after 15 s without a heartbeat, according to each node's clock
    10.0
)
# Arguments that tell Hugging Face's Trainer, Lightning and many scripts where to write.
OUTPUT_OPTION = re.compile(
    r"--?(output|out|save|default[-_]root|results?)([-_](dir|directory|folder|path|root))?"
    r"|--?((checkpoints?|ckpt|log|logging)[-_](dir|directory|folder|root)|model[-_]folder)",
    re.IGNORECASE,
)
PURPOSES = {"runs": "logs and checkpoints of runs", "work": "the working directory", "temporary": "temporary files"}


def job_paths(context: CheckContext, name: str) -> list[str]:
    """Return all known paths that a job uses: directories, the script, the interpreter and argument values."""
    facts = context.facts[name]
    directory = facts["working_directory"]["path"]
    values = [argument.partition("=")[2] or argument for argument in context.job.args]
    volumes = [volume.partition(":")[0] for volume in context.job.container_mounts]
    job_files = [facts["runs_directory"], facts["interpreter"] or "", (facts["script"] or {}).get("path", "")]
    argument_paths = [
        posixpath.join(facts["home"], path[2:]) if path.startswith("~/") else path for path in values + volumes
    ]
    return [posixpath.normpath(posixpath.join(directory, path)) for path in ["", *job_files, *argument_paths]]


def mount_severity(context: CheckContext, name: str, mount: Mapping[str, Any]) -> str:
    """Return a broken mount's severity: "error", "warning", or "" if the mount does not matter to the job.

    A mount that hangs always matters: programs that list all mounts would hang, too. A mount that the run's user may
    not read matters only if the job uses it: it may be another user's, or root's backup.
    """
    state, needed = mount["state"], mount["requirement"]
    if state not in ("missing", "unreadable"):
        return "error"
    if needed == REQUESTED or any(is_below(path, mount["point"]) for path in job_paths(context, name)):
        return "error"
    if needed == AT_BOOT and state == "missing":
        return "error"
    return "warning" if needed in (AT_BOOT, OPTIONAL) else ""


def check_mounts(context: CheckContext) -> list[Finding]:
    """Check that all mounts respond, that those needed by the job are readable, and that expected ones are mounted."""
    mounts_by_state: dict[tuple[str, str, str], tuple[list[str], dict[str, Any]]] = {}
    for node, storage in context.nodes_with("storage"):
        for mount in storage["mounts"]:
            if mount["state"] != "ok":
                severity = mount_severity(context, node.name, mount)
                mounts_by_state.setdefault((mount["point"], mount["state"], severity), ([], mount))[0].append(node.name)
    findings = []
    for (point, state, severity), (nodes, mount) in mounts_by_state.items():
        if not severity:
            continue
        make_finding = error if severity == "error" else warning
        source = f" ({mount['type']} of {mount['source']})" if mount["source"] else ""
        if state == "missing":
            findings.append(
                make_finding(
                    "mount-missing",
                    nodes,
                    problem=f"nothing is mounted at {point}{source}",
                    requirement="the data at the same path on each node",
                    remedy=f"run sudo systemctl start {point}; sudo journalctl -b shows why it was not mounted",
                )
            )
        elif state == "unreadable":
            findings.append(
                make_finding(
                    "mount-unreadable",
                    nodes,
                    problem=f"{point}{source} cannot be read by {context.facts[nodes[0]]['user']}: {mount['error']}",
                    requirement="a mount the run's user can read",
                    remedy="mount it with allow_other (FUSE) or with this user's uid, or correct the permissions of "
                    "the share",
                )
            )
        else:
            findings.append(
                make_finding(
                    "mount-stale",
                    nodes,
                    problem=f"{point}{source} is not responding: {mount['error']}",
                    requirement="a mount whose server responds: otherwise a job that accesses it would hang",
                    remedy=f"run sudo umount -l {point}, then mount it again, and check that its server is running",
                )
            )
    return findings


def check_listings(context: CheckContext) -> list[Finding]:
    """Check that mounts configured by site.yml have the same contents on all nodes."""
    listings = {
        node.name: {mount["point"]: mount["listing"] for mount in storage["mounts"] if "listing" in mount}
        for node, storage in context.nodes_with("storage")
    }
    return [
        warning(
            "mount-differs",
            sorted({name for name, points in listings.items() if line.partition(": ")[0] in points}),
            problem=line,
            requirement="the same data on each node: ranks that see different files wait for each other forever",
            remedy="check that all nodes mount the same source and that nothing is writing to it now",
        )
        for line in listing_differences(listings)
    ]


def check_output_paths(context: CheckContext) -> list[Finding]:
    """Check that a run does not write to mount-s3, which cannot rename, modify or append to files."""
    findings = []
    for node, storage in context.nodes_with("storage"):
        points = [mount["point"] for mount in storage["mounts"] if mount["type"] == "mount-s3"]
        facts = context.facts[node.name]
        directory, home = facts["working_directory"]["path"], facts["home"]
        output_paths = {"launch_node_directory": facts["runs_directory"], "launch_working_directory": directory}
        for option, value in output_options(context.job.args).items():
            value = posixpath.join(home, value[2:]) if value.startswith("~/") else value
            output_paths[option] = posixpath.normpath(posixpath.join(directory, value))
        for name, path in output_paths.items():
            for point in points:
                if is_below(path, point):
                    findings.append(
                        warning(
                            "mount-no-rename",
                            [node.name],
                            problem=f"{name} is {path}, on {point}, a mount-s3 mount: its files cannot be renamed, "
                            "changed or appended to, so writing logs and checkpoints fails",
                            requirement="a directory on a local disk or network drive for everything a run writes",
                            remedy=(
                                f"read data from {point}, but write elsewhere: set {name} to a directory on a local "
                                "disk and copy the results (aws s3 sync); s3fs and CIFS can rename files, but slowly"
                            ),
                        )
                    )
    return merge(findings)


def output_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the job's arguments that name an output directory, along with each directory."""
    options = {}
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if OUTPUT_OPTION.fullmatch(name):
            value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
            if value and not value.startswith("-"):
                options[name] = value
    return options


def check_space(context: CheckContext) -> list[Finding]:
    """Check that there is enough disk space for logs and checkpoints, and shared memory for data loaders and NCCL."""
    full: dict[tuple[str, str, bool], list[tuple[str, str]]] = {}
    small: list[tuple[str, float]] = []
    for node, storage in context.nodes_with("storage"):
        seen_devices = set()
        for purpose in PURPOSES:
            disk = storage["disks"].get(purpose)
            if not disk or disk["device"] in seen_devices:
                continue
            seen_devices.add(disk["device"])
            free, inodes = disk["free_bytes"], disk["free_inodes"]
            if free < MIN_FREE_BYTES or (inodes is not None and inodes < MIN_FREE_INODES):
                severity = "error"
            elif free < context.thresholds.disk_gib * 2**30 and purpose != "temporary":
                severity = "warning"
            else:
                continue
            no_inodes = inodes is not None and inodes < MIN_FREE_INODES
            free_text = f"{inodes} inodes" if no_inodes else format_gib(free)
            full.setdefault((severity, purpose, no_inodes), []).append(
                (node.name, f"{free_text} free at {disk['path']}")
            )
        shm = storage["shm"]
        if shm is None or shm["total_bytes"] < context.thresholds.shm_gib * 2**30:
            small.append((node.name, shm["total_bytes"] if shm else 0.0))
    findings = []
    for (severity, purpose, no_inodes), entries in full.items():
        make_finding = error if severity == "error" else warning
        requirement, action = f"{context.thresholds.disk_gib:g} GiB free", "free up space"
        if no_inodes:
            requirement = f"{MIN_FREE_INODES} inodes free: each file takes one, whatever its size"
            action = "remove a large number of files"
        findings.append(
            make_finding(
                "disk-full",
                [name for name, _text in entries],
                problem=f"{format_list(dict.fromkeys(text for _name, text in entries))}, where {PURPOSES[purpose]} are "
                "stored",
                requirement=requirement,
                remedy=f"{action}, or choose another location (launch_node_directory, launch_working_directory)",
            )
        )
    if small:
        findings.append(
            warning(
                "shm-small",
                [name for name, _size in small],
                problem=f"/dev/shm has {format_gib(min(size for _name, size in small))}",
                requirement=f"{context.thresholds.shm_gib:g} GiB or more: data loaders and NCCL exchange data through "
                "it",
                remedy="run sudo mount -o remount,size=50% /dev/shm; start containers with --ipc=host or --shm-size",
            )
        )
    return findings


def check_limits(context: CheckContext) -> list[Finding]:
    """Check the limits on locked memory and open files that apply to a run."""
    locked: dict[str, int] = {}
    rdma: dict[str, int] = {}
    files: dict[str, int] = {}
    for node, system in context.nodes_with("system"):
        memlock, nofile = system["limits"]["memlock"], system["limits"]["nofile"]
        if memlock >= 0:
            if system["rdma"]:
                rdma[node.name] = memlock
            elif memlock < context.thresholds.memlock_mib * 2**20:
                locked[node.name] = memlock
        if 0 <= nofile < context.thresholds.nofile:
            files[node.name] = nofile
    findings = []
    for make_finding, nodes, requirement in (
        (error, rdma, "no limit: otherwise RDMA memory registration fails with 'Cannot allocate memory'"),
        (warning, locked, f"{context.thresholds.memlock_mib:g} MiB, the kernel's own default, or no limit"),
    ):
        if nodes:
            findings.append(
                make_finding(
                    "memlock-small",
                    nodes,
                    problem=f"a run can lock only {min(nodes.values()) // 1024} KiB of memory (according to "
                    f"{context.facts[next(iter(nodes))]['system']['limits']['from']})",
                    requirement=requirement,
                    remedy=(
                        "run ansible-playbook site.yml --tags base_packages, which sets the limit to unlimited "
                        "(base_packages_memlock); start containers with --ulimit memlock=-1"
                    ),
                )
            )
    if files:
        findings.append(
            warning(
                "nofile-small",
                files,
                problem=f"a run can open only {min(files.values())} files",
                requirement=f"{context.thresholds.nofile} or more: each data loader worker needs several",
                remedy="set DefaultLimitNOFILE in /etc/systemd/system.conf.d and nofile in /etc/security/limits.d",
            )
        )
    return findings


def clock_offset(clock: Mapping[str, float]) -> tuple[float, float]:
    """Return the minimum and maximum number of seconds by which a node's clock may be ahead of the controller's.

    The node read its clock at the start and the end of the call; both are between the controller's before and after.
    """
    return clock["end"] - clock["after"], clock["start"] - clock["before"]


def check_clocks(context: CheckContext) -> list[Finding]:
    """Check that the nodes' clocks agree. Differences that may be due to the duration of the call are ignored."""
    offsets = {node.name: clock_offset(clock) for node, clock in context.nodes_with("clock") if "before" in clock}
    if len(offsets) < 2:
        return []
    midpoints = [(low + high) / 2 for low, high in offsets.values()]
    usual = statistics.median_low([*midpoints, 0.0]) if len(midpoints) == 2 else statistics.median_low(midpoints)
    findings = []
    for name, (low, high) in offsets.items():
        skew = low - usual if low > usual else min(0.0, high - usual)
        if abs(skew) > context.thresholds.clock_skew:
            make_finding = error if abs(skew) > MAX_CLOCK_SKEW else warning
            findings.append(
                make_finding(
                    "clock-skew",
                    [name],
                    problem=f"its clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the others",
                    requirement=f"clocks that agree within {context.thresholds.clock_skew:g} s: leases, logs and S3 "
                    "depend on them",
                    remedy="enable time synchronization: sudo timedatectl set-ntp true",
                )
            )
    return findings


def check_leftover_variables(context: CheckContext) -> list[Finding]:
    """Report variables from an earlier setup, which affect manually started jobs but not muster's clean environment."""
    findings = []
    for node, system in context.nodes_with("system"):
        ranks = [variable for variable in system["left_over"] if not variable["name"].endswith("_SOCKET_IFNAME")]
        if ranks:
            findings.append(
                warning(
                    "environment-left-over",
                    [node.name],
                    problem=format_list(
                        dict.fromkeys(
                            f"{variable['name']}={variable['value']} is set in {variable['where']}"
                            for variable in ranks
                        ),
                        4,
                    ),
                    requirement="variables that only launchers set: torchrun, DeepSpeed and Lightning would use these "
                    "values",
                    remedy=f"remove the line{'s' if len(ranks) > 1 else ''}",
                )
            )
        interfaces = set(context.facts[node.name]["interfaces"])
        wrong = {
            f"{variable['name']}={variable['value']} is set in {variable['where']}"
            for variable in system["left_over"]
            if variable["name"].endswith("_SOCKET_IFNAME")
            and not matches_interface(variable["name"], variable["value"], interfaces)
        }
        if wrong:
            findings.append(
                warning(
                    "interface-variable",
                    [node.name],
                    problem=f"{format_list(sorted(wrong), 3)}, but the node has no such interface",
                    requirement=f"the name of an interface: {format_list(sorted(interfaces - {'lo'}))}",
                    remedy="remove the line; a run uses the interface of its node_address",
                )
            )
    return findings


def matches_interface(variable: str, value: str, interfaces: set[str]) -> bool:
    """Return whether a value matches an existing interface, as interpreted by the library that reads the value.

    NCCL takes prefixes, `=` for exact names, `^` to exclude (src/misc/socket.cc); gloo and TensorPipe take only exact
    names, and each must exist.
    """
    if not variable.startswith("NCCL"):
        return all(name in interfaces for name in value.split(","))
    is_exclusion, is_exact = value.startswith("^"), value.lstrip("^").startswith("=")
    names = [name for name in value.lstrip("^=").split(",") if name]
    matches = [
        any(interface == name if is_exact else interface.startswith(name) for interface in interfaces) for name in names
    ]
    return is_exclusion or any(matches)


def check_system(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [
        *check_mounts(context),
        *check_listings(context),
        *check_output_paths(context),
        *check_space(context),
        *check_limits(context),
        *check_clocks(context),
        *check_leftover_variables(context),
    ]
