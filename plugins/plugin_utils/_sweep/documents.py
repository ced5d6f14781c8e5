# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a sweep is made of, and sweep.json. Private to this collection, controller only.

Numbers are in the unit that their name ends with; None stands for what is not known.
"""

from __future__ import annotations

from typing import Any, TypedDict

VERSION = 1  # raised when a key changes its meaning or goes
SAME, LARGEST = "same", "largest"  # global batch of all, batch of each: the two tables


class Variant(TypedDict):
    """One of what is compared. variables: of the launch, its arguments included where it has any.

    fit_args: its arguments with a hole for the batch, empty if none is searched for. kind: what is equal for two
    variants that differ by nothing but nodes and processes.
    """

    name: str
    variables: dict[str, Any]
    fit_args: list[str]
    kind: str


class Run(TypedDict):
    """One launch of a variant. settings: tells whether it was launched with others, and shows no value of them.

    memory_mib: the most that a GPU, or a process, has used. batch_size: of a rank; global_batch_size: of all ranks
    together. Both, and samples a second of the whole job, as it has reported them.
    """

    variant: str
    batch: str  # SAME or LARGEST
    repeat: int
    run_id: str
    settings: str
    succeeded: bool
    why: str  # it has not
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


class Row(TypedDict):
    """A variant in a table, over its repeats: medians, and the range of its throughput.

    efficiency: samples a second of a rank, by those of the same kind on the smallest number of nodes.
    """

    variant: str
    succeeded: bool
    why: str
    run_ids: list[str]
    nnodes: int
    ranks: int
    batch_size: float | None
    global_batch_size: float | None
    samples_per_second: float | None
    least: float | None
    most: float | None
    per_rank: float | None
    efficiency: float | None
    memory_mib: float | None
    run_seconds: float | None
    cost: float | None
    per_1000_samples: float | None
    currency: str


class Table(TypedDict):
    """Rows, the fastest first, and what must be said of them."""

    batch: str
    rows: list[Row]
    notes: list[str]


class Fitted(TypedDict):
    """Where the search for a variant's largest batch lies. settings: as of a run."""

    directory: str
    settings: str


class State(TypedDict):
    """sweep.json."""

    version: int
    salt: str
    runs: list[Run]
    fits: dict[str, Fitted]
    under_way: str  # the run that was not over when this was written
    tables: list[Table]  # empty until all has run
