# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that work in an environment of Python packages."""

from __future__ import annotations


class ModuleDocFragment:
    """Where it is, and what it holds."""

    DOCUMENTATION = r"""
options:
  directory:
    description: The directory of the environment, as P(muster.training.python_env#role) makes it.
    type: path
    required: true
"""

    KEY = r"""
options:
  key:
    description: What stands for all that is installed. Another one, and it is proved again.
    type: str
    required: true
"""
