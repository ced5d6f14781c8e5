# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Watch a run and replace the nodes that it loses, by running the playbooks that a user would run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ansible_collections.muster.training.plugins.module_utils._files.bounded import write_atomically
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import Between, conforms
from ansible_collections.muster.training.plugins.plugin_utils._keep.confirmation import (
    CONFIRM_INTERVAL,
    CONFIRM_TIME,
    Need,
    add_unlisted,
    confirm,
)
from ansible_collections.muster.training.plugins.plugin_utils._keep.planner import (
    Action,
    Confirm,
    End,
    Join,
    Notes,
    Prepare,
    Rent,
    Situation,
    Watch,
    failures_of,
    first_notes,
    next_action,
    notes_after_failure,
    notes_after_observation,
    notes_after_recovery,
    notes_after_success,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.active_run import read_object

FILE = "keep.json"  # file in the run's record
FAILURES = {"count": range(10**6), "next": Between(0, 1e12)}
NOTES = {
    "machines": range(10**6),
    "prepared": [str],
    "rented": range(10**6),
    "joined": range(10**6),
    "lost": dict,
    "failures": dict,
}


class Steps(Protocol):
    """The steps that keep performs. Each method can be repeated, and returns why it failed, or "" if it succeeded."""

    def observe(self) -> Situation:
        """Return the situation."""

    def rent(self, nnodes: int) -> str:
        """Have the provider create machines until the cluster has the given number."""

    def prepare(self, names: tuple[str, ...]) -> str:
        """Set up machines."""

    def join(self, name: str) -> str:
        """Add a machine to the run."""


class Clock(NamedTuple):
    """The time in seconds since 1970, a pause that returns whether keep should stop, and the polling interval."""

    now: Callable[[], float]
    pause: Callable[[float], bool]
    interval: float


def read_notes(record: Path) -> Notes | None:
    """Return the notes in a record, or None if there are none."""
    value: Any = read_object(record / FILE)
    if not conforms(value, NOTES) or not all(conforms(entry, FAILURES) for entry in value["failures"].values()):
        return None
    return {
        "machines": value["machines"],
        "prepared": value["prepared"],
        "rented": value["rented"],
        "joined": value["joined"],
        "lost": {name: is_broken is True for name, is_broken in value["lost"].items()},
        "failures": value["failures"],
    }


def write_notes(record: Path, notes: Notes) -> None:
    """Write the notes."""
    write_atomically(str(record / FILE), json.dumps(notes, indent=1, sort_keys=True) + "\n")


class Keeper:
    """Keeps a run's nodes complete until the run ends."""

    def __init__(self, record: Path, steps: Steps, clock: Clock, show: Callable[[str], None]) -> None:
        self.record, self.steps, self.clock, self.show = record, steps, clock, show
        self.shown = ""  # the last text about what `keep` is waiting for
        self.listed: tuple[str, ...] = ()  # number of machines in the inventory at the last observation
        self.need: Need | None = None  # the need for machines, not yet confirmed

    def run(self) -> bool:
        """Watch until the run ends; return False if keep was interrupted before that."""
        while True:
            action = self.step()
            if isinstance(action, End):
                return True
            if self.clock.pause(self.interval_after(action)):
                return False

    def interval_after(self, action: Action) -> float:
        """Return the seconds until the next observation."""
        if isinstance(action, Confirm):
            return min(self.clock.interval, CONFIRM_INTERVAL)
        return self.clock.interval if isinstance(action, Watch) else 0.0

    def observe(self) -> Situation:
        """Observe the situation, and keep machines that are missing from only one list."""
        observed = self.steps.observe()
        situation, self.listed = add_unlisted(observed, self.listed), observed.machines
        return situation

    def step(self) -> Action:
        """Observe the run, and carry out the next action."""
        situation = self.observe()
        stored = read_notes(self.record)
        notes = stored or first_notes(max(len(situation.machines), len(situation.nodes)))
        current = notes_after_recovery(notes_after_observation(notes, situation), situation)
        if current != stored:
            write_notes(self.record, current)
        now = self.clock.now()
        action, self.need = confirm(next_action(situation, current, now), situation, self.need, now)
        if not (isinstance(action, Confirm) and failures_of(current, "rent")["count"]):
            self.describe(action, situation)
        error = self.carry_out(action)
        if error and self.clock.pause(0.0):  # keep was interrupted, and so was the step it was performing
            return action
        if error is not None:
            follow = notes_after_failure if error else notes_after_success
            write_notes(self.record, follow(current, action, self.clock.now()))
            if error:
                self.show(f"{error}; keep will try again later")
        return action

    def carry_out(self, action: Action) -> str | None:
        """Carry out an action; return why it failed, or "" if it succeeded, or None if there was nothing to do."""
        if isinstance(action, Rent):
            return self.steps.rent(action.nnodes)
        if isinstance(action, Prepare):
            return self.steps.prepare(action.names)
        return self.steps.join(action.name) if isinstance(action, Join) else None

    def describe(self, action: Action, situation: Situation) -> None:
        """Tell the user about the next action, showing each text once."""
        missing = ", ".join(node.name for node in situation.missing)
        if isinstance(action, Rent):
            nodes = f"{action.nnodes} node{'s' * (action.nnodes != 1)}"
            text = f"{missing} lost: creating machines until the cluster has {nodes}"
        elif isinstance(action, Confirm):
            text = f"{missing} lost: checking for {CONFIRM_TIME:.0f} s before creating a machine"
        elif isinstance(action, Prepare):
            text = f"setting up {', '.join(action.names)}"
        elif isinstance(action, Join):
            text = f"adding {action.name} to the run"
        else:
            text = action.text if isinstance(action, Watch) else "the run has ended"
        if text and text != self.shown:
            self.show(text)
        self.shown = text or ("" if not situation.missing else self.shown)
