# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the ends of logs in a node's report, which may have any content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.error_text import MAX_TAIL_LINES

MAX_LINE = 500  # characters of a line of a log


def last_lines_of(report: Mapping[str, Any] | None, log: str) -> list[str]:
    """Return the last lines of a log, or [] if they are not in the report.

    A report has those of the rank that failed first, and of others whose logs show an error.
    """
    if not report or not log:
        return []
    texts = {excerpt["log"]: excerpt["lines"] for excerpt in report.get("outputs") or []}
    text = report.get("last_lines") if report.get("last_log") == log else texts.get(log)
    return [line[:MAX_LINE] for line in str(text).split("\n")[-MAX_TAIL_LINES:]] if text else []
