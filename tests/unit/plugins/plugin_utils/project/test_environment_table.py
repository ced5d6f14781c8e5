"""The table of environments, and the conditions for removing one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._project.environment_table import (
    find_removable,
    render_table,
)


def reply(*entries: dict[str, Any]) -> dict[str, Any]:
    plain = {"python": "3.11", "torch": "2.13.0", "size": 5e9, "freed": 3e8, "used": 0, "processes": [], "runs": []}
    return {"environments": [{**plain, **entry} for entry in entries]}


def test_nodes_with_equal_environments_share_a_row() -> None:
    replies = {"node1": reply({"name": "toy"}), "node2": reply({"name": "toy", "processes": [7], "runs": ["train-1"]})}
    header, *rows = render_table(replies).splitlines()
    assert header.split()[:2] == ["NAME", "PYTHON"]
    assert [row.split() for row in rows] == [
        ["toy", "3.11", "2.13.0", "5.0", "GB", "300", "MB", "?", "train-1", "node1,", "node2"]
    ]
    assert "no environments" in render_table({"node1": reply(), "node2": None})


def test_environment_in_use_on_any_node_is_not_removed_anywhere() -> None:
    replies = {"node1": reply({"name": "toy"}), "node2": reply({"name": "toy", "processes": [7], "runs": ["train-1"]})}
    with pytest.raises(ValueError, match=r"in use on node2 by run train-1\. .* stop it: \./muster stop train-1"):
        find_removable(replies, "toy")
    assert find_removable({"node1": reply({"name": "toy"}), "node2": reply()}, "toy") == ["node1"]
    assert find_removable({"node1": reply()}, "toy") == []
    with pytest.raises(ValueError, match="node2 did not respond"):
        find_removable({"node1": reply(), "node2": {"unreachable": True}}, "toy")
