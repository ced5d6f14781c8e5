# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of a job's checkpoints: whether they survive the loss of a node, fit on the disk, and can be loaded."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable

from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._plan.checkpoint_contract import (
    LOCAL,
    Contract,
    describe_step,
    format_size,
    kept_checkpoints,
    named_by_job,
    read_contract,
    resumes,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

MAX_NAMED = 4  # number of parts that a finding names
CONVERT_ZERO = (
    "python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state "
    "--input_folder {path} --output_folder {path}_universal"
)
# How to convert shards for a different number of ranks, by checkpoint format.
DEEPSPEED_REMEDY = (
    'convert it on {node} with {command}, then set "checkpoint": {{"load_universal": true}} in the DeepSpeed '
    "configuration and load {zero}_universal; or use {world_size} processes again"
)
LOCAL_REMEDY = (
    "use {world_size} processes again; for the next run, save with torch.distributed.checkpoint "
    "(FSDP: SHARDED_STATE_DICT), which any number of ranks can load"
)


def contract_of(context: CheckContext) -> Contract:
    """Return the job's checkpoint contract."""
    return read_contract({node.name: facts for node, facts in context.nodes_with("checkpoints")})


def is_one_machine(context: CheckContext) -> bool:
    """Return whether all nodes are the same machine, in which case no node can be lost alone."""
    machines = {context.facts[node.name].get("machine") for node in context.nodes}
    return context.all_loopback or (len(machines) == 1 and None not in machines and "" not in machines)


def check_survival(context: CheckContext, contract: Contract) -> list[Finding]:
    """Check that the checkpoints survive the loss of a node."""
    if contract.kind != LOCAL or context.table.nnodes < 2 or is_one_machine(context):
        return []
    if not contract.local_nodes:
        problem = f"{contract.path} ({contract.source}) is a different mount on each node"
    else:
        problem = (
            f"{contract.path} ({contract.source}) is on the node's own disk: if the node is lost, so are the "
            "checkpoints"
        )
    nodes = contract.local_nodes or tuple(node.name for node in context.nodes)
    remedy = (
        "save to a directory on a shared mount (docs/data.md shows how to set one up), or have them copied to a "
        "bucket: ansible-playbook checkpoints.yml -e checkpoints_bucket=BUCKET -e "
        f"checkpoints_directory={shlex.quote(contract.path)}"
    )
    requirement = "checkpoints that outlive the node that saved them"
    make_finding = warning
    if context.job.restarts:  # restarts need checkpoints that survive the loss of a node
        make_finding, requirement = error, f"{requirement}, since the run restarts after losing a node"
        remedy += ". To launch anyway, if only rank 0 saves and loads them, add -e preflight_skip=checkpoint-node-local"
    return [make_finding("checkpoint-node-local", nodes, problem=problem, requirement=requirement, remedy=remedy)]


def check_restarts(context: CheckContext, contract: Contract) -> list[Finding]:
    """Check that an automatically restarting run has checkpoints to resume from."""
    if not context.job.restarts or contract.path:
        return []
    return [
        warning(
            "restart-no-checkpoint",
            [],
            problem="the run may restart, but neither its arguments nor launch_checkpoints say where it saves "
            "checkpoints",
            requirement="a checkpoint directory: without it, a restart may begin at the first step",
            remedy=(
                "launch with -e launch_checkpoints=DIRECTORY, where DIRECTORY is on a shared mount, and with "
                '--resume or a similar argument, or with -e \'{"launch_resume_args": ["--resume", '
                '"{checkpoint}"]}\'; to hide this, add -e preflight_skip=restart-no-checkpoint'
            ),
        )
    ]


def check_room(context: CheckContext, contract: Contract) -> list[Finding]:
    """Check that the checkpoints to keep fit on the disk, along with the next one until an older one is removed."""
    checkpoint = contract.choice["checkpoint"]
    if checkpoint is None or not checkpoint["size"]:
        return []
    size, kept = checkpoint["size"], kept_checkpoints(context.job)
    needed = size * max(1, kept + 1 - contract.existing)
    findings: list[Finding] = []
    for make_finding, limit in ((error, size), (warning, needed)):
        full = [name for name, free in contract.free_bytes.items() if free < limit]
        reported = [name for finding in findings for name in finding.nodes]
        nodes = [name for name in full if name not in reported]
        if nodes:
            free = min(contract.free_bytes[name] for name in nodes)
            findings.append(
                make_finding(
                    "checkpoint-no-room",
                    nodes,
                    problem=(
                        f"{format_size(free)} is free in {contract.path}, and a checkpoint takes {format_size(size)}"
                    ),
                    requirement=f"{format_size(limit)}: "
                    + (
                        "the next checkpoint"
                        if limit == size
                        else f"{kept + 1 - contract.existing} more checkpoints (the job keeps {kept}, and removes an "
                        "old one only after it has saved a new one)"
                    ),
                    remedy=f"remove old ones (du -sh {shlex.quote(contract.path)}/*), keep fewer (save_total_limit), "
                    "or save to a larger disk",
                )
            )
    return findings


def check_torn(context: CheckContext, contract: Contract) -> list[Finding]:
    """Check that the newest checkpoints are complete."""
    complete = contract.choice["checkpoint"]
    nodes = [node.name for node, _facts in context.nodes_with("checkpoints")]
    if complete is not None:
        fallback = f"{describe_step(complete)} ({complete['name']}) is the newest complete checkpoint"
    else:
        fallback = "no other checkpoint is complete"
    findings = []
    for checkpoint in contract.choice["torn"][:2]:
        make_finding = error if named_by_job(context.job, checkpoint) else warning
        findings.append(
            make_finding(
                "checkpoint-torn",
                nodes,
                problem=f"{checkpoint['path']} is not complete: {checkpoint['reason']}; {fallback}",
                requirement="a complete checkpoint, because many scripts load the newest without checking it",
                remedy=set_aside_command(checkpoint, complete),
            )
        )
    return findings


def set_aside_command(torn: Checkpoint, complete: Checkpoint | None) -> str:
    """Return a command after which the job loads the complete checkpoint instead of the torn one."""
    path = shlex.quote(torn["path"])
    command = f"mv {path} {path}.torn"
    if complete is None:
        return f"rename it on each node: {command}"
    if torn["format"] == "deepspeed":  # DeepSpeed loads the tag that `latest` names
        directory = posixpath.dirname(torn["path"])
        latest = shlex.quote(posixpath.join(directory, "latest"))
        command += f"; echo {shlex.quote(posixpath.relpath(complete['path'], directory))} > {latest}"
    return f"rename it on each node with {command}, and resume from {complete['path']}"


def check_world_size(context: CheckContext, contract: Contract) -> list[Finding]:
    """Check that a run with this number of ranks can load the checkpoint."""
    checkpoint, world_size = contract.choice["checkpoint"], context.table.world_size
    if checkpoint is None or not checkpoint["fixed_world"] or checkpoint["world_size"] in (None, world_size):
        return []
    is_zero = any(part.endswith("_states.pt") for part in checkpoint["parts"])
    values = {
        "node": context.table.nodes[0].name,
        "zero": shlex.quote(zero_directory(checkpoint)),
        "world_size": str(checkpoint["world_size"]),
        "command": CONVERT_ZERO.format(path=shlex.quote(zero_directory(checkpoint))),
    }
    make_finding = error if resumes(context.job) else warning
    return [
        make_finding(
            "checkpoint-world-size",
            [],
            problem=f"{checkpoint['path']} has the shards of {checkpoint['world_size']} ranks, but this run has "
            f"{world_size} ranks",
            requirement="the same number of ranks, or a checkpoint that any number can load",
            remedy=(DEEPSPEED_REMEDY if is_zero else LOCAL_REMEDY).format(**values),
        )
    ]


def zero_directory(checkpoint: Checkpoint) -> str:
    """Return the directory with DeepSpeed's files, which may be inside another framework's checkpoint."""
    folders = [posixpath.dirname(part) for part in checkpoint["parts"] if part.endswith("_states.pt")]
    return posixpath.join(checkpoint["path"], folders[0]) if folders and folders[0] else checkpoint["path"]


def check_parts(context: CheckContext, contract: Contract) -> list[Finding]:
    """Check that each node has all parts of the checkpoint."""
    checkpoint = contract.choice["checkpoint"]
    if checkpoint is None or not contract.choice["missing"] or context.table.nnodes < 2:
        return []
    make_finding = error if resumes(context.job) else warning
    findings, first = [], context.table.nodes[0].name
    for node, parts in contract.choice["missing"].items():
        names = [name or checkpoint["name"] for name in sorted(parts)]
        owners = sorted(set(parts.values()))
        findings.append(
            make_finding(
                "checkpoint-parts-missing",
                [node],
                problem=(
                    f"{describe_step(checkpoint)} is incomplete here and lacks these parts: "
                    f"{format_list(names, MAX_NAMED)}; they are on {', '.join(owners)}"
                ),
                requirement=f"{checkpoint['path']} with all parts on each node",
                remedy=copy_command(context, checkpoint, owners, first in contract.choice["missing"]),
            )
        )
    return findings


def copy_command(context: CheckContext, checkpoint: Checkpoint, owners: list[str], first_lacks: bool) -> str:
    """Return the command that copies missing parts from nodes that have them. first_lacks: whether node 0 lacks any."""
    path = posixpath.dirname(checkpoint["path"]) if "" in checkpoint["parts"] else checkpoint["path"]
    quoted = shlex.quote(path)
    if owners == [context.table.nodes[0].name] and not first_lacks:
        return f"ansible-playbook stage_data.yml -e stage_data_path={quoted} -e stage_data_destination={quoted}"
    unpack = shlex.quote(f"mkdir -p {quoted} && tar -xkC {quoted}")
    commands = [f"ssh {owner} tar -cC {quoted} . | ssh NODE {unpack}" for owner in owners]
    return f"for each node that lacks parts, run {'; '.join(commands)}. Or save to a directory that all nodes share"


CHECKS: tuple[Callable[[CheckContext, Contract], list[Finding]], ...] = (
    check_survival,
    check_room,
    check_torn,
    check_world_size,
    check_parts,
)


def check_checkpoints(context: CheckContext) -> list[Finding]:
    """Check the contract for the job's checkpoints, if their location is known."""
    contract = contract_of(context)
    if not contract.path:
        return check_restarts(context, contract)
    return [finding for check in CHECKS for finding in check(context, contract)]
