# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A planner's input and output: the requested cluster, the account's state, and the steps between them.

Private to this collection, controller only. The terms are common to clouds; each cloud's own file translates its API's
answers. Money is in US dollars, disks and drives in GB as sold by clouds, times in seconds since 1970.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Stand = Literal["present", "stopped", "absent"]

#: ready: on and usable. coming: starting, already billed. going: stopping. off: only its disk costs.
State = Literal["ready", "coming", "going", "off"]

What = Literal[
    "VPC", "internet gateway", "subnet", "network", "placement group", "drive", "script", "machine", "address"
]
Action = Literal["make", "start", "stop", "remove"]


class Wanted(TypedDict):
    """A desired cluster."""

    cluster: str
    stand: Stand
    nnodes: int
    machine_type: str
    region: str
    disk_gb: int
    drive_gb: int  # 0: no drive
    script: str  # name of the first-boot script, "" for none
    network_id: str  # the one to use if several have the cluster's name, else ""
    remove_drive: bool  # for `absent`: also remove the drive with its data
    parts: NotRequired[list[tuple[What, str]]]  # other things its machines need: kind and name
    address_block: NotRequired[str]  # of its own VPC, if that is among its parts


class Machine(TypedDict):
    """A machine in the account, whether or not it is ours."""

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
    fixed_address: bool  # the public address outlives the machine, and costs
    per_hour: float | None  # the cloud's price while it is on
    created: float | None


class Network(TypedDict):
    """A private network."""

    id: str
    name: str
    region: str


class Drive(TypedDict):
    """A drive in a network. share: the mount's address; the password is never in these documents."""

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
    """A public address that persists without a machine. machine: id of the one that has it, or ""."""

    ip: str
    region: str
    machine: str


class Part(TypedDict):
    """Another part of a cluster in a cloud with tags: a placement group, or a part of its own network.

    holds: ids of the machines in it, as far as the cloud says, and of others' things in it.
    """

    what: What
    cluster: str
    id: str
    name: str
    holds: list[str]


class There(TypedDict):
    """Everything in an account that can belong to a cluster."""

    machines: list[Machine]
    networks: list[Network]
    drives: list[Drive]
    scripts: list[Script]
    addresses: list[Address]
    parts: NotRequired[list[Part]]  # in clouds that have them


class Noted(TypedDict):
    """What a cluster's record adds, since names alone do not tell it.

    ids: of things made, by "what name". asked_twice: such names that were requested more than once, because the answer
    to the first request was lost. addresses: machine id by fixed address of our machines.
    """

    ids: dict[str, str]
    asked_twice: list[str]
    addresses: dict[str, str]


class Step(TypedDict):
    """One change. id is "" for a thing to be made."""

    action: Action
    what: What
    name: str
    id: str


class Plan(TypedDict):
    """The steps, in order, and what was found while planning."""

    steps: list[Step]
    network: Network | None
    nodes: list[Machine]  # the cluster's, one per name, by number
    doubles: list[Machine]  # duplicates of a name, which also cost
    drives: list[Drive]  # the cluster's
    parts: list[Part]  # the cluster's, one per kind and name
    strangers: list[Machine]  # in the cluster's network, but not the cluster's: never touched
    namesakes: list[Machine]  # named like the cluster's nodes, in other networks: never touched
    kept: list[str]  # why something stays, for a person; only for `absent`


class Cost(TypedDict):
    """A cluster's cost. None if a part is not known: unknown says which. source, date: of per_hour.

    disks_per_month: for its machines' disks, on or off; disk_source: the source of that.
    """

    per_hour: float | None
    per_day: float | None
    disks_per_month: float | None
    unknown: list[str]
    source: str
    date: str
    disk_source: str
