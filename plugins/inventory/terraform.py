# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines created by OpenTofu or Terraform, as the nodes of one cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
name: terraform
short_description: Use machines that OpenTofu or Terraform created as nodes of a training cluster
version_added: 0.1.0
author: muster contributors (@muster)
description:
  - Adds the machines in a state of OpenTofu or Terraform to the group C(training), with the host variables
    C(ansible_host) (the public address, otherwise the private one), C(node_address) (the private address),
    C(ansible_user) and C(node_price_per_hour) where the resource has them, C(terraform_address) and C(terraform_type).
  - The inventory file is a YAML file whose name ends with C(terraform.yml) or C(terraform.yaml). Use it together with
    P(muster.training.ranks#inventory), which assigns the ranks.
  - Knows C(aws_instance), C(azurerm_linux_virtual_machine), C(digitalocean_droplet), C(google_compute_instance),
    C(hcloud_server) and C(openstack_compute_instance_v2).
  - Other attributes of a resource, which may be secret, do not become host variables. Expressions in O(compose),
    O(groups) and O(keyed_groups) read them as C(values).
notes:
  - The state is read, and nothing is changed. O(program) runs in O(directory), where its own credentials for a remote
    state apply.
seealso:
  - plugin: muster.training.ranks
    plugin_type: inventory
  - name: JSON output format
    description: The format that this plugin reads.
    link: https://developer.hashicorp.com/terraform/internals/json-format
extends_documentation_fragment:
  - constructed
options:
  plugin:
    description: Token that selects this plugin.
    type: str
    required: true
    choices: [muster.training.terraform]
  directory:
    description:
      - Directory of the configuration, in which O(program) runs. Relative to the inventory file.
    type: str
    default: .
  file:
    description:
      - A file with the output of C(tofu show -json), relative to the inventory file. If set, O(program) does not run.
    type: str
    default: ''
  program:
    description: Program that shows the state. If empty, V(tofu), otherwise V(terraform), whichever is installed.
    type: str
    default: ''
  include:
    description:
      - Select machines whose address in the configuration matches one of these patterns, for example
        V(module.gpus.*). V(*) matches any text, V(?) one character.
    type: list
    elements: str
    default: ['*']
  timeout:
    description: Timeout of O(program), in seconds.
    type: float
    default: 60
"""

EXAMPLES = r"""
# terraform.yml, beside main.tf
plugin: muster.training.terraform
---
# The machines of one module of a configuration elsewhere
plugin: muster.training.terraform
directory: ../infrastructure
include: [module.gpus.*]
compose:
  ansible_user: "'ubuntu'"
  node_slots: "8 if values.instance_type == 'p5.48xlarge' else 1"
---
# The output of `tofu show -json > state.json`, made on another machine
plugin: muster.training.terraform
file: state.json
"""

import fnmatch
import json
import os
import shutil
import subprocess
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader

from ansible_collections.muster.training.plugins.plugin_utils._cluster.constructed_inventory import (
    ConstructedInventory,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.terraform_state import (
    StateError,
    find_machines,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

GROUP = "training"
MAX_BYTES = 256 << 20
"""Maximum output size in bytes."""


class InventoryModule(ConstructedInventory):
    """Reads the options and the state, and adds the hosts; terraform_state.py interprets the state."""

    NAME = "muster.training.terraform"

    def verify_file(self, path: str) -> bool:
        """Return whether a file is for this plugin, judging by its name."""
        return bool(super().verify_file(path)) and path.endswith(("terraform.yml", "terraform.yaml"))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = False) -> None:
        """Add the selected machines to the inventory, or add none and raise AnsibleParserError."""
        super().parse(inventory, loader, path, cache=cache)
        self._read_config_data(path)
        try:
            machines = find_machines(self._read_state(os.path.dirname(os.path.abspath(path))))
        except StateError as error:
            raise AnsibleParserError(f"{self.NAME}: {error}") from None
        patterns = self.get_option("include")
        selected = [
            machine
            for machine in machines
            if any(fnmatch.fnmatchcase(machine.address, pattern) for pattern in patterns)
        ]
        if not selected:
            self.display.warning(
                f"{self.NAME}: the state has {len(machines)} machines, but `include` selects none of them."
                if machines
                else f"{self.NAME}: no machines in the state."
            )
        inventory.add_group(GROUP)
        for machine in selected:
            variables = {**machine.variables, "values": machine.values}
            self._add_constructed_host(machine.name, GROUP, machine.variables, variables)

    def _read_state(self, base: str) -> Any:
        """Return the parsed output. Raise StateError if the program fails or the output is not JSON."""
        file = self.get_option("file")
        text = self._read_file(os.path.join(base, os.path.expanduser(file))) if file else self._run_program(base)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise StateError(f"{file or 'the output of `show -json`'} is not valid JSON") from None

    def _read_file(self, path: str) -> str:
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read(MAX_BYTES)
        except OSError as error:
            raise StateError(
                f"{path} cannot be read: {error.strerror}. Create it with `terraform show -json > FILE` (or tofu), "
                "or correct `file`"
            ) from None

    def _run_program(self, base: str) -> str:
        directory = os.path.join(base, os.path.expanduser(self.get_option("directory")))
        program = self.get_option("program") or next(filter(shutil.which, ("tofu", "terraform")), "")
        if not program:
            raise StateError("neither tofu nor terraform is installed. Install one, or set `program` or `file`")
        try:
            done = subprocess.run(
                [program, "show", "-json", "-no-color"],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=self.get_option("timeout"),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StateError(
                f"`{program} show -json` in {directory} did not finish within {self.get_option('timeout'):g} s. "
                "Check access to its remote state, or raise `timeout`"
            ) from None
        except OSError as error:
            raise StateError(f"{program} in {directory} cannot be run: {error.strerror}") from None
        if done.returncode != 0:
            message = single_line(done.stderr or done.stdout, 1000) or f"exit code {done.returncode}"
            raise StateError(f"`{program} show -json` in {directory} failed: {message}")
        return done.stdout
