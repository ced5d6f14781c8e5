# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launch plan: each node's actions, determined by the nodes, their facts and a job."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ansible_collections.muster.training.plugins.module_utils._checkpoints.resume import VARIABLES
from ansible_collections.muster.training.plugins.module_utils._run.documents import (
    AttemptFields,
    Container,
    Plan,
    RestartPlan,
)
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import FILE, HEADER
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    GPU_SAMPLE_INTERVAL,
    HEARTBEAT_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import (
    first_attempt,
    plan_of_attempt,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.node_notices import NOTICE_FILE
from ansible_collections.muster.training.plugins.plugin_utils._cluster import hostfile_formats
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    Node,
    RankTable,
    RankTableError,
    ip_literal,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.container_command import (
    container_argv,
    removal_argv,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.cpu_binding import (
    CpuBinding,
    bind_ranks,
    binding_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.debugger import ENVIRONMENT as DEBUGGER_ENVIRONMENT
from ansible_collections.muster.training.plugins.plugin_utils._plan.debugger import debugger_of
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_sampler import sample_command
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import limit_facts, visible_devices
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import plan_fields, vendor_name
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.accelerate import Accelerate
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.deepspeed import (
    DeepSpeed,
    DeepSpeedRemote,
    decide_local_rank,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.env import EnvLauncher
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.mpirun import Mpirun
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_c10d import TorchrunC10d
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_static import TorchrunStatic
from ansible_collections.muster.training.plugins.plugin_utils._plan.machines import (
    UNKNOWN_MACHINE,
    UNKNOWN_MACHINES,
    RunMachines,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.network_log import network_log_environment


class Launcher(Protocol):
    """The interface that all launchers implement."""

    rank_logs: str
    master_port_everywhere: bool
    uses_names: bool  # whether its processes find each other by node name rather than by address
    # whether its command on rank 0's node starts the processes on the other nodes, through their supervisors
    remote_start: bool
    bare_launcher: bool  # whether it copies its environment into command lines; if so, it gets no user variables
    modules: tuple[str, ...]  # the Python packages it needs

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Return the requested features that the launcher does not support, as messages for the user."""

    def needed_programs(self, job: Job, node_rank: int) -> tuple[str, ...]:
        """Return the programs that must be on a node's PATH."""

    def order(self, table: RankTable) -> RankTable:
        """Return the table in the order in which the launcher numbers the nodes."""

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Return a node's command."""

    def environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return the environment of a node's ranks, in addition to the variables that all launchers share."""

    def launcher_environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return the variables that only the launcher itself should see."""

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Return the files of a node's run directory, by name. They contain no secrets."""

    def programs(self, node: Node) -> list[str]:
        """Return the names of this collection's programs in the bin directory of a node's run directory."""

    def attempt_fields(self, job: Job) -> AttemptFields:
        """Return the parts of command, environment and files that change in each attempt, as templates of values."""


LAUNCHERS: dict[str, Callable[[Job], Launcher]] = {
    "torchrun": lambda job: TorchrunC10d() if job.rdzv_backend == "c10d" else TorchrunStatic(),
    "env": lambda job: EnvLauncher(),
    "deepspeed": lambda job: DeepSpeedRemote(job.deepspeed_launcher) if job.deepspeed_launcher else DeepSpeed(),
    "mpirun": lambda job: Mpirun(),
    "accelerate": lambda job: Accelerate(),
}


def get_launcher(job: Job) -> Launcher:
    """Return a job's launcher."""
    return LAUNCHERS[job.launcher](job)


def network_environment(interface: str, address: str) -> dict[str, str]:
    """Return a node's network settings, which are the same for all libraries; otherwise each library would choose its
    own.

    NCCL would take an interface's first address, of any family; gloo does so, and cannot be configured otherwise.
    """
    return {
        "NCCL_SOCKET_IFNAME": f"={interface}",  # "=": exactly this name, not a prefix
        "NCCL_SOCKET_FAMILY": "AF_INET6" if ":" in address else "AF_INET",
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
    }


def debug_environment(run_directory: str) -> dict[str, str]:
    """Return variables for NCCL's log, and for dumping the trace of torch's flight recorder when a collective hangs.

    torch reads these names since 2.1; older versions do not support the newer TORCH_FR_*.
    """
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
        "NCCL_DEBUG_FILE": f"{run_directory}/nccl.%h.%p.log",
        "TORCH_DISTRIBUTED_DEBUG": "INFO",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",  # number of collectives recorded per rank
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{run_directory}/flight_recorder_rank_",
    }


def cpu_binding(job: Job, node: Node, facts: Mapping[str, Any]) -> CpuBinding:
    """Return the CPUs of a node's ranks."""
    return bind_ranks(job, node.slots, get_launcher(job).rank_logs != "launcher", facts)


def flight_recorder_environment(run_directory: str) -> dict[str, str]:
    """Return the variable for the files of torch's flight recorder, which newer versions write at each timeout."""
    return {"TORCH_FR_DUMP_TEMP_FILE": f"{run_directory}/flight_recorder_rank_"}


def temporary_directory(run_id: str, node_rank: int) -> str:
    """Return a short path: the paths of Unix sockets in it, including multiprocessing's names, must stay under 108
    characters.
    """
    return f"/tmp/muster-{hashlib.sha256(f'{run_id}/{node_rank}'.encode()).hexdigest()[:12]}"


def checkpoint_directory(job: Job, facts: Mapping[str, Any], run_directory: str) -> str:
    """Return the directory of a run's checkpoints on a node, which is `checkpoints` in its run directory by default."""
    path = (facts.get("checkpoints") or {}).get("path") or f"{run_directory}/checkpoints"
    return str(path).replace("{run_directory}", run_directory).replace("{run_id}", job.run_id)


def build_node_plan(
    job: Job, table: RankTable, node: Node, facts: Mapping[str, Any], machines: RunMachines | None = None
) -> Plan:
    """Return the plan of one node: the content of its plan.json, which contains no secrets.

    Args:
        job: the job.
        table: all nodes.
        node: the node of this plan.
        facts: the node's facts.
        machines: data on all machines, for the run's record.
    """
    machines = machines or UNKNOWN_MACHINES
    launcher = get_launcher(job)
    # the node has been searched for the first interpreter that exists, but the image has not: use the last one, python3
    interpreter = job.interpreter.rpartition(":")[2] if job.image else facts["interpreter"]
    program = job.script or job.module
    if job.script.startswith("~"):  # no shell expands it, so use the path that was checked
        job = replace(job, script=facts["script"]["path"])
    job = decide_local_rank(job, facts)
    facts = limit_facts(facts, job.gpus)
    run_directory = f"{facts['runs_directory']}/{job.run_id}/node{node.node_rank}"
    address = ip_literal(node.address)
    temporary = temporary_directory(job.run_id, node.node_rank)
    environment = {
        **network_environment(facts["interface"], node.address),
        **(flight_recorder_environment(run_directory) if job.stacks else {}),
        **(debug_environment(run_directory) if job.debug else network_log_environment(table, facts, run_directory)),
        **(DEBUGGER_ENVIRONMENT if job.debug_rank is not None else {}),
        **launcher.environment(job, table, node),
        **visible_devices(job.gpus, vendor_name(facts.get("gpus")), bool(job.image)),
        **binding_environment(cpu_binding(job, node, facts)),
        "PYTHONUNBUFFERED": "1",
        "MUSTER_RUN_ID": job.run_id,
        "MUSTER_ATTEMPT": "0",
        "MUSTER_NOTICE_FILE": f"{run_directory}/{NOTICE_FILE}",
    }
    launcher_environment = launcher.launcher_environment(job, table, node)
    gpu_samples = sample_command(facts, run_directory)
    container: Container = {}
    if job.image:
        names = [*environment, *launcher_environment, *job.variables, *VARIABLES]
        wrapper_argv = container_argv(job, node, facts, run_directory, temporary, names)
        container = {"wrap": wrapper_argv, "remove": removal_argv(job, node)}
    plan: Plan = {
        **container,
        "run_id": job.run_id,
        "unit": f"muster-{job.run_id}",
        # nodes on the same machine would share the unit's name, so each supervisor has its own guard
        "supervision": "process" if address is not None and address.is_loopback else "auto",
        "launcher": job.launcher,
        "program": program,
        "program_sha256": (facts.get("script") or {}).get("sha256") or "",
        "arguments": list(job.args),
        "rank_logs": launcher.rank_logs,
        "node": {
            "name": node.name,
            "address": node.address,
            "slots": node.slots,
            "node_rank": node.node_rank,
            "first_rank": node.first_rank,
        },
        "nodes": [
            {
                "name": peer.name,
                "address": peer.address,
                "slots": peer.slots,
                "first_rank": peer.first_rank,
                **machines["nodes"].get(peer.name, UNKNOWN_MACHINE),
            }
            for peer in table.nodes
        ],
        "code": machines["code"],
        "currency": machines["currency"],
        "world_size": table.world_size,
        "elastic": job.elastic,
        "max_restarts": job.max_restarts,
        "min_nnodes": job.min_nnodes if job.min_nnodes is not None else table.nnodes,
        "command": launcher.command(job, table, node, interpreter, run_directory),
        "remote_start": launcher.remote_start,
        "bare_launcher": launcher.bare_launcher,
        "launcher_environment": launcher_environment,
        "files": {**launcher.files(job, table, node, interpreter), **({FILE: HEADER} if gpu_samples else {})},
        "programs": launcher.programs(node),
        "path_prefix": "/usr/bin" if job.image else interpreter.rpartition("/")[0],
        "working_directory": facts["working_directory"]["path"],
        "environment": environment,
        "variables": sorted(job.variables),
        "outputs": list(job.outputs),
        "metrics": list(job.metrics),
        "checkpoints": checkpoint_directory(job, facts, run_directory),
        "checkpoint": job.checkpoint,
        "resume_args": list(job.resume_args),
        "temporary_directory": temporary,
        "mounts": [mount["point"] for mount in facts.get("storage", {}).get("mounts", ()) if mount["state"] == "ok"],
        "gpus": list(job.gpus),
        "gpu_samples": gpu_samples,
        **plan_fields(facts),  # type: ignore[typeddict-item]
        "log_limit": job.log_limit * 10**9,
        "stacks": job.stacks,
        "on_hang": job.on_hang,
        "node_exporter_directory": job.node_exporter_directory,
        "debugger": debugger_of(job, table, facts["working_directory"]["path"]),
        "lifeline": {"address": table.master.address, "port": job.lifeline_port},
        "timeouts": {
            "start": job.start_timeout,
            "heartbeat": HEARTBEAT_INTERVAL,
            "sample": GPU_SAMPLE_INTERVAL,
            "silence": job.silence_timeout,
            "grace": job.stop_grace,
            # the ranks wait for the one that is being debugged
            "hang": 0 if job.debug_rank is not None else job.hang_timeout,
        },
        "notices": {
            "signal": job.notice_signal,
            "grace": job.notice_grace,
            "time_limit": job.time_limit,
            "cost_limit": job.cost_limit,
            "stall_limit": job.stall_limit,
            "metadata": {},
        },
    }
    if not job.restarts:
        return plan
    plan["restart"] = build_restart_plan(job, table, launcher, plan["files"])
    plan["restart"]["counts_progress"] = bool((facts.get("checkpoints") or {}).get("path"))
    return plan_of_attempt(plan, first_attempt(plan), run_directory)


def build_restart_plan(job: Job, table: RankTable, launcher: Launcher, files: Mapping[str, str]) -> RestartPlan:
    """Return the restart settings of a run. files: those in the run directory, whose hostfiles list all nodes and
    spares.
    """
    fields = launcher.attempt_fields(job)
    names = [name for name in fields.get("hostfiles", []) if name in files]
    active = table.nnodes - job.spares
    return {
        "restarts": job.restarts,
        "when": list(job.restart_when),
        "min_nodes": job.restart_min_nodes if job.restart_min_nodes is not None else active,
        "wait": job.restart_wait,
        "spares": job.spares,
        "slots": [node.slots for node in table.nodes],
        "master_port": job.master_port,
        "sorted": job.rdzv_backend == "c10d",
        "counts_progress": False,
        "fields": fields,
        "hostfile_lines": {name: files[name].splitlines(keepends=True) for name in names},
    }


def exclude_spares(job: Job, table: RankTable) -> RankTable:
    """Return the table of the nodes that work from the start, without the spares, which are at the end."""
    return RankTable(table.nodes[: table.nnodes - job.spares])


def render_hostfiles(table: RankTable) -> dict[str, str]:
    """Render the table in each launcher's hostfile format, except for formats that cannot express it."""
    rendered = {}
    for name, render in (
        ("deepspeed", hostfile_formats.render_deepspeed),
        ("openmpi", hostfile_formats.render_openmpi),
        ("mpich", hostfile_formats.render_mpich),
    ):
        try:
            rendered[name] = render(table)
        except RankTableError:
            continue
    return rendered
