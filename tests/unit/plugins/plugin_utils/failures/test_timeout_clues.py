"""Clues to the cause of a timeout: the last output, and the operation in which a rank waited."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE
from ansible_collections.muster.training.plugins.plugin_utils._failures.timeout_clues import EXPLAINED, clue_of


def watchdog(name: str, number: int = 315, elements: int = 4096) -> str:
    return (
        f"[rank1]:[E1 ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={name}, NumelIn={elements}, NumelOut=1, Timeout(ms)=600000) ran for 600095"
    )


@pytest.mark.parametrize(
    ("lines", "clue"),
    [
        (["Saving model checkpoint to out/checkpoint-500", watchdog("ALLREDUCE")], "about saving"),
        (
            ["Preparing test set...:  39%|###  | 26/67 [24:51<30:30]", watchdog("ALLREDUCE")],
            "about preparing or loading",
        ),
        (["Running tokenizer on dataset:  40%", watchdog("BROADCAST", 3)], "about preparing or loading"),
        (["***** Running Evaluation *****", watchdog("ALLREDUCE")], "from an evaluation"),
        (["100%|##########| 16/16 [00:25<00:00,  1.48s/it]", watchdog("ALLREDUCE")], "the end of an epoch"),
        (["`Trainer.fit` stopped: `max_epochs=9` reached.", watchdog("ALLREDUCE", elements=1)], "raining was over"),
        (["step 31 loss 0.2", watchdog("ALLREDUCE", elements=1)], "in a barrier"),
        (["step 31 loss 0.2", watchdog("BROADCAST", 4)], "at the beginning"),
        (["step 31 loss 0.2", watchdog("_ALLGATHER_BASE")], "sharded model"),
        (["step 31 loss 0.2", watchdog("ALLTOALL_BASE")], "all-to-all"),
        (["step 31 loss 0.2", watchdog("RECV")], "pipeline stage"),
        (["step 31 loss 0.2", watchdog("ALLREDUCE")], ""),
        (["step 31 loss 0.2", watchdog("BROADCAST")], ""),
    ],
)
def test_last_output_or_operation_suggests_the_reason(lines: list[str], clue: str) -> None:
    explanation = explain_failure("was killed by SIGABRT", lines)
    assert explanation is not None and explanation["id"] == "nccl-time-out"
    entry = next(entry for entry in CATALOGUE if entry.id == "nccl-time-out")
    assert explanation["cause"].endswith(entry.cause)  # the other reasons remain
    assert clue in explanation["cause"].removesuffix(entry.cause)
    assert bool(clue) == (explanation["cause"] != entry.cause)


def test_first_collective_may_hang_because_of_the_network() -> None:
    assert clue_of("nccl-first-collective", watchdog("ALLREDUCE", 1, 1), []) is None


def test_other_failures_get_no_clue() -> None:
    assert clue_of("cuda-out-of-memory", "", ["Saving model checkpoint to out"]) is None
    assert set(EXPLAINED) <= {entry.id for entry in CATALOGUE}


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        (
            '  File "/job/save.py", line 9, in save_checkpoint\n    dist.barrier()',
            "in save_checkpoint: most likely another",
        ),
        (
            '  File "/job/a.py", line 9, in main\n    with args.main_process_first():',
            "in main_process_first: most likely",
        ),
    ],
)
def test_functions_that_called_the_collective_suggest_the_reason(frames: str, sentence: str) -> None:
    error = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation"
    inner = (
        '  File "/opt/env/lib/python3.11/site-packages/torch/distributed/c10d.py", line 9, in barrier\n    work.wait()'
    )
    lines = f"Traceback (most recent call last):\n{frames}\n{inner}\n{error}".split("\n")
    explanation = explain_failure(error, lines)
    assert explanation is not None and explanation["id"] == "gloo-timed-out"
    assert sentence in explanation["cause"] and "Otherwise: " in explanation["remedy"]
