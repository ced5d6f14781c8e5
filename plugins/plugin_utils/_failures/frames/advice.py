# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what the message of an exception itself tells the reader to do."""

from __future__ import annotations

import re

MAX_TEXT = 4000  # characters of a message in which to look for advice
MAX_ADVICE = 320  # characters of advice to show
SENTENCE_END = re.compile(r"(?<=[.!;])\s{1,9}(?=[A-Z`'\"])|\n\s{0,40}\n")
ADVICE = re.compile(
    r"\b(?:[Pp]lease|(?:you|You) (?:can|should|must|may want|might want|need)|[Mm]ake sure|[Ee]nsure that|[Cc]onsider|"
    r"pip install)\b|"
    r"(?:^|[,:] |\b(?:[Oo]r|[Tt]hen|[Oo]therwise,?|[Ii]nstead,?) )(?:[Tt]ry|[Uu]se|[Ss]et|[Rr]un|[Ii]nstall|[Uu]pgrade|"
    r"[Dd]owngrade|[Rr]einstall|[Aa]dd|[Pp]ass|[Ii]ncrease|[Rr]educe|[Dd]ecrease|[Ss]pecify|[Pp]rovide|[Rr]emove|"
    r"[Dd]elete|[Ee]nable|[Dd]isable|[Ss]witch|[Cc]all|[Cc]hange) (?!of\b)"
)
# Requests to report a bug, and hints for debugging that change nothing.
NOISE = re.compile(
    r"\b(?:report|issue|bug|github|discuss|contact|for (?:more|further) (?:information|details|help)|"
    r"see (?:the )?(?:doc|log|above|full)|stack ?trace|traceback|verbose|TORCH_LOGS|TORCHDYNAMO_VERBOSE|"
    r"CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|HYDRA_FULL_ERROR|NCCL_DEBUG|Facebook employee|refer to|detect_anomaly)\b",
    re.IGNORECASE,
)


AS_STATED = "do as the message says"  # remedy of a rule that has no other one


def stated_advice(text: str) -> str:
    """Return the sentence of a message that says what to do, as one line without a full stop at its end, or ""."""
    for sentence in SENTENCE_END.split(text[:MAX_TEXT]):
        line = " ".join(sentence.split())
        if ADVICE.search(line) and not NOISE.search(line) and 15 <= len(line) <= MAX_ADVICE:
            return line.rstrip(".!;, ")
    return ""
