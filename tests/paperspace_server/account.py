# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One imagined Paperspace account: its machines, private networks and events, and what the operations do to them.

Nothing happens by itself: an event goes one step on whenever somebody looks at it, so that tests need no clock.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import ipaddress
import re
from typing import Any

Object = dict[str, Any]

REGION_NAMES = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
DEFAULT_LIMIT = 20  # the document does not tell the real one
_GIB = 1024**3
_EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Refused(Exception):
    """The API's answer is an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def moment(minutes: int) -> str:
    """A time as the API writes it."""
    return (_EPOCH + datetime.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def cursor(item_id: str) -> str:
    """The cursor that means "after this item"; opaque to clients."""
    return base64.urlsafe_b64encode(item_id.encode()).decode().rstrip("=")


def machine(number: int, **changes: Any) -> Object:
    """A machine with two GPUs, as the document types it. Machine 0 is the oldest; changes replace fields."""
    made = {
        "id": f"ps{number:06x}",
        "name": f"node-{number}",
        "state": "ready",
        "os": "Ubuntu 22.04",
        "machineType": "A6000x2",
        "agentType": "LinuxHeadless",
        "cpus": 16,
        "ram": 90 * _GIB,
        "storageTotal": 250 * _GIB,
        "storageUsed": 110080,
        "accelerators": [{"name": "Ampere A6000", "memory": 48 * _GIB, "count": 2}],
        "region": "ny2",
        "privateIp": str(ipaddress.ip_address("10.64.0.10") + number),
        "networkId": "nw0000001",
        "publicIp": str(ipaddress.ip_address("198.18.0.10") + number),
        "publicIpType": "dynamic",
        "autoShutdownEnabled": False,
        "autoShutdownTimeout": None,
        "autoShutdownForce": False,
        "autoSnapshotEnabled": False,
        "autoSnapshotFrequency": None,
        "autoSnapshotSaveCount": None,
        "updatesPending": False,
        "restorePointEnabled": False,
        "restorePointFrequency": None,
        "restorePointSnapshotId": None,
        "usageRate": 3.78,
        "storageRate": 0.0104,
        "dtCreated": moment(number),
        "dtModified": moment(number + 1),
        "dtDeleted": None,
        "reservation": None,
    }
    unknown = set(changes) - set(made)
    if unknown:
        raise ValueError(f"a machine has no field {', '.join(sorted(unknown))}")
    return {**made, **changes}


def network(number: int, **changes: Any) -> Object:
    """A private network, as the document types it."""
    return {
        "id": f"nw{number:07x}",
        "name": f"net-{number}",
        "region": "ny2",
        "network": str(ipaddress.ip_address("10.64.0.0") + 256 * (number - 1)),
        "netmask": "255.255.255.0",
        "dtCreated": moment(number),
        **changes,
    }


@dataclasses.dataclass
class Outcome:
    """How the next event of a name ends. finished: whether its end has a time; an error may come without a text."""

    state: str = "done"
    error: str | None = None
    finished: bool = True
    machine_state: str | None = None


class Account:
    """The state behind the API. Lists hold objects as the document types them; tests may change them at will."""

    def __init__(self, machines: list[Object] | None = None, networks: list[Object] | None = None) -> None:
        self.machines = [] if machines is None else machines
        self.networks = [network(1)] if networks is None else networks
        self.events: list[Object] = []
        self.unavailable: set[str] = set()
        self.outcomes: dict[str, Outcome] = {}
        self._ends: dict[str, tuple[Outcome, Object, str | None]] = {}
        self._made = 0

    # --- Lists

    def page(self, items: list[Object], query: dict[str, str]) -> Object:
        """One page: filtered, ordered, cut at `limit`, with a cursor that means "after this item"."""
        key = query.get("orderBy", "dtCreated")
        chosen = sorted(
            (item for item in items if all(_matches(item, name, value) for name, value in query.items())),
            key=lambda item: (str(item.get(key)), item["id"]),
            reverse=query.get("order", "desc") == "desc",
        )
        start = 0
        if "after" in query:
            ids = [item["id"] for item in chosen]
            after = [i for i, item_id in enumerate(ids) if cursor(item_id) == query["after"]]
            if not after:
                raise Refused(400, "BAD_REQUEST", "Invalid cursor")
            start = after[0] + 1
        end = start + int(query.get("limit", DEFAULT_LIMIT))
        page: Object = {"hasMore": end < len(chosen), "items": chosen[start:end]}
        if page["hasMore"]:
            page["nextPage"] = cursor(chosen[end - 1]["id"])
        return page

    # --- Machines

    def find_machine(self, machine_id: str) -> Object:
        """The machine; looking at it moves its events on."""
        for event in self.events:
            if event["machineId"] == machine_id:
                self._step(event)
        return _find(self.machines, machine_id)

    def create_machine(self, body: Object) -> Object:
        """A machine that is being made: `provisioning`, then `ready`, or `off` without startOnCreate."""
        self._made += 1
        networks = [n["id"] for n in self.networks if n["region"] == _code(body["region"])]
        if "networkId" in body and body["networkId"] not in networks:
            raise Refused(404, "NOT_FOUND", "Private network not found")
        made = machine(
            len(self.machines) + 1000 * self._made,
            name=body["name"],
            machineType=body["machineType"],
            region=_code(body["region"]),
            networkId=body.get("networkId", "nwshared"),
            publicIpType=body.get("publicIpType", "none"),
            storageTotal=int(body["diskSize"] * _GIB),
            state="provisioning",
        )
        if made["publicIpType"] == "none":
            made["publicIp"] = None
        self.machines.append(made)
        return self._started("create", made, "ready" if body.get("startOnCreate", True) else "off")

    def act(self, machine_id: str, action: str) -> Object:
        """start, stop or restart."""
        found = _find(self.machines, machine_id)
        allowed = {"start": ("off",), "stop": ("ready", "serviceready"), "restart": ("ready", "serviceready")}
        if found["state"] not in allowed[action]:
            raise Refused(400, "BAD_REQUEST", f"This machine is currently {found['state']}.")
        found["state"] = {"start": "starting", "stop": "stopping", "restart": "restarting"}[action]
        return self._started(action, found, "off" if action == "stop" else "ready")

    def delete_machine(self, machine_id: str) -> Object:
        """The machine is gone when the event has ended."""
        return self._started("deactivate", _find(self.machines, machine_id), None)

    # --- Private networks

    def create_network(self, body: Object) -> Object:
        """Networks are made at once, without an event."""
        self._made += 1
        made = network(1000 + self._made, name=body["name"], region=_code(body["region"]))
        self.networks.append(made)
        return made

    def find_network(self, network_id: str) -> Object | None:
        """The network. An unknown one is null and not an error, as the document says."""
        return next((n for n in self.networks if n["id"] == network_id), None)

    def delete_network(self, network_id: str) -> Object:
        """Not while a machine is in it."""
        found = _find(self.networks, network_id)
        if any(m["networkId"] == network_id for m in self.machines):
            raise Refused(412, "PRECONDITION_FAILED", "The private network still has machines")
        self.networks.remove(found)
        return {"id": network_id}

    # --- Events

    def find_event(self, event_id: str) -> Object:
        """The event; looking at it moves it on."""
        event = _find(self.events, event_id)
        self._step(event)
        return event

    def _started(self, name: str, of: Object, end_state: str | None) -> Object:
        self._made += 1
        event = {
            "id": f"ev{self._made:06x}",
            "name": name,
            "state": "new",
            "machineId": of["id"],
            "dtCreated": moment(self._made),
            "dtStarted": None,
            "dtFinished": None,
            "error": None,
        }
        self.events.append(event)
        self._ends[event["id"]] = (self.outcomes.pop(name, Outcome()), of, end_state)
        return {"event": dict(event), "data": dict(of)}

    def _step(self, event: Object) -> None:
        if event["state"] == "new":
            event.update(state="in progress", dtStarted=event["dtCreated"])
        elif event["state"] == "in progress":
            outcome, of, end_state = self._ends.pop(event["id"])
            event.update(state=outcome.state, error=outcome.error)
            event["dtFinished"] = event["dtCreated"] if outcome.finished else None
            if outcome.machine_state:
                of["state"] = outcome.machine_state
            elif outcome.state == "done" and end_state is None:
                self.machines.remove(of)
            elif outcome.state == "done":
                of["state"] = end_state


def _find(items: list[Object], wanted: str) -> Object:
    for item in items:
        if item["id"] == wanted:
            return item
    raise Refused(404, "NOT_FOUND", "Not found")


def _code(region: str) -> str:
    inner = re.search(r"\((\w+)\)", region)
    return (inner[1] if inner else region).lower()


def _matches(item: Object, name: str, value: str) -> bool:
    if name in ("after", "limit", "order", "orderBy"):
        return True
    if name == "region":
        return bool(_code(item["region"]) == _code(value))
    if name == "name":
        return value in item["name"]
    return bool(item.get(name) == value)
