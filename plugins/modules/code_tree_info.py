# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: code_tree_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read the content of a working tree
description:
  - Lists what rsync would copy from a source, or hashes the files that M(muster.training.code_tree) copied to a node or
    that git tracks there. Changes nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
seealso:
  - module: muster.training.code_tree
options:
  path:
    description: Path of the tree.
    type: path
    required: true
  read:
    description:
      - V(listing) lists what rsync would copy, V(hash) returns one hash of all copied files, V(files) the hash of each.
    type: str
    choices: [listing, hash, files]
    default: hash
  user:
    description:
      - Owner of the tree, which is read with this user's rights. If empty, defaults to the user who runs the task.
    type: str
    default: ""
  exclude:
    description: rsync patterns of files that are not part of the tree.
    type: list
    elements: str
    default: []
  git:
    description: Hash the files that git tracks instead of those that were copied.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: List the source tree
  muster.training.code_tree_info:
    path: ~/project
    read: listing
    exclude: ["*.pyc", /outputs/]
  delegate_to: localhost
  register: source

- name: Hash the tree of a node
  muster.training.code_tree_info:
    path: /home/ubuntu/project
    user: ubuntu
  become: true
  register: tree
"""

RETURN = r"""
listing:
  description:
    - JSON object with the size and time of each file, the target of each link, and null for each directory, by name.
    - A string, because file names are bytes that may not be valid text.
  returned: for O(read=listing)
  type: str
  sample: '{"train.py": [1204, 1764061295], "package/": null}'
hash:
  description: One hash of all files.
  returned: for O(read=hash)
  type: str
  sample: 6b86b273ff34fce1
count:
  description: Number of files.
  returned: for O(read=hash)
  type: int
  sample: 12
files:
  description: JSON object with the hash of each file, by name.
  returned: for O(read=files)
  type: str
  sample: '{"train.py": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"}'
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
    "read": {"type": "str", "choices": ["listing", "hash", "files"], "default": "hash"},
    "user": {"type": "str", "default": ""},
    "exclude": {"type": "list", "elements": "str", "default": []},
    "git": {"type": "bool", "default": False},
}


def read_tree(params: dict[str, Any]) -> dict[str, Any]:
    """Return the requested part of the result."""
    if params["read"] == "listing":
        return {"listing": json.dumps(copy.list_source(params["path"], params["exclude"]))}
    files = copy.hashes(params["path"], params["exclude"], params["git"])
    if params["read"] == "files":
        return {"files": json.dumps(files)}
    return {"hash": copy.hash_of(files), "count": len(files)}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        user = user_files.get_user(module.params["user"] or pwd.getpwuid(os.geteuid()).pw_name)
        result = user_files.run_as_user(user, functools.partial(read_tree, module.params))
    except user_files.UserFileError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
