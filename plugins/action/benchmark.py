# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module benchmark: plan the job's measurements, and judge them. No connections."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.action.run_record import records_directory
from ansible_collections.muster.training.plugins.action.run_report import record_of
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.baseline import compare
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import Measured
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.record import (
    JUDGED,
    MEASURED,
    benchmark_in,
    measured_in,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import (
    OPERATIONS,
    work_again,
    work_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import judge, suspects
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.table import render
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean, mapping, mappings
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Files
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_file
from ansible_collections.muster.training.plugins.plugin_utils._user_error import Refusal

ARGUMENT_SPEC = {
    "state": {"type": "str", "choices": ["planned", "suspected", "judged"], "required": True},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "seconds": {"type": "float", "default": 300.0},
    "collectives": {"type": "list", "elements": "str", "default": OPERATIONS},
    "largest": {"type": "int", "default": 0},
    "run_id": {"type": "str", "default": ""},
    "again_run_id": {"type": "str", "default": ""},
    "baseline": {"type": "str", "default": ""},
    "network_gbps": {"type": "float"},
    "fail_on_slow": {"type": "bool", "default": False},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
}
LEAST_SECONDS, MOST_SECONDS = 5.0, 400.0  # at most ten minutes with starts and second measurements
PROGRAM = "benchmark_job.py"
SECOND_LOOK = 0.25  # share of the first measurements' seconds
# Set by the benchmark itself: the same variables given with -e would override it
OWN = ("job", "detach", "fitted") + tuple(
    f"launch_{name}"
    for name in ("script", "module", "args", "fitted", "launcher", "no_python", "working_directory", "run_id", "detach")
)


def plan(args: dict[str, Any], directory: Path, extra: dict[str, Any]) -> dict[str, Any]:
    """What to measure. Raises AnsibleActionFail for invalid requests, before anything is started."""
    given = [name for name in OWN if name in extra]
    if given:
        raise Refusal(
            f"{', '.join(given)} was given with -e, but the benchmark is a job of its own: leave it out. It uses "
            "only your launch_python, launch_user, launch_image and launch_environment",
            result={"changed": False},
        )
    if not LEAST_SECONDS <= args["seconds"] <= MOST_SECONDS:
        raise Refusal(
            f"benchmark_seconds is {args['seconds']:g}, but must be {LEAST_SECONDS:g} to {MOST_SECONDS:g}",
            result={"changed": False},
        )
    unknown = [one for one in args["collectives"] if one not in OPERATIONS]
    if unknown:
        raise Refusal(
            f"benchmark_collectives has {ascii(unknown[0])[:40]}; valid are {', '.join(OPERATIONS)}",
            result={"changed": False},
        )
    if args["baseline"]:
        read_baseline(directory, args["baseline"])
    work = work_of(len(args["nodes"]), args["seconds"], args["collectives"], args["largest"])
    name = args["run_id"] or time.strftime("benchmark-%Y%m%d-%H%M%S")
    begun = has_begun(directory, name, args["nodes"])
    if begun:
        Display().display(f"[benchmark] {name} was interrupted: resuming it")
    return {"changed": False, "work": json.dumps(work), "run_id": name, "begun": begun}


def has_begun(directory: Path, run_id: str, nodes: list[str]) -> bool:
    """Whether an interrupted benchmark has this name. Raises AnsibleActionFail if any other run has it."""
    files = Files(directory / run_id)
    found = mapping(files.document("plan.json"))
    if not found:
        return False
    why = ""
    ended = ended_otherwise(files)
    if files.document(JUDGED) is not None:
        why = "a finished benchmark"
    elif not clean(found.get("program"), 4096).endswith(f"/{PROGRAM}"):
        why = "a run that was not a benchmark"
    elif {clean(node.get("name"), 300) for node in mappings(found.get("nodes"))} != set(nodes):
        why = "a benchmark of other nodes"
    elif ended:
        why = f"a benchmark that was not interrupted but ended: {ended}"
    if why:
        raise Refusal(
            f"{run_id} is {why}: choose another name with -e run_id=NAME, or leave it out to get a new one",
            result={"changed": False},
        )
    return True


def ended_otherwise(files: Files) -> str:
    """How a run ended if it did not succeed, else ""."""
    state = clean(mapping(files.document("result.json")).get("state"), 40)
    return "" if state == "succeeded" else state


def read_baseline(directory: Path, run_id: str) -> Benchmark:
    """An earlier benchmark. Raises AnsibleActionFail if none has this name."""
    record = record_of(directory, run_id)
    found = benchmark_in(record)
    if found is None:
        raise Refusal(
            f"baseline is {record.name}, which was not a benchmark, or its results were not fetched: name one that "
            f"benchmark.yml launched and that has {MEASURED} in its record",
            result={"changed": False},
        )
    return found


def measured_of(directory: Path, args: dict[str, Any], run_id: str) -> Measured:
    """A run's measurements. Raises AnsibleActionFail if there are none."""
    record = record_of(directory, run_id)
    found = measured_in(record, args["network_gbps"])
    if found is None:
        raise AnsibleActionFail(
            f"benchmark {run_id} left nothing in {record / MEASURED}: fetch it with ansible-playbook logs.yml "
            f"-e run_id={run_id} -e fetch=true, and read the log of its rank 0"
        )
    return found


def suspect(args: dict[str, Any], directory: Path) -> dict[str, Any]:
    """What to measure again alone; work is empty if nothing."""
    found = suspects(measured_of(directory, args, args["run_id"]))
    if not found["ranks"] and not found["pairs"]:
        return {"changed": False, "work": "", "begun": False}
    second = Files(directory / f"{args['run_id']}-again")
    ended = ended_otherwise(second)
    if ended:
        raise Refusal(
            f"{args['run_id']}-again, the repeat of the slow measurements, ended: {ended}. Choose another "
            "name with -e run_id=NAME, or leave it out to get a new one",
            result={"changed": False},
        )
    begun = bool(second.document("plan.json"))
    Display().display(
        f"[benchmark] {len(found['ranks'])} ranks and {len(found['pairs'])} pairs of nodes are measured again, one at "
        "a time"
    )
    work = work_again(found, SECOND_LOOK * args["seconds"])
    return {"changed": False, "work": json.dumps(work), "begun": begun}


def conclude(args: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Judge, compare, show, and write the benchmark into the record."""
    measured = measured_of(directory, args, args["run_id"])
    again = measured_of(directory, args, args["again_run_id"]) if args["again_run_id"] else None
    found = judge(measured, again, args["run_id"])
    if args["baseline"]:
        found = compare(found, read_baseline(directory, args["baseline"]))
    write_file(record_of(directory, args["run_id"]) / JUDGED, json.dumps(found, indent=1, allow_nan=False) + "\n")
    Display().display(render(found))
    problems = [one for one in found["findings"] if one["severity"] == "problem"]
    if problems and args["fail_on_slow"]:
        raise Refusal(
            f"the benchmark has found {len(problems)} problem{'s' * (len(problems) > 1)}, and "
            "benchmark_fail_on_slow is set",
            result={"changed": True},
        )
    return {"changed": True, "findings": found["findings"], "verdict": found["verdict"]}


class ActionModule(ActionBase):
    """Reads and writes records of the controller."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan, suspect or judge."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec=ARGUMENT_SPEC,
            required_if=[("state", "suspected", ("run_id",)), ("state", "judged", ("run_id",))],
        )
        directory = records_directory(args["directory"], args["group"], task_vars)
        if args["state"] == "planned":
            return plan(args, directory, load_extra_vars(self._loader))
        if self._task.check_mode:
            return {"changed": args["state"] == "judged", "work": ""}
        return suspect(args, directory) if args["state"] == "suspected" else conclude(args, directory)
