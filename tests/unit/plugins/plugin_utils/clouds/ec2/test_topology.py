# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tag with an instance's network location, with replies from the API reference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import topology
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import CREATOR, NODE_TAG, TOPOLOGY_TAG

NODES = ["nn-1111111111example", "nn-2222222222example", "nn-3333333333example"]


def machine(index: int, cluster: str = "bert", **tags: str) -> dict[str, Any]:
    values = {"muster:cluster": cluster, "muster:made-by": CREATOR, "muster:numbers": "0-3", NODE_TAG: "x", **tags}
    return {
        "ClientToken": "muster-1",
        "AmiLaunchIndex": index,
        "Tags": [{"Key": key, "Value": value} for key, value in values.items()],
    }


class Client:
    """A client that replies like EC2 and records the requests."""

    def __init__(self, topologies: dict[str, list[str]], error: Exception | None = None) -> None:
        self.topologies, self.error = topologies, error
        self.requests: list[tuple[str, Any]] = []

    def list_all(self, action: str, key: str, **parameters: Any) -> list[dict[str, Any]]:
        assert (action, key) == ("describe_instance_topology", "Instances")
        self.requests.append((action, parameters["InstanceIds"]))
        if self.error:
            raise self.error
        ids = [name for name in parameters["InstanceIds"] if name in self.topologies]
        return [{"InstanceId": name, "NetworkNodes": self.topologies[name]} for name in ids]

    def ec2(self, action: str, **parameters: Any) -> None:
        self.requests.append((action, parameters))


def tagged(client: Client, machines: dict[str, dict[str, Any]]) -> tuple[dict[str, str], list[str]]:
    """Return the tags by ID, and the displayed messages."""
    lines: list[str] = []
    context: Any = SimpleNamespace(client=client, cluster="bert", show=lines.append)
    topology.tag_topology(context, machines.items())
    created = [parameters for action, parameters in client.requests if action == "create_tags"]
    return {entry["Resources"][0]: entry["Tags"][0]["Value"] for entry in created}, lines


def test_cluster_machines_whose_location_changed_are_tagged() -> None:
    location = "/".join(NODES)
    client = Client({"i-0": NODES, "i-1": NODES, "i-2": [*NODES[:2], "nn-4"], "i-9": NODES})
    machines = {
        "i-0": machine(0),
        "i-1": machine(1, **{TOPOLOGY_TAG: location}),
        "i-2": machine(2, **{TOPOLOGY_TAG: location}),
        "i-3": machine(3),
        "i-9": machine(0, cluster="other"),
    }
    assert tagged(client, machines) == ({"i-0": location, "i-2": f"{NODES[0]}/{NODES[1]}/nn-4"}, [])
    assert client.requests[0] == ("describe_instance_topology", ["i-0", "i-1", "i-2", "i-3"])


def test_single_machine_needs_no_ordering() -> None:
    client = Client({})
    assert tagged(client, {"i-0": machine(0)}) == ({}, []) and client.requests == []


def test_refused_request_is_reported_and_nothing_else_happens() -> None:
    client = Client({}, Ec2Error("UnauthorizedOperation", "You are not authorized"))
    tags, lines = tagged(client, {"i-0": machine(0), "i-1": machine(1)})
    assert tags == {} and len(lines) == 1
    assert lines[0].startswith("ranks will be ordered by name, since ")


def test_only_plain_names_become_a_tag() -> None:
    assert topology.format_topology({"NetworkNodes": NODES}) == "/".join(NODES)
    for nodes in (["a b"], ["x" * 65], ["x" * 64] * 5, [], None):
        assert topology.format_topology({"NetworkNodes": nodes}) == ""


def test_many_instances_are_read_in_several_requests() -> None:
    client = Client({f"i-{number:03}": NODES for number in range(150)})
    context: Any = SimpleNamespace(client=client)
    assert len(topology.read_topologies(context, sorted(client.topologies))) == 150
    assert [len(ids) for _action, ids in client.requests] == [100, 50]
