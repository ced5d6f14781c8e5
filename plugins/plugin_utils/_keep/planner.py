# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose the next action of keep, as a pure function of the run, the machines, and keep's notes.

keep may be killed between or during any of its steps. A step is therefore noted only after it has succeeded, each step
can be repeated, and the state of the run and the inventory takes precedence over the notes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, TypedDict

FIRST_PAUSE = 60.0  # seconds before a failed step is retried; doubled each time
LONGEST_PAUSE = 900.0
MAX_FAILURES = 3  # number of failed attempts to prepare a machine after which it is considered unusable

ACTIVE, ENDED, UNKNOWN = "active", "ended", "unknown"  # states of a run


class Failures(TypedDict):
    """The number of consecutive failures of a step, and when to retry it."""

    count: int
    next: float  # seconds since 1970


class Notes(TypedDict):
    """The notes that keep stores in the record of a run."""

    machines: int  # number of machines in the cluster when keep was first started
    prepared: list[str]  # machines that are set up but have not joined yet
    rented: int  # how many times machines have been created since the first missing node was lost
    joined: int  # number of nodes that have joined since then
    lost: dict[str, bool]  # machines in the inventory that the run has lost; true: they must not be used again
    failures: dict[str, Failures]  # failures by step, such as "prepare gpu5"


class MissingNode(NamedTuple):
    """A node that the run has lost. broken: its machine must not be used again."""

    name: str
    broken: bool = False


class Situation(NamedTuple):
    """The current state of the run and the machines."""

    state: str  # ACTIVE | ENDED | UNKNOWN
    nodes: Collection[str]  # names of the run's nodes, including those that are missing
    missing: tuple[MissingNode, ...]
    unreachable: Collection[str]  # the run's nodes that did not respond
    machines: tuple[str, ...]  # machines in the inventory
    rents: bool  # a provider creates the machines of this inventory
    has_budget: bool  # max_usd_per_hour is set


class Watch(NamedTuple):
    """Check again later. text: a message for the user, shown once."""

    text: str = ""


class Confirm(NamedTuple):
    """Check again soon whether machines must be created."""


class End(NamedTuple):
    """The run has ended."""


class Rent(NamedTuple):
    """Have the provider create machines until the cluster has the given number, to replace missing nodes."""

    nnodes: int


class Prepare(NamedTuple):
    """Set up machines for the run."""

    names: tuple[str, ...]


class Join(NamedTuple):
    """Add a machine to the run."""

    name: str


Action = Watch | Confirm | End | Rent | Prepare | Join


def first_notes(machines: int) -> Notes:
    """Return the initial notes. machines: the cluster's machines."""
    return {"machines": machines, "prepared": [], "rented": 0, "joined": 0, "lost": {}, "failures": {}}


def find_candidates(situation: Situation, notes: Notes) -> list[str]:
    """Return the machines that may join: those outside the run, and those of lost nodes that are responding again."""
    broken = {name for name, is_broken in notes["lost"].items() if is_broken}
    missing = {node.name for node in situation.missing}
    present = set(situation.nodes) - missing
    return [
        name
        for name in situation.machines
        if name not in present
        and name not in broken
        and not (name in missing and name in situation.unreachable)
        and failures_of(notes, f"prepare {name}")["count"] < MAX_FAILURES
        and failures_of(notes, f"join {name}")["count"] < MAX_FAILURES
    ]


def next_action(situation: Situation, notes: Notes, now: float) -> Action:
    """Return the next action. now: seconds since 1970."""
    if situation.state == ENDED:
        return End()
    if situation.state == UNKNOWN:
        return Watch("no node of the run is responding; keep will retry")
    if not situation.missing:
        return Watch()
    candidates = find_candidates(situation, notes)
    prepared = [name for name in candidates if name in notes["prepared"]]
    due = [name for name in prepared if is_due(notes, f"join {name}", now)]
    if due:
        return Join(due[0])
    lacking = len(situation.missing) - len(prepared)
    unprepared = [name for name in candidates if name not in prepared]
    due = [name for name in unprepared if is_due(notes, f"prepare {name}", now)] if lacking > 0 else []
    if due:
        return Prepare(choose_to_prepare(due, lacking, notes))
    return plan_rent(situation, notes, len(candidates), now)


def choose_to_prepare(due: list[str], lacking: int, notes: Notes) -> tuple[str, ...]:
    """Return the machines to set up together: as many new machines as are needed, otherwise a single machine.

    A machine that has already failed would make the others fail, too.
    """
    new = [name for name in due if name not in notes["lost"] and not failures_of(notes, f"prepare {name}")["count"]]
    return tuple(new[:lacking] or due[:1])


def plan_rent(situation: Situation, notes: Notes, candidates: int, now: float) -> Action:
    """Decide whether to create machines. candidates: the number of machines that can join once they are prepared."""
    names = ", ".join(node.name for node in situation.missing)
    are_missing = f"{names} {'is' if len(situation.missing) == 1 else 'are'} missing"
    if candidates >= len(situation.missing):
        return Watch()
    if not situation.rents:
        return Watch(
            f"{are_missing}: add a machine to the group in the inventory, and keep will set it up and add it to the run"
        )
    if not situation.has_budget:
        return Watch(
            f"{are_missing}, and no machine is created without a cost limit: restart keep with "
            "-e max_usd_per_hour=AMOUNT"
        )
    target = rent_target(situation, notes)
    if target is None:
        return Watch(f"machines were created for {names}, but cannot be used: see their logs; keep will retry")
    return Rent(target) if is_due(notes, "rent", now) else Watch()


def rent_target(situation: Situation, notes: Notes) -> int | None:
    """Return the number of machines that the cluster should have, or None if more would not help.

    First restore the earlier number, in case the provider has taken a machine away. If all still exist, for example if
    one hangs or has a broken GPU, add machines, but never more than the number of missing nodes.
    """
    extra = notes["rented"]
    return None if extra > len(situation.missing) + notes["joined"] else notes["machines"] + extra


# - notes


def failures_of(notes: Notes, step: str) -> Failures:
    """Return how many times in a row a step has failed."""
    return notes["failures"].get(step, {"count": 0, "next": 0.0})


def is_due(notes: Notes, step: str, now: float) -> bool:
    """Return whether a failed step is due to be retried."""
    return now >= failures_of(notes, step)["next"]


def steps_of(action: Action) -> list[str]:
    """Return the names of the steps in an action, for the notes."""
    if isinstance(action, Prepare):
        return [f"prepare {name}" for name in action.names]
    if isinstance(action, Join):
        return [f"join {action.name}"]
    return ["rent"] if isinstance(action, Rent) else []


def notes_after_success(notes: Notes, action: Action, now: float) -> Notes:
    """Return the notes after an action has succeeded.

    A new machine may appear in the inventory some time after the provider has created it.
    """
    failures = {step: entry for step, entry in notes["failures"].items() if step not in steps_of(action)}
    result: Notes = {**notes, "failures": failures}
    if isinstance(action, Prepare):
        result["prepared"] = sorted({*notes["prepared"], *action.names})
    elif isinstance(action, Join):
        result["prepared"] = [name for name in notes["prepared"] if name != action.name]
        result["joined"] = notes["joined"] + 1
    elif isinstance(action, Rent):
        result["rented"] = notes["rented"] + 1
        failures["rent"] = {"count": 0, "next": now + FIRST_PAUSE}
    return result


def notes_after_failure(notes: Notes, action: Action, now: float) -> Notes:
    """Return the notes after an action has failed. A machine that cannot join is set up again, since it may be a new
    one.
    """
    failures = dict(notes["failures"])
    for step in steps_of(action):
        count = failures_of(notes, step)["count"] + 1
        failures[step] = {"count": count, "next": now + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (count - 1))}
    joining = action.name if isinstance(action, Join) else ""
    return {**notes, "failures": failures, "prepared": [name for name in notes["prepared"] if name != joining]}


def notes_after_observation(notes: Notes, situation: Situation) -> Notes:
    """Return the notes with the lost nodes' machines, as long as they are in the inventory."""
    lost = dict(notes["lost"])
    for node in situation.missing:
        lost[node.name] = node.broken or lost.get(node.name, False)
    return {**notes, "lost": {name: is_broken for name, is_broken in lost.items() if name in situation.machines}}


def notes_after_recovery(notes: Notes, situation: Situation) -> Notes:
    """Return the notes once no node is missing: the next loss starts from scratch."""
    if situation.state != ACTIVE or situation.missing or not (notes["rented"] or notes["joined"] or notes["failures"]):
        return notes
    machines = max(notes["machines"], len(situation.machines))
    return {**notes, "machines": machines, "rented": 0, "joined": 0, "failures": {}}
