"""The output of a rank in one attempt, read from the node that had this rank in that attempt."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.attempt_output import (
    ranks_in_attempt,
    read_attempt,
)
from tests.unit.restarting import Maker, make, power_off, wait_for_ranks
from tests.unit.supervised import Run

__all__ = ["make"]  # the fixture


def read_reply(run: Run, member: int, attempt: int, rank: int, cursors: Any = None) -> Any:
    """Return a node's reply about a rank's output."""
    request = {"attempt": attempt, "rank": rank, "wait": 0.0, "cursors": cursors or {}}
    return read_attempt({**run.request(member), **request})


def text(reply: Any) -> str:
    return "".join(reply["outputs"].values())


def test_each_attempt_is_shown_by_the_node_that_had_the_rank(make: Maker) -> None:
    run = make(nodes=4, spares=1)
    wait_for_ranks(run, 0, range(3))
    power_off(run, 1)
    wait_for_ranks(run, 1, [0, 3, 2])
    first, second = read_reply(run, 1, 0, 1), read_reply(run, 3, 1, 1)
    assert text(first) == "member 1 rank 1 of 3\n" and not first["active"] and first["newest"] == 0
    assert text(second) == "member 3 rank 1 of 3\n" and second["active"], "it runs"
    assert not text(read_reply(run, 3, 1, 1, second["cursors"])), "nothing is shown twice"
    earlier = read_reply(run, 0, 0, 0)
    assert text(earlier) == "member 0 rank 0 of 3\n" and not earlier["active"], "the attempt is over"
    for member, attempt, rank in ((3, 0, 1), (0, 0, 1), (0, 1, 2), (0, 2, 0), (3, 7, 0)):
        assert read_reply(run, member, attempt, rank)["ranks"] == []
    assert read_reply(run, 0, 2, 0)["newest"] == 1
    run.stop()
    run.wait_until_gone()  # a supervisor outlives its result by a moment
    assert not read_reply(run, 3, 1, 1)["active"]


@pytest.mark.parametrize("content", ["", "[]", '{"first_rank": -1, "slots": 1}', '{"slots": 1}', '{"first_rank": "0"}'])
def test_ranks_whose_file_the_job_replaced_are_ignored(tmp_path: Any, content: str) -> None:
    (tmp_path / "ranks.json").write_text(content)
    plan = {"attempt": 1, "node": {"first_rank": 0, "slots": 2}}
    assert ranks_in_attempt(plan, str(tmp_path), 0) == [] and ranks_in_attempt(plan, str(tmp_path), 1) == [0, 1]


def test_node_without_the_run_has_no_attempt(tmp_path: Any) -> None:
    request = {"run_id": "gone", "runs_directory": str(tmp_path), "node": "x", "attempt": 0, "rank": 0}
    assert read_attempt({**request, "wait": 0, "cursors": {}}) == {"changed": False, "ranks": [], "newest": None}
