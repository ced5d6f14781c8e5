# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a planner reads and writes: the requested cluster, the account as it is, and the steps between them.

Private to this collection, controller only. The terms are those that clouds have in common; each cloud's own file
translates its API's answers. Money is in US dollars, disks and drives in GB as clouds sell them, times in seconds since
1970.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Stand = Literal["present", "stopped", "absent"]

#: ready: on and usable. coming: on its way there, and paid for. going: on its way to off. off: only its disk costs.
State = Literal["ready", "coming", "going", "off"]

What = Literal[
    "VPC", "internet gateway", "subnet", "network", "placement group", "drive", "script", "machine", "address"
]
Action = Literal["make", "start", "stop", "remove"]


class Wanted(TypedDict):
    """A cluster as it should be."""

    cluster: str
    stand: Stand
    nnodes: int
    machine_type: str
    region: str
    disk_gb: int
    drive_gb: int  # 0: no drive
    script: str  # name of the script of the first boot, "" for none
    network_id: str  # which one is meant where several have the cluster's name, else ""
    remove_drive: bool  # for `absent`: the drive, and what is on it, goes too
    parts: NotRequired[list[tuple[What, str]]]  # what its machines need besides: kind and name
    address_block: NotRequired[str]  # of its own VPC, where that is among its parts


class Machine(TypedDict):
    """A machine of the account, whoever it belongs to."""

    id: str
    name: str
    state: State
    said: str  # the state in the cloud's own word
    machine_type: str
    region: str
    network: str  # id, "" for none
    disk_gb: int | None
    private_ip: str
    public_ip: str
    fixed_address: bool  # the public address stays, and costs, after the machine is gone
    per_hour: float | None  # what the cloud says that it costs while it is on
    created: float | None


class Network(TypedDict):
    """A private network."""

    id: str
    name: str
    region: str


class Drive(TypedDict):
    """A drive in a network. share: address of the mount; the password is nowhere in these documents."""

    id: str
    name: str
    network: str
    region: str
    size_gb: int | None
    share: str
    username: str


class Script(TypedDict):
    """A script that machines run at boot."""

    id: str
    name: str
    machines: list[str]  # ids


class Address(TypedDict):
    """A public address that is kept while no machine has it. machine: id of the one that has it, or ""."""

    ip: str
    region: str
    machine: str


class Part(TypedDict):
    """What else a cluster needs in a cloud that has tags: a placement group, or a part of its own network.

    holds: ids of the machines that lie in it, as far as the cloud says, and of what else keeps others' things there.
    """

    what: What
    cluster: str
    id: str
    name: str
    holds: list[str]


class There(TypedDict):
    """All of an account that can belong to a cluster."""

    machines: list[Machine]
    networks: list[Network]
    drives: list[Drive]
    scripts: list[Script]
    addresses: list[Address]
    parts: NotRequired[list[Part]]  # where a cloud has such


class Noted(TypedDict):
    """What the record of a cluster adds: names alone do not tell it.

    ids: of what was made, by "what name". asked_twice: such names that were asked for more than once, since the answer
    to the first request was lost. addresses: fixed addresses of our machines, by address, with the machine's id.
    """

    ids: dict[str, str]
    asked_twice: list[str]
    addresses: dict[str, str]


class Step(TypedDict):
    """One change. id is "" for what is to be made."""

    action: Action
    what: What
    name: str
    id: str


class Plan(TypedDict):
    """The steps, in their order, and what was found on the way to them."""

    steps: list[Step]
    network: Network | None
    nodes: list[Machine]  # the cluster's, one a name, by number
    doubles: list[Machine]  # second ones of a name, which cost as well
    drives: list[Drive]  # the cluster's
    parts: list[Part]  # the cluster's, one a kind and name
    strangers: list[Machine]  # in the cluster's network, but not its own: never touched
    namesakes: list[Machine]  # of a name like the cluster's nodes, in other networks: never touched
    kept: list[str]  # why something stays, for a person; only for `absent`


class Cost(TypedDict):
    """What a cluster costs. None if a part of it is not known: unknown says which. source, date: of per_hour.

    disks_per_month is for the disks of its machines, on or off; disk_source: where that is from.
    """

    per_hour: float | None
    per_day: float | None
    disks_per_month: float | None
    unknown: list[str]
    source: str
    date: str
    disk_source: str
