# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instances of a Lambda account as the nodes of one cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lambda_cloud
short_description: Use the instances of a Lambda account as nodes of a training cluster
version_added: 0.1.0
author: muster contributors (@muster)
description:
  - Adds the active instances of an account at Lambda (U(https://lambda.ai)) to the group C(training), with the host
    variables C(ansible_host), C(ansible_user), C(node_address) (the private address), C(node_slots) (the number of
    GPUs), C(node_price_per_hour), C(lambda_id), C(lambda_instance_type) and C(lambda_region).
  - The inventory file is a YAML file whose name ends with C(lambda_cloud.yml) or C(lambda_cloud.yaml). Use it together
    with P(muster.training.ranks#inventory), which assigns the ranks.
notes:
  - Instances of different regions cannot reach each other by their private addresses. Set O(region) if the account has
    several.
seealso:
  - plugin: muster.training.ranks
    plugin_type: inventory
  - name: Lambda Cloud API
    description: The API that this plugin queries.
    link: https://docs.lambda.ai/api/cloud
extends_documentation_fragment:
  - constructed
options:
  plugin:
    description: Token that selects this plugin.
    type: str
    required: true
    choices: [muster.training.lambda_cloud]
  api_key:
    description:
      - API key of the account, preferably omitted. The key is then read from E(LAMBDA_API_KEY).
      - The key is sent only to O(api_url), and never appears in messages or logs.
    # No `env` here: ansible-config dump would print the key.
    type: str
  api_url:
    description: Base URL of the API. C(http://) is accepted only for addresses of this machine, for tests.
    type: str
    default: https://cloud.lambda.ai/api/v1
  region:
    description: Select instances of this region, for example V(us-east-1). If empty, those of all regions.
    type: str
    default: ''
  user:
    description: User to log in as. All of Lambda's images use V(ubuntu).
    type: str
    default: ubuntu
  timeout:
    description: Timeout of the request, in seconds.
    type: float
    default: 30
"""

EXAMPLES = r"""
# A complete lambda_cloud.yml. The key is in LAMBDA_API_KEY.
plugin: muster.training.lambda_cloud
---
# Only the instances whose name begins with bert, in one region
plugin: muster.training.lambda_cloud
region: us-east-1
groups:
  bert: inventory_hostname is match('bert')
"""

import json
import os
import urllib.parse
from typing import Any
from urllib.error import HTTPError, URLError

from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.module_utils.urls import open_url
from ansible.parsing.dataloader import DataLoader

from ansible_collections.muster.training.plugins.plugin_utils._cluster.constructed_inventory import (
    ConstructedInventory,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.lambda_instances import (
    ResponseError,
    parse_instances,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

GROUP = "training"
MAX_BYTES = 64 << 20
"""Maximum response size in bytes."""
REMEDIES = {
    401: "the API key is not accepted. Create one at https://cloud.lambda.ai/api-keys and export LAMBDA_API_KEY",
    403: "the API key is not accepted. Create one at https://cloud.lambda.ai/api-keys and export LAMBDA_API_KEY",
    429: "too many requests. Try again in a minute",
}


class InventoryModule(ConstructedInventory):
    """Reads the options and adds the hosts; lambda_instances.py interprets the response."""

    NAME = "muster.training.lambda_cloud"

    def verify_file(self, path: str) -> bool:
        """Return whether a file is meant for this plugin, judging by its name."""
        return bool(super().verify_file(path)) and path.endswith(("lambda_cloud.yml", "lambda_cloud.yaml"))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = False) -> None:
        """Add the selected instances to the inventory, or add none and raise AnsibleParserError."""
        super().parse(inventory, loader, path, cache=cache)
        self._read_config_data(path)
        try:
            instances = parse_instances(self._fetch(), self.get_option("region"))
        except ResponseError as error:
            raise AnsibleParserError(f"{self.NAME}: {self.get_option('api_url')}: {error}") from None
        if not instances:
            self.display.warning(
                f"{self.NAME}: no active instances{' in this region' * bool(self.get_option('region'))}."
            )
        inventory.add_group(GROUP)
        for instance in instances:
            variables = {**instance.variables, "ansible_user": self.get_option("user")}
            self._add_constructed_host(
                instance.name,
                GROUP,
                {name: value for name, value in variables.items() if value != ""},
                {**variables, "inventory_hostname": instance.name},
            )

    def _fetch(self) -> Any:
        """Return the parsed response. Raise ResponseError if the request fails."""
        url, key = self.get_option("api_url").rstrip("/"), self.get_option("api_key")
        key = str(self.templar.template(key)) if key else os.environ.get("LAMBDA_API_KEY", "")
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
            raise ResponseError("the key is sent only over https")
        if not key:
            raise ResponseError("no API key. Create one at https://cloud.lambda.ai/api-keys and export LAMBDA_API_KEY")
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        try:
            response = open_url(
                f"{url}/instances", headers=headers, timeout=self.get_option("timeout"), follow_redirects="none"
            )
            return json.loads(response.read(MAX_BYTES))
        except HTTPError as error:
            raise ResponseError(REMEDIES.get(error.code, f"HTTP {error.code}")) from None
        except (URLError, OSError) as error:
            raise ResponseError(f"no connection: {single_line(getattr(error, 'reason', error))}") from None
        except (ValueError, RecursionError):
            raise ResponseError("the response is not valid JSON") from None
