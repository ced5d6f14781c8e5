# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the steps from a cluster's existing state to its desired state.

Planning again after all steps yields none; after some of them, it yields the remaining ones. Only missing resources
are created: surplus machines are never removed, and a machine's type is never changed.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    AccountResources,
    ClusterPart,
    ClusterPlan,
    DesiredCluster,
    Drive,
    JournalNotes,
    Machine,
    ResourceKind,
    Step,
    StepAction,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefusedError,
    drive_name,
    find_drives,
    find_foreign_machines,
    find_machines,
    find_namesakes,
    find_network,
    find_parts,
    find_scripts,
    network_name,
    node_name,
    node_number,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

# Resources that contain the network: they are created before it, in this order, and removed after it.
ENCLOSING_KINDS: tuple[ResourceKind, ...] = ("VPC", "internet gateway", "subnet")


def plan_cluster(desired: DesiredCluster, resources: AccountResources, notes: JournalNotes) -> ClusterPlan:
    """Return the steps from the existing state to the desired state. Raise PlanRefusedError if that is impossible."""
    cluster = desired["cluster"]
    network = find_network(cluster, resources["networks"], desired["network_id"])
    machines = find_machines(cluster, network, resources)
    nodes, duplicates = split_duplicates(machines, notes)
    cluster_parts = find_parts(cluster, resources)
    parts = _choose_parts(cluster_parts, notes)
    plan: ClusterPlan = {
        "steps": [],
        "network": network,
        "nodes": nodes,
        "duplicates": duplicates,
        "drives": find_drives(cluster, network, resources),
        "parts": parts,
        "foreign_machines": find_foreign_machines(cluster, network, resources),
        "namesakes": find_namesakes(cluster, network, resources),
        "retained": [],
    }
    if desired["state"] == "present":
        plan["steps"] = _plan_present(desired, resources, notes, plan)
        plan["steps"] += [
            _removal_step(part) for part in cluster_parts if part not in parts and _is_repeated_request(part, notes)
        ]
    elif desired["state"] == "stopped":
        plan["steps"] = [
            _machine_step("stop", machine) for machine in machines if machine["state"] in ("ready", "coming")
        ]
    else:
        plan["steps"], plan["retained"] = _plan_absent(desired, resources, notes, plan, machines)
        enclosing, retained = _plan_enclosing_removal(plan, cluster_parts, machines, resources)
        plan["steps"] += enclosing
        plan["retained"] += retained
    return plan


def split_duplicates(machines: Sequence[Machine], notes: JournalNotes) -> tuple[list[Machine], list[Machine]]:
    """Return one machine per name, preferring a recorded machine, then the oldest; and return the other machines."""
    by_name: dict[str, list[Machine]] = collections.defaultdict(list)
    for machine in machines:
        by_name[machine["name"]].append(machine)
    chosen, duplicates = [], []
    for name, same in by_name.items():
        recorded_id = notes["ids"].get(f"machine {name}")
        first = next((machine for machine in same if machine["id"] == recorded_id), same[0])
        chosen.append(first)
        duplicates += [machine for machine in same if machine is not first]
    return chosen, duplicates


def _choose_parts(parts: Sequence[ClusterPart], notes: JournalNotes) -> list[ClusterPart]:
    """Return one part per kind and name, preferring a recorded part, then one that contains machines."""
    by_name: dict[str, list[ClusterPart]] = collections.defaultdict(list)
    for part in parts:
        by_name[f"{part['kind']} {part['name']}"].append(part)

    def rank(part: ClusterPart) -> tuple[bool, bool, str]:
        recorded_id = notes["ids"].get(f"{part['kind']} {part['name']}")
        return part["id"] != recorded_id, not part["holds"], part["id"]

    return [min(same, key=rank) for same in by_name.values()]


def missing_names(desired: DesiredCluster, nodes: Sequence[Machine]) -> list[str]:
    """Return the names of the machines to create: the lowest free numbers."""
    used_numbers = {node_number(desired["cluster"], machine["name"]) for machine in nodes}
    free_numbers = (number for number in range(len(used_numbers) + desired["nnodes"]) if number not in used_numbers)
    return [node_name(desired["cluster"], next(free_numbers)) for _new in range(desired["nnodes"] - len(used_numbers))]


# --- Present


def _plan_present(
    desired: DesiredCluster, resources: AccountResources, notes: JournalNotes, plan: ClusterPlan
) -> list[Step]:
    cluster, network = desired["cluster"], plan["network"]
    new_names = missing_names(desired, plan["nodes"])
    _refuse_taken_name(desired, notes, plan)
    _refuse_differences(desired, plan)
    existing_parts = {(part["kind"], part["name"]) for part in plan["parts"]}
    part_steps: list[Step] = [
        {"action": "make", "kind": what, "name": name, "id": ""}
        for what, name in desired.get("parts", [])
        if new_names and (what, name) not in existing_parts
    ]
    steps = [step for step in part_steps if step["kind"] in ENCLOSING_KINDS]
    if network is None:
        steps.append({"action": "make", "kind": "network", "name": network_name(cluster), "id": ""})
    steps += [step for step in part_steps if step["kind"] not in ENCLOSING_KINDS]
    if desired["drive_gb"] and not plan["drives"]:
        steps.append({"action": "make", "kind": "drive", "name": drive_name(cluster), "id": ""})
    scripts = find_scripts(cluster, plan["nodes"], resources)
    if new_names and desired["script"] and desired["script"] not in [script["name"] for script in scripts]:
        steps.append({"action": "make", "kind": "script", "name": desired["script"], "id": ""})
    steps += [{"action": "make", "kind": "machine", "name": name, "id": ""} for name in new_names]
    steps += [_machine_step("start", machine) for machine in plan["nodes"] if machine["state"] in ("off", "going")]
    return steps + [
        _machine_step("remove", machine) for machine in plan["duplicates"] if _is_repeated_request(machine, notes)
    ]


def _is_repeated_request(second: Machine | ClusterPart, notes: JournalNotes) -> bool:
    """Return whether a duplicate resulted from repeating a request after its reply was lost."""
    return f"{second.get('kind', 'machine')} {second['name']}" in notes["repeated"]


def _refuse_taken_name(desired: DesiredCluster, notes: JournalNotes, plan: ClusterPlan) -> None:
    cluster, network = desired["cluster"], plan["network"]
    recorded = network is not None and network["id"] in notes["ids"].values()
    if network and plan["foreign_machines"] and not plan["nodes"] and not recorded:
        raise PlanRefusedError(
            f"the name {cluster} is taken: the network {network_name(cluster)} ({network['id']}) contains "
            f"{_format_machines(plan['foreign_machines'])} and no machine of this cluster. Choose another name"
        )


def _refuse_differences(desired: DesiredCluster, plan: ClusterPlan) -> None:
    """Raise PlanRefusedError if an existing resource has other properties: no resource is retyped, resized or moved."""
    differences = []
    network = plan["network"]
    if network and network["region"] != desired["region"]:
        differences.append(f"the network {network['name']} is in {network['region']}, not {desired['region']}")
    for machine in plan["nodes"]:
        if machine["machine_type"] != desired["machine_type"]:
            differences.append(f"{machine['name']} is of type {machine['machine_type']}, not {desired['machine_type']}")
        if machine["disk_gb"] is not None and machine["disk_gb"] != desired["disk_gb"]:
            differences.append(f"{machine['name']} has a disk of {machine['disk_gb']} GB, not {desired['disk_gb']}")
    for drive in plan["drives"][:1]:
        if desired["drive_gb"] and drive["size_gb"] not in (None, desired["drive_gb"]):
            differences.append(f"the drive {drive['name']} has {drive['size_gb']} GB, not {desired['drive_gb']}")
    if differences:
        suffix = f"; and {len(differences) - 4} more" if len(differences) > 4 else ""
        raise PlanRefusedError(
            f"{desired['cluster']} exists, but not as requested: {'; '.join(differences[:4])}{suffix}. Existing "
            "resources are never changed: change your request to match them, or tear the cluster down first"
        )


# --- Absent


def _plan_absent(
    desired: DesiredCluster,
    resources: AccountResources,
    notes: JournalNotes,
    plan: ClusterPlan,
    machines: Sequence[Machine],
) -> tuple[list[Step], list[str]]:
    cluster, network, drives = desired["cluster"], plan["network"], plan["drives"]
    steps = [_machine_step("remove", machine) for machine in machines]
    steps += [
        {"action": "remove", "kind": "address", "name": ip, "id": ip}
        for ip in find_addresses(machines, resources, notes)
    ]
    steps += [
        {"action": "remove", "kind": "script", "name": script["name"], "id": script["id"]}
        for script in find_scripts(cluster, machines, resources)
    ]
    steps += [_removal_step(part) for part in find_parts(cluster, resources) if part["kind"] not in ENCLOSING_KINDS]
    retained: list[str] = []
    if network is None:
        return steps, retained
    if desired["remove_drive"]:
        steps += [{"action": "remove", "kind": "drive", "name": drive["name"], "id": drive["id"]} for drive in drives]
    elif drives:
        retained.append(f"the drive {', '.join(_format_drive(drive) for drive in drives)} is kept, with its data")
    other_drives = [drive for drive in resources["drives"] if drive["network"] == network["id"] and drive not in drives]
    if plan["foreign_machines"]:
        retained.append(
            f"the network {network['name']} is kept: it contains {_format_machines(plan['foreign_machines'])}, "
            "not part of this cluster"
        )
    if other_drives:
        retained.append(
            f"the network {network['name']} is kept: it contains drives that are not part of this cluster: "
            f"{', '.join(_format_drive(drive) for drive in other_drives)}"
        )
    if not plan["foreign_machines"] and not other_drives and (desired["remove_drive"] or not drives):
        steps.append({"action": "remove", "kind": "network", "name": network["name"], "id": network["id"]})
    return steps, retained


def _plan_enclosing_removal(
    plan: ClusterPlan, cluster_parts: Sequence[ClusterPart], machines: Sequence[Machine], resources: AccountResources
) -> tuple[list[Step], list[str]]:
    """Return the steps that remove the network's containers, unless the network or foreign machines remain in them."""
    enclosing_parts = sorted(
        (part for part in cluster_parts if part["kind"] in ENCLOSING_KINDS),
        key=lambda part: ENCLOSING_KINDS.index(part["kind"]),
        reverse=True,
    )
    if plan["network"] and not any(step["kind"] == "network" for step in plan["steps"]):
        return [], []
    holders = {holder for part in enclosing_parts for holder in part["holds"]} - {machine["id"] for machine in machines}
    other_machines = [machine for machine in resources["machines"] if machine["id"] in holders]
    other_interfaces = sorted(holders - {machine["id"] for machine in other_machines})
    if holders:
        name = network_name(enclosing_parts[0]["cluster"])
        names = [_format_machines(other_machines)] if other_machines else []
        names += [f"network interface {interface}" for interface in other_interfaces]
        return [], [f"the VPC {name} is kept: it contains {', '.join(names)}, not part of this cluster"]
    return [_removal_step(part) for part in enclosing_parts], []


def find_addresses(machines: Iterable[Machine], resources: AccountResources, notes: JournalNotes) -> list[str]:
    """Return the fixed addresses of the cluster's machines, including removed machines, that no other machine has."""
    owners = {machine["public_ip"]: machine["id"] for machine in machines if machine["fixed_address"]}
    owners = {ip: machine for ip, machine in {**notes["addresses"], **owners}.items() if ip}
    return [
        address["ip"]
        for address in resources["addresses"]
        if address["ip"] in owners and address["machine"] in ("", owners[address["ip"]])
    ]


# --- Steps and texts


def count_new_machines(plan: ClusterPlan) -> int:
    """Return how many machines a plan creates."""
    return sum(step["action"] == "make" and step["kind"] == "machine" for step in plan["steps"])


def _machine_step(action: StepAction, machine: Machine) -> Step:
    return {"action": action, "kind": "machine", "name": machine["name"], "id": machine["id"]}


def _removal_step(part: ClusterPart) -> Step:
    return {"action": "remove", "kind": part["kind"], "name": part["name"], "id": part["id"]}


def _format_drive(drive: Drive) -> str:
    size = f", {drive['size_gb']} GB" if drive["size_gb"] is not None else ""
    return f"{drive['name']} ({drive['id']}{size})"


def _format_machines(machines: Sequence[Machine]) -> str:
    return format_list((f"{machine['name']} ({machine['id']})" for machine in machines), 4)
