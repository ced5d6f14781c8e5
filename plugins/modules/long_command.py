# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: long_command
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Run a command that takes minutes, and show its progress
description:
  - Runs a command on the node without a shell, and periodically shows the elapsed time and the last line of its output.
  - The command runs independently of the connection. If the play is interrupted, it continues, and the next run of the
    same task follows it to its end instead of starting a second one.
  - If it fails, the last 40 lines of its output are shown. The full output stays on the node, readable only by the user
    who ran it, in C(/var/log/muster) (root) or C(~/.muster/logs). The last 20 such logs are kept, 200 MiB at most.
  - Credentials in URLs (C(https://user:token@host)) are masked on the terminal and in logs.
  - Not run in check mode.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.long
options:
  description:
    description: Short description of the command, shown while it runs.
    type: str
    required: true
  argv:
    description: The command and its arguments. All users of the node can read them while it runs.
    type: list
    elements: str
    required: true
  chdir:
    description: Working directory of the command. If empty, defaults to the login directory.
    type: path
    default: ""
  stdin:
    description: Standard input of the command. Other users cannot read it, and Ansible's output never shows it.
    type: str
    default: ""
  follow:
    description: Follow the same command if an interrupted play left it running. If V(false), it is started again.
    type: bool
    default: true
  show_every:
    description:
      - Seconds until the first progress line. The interval doubles with each line, up to 5 minutes. If several nodes
        work at once, one shows such lines, and another takes over when it ends.
    type: int
    default: 10
"""

EXAMPLES = r"""
- name: Build the extension
  muster.training.long_command:
    description: Building the extension
    argv: [/opt/muster/env/bin/python, setup.py, bdist_wheel]
    chdir: /opt/source
"""

RETURN = r"""
rc:
  description: Exit code of the command.
  returned: when not in check mode
  type: int
  sample: 0
stdout_lines:
  description: Output of the command, including stderr, limited to the last 200000 characters.
  returned: when not in check mode
  type: list
  elements: str
  sample: [Collecting torch]
result:
  description:
    - Content of a final output line C(MUSTER-RESULT {...}). Its key C(changed) sets the task's, and its key C(notice),
      if present, is shown.
  returned: when not in check mode
  type: dict
  sample: {}
"""
