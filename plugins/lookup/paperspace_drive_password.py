# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: paperspace_drive_password
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read the password of a Paperspace network drive
description:
  - Queries the Paperspace API for the password of a network drive on each lookup, so that it does not need to be stored
    and does not appear in inventory listings.
  - P(muster.training.paperspace#inventory) sets C(cifs_share_password) to this lookup if its cluster has a drive.
  - Use it only where a secret is expected, such as in an option that is not logged.
options:
  _terms:
    description: IDs of drives, as shown by the inventory or the console.
    type: list
    elements: str
    required: true
  api_key:
    description:
      - API key of the team. If omitted, which is preferred, it is read from E(PAPERSPACE_API_KEY) or from the files
        that P(muster.training.paperspace#inventory) reads.
    type: str
  api_url:
    description: Base URL of the API.
    type: str
    default: https://api.paperspace.com/v1
    env:
      - name: PAPERSPACE_API_URL
  timeout:
    description: Timeout of a request, in seconds.
    type: float
    default: 30
  retries:
    description: Number of retries after a temporary failure.
    type: int
    default: 4
seealso:
  - plugin: muster.training.paperspace
    plugin_type: inventory
"""

EXAMPLES = r"""
# In group_vars/training.yml, for a drive that was created manually:
#
#   cifs_share_username: sdvkpg3v2v
#   cifs_share_password: "{{ lookup('muster.training.paperspace_drive_password', 'RJFHxSmO7U03') }}"
- name: Mount a drive
  muster.training.data_mount:
    path: /mnt/training-data
    kind: cifs
    source: //10.64.92.2/sdvkpg3v2v
    credentials:
      username: sdvkpg3v2v
      password: "{{ lookup('muster.training.paperspace_drive_password', 'RJFHxSmO7U03') }}"
"""

RETURN = r"""
_value:
  description: The password of each drive. Empty if it has none.
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    NotFoundError,
    PaperspaceError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.operations import get_drive
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line


class LookupModule(LookupBase):
    """Sends one request per drive."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """Return the passwords."""
        self.set_options(var_options=variables, direct=kwargs)
        try:
            client = Client(
                find_api_key(self.get_option("api_key"), os.environ, os.path.expanduser("~")),
                self.get_option("api_url"),
                timeout=self.get_option("timeout"),
                retries=self.get_option("retries"),
            )
            return [self._password(client, str(term)) for term in terms]
        except PaperspaceError as error:
            raise AnsibleLookupError(f"cannot read the password of the network drive: {error}") from None

    @staticmethod
    def _password(client: Client, drive_id: str) -> str:
        try:
            return str(get_drive(client, drive_id).get("password") or "")
        except NotFoundError:
            raise AnsibleLookupError(
                f"this API key's account has no network drive {single_line(drive_id, 80)}. If it was removed, "
                "read the inventory again (--flush-cache)"
            ) from None
