# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launches variants one after another, and keeps its state in sweep.json. Private to this collection.

Controller only. It can resume after any interruption: each run is recorded before the next one starts.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import Fit, FitError, Job, Launcher
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import Search
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import filled
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import sealed
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import Ended
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.run_names import free_name
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import (
    LARGEST,
    SAME,
    VERSION,
    Run,
    State,
    Variant,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.measured import LONGEST_WHY, measured
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.table import for_markdown, table_of
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Files
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_file

FILE, PAGE = "sweep.json", "sweep.md"


class SweepError(Exception):
    """The sweep ends here; the text says why, and what to do."""


class Wanted(NamedTuple):
    """What to run. repeats: runs per variant; search: settings of the search for the largest batch, None for no search.

    timeout, fit_timeout: seconds that a launch, and a launch of a search, may take.
    """

    variants: Sequence[Variant]
    repeats: int
    timeout: float
    search: Search | None
    fit_timeout: float


class Laid:
    """A Launcher for the search of one variant: the search's variables override the variant's."""

    def __init__(self, sweep: Sweep, variant: Variant) -> None:
        self.sweep, self.variant = sweep, variant

    @property
    def interrupted(self) -> bool:
        return self.sweep.launcher.interrupted

    def launch(self, run_id: str, variables: Mapping[str, Any], patience: float) -> Ended:
        return self.sweep.launch(run_id, {**self.variant["variables"], **variables}, patience)

    def stop(self, run_id: str) -> Ended:
        return self.sweep.launcher.stop(run_id)

    def play(self, name: str, log: str, variables: Mapping[str, Any]) -> Ended:
        return self.sweep.launcher.play(name, log, variables)


class Sweep:
    """One sweep. directory: where sweep.json and the tables are written; runs: directory of its launches' records;
    common: the settings that all launches share, stored only as a hash.
    """

    def __init__(
        self, directory: Path, runs: Path, launcher: Launcher, say: Callable[[str], None], common: str = ""
    ) -> None:
        self.directory, self.runs, self.launcher, self.say = directory, runs, launcher, say
        self.common = common
        self.state: State = self.known()

    def known(self) -> State:
        """The state of an earlier sweep of this name, or a new one. Raises SweepError."""
        found: Any = Files(self.directory).document(FILE)
        if found is None:
            salt = secrets.token_hex(16)
            return {"version": VERSION, "salt": salt, "runs": [], "fits": {}, "under_way": "", "tables": []}
        if (
            not isinstance(found, dict)
            or found.get("version") != VERSION
            or State.__annotations__.keys() - found.keys()
        ):
            raise SweepError(f"{self.directory / FILE} is not of this version: choose another name with -e run_id=NAME")
        return found  # type: ignore[return-value]

    def keep(self) -> None:
        """Write sweep.json."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_file(self.directory / FILE, json.dumps(self.state, indent=1, allow_nan=False) + "\n")

    def settings_of(self, variant: Variant) -> str:
        """A salted hash of a variant's settings: it detects a change without revealing secrets in them."""
        return sealed(self.state["salt"], self.common, variant["variables"], variant["fit_args"])

    def run(self, wanted: Wanted) -> State:
        """Launch all runs that have not succeeded yet, then make the tables. Raises SweepError."""
        if self.state["under_way"]:
            self.say(f"{self.state['under_way']} was still running when the sweep was interrupted: stopping it")
            self.launcher.stop(self.state["under_way"])
            self.state["under_way"] = ""
        settings = {one["name"]: self.settings_of(one) for one in wanted.variants}
        self.state["runs"] = [  # failed runs are repeated, as are those with other settings
            run
            for run in self.state["runs"]
            if run["succeeded"] and run["settings"] == settings.get(run["variant"]) and run["repeat"] <= wanted.repeats
        ]
        self.state["tables"] = []
        self.keep()
        launched = False
        batches = (SAME, LARGEST) if wanted.search is not None else (SAME,)
        for batch in batches:
            failed: set[str] = set()
            for repeat in range(1, wanted.repeats + 1):
                for place, variant in enumerate(wanted.variants, 1):
                    done = any(self.is_of(run, variant, batch, repeat) for run in self.state["runs"])
                    if not done and variant["name"] not in failed:
                        launched = True
                        where = f"variant {place} of {len(wanted.variants)}"
                        where += f", repeat {repeat} of {wanted.repeats}" if wanted.repeats > 1 else ""
                        if not self.one(variant, batch, repeat, where, wanted):
                            failed.add(variant["name"])
        if not launched:
            self.say("nothing to launch: these are the results of an earlier sweep")
        self.state["tables"] = [table_of(batch, wanted.variants, self.state["runs"]) for batch in batches]
        self.keep()
        page = [f"# {self.directory.name}", "", *(for_markdown(table) for table in self.state["tables"])]
        write_file(self.directory / PAGE, "\n".join(page))
        return self.state

    @staticmethod
    def is_of(run: Run, variant: Variant, batch: str, repeat: int) -> bool:
        return (run["variant"], run["batch"], run["repeat"]) == (variant["name"], batch, repeat)

    def one(self, variant: Variant, batch: str, repeat: int, where: str, wanted: Wanted) -> bool:
        """Launch a variant, and return whether it succeeded. Raises SweepError if it was interrupted."""
        name, variables = variant["name"], dict(variant["variables"])
        words = name
        if batch == LARGEST and wanted.search is not None:
            largest, why = self.largest(variant, f"{where}, {name}", wanted.search, wanted.fit_timeout)
            if not largest:
                self.note(failure(variant, batch, repeat, self.settings_of(variant), why))
                return False
            variables["launch_args"] = filled(variant["fit_args"], largest)
            words = f"{name} with its largest batch, {largest}"
        run_id = free_name(self.runs, f"{self.directory.name}-{name}{'-largest' if batch == LARGEST else ''}")
        spent = [run["launch_seconds"] for run in self.state["runs"] if run["succeeded"]]
        self.say(f"{where}{f', about {sum(spent) / len(spent):.0f} s each' if spent else ''}: {words}")
        ended = self.launch(run_id, {**variables, "launch_detach": False}, wanted.timeout or math.inf)
        if self.launcher.interrupted:
            raise SweepError(interrupted(run_id))
        log = self.directory / "launches" / f"{run_id}.log"
        found = measured(self.runs / run_id, ended, log, time.time())
        run = Run(variant=name, batch=batch, repeat=repeat, run_id=run_id, settings=self.settings_of(variant), **found)
        self.note(run)
        return run["succeeded"]

    def note(self, run: Run) -> None:
        """Record how a launch went, and report a failure."""
        self.state["runs"].append(run)
        self.state["under_way"] = ""
        self.keep()
        if not run["succeeded"]:
            self.say(f"{run['variant']} failed and is skipped: {run['why']}")

    def largest(self, variant: Variant, where: str, search: Search, patience: float) -> tuple[int, str]:
        """The largest batch of a variant, searched for unless known; if there is none, 0 and the reason."""
        settings = self.settings_of(variant)
        fitted = self.state["fits"].get(variant["name"])
        if fitted is None or fitted["settings"] != settings:
            name = free_name(self.runs, f"{self.directory.name}-{variant['name']}-fit")
            fitted = {"directory": name, "settings": settings}
            self.state["fits"][variant["name"]] = fitted
            self.keep()
        say: Callable[[str], None] = lambda text: self.say(f"{where}: {text}")  # noqa: E731
        fit = Fit(self.runs / fitted["directory"], self.runs, Laid(self, variant), say)
        job = Job(args=variant["fit_args"], confirm_args=[], patience=patience)
        try:
            result = fit.search(job, search)["result"]
        except FitError as problem:
            if self.launcher.interrupted:
                raise SweepError(str(problem)) from problem
            return 0, clean(str(problem), LONGEST_WHY)
        return result or 0, "" if result else "no batch fits"

    def launch(self, run_id: str, variables: Mapping[str, Any], patience: float) -> Ended:
        """Launch a run; it is recorded as under_way until it is over."""
        self.state["under_way"] = run_id
        self.keep()
        ended = self.launcher.launch(run_id, variables, patience)
        if not self.launcher.interrupted:
            self.state["under_way"] = ""
            self.keep()
        return ended


def interrupted(run_id: str) -> str:
    """The message after an interruption."""
    return f"interrupted: {run_id} was stopped on all nodes; the same command resumes from here"


def failure(variant: Variant, batch: str, repeat: int, settings: str, why: str) -> Run:
    """The Run of a variant that could not be launched, because no batch was found for it."""
    return {
        "variant": variant["name"],
        "batch": batch,
        "repeat": repeat,
        "run_id": "",
        "settings": settings,
        "succeeded": False,
        "why": why,
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
