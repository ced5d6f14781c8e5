# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The curves of nodes and GPUs, from the samples kept by the node that leads the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._page.sample_table import SampleTable, mean

NODE = "node"
GPU = "gpu"


class Measure(NamedTuple):
    """The quantity that a strip of curves shows. maximum: the upper end of its scale, or None to use the largest
    value.
    """

    name: str
    title: str
    unit: str
    maximum: float | None


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("utilization", "GPU utilization", "%", 100.0),
        Measure("gpu_memory", "GPU memory", "%", 100.0),
        Measure("power", "GPU power", "W", None),
        Measure("temperature", "GPU temperature", "°C", 100.0),
        Measure("memory", "memory of the node", "%", 100.0),
        Measure("disk", "usage of the run's disk", "%", 100.0),
    )
}


def percentage(part: float | None, whole: float | None) -> float | None:
    """Return a part as a percentage of the whole, or None if either is unknown."""
    return 100.0 * part / whole if part is not None and whole else None


def gpu_values(gpu: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the measured values of a GPU in a sample."""
    return {
        "utilization": gpu.get("utilization_percent"),
        "gpu_memory": percentage(gpu.get("memory_used_mib"), gpu.get("memory_total_mib")),
        "power": gpu.get("power_watts"),
        "temperature": gpu.get("temperature_celsius"),
    }


def node_values(sample: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the measured values of a node in a sample: the mean over its GPUs, but the peak for memory and
    temperature.
    """
    gpus = [gpu_values(gpu) for gpu in sample["gpus"]]
    free, total = sample.get("disk_free"), sample.get("disk_total")
    peaks = {
        name: max((gpu[name] for gpu in gpus if gpu[name] is not None), default=None)  # type: ignore[type-var]
        for name in ("gpu_memory", "temperature")
    }
    return {
        **{name: mean(gpu[name] for gpu in gpus) for name in ("utilization", "power")},
        **peaks,
        "memory": percentage(sample.get("memory_used"), sample.get("memory_total")),
        "disk": percentage(None if free is None or total is None else max(0.0, total - free), total),
    }


class NodeSamples:
    """The newest sample of each node, and the curves of all samples. Bounded by the number of nodes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.table = SampleTable()
        self.newest: dict[str, dict[str, float | None]] = {}
        self.gpus: dict[str, dict[int, dict[str, float | None]]] = {}
        self.number = 0  # total number of samples, which changes with each one

    def add(self, sample: Mapping[str, Any]) -> None:
        """Add a sample that conforms to STORED_SAMPLE; ignore samples of unknown nodes."""
        node, moment = sample["node"], float(sample["time"])
        if node not in self.names:
            return
        self.number += 1
        self.newest[node] = node_values(sample)
        for name, value in self.newest[node].items():
            self.table.add((NODE, node, name), moment, value)
        gpus = self.gpus[node] = {int(gpu["index"]): gpu_values(gpu) for gpu in sample["gpus"]}
        for index, values in gpus.items():
            for name, value in values.items():
                self.table.add((GPU, node, name, str(index)), moment, value)

    def strips(self, node: str) -> list[dict[str, Any]]:
        """Return the rows of each measure over time, for all nodes or for the GPUs of one node."""
        strips = []
        for measure in MEASURES.values():
            series: dict[str, tuple[str, ...]]
            if node:
                series = {
                    f"GPU {index}": (GPU, node, measure.name, str(index)) for index in sorted(self.gpus.get(node, {}))
                }
            else:
                series = {name: (NODE, name, measure.name) for name in self.names}
            rows = [
                {"label": label, "values": [round_value(value) for value in values]}
                for label, name in series.items()
                if (values := self.table.means(name))
            ]
            if rows:
                strips.append({**measure._asdict(), "rows": rows})
        return strips


def round_value(value: float | None) -> float | None:
    """Round a value to one decimal, which is enough for a chart and keeps the reply short."""
    return None if value is None else round(value, 1)
