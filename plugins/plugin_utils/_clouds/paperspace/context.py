# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The context of a command on Paperspace."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import CloudContext
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client

PaperspaceContext = CloudContext[Client]
