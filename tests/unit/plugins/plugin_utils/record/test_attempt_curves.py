# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The curves of a run continue across its attempts, even if rank 0 moves to another node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record.printed import first_nodes, rank_zero_logs
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.printed_metrics import curves_from_printed
from tests.unit.plugins.plugin_utils.report.records import write_record

PLAN = {"nodes": [{"name": "gpu0"}, {"name": "gpu1"}, {"name": "gpu2"}]}


def attempts(*first: str) -> dict[str, Any]:
    """Return the attempts in a result, from the names of the nodes that had rank 0."""
    return {"attempts": [{"number": number, "nodes": [name, "gpu2"]} for number, name in enumerate(first)]}


def print_steps(log: Path, steps: range, value: float) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"step {step}: loss {value - step / 100:.2f}\n" for step in steps))


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("name", ["ranks/0/stdout.log", "ranks/x/attempt_0/0/stdout.log", "launcher.log"])
def test_curve_continues_and_a_repeated_step_counts_once(tmp_path: Path, node: int, name: str) -> None:
    directory = write_record(tmp_path, nodes=3, result={**attempts("gpu0", f"gpu{node}"), "hub": node})
    print_steps(directory / "logs" / "node0" / name, range(5), 4.0)
    print_steps(directory / "logs" / f"node{node}" / "attempt-1" / name, range(3, 8), 2.0)
    if node:  # another rank of the first attempt
        print_steps(directory / "logs" / "node1" / name, range(5), 9.0)
    (curve,) = read_record(directory, directory.name).curves
    points = dict(zip(curve.step, curve.value, strict=True))
    assert sorted(curve.step) == list(range(8)), "each step once"
    assert points[2] == pytest.approx(3.98) and points[3] == pytest.approx(1.97)


@pytest.mark.parametrize(
    ("first", "second", "steps", "values"),
    [
        # a script that starts from the beginning or from a checkpoint
        (["step 0 loss 3.0", "step 1 loss 2.0"], ["step 0 loss 3.5", "step 1 loss 2.5"], [0, 1], [3.5, 2.5]),
        (["step 0 loss 3.0", "step 1 loss 2.0"], ["step 2 loss 1.5"], [0, 1, 2], [3.0, 2.0, 1.5]),
        (["epoch 1 loss 3.0", "epoch 2 loss 2.0"], ["epoch 2 loss 2.5", "epoch 3 loss 1.0"], [1, 2, 3], [3, 2.5, 1]),
        # a script that counts steps within each epoch: the second epoch is repeated, or the third begins
        (
            ["epoch 1 5/10 loss 4.0", "epoch 1 10/10 loss 3.0", "epoch 2 5/10 loss 2.0"],
            ["epoch 2 5/10 loss 2.5", "epoch 2 10/10 loss 1.0"],
            [5, 10, 15, 20],
            [4.0, 3.0, 2.5, 1.0],
        ),
        (
            ["epoch 1 5/10 loss 4.0", "epoch 1 10/10 loss 3.0"],
            ["epoch 2 5/10 loss 2.5", "epoch 2 10/10 loss 1.0"],
            [5, 10, 15, 20],
            [4.0, 3.0, 2.5, 1.0],
        ),
    ],
)
def test_repeated_steps_are_those_of_the_later_attempt(
    first: list[str], second: list[str], steps: list[float], values: list[float]
) -> None:
    (curve,) = curves_from_printed("output", [*first, None, *second]).curves.values()
    assert (list(curve.step), list(curve.value)) == (steps, values)


def test_events_are_those_of_the_node_that_led_the_run_at_the_end(tmp_path: Path) -> None:
    directory = write_record(tmp_path, nodes=2, result={"hub": 1})
    (directory / "logs" / "node1" / "events.jsonl").write_text('{"event": "successor", "text": "gpu1 leads"}\n')
    assert [event["event"] for event in read_record(directory, directory.name).events] == ["successor"]


@pytest.mark.parametrize(
    "result",
    [None, {}, {"attempts": 1}, {"attempts": [1, {}, {"number": "x", "nodes": [[]]}, {"nodes": ["gone"]}]}],
)
def test_malformed_result_names_no_other_node(result: Any) -> None:
    nodes = first_nodes(PLAN, result)
    assert set(nodes.values()) <= {0}
    assert rank_zero_logs(["logs/node0/launcher.log", "logs/node1/launcher.log"], nodes) == {
        "launcher.log": ["logs/node0/launcher.log"]
    }
