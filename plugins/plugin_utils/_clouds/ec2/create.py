# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create, start, stop and terminate EC2 resources. A retried request takes effect only once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import LISTING_TIMEOUT, POLL_INTERVAL
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.context import Ec2Context
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import parse_placement_group
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.remove import REMOVAL_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import (
    LaunchRequest,
    build_launch_request,
    diff_rules,
    missing_node_rule,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import (
    ENDED_STATES,
    instance_state,
    parse_network,
    read_instances,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import (
    NODE_TAG,
    build_tags,
    instance_node_name,
    parse_cluster,
    parse_tags,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

# Seconds between listings while machines start or end.
STATE_INTERVAL = 5.0
START_TIMEOUT = 900.0
STOP_TIMEOUT = 600.0


# --- Groups


def create_security_group(context: Ec2Context, vpc: str) -> str:
    """Create the security group and return its id. Names are unique in a VPC."""
    name = network_name(context.cluster)
    tags = [{"ResourceType": "security-group", "Tags": build_tags(context.cluster)}]
    try:
        return str(
            context.client.ec2(
                "create_security_group",
                GroupName=name,
                Description=f"Nodes of the cluster {context.cluster}",
                VpcId=vpc,
                TagSpecifications=tags,
            )["GroupId"]
        )
    except Ec2Error as error:
        if error.code != "InvalidGroup.Duplicate":
            raise
        return _find_security_group(context, name, vpc)  # the reply to an earlier request was lost


def _find_security_group(context: Ec2Context, name: str, vpc: str) -> str:
    filters = [{"Name": "group-name", "Values": [name]}, {"Name": "vpc-id", "Values": [vpc]}]
    for raw in context.client.list_all("describe_security_groups", "SecurityGroups", Filters=filters):
        if parse_network(context.client.region, raw):
            return str(raw["GroupId"])
    raise ClusterError(
        f"someone else has created a security group {name} in {vpc} in the meantime. Choose another cluster name"
    )


def ensure_ingress_rules(
    context: Ec2Context, group: str, rules: Sequence[Mapping[str, Any]], ssh_from: Sequence[str]
) -> bool:
    """Allow traffic between the group's machines, and SSH from the given sources; return whether a rule changed."""
    missing, stale = diff_rules(group, rules, ssh_from)
    if missing:
        try:
            context.client.ec2("authorize_security_group_ingress", GroupId=group, IpPermissions=missing)
        except Ec2Error as error:
            if error.code != "InvalidPermission.Duplicate":
                raise
    if stale:
        try:
            context.client.ec2("revoke_security_group_ingress", GroupId=group, IpPermissions=stale)
        except Ec2Error as error:
            if error.code != "InvalidPermission.NotFound":
                raise
    if missing or stale:
        context.show(
            f"security group {group} permits all traffic between the nodes, and SSH from "
            f"{', '.join(ssh_from) or 'nowhere'}"
        )
    return bool(missing or stale)


def ensure_egress_rule(context: Ec2Context, group: str, rules: Sequence[Mapping[str, Any]]) -> None:
    """Allow outgoing traffic between the group's machines, which EFA needs."""
    missing = missing_node_rule(group, rules)
    if missing:
        try:
            context.client.ec2("authorize_security_group_egress", GroupId=group, IpPermissions=missing)
        except Ec2Error as error:
            if error.code != "InvalidPermission.Duplicate":
                raise


def create_placement_group(context: Ec2Context) -> str:
    """Create the placement group and return its id. Names are unique in a region."""
    name = network_name(context.cluster)
    tags = [{"ResourceType": "placement-group", "Tags": build_tags(context.cluster)}]
    try:
        context.client.ec2("create_placement_group", GroupName=name, Strategy="cluster", TagSpecifications=tags)
    except Ec2Error as error:
        if error.code != "InvalidPlacementGroup.Duplicate":
            raise
    filters = [{"Name": "group-name", "Values": [name]}]
    groups = [
        parse_placement_group(raw)
        for raw in context.client.list_all("describe_placement_groups", "PlacementGroups", Filters=filters)
    ]
    cluster_groups = [part for part in groups if part]
    if groups and not cluster_groups:
        raise ClusterError(
            f"someone else has created a placement group {name} in the meantime. Choose another cluster name"
        )
    return cluster_groups[0]["id"] if cluster_groups else name


# --- Machines


def _read_instances(context: Ec2Context) -> list[dict[str, Any]]:
    return read_instances(context.client, context.cluster)


def launch_machines(context: Ec2Context, request: LaunchRequest, names: Sequence[str]) -> dict[str, str]:
    """Create a set of machines, and return their ids by name.

    Raises:
        Ec2Error: no machine was created, or the outcome is unknown.
        ClusterError: machines were requested, but EC2 does not list them.
    """
    try:
        instances = context.client.ec2("run_instances", **build_launch_request(request))["Instances"]
    except Ec2Error as error:
        if error.code == "IdempotentParameterMismatch":
            return _find_launched(context, names)  # an earlier request succeeded with a different price or image
        raise
    return {name: str(raw["InstanceId"]) for raw in instances if (name := instance_node_name(raw))}


def _find_launched(context: Ec2Context, names: Sequence[str]) -> dict[str, str]:
    began = context.clock()
    while True:
        launched = {
            name: str(raw["InstanceId"])
            for raw in _read_instances(context)
            if instance_state(raw) not in ENDED_STATES and (name := instance_node_name(raw)) in names and name
        }
        if launched.keys() >= set(names):
            return launched
        if context.clock() - began > LISTING_TIMEOUT:
            raise ClusterError(
                f"{', '.join(names)} of {context.cluster} were requested earlier, but EC2 does not list them. Wait a "
                "minute, then run this command again; check https://console.aws.amazon.com/ec2 if it fails again"
            )
        context.sleep(POLL_INTERVAL)


def wait_until_running(context: Ec2Context, ids: Mapping[str, str]) -> dict[str, str]:
    """Wait until the machines are running. Return the failures as reasons by name.

    Args:
        ids: names by id.

    Raises:
        ClusterError: a machine neither runs nor fails within START_TIMEOUT.
    """
    began, states, pending, failures = context.clock(), dict.fromkeys(ids, ""), dict(ids), dict[str, str]()
    while pending:
        instances = {str(instance["InstanceId"]): instance for instance in _read_instances(context)}
        elapsed = context.clock() - began
        for machine_id, name in list(pending.items()):
            raw = instances.get(machine_id)
            state = instance_state(raw) if raw else ""
            if raw and state != states[machine_id]:
                states[machine_id] = state
                address = single_line(raw.get("PublicIpAddress") or "", 45) if state == "running" else ""
                context.show(f"{name}: {state}{f', {address}' if address else ''}")
            if raw and state in (*ENDED_STATES, "stopped", "stopping"):
                reason = single_line((raw.get("StateReason") or {}).get("Message") or "no reason given")
                failures[name] = f"is {state}: {reason}"
            elif raw is None and elapsed > LISTING_TIMEOUT:
                failures[name] = "was created, but EC2 does not list it"
            if state == "running" or name in failures:
                del pending[machine_id]
        if pending:
            if elapsed > START_TIMEOUT:
                raise ClusterError(
                    f"{', '.join(pending.values())} of {context.cluster} are not running after "
                    f"{format_duration(elapsed)}, but are being billed. Check https://console.aws.amazon.com/ec2, "
                    "then run this command again to continue"
                )
            context.sleep(STATE_INTERVAL)
    return failures


def start_machines(context: Ec2Context, ids: Mapping[str, str]) -> None:
    """Start machines that are off or stopping. Raise Ec2Error."""
    began = context.clock()
    context.show(f"starting {', '.join(ids.values())}")
    while True:
        try:
            context.client.ec2("start_instances", InstanceIds=sorted(ids))
            return
        except Ec2Error as error:
            if error.code != "IncorrectInstanceState" or context.clock() - began > STOP_TIMEOUT:
                raise
        context.sleep(STATE_INTERVAL)


def name_machines(context: Ec2Context, machines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Set the cluster machines' Name tag, for the console, and the tag from which the inventory reads the name."""
    for machine_id, raw in machines:
        name = instance_node_name(raw) if parse_cluster(raw) == context.cluster else None
        missing = [tag for tag in ("Name", NODE_TAG) if name and parse_tags(raw).get(tag) != name]
        if missing:
            tags = [{"Key": tag, "Value": name} for tag in missing]
            context.client.ec2("create_tags", Resources=[machine_id], Tags=tags)


def terminate(context: Ec2Context, ids: Mapping[str, str]) -> dict[str, str]:
    """Terminate machines and wait until they are removed; return why some still exist, by name.

    Also wait for machines of the cluster that are already shutting down: groups are in use until they have ended.
    """
    refused = _request_termination(context, ids) if ids else {}
    ending = {
        str(raw["InstanceId"]): name
        for raw in _read_instances(context)
        if instance_state(raw) == "shutting-down" and (name := instance_node_name(raw))
    }
    pending = {**ending, **{machine_id: name for machine_id, name in ids.items() if name not in refused}}
    began = context.clock()
    while pending:
        states = {str(raw["InstanceId"]): instance_state(raw) for raw in _read_instances(context)}
        for machine_id, name in list(pending.items()):
            if states.get(machine_id, "terminated") == "terminated":
                context.show(f"removed machine {name}")
                context.journal.forget("machine", name, machine_id)
                del pending[machine_id]
        if pending and context.clock() - began > REMOVAL_TIMEOUT:
            return {
                **refused,
                **{
                    name: f"has been {states[machine_id]} for {format_duration(REMOVAL_TIMEOUT)}"
                    for machine_id, name in pending.items()
                },
            }
        if pending:
            context.sleep(STATE_INTERVAL)
    return refused


def _request_termination(context: Ec2Context, ids: Mapping[str, str]) -> dict[str, str]:
    """Request the termination of machines; return the reasons for refusals by name."""
    refused: dict[str, str] = {}
    try:
        _terminate(context, list(ids))
    except Ec2Error as error:
        if error.transient:
            raise
        states = {str(raw["InstanceId"]): instance_state(raw) for raw in _read_instances(context)}
        for machine_id, name in ids.items():  # a protected or already removed machine makes the whole request fail
            if states.get(machine_id, "terminated") in ENDED_STATES:
                continue
            try:
                _terminate(context, [machine_id])
            except Ec2Error as single_error:
                refused[name] = str(single_error)
                context.show(f"cannot remove {name}: {single_error}")
    return refused


def _terminate(context: Ec2Context, ids: list[str]) -> None:
    context.client.ec2("terminate_instances", InstanceIds=ids)


def stop_machines(context: Ec2Context, ids: Mapping[str, str]) -> list[str]:
    """Stop machines and wait until they are off; return the names of those that are not. Raise Ec2Error."""
    began, requested = context.clock(), False
    while ids:
        if not requested:
            try:
                context.client.ec2("stop_instances", InstanceIds=sorted(ids))
                requested = True
            except Ec2Error as error:
                if error.code != "IncorrectInstanceState":  # a machine is still starting
                    raise
        states = {str(raw["InstanceId"]): instance_state(raw) for raw in _read_instances(context)}
        running = [
            name
            for machine_id, name in ids.items()
            if states.get(machine_id, "terminated") not in ("stopped", "terminated")
        ]
        if not running or context.clock() - began > STOP_TIMEOUT:
            return running
        context.sleep(STATE_INTERVAL)
    return []
