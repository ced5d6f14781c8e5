"""The names of exited ranks in messages."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import (
    describe_ended_ranks,
    ended_ranks,
    format_ranks,
)

NODES = [{"name": f"node{number}", "first_rank": 8 * number, "slots": 8} for number in range(6)]


def test_ranks_are_listed_as_ranges() -> None:
    assert format_ranks([3]) == "rank 3"
    assert format_ranks([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5, 7-8"


def test_message_names_the_ranks_that_exited_and_those_still_running() -> None:
    assert describe_ended_ranks({}, NODES) == ""
    assert describe_ended_ranks(dict.fromkeys(range(8), 180.0), NODES[:2]) == (
        "ranks 0-7 on node0 exited with code 0 3 min ago; ranks 8-15 on node1 still run"
    )
    assert describe_ended_ranks(dict.fromkeys(range(47), 61.0), NODES) == (
        "ranks 0-46 on node0, node1, node2 and 3 more exited with code 0 61 s ago; rank 47 on node5 still runs"
    )
    assert describe_ended_ranks(dict.fromkeys(range(8), 10.0), NODES[:1]) == (
        "all ranks exited with code 0 10 s ago, but their launchers are still running"
    )


def test_other_content_of_the_status_file_is_ignored() -> None:
    """The job can write it."""
    assert ended_ranks({}) == ended_ranks({"ended_ranks": [1]}) == {}
    assert ended_ranks(
        {"ended_ranks": {"9": 2.0, "-1": 1.0, "x": 1.0, "8": "now", "17": 1.0, "10": 3, "²": 1.0}}, 8, 8
    ) == {
        9: 2.0,
        10: 3.0,
    }
    assert ended_ranks({"ended_ranks": {"0": float("-inf"), "1": float("nan"), "2": -1e300, "3": True}}) == {}
