# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a Paperspace account as the nodes of one cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
name: paperspace
short_description: Use the machines of a Paperspace account as nodes of a training cluster
version_added: 0.1.0
author: muster contributors (@muster)
description:
  - Queries the Paperspace API (version 1) for the machines of an account and adds those selected by the options to the
    group C(training), as the playbooks C(muster.training.site) and C(muster.training.launch) expect.
  - The inventory file is a YAML file whose name ends with C(paperspace.yml) or C(paperspace.yaml). The C(plugin) line
    alone is enough if all running machines of the account belong to the cluster.
  - All pages of the response are read before the first host is added. On a failure, no hosts are added, and a one-line
    message names the cause and the remedy. Ansible itself continues after such a failure and exits successfully, unless
    C(any_unparsed_is_failed = true) is set in the section C([inventory]) of C(ansible.cfg).
  - Nothing is changed at Paperspace. Machines that are off are omitted by default; see O(states).
notes:
  - "Host variables that other parts of this collection read: C(node_address) (the private address), C(node_slots) (the
    number of GPUs; 1 for a machine without GPUs, which then runs one process on its CPU) and C(node_rank) (0, 1, 2 ...
    by creation time, then by ID)."
  - "Further host variables: C(ansible_host), C(ansible_user), C(paperspace_id), C(paperspace_name),
    C(paperspace_state), C(paperspace_machine_type), C(paperspace_gpu_count), C(paperspace_gpu_model),
    C(paperspace_gpu_memory) (bytes), C(paperspace_region) (C(ny2), C(ca1), C(ams1)), C(paperspace_region_name) (as
    returned by the API), C(paperspace_network_id), C(paperspace_network_name) (V(null) for Paperspace's shared default
    network), C(paperspace_private_ip), C(paperspace_public_ip), C(paperspace_public_ip_type), C(paperspace_os),
    C(paperspace_agent_type), C(paperspace_cpus), C(paperspace_ram), C(paperspace_storage_total),
    C(paperspace_storage_used) (bytes), C(paperspace_auto_shutdown_enabled), C(paperspace_auto_shutdown_timeout)
    (hours), C(paperspace_usage_rate), C(paperspace_storage_rate) (US dollars per hour), C(paperspace_created)."
  - "C(node_price_per_hour) is the cost of a machine per hour while it is on, in US dollars. It is the sum of the two
    rates, or the first alone if the API does not return the second. That the second is also per hour is inferred from
    its size, not documented."
  - What the API returns is treated as data, never as a template. Control characters are replaced with spaces, and
    strings are truncated to 255 characters.
  - A host is named after its machine. Names that are not unique at Paperspace, that contain characters other than
    letters, digits, C(.), C(_) and C(-), or that have another meaning in Ansible (C(localhost), C(all), C(training))
    are sanitized and get the machine's ID appended, for example C(gpu-node-psucgene4).
  - C(node_rank) changes when a machine is added, removed or switched off, so that the ranks have no gaps.
  - Machines in different regions or private networks cannot reach each other. If the options select such machines, the
    plugin fails and names them.
  - The dynamic public address of a machine changes with each start. With a cache, use C(--flush-cache) after starting,
    creating or removing a machine.
seealso:
  - plugin: muster.training.ranks
    plugin_type: inventory
  - name: Paperspace API reference
    description: The API that this plugin queries.
    link: https://docs.digitalocean.com/reference/paperspace/api-reference/
extends_documentation_fragment:
  - constructed
  - inventory_cache
options:
  plugin:
    description: Token that selects this plugin.
    type: str
    required: true
    choices: [muster.training.paperspace]
  api_key:
    description:
      - API key of the team that owns the machines. Create keys at U(https://console.paperspace.com/settings/apikeys).
      - Preferably omitted. The key is then read from E(PAPERSPACE_API_KEY), otherwise from
        C(~/.paperspace/credentials.toml), which C(pspace login) writes (the key of the team selected by C(pspace config
        set team)), otherwise from C(~/.paperspace/config.json) of the old command-line tool.
      - May be a template, for example a lookup, or a value encrypted by Ansible Vault.
      - The key is sent only to O(api_url), and never appears in messages, logs or caches.
    # No `env` here: ansible-config dump would print the key.
    type: str
  api_url:
    description: Base URL of the API. C(http://) is accepted only for C(localhost), for tests.
    type: str
    default: https://api.paperspace.com/v1
    env:
      - name: PAPERSPACE_API_URL
  region:
    description:
      - Select machines of this region, by code or full name. V(ny2), V(NY2) and V(East Coast (NY2\)) are equivalent.
      - Defaults to all regions, but the selected machines must all be in the same one.
    type: str
  private_network:
    description:
      - Select machines of this private network, by name or ID.
      - Defaults to all networks, but the selected machines must all be in the same one.
    type: str
  cluster:
    description:
      - Select the machines of this cluster, created by M(muster.training.cluster). These are named
        C(CLUSTER-NUMBER) and are in the private network C(muster-CLUSTER).
      - If the cluster does not exist yet, the plugin only warns.
    type: str
  drive_path:
    description:
      - With O(cluster), the directory on the nodes where the role C(cifs_share) mounts the cluster's network drive, if
        it has one. The group C(training) then gets the variables C(cifs_share_mounts), C(cifs_share_username) and
        C(cifs_share_password), which queries the API for the password when needed
        (P(muster.training.paperspace_drive_password#lookup)). Values in C(group_vars) take precedence.
      - If empty, the drive is ignored.
    type: str
    default: /mnt/training-data
  machine_types:
    description:
      - Select machines of these types, for example V(A100-80Gx8). Not case-sensitive.
      - If empty, defaults to all types.
    type: list
    elements: str
    default: []
  names:
    description:
      - Select machines whose name matches one of these patterns. V(*) matches any text, V(?) one character, V([12]) one
        of these characters. If empty, defaults to all names.
    type: list
    elements: str
    default: []
  query:
    description:
      - Select the machines that this JMESPath query (U(https://jmespath.org)) returns. It is applied to the list of
        machines selected by the options above, in the format of the API, and must return machines or their IDs.
      - Needs the Python library C(jmespath) on the controller.
    type: str
  states:
    description:
      - Select machines in one of these states. V(ready) is on and usable; V(serviceready) is almost usable.
      - An empty list selects machines in every state, most of which cannot be reached.
    type: list
    elements: str
    choices: ["off", starting, stopping, restarting, serviceready, ready, upgrading, provisioning]
    default: [ready]
  connect_with:
    description:
      - Address to which Ansible connects. The nodes always use the private one among themselves.
      - V(private) needs a route from the controller into the private network, for example a VPN or a jump host.
      - The plugin fails if a machine does not have the selected address, and names it.
    type: str
    choices: [public, private]
    default: public
  user:
    description:
      - User to log in as. All of Paperspace's templates use V(paperspace).
      - If empty, C(ansible_user) is not set.
    type: str
    default: paperspace
  hostnames:
    description:
      - Sources of a host's name, in order of preference. The first that a machine has is used; the ID is always the
        last resort.
    type: list
    elements: str
    choices: [name, id, private_ip, public_ip]
    default: [name]
  timeout:
    description: Timeout of a request, in seconds.
    type: float
    default: 30
  retries:
    description:
      - Number of retries after a temporary failure (connection, timeout, HTTP 429 and 5xx), after 1, 2, 4 ... seconds,
        or the time in C(Retry-After), up to 60 seconds. V(0) disables retries.
    type: int
    default: 4
"""

EXAMPLES = r"""
# A complete paperspace.yml for an account with one cluster. The key is in PAPERSPACE_API_KEY.
#
#   ansible-inventory -i paperspace.yml --graph --vars     shows the resulting hosts
#   ansible-playbook muster.training.site -i paperspace.yml
plugin: muster.training.paperspace
---
# One of several clusters.
plugin: muster.training.paperspace
region: ny2
private_network: my-team-net
machine_types: [A6000x2, A6000x4]
names: ["bert-*"]
---
# Only the cluster that `ansible-playbook muster.training.provision -e cluster=bert` creates.
plugin: muster.training.paperspace
cluster: bert
---
# Machines that cost less than 4 dollars per hour and are named neither old nor test.
plugin: muster.training.paperspace
query: "[?usageRate < `4` && !contains(name, 'old') && !contains(name, 'test')]"
---
# Queried at most every ten minutes; the key is read from a program.
plugin: muster.training.paperspace
api_key: "{{ lookup('ansible.builtin.pipe', 'pass show paperspace') }}"
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/muster
cache_timeout: 600
---
# Connected to through a jump host, with groups by type and half of the GPUs left to others.
plugin: muster.training.paperspace
connect_with: private
compose:
  ansible_ssh_common_args: "'-o ProxyJump=paperspace@203.0.113.10'"
  node_slots: paperspace_gpu_count // 2
keyed_groups:
  - prefix: type
    key: paperspace_machine_type
groups:
  large_memory: paperspace_ram > 200 * 1024 ** 3
"""

import os
import typing as t

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.inventory import Cacheable
from ansible.template import trust_as_template

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.drive import (
    cluster_drive,
    mount_variables,
    password_template,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import PaperspaceError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.hosts import (
    GROUP,
    InventoryHost,
    Selection,
    SelectionError,
    build_hosts,
    explain_empty_selection,
    format_machines,
    select,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_drives
from ansible_collections.muster.training.plugins.plugin_utils._cluster.constructed_inventory import (
    ConstructedInventory,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line


class InventoryModule(ConstructedInventory, Cacheable):
    """Reads the options and adds the hosts; client.py sends the requests and hosts.py interprets the responses."""

    NAME = "muster.training.paperspace"

    def verify_file(self, path: str) -> bool:
        """Return whether a file is for this plugin, judging by its name."""
        return bool(super().verify_file(path)) and path.endswith(("paperspace.yml", "paperspace.yaml"))

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Add the selected machines to the inventory, or add none and raise AnsibleParserError."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        try:
            response = self._fetch(path, cache)
            selected = self._select_hosts(response)
        except (PaperspaceError, SelectionError) as error:
            # the message is complete; a chain of causes would repeat it
            raise AnsibleParserError(f"{self.NAME}: {error}") from None
        self.inventory.add_group(GROUP)
        for host in selected:
            self._add_constructed_host(host.name, GROUP, host.variables)
        self._add_drive({host.variables["paperspace_network_id"] for host in selected}, response)

    def _fetch(self, path: str, cache: bool) -> dict[str, list[dict[str, t.Any]]]:
        """Return the API's raw response, from the cache if it is enabled and valid; options are not stored in the
        cache.
        """
        caching = self.get_option("cache")
        key = self.get_cache_key(path)
        needs_drive = self.get_option("cluster") and self.get_option("drive_path")
        if caching and cache:
            try:
                cached = self._cache[key]
                parts = ("machines", "networks", "drives") if needs_drive else ("machines", "networks")
                if all(isinstance(item["id"], str) for part in parts for item in cached[part]):
                    return t.cast("dict[str, list[dict[str, t.Any]]]", cached)
            except (AnsibleError, KeyError, TypeError, ValueError):
                pass  # missing, expired, or written by something else: request it again
        client = self._client()
        response = {"machines": client.list_all("/machines"), "networks": client.list_all("/private-networks")}
        if needs_drive:  # read_drives() omits the password
            response["drives"] = [dict(drive) for drive in read_drives(client)]
        if caching:
            self._cache[key] = response
        return response

    def _client(self) -> Client:
        api_key = self.get_option("api_key")
        return Client(
            find_api_key(str(self.templar.template(api_key)) if api_key else None, os.environ, os.path.expanduser("~")),
            self.get_option("api_url"),
            timeout=self.get_option("timeout"),
            retries=self.get_option("retries"),
            notify=lambda line: self.display.warning(f"{self.NAME}: {line}"),
        )

    def _select_hosts(self, response: dict[str, list[dict[str, t.Any]]]) -> list[InventoryHost]:
        selection = Selection(
            region=self.get_option("region"),
            private_network=self.get_option("private_network"),
            cluster=self.get_option("cluster"),
            machine_types=self.get_option("machine_types"),
            names=self.get_option("names"),
            query=self.get_option("query"),
            states=self.get_option("states"),
        )
        machines, excluded = select(response["machines"], response["networks"], selection)
        for step in excluded:
            self.display.v(f"{self.NAME}: excluded by {step.option}: {format_machines(step.machines)}")
        if not machines:
            self.display.warning(
                f"{self.NAME}: {single_line(explain_empty_selection(len(response['machines']), excluded), 1000)}."
            )
        return build_hosts(
            machines,
            response["networks"],
            preferences=self.get_option("hostnames"),
            connect_with=self.get_option("connect_with"),
            user=self.get_option("user"),
        )

    def _add_drive(self, networks: set[str], response: dict[str, list[dict[str, t.Any]]]) -> None:
        cluster, path = self.get_option("cluster"), self.get_option("drive_path")
        if not cluster or not path:
            return
        drive = cluster_drive(cluster, networks, t.cast(t.Any, response["drives"]))
        if drive is None:
            return
        for name, value in mount_variables(drive, path).items():
            self.inventory.set_variable(GROUP, name, value)
        template = password_template(drive, self.get_option("api_url"))
        if template:
            self.inventory.set_variable(GROUP, "cifs_share_password", trust_as_template(template))
