# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The best value of a curve, such as the lowest loss or the highest accuracy."""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._report.documents import CurveNumbers

# Parts of names. A name with parts from both lists, such as "loss of the reward model", is assigned to the first list.
LESS_IS_BETTER = frozenset(
    re.findall(r"\w+", "bpb bpc bpd cer error fid loss losses mae mape mse nll perplexity ppl rmse wer")
)
MORE_IS_BETTER = frozenset(
    re.findall(
        r"\w+",
        """
        acc accuracy ap auc auprc auroc bleu chrf dice em f1 iou map mcc mfu miou mrr ndcg precision psnr r2 recall
        return reward rew rouge score ssim throughput top
        """,
    )
)
PART = re.compile(r"[a-z]+[0-9]*")


class BestValue(NamedTuple):
    """The best value of a curve, the step at which it was reached, and whether lower or higher values are better."""

    value: float
    step: float
    is_least: bool


def find_best(curve: CurveNumbers) -> BestValue | None:
    """Return the best value of a curve, or None if its name does not show which is better."""
    parts = {part for word in PART.findall(curve["name"].lower()) for part in (word, word.rstrip("0123456789"))}
    if not curve["points"] or not parts & (LESS_IS_BETTER | MORE_IS_BETTER):
        return None
    if parts & LESS_IS_BETTER:
        point = min(curve["points"], key=lambda point: point["min"])
        return BestValue(point["min"], point["step"], is_least=True)
    point = max(curve["points"], key=lambda point: point["max"])
    return BestValue(point["max"], point["step"], is_least=False)
