# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm
short_description: Use the nodes of an existing Slurm cluster
version_added: 0.1.0
author: muster contributors (@muster)
description:
  - Adds the nodes that C(scontrol show node) lists on a login host to the group C(training), with the host variables
    C(ansible_host), C(node_address), C(node_slots) (the number of GPUs), C(slurm_node) (the name in Slurm),
    C(slurm_state), C(slurm_partitions), C(slurm_features) and C(slurm_gres).
  - The login host itself becomes the only host of the group C(slurm_login). The nodes are reached through it.
  - The inventory file is a YAML file whose name ends with C(slurm.yml) or C(slurm.yaml). Use it together with
    P(muster.training.ranks#inventory), which assigns the ranks.
  - Does not need root, and changes nothing on the cluster.
notes:
  - Resolves the names of nodes without an address in Slurm on the login host.
seealso:
  - plugin: muster.training.ranks
    plugin_type: inventory
  - module: muster.training.slurm_job
extends_documentation_fragment:
  - constructed
options:
  plugin:
    description: Token that selects this plugin.
    type: str
    required: true
    choices: [muster.training.slurm]
  login:
    description:
      - The login host, as C(ssh) takes it, such as V(ada@login.example.org). If empty, this machine is the login host.
    type: str
    default: ''
  partition:
    description: Select the nodes of this partition. If empty, select all nodes.
    type: str
    default: ''
  unusable:
    description: Whether to include nodes that are down or drained.
    type: bool
    default: false
  jump:
    description:
      - Whether to connect to the nodes through O(login). Set it to V(false) if this machine can reach them directly.
    type: bool
    default: true
  timeout:
    description: Timeout of each command on the login host, in seconds.
    type: float
    default: 60
"""

EXAMPLES = r"""
# slurm.yml: all nodes of a partition that can run jobs
plugin: muster.training.slurm
login: ada@login.example.org
partition: gpu
---
# On the login host itself, only nodes with the feature h100
plugin: muster.training.slurm
compose:
  ansible_user: "'ada'"
groups:
  h100: "'h100' in slurm_features"
"""

import contextlib
import shlex
import subprocess

from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader

from ansible_collections.muster.training.plugins.plugin_utils._cluster.constructed_inventory import (
    ConstructedInventory,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.terraform_state import host_name
from ansible_collections.muster.training.plugins.plugin_utils._slurm.existing_cluster import (
    ClusterNode,
    SlurmOutputError,
    host_variables,
    is_address,
    parse_addresses,
    parse_nodes,
    select_nodes,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

GROUP = "training"
LOGIN_GROUP = "slurm_login"
NAMES_AT_ONCE = 200
"""Maximum number of names in one command, whose length is limited."""


class InventoryModule(ConstructedInventory):
    """Reads the options and queries Slurm; existing_cluster.py interprets its output."""

    NAME = "muster.training.slurm"

    def verify_file(self, path: str) -> bool:
        """Return whether a file's name shows that it is meant for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(("slurm.yml", "slurm.yaml"))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = False) -> None:
        """Add the selected nodes to the inventory, or add none and raise AnsibleParserError."""
        super().parse(inventory, loader, path, cache=cache)
        self._read_config_data(path)
        login = self.get_option("login")
        if login.startswith("-") or any(character.isspace() for character in login):
            raise AnsibleParserError(f"{self.NAME}: `login` must be HOST or USER@HOST, not {ascii(login)}")
        try:
            nodes = parse_nodes(self._run("scontrol", "show", "node", "--oneliner"))
            selected = select_nodes(nodes, self.get_option("partition"), self.get_option("unusable"))
            addresses = self._resolve([node.address for node in selected if not is_address(node.address)])
        except SlurmOutputError as error:
            raise AnsibleParserError(f"{self.NAME}: {error}") from None
        if not selected:
            self.display.warning(f"{self.NAME}: {self._explain_empty(nodes)}")
        inventory.add_group(GROUP)
        self._add_login(login)
        for node in selected:
            self._add_host(node, login, addresses)

    def _explain_empty(self, nodes: list[ClusterNode]) -> str:
        """Return why no node is selected."""
        partition = self.get_option("partition")
        members = [node for node in nodes if not partition or partition in node.partitions]
        if not nodes:
            return "Slurm lists no nodes."
        if not members:
            known = sorted({name for node in nodes for name in node.partitions})
            return f"no node is in the partition {partition}. Partitions: {', '.join(known) or 'none'}."
        reasons = [f"{node.name} is {node.state} ({node.reason or 'no reason given'})" for node in members[:3]]
        return f"no node can run jobs: {'; '.join(single_line(reason) for reason in reasons)}. See `sinfo -R`."

    def _run(self, *argv: str, stdin: str = "") -> str:
        """Return the output of a command on the login host. Raise SlurmOutputError if it fails."""
        login = self.get_option("login")
        remote = ["ssh", "-o", "BatchMode=yes", "--", login, shlex.join(argv)] if login else list(argv)
        where = f"on {login}" if login else "on this machine"
        try:
            completed = subprocess.run(
                remote,
                input=stdin,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=self.get_option("timeout"),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SlurmOutputError(
                f"`{argv[0]}` {where} did not finish within {self.get_option('timeout'):g} s. Try it: "
                f"{shlex.join(remote)}"
            ) from None
        except OSError as error:
            raise SlurmOutputError(
                f"{remote[0]} cannot be run {where}: {error.strerror}. "
                + ("Install OpenSSH's client" if login else "Set `login` to a host of the cluster")
            ) from None
        if completed.returncode != 0:
            message = single_line(completed.stderr or completed.stdout, 500) or f"exit code {completed.returncode}"
            raise SlurmOutputError(f"`{shlex.join(argv)[:80]}` {where} failed: {message}")
        return completed.stdout

    def _resolve(self, names: list[str]) -> dict[str, str]:
        """Return the address that each name resolves to on the login host, omitting names that cannot be resolved."""
        script = 'for name; do echo "# $name"; getent ahostsv4 "$name"; done; true'
        addresses: dict[str, str] = {}
        for start in range(0, len(names), NAMES_AT_ONCE):
            with contextlib.suppress(SlurmOutputError):  # Ansible and the checks report names that do not resolve
                addresses |= parse_addresses(self._run("sh", "-c", script, "sh", *names[start : start + NAMES_AT_ONCE]))
        return addresses

    def _add_login(self, login: str) -> None:
        """Add the login host, from which runs are submitted."""
        self.inventory.add_group(LOGIN_GROUP)
        user, _at, host = login.rpartition("@")
        name = host or "slurm-login"
        self.inventory.add_host(name, group=LOGIN_GROUP)
        variables = {"ansible_host": host, "ansible_user": user} if host else {"ansible_connection": "local"}
        for variable, value in variables.items():
            if value:
                self.inventory.set_variable(name, variable, value)

    def _add_host(self, node: ClusterNode, login: str, addresses: dict[str, str]) -> None:
        variables = host_variables(node, addresses)
        user = login.rpartition("@")[0]
        if login and self.get_option("jump"):
            variables["ansible_ssh_common_args"] = f"-o ProxyJump={login}"
        if user:
            variables["ansible_user"] = user
        self._add_constructed_host(host_name(node.name), GROUP, variables)
