"""Where a run stands, as a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.action.run_status import node_status, printable, render_status


def seen(name: str, rank: int, **more: Any) -> dict[str, Any]:
    run = {
        "run_id": "first",
        "node": name,
        "node_rank": rank,
        "ranks": [2 * rank, 2 * rank + 1],
        "state": "running",
        "message": "",
        "since": 1000.0,
        "last_line": "step 7",
        "directory": f"/runs/first/node{rank}",
        "report": None,
        "result": None,
        **more,
    }
    return {"changed": False, "run": run}


def test_the_table() -> None:
    nodes = [
        node_status("node9", seen("node9", 0)),
        node_status("node10", seen("node10", 1, ranks=[2], state="failed", message="node9 is lost: silent")),
        node_status("node11", {"changed": False, "run": None}),
        node_status("node12", {"unreachable": True, "msg": "timed out"}),
        node_status("node13", {"failed": True, "msg": "no Python"}),
        node_status("node14", None),
    ]
    assert render_status(nodes, 1075.0) == (
        "node    ranks  state        since    last line\n"
        "node9   0-1    running      0:01:15  step 7\n"
        "node10  2      failed       0:01:15  node9 is lost: silent\n"
        "node11         no run\n"
        "node12         unreachable           timed out\n"
        "node13         unreachable           no Python\n"
        "node14         unreachable           it was not asked"
    )


@pytest.mark.parametrize("text", ["\x1b[2Jgone", "a\rb", "\a", "\u202egnp", "tab\there", "\x9b31m"])
def test_nothing_of_a_job_moves_the_terminals_cursor(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)


@given(st.text())
def test_any_line_is_one_line_of_the_table(text: str) -> None:
    table = render_status([node_status("a", seen("a", 0, last_line=text))], 2000.0)
    assert len(table.split("\n")) == 2
    assert all(character.isprintable() or character == "\n" for character in table)
