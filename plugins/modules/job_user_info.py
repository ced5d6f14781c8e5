# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: job_user_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Look up the user who runs the jobs on a node, and check for programs that a role needs
description:
  - Reads the login user and the account of the user who runs the jobs, in one round trip. Changes nothing.
  - Run it without C(become). Otherwise it reports root as the login user.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
options:
  user:
    description: The user who runs the jobs. If empty, defaults to the login user.
    type: str
    default: ""
  variable:
    description: The variable that sets O(user). The error message names it if the user does not exist.
    type: str
    required: true
  programs:
    description:
      - Programs that must be installed, for example by the role P(muster.training.base_packages#role).
      - In check mode they may be missing, since that role would install them first.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Look up the user who runs the jobs
  muster.training.job_user_info:
    user: "{{ code_user }}"
    variable: code_user
    programs: [rsync]
  become: false
  register: account

- name: Ensure a directory of the user
  ansible.builtin.file:
    path: "{{ account.home }}/project"
    owner: "{{ account.name }}"
    group: "{{ account.gid }}"
    mode: "0755"
    state: directory
  become: "{{ account.name != account.login }}"
"""

RETURN = r"""
login:
  description: Name of the login user.
  returned: success
  type: str
  sample: ubuntu
name:
  description: Name of the user who runs the jobs.
  returned: success
  type: str
  sample: ubuntu
gid:
  description: ID of that user's primary group.
  returned: success
  type: int
  sample: 1000
home:
  description: That user's home directory.
  returned: success
  type: str
  sample: /home/ubuntu
missing:
  description: O(programs) that are not installed. Always empty outside check mode.
  returned: success
  type: list
  elements: str
  sample: []
"""

import os
import pwd
import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, Any] = {
    "user": {"type": "str", "default": ""},
    "variable": {"type": "str", "required": True},
    "programs": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    login = pwd.getpwuid(os.geteuid()).pw_name
    name = module.params["user"] or login
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        module.fail_json(
            msg=f"there is no user {name}. Create the user who runs the jobs, with the same name on all nodes, "
            f"or set {module.params['variable']}."
        )
    missing = [program for program in module.params["programs"] if not shutil.which(program)]
    if missing and not module.check_mode:
        module.fail_json(
            msg=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed. "
            "To install what is missing: ansible-playbook site.yml --tags base_packages"
        )
    module.exit_json(
        changed=False, login=login, name=entry.pw_name, gid=entry.pw_gid, home=entry.pw_dir, missing=missing
    )


if __name__ == "__main__":
    main()
