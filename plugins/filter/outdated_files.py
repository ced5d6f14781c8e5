# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: outdated_files
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Select the files that are missing or outdated on a node
description:
  - Compares the desired files, in the format of M(muster.training.user_files), with those that
    M(muster.training.node_state) read on a node, so that nothing is sent to a node that is up to date.
positional: _input
options:
  _input:
    description: The desired files, as in O(muster.training.user_files#module:files).
    type: list
    elements: dict
    required: true
  found:
    description: The files on the node, as in RV(muster.training.node_state#module:firewall.files).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show which files would be written
  ansible.builtin.debug:
    msg: "{{ desired | muster.training.outdated_files(present) | map(attribute='path') }}"
  vars:
    desired:
      - {path: /etc/muster/site, mode: "0644", content: "one\n"}
      - {path: /etc/ssh/ssh_known_hosts, mode: "0644", line: "@cert-authority node1 ours", mark: " ours"}
    present:
      /etc/muster/site:
        user: root
        mode: "0600"
        sha256: 2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806
"""

RETURN = r"""
_value:
  description: Those of the desired files that the node lacks, or has with different content, permissions or owner.
  type: list
  elements: dict
  sample: [{path: /etc/muster/site, mode: "0644", content: "one\n"}]
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

File = Mapping[str, Any]


def is_as_wanted(wanted: File, found: File) -> bool:
    """Whether a file on a node has the owner, the mode, and the content or the line that it should have."""
    if (found.get("user"), found.get("mode")) != (wanted.get("user", "root"), wanted["mode"]):
        return False
    if "content" not in wanted:
        return bool(found.get("line") == wanted["line"])
    content = wanted["content"].encode()
    content = base64.b64decode(content) if wanted.get("base64") else content
    return bool(found["sha256"] == hashlib.sha256(content).hexdigest())


def outdated_files(wanted: Iterable[File], found: Mapping[str, File]) -> list[File]:
    """Those of the wanted files that are not as they should be."""
    return [one for one in wanted if not is_as_wanted(one, found.get(one["path"], {}))]


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., list[File]]]:
        return {"outdated_files": outdated_files}
