# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The most likely reason why a rank timed out waiting, according to its log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.plugin_utils._failures.activity import (
    ACTIVITIES,
    LIMIT,
    PREPARING,
    REPORT,
    Activity,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.collective_progress import WORK

# Entries whose cause lists the possible reasons why another rank did not arrive.
EXPLAINED = (
    "nccl-time-out",
    "nccl-first-collective",
    "nccl-watchdog-stuck",
    "nccl-start-waits",
    "rank-never-arrived",
    "gloo-timed-out",
    "monitored-barrier",
    "store-time-out",
    "ranks-missing",
    "rank-behind",
)
MAX_LAST_LINES = 12  # number of lines before the timeout that are searched for what the job was doing
MAX_LINE = 400
START = 10  # number of collectives at the beginning of a job


EQUAL_BATCHES = (
    "give all ranks the same number of batches: DataLoader(drop_last=True), DistributedSampler, or model.join()"
)
# Frames of a traceback, with their functions, and those among them that are in torch's or a launcher's own code.
FRAME = re.compile(
    r'^[^\n]{0,80}File "(?P<path>[^"\n]{1,400})", line \d{1,9}, in (?P<function>\w{1,120})$', re.MULTILINE
)
MACHINERY = re.compile(r"/torch/(?!utils/data)|/multiprocessing/|/threading\.py$|/contextlib\.py$|/bin/")
# In a line of code: all other ranks wait here for the one that works first.
MAIN_FIRST = re.compile(r"\b(?:local_)?(?:main_process_first|main_first|rank_zero_first|zero_first)\(")
MAX_FRAMES = 60  # number of frames at the end of a log to look at


@dataclass(frozen=True)
class Clue:
    """The most likely reason why a rank timed out waiting, and what to do about it, without a final period."""

    sentence: str
    remedy: str


OUTPUT_CLUES = (
    (
        re.compile(
            r"`?Trainer\.fit`? stopped|\b[Tt]raining (?:is )?(?:complete|finished|done|ended)|[Ee]nd of training"
        ),
        Clue(
            (
                "Training was over: most likely another rank is still testing, saving or uploading alone, or has "
                "already exited, while this one is waiting at a final barrier."
            ),
            f"make the calls after training on all ranks, or end without a barrier; if rank 0 is busy, {LIMIT}",
        ),
    ),
    (
        re.compile(
            r"\b(?:sav(?:e|ed|ing)\b|writing (?:the )?(?:model|checkpoint)|checkpoint(?:ing|s)? (?:to|at|in))", re.I
        ),
        Clue(
            "The last output is about saving: most likely only some ranks call the function that saves a sharded "
            "model, or saving takes longer than the timeout.",
            (
                "call the save function on all ranks (FSDP, ZeRO), outside any `if rank == 0`; if all of them do and "
                f"the file is still growing, {LIMIT}"
            ),
        ),
    ),
    (
        re.compile(
            r"\b(?:tokeni[sz]|preprocess|pre-process|preparing|download|loading|map\b[^\n]{0,20}\d%|scanning|building|"
            r"extracting|indexing|reading)",
            re.I,
        ),
        Clue(
            (
                "The last output is about preparing or loading: most likely a rank was still busy with this work, "
                "alone or on a slow disk, when the others gave up."
            ),
            f"finish that work before the job (prepare or download the data once); or {LIMIT}",
        ),
    ),
    (
        re.compile(r"\b(?:evaluat|validat|eval\b|eval_|valid\b|testing\b|generat)", re.I),
        Clue(
            (
                "The last output is from an evaluation: most likely only some ranks evaluate, or the ranks have "
                "different numbers of batches or generation lengths there."
            ),
            (
                "let all ranks evaluate with the same number of batches (use drop_last=True or padding, and "
                "synced_gpus=True for generate with ZeRO 3 or FSDP); if only rank 0 is to evaluate, use model.module "
                f"for it, and {LIMIT}"
            ),
        ),
    ),
    (
        re.compile(r"\b100%\||\b(\d{1,9})/\1\b"),
        Clue(
            (
                "The last output shows the end of an epoch or loop: most likely the ranks have different numbers of "
                "batches, or a rank saves or evaluates alone after that point, or failed there."
            ),
            f"{EQUAL_BATCHES}; save and evaluate on all ranks",
        ),
    ),
)
BARRIER = Clue(
    (
        "The ranks waited in a barrier or an all_reduce of a single number: most likely one rank, often rank 0 "
        "or the first rank of a node, was still busy on its own (preparing data, saving, evaluating), had no "
        "more batches, or took another branch."
    ),
    f"check what the rank that is not waiting did last; if it was still busy, {LIMIT}; otherwise {EQUAL_BATCHES}",
)
FIRST_BROADCAST = Clue(
    (
        "The ranks waited for a broadcast at the beginning, in which rank 0 sends weights or settings: most likely "
        "rank 0 was still loading or preparing, or no data is getting through the network between the nodes."
    ),
    (
        "look at the last lines of rank 0's log (ansible-playbook logs.yml -e rank=0). If it was busy, let it "
        f"finish before init_process_group, or {LIMIT}; if it waited as well, run ansible-playbook preflight.yml "
        "to test the network"
    ),
)
SHARDED = Clue(
    (
        "The ranks waited for the weights or gradients of a sharded model (FSDP, ZeRO 3): most likely a rank did not "
        "run the same layers in this step, had no batch, or was running code for rank 0 only."
    ),
    (
        f"{EQUAL_BATCHES}; run the same layers on all ranks (use a dummy input for a part without data, and "
        "set_z3_leaf_modules for a mixture of experts), and do not run a forward pass or save inside `if rank == "
        "0`"
    ),
)
POINT_TO_POINT = Clue(
    "The ranks waited to send to or receive from another pipeline stage: that stage is the one to look at.",
    (
        "run ansible-playbook logs.yml -e rank=N for the ranks of the stages before and after this one. If all "
        "stages are waiting, they communicate in different orders; for Megatron's interleaved schedule, use "
        "--no-overlap-p2p-communication"
    ),
)
EXPERTS = Clue(
    "The ranks waited in an all-to-all, as used by mixtures of experts and sharded embeddings: most likely a rank had "
    "no more batches, or did not reach the same layer in this step.",
    f"{EQUAL_BATCHES}; call the layer on all ranks, even those without tokens for it",
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


def clue_of(entry: str, error: str, lines: Iterable[str]) -> Clue | None:
    """Return the most likely reason why a rank timed out waiting, or None.

    Args:
        entry: The id of the entry that explains the failure.
        error: The error.
        lines: The end of the log of the rank that waited.
    """
    if entry not in EXPLAINED:
        return None
    lines = [line[:MAX_LINE] for line in lines if line.strip()]
    clue = clue_of_frames(lines)
    if clue is not None:
        return clue
    output = [line for line in lines if not REPORT.search(line)][-MAX_LAST_LINES:]
    for line in reversed(output):
        for pattern, clue in OUTPUT_CLUES:
            if pattern.search(line):
                return clue
    # The network may also be the reason if the very first collective never completes.
    return None if entry == "nccl-first-collective" else clue_of_operation("\n".join([error, *lines]))


def clue_of_frames(lines: Iterable[str]) -> Clue | None:
    """Return the clue given by the functions that called the collective in which a rank was waiting, or None."""
    text = "\n".join(lines)
    first = MAIN_FIRST.search(text)
    if first is not None:
        return clue_of_function(PREPARING, first[0].removesuffix("("))
    frames = list(FRAME.finditer(text))[-MAX_FRAMES:]
    for frame in reversed(frames):
        if MACHINERY.search(frame["path"]):
            continue
        activity = next((item for item in ACTIVITIES if re.search(item.function, frame["function"])), None)
        if activity is not None:
            return clue_of_function(activity, frame["function"])
    return None


def clue_of_function(activity: Activity, function: str) -> Clue:
    """Return the clue that a rank was waiting in a function in which another rank was still working."""
    return Clue(
        f"This rank waited in {function}: most likely another rank, often rank 0, was still {activity.name} there. "
        f"{activity.reason}",
        activity.remedy.format(),
    )


def clue_of_operation(text: str) -> Clue | None:
    """Return the clue given by the operation in which a rank was waiting, or None."""
    match = WORK.search(text)
    if match is None:
        return None
    if match["name"] == "ALLREDUCE" and match["elements"] == "1":
        return BARRIER
    if match["name"] == "BROADCAST" and match["number"] and int(match["number"]) <= START:
        return FIRST_BROADCAST
    return BY_OPERATION.get(match["name"])
