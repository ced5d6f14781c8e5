# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for machines at Paperspace, with one list request for all. Private to this collection.

The API has no failed state: without capacity, a machine is made but stays off. Only its state and its events together
show what went wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import EVENT_ENDED
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import (
    SEEN_AFTER,
    ClusterError,
    Work,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostAnswerError,
    NotFoundError,
    RequestError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_machines
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

#: Seconds between listings: the API publishes no rate limit, and machines need minutes.
INTERVAL = 10.0
#: A machine still off this many seconds after a start request got no capacity.
OFF_FOR = 60.0
#: Paperspace's documentation says to contact support after more than ten minutes.
SLOW_AFTER = 600.0
STUCK_AFTER = 1200.0
STOPPED_WITHIN = 600.0
NO_CAPACITY = "found no capacity"


@dataclasses.dataclass
class _Watched:
    """One machine to wait for. since: when its current state began."""

    name: str
    said: str = ""
    since: float = 0.0
    seen: bool = False
    restarted: bool = False


def wait_until_ready(work: Work, wanted: Mapping[str, str], again: bool = True) -> dict[str, str]:
    """Wait for machines, given as names by id; return why some will not be ready, by name.

    again: whether to start a machine once more if it stays off. Raises ClusterError if one is stuck half-way.
    """
    began = work.clock()
    pending = {machine_id: _Watched(name, since=began, restarted=not again) for machine_id, name in wanted.items()}
    troubles: dict[str, str] = {}
    while True:
        there = {machine["id"]: machine for machine in read_machines(work.client)}
        for machine_id, watched in list(pending.items()):
            machine = there.get(machine_id)
            _note_state(work, watched, machine)
            trouble = _trouble(work, machine_id, watched, machine)
            if trouble:
                troubles[watched.name] = trouble
                work.say(f"{watched.name}: {trouble}")
            if trouble or (machine and machine["state"] == "ready"):
                del pending[machine_id]
        if not pending:
            return troubles
        work.sleep(INTERVAL)


def _note_state(work: Work, watched: _Watched, machine: Machine | None) -> None:
    if machine is None or machine["said"] == watched.said:
        return
    watched.said, watched.since, watched.seen = machine["said"], work.clock(), True
    address = f", {machine['public_ip']}" if machine["public_ip"] and machine["state"] == "ready" else ""
    work.say(f"{watched.name}: {machine['said']}{address}")


def _trouble(work: Work, machine_id: str, watched: _Watched, machine: Machine | None) -> str:
    """Why a machine will not be ready, "" while it may be. Raises ClusterError if it is stuck."""
    waited = work.clock() - watched.since
    if machine is None:
        return _missing(work, machine_id) if watched.seen or waited > SEEN_AFTER else ""
    if machine["state"] == "off" and waited >= OFF_FOR:
        events = operations.machine_events(work.client, machine_id)
        failed = failure_of(events)
        if failed or (waited < STUCK_AFTER and any(event.get("state") not in EVENT_ENDED for event in events)):
            return failed
        if watched.restarted:
            return f"{NO_CAPACITY} in {machine['region']} (off after its start)"
        watched.restarted, watched.since = True, work.clock()
        with contextlib.suppress(RequestError, LostAnswerError):  # it is already starting; its state will show that
            operations.start_machine(work.client, machine_id)
    if machine["state"] in ("coming", "going") and waited >= SLOW_AFTER:
        failed = failure_of(operations.machine_events(work.client, machine_id))
        if not failed and waited >= STUCK_AFTER:
            raise ClusterError(
                f"{watched.name} ({machine_id}) has been {machine['said']} for {duration(waited)}, and is billed. In "
                "this case Paperspace wants a support ticket (https://console.paperspace.com). Run this again to go on"
            )
        return failed
    return ""


def _missing(work: Work, machine_id: str) -> str:
    try:
        operations.get_machine(work.client, machine_id)
    except NotFoundError:
        return "was removed by somebody else meanwhile"
    return ""  # an outdated list


def failure_of(events: Collection[Mapping[str, Any]]) -> str:
    """The newest event's error if it failed, else "".

    An event with the state "error", no text and a finishing time has succeeded anyway.
    """
    newest = max(events, key=lambda event: str(event.get("dtCreated") or ""), default=None)
    if newest is None or newest.get("state") not in ("error", "cancelled"):
        return ""
    name = one_line(newest.get("name") or "event", 40)
    if newest["state"] == "cancelled":
        return f"{name} was cancelled by Paperspace"
    if newest.get("error"):
        return f"{name} failed: {one_line(newest['error'])}"
    return "" if newest.get("dtFinished") else f"{name} failed without a reason"


def stop_and_wait(work: Work, wanted: Mapping[str, str]) -> list[str]:
    """Stop machines, given as names by id, and wait until they are off; return the names of those that are not."""
    pending, asked = dict(wanted), set[str]()
    began = work.clock()
    while True:
        there = {machine["id"]: machine for machine in read_machines(work.client)}
        for machine_id, name in list(pending.items()):
            machine = there.get(machine_id)
            if machine is None or machine["state"] == "off":
                work.say(f"{name}: {'off' if machine else 'gone'}")
                del pending[machine_id]
            elif machine_id not in asked and machine["said"] in ("ready", "serviceready"):
                try:
                    operations.stop_machine(work.client, machine_id)
                    asked.add(machine_id)
                except (RequestError, LostAnswerError) as error:
                    work.say(f"{name}: {error.what}")  # retry until the time is over
        if not pending or work.clock() - began > STOPPED_WITHIN:
            return list(pending.values())
        work.sleep(INTERVAL)
