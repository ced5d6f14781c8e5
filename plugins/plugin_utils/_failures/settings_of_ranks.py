# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare what the ranks of a run printed about themselves: settings, and the line at which they wait."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import clean_line

# A name may mean the same as an address, so that names are not compared.
ADDRESS = r"(?P<value>(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3})\b"
# What a rank says about a setting that must be the same on all ranks, by the wording for an error.
SETTINGS = {
    "NCCL uses different networks": re.compile(
        r"\[\d{1,2}\] NCCL INFO Using network (?P<value>[\w.-]{1,40})\s{0,4}$", re.MULTILINE
    ),
    "the first node's address differs": re.compile(rf"(?:--master[_-]addr[= ]|\bMASTER_ADDR[=:] ?)['\"]?{ADDRESS}"),
    "the rendezvous' address differs": re.compile(rf"--rdzv[_-]endpoint[= ]['\"]?{ADDRESS}"),
    "NCCL's versions differ": re.compile(r"\b[NR]CCL version (?P<value>\d{1,2}\.\d{1,3}\.\d{1,3})(?=[+-])"),
}
FRAME = re.compile(
    r'^[^\n]{0,80}?File "(?P<path>[^"\n]{1,400})", line (?P<line>\d{1,9}), in (?P<function>[\w<>]{1,120})\n'
    r"(?:[^\n]{0,80}\] ?:?)?\s{0,40}(?P<code>[^\n]{1,200})$",
    re.MULTILINE,
)
MACHINERY = re.compile(r"/torch/|/multiprocessing/|/threading\.py$|/contextlib\.py$|/bin/|/runpy\.py$")
MAX_FRAMES = 80  # frames at the end of a log to look at
MAX_CODE = 60  # characters of a line of code to show
MAX_NAMED = 3  # values to name


def describe_settings(failures: Iterable[Mapping[str, Any]]) -> str:
    """Return the settings that must be the same on all ranks and differ according to their logs, or ""."""
    failures = [failure for failure in failures if failure["rank"] is not None]
    clauses = []
    for what, pattern in SETTINGS.items():
        values: dict[str, int] = {}
        for failure in failures:
            for match in pattern.finditer("\n".join(failure["last_lines"])):
                values.setdefault(match["value"], failure["rank"])
        named = [f"{value} on rank {rank}" for value, rank in values.items()][:MAX_NAMED]
        clauses += [f"{what}: {', '.join(named)}"] if len(set(values.values())) > 1 else []
    return "; ".join(clauses)


def describe_places(waiting: Iterable[Mapping[str, Any]]) -> str:
    """Return the different lines of code at which ranks wait according to their tracebacks, or "" if all are alike."""
    places: dict[tuple[str, str], tuple[int, str]] = {}
    for failure in waiting:
        frame = innermost_frame(failure["last_lines"])
        if frame is None:
            return ""
        file = frame["path"].rpartition("/")[2]
        code = " ".join(clean_line(frame["code"]).split())[:MAX_CODE].replace(";", ",")
        text = f"{frame['function']} ({file}:{frame['line']}): {code}"
        places.setdefault((frame["path"], frame["function"]), (failure["rank"], text))
    if len(places) < 2:
        return ""
    named = [f"rank {rank} in {text}" for rank, text in places.values()][:MAX_NAMED]
    return f"ranks wait at different lines: {', '.join(named)}"


def innermost_frame(lines: Iterable[str]) -> re.Match[str] | None:
    """Return the innermost frame of a log's last traceback outside of torch and of launchers, or None."""
    text = "\n".join(lines)
    start = text.rfind("Traceback (most recent call last)")
    frames = list(FRAME.finditer(text, start))[-MAX_FRAMES:] if start >= 0 else []
    return next((frame for frame in reversed(frames) if not MACHINERY.search(frame["path"])), None)
