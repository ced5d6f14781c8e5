# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Paperspace API v1 operations that this collection uses, with one function for each.

Names are not unique and the API's filter by name is undocumented, so complete lists are fetched and compared here.
Every function raises what Client.request() raises. A changing one raises LostReplyError if it may have been executed
without a usable reply: the caller must then check the existing resources, and never simply repeat the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import (
    Change,
    Client,
    quote_path,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    AuthenticationError,
    InvalidReplyError,
    LostReplyError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.objects import (
    ApiMachine,
    ApiSession,
    ApiTemplate,
    MachineChange,
    MachineEvent,
    PrivateNetwork,
    PublicIp,
    SharedDrive,
    StartupScript,
    TemplateChange,
)


def get_session(client: Client) -> ApiSession:
    """Return the user and team that the key belongs to, with the team's machine limit.

    Raise AuthenticationError for a wrong key, for which this operation returns null instead of 401.
    """
    reply = client.request("GET", "/auth/session")
    if reply is None:
        raise AuthenticationError("GET /auth/session: HTTP 200, but no session", status=200)
    if not isinstance(reply, dict):
        raise InvalidReplyError("GET /auth/session: HTTP 200, but not a session", status=200)
    return cast(ApiSession, reply)


# --- Machines


def list_machines(client: Client) -> list[ApiMachine]:
    """Return all of the team's machines, oldest first, including those that are off."""
    return cast("list[ApiMachine]", client.list_all("/machines"))


def get_machine(client: Client, machine_id: str) -> ApiMachine:
    """Return the machine's current state. Only a NotFoundError confirms that the machine is deleted."""
    return cast(ApiMachine, _get_object(client, "/machines/" + quote_path(machine_id)))


def create_machine(  # noqa: PLR0913
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
    """Create a machine. disk_gb: 50, 100, 250, 500, 1000 or 2000 GB. public_ip_type: static, dynamic or none.

    Succeeds even without capacity; the machine then stays off.
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
    return _change_machine(client, "POST", "/machines", body)


def start_machine(client: Client, machine_id: str) -> MachineChange:
    """Start a machine that is off."""
    return _change_machine(client, "PATCH", f"/machines/{quote_path(machine_id)}/start")


def stop_machine(client: Client, machine_id: str) -> MachineChange:
    """Stop a running machine. It loses its dynamic public address."""
    return _change_machine(client, "PATCH", f"/machines/{quote_path(machine_id)}/stop")


def delete_machine(client: Client, machine_id: str) -> MachineChange:
    """Start deleting a machine, its disk and its snapshots. Its static address and its templates remain."""
    return _change_machine(client, "DELETE", "/machines/" + quote_path(machine_id))


def list_machine_events(client: Client, machine_id: str) -> list[MachineEvent]:
    """Return a machine's events, oldest first."""
    return cast("list[MachineEvent]", client.list_all("/machine-events", {"machineId": machine_id}))


def is_available(client: Client, machine_type: str, region: str) -> bool:
    """Return whether a machine type is currently available in a region. This does not reserve it."""
    path = "/machine-availability"
    reply = client.request("GET", path, {"machineType": machine_type, "region": region})
    if not isinstance(reply, dict) or not isinstance(reply.get("available"), bool):
        raise InvalidReplyError(f"GET {path}: HTTP 200, but without the field 'available'", status=200)
    return bool(reply["available"])


# --- Private networks


def list_networks(client: Client) -> list[PrivateNetwork]:
    """Return all of the team's private networks, oldest first."""
    return cast("list[PrivateNetwork]", client.list_all("/private-networks"))


def create_network(client: Client, *, name: str, region: str) -> PrivateNetwork:
    """Create a private network synchronously, without migrating the team's machines to it."""
    body = {"name": name, "region": region, "migrateMachines": False}
    return cast(PrivateNetwork, _change_with_id(client, "/private-networks", body).data)


def delete_network(client: Client, network_id: str) -> None:
    """Delete a private network synchronously. The request is rejected while a machine is in the network."""
    client.request("DELETE", "/private-networks/" + quote_path(network_id))


# --- Network drives


def list_drives(client: Client) -> list[SharedDrive]:
    """Return all of the team's network drives, oldest first, with their passwords."""
    return cast("list[SharedDrive]", client.list_all("/shared-drives"))


def get_drive(client: Client, drive_id: str) -> SharedDrive:
    """Return a network drive, with its password. Raise NotFoundError."""
    return cast(SharedDrive, _get_object(client, "/shared-drives/" + quote_path(drive_id)))


def create_drive(client: Client, *, name: str, size_gb: int, region: str, network_id: str) -> SharedDrive:
    """Create a network drive synchronously. size_gb: in GB; size, region and network cannot be changed later."""
    body = {"name": name, "size": size_gb, "region": region, "networkId": network_id}
    return cast(SharedDrive, _change_with_id(client, "/shared-drives", body).data)


def delete_drive(client: Client, drive_id: str) -> None:
    """Delete a network drive and its data synchronously."""
    client.request("DELETE", "/shared-drives/" + quote_path(drive_id))


# --- Templates


def list_os_templates(client: Client) -> list[ApiTemplate]:
    """Return Paperspace's own templates, by name, which is the only order that this list supports."""
    return cast("list[ApiTemplate]", client.list_all("/os-templates", order_by="name"))


def list_templates(client: Client) -> list[ApiTemplate]:
    """Return the team's own templates, oldest first, without the duplicates that the API returns."""
    return cast("list[ApiTemplate]", client.list_all("/custom-templates"))


def create_template(client: Client, *, name: str, machine_id: str) -> TemplateChange:
    """Create a template of the whole disk of a machine that is off."""
    change = _change_with_id(client, "/custom-templates", {"name": name, "machineId": machine_id})
    return TemplateChange(cast("MachineEvent | None", change.event), cast(ApiTemplate, change.data))


def delete_template(client: Client, template_id: str) -> None:
    """Delete one of the team's own templates synchronously."""
    client.request("DELETE", "/custom-templates/" + quote_path(template_id))


# --- Static public addresses


def list_public_ips(client: Client) -> list[PublicIp]:
    """Return all of the team's static addresses, oldest first. They have no ids."""
    return cast("list[PublicIp]", client.list_all("/public-ips", key="ip"))


def release_public_ip(client: Client, address: str) -> None:
    """Release a static address permanently."""
    client.request("DELETE", "/public-ips/" + quote_path(address))


# --- Startup scripts


def list_startup_scripts(client: Client) -> list[StartupScript]:
    """Return all of the team's startup scripts, oldest first, without their text."""
    return cast("list[StartupScript]", client.list_all("/startup-scripts"))


def create_startup_script(client: Client, *, name: str, script: str, run_once: bool = True) -> StartupScript:
    """Store a script at the provider, which can read it. run_once: run it at first boot rather than at every boot."""
    body = {"name": name, "script": script, "isRunOnce": run_once}
    return cast(StartupScript, _change_with_id(client, "/startup-scripts", body).data)


def delete_startup_script(client: Client, script_id: str) -> None:
    """Delete a startup script synchronously."""
    client.request("DELETE", "/startup-scripts/" + quote_path(script_id))


def _get_object(client: Client, path: str) -> Mapping[str, Any]:
    reply = client.request("GET", path)
    if not isinstance(reply, dict) or not isinstance(reply.get("id"), str):
        raise InvalidReplyError(f"GET {path}: HTTP 200, but not an object with an id", status=200)
    return reply


def _change_with_id(client: Client, path: str, body: Mapping[str, Any] | None, *, method: str = "POST") -> Change:
    """Send a change whose reply must contain the object's id, because the object is unusable without it."""
    change = client.change(method, path, body)
    if not isinstance(change.data.get("id"), str) or not change.data["id"]:
        raise LostReplyError(InvalidReplyError(f"{method} {path}: HTTP 200, but the object has no id", status=200))
    return change


def _change_machine(client: Client, method: str, path: str, body: Mapping[str, Any] | None = None) -> MachineChange:
    change = _change_with_id(client, path, body, method=method)
    return MachineChange(cast("MachineEvent | None", change.event), cast(ApiMachine, change.data))
