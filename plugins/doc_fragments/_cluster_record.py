# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a cluster's resources are recorded, and which runs may be running on it."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of modules that change the machines of a cluster."""

    DOCUMENTATION = r"""
options:
  runs_directory:
    description:
      - Directory of the records of runs. A relative path starts at the inventory's directory. If empty, C(runs).
    type: path
    default: ""
  directory:
    description:
      - Directory of the record on the controller. A relative path starts at the inventory's directory.
      - If empty, C(.muster/clusters).
    type: path
    default: ""
"""
