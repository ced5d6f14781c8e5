# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that use the Paperspace API."""

from __future__ import annotations


class ModuleDocFragment:
    """Access to the Paperspace API."""

    DOCUMENTATION = r"""
options:
  api_key:
    description:
      - API key of the team. If omitted, which is preferred, it is read from E(PAPERSPACE_API_KEY) or from the files
        that P(muster.training.paperspace#inventory) reads.
    type: str
  api_url:
    description:
      - Base URL of the API. If empty, defaults to E(PAPERSPACE_API_URL), otherwise U(https://api.paperspace.com/v1).
    type: str
    default: ""
  timeout:
    description: Timeout of a request, in seconds.
    type: float
    default: 30.0
"""
