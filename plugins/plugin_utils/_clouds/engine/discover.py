# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List the resources, and adopt those that were requested without receiving a reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import (
    LISTING_TIMEOUT,
    POLL_INTERVAL,
    AnyCloud,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import AccountResources, DesiredCluster
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import JournalEntry
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    find_drives,
    find_machines,
    find_network,
    find_parts,
)


def discover(cloud: AnyCloud, wait: bool = True) -> Any:
    """Return the account once the outcome of every request is known, including requests by an earlier command.

    wait: for resources requested less than a minute ago that are not listed yet.
    """
    began = cloud.clock()
    while True:
        account = cloud.read_account()
        now = cloud.clock()
        unlisted = [
            entry
            for entry in list(cloud.journal.content["entries"])
            if not _adopt(cloud, account.resources, entry)
            and now - entry["requested_at"][-1] < LISTING_TIMEOUT
            and now - began < LISTING_TIMEOUT
        ]
        if not unlisted or not wait:
            return account
        cloud.sleep(POLL_INTERVAL)


def _adopt(cloud: AnyCloud, resources: AccountResources, entry: JournalEntry) -> bool:
    """Record the id of a requested resource; return whether it is listed or does not need to be waited for."""
    if entry["kind"] == "template":  # listed only once it is complete, which may take an hour
        return True
    resource_id = find_resource_id(cloud, resources, entry["kind"], entry["name"])
    if resource_id and not entry["id"]:
        cloud.show(
            to_cloud_terms(
                cloud,
                (
                    f"found {entry['kind']} {entry['name']} ({resource_id}), which was requested earlier; the "
                    "reply was lost"
                ),
            )
        )
        cloud.journal.record_created(entry["kind"], entry["name"], resource_id)
    return bool(resource_id) or entry["id"] in resources.get("ended", [])


def find_resource_id(cloud: AnyCloud, resources: AccountResources, what: str, name: str) -> str:
    """Return the id of a cluster resource, or "" if it does not exist."""
    network = find_network(cloud.cluster, resources["networks"], cloud.network_id)
    candidates: list[Mapping[str, Any]] = {
        "network": [network] if network else [],
        "machine": find_machines(cloud.cluster, network, resources),
        "drive": find_drives(cloud.cluster, network, resources),
        "script": resources["scripts"],
    }.get(what) or [part for part in find_parts(cloud.cluster, resources) if part["kind"] == what]  # type: ignore[assignment]
    return next((str(candidate["id"]) for candidate in candidates if candidate["name"] == name), "")


def desired_without_machines(cloud: AnyCloud, state: str, remove_drive: bool = False) -> DesiredCluster:
    """Return the desired cluster for the state `stopped` or `absent`."""
    return {
        "cluster": cloud.cluster,
        "state": "stopped" if state == "stopped" else "absent",
        "nnodes": 0,
        "machine_type": "",
        "region": "",
        "disk_gb": 0,
        "drive_gb": 0,
        "script": "",
        "network_id": cloud.network_id,
        "remove_drive": remove_drive,
    }


def to_cloud_terms(cloud: AnyCloud, text: str) -> str:
    """Return a line from the engine with the provider's term for a cluster's network."""
    return text.replace("network muster-", f"{cloud.network_term} muster-")


def format_recorded(cloud: AnyCloud) -> str:
    """Format the recorded machines for a message shown when the provider does not reply."""
    entries = [entry for entry in cloud.journal.content["entries"] if entry["kind"] == "machine"]
    if not entries:
        return f"No machine of {cloud.cluster} is recorded in the journal."
    details = ", ".join(f"{entry['name']} ({entry['id'] or 'requested, no reply'})" for entry in entries)
    return f"Recorded in the journal and being billed: {details}."
