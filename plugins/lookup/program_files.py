# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: program_files
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List the files of a program of this collection that runs on nodes
description:
  - Returns the directories and files for M(muster.training.user_files) that install a program, which are a script and
    the modules that the program imports.
  - Root's directories are refused by M(muster.training.user_files) if anyone else could replace them.
options:
  _terms:
    description: Modules of this collection, such as V(_stage_data.stage). Each becomes a script of its own.
    type: list
    elements: str
    required: true
  directory:
    description: Directory on the node. Its scripts are named like the modules, such as C(stage.py).
    type: str
    required: true
  private:
    description: Let only the owner read the files.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Install a program
  muster.training.user_files:
    user: root
    directories: "{{ program.directories }}"
    files: "{{ program.files }}"
  vars:
    program: "{{ lookup('muster.training.program_files', '_stage_data.stage', directory='/usr/local/lib/muster/s3') }}"
  become: true
"""

RETURN = r"""
_value:
  description: One dictionary with C(directories) and C(files), in the format of M(muster.training.user_files).
  type: list
  elements: dict
  sample:
    - directories: [{path: /usr/local/lib/muster, mode: "0755", only_root: true}]
      files: [{path: /usr/local/lib/muster/idle_watch.py, mode: "0644", content: "import os"}]
"""

import posixpath
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.program_files import (
    UnknownProgramError,
    program_sources,
)


def installation(modules: list[str], directory: str, private: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the directories and files of programs that share an installation directory. Raise UnknownProgramError."""
    sources = {path: text for module in modules for path, text in program_sources(module).items()}
    parents = {posixpath.dirname(path) for path in sources} | {""}
    parents |= {posixpath.dirname(path) for path in parents}
    directory_mode, file_mode = ("0700", "0600") if private else ("0755", "0644")
    return {
        "directories": [
            {"path": posixpath.join(directory, path).rstrip("/"), "mode": directory_mode, "only_root": True}
            for path in sorted(parents)
        ],
        "files": [
            {"path": posixpath.join(directory, path), "mode": file_mode, "content": text}
            for path, text in sources.items()
        ],
    }


class LookupModule(LookupBase):
    """Reads the collection's files on the controller."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        """Return a list with one dictionary."""
        self.set_options(var_options=variables, direct=kwargs)
        try:
            return [installation(terms, self.get_option("directory"), self.get_option("private"))]
        except UnknownProgramError as error:
            raise AnsibleLookupError(str(error)) from None
