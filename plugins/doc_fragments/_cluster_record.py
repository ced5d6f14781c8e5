# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locations of a cluster's journal and of its run records."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that change the machines of a cluster."""

    DOCUMENTATION = r"""
options:
  runs_directory:
    description:
      - Directory of the run records. A relative path is resolved against the inventory's directory. If empty, defaults
        to C(runs).
    type: path
    default: ""
  directory:
    description:
      - Directory of the cluster's journal on the controller. A relative path is resolved against the inventory's
        directory.
      - If empty, defaults to C(.muster/clusters).
    type: path
    default: ""
"""
