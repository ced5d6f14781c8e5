"""Comparison of the ranks' operations in torch's flight recorder."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.flight_records import describe_operations


def row(rank: int, number: int, operation: str = "all_reduce", state: str = "waiting", **fields: str) -> dict[str, Any]:
    """Return a rank's report on a process group."""
    texts = {"group": "0", "description": "default_pg", "operation": operation, "sizes": "[[2]]", **fields}
    return {"rank": rank, "number": number, "state": state, **texts}


@pytest.mark.parametrize(
    ("rows", "text", "ranks"),
    [
        ([row(0, 7), row(1, 7)], "flight recorder of default_pg: ranks 0-1 wait in all_reduce 7", []),
        (
            [row(0, 7), row(1, 7), row(2, 6, state="completed")],
            "flight recorder of default_pg: ranks 0-1 wait in all_reduce 7, "
            "rank 2 has completed all_reduce 6 and launched nothing since",
            [2],
        ),
        (
            [row(0, 7), row(1, 7), row(2, 7, "barrier")],
            "flight recorder of default_pg: ranks 0-1 wait in all_reduce 7, rank 2 waits in barrier 7",
            [2],
        ),
        (
            [row(0, 7), row(1, 7), row(2, 7, sizes="[[100]]")],
            "flight recorder of default_pg: ranks 0-1 wait in all_reduce 7 of sizes [[2]], "
            "rank 2 waits in all_reduce 7 of sizes [[100]]",
            [2],
        ),
        ([row(0, 7), row(1, 7, "barrier")], None, []),  # no majority
        ([row(0, 7, state="completed"), row(1, 7, state="completed")], "", []),
        ([], "", []),
    ],
)
def test_awaited_ranks_have_launched_fewer_or_different_operations(
    rows: list[dict[str, Any]], text: str | None, ranks: list[int]
) -> None:
    described, behind = describe_operations(rows)
    assert behind == ranks
    assert text is None or described == text


def test_process_group_whose_ranks_differ_is_described() -> None:
    waiting = [row(rank, 3, group="1", description="undefined") for rank in range(4)]
    differing = [row(0, 7, group="2", description="tp"), row(1, 6, group="2", description="tp", state="completed")]
    text, behind = describe_operations([*waiting, *differing])
    assert text.startswith("flight recorder of tp: rank 0 waits in all_reduce 7, rank 1 has completed")
    assert behind == [1]
    assert describe_operations(waiting) == ("flight recorder: ranks 0-3 wait in all_reduce 3", [])
