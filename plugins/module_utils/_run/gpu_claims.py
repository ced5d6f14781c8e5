# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs used by the runs on a node, so that runs with different GPUs can share the node.

GPUs are numbered as in nvidia-smi. An empty list means all GPUs of the node.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import read_plan

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Iterable

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data


def share_gpus(first: Iterable[int], second: Iterable[int]) -> bool:
    """Return whether two runs on a node use any GPU in common. An empty selection means all GPUs."""
    return not first or not second or not set(first).isdisjoint(second)


def claim_of(directory: str) -> Data:
    """Return gpus and working_directory for the run in a directory: all GPUs and "" if its plan cannot be read."""
    plan = read_plan(directory) or {}
    return {"gpus": plan.get("gpus") or [], "working_directory": plan.get("working_directory") or ""}


def describe_gpus(gpus: Iterable[int]) -> str:
    """Return " on GPUs 0, 1" for a message, or "" for all GPUs."""
    numbers = [str(gpu) for gpu in gpus]
    return f" on GPU{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}" if numbers else ""
