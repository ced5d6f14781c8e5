# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide whether a launch's batch size fits or is too large, or whether the launch failed for another reason.

The patterns for "out of memory" are those of the catalogue of errors. They count on any rank: the rank that failed
first may only have been hit by the failure of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._run.processes import KILLED
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_mapping,
    to_mappings,
    to_number,
)

OUT_OF_MEMORY = {
    "nccl-out-of-memory",
    "cuda-out-of-memory",
    "cuda-driver-out-of-memory",
    "cublas-alloc-failed",
    "host-allocator-out-of-memory",
    "host-out-of-memory",
    "container-out-of-memory",
    "kernel-out-of-memory",
}
# These errors can have other causes, too: they count only if a smaller batch has run
POSSIBLY_OUT_OF_MEMORY = {"cublas-not-initialized", "cudnn-no-algorithm"}


class ProbeOutcome(NamedTuple):
    """The outcome of a probe (fits, large or other), with the evidence."""

    kind: str
    reason: str


def classify_probe(verdict: Any, logs: Iterable[str], smaller_fits: bool) -> ProbeOutcome:
    """Return the outcome of a probe. verdict: its result.json; logs: the fetched ends of its ranks' logs."""
    result = to_mapping(verdict)
    if result.get("state") == "succeeded":
        return ProbeOutcome("fits", "")
    for node in to_mappings(result.get("nodes")):
        for rank in to_mappings(node.get("ranks")):
            if to_number(rank.get("exit_code")) in KILLED and (to_number(node.get("oom_kills")) or 0) > 0:
                return ProbeOutcome(
                    "large", f"the kernel on {clean_text(node.get('name'), 100)} killed it for lack of memory"
                )
    for text in failure_texts(result, logs):
        for match in explain(text):
            if match.entry.id in OUT_OF_MEMORY or (match.entry.id in POSSIBLY_OUT_OF_MEMORY and smaller_fits):
                return ProbeOutcome("large", match.line)
    failure = to_mapping(result.get("first_failure"))
    reason = clean_text(failure.get("error"), 300) or clean_text(result.get("reason"), 300) or "it left no message"
    return ProbeOutcome("other", reason)


def failure_texts(verdict: Mapping[str, Any], logs: Iterable[str]) -> Iterable[str]:
    """Yield all texts that may show the reason: ranks' errors, the first failure's error and last lines, and logs."""
    for node in to_mappings(verdict.get("nodes")):
        for rank in to_mappings(node.get("ranks")):
            yield clean_text(rank.get("error"), 4000)
    failure = to_mapping(verdict.get("first_failure"))
    yield clean_text(failure.get("error"), 4000)
    lines = failure.get("last_lines")
    yield "\n".join(clean_text(line, 1000) for line in lines[-200:]) if isinstance(lines, list) else ""
    yield from logs
