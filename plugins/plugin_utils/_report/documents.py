# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""report.json: the report data for the page, the logbook, comparisons and other programs.

The name of a number ends with its unit; times are seconds since 1970. None means unknown. Each text is one cleaned
line, but still untrusted: a node or a job wrote it.
"""

from __future__ import annotations

from typing import TypedDict

VERSION = 1  # incremented when a key changes its meaning or is removed


class Figure(TypedDict):
    """Statistics on one measure over one GPU's samples. p5: the 5th percentile."""

    mean: float
    p5: float
    peak: float
    samples: int


class GpuNumbers(TypedDict):
    """The figures of a GPU. A figure is None if fewer than 8 samples have it; shares are from 0 to 1."""

    node: str
    index: int
    model: str
    samples: int
    interval_seconds: float | None
    missing_samples: int
    last_sample: float | None
    utilization_percent: Figure | None
    memory_used_mib: Figure | None
    memory_total_mib: float | None
    temperature_celsius: Figure | None
    power_watts: Figure | None
    power_limit_watts: float | None
    idle_share: float | None  # share of samples with a utilization below 5 %
    # the same fraction, from the first to the last sample in which a GPU of the run was busy
    idle_share_working: float | None
    utilization_working_percent: float | None  # mean over the same samples
    power_working_watts: float | None
    power_hot_watts: float | None  # mean of busy samples within 2 degrees of the highest temperature
    power_cool_watts: float | None  # mean of the other busy samples


class ProcessNumbers(TypedDict):
    """A process on a GPU over its whole lifetime, as accounted by the driver. None: the driver has no value.

    utilization_percent: time during which a kernel ran; memory_utilization_percent: time during which memory was read
    or written.
    """

    node: str
    gpu: int
    pid: int
    utilization_percent: float | None
    memory_utilization_percent: float | None
    memory_peak_mib: float | None
    seconds: float | None


class NodeRow(TypedDict):
    """One node of the run."""

    name: str
    address: str
    node_rank: int
    slots: int
    state: str
    exit_code: int | None
    gpu: str
    gpus: int | None
    driver: str
    python: str
    torch: str
    cuda: str
    price_per_hour: float | None
    oom_kills: int
    problems: list[str]


class RunStage(TypedDict):
    """A stage of the run."""

    name: str
    seconds: float


class Metric(TypedDict):
    """A value that the job reported."""

    name: str
    value: float | str


class CurvePoint(TypedDict):
    """Values of a curve at a step, or in an interval of steps."""

    step: float
    min: float
    mean: float
    max: float
    time: float | None


class CurveNumbers(TypedDict):
    """A curve: a summary in numbers, and the points to draw, which are stored in curves.json.

    unit: what its steps count: step, epoch or value.
    """

    name: str
    source: str
    values: int
    first: float
    last: float
    min: float
    max: float
    last_step: float
    unit: str
    points: list[CurvePoint]


class ReportFinding(TypedDict):
    """A finding. severity: problem or hint; about: the nodes and GPUs; numbers: the evidence."""

    id: str
    severity: str
    about: list[str]
    problem: str
    remedy: str
    numbers: dict[str, float]


class Cost(TypedDict):
    """The cost of a run. Costs are None if a price is unknown, in which case `missing` names the setting."""

    currency: str
    per_hour: float | None
    run: float | None
    start_up: float | None
    idle_gpus: float | None
    per_1000_samples: float | None
    missing: str


class FailureCause(TypedDict):
    """The cause of a failure according to the error catalogue. evidence: the log line that shows it, or "" for the
    error itself.
    """

    id: str
    cause: str
    remedy: str
    evidence: str
    confidence: str  # error | log


class Failure(TypedDict):
    """The first failure, the log lines that explain it, and its cause, or None if nothing in the catalogue matches."""

    node: str
    node_rank: int
    rank: int | None
    error: str
    log: str
    lines: list[str]
    cause: FailureCause | None


class StackGroup(TypedDict):
    """Ranks with the same activity when the run hung or was ended. frames: innermost first."""

    ranks: str
    activity: str
    awaited: bool  # whether the other ranks were waiting for them
    source: str  # the line in the user's code
    frames: list[str]
    workers: list[str]


class ProfileSection(TypedDict):
    """The profile of some steps of a run, as table rows."""

    time: float
    steps: int
    timeline: str  # path of the timeline of all ranks, relative to the record; "" if there is none
    ranks: list[list[str]]
    operations: list[list[str]]
    late: str  # the ranks that the others wait for


class Report(TypedDict):
    """The content of report.json."""

    version: int
    run_id: str
    created: float
    state: str
    verdict: str
    reason: str
    started: float | None
    ended: float | None
    seconds: float | None
    world_size: int
    nnodes: int
    launcher: str
    command: list[str]
    working_directory: str
    commit: str
    dirty: bool
    repeat: str  # the command that launches the same job with the project's current code and settings
    repeat_exactly: str  # the command that also restores the recorded code, settings and environment, or ""
    origin: list[str]  # lines about the job file, code and requirements with which it was launched
    program: list[str]  # the script or module, and its arguments
    environment: list[str]  # names of all variables
    variables: list[str]  # names of the variables that the user set
    settings: dict[str, str]
    metrics: list[Metric]
    printed_once: list[Metric]  # metrics of which rank 0 printed a single value
    last_lines: list[str]  # rank 0's last lines; [] if there are metrics or curves, or if the run failed
    samples_per_second: float | None
    samples: float | None
    curves: list[CurveNumbers]
    links: list[str]
    gpus: list[GpuNumbers]
    processes: list[ProcessNumbers]
    nodes: list[NodeRow]
    stages: list[RunStage]
    findings: list[ReportFinding]
    failure: Failure | None
    cost: Cost
    restarts: int
    attempts: list[str]  # how each attempt ended; [] if the run was not meant to restart automatically
    stacks: list[StackGroup]  # [] if the record has none
    profile: ProfileSection | None  # None if the run was not profiled
    event_files: bool
    notes: list[str]


def gpu_name(gpu: GpuNumbers) -> str:
    """Return a GPU's name for messages."""
    return f"{gpu['node']} GPU {gpu['index']}"
