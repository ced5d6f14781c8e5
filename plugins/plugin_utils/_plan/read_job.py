# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert the arguments of an action to a job."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import MAX_STOP_GRACE
from ansible_collections.muster.training.plugins.plugin_utils._plan.debugger import debugger_problems
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import (
    environment_conflicts,
    parse_gpus,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import (
    SAFE_RUN_ID,
    Job,
    environment_problems,
    parse_nnodes,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.limits import duration_options, limit_problems

MAX_RESTARTS = 100  # maximum of launch_restarts
# number of patterns in launch_metrics, and number of characters of each
MAX_METRIC_PATTERNS, MAX_METRIC_PATTERN = 20, 500
# named groups that contain the position of the others, and are not metrics themselves
POSITION_GROUPS = {"step", "epoch"}


def generate_run_id(script: str, module: str, name: str = "") -> str:
    """Generate a run_id from a name and the time; four random hex digits distinguish launches within one second.

    name: as the user wrote it; "" stands for the program's.
    """
    if name:
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_.-")[:40] or "run"
    else:
        stem = os.path.splitext(os.path.basename(script))[0] if script else module.rpartition(".")[2]
        stem = re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_")[:30] or "run"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def metric_problems(patterns: list[str]) -> list[str]:
    """Return the problems with launch_metrics."""
    problems = []
    if len(patterns) > MAX_METRIC_PATTERNS:
        problems.append(f"launch_metrics has {len(patterns)} patterns; use at most {MAX_METRIC_PATTERNS}")
    for pattern in patterns[:MAX_METRIC_PATTERNS]:
        shown = ascii(pattern)[:80]
        try:
            groups = set(re.compile(pattern[: MAX_METRIC_PATTERN + 1]).groupindex)
        except (re.error, RecursionError, OverflowError) as error:
            problems.append(f"launch_metrics has {shown}, which is not a regular expression: {error}")
            continue
        if len(pattern) > MAX_METRIC_PATTERN:
            problems.append(f"launch_metrics has a pattern longer than {MAX_METRIC_PATTERN} characters: {shown}")
        elif not groups - POSITION_GROUPS:
            problems.append(
                f"launch_metrics has {shown}; give each number a name, such as "
                r"'step (?P<step>\d+) energy (?P<energy>\S+)'"
            )
    return problems


def restart_problems(args: Mapping[str, Any], nnodes: int | None, elastic: bool) -> list[str]:
    """Return the problems with the options for restarting the whole run. nnodes: None if it is not set."""
    problems = []
    if not 0 <= args["restarts"] <= MAX_RESTARTS:
        problems.append(f"launch_restarts is {args['restarts']}; use a number from 0 to {MAX_RESTARTS}")
    if args["spares"] < 0:
        problems.append(f"launch_spares is {args['spares']}, but must be 0 or more")
    if args["spares"] > 0 and not args["restarts"]:
        problems.append("launch_spares needs launch_restarts: a spare node joins when the run restarts")
    waits = args["restart_wait"] not in ("", None, 0)
    if waits and not args["restarts"]:
        problems.append("launch_restart_wait needs launch_restarts: a run without restarts does not wait for nodes")
    if waits and args.get("scheduler") == "slurm":
        problems.append(
            "launch_restart_wait cannot be used with launch_scheduler: slurm, since no other node can join a "
            "Slurm job: use launch_spares or launch_slurm_requeue"
        )
    if elastic and args["restarts"]:
        problems.append(
            "launch_restarts needs a fixed number of nodes, but nnodes is a range; set launch_restart_min_nodes to the "
            "number of nodes with which the run may restart"
        )
    least = args["restart_min_nodes"]
    if least is not None and not 1 <= least <= (nnodes or least):
        problems.append(
            f"launch_restart_min_nodes is {least}; use a number from 1 to the run's {nnodes or 'number of'} nodes"
        )
    return problems


def read_job(args: Mapping[str, Any], target_needed: bool = True) -> Job:  # noqa: C901
    """Return the job that the arguments of launch_plan describe.

    target_needed: whether a script or module is required. Raise ValueError that lists all problems.
    """
    problems = environment_problems(args["environment"])
    min_nodes, max_nodes, elastic = 1, 1, False
    if args["nnodes"] not in (None, ""):
        try:
            min_nodes, max_nodes, elastic = parse_nnodes(args["nnodes"])
        except ValueError as error:
            problems.append(str(error))
    gpus: tuple[int, ...] = ()
    try:
        gpus = parse_gpus(args["gpus"])
        problems += environment_conflicts(gpus, args["environment"])
    except ValueError as error:
        problems.append(str(error))
    if bool(args["script"]) == bool(args["module"]) and (target_needed or args["script"]):
        problems.append(
            "set launch_script (a file) or launch_module (a module name), for example -e launch_script=train.py"
        )
    if args["no_python"] and args["module"]:
        problems.append("launch_no_python is for programs: set launch_script, not launch_module")
    problems += [
        f"launch_container_mounts has {ascii(mount)[:80]}; write ON_NODE:IN_CONTAINER or ON_NODE:IN_CONTAINER:ro"
        for mount in args["container_mounts"]
        if not re.match(r"[^:]+:/[^:]*(:[A-Za-z,]+)?\Z", mount)
    ]
    if args["deepspeed_launcher"] and args["launcher"] != "deepspeed":
        problems.append(
            f"launch_deepspeed_launcher requires launch_launcher: deepspeed, but launch_launcher is {args['launcher']}"
        )
    if args["accelerate_config"] and args["launcher"] != "accelerate":
        problems.append(
            f"launch_accelerate_config requires launch_launcher: accelerate, but launch_launcher is {args['launcher']}"
        )
    run_id = args["run_id"] or generate_run_id(args["script"], args["module"], args["name"])
    if not SAFE_RUN_ID.match(run_id):
        problems.append(
            f"run_id {ascii(run_id)[:80]} is not a valid name: use at most 63 letters, digits, '.', '_' and '-', "
            "starting with a letter or digit"
        )
    for name in ("master_port", "lifeline_port"):
        if not 1024 <= args[name] <= 65535:
            problems.append(f"launch_{name} is {args[name]}; use a port from 1024 to 65535")
    if args["master_port"] == args["lifeline_port"]:
        problems.append(
            f"launch_master_port and launch_lifeline_port are both {args['master_port']}; use two different ports"
        )
    for name, minimum in (("start_timeout", 5), ("silence_timeout", 5), ("stop_grace", 0)):
        if args[name] < minimum:
            problems.append(f"launch_{name} is {args[name]} s, but must be {minimum} or more")
    if args["stop_grace"] > MAX_STOP_GRACE:
        problems.append(f"launch_stop_grace is {args['stop_grace']} s, but must be {MAX_STOP_GRACE} or less")
    problems += metric_problems(args["metrics"]) + limit_problems(args)
    if args["hang_timeout"] < 0:
        problems.append(f"launch_hang_timeout is {args['hang_timeout']} s, but must be 1 or more, or 0 to disable it")
    problems += debugger_problems(args)
    if args["node_exporter_directory"] and not args["node_exporter_directory"].startswith("/"):
        problems.append(
            f"launch_node_exporter_directory is {ascii(args['node_exporter_directory'])[:80]}; use an absolute path"
        )
    if args["log_limit"] < 0:
        problems.append(f"launch_log_limit is {args['log_limit']} GB, but must be 1 or more, or 0 for no limit")
    if args["nproc_per_node"] is not None and args["nproc_per_node"] < 1:
        problems.append(f"nproc_per_node is {args['nproc_per_node']}, but must be 1 or more")
    restarts = args["max_restarts"]
    if restarts is not None and restarts < 0:
        problems.append(f"launch_max_restarts is {restarts}, but must be 0 or more")
    problems += restart_problems(args, max_nodes if args["nnodes"] not in (None, "") else None, elastic)
    if problems:
        raise ValueError("\n".join(problems))
    script = args["script"]
    if args["no_python"] and script and "/" not in script:
        script = f"./{script}"  # a name without a slash would be looked up on the PATH
    if restarts is None:
        restarts = 3 if elastic and args["launcher"] == "torchrun" else 0
    passed = {job_field.name: args[job_field.name] for job_field in fields(Job) if job_field.name in args}
    derived = {
        "run_id": run_id,
        "rdzv_backend": args["rdzv_backend"] or ("c10d" if elastic else "static"),
        "script": script,
        "variables": list(args["environment"]),
        "min_nnodes": min(min_nodes, max_nodes) if elastic else None,
        "max_restarts": restarts,
        **duration_options(args),
    }
    values: dict[str, Any] = {**passed, **derived, "gpus": gpus}
    for name, value in values.items():
        values[name] = tuple(value) if isinstance(value, list) else value
    return Job(**values)
