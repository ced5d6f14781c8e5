"""Samples of GPUs during a run."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import read_sample

FIRST = "2026/11/22 10:15:00.123, 0, 97, 72914, 81559, 64, 641.27\n"
SECOND = "2026/11/22 10:15:00.125, 1, 0, 4, 81559, 31, 70.02\n"
LOST_GPU = "Unable to determine the device handle for GPU 0000:04:00.0: Unknown Error\n"


@pytest.mark.parametrize(
    ("text", "code", "result", "error"),
    [
        (FIRST + SECOND, 0, {"0", "1"}, ""),
        (FIRST, 0, {"0"}, "nvidia-smi no longer shows GPU 1"),
        (FIRST + LOST_GPU, 0, {"0"}, f"nvidia-smi no longer shows GPU 1 ({LOST_GPU.strip()})"),
        (LOST_GPU + FIRST, 15, {"0"}, LOST_GPU.strip()),
        ("", 9, set(), "nvidia-smi ended with exit code 9"),
        ("", 0, set(), ""),
        (FIRST + SECOND[:30], 0, set(), ""),
        (FIRST + SECOND.replace("0, 4", "[GPU is lost], 4"), 0, {"0", "1"}, "GPU 1: GPU is lost"),
        (
            FIRST + f"{SECOND[:28]} [Unknown Error], [Unknown Error], [N/A], [Unknown Error], [N/A]\n",
            0,
            {"0", "1"},
            "GPU 1: Unknown Error",
        ),
        (FIRST + SECOND.replace("70.02", "[Unknown Error]"), 0, {"0", "1"}, ""),
    ],
    ids=["well", "one missing", "and said so", "failed", "silent", "nothing", "half", "lost", "unknown", "a field"],
)
def test_failing_gpus_are_detected_in_samples(text: str, code: int, result: set[str], error: str) -> None:
    assert read_sample(text, code, {"0", "1"}) == (result, error)
