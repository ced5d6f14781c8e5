# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's process accounting, limited to processes of the run."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_accounting import read_processes

GPUS = ["0, GPU-a, Enabled", "1, GPU-b, Enabled"]
EARLIER = ["GPU-a, 100, 50, 20, 9000, 60000", "GPU-b, 100, 51, 21, 9001, 60000"]
STARTING = ["GPU-a, 300, 0, 0, 3, 0"]  # a process of the run, already in the first sample
OWN_ROWS = ["GPU-a, 300, 97, 40, 40960, 3600500", "GPU-b, 301, 96, [N/A], 20480, 3600000"]


def test_only_processes_of_the_run_are_reported() -> None:
    first, last = read_processes("n", [*GPUS, *EARLIER, *STARTING, *GPUS, *EARLIER, *reversed(OWN_ROWS)])
    assert first == {
        "node": "n",
        "gpu": 0,
        "pid": 300,
        "utilization_percent": 97,
        "memory_utilization_percent": 40,
        "memory_peak_mib": 40960,
        "seconds": 3600.5,
    }
    assert (last["gpu"], last["pid"], last["memory_utilization_percent"]) == (1, 301, None)


def test_reused_pid_is_reported_as_a_new_process() -> None:
    again = "GPU-a, 100, 80, 30, 12000, 5000"
    assert [item["memory_peak_mib"] for item in read_processes("n", [*GPUS, *EARLIER, *GPUS, *EARLIER, again])] == [
        12000
    ]


def test_nothing_is_reported_without_a_final_sample_or_accounting() -> None:
    assert read_processes("n", [*GPUS, *EARLIER]) == []
    assert read_processes("n", ["0, GPU-a, Disabled"]) == []
    assert read_processes("n", ['Field "accounting.mode" is not a valid field to query.', *OWN_ROWS]) == []


@example([",,", *GPUS])
@given(st.lists(st.one_of(st.sampled_from([*GPUS, *EARLIER, *OWN_ROWS]), st.text(), st.text("0,ab \u0665²-"))))
def test_any_lines_yield_valid_numbers_or_nothing(lines: list[str]) -> None:
    for item in read_processes("n", lines):
        assert item["gpu"] >= 0 and item["pid"] >= 0
