# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the launches of a rehearsal, and keep the state in rehearsal.json.

It can resume after any interruption: each launch is recorded before the next one starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.documents import (
    ALL_NODES,
    RESUMED,
    TWO_NODES,
    VERSION,
    Rehearsal,
    RehearsalJob,
    RehearsalLaunch,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.forecast import find_launch, judge
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import salted_hash
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import (
    SINGLE_ATTEMPT,
    ExperimentError,
    ResumableSequence,
    StateFile,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.run_names import free_name
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_mapping, to_number
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import Curve
from ansible_collections.muster.training.plugins.plugin_utils._report.report import compose_report, failure_location

STATE_FILE = "rehearsal.json"
STEPS, NAME, CHECKPOINT = "{steps}", "{name}", "{checkpoint}"
FIRST_NODES = 2  # number of nodes in the first launch
LOSS = re.compile(r"(?:.*[/_])?loss\Z", re.IGNORECASE)
STEP_RATE = re.compile(r"(?:train_)?steps_per_second\Z")
MAX_POINTS = 10_000  # number of points of a curve that are kept


class RehearsalRunner(ResumableSequence[Rehearsal]):
    """Runs a rehearsal's launches, and judges them."""

    kind = "rehearsal"

    @classmethod
    def state_file(cls, directory: Path) -> StateFile[Rehearsal]:
        """Return the file in this directory that contains the rehearsal's state."""
        return StateFile(directory / STATE_FILE, Rehearsal, VERSION)

    def load_state(self, job: RehearsalJob) -> Rehearsal:
        """Return the state of an earlier rehearsal of this name, or a new one. Raise ExperimentError if they differ."""
        rehearsal = self.file.read()
        if rehearsal is None:
            salt, common = self.seal()
            return {
                "version": VERSION,
                "salt": salt,
                "common": common,
                "job": job,
                "starts": [],
                "running": "",
                "checkpoint_bytes": None,
                "free_bytes": None,
                "resumed": None,
                "total_seconds": None,
                "total_cost": None,
                "findings": [],
                "go": None,
            }
        reason = "has ended" if rehearsal["go"] is not None else ""
        if rehearsal["common"] != salted_hash(rehearsal["salt"], self.common):
            reason = "has a different job or different nodes"
        if rehearsal["job"] != job:
            reason = "has different settings"
        if reason:
            raise ExperimentError(
                f"{self.directory.name} is a rehearsal that {reason}: choose another name with -e run_id=NAME, or "
                f"remove {self.directory} to start over"
            )
        return rehearsal

    def run(self, job: RehearsalJob) -> Rehearsal:
        """Run all launches that have not succeeded yet. Raise ExperimentError if one fails."""
        rehearsal = self.load_state(job)
        if rehearsal["running"]:
            self.stop_interrupted([rehearsal["running"]])
            if rehearsal["running"].startswith(f"{self.directory.name}-{RESUMED}"):
                # the launch may have overwritten the checkpoint that it resumed from
                rehearsal = {
                    **rehearsal,
                    "starts": [launch for launch in rehearsal["starts"] if launch["kind"] != ALL_NODES],
                }
        kinds = [TWO_NODES] if job["nnodes"] > FIRST_NODES else []
        kinds += [ALL_NODES, RESUMED] if job["resume_args"] else [ALL_NODES]
        for number, kind in enumerate(kinds, 1):
            if find_launch(rehearsal["starts"], kind) is not None:
                continue
            run_id = free_name(self.runs, f"{self.directory.name}-{kind}")
            variables = self.variables(rehearsal, kind, run_id)
            self.display(f"start {number} of {len(kinds)}: {DESCRIPTIONS[kind]}")
            self.file.write({**rehearsal, "running": run_id})
            launch = self.launch(job, kind, run_id, variables)
            rehearsal = {**rehearsal, "running": "", "starts": [*rehearsal["starts"], launch]}
            self.file.write(rehearsal)
        return rehearsal

    def variables(self, rehearsal: Rehearsal, kind: str, run_id: str) -> dict[str, Any]:
        """Return a launch's variables. Raise ExperimentError if the launch needs a checkpoint that was not reported."""
        job = rehearsal["job"]
        full_launch = find_launch(rehearsal["starts"], ALL_NODES)
        checkpoint = full_launch["checkpoint"] if full_launch is not None else ""
        args = job["resume_args"] if kind == RESUMED else job["args"]
        if kind == RESUMED and not checkpoint and any(CHECKPOINT in arg for arg in args):
            raise ExperimentError(
                f"rehearse_resume_args contains {CHECKPOINT}, but the job reported no checkpoint: have rank 0 "
                'print MUSTER_RESULT {"checkpoint": "/absolute/path"} once it has saved one'
            )
        values = {
            STEPS: str(job["steps"] * (2 if kind == RESUMED else 1)),
            # the resumed launch looks where the first launch saved
            NAME: full_launch["run_id"] if full_launch is not None else run_id,
            CHECKPOINT: checkpoint,
        }
        size = {"nnodes": FIRST_NODES, "launch_nnodes": FIRST_NODES} if kind == TWO_NODES else {}
        return {
            **SINGLE_ATTEMPT,
            "launch_args": [fill_placeholders(arg, values) for arg in args],
            "launch_fetch_record": True,
            **size,
        }

    def launch(self, job: RehearsalJob, kind: str, run_id: str, variables: Mapping[str, Any]) -> RehearsalLaunch:
        """Launch a run, and return its measurements. Raise ExperimentError if it fails."""
        launch_result = self.runner.launch(run_id, variables, job["timeout"])
        self.check_interrupted(run_id)
        if launch_result.timed_out:
            raise ExperimentError(
                f"{run_id} ran for {job['timeout']:.0f} s and was stopped: make the script end after {STEPS} "
                "steps, or raise rehearse_timeout"
            )
        record = self.runs / run_id
        result = self.read_result(run_id, launch_result)
        if result.get("state") != "succeeded":
            failure = compose_report(read_record(record, run_id), 0.0)["failure"]
            reason = (
                f"{failure_location(failure)}: {failure['error']}"
                if failure is not None
                else clean_text(result.get("reason"), 300)
            )
            raise ExperimentError(
                f"not yet: {run_id} ({DESCRIPTIONS[kind]}) failed: {reason}. Its output is in "
                f"{self.launch_log(run_id)}. Once the script is fixed, run the same command again to resume"
            )
        return measure_launch(record, kind, job)


DESCRIPTIONS = {
    TWO_NODES: "a few steps on two nodes",
    ALL_NODES: "a few steps on all nodes, and a checkpoint",
    RESUMED: "on all nodes again, from the checkpoint",
}


def finish_rehearsal(directory: Path, checkpoint_bytes: int | None, free_bytes: int | None) -> Rehearsal:
    """Judge a rehearsal after its launches, and write the result. Raise ExperimentError if no rehearsal exists."""
    file = RehearsalRunner.state_file(directory)
    rehearsal = file.read()
    if rehearsal is None:
        raise ExperimentError(f"{file.path} does not exist: run the rehearsal first")
    judged = judge(rehearsal, checkpoint_bytes, free_bytes)
    file.write(judged)
    return judged


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its placeholders replaced."""
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def measure_launch(record: Path, kind: str, job: RehearsalJob) -> RehearsalLaunch:
    """Return the measurements from a successful launch."""
    run_record = read_record(record, record.name)
    report = compose_report(run_record, 0.0)
    reported = to_mapping(to_mapping(run_record.result).get("job_results"))
    numbers = {name: value for name, item in reported.items() if (value := to_number(item)) is not None}
    gpu_memory = [value for node in run_record.nodes for gpu in node.gpus for value in gpu.measure("memory_used_mib")]
    curve = find_curve(run_record.curves, job["loss"])
    points = sorted(zip(curve.step, curve.value, strict=False))[:MAX_POINTS] if curve is not None else []
    path = reported.get("checkpoint")
    is_path = isinstance(path, str) and path.startswith("/") and path == clean_text(path)
    return {
        "kind": kind,
        "run_id": record.name,
        "nnodes": report["nnodes"],
        "node": report["nodes"][0]["name"] if report["nodes"] else "",
        "run_seconds": report["seconds"],
        "step_seconds": step_seconds(numbers, report["samples_per_second"], report["world_size"]),
        "memory_mib": numbers.get("peak_memory_mib")
        or max((memory for memory in gpu_memory if not math.isnan(memory)), default=None),
        "checkpoint": path if isinstance(path, str) and is_path else "",
        "checkpoint_seconds": numbers.get("checkpoint_seconds"),
        "per_hour": report["cost"]["per_hour"],
        "currency": report["cost"]["currency"],
        "steps": [step for step, _value in points],
        "loss": [value for _step, value in points],
        "broken": min(
            (step for name, step in run_record.non_finite.items() if is_loss(name, job["loss"])), default=None
        ),
    }


def step_seconds(numbers: Mapping[str, float], rate: float | None, ranks: int) -> float | None:
    """Return the seconds per step, either as reported or computed from the throughput and the batch size."""
    if numbers.get("seconds_per_step", 0.0) > 0:
        return numbers["seconds_per_step"]
    for name, value in numbers.items():
        if STEP_RATE.match(name) and value > 0:
            return 1.0 / value
    batch = numbers.get("global_batch_size") or numbers.get("batch_size", 0.0) * ranks
    return batch / rate if rate and batch > 0 else None


def find_curve(curves: Sequence[Curve], name: str) -> Curve | None:
    """Return the curve with this name or, if no name is given, the first curve called loss.

    Curves in trainer_state.json are ignored: a resumed launch copies the points of the first one into it.
    """
    own_curves = [curve for curve in curves if not curve.source.endswith("trainer_state.json")]
    for curve in own_curves:
        if is_loss(curve.name.partition(" (")[0], name):
            return curve
    return None


def is_loss(curve_name: str, name: str) -> bool:
    """Return whether a measure has this name or, if name is empty, is called loss."""
    return curve_name == name if name else LOSS.match(curve_name) is not None
