# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module benchmark: plan the job's measurements and judge the results. Connects to nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.baseline import compare
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.diagnostic import (
    diagnostic_findings,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import BenchmarkMeasurements
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.record import (
    BENCHMARK_FILE,
    MEASUREMENTS_FILE,
    load_benchmark,
    load_measurements,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import (
    OPERATIONS,
    plan_remeasurement,
    plan_task,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import (
    add_findings,
    find_suspects,
    judge,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.table import render
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_mapping, to_mappings
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import find_record, records_directory
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_file
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["planned", "suspected", "judged"], "required": True},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "seconds": {"type": "float", "default": 300.0},
    "collectives": {"type": "list", "elements": "str", "default": OPERATIONS},
    "max_buffer_bytes": {"type": "int", "default": 0},
    "run_id": {"type": "str", "default": ""},
    "again_run_id": {"type": "str", "default": ""},
    "baseline": {"type": "str", "default": ""},
    "network_gbps": {"type": "float"},
    "fail_on_slow": {"type": "bool", "default": False},
    "diagnostics": {"type": "dict", "default": {}},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
}
# a benchmark takes at most ten minutes, including startup and repeated measurements
MIN_SECONDS, MAX_SECONDS = 5.0, 400.0
PROGRAM = "benchmark_job.py"
REMEASURE_SHARE = 0.25  # fraction of the time taken by the first measurements
# Set by the benchmark itself: the same variables given with -e would override it
OVERRIDING_VARIABLES = ("job", "detach", "fitted") + tuple(
    f"launch_{name}"
    for name in ("script", "module", "args", "fitted", "launcher", "no_python", "working_directory", "run_id", "detach")
)


def plan_benchmark(args: dict[str, Any], directory: Path, extra: dict[str, Any]) -> dict[str, Any]:
    """Plan the measurements. Raise AnsibleActionFail for invalid requests, before anything is started."""
    overriding = [name for name in OVERRIDING_VARIABLES if name in extra]
    if overriding:
        raise UserError(
            f"{', '.join(overriding)} was set with -e, but the benchmark launches its own job: remove it. Your "
            "launch_python, launch_user, launch_image, launch_environment and launch_gpus remain in effect",
            result={"changed": False},
        )
    if not MIN_SECONDS <= args["seconds"] <= MAX_SECONDS:
        raise UserError(
            f"benchmark_seconds is {args['seconds']:g}, but must be between {MIN_SECONDS:g} and {MAX_SECONDS:g}",
            result={"changed": False},
        )
    unknown = [operation for operation in args["collectives"] if operation not in OPERATIONS]
    if unknown:
        raise UserError(
            f"benchmark_collectives contains {ascii(unknown[0])[:40]}; valid values: {', '.join(OPERATIONS)}",
            result={"changed": False},
        )
    if args["baseline"]:
        read_baseline(directory, args["baseline"])
    task = plan_task(len(args["nodes"]), args["seconds"], args["collectives"], args["max_buffer_bytes"])
    name = args["run_id"] or time.strftime("benchmark-%Y%m%d-%H%M%S")
    is_resumed = find_interrupted(directory, name, args["nodes"])
    if is_resumed:
        Display().display(f"[benchmark] {name} was interrupted: resuming it")
    return {"changed": False, "work": json.dumps(task), "run_id": name, "run_exists": is_resumed}


def find_interrupted(directory: Path, run_id: str, nodes: list[str]) -> bool:
    """Return whether there is an interrupted benchmark with this name. Raise AnsibleActionFail if another run has the
    name.
    """
    files = RecordFiles(directory / run_id)
    plan = to_mapping(files.read_json("plan.json"))
    if not plan:
        return False
    description = ""
    state = failed_state(files)
    if files.read_json(BENCHMARK_FILE) is not None:
        description = "a finished benchmark"
    elif not clean_text(plan.get("program"), 4096).endswith(f"/{PROGRAM}"):
        description = "not a benchmark run"
    elif {clean_text(node.get("name"), 300) for node in to_mappings(plan.get("nodes"))} != set(nodes):
        description = "a benchmark of different nodes"
    elif state:
        description = f"a benchmark that has already ended ({state})"
    if description:
        raise UserError(
            f"{run_id} is {description}: choose another name with -e run_id=NAME, or omit it to get a new one",
            result={"changed": False},
        )
    return True


def failed_state(files: RecordFiles) -> str:
    """Return the final state of a run that failed, or an empty string if it succeeded."""
    state = clean_text(to_mapping(files.read_json("result.json")).get("state"), 40)
    return "" if state == "succeeded" else state


def read_baseline(directory: Path, run_id: str) -> Benchmark:
    """Read an earlier benchmark. Raise AnsibleActionFail if it does not exist."""
    record = find_record(directory, run_id)
    benchmark = load_benchmark(record)
    if benchmark is None:
        raise UserError(
            (
                f"baseline is {record.name}, which is not a benchmark run, or its results have not been fetched: "
                f"specify a benchmark.yml run whose record contains {MEASUREMENTS_FILE}"
            ),
            result={"changed": False},
        )
    return benchmark


def read_measurements(directory: Path, args: dict[str, Any], run_id: str) -> BenchmarkMeasurements:
    """Read a run's measurements. Raise AnsibleActionFail if it has none."""
    record = find_record(directory, run_id)
    measurements = load_measurements(record, args["network_gbps"])
    if measurements is None:
        raise AnsibleActionFail(
            f"benchmark {run_id} has no results in {record / MEASUREMENTS_FILE}: fetch them with ansible-playbook "
            f"logs.yml -e run_id={run_id} -e fetch=true, and read the rank 0 log"
        )
    return measurements


def plan_repeat(args: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Plan which measurements to repeat on their own; work is empty if there are none."""
    suspects = find_suspects(read_measurements(directory, args, args["run_id"]))
    if not suspects["ranks"] and not suspects["pairs"]:
        return {"changed": False, "work": "", "run_exists": False}
    repeat_files = RecordFiles(directory / f"{args['run_id']}-again")
    state = failed_state(repeat_files)
    if state:
        raise UserError(
            f"{args['run_id']}-again, the repeat of the slow measurements, has already ended ({state}). "
            "Choose another name with -e run_id=NAME, or omit it to get a new one",
            result={"changed": False},
        )
    is_resumed = bool(repeat_files.read_json("plan.json"))
    Display().display(
        f"[benchmark] remeasuring {len(suspects['ranks'])} ranks and {len(suspects['pairs'])} node pairs, one at a time"
    )
    task = plan_remeasurement(suspects, REMEASURE_SHARE * args["seconds"])
    return {"changed": False, "work": json.dumps(task), "run_exists": is_resumed}


def judge_benchmark(args: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Judge, compare and show the benchmark, and write the result to the record."""
    measurements = read_measurements(directory, args, args["run_id"])
    remeasured = read_measurements(directory, args, args["again_run_id"]) if args["again_run_id"] else None
    benchmark = add_findings(judge(measurements, remeasured, args["run_id"]), diagnostic_findings(args["diagnostics"]))
    if args["baseline"]:
        benchmark = compare(benchmark, read_baseline(directory, args["baseline"]))
    write_file(
        find_record(directory, args["run_id"]) / BENCHMARK_FILE, json.dumps(benchmark, indent=1, allow_nan=False) + "\n"
    )
    Display().display(render(benchmark))
    problems = [finding for finding in benchmark["findings"] if finding["severity"] == "problem"]
    if problems and args["fail_on_slow"]:
        raise UserError(
            f"the benchmark found {len(problems)} problem{'s' * (len(problems) > 1)}, and "
            "benchmark_fail_on_slow is set",
            result={"changed": True},
        )
    return {"changed": True, "findings": benchmark["findings"], "verdict": benchmark["verdict"]}


class ActionModule(ActionBase):
    """Reads and writes records on the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan the measurements, plan which to repeat, or judge the results."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec=ARGUMENT_SPEC,
            required_if=[("state", "suspected", ("run_id",)), ("state", "judged", ("run_id",))],
        )
        directory = records_directory(args["directory"], args["group"], task_vars)
        if args["state"] == "planned":
            return plan_benchmark(args, directory, load_extra_vars(self._loader))
        if self._task.check_mode:
            return {"changed": args["state"] == "judged", "work": ""}
        return plan_repeat(args, directory) if args["state"] == "suspected" else judge_benchmark(args, directory)
