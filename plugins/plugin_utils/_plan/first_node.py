# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How losing the first node affects a run that may restart."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.hub_node import LEAST_NODES


def explain_first_node_loss(nnodes: int, remote_start: bool) -> str:
    """Return why losing the first node ends a run, or "" if another node can then lead it.

    nnodes: spares included. remote_start: the launcher on the first node starts the others.
    """
    if remote_start:
        return "the launcher runs there; torchrun starts on each node by itself"
    if nnodes < LEAST_NODES:
        return (
            "the other node alone is not a majority of the two; with a spare (launch_spares: 1), another node could "
            "lead the run"
        )
    return ""
