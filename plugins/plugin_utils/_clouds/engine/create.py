# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create resources by following the steps of a plan, without creating duplicates when a reply is lost."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import (
    AnyCloud,
    CloudRequest,
    Creation,
    Offer,
    OfferOutcome,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ResourceKind, Step
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.discover import (
    discover,
    find_resource_id,
    to_cloud_terms,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import ENCLOSING_KINDS

# Created first, and configured before all other resources.
FOUNDATION: tuple[ResourceKind, ...] = (*ENCLOSING_KINDS, "network")


@dataclasses.dataclass
class CreationProgress:
    """The steps taken so far. ids: by "kind name". machines, started: names by id."""

    ids: dict[str, str]
    machines: dict[str, str]
    started: dict[str, str] = dataclasses.field(default_factory=dict)
    requesting: Sequence[str] = ()  # names of the resources that are currently being requested


def create_resources(cloud: AnyCloud, creation: Creation[Any, Any]) -> dict[str, str]:
    """Create resources of one kind, and return their ids by name.

    If the reply is lost, search for them; if any is not found within a minute, send the request once more. Raise
    CloudError if a request is refused, or if the second reply is lost and any is still not found.
    """
    what, lost = creation.what, False
    while True:
        for name in creation.names:
            cloud.journal.record_request(what, name, cloud.clock())
        try:
            ids = cloud.create(creation)
        except CloudError as error:
            if error.reply_lost:
                lost = True
                resources = discover(cloud).resources
                ids = {name: find_resource_id(cloud, resources, what, name) for name in creation.names}
                if all(ids.values()):
                    return ids
                if any(f"{what} {name}" in cloud.notes["repeated"] for name in creation.names):
                    raise (error.cause or error) from None
                continue
            if error.refused and not lost:  # otherwise an earlier request may have succeeded
                for name in creation.names:
                    cloud.journal.forget(what, name)
            raise
        for name, resource_id in ids.items():
            cloud.journal.record_created(what, name, resource_id)
        created = ", ".join(f"{what} {name} ({resource_id})" for name, resource_id in ids.items())
        cloud.show(to_cloud_terms(cloud, f"created {created}"))
        cloud.wait_until_listed(what, ids)
        return ids


def execute_offer(cloud: AnyCloud, request: CloudRequest, offer: Offer) -> tuple[CreationProgress, OfferOutcome]:
    """Execute the steps of an offer in order, and wait until its machines are ready."""
    plan = offer.plan
    progress = CreationProgress(
        {f"{part['kind']} {part['name']}": part["id"] for part in plan["parts"]},
        {machine["id"]: machine["name"] for machine in plan["nodes"]},
    )
    if plan["network"]:
        progress.ids[f"network {plan['network']['name']}"] = plan["network"]["id"]
    ready = [machine["id"] for machine in plan["nodes"] if machine["state"] == "ready"]
    try:
        _execute_steps(cloud, request, offer, progress)
    except CloudError as error:
        if error.scope == "request":
            raise
        failures = {name: f"was rejected: {error}" for name in progress.requesting}
        return progress, OfferOutcome(0, request.nnodes, failures, error)
    pending = {machine_id: name for machine_id, name in progress.machines.items() if machine_id not in ready}
    failures = cloud.wait_until_ready(pending) if pending else {}
    if failures:
        failures = cloud.wait_for_capacity(request, progress.machines, failures)
    return progress, OfferOutcome(len(progress.machines) - len(failures), request.nnodes, failures, None)


def _execute_steps(cloud: AnyCloud, request: CloudRequest, offer: Offer, progress: CreationProgress) -> None:
    steps = offer.plan["steps"]
    foundation = [step for step in steps if step["action"] == "make" and step["kind"] in FOUNDATION]
    machine_names = [step["name"] for step in steps if (step["action"], step["kind"]) == ("make", "machine")]
    for step in foundation:
        _create_step(cloud, request, offer, progress, [step])
    progress.requesting = machine_names
    cloud.configure(Creation("machine", machine_names, request, offer, progress.ids))
    remaining = [step for step in steps if step not in foundation]
    for action, group in itertools.groupby(remaining, key=lambda step: step["action"]):
        if action == "make":
            for batch in _batches(cloud, list(group)):
                _create_step(cloud, request, offer, progress, batch)
        elif action == "start":
            progress.started = {step["id"]: step["name"] for step in group}
            progress.requesting = list(progress.started.values())
            cloud.start(progress.started)
        else:
            for step in group:
                remove_step(cloud, step)


def _batches(cloud: AnyCloud, steps: Sequence[Step]) -> list[list[Step]]:
    """Group the steps that can be combined in a single request."""
    machines = [step for step in steps if step["kind"] == "machine"]
    others = [[step] for step in steps if step["kind"] != "machine"]
    if cloud.batch:
        return [*others, machines] if machines else others
    return [*others, *([step] for step in machines)]


def _create_step(
    cloud: AnyCloud, request: CloudRequest, offer: Offer, progress: CreationProgress, steps: Sequence[Step]
) -> None:
    what = steps[0]["kind"]
    progress.requesting = [step["name"] for step in steps]
    ids = create_resources(cloud, Creation(what, progress.requesting, request, offer, progress.ids))
    for name, resource_id in ids.items():
        progress.ids[f"{what} {name}"] = resource_id
        if what == "machine":
            progress.machines[resource_id] = name


def remove_step(cloud: AnyCloud, step: Step) -> dict[str, str]:
    """Remove one resource; if that fails, return the reason, keyed by resource."""
    if step["kind"] == "machine":
        return cloud.delete_machines({step["id"]: step["name"]})
    reason = cloud.delete(step)
    return {f"{step['kind']} {step['name']} ({step['id']})": reason} if reason else {}
