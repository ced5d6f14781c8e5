# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that work in an environment of Python packages."""

from __future__ import annotations


class ModuleDocFragment:
    """Where it is, and what it contains."""

    DOCUMENTATION = r"""
options:
  directory:
    description: Directory of the environment, as made by P(muster.training.python_env#role).
    type: path
    required: true
"""

    KEY = r"""
options:
  key:
    description: Key that stands for everything installed. When it changes, the proof is run again.
    type: str
    required: true
"""
