# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discover existing resources, once the outcome of every earlier request is known."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import DesiredCluster, JournalNotes
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import (
    ENDED_STATES,
    Ec2Account,
    instance_state,
    read_account,
    read_instances,
    read_network_parts,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import instance_node_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import ClusterJournal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefusedError,
    find_machines,
    find_network,
    find_parts,
    network_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import ENCLOSING_KINDS

#: Seconds for which a new resource may be missing from lists. If it is missing for longer, it was not created.
LISTING_TIMEOUT = 60.0
POLL_INTERVAL = 5.0


class Ec2ClusterError(Exception):
    """The cluster is not in the desired state. str() is for a person: what exists now, and what to do."""


@dataclasses.dataclass
class Ec2Context:
    """What every step of a command needs: client, journal, output, clock.

    group_id: security group, if several have the cluster's name. show: prints a line for the user. clock: seconds since
    1970.
    """

    cluster: str
    aws: AwsClient
    journal: ClusterJournal
    group_id: str = ""
    show: Callable[[str], None] = print
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    @property
    def notes(self) -> JournalNotes:
        """Return the journal in the planner's form."""
        return self.journal.notes()


def discover(context: Ec2Context, wait: bool = True) -> Ec2Account:
    """Return the account's resources. wait: for resources requested within LISTING_TIMEOUT that are not listed yet."""
    if wait:
        _wait_until_listed(context)
    account = read_account(context.aws)
    resources = account.resources
    network = find_network(context.cluster, resources["networks"], context.group_id)
    existing_ids = {
        f"machine {machine['name']}": machine["id"]
        for machine in reversed(find_machines(context.cluster, network, resources))
    }
    existing_ids |= {f"network {network['name']}": network["id"]} if network else {}
    existing_ids |= {f"{part['what']} {part['name']}": part["id"] for part in find_parts(context.cluster, resources)}
    for entry in list(context.journal.content["entries"]):
        resource_id = existing_ids.get(f"{entry['what']} {entry['name']}", "")
        if resource_id and not entry["id"]:
            context.show(f"found {entry['what']} {entry['name']} ({resource_id}), requested earlier without a reply")
            context.journal.record_created(entry["what"], entry["name"], resource_id)
    return account


def _wait_until_listed(context: Ec2Context) -> None:
    began = context.clock()
    while True:
        now = context.clock()
        recent = [
            entry
            for entry in context.journal.content["entries"]
            if entry["what"] in ("machine", *ENCLOSING_KINDS)
            and now - entry["asked"][-1] < LISTING_TIMEOUT
            and now - began < LISTING_TIMEOUT
        ]
        if not recent:
            return
        ids, names = _list_resources(context, {entry["what"] for entry in recent})
        if all(entry["id"] in ids if entry["id"] else (entry["what"], entry["name"]) in names for entry in recent):
            return
        context.sleep(POLL_INTERVAL)


def _list_resources(context: Ec2Context, kinds: set[str]) -> tuple[set[str], set[tuple[str, str]]]:
    """Return ids, and kinds with names, of the cluster's resources that EC2 lists. kinds: which to list."""
    ids, names = set[str](), set[tuple[str, str]]()
    if "machine" in kinds:
        listed = read_instances(context.aws, context.cluster)
        ids |= {str(raw["InstanceId"]) for raw in listed}
        names |= {
            ("machine", instance_node_name(raw) or "") for raw in listed if instance_state(raw) not in ENDED_STATES
        }
    if kinds != {"machine"}:
        parts = [part for part in read_network_parts(context.aws) if part["cluster"] == context.cluster]
        ids |= {part["id"] for part in parts}
        names |= {(part["what"], part["name"]) for part in parts}
    return ids, names


def refuse_foreign_name(context: Ec2Context, account: Ec2Account) -> None:
    """Raise PlanRefusedError if a foreign resource has the cluster's name."""
    name = network_name(context.cluster)
    conflicts = [
        group
        for group in account.foreign_groups
        if group.split(" (")[0] in (f"security group {name}", f"placement group {name}")
    ]
    if conflicts:
        raise PlanRefusedError(
            f"the name {context.cluster} is taken: {', '.join(conflicts)} exists without the tags of a cluster, so "
            "it belongs to someone else. Choose another name"
        )


def desired_without_machines(context: Ec2Context, state: str) -> DesiredCluster:
    """Return the desired state `stopped` or `absent`."""
    return {
        "cluster": context.cluster,
        "state": "stopped" if state == "stopped" else "absent",
        "nnodes": 0,
        "machine_type": "",
        "region": context.aws.region,
        "disk_gb": 0,
        "drive_gb": 0,
        "script": "",
        "network_id": context.group_id,
        "remove_drive": False,
    }


def to_ec2_terms(text: str) -> str:
    """Return one of the planner's lines in EC2's terms, where the cluster's network is a security group."""
    return text.replace("network muster-", "security group muster-")


def format_recorded(context: Ec2Context) -> str:
    """Return a sentence about the recorded machines, for a message when EC2 does not reply."""
    machines = [entry for entry in context.journal.content["entries"] if entry["what"] == "machine"]
    if not machines:
        return f"No machine of {context.cluster} is recorded."
    names = ", ".join(f"{entry['name']} ({entry['id'] or 'requested, no reply'})" for entry in machines)
    return f"Recorded and billed: {names}."
