"""The table of a launch's phases, from the events of a small launch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench import bench_phases as bench

pytestmark = pytest.mark.one_core

# (event, seconds, CPU seconds, task, action)
EVENTS = [
    ("playbook", 0.5, 0.4, "", ""),
    ("task", 0.6, 0.5, "Choose the nodes of the run", "muster.training.choose_nodes"),
    ("process", 0.6, 0.5, "", ""),
    ("result", 0.7, 0.52, "", ""),
    ("task", 0.7, 0.52, "launch : Read the fitted batch size", "muster.training.fit"),
    ("process", 0.7, 0.52, "", ""),
    ("process", 0.7, 0.52, "", ""),
    ("skipped", 0.8, 0.54, "", ""),
    ("skipped", 0.9, 0.56, "", ""),
    ("task", 1.0, 0.6, "launch : Start the run on all nodes at once", "muster.training.call_nodes"),
    ("process", 1.0, 0.6, "", ""),
    ("result", 1.5, 0.7, "", ""),
    ("task", 1.5, 0.7, "launch : Write the report", "muster.training.run_report"),
    ("process", 1.5, 0.7, "", ""),
    ("result", 2.0, 0.9, "", ""),
    ("end", 2.0, 0.9, "", ""),
]


def events() -> list[dict[str, Any]]:
    return [dict(zip(("event", "time", "cpu", "task", "action"), row, strict=True)) for row in EVENTS]


def test_time_of_a_launch_is_split_into_its_phases() -> None:
    phases = bench.split_into_phases(events(), 0.0, 2.1)
    seconds = {name: (round(phase.before, 3), round(phase.after, 3)) for name, phase in phases.items()}
    assert seconds == {
        bench.START: (0.5, 0.0),
        bench.BETWEEN: (0.2, 0.0),
        bench.SKIPPED: (0.2, 0.0),
        bench.LOCAL: (0.1, 0.5),
        bench.CALLS: (0.5, 0.0),
        bench.END: (0.0, 0.1),
    }
    assert round(sum(phase.cpu for phase in phases.values()), 3) == 0.9
    assert [phases[name].processes for name in (bench.SKIPPED, bench.LOCAL, bench.CALLS)] == [2, 2, 1]


def test_table_columns_add_up() -> None:
    phases = bench.split_into_phases(events(), 0.0, 2.1)
    lines = bench.table(2, [phases]).splitlines()
    assert lines[-1].split() == ["all", "1.50", "0.60", "0.90", "4", "5"]


def test_imports_are_measured_with_and_without_bytecode() -> None:
    """Both methods import the same plugins; which is faster depends on the machine, and the benchmark prints it."""
    assert all(bench.import_seconds(["muster.training.choose_nodes"], how) > 0 for how in ("cached", "compile"))
