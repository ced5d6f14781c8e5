"""GPUs that wait in an NCCL kernel, recognized from nvidia-smi samples."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import HEADER
from ansible_collections.muster.training.plugins.module_utils._run.gpu_waits import waiting_gpus

TRAINS, WAITS, IDLE, LIGHT = (97, 345.0), (100, 108.0), (0, 62.0), (100, 120.0)


def text_of(*gpus: Sequence[tuple[float, float]]) -> str:
    """Return the content of gpus.csv for GPUs with these samples of utilization and power."""
    lines = [
        f"2026/11/22 10:{number // 4:02d}:{number % 4 * 15:02d}.123, {index}, {used}, 30000, 40960, 60, {watts}, 400.00"
        for number, row in enumerate(zip(*gpus, strict=True))
        for index, (used, watts) in enumerate(row)
    ]
    return HEADER + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([TRAINS] * 20 + [WAITS] * 3, True),
        ([TRAINS] * 20 + [WAITS] * 30, True),
        ([IDLE] * 8 + [TRAINS, IDLE] * 10 + [WAITS] * 3, True),
        ([TRAINS] * 20 + [WAITS] * 2, False),  # too short a duration
        ([TRAINS] * 20 + [WAITS] * 2 + [TRAINS], False),
        ([TRAINS] * 20 + [IDLE] * 10, False),  # waits for data
        ([LIGHT] * 50, False),  # a small model, which always uses little
        ([WAITS] * 3, False),  # nothing to compare with
        ([], False),
    ],
)
def test_busy_gpu_at_low_power_is_waiting(samples: list[tuple[float, float]], expected: bool) -> None:
    assert waiting_gpus(text_of(samples)) == [expected] * bool(samples)


def test_each_gpu_is_judged_separately_and_torn_lines_are_skipped() -> None:
    text = text_of([TRAINS] * 20 + [WAITS] * 3, [TRAINS] * 23) + "2026/11/22 10:15:00.123, 1, 10"
    assert waiting_gpus(text) == [True, False]


@given(st.text())
def test_any_file_is_read(text: str) -> None:
    assert isinstance(waiting_gpus(text), list)
