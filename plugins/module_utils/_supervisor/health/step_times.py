# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the step times that ranks print, such as "1.85s/it" or "step_time: 0.53"."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._files.bounded import file_size, open_regular
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import rank_logs

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan

MAX_TAIL = 65536  # bytes of a log that are read at a time
MAX_RANKS = 64
NUMBER = r"(?P<{}>[0-9]{{1,7}}(?:\.[0-9]{{1,9}})?)"
# tqdm prints s/it or it/s; Megatron-LM "elapsed time per iteration (ms): 1234.5"; others step_time, "0.53 s/step".
STEP_TIME = re.compile(
    NUMBER.format("seconds")
    + r" ?s/(?:it|step|iter)\b|"
    + NUMBER.format("rate")
    + r" ?(?:it|steps|iter)/s\b|per iteration \(ms\): ?"
    + NUMBER.format("milliseconds")
    + r"|(?:step|iter|iteration|batch)[_ -]?time\b[^0-9\n]{0,6}"
    + NUMBER.format("plain")
    + r" ?(?P<unit>ms\b)?",
    re.IGNORECASE,
)


def step_times(text: str) -> list[float]:
    """Return the step times in a text, in seconds."""
    times = []
    for match in STEP_TIME.finditer(text):
        if match["seconds"]:
            value = float(match["seconds"])
        elif match["rate"]:
            value = 1.0 / float(match["rate"]) if float(match["rate"]) else 0.0
        elif match["milliseconds"]:
            value = float(match["milliseconds"]) / 1000
        else:
            value = float(match["plain"]) / (1000 if match["unit"] else 1)
        if value > 0.0:
            times.append(value)
    return times


def median(values: list[float]) -> float:
    """Return the median of at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class StepTimes:
    """Reads what the ranks of a node have printed since the last call."""

    def __init__(self, directory: str, plan: Plan) -> None:
        self.directory = directory
        self.plan = plan
        self.offsets: dict[str, int] = {}

    def take(self) -> dict[str, float]:
        """Return the median of the new step times in seconds by global rank; ranks without any are missing."""
        node = self.plan["node"]
        medians = {}
        for local_rank in range(min(node["slots"], MAX_RANKS)):
            logs = dict.fromkeys(rank_logs(self.plan, self.directory, local_rank))
            times = [value for log in logs for value in step_times(self.new_text(log))]
            if times:
                medians[str(node["first_rank"] + local_rank)] = median(times)
        return medians

    def new_text(self, path: str) -> str:
        """Return the end of the text added to a log since the last call."""
        size = file_size(path)
        start = max(self.offsets.get(path, 0), size - MAX_TAIL)
        self.offsets[path] = size
        if start >= size:
            return ""
        try:
            with open(path, "rb", opener=open_regular) as stream:
                stream.seek(start)
                return stream.read(size - start).decode("utf-8", "replace")
        except OSError:
            return ""
