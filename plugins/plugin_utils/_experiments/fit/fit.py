# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Search for the largest batch size, launch by launch, and keep the state in fit.json.

It can resume after any interruption: each probe is recorded before the next one starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.outcome import (
    ProbeOutcome,
    classify_probe,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import (
    NextStep,
    Probe,
    SearchSettings,
    bounds,
    choose_next,
    fastest_probe,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import fill_batch_size
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import salted_hash
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import PlaybookResult
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import (
    SINGLE_ATTEMPT,
    ExperimentError,
    ResumableSequence,
    StateFile,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.run_names import free_name
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_mapping,
    to_mappings,
    to_number,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles, read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.report import samples_per_second

VERSION = 1
STATE_FILE = "fit.json"
LOG_TAIL_BYTES = 64 << 10  # bytes searched at the end of each rank's log
MAX_LOGS = 256


class FitJob(TypedDict):
    """The job to launch, with placeholders for the batch size.

    confirm_args: arguments of the last, longer run, empty to use args. patience: seconds that a probe may take.
    """

    args: str | list[str]
    confirm_args: str | list[str]
    timeout: float


class SearchState(TypedDict):
    """The contents of fit.json. result is None until the search has ended, and 0 if no batch size fits.

    common: salted hash of the job and its nodes, to detect a search with a different job or nodes.
    """

    version: int
    salt: str
    common: str
    job: FitJob
    search: SearchSettings
    program: str  # the launched script or module; "" until the first probe has ended
    nnodes: int
    history: list[Probe]
    running: str  # run_id of the probe that was in progress when this was written
    result: int | None
    fastest: int | None


class BatchSearch(ResumableSequence[SearchState]):
    """A search for the largest batch size."""

    kind = "search"

    @classmethod
    def state_file(cls, directory: Path) -> StateFile[SearchState]:
        """Return the file in this directory that contains the search's state."""
        return StateFile(directory / STATE_FILE, SearchState, VERSION)

    def load_state(self, job: FitJob, search: SearchSettings) -> SearchState:
        """Return the state of an earlier search with this name, or a new one. Raise ExperimentError if they differ."""
        state = self.file.read()
        if state is None:
            salt, common = self.seal()
            return {
                "version": VERSION,
                "salt": salt,
                "common": common,
                "job": job,
                "search": search,
                "program": "",
                "nnodes": 0,
                "history": [],
                "running": "",
                "result": None,
                "fastest": None,
            }
        if state["job"] != job or state["search"] != search:
            raise ExperimentError(
                f"{self.directory.name} is a search with different settings: choose another name with -e run_id=NAME, "
                f"or remove {self.directory} to start over"
            )
        if state["common"] != salted_hash(state["salt"], self.common):
            raise ExperimentError(
                f"{self.directory.name} is a search with a different job or on different nodes: choose another name "
                f"with -e run_id=NAME, or remove {self.directory} to start over"
            )
        return state

    def search(self, job: FitJob, search: SearchSettings) -> SearchState:
        """Run the search to its end. Raise ExperimentError if a probe fails for reasons other than its batch size."""
        state = self.load_state(job, search)
        if state["running"]:
            self.stop_interrupted([state["running"]])
        if state["result"] is not None:
            self.display("nothing to launch: this is the result of an earlier search")
        while not (next_step := choose_next(state["history"], search))["finished"]:
            self.announce(state["history"], next_step)
            run_id = free_name(self.runs, f"{self.directory.name}-b{next_step['batch']}")
            self.file.write({**state, "running": run_id})
            probe = self.run_probe(state, next_step, run_id)
            plan = to_mapping(RecordFiles(self.runs / run_id).read_json("plan.json"))
            state = {
                **state,
                "program": clean_text(plan.get("program"), 4096),
                "nnodes": len(to_mappings(plan.get("nodes"))),
                "history": [*state["history"], probe],
                "running": "",
            }
            self.file.write(state)
            self.display(f"batch {probe['batch']} {'fits' if probe['fits'] else 'does not fit: ' + probe['reason']}")
        best = fastest_probe(state["history"])
        state = {**state, "result": next_step["result"], "fastest": best["batch"] if best is not None else None}
        self.file.write(state)
        return state

    def announce(self, history: Sequence[Probe], next_step: NextStep) -> None:
        """Print a line that announces a probe."""
        durations = [probe["seconds"] for probe in history]
        average = f", {sum(durations) / len(durations):.0f} s each" if durations else ""
        description = (
            "confirming the result in a longer run" if next_step["confirms"] else f"batch {next_step['batch']}"
        )
        total = len(history) + next_step["remaining"] + (not next_step["confirms"])
        self.display(f"probe {len(history) + 1} of about {total}{average}: {description}")

    def run_probe(self, state: SearchState, next_step: NextStep, run_id: str) -> Probe:
        """Launch a run with one batch size, and return its outcome.

        Raise ExperimentError if it failed for a reason other than memory.
        """
        batch, job = next_step["batch"], state["job"]
        args = job["confirm_args"] if next_step["confirms"] and job["confirm_args"] else job["args"]
        variables = {**SINGLE_ATTEMPT, "launch_args": fill_batch_size(args, batch)}
        launch_result = self.runner.launch(run_id, variables, job["timeout"])
        self.check_interrupted(run_id)
        if launch_result.timed_out:
            raise ExperimentError(
                f"{run_id} ran for {job['timeout']:.0f} s and was stopped: give the script a step limit, such as "
                "--max_steps 20, in fit_args, or raise fit_probe_timeout"
            )
        record = self.runs / run_id
        result = self.read_result(run_id, launch_result)
        smaller_fits = bounds(state["history"])[0] > 0
        outcome = classify_probe(result, [], smaller_fits)
        if outcome.kind == "other":  # for a rank without an error file, the reason may appear only in its log
            self.runner.play("logs", f"{run_id}-logs", {"run_id": run_id, "fetch": True})
            outcome = classify_probe(result, read_log_tails(record), smaller_fits)
        if outcome.kind == "other":
            raise ExperimentError(
                f"{run_id} failed for a reason other than a lack of memory: {outcome.reason}. Its output is in "
                f"{self.launch_log(run_id)}. Once the script is fixed, run the same command again to resume"
            )
        return self.build_probe(record, result, next_step, outcome, launch_result)

    def build_probe(
        self, record: Path, result: Any, next_step: NextStep, outcome: ProbeOutcome, launch_result: PlaybookResult
    ) -> Probe:
        """Return the measurements of a finished probe."""
        run_record = read_record(record, record.name)
        reported = {
            name: value
            for name, item in to_mapping(result.get("job_results")).items()
            if (value := to_number(item)) is not None
        }
        gpu_memory = [
            value for node in run_record.nodes for gpu in node.gpus for value in gpu.measure("memory_used_mib")
        ]
        nodes = to_mappings(to_mapping(run_record.plan).get("nodes"))
        totals = [to_number(to_mapping(node.get("hardware")).get("memory_mib")) for node in nodes]
        peak_memory = reported.get("peak_memory_mib") or max(
            (value for value in gpu_memory if not math.isnan(value)), default=None
        )
        return {
            "batch": next_step["batch"],
            "fits": outcome.kind == "fits",
            "confirms": next_step["confirms"],
            "run_id": record.name,
            "reason": outcome.reason,
            "seconds": launch_result.seconds,
            "memory_mib": peak_memory,
            "total_mib": reported.get("total_memory_mib") or min((total for total in totals if total), default=None),
            "samples_per_second": samples_per_second(reported, []),
        }


def read_log_tails(record: Path) -> list[str]:
    """Return the ends of the ranks' stderr logs and of the launchers' logs."""
    files = RecordFiles(record)
    names = [name for name in files.list_files("logs") if name.endswith(("/stderr.log", "/launcher.log"))]
    return [files.read_tail(name, LOG_TAIL_BYTES) for name in names[:MAX_LOGS]]
