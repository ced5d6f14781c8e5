# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The contract between a job and its checkpoints: where they are, whether they survive the loss of a node, and which
one is resumed.

Pure functions over the nodes' facts. What nodes report about their files is untrusted: types are checked here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import is_checkpoint
from ansible_collections.muster.training.plugins.module_utils._checkpoints.choice import choose_checkpoint
from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint, Choice
from ansible_collections.muster.training.plugins.module_utils._facts.storage import is_below
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.save_interval import (
    best_interval,
    format_duration,
    seconds_to_failure,
)

RESUME_OPTION = re.compile(
    r"--?(resume([-_].*)?|.*ckpt[-_]path|load([-_](checkpoint|dir|from))?|restore([-_].*)?|continue[-_]from.*)", re.I
)
KEEP_OPTION = re.compile(r"--?(.*\.)?(save_total_limit|save-total-limit|save_top_k)(?:=([0-9]{1,4}))?")
OFF = ("", "false", "none", "no", "0")
USUALLY_KEPT = 3  # number of checkpoints on disk at the same time, as in rehearse_checkpoints_kept
NO_CHOICE: Choice = {"checkpoint": None, "missing": {}, "torn": []}
SHARED, BUCKET, COPIED, LOCAL, UNKNOWN = "shared", "bucket", "copied", "local", ""


@dataclass(frozen=True)
class Contract:
    """The facts known about a job's checkpoints before it starts."""

    path: str = ""  # directory or URL; "" if unknown
    source: str = ""  # where the job specifies the directory
    # what keeps the checkpoints if a node is lost: SHARED, BUCKET, COPIED, or LOCAL if nothing does
    kind: str = UNKNOWN
    where: str = ""  # the same, as human-readable text
    local_nodes: tuple[str, ...] = ()  # nodes that keep the checkpoints on their own disks
    choice: Choice = field(default_factory=lambda: NO_CHOICE)
    free_bytes: Mapping[str, int] = field(default_factory=dict)  # free space on each node
    existing: int = 0  # checkpoints that already take up space

    @property
    def survives(self) -> bool:
        """Return whether the checkpoints survive the loss of a node."""
        return self.kind in (SHARED, BUCKET, COPIED)


def listing_of(facts: Mapping[str, Any]) -> list[Checkpoint]:
    """Return the valid entries in a node's listing."""
    listing = facts.get("listing")
    return [entry for entry in listing if is_checkpoint(entry)] if isinstance(listing, list) else []


def is_copied_to_bucket(facts: Mapping[str, Any]) -> bool:
    """Return whether the service installed by the checkpoints role copies this directory to S3."""
    directory = (facts.get("service") or {}).get("directory")
    if not directory:
        return False
    path = str(facts["path"])
    if not posixpath.isabs(directory):  # below the run directory, which exists only once the run starts
        return path == posixpath.join("{run_directory}", directory)
    return is_below(path, directory)


def read_contract(facts: Mapping[str, Mapping[str, Any]]) -> Contract:
    """Return the contract. facts: the `checkpoints` part of the facts of each node that has it, by node name, in rank
    order.
    """
    if not facts:
        return Contract()
    first = next(iter(facts.values()))
    path, source = str(first["path"]), str(first["source"])
    if "://" in path:
        return Contract(path, source, BUCKET, path.partition("://")[0])
    listings = {name: listing_of(node) for name, node in facts.items()}
    choice = choose_checkpoint(listings)
    locations = {name: node["location"] for name, node in facts.items() if node.get("location")}
    kind, where, local = describe_survival(facts, locations, listings)
    free = {name: location["disk"]["free_bytes"] for name, location in locations.items()}
    existing = max((len(listing) for listing in listings.values()), default=0)
    return Contract(path, source, kind, where, tuple(local), choice, free, existing)


def describe_survival(
    facts: Mapping[str, Mapping[str, Any]],
    locations: Mapping[str, Mapping[str, Any]],
    listings: Mapping[str, Sequence[Checkpoint]],
) -> tuple[str, str, list[str]]:
    """Return what preserves the checkpoints if a node is lost, a description of it for users, and the nodes that lack
    it.
    """
    if facts and all(map(is_copied_to_bucket, facts.values())):
        bucket = next(iter(facts.values()))["service"].get("bucket", "")
        return BUCKET, f"copied to s3://{bucket}", []
    local = [name for name, location in locations.items() if not location["remote"]]
    if not locations:
        return UNKNOWN, "", []
    if not local:
        sources = {(location["mount"]["type"], location["mount"]["source"]) for location in locations.values()}
        kind, source = next(iter(sources))
        return (SHARED, f"{kind}, {source}", []) if len(sources) == 1 else (LOCAL, "a different mount on each node", [])
    complete = [name for name, listing in listings.items() if any(entry["complete"] for entry in listing)]
    machines = {node.get("machine") for node in facts.values()}
    if len(machines) > 1 and len(complete) == len(facts):
        return COPIED, "local disks, the same checkpoint on each node", local
    return LOCAL, "local disk", local


def resumes(job: Job) -> bool:
    """Return whether the job will load a checkpoint, either through launch_resume_args or through its own arguments."""
    if job.resume_args:
        return True
    for index, argument in enumerate(job.args):
        name, equals, value = argument.partition("=")
        if RESUME_OPTION.fullmatch(name):
            following = next(iter(job.args[index + 1 : index + 2]), "")
            value = value if equals else "" if following.startswith("-") else following
            return value.lower() not in OFF or (not equals and not value)
    return False


def named_by_job(job: Job, checkpoint: Checkpoint) -> bool:
    """Return whether an argument names exactly this checkpoint."""
    values = [argument.partition("=")[2] or argument for argument in job.args]
    path = checkpoint["path"]
    return any(
        value.rstrip("/") == path or (value and path.endswith("/" + value.strip("./")))
        for value in values
        if "/" in value
    )


def kept_checkpoints(job: Job) -> int:
    """Return how many checkpoints the job keeps on disk: its own limit, otherwise the usual number."""
    for index, argument in enumerate(job.args):
        match = KEEP_OPTION.fullmatch(argument)
        if match:
            value = match[3] or next(iter(job.args[index + 1 : index + 2]), "")
            if value.isdigit() and 1 <= int(value) <= 1000:
                return int(value)
    return USUALLY_KEPT


def describe_step(checkpoint: Checkpoint) -> str:
    """Return a checkpoint's step for users, or its name if it has no step."""
    return f"{checkpoint['unit']} {checkpoint['step']}" if checkpoint["step"] is not None else checkpoint["name"]


def format_size(size: float) -> str:
    """Format a number of bytes in decimal units, as is usual for disks."""
    unit, divisor = ("GB", 1e9) if size >= 1e8 else ("MB", 1e6) if size >= 1e5 else ("kB", 1e3)
    return f"{size / divisor:.1f} {unit}"


def saving_seconds(contract: Contract, reported: float | None) -> float | None:
    """Return how long saving takes: the value that the last run reported, otherwise an estimate from the times of the
    newest files.
    """
    checkpoint = contract.choice["checkpoint"]
    if reported is not None or checkpoint is None:
        return reported
    return checkpoint["seconds"] if 0.5 <= checkpoint["seconds"] <= 6 * 3600 else None


def describe_contract(contract: Contract, world_size: int, reported: float | None = None) -> str:
    """Return one line for the plan, or "" if the job's checkpoint location is unknown.

    reported: seconds that saving took in the last run.
    """
    if not contract.path:
        return ""
    parts = [contract.path + (f" ({contract.where})" if contract.where else "")]
    if contract.kind:
        parts.append("survives the loss of a node" if contract.survives else "lost with the node")
    checkpoint = contract.choice["checkpoint"]
    if checkpoint is not None:
        saved_by = f", {checkpoint['world_size']} ranks" if checkpoint["world_size"] else ""
        parts.append(
            f"newest complete: {describe_step(checkpoint)} ({checkpoint['format']}{saved_by}, "
            f"{format_size(checkpoint['size'])})"
        )
    seconds = saving_seconds(contract, reported)
    if seconds is not None:
        interval = best_interval(seconds, seconds_to_failure(world_size))
        parts.append(
            f"saving takes {format_duration(seconds)}: saving every {format_duration(interval)} loses the least time"
        )
    return "; ".join(parts)


def checkpoint_to_resume(contract: Contract, table_size: int) -> str:
    """Return the path of the checkpoint for MUSTER_CHECKPOINT, or "" if the nodes have none that this run can load."""
    checkpoint = contract.choice["checkpoint"]
    if checkpoint is None or contract.choice["missing"]:
        return ""
    if checkpoint["fixed_world"] and checkpoint["world_size"] != table_size:
        return ""
    return checkpoint["path"]
