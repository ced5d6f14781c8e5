"""Collection of the nodes' replies from Ansible's variables."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.gather import collect_replies, find_local_nodes

NODES = [{"name": "a"}, {"name": "b"}, {"name": "c"}]


class HostVars(dict[str, dict[str, Any]]):
    """A stand-in for Ansible's HostVars, whose raw_get() returns registered values unchanged."""

    def raw_get(self, name: str) -> dict[str, Any]:
        return self[name]


def test_replies_are_passed_or_read_from_the_named_variable() -> None:
    replies: dict[str, Any] = {"a": {"facts": {}}}
    assert collect_replies({"nodes": NODES, "facts": replies, "facts_from": ""}, None) == replies
    hosts = HostVars(a={"seen": {"facts": {"x": 1}}}, b={}, d={"seen": {"facts": {}}})
    result = collect_replies({"nodes": NODES, "facts": replies, "facts_from": "seen"}, hosts)
    assert result == {"a": {"facts": {"x": 1}}, "b": None}, "b was not asked, c is in no inventory, d no node"


def test_nodes_that_are_this_machine_are_recognized_by_their_connection() -> None:
    hosts = HostVars(a={"ansible_connection": "local"}, b={"ansible_connection": "ssh"})
    assert find_local_nodes(NODES, hosts) == ["a"], "c is in no inventory"
    assert find_local_nodes(NODES, None) == []
