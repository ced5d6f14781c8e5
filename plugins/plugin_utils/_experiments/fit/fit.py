# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Searches for the largest batch, launch by launch, and keeps its state in fit.json. Private to this collection.

Controller only. Whatever ends it, it can resume: each probe is written down before the next one starts.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.outcome import Outcome, outcome
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import (
    Next,
    Probe,
    Search,
    bounds,
    fastest,
    fit_next,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import filled
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import sealed
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import Ended
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.run_names import free_name
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean, mapping, mappings, number
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Files, read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.report import throughput
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_file

VERSION = 1
FILE = "fit.json"
LOG_END = 64 << 10  # bytes searched at the end of each rank's log
MOST_LOGS = 256


class Job(TypedDict):
    """What is launched, with holes for the batch; confirm_args: arguments of the last, longer run, empty to use args.

    patience: seconds that a probe may take.
    """

    args: str | list[str]
    confirm_args: str | list[str]
    patience: float


class State(TypedDict):
    """fit.json. result is None until the search is over, and 0 if nothing fits.

    common: salted hash of the job and its nodes, to detect a search with others.
    """

    version: int
    salt: str
    common: str
    job: Job
    search: Search
    program: str  # the launched script or module, "" before the first probe is over
    nnodes: int
    history: list[Probe]
    under_way: str  # run_id of the probe in progress when this was written
    result: int | None
    fastest: int | None


class Launcher(Protocol):
    """Starts runs: Launches, or a test double."""

    @property
    def interrupted(self) -> bool: ...
    def launch(self, run_id: str, variables: Mapping[str, Any], patience: float) -> Ended: ...
    def stop(self, run_id: str) -> Ended: ...
    def play(self, name: str, log: str, variables: Mapping[str, Any]) -> Ended: ...


class FitError(Exception):
    """The search ends here; the text says why, and what to do."""


class Fit:
    """One search. directory: where fit.json is written; runs: directory of its launches' records;
    common: the settings that all launches share, stored only as a hash.
    """

    def __init__(
        self, directory: Path, runs: Path, launcher: Launcher, say: Callable[[str], None], common: str = ""
    ) -> None:
        self.directory, self.runs, self.launcher, self.say = directory, runs, launcher, say
        self.common = common

    def state_of(self, job: Job, search: Search) -> State:
        """The state of an earlier search of this name, or a new one. Raises FitError if the earlier one differs."""
        known: Any = Files(self.directory).document(FILE)
        if known is None:
            salt = secrets.token_hex(16)
            return {
                "version": VERSION,
                "salt": salt,
                "common": sealed(salt, self.common),
                "job": job,
                "search": search,
                "program": "",
                "nnodes": 0,
                "history": [],
                "under_way": "",
                "result": None,
                "fastest": None,
            }
        if not isinstance(known, dict) or State.__annotations__.keys() - known.keys() or known["version"] != VERSION:
            raise FitError(f"{self.directory / FILE} is not of this version: choose another name with -e run_id=NAME")
        if known["job"] != job or known["search"] != search:
            raise FitError(
                f"{self.directory.name} is a search with other settings: choose another name with -e run_id=NAME, or "
                f"remove {self.directory} to start over"
            )
        if known["common"] != sealed(known["salt"], self.common):
            raise FitError(
                f"{self.directory.name} is a search with another job, or on other nodes: choose another name with -e "
                f"run_id=NAME, or remove {self.directory} to start over"
            )
        return known  # type: ignore[return-value]

    def keep(self, state: State) -> None:
        """Write fit.json."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_file(self.directory / FILE, json.dumps(state, indent=1, allow_nan=False) + "\n")

    def search(self, job: Job, search: Search) -> State:
        """Search to the end. Raises FitError if a probe fails for any reason but its batch size."""
        state = self.state_of(job, search)
        if state["under_way"]:
            self.say(f"{state['under_way']} was still running when the search was interrupted: stopping it")
            self.launcher.stop(state["under_way"])
        if state["result"] is not None:
            self.say("nothing to launch: this is the result of an earlier search")
        while not (following := fit_next(state["history"], search))["done"]:
            self.tell(state["history"], following)
            run_id = free_name(self.runs, f"{self.directory.name}-b{following['batch']}")
            self.keep({**state, "under_way": run_id})
            probe = self.probe(state, following, run_id)
            plan = mapping(Files(self.runs / run_id).document("plan.json"))
            state = {
                **state,
                "program": clean(plan.get("program"), 4096),
                "nnodes": len(mappings(plan.get("nodes"))),
                "history": [*state["history"], probe],
                "under_way": "",
            }
            self.keep(state)
            self.say(f"batch {probe['batch']} {'fits' if probe['fits'] else 'does not fit: ' + probe['why']}")
        quick = fastest(state["history"])
        state = {**state, "result": following["result"], "fastest": quick["batch"] if quick is not None else None}
        self.keep(state)
        return state

    def tell(self, history: Sequence[Probe], following: Next) -> None:
        """Print a line before a probe."""
        spent = [one["seconds"] for one in history]
        each = f", {sum(spent) / len(spent):.0f} s each" if spent else ""
        what = "confirming the result in a longer run" if following["confirms"] else f"batch {following['batch']}"
        about = len(history) + following["left"] + (not following["confirms"])
        self.say(f"probe {len(history) + 1} of about {about}{each}: {what}")

    def probe(self, state: State, following: Next, run_id: str) -> Probe:
        """Launch one batch and return its outcome. Raises FitError."""
        batch, job = following["batch"], state["job"]
        args = job["confirm_args"] if following["confirms"] and job["confirm_args"] else job["args"]
        variables: dict[str, Any] = {
            "launch_args": filled(args, batch),
            "launch_max_restarts": 0,
            "launch_detach": False,
        }
        ended = self.launcher.launch(run_id, variables, job["patience"])
        if self.launcher.interrupted:
            raise FitError(f"interrupted: {run_id} was stopped on all nodes; the same command resumes from here")
        if ended.late:
            raise FitError(
                f"{run_id} went on for {job['patience']:.0f} s and was stopped: give the script a step limit, such as "
                "--max_steps 20, in fit_args, or raise fit_probe_timeout"
            )
        record = self.runs / run_id
        result = Files(record).document("result.json")
        if not isinstance(result, dict):
            why = ended.failures[-1] if ended.failures else f"see {self.directory / 'launches' / run_id}.log"
            raise FitError(f"{run_id} could not be launched: {why}")
        smaller = bounds(state["history"])[0] > 0
        found = outcome(result, [], smaller)
        if found.kind == "other":  # a rank without an error file may show the reason only in its log
            self.launcher.play("logs", f"{run_id}-logs", {"run_id": run_id, "fetch": True})
            found = outcome(result, logs_of(record), smaller)
        if found.kind == "other":
            raise FitError(
                f"{run_id} failed, and not for lack of memory: {found.why}. Its output is in "
                f"{self.directory / 'launches' / run_id}.log. Once the script is fixed, the same command resumes"
            )
        return self.measured(record, result, following, found, ended)

    def measured(self, record: Path, result: Any, following: Next, found: Outcome, ended: Ended) -> Probe:
        """The measurements of a finished probe."""
        known = read_record(record, record.name)
        said = {name: value for name, one in mapping(result.get("said")).items() if (value := number(one)) is not None}
        used = [value for node in known.nodes for gpu in node.gpus for value in gpu.measure("memory_used_mib")]
        nodes = mappings(mapping(known.plan).get("nodes"))
        totals = [number(mapping(node.get("hardware")).get("memory_mib")) for node in nodes]
        most = said.get("peak_memory_mib") or max((value for value in used if not math.isnan(value)), default=None)
        return {
            "batch": following["batch"],
            "fits": found.kind == "fits",
            "confirms": following["confirms"],
            "run_id": record.name,
            "why": found.why,
            "seconds": ended.seconds,
            "memory_mib": most,
            "total_mib": said.get("total_memory_mib") or min((one for one in totals if one), default=None),
            "samples_per_second": throughput(said, []),
        }


def logs_of(record: Path) -> list[str]:
    """The ends of the stderr logs of ranks and of the logs of launchers."""
    files = Files(record)
    names = [name for name in files.below("logs") if name.endswith(("/stderr.log", "/launcher.log"))]
    return [files.tail(name, LOG_END) for name in names[:MOST_LOGS]]
