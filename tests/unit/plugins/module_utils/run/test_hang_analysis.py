"""Comparison of the activities of a run's ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import (
    describe,
    find_culprits,
    merge_groups,
    validate_groups,
    validate_hang,
)

NODES = [{"name": f"gpu{n}", "first_rank": 2 * n, "slots": 2} for n in range(2)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["ranks", "kind", "line", "state", "cpu", "frames", "text"]), inner)
    ),
    max_leaves=20,
)


def group(*ranks: int, kind: str = "collective", call: str = "all_reduce", line: int = 88, **more: Any) -> Any:
    """Return a group of ranks as a node reports it."""
    return {
        "ranks": list(ranks),
        "kind": kind,
        "call": call,
        "function": "train",
        "file": "/home/me/train.py",
        "line": line,
        "text": "",
        "state": "S",
        "cpu": "",
        "frames": [],
        "workers": [],
        **more,
    }


LOAD: dict[str, Any] = {"kind": "code", "call": "", "function": "load", "file": "/home/me/data.py", "line": 41}


@pytest.mark.parametrize(
    ("groups", "ended", "culprits", "text"),
    [
        (
            [group(0, 1, 2), group(3, **LOAD)],
            [],
            [3],
            "3 of 4 ranks wait in all_reduce (train.py:88); rank 3 on gpu1 is in load (data.py:41)",
        ),
        (
            [group(1, 2, 3, call="barrier"), group(0, **LOAD)],
            [],
            [0],
            "3 of 4 ranks wait in barrier (train.py:88); rank 0 on gpu0 is in load (data.py:41)",
        ),
        (
            [group(0, 1, 2), group(3, call="barrier", line=99)],
            [],
            [3],
            "3 of 4 ranks wait in all_reduce (train.py:88); rank 3 on gpu1 waits in barrier (train.py:99)",
        ),
        (
            [group(0, 2, 3), group(1, **{**LOAD, "call": "__next__"}, workers=["acquire (data.py:7)"])],
            [],
            [1],
            "3 of 4 ranks wait in all_reduce (train.py:88); rank 1 on gpu0 is in __next__, called by load (data.py:41)"
            ", and its worker process in acquire (data.py:7)",
        ),
        (
            [group(0, 1, 2), group(3, kind="stopped", call="", state="T")],
            [],
            [3],
            "3 of 4 ranks wait in all_reduce (train.py:88); rank 3 on gpu1 is stopped (process state T: by SIGSTOP or "
            "a debugger)",
        ),
        ([group(0, 1, 2, 3)], [], [], "all 4 ranks wait in all_reduce (train.py:88)"),
        (
            [group(0, 1), group(2, 3, line=90)],
            [],
            [],
            "ranks 0-1 on gpu0 wait in all_reduce (train.py:88); ranks 2-3 on gpu1 wait in all_reduce (train.py:90)",
        ),
        (
            [group(0, 1, 2)],
            [3],
            [3],
            "3 of 4 ranks wait in all_reduce (train.py:88); rank 3 on gpu1 exited with code 0 earlier",
        ),
        (
            [group(0, 1, 2), group(3, kind="none", call="")],
            [],
            [3],
            "3 of 4 ranks wait in all_reduce (train.py:88); rank 3 on gpu1 has no Python stack",
        ),
        (
            [group(0, 1, 2), group(3, **{**LOAD, "state": "D"})],
            [],
            [3],
            "3 of 4 ranks wait in all_reduce (train.py:88); rank 3 on gpu1 is in load (data.py:41), in uninterruptible "
            "sleep (process state D: a disk or network file system is not responding)",
        ),
    ],
)
def test_each_planted_hang_is_described(groups: list[Any], ended: list[int], culprits: list[int], text: str) -> None:
    assert describe(merge_groups(groups), NODES, ended) == (text, culprits)


def test_groups_of_several_nodes_are_united() -> None:
    merged = merge_groups([group(0), group(1, **LOAD), group(2), group(3)])
    assert [item["ranks"] for item in merged] == [[0, 2, 3], [1]]
    assert find_culprits(merged) == [1]


@given(JSON)
def test_any_message_from_a_node_is_accepted_and_bounded(value: Any) -> None:
    groups = validate_groups(value, range(4))
    describe(merge_groups(groups), NODES)
    validate_hang(value)
    validate_hang({"text": "x", "awaited_ranks": value, "groups": value})


@pytest.mark.parametrize(
    ("since", "validated"),
    [(1.5e9, 1.5e9), (float("-inf"), None), (-1e300, None), (float("nan"), None), (True, None), ("x", None)],
)
def test_start_of_a_hang_is_a_time_or_unknown(since: Any, validated: float | None) -> None:
    hang = validate_hang({"text": "t", "since": since, "awaited_ranks": [], "groups": []})
    assert hang is not None and hang["since"] == validated


def test_a_node_reports_only_about_its_own_ranks_and_in_bounded_single_lines() -> None:
    reported = [group(0, 2, 3, call="a\x1b[2J\n" + "x" * 1000, frames=["f"] * 500), {**group(3), "kind": "odd"}]
    (checked,) = validate_groups(reported, range(2, 4))
    assert checked["ranks"] == [2, 3]
    assert checked["call"].isprintable() and len(checked["call"]) == 100
    assert len(checked["frames"]) == 12
