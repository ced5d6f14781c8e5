"""Error messages of the filter; the tests of plugin_utils/_cluster/etc_hosts cover its output."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.filter.etc_hosts import etc_hosts

NODES: list[dict[str, Any]] = [
    {"name": "node0", "address": "10.0.0.10", "slots": None},
    {"name": "node1", "address": "10.0.0.11"},
]


def test_slots_are_ignored() -> None:
    assert "10.0.0.11 node1\n" in etc_hosts("", NODES)


def test_invalid_name_or_address_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="node0: its host name is 'localhost'"):
        etc_hosts("", NODES, node_name="node0", hostname="localhost")
    with pytest.raises(AnsibleFilterError, match="node0: .*address"):
        etc_hosts("", [{"name": "node0", "address": "10.0.0"}])
