# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns the machines of a Paperspace account into inventory hosts: pure functions over the API's raw response.

Private to this collection.
"""

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
    integer,
    region_code,
)
from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, ask
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

GROUP = "training"

#: The longest host name (a DNS label has at most 63 characters) and the longest text of a variable.
MAX_NAME = 63
MAX_TEXT = 255

#: Ansible would take a machine of such a name for the controller or a group.
RESERVED_NAMES = frozenset({"localhost", "all", "ungrouped", GROUP, "implicit_localhost"})

Machine = Mapping[str, Any]


def text(value: Any) -> str | None:
    """A value of the API as one short printable line; None stays None."""
    return None if value is None else one_line(value, MAX_TEXT)


def boolean(value: Any) -> bool | None:
    """A boolean of the API, None for anything else."""
    return value if isinstance(value, bool) else None


def number(value: Any) -> float | None:
    """A price of the API in US dollars, None if it is no finite number."""
    try:
        price = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return price if math.isfinite(price) else None


#: API field -> (host variable, how its value is read). Fields that the API adds later do not become variables.
FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "id": ("paperspace_id", text),
    "name": ("paperspace_name", text),
    "state": ("paperspace_state", text),
    "machineType": ("paperspace_machine_type", text),
    "os": ("paperspace_os", text),
    "agentType": ("paperspace_agent_type", text),
    "region": ("paperspace_region_name", text),
    "networkId": ("paperspace_network_id", text),
    "privateIp": ("paperspace_private_ip", text),
    "publicIp": ("paperspace_public_ip", text),
    "publicIpType": ("paperspace_public_ip_type", text),
    "cpus": ("paperspace_cpus", integer),
    "ram": ("paperspace_ram", integer),
    "storageTotal": ("paperspace_storage_total", integer),
    "storageUsed": ("paperspace_storage_used", integer),
    "autoShutdownEnabled": ("paperspace_auto_shutdown_enabled", boolean),
    "autoShutdownTimeout": ("paperspace_auto_shutdown_timeout", integer),
    "usageRate": ("paperspace_usage_rate", number),
    "storageRate": ("paperspace_storage_rate", number),
    "dtCreated": ("paperspace_created", text),
}


class SelectionError(Exception):
    """The machines chosen cannot be one cluster, or an option names what does not exist. str() is for a person."""


class Selection(NamedTuple):
    """The values of the options. Empty sequences and None choose everything."""

    region: str | None = None
    private_network: str | None = None
    cluster: str | None = None
    machine_types: Sequence[str] = ()
    names: Sequence[str] = ()
    query: str | None = None
    states: Sequence[str] = ("ready",)


class LeftOut(NamedTuple):
    """The machines that one option left out."""

    option: str
    machines: list[Machine]
    found: Callable[[Machine], str]


class Host(NamedTuple):
    """One inventory host."""

    name: str
    variables: dict[str, Any]


def label(machine: Machine) -> str:
    """A machine for messages: its name and, since names are not unique, its id."""
    return f"{one_line(machine.get('name') or '(no name)', MAX_NAME)} ({one_line(machine['id'], 40)})"


def labels(machines: Iterable[Machine], show: int = 8) -> str:
    """The first machines by name, and the number of the others."""
    named = [label(machine) for machine in machines]
    rest = len(named) - show
    return ", ".join(named[:show]) + (f" and {rest} more" if rest > 0 else "")


# --- Which machines


def select(
    machines: Iterable[Machine], networks: Iterable[Mapping[str, Any]], wanted: Selection
) -> tuple[list[Machine], list[LeftOut]]:
    """The machines that all options choose, in the order of their ranks, and what each option left out.

    Raises SelectionError if private_network names no network or several, or if query is invalid.
    """
    kept, networks = sorted(machines, key=rank_order), list(networks)
    left_out: list[LeftOut] = []

    def keep(option: str, found: Callable[[Machine], str], chosen: Callable[[str], bool]) -> None:
        nonlocal kept
        out = [machine for machine in kept if not chosen(found(machine))]
        if out:
            left_out.append(LeftOut(option, out, found))
        kept = [machine for machine in kept if chosen(found(machine))]

    if wanted.region:
        code = region_code(wanted.region)
        keep("region", _region, lambda found: found == code)
    if wanted.private_network:
        network = _network_id(wanted.private_network, kept, networks, wanted.region)
        keep("private_network", _string("networkId"), lambda found: found == network)
    if wanted.cluster:
        home = [str(network["id"]) for network in networks if network.get("name") == network_name(wanted.cluster)]
        keep("cluster", _string("networkId"), lambda found: found in home)
        keep("cluster", _string("name"), lambda found: node_number(str(wanted.cluster), found) is not None)
    if wanted.machine_types:
        types = {name.casefold() for name in wanted.machine_types}
        keep("machine_types", _string("machineType"), lambda found: found.casefold() in types)
    if wanted.names:
        keep("names", _string("name"), lambda found: any(fnmatch.fnmatchcase(found, name) for name in wanted.names))
    if wanted.query:
        found_ids = _asked_for(wanted.query, kept)
        keep("query", _string("id"), lambda found: found in found_ids)
    if wanted.states:
        keep("states", _string("state"), lambda found: found in wanted.states)
    return kept, left_out


def _asked_for(query: str, machines: Sequence[Machine]) -> set[str]:
    """Ids of the machines that a JMESPath query finds in the list, as the API describes them."""
    try:
        found = ask(query, list(machines))
    except QueryError as error:
        raise SelectionError(f"query: {error}.") from None
    ids = [one.get("id") if isinstance(one, Mapping) else one for one in (found if isinstance(found, list) else [])]
    known = {one for one in ids if isinstance(one, str)}
    if not isinstance(found, list) or not all(isinstance(one, str) for one in ids):
        raise SelectionError(
            f"query: {ascii(query)[:200]} yields no list of machines or of their ids. Needed: one such as "
            "[?usageRate < `4`]."
        )
    return known


def rank_order(machine: Machine) -> tuple[bool, datetime.datetime, str]:
    """Sort key: oldest first, then by id, whatever the order of the API's pages. Without a valid time: last."""
    try:
        created = datetime.datetime.fromisoformat(str(machine.get("dtCreated")))
    except ValueError:
        return True, datetime.datetime.min.replace(tzinfo=datetime.UTC), machine["id"]
    if created.tzinfo is None:
        created = created.replace(tzinfo=datetime.UTC)
    return False, created, machine["id"]


def _string(field: str) -> Callable[[Machine], str]:
    return lambda machine: str(machine.get(field) or "")


def _region(machine: Machine) -> str:
    return region_code(str(machine.get("region") or ""))


def _network_id(
    wanted: str, machines: Sequence[Machine], networks: Iterable[Mapping[str, Any]], region: str | None
) -> str:
    """The id of the network requested by id or by name.

    An id that only machines mention is valid, too: the API does not list Paperspace's shared default networks.
    """
    candidates = [
        network
        for network in networks
        if not region or region_code(str(network.get("region") or "")) == region_code(region)
    ]
    if wanted in {network["id"] for network in candidates} | {machine.get("networkId") for machine in machines}:
        return wanted
    named = [network for network in candidates if network.get("name") == wanted]
    if len(named) == 1:
        return str(named[0]["id"])
    if named:
        ids = ", ".join(sorted(f"{one_line(n['id'], 40)} in {_region(n)}" for n in named))
        raise SelectionError(
            f"private_network: {len(named)} networks are called {one_line(wanted, 80)!r}: {ids}. "
            "Give the id, or also the region."
        )
    known = ", ".join(sorted(f"{one_line(n.get('name', ''), 63)} ({one_line(n['id'], 40)})" for n in candidates))
    where = f" in region {one_line(region, 40)}" if region else ""
    raise SelectionError(
        f"private_network: no network has the name or id {one_line(wanted, 80)!r}{where}; "
        f"there are: {one_line(known, 600) or 'none'}. Names must match exactly."
    )


def nothing_left(total: int, left_out: Sequence[LeftOut]) -> str:
    """Why no machine is left, for a warning."""
    if not total:
        return "the account of this API key has no machines: create some, or use the key of another team"
    steps = []
    for step in left_out:
        found = collections.Counter(step.found(machine) for machine in step.machines)
        values = ", ".join(f"{count} x {one_line(value, 40) or 'none'}" for value, count in found.most_common(5))
        steps.append(f"{step.option} left out {len(step.machines)} ({values})")
    return f"no host: of {total} machines " + ", then ".join(steps)


# --- Whether the machines can be one cluster


def check_together(machines: Sequence[Machine], networks: Iterable[Mapping[str, Any]]) -> None:
    """Raise SelectionError if the machines are in several regions or private networks, and cannot reach each other."""
    names = {str(network["id"]): str(network.get("name") or "") for network in networks}
    for what, option, place in (
        ("regions", "region", _region),
        ("private networks", "private_network", _string("networkId")),
    ):
        places: dict[str, list[Machine]] = collections.defaultdict(list)
        for machine in machines:
            places[place(machine)].append(machine)
        if len(places) > 1:
            parts = "; ".join(
                f"{_place_name(key, names)}: {labels(group, 4)}"
                for key, group in sorted(places.items(), key=lambda item: -len(item[1]))
            )
            raise SelectionError(
                f"these machines lie in {len(places)} {what} and cannot reach each other: {one_line(parts, 1500)}. "
                f"Choose one with {option}, or fewer machines with names."
            )


def _place_name(key: str, names: Mapping[str, str]) -> str:
    if not key:
        return "none"
    name = one_line(names.get(key, ""), 63)
    return f"{name} ({one_line(key, 40)})" if name else one_line(key, 40)


def check_addresses(machines: Sequence[Machine], connect_with: str) -> None:
    """Raise SelectionError if a machine lacks a private address, or the address that Ansible should connect to."""
    without = [machine for machine in machines if not address(machine.get("privateIp"))]
    if without:
        raise SelectionError(
            f"without a private address: {labels(without)}. The nodes of a run talk over it; "
            "choose other machines with names, or look at these in the Paperspace console."
        )
    without = [machine for machine in machines if connect_with == "public" and not address(machine.get("publicIp"))]
    if without:
        raise SelectionError(
            f"without a public address: {labels(without)}. Give them one in the Paperspace console, or set "
            "connect_with: private where this machine reaches the private network (VPN, jump host)."
        )


def address(value: Any) -> str | None:
    """An IP address, None for anything else, so that no other text reaches the command line of ssh."""
    try:
        return str(ipaddress.ip_address(value)) if isinstance(value, str) else None
    except ValueError:
        return None


# --- Host names


def host_names(machines: Sequence[Machine], preferences: Sequence[str]) -> list[str]:
    """A unique name for each machine, made of letters, digits, `.`, `_` and `-` only.

    If a machine's own name has other characters, is also another machine's, or is reserved (localhost), the host name
    is the legal part of its name followed by its id.
    """
    wanted = [_preferred(machine, preferences) for machine in machines]
    times = collections.Counter(_legal(name, MAX_NAME).casefold() for name in wanted)
    names: list[str] = []
    taken = set(RESERVED_NAMES)
    for machine, name in zip(machines, wanted, strict=True):
        chosen = _legal(name, MAX_NAME)
        if chosen != name or times[chosen.casefold()] > 1 or chosen.casefold() in RESERVED_NAMES:
            chosen = _with_id(chosen, machine["id"])
        if chosen.casefold() in taken or (chosen != name and times[chosen.casefold()] > 0):
            # Another machine has the name just made with the id, or the id itself is not a legal host name.
            chosen = _with_id(chosen, hashlib.sha256(machine["id"].encode("utf-8", "replace")).hexdigest()[:12])
        taken.add(chosen.casefold())
        names.append(chosen)
    return names


def _preferred(machine: Machine, preferences: Sequence[str]) -> str:
    for preference in preferences:
        value = machine.get({"private_ip": "privateIp", "public_ip": "publicIp"}.get(preference, preference))
        if isinstance(value, str) and value:
            return value
    return str(machine["id"])


def _legal(name: str, limit: int) -> str:
    """The legal part of a name: `:`, `,`, `!`, `&`, `*`, `[` and blanks have a meaning in host patterns."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name[: 20 * limit])[: 2 * limit].strip("-._")[:limit].rstrip("-._")


def _with_id(name: str, machine_id: str) -> str:
    suffix = _legal(machine_id, 20) or "unnamed"
    stem = name[: MAX_NAME - 1 - len(suffix)].rstrip("-._")
    return f"{stem}-{suffix}" if stem and stem != suffix else suffix


# --- Host variables


def hosts(
    machines: Sequence[Machine],
    networks: Iterable[Mapping[str, Any]],
    *,
    preferences: Sequence[str] = ("name",),
    connect_with: str = "public",
    user: str = "paperspace",
) -> list[Host]:
    """The hosts of the selected machines, given in the order of their ranks.

    Raises SelectionError if they cannot be one cluster.
    """
    networks = list(networks)
    check_together(machines, networks)
    check_addresses(machines, connect_with)
    network_names = {network["id"]: text(network.get("name")) for network in networks}
    result = []
    for rank, (machine, name) in enumerate(zip(machines, host_names(machines, preferences), strict=True)):
        variables = host_variables(machine)
        variables["paperspace_network_name"] = network_names.get(machine.get("networkId"))
        variables["node_rank"] = rank
        variables["ansible_host"] = address(machine["publicIp" if connect_with == "public" else "privateIp"])
        if user:
            variables["ansible_user"] = user
        result.append(Host(name, variables))
    return result


def host_variables(machine: Machine) -> dict[str, Any]:
    """The variables of one machine, except its network's name, its rank and how to connect to it."""
    variables = {name: convert(machine.get(field)) for field, (name, convert) in FIELDS.items()}
    accelerators = machine.get("accelerators")
    first = accelerators[0] if isinstance(accelerators, list) and accelerators else None
    gpus = gpu_count(machine)
    variables.update(
        {
            "paperspace_region": text(_region(machine)),
            "paperspace_gpu_count": gpus,
            "paperspace_gpu_model": text(first.get("name")) if isinstance(first, dict) else None,
            "paperspace_gpu_memory": integer(first.get("memory")) if isinstance(first, dict) else None,
            "node_address": address(machine.get("privateIp")),
            # A machine without a GPU runs one process, for CPU runs with gloo, as in tests.
            "node_slots": max(1, gpus),
        }
    )
    price = _price(machine)
    return variables if price is None else {**variables, "node_price_per_hour": price}


def _price(machine: Machine) -> float | None:
    """The hourly price of a machine that is on, in US dollars, including its disk if the API reports that price."""
    usage, storage = number(machine.get("usageRate")), number(machine.get("storageRate"))
    return None if usage is None else round(usage + (storage or 0.0), 6)
