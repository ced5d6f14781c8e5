# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reject machines that are recorded as bad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error
from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import (
    BadNode,
    describe_entry,
    exclude_shared_numbers,
    matches,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.machine_identity import summarize_identity


def used_uuids(facts: Mapping[str, Any]) -> set[str] | None:
    """Return the UUIDs of the GPUs that the job uses, or None if it uses all GPUs."""
    gpus = facts.get("gpus") or {}
    return {device["uuid"] for device in gpus.get("devices", ())} if "selected" in gpus else None


def check_bad_nodes(context: CheckContext, entries: Iterable[BadNode]) -> list[Finding]:
    """Report nodes that are recorded as bad, unless the job does not use the GPU that is bad."""
    listed = list(entries)
    if not listed:
        return []
    identities = exclude_shared_numbers(
        {node.name: summarize_identity(context.facts[node.name].get("health")) for node in context.nodes}
    )
    findings = []
    for node in context.nodes:
        used = used_uuids(context.facts[node.name])
        for entry in listed:
            is_unused = used is not None and entry["failed_gpus"] and not used & set(entry["failed_gpus"])
            if is_unused or not matches(entry, node.name, identities[node.name]):
                continue
            findings.append(
                error(
                    "bad-node",
                    [node.name],
                    problem=f"the machine is recorded as bad: {describe_entry(entry)}",
                    requirement="machines whose hardware has not failed",
                    remedy=(
                        "leave it out (-e nodes=...) or replace it; once it is repaired, run ansible-playbook "
                        f"forgive.yml -e node={entry['node']}"
                    ),
                )
            )
            break
    return findings
