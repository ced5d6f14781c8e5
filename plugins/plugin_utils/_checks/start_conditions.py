# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the conditions for a launch: whether each node is reachable, is free, and meets the job's requirements."""

from __future__ import annotations

import difflib
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.gpu_claims import describe_gpus, share_gpus
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import ControllerCode
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import connection_findings
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node, RankTable, ip_literal
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import format_gpus
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import get_launcher
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

Facts = Mapping[str, Mapping[str, Any]]
NO_CODE = ControllerCode()
SOURCE_ENDINGS = (".c", ".cc", ".cpp", ".cu", ".f90")  # suffixes of source files in compiled languages


def check_reachable(names: list[str], unreached: Mapping[str, str]) -> list[Finding]:
    """Report nodes without facts; unreached: the connection error message by node name."""
    return connection_findings({name: unreached[name] for name in names if name in unreached})


def nodes_with_facts(table: RankTable, facts: Facts) -> list[Node]:
    """Return the nodes with facts, in rank order."""
    return [node for node in table.nodes if node.name in facts]


def live_runs(address: str, runs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs that are alive on a node. If nodes share a machine, include only runs with its address."""
    literal = ip_literal(address)
    is_shared_machine = literal is not None and literal.is_loopback
    return [run for run in runs if run["address"] == address or not is_shared_machine]


def live_run_ids(address: str, runs: Iterable[Mapping[str, Any]], gpus: Iterable[int] = ()) -> list[str]:
    """Return the IDs of runs that are alive on a node and use any of these GPUs or, if none are given, any GPU."""
    return sorted({run["run_id"] for run in live_runs(address, runs) if share_gpus(run.get("gpus") or [], gpus)})


def describe_free_gpus(node: Node, facts: Mapping[str, Any]) -> str:
    """Return a remedy that selects GPUs that no run uses, or "" if all are in use or their number is unknown."""
    runs = live_runs(node.address, facts["runs"])
    gpus = facts.get("gpus") or {}
    used = {gpu for run in runs for gpu in run.get("gpus") or ()}
    free = [gpu for gpu in range(gpus.get("total") or gpus.get("count") or 0) if gpu not in used]
    if not free or not all(run.get("gpus") for run in runs):
        return ""
    return f"use the GPUs that are free: -e gpus={','.join(map(str, free))}; or "


def describe_owner(run: Mapping[str, Any]) -> str:
    """Describe a run's owner, which may be another account, and its directory, with the same text on all nodes."""
    return f" of {run['owner']}, in {os.path.dirname(run['directory'])}," if run.get("owner") else ""


def check_busy(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """Report nodes on which another run is alive."""
    findings = []
    for node in nodes_with_facts(table, facts):
        runs = facts[node.name]["runs"]
        for run_id in live_run_ids(node.address, runs, job.gpus):
            if run_id == job.run_id:
                continue
            run = next(run for run in runs if run["run_id"] == run_id)
            findings.append(
                error(
                    "busy",
                    [node.name],
                    problem=f"run {run_id}{describe_owner(run)} is running on the node"
                    + describe_gpus(run.get("gpus") or []),
                    requirement=f"no other run on {format_gpus(job.gpus)} of the node"
                    if job.gpus
                    else "no other run on the node",
                    remedy=describe_free_gpus(node, facts[node.name])
                    + (
                        f"wait for it, stop it (ansible-playbook stop.yml -e run_id={run_id}), or add -e replace=true "
                        "to stop it now; if the run belongs to another account, add -e launch_user=ACCOUNT as well"
                    ),
                )
            )
    return findings


def check_hidden_runs(table: RankTable, facts: Facts) -> list[Finding]:
    """Warn about nodes that hide other accounts' runs, because the check for other runs cannot see them."""
    return [
        warning(
            "runs-hidden",
            [node.name],
            problem="/proc is mounted with hidepid, which hides the runs of other accounts",
            requirement="no other run on the node; with hidepid, only root can check this",
            remedy=(
                "ask the other users of the node, or add the account to the group given in /proc's gid= mount "
                "option: sudo usermod -aG GROUP ACCOUNT"
            ),
        )
        for node in nodes_with_facts(table, facts)
        if facts[node.name].get("hides_processes")
    ]


def check_slurm_jobs(table: RankTable, facts: Facts) -> list[Finding]:
    """Report nodes that Slurm has allocated to a job. A node with a run, which may be that job, is reported as busy."""
    return [
        error(
            "slurm-job",
            [node.name],
            problem=f"Slurm is running {'jobs' if jobs[1:] else 'job'} {', '.join(jobs)} on the node",
            requirement="a node on which Slurm is not running a job",
            remedy="queue the run by adding -e launch_scheduler=slurm, or wait until the job ends (squeue shows it)",
        )
        for node in nodes_with_facts(table, facts)
        for jobs in [facts[node.name].get("slurm_jobs") or []]
        if jobs and not live_runs(node.address, facts[node.name]["runs"])
    ]


def check_address(table: RankTable, facts: Facts) -> list[Finding]:
    """Check that node_address is an address of the node itself, because launchers and NCCL bind to it."""
    return [
        error(
            "address-not-here",
            [node.name],
            problem=f"node_address {node.address} is not on any of its interfaces, which have "
            + ", ".join(sorted(facts[node.name]["addresses"])),
            requirement=(
                "an address that is configured on the node itself and at which its peers can reach it: a private "
                "address, not a public address behind NAT"
            ),
            remedy="correct node_address of this host in the inventory",
        )
        for node in nodes_with_facts(table, facts)
        if not facts[node.name]["interface"]
    ]


def check_ports(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """Check that the rendezvous port and the lifeline port are free on node 0."""
    findings = []
    master = table.master.name
    if master not in facts:
        return []
    node_facts = facts[master]
    for label, variable, port, any_address in (
        ("the rendezvous port", "launch_master_port", job.master_port, get_launcher(job).master_port_everywhere),
        ("the lifeline's port", "launch_lifeline_port", job.lifeline_port, False),
    ):
        holder = node_facts["ports"].get(str(port))
        refusal = node_facts["binds"].get(str(port), "")
        if refusal or (any_address and holder):
            if holder and holder["pid"]:
                holder_text = f"process {holder['pid']} ({holder['command']})"
            elif holder:
                holder_text = "a process of another user"
            else:
                holder_text = refusal
            findings.append(
                error(
                    "port-in-use",
                    [master],
                    problem=f"{label} {port} is in use by {holder_text}",
                    requirement=f"a free TCP port {port} on rank 0's node",
                    remedy=f"kill that process, or choose another port with {variable}",
                )
            )
    return findings


def check_interpreter(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """Check that the interpreter exists under the same name on each node."""
    missing = [node.name for node in nodes_with_facts(table, facts) if not facts[node.name]["interpreter"]]
    if not missing:
        return []
    return [
        error(
            "interpreter-missing",
            missing,
            problem=f"{job.interpreter} does not exist or is not executable",
            requirement="the same Python interpreter, with the job's packages, on each node",
            remedy="install it on the node, or set launch_python to an existing interpreter",
        )
    ]


def lacks_directory(facts: Facts, name: str) -> bool:
    """Return whether a node lacks the working directory. If it is on a dead mount, report the mount instead."""
    directory = facts[name]["working_directory"]
    return not directory["is_directory"] and not directory.get("dead_mount")


def check_working_directory(job: Job, table: RankTable, facts: Facts, code: ControllerCode) -> list[Finding]:
    """Check that the working directory exists on each node."""
    missing = [node.name for node in nodes_with_facts(table, facts) if lacks_directory(facts, node.name)]
    if not missing:
        return []
    return [
        error(
            "working-directory-missing",
            missing,
            problem=f"the directory {facts[missing[0]]['working_directory']['path']} does not exist"
            + explain_relative_path(job),
            requirement="the code at the same path on each node",
            remedy=f"correct launch_working_directory, or {launch_here(job)}"
            if code.local_nodes.issuperset(missing)
            else "copy it to the node, or correct launch_working_directory",
        )
    ]


def explain_relative_path(job: Job) -> str:
    """Return where the job's directory, or a script without one, is looked up, or "" if the path is absolute."""
    directory = job.working_directory
    if directory and not directory.startswith(("/", "~")):
        return (
            f" (launch_working_directory is {directory}, and a relative directory starts at the user's home directory)"
        )
    if not directory and job.script and not job.script.startswith(("/", "~")):
        return " (launch_working_directory is not set, so a relative path is resolved from the user's home directory)"
    return ""


def launch_here(job: Job) -> str:
    """Return the remedy for nodes that are this machine: the launch command for a script in the current directory."""
    script = job.script if re.fullmatch(r"[\w./-]+", job.script) else "SCRIPT"
    return (
        "start the job in the directory that contains it, such as the current one: "
        f"ansible-playbook launch.yml -e launch_working_directory=$PWD -e launch_script={script}"
    )


def suggest_script(path: str, code_path: str, directory: str, files: Iterable[str]) -> str:
    """Return the path, as the user would type it, of the project file that was probably meant, or "".

    Args:
        path: that of the missing script on a node.
        code_path: the directory of the code on that node.
        directory: where a relative path starts.
        files: paths of the project's files, relative to code_path.
    """
    name = posixpath.relpath(path, code_path)
    same_kind = [file for file in files if posixpath.splitext(file)[1] == posixpath.splitext(name)[1]]
    elsewhere = [file for file in same_kind if posixpath.basename(file) == posixpath.basename(name)]
    by_name = {posixpath.basename(file): file for file in sorted(same_kind, reverse=True)}
    similar = difflib.get_close_matches(name, same_kind, 1) or [
        by_name[match] for match in difflib.get_close_matches(posixpath.basename(name), by_name, 1)
    ]
    matches = elsewhere or similar
    return posixpath.relpath(posixpath.join(code_path, matches[0]), directory) if matches else ""


def find_sources(program: str, files: Iterable[str]) -> list[str]:
    """Return the project's files from which a program with this name is probably compiled."""
    return sorted(file for file in files if posixpath.splitext(file) in [(program, end) for end in SOURCE_ENDINGS])


def describe_missing_script(
    job: Job, facts: Mapping[str, Any], code: ControllerCode, is_local: bool
) -> tuple[str, str]:
    """Return the problem with the script on a node, and the remedy. is_local: whether the node is this machine."""
    path, part = facts["script"]["path"], facts.get("code")
    directory = facts["working_directory"]["path"]
    if part and code.source and not part["script"] and path.startswith(part["path"] + "/"):
        suggestion = suggest_script(path, part["path"], directory, code.files)
        sources = find_sources(posixpath.relpath(path, part["path"]), code.files)
        remedy = "correct launch_script or launch_working_directory"
        if sources:
            remedy = (
                f"compile {sources[0]} (with mpicc for MPI), here or in `ansible-playbook shell.yml -e "
                f"nodes=NODE`, and copy the program to {code.source}: the launch copies it to all nodes"
            )
        elif suggestion:
            remedy = f"did you mean {suggestion}?"
        return f"{posixpath.relpath(path, part['path'])} is missing on the node, and also in {code.source}", remedy
    problem = f"{path} is missing or not readable"
    if not job.script.startswith(("/", "~")):
        problem += explain_relative_path(job)
        if is_local:
            return problem, f"correct launch_script, or {launch_here(job)}"
    elif is_local:
        return problem, "correct launch_script"
    is_unset = not job.working_directory and not job.script.startswith(("/", "~"))
    return (
        problem,
        "copy your project to the nodes (ansible-playbook site.yml --tags code -e code_source=DIRECTORY), "
        + (
            "set launch_working_directory, or correct launch_script"
            if is_unset
            else "or correct launch_script or launch_working_directory"
        ),
    )


def check_script(job: Job, table: RankTable, facts: Facts, code: ControllerCode) -> list[Finding]:
    """Check that the script is readable on each node. A script in a missing directory is not reported separately."""
    missing = []
    for node in nodes_with_facts(table, facts):
        script = facts[node.name]["script"]
        if not script or (script["is_file"] and script["readable"]) or script.get("dead_mount"):
            continue
        is_below = script["path"].startswith(facts[node.name]["working_directory"]["path"] + "/")
        if not (is_below and lacks_directory(facts, node.name)):
            missing.append(node.name)
    if not missing:
        return []
    problem, remedy = describe_missing_script(job, facts[missing[0]], code, code.local_nodes.issuperset(missing))
    return [
        error(
            "script-missing",
            missing,
            problem=problem,
            requirement="the script at the same path on each node",
            remedy=remedy,
        )
    ]


def check_run_id(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """Check that the run_id is unused, because its directory is the run's record."""
    existing = [node.name for node in nodes_with_facts(table, facts) if facts[node.name]["existing_run"]]
    if not existing:
        return []
    return [
        error(
            "run-id-taken",
            existing,
            problem=f"run {job.run_id} already exists, in {facts[existing[0]]['existing_run']}",
            requirement="an unused run_id",
            remedy="choose another name with -e run_id=NAME, or omit run_id to get a new one",
        )
    ]


def check_runs_directory(table: RankTable, facts: Facts) -> list[Finding]:
    """Check that the user has permission to write to the location of the run's directory."""
    denied = [node.name for node in nodes_with_facts(table, facts) if not facts[node.name].get("runs_writable", True)]
    if not denied:
        return []
    first = facts[denied[0]]
    return [
        error(
            "runs-directory",
            denied,
            problem=f"{first['user']} cannot write to {first['runs_directory']}",
            requirement="a directory for logs and checkpoints that this user can create and write to",
            remedy=f"run sudo install -d -o {first['user']} {shlex.quote(first['runs_directory'])} on each of them, or "
            "choose another directory with launch_node_directory",
        )
    ]


def check_order(job: Job, inventory_table: RankTable, table: RankTable) -> list[Finding]:
    """Report nodes that the launcher, as with c10d, numbers in a different order than the inventory."""
    moved = [
        f"{node.name} gets rank {node.node_rank} instead of {inventory_node.node_rank}"
        for node in table.nodes
        for inventory_node in [inventory_table.node(node.name)]
        if inventory_node.node_rank != node.node_rank
    ]
    if not moved:
        return []
    alternative = (
        "if the order does not matter, remove node_rank from the inventory, or add -e preflight_skip=rank-order"
    )
    return [
        warning(
            "rank-order",
            [],
            problem="with launch_rdzv_backend: c10d, torch numbers the nodes by address, sorted as text, not by "
            f"node_rank in the inventory: {format_list(moved, 4)}; rank 0 is on {table.master.name}",
            requirement="the same node order in the inventory and in the run",
            # an elastic run cannot use the static backend
            remedy=f"{'use -e nnodes=N, without a range' if job.elastic else 'set launch_rdzv_backend: static'}; "
            f"{alternative}",
        )
    ]


def check_launch(
    job: Job, table: RankTable, facts: Facts, replace: bool = False, code: ControllerCode = NO_CODE
) -> list[Finding]:
    """Return the findings of all checks in this file for the nodes that replied."""
    busy = check_busy(job, table, facts)
    # whatever keeps the master's node busy is probably also using the ports
    is_master_busy = any(table.master.name in finding.nodes for finding in busy)
    return [
        *check_run_id(job, table, facts),
        *([] if replace else busy),
        *check_hidden_runs(table, facts),
        *check_slurm_jobs(table, facts),
        *check_address(table, facts),
        *([] if is_master_busy else check_ports(job, table, facts)),
        *([] if job.image else check_interpreter(job, table, facts)),
        *check_working_directory(job, table, facts, code),
        *check_script(job, table, facts, code),
        *check_runs_directory(table, facts),
    ]
