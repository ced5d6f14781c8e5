"""Concise reports of differences between working trees."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.filter.tree_differences import tree_differences

NODES = [f"node{number}" for number in range(4)]


def trees(**changed: dict[str, str | None]) -> dict[str, dict[str, str]]:
    """Return four nodes with the same two files, except for these differences; None means a missing file."""
    result = {}
    for node in NODES:
        files = {"model.py": "1", "train.py": "1", **changed.get(node, {})}
        result[node] = {path: digest for path, digest in files.items() if digest is not None}
    return result


def test_equal_trees_have_no_difference() -> None:
    assert tree_differences(trees()) == []
    assert tree_differences({"node0": {}}) == []
    assert tree_differences({}) == []


def test_each_kind_of_difference_names_the_deviating_nodes() -> None:
    result = tree_differences(trees(node1={"new.py": "1"}, node2={"model.py": None}, node3={"train.py": "2"}))
    assert result == ["model.py: missing on node2", "new.py: only on node1", "train.py: different content on node3"]


def test_file_can_be_missing_on_one_node_and_differ_on_another() -> None:
    assert tree_differences(trees(node1={"train.py": None}, node2={"train.py": "2"})) == [
        "train.py: missing on node1, different content on node2"
    ]


def test_first_node_wins_a_tie() -> None:
    assert tree_differences(trees(node1={"train.py": "2"}, node3={"train.py": "2"})) == [
        "train.py: different content on node1, node3"
    ]
    assert tree_differences(trees(node0={"new.py": "1"}, node1={"new.py": "1"})) == ["new.py: missing on node2, node3"]


def test_differences_beyond_the_limit_are_counted() -> None:
    large_trees = trees(node1={f"{number:03}.py": "1" for number in range(100)})
    result = tree_differences(large_trees, max_lines=3)
    assert result == ["000.py: only on node1", "001.py: only on node1", "and 98 more"]
    assert len(tree_differences(large_trees, max_lines=100)) == 100
