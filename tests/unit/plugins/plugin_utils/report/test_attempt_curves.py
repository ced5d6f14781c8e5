# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Curves in files continue across the attempts of a run, as printed curves do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record.reader import read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import Curve
from tests.unit.plugins.plugin_utils.report.records import event, write_record


def curves_of(tmp_path: Path, first: list[str], files: dict[str, str | bytes]) -> list[Curve]:
    """Return the curves of a run; first: the node that had rank 0 in each attempt; files: by path below logs."""
    attempts: Any = [{"number": number, "nodes": [name, "gpu2"]} for number, name in enumerate(first)]
    directory = write_record(tmp_path, nodes=3, result={"attempts": attempts})
    for name, content in files.items():
        path = directory / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_record(directory, directory.name).curves


def table(steps: range, offset: float) -> str:
    return "step,loss\n" + "".join(f"{step},{offset + step}\n" for step in steps)


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("name", ["metrics/version_{}/metrics.csv", "version_{}/results.csv", "attempt-{}/summary.csv"])
def test_table_from_later_attempts_continues_that_of_the_first(tmp_path: Path, node: int, name: str) -> None:
    files: dict[str, str | bytes] = {
        f"node0/{name.format(0)}": table(range(6), 0.0),
        f"node{node}/{name.format(1)}": table(range(4, 8), 10.0),
        f"node0/{name.format(10)}": table(range(7, 9), 20.0),
    }
    firsts = ["gpu0", f"gpu{node}", "gpu0"]
    (curve,) = curves_of(tmp_path, firsts, files)
    assert curve.name == "loss" and list(curve.step) == list(range(9))
    assert list(curve.value) == [0, 1, 2, 3, 14, 15, 16, 27, 28]


def test_events_from_later_attempts_continue_those_of_the_first(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"node0/lightning_logs/version_{number}/events.out.tfevents.1.gpu0": b"".join(
            event("loss", step, 1e9 + step, float(number)) for step in steps
        )
        for number, steps in enumerate([range(5), range(3, 7)])
    }
    (curve,) = curves_of(tmp_path, ["gpu0", "gpu0"], files)
    assert list(curve.step) == list(range(7)) and list(curve.value) == [0, 0, 0, 1, 1, 1, 1]


def test_reported_step_that_is_repeated_counts_once(tmp_path: Path) -> None:
    reports = [
        {"step": step, "loss": float(attempt)} for attempt, steps in enumerate([(1, 2, 3), (3, 4)]) for step in steps
    ]
    lines = "".join(json.dumps(report) + "\n" for report in [*reports, {"loss": 9.0}])
    (curve,) = curves_of(tmp_path, ["gpu0", "gpu0"], {"node0/job_results.jsonl": lines})
    assert list(curve.step) == [1, 2, 3, 4] and list(curve.value) == [0, 0, 1, 1]


def test_reports_are_joined_if_rank_0_moves_to_another_node(tmp_path: Path) -> None:
    def lines(*steps: int, loss: float) -> str:
        reports = [json.dumps({"step": step, "loss": loss}) for step in steps]
        return "".join(f"epoch\nMUSTER_RESULT {report}\n" for report in reports)

    files: dict[str, str | bytes] = {
        "node0/ranks/0/stdout.log": lines(1, 2, 3, loss=4.0),
        "node1/ranks/0/stdout.log": lines(1, loss=99.0),  # another rank
        "node1/attempt-1/ranks/0/stdout.log": lines(3, 4, loss=2.0),
        "node1/job_results.jsonl": '{"step": 3, "loss": 2.0}\n{"step": 4, "loss": 2.0}\n',
    }
    (curve,) = curves_of(tmp_path, ["gpu0", "gpu1"], files)
    assert list(curve.step) == [1, 2, 3, 4] and list(curve.value) == [4, 4, 2, 2]


def test_tables_of_a_run_without_restarts_are_separate(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"node0/version_{number}/metrics.csv": table(range(3), 0.0) for number in range(2)}
    assert len(curves_of(tmp_path, ["gpu0"], files)) == 2


def test_other_nodes_keep_their_own_curves(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "node0/version_0/metrics.csv": table(range(3), 0.0),
        "node2/version_0/metrics.csv": table(range(3), 5.0),
    }
    assert len(curves_of(tmp_path, ["gpu0", "gpu1"], files)) == 2
