# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Planner of a cluster: turns the wanted and the existing state into steps. Private to this collection, pure.

Planning again after all steps gives none; after some of them, it gives the rest. Only missing things are made:
surplus is never removed, and a machine's type is never changed.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    Action,
    Drive,
    Machine,
    Network,
    Noted,
    Part,
    Plan,
    Step,
    There,
    Wanted,
    What,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefused,
    cluster_of,
    drive_name,
    namesakes,
    network_name,
    node_name,
    node_number,
    own_drives,
    own_machines,
    own_network,
    own_parts,
    own_scripts,
    strangers_in,
)

#: What contains the network: made before it, in this order, and removed after it.
AROUND: tuple[What, ...] = ("VPC", "internet gateway", "subnet")


def plan(wanted: Wanted, there: There, noted: Noted) -> Plan:
    """The steps from the existing to the wanted state. Raises PlanRefused."""
    cluster = wanted["cluster"]
    network = own_network(cluster, there["networks"], wanted["network_id"])
    machines = own_machines(cluster, network, there)
    nodes, doubles = one_a_name(machines, noted)
    own = own_parts(cluster, there)
    parts = _one_a_kind(own, noted)
    found: Plan = {
        "steps": [],
        "network": network,
        "nodes": nodes,
        "doubles": doubles,
        "drives": own_drives(cluster, network, there),
        "parts": parts,
        "strangers": strangers_in(cluster, network, there),
        "namesakes": namesakes(cluster, network, there),
        "kept": [],
    }
    if wanted["stand"] == "present":
        found["steps"] = _present(wanted, there, noted, found)
        found["steps"] += [_removed(one) for one in own if one not in parts and _asked_twice(one, noted)]
    elif wanted["stand"] == "stopped":
        found["steps"] = [_step("stop", one) for one in machines if one["state"] in ("ready", "coming")]
    else:
        found["steps"], found["kept"] = _absent(wanted, there, noted, found, machines)
        around, kept = _absent_around(found, own, machines, there)
        found["steps"] += around
        found["kept"] += kept
    return found


def one_a_name(machines: Sequence[Machine], noted: Noted) -> tuple[list[Machine], list[Machine]]:
    """One machine per name, preferring the one in the record, then the oldest; and the other machines."""
    by_name: dict[str, list[Machine]] = collections.defaultdict(list)
    for machine in machines:
        by_name[machine["name"]].append(machine)
    chosen, others = [], []
    for name, same in by_name.items():
        known = noted["ids"].get(f"machine {name}")
        first = next((machine for machine in same if machine["id"] == known), same[0])
        chosen.append(first)
        others += [machine for machine in same if machine is not first]
    return chosen, others


def _one_a_kind(parts: Sequence[Part], noted: Noted) -> list[Part]:
    """One part per kind and name, preferring the one in the record, then one that holds machines."""
    by_name: dict[str, list[Part]] = collections.defaultdict(list)
    for part in parts:
        by_name[f"{part['what']} {part['name']}"].append(part)

    def rank(part: Part) -> tuple[bool, bool, str]:
        known = noted["ids"].get(f"{part['what']} {part['name']}")
        return part["id"] != known, not part["holds"], part["id"]

    return [min(same, key=rank) for same in by_name.values()]


def missing_names(wanted: Wanted, nodes: Sequence[Machine]) -> list[str]:
    """Names of the machines to make: the lowest free numbers."""
    taken = {node_number(wanted["cluster"], machine["name"]) for machine in nodes}
    free = (number for number in range(len(taken) + wanted["nnodes"]) if number not in taken)
    return [node_name(wanted["cluster"], next(free)) for _new in range(wanted["nnodes"] - len(taken))]


# --- Present


def _present(wanted: Wanted, there: There, noted: Noted, found: Plan) -> list[Step]:
    cluster, network = wanted["cluster"], found["network"]
    missing = missing_names(wanted, found["nodes"])
    _refuse_taken(wanted, noted, found)
    _refuse_differing(wanted, found)
    have = {(part["what"], part["name"]) for part in found["parts"]}
    needed: list[Step] = [
        {"action": "make", "what": what, "name": name, "id": ""}
        for what, name in wanted.get("parts", [])
        if missing and (what, name) not in have
    ]
    steps = [step for step in needed if step["what"] in AROUND]
    if network is None:
        steps.append({"action": "make", "what": "network", "name": network_name(cluster), "id": ""})
    steps += [step for step in needed if step["what"] not in AROUND]
    if wanted["drive_gb"] and not found["drives"]:
        steps.append({"action": "make", "what": "drive", "name": drive_name(cluster), "id": ""})
    scripts = own_scripts(cluster, found["nodes"], there)
    if missing and wanted["script"] and wanted["script"] not in [script["name"] for script in scripts]:
        steps.append({"action": "make", "what": "script", "name": wanted["script"], "id": ""})
    steps += [{"action": "make", "what": "machine", "name": name, "id": ""} for name in missing]
    steps += [_step("start", one) for one in found["nodes"] if one["state"] in ("off", "going")]
    return steps + [_step("remove", one) for one in found["doubles"] if _asked_twice(one, noted)]


def _asked_twice(second: Machine | Part, noted: Noted) -> bool:
    """Whether a duplicate is the result of our own repeated request."""
    return f"{second.get('what', 'machine')} {second['name']}" in noted["asked_twice"]


def _refuse_taken(wanted: Wanted, noted: Noted, found: Plan) -> None:
    cluster, network = wanted["cluster"], found["network"]
    known = network is not None and network["id"] in noted["ids"].values()
    if network and found["strangers"] and not found["nodes"] and not known:
        raise PlanRefused(
            f"the name {cluster} is taken: the network {network_name(cluster)} ({network['id']}) holds "
            f"{_named(found['strangers'])} and no machine of this cluster. Choose another name"
        )


def _refuse_differing(wanted: Wanted, found: Plan) -> None:
    """Raise PlanRefused if something exists in another form: nothing is retyped, resized or moved."""
    said = []
    network = found["network"]
    if network and network["region"] != wanted["region"]:
        said.append(f"the network {network['name']} is in {network['region']}, not {wanted['region']}")
    for machine in found["nodes"]:
        if machine["machine_type"] != wanted["machine_type"]:
            said.append(f"{machine['name']} is of type {machine['machine_type']}, not {wanted['machine_type']}")
        if machine["disk_gb"] is not None and machine["disk_gb"] != wanted["disk_gb"]:
            said.append(f"{machine['name']} has a disk of {machine['disk_gb']} GB, not {wanted['disk_gb']}")
    for drive in found["drives"][:1]:
        if wanted["drive_gb"] and drive["size_gb"] not in (None, wanted["drive_gb"]):
            said.append(f"the drive {drive['name']} has {drive['size_gb']} GB, not {wanted['drive_gb']}")
    if said:
        more = f"; and {len(said) - 4} more differences" if len(said) > 4 else ""
        raise PlanRefused(
            f"{wanted['cluster']} exists, but not as requested: {'; '.join(said[:4])}{more}. What exists is never "
            "changed: ask for what exists, or tear it down first"
        )


# --- Absent


def _absent(
    wanted: Wanted, there: There, noted: Noted, found: Plan, machines: Sequence[Machine]
) -> tuple[list[Step], list[str]]:
    cluster, network, drives = wanted["cluster"], found["network"], found["drives"]
    steps = [_step("remove", machine) for machine in machines]
    steps += [
        {"action": "remove", "what": "address", "name": ip, "id": ip} for ip in own_addresses(machines, there, noted)
    ]
    steps += [
        {"action": "remove", "what": "script", "name": script["name"], "id": script["id"]}
        for script in own_scripts(cluster, machines, there)
    ]
    steps += [_removed(part) for part in own_parts(cluster, there) if part["what"] not in AROUND]
    kept: list[str] = []
    if network is None:
        return steps, kept
    if wanted["remove_drive"]:
        steps += [{"action": "remove", "what": "drive", "name": drive["name"], "id": drive["id"]} for drive in drives]
    elif drives:
        kept.append(f"the drive {', '.join(_drive(drive) for drive in drives)} stays, with what is on it")
    others = [drive for drive in there["drives"] if drive["network"] == network["id"] and drive not in drives]
    if found["strangers"]:
        kept.append(
            f"the network {network['name']} stays: {_named(found['strangers'])} in it are not part of this cluster"
        )
    if others:
        kept.append(
            f"the network {network['name']} stays: {', '.join(_drive(drive) for drive in others)} "
            f"in it {'is' if len(others) == 1 else 'are'} not part of this cluster"
        )
    if not found["strangers"] and not others and (wanted["remove_drive"] or not drives):
        steps.append({"action": "remove", "what": "network", "name": network["name"], "id": network["id"]})
    return steps, kept


def _absent_around(
    found: Plan, own: Sequence[Part], machines: Sequence[Machine], there: There
) -> tuple[list[Step], list[str]]:
    """Steps that remove what contained the network, unless the network stays, or others' machines are in it."""
    around = sorted(
        (part for part in own if part["what"] in AROUND), key=lambda part: AROUND.index(part["what"]), reverse=True
    )
    if found["network"] and not any(step["what"] == "network" for step in found["steps"]):
        return [], []
    held = {one for part in around for one in part["holds"]} - {machine["id"] for machine in machines}
    others = [machine for machine in there["machines"] if machine["id"] in held]
    more = sorted(held - {machine["id"] for machine in others})
    if held:
        name = network_name(around[0]["cluster"])
        told = ", ".join([*([_named(others)] if others else []), *(f"network interface {one}" for one in more)])
        return [], [f"the VPC {name} stays: {told} in it are not part of this cluster"]
    return [_removed(part) for part in around], []


def own_addresses(machines: Iterable[Machine], there: There, noted: Noted) -> list[str]:
    """Fixed addresses of our machines, including removed ones, that nobody else has by now."""
    ours = {machine["public_ip"]: machine["id"] for machine in machines if machine["fixed_address"]}
    ours = {ip: machine for ip, machine in {**noted["addresses"], **ours}.items() if ip}
    return [
        address["ip"]
        for address in there["addresses"]
        if address["ip"] in ours and address["machine"] in ("", ours[address["ip"]])
    ]


# --- Words


def _step(action: Action, machine: Machine) -> Step:
    return {"action": action, "what": "machine", "name": machine["name"], "id": machine["id"]}


def _removed(part: Part) -> Step:
    return {"action": "remove", "what": part["what"], "name": part["name"], "id": part["id"]}


def _drive(drive: Drive) -> str:
    size = f", {drive['size_gb']} GB" if drive["size_gb"] is not None else ""
    return f"{drive['name']} ({drive['id']}{size})"


def _named(machines: Sequence[Machine]) -> str:
    names = [f"{machine['name']} ({machine['id']})" for machine in machines[:4]]
    return ", ".join(names) + (f" and {len(machines) - 4} more" if len(machines) > 4 else "")


def clusters_of(networks: Iterable[Network]) -> list[str]:
    """Names of the clusters with a network in an account."""
    return sorted({name for name in (cluster_of(network["name"]) for network in networks) if name})
