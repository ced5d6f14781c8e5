# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: netrc_entry
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Add the credentials for a server to a user's netrc
description:
  - Writes one entry of C(~/.netrc), replacing any for the same server. All other entries, macros and comments stay.
  - Afterwards only the user can read the file. It is read and written with that user's rights.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.all
attributes:
  check_mode: {support: full}
  diff_mode: {support: partial, details: Only the name of the server. The rest of the file is secret.}
  platform: {platforms: posix}
options:
  user:
    description: Owner of the file.
    type: str
    required: true
  machine:
    description: Name of the server.
    type: str
    required: true
  login:
    description: User name on the server.
    type: str
    required: true
  password:
    description: Password or key.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Add the API key of Weights and Biases
  muster.training.netrc_entry:
    user: trainer
    machine: api.wandb.ai
    login: user
    password: "{{ wandb_api_key }}"
  become: true
"""

RETURN = r"""
path:
  description: Path of the file.
  returned: success
  type: str
  sample: /home/trainer/.netrc
"""

import functools
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._files import netrc, user_files

ARGUMENT_SPEC: dict[str, Any] = {
    "user": {"type": "str", "required": True},
    "machine": {"type": "str", "required": True},
    "login": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        user = user_files.get_user(params["user"])
        path = os.path.join(user.pw_dir, ".netrc")
        fields = (params["machine"], params["login"], params["password"])
        result = user_files.run_as_user(user, functools.partial(netrc.ensure_entry, path, *fields, module.check_mode))
    except user_files.UserFileError as error:
        module.fail_json(msg=str(error))
    description = f"machine {params['machine']}, with credentials that are not shown\n"
    diff = (
        {"before_header": path, "after_header": path, "before": "", "after": description} if result["changed"] else {}
    )
    module.exit_json(changed=result["changed"], diff=diff, path=path)


if __name__ == "__main__":
    main()
