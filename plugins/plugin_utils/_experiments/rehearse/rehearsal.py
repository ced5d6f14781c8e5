# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launches a rehearsal, and keeps its state in rehearsal.json. Private to this collection.

Controller only. It can resume after any interruption: each launch is recorded before the next one starts.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import Launcher
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.documents import (
    ALL,
    RESUMED,
    TWO,
    VERSION,
    Job,
    Rehearsal,
    Start,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.forecast import judge, named
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import sealed
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.run_names import free_name
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean, mapping, number
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Files, read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import Curve
from ansible_collections.muster.training.plugins.plugin_utils._report.report import compose, where_failed
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_file

FILE = "rehearsal.json"
STEPS, NAME, CHECKPOINT = "{steps}", "{name}", "{checkpoint}"
FEW = 2  # nodes of the first launch
LOSS = re.compile(r"(?:.*[/_])?loss\Z", re.IGNORECASE)
STEP_RATE = re.compile(r"(?:train_)?steps_per_second\Z")
MOST_POINTS = 10_000  # kept of a curve


class RehearsalError(Exception):
    """The rehearsal ends here; the text says why, and what to do."""


class Rehearsing:
    """One rehearsal. directory: where rehearsal.json is written; runs: directory of its launches' records;
    common: the settings that all launches share, stored only as a hash.
    """

    def __init__(
        self, directory: Path, runs: Path, launcher: Launcher, say: Callable[[str], None], common: str = ""
    ) -> None:
        self.directory, self.runs, self.launcher, self.say = directory, runs, launcher, say
        self.common = common

    def known(self, job: Job) -> Rehearsal:
        """The state of an earlier rehearsal of this name, or a new one. Raises RehearsalError."""
        found = read_rehearsal(self.directory)
        if found is None:
            salt = secrets.token_hex(16)
            return {
                "version": VERSION,
                "salt": salt,
                "common": sealed(salt, self.common),
                "job": job,
                "starts": [],
                "under_way": "",
                "checkpoint_bytes": None,
                "free_bytes": None,
                "resumed": None,
                "total_seconds": None,
                "total_cost": None,
                "findings": [],
                "go": None,
            }
        why = "is over" if found["go"] is not None else ""
        if found["common"] != sealed(found["salt"], self.common):
            why = "has another job, or other nodes"
        if found["job"] != job:
            why = "has other settings"
        if why:
            raise RehearsalError(
                f"{self.directory.name} is a rehearsal that {why}: choose another name with -e run_id=NAME, or remove "
                f"{self.directory} to begin again"
            )
        return found

    def keep(self, known: Rehearsal) -> None:
        """Write rehearsal.json."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_file(self.directory / FILE, json.dumps(known, indent=1, allow_nan=False) + "\n")

    def play(self, job: Job) -> Rehearsal:
        """Run all launches that have not succeeded yet. Raises RehearsalError if one fails."""
        known = self.known(job)
        if known["under_way"]:
            self.say(f"{known['under_way']} was still running when the rehearsal was interrupted: stopping it")
            self.launcher.stop(known["under_way"])
            if known["under_way"].startswith(f"{self.directory.name}-{RESUMED}"):
                # it may have overwritten the checkpoint from which it resumed
                known = {**known, "starts": [one for one in known["starts"] if one["what"] != ALL]}
        wanted = [TWO] if job["nnodes"] > FEW else []
        wanted += [ALL, RESUMED] if job["resume_args"] else [ALL]
        for place, what in enumerate(wanted, 1):
            if named(known["starts"], what) is not None:
                continue
            run_id = free_name(self.runs, f"{self.directory.name}-{what}")
            variables = self.variables(known, what, run_id)
            self.say(f"start {place} of {len(wanted)}: {WORDS[what]}")
            self.keep({**known, "under_way": run_id})
            start = self.start(job, what, run_id, variables)
            known = {**known, "under_way": "", "starts": [*known["starts"], start]}
            self.keep(known)
        return known

    def variables(self, known: Rehearsal, what: str, run_id: str) -> dict[str, Any]:
        """The variables of a launch. Raises RehearsalError if it needs a checkpoint and the job reported none."""
        job = known["job"]
        whole = named(known["starts"], ALL)
        checkpoint = whole["checkpoint"] if whole is not None else ""
        args = job["resume_args"] if what == RESUMED else job["args"]
        if what == RESUMED and not checkpoint and any(CHECKPOINT in word for word in args):
            raise RehearsalError(
                f"rehearse_resume_args has {CHECKPOINT}, and the job has told of none: let rank 0 print "
                'MUSTER_RESULT {"checkpoint": "/absolute/path"} once it has saved one'
            )
        holes = {
            STEPS: str(job["steps"] * (2 if what == RESUMED else 1)),
            NAME: whole["run_id"] if whole is not None else run_id,  # the second start looks where the first one saved
            CHECKPOINT: checkpoint,
        }
        size = {"nnodes": FEW, "launch_nnodes": FEW} if what == TWO else {}
        return {
            "launch_args": [filled(word, holes) for word in args],
            "launch_max_restarts": 0,
            "launch_detach": False,
            "launch_fetch_record": True,
            **size,
        }

    def start(self, job: Job, what: str, run_id: str, variables: Mapping[str, Any]) -> Start:
        """Launch, and return the measurements. Raises RehearsalError."""
        ended = self.launcher.launch(run_id, variables, job["patience"])
        if self.launcher.interrupted:
            raise RehearsalError(f"interrupted: {run_id} was stopped on all nodes; the same command resumes from here")
        if ended.late:
            raise RehearsalError(
                f"{run_id} went on for {job['patience']:.0f} s and was stopped: let the script end after {STEPS} "
                "steps, or raise rehearse_timeout"
            )
        record = self.runs / run_id
        result = Files(record).document("result.json")
        if not isinstance(result, dict):
            why = ended.failures[-1] if ended.failures else f"see {self.directory / 'launches' / run_id}.log"
            raise RehearsalError(f"{run_id} could not be launched: {why}")
        if result.get("state") != "succeeded":
            failed = compose(read_record(record, run_id), 0.0)["failure"]
            why = (
                f"{where_failed(failed)}: {failed['error']}" if failed is not None else clean(result.get("reason"), 300)
            )
            raise RehearsalError(
                f"not yet: {run_id} ({WORDS[what]}) failed: {why}. Its output is in "
                f"{self.directory / 'launches' / run_id}.log. Once the script is fixed, the same command resumes"
            )
        return measured(record, what, job)


WORDS = {
    TWO: "a few steps on two nodes",
    ALL: "a few steps on all nodes, and a checkpoint",
    RESUMED: "on all nodes again, from the checkpoint",
}


def read_rehearsal(directory: Path) -> Rehearsal | None:
    """rehearsal.json, None if there is none. Raises RehearsalError if it is of another version."""
    found: Any = Files(directory).document(FILE)
    if found is None:
        return None
    if not isinstance(found, dict) or Rehearsal.__annotations__.keys() - found.keys() or found["version"] != VERSION:
        raise RehearsalError(f"{directory / FILE} is not of this version: choose another name with -e run_id=NAME")
    return found  # type: ignore[return-value]


def close(directory: Path, checkpoint_bytes: int | None, free_bytes: int | None) -> Rehearsal:
    """Judge a rehearsal whose launches are over, and write the result. Raises RehearsalError."""
    known = read_rehearsal(directory)
    if known is None:
        raise RehearsalError(f"there is no {directory / FILE}")
    judged = judge(known, checkpoint_bytes, free_bytes)
    write_file(directory / FILE, json.dumps(judged, indent=1, allow_nan=False) + "\n")
    return judged


def filled(word: str, holes: Mapping[str, str]) -> str:
    """A word with its holes filled."""
    for hole, value in holes.items():
        word = word.replace(hole, value)
    return word


def measured(record: Path, what: str, job: Job) -> Start:
    """The measurements of a launch that succeeded."""
    known = read_record(record, record.name)
    report = compose(known, 0.0)
    said = mapping(mapping(known.result).get("said"))
    told = {name: found for name, one in said.items() if (found := number(one)) is not None}
    used = [value for node in known.nodes for gpu in node.gpus for value in gpu.measure("memory_used_mib")]
    curve = curve_of(known.curves, job["loss"])
    points = sorted(zip(curve.step, curve.value, strict=False))[:MOST_POINTS] if curve is not None else []
    path = said.get("checkpoint")
    is_path = isinstance(path, str) and path.startswith("/") and path == clean(path)
    return {
        "what": what,
        "run_id": record.name,
        "nnodes": report["nnodes"],
        "node": report["nodes"][0]["name"] if report["nodes"] else "",
        "run_seconds": report["seconds"],
        "step_seconds": step_seconds(told, report["samples_per_second"], report["world_size"]),
        "memory_mib": told.get("peak_memory_mib") or max((one for one in used if not math.isnan(one)), default=None),
        "checkpoint": path if isinstance(path, str) and is_path else "",
        "checkpoint_seconds": told.get("checkpoint_seconds"),
        "per_hour": report["cost"]["per_hour"],
        "currency": report["cost"]["currency"],
        "steps": [step for step, _value in points],
        "loss": [value for _step, value in points],
        "broken": min((step for name, step in known.broken.items() if is_loss(name, job["loss"])), default=None),
    }


def step_seconds(told: Mapping[str, float], rate: float | None, ranks: int) -> float | None:
    """Seconds per step: as reported, or from the throughput and the batch."""
    if told.get("seconds_per_step", 0.0) > 0:
        return told["seconds_per_step"]
    for name, value in told.items():
        if STEP_RATE.match(name) and value > 0:
            return 1.0 / value
    batch = told.get("global_batch_size") or told.get("batch_size", 0.0) * ranks
    return batch / rate if rate and batch > 0 else None


def curve_of(curves: Sequence[Curve], name: str) -> Curve | None:
    """The curve of this name; without a name, the first one called loss. Never from trainer_state.json: a second
    start copies the points of the first into it."""
    fresh = [curve for curve in curves if not curve.source.endswith("trainer_state.json")]
    for curve in fresh:
        if is_loss(curve.name.partition(" (")[0], name):
            return curve
    return None


def is_loss(own: str, name: str) -> bool:
    """Whether a measure has this name, or, if name is empty, is called loss."""
    return own == name if name else LOSS.match(own) is not None
