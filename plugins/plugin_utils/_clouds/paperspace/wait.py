# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for machines on Paperspace, with one list request for all.

The API has no failed state: without capacity, a machine is created but stays off. Only its state and its events
together show what went wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import LISTING_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import FINAL_EVENT_STATES
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.context import PaperspaceContext
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostReplyError,
    NotFoundError,
    RequestError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_machines
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

# Seconds between listings: the API publishes no rate limit, and machines take minutes.
STATE_INTERVAL = 10.0
# A machine that is still off this many seconds after a start request did not get any capacity.
OFF_GRACE_PERIOD = 60.0
# Paperspace's documentation says to contact support if it takes more than ten minutes.
SLOW_AFTER = 600.0
STUCK_AFTER = 1200.0
STOP_TIMEOUT = 600.0
CAPACITY_INTERVAL = 60.0  # between attempts to start all machines while waiting for capacity to become available
NO_CAPACITY = "got no capacity"


@dataclasses.dataclass
class _PendingMachine:
    """A machine to wait for. since: when it entered its current state."""

    name: str
    state: str = ""
    since: float = 0.0
    listed: bool = False
    restarted: bool = False


def wait_until_ready(
    context: PaperspaceContext, names_by_id: Mapping[str, str], restart: bool = True
) -> dict[str, str]:
    """Wait for machines; return why some will not become ready, by name.

    restart: whether to start a machine once more if it stays off. Raise ClusterError if one is stuck.
    """
    started = context.clock()
    pending = {
        machine_id: _PendingMachine(name, since=started, restarted=not restart)
        for machine_id, name in names_by_id.items()
    }
    failures: dict[str, str] = {}
    while True:
        machines = {machine["id"]: machine for machine in read_machines(context.client)}
        for machine_id, watched in list(pending.items()):
            machine = machines.get(machine_id)
            _show_state_change(context, watched, machine)
            failure = _failure_reason(context, machine_id, watched, machine)
            if failure:
                failures[watched.name] = failure
                context.show(f"{watched.name}: {failure}")
            if failure or (machine and machine["state"] == "ready"):
                del pending[machine_id]
        if not pending:
            return failures
        context.sleep(STATE_INTERVAL)


def _show_state_change(context: PaperspaceContext, pending: _PendingMachine, machine: Machine | None) -> None:
    if machine is None or machine["provider_state"] == pending.state:
        return
    pending.state, pending.since, pending.listed = machine["provider_state"], context.clock(), True
    address = f", {machine['public_ip']}" if machine["public_ip"] and machine["state"] == "ready" else ""
    context.show(f"{pending.name}: {machine['provider_state']}{address}")


def _failure_reason(
    context: PaperspaceContext, machine_id: str, pending: _PendingMachine, machine: Machine | None
) -> str:
    """Return why a machine will not become ready, or "" if it still may. Raise ClusterError if it is stuck."""
    waited = context.clock() - pending.since
    if machine is None:
        return _missing_reason(context, machine_id) if pending.listed or waited > LISTING_TIMEOUT else ""
    if machine["state"] == "off" and waited >= OFF_GRACE_PERIOD:
        events = operations.list_machine_events(context.client, machine_id)
        failure = latest_failure(events)
        if failure or (waited < STUCK_AFTER and any(event.get("state") not in FINAL_EVENT_STATES for event in events)):
            return failure
        if pending.restarted:
            return f"{NO_CAPACITY} in {machine['region']} (off after it was started)"
        pending.restarted, pending.since = True, context.clock()
        with contextlib.suppress(RequestError, LostReplyError):  # already starting; its state will show that
            operations.start_machine(context.client, machine_id)
    if machine["state"] in ("coming", "going") and waited >= SLOW_AFTER:
        failure = latest_failure(operations.list_machine_events(context.client, machine_id))
        if not failure and waited >= STUCK_AFTER:
            raise ClusterError(
                f"{pending.name} ({machine_id}) has been {machine['provider_state']} for "
                f"{format_duration(waited)}, and is being billed. Open a support ticket at "
                "https://console.paperspace.com, and run the command again to continue"
            )
        return failure
    return ""


def _missing_reason(context: PaperspaceContext, machine_id: str) -> str:
    try:
        operations.get_machine(context.client, machine_id)
    except NotFoundError:
        return "was removed by someone else in the meantime"
    return ""  # an outdated list


def latest_failure(events: Collection[Mapping[str, Any]]) -> str:
    """Return the error of the newest event if that event failed, otherwise "".

    An event with the state "error", no text and a finishing time succeeded nonetheless.
    """
    newest = max(events, key=lambda event: str(event.get("dtCreated") or ""), default=None)
    if newest is None or newest.get("state") not in ("error", "cancelled"):
        return ""
    name = single_line(newest.get("name") or "event", 40)
    if newest["state"] == "cancelled":
        return f"{name} was canceled by Paperspace"
    if newest.get("error"):
        return f"{name} failed: {single_line(newest['error'])}"
    return "" if newest.get("dtFinished") else f"{name} failed without a reason"


def stop_and_wait(context: PaperspaceContext, names_by_id: Mapping[str, str]) -> list[str]:
    """Stop machines and wait until they are off; return the names of those that are not."""
    pending, requested_ids = dict(names_by_id), set[str]()
    started = context.clock()
    while True:
        machines = {machine["id"]: machine for machine in read_machines(context.client)}
        for machine_id, name in list(pending.items()):
            machine = machines.get(machine_id)
            if machine is None or machine["state"] == "off":
                context.show(f"{name}: {'off' if machine else 'removed'}")
                del pending[machine_id]
            elif machine_id not in requested_ids and machine["provider_state"] in ("ready", "serviceready"):
                try:
                    operations.stop_machine(context.client, machine_id)
                    requested_ids.add(machine_id)
                except (RequestError, LostReplyError) as error:
                    context.show(f"{name}: {error.summary}")  # retry until the timeout
        if not pending or context.clock() - started > STOP_TIMEOUT:
            return list(pending.values())
        context.sleep(STATE_INTERVAL)


def start_machine(context: PaperspaceContext, machine_id: str, name: str) -> None:
    """Request a machine start. The machine's state will show whether it succeeds."""
    context.show(f"starting {name}")
    # wait_until_ready() restarts a machine that was still stopping; one that is already starting is fine
    with contextlib.suppress(RequestError, LostReplyError):
        operations.start_machine(context.client, machine_id)


def wait_for_capacity(
    context: PaperspaceContext, awaited: Mapping[str, str], minutes: float, failures: dict[str, str]
) -> dict[str, str]:
    """Try to start all machines once a minute; between tries they are off, and only their disks are billed."""
    deadline = context.clock() + 60 * minutes
    while (
        failures and context.clock() < deadline and all(reason.startswith(NO_CAPACITY) for reason in failures.values())
    ):
        context.show(f"waiting for capacity with all machines off: {format_duration(deadline - context.clock())} left")
        stop_and_wait(context, awaited)
        context.sleep(CAPACITY_INTERVAL)
        for machine_id, name in awaited.items():
            start_machine(context, machine_id, name)
        failures = wait_until_ready(context, awaited, restart=False)
    return failures
