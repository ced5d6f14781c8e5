# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what exists, once the outcome of every request is known. Private to this collection."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Noted, Wanted
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Aws
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import (
    GONE,
    Account,
    read_account,
    read_instances,
    read_network_parts,
    state_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import own_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import ClusterRecord
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefused,
    network_name,
    own_machines,
    own_network,
    own_parts,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import AROUND

#: Seconds for which a new thing may be missing in a list; later, it was not made.
SEEN_AFTER = 60.0
LOOK_AGAIN = 5.0


class ClusterError(Exception):
    """The cluster is not in the wanted state. str() is for a person: what exists now, and what to do."""


@dataclasses.dataclass
class Work:
    """A command's context. say: shows a line to the waiting user. clock: seconds since 1970."""

    cluster: str
    aws: Aws
    record: ClusterRecord
    group_id: str = ""
    say: Callable[[str], None] = print
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    @property
    def noted(self) -> Noted:
        """What the record adds to what exists."""
        return self.record.noted()


def look(work: Work, wait: bool = True) -> Account:
    """What exists. wait: for things requested less than a minute ago that are not listed yet."""
    if wait:
        _wait_until_seen(work)
    account = read_account(work.aws)
    there = account.there
    network = own_network(work.cluster, there["networks"], work.group_id)
    things = {f"machine {one['name']}": one["id"] for one in reversed(own_machines(work.cluster, network, there))}
    things |= {f"network {network['name']}": network["id"]} if network else {}
    things |= {f"{one['what']} {one['name']}": one["id"] for one in own_parts(work.cluster, there)}
    for entry in list(work.record.content["entries"]):
        found = things.get(f"{entry['what']} {entry['name']}", "")
        if found and not entry["id"]:
            work.say(f"found {entry['what']} {entry['name']} ({found}), requested earlier without an answer")
            work.record.made(entry["what"], entry["name"], found)
    return account


def _wait_until_seen(work: Work) -> None:
    began = work.clock()
    while True:
        now = work.clock()
        recent = [
            entry
            for entry in work.record.content["entries"]
            if entry["what"] in ("machine", *AROUND)
            and now - entry["asked"][-1] < SEEN_AFTER
            and now - began < SEEN_AFTER
        ]
        if not recent:
            return
        ids, names = _listed(work, {entry["what"] for entry in recent})
        if all(entry["id"] in ids if entry["id"] else (entry["what"], entry["name"]) in names for entry in recent):
            return
        work.sleep(LOOK_AGAIN)


def _listed(work: Work, kinds: set[str]) -> tuple[set[str], set[tuple[str, str]]]:
    """Ids, and kinds with names, of the cluster's things that EC2 lists. kinds: those to list."""
    ids, names = set[str](), set[tuple[str, str]]()
    if "machine" in kinds:
        listed = read_instances(work.aws, work.cluster)
        ids |= {str(raw["InstanceId"]) for raw in listed}
        names |= {("machine", own_name(raw) or "") for raw in listed if state_of(raw) not in GONE}
    if kinds != {"machine"}:
        parts = [part for part in read_network_parts(work.aws) if part["cluster"] == work.cluster]
        ids |= {part["id"] for part in parts}
        names |= {(part["what"], part["name"]) for part in parts}
    return ids, names


def refuse_strangers(work: Work, account: Account) -> None:
    """Raise PlanRefused if the cluster's name is used by something that is not ours."""
    name = network_name(work.cluster)
    taken = [
        one for one in account.strange if one.split(" (")[0] in (f"security group {name}", f"placement group {name}")
    ]
    if taken:
        raise PlanRefused(
            f"the name {work.cluster} is taken: {', '.join(taken)} lacks the tags of our clusters, so it is "
            "somebody else's. Choose another name"
        )


def wanted_without(work: Work, stand: str) -> Wanted:
    """The wanted state without machines."""
    return {
        "cluster": work.cluster,
        "stand": "stopped" if stand == "stopped" else "absent",
        "nnodes": 0,
        "machine_type": "",
        "region": work.aws.region,
        "disk_gb": 0,
        "drive_gb": 0,
        "script": "",
        "network_id": work.group_id,
        "remove_drive": False,
    }


def in_words(text: str) -> str:
    """A line of the planner's in EC2's terms, where the cluster's network is a security group."""
    return text.replace("network muster-", "security group muster-")


def recorded(work: Work) -> str:
    """The recorded things, for a message when EC2 does not answer."""
    made = [entry for entry in work.record.content["entries"] if entry["what"] == "machine"]
    if not made:
        return f"No machine of {work.cluster} is recorded."
    words = ", ".join(f"{entry['name']} ({entry['id'] or 'requested, no answer'})" for entry in made)
    return f"Recorded, and billed: {words}."
