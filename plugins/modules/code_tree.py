# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: code_tree
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Copy a working tree to a node without touching other files there
description:
  - On the first node, with O(listing), removes files that an earlier copy added and the source no longer has. The
    copying itself is done by rsync from the controller.
  - On the other nodes, with O(source), does the same and copies these files from the first node.
  - Copied files are listed in C(.muster-code.json) in the tree. Files that a job has written or changed since are not
    listed, and are neither copied nor removed.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.all
attributes:
  check_mode: {support: partial, details: With O(source) it does not report which files would be copied.}
  diff_mode: {support: partial, details: Removed files.}
  platform: {platforms: posix}
seealso:
  - module: muster.training.code_tree_info
options:
  path:
    description: Path of the tree.
    type: path
    required: true
  user:
    description:
      - Owner of the tree. Everything is done with this user's rights. If empty, defaults to the user who runs the task.
    type: str
    default: ""
  exclude:
    description: rsync patterns of files that are not part of the tree.
    type: list
    elements: str
    default: []
  delete:
    description: Remove all files that the source does not have, except those that match O(exclude).
    type: bool
    default: false
  listing:
    description: Content of the source, as M(muster.training.code_tree_info) returns it.
    type: str
  source:
    description: The tree of the first node, in rsync's syntax.
    type: str
  rsync_options:
    description: Further arguments for rsync, with O(source).
    type: list
    elements: str
    default: []
  shell:
    description: Command with which rsync connects to the first node.
    type: str
    default: ssh -o BatchMode=yes
"""

EXAMPLES = r"""
- name: Remove files that the source no longer has
  muster.training.code_tree:
    path: /home/ubuntu/project
    user: ubuntu
    listing: "{{ source.listing }}"
  become: true

- name: Copy the project from the first node
  muster.training.code_tree:
    path: /home/ubuntu/project
    user: ubuntu
    source: ubuntu@10.0.0.10:/home/ubuntu/project
  become: true
"""

RETURN = r"""
removed:
  description: Names of files that were removed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [old.py]
copied:
  description: The copied files, in the format of C(rsync --itemize-changes).
  returned: success
  type: list
  elements: str
  sample: [">f+++++++++ train.py"]
"""

import functools
import json
import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._code import copy
from ansible_collections.muster.training.plugins.module_utils._files import user_files

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "user": {"type": "str", "default": ""},
    "exclude": {"type": "list", "elements": "str", "default": []},
    "delete": {"type": "bool", "default": False},
    "listing": {"type": "str"},
    "source": {"type": "str"},
    "rsync_options": {"type": "list", "elements": "str", "default": []},
    "shell": {"type": "str", "default": "ssh -o BatchMode=yes"},
}


def update_tree(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Return the removed and copied names or, in check mode, those that would be removed."""
    path, patterns, delete = params["path"], params["exclude"], params["delete"]
    if params["listing"] is not None:
        removed, copied = copy.prepare(path, json.loads(params["listing"]), patterns, delete, check), ""
    elif check:
        removed, copied = [], ""
    else:
        rsync_arguments = (params["rsync_options"], params["shell"])
        removed, copied = copy.copy_tree(path, params["source"], patterns, delete, *rsync_arguments)
    return {"removed": removed, "copied": copied.splitlines()}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        required_one_of=[["listing", "source"]],
        mutually_exclusive=[["listing", "source"]],
        supports_check_mode=True,
    )
    try:
        user = user_files.get_user(module.params["user"] or pwd.getpwuid(os.geteuid()).pw_name)
        result = user_files.run_as_user(user, functools.partial(update_tree, module.params, module.check_mode))
    except user_files.UserFileError as error:
        module.fail_json(msg=str(error))
    diff = {"before_header": module.params["path"], "after_header": module.params["path"], "after": ""}
    diff["before"] = "".join(f"{name}\n" for name in result["removed"])
    module.exit_json(
        changed=bool(result["removed"] or result["copied"]), diff=diff if result["removed"] else {}, **result
    )


if __name__ == "__main__":
    main()
