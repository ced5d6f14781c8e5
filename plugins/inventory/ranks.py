# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: ranks
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Put the hosts of a group in rank order
description:
  - Gives each host of a group C(node_rank) (0, 1, 2 ...), C(node_address) (its address among the nodes) and, if known,
    C(node_slots) (processes to start on it).
  - Adds no hosts. It works on the hosts of the preceding inventory sources, as P(ansible.builtin.constructed#inventory)
    does, so it must come after them, as in C(-i aws_ec2.yml -i ranks.yml). Sources in one directory are read in the
    order of their names.
  - The file name must end with C(ranks.yml) or C(ranks.yaml).
  - The whole group is checked. Anything that would prevent a run from starting, such as a duplicate or loopback
    address, is an error that names the hosts.
  - It is not an error if the preceding sources contain no hosts, for example before cloud machines are created.
  - If C(node_slots) is set neither here nor elsewhere in the inventory, slots are counted on the machine.
notes:
  - Variables of C(group_vars) and C(host_vars) next to the inventory can be used in the expressions.
  - A failing inventory is only a warning in Ansible unless C(any_unparsed_is_failed) is true in the section
    C([inventory]) of C(ansible.cfg).
options:
  plugin:
    description: Token that selects this plugin.
    type: str
    required: true
    choices: [muster.training.ranks]
  group:
    description: Group of the hosts that train together.
    type: str
    default: training
  address:
    description:
      - Jinja expression for the (private) address at which the nodes reach each other.
      - It must evaluate to an IP address.
      - Defaults to C(node_address) of the host, otherwise C(ansible_host), otherwise the name of the host.
    type: str
    default: node_address | default(ansible_host) | default(inventory_hostname)
  slots:
    description:
      - Jinja expression for the number of processes to start on the host, one per GPU.
      - If it evaluates to none, or a variable in it is undefined, C(node_slots) is not changed.
    type: str
    default: node_slots | default(none)
  rank:
    description:
      - Jinja expression for the position of the host in the group, from 0.
      - It must evaluate to a number for all hosts of the group, or to none for all, in which case O(order) applies.
      - Defaults to the host's C(node_rank).
    type: str
    default: node_rank | default(none)
  order:
    description:
      - Order of the hosts if O(rank) evaluates to none.
      - V(inventory) keeps the order of the inventory. V(name) sorts by name, C(node2) before C(node10).
    type: str
    choices: [inventory, name]
    default: inventory
  order_by:
    description:
      - Jinja expression for a text by which O(order=inventory) sorts the hosts, C(bert-2) before C(bert-10).
      - Hosts for which it evaluates to none come last, in the order of the inventory.
    type: str
    default: node_order | default(none)
  topology:
    description:
      - Jinja expression for the location of the host in the network, such as the name of its rack, or a path from the
        outermost to the innermost part, V(spine1/rack7), or a list of such names.
      - Hosts in the same part get neighboring ranks, which thus communicate over fewer switches. Parts, and hosts in
        the innermost part, keep the order that O(order) and O(order_by) give them. The same applies to O(rank0).
      - It has no effect if O(rank) sets the ranks. Hosts for which it evaluates to none keep their position.
    type: str
    default: node_topology | default(node_rack | default(none))
  rank0:
    description:
      - Name of the host that gets rank 0, whatever its position. The others keep their order and are numbered after it.
    type: str
  strict:
    description: Treat an undefined variable in O(slots), O(rank), O(order_by) or O(topology) as an error.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
# ranks.yml: hosts in the order of the inventory, each with node_address or ansible_host
plugin: muster.training.ranks

---
# ranks.yml: machines of amazon.aws.aws_ec2, by name, with node7 as rank 0
plugin: muster.training.ranks
group: aws_ec2
address: private_ip_address
slots: "{'g5.xlarge': 1, 'g5.12xlarge': 4, 'p4d.24xlarge': 8}[instance_type]"
order: name
rank0: node7

---
# ranks.yml: neighboring ranks in one rack, whose name is a variable of each host
plugin: muster.training.ranks
topology: rack

---
# ranks.yml: the rank is a label on the machine; a machine without the label is an error
plugin: muster.training.ranks
rank: tags.rank
strict: true
"""

from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleError, AnsibleParserError, AnsibleUndefinedVariable
from ansible.inventory.data import InventoryData
from ansible.inventory.group import Group
from ansible.inventory.helpers import get_group_vars, sort_groups
from ansible.inventory.host import Host as InventoryHost
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.utils.vars import combine_vars
from ansible.vars.plugins import get_vars_from_inventory_sources

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTableError,
    RankTableProblem,
    abbreviate,
    build_rank_table,
    format_value,
    natural_key,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.topology_order import (
    order_by_location,
    parse_location,
)


class InventoryModule(BaseInventoryPlugin, Constructable):
    """Sets node_rank, node_address and node_slots for the hosts in a group."""

    NAME = "muster.training.ranks"

    def verify_file(self, path: str) -> bool:
        """Return whether a file's name shows that it is meant for this plugin."""
        return super().verify_file(path) and path.endswith(("ranks.yml", "ranks.yaml"))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = False) -> None:
        """Read the options from the file and set the variables."""
        super().parse(inventory, loader, path, cache=cache)
        unknown = set(self._read_config_data(path)) - set(self.get_options())
        if unknown:  # Ansible would ignore them, and a misspelt `rank0` would have no effect
            raise AnsibleParserError(
                f"{self.NAME}: unknown options: {abbreviate(sorted(unknown))}. "
                f"Valid options: {', '.join(sorted(self.get_options()))}."
            )
        hosts = self._members(self.get_option("group"))
        if not hosts:
            return
        try:
            variables = _HostVariables(loader, [*inventory.processed_sources, path])
            order, rank0 = self.get_option("order"), self.get_option("rank0")
            configured = order_hosts(self._evaluate_all(hosts, variables), order, rank0)
            table = build_rank_table(
                # Missing slots are counted on the node later; any number will do for ordering.
                [replace(host, slots=1) if host.slots is None else host for host in configured],
                rank0=rank0,
            )
        except RankTableError as exc:
            raise AnsibleParserError(f"{self.NAME}: the hosts do not form a valid cluster.\n{exc}") from exc
        counted_later = {host.name for host in configured if host.slots is None}
        for node in table.nodes:
            inventory.set_variable(node.name, "node_rank", node.node_rank)
            inventory.set_variable(node.name, "node_address", node.address)
            if node.name not in counted_later:
                inventory.set_variable(node.name, "node_slots", node.slots)

    def _members(self, name: str) -> list[InventoryHost]:
        """Return the hosts in the group, which may be empty only if the cloud machines have not been created yet."""
        group = self.inventory.groups.get(name)
        hosts = group.get_hosts() if group else []
        is_pending = group is None and not self.inventory.hosts and self.inventory.processed_sources
        if not hosts and not is_pending:
            state = "is empty" if group else "does not exist"
            raise AnsibleParserError(
                f"{self.NAME}: the group {format_value(name)} {state}. Add hosts to it in a source before this "
                "one: pass this file last (-i hosts.yml -i ranks.yml), or give it a name that sorts last, such "
                "as 99_ranks.yml, if all sources are in one directory."
            )
        return hosts

    def _evaluate_all(
        self, hosts: list[InventoryHost], host_variables: _HostVariables
    ) -> list[tuple[HostSpec, tuple[str, ...]]]:
        """Return the unchecked results of the expressions for each host, with the host's location, sorted by order_by.

        Raise a single error for all expressions that fail.
        """
        problems: list[RankTableProblem] = []
        configured: list[tuple[bool, Any, HostSpec, tuple[str, ...]]] = []
        for host in hosts:
            variables = host_variables(host)
            values: dict[str, Any] = dict.fromkeys(("address", "slots", "rank", "order_by", "topology"))
            for option in values:
                try:
                    values[option] = self._compose(self.get_option(option), variables)
                except AnsibleError as exc:
                    may_be_missing = option != "address" and not self.get_option("strict")
                    if may_be_missing and isinstance(exc, AnsibleUndefinedVariable):
                        continue
                    problem = f"the expression in {option} fails: {_single_line(exc.message)}"
                    remedy = f"Correct {option} in this file, or the variables of this host"
                    problems.append(
                        RankTableProblem(host.name, problem, "an expression that yields a value for every host", remedy)
                    )
            order, topology = values.pop("order_by"), values.pop("topology")
            location: tuple[str, ...] = ()
            try:
                location = parse_location(topology)
            except ValueError as exc:
                problem = f"its topology is {format_value(topology)}"
                problems.append(RankTableProblem(host.name, problem, str(exc), "Correct topology in this file"))
            configured.append((order is None, natural_key(str(order)), HostSpec(host.name, **values), location))
        if problems:
            raise RankTableError(problems)
        return [entry[2:] for entry in sorted(configured, key=lambda entry: entry[:2])]


def order_hosts(hosts: list[tuple[HostSpec, tuple[str, ...]]], order: str, rank0: str | None) -> list[HostSpec]:
    """Return the hosts in rank order, unless they have explicit ranks. hosts: the hosts, each with its location."""
    if order == "name":
        hosts = sorted(hosts, key=lambda entry: natural_key(entry[0].name))
    # the ranks in rank 0's part of the network come first, too
    hosts = sorted(hosts, key=lambda entry: entry[0].name != rank0)
    return [hosts[index][0] for index in order_by_location([location for _host, location in hosts])]


def _single_line(text: str) -> str:
    """Return an Ansible message, which may quote an API, without line breaks or control characters."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(text.split()))


class _HostVariables:
    """The variables that the inventory and the vars plugins (group_vars, host_vars) set for a host."""

    def __init__(self, loader: DataLoader, sources: list[str]) -> None:
        self._loader = loader
        self._sources = sources
        self._group_cache: dict[tuple[str, ...], dict[str, Any]] = {}

    def __call__(self, host: InventoryHost) -> dict[str, Any]:
        groups = sort_groups(host.get_groups())
        key = tuple(group.name for group in groups)
        if key not in self._group_cache:  # once for all hosts of the same groups
            all_group = [group for group in groups if group.name == "all"]
            other_groups = [group for group in groups if group.name != "all"]
            self._group_cache[key] = combine_vars(self._group_variables(all_group), self._group_variables(other_groups))
        variables = combine_vars(self._group_cache[key], host.get_vars())
        return combine_vars(variables, self._plugin_variables([host]))

    def _group_variables(self, groups: list[Group]) -> dict[str, Any]:
        return combine_vars(get_group_vars(groups), self._plugin_variables(groups))

    def _plugin_variables(self, entities: list[Any]) -> dict[str, Any]:
        return get_vars_from_inventory_sources(self._loader, self._sources, entities, "all")
