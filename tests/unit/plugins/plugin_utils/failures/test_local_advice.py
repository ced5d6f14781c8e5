"""Advice specific to the kind of cluster in a job's log."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import TOPICS
from ansible_collections.muster.training.plugins.plugin_utils._failures.local_advice import ALL, TOPIC_OF, local_advice

ORDINAL = "RuntimeError: CUDA error: invalid device ordinal"
RESET = "RuntimeError: Connection reset by peer"
RACED = (
    "FileNotFoundError: [Errno 2] No such file or directory: '{}/huggingface/datasets/a/cache-66a5cd42fef01eaa.arrow'"
)


@pytest.mark.parametrize(
    ("error", "lines", "advice"),
    [
        (ORDINAL, ["srun: error: gpu-07: task 1: Exited with exit code 1"], "Under Slurm, --gpus-per-task=1"),
        (RESET, ["connected to [ddp-master-0.user.svc.cluster.local]:23456"], "sidecar.istio.io/inject"),
        (RACED.format("/fsx"), [], "let rank 0 of the whole job"),
    ],
    ids=["Slurm", "Kubernetes", "shared file system"],
)
def test_remedy_is_specific_to_the_kind_of_cluster(error: str, lines: list[str], advice: str) -> None:
    explanation = explain_failure(error, lines)
    assert explanation is not None and advice in explanation["remedy"]
    elsewhere = explain_failure(error.replace("/fsx", "/home/me"), ["a log of another cluster"])
    assert elsewhere is not None and advice not in elsewhere["remedy"]


def test_advice_is_a_clause_and_names_existing_entries_and_topics() -> None:
    for surroundings in ALL:
        for key, text in surroundings.advice.items():
            assert key in TOPIC_OF or key in TOPICS, key
            assert not text.endswith((".", ";", " ")), key


def test_entry_without_advice_adds_no_advice() -> None:
    assert local_advice("cuda-out-of-memory", ["srun: error", "/fsx/data", "pod.svc.cluster.local"]) == []
    assert local_advice("unknown", ["srun: error"]) == []
