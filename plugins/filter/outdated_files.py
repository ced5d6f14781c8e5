# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: outdated_files
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Choose the files of root that a node lacks or has otherwise
description:
  - Compares files as M(muster.training.user_files) takes them with what RV(muster.training.firewall_info#module:files)
    or RV(muster.training.base_packages_info#module:files) says of a node, so that nothing is sent to a node that has
    them.
positional: _input
options:
  _input:
    description: The wanted files, each with C(path), C(mode) and C(content).
    type: list
    elements: dict
    required: true
  found:
    description: By path, C(mode) and C(sha256) of the files on the node that belong to root.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show which files are to be written
  ansible.builtin.debug:
    msg: "{{ wanted | muster.training.outdated_files(node.files) | map(attribute='path') }}"
  vars:
    wanted:
      - {path: /etc/muster/site, mode: "0644", content: "one\n"}
    node:
      files:
        /etc/muster/site: {mode: "0600", sha256: 2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806}
"""

RETURN = r"""
_value:
  description: Those of the wanted files that the node lacks, or has with other content, another mode or another owner.
  type: list
  elements: dict
  sample: [{path: /etc/muster/site, mode: "0644", content: "one\n"}]
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping


def outdated_files(
    wanted: Iterable[Mapping[str, str]], found: Mapping[str, Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """Those of the wanted files that are not as they should be."""

    def as_it_should_be(one: Mapping[str, str]) -> dict[str, str]:
        return {"mode": one["mode"], "sha256": hashlib.sha256(one["content"].encode()).hexdigest()}

    return [one for one in wanted if found.get(one["path"]) != as_it_should_be(one)]


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., list[Mapping[str, str]]]]:
        return {"outdated_files": outdated_files}
