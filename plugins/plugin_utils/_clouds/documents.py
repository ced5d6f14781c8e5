# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner's input and output: the desired cluster, the account's resources, and the steps between them.

The terms are common to all providers; each provider's files translate its API's replies. Amounts are in US dollars,
sizes in GB as sold by providers, times in seconds since 1970.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

DesiredState = Literal["present", "stopped", "absent"]

# ready: on and usable. coming: starting, already billed. going: stopping. off: only its disk is billed.
MachineState = Literal["ready", "coming", "going", "off"]

ResourceKind = Literal[
    "VPC", "internet gateway", "subnet", "network", "placement group", "drive", "script", "machine", "address"
]
StepAction = Literal["make", "start", "stop", "remove"]


class DesiredCluster(TypedDict):
    """The desired state of a cluster."""

    cluster: str
    state: DesiredState
    nnodes: int
    machine_type: str
    region: str
    disk_gb: int
    drive_gb: int  # 0: no drive
    script: str  # name of the first-boot script; "" if there is none
    network_id: str  # chosen if several networks have the cluster's name, otherwise ""
    remove_drive: bool  # whether to remove the drive and its data as well; for `absent`
    parts: NotRequired[list[tuple[ResourceKind, str]]]  # other resources that its machines need: kind and name
    address_block: NotRequired[str]  # CIDR block of its VPC, if the VPC is among its parts


class Machine(TypedDict):
    """A machine in the account, which may belong to a cluster."""

    id: str
    name: str
    state: MachineState
    provider_state: str  # the state in the provider's terms
    machine_type: str
    region: str
    network: str  # ID; "" if there is none
    disk_gb: int | None
    private_ip: str
    public_ip: str
    fixed_address: bool  # the public address outlives the machine and costs money
    per_hour: float | None  # the provider's price while the machine is on
    created: float | None


class Network(TypedDict):
    """A private network."""

    id: str
    name: str
    region: str


class Drive(TypedDict):
    """A drive in a network. share: the address to mount. These documents never contain the password."""

    id: str
    name: str
    network: str
    region: str
    size_gb: int | None
    share: str
    username: str


class BootScript(TypedDict):
    """A script that machines run at boot."""

    id: str
    name: str
    machines: list[str]  # ids


class Address(TypedDict):
    """A public address that exists independently of a machine. machine: id of the machine that has it, or ""."""

    ip: str
    region: str
    machine: str


class ClusterPart(TypedDict):
    """Another resource of a cluster on a provider with tags: a placement group, or a part of its own network.

    holds: ids of the machines in it, as far as the provider reports them, and of foreign resources in it.
    """

    kind: ResourceKind
    cluster: str
    id: str
    name: str
    holds: list[str]


class AccountResources(TypedDict):
    """All resources in an account that can belong to a cluster."""

    machines: list[Machine]
    networks: list[Network]
    drives: list[Drive]
    scripts: list[BootScript]
    addresses: list[Address]
    parts: NotRequired[list[ClusterPart]]  # parts of clusters, for providers that have such parts
    ended: NotRequired[list[str]]  # IDs of machines that are still listed although they were removed


class JournalNotes(TypedDict):
    """A cluster's journal in the planner's format. Resource keys are "kind name"."""

    ids: dict[str, str]  # ids of created resources, by key
    repeated: list[str]  # keys of resources that were requested more than once because a reply was lost
    addresses: dict[str, str]  # machine ID by the fixed address of each of the cluster's machines


class Step(TypedDict):
    """One change. id is "" for a resource to create."""

    action: StepAction
    kind: ResourceKind
    name: str
    id: str


class ClusterPlan(TypedDict):
    """The steps, in order, and the resources that they are based on."""

    steps: list[Step]
    network: Network | None
    nodes: list[Machine]  # the cluster's machines, one per name, by number
    duplicates: list[Machine]  # additional machines with the same name as a node, which also cost money
    drives: list[Drive]  # the cluster's drives
    parts: list[ClusterPart]  # parts of the cluster, one for each kind and name
    # machines in the cluster's network that do not belong to the cluster: never touched
    foreign_machines: list[Machine]
    namesakes: list[Machine]  # machines named like the cluster's nodes, but in other networks: never touched
    retained: list[str]  # reasons why resources are kept, to show to a person; only for `absent`


class ClusterCost(TypedDict):
    """A cluster's cost. An amount is None if it includes an unknown price."""

    per_hour: float | None
    per_day: float | None
    disks_per_month: float | None  # price of its machines' disks, whether the machines are on or off
    unknown: list[str]  # resources whose price is unknown
    source: str  # source of per_hour
    date: str
    disk_source: str
