# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operations of the Paperspace API v1 that this collection uses, one function each. Private to this collection.

Names are not unique and the API's filter by name is undocumented, so complete lists are fetched and compared here.
Every function raises what Client.request() raises. A changing one raises LostAnswerError if it may have been carried
out without a usable answer: the caller must then check what exists, and never just repeat the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    pass

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Change, Client, quoted
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    AnswerError,
    AuthenticationError,
    LostAnswerError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.objects import (
    Machine,
    MachineChange,
    MachineEvent,
    PrivateNetwork,
    PublicIp,
    Session,
    SharedDrive,
    Snapshot,
    StartupScript,
    Template,
    TemplateChange,
)


def session(client: Client) -> Session:
    """The key's user, and how many machines its team may have.

    Raises AuthenticationError for a wrong key, for which this operation returns null, not 401.
    """
    answer = client.request("GET", "/auth/session")
    if answer is None:
        raise AuthenticationError("GET /auth/session: HTTP 200, but nobody's session", status=200)
    if not isinstance(answer, dict):
        raise AnswerError("GET /auth/session: HTTP 200, but not a session", status=200)
    return cast(Session, answer)


# --- Machines


def list_machines(client: Client) -> list[Machine]:
    """All machines of the team, oldest first, including those that are off."""
    return cast("list[Machine]", client.list_all("/machines"))


def get_machine(client: Client, machine_id: str) -> Machine:
    """The machine's current state. Raises NotFoundError once it is deleted; nothing else proves that."""
    return cast(Machine, _object(client, "/machines/" + quoted(machine_id)))


def create_machine(
    client: Client,
    *,
    name: str,
    machine_type: str,
    template_id: str,
    disk_gb: int,
    region: str,
    network_id: str | None = None,
    public_ip_type: str = "dynamic",
    startup_script_id: str | None = None,
    start: bool = True,
) -> MachineChange:
    """Make a machine. disk_gb: GB, one of 50, 100, 250, 500, 1000, 2000. public_ip_type: static, dynamic or none.

    This also succeeds without capacity; the machine then stays off.
    """
    body = {
        "name": name,
        "machineType": machine_type,
        "templateId": template_id,
        "diskSize": disk_gb,
        "region": region,
        "publicIpType": public_ip_type,
        "startOnCreate": start,
        "emailPassword": False,  # the default is true
    }
    if network_id is not None:
        body["networkId"] = network_id
    if startup_script_id is not None:
        body["startupScriptId"] = startup_script_id
    return _machine_change(client, "POST", "/machines", body)


def start_machine(client: Client, machine_id: str) -> MachineChange:
    """Start a machine that is off."""
    return _machine_change(client, "PATCH", f"/machines/{quoted(machine_id)}/start")


def stop_machine(client: Client, machine_id: str) -> MachineChange:
    """Stop a running machine. It loses its dynamic public address."""
    return _machine_change(client, "PATCH", f"/machines/{quoted(machine_id)}/stop")


def delete_machine(client: Client, machine_id: str) -> MachineChange:
    """Begin to delete a machine, its disk and its snapshots. Its static address and its templates stay."""
    return _machine_change(client, "DELETE", "/machines/" + quoted(machine_id))


def machine_events(client: Client, machine_id: str) -> list[MachineEvent]:
    """The events of a machine, oldest first."""
    return cast("list[MachineEvent]", client.list_all("/machine-events", {"machineId": machine_id}))


def is_available(client: Client, machine_type: str, region: str) -> bool:
    """Whether a machine type is currently available in a region. This does not reserve it."""
    path = "/machine-availability"
    answer = client.request("GET", path, {"machineType": machine_type, "region": region})
    if not isinstance(answer, dict) or not isinstance(answer.get("available"), bool):
        raise AnswerError(f"GET {path}: HTTP 200, but it does not say whether the type is available", status=200)
    return bool(answer["available"])


def list_snapshots(client: Client) -> list[Snapshot]:
    """All snapshots of the team's machines, oldest first."""
    return cast("list[Snapshot]", client.list_all("/snapshots"))


# --- Private networks


def list_networks(client: Client) -> list[PrivateNetwork]:
    """All private networks of the team, oldest first."""
    return cast("list[PrivateNetwork]", client.list_all("/private-networks"))


def create_network(client: Client, *, name: str, region: str) -> PrivateNetwork:
    """Make a private network, at once. Migrates no machines: the API would migrate all of the team's."""
    body = {"name": name, "region": region, "migrateMachines": False}
    return cast(PrivateNetwork, _made(client, "/private-networks", body).data)


def delete_network(client: Client, network_id: str) -> None:
    """Delete a private network, at once. Refused while a machine is in it."""
    client.request("DELETE", "/private-networks/" + quoted(network_id))


# --- Network drives


def list_drives(client: Client) -> list[SharedDrive]:
    """All network drives of the team, oldest first, with their passwords."""
    return cast("list[SharedDrive]", client.list_all("/shared-drives"))


def get_drive(client: Client, drive_id: str) -> SharedDrive:
    """A network drive, with its password. Raises NotFoundError."""
    return cast(SharedDrive, _object(client, "/shared-drives/" + quoted(drive_id)))


def create_drive(client: Client, *, name: str, size_gb: int, region: str, network_id: str) -> SharedDrive:
    """Make a network drive, at once. size_gb: GB; size, region and network cannot be changed later."""
    body = {"name": name, "size": size_gb, "region": region, "networkId": network_id}
    return cast(SharedDrive, _made(client, "/shared-drives", body).data)


def delete_drive(client: Client, drive_id: str) -> None:
    """Delete a network drive and its data, at once."""
    client.request("DELETE", "/shared-drives/" + quoted(drive_id))


# --- Templates


def list_os_templates(client: Client) -> list[Template]:
    """Paperspace's own templates, by name, the only order of this list."""
    return cast("list[Template]", client.list_all("/os-templates", order_by="name"))


def list_templates(client: Client) -> list[Template]:
    """The team's own templates, oldest first, without the duplicates that the API returns."""
    return cast("list[Template]", client.list_all("/custom-templates"))


def create_template(client: Client, *, name: str, machine_id: str) -> TemplateChange:
    """Make a template, with the whole disk, of a machine that is off."""
    change = _made(client, "/custom-templates", {"name": name, "machineId": machine_id})
    return TemplateChange(cast("MachineEvent | None", change.event), cast(Template, change.data))


def delete_template(client: Client, template_id: str) -> None:
    """Delete one of the team's own templates, at once."""
    client.request("DELETE", "/custom-templates/" + quoted(template_id))


# --- Static public addresses


def list_public_ips(client: Client) -> list[PublicIp]:
    """All static addresses of the team, oldest first. They have no ids."""
    return cast("list[PublicIp]", client.list_all("/public-ips", key="ip"))


def claim_public_ip(client: Client, region: str) -> PublicIp:
    """Claim a static address, which costs money until it is released."""
    return cast(PublicIp, _made(client, "/public-ips", {"region": region}, key="ip").data)


def assign_public_ip(client: Client, address: str, machine_id: str | None) -> PublicIp:
    """Assign a static address to a machine, or remove it from its machine (None)."""
    path = "/public-ips/" + quoted(address)
    return cast(PublicIp, client.change("PUT", path, {"machineId": machine_id}).data)


def release_public_ip(client: Client, address: str) -> None:
    """Release a static address for good."""
    client.request("DELETE", "/public-ips/" + quoted(address))


# --- Startup scripts


def list_startup_scripts(client: Client) -> list[StartupScript]:
    """All startup scripts of the team, oldest first, without their text."""
    return cast("list[StartupScript]", client.list_all("/startup-scripts"))


def create_startup_script(client: Client, *, name: str, script: str, run_once: bool = True) -> StartupScript:
    """Store a script with the provider, who can read it. run_once: run it at first boot, not at every boot."""
    body = {"name": name, "script": script, "isRunOnce": run_once}
    return cast(StartupScript, _made(client, "/startup-scripts", body).data)


def delete_startup_script(client: Client, script_id: str) -> None:
    """Delete a startup script, at once."""
    client.request("DELETE", "/startup-scripts/" + quoted(script_id))


def _object(client: Client, path: str) -> Mapping[str, Any]:
    answer = client.request("GET", path)
    if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
        raise AnswerError(f"GET {path}: HTTP 200, but not an object with an id", status=200)
    return answer


def _made(
    client: Client, path: str, body: Mapping[str, Any] | None, *, key: str = "id", method: str = "POST"
) -> Change:
    """Send a change whose reply must name the object: without its key, nothing can be done with it."""
    change = client.change(method, path, body)
    if not isinstance(change.data.get(key), str) or not change.data[key]:
        raise LostAnswerError(AnswerError(f"{method} {path}: HTTP 200, but the object has no {key}", status=200))
    return change


def _machine_change(client: Client, method: str, path: str, body: Mapping[str, Any] | None = None) -> MachineChange:
    change = _made(client, path, body, method=method)
    return MachineChange(cast("MachineEvent | None", change.event), cast(Machine, change.data))
