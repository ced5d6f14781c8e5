# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the rank that others waited for until they gave up.

A rank that waits in a collective ends with a timeout, so the rank with a timeout is not the one to look at: it is the
rank that exited early, or the only rank without a timeout.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._failures.activity import (
    FINISHED,
    TRAINING,
    activity_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.collective_progress import (
    WORK,
    describe_difference,
    describe_unstarted_ranks,
    read_works,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.loops import describe_loops
from ansible_collections.muster.training.plugins.plugin_utils._failures.node_output import last_lines_of
from ansible_collections.muster.training.plugins.plugin_utils._failures.settings_of_ranks import describe_places

TIMEOUT = re.compile(r"timed[ -]?out|time-?out", re.IGNORECASE)
# What NCCL's watchdog writes about the operation in which a rank was waiting, in the error or, after an abort, in the
# rank's log.
COLLECTIVE = re.compile(
    r"(?:Watchdog c|C)aught collective operation timeout: WorkNCCL\("
    r"(?:SeqNum=(?P<number>\d{1,12}), )?OpType=(?P<name>\w{1,60})"
)
# In the log of a rank that aborted: it was waiting. "Observed ... from another rank" is not such a line.
WATCHDOG = re.compile(
    r"(?:Watchdog c|C)aught collective operation timeout|"
    r"Received a dump signal due to a collective timeout from this local rank|"
    r"Heartbeat monitor timed out!|watchdog got stuck for \d"
)
GLOO_WAITED = re.compile(r"Timed out waiting \d{1,10}ms for (?:send|recv) operation")
# number of ranks that timed out: with fewer, the rank without a timeout may simply have been ended sooner
MIN_WAITING = 2
MAX_QUOTED = 300  # number of characters of a waiting rank's error
SHORT_LIMIT = re.compile(r"Timeout\(ms\)=[1-5]?\d{1,5}\b")  # less than the default of 10 minutes
# An aborted rank that only heard of other ranks' timeouts: it was not waiting itself.
OBSERVED = re.compile(r"Observed flight recorder dump signal from another rank")
STOPPED = (None, -signal.SIGTERM, -signal.SIGKILL)
# What torch's debug mode reports about a rank's collective.
FINGERPRINT = re.compile(
    r"Detected mismatch between collectives on ranks\. Rank (?P<rank>\d{1,7}) is running (?:inconsistent )?collective: "
    r"CollectiveFingerPrint\((?:SequenceNumber=\d{1,12},? ?)?OpType=(?P<name>\w{1,60})"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]{0,60})\])?"
)
# A call in a traceback that is not part of the training steps.
BESIDE = re.compile(r"^[^\n]{0,40}\b\w{0,40}(?:save|ckpt|eval|valid|predict)\w{0,40}\(", re.MULTILINE)
PEER_GONE = re.compile(r"\b(?:closed|reset) by peer\b", re.IGNORECASE)


def ranks_of(result: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each rank together with its node."""
    for node in result["nodes"]:
        for rank in (node.get("report") or {}).get("ranks", []):
            yield node, rank


def waiting_failures(failures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the failures that are timeouts, according to the rank's error or, if the rank aborted, its log."""
    return [
        failure
        for failure in failures
        if failure["rank"] is not None
        and (TIMEOUT.search(failure["error"]) or WATCHDOG.search("\n".join(failure["last_lines"])))
    ]


def collective_of(failure: Mapping[str, Any]) -> re.Match[str] | None:
    """Return the operation in which a rank was waiting, according to its error or the end of its log, or None."""
    return COLLECTIVE.search("\n".join([failure["error"], *failure["last_lines"]]))


def blame(node: Mapping[str, Any], rank: Mapping[str, Any], error: str, since: float) -> dict[str, Any]:
    """Return a rank without an error of its own as the first failure."""
    return {
        "node": node["name"],
        "node_rank": node["node_rank"],
        "rank": rank["rank"],
        "error": error,
        "log": rank["log"],
        "last_lines": last_lines_of(node["report"], rank["log"]),
        "since": since,
    }


def find_early_exit(result: Mapping[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the rank that exited with 0 while others were waiting for it, as the first failure, or None."""
    waiting = waiting_failures(failures)
    exited = [(node, rank) for node, rank in ranks_of(result) if rank["exit_code"] == 0 and not rank["error"]]
    if not waiting or not exited:
        return None
    node, rank = exited[0]
    others = f" (so did {len(exited) - 1} more)" if len(exited) > 1 else ""
    first = blame(node, rank, "", waiting[0]["since"])
    activity, output = own_work(waiting[0]["last_lines"], first["last_lines"])
    shown = f" (its last output: {output})" if activity not in ("", TRAINING, FINISHED) else ""
    loops = describe_loops((rank["rank"], first["last_lines"]), (waiting[0]["rank"], waiting[0]["last_lines"]))
    error = (
        f"exited with 0{others} while rank {waiting[0]['rank']} waited for it{shown}{loops}: {quote_error(waiting[0])}"
    )
    return {**first, "error": error}


def own_work(lines: Iterable[str], others: Iterable[str]) -> tuple[str, str]:
    """Return what a rank was doing, according to output that the other rank did not print, and that output."""
    printed_elsewhere = {line.strip() for line in others}
    return activity_of(line for line in lines if line.strip() not in printed_elsewhere)


def find_absent_rank(result: Mapping[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the rank that the others waited for, as the first failure, or None: it is the only rank without a timeout.

    If a single rank waited, the other one may only have been ended sooner: its last output must show separate work.
    """
    waiting = waiting_failures(failures)
    numbers = [failure["rank"] for failure in waiting]
    others = [(node, rank) for node, rank in ranks_of(result) if rank["rank"] not in numbers]
    if len(waiting) < MIN_WAITING or len(others) != 1:
        return None
    node, rank = others[0]
    if rank["error"]:
        return next((failure for failure in failures if failure["rank"] == rank["rank"]), None)
    if not was_running(node, rank):
        return None
    activity, output = work_of(node, rank, waiting)
    clause = f"did not arrive where {describe_waiters(waiting)} waited for it"
    if activity == TRAINING:
        own = blame(node, rank, "", 0.0)["last_lines"]
        loops = describe_loops((rank["rank"], own), (waiting[0]["rank"], waiting[0]["last_lines"]))
        clause += f", its last output: {output}{loops}"
    elif output:
        clause = describe_work(waiting, activity, output)
    return blame(node, rank, f"{clause}; rank {numbers[0]}: {quote_error(waiting[0])}", waiting[0]["since"])


def quote_error(failure: Mapping[str, Any]) -> str:
    """Return the error of a rank that was waiting or, if it only says how the rank ended, the collective it was waiting
    in.
    """
    work = WORK.search("\n".join(failure["last_lines"])) if not TIMEOUT.search(failure["error"]) else None
    if work is None:
        return str(failure["error"])[:MAX_QUOTED]
    limit = SHORT_LIMIT.search(work.string, work.end(), work.end() + MAX_QUOTED)
    return f"{work[0].partition('] ')[2] or work[0]}{f', {limit[0]}' if limit else ''})"


def was_running(node: Mapping[str, Any], rank: Mapping[str, Any]) -> bool:
    """Return whether a rank without an error was still running when others gave up waiting."""
    if rank["exit_code"] in STOPPED or rank.get("ended_by_us"):
        return True
    log = "\n".join(last_lines_of(node["report"], rank["log"]))
    return rank["exit_code"] == -signal.SIGABRT and bool(OBSERVED.search(log)) and not WATCHDOG.search(log)


def describe_waiters(waiting: list[dict[str, Any]]) -> str:
    """Describe the ranks that waited, for display."""
    return f"rank {waiting[0]['rank']}" if len(waiting) == 1 else f"{len(waiting)} other ranks"


def work_of(node: Mapping[str, Any], rank: Mapping[str, Any], waiting: list[dict[str, Any]]) -> tuple[str, str]:
    """Return what a rank was doing according to its last output, and that output; ("", "") if unknown.

    Lines that a waiting rank printed as well show nothing.
    """
    common = {line.strip() for failure in waiting for line in failure["last_lines"]}
    lines = [line for line in last_lines_of(node["report"], rank["log"]) if line.strip()]
    if not lines or lines[-1].strip() in common:
        return "", ""
    return activity_of(lines)


def describe_work(waiting: list[dict[str, Any]], activity: str, output: str) -> str:
    """Return what a rank was doing while others were waiting for it, as an error."""
    what = "had finished" if activity == FINISHED else "was still working"
    return f"{what} when {describe_waiters(waiting)} gave up waiting for it, its last output: {output}"


def find_unstarted_rank(failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the rank that has not started the collective in which others are waiting, as the first failure, or
    None.
    """
    difference, behind = describe_unstarted_ranks(read_works(waiting_failures(failures)), failures)
    culprit = next((failure for failure in failures if failure["rank"] in behind), None)
    return culprit and {**culprit, "error": f"{difference}; {culprit['error']}"}


def find_departed_rank(result: Mapping[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the only rank without an error, if all others lost their connections to it, as the first failure, or None.

    It may have ended before the others, as a rank that alone resumes from a checkpoint does. Ranks that were ended with
    the run do not count: blame_hang() knows more about their end.
    """
    cut_off = [
        failure
        for failure in failures
        if failure["rank"] is not None and PEER_GONE.search(failure["error"]) and not failure.get("own")
    ]
    numbers = [failure["rank"] for failure in cut_off]
    others = [(node, rank) for node, rank in ranks_of(result) if rank["rank"] not in numbers]
    if not cut_off or len(others) != 1:
        return None
    node, rank = others[0]
    if rank["error"] or rank["exit_code"] not in (0, None) or (node["report"] or {}).get("oom_kills"):
        return None
    state = "exited with 0" if rank["exit_code"] == 0 else "had no error of its own"
    who = f"rank {numbers[0]}" if len(numbers) == 1 else f"all {len(numbers)} other ranks"
    error = f"{state} when {who} lost the connection to it: {cut_off[0]['error'][:MAX_QUOTED]}"
    return blame(node, rank, error, cut_off[0]["since"])


def name_odd_fingerprint(first: dict[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the failure of the rank that called a different collective than the others, or the first failure.

    With TORCH_DISTRIBUTED_DEBUG=DETAIL, each rank reports the collective that it called if they differ. Of two groups
    of ranks, the odd one is a single rank, or the one that was saving or evaluating. Its error then also names the
    collective of another rank.
    """
    if not FINGERPRINT.search(first["error"]):
        return first
    called: dict[str, list[dict[str, Any]]] = {}  # by operation and shape
    for failure in failures:
        match = FINGERPRINT.search(failure["error"])
        if match and failure["rank"] is not None and match["rank"] == str(failure["rank"]):
            called.setdefault(f"{match['name']} [{match['shape'] or ''}]", []).append(failure)
    groups = sorted(called.values(), key=len)
    if len(groups) == 2 and len(groups[0]) == 1 and len(groups[1]) >= MIN_WAITING:
        first = groups[0][0]
    elif len(groups) == 2:
        beside = [items[0] for items in groups if BESIDE.search("\n".join(items[0]["last_lines"]))]
        first = beside[0] if len(beside) == 1 else first
    text, other = next(
        ((text, items[0]) for text, items in called.items() if all(item["rank"] != first["rank"] for item in items)),
        ("", first),
    )
    # Old torch releases name only the rank's own collective.
    return {**first, "error": f"{first['error']}; rank {other['rank']} calls {text}"} if text else first


def name_different_collectives(first: dict[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first failure, with the collectives in which ranks were waiting if they differ.

    A rank that is behind the others becomes the first failure.
    """
    waiting = waiting_failures(failures)
    difference, behind = describe_difference(read_works(waiting))
    if not difference:
        return first
    works = {failure["rank"]: work_beside(failure, waiting) for failure in waiting}
    busy = [failure for failure in waiting if works[failure["rank"]][0] not in ("", TRAINING)]
    culprit = next((failure for failure in waiting if failure["rank"] in behind), None)
    if culprit is None and len(busy) == 1:
        culprit = busy[0]
        difference += f", apart: rank {culprit['rank']}"
    if culprit is None:
        return {**first, "error": f"{difference}; {first['error']}"}
    activity, output = works[culprit["rank"]]
    shown = f", its last output: {output}" if activity not in ("", TRAINING) else ""
    return {**culprit, "error": f"{difference}{shown}; {culprit['error']}"}


def find_different_lines(failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the first failure with the lines of code at which ranks wait if these differ, or None."""
    waiting = waiting_failures(failures)
    works = {(work.group, work.number, work.name, work.elements) for work in read_works(waiting)}
    if len(works) == 1 and next(iter(works))[1] is not None:
        return None  # in the same collective: Python runs ahead of the GPU, so that lines differ anyway
    places = describe_places(waiting) if len(waiting) > 1 else ""
    return {**waiting[0], "error": f"{places}; {waiting[0]['error']}"} if places else None


def work_beside(failure: Mapping[str, Any], waiting: list[dict[str, Any]]) -> tuple[str, str]:
    """Return what a waiting rank was doing, according to output that no other rank printed, and that output."""
    others = [line for other in waiting if other is not failure for line in other["last_lines"]]
    return own_work(failure["last_lines"], others)


def find_running_rank(result: Mapping[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the rank that failed first: the one that did not time out and whose last output shows it doing work that
    no other rank was doing. Return None if there is no such rank.

    A rank whose last output is only a training step may have been waiting as well, so it is not named.
    """
    waiting = [
        failure
        for failure in waiting_failures(failures)
        if collective_of(failure) or GLOO_WAITED.search(failure["error"])
    ]
    numbers = {failure["rank"] for failure in waiting_failures(failures)}
    for node, rank in ranks_of(result) if waiting else ():
        if rank["rank"] in numbers or rank["error"] or not was_running(node, rank):
            continue
        activity, output = work_of(node, rank, waiting)
        if activity not in ("", TRAINING):
            error = f"{describe_work(waiting, activity, output)}; rank {waiting[0]['rank']}: {quote_error(waiting[0])}"
            return blame(node, rank, error, waiting[0]["since"])
    return None
