# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a launch's batch fits, was too large, or the launch failed for another reason. Pure. Controller only.

The patterns for "out of memory" are those of the catalogue of errors. They count on any rank: the rank that failed
first may only have been hit by the failure of another. Private to this collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean, mapping, mappings, number

TOO_LARGE = {
    "nccl-out-of-memory",
    "cuda-out-of-memory",
    "cuda-driver-out-of-memory",
    "cublas-alloc-failed",
    "host-allocator-out-of-memory",
    "host-out-of-memory",
    "container-out-of-memory",
    "kernel-out-of-memory",
}
# These errors have other causes, too: they count only if a smaller batch has run
PERHAPS = {"cublas-not-initialized", "cudnn-no-algorithm"}
KILLED = (-9, 137)


class Outcome(NamedTuple):
    """How a probe went: fits, large, or other, and the evidence."""

    kind: str
    why: str


def outcome(verdict: Any, logs: Iterable[str], smaller_ran: bool) -> Outcome:
    """How a probe went. verdict: its result.json; logs: the fetched ends of its ranks' logs."""
    found = mapping(verdict)
    if found.get("state") == "succeeded":
        return Outcome("fits", "")
    for node in mappings(found.get("nodes")):
        for rank in mappings(node.get("ranks")):
            if number(rank.get("exit_code")) in KILLED and (number(node.get("oom_kills")) or 0) > 0:
                return Outcome("large", f"the kernel of {clean(node.get('name'), 100)} ended it for lack of memory")
    for text in texts(found, logs):
        for match in explain(text):
            if match.entry.id in TOO_LARGE or (match.entry.id in PERHAPS and smaller_ran):
                return Outcome("large", match.line)
    failure = mapping(found.get("first_failure"))
    why = clean(failure.get("error"), 300) or clean(found.get("reason"), 300) or "it left no message"
    return Outcome("other", why)


def texts(verdict: Mapping[str, Any], logs: Iterable[str]) -> Iterable[str]:
    """All texts that may show the reason: each rank's error, the first failure's error and last lines, the logs."""
    for node in mappings(verdict.get("nodes")):
        for rank in mappings(node.get("ranks")):
            yield clean(rank.get("error"), 4000)
    failure = mapping(verdict.get("first_failure"))
    yield clean(failure.get("error"), 4000)
    lines = failure.get("last_lines")
    yield "\n".join(clean(line, 1000) for line in lines[-200:]) if isinstance(lines, list) else ""
    yield from logs
