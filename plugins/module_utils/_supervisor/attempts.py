# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rank 0's record of a run's attempts: who takes part in each, how it ended, and whether another follows."""

from __future__ import annotations

import collections
import os
import time

from ansible_collections.muster.training.plugins.module_utils._checkpoints.resume import newest_local
from ansible_collections.muster.training.plugins.module_utils._run.attempt_losses import (
    format_loss,
    last_step,
    losses,
    total_loss,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import RETURN_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import (
    first_attempt,
    plan_of_attempt,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.ports import free_port
from ansible_collections.muster.training.plugins.module_utils._supervisor.restart_policy import (
    HARDWARE,
    INTERRUPTED,
    NO_REQUEUE,
    NODE_LOST,
    NOT_STARTED,
    STOPPED,
    SUCCEEDED,
    assign,
    classify_end,
    decide,
    format_seconds,
    has_left,
    move_to_front,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Callable, Iterable

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint
    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        Attempt,
        AttemptRecord,
        NodeView,
        Plan,
        RestartPlan,
    )
    from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.hub_preparation import (
        HubPreparation,
    )

# How an attempt ended, as known to the hub. given: the class, if it is not to be derived; went: whether the job
# started.
End = collections.namedtuple("End", "reason first_node given went requested")


class Attempts:
    """The attempts of a run, as rank 0's supervisor counts them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.policy = plan.get("restart")
        self.current: Attempt = first_attempt(plan)
        self.replaced: set[int] = set()  # nodes that have joined since the attempt began, by node_rank
        self.needs_hub = False  # whether the run continues if another node takes over the lead
        self.size = len(self.current["members"])
        self.started = time.time()
        self.history: list[AttemptRecord] = []
        self.refused = ""  # reason why no further attempt follows
        self.exit_code = 1  # exit code of a run that failed
        self.waiting = ""  # what the next attempt is waiting for
        self.lacks_nodes = False  # whether it is waiting for new nodes
        self.preparation: HubPreparation | None = None  # the preparation of the next attempt; set by the hub
        self.newest_checkpoint: Callable[[Plan], Checkpoint | None] = newest_local
        self.initial_checkpoint = plan.get("checkpoint", "")
        self.is_unreadable = False  # whether the checkpoint directory has ever failed to respond

    @property
    def number(self) -> int:
        return self.current["number"]

    def takes_part(self, node: NodeView) -> bool:
        return node["node_rank"] in self.current["members"] and node["node_rank"] not in self.replaced

    def change(self, attempt: Attempt) -> None:
        """Begin an attempt."""
        self.current = attempt
        self.replaced.clear()

    def current_without_replaced(self) -> Attempt:
        """Return the current attempt for a node that joins: it takes part in the next attempt at the earliest."""
        members = [member for member in self.current["members"] if member not in self.replaced]
        return {**self.current, "members": members}

    def has_ended(self) -> bool:
        """Return whether the end of the current attempt was recorded."""
        return len(self.history) > self.number

    def begin(self) -> None:
        """Record that the job is starting."""
        self.started = time.time()

    def record_end(self, end: End, nodes: list[NodeView]) -> None:
        """Record how the current attempt ended; nodes: all of the run."""
        members = [nodes[member] for member in self.current["members"]]
        if end.requested:
            end_class = STOPPED
        elif not end.reason:
            end_class = SUCCEEDED
        elif end.given:
            end_class = end.given
        elif not end.went and self.number == 0:
            end_class = NOT_STARTED
        else:
            end_class = classify_end(end.first_node, members)
        for node in members:
            broken = end_class in (HARDWARE, INTERRUPTED) and node["name"] == end.first_node
            node["excluded"] = node["excluded"] or broken or has_leftovers(node)
        lost = next((node["name"] for node in members if has_left(node)), "") if end_class == NODE_LOST else ""
        self.history.append(
            {
                "number": self.number,
                "nodes": [node["name"] for node in members],
                "started": self.started,
                "ended": time.time(),
                "end_class": end_class,
                "node": lost or end.first_node or "",
                "reason": end.reason,
                "checkpoint": "",
            }
        )
        if self.policy:
            self.note_checkpoint(self.read_checkpoint(sum(self.slots(self.current["members"]))))

    def note_checkpoint(self, checkpoint: Checkpoint | None) -> None:
        """Record the newest complete checkpoint as of the end of the last attempt."""
        if checkpoint is not None:
            record = self.history[-1]
            record["checkpoint"], record["checkpoint_name"] = self.local_path(checkpoint), checkpoint["name"]
            record["step"], record["unit"] = checkpoint["step"], checkpoint["unit"]
            record["saved"] = checkpoint["saved"]

    def local_path(self, checkpoint: Checkpoint) -> str:
        """Return the path of a checkpoint on this node, which may have been found on a different node."""
        directory = self.plan.get("checkpoints", "")
        is_local = directory.startswith("/")
        return os.path.normpath(os.path.join(directory, checkpoint["name"])) if is_local else checkpoint["path"]

    def next(self, connected: Iterable[int], nodes: list[NodeView], now: float) -> Attempt | None:
        """Return the next attempt, or None if none may follow (`refused` says why) or not yet (`waiting`).

        connected: numbers of the nodes whose supervisors can be reached.
        """
        self.waiting, self.needs_hub, self.lacks_nodes = "", False, False
        if self.policy is None:
            return None
        counts_progress = self.policy["counts_progress"] and not self.is_unreadable
        policy: RestartPlan = {**self.policy, "counts_progress": counts_progress}
        decision = decide(policy, self.history, self.initial_checkpoint)
        self.refused = decision.why
        if not decision.restart:
            self.exit_code = NO_REQUEUE if decision.final else 1
            return None
        returning = [node["name"] for node in nodes if node["state"] == "lost" and now < node["return_by"]]
        if returning:
            self.waiting = f"{', '.join(returning)} may return within {RETURN_TIMEOUT:.0f} s"
            return None
        usable = [member for member in sorted(connected) if is_usable(nodes[member])]
        checked = self.check_nodes(usable, sorted(connected), now)
        if checked is None:
            return None
        members = assign(self.current["members"], checked, self.policy, self.size)
        hub = self.current.get("hub", 0)
        if not members and self.waits_for_nodes(time.time()):
            self.waiting, self.lacks_nodes = self.describe_wait(checked, nodes), True
            return None
        if not members or hub not in members:
            self.needs_hub = bool(members)
            self.refused = self.describe_shortage(checked, nodes)
            return None
        members = move_to_front(members, hub)
        if self.preparation is not None and not self.agree(members, sorted(connected), now):
            return None
        port = free_port(self.policy["master_port"], self.plan["lifeline"]["port"]) or self.policy["master_port"]
        path, name = self.next_checkpoint(members)
        return {
            "number": self.number + 1,
            "hub": hub,
            "members": members,
            "master_port": port,
            "checkpoint": path,
            "checkpoint_name": name,
        }

    def check_nodes(self, usable: list[int], connected: list[int], now: float) -> list[int] | None:
        """Return the nodes that can take part in the next attempt, by their own checks; None while these continue."""
        if self.preparation is None:
            return usable
        self.preparation.begin(self.number + 1)
        if not self.preparation.check_nodes(usable, connected, now):
            self.waiting = self.preparation.waiting
            return None
        if self.preparation.unusable():
            self.history[-1]["unusable"] = self.preparation.unusable()
        return [member for member in usable if self.preparation.is_well(member)]

    def agree(self, members: list[int], connected: list[int], now: float) -> bool:
        """Return whether all members of the next attempt have the checkpoint that they resume from."""
        preparation = self.preparation
        if preparation is None or not self.plan.get("checkpoints"):
            return True
        if not preparation.agree(members, connected, sum(self.slots(members)), now):
            self.waiting = preparation.waiting or "choosing a checkpoint"
            return False
        self.note_checkpoint(preparation.checkpoint)
        return True

    def next_checkpoint(self, members: list[int]) -> tuple[str, str]:
        """Return the path and name of an attempt's checkpoint: the agreed one, or else the newest on this node."""
        agreed = self.preparation.checkpoint if self.preparation is not None else None
        if agreed is None and sum(self.slots(members)) != sum(self.slots(self.current["members"])):
            checkpoint = self.read_checkpoint(sum(self.slots(members)))
        else:
            checkpoint = agreed
        if checkpoint is not None:
            return self.local_path(checkpoint), checkpoint["name"]
        last = self.history[-1]
        if last["checkpoint"]:
            return last["checkpoint"], last.get("checkpoint_name", "")
        return self.current["checkpoint"], self.current.get("checkpoint_name", "")

    def describe_shortage(self, checked: list[int], nodes: list[NodeView]) -> str:
        """Return why no attempt follows because the nodes that it needs cannot take part."""
        problems = self.preparation.unusable() if self.preparation is not None else {}
        why = "".join(f"; {name} cannot take part: {problem}" for name, problem in problems.items())
        hub = self.current.get("hub", 0)
        if self.policy is not None and hub in checked:
            names = ", ".join(nodes[member]["name"] for member in checked)
            return f"at least {self.policy['min_nodes']} nodes are needed, but only {names} can be used{why}"
        return f"the first node, {nodes[hub]['name']}, must take part in every attempt but cannot be used again{why}"

    def waits_for_nodes(self, time_now: float) -> bool:
        """Return whether the next attempt is still waiting for new nodes."""
        return bool(self.policy) and time_now < self.history[-1]["ended"] + self.wait_seconds()

    def wait_seconds(self) -> float:
        """Return how many seconds an attempt waits for new nodes if there are too few."""
        return float(self.policy.get("wait") or 0) if self.policy else 0.0

    def describe_wait(self, checked: list[int], nodes: list[NodeView]) -> str:
        """Describe what the next attempt is waiting for if nodes that it needs are missing."""
        shortage = self.describe_shortage(checked, nodes)
        return f"{shortage}; waiting up to {format_seconds(self.wait_seconds())} for new nodes (./muster keep)"

    def slots(self, members: list[int]) -> list[int]:
        """Return the number of ranks on these nodes."""
        return [self.policy["slots"][member] for member in members] if self.policy else []

    def note_reached(self, directory: str) -> None:
        """Record the last step that rank 0, on this node, printed in the attempt that has ended."""
        record = self.history[-1]
        plan = plan_of_attempt(self.plan, self.current, directory) if self.policy else self.plan
        texts = [read_tail(path) for path in dict.fromkeys(rank_logs(plan, directory, 0))]
        steps = [last_step(text, record.get("unit", "step")) for text in texts]
        record["last_step"] = max((step for step in steps if step is not None), default=None)

    def describe_losses(self) -> str:
        """Describe what the attempts so far have lost; return "" if none has ended."""
        counts = bool(self.policy and self.policy["counts_progress"])
        ended = self.history[: self.number]
        return format_loss(total_loss(losses(ended, counts))) if ended else ""

    def read_checkpoint(self, world_size: int) -> Checkpoint | None:
        """Return the newest checkpoint on this node that this number of ranks can load; None if none is known."""
        try:
            return self.newest_checkpoint({**self.plan, "world_size": world_size})
        except TimeoutError:
            self.is_unreadable = True
            return None

    def describe_next(self, attempt: Attempt, names: list[str]) -> str:
        """Return a text about the next attempt for a person who is watching the run."""
        last, policy = self.history[-1], self.policy
        what = f"{last['node']} was lost" if last["end_class"] == NODE_LOST and last["node"] else last["reason"]
        remaining = (policy["restarts"] if policy else 0) - attempt["number"]
        text = f"attempt {attempt['number']} starts: {what} after {format_seconds(last['ended'] - last['started'])}"
        if len(attempt["members"]) != len(last["nodes"]):
            text += f"; {len(attempt['members'])} of {self.size} nodes"
        joined = [names[member] for member in attempt["members"] if names[member] not in last["nodes"]]
        if joined:
            text += f"; {', '.join(joined)} join{'s' if len(joined) == 1 else ''}"
        allowed = policy["restarts"] if policy else 0
        return f"{text}; {allowed} restart{'' if allowed == 1 else 's'} allowed, {remaining} remain"


def is_usable(node: NodeView) -> bool:
    """Return whether a node can take part in the next attempt: its processes have ended, and it is healthy."""
    shuts_down = bool(node["report"] and node["report"]["shutdown"])
    return node["state"] in ("ended", "spare") and not (node["excluded"] or shuts_down or has_leftovers(node))


def has_leftovers(node: NodeView) -> bool:
    """Return whether anything from an attempt that has ended remains on a node, where it may be holding GPUs."""
    report = node["report"]
    if report is None:
        return node["state"] not in ("lost", "spare")
    return bool(report["stuck"] or report["container"])
