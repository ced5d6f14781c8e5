# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the log of a rank that waited in vain suggests about the reason, among those that are possible."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.plugin_utils._failures.collective_progress import WORK

# Entries whose cause lists the reasons for which another rank may not have arrived.
EXPLAINED = (
    "nccl-time-out",
    "nccl-first-collective",
    "nccl-start-waits",
    "rank-never-arrived",
    "gloo-timed-out",
    "monitored-barrier",
    "store-time-out",
    "ranks-missing",
    "rank-behind",
)
MAX_LAST_LINES = 12  # lines before the timeout in which to look for what the job was doing
MAX_LINE = 400
# Lines about the timeout itself, which do not show what the job was doing.
REPORT = re.compile(
    r"ProcessGroup|\[c10d\]|\bNCCL\b|[Ww]atchdog|terminate called|what\(\)|frame #|C\+\+ frames|Traceback|"
    r"^\s{1,12}(?:File |raise )|Error\b|torch\.distributed|elastic|SIGTERM|SIGABRT|exitcode|^[-=* ]{5,}$"
)
START = 10  # collectives of a job's beginning


@dataclass(frozen=True)
class Clue:
    """A reason that a pattern in the last output, or the operation in which ranks waited, suggests."""

    pattern: re.Pattern[str]
    sentence: str


OUTPUT_CLUES = (
    Clue(
        re.compile(
            r"\b(?:sav(?:e|ed|ing)\b|writing (?:the )?(?:model|checkpoint)|checkpoint(?:ing|s)? (?:to|at|in))", re.I
        ),
        "The last output is about saving: most likely only some ranks call the function that saves a sharded model, or "
        "saving takes longer than the timeout.",
    ),
    Clue(
        re.compile(
            r"\b(?:tokeni[sz]|preprocess|pre-process|preparing|download|loading|map\b[^\n]{0,20}\d%|scanning|building|"
            r"extracting|indexing|reading)",
            re.I,
        ),
        "The last output is about preparing or loading: most likely a rank was still busy with it, alone or on a slow "
        "disk, when the others gave up.",
    ),
    Clue(
        re.compile(r"\b(?:evaluat|validat|eval\b|eval_|valid\b|testing\b|generat)", re.I),
        "The last output is from an evaluation: most likely only some ranks evaluate, or they have different numbers "
        "of batches or lengths to generate there.",
    ),
    Clue(
        re.compile(r"\b100%\||\b(\d{1,9})/\1\b"),
        "The last output shows the end of an epoch or loop: most likely the ranks have different numbers of batches, "
        "or a rank saves or evaluates alone after it, or failed there.",
    ),
)
BARRIER = (
    "The ranks waited in a barrier or an all_reduce of a single number: most likely one rank, often rank 0 or the "
    "first of a node, was still busy alone (preparing data, saving, evaluating), had no more batches, or takes another "
    "branch."
)
FIRST_BROADCAST = (
    "The ranks waited for a broadcast at the beginning, in which rank 0 sends weights or settings: most likely rank 0 "
    "was still loading or preparing, or the network between the nodes moves no data."
)
SHARDED = (
    "The ranks waited for the weights or gradients of a sharded model (FSDP, ZeRO 3): most likely a rank did not run "
    "the same layers in this step, had no batch, or runs code for rank 0 only."
)
POINT_TO_POINT = "The ranks waited to send to or receive from another pipeline stage: that stage is the one to look at."
EXPERTS = (
    "The ranks waited in an all-to-all, as mixtures of experts and sharded embeddings use it: most likely a rank had "
    "no more batches, or did not reach the same layer in this step."
)
BY_OPERATION = {
    "_ALLGATHER_BASE": SHARDED,
    "_REDUCE_SCATTER_BASE": SHARDED,
    "SEND": POINT_TO_POINT,
    "RECV": POINT_TO_POINT,
    "COALESCED": POINT_TO_POINT,
    "ALLTOALL": EXPERTS,
    "ALLTOALL_BASE": EXPERTS,
}


def clue_of(entry: str, error: str, lines: Iterable[str]) -> str:
    """Return a sentence on the most likely reason why a rank waited in vain, or "".

    Args:
        entry: The id of the entry that explains the failure.
        error: The error.
        lines: The end of the log of the rank that waited.
    """
    if entry not in EXPLAINED:
        return ""
    lines = [line[:MAX_LINE] for line in lines if line.strip()]
    output = [line for line in lines if not REPORT.search(line)][-MAX_LAST_LINES:]
    for line in reversed(output):
        for clue in OUTPUT_CLUES:
            if clue.pattern.search(line):
                return clue.sentence
    # The network may be the reason as well if the very first collective never completes.
    return "" if entry == "nccl-first-collective" else clue_of_operation("\n".join([error, *lines]))


def clue_of_operation(text: str) -> str:
    """Return what the operation in which a rank waited suggests, or ""."""
    match = WORK.search(text)
    if match is None:
        return ""
    if match["name"] == "ALLREDUCE" and match["elements"] == "1":
        return BARRIER
    if match["name"] == "BROADCAST" and match["number"] and int(match["number"]) <= START:
        return FIRST_BROADCAST
    return BY_OPERATION.get(match["name"], "")
