# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's metrics in Prometheus text format, for the textfile collector of node_exporter.

Device metrics use the names and units of NVIDIA's dcgm-exporter, job metrics those of dstack with another prefix, so
that existing dashboards need few changes.
"""

from __future__ import annotations

import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Iterable, Mapping, Tuple

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

    Sample = Tuple[str, Mapping[str, str], float]

GAUGE, COUNTER = "gauge", "counter"
# Type and description by name, in the order in which they are written.
METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": (GAUGE, "GPU utilization (in %)."),
    "DCGM_FI_DEV_FB_USED": (GAUGE, "Framebuffer memory used (in MiB)."),
    "DCGM_FI_DEV_FB_FREE": (GAUGE, "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_GPU_TEMP": (GAUGE, "GPU temperature (in C)."),
    "DCGM_FI_DEV_POWER_USAGE": (GAUGE, "Power draw (in W)."),
    "muster_job_gpus": (GAUGE, "GPUs of the job on this node."),
    "muster_job_gpu_usage_ratio": (GAUGE, "GPU utilization, from 0 to 1."),
    "muster_job_gpu_memory_usage_bytes": (GAUGE, "Memory in use on a GPU."),
    "muster_job_gpu_memory_total_bytes": (GAUGE, "Memory of a GPU."),
    "muster_job_duration_seconds_total": (COUNTER, "Time since this node's supervisor started."),
    "muster_job_price_dollars_per_hour": (GAUGE, "Price of this node per hour, in US dollars."),
    "muster_job_running": (GAUGE, "Whether the job is running on this node."),
    "muster_job_attempt": (GAUGE, "Attempt number, starting at 0."),
    "muster_node_memory_used_bytes": (GAUGE, "Host memory in use."),
    "muster_node_memory_total_bytes": (GAUGE, "Host memory."),
    "muster_node_disk_free_bytes": (GAUGE, "Free space on the disk that holds the run directory."),
    "muster_node_disk_total_bytes": (GAUGE, "Size of the disk that holds the run directory."),
    "muster_node_health_problems": (GAUGE, "Current health problems on this node."),
    "muster_run_nodes": (GAUGE, "Nodes in the run by state, reported by the node that leads the run."),
    "muster_run_silent_seconds": (GAUGE, "Time since a rank on this node last printed or wrote anything."),
}
# GPU sample field for each metric, and the factor that converts it to the metric's unit.
GPU_FIELDS = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_percent", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_mib", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_celsius", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_watts", 1.0),
    "muster_job_gpu_usage_ratio": ("utilization_percent", 0.01),
    "muster_job_gpu_memory_usage_bytes": ("memory_used_mib", 2.0**20),
    "muster_job_gpu_memory_total_bytes": ("memory_total_mib", 2.0**20),
}
NODE_FIELDS = {
    "muster_node_memory_used_bytes": "memory_used",
    "muster_node_memory_total_bytes": "memory_total",
    "muster_node_disk_free_bytes": "disk_free",
    "muster_node_disk_total_bytes": "disk_total",
}
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
MAX_LABEL = 200


def escape(value: str) -> str:
    """Escape a label's value for use within quotes."""
    text = value[:MAX_LABEL].encode("utf-8", "replace").decode("utf-8")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def format_value(value: float) -> str:
    """Format a number for Prometheus."""
    if not math.isfinite(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def gpu_samples(gpus: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """Return the samples of a node's GPUs, without values that the driver omits."""
    samples: list[Sample] = []
    for gpu in gpus:
        labels = {"gpu": str(int(gpu["index"]))}
        for name, (field, factor) in GPU_FIELDS.items():
            if gpu.get(field) is not None:
                samples.append((name, labels, float(gpu[field]) * factor))
        total, used = gpu.get("memory_total_mib"), gpu.get("memory_used_mib")
        if total is not None and used is not None:
            samples.append(("DCGM_FI_DEV_FB_FREE", labels, max(0.0, float(total) - float(used))))
    return samples


def node_samples(sample: Data) -> list[Sample]:
    """Return a node's samples: its GPUs, memory and disk. sample: as in live_samples.py."""
    samples = gpu_samples(sample["gpus"])
    samples.append(("muster_job_gpus", {}, float(len(sample["gpus"]))))
    samples += [(name, {}, float(sample[field])) for name, field in NODE_FIELDS.items() if sample[field] is not None]
    return samples


def render(samples: Iterable[Sample], labels: Mapping[str, str]) -> str:
    """Return the text for all samples, grouped by metric. labels: the labels of each sample."""
    by_name: dict[str, list[str]] = {}
    for name, own_labels, value in samples:
        pairs = {**labels, **own_labels}
        text = ",".join(f'{label}="{escape(pairs[label])}"' for label in pairs if LABEL_NAME.match(label))
        by_name.setdefault(name, []).append(f"{name}{{{text}}} {format_value(value)}\n")
    lines = []
    for name, (kind, description) in METRICS.items():
        if name in by_name:
            lines += [f"# HELP {name} {description}\n", f"# TYPE {name} {kind}\n", *by_name[name]]
    return "".join(lines)
