# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The failure that ended a run: the earliest cause among the failures that its nodes reported."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.lost_peers import BARE_ABORT, SECONDARY
from ansible_collections.muster.training.plugins.module_utils._run.output_formats import TRACEBACK
from ansible_collections.muster.training.plugins.module_utils._run.processes import FATAL_SIGNALS, KILLED, describe_exit
from ansible_collections.muster.training.plugins.plugin_utils._failures.attempts import nodes_of_last_attempt
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure, shows_cause
from ansible_collections.muster.training.plugins.plugin_utils._failures.collective_progress import (
    describe_agreement,
    read_works,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from ansible_collections.muster.training.plugins.plugin_utils._failures.hang import WAITED_FOR
from ansible_collections.muster.training.plugins.plugin_utils._failures.nccl_differences import (
    describe_differences,
    has_completed_collective,
    reported_setups,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.node_output import last_lines_of
from ansible_collections.muster.training.plugins.plugin_utils._failures.root_rank import find_stated_cause
from ansible_collections.muster.training.plugins.plugin_utils._failures.scheduler_end import find_scheduler_end
from ansible_collections.muster.training.plugins.plugin_utils._failures.settings_of_ranks import describe_settings
from ansible_collections.muster.training.plugins.plugin_utils._failures.waiting import (
    find_absent_rank,
    find_departed_rank,
    find_different_lines,
    find_early_exit,
    find_running_rank,
    find_unstarted_rank,
    name_different_collectives,
    name_odd_fingerprint,
)

# The messages of SECONDARY that may also name a cause, such as a service that is not responding.
UNCERTAIN = re.compile(r"socket timeout|timed out|DistBackendError|DistNetworkError|StoreError", re.IGNORECASE)
EXIT_CODE_ONLY = re.compile(
    r"(?:one of ranks \d{1,9} to \d{1,9}: )?ended with exit code [1-9]\d{0,2}, its last output: "
)
# Entries of the catalogue for errors that may follow from a difference between nodes in what NCCL uses.
CONSEQUENCES_OF_DIFFERENCE = frozenset(
    [
        *(entry.id for entry in CATALOGUE if entry.kind == "consequence"),
        *("nccl-system-error", "nccl-internal-error", "nccl-connection-failed", "nccl-versions-differ"),
    ]
)
STOPPED_AFTER_ERROR = "was stopped because other ranks failed, but its log shows an error before that"
CLEARLY_EARLIER = 10.0  # seconds: the nodes begin to end their ranks within a few seconds of each other
CONSEQUENCE = 2  # at or above this weight, a failure is a consequence of others' failures
AFTERMATH = 60.0  # seconds within which an elastic run's end may be attributed to an earlier failed or lost node
STOPPED_BY_US = (-signal.SIGTERM, None)
# Exit codes of a process that we ended with SIGTERM, or with SIGKILL after that.
ENDED_BY_US = (-signal.SIGTERM, 128 + signal.SIGTERM, *KILLED)


def exit_clause(code: int | None) -> str:
    """Return a clause that describes an exit code as given by Popen, such as "was killed by SIGKILL"."""
    if code is None:
        return "was stopped"
    if code < 0:
        return f"was killed by {describe_exit(code)}".replace("signal SIG", "SIG")
    if code - 128 in FATAL_SIGNALS:  # the code as a shell or container engine reports it
        return f"was killed by {FATAL_SIGNALS[code - 128]} (exit code {code})"
    return f"ended with {describe_exit(code)}"


def attribute_to_rank(rank: Mapping[str, Any], ranks: list[Any], error: str) -> dict[str, Any]:
    """Return rank and error, or no rank if any of several ranks that share the log and the error may have failed."""
    matching_ranks = [
        other_rank["rank"]
        for other_rank in ranks
        if (other_rank["log"], other_rank["error"]) == (rank["log"], rank["error"])
    ]
    if len(matching_ranks) == 1:
        return {"rank": rank["rank"], "error": error}
    return {"rank": None, "error": f"one of ranks {matching_ranks[0]} to {matching_ranks[-1]}: {error}"}


def is_consequence(error: str) -> bool:
    """Return whether an error only says that another rank failed or did not arrive."""
    if not SECONDARY.search(error):
        return False
    certain = SECONDARY.search(UNCERTAIN.sub("", error))
    return bool(certain) or not shows_cause(error)


def failure_candidates(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all failures on a node that may have ended the run.

    Each has a weight; the lowest is the cause.
    """
    report = node.get("report")
    base = {"node": node["name"], "node_rank": node["node_rank"]}
    if report is None:
        return []
    if report.get("shutdown"):
        log = report["launcher_log"] or None
        details = {"rank": None, "error": report["reason"], "log": log, "last_lines": []}
        return [{**base, **details, "silent": False, "weight": 0, "since": node["since"], "first": True}]
    failures = []
    code, launcher_error = report["exit_code"], report["launcher_error"]
    expected_exit_codes = ENDED_BY_US if report.get("ended_by_us") else ()  # we ended the launcher
    stopped = code in STOPPED_BY_US or bool(SECONDARY.search(launcher_error))  # by us, or because other ranks failed
    for rank in report["ranks"]:
        # A launcher that is stopped too early does not report how its rank ended; the rank's exception does.
        exit_unknown = rank["exit_code"] is None and stopped and bool(rank["error"])
        own = bool(rank.get("own_error") and rank["error"])  # its exit code only says that it was ended
        ended_well = (rank["exit_code"] in (0, *STOPPED_BY_US) and not exit_unknown) or rank.get("closed")
        if ended_well and not own:
            continue
        ended_by_us = rank.get("ended_by_us", False)
        if ended_by_us and not rank["error"]:  # regardless of its exit code; an exception may predate the end
            continue
        says_nothing = not rank["error"] or BARE_ABORT.match(rank["error"]) is not None
        secondary = is_consequence(rank["error"]) or (says_nothing and rank["exit_code"] == -signal.SIGABRT)
        error = rank["error"] or exit_clause(rank["exit_code"])
        if rank["exit_code"] in KILLED and report.get("oom_kills") and not own:
            reason = (
                "at the memory limit of a container or service" if report.get("limit_hits") else "for lack of memory"
            )
            error += f" (the kernel killed processes {reason} on this node during the run)"
        failures.append(
            {
                **base,
                **attribute_to_rank(rank, report["ranks"], error),
                "log": rank["log"],
                "last_lines": last_lines_of(report, rank["log"]),
                "silent": not rank["error"] and (rank["exit_code"] or 0) > 0,
                "weight": CONSEQUENCE if secondary else int(exit_unknown or ended_by_us or own),
                "own": own,
                "before_end": rank.get("before_end"),
                "since": node["since"],
                "first": rank.get("first", False),
            }
        )
    if not failures and code not in (0, *STOPPED_BY_US, *expected_exit_codes):
        error = launcher_error or f"the launcher {exit_clause(code)}"
        failures.append(
            {
                **base,
                "rank": None,
                "error": error,
                "log": report["launcher_log"],
                "last_lines": last_lines_of(report, report["launcher_log"]),
                "silent": False,
                "weight": CONSEQUENCE + 1 if stopped or expected_exit_codes else 1,
                "since": node["since"],
                "first": False,
            }
        )
    return failures


def earliest_failure(failures: list[dict[str, Any]], first_node: str | None) -> dict[str, Any] | None:
    """Return the earliest cause, or None.

    A rank that exited without an error of its own, or whose log is cut off before it, is skipped if another shows why.
    """

    def order(failure: dict[str, Any]) -> tuple[Any, ...]:
        # reports do not arrive in the order in which ranks failed that were then ended with the run
        before_end = failure.get("before_end") or 0.0 if failure.get("own") else 0.0
        return (
            failure["weight"],
            failure["node"] != first_node,
            bool(failure.get("own")),
            -before_end,
            failure["since"],
            not failure["first"],
        )

    best = min(failures, key=order, default=None)
    earlier = None if best is None else find_earlier_error(best, failures)
    if earlier is not None:
        return earlier
    if best is None or not (best["silent"] or shows_nothing(best)):
        return best
    rivals = [failure for failure in failures if failure["weight"] == best["weight"] and shows_cause(failure["error"])]
    return min(rivals, key=order, default=best)


def find_earlier_error(best: Mapping[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the earliest error of a rank that was ended with the run, if clearly earlier than a failure, or None.

    Such a rank has raised an exception and then hung, until another one failed later.
    """
    limit = best.get("before_end")
    if best["weight"] >= CONSEQUENCE or best.get("own") or limit is None:
        return None
    rivals = [
        failure
        for failure in failures
        if failure.get("own")
        and failure["weight"] < CONSEQUENCE
        and (failure.get("before_end") or 0.0) > limit + CLEARLY_EARLIER
    ]
    return max(rivals, key=lambda failure: failure["before_end"], default=None)


def ended_ranks(nodes: Iterable[Mapping[str, Any]], failures: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the ranks without an error of their own that were ended with the run, and whose last lines are known."""
    logs = {failure["log"] for failure in failures}
    for node in nodes:
        report = node.get("report") or {}
        for rank in report.get("ranks", []):
            lines = last_lines_of(report, rank["log"])
            if lines and rank["exit_code"] != 0 and rank["log"] not in logs:
                yield {
                    "node": node["name"],
                    "node_rank": node["node_rank"],
                    "rank": rank["rank"],
                    "error": STOPPED_AFTER_ERROR,
                    "log": rank["log"],
                    "last_lines": lines,
                    "since": node["since"],
                }


def shows_nothing(failure: Mapping[str, Any]) -> bool:
    """Return whether a rank's log is cut off within a traceback, and shows no cause before that."""
    return (
        failure["rank"] is not None
        and bool(EXIT_CODE_ONLY.match(failure["error"]))
        and any(TRACEBACK in line for line in failure["last_lines"])
        and explain_failure(failure["error"], failure["last_lines"]) is None
    )


def first_failure(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the first failure: a lost node before its peers' errors about the loss, then causes before
    consequences.
    """
    first_node = result.get("first_node")
    # a node whose loss an elastic run survived did not end the run, unless the end followed immediately
    end = next((node["since"] for node in result["nodes"] if node["name"] == first_node), result["ended"])
    members = nodes_of_last_attempt(result)
    nodes = [node for node in members if not (node.get("survived") and end - node["since"] > AFTERMATH)]
    lost = [node for node in nodes if node["state"] == "lost"]
    failures = [failure for node in nodes for failure in failure_candidates(node)]
    # since: when rank 0's supervisor learned of it, always by that supervisor's clock
    best = earliest_failure(failures, first_node)
    # a launcher that fails without a failed rank, such as mpirun after losing a daemon, failed because of the lost node
    only_consequences = best is None or best["weight"] > 0
    if lost and (only_consequences or first_node in [node["name"] for node in lost]):
        node = next((node for node in lost if node["name"] == first_node), lost[0])
        error = node.get("lost_reason") or result["reason"]
        log = node["launcher_log"] or None
        base = {"node": node["name"], "node_rank": node["node_rank"]}
        return {**base, "rank": None, "error": error, "log": log, "last_lines": []}
    if best is None:
        return find_scheduler_end(nodes)
    if best["weight"] == CONSEQUENCE:
        best = replace_reactions(result, best, failures)
    else:
        best = name_odd_fingerprint(best, failures)
    return {key: best[key] for key in ("node", "node_rank", "rank", "error", "log", "last_lines")}


def replace_reactions(
    result: Mapping[str, Any], best: dict[str, Any], failures: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the failure that explains why ranks were only waiting or lost a connection, by default the first of these
    ranks.
    """
    culprit = (
        find_early_exit(result, failures)
        or find_unstarted_rank(failures)
        or find_absent_rank(result, failures)
        or find_departed_rank(result, failures)
    )
    if culprit is None:
        named = name_different_collectives(best, failures)
        culprit = named if named is not best else find_running_rank(result, failures)
        culprit = culprit or find_stated_cause(best, [*failures, *ended_ranks(nodes_of_last_attempt(result), failures)])
        culprit = culprit or add_agreement(result, best, failures) or find_different_lines(failures)
    return {**best, **(culprit or {})}


def add_agreement(
    result: Mapping[str, Any], best: dict[str, Any], failures: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """Return the first failure with the collective in which all ranks wait, and settings that differ, or None."""
    ranks = sum(len((node["report"] or {}).get("ranks", [])) for node in result["nodes"])
    clauses = [describe_settings(failures), describe_agreement(read_works(failures), ranks)]
    return {**best, "error": "; ".join([best["error"], *filter(None, clauses)])} if any(clauses) else None


def add_difference(
    result: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], first: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return the first failure, adding the NCCL settings that differ between nodes if they can cause that error.

    Args:
        result: That of the run.
        nodes: Those of its plan.
        first: The first failure.
    """
    if first is None or not may_follow_from_difference(first):
        return first
    difference = describe_differences(reported_setups(result, nodes), nodes)
    if not difference:
        return first
    failures = [first, *(failure for node in result["nodes"] for failure in failure_candidates(node))]
    if has_completed_collective("\n".join([failure["error"], *failure["last_lines"]]) for failure in failures):
        return first
    return {**first, "error": f"{difference}; {first['error']}"}


def may_follow_from_difference(failure: Mapping[str, Any]) -> bool:
    """Return whether a failure is a timeout or lost connection of NCCL whose cause is not known."""
    if WAITED_FOR.search(failure["error"]):
        return "left no stack" in failure["error"]
    if not any("NCCL" in text for text in (failure["error"], *failure["last_lines"])):
        return False
    explanation = explain_failure(failure["error"], failure["last_lines"])
    if explanation is None:
        return bool(SECONDARY.search(failure["error"])) or failure["error"].startswith("was killed by SIGABRT")
    return explanation["id"] in CONSEQUENCES_OF_DIFFERENCE


def count_reactions(result: Mapping[str, Any], first: Mapping[str, Any] | None) -> int:
    """Return how many ranks failed only because of the first failure: they waited, or lost a connection."""
    failures = [failure for node in result["nodes"] for failure in failure_candidates(node)]
    return sum(
        failure["rank"] is not None
        and failure["weight"] >= CONSEQUENCE
        and (first is None or failure["rank"] != first["rank"])
        for failure in failures
    )
