# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a run restarts after a failed attempt. Pure functions."""

from __future__ import annotations

import collections
import re

from ansible_collections.muster.training.plugins.module_utils._run.lost_peers import SECONDARY
from ansible_collections.muster.training.plugins.module_utils._run.processes import KILLED

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Mapping, Sequence

    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        AttemptRecord,
        NodeReport,
        NodeView,
        RestartPlan,
    )

# Classes of attempt ends; launch_restart_when lists those after which a run restarts.
NODE_LOST = "node_lost"
INTERRUPTED = "interrupted"
HARDWARE = "hardware"
HANG = "hang"
RANK_FAILED = "rank_failed"
DETERMINISTIC = "deterministic"
NOT_STARTED = "not_started"  # the nodes did not check in: the run never started
STOPPED = "stopped"
SUCCEEDED = "succeeded"
RESTARTABLE = (NODE_LOST, HARDWARE, INTERRUPTED, HANG, RANK_FAILED, DETERMINISTIC)

MAX_WITHOUT_PROGRESS = 3  # number of attempts without a newer checkpoint after which a run ends
NO_REQUEUE = 93  # exit code of a run that ended for lack of progress: a scheduler must not start it again

BROKEN_HARDWARE = re.compile(
    r"uncorrectable (ECC|NVLink)|fallen off the bus|GPU is lost|\bXid\b|unhandled system error|"
    r"CUDA error: unspecified launch failure",
    re.IGNORECASE,
)
EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
CANNOT_START = (126, 127)  # exit codes for a program that is missing or cannot be executed

# restart: whether another attempt follows. why: why none follows; "" if one does. final: whether a scheduler must not
# requeue the run.
Decision = collections.namedtuple("Decision", "restart why final")


def failed_error(report: NodeReport) -> str:
    """Return the error of the rank that failed first on a node, "" if it was killed, or the launcher's if none failed.

    A launcher's own exception only says that a rank has failed.
    """
    failed = [
        rank
        for rank in report["ranks"]
        if not rank.get("closed") and not rank.get("ended_by_us") and (rank["error"] or rank["exit_code"])
    ]
    failed.sort(key=lambda rank: (not rank.get("first"), not rank["exit_code"]))
    return failed[0]["error"] if failed else report["launcher_error"]


def has_left(node: NodeView) -> bool:
    """Return whether a node was lost, or ended its part because its machine is shutting down."""
    return node["state"] == "lost" or bool(node["report"] and node["report"]["shutdown"])


def classify_report(report: NodeReport) -> str:
    """Return the failure class from the report of the node that failed first."""
    error = failed_error(report)
    codes = [report["exit_code"], *(rank["exit_code"] for rank in report["ranks"] if not rank.get("ended_by_us"))]
    if (
        report["gpus"]
        or BROKEN_HARDWARE.search(error)
        or any(finding["hardware"] for finding in report.get("health", ()))
    ):
        return HARDWARE
    if report["oom_kills"] and any(code in KILLED for code in codes):
        return DETERMINISTIC
    if SECONDARY.search(error):
        return RANK_FAILED
    if EXCEPTION.match(error) or any(code in CANNOT_START for code in codes):
        return DETERMINISTIC
    return RANK_FAILED


def classify_end(first_node: str | None, nodes: Sequence[NodeView]) -> str:
    """Return how an attempt's end is classified; nodes: those that took part.

    The loss of a node may be noticed after its peers have failed with an error that is only its consequence.
    """
    first = next((node for node in nodes if node["name"] == first_node), None)
    lost = any(has_left(node) for node in nodes)
    if first is None or first["report"] is None or has_left(first):
        return NODE_LOST if lost else RANK_FAILED
    if lost and SECONDARY.search(failed_error(first["report"])):
        return NODE_LOST
    return classify_report(first["report"])


def lacks_progress(history: Sequence[AttemptRecord], initial: str) -> bool:
    """Return whether the last attempts ended without a newer checkpoint. initial: the one before the first attempt."""
    checkpoints = [initial, *(record["checkpoint"] for record in history)][-MAX_WITHOUT_PROGRESS - 1 :]
    return len(checkpoints) > MAX_WITHOUT_PROGRESS and len(set(checkpoints)) == 1


def decide(policy: RestartPlan, history: Sequence[AttemptRecord], initial: str = "") -> Decision:
    """Decide whether a run restarts.

    history: all attempts so far, the one that has just ended last. initial: the newest checkpoint before the first.
    """
    end, spent = history[-1]["end_class"], len(history) - 1
    if end in (STOPPED, SUCCEEDED, NOT_STARTED) or not policy["restarts"]:
        return Decision(False, "", False)
    if end not in policy["when"]:
        return Decision(False, f"{REASONS.get(end, end)}; launch_restart_when does not include {end}", False)
    if spent >= policy["restarts"]:
        return Decision(False, f"all {policy['restarts']} restarts are used up (launch_restarts)", False)
    if policy["counts_progress"] and lacks_progress(history, initial):
        return Decision(False, f"{MAX_WITHOUT_PROGRESS} attempts ended without a newer checkpoint", True)
    return Decision(True, "", False)


REASONS = {
    DETERMINISTIC: "the same error would end the next attempt as well",
    RANK_FAILED: "a rank failed on a healthy node",
    HARDWARE: "hardware failed",
    NODE_LOST: "a node was lost",
    INTERRUPTED: "the run was interrupted",
    HANG: "the job made no progress",
}


def assign(previous: Sequence[int], usable: Sequence[int], policy: Mapping[str, object], size: int) -> list[int]:
    """Return the nodes of the next attempt, by node_rank at the start of the run, or [] if there are too few.

    A node keeps its rank, and takes a lost node's if it has none, so that the files of a rank stay on its node. size:
    how many nodes took part in the first attempt.
    """
    idle = [member for member in usable if member not in previous]
    members = []
    for member in previous:
        if member in usable:
            members.append(member)
        elif idle:
            members.append(idle.pop(0))
    members += idle[: max(0, size - len(members))]
    if policy["sorted"]:  # c10d sorts the nodes itself
        members.sort()
    least = policy["min_nodes"]
    return members if isinstance(least, int) and len(members) >= least else []


def move_to_front(members: Sequence[int], hub: int) -> list[int]:
    """Return an attempt's nodes with the hub swapped to the front."""
    swapped = {hub: members[0], members[0]: hub}
    return [swapped.get(member, member) for member in members]


def format_seconds(seconds: float) -> str:
    """Format a duration for a person, such as "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
