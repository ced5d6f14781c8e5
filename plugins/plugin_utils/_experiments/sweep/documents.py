# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Types for the state of a sweep, which is stored in sweep.json.

A number's unit is the last part of its name; None means unknown.
"""

from __future__ import annotations

from typing import Any, TypedDict

VERSION = 2  # increased when a key changes its meaning or is removed
# the two tables: one with the same global batch size for all variants, and one with the largest batch size of each
SAME, LARGEST = "same", "largest"


class Variant(TypedDict):
    """A configuration to compare. variables: the launch's variables, including its arguments, if any.

    fit_args: its arguments with a placeholder for the batch, empty if no largest batch is searched for. kind: equal for
    variants that differ only in nodes and processes.
    """

    name: str
    variables: dict[str, Any]
    fit_args: list[str]
    kind: str


class RunMeasurements(TypedDict):
    """A launch's measurements, taken from its record.

    memory_mib: peak memory of a process or a GPU. batch_size: per rank; global_batch_size: of all ranks together.
    samples_per_second: of the whole job.
    """

    succeeded: bool
    reason: str  # reason why it failed, or "" if it succeeded
    launch_seconds: float
    run_seconds: float | None
    nnodes: int
    ranks: int
    batch_size: float | None
    global_batch_size: float | None
    samples_per_second: float | None
    memory_mib: float | None
    cost: float | None
    per_hour: float | None
    currency: str
    cost_missing: str


class VariantRun(RunMeasurements):
    """A launch of a variant. settings: a salted hash of the variant's settings, to detect changes."""

    variant: str
    batch: str  # SAME or LARGEST
    repeat: int
    run_id: str
    settings: str


class VariantRow(TypedDict):
    """A variant's row in a table: medians over its repeats, and the range of its throughput.

    efficiency: samples per second per rank, relative to the variant of the same kind on the fewest nodes.
    """

    variant: str
    succeeded: bool
    reason: str
    run_ids: list[str]
    nnodes: int
    ranks: int
    batch_size: float | None
    global_batch_size: float | None
    samples_per_second: float | None
    min: float | None
    max: float | None
    per_rank: float | None
    efficiency: float | None
    memory_mib: float | None
    run_seconds: float | None
    cost: float | None
    per_1000_samples: float | None
    currency: str


class SweepTable(TypedDict):
    """The table's rows, fastest first, and notes about them."""

    batch: str
    rows: list[VariantRow]
    notes: list[str]


class VariantFit(TypedDict):
    """The directory of the search for a variant's largest batch size. settings: a hash, as in VariantRun."""

    directory: str
    settings: str


class SweepState(TypedDict):
    """The contents of sweep.json."""

    version: int
    salt: str
    runs: list[VariantRun]
    fits: dict[str, VariantFit]
    running: list[str]  # run_ids of the launches that were in progress when this was written
    tables: list[SweepTable]  # empty until all variants have run
