# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of a launch: is each node reachable and free, and has it what the job needs? Pure. Private."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._rank_table import Node, RankTable, ip_literal
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import listed
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import connection_findings
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import launcher_of

Facts = Mapping[str, Mapping[str, Any]]


def check_reached(names: list[str], unreached: Mapping[str, str]) -> list[Finding]:
    """Nodes without facts; unreached: the connection's error message by node name."""
    return connection_findings({name: unreached[name] for name in names if name in unreached})


def answered(table: RankTable, facts: Facts) -> list[Node]:
    """The nodes with facts, in rank order."""
    return [node for node in table.nodes if node.name in facts]


def runs_at(address: str, runs: Iterable[Mapping[str, str]]) -> list[str]:
    """Ids of runs that are alive on a node. If several nodes share a machine, only runs with its address count."""
    literal = ip_literal(address)
    shared = literal is not None and literal.is_loopback
    return sorted({run["run_id"] for run in runs if run["address"] == address or not shared})


def check_busy(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """Nodes on which another run is alive."""
    findings = []
    for node in answered(table, facts):
        for run_id in runs_at(node.address, facts[node.name]["runs"]):
            if run_id == job.run_id:
                continue
            findings.append(
                error(
                    "busy",
                    [node.name],
                    f"run {run_id} is running there",
                    "no other run on the node",
                    f"wait for it, stop it (ansible-playbook stop.yml -e run_id={run_id}), or add -e replace=true to "
                    "stop it now",
                )
            )
    return findings


def check_address(table: RankTable, facts: Facts) -> list[Finding]:
    """node_address must be an address of the node itself: launchers and NCCL bind to it."""
    return [
        error(
            "address-not-here",
            [node.name],
            f"node_address {node.address} is on none of its interfaces; they have "
            + ", ".join(sorted(facts[node.name]["addresses"])),
            "the address its peers reach it by, configured on the node itself: a private address, not a NATed public "
            "one",
            "correct node_address of this host in the inventory",
        )
        for node in answered(table, facts)
        if not facts[node.name]["interface"]
    ]


def check_ports(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """The rendezvous port and the lifeline's port must be free on node 0."""
    findings = []
    master = table.master.name
    if master not in facts:
        return []
    node_facts = facts[master]
    for what, variable, port, everywhere in (
        ("the rendezvous port", "launch_master_port", job.master_port, launcher_of(job).master_port_everywhere),
        ("the lifeline's port", "launch_lifeline_port", job.lifeline_port, False),
    ):
        holder = node_facts["ports"].get(str(port))
        refusal = node_facts["binds"].get(str(port), "")
        if refusal or (everywhere and holder):
            if holder and holder["pid"]:
                by = f"process {holder['pid']} ({holder['command']})"
            elif holder:
                by = "a process of another user"
            else:
                by = refusal
            findings.append(
                error(
                    "port-in-use",
                    [master],
                    f"{what} {port} is taken by {by}",
                    f"a free TCP port {port} on the node of rank 0",
                    f"kill that process, or choose another port with {variable}",
                )
            )
    return findings


def check_interpreter(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """The interpreter must exist on each node, under the same name."""
    missing = [node.name for node in answered(table, facts) if not facts[node.name]["interpreter"]]
    if not missing:
        return []
    return [
        error(
            "interpreter-missing",
            missing,
            f"there is no executable {job.interpreter}",
            "the same Python interpreter, with the job's packages, on each node",
            "install it there, or set launch_python to one that exists",
        )
    ]


def no_directory(facts: Facts, name: str) -> bool:
    """Whether a node has no working directory. One on a dead mount is reported as the mount's problem."""
    directory = facts[name]["working_directory"]
    return not directory["is_directory"] and not directory.get("dead_mount")


def check_working_directory(table: RankTable, facts: Facts) -> list[Finding]:
    """The working directory must exist on each node."""
    missing = [node.name for node in answered(table, facts) if no_directory(facts, node.name)]
    if not missing:
        return []
    return [
        error(
            "working-directory-missing",
            missing,
            f"there is no directory {facts[missing[0]]['working_directory']['path']}",
            "the code at the same path on each node",
            "copy it there, or correct launch_working_directory",
        )
    ]


def check_script(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """The script must exist and be readable on each node. Below a missing directory it is not reported separately."""
    missing = []
    for node in answered(table, facts):
        script = facts[node.name]["script"]
        if not script or (script["is_file"] and script["readable"]) or script.get("dead_mount"):
            continue
        below = script["path"].startswith(facts[node.name]["working_directory"]["path"] + "/")
        if not (below and no_directory(facts, node.name)):
            missing.append(node.name)
    if not missing:
        return []
    if not job.working_directory and not job.script.startswith(("/", "~")):
        why = " (launch_working_directory is not set, so a relative path starts in the user's home)"
        correct = "set launch_working_directory, or correct launch_script"
    else:
        why, correct = "", "or correct launch_script or launch_working_directory"
    return [
        error(
            "script-missing",
            missing,
            f"there is no readable file {facts[missing[0]]['script']['path']}{why}",
            "the script at the same path on each node",
            f"copy your project there (ansible-playbook site.yml --tags code -e code_source=DIRECTORY), {correct}",
        )
    ]


def check_run_id(job: Job, table: RankTable, facts: Facts) -> list[Finding]:
    """A run_id is used once: its directory is the run's record."""
    taken = [node.name for node in answered(table, facts) if facts[node.name]["run_taken"]]
    if not taken:
        return []
    return [
        error(
            "run-id-taken",
            taken,
            f"run {job.run_id} already exists, in {facts[taken[0]]['run_taken']}",
            "an unused run_id",
            "choose another with -e run_id=NAME, or leave it out to get a new one",
        )
    ]


def check_runs_directory(table: RankTable, facts: Facts) -> list[Finding]:
    """The user must be able to write where the run's directory will be."""
    denied = [node.name for node in answered(table, facts) if not facts[node.name].get("runs_writable", True)]
    if not denied:
        return []
    first = facts[denied[0]]
    return [
        error(
            "runs-directory",
            denied,
            f"{first['user']} cannot write to {first['runs_directory']}",
            "a directory for logs and checkpoints that this user can create and write to",
            f"chown it to {first['user']}, or choose another one with launch_node_directory",
        )
    ]


def check_order(job: Job, wanted: RankTable, table: RankTable) -> list[Finding]:
    """The launcher should use the inventory's order, but c10d has its own."""
    moved = [
        f"{node.name} gets {node.node_rank} in place of {there.node_rank}"
        for node in table.nodes
        for there in [wanted.node(node.name)]
        if there.node_rank != node.node_rank
    ]
    if not moved:
        return []
    any_order = "if the order does not matter, remove node_rank from the inventory, or add -e preflight_skip=rank-order"
    return [
        warning(
            "rank-order",
            [],
            "with launch_rdzv_backend: c10d torch numbers the nodes itself by address, sorted as text, not by "
            f"node_rank in the inventory: {listed(moved, 4)}; rank 0 is on {table.master.name}",
            "the same node order in the inventory and in the run",
            # an elastic run cannot use the static backend
            f"{'use -e nnodes=N, without a range' if job.elastic else 'set launch_rdzv_backend: static'}; {any_order}",
        )
    ]


def check_launch(job: Job, table: RankTable, facts: Facts, replace: bool = False) -> list[Finding]:
    """All checks of this file, of the nodes that answered."""
    busy = check_busy(job, table, facts)
    taken_by_run = any(table.master.name in finding.nodes for finding in busy)  # which most likely holds the ports, too
    return [
        *check_run_id(job, table, facts),
        *([] if replace else busy),
        *check_address(table, facts),
        *([] if taken_by_run else check_ports(job, table, facts)),
        *([] if job.image else check_interpreter(job, table, facts)),
        *check_working_directory(table, facts),
        *check_script(job, table, facts),
        *check_runs_directory(table, facts),
    ]
