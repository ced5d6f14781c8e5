# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The context of a command on EC2."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import CloudContext
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient

Ec2Context = CloudContext[AwsClient]
