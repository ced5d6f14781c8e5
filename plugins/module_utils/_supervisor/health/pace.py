# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On rank 0, find the node that is slower than the others, and what it costs."""

from __future__ import annotations

import collections

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._health.gpu_health import POWER_CAP, throttle_reasons
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import PACE_WINDOW
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.judge import BUSY_PERCENT
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.step_times import median

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping, Sequence

# fraction of the median clock speed below which a GPU is considered slow; GPUs of the same model differ by a few
# percent
SLOW_CLOCK = 0.85
SLOW_LIMIT = 0.9  # fraction of the median power limit below which a GPU is considered slow
SLOW_STEP = 1.15  # multiple of the median step time above which a rank is considered slow
MIN_SAMPLES = 3  # number of samples of a GPU or rank required within the window
MAX_GPUS = 64  # GPUs per node
GPU_NUMBERS = ("clock", "power", "power_limit", "utilization")

# A GPU or rank that is slower than the others. share: the maximum fraction of the run's time that it costs.
Slow = collections.namedtuple("Slow", "node what text share")


def is_number(value: object) -> bool:
    """Return whether a value is a finite, positive number of a plausible size."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9


def validate_figures(text: str) -> tuple[dict[int, dict[str, Any]], dict[str, float]]:
    """Return a node's figures: of each GPU by index, and step times by global rank; invalid ones are omitted."""
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    value = value if isinstance(value, dict) else {}
    gpus = {}
    for gpu in (value["gpus"] if isinstance(value.get("gpus"), list) else [])[:MAX_GPUS]:
        if isinstance(gpu, dict) and isinstance(gpu.get("index"), int) and is_number(gpu.get("clock")):
            figures = {name: float(gpu[name]) if is_number(gpu.get(name)) else None for name in GPU_NUMBERS}
            mask = gpu.get("throttling")
            gpus[gpu["index"]] = {**figures, "throttling": mask if isinstance(mask, int) else 0}
    steps = value["steps"] if isinstance(value.get("steps"), dict) else {}
    checked = {rank: float(seconds) for rank, seconds in steps.items() if rank.isdigit() and is_number(seconds)}
    return gpus, dict(list(checked.items())[:MAX_GPUS])


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value."""
    return sum(values) / len(values)


def find_slow_gpus(samples: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]) -> list[Slow]:
    """Return the GPUs whose mean clock is far below the median. samples: those of busy GPUs, by node and index."""
    enough = {gpu: entries for gpu, entries in samples.items() if len(entries) >= MIN_SAMPLES}
    if len(enough) < 2:
        return []
    clocks = {gpu: mean([entry["clock"] for entry in entries]) for gpu, entries in enough.items()}
    usual = max(clocks.values()) if len(clocks) == 2 else median(list(clocks.values()))
    slow = []
    for gpu, clock in clocks.items():
        if clock >= SLOW_CLOCK * usual:
            continue
        node, index = gpu
        text = (
            f"GPU {index} of {node} is running at {clock:.0f} MHz, the others at {usual:.0f} MHz{explain(gpu, enough)}"
        )
        slow.append(Slow(node, f"GPU {index}", text, 1 - clock / usual))
    return slow


def explain(gpu: tuple[str, int], samples: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]) -> str:
    """Return why a GPU is slow, based on its power draw and the throttle reasons reported by the driver, or "" if
    unknown.
    """
    powers = {name: [entry["power"] for entry in entries if entry["power"]] for name, entries in samples.items()}
    limits = {
        name: [entry["power_limit"] for entry in entries if entry["power_limit"]] for name, entries in samples.items()
    }
    parts = []
    if powers[gpu]:
        usual = median([mean(values) for values in powers.values() if values])
        parts.append(f"{mean(powers[gpu]):.0f} W, the others {usual:.0f} W")
    if limits[gpu]:
        usual_limit = median([values[-1] for values in limits.values() if values])
        if limits[gpu][-1] < SLOW_LIMIT * usual_limit:
            parts.append(f"its power limit is {limits[gpu][-1]:.0f} W, the others' {usual_limit:.0f} W")
    mask = 0
    for entry in samples[gpu]:
        mask |= entry["throttling"]
    reasons = throttle_reasons(mask) or (["power limit reached"] if mask & POWER_CAP else [])
    return f" ({'; '.join([*parts, *reasons])})" if parts or reasons else ""


def find_slow_ranks(samples: Mapping[tuple[str, str], Sequence[float]]) -> list[Slow]:
    """Return the ranks whose printed step times are far above the median. samples: by node and rank.

    Ranks that wait for each other in each step print equal times, so only those that do not are found here.
    """
    times = {rank: mean(values) for rank, values in samples.items() if len(values) >= MIN_SAMPLES}
    if len(times) < 2:
        return []
    usual = min(times.values()) if len(times) == 2 else median(list(times.values()))
    return [
        Slow(
            node,
            f"rank {rank}",
            f"rank {rank} on {node} takes {seconds:.3g} s per step, the others {usual:.3g} s",
            1 - usual / seconds,
        )
        for (node, rank), seconds in times.items()
        if seconds > SLOW_STEP * usual
    ]


def describe_cost(share: float, price: float | None, currency: str) -> str:
    """Return a text about the cost of a slow node: at most its share of the time of all nodes."""
    cost = f", {share * price:.2f} {currency} an hour" if price else ""
    return f"the run is limited to its pace: up to {share * 100:.0f} % of the time{cost}"


class PaceWatch:
    """All nodes' figures for the last few minutes, and which node is slow."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        prices = [node.get("price_per_hour") for node in plan["nodes"]]
        self.price = sum(prices) if all(is_number(price) for price in prices) else None
        self.currency = str(plan.get("currency") or "")
        self.gpus: dict[tuple[str, int], collections.deque[tuple[float, dict[str, Any]]]] = {}
        self.steps: dict[tuple[str, str], collections.deque[tuple[float, float]]] = {}
        self.started: float | None = None
        self.news: list[str] = []
        self.slow: dict[tuple[str, str], str] = {}  # text about each slow GPU or rank, by node and part

    def take(self, node: str, text: str, now: float) -> None:
        """Take a node's figures, and judge all nodes."""
        self.started = now if self.started is None else self.started
        gpus, steps = validate_figures(text)
        for index, figures in gpus.items():
            if (figures["utilization"] or 0.0) >= BUSY_PERCENT:
                self.gpus.setdefault((node, index), collections.deque(maxlen=100)).append((now, figures))
        for rank, seconds in steps.items():
            self.steps.setdefault((node, rank), collections.deque(maxlen=100)).append((now, seconds))
        if now - self.started >= PACE_WINDOW:
            self.judge(now)

    def judge(self, now: float) -> None:
        """Find slow GPUs and ranks, and note the changes."""
        gpus = {
            key: [value for moment, value in values if now - moment <= PACE_WINDOW] for key, values in self.gpus.items()
        }
        steps = {
            key: [value for moment, value in values if now - moment <= PACE_WINDOW]
            for key, values in self.steps.items()
        }
        slow_parts = {(slow.node, slow.what): slow for slow in [*find_slow_gpus(gpus), *find_slow_ranks(steps)]}
        for key, slow in slow_parts.items():
            text = f"{slow.text}; {describe_cost(slow.share, self.price, self.currency)}"
            if key not in self.slow:
                self.news.append(text)
            self.slow[key] = text
        for key in [key for key in self.slow if key not in slow_parts]:
            del self.slow[key]
            self.news.append(f"{key[1]} of {key[0]} is as fast as the others again")

    def take_news(self) -> list[str]:
        """Return texts about the changes since the last call."""
        news, self.news = self.news, []
        return news

    def texts(self) -> list[str]:
        """Return texts about the GPUs and ranks that are currently slow."""
        return list(self.slow.values())[:MAX_GPUS]
