# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove resources on Paperspace, and wait until the API confirms it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import LISTING_TIMEOUT, POLL_INTERVAL
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine, Step
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.context import PaperspaceContext
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    ForbiddenError,
    LostReplyError,
    NotFoundError,
    PaperspaceError,
    RequestError,
    ServerError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import (
    parse_machine,
    read_addresses,
    read_machines,
)

REMOVAL_TIMEOUT = 600.0  # seconds, like those below
RETRY_INTERVAL = 30.0
NETWORK_TIMEOUT = 120.0  # the API still refuses for a while after a network's machines have been removed
MAX_ATTEMPTS = 3


@dataclasses.dataclass
class _PendingRemoval:
    """A machine that is being removed. requested_at: None before the request. error: the API's last error."""

    name: str
    requested_at: float | None = None
    reply_lost: bool = False
    state: str = "ready"
    attempts: int = 0
    error: str = ""


def remove_machines(context: PaperspaceContext, names_by_id: Mapping[str, str]) -> dict[str, str]:
    """Remove all the machines at the same time; return the reason for each failure, by resource.

    Only a 404 confirms that a machine no longer exists.
    """
    pending = {machine_id: _PendingRemoval(name) for machine_id, name in names_by_id.items()}
    remaining: dict[str, str] = {}
    started = context.clock()
    while pending:
        for machine_id, removal in pending.items():
            if removal.requested_at is None:
                _request_removal(context, machine_id, removal)
        context.sleep(POLL_INTERVAL)
        machines = {machine["id"]: machine for machine in read_machines(context.client)}
        for machine_id, removal in list(pending.items()):
            if _is_removed(context, machine_id, removal, machines.get(machine_id)):
                context.show(f"removed machine {removal.name} ({machine_id})")
                context.journal.forget("machine", removal.name, machine_id)
            elif removal.attempts >= MAX_ATTEMPTS or context.clock() - started > REMOVAL_TIMEOUT:
                reason = removal.error or f"it still exists after {REMOVAL_TIMEOUT / 60:g} minutes"
                remaining[f"machine {removal.name} ({machine_id})"] = reason
                context.show(f"machine {removal.name} ({machine_id}) could not be removed: {reason}")
            else:
                continue
            del pending[machine_id]
    return remaining


def _request_removal(context: PaperspaceContext, machine_id: str, removal: _PendingRemoval) -> None:
    try:
        operations.delete_machine(context.client, machine_id)
        removal.requested_at, removal.reply_lost, removal.error = context.clock(), False, ""
    except NotFoundError:
        removal.requested_at = context.clock()
    except LostReplyError:
        removal.requested_at, removal.reply_lost = context.clock(), True
    except (RequestError, ForbiddenError) as error:
        # the documentation requires a machine to be off; other clients remove running ones
        removal.error, removal.requested_at = error.summary, context.clock()
        # in a transitional state, the request is repeated later and does not count as an attempt
        removal.attempts += removal.state in ("ready", "off")
        with contextlib.suppress(RequestError, ForbiddenError, NotFoundError, LostReplyError):
            operations.stop_machine(context.client, machine_id)


def _is_removed(context: PaperspaceContext, machine_id: str, removal: _PendingRemoval, machine: Machine | None) -> bool:
    waited = context.clock() - (removal.requested_at or 0.0)
    if machine is not None:
        removal.state = machine["state"]
        may_retry = machine["state"] == "off" or waited > RETRY_INTERVAL
        if (removal.error and may_retry) or (removal.reply_lost and waited > RETRY_INTERVAL):
            removal.requested_at = None
        return False
    try:
        operations.get_machine(context.client, machine_id)
    except NotFoundError:
        return True
    except ServerError:
        return False  # unknown; try again
    return False


def remove_resource(context: PaperspaceContext, step: Step) -> str:
    """Remove a network, drive, script or address; return the reason if the removal fails, otherwise ""."""
    delete: Callable[..., None] = {
        "network": operations.delete_network,
        "drive": operations.delete_drive,
        "script": operations.delete_startup_script,
        "address": operations.release_public_ip,
    }[step["kind"]]
    started = context.clock()
    while True:
        try:
            delete(context.client, step["id"])
        except NotFoundError:
            pass
        except PaperspaceError as error:
            retryable = isinstance(error, (LostReplyError, RequestError))
            if not retryable or context.clock() - started > NETWORK_TIMEOUT:
                context.show(f"{step['kind']} {step['name']} could not be removed: {error.summary}")
                return error.summary
            context.sleep(POLL_INTERVAL)
            continue
        context.show(f"removed {step['kind']} {step['name']}")
        if step["kind"] == "address":
            context.journal.forget_address(step["id"])
        else:
            context.journal.forget(step["kind"], step["name"], step["id"])
        return ""


# --- Fixed addresses


def remove_machines_and_addresses(context: PaperspaceContext, names_by_id: Mapping[str, str]) -> dict[str, str]:
    """Remove machines, then their fixed addresses, which are billed separately; return the reason for each failure."""
    fixed = [
        machine for machine in _find_machines(context, names_by_id) if machine["fixed_address"] and machine["public_ip"]
    ]
    context.journal.record_addresses({machine["public_ip"]: machine["id"] for machine in fixed})
    remaining = remove_machines(context, names_by_id)
    for ip in list(context.notes["addresses"]):
        reason = release_address(context, ip)
        if reason:
            remaining[f"address {ip}"] = reason
    return remaining


def _find_machines(context: PaperspaceContext, names_by_id: Mapping[str, str]) -> list[Machine]:
    """Find machines by their ids, including machines that are not listed yet."""
    listed = {machine["id"]: machine for machine in read_machines(context.client)} if names_by_id else {}
    machines = [listed[machine_id] for machine_id in names_by_id if machine_id in listed]
    for machine_id in names_by_id.keys() - listed.keys():
        with contextlib.suppress(NotFoundError):
            machines.append(parse_machine(operations.get_machine(context.client, machine_id)))
    return machines


def release_address(context: PaperspaceContext, ip: str) -> str:
    """Release a removed machine's fixed address; return the reason if that fails.

    An address that was reassigned to another machine is left unchanged. An unlisted one is polled for a minute.
    """
    machine_id = context.notes["addresses"].get(ip)
    if machine_id is None:
        return ""  # the address was released together with its machine
    started = context.clock()
    while True:
        if machine_id in [machine["id"] for machine in read_machines(context.client)]:
            return ""  # the machine still exists and keeps the address
        holder = {address["ip"]: address["machine"] for address in read_addresses(context.client)}.get(ip)
        if holder in ("", machine_id):
            return remove_resource(context, {"action": "remove", "kind": "address", "name": ip, "id": ip})
        if holder or context.clock() - started > LISTING_TIMEOUT:
            context.show(f"address {ip} was not released: it no longer exists, or belongs to someone else")
            context.journal.forget_address(ip)
            return ""
        context.sleep(POLL_INTERVAL)
