# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated Paperspace account: its resources, and the effects of the operations on them.

Nothing happens by itself: an event advances by one step whenever it or its machine is read, alone or in a list, so that
tests need no clock. Where the service's behavior is undocumented, the account does what is hardest for a client.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import ipaddress
from collections.abc import Callable
from typing import Any, NamedTuple

from .meter import list_costs
from .objects import (
    GIB,
    MACHINE_TYPES,
    OS_TEMPLATES,
    SHARED_NETWORK,
    Object,
    custom_template,
    drive,
    format_time,
    machine,
    network,
    public_ip,
    region_code,
    snapshot,
    startup_script,
    type_fields,
)

DEFAULT_LIMIT = 20  # the document does not specify the real one
RUNNING_STATES = ("ready", "serviceready")


def do_nothing() -> None:
    """Change nothing, as at the end of a failed event."""


class AccountError(Exception):
    """The API replies with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def cursor(item_key: str) -> str:
    """Return the cursor that means "after this item", which is opaque to clients."""
    return base64.urlsafe_b64encode(item_key.encode()).decode().rstrip("=")


@dataclasses.dataclass
class EventOutcome:
    """How the next event with a given name ends. finished: whether its end has a time; an error may have no text.

    machine_state: the machine's state afterwards, None for the regular one. stuck: it never ends.
    """

    state: str = "done"
    error: str | None = None
    finished: bool = True
    machine_state: str | None = None
    stuck: bool = False


class HostAddresses(NamedTuple):
    """Addresses of a test host that backs a machine."""

    private: str
    public: str


class FileShare(NamedTuple):
    """A file share that backs a network drive. mount_point: in Windows form."""

    mount_point: str
    username: str
    password: str


class PaperspaceAccount:
    """The state behind the API. Lists contain objects as in the document; tests may change them.

    Args:
        hosts: test hosts that back new machines; without a free one there is no capacity. None: machines have
            addresses that do not exist.
        share: file share that backs new drives
        now: the clock

    Attributes:
        capacity: how many machines of a type can run at a time (types not in it: any number). The availability
            operation reads `unavailable` instead.
        outcomes: by the event's name, or by its name and the machine's ("create bert-3")
        hidden_lists: number of lists that do not contain a new resource yet
        foreign_keys: ids or addresses of resources that belong to other people
    """

    def __init__(
        self,
        machines: list[Object] | None = None,
        networks: list[Object] | None = None,
        *,
        hosts: list[HostAddresses] | None = None,
        share: FileShare | None = None,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self.machines = [] if machines is None else machines
        self.networks = [network(1)] if networks is None else networks
        self.events: list[Object] = []
        self.drives: list[Object] = []
        self.os_templates = [dict(template) for template in OS_TEMPLATES]
        self.templates: list[Object] = []
        self.snapshots: list[Object] = []
        self.public_ips: list[Object] = []
        self.scripts: list[Object] = []
        self.script_texts: dict[str, str] = {}
        self.hosts = hosts
        self.share = share
        self.now = now
        self.unavailable: set[str] = set()
        self.capacity: dict[str, int] = {}
        self.outcomes: dict[str, EventOutcome] = {}
        self.max_machines = 20
        self.standing: Object | None = {
            "hasPaymentMethod": True,
            "isAdminLocked": False,
            "isInGoodStanding": True,
            "messages": [],
        }
        self.delete_needs_off = False
        self.duplicate_templates = True
        self.hidden_lists = 0
        self.foreign_keys: set[str] = set()
        self._hidden: dict[str, int] = {}
        self._event_ends: dict[str, tuple[EventOutcome, Callable[[], None]]] = {}
        self._host_by_machine: dict[str, HostAddresses] = {}
        self._last_time = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self._counter = 0

    def resource_lists(self) -> list[tuple[list[Object], str]]:
        """Return all lists of resources, each with the name of the field that identifies an item."""
        return [
            (self.machines, "id"),
            (self.networks, "id"),
            (self.drives, "id"),
            (self.templates, "id"),
            (self.snapshots, "id"),
            (self.scripts, "id"),
            (self.public_ips, "ip"),
        ]

    def usd_per_hour(self) -> float:
        """Return the current cost of everything except foreign resources, in US dollars per hour."""
        return sum(cost.usd for cost in list_costs(self) if cost.key not in self.foreign_keys)

    # --- Lists

    def page(self, items: list[Object], query: dict[str, str], key: str = "id") -> Object:
        """Return one page: filtered, ordered, limited, with a cursor that means "after this item"."""
        order_by = query.get("orderBy", "dtCreated")
        chosen = sorted(
            (
                item
                for item in items
                if not self._is_hidden(item[key], query) and all(_matches(item, n, v) for n, v in query.items())
            ),
            key=lambda item: (str(item.get(order_by)), item[key]),
            reverse=query.get("order", "desc") == "desc",
        )
        start = 0
        if "after" in query:
            after = [i for i, item in enumerate(chosen) if cursor(item[key]) == query["after"]]
            if not after:
                raise AccountError(400, "BAD_REQUEST", "Invalid cursor")
            start = after[-1] + 1
        end = start + int(query.get("limit", DEFAULT_LIMIT))
        page: Object = {"hasMore": end < len(chosen), "items": chosen[start:end]}
        if page["hasMore"]:
            page["nextPage"] = cursor(chosen[end - 1][key])
        return page

    def _is_hidden(self, key: str, query: dict[str, str]) -> bool:
        remaining = self._hidden.get(key, 0)
        if remaining and "after" not in query:
            self._hidden[key] = remaining - 1
        return remaining > 0

    def machine_page(self, query: dict[str, str]) -> Object:
        """Return a page of machines; reading them advances their events."""
        for event in list(self.events):
            self._advance(event)
        return self.page(self.machines, query)

    def event_page(self, query: dict[str, str]) -> Object:
        """Return a page of events; reading them advances them."""
        for event in list(self.events):
            if query.get("machineId", event["machineId"]) == event["machineId"]:
                self._advance(event)
        return self.page(self.events, query)

    def template_page(self, query: dict[str, str]) -> Object:
        """Return a page of the team's templates; the first template is listed twice, as by the real service."""
        return self.page(self.templates + self.templates[: int(self.duplicate_templates)], query)

    # --- The team

    def session(self) -> Object:
        """Return the key's user and team."""
        created = "2025-01-01T00:00:00.000Z"
        team = {"id": "te000001", "namespace": "testteam", "analyticsId": 1, "isPrivate": False}
        membership = {
            "name": "Test",
            "id": "te000001",
            "namespace": "testteam",
            "isUserTeam": True,
            "dtCreated": created,
        }
        user = {
            "id": "us000001",
            "analyticsId": 1,
            "firstName": None,
            "lastName": None,
            "email": "somebody@example.org",
            "dtCreated": created,
            "dtConfirmed": created,
            "teamMemberships": [{"team": membership, "isOwner": True, "isAdmin": True}],
            "isPhoneVerified": True,
            "isPasswordAuthEnabled": True,
            "isQrCodeBasedMfaEnabled": False,
            "isQrCodeBasedMfaConfirmed": False,
            "metadata": {},
        }
        return {"user": user, "team": {**team, "maxMachines": self.max_machines}}

    def account_standing(self) -> Object:
        """Return whether the account is in good standing. The document does not have this operation."""
        if self.standing is None:
            raise AccountError(404, "NOT_FOUND", "Not found")
        return self.standing

    # --- Machines

    def find_machine(self, machine_id: str) -> Object:
        """Return the machine; reading it advances its events."""
        for event in list(self.events):
            if event["machineId"] == machine_id:
                self._advance(event)
        return find_item(self.machines, machine_id)

    def is_available(self, machine_type: str) -> Object:
        """Return whether a machine type is currently available, without a guarantee."""
        return {"available": machine_type in MACHINE_TYPES and machine_type not in self.unavailable}

    def create_machine(self, body: Object) -> Object:
        """Create a machine: it is `provisioning`, then `ready`, or `off` without startOnCreate."""
        region = region_code(body["region"])
        chosen_network = self._get_network(body.get("networkId"), region)
        self._check_template(body, region)
        if len(self.machines) >= self.max_machines:
            raise AccountError(412, "PRECONDITION_FAILED", f"Your team is limited to {self.max_machines} machines")
        script = find_item(self.scripts, body["startupScriptId"]) if "startupScriptId" in body else None
        number = 0x100000 + self._next_number()
        created = machine(
            number,
            name=body["name"],
            region=region,
            networkId=chosen_network["id"] if chosen_network else SHARED_NETWORK,
            privateIp=self._private_address(chosen_network, number),
            publicIp=None,
            publicIpType=body.get("publicIpType", "none"),
            storageTotal=int(body["diskSize"] * GIB),
            state="provisioning",
            dtCreated=self._timestamp(),
            dtModified=self._timestamp(),
            **type_fields(body["machineType"]),
        )
        if self.hosts is not None:
            free = [host for host in self.hosts if host not in self._host_by_machine.values()]
            if free:
                self._host_by_machine[created["id"]] = free[0]
                created["privateIp"] = free[0].private
        if created["publicIpType"] == "static":
            self._claim_address(region, created)
        self._add_item(self.machines, created)
        if script:
            script["assignedMachineIds"].append(created["id"])
        if body.get("takeInitialSnapshot"):
            self._add_item(self.snapshots, snapshot(self._next_number(), name="initial", machineId=created["id"]))
        off = self._state_setter(created, "off")
        # without capacity the event still succeeds, but the machine is off
        end = (lambda: None if self._try_boot(created) else off()) if body.get("startOnCreate", True) else off
        return self._start_event("create", created, end)

    def update_machine(self, machine_id: str, body: Object) -> Object:
        """Change the name, type, disk, network or kind of public address; type and disk need a machine that is off."""
        target = find_item(self.machines, machine_id)
        self._check_no_open_event(target)
        changes = {name: value for name, value in body.items() if name not in ("machineType", "diskSize", "networkId")}
        if ("machineType" in body or "diskSize" in body) and target["state"] != "off":
            raise AccountError(412, "PRECONDITION_FAILED", f"This machine is currently {target['state']}.")
        if "machineType" in body:
            changes |= type_fields(_check_type(body["machineType"]))
        if "diskSize" in body:
            changes["storageTotal"] = int(body["diskSize"] * GIB)
        if "networkId" in body:
            moved_to = self._get_network(body["networkId"], target["region"])
            changes |= {
                "networkId": body["networkId"],
                "privateIp": self._private_address(moved_to, self._next_number()),
            }
        target.update(changes, dtModified=self._timestamp())
        return {"data": dict(target)}

    def change_power(self, machine_id: str, action: str) -> Object:
        """Start, stop or restart a machine."""
        target = find_item(self.machines, machine_id)
        self._check_no_open_event(target)
        allowed = {"start": ("off",), "stop": RUNNING_STATES, "restart": RUNNING_STATES}
        if target["state"] not in allowed[action]:
            raise AccountError(400, "BAD_REQUEST", f"This machine is currently {target['state']}.")
        target["state"] = {"start": "starting", "stop": "stopping", "restart": "restarting"}[action]
        if action == "start":
            return self._start_event(action, target, lambda: self._finish_start(target))
        return self._start_event(action, target, self._state_setter(target, "off" if action == "stop" else "ready"))

    def delete_machine(self, machine_id: str) -> Object:
        """Delete a machine with its disk and snapshots at the end of the event. Its static address remains."""
        target = find_item(self.machines, machine_id)
        self._check_no_open_event(target)
        if self.delete_needs_off and target["state"] != "off":
            raise AccountError(412, "PRECONDITION_FAILED", "The machine must be off to be deleted")
        return self._start_event("deactivate", target, lambda: self._remove_machine(target))

    def power_off_guest(self, machine_id: str) -> None:
        """Power the machine off from the guest, as with `poweroff`."""
        self._state_setter(find_item(self.machines, machine_id), "off")()

    def _check_no_open_event(self, target: Object) -> None:
        for event in self.events:
            if event["machineId"] == target["id"] and event["id"] in self._event_ends:
                states = {"create": "provisioning", "start": "starting", "stop": "stopping", "restart": "restarting"}
                word = states.get(event["name"])
                message = f"This machine is currently {word}." if word else f"{event['name']} is in progress"
                raise AccountError(409, "CONFLICT", message)

    def _check_template(self, body: Object, region: str) -> None:
        template = find_item(self.os_templates + self.templates, body["templateId"], "Template not found")
        if template.get("region", region) != region:
            raise AccountError(400, "BAD_REQUEST", f"The template is in {template['region']}, not in {region}")
        _check_type(body["machineType"])
        types = {kind["machineTypeLabel"] for kind in template["availableMachineTypes"] if kind["isAvailable"]}
        if body["machineType"] not in types:
            raise AccountError(400, "BAD_REQUEST", f"The template is not available for {body['machineType']}")
        if body["diskSize"] < (template["defaultSizeGb"] or 0):
            raise AccountError(400, "BAD_REQUEST", f"The template needs a disk of {template['defaultSizeGb']} GB")

    def _try_boot(self, target: Object) -> bool:
        """Switch the machine on if there is capacity; return whether it is now `ready`. A dynamic address is new."""
        machine_type = target["machineType"]
        running = sum(
            item["machineType"] == machine_type and item["state"] in RUNNING_STATES
            for item in self.machines
            if item is not target
        )
        if running >= self.capacity.get(machine_type, running + 1) or (
            self.hosts is not None and target["id"] not in self._host_by_machine
        ):
            return False
        target.update(state="ready", dtModified=self._timestamp())
        if target["publicIpType"] == "dynamic":
            target["publicIp"] = self._public_address(target)
        return True

    def _finish_start(self, target: Object) -> None:
        if not self._try_boot(target):
            self._state_setter(target, "off")()
            event = [event for event in self.events if event["machineId"] == target["id"]][-1]
            event.update(state="error", error=None)

    def _state_setter(self, target: Object, state: str) -> Callable[[], None]:
        def set_state() -> None:
            target.update(state=state, dtModified=self._timestamp())
            if state == "off" and target["publicIpType"] == "dynamic":
                target["publicIp"] = None

        return set_state

    def _remove_machine(self, target: Object) -> None:
        self.machines.remove(target)
        self._host_by_machine.pop(target["id"], None)
        self.snapshots[:] = [item for item in self.snapshots if item["machineId"] != target["id"]]
        for address in self.public_ips:
            if address.get("assignedMachineId") == target["id"]:
                del address["assignedMachineId"]
        for script in self.scripts:
            if target["id"] in script["assignedMachineIds"]:
                script["assignedMachineIds"].remove(target["id"])

    # --- Addresses

    def _private_address(self, private_network: Object | None, number: int) -> str:
        if private_network is None:
            return str(ipaddress.ip_address("10.255.0.0") + number % 0x10000)
        used = {item["privateIp"] for item in self.machines}
        block = ipaddress.ip_network(f"{private_network['network']}/{private_network['netmask']}")
        return next(str(address) for address in list(block.hosts())[9:] if str(address) not in used)

    def _public_address(self, target: Object) -> str:
        if target["id"] in self._host_by_machine:
            return self._host_by_machine[target["id"]].public
        return str(ipaddress.ip_address("198.18.100.0") + self._next_number())

    def claim_public_ip(self, region: str) -> Object:
        """Claim a static address without a machine."""
        return self._claim_address(region_code(region), None)

    def _claim_address(self, region: str, owner: Object | None) -> Object:
        address = self._public_address(owner or {"id": ""})
        claimed = public_ip(address, region=region, dtCreated=self._timestamp())
        if owner:
            claimed["assignedMachineId"] = owner["id"]
            owner["publicIp"] = address
        self._add_item(self.public_ips, claimed, "ip")
        return claimed

    def assign_public_ip(self, address: str, machine_id: str | None) -> Object:
        """Assign an address to a machine, or unassign it (None)."""
        record = find_item(self.public_ips, address, key="ip")
        previous_id = record.pop("assignedMachineId", None)
        if previous_id is not None:
            find_item(self.machines, previous_id).update(publicIp=None, publicIpType="none")
        if machine_id is not None:
            find_item(self.machines, machine_id).update(publicIp=address, publicIpType="static")
            record["assignedMachineId"] = machine_id
        return record

    def release_public_ip(self, address: str) -> Object:
        """Release an address of the team."""
        self.assign_public_ip(address, None)
        self.public_ips.remove(find_item(self.public_ips, address, key="ip"))
        return {"ip": address}

    # --- Private networks

    def create_network(self, body: Object) -> Object:
        """Create a network, synchronously, without an event."""
        created = network(1000 + self._next_number(), name=body["name"], region=region_code(body["region"]))
        created["dtCreated"] = self._timestamp()
        if self.hosts:
            created["network"] = str(ipaddress.ip_network(f"{self.hosts[0].private}/24", strict=False).network_address)
        self._add_item(self.networks, created)
        if body.get("migrateMachines"):
            for candidate in self.machines:
                if candidate["networkId"] == SHARED_NETWORK and candidate["region"] == created["region"]:
                    candidate["networkId"] = created["id"]
        return created

    def find_network(self, network_id: str) -> Object | None:
        """Return the network, or null for an unknown one, as the document says."""
        return next((n for n in self.networks if n["id"] == network_id), None)

    def delete_network(self, network_id: str) -> Object:
        """Delete a network. Rejected while a machine or a drive is in it."""
        target = find_item(self.networks, network_id)
        for items, plural in ((self.machines, "machines"), (self.drives, "shared drives")):
            if any(item["networkId"] == network_id for item in items):
                raise AccountError(412, "PRECONDITION_FAILED", f"The private network still has {plural}")
        self.networks.remove(target)
        return {"id": network_id}

    def _get_network(self, network_id: str | None, region: str) -> Object | None:
        if network_id is None:
            return None
        match = find_item(self.networks, network_id, "Private network not found")
        if match["region"] != region:
            raise AccountError(404, "NOT_FOUND", "Private network not found")
        return match

    # --- Network drives

    def create_drive(self, body: Object) -> Object:
        """Create a drive, synchronously, without an event; its network, region and size are fixed."""
        private_network = self._get_network(body["networkId"], region_code(body["region"]))
        created = drive(
            self._next_number(),
            name=body["name"],
            region=region_code(body["region"]),
            networkId=body["networkId"],
            size=int(body["size"] * GIB),
            dtCreated=self._timestamp(),
        )
        address = ipaddress.ip_address(private_network["network"] if private_network else "10.64.0.0") + 2
        created["mountPoint"] = rf"\\{address}\sdv{created['id'][-7:].lower()}"
        if self.share:
            created |= {
                "mountPoint": self.share.mount_point,
                "username": self.share.username,
                "password": self.share.password,
            }
        self._add_item(self.drives, created)
        return created

    def delete_drive(self, drive_id: str) -> Object:
        """Delete a network drive and its data."""
        self.drives.remove(find_item(self.drives, drive_id))
        return {"id": drive_id}

    # --- Templates and snapshots

    def create_template(self, body: Object) -> Object:
        """Create a template of a machine that is off; it exists at the end of the event."""
        parent = find_item(self.machines, body["machineId"])
        self._check_no_open_event(parent)
        if parent["state"] != "off":
            raise AccountError(412, "PRECONDITION_FAILED", "The machine must be off to create a template")
        created = custom_template(
            self._next_number(),
            name=body["name"],
            region=parent["region"],
            operatingSystemLabel=parent["os"],
            defaultSizeGb=parent["storageTotal"] // GIB,
            parentMachineId=parent["id"],
            dtCreated=self._timestamp(),
        )
        return self._start_event("template-create", parent, lambda: self._add_item(self.templates, created), created)

    def delete_template(self, template_id: str) -> Object:
        """Delete a template, synchronously, without an event."""
        template = find_item(self.templates, template_id)
        self.templates.remove(template)
        return template

    def create_snapshot(self, body: Object) -> Object:
        """Create a snapshot of a machine, on or off; it exists at the end of the event."""
        target = find_item(self.machines, body["machineId"])
        self._check_no_open_event(target)
        created = snapshot(self._next_number(), name=body["name"], machineId=target["id"])
        return self._start_event("snapshot-create", target, lambda: self._add_item(self.snapshots, created), created)

    def delete_snapshot(self, snapshot_id: str) -> Object:
        """Delete a snapshot at the end of the event."""
        target_snapshot = find_item(self.snapshots, snapshot_id)
        target = find_item(self.machines, target_snapshot["machineId"])
        return self._start_event(
            "snapshot-delete", target, lambda: self.snapshots.remove(target_snapshot), target_snapshot
        )

    # --- Startup scripts

    def create_script(self, body: Object) -> Object:
        """Create a script; its text is stored and never returned."""
        created = startup_script(self._next_number(), name=body["name"], isRunOnce=body.get("isRunOnce", False))
        created["dtCreated"] = self._timestamp()
        self.script_texts[created["id"]] = body["script"]
        self._add_item(self.scripts, created)
        return created

    def update_script(self, script_id: str, body: Object) -> Object:
        """Change a script's name, text or settings."""
        script = find_item(self.scripts, script_id)
        self.script_texts[script_id] = body.get("script", self.script_texts.get(script_id, ""))
        script.update({name: value for name, value in body.items() if name != "script"})
        return script

    def delete_script(self, script_id: str) -> Object:
        """Delete a script, synchronously, without an event."""
        script = find_item(self.scripts, script_id)
        self.scripts.remove(script)
        self.script_texts.pop(script_id, None)
        return script

    def assign_script(self, script_id: str, machine_id: str, *, assigned: bool) -> Object:
        """Assign a script to a machine, or unassign it."""
        script = find_item(self.scripts, script_id)
        find_item(self.machines, machine_id)
        other_ids = [assigned_id for assigned_id in script["assignedMachineIds"] if assigned_id != machine_id]
        script["assignedMachineIds"] = [*other_ids, machine_id] if assigned else other_ids
        return script

    # --- Events

    def find_event(self, event_id: str) -> Object:
        """Return the event; reading it advances it."""
        event = find_item(self.events, event_id)
        self._advance(event)
        return event

    def _start_event(self, name: str, target: Object, end: Callable[[], None], data: Object | None = None) -> Object:
        event = {
            "id": f"ev{self._next_number():06x}",
            "name": name,
            "state": "new",
            "machineId": target["id"],
            "dtCreated": self._timestamp(),
            "dtStarted": None,
            "dtFinished": None,
            "error": None,
        }
        self.events.append(event)
        outcome = self.outcomes.pop(f"{name} {target['name']}", None) or self.outcomes.pop(name, EventOutcome())
        if outcome.machine_state:
            end = self._state_setter(target, outcome.machine_state)
        elif outcome.state != "done":
            end = do_nothing
        self._event_ends[event["id"]] = (outcome, end)
        return {"event": dict(event), "data": dict(target if data is None else data)}

    def _advance(self, event: Object) -> None:
        if event["state"] == "new":
            event.update(state="in progress", dtStarted=self._timestamp())
        elif event["state"] == "in progress" and not self._event_ends[event["id"]][0].stuck:
            outcome, end = self._event_ends.pop(event["id"])
            event.update(state=outcome.state, error=outcome.error)
            event["dtFinished"] = self._timestamp() if outcome.finished else None
            end()

    # --- Numbers and times

    def _next_number(self) -> int:
        self._counter += 1
        return self._counter

    def _timestamp(self) -> str:
        """Return the current time, later than every one returned before."""
        self._last_time = max(self.now(), self._last_time + datetime.timedelta(milliseconds=1))
        return format_time(self._last_time)

    def _add_item(self, items: list[Object], item: Object, key: str = "id") -> None:
        items.append(item)
        self._hidden[item[key]] = self.hidden_lists


def find_item(items: list[Object], value: str, message: str = "Not found", key: str = "id") -> Object:
    """Return the item with a key. Raise AccountError if it is missing."""
    for item in items:
        if item[key] == value:
            return item
    raise AccountError(404, "NOT_FOUND", message)


def update_item(items: list[Object], item_id: str, body: Object) -> Object:
    """Change fields of an item, such as its name."""
    item = find_item(items, item_id)
    item.update(body)
    return item


def _check_type(machine_type: str) -> str:
    if machine_type not in MACHINE_TYPES:
        raise AccountError(400, "BAD_REQUEST", f"Unknown machine type {machine_type}")
    return machine_type


def _matches(item: Object, name: str, value: Any) -> bool:
    if name in ("after", "limit", "order", "orderBy"):
        return True
    if name == "region":
        return bool(region_code(item["region"]) == region_code(value))
    if name == "name":
        return value in item["name"]
    return bool(item.get(name) == value) or (name == "machineId" and item.get("parentMachineId") == value)
