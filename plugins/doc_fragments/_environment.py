# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that work in a Python environment."""

from __future__ import annotations


class ModuleDocFragment:
    """The environment's directory, and the key of its contents."""

    DOCUMENTATION = r"""
options:
  directory:
    description: Directory of the environment, as created by P(muster.training.python_env#role).
    type: path
    required: true
"""

    KEY = r"""
options:
  key:
    description: Key that identifies the installed packages. When it changes, the verification runs again.
    type: str
    required: true
"""
