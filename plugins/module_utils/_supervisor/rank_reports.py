# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine how each rank ended and which rank failed first, based on a node's files."""

from __future__ import annotations

import math
import os
import re
import signal

from ansible_collections.muster.training.plugins.module_utils._run.error_text import (
    final_message,
    first_error,
    tail_lines,
)
from ansible_collections.muster.training.plugins.module_utils._run.output_formats import TRACEBACK
from ansible_collections.muster.training.plugins.module_utils._run.processes import KILLED, describe_exit
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import log_directory, rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object, read_tail
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import is_exit_code
from ansible_collections.muster.training.plugins.module_utils._supervisor.own_errors import (
    NOT_ENDED,
    abort_error,
    error_file,
    own_error,
    recorded_error,
    recorded_traceback,
    uncaught_error,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        LogExcerpt,
        NodeReport,
        RankReport,
    )
    from ansible_collections.muster.training.plugins.module_utils._supervisor.own_errors import RanksEnd

# number of last lines to keep of a rank that was ended because others failed: what it was doing may be shown above a
# progress bar
STOPPED_LINES = 10
MAX_STOPPED = 4000  # characters of these
# of other ranks of a node with an error in their log: ranks, and last lines and characters of each
MAX_OTHERS, OTHER_LINES, MAX_OTHER = 4, 40, 3000
MAX_ERROR_LINE = 500  # characters of a line in which to look for an error
ERROR_LINE = re.compile(
    r"Traceback \(most recent call last\)|\b\w{0,60}(?:Error|Exception)\b: |\berror: |^ERROR\b|\[Errno \d|NCCL WARN|"
    r"terminate called after|Fatal Python error|Segmentation fault|Assertion [`'][^\n]{1,300}' failed|"
    r"Caught collective operation timeout",
    re.IGNORECASE,
)
# Numbers of at most 9 digits: a job may write such lines itself.
TORCHRUN_FAILURE = re.compile(
    r"rank\s*: (?P<rank>[0-9]{1,9}) \(local_rank: (?P<local_rank>[0-9]{1,9})\)\s*\n"
    r"\s*exitcode\s*: (?P<exit_code>-?[0-9]{1,9}) \(pid: (?P<pid>[0-9]{1,9})\)"
)
TABLE_END = re.compile(r"^(?:-{20,}|={20,}|\[[0-9]{1,9}\]:)$", re.MULTILINE)  # the end of a rank's part of that table
MAX_ENTRY = 20000  # characters of a rank's part
# What torchrun logs (since torch 1.9) when a rank has failed and it ends the others, which are given 30 s.
CLOSING = re.compile(r"Sending process ([0-9]{1,9}) closing signal")
# What a rank's C++ runtime prints when Python, before 3.14, forcibly ends one of its threads.
ENDED_BY_FORCE = "terminate called without an active exception"
ABORTED_AT_ITS_END = (
    f"was aborted while its interpreter was exiting ({ENDED_BY_FORCE}): a gloo thread was still running. In the "
    "script, import torch.distributed.nn before init_process_group and call destroy_process_group at the end; if "
    "the script uses fully_shard on CPUs, which keeps the thread running anyway, end it with sys.stdout.flush() "
    "and os._exit(0)"
)


def rank_reports(
    plan: Mapping[str, Any],
    directory: str,
    launcher_code: int | None,
    launcher_stopped: bool = False,
    end: RanksEnd = NOT_ENDED,
) -> list[RankReport]:
    """Return one dict for each rank on this node: rank, local_rank, exit_code (None: unknown), error, log.

    Also closed (true) if torchrun ended it because another rank had failed, first (true) if it is known to be the first
    rank on this node to fail, ended_by_us (true) if the supervisor ended it, own_error (true) if it was ended after an
    error of its own, and before_end, how many seconds before the end of the node's ranks a rank had failed, if known.

    launcher_stopped: whether the supervisor also ended the launcher. end: when it began to end the ranks.
    """
    node, logs = plan["node"], log_directory(plan, directory)
    launcher_log = os.path.join(logs, "launcher.log")
    failures, first, listed = {}, None, {}
    if launcher_code != 0 and plan["rank_logs"] == "torchrun":
        output = read_tail(launcher_log)
        failures, first, listed = torchrun_failures(output), torchrun_first(output), torchrun_errors(output)
    ranks = list(range(node["first_rank"], node["first_rank"] + node["slots"]))
    is_shared = plan["rank_logs"] == "launcher" and node["slots"] > 1
    # errors by rank, if several ranks write to one log
    shared = shared_errors(read_tail(launcher_log), ranks) if is_shared and launcher_code else None
    ends = []
    if plan["rank_logs"] == "ranks":
        ends = [rank_end(logs, local_rank) for local_rank in range(node["slots"])]
        first = first_failed_rank(ends, end.moment)
    reports: list[RankReport] = []
    for local_rank in range(node["slots"]):
        rank, code, closed = failures.get(local_rank, (ranks[local_rank], None, False))
        by_us = False  # torchrun lists only ranks that ended before the supervisor ended torchrun
        ended = math.inf
        if ends:
            code, ended = ends[local_rank]
            by_us = ended > end.moment
        elif launcher_code == 0:
            code = 0
        elif plan["rank_logs"] != "torchrun":
            code, by_us = launcher_code, launcher_stopped
        mark = end.marks[local_rank] if local_rank < len(end.marks) else None
        stderr = rank_logs(plan, directory, local_rank)[1]
        own, before = "", None if mark is None else mark.quiet
        if code != 0 and (closed or by_us or code is None):
            own, before = own_error(stderr, rank, mark, is_shared)
        if shared is not None:
            error = shared[rank]
            code = code if error else None  # the launcher's exit code is that of a failed rank
        else:
            error = "" if own else rank_error(code, stderr, rank, by_us) or listed.get(local_rank, "")
        report: RankReport = {
            "rank": rank,
            "local_rank": local_rank,
            "exit_code": code,
            "error": own or error,
            "log": stderr,
        }
        if not by_us and math.isfinite(ended) and math.isfinite(end.moment):
            before = max(0.0, end.moment - ended)
        if before is not None and (report["error"] or code not in (0, None)):
            report["before_end"] = round(before, 1)
        # mypy accepts only literal keys: these are properties of a RankReport
        marked = {"closed": closed, "first": local_rank == first, "ended_by_us": by_us, "own_error": own}
        report.update({name: True for name, value in marked.items() if value})  # type: ignore[typeddict-item]
        reports.append(report)
    return reports


def rank_error(code: int | None, log: str, rank: int, by_us: bool) -> str:
    """Return the error of a rank with a log of its own, or "".

    A killed rank survived any error that it logged. by_us: whether the supervisor ended it.
    """
    if code in (0, *KILLED):
        return ""
    recorded, text = recorded_error(error_file(log)), read_tail(log)
    if recorded:
        return recorded
    if code is None:  # the rank may have survived errors that lack torch's prefix
        return uncaught_error(text, rank)
    error = first_error(text)
    if not error and code < 0:
        error = ABORTED_AT_ITS_END if was_aborted_by_runtime(code, text) else abort_error(text)
    output = final_message(text)
    if not error and output and code > 0 and not by_us:
        # argparse, sys.exit("..."), a missing file
        error = f"ended with {describe_exit(code)}, its last output: {output}"
    return error


def was_aborted_by_runtime(code: int, text: str) -> bool:
    """Return whether a rank was aborted by its C++ runtime because the interpreter ended one of its threads."""
    return code == -signal.SIGABRT and ENDED_BY_FORCE in text


def shared_errors(text: str, ranks: list[int]) -> dict[int, str] | None:
    """Return {rank: the exception that ended it, or ""} for ranks that share a log, or None if this is unknown.

    torch puts "[rank3]: " before each line of an uncaught exception.
    """
    errors = {rank: uncaught_error(text, rank) for rank in ranks}
    return errors if any(errors.values()) else None


def log_of_failure(report: NodeReport) -> str:
    """Return the log of the rank that failed first, or the launcher's log if no rank failed; "" if nothing failed."""
    well = (0, None, -signal.SIGTERM)
    ranks = [rank for rank in report["ranks"] if rank.get("own_error") or not rank.get("closed")]
    failed = [rank for rank in ranks if rank["exit_code"] not in well or rank["error"]]
    failed.sort(key=lambda rank: (not rank.get("first"), bool(rank.get("ended_by_us") and not rank["error"])))
    if failed:
        return str(failed[0]["log"])
    return "" if report["exit_code"] in well or report["ended_by_us"] else str(report["launcher_log"])


def last_output(report: NodeReport) -> tuple[str, str]:
    """Return the log of the rank that failed first, and the last lines of that log.

    For a node that was ended, those of its first rank: they show what it was doing while others waited for it. If no
    rank failed there, those of the first rank that ended well: they show why it ended before others.
    """
    log = log_of_failure(report)
    if log:
        return log, last_lines(log)
    stopped = [rank for rank in report["ranks"] if report["ended_by_us"] and rank["exit_code"] != 0]
    shown = stopped or [rank for rank in report["ranks"] if rank["exit_code"] == 0]
    if not shown:
        return "", ""
    log = str(shown[0]["log"])
    return log, "\n".join(last_lines(log).split("\n")[-STOPPED_LINES:])[-MAX_STOPPED:]


def other_outputs(report: NodeReport) -> list[LogExcerpt]:
    """Return the last lines of other ranks of a node on which something failed, if they show an error.

    The rank that failed first may only have reacted to another one. Ranks with an error of their own come first.
    """
    if report["exit_code"] == 0 and not any(rank["exit_code"] or rank["error"] for rank in report["ranks"]):
        return []
    ranks = [rank for rank in report["ranks"] if rank["log"] not in (report["last_log"], report["launcher_log"])]
    ranks.sort(key=lambda rank: (not rank["error"], bool(rank.get("closed")), rank["rank"]))
    excerpts: list[LogExcerpt] = []
    for rank in ranks:
        text = "\n".join(last_lines(rank["log"]).split("\n")[-OTHER_LINES:])[-MAX_OTHER:]
        if any(ERROR_LINE.search(line[:MAX_ERROR_LINE]) for line in text.split("\n")):
            excerpts.append({"log": rank["log"], "lines": text})
        if len(excerpts) == MAX_OTHERS:
            break
    return excerpts


def last_lines(path: str) -> str:
    """Return the last lines of a log, for display and for finding the cause of a failure.

    They end with the traceback that torch's @record has written, if the log itself has none.
    """
    text = read_tail(path)
    traceback = "" if TRACEBACK in text else recorded_traceback(error_file(path))
    return tail_lines(f"{text.rstrip()}\n{traceback}" if traceback else text)


def launcher_error(code: int | None, text: str) -> str:
    """Return the launcher's error from its output; after a signal, its last line is not the reason.

    A killed launcher survived any error it logged; but a shell's last line reports the kill.
    """
    if not code:
        return ""
    if code in KILLED:
        last = text.rstrip().rpartition("\n")[2].strip()[:2000]
        return last if code > 0 and "killed" in last.lower() else ""
    return final_message(text) if code > 0 else first_error(text)


def torchrun_failures(text: str) -> dict[int, tuple[int, int, bool]]:
    """Return {local_rank: (rank, exit code, whether torchrun ended it)} from torchrun's table of failed ranks."""
    text = re.sub(r"^[EWI]\d{4} [^\]]*\] ", "", text, flags=re.MULTILINE)
    closed = set(CLOSING.findall(text))
    return {
        int(match["local_rank"]): (int(match["rank"]), int(match["exit_code"]), match["pid"] in closed)
        for match in TORCHRUN_FAILURE.finditer(text)
    }


def torchrun_errors(text: str) -> dict[int, str]:
    """Return {local_rank: exception} from the tracebacks of @record in the table of failed ranks that torchrun prints.

    The table also names each rank's error file, which is read only where the run expects it: a job may print any path.
    """
    errors = {}
    text = "\n".join(line[2:] if line.startswith("  ") else line for line in text.split("\n"))
    for match in TORCHRUN_FAILURE.finditer(text):
        entry = TABLE_END.split(text[match.end() : match.end() + MAX_ENTRY], maxsplit=1)[0]
        errors[int(match["local_rank"])] = first_error(entry.partition("traceback : ")[2])
    return {local_rank: error for local_rank, error in errors.items() if error}


def torchrun_first(text: str) -> int | None:
    """Return the local rank that failed first according to torchrun's table of failed ranks, or None."""
    match = TORCHRUN_FAILURE.search(text.rpartition("Root Cause (first observed failure):")[2])
    return int(match["local_rank"]) if match and "Root Cause" in text else None


def rank_end(directory: str, local_rank: int) -> tuple[int | None, float]:
    """Return the exit code and end time of a rank started by bin/muster-rank; None if they were not recorded.

    directory: that of the attempt's logs.

    Times are by this machine's monotonic clock, which no time server sets; infinity for a rank that has not ended.
    """
    record = read_job_object(os.path.join(directory, "ranks", str(local_rank), "exit.json"))
    code, ended = record.get("exit_code"), record.get("moment")
    if not is_exit_code(code) or not isinstance(ended, float) or not math.isfinite(ended):
        return None, math.inf
    return code, ended


def first_failed_rank(ends: list[tuple[int | None, float]], until: float) -> int | None:
    """Return the local rank that failed first, or None if none failed; ends: each rank's exit code and end time.

    until: when the supervisor began to end this node's processes. A rank that SIGTERM ended earlier was ended by its
    launcher, which will report why.
    """
    failed = [
        (ended, local_rank)
        for local_rank, (code, ended) in enumerate(ends)
        if code not in (None, 0, -signal.SIGTERM) and ended <= until
    ]
    return min(failed)[1] if failed else None
