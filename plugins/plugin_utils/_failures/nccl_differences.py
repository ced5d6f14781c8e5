# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name the ranks and nodes for which NCCL uses another network, plug-in, release or interface than for the others.

NCCL does not always notice such a difference: its first collective hangs, or a connection fails with an error that does
not mention it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import locate_ranks
from ansible_collections.muster.training.plugins.module_utils._run.nccl_setups import validate_setups
from ansible_collections.muster.training.plugins.plugin_utils._failures.collective_progress import WORK
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import Explanation
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import public_version

MAX_SHOWN = 4  # values in a message
NODE = {"name": "?", "first_rank": 0, "slots": 0, "address": ""}  # values of a node whose record lacks them
TRAINED = re.compile(r"\bloss\b'?[ =:]{1,3}-?\d", re.IGNORECASE)
COMPLETED = re.compile(r"last completed (?:NCCL )?work: (?P<number>-?\d{1,12})")


@dataclass(frozen=True)
class Aspect:
    """Something that NCCL sets up, and that all ranks of a run should have in common.

    Attributes:
        field: Its name in a node's report.
        title: What differs, for the error.
        cause, remedy: Texts of the explanation.
        compared: Returns the part of a value that all ranks should have in common.
    """

    field: str
    title: str
    cause: str
    remedy: str
    compared: Callable[[str], str] = str

    @property
    def explanation(self) -> tuple[re.Pattern[str], Explanation]:
        """The explanation, and a pattern for the errors to which it belongs."""
        explanation: Explanation = {
            "id": f"nccl-{self.field}-differs",
            "cause": self.cause,
            "remedy": self.remedy,
            "evidence": "",
            "confidence": "log",
        }
        return re.compile(f"NCCL uses different {self.title}: "), explanation


ASPECTS = (
    Aspect(
        field="network",
        title="networks",
        cause=(
            "NCCL uses different kinds of networks on these nodes, and cannot connect one kind to another: on some "
            "of the nodes it has no adapter that it can use, or has different settings."
        ),
        remedy=(
            "compare the nodes with ansible-playbook preflight.yml; run `ibv_devinfo` on the nodes without RDMA to "
            "see what is missing (driver, port down; in containers, --device=/dev/infiniband). Or launch with -e "
            '\'{"launch_environment": {"NCCL_IB_DISABLE": "1"}}\' to let all nodes use sockets, which is slower'
        ),
    ),
    Aspect(
        field="link",
        title="link layers",
        cause=(
            "NCCL uses InfiniBand on some of these nodes and RoCE on others, and cannot connect one kind to the other."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_IB_HCA": "=mlx5_0"}}\' to name adapters of one kind on '
            "all nodes; run `ibv_devinfo | grep -E 'hca_id|link_layer|state'` to list them"
        ),
    ),
    Aspect(
        field="plugin",
        title="network plug-ins",
        cause=(
            "NCCL has loaded different network plug-ins, or different versions of one plug-in, on these nodes, and "
            "they may not be able to connect to each other."
        ),
        remedy=(
            "install the same version of the plug-in on all nodes, or use the same image; LD_LIBRARY_PATH determines "
            "which libnccl-net.so is loaded"
        ),
    ),
    Aspect(
        field="version",
        title="releases of NCCL",
        cause="The nodes use different versions of NCCL, which cannot be mixed in a run.",
        remedy=(
            "install the same torch version on all nodes (ansible-playbook site.yml --tags pytorch), or use the same "
            "image; remove any other libnccl from LD_LIBRARY_PATH and LD_PRELOAD. Run ansible-playbook preflight.yml "
            "to find nodes whose versions differ"
        ),
        compared=public_version,  # ignores the CUDA release of the build
    ),
    Aspect(
        field="interface",
        title="interfaces",
        cause=(
            "On some of these nodes, NCCL uses an interface other than that of node_address, and the other nodes may "
            "have no route to its network."
        ),
        remedy="remove NCCL_SOCKET_IFNAME from launch_environment, the script, the image and /etc/nccl.conf: muster "
        "sets it on each node to the interface of node_address",
    ),
)
EXPLAINED = tuple(aspect.explanation for aspect in ASPECTS)


def reported_setups(result: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Return the setups in the reports of the nodes, each with the node's address.

    Args:
        result: That of the run.
        nodes: Those of its plan, with first_rank, slots and address.
    """
    setups = []
    for node, peer in zip(result["nodes"], add_defaults(nodes), strict=False):
        numbers = range(peer["first_rank"], peer["first_rank"] + peer["slots"])
        address = str(peer["address"])
        setups += [(setup, address) for setup in validate_setups((node.get("report") or {}).get("nccl"), numbers)]
    return setups


def add_defaults(nodes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return nodes of a plan with the values that their records lack."""
    return [{**NODE, **node} for node in nodes]


def describe_differences(setups: Sequence[tuple[Mapping[str, Any], str]], nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return what differs between ranks of a run, with the ranks and their nodes, or "".

    Args:
        setups: Those of the ranks, with the address of their node.
        nodes: Those of the plan.
    """
    nodes = add_defaults(nodes)
    for aspect in ASPECTS:
        ranks: dict[str, list[int]] = {}
        for setup, _address in setups:
            if setup[aspect.field]:
                ranks.setdefault(aspect.compared(setup[aspect.field]), []).extend(setup["ranks"])
        if len(ranks) < 2 or not spans_nodes(ranks.values(), nodes):
            continue
        if aspect.field == "interface" and all(
            not setup["address"] or is_same_address(setup["address"], address) for setup, address in setups
        ):
            continue  # only the names differ
        values = sorted(ranks.items(), key=lambda item: (-len(item[1]), item[1]))[:MAX_SHOWN]
        shown = ", ".join(f"{value} ({locate_ranks(sorted(numbers), nodes)})" for value, numbers in values)
        return f"NCCL uses different {aspect.title}: {shown}"
    return ""


def is_same_address(left: str, right: str) -> bool:
    """Return whether two texts are the same IP address, in any notation and without its zone, or the same text."""
    return normalize_address(left) == normalize_address(right)


def normalize_address(text: str) -> str:
    """Return an IP address in its canonical notation without its zone, or the text if it is no IP address."""
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return text


def spans_nodes(groups: Iterable[Sequence[int]], nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether ranks with different values are on different nodes: those of a node need no network."""
    owners = [
        {
            index
            for index, node in enumerate(nodes)
            for rank in ranks
            if node["first_rank"] <= rank < node["first_rank"] + node["slots"]
        }
        for ranks in groups
    ]
    return len(set().union(*owners)) > 1


def has_completed_collective(texts: Iterable[str]) -> bool:
    """Return whether logs or errors show that a collective completed, which proves that the nodes can reach each
    other.
    """
    for text in texts:
        numbers = [int(match["number"]) for match in WORK.finditer(text) if match["number"]]
        completed = [int(match["number"]) for match in COMPLETED.finditer(text)]
        if any(number > 1 for number in numbers) or any(number > 0 for number in completed) or TRAINED.search(text):
            return True
    return False
