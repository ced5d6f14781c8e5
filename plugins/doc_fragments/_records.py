# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Option of modules that write records next to the run records."""

from __future__ import annotations


class ModuleDocFragment:
    """The records directory."""

    DOCUMENTATION = r"""
options:
  directory:
    description:
      - Directory of the records on the controller.
      - If empty, defaults to C(launch_runs_directory) of the first host of O(group), otherwise C(runs).
    type: path
    default: ""
"""
