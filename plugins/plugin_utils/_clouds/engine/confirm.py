# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Treat a recorded resource as missing only if several lists agree: a provider's reply may be incomplete."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import POLL_INTERVAL, AnyCloud
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import AccountResources
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.discover import (
    discover,
    find_resource_id,
    to_cloud_terms,
)

MISSING_TIMEOUT = 15.0  # seconds for which a recorded resource must have been missing before a new one is created


def confirm_missing(cloud: AnyCloud, account: Any) -> Any:
    """Return the account once all recorded resources are listed, or the same ones have been missing for some time."""
    missing = unlisted(cloud, account.resources)
    if missing:
        text = f"{', '.join(sorted(missing))} not in the provider's list: checking for {MISSING_TIMEOUT:.0f} s"
        cloud.show(to_cloud_terms(cloud, text))
    began = cloud.clock()
    while missing and cloud.clock() - began < MISSING_TIMEOUT:
        cloud.sleep(POLL_INTERVAL)
        account = discover(cloud)
        missing &= unlisted(cloud, account.resources)
    return account


def unlisted(cloud: AnyCloud, resources: AccountResources) -> set[str]:
    """Return the recorded resources that are not listed, except machines that are listed as removed."""
    ended = resources.get("ended", [])
    entries = [entry for entry in cloud.journal.content["entries"] if entry["id"] and entry["id"] not in ended]
    return {
        f"{entry['kind']} {entry['name']}"
        for entry in entries
        # templates are not included in this list, and scripts cost nothing
        if entry["kind"] not in ("template", "script")
        if not find_resource_id(cloud, resources, entry["kind"], entry["name"])
    }
