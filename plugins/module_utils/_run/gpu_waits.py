# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognize GPUs that wait for other ranks, from samples: NCCL's kernels keep a GPU busy, but use little power."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import read_line

WAITING_SAMPLES = 3  # number of newest samples, in all of which the GPU must be busy at low power
EARLIER_SAMPLES = 4  # minimum number of earlier samples in which it must have been busy
BUSY = 50.0  # percent of utilization
FULLY_BUSY = 95.0
LOW_POWER = 0.6  # fraction of the power that the GPU used before, while it was busy


def busy_samples(text: str) -> dict[int, list[tuple[float, float]]]:
    """Return the utilization and power samples of each GPU, keyed by index, oldest first. text: the contents of
    gpus.csv.
    """
    samples: dict[int, list[tuple[float, float]]] = {}
    for line in text.rpartition("\n")[0].splitlines():
        sample = read_line(line)
        if sample is not None and sample[1]["index"] is not None:
            utilization, power = sample[1]["utilization_percent"], sample[1]["power_watts"]
            if utilization is not None and power is not None:
                samples.setdefault(int(sample[1]["index"]), []).append((utilization, power))
    return samples


def is_waiting(samples: list[tuple[float, float]]) -> bool:
    """Return whether a GPU is fully busy but using much less power than in most of its earlier work."""
    newest, earlier = samples[-WAITING_SAMPLES:], samples[:-WAITING_SAMPLES]
    powers = sorted(power for utilization, power in earlier if utilization >= BUSY)
    if len(powers) < EARLIER_SAMPLES:
        return False
    usual = powers[len(powers) * 3 // 4]  # not the mean: the wait itself may be included in the samples
    return all(utilization >= FULLY_BUSY and power <= LOW_POWER * usual for utilization, power in newest)


def waiting_gpus(text: str) -> list[bool]:
    """Return whether each sampled GPU of a node is waiting for other ranks, in index order.

    False if this is unknown, for example because no earlier sample shows work. text: the end of gpus.csv.
    """
    samples = busy_samples(text)
    return [is_waiting(samples[index]) for index in sorted(samples)]
