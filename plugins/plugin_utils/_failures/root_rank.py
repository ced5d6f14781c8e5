# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the rank whose log states the cause, if the rank that failed first was only reacting to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure, is_reaction
from ansible_collections.muster.training.plugins.plugin_utils._failures.earlier_errors import explain_earlier_error
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.registry import CATALOGUE

MAX_RANKS = 64  # number of ranks whose logs are searched
ROOTS = frozenset(entry.id for entry in CATALOGUE if entry.kind == "root" and not entry.weak and not entry.summary)


def states_cause(failure: Mapping[str, Any]) -> bool:
    """Return whether a rank's error, or the end of its log, states a cause."""
    explanation = explain_failure(failure["error"], failure["last_lines"])
    if explanation is None:
        return False
    return explanation["id"] in ROOTS or explain_earlier_error(failure["last_lines"], is_reaction) is not None


def find_stated_cause(first: dict[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the earliest failure whose log states a cause; None if the first failure's log states one, or no log does.

    Args:
        first: The failure of the rank that failed first, which only reacted to another one.
        failures: Of all ranks.
    """
    if states_cause(first):
        return None
    rivals = [
        failure
        for failure in failures
        if failure["rank"] is not None and failure["last_lines"] and failure["rank"] != first["rank"]
    ]
    rivals.sort(key=lambda failure: failure["since"])
    return next(filter(states_cause, rivals[:MAX_RANKS]), None)
