# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo an attempt that did not produce the whole cluster."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import AnyCloud
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import format_usd
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ClusterPlan, ResourceKind
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.create import FOUNDATION, remove_step
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.discover import (
    desired_without_machines,
    discover,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import (
    ENCLOSING_KINDS,
    plan_cluster,
)

# Seconds. A rollback also removes resources created by an interrupted command, but nothing older than this, which may
# be in use.
ROLLBACK_WINDOW = 3600.0
# Kinds of resources that are in use as long as machines exist, so they are removed after the machines.
CONTAINERS: tuple[ResourceKind, ...] = (*FOUNDATION, "placement group")
REMOVAL_ORDER: tuple[ResourceKind, ...] = (
    "script", "drive", "placement group", "network", *reversed(ENCLOSING_KINDS),
)  # fmt: skip


def roll_back(cloud: AnyCloud, started: Mapping[str, str], failures: list[str]) -> None:
    """Remove the machines created since the cluster was last complete, and stop those that were started.

    Raise ClusterError if one could not be removed; then no further offer is tried.
    """
    new_machines = {machine_id: name for name, machine_id in cloud.journal.unsettled_ids("machine").items()}
    remaining = cloud.delete_machines(new_machines) if new_machines else {}
    to_stop = {machine_id: name for machine_id, name in started.items() if machine_id not in new_machines}
    if to_stop:
        cloud.stop(to_stop)
    if remaining:
        details = "; ".join(f"{name}: {reason}" for name, reason in remaining.items())
        raise ClusterError(
            f"{cloud.cluster}: {'; '.join(failures)}. The created resources could not be removed, and are being "
            f"billed: {details}. Remove them at {cloud.console}, or with teardown.yml -e cluster={cloud.cluster}"
        )


def remove_leftovers(cloud: AnyCloud, failures: list[str]) -> None:
    """Remove all other resources created for a cluster that was never complete."""
    has_machines = bool(_current_plan(cloud)["nodes"])
    for what in REMOVAL_ORDER:
        if has_machines and what in CONTAINERS:
            continue
        for name, resource_id in cloud.journal.unsettled_ids(what).items():
            reasons = remove_step(cloud, {"action": "remove", "kind": what, "name": name, "id": resource_id})
            failures += [f"{resource} could not be removed: {reason}" for resource, reason in reasons.items()]


def _current_plan(cloud: AnyCloud) -> ClusterPlan:
    return plan_cluster(desired_without_machines(cloud, "stopped"), discover(cloud).resources, cloud.notes)


def describe_state(cloud: AnyCloud) -> str:
    """Return a sentence about the cluster's existing resources and their price."""
    current = _current_plan(cloud)
    if not current["nodes"] and current["network"] is None and not current["parts"]:
        return f"no resources of {cloud.cluster} remain, 0 USD an hour"
    names = (
        ", ".join(f"{machine['name']} ({machine['provider_state']})" for machine in current["nodes"]) or "no machine"
    )
    parts = "".join(f", {part['kind']} {part['name']} ({part['id']})" for part in current["parts"])
    return f"remaining: {names}{parts}; {format_rate(current)} an hour"


def format_rate(plan: ClusterPlan) -> str:
    """Return the hourly price of the machines that are on."""
    running = [machine for machine in [*plan["nodes"], *plan["duplicates"]] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in running]
    return "unknown" if None in rates else format_usd(sum(rate or 0.0 for rate in rates))
