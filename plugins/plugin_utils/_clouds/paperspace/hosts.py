# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert the machines of a Paperspace account, as the API returns them, into inventory hosts."""

from __future__ import annotations

import collections
import datetime
import fnmatch
import hashlib
import ipaddress
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name, node_number
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import (
    gpu_count,
    parse_integer,
    region_code,
)
from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, run_query
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

GROUP = "training"

# Maximum length of a host name (a DNS label has at most 63 characters) and of a variable's text.
MAX_NAME = 63
MAX_TEXT = 255

# Ansible would treat a machine with such a name as the controller or a group.
RESERVED_NAMES = frozenset({"localhost", "all", "ungrouped", GROUP, "implicit_localhost"})

MachineData = Mapping[str, Any]


def parse_text(value: Any) -> str | None:
    """Return an API value as one short printable line, or None for None."""
    return None if value is None else single_line(value, MAX_TEXT)


def parse_bool(value: Any) -> bool | None:
    """Return a boolean from the API, or None for anything else."""
    return value if isinstance(value, bool) else None


def parse_number(value: Any) -> float | None:
    """Return a price from the API in US dollars, or None if it is not a finite number."""
    try:
        price = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return price if math.isfinite(price) else None


# API field -> (host variable, parser). Fields that are added to the API later do not become variables.
FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "id": ("paperspace_id", parse_text),
    "name": ("paperspace_name", parse_text),
    "state": ("paperspace_state", parse_text),
    "machineType": ("paperspace_machine_type", parse_text),
    "os": ("paperspace_os", parse_text),
    "agentType": ("paperspace_agent_type", parse_text),
    "region": ("paperspace_region_name", parse_text),
    "networkId": ("paperspace_network_id", parse_text),
    "privateIp": ("paperspace_private_ip", parse_text),
    "publicIp": ("paperspace_public_ip", parse_text),
    "publicIpType": ("paperspace_public_ip_type", parse_text),
    "cpus": ("paperspace_cpus", parse_integer),
    "ram": ("paperspace_ram", parse_integer),
    "storageTotal": ("paperspace_storage_total", parse_integer),
    "storageUsed": ("paperspace_storage_used", parse_integer),
    "autoShutdownEnabled": ("paperspace_auto_shutdown_enabled", parse_bool),
    "autoShutdownTimeout": ("paperspace_auto_shutdown_timeout", parse_integer),
    "usageRate": ("paperspace_usage_rate", parse_number),
    "storageRate": ("paperspace_storage_rate", parse_number),
    "dtCreated": ("paperspace_created", parse_text),
}


class SelectionError(Exception):
    """The selected machines cannot form a cluster, or an option names something nonexistent."""


class Selection(NamedTuple):
    """The values of the options. None and empty sequences select everything."""

    region: str | None = None
    private_network: str | None = None
    cluster: str | None = None
    machine_types: Sequence[str] = ()
    names: Sequence[str] = ()
    query: str | None = None
    states: Sequence[str] = ("ready",)


class ExcludedMachines(NamedTuple):
    """The machines that one option excluded. read_value: returns the value that the option is compared with."""

    option: str
    machines: list[MachineData]
    read_value: Callable[[MachineData], str]


class InventoryHost(NamedTuple):
    """One inventory host."""

    name: str
    variables: dict[str, Any]


def format_machine(machine: MachineData) -> str:
    """Return a machine's name and its id, because names are not unique."""
    return f"{single_line(machine.get('name') or '(no name)', MAX_NAME)} ({single_line(machine['id'], 40)})"


def format_machines(machines: Iterable[MachineData], show: int = 8) -> str:
    """Return the names of the first machines, and the number of the remaining ones."""
    return format_list((format_machine(machine) for machine in machines), show)


# --- Selection


def select(
    machines: Iterable[MachineData], networks: Iterable[Mapping[str, Any]], selection: Selection
) -> tuple[list[MachineData], list[ExcludedMachines]]:
    """Return the machines that match all options, in rank order, and the machines excluded by each option.

    Raise SelectionError if private_network matches no network or several, or if query is invalid.
    """
    selected, networks = sorted(machines, key=rank_sort_key), list(networks)
    excluded: list[ExcludedMachines] = []

    def filter_by(option: str, read_value: Callable[[MachineData], str], accept: Callable[[str], bool]) -> None:
        nonlocal selected
        rejected = [machine for machine in selected if not accept(read_value(machine))]
        if rejected:
            excluded.append(ExcludedMachines(option, rejected, read_value))
        selected = [machine for machine in selected if accept(read_value(machine))]

    if selection.region:
        code = region_code(selection.region)
        filter_by("region", _machine_region, lambda region: region == code)
    if selection.private_network:
        requested_id = _resolve_network_id(selection.private_network, selected, networks, selection.region)
        filter_by("private_network", _field_reader("networkId"), lambda network_id: network_id == requested_id)
    if selection.cluster:
        network = network_name(selection.cluster)
        network_ids = [str(candidate["id"]) for candidate in networks if candidate.get("name") == network]
        filter_by("cluster", _field_reader("networkId"), lambda network_id: network_id in network_ids)
        filter_by("cluster", _field_reader("name"), lambda name: node_number(str(selection.cluster), name) is not None)
    if selection.machine_types:
        types = {name.casefold() for name in selection.machine_types}
        filter_by("machine_types", _field_reader("machineType"), lambda name: name.casefold() in types)
    if selection.names:
        filter_by(
            "names",
            _field_reader("name"),
            lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in selection.names),
        )
    if selection.query:
        matching_ids = _query_ids(selection.query, selected)
        filter_by("query", _field_reader("id"), lambda machine_id: machine_id in matching_ids)
    if selection.states:
        filter_by("states", _field_reader("state"), lambda state: state in selection.states)
    return selected, excluded


def _query_ids(query: str, machines: Sequence[MachineData]) -> set[str]:
    """Run a JMESPath query on the machine list, in the API's format, and return the machine ids in its result."""
    try:
        matches = run_query(query, list(machines))
    except QueryError as error:
        raise SelectionError(f"query: {error}.") from None
    items = matches if isinstance(matches, list) else []
    ids = [item.get("id") if isinstance(item, Mapping) else item for item in items]
    machine_ids = {machine_id for machine_id in ids if isinstance(machine_id, str)}
    if not isinstance(matches, list) or not all(isinstance(machine_id, str) for machine_id in ids):
        raise SelectionError(
            f"query: {ascii(query)[:200]} does not return a list of machines or of their ids. Use a query such as "
            "[?usageRate < `4`]."
        )
    return machine_ids


def rank_sort_key(machine: MachineData) -> tuple[bool, datetime.datetime, str]:
    """Return a sort key that ignores the API's order: oldest first, then by id; machines without a valid time last."""
    try:
        created = datetime.datetime.fromisoformat(str(machine.get("dtCreated")))
    except ValueError:
        return True, datetime.datetime.min.replace(tzinfo=datetime.UTC), machine["id"]
    if created.tzinfo is None:
        created = created.replace(tzinfo=datetime.UTC)
    return False, created, machine["id"]


def _field_reader(field: str) -> Callable[[MachineData], str]:
    return lambda machine: str(machine.get(field) or "")


def _machine_region(machine: MachineData) -> str:
    return region_code(str(machine.get("region") or ""))


def _resolve_network_id(
    requested: str, machines: Sequence[MachineData], networks: Iterable[Mapping[str, Any]], region: str | None
) -> str:
    """Return the id of the network that was requested by id or by name.

    An id that only machines mention is valid too: the API does not list Paperspace's shared default networks.
    """
    candidates = [
        network
        for network in networks
        if not region or region_code(str(network.get("region") or "")) == region_code(region)
    ]
    if requested in {network["id"] for network in candidates} | {machine.get("networkId") for machine in machines}:
        return requested
    matches = [network for network in candidates if network.get("name") == requested]
    if len(matches) == 1:
        return str(matches[0]["id"])
    if matches:
        ids = ", ".join(sorted(f"{single_line(n['id'], 40)} in {_machine_region(n)}" for n in matches))
        raise SelectionError(
            f"private_network: {len(matches)} networks are named {single_line(requested, 80)!r}: {ids}. "
            "Set the id instead, or also set the region."
        )
    known_networks = ", ".join(
        sorted(f"{single_line(n.get('name', ''), 63)} ({single_line(n['id'], 40)})" for n in candidates)
    )
    region_note = f" in region {single_line(region, 40)}" if region else ""
    raise SelectionError(
        f"private_network: no network has the name or id {single_line(requested, 80)!r}{region_note}; "
        f"existing: {single_line(known_networks, 600) or 'none'}. Names must match exactly."
    )


def explain_empty_selection(total: int, excluded: Sequence[ExcludedMachines]) -> str:
    """Return a warning that explains why no machine was selected."""
    if not total:
        return "this API key's account has no machines: create some, or use the key of another team"
    steps = []
    for step in excluded:
        counts = collections.Counter(step.read_value(machine) for machine in step.machines)
        values = ", ".join(f"{count} x {single_line(value, 40) or 'none'}" for value, count in counts.most_common(5))
        steps.append(f"{step.option} excluded {len(step.machines)} ({values})")
    return f"no hosts: of {total} machine{'' if total == 1 else 's'}, " + ", then ".join(steps)


# --- Validation


def check_same_network(machines: Sequence[MachineData], networks: Iterable[Mapping[str, Any]]) -> None:
    """Raise SelectionError if the machines cannot reach each other because their regions or private networks differ."""
    names = {str(network["id"]): str(network.get("name") or "") for network in networks}
    for plural, option, read_location in (
        ("regions", "region", _machine_region),
        ("private networks", "private_network", _field_reader("networkId")),
    ):
        groups: dict[str, list[MachineData]] = collections.defaultdict(list)
        for machine in machines:
            groups[read_location(machine)].append(machine)
        if len(groups) > 1:
            parts = "; ".join(
                f"{_format_location(key, names)}: {format_machines(group, 4)}"
                for key, group in sorted(groups.items(), key=lambda item: -len(item[1]))
            )
            raise SelectionError(
                f"these machines are in {len(groups)} {plural} and cannot reach each other: "
                f"{single_line(parts, 1500)}. Select one with {option}, or fewer machines with names."
            )


def _format_location(location: str, names: Mapping[str, str]) -> str:
    if not location:
        return "none"
    name = single_line(names.get(location, ""), 63)
    return f"{name} ({single_line(location, 40)})" if name else single_line(location, 40)


def check_addresses(machines: Sequence[MachineData], connect_with: str) -> None:
    """Raise SelectionError if a machine lacks a private address or the address that Ansible should connect to."""
    missing = [machine for machine in machines if not parse_address(machine.get("privateIp"))]
    if missing:
        raise SelectionError(
            f"no private address: {format_machines(missing)}. The nodes of a run communicate over it; "
            "select other machines with names, or check these in the Paperspace console."
        )
    missing = [
        machine for machine in machines if connect_with == "public" and not parse_address(machine.get("publicIp"))
    ]
    if missing:
        raise SelectionError(
            f"no public address: {format_machines(missing)}. Assign one in the Paperspace console, or set "
            "connect_with: private if this machine can reach the private network (VPN, jump host)."
        )


def parse_address(value: Any) -> str | None:
    """Return an IP address, or None for anything else, so that no other text ends up on the ssh command line."""
    try:
        return str(ipaddress.ip_address(value)) if isinstance(value, str) else None
    except ValueError:
        return None


# --- Host names


def unique_host_names(machines: Sequence[MachineData], preferences: Sequence[str]) -> list[str]:
    """Return a unique name for each machine, containing only letters, digits, `.`, `_` and `-`.

    If a machine's name has other characters, is not unique, or is reserved (localhost), the host name is the sanitized
    name followed by the machine's id.
    """
    preferred_names = [_preferred_name(machine, preferences) for machine in machines]
    counts = collections.Counter(_sanitize(name, MAX_NAME).casefold() for name in preferred_names)
    names: list[str] = []
    used_names = set(RESERVED_NAMES)
    for machine, name in zip(machines, preferred_names, strict=True):
        chosen = _sanitize(name, MAX_NAME)
        if chosen != name or counts[chosen.casefold()] > 1 or chosen.casefold() in RESERVED_NAMES:
            chosen = _append_suffix(chosen, machine["id"])
        if chosen.casefold() in used_names or (chosen != name and counts[chosen.casefold()] > 0):
            # another machine already has that name, or the id itself is not a legal host name
            chosen = _append_suffix(chosen, hashlib.sha256(machine["id"].encode("utf-8", "replace")).hexdigest()[:12])
        used_names.add(chosen.casefold())
        names.append(chosen)
    return names


def _preferred_name(machine: MachineData, preferences: Sequence[str]) -> str:
    for preference in preferences:
        value = machine.get({"private_ip": "privateIp", "public_ip": "publicIp"}.get(preference, preference))
        if isinstance(value, str) and value:
            return value
    return str(machine["id"])


def _sanitize(name: str, limit: int) -> str:
    """Replace illegal characters: `:`, `,`, `!`, `&`, `*`, `[` and spaces have special meanings in host patterns."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name[: 20 * limit])[: 2 * limit].strip("-._")[:limit].rstrip("-._")


def _append_suffix(name: str, machine_id: str) -> str:
    suffix = _sanitize(machine_id, 20) or "unnamed"
    stem = name[: MAX_NAME - 1 - len(suffix)].rstrip("-._")
    return f"{stem}-{suffix}" if stem and stem != suffix else suffix


# --- Host variables


def build_hosts(
    machines: Sequence[MachineData],
    networks: Iterable[Mapping[str, Any]],
    *,
    preferences: Sequence[str] = ("name",),
    connect_with: str = "public",
    user: str = "paperspace",
) -> list[InventoryHost]:
    """Return the hosts for the selected machines, which are in rank order.

    Raise SelectionError if they cannot form a cluster.
    """
    networks = list(networks)
    check_same_network(machines, networks)
    check_addresses(machines, connect_with)
    network_names = {network["id"]: parse_text(network.get("name")) for network in networks}
    result = []
    for rank, (machine, name) in enumerate(zip(machines, unique_host_names(machines, preferences), strict=True)):
        variables = host_variables(machine)
        variables["paperspace_network_name"] = network_names.get(machine.get("networkId"))
        variables["node_rank"] = rank
        variables["ansible_host"] = parse_address(machine["publicIp" if connect_with == "public" else "privateIp"])
        if user:
            variables["ansible_user"] = user
        result.append(InventoryHost(name, variables))
    return result


def host_variables(machine: MachineData) -> dict[str, Any]:
    """Return a machine's variables, except the name of its network, its rank and how to connect to it."""
    variables = {name: convert(machine.get(field)) for field, (name, convert) in FIELDS.items()}
    accelerators = machine.get("accelerators")
    first = accelerators[0] if isinstance(accelerators, list) and accelerators else None
    gpus = gpu_count(machine)
    variables.update(
        {
            "paperspace_region": parse_text(_machine_region(machine)),
            "paperspace_gpu_count": gpus,
            "paperspace_gpu_model": parse_text(first.get("name")) if isinstance(first, dict) else None,
            "paperspace_gpu_memory": parse_integer(first.get("memory")) if isinstance(first, dict) else None,
            "node_address": parse_address(machine.get("privateIp")),
            # a machine without a GPU runs one process, for CPU runs that use gloo
            "node_slots": max(1, gpus),
        }
    )
    price = _price_per_hour(machine)
    return variables if price is None else {**variables, "node_price_per_hour": price}


def _price_per_hour(machine: MachineData) -> float | None:
    """Return a running machine's hourly price in US dollars, including the price of its disk if the API reports one."""
    usage, storage = parse_number(machine.get("usageRate")), parse_number(machine.get("storageRate"))
    return None if usage is None else round(usage + (storage or 0.0), 6)
