# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launch variants one after another, or several at a time through a queue, and keep the state in sweep.json.

It can resume after any interruption: each run is recorded before the next one starts.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import (
    BatchSearch,
    FitJob,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import SearchSettings
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import fill_batch_size
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import salted_hash
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import PlaybookResult
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import (
    ExperimentError,
    PlaybookRunner,
    ResumableSequence,
    StateFile,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.run_names import free_name
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import (
    LARGEST,
    SAME,
    VERSION,
    SweepState,
    Variant,
    VariantRun,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.measured import MAX_REASON, measure_run
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.table import (
    build_table,
    render_markdown,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_file

STATE_FILE, PAGE_FILE = "sweep.json", "sweep.md"


class SweepRequest(NamedTuple):
    """The requested runs.

    repeats: runs per variant; search: settings of the search for the largest batch, or None for no search. timeout,
    fit_timeout: seconds that a launch, and a launch of a search, may take. parallel: how many variants are in the queue
    at a time, or 0 without a queue.
    """

    variants: Sequence[Variant]
    repeats: int
    timeout: float
    search: SearchSettings | None
    fit_timeout: float
    parallel: int = 0


class VariantRunner:
    """A PlaybookRunner for one variant's search: the search's variables override the variant's."""

    def __init__(self, sweep: Sweep, variant: Variant) -> None:
        self.sweep, self.variant = sweep, variant

    @property
    def interrupted(self) -> bool:
        return self.sweep.runner.interrupted

    def launch(self, run_id: str, variables: Mapping[str, Any], timeout: float) -> PlaybookResult:
        return self.sweep.launch(run_id, {**self.variant["variables"], **variables}, timeout)

    def stop(self, run_id: str) -> PlaybookResult:
        return self.sweep.runner.stop(run_id)

    def play(self, name: str, log: str, variables: Mapping[str, Any]) -> PlaybookResult:
        return self.sweep.runner.play(name, log, variables)


class Sweep(ResumableSequence[SweepState]):
    """Launches and compares variants."""

    kind = "sweep"

    def __init__(
        self, directory: Path, runs: Path, runner: PlaybookRunner, display: Callable[[str], None], common: str = ""
    ) -> None:
        super().__init__(directory, runs, runner, display, common)
        # whether launches are waiting in a queue; this waiting time is not counted as part of their duration
        self.is_queued = False
        self.lock = threading.RLock()  # protects the state
        self.state: SweepState = self.file.read() or {
            "version": VERSION,
            "salt": secrets.token_hex(16),
            "runs": [],
            "fits": {},
            "running": [],
            "tables": [],
        }

    @classmethod
    def state_file(cls, directory: Path) -> StateFile[SweepState]:
        """Return the file in this directory that contains the sweep's state."""
        return StateFile(directory / STATE_FILE, SweepState, VERSION)

    def save(self) -> None:
        """Write sweep.json."""
        self.file.write(self.state)

    def hash_settings(self, variant: Variant) -> str:
        """Return a salted hash of a variant's settings, which detects changes without revealing secrets."""
        return salted_hash(self.state["salt"], self.common, variant["variables"], variant["fit_args"])

    def run(self, request: SweepRequest) -> SweepState:
        """Launch all runs that have not succeeded yet, then create the tables. Raise ExperimentError if interrupted."""
        self.is_queued = request.parallel > 0
        self.stop_interrupted(self.state["running"])
        self.state["running"] = []
        settings = {variant["name"]: self.hash_settings(variant) for variant in request.variants}
        self.state["runs"] = [  # failed runs are repeated, as are those that used other settings
            run
            for run in self.state["runs"]
            if run["succeeded"] and run["settings"] == settings.get(run["variant"]) and run["repeat"] <= request.repeats
        ]
        self.state["tables"] = []
        self.save()
        launched = False
        batches = (SAME, LARGEST) if request.search is not None else (SAME,)
        for batch in batches:
            failed_variants: set[str] = set()
            for repeat in range(1, request.repeats + 1):
                variants = [
                    variant
                    for variant in request.variants
                    if variant["name"] not in failed_variants
                    and not any(self.matches(run, variant, batch, repeat) for run in self.state["runs"])
                ]
                launched = launched or bool(variants)
                failed_variants |= self.run_variants(variants, batch, repeat, request)
        if not launched:
            self.display("nothing to launch: these are the results of an earlier sweep")
        self.state["tables"] = [build_table(batch, request.variants, self.state["runs"]) for batch in batches]
        self.save()
        page = [f"# {self.directory.name}", "", *(render_markdown(table) for table in self.state["tables"])]
        write_file(self.directory / PAGE_FILE, "\n".join(page))
        return self.state

    @staticmethod
    def matches(run: VariantRun, variant: Variant, batch: str, repeat: int) -> bool:
        return (run["variant"], run["batch"], run["repeat"]) == (variant["name"], batch, repeat)

    def run_variants(self, variants: Sequence[Variant], batch: str, repeat: int, request: SweepRequest) -> set[str]:
        """Launch variants, and return the names of the variants that failed. Raise ExperimentError if interrupted."""
        if request.parallel < 2:
            return {variant["name"] for variant in variants if not self.run_variant(variant, batch, repeat, request)}
        with ThreadPoolExecutor(request.parallel) as pool:
            successes = [pool.submit(self.run_queued, variant, batch, repeat, request) for variant in variants]
        return {variant["name"] for variant, success in zip(variants, successes, strict=True) if not success.result()}

    def run_queued(self, variant: Variant, batch: str, repeat: int, request: SweepRequest) -> bool:
        """Launch a variant when its turn comes; return whether it succeeded.

        Raise ExperimentError if interrupted before that.
        """
        if self.runner.interrupted:
            raise ExperimentError("interrupted; run the same command again to resume")
        return self.run_variant(variant, batch, repeat, request)

    def run_variant(self, variant: Variant, batch: str, repeat: int, request: SweepRequest) -> bool:
        """Launch a variant, and return whether it succeeded. Raise ExperimentError if interrupted."""
        name, variables = variant["name"], dict(variant["variables"])
        position = f"variant {request.variants.index(variant) + 1} of {len(request.variants)}"
        position += f", repeat {repeat} of {request.repeats}" if request.repeats > 1 else ""
        description = name
        if batch == LARGEST and request.search is not None:
            batch_size, reason = self.find_largest_batch(
                variant, f"{position}, {name}", request.search, request.fit_timeout
            )
            if not batch_size:
                self.record_run(failed_run(variant, batch, repeat, self.hash_settings(variant), reason))
                return False
            variables["launch_args"] = fill_batch_size(variant["fit_args"], batch_size)
            description = f"{name} with its largest batch, {batch_size}"
        run_id = free_name(self.runs, f"{self.directory.name}-{name}{'-largest' if batch == LARGEST else ''}")
        durations = [run["launch_seconds"] for run in self.state["runs"] if run["succeeded"]]
        self.display(
            f"{position}{f', about {sum(durations) / len(durations):.0f} s each' if durations else ''}: {description}"
        )
        launch_result = self.launch(run_id, {**variables, "launch_detach": False}, request.timeout or math.inf)
        self.check_interrupted(run_id)
        measurements = measure_run(self.runs / run_id, launch_result, self.launch_log(run_id), time.time())
        run = VariantRun(
            variant=name,
            batch=batch,
            repeat=repeat,
            run_id=run_id,
            settings=self.hash_settings(variant),
            **measurements,
        )
        self.record_run(run)
        return run["succeeded"]

    def record_run(self, run: VariantRun) -> None:
        """Record a launch's result, and report any failure."""
        with self.lock:
            self.state["runs"].append(run)
            self.save()
        if not run["succeeded"]:
            self.display(f"{run['variant']} failed and is skipped: {run['reason']}")

    def find_largest_batch(
        self, variant: Variant, position: str, search: SearchSettings, timeout: float
    ) -> tuple[int, str]:
        """Return a variant's largest batch size, searching for it unless it is known, or 0 and the reason."""
        settings = self.hash_settings(variant)
        fitted = self.state["fits"].get(variant["name"])
        if fitted is None or fitted["settings"] != settings:
            name = free_name(self.runs, f"{self.directory.name}-{variant['name']}-fit")
            fitted = {"directory": name, "settings": settings}
            with self.lock:
                self.state["fits"][variant["name"]] = fitted
                self.save()
        display: Callable[[str], None] = lambda text: self.display(f"{position}: {text}")  # noqa: E731
        batch_search = BatchSearch(self.runs / fitted["directory"], self.runs, VariantRunner(self, variant), display)
        job = FitJob(args=variant["fit_args"], confirm_args=[], timeout=timeout)
        try:
            result = batch_search.search(job, search)["result"]
        except ExperimentError as error:
            if self.runner.interrupted:
                raise
            return 0, clean_text(str(error), MAX_REASON)
        return result or 0, "" if result else "no batch fits"

    def launch(self, run_id: str, variables: Mapping[str, Any], timeout: float) -> PlaybookResult:
        """Launch a run, which is recorded as running until it has ended.

        Time in a queue is not counted: Slurm limits the time of a queued run.
        """
        with self.lock:
            self.state["running"].append(run_id)
            self.save()
        if self.is_queued and timeout < math.inf:
            variables, timeout = {**variables, "launch_slurm_time": slurm_minutes(timeout)}, math.inf
        launch_result = self.runner.launch(run_id, variables, timeout)
        if not self.runner.interrupted:
            with self.lock:
                self.state["running"].remove(run_id)
                self.save()
        return launch_result


def slurm_minutes(seconds: float) -> str:
    """Return a time limit in minutes, the unit that Slurm uses."""
    return str(max(1, math.ceil(seconds / 60)))


def failed_run(variant: Variant, batch: str, repeat: int, settings: str, reason: str) -> VariantRun:
    """Return the VariantRun for a variant that could not be launched because no batch size was found for it."""
    return {
        "variant": variant["name"],
        "batch": batch,
        "repeat": repeat,
        "run_id": "",
        "settings": settings,
        "succeeded": False,
        "reason": reason,
        "launch_seconds": 0.0,
        "run_seconds": None,
        "nnodes": 0,
        "ranks": 0,
        "batch_size": None,
        "global_batch_size": None,
        "samples_per_second": None,
        "memory_mib": None,
        "cost": None,
        "per_hour": None,
        "currency": "",
        "cost_missing": "",
    }
