"""Operations of ranks in torch's flight recorder: the reports that a node may send."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.flight_records import validate_operations


def row(rank: int, number: int, operation: str = "all_reduce", state: str = "waiting", **fields: str) -> dict[str, Any]:
    """Return a rank's report about a process group."""
    texts = {"group": "0", "description": "default_pg", "operation": operation, "sizes": "[[2]]", **fields}
    return {"rank": rank, "number": number, "state": state, **texts}


@pytest.mark.parametrize(
    "value",
    [None, 7, {}, [7], [{}], [row(3, 1)], [{**row(0, 1), "rank": True}], [{**row(0, 1), "number": -1}], [row(0, -5)]],
)
def test_row_that_is_invalid_or_of_another_node_is_dropped(value: Any) -> None:
    assert validate_operations(value, range(2)) == []


def test_texts_of_a_row_are_bounded() -> None:
    (checked,) = validate_operations([{**row(0, 1, operation="x\n" * 900), "sizes": None, "more": "y" * 999}], [0])
    assert len(checked["operation"]) == 100 and "\n" not in checked["operation"]
    assert checked["sizes"] == "" and "more" not in checked
    assert len(validate_operations([row(0, 1)] * 100, [0])) == 4
