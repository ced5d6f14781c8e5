# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: long_command
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Run a command that takes minutes, and show that it lives
description:
  - Runs a command on the node without a shell, and shows from time to time how long it has been running and the last
    line of its output.
  - The command does not depend on the connection. If the play is interrupted, it goes on, and the next run
    of the same task follows it to its end instead of starting a second one.
  - If it fails, the last 40 lines of its output are shown. All of it stays on the node, for the user who ran it alone,
    in C(/var/log/muster) (root) or C(~/.muster/logs). The last 20 such logs are kept, 200 MiB at most.
  - The credentials of addresses (C(https://user:token@host)) are masked in what is shown and kept.
  - Not run in check mode.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.long
options:
  what:
    description: What the command does, in a few words for the one who waits.
    type: str
    required: true
  argv:
    description: The command and its arguments. Any user of the node can read them while it runs.
    type: list
    elements: str
    required: true
  chdir:
    description: Directory in which it runs. If empty, where a login starts.
    type: path
    default: ""
  stdin:
    description: The standard input of the command. Other users cannot read it, and no output of Ansible shows it.
    type: str
    default: ""
  follow:
    description: Whether the same command, left running by an interrupted play, is followed. If not, it starts again.
    type: bool
    default: true
  show_every:
    description:
      - Seconds until a line shows that it lives. The next one comes when it has taken twice as long, and after
        5 minutes at the latest. Of the nodes that work at once one has such lines, and after its end another one.
    type: int
    default: 10
"""

EXAMPLES = r"""
- name: Build the extension
  muster.training.long_command:
    what: Building the extension
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
  description: What it has printed, errors included, from its last 200000 characters.
  returned: when not in check mode
  type: list
  elements: str
  sample: [Collecting torch]
answer:
  description:
    - What a last line C(MUSTER-RESULT {...}) of the output holds. Its key C(changed) is the task's, and its key
      C(notice), if there is one, is shown.
  returned: when not in check mode
  type: dict
  sample: {}
"""
