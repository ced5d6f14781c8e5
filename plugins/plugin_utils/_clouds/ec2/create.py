# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make and remove things at EC2, with retries that take effect only once. Private to this collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import (
    LOOK_AGAIN,
    SEEN_AFTER,
    ClusterError,
    Work,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import placement_of
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.remove import GONE_WITHIN
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import (
    Launch,
    launch_request,
    rule_among,
    rule_changes,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import (
    GONE,
    network_of,
    read_instances,
    state_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import own_name, tags_for, tags_of
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

#: Seconds between listings while machines start or end.
INTERVAL = 5.0
STUCK_AFTER = 900.0
STOPPED_WITHIN = 600.0


# --- Groups


def make_group(work: Work, vpc: str) -> str:
    """Make the security group and return its id. Names are unique in a VPC."""
    name = network_name(work.cluster)
    tags = [{"ResourceType": "security-group", "Tags": tags_for(work.cluster)}]
    work.record.intend("network", name, work.clock())
    try:
        group = str(
            work.aws.ec2(
                "create_security_group",
                GroupName=name,
                Description=f"Nodes of the cluster {work.cluster}",
                VpcId=vpc,
                TagSpecifications=tags,
            )["GroupId"]
        )
    except Ec2Error as error:
        if error.code != "InvalidGroup.Duplicate":
            raise
        group = _own_group(work, name, vpc)  # the answer to an earlier request was lost
    work.record.made("network", name, group)
    work.say(f"made security group {name} ({group})")
    return group


def _own_group(work: Work, name: str, vpc: str) -> str:
    filters = [{"Name": "group-name", "Values": [name]}, {"Name": "vpc-id", "Values": [vpc]}]
    for raw in work.aws.pages("describe_security_groups", "SecurityGroups", Filters=filters):
        if network_of(work.aws.region, raw):
            return str(raw["GroupId"])
    raise ClusterError(f"somebody else has meanwhile made a security group {name} in {vpc}. Choose another name")


def set_rules(work: Work, group: str, there: Sequence[Mapping[str, Any]], ssh_from: Sequence[str]) -> bool:
    """Open the group for traffic among its machines, and for SSH from here; return whether anything changed."""
    missing, stale = rule_changes(group, there, ssh_from)
    if missing:
        try:
            work.aws.ec2("authorize_security_group_ingress", GroupId=group, IpPermissions=missing)
        except Ec2Error as error:
            if error.code != "InvalidPermission.Duplicate":
                raise
    if stale:
        try:
            work.aws.ec2("revoke_security_group_ingress", GroupId=group, IpPermissions=stale)
        except Ec2Error as error:
            if error.code != "InvalidPermission.NotFound":
                raise
    if missing or stale:
        work.say(f"security group {group}: open between the nodes, and to SSH from {', '.join(ssh_from) or 'nowhere'}")
    return bool(missing or stale)


def open_out(work: Work, group: str, there: Sequence[Mapping[str, Any]]) -> None:
    """Let the machines of the group reach each other by EFA."""
    missing = rule_among(group, there)
    if missing:
        try:
            work.aws.ec2("authorize_security_group_egress", GroupId=group, IpPermissions=missing)
        except Ec2Error as error:
            if error.code != "InvalidPermission.Duplicate":
                raise


def make_placement(work: Work) -> None:
    """Make the placement group. Names are unique in a region."""
    name = network_name(work.cluster)
    tags = [{"ResourceType": "placement-group", "Tags": tags_for(work.cluster)}]
    work.record.intend("placement group", name, work.clock())
    try:
        work.aws.ec2("create_placement_group", GroupName=name, Strategy="cluster", TagSpecifications=tags)
    except Ec2Error as error:
        if error.code != "InvalidPlacementGroup.Duplicate":
            raise
    filters = [{"Name": "group-name", "Values": [name]}]
    found = [
        placement_of(raw) for raw in work.aws.pages("describe_placement_groups", "PlacementGroups", Filters=filters)
    ]
    own = [one for one in found if one]
    if found and not own:
        raise ClusterError(f"somebody else has meanwhile made a placement group {name}. Choose another name")
    work.record.made("placement group", name, own[0]["id"] if own else name)
    work.say(f"made placement group {name}")


# --- Machines


def launch(work: Work, request: Launch, names: Sequence[str]) -> dict[str, str]:
    """Make a set of machines and return their ids with their names. Raises Ec2Error with nothing made, ClusterError."""
    try:
        made = work.aws.ec2("run_instances", **launch_request(request))["Instances"]
    except Ec2Error as error:
        if error.code == "IdempotentParameterMismatch":
            return _adopt(work, names)  # it was already carried out, with an earlier price or image
        if not error.passing:
            for name in names:
                work.record.forget("machine", name)
        raise
    ids = {}
    for raw in made:
        own = own_name(raw)
        if own:
            ids[str(raw["InstanceId"])] = own
            work.record.made("machine", own, str(raw["InstanceId"]))
    work.say(f"made {', '.join(f'machine {name} ({one})' for one, name in ids.items())}")
    return ids


def _adopt(work: Work, names: Sequence[str]) -> dict[str, str]:
    began = work.clock()
    while True:
        alive = {
            str(raw["InstanceId"]): name
            for raw in read_instances(work.aws, work.cluster)
            if state_of(raw) not in GONE and (name := own_name(raw)) in names and name
        }
        if set(alive.values()) >= set(names):
            for one, name in alive.items():
                work.record.made("machine", name, one)
            return alive
        if work.clock() - began > SEEN_AFTER:
            raise ClusterError(
                f"{', '.join(names)} of {work.cluster} were requested earlier, but EC2 does not list them. Look at "
                "https://console.aws.amazon.com/ec2, wait a minute, and run this again"
            )
        work.sleep(LOOK_AGAIN)


def wait_until_running(work: Work, ids: Mapping[str, str]) -> dict[str, str]:
    """Wait for machines, given as names by id; return why some will not run, by name.

    Raises ClusterError if one is stuck half-way.
    """
    began, said, pending, troubles = work.clock(), dict.fromkeys(ids, ""), dict(ids), dict[str, str]()
    while pending:
        there = {str(raw["InstanceId"]): raw for raw in read_instances(work.aws, work.cluster)}
        waited = work.clock() - began
        for one, name in list(pending.items()):
            raw = there.get(one)
            state = state_of(raw) if raw else ""
            if raw and state != said[one]:
                said[one] = state
                address = one_line(raw.get("PublicIpAddress") or "", 45) if state == "running" else ""
                work.say(f"{name}: {state}{f', {address}' if address else ''}")
            if raw and state in (*GONE, "stopped", "stopping"):
                reason = one_line((raw.get("StateReason") or {}).get("Message") or "no reason given")
                troubles[name] = f"is {state}: {reason}"
            elif raw is None and waited > SEEN_AFTER:
                troubles[name] = "was made, but EC2 does not list it"
            if state == "running" or name in troubles:
                del pending[one]
        if pending:
            if waited > STUCK_AFTER:
                raise ClusterError(
                    f"{', '.join(pending.values())} of {work.cluster} are not running after {duration(waited)}, and "
                    "are billed. Look at https://console.aws.amazon.com/ec2, and run this again to continue"
                )
            work.sleep(INTERVAL)
    return troubles


def start(work: Work, ids: Mapping[str, str]) -> None:
    """Start machines that are off, or about to be. Raises Ec2Error."""
    began = work.clock()
    work.say(f"starting {', '.join(ids.values())}")
    while True:
        try:
            work.aws.ec2("start_instances", InstanceIds=sorted(ids))
            return
        except Ec2Error as error:
            if error.code != "IncorrectInstanceState" or work.clock() - began > STOPPED_WITHIN:
                raise
        work.sleep(INTERVAL)


def name_machines(work: Work, machines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Set each machine's name tag, which the console shows. Nothing here reads it."""
    for machine_id, raw in machines:
        name = own_name(raw)
        if name and tags_of(raw).get("Name") != name:
            work.aws.ec2("create_tags", Resources=[machine_id], Tags=[{"Key": "Name", "Value": name}])


def terminate(work: Work, ids: Mapping[str, str]) -> dict[str, str]:
    """Remove machines and wait until they are gone; return why some still exist, by name."""
    if not ids:
        return {}
    refused: dict[str, str] = {}
    try:
        _terminate(work, list(ids))
    except Ec2Error as error:
        if error.passing:
            raise
        there = {str(raw["InstanceId"]): state_of(raw) for raw in read_instances(work.aws, work.cluster)}
        for one, name in ids.items():  # a protected or already removed machine makes a common request fail
            if there.get(one, "terminated") in GONE:
                continue
            try:
                _terminate(work, [one])
            except Ec2Error as alone:
                refused[name] = str(alone)
                work.say(f"{name} could not be removed: {alone}")
    pending = {one: name for one, name in ids.items() if name not in refused}
    began = work.clock()
    while pending:
        there = {str(raw["InstanceId"]): state_of(raw) for raw in read_instances(work.aws, work.cluster)}
        for one, name in list(pending.items()):
            if there.get(one, "terminated") == "terminated":
                work.say(f"machine {name} is gone")
                work.record.forget("machine", name, one)
                del pending[one]
        if pending and work.clock() - began > GONE_WITHIN:
            return {
                **refused,
                **{name: f"has been {there[one]} for {duration(GONE_WITHIN)}" for one, name in pending.items()},
            }
        if pending:
            work.sleep(INTERVAL)
    return refused


def _terminate(work: Work, ids: list[str]) -> None:
    work.aws.ec2("terminate_instances", InstanceIds=ids)


def stop_machines(work: Work, ids: Mapping[str, str]) -> list[str]:
    """Stop machines and wait until they are off; return the names of those that are not. Raises Ec2Error."""
    began, asked = work.clock(), False
    while ids:
        if not asked:
            try:
                work.aws.ec2("stop_instances", InstanceIds=sorted(ids))
                asked = True
            except Ec2Error as error:
                if error.code != "IncorrectInstanceState":  # it is just starting
                    raise
        there = {str(raw["InstanceId"]): state_of(raw) for raw in read_instances(work.aws, work.cluster)}
        on = [name for one, name in ids.items() if there.get(one, "terminated") not in ("stopped", "terminated")]
        if not on or work.clock() - began > STOPPED_WITHIN:
            return on
        work.sleep(INTERVAL)
    return []
