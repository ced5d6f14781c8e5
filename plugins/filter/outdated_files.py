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
  existing:
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

FileSpec = Mapping[str, Any]


def is_up_to_date(desired: FileSpec, present: FileSpec) -> bool:
    """Return whether a file on a node has the desired owner, mode and content (or line)."""
    if (present.get("user"), present.get("mode")) != (desired.get("user", "root"), desired["mode"]):
        return False
    if "content" not in desired:
        return bool(present.get("line") == desired["line"])
    content = desired["content"].encode()
    content = base64.b64decode(content) if desired.get("base64") else content
    return bool(present["sha256"] == hashlib.sha256(content).hexdigest())


def outdated_files(desired: Iterable[FileSpec], existing: Mapping[str, FileSpec]) -> list[FileSpec]:
    """Return the desired files that are missing or different on a node."""
    return [file for file in desired if not is_up_to_date(file, existing.get(file["path"], {}))]


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., list[FileSpec]]]:
        return {"outdated_files": outdated_files}
