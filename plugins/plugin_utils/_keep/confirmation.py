# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Confirm that new machines are needed before creating any.

A provider's list of machines may occasionally be incomplete, and so may a node's view of the others. Only a need that
persists costs money.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._keep.planner import Action, Confirm, Rent, Situation

CONFIRM_TIME = 30.0  # seconds for which a need for machines must persist
CONFIRM_INTERVAL = 10.0  # seconds between observations during that time


class Need(NamedTuple):
    """Machines that seem to be needed. since: when that was first observed, in seconds since 1970."""

    nnodes: int
    missing: frozenset[str]
    since: float


def confirm(action: Action, situation: Situation, need: Need | None, now: float) -> tuple[Action, Need | None]:
    """Return Confirm instead of Rent until a node has been missing for CONFIRM_TIME, and the need to remember.

    Other nodes that are missing only at times do not prolong it.
    """
    if not isinstance(action, Rent):
        return action, None
    current = Need(action.nnodes, frozenset(node.name for node in situation.missing), now)
    throughout = need.missing & current.missing if need is not None else frozenset()
    if need is None or need.nnodes != current.nnodes or not throughout or now < need.since:
        return Confirm(), current
    return (action if now - need.since >= CONFIRM_TIME else Confirm()), need._replace(missing=throughout)


def add_unlisted(situation: Situation, previous: tuple[str, ...]) -> Situation:
    """Return the situation including the machines in the previous list: a machine counts as removed once two lists lack
    it.
    """
    return situation._replace(machines=tuple(dict.fromkeys((*situation.machines, *previous))))
