# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rank table: each node's rank, address and number of processes.

Everything else (launcher arguments, hostfiles, /etc/hosts, firewall) is rendered from it.
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

MAX_SLOTS = 65535
"""More than the number of hardware threads on any machine. Catches typos: DeepSpeed allocates a list of this length."""

ORDERS = ("inventory", "name")

# Host names that the resolver and the hostfile parsers of DeepSpeed, Open MPI and MPICH all accept.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63})*\Z")
# Tokens that the lexers of Open MPI 4.1 and PRRTE (util/hostfile/hostfile_lex.l) do not read as a host name.
_LEXER_TOKENS = frozenset(
    ("boards", "cores", "cores-per-socket", "cores_per_socket", "count", "count-max", "count_max", "cpu", "cpu-max")
    + ("cpu-set", "cpu_max", "cpu_set", "max-count", "max-cpu", "max-slots", "max_count", "max_cpu", "max_slots")
    + ("port", "rank", "slot", "slots", "slots-max", "slots_max", "sockets", "sockets-per-board", "sockets_per_board")
    + ("user-name", "user_name", "username")
)
# Names that mean "this machine" on every machine.
_LOCAL_NAMES = frozenset(("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"))

_NAME_REQUIREMENT = (
    "ASCII letters, digits, '-', '_' and '.', beginning with a letter or a digit, at most 63 characters between dots "
    "and 253 in all, and not a hostfile keyword such as 'slots'"
)
_NAME_REMEDY = "Rename the host in the inventory, and set ansible_host and node_address to its address"
_ADDRESS_REQUIREMENT = "the numeric (private) IP address at which the other nodes reach this one"
_ADDRESS_REMEDY = (
    "Set node_address of this host in the inventory (on the host, `ip -brief address` shows its addresses)"
)

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class RankTableProblem:
    """A problem with the input, and the host concerned (None: the input as a whole)."""

    host: str | None
    problem: str
    requirement: str
    remedy: str

    def __str__(self) -> str:
        prefix = "" if self.host is None else f"{_plain(self.host)}: "
        return f"{prefix}{self.problem}; expected {self.requirement}. {self.remedy}."


class RankTableError(ValueError):
    """The input is not a valid rank table. `problems` lists all problems; the text has one line for each."""

    def __init__(self, problems: Iterable[RankTableProblem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class HostSpec:
    """A host as configured. `slots`: number of processes to start on it. `rank`: its explicit position in the group, if
    any.
    """

    name: str
    address: str
    slots: int
    rank: int | None = None


@dataclass(frozen=True)
class Node:
    """A host and its position: `node_rank` counts nodes, `first_rank` is the global rank of its first process."""

    name: str
    address: str
    slots: int
    node_rank: int
    first_rank: int

    @property
    def ranks(self) -> range:
        """Global ranks of the processes on this node; the n-th has local rank n."""
        return range(self.first_rank, self.first_rank + self.slots)


@dataclass(frozen=True)
class RankTable:
    """At least one node, in the order of the node ranks 0, 1, 2 ... without gaps."""

    nodes: tuple[Node, ...]

    @property
    def nnodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def world_size(self) -> int:
        """Total number of processes on all nodes."""
        return self.nodes[-1].first_rank + self.nodes[-1].slots

    @property
    def equal_slots(self) -> bool:
        """Whether each node has the same number of slots."""
        return all(node.slots == self.nodes[0].slots for node in self.nodes)

    @property
    def master(self) -> Node:
        """The node with rank 0."""
        return self.nodes[0]

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _first_ranks(self) -> list[int]:
        return [node.first_rank for node in self.nodes]

    def node(self, name: str) -> Node:
        """Return the node with this name, or raise RankTableError."""
        node = self._by_name.get(name)
        if node is None:
            raise RankTableError(
                [
                    RankTableProblem(
                        None,
                        f"no node is named {format_value(name)}",
                        f"one of {abbreviate(self._by_name)}",
                        "Correct the name",
                    )
                ]
            )
        return node

    def locate(self, rank: int) -> tuple[Node, int]:
        """Return the node that runs the process with this global rank, and its local rank, or raise RankTableError."""
        if not 0 <= rank < self.world_size:
            requirement = f"a rank from 0 to {self.world_size - 1}"
            raise RankTableError(
                [RankTableProblem(None, f"no process has rank {format_value(rank)}", requirement, "Correct the rank")]
            )
        node = self.nodes[bisect_right(self._first_ranks, rank) - 1]
        return node, rank - node.first_rank

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the nodes as plain data for build_rank_table(): name, address, slots, node_rank, first_rank."""
        return [
            {
                "name": node.name,
                "address": node.address,
                "slots": node.slots,
                "node_rank": node.node_rank,
                "first_rank": node.first_rank,
            }
            for node in self.nodes
        ]


def build_rank_table(
    hosts: Iterable[HostSpec | Mapping[str, Any]],
    *,
    nnodes: int | None = None,
    order: str = "inventory",
    rank0: str | None = None,
) -> RankTable:
    """Check the hosts of a group, order them and take the first `nnodes` (default: all).

    Explicit ranks, if any, determine the order (for all hosts or none; 0, 1, 2 ... over the whole group). Otherwise
    `order` does: "inventory" keeps the order of `hosts`, "name" sorts by name, node2 before node10. `rank0` is a host
    to move to the front in any case. The chosen nodes are renumbered from 0.

    A mapping has the keys of HostSpec; `node_rank` is an alias of `rank`, so the result of as_dicts() is accepted, too.
    Numbers may be strings of decimal digits. Addresses are returned in canonical form.

    Raises:
        RankTableError: with all problems of the hosts and the arguments.
    """
    problems: list[RankTableProblem] = []
    group = _read_hosts(hosts, problems)
    count = _read_nnodes(nnodes, group, problems)
    if order not in ORDERS:
        problems.append(
            RankTableProblem(None, f"order is {format_value(order)}", "'inventory' or 'name'", "Correct the order")
        )
    if rank0 is not None and group and all(host.name != rank0 for host in group):
        requirement = f"a host of the group: {abbreviate(host.name for host in group)}"
        problems.append(
            RankTableProblem(
                None, f"rank0 is {format_value(rank0)}, which is not in the group", requirement, "Correct rank0"
            )
        )
    _check_names(group, problems)
    addresses = _check_addresses(group, problems)
    slots = _check_slots(group, problems)
    ranks = _check_ranks(group, problems)
    if problems:
        raise RankTableError(problems)

    indexes = list(range(len(group)))
    if ranks:
        indexes.sort(key=ranks.__getitem__)
    elif order == "name":
        indexes.sort(key=lambda index: natural_key(group[index].name))
    if rank0 is not None:
        indexes.sort(key=lambda index: group[index].name != rank0)  # stable sort: the others keep their order

    nodes: list[Node] = []
    first_rank = 0
    for node_rank, index in enumerate(indexes[:count]):
        nodes.append(Node(str(group[index].name), str(addresses[index]), slots[index], node_rank, first_rank))
        first_rank += slots[index]
    return RankTable(tuple(nodes))


def natural_key(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Return a sort key that compares digits as numbers and ignores case: node2 comes before node10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name.lower())
    return tuple((0, int(part), "") if part[0] in "0123456789" else (1, 0, part) for part in parts), name


def parse_whole_number(value: object) -> int | None:
    """Return the value as a number >= 0 if it is an integer or a string of ASCII decimal digits, or None otherwise."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value >= 0 else None
    # 18 digits: more than any count has, and below the length that Python refuses to convert.
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)
    return None


def name_error(name: object) -> str | None:
    """Return why launchers would not accept this as a host name, or None if they do."""
    if not isinstance(name, str) or not name:
        return f"the name is {format_value(name)}"
    if len(name) > 253:
        return f"the name {format_value(name)} is {len(name)} characters long"
    if not _NAME.match(name):
        return f"launchers do not accept the name {format_value(name)}"
    if name.lower() in _LEXER_TOKENS:
        return f"the name {format_value(name)} is a keyword in hostfiles"
    # Open MPI 4 cuts off domains, and resolvers interpret the rest as an address: 10.example.com becomes 0.0.0.10.
    if re.match(r"([0-9]+|0[xX][0-9A-Fa-f]*)(\.|\Z)", name) and ip_literal(name) is None:
        return f"the name {format_value(name)} begins with a number, which resolvers read as an address"
    return None


def ip_literal(text: str) -> _Address | None:
    """Return the address in a text in standard notation, or None otherwise: no zone, no leading zeros, no short
    IPv4.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if not text.isascii() or "%" in text or (address.version == 4 and str(address) != text):
        return None
    return address


def short_name(name: str) -> str:
    """Return a name's first label in lower case, which is all that Open MPI 4 keeps. Leave addresses unchanged."""
    return name if ip_literal(name) else name.lower().partition(".")[0]


def means_this_machine(name: str) -> bool:
    """Return whether every machine uses this name for itself: localhost, a loopback or a wildcard address."""
    address = ip_literal(name)
    if address is None:
        return short_name(name) in _LOCAL_NAMES
    return address.is_loopback or address.is_unspecified


def format_value(value: object) -> str:
    """Format a value for a message: quoted, in ASCII, control characters escaped, shortened if long."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value)) if abs(value) < 10**18 else "a number of more than 18 digits"
    try:
        text = ascii(str(value[:80])) if isinstance(value, str) else ascii(value)
    except ValueError:  # Python refuses to print very long numbers
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:80]}... (cut)"


def abbreviate(names: Iterable[object]) -> str:
    """Join the first three names and the number of remaining names."""
    items = list(names)
    first = ", ".join(_plain(name) for name in items[:3])
    return first if len(items) <= 3 else f"{first} and {len(items) - 3} more"


def _plain(name: object) -> str:
    """Return a name unchanged if it is printable, otherwise escaped."""
    is_plain = isinstance(name, str) and 0 < len(name) <= 253 and name.isascii() and name.isprintable()
    return str(name) if is_plain else format_value(name)


def _host_problem(host: HostSpec, problem: str, requirement: str, remedy: str) -> RankTableProblem:
    return RankTableProblem(
        str(host.name) if isinstance(host.name, str) else format_value(host.name), problem, requirement, remedy
    )


def _read_hosts(hosts: object, problems: list[RankTableProblem]) -> list[HostSpec]:
    """Return the entries as HostSpec, with unchecked fields."""
    requirement = "a list of hosts, each with name, address, slots and, if specified, rank"
    if isinstance(hosts, (str, bytes, Mapping)) or not isinstance(hosts, Iterable):
        problems.append(RankTableProblem(None, f"the hosts are {format_value(hosts)}", requirement, "Pass a list"))
        return []
    group: list[HostSpec] = []
    for number, item in enumerate(hosts, 1):
        if isinstance(item, HostSpec):
            group.append(item)
        elif isinstance(item, Mapping):
            group.append(_read_mapping(item, requirement, problems))
        else:
            problems.append(
                RankTableProblem(
                    None, f"host entry {number} is {format_value(item)}", requirement, "Correct this entry"
                )
            )
    if not group and not problems:
        remedy = "Add hosts to the group; if they are rented machines, start them"
        problems.append(RankTableProblem(None, "the group has no hosts", "at least one", remedy))
    return group


def _read_mapping(item: Mapping[str, Any], requirement: str, problems: list[RankTableProblem]) -> HostSpec:
    rank, node_rank = item.get("rank"), item.get("node_rank")
    host = HostSpec(item.get("name"), item.get("address"), item.get("slots"), node_rank if rank is None else rank)  # type: ignore[arg-type]
    unknown = [key for key in item if key not in ("name", "address", "slots", "rank", "node_rank", "first_rank")]
    if unknown:
        problems.append(
            _host_problem(
                host, f"the host has unknown keys: {abbreviate(unknown)}", requirement, "Correct their spelling"
            )
        )
    if rank is not None and node_rank is not None and rank != node_rank:
        problem = f"its rank is {format_value(rank)}, but its node_rank is {format_value(node_rank)}"
        problems.append(_host_problem(host, problem, "only one of them", "Remove the other"))
    return host


def _read_nnodes(nnodes: object, group: list[HostSpec], problems: list[RankTableProblem]) -> int:
    if nnodes is None:
        return len(group)
    count = parse_whole_number(nnodes)
    if count is None or count < 1 or count > len(group) > 0:
        problem = (
            f"nnodes is {format_value(nnodes)}, but the group has {len(group)} host{'' if len(group) == 1 else 's'}"
        )
        if group:
            problem = f"{problem}: {abbreviate(host.name for host in group)}"
        requirement = f"a whole number from 1 to {max(len(group), 1)}"
        problems.append(RankTableProblem(None, problem, requirement, "Request fewer nodes, or add hosts to the group"))
    return count or 0


def _check_names(group: list[HostSpec], problems: list[RankTableProblem]) -> None:
    names: dict[str, HostSpec] = {}
    short_names: dict[str, HostSpec] = {}
    for host in group:
        error = name_error(host.name)
        if error:
            problems.append(_host_problem(host, error, _NAME_REQUIREMENT, _NAME_REMEDY))
            continue
        previous = names.setdefault(host.name.lower(), host)
        if previous is not host:
            problem = f"the name is listed twice, first as {previous.name}"
            problems.append(_host_problem(host, problem, "each host once", "Remove or rename one of them"))
            continue
        previous = short_names.setdefault(short_name(host.name), host)
        if previous is not host:
            short = short_name(host.name)
            problem = f"its short name {short} is also the short name of {previous.name}, and Open MPI ignores domains"
            problems.append(_host_problem(host, problem, "a first label that no other host has", "Rename one of them"))


def _check_addresses(group: list[HostSpec], problems: list[RankTableProblem]) -> list[_Address | None]:
    """Return the addresses in group order, or None for a host without a valid one."""
    addresses = [ip_literal(host.address) if isinstance(host.address, str) else None for host in group]
    all_loopback = all(address is not None and address.is_loopback for address in addresses)
    all_link_local = all(address is not None and address.is_link_local for address in addresses)
    owners: dict[_Address, HostSpec] = {}
    for host, address in zip(group, addresses, strict=True):
        if address is None:
            error: str | None = _missing_address_error(host.address)
        else:
            error = _address_error(address, loopback_ok=all_loopback, link_local_ok=all_link_local)
            previous = owners.setdefault(address, host)
            if error is None and previous is not host:
                error = f"its address {address} is also the address of {_plain(previous.name)}"
        if error:
            problems.append(_host_problem(host, error, _ADDRESS_REQUIREMENT, _ADDRESS_REMEDY))
    for host, address in zip(group, addresses, strict=True):
        if address is not None and name_error(host.name) is None:
            error = _misleading_name_error(host.name, address, owners)
            if error:
                problems.append(
                    _host_problem(host, error, "a name that refers to this host on every node", _NAME_REMEDY)
                )

    families: dict[int, list[str]] = {4: [], 6: []}
    for host, address in zip(group, addresses, strict=True):
        if address is not None:
            families[address.version].append(host.name)
    if families[4] and families[6]:
        problem = f"some addresses are IPv4 ({abbreviate(families[4])}) and some are IPv6 ({abbreviate(families[6])})"
        remedy = "Set node_address of all hosts to their addresses on the network they share"
        problems.append(RankTableProblem(None, problem, "addresses that all use the same IP version", remedy))
    return addresses


def _missing_address_error(text: object) -> str:
    if text is None or text == "":
        return "the host has no address"
    if not isinstance(text, str):
        return f"its address is {format_value(text)}"
    if "%" in text:
        return f"its address {format_value(text)} has a zone index, which has a different meaning on each node"
    if name_error(text) is None:
        return f"its address {format_value(text)} is a name, which may resolve differently on each node"
    return f"its address {format_value(text)} is malformed"


def _address_error(address: _Address, *, loopback_ok: bool, link_local_ok: bool) -> str | None:
    """Return why an address cannot be used between nodes, or None. Loopback is fine if all nodes are this machine."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return f"its address {address} is an IPv4 address in IPv6 form (write it as {address.ipv4_mapped})"
    if address.is_unspecified:
        return f"its address {address} is the wildcard address, which does not belong to a host"
    if address.is_multicast:
        return f"its address {address} is a multicast address, which does not belong to a single host"
    if address.is_loopback:
        return (
            None
            if loopback_ok
            else f"its address {address} is a loopback address, which refers to a different host on each node"
        )
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_link_local:
            return f"its address {address} is link-local, which refers to a different host on each interface"
    elif address.is_link_local:
        # A host assigns itself 169.254.x.y if no network assigns an address. Such an address works only between hosts
        # on one cable.
        return None if link_local_ok else (f"its address {address} is link-local, unlike other addresses in the group")
    if address.is_reserved or (address.version == 4 and int(address) < 1 << 24):
        return f"its address {address} is reserved, so no host can have it"
    return None


def _misleading_name_error(name: str, address: _Address, owners: Mapping[_Address, HostSpec]) -> str | None:
    """Return why a launcher that uses the name would reach a machine other than the one at this address, or None."""
    if means_this_machine(name) and not address.is_loopback:
        return f"each node resolves the name {name} to itself, but the address is {address}"
    name_address = ip_literal(name)
    if name_address is not None and name_address != address and name_address in owners:
        return f"the name {name} is the address of {_plain(owners[name_address].name)}, but this host has {address}"
    return None


def _check_slots(group: list[HostSpec], problems: list[RankTableProblem]) -> list[int]:
    slots: list[int] = []
    for host in group:
        count = parse_whole_number(host.slots)
        slots.append(count or 0)
        if count is None or not 1 <= count <= MAX_SLOTS:
            problem = (
                "the host has no slots" if host.slots is None else f"its number of slots is {format_value(host.slots)}"
            )
            remedy = "Set node_slots of this host to the number of processes to start on it, usually one per GPU"
            problems.append(_host_problem(host, problem, f"a whole number from 1 to {MAX_SLOTS}", remedy))
    return slots


def _check_ranks(group: list[HostSpec], problems: list[RankTableProblem]) -> list[int]:
    """Return the explicit ranks in group order, or an empty list if there are none or they are invalid."""
    unranked = [host.name for host in group if host.rank is None]
    if len(unranked) == len(group):
        return []
    requirement = f"node_rank 0 to {len(group) - 1}, each once, on all hosts of the group or on none"
    remedy = "Correct node_rank in the inventory, or remove it from all hosts of the group"
    if unranked:
        problem = f"{len(group) - len(unranked)} of {len(group)} hosts have a node_rank, but not {abbreviate(unranked)}"
        problems.append(RankTableProblem(None, problem, requirement, remedy))
    owners: dict[int, HostSpec] = {}
    ranks: list[int] = []
    for host in group:
        if host.rank is None:
            continue
        rank = parse_whole_number(host.rank)
        if rank is None:
            problems.append(_host_problem(host, f"its node_rank is {format_value(host.rank)}", requirement, remedy))
            continue
        ranks.append(rank)
        previous = owners.setdefault(rank, host)
        if previous is not host:
            problems.append(
                _host_problem(
                    host, f"its node_rank {rank} is also the node_rank of {_plain(previous.name)}", requirement, remedy
                )
            )
    if len(owners) < len(group):
        return []
    for expected, rank in enumerate(sorted(owners)):
        if rank != expected:
            problem = f"its node_rank is {format_value(rank)}, but no host has node_rank {expected}"
            problems.append(_host_problem(owners[rank], problem, requirement, remedy))
            return []
    return ranks
