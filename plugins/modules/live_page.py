# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: live_page
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show active runs in a browser
description:
  - Serves a page on the loopback address of this machine and prints its URL, until Ctrl-C. The page lists the runs that
    were launched from here, and shows a run with its nodes, curves, output, events and findings.
  - Reads a run over one connection, to the node that leads it, while someone views it. The output of a rank on
    another node, and a search, use a connection to its node. Nothing listens on the nodes.
  - Its buttons run the playbooks C(save.yml), C(stacks.yml) and C(stop.yml) with the inventory and options of this one.
  - Needs the token in the printed URL, and serves only requests of the page itself.
  - Nothing is served in check mode.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._runs
  - muster.training._group
options:
  run_id:
    description: Name of the run to open, or its beginning. If empty, the URL opens the list of runs.
    type: str
    default: ""
  directory:
    description: Directory of the records. If empty, as for M(muster.training.run_record).
    type: path
    default: ""
  port:
    description: Port of the page on this machine, a number up to 65535. V(0) selects a free port.
    type: str
    default: "0"
seealso:
  - module: muster.training.run_status
  - module: muster.training.training_watch
"""

EXAMPLES = r"""
- name: Serve the page
  muster.training.live_page:
    port: 8765
  run_once: true
"""

RETURN = r"""
port:
  description: Port on which the page was served. Returned once the terminal is closed; Ctrl-C ends the task instead.
  returned: if not in check mode
  type: int
  sample: 40327
"""
