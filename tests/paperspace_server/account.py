# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One imagined Paperspace account: what is in it, and what the operations do to it.

Nothing happens by itself: an event goes one step on whenever somebody looks at it or at its machine, alone or in a
list, so that tests need no clock. Where nobody has said what the service does, the account does what is hardest for a
client.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import ipaddress
from collections.abc import Callable
from typing import Any, NamedTuple

from .meter import costs
from .objects import (
    GIB,
    MACHINE_TYPES,
    OS_TEMPLATES,
    SHARED_NETWORK,
    Object,
    custom_template,
    drive,
    machine,
    network,
    public_ip,
    region_code,
    snapshot,
    startup_script,
    type_fields,
    written,
)

DEFAULT_LIMIT = 20  # the document does not tell the real one
ON = ("ready", "serviceready")


def do_nothing() -> None:
    """What the end of an event that has failed changes."""


class Refused(Exception):
    """The API's answer is an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def cursor(item_key: str) -> str:
    """The cursor that means "after this item"; opaque to clients."""
    return base64.urlsafe_b64encode(item_key.encode()).decode().rstrip("=")


@dataclasses.dataclass
class Outcome:
    """How the next event of a name ends. finished: whether its end has a time; an error may come without a text.

    machine_state: the machine's state then, None is as it should be. stuck: it never ends.
    """

    state: str = "done"
    error: str | None = None
    finished: bool = True
    machine_state: str | None = None
    stuck: bool = False


class Host(NamedTuple):
    """Addresses of a test host that a machine can be."""

    private: str
    public: str


class Share(NamedTuple):
    """A file share that a network drive can be. mount_point: as Windows writes it."""

    mount_point: str
    username: str
    password: str


class Account:
    """The state behind the API. Lists hold objects as the document types them; tests may change them at will.

    hosts: what new machines are, each for as long as it exists; without a free one there is no capacity. None: machines
    have addresses that nobody has. share: what new drives are. now: the clock.
    capacity: how many machines of a type can be on at a time (a type that is not in it: any number); who asks whether a
    type is available is told what `unavailable` says and not this. outcomes: by the event's name, or by its name and
    the machine's ("create bert-3"). hidden_lists: so many lists do not show yet what was made.
    """

    def __init__(
        self,
        machines: list[Object] | None = None,
        networks: list[Object] | None = None,
        *,
        hosts: list[Host] | None = None,
        share: Share | None = None,
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
        self.outcomes: dict[str, Outcome] = {}
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
        self.foreign: set[str] = set()
        self._hidden: dict[str, int] = {}
        self._ends: dict[str, tuple[Outcome, Callable[[], None]]] = {}
        self._host_of: dict[str, Host] = {}
        self._last_time = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self._made = 0

    def lists(self) -> list[tuple[list[Object], str]]:
        """All that the account has and that can be told apart, and the field that tells it."""
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
        """The meter: what all that is not other people's costs now, in US dollars an hour."""
        return sum(cost.usd for cost in costs(self) if cost.key not in self.foreign)

    # --- Lists

    def page(self, items: list[Object], query: dict[str, str], key: str = "id") -> Object:
        """One page: filtered, ordered, cut at `limit`, with a cursor that means "after this item"."""
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
                raise Refused(400, "BAD_REQUEST", "Invalid cursor")
            start = after[-1] + 1
        end = start + int(query.get("limit", DEFAULT_LIMIT))
        page: Object = {"hasMore": end < len(chosen), "items": chosen[start:end]}
        if page["hasMore"]:
            page["nextPage"] = cursor(chosen[end - 1][key])
        return page

    def _is_hidden(self, key: str, query: dict[str, str]) -> bool:
        left = self._hidden.get(key, 0)
        if left and "after" not in query:
            self._hidden[key] = left - 1
        return left > 0

    def machine_page(self, query: dict[str, str]) -> Object:
        """Machines; looking at them moves their events on."""
        for event in list(self.events):
            self._step(event)
        return self.page(self.machines, query)

    def event_page(self, query: dict[str, str]) -> Object:
        """Events; looking at them moves them on."""
        for event in list(self.events):
            if query.get("machineId", event["machineId"]) == event["machineId"]:
                self._step(event)
        return self.page(self.events, query)

    def template_page(self, query: dict[str, str]) -> Object:
        """The team's own templates, the first of them twice, as the service does."""
        return self.page(self.templates + self.templates[: int(self.duplicate_templates)], query)

    # --- The team

    def session(self) -> Object:
        """Who the key is."""
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
        """Whether the bills are paid. The document does not have this operation."""
        if self.standing is None:
            raise Refused(404, "NOT_FOUND", "Not found")
        return self.standing

    # --- Machines

    def find_machine(self, machine_id: str) -> Object:
        """The machine; looking at it moves its events on."""
        for event in list(self.events):
            if event["machineId"] == machine_id:
                self._step(event)
        return find(self.machines, machine_id)

    def is_available(self, machine_type: str) -> Object:
        """Whether there are machines of a type at the moment. It is no promise."""
        return {"available": machine_type in MACHINE_TYPES and machine_type not in self.unavailable}

    def create_machine(self, body: Object) -> Object:
        """A machine that is being made: `provisioning`, then `ready`, or `off` without startOnCreate."""
        region = region_code(body["region"])
        chosen_network = self._network_for(body.get("networkId"), region)
        self._check_template(body, region)
        if len(self.machines) >= self.max_machines:
            raise Refused(412, "PRECONDITION_FAILED", f"Your team is limited to {self.max_machines} machines")
        script = find(self.scripts, body["startupScriptId"]) if "startupScriptId" in body else None
        number = 0x100000 + self._next()
        made = machine(
            number,
            name=body["name"],
            region=region,
            networkId=chosen_network["id"] if chosen_network else SHARED_NETWORK,
            privateIp=self._private_address(chosen_network, number),
            publicIp=None,
            publicIpType=body.get("publicIpType", "none"),
            storageTotal=int(body["diskSize"] * GIB),
            state="provisioning",
            dtCreated=self._time(),
            dtModified=self._time(),
            **type_fields(body["machineType"]),
        )
        if self.hosts is not None:
            free = [host for host in self.hosts if host not in self._host_of.values()]
            if free:
                self._host_of[made["id"]] = free[0]
                made["privateIp"] = free[0].private
        if made["publicIpType"] == "static":
            self._claim(region, made)
        self._add(self.machines, made)
        if script:
            script["assignedMachineIds"].append(made["id"])
        if body.get("takeInitialSnapshot"):
            self._add(self.snapshots, snapshot(self._next(), name="initial", machineId=made["id"]))
        off = self._ending(made, "off")
        # Without capacity the event is done all the same, and the machine is off.
        end = (lambda: None if self._boot(made) else off()) if body.get("startOnCreate", True) else off
        return self._started("create", made, end)

    def update_machine(self, machine_id: str, body: Object) -> Object:
        """Another name, type, disk, network or kind of public address; type and disk need a machine that is off."""
        found = find(self.machines, machine_id)
        self._check_unoccupied(found)
        changes = {name: value for name, value in body.items() if name not in ("machineType", "diskSize", "networkId")}
        if ("machineType" in body or "diskSize" in body) and found["state"] != "off":
            raise Refused(412, "PRECONDITION_FAILED", f"This machine is currently {found['state']}.")
        if "machineType" in body:
            changes |= type_fields(_known_type(body["machineType"]))
        if "diskSize" in body:
            changes["storageTotal"] = int(body["diskSize"] * GIB)
        if "networkId" in body:
            moved_to = self._network_for(body["networkId"], found["region"])
            changes |= {"networkId": body["networkId"], "privateIp": self._private_address(moved_to, self._next())}
        found.update(changes, dtModified=self._time())
        return {"data": dict(found)}

    def act(self, machine_id: str, action: str) -> Object:
        """start, stop or restart."""
        found = find(self.machines, machine_id)
        self._check_unoccupied(found)
        allowed = {"start": ("off",), "stop": ON, "restart": ON}
        if found["state"] not in allowed[action]:
            raise Refused(400, "BAD_REQUEST", f"This machine is currently {found['state']}.")
        found["state"] = {"start": "starting", "stop": "stopping", "restart": "restarting"}[action]
        if action == "start":
            return self._started(action, found, lambda: self._start_ends(found))
        return self._started(action, found, self._ending(found, "off" if action == "stop" else "ready"))

    def delete_machine(self, machine_id: str) -> Object:
        """The machine is gone when the event has ended, with its disk and snapshots. Its static address stays."""
        found = find(self.machines, machine_id)
        self._check_unoccupied(found)
        if self.delete_needs_off and found["state"] != "off":
            raise Refused(412, "PRECONDITION_FAILED", "The machine must be off to be deleted")
        return self._started("deactivate", found, lambda: self._remove(found))

    def guest_powers_off(self, machine_id: str) -> None:
        """Somebody typed `poweroff` in the machine."""
        self._ending(find(self.machines, machine_id), "off")()

    def _check_unoccupied(self, of: Object) -> None:
        for event in self.events:
            if event["machineId"] == of["id"] and event["id"] in self._ends:
                doing = {"create": "provisioning", "start": "starting", "stop": "stopping", "restart": "restarting"}
                word = doing.get(event["name"])
                message = f"This machine is currently {word}." if word else f"{event['name']} is in progress"
                raise Refused(409, "CONFLICT", message)

    def _check_template(self, body: Object, region: str) -> None:
        template = find(self.os_templates + self.templates, body["templateId"], "Template not found")
        if template.get("region", region) != region:
            raise Refused(400, "BAD_REQUEST", f"The template is in {template['region']}, not in {region}")
        _known_type(body["machineType"])
        types = {kind["machineTypeLabel"] for kind in template["availableMachineTypes"] if kind["isAvailable"]}
        if body["machineType"] not in types:
            raise Refused(400, "BAD_REQUEST", f"The template is not available for {body['machineType']}")
        if body["diskSize"] < (template["defaultSizeGb"] or 0):
            raise Refused(400, "BAD_REQUEST", f"The template needs a disk of {template['defaultSizeGb']} GB")

    def _boot(self, of: Object) -> bool:
        """Whether the machine could be switched on; then it is `ready`, with a new address if that is dynamic."""
        kind = of["machineType"]
        on = sum(other["machineType"] == kind and other["state"] in ON for other in self.machines if other is not of)
        if on >= self.capacity.get(kind, on + 1) or (self.hosts is not None and of["id"] not in self._host_of):
            return False
        of.update(state="ready", dtModified=self._time())
        if of["publicIpType"] == "dynamic":
            of["publicIp"] = self._public_address(of)
        return True

    def _start_ends(self, of: Object) -> None:
        if not self._boot(of):
            self._ending(of, "off")()
            event = [event for event in self.events if event["machineId"] == of["id"]][-1]
            event.update(state="error", error=None)

    def _ending(self, of: Object, state: str) -> Callable[[], None]:
        def end() -> None:
            of.update(state=state, dtModified=self._time())
            if state == "off" and of["publicIpType"] == "dynamic":
                of["publicIp"] = None

        return end

    def _remove(self, of: Object) -> None:
        self.machines.remove(of)
        self._host_of.pop(of["id"], None)
        self.snapshots[:] = [taken for taken in self.snapshots if taken["machineId"] != of["id"]]
        for address in self.public_ips:
            if address.get("assignedMachineId") == of["id"]:
                del address["assignedMachineId"]
        for script in self.scripts:
            if of["id"] in script["assignedMachineIds"]:
                script["assignedMachineIds"].remove(of["id"])

    # --- Addresses

    def _private_address(self, of_network: Object | None, number: int) -> str:
        if of_network is None:
            return str(ipaddress.ip_address("10.255.0.0") + number % 0x10000)
        taken = {other["privateIp"] for other in self.machines}
        block = ipaddress.ip_network(f"{of_network['network']}/{of_network['netmask']}")
        return next(str(address) for address in list(block.hosts())[9:] if str(address) not in taken)

    def _public_address(self, of: Object) -> str:
        if of["id"] in self._host_of:
            return self._host_of[of["id"]].public
        return str(ipaddress.ip_address("198.18.100.0") + self._next())

    def claim_public_ip(self, region: str) -> Object:
        """A static address that no machine has yet."""
        return self._claim(region_code(region), None)

    def _claim(self, region: str, owner: Object | None) -> Object:
        address = self._public_address(owner or {"id": ""})
        made = public_ip(address, region=region, dtCreated=self._time())
        if owner:
            made["assignedMachineId"] = owner["id"]
            owner["publicIp"] = address
        self._add(self.public_ips, made, "ip")
        return made

    def assign_public_ip(self, address: str, machine_id: str | None) -> Object:
        """Give an address to a machine, or take it away (None)."""
        found = find(self.public_ips, address, key="ip")
        before = found.pop("assignedMachineId", None)
        if before is not None:
            find(self.machines, before).update(publicIp=None, publicIpType="none")
        if machine_id is not None:
            find(self.machines, machine_id).update(publicIp=address, publicIpType="static")
            found["assignedMachineId"] = machine_id
        return found

    def release_public_ip(self, address: str) -> Object:
        """The address is no longer the team's."""
        self.assign_public_ip(address, None)
        self.public_ips.remove(find(self.public_ips, address, key="ip"))
        return {"ip": address}

    # --- Private networks

    def create_network(self, body: Object) -> Object:
        """Networks are made at once, without an event."""
        made = network(1000 + self._next(), name=body["name"], region=region_code(body["region"]))
        made["dtCreated"] = self._time()
        if self.hosts:
            made["network"] = str(ipaddress.ip_network(f"{self.hosts[0].private}/24", strict=False).network_address)
        self._add(self.networks, made)
        if body.get("migrateMachines"):
            for other in self.machines:
                if other["networkId"] == SHARED_NETWORK and other["region"] == made["region"]:
                    other["networkId"] = made["id"]
        return made

    def find_network(self, network_id: str) -> Object | None:
        """The network. An unknown one is null and not an error, as the document says."""
        return next((n for n in self.networks if n["id"] == network_id), None)

    def delete_network(self, network_id: str) -> Object:
        """Not while a machine or a drive is in it."""
        found = find(self.networks, network_id)
        for things, what in ((self.machines, "machines"), (self.drives, "shared drives")):
            if any(thing["networkId"] == network_id for thing in things):
                raise Refused(412, "PRECONDITION_FAILED", f"The private network still has {what}")
        self.networks.remove(found)
        return {"id": network_id}

    def _network_for(self, network_id: str | None, region: str) -> Object | None:
        if network_id is None:
            return None
        found = find(self.networks, network_id, "Private network not found")
        if found["region"] != region:
            raise Refused(404, "NOT_FOUND", "Private network not found")
        return found

    # --- Network drives

    def create_drive(self, body: Object) -> Object:
        """Drives are made at once, without an event; one network, region and size for good."""
        of_network = self._network_for(body["networkId"], region_code(body["region"]))
        made = drive(
            self._next(),
            name=body["name"],
            region=region_code(body["region"]),
            networkId=body["networkId"],
            size=int(body["size"] * GIB),
            dtCreated=self._time(),
        )
        address = ipaddress.ip_address(of_network["network"] if of_network else "10.64.0.0") + 2
        made["mountPoint"] = rf"\\{address}\sdv{made['id'][-7:].lower()}"
        if self.share:
            made |= {
                "mountPoint": self.share.mount_point,
                "username": self.share.username,
                "password": self.share.password,
            }
        self._add(self.drives, made)
        return made

    def delete_drive(self, drive_id: str) -> Object:
        """The drive and what is on it."""
        self.drives.remove(find(self.drives, drive_id))
        return {"id": drive_id}

    # --- Templates and snapshots

    def create_template(self, body: Object) -> Object:
        """A template of a machine that is off; it is there when the event has ended."""
        parent = find(self.machines, body["machineId"])
        self._check_unoccupied(parent)
        if parent["state"] != "off":
            raise Refused(412, "PRECONDITION_FAILED", "The machine must be off to create a template")
        made = custom_template(
            self._next(),
            name=body["name"],
            region=parent["region"],
            operatingSystemLabel=parent["os"],
            defaultSizeGb=parent["storageTotal"] // GIB,
            parentMachineId=parent["id"],
            dtCreated=self._time(),
        )
        return self._started("template-create", parent, lambda: self._add(self.templates, made), made)

    def delete_template(self, template_id: str) -> Object:
        """At once, without an event."""
        found = find(self.templates, template_id)
        self.templates.remove(found)
        return found

    def create_snapshot(self, body: Object) -> Object:
        """A snapshot of a machine, on or off; it is there when the event has ended."""
        of = find(self.machines, body["machineId"])
        self._check_unoccupied(of)
        made = snapshot(self._next(), name=body["name"], machineId=of["id"])
        return self._started("snapshot-create", of, lambda: self._add(self.snapshots, made), made)

    def delete_snapshot(self, snapshot_id: str) -> Object:
        """It is gone when the event has ended."""
        found = find(self.snapshots, snapshot_id)
        of = find(self.machines, found["machineId"])
        return self._started("snapshot-delete", of, lambda: self.snapshots.remove(found), found)

    # --- Startup scripts

    def create_script(self, body: Object) -> Object:
        """A script; its text is kept and never returned."""
        made = startup_script(self._next(), name=body["name"], isRunOnce=body.get("isRunOnce", False))
        made["dtCreated"] = self._time()
        self.script_texts[made["id"]] = body["script"]
        self._add(self.scripts, made)
        return made

    def update_script(self, script_id: str, body: Object) -> Object:
        """Another name, text or use."""
        found = find(self.scripts, script_id)
        self.script_texts[script_id] = body.get("script", self.script_texts.get(script_id, ""))
        found.update({name: value for name, value in body.items() if name != "script"})
        return found

    def delete_script(self, script_id: str) -> Object:
        """At once, without an event."""
        found = find(self.scripts, script_id)
        self.scripts.remove(found)
        self.script_texts.pop(script_id, None)
        return found

    def assign_script(self, script_id: str, machine_id: str, *, wanted: bool) -> Object:
        """Let a machine run the script, or not."""
        found = find(self.scripts, script_id)
        find(self.machines, machine_id)
        others = [other for other in found["assignedMachineIds"] if other != machine_id]
        found["assignedMachineIds"] = [*others, machine_id] if wanted else others
        return found

    # --- Events

    def find_event(self, event_id: str) -> Object:
        """The event; looking at it moves it on."""
        event = find(self.events, event_id)
        self._step(event)
        return event

    def _started(self, name: str, of: Object, end: Callable[[], None], data: Object | None = None) -> Object:
        event = {
            "id": f"ev{self._next():06x}",
            "name": name,
            "state": "new",
            "machineId": of["id"],
            "dtCreated": self._time(),
            "dtStarted": None,
            "dtFinished": None,
            "error": None,
        }
        self.events.append(event)
        outcome = self.outcomes.pop(f"{name} {of['name']}", None) or self.outcomes.pop(name, Outcome())
        if outcome.machine_state:
            end = self._ending(of, outcome.machine_state)
        elif outcome.state != "done":
            end = do_nothing
        self._ends[event["id"]] = (outcome, end)
        return {"event": dict(event), "data": dict(of if data is None else data)}

    def _step(self, event: Object) -> None:
        if event["state"] == "new":
            event.update(state="in progress", dtStarted=self._time())
        elif event["state"] == "in progress" and not self._ends[event["id"]][0].stuck:
            outcome, end = self._ends.pop(event["id"])
            event.update(state=outcome.state, error=outcome.error)
            event["dtFinished"] = self._time() if outcome.finished else None
            end()

    # --- Numbers and times

    def _next(self) -> int:
        self._made += 1
        return self._made

    def _time(self) -> str:
        """Now, and later than every time told before."""
        self._last_time = max(self.now(), self._last_time + datetime.timedelta(milliseconds=1))
        return written(self._last_time)

    def _add(self, items: list[Object], item: Object, key: str = "id") -> None:
        items.append(item)
        self._hidden[item[key]] = self.hidden_lists


def find(items: list[Object], wanted: str, message: str = "Not found", key: str = "id") -> Object:
    """The item with the key. Raises Refused."""
    for item in items:
        if item[key] == wanted:
            return item
    raise Refused(404, "NOT_FOUND", message)


def renamed(items: list[Object], item_id: str, body: Object) -> Object:
    """The item under another name."""
    found = find(items, item_id)
    found.update(body)
    return found


def _known_type(machine_type: str) -> str:
    if machine_type not in MACHINE_TYPES:
        raise Refused(400, "BAD_REQUEST", f"Unknown machine type {machine_type}")
    return machine_type


def _matches(item: Object, name: str, value: Any) -> bool:
    if name in ("after", "limit", "order", "orderBy"):
        return True
    if name == "region":
        return bool(region_code(item["region"]) == region_code(value))
    if name == "name":
        return value in item["name"]
    return bool(item.get(name) == value) or (name == "machineId" and item.get("parentMachineId") == value)
