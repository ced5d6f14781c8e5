# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects of the Paperspace API v1, as documented, to the extent that this collection reads them.

Any field may be missing, except for the key of a list's items, which the client has checked. Sizes and regions have
several formats (see values.py). Times are RFC 3339 text.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict


class Team(TypedDict, total=False):
    """The team that a key belongs to. maxMachines: the limit, which includes machines that are off."""

    id: str
    namespace: str
    maxMachines: int


class ApiSession(TypedDict, total=False):
    """The user and the team that the key belongs to."""

    team: Team
    user: dict[str, Any]


class ApiMachine(TypedDict, total=False):
    """A machine. usageRate: US dollars per hour while it is not off. storageRate: for the disk, unit unknown."""

    id: str
    name: str
    state: str  # off, starting, stopping, restarting, serviceready, ready, upgrading, provisioning
    machineType: str
    region: str
    networkId: str | None
    privateIp: str | None
    publicIp: str | None
    publicIpType: str  # static, dynamic, none
    storageTotal: Any  # bytes
    usageRate: float
    storageRate: float
    dtCreated: str


class MachineEvent(TypedDict, total=False):
    """The progress of a change to a machine."""

    id: str
    name: str
    state: str  # new, in progress, done, error, cancelled
    machineId: str | None
    dtCreated: str
    dtFinished: str | None
    error: str | None


class PrivateNetwork(TypedDict, total=False):
    """A private network. network, netmask: its address block, for example 10.64.92.0 and 255.255.255.0."""

    id: str
    name: str
    region: str
    network: str
    netmask: str
    dtCreated: str


class SharedDrive(TypedDict, total=False):
    r"""A network drive. mountPoint: in Windows format, \\ADDRESS\SHARE. size: in an uncertain unit."""

    id: str
    name: str
    region: str
    networkId: str
    size: Any
    mountPoint: str
    username: str
    password: str
    dtCreated: str


class TemplateMachineType(TypedDict, total=False):
    """A machine type's support for a template."""

    machineTypeLabel: str
    isAvailable: bool


class ApiTemplate(TypedDict, total=False):
    """A template. Paperspace's own templates have neither region nor parentMachineId."""

    id: str
    name: str
    operatingSystemLabel: str
    region: str
    defaultSizeGb: float | None
    availableMachineTypes: list[TemplateMachineType]
    parentMachineId: str
    dtCreated: str


class PublicIp(TypedDict, total=False):
    """A static address. assignedMachineId is missing if the address is unassigned."""

    ip: str
    region: str
    assignedMachineId: str
    dtCreated: str


class StartupScript(TypedDict, total=False):
    """A script that runs at first boot; its text is never returned."""

    id: str
    name: str
    isEnabled: bool
    isRunOnce: bool
    assignedMachineIds: list[str]
    dtCreated: str


class MachineChange(NamedTuple):
    """The reply to a machine request: the event to wait for (None: already complete), and the machine's state."""

    event: MachineEvent | None
    machine: ApiMachine


class TemplateChange(NamedTuple):
    """The reply to a request for a new template: the event to wait for (None: already complete), and the template."""

    event: MachineEvent | None
    template: ApiTemplate
