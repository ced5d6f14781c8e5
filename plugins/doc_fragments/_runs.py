# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that inspect runs on nodes."""

from __future__ import annotations


class ModuleDocFragment:
    """The directory of the runs on a node, and the user they run as."""

    DOCUMENTATION = r"""
options:
  runs_directory:
    description: Directory of the runs on the node.
    type: str
    default: ~/.muster/runs
  user:
    description: User who runs the job. If empty, defaults to the login user.
    type: str
    default: ""
"""

    RUN_ID = r"""
options:
  run_id:
    description: Name of the run.
    type: str
    required: true
"""
