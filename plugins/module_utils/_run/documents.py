# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents of a run, as type checkers know them. Private to this collection.

No node imports this file: wherever it is used, it is behind ``TYPE_CHECKING``. Times are seconds since 1970 by the
clock of the node that wrote them, durations are seconds, exit codes are as Popen gives them.
"""

from __future__ import annotations

from typing import Any, Dict, TypedDict

Data = Dict[str, Any]


class PlanNode(TypedDict):
    """The node that a plan is for."""

    name: str
    address: str
    slots: int
    node_rank: int
    first_rank: int


class Hardware(TypedDict):
    """The GPUs of a node."""

    gpu: str  # their model as nvidia-smi calls it, without the maker; several with commas between; "" without GPUs
    gpus: int  # how many there are
    memory_mib: int | None  # memory of one, of the smallest where they differ
    driver: str | None  # version of the NVIDIA driver


class Software(TypedDict):
    """Versions that the job's interpreter has, None for what is not there."""

    python: str | None
    torch: str | None
    cuda: str | None  # that torch was built for


class Code(TypedDict):
    """The git checkout in which a job starts."""

    commit: str
    dirty: bool | None  # whether a file that git knows has been changed since; None where no git could be asked


class Machine(TypedDict):
    """What plan.json says about a node besides its place. None: not known."""

    hardware: Hardware | None
    software: Software | None
    price_per_hour: float | None  # in the currency of the plan


class PlanPeer(Machine):
    """A node of the run, itself among them, in the order of their ranks."""

    name: str
    address: str
    slots: int
    first_rank: int


class Lifeline(TypedDict):
    """Where rank 0 listens."""

    address: str
    port: int


class Timeouts(TypedDict):
    """How long to wait, and how often to do something."""

    start: float  # for all nodes to check in
    heartbeat: float
    sample: float  # between two samples of the GPUs
    silence: float  # until a node counts as lost
    grace: float  # between SIGTERM and SIGKILL


class Container(TypedDict, total=False):
    """What a plan holds in addition where the job runs in a container."""

    wrap: list[str]  # the words of the container engine before the command
    remove: list[str]  # the command that removes the container


class Plan(Container):
    """plan.json: what one node will do. Holds no secret."""

    run_id: str
    unit: str  # of systemd, without ".service"
    supervision: str  # auto: a unit where there is systemd | process
    launcher: str
    program: str  # the script or module of the job, as it was given
    rank_logs: str  # who writes the logs of ranks: torchrun | ranks (bin/muster-rank) | launcher
    node: PlanNode
    nodes: list[PlanPeer]
    code: Code | None  # of the node of rank 0, None where the job does not start in a checkout
    currency: str
    world_size: int
    elastic: bool
    max_restarts: int
    min_nnodes: int
    command: list[str]
    remote_start: bool  # rank 0's launcher starts what runs on the other nodes
    bare_launcher: bool  # it gets none of the user's variables
    launcher_environment: dict[str, str]
    files: dict[str, str]  # of the run directory, by their names
    programs: list[str]  # of bin
    path_prefix: str
    working_directory: str
    environment: dict[str, str]
    variables: list[str]  # names of the user's
    temporary_directory: str
    mounts: list[str]  # mount points that are watched
    gpu_samples: list[str]  # the command that takes one; [] where no GPU can be asked
    log_limit: int  # bytes of disk; 0: none
    outputs: list[str]  # where the job writes what is brought home: paths and patterns
    lifeline: Lifeline
    timeouts: Timeouts


class RankMarks(TypedDict, total=False):
    """What is said of a rank only if it is true."""

    closed: bool  # torchrun has ended it, since another one had failed
    first: bool  # it was the first of its node that failed
    ended_by_us: bool


class RankReport(RankMarks):
    """How one rank has ended."""

    rank: int
    local_rank: int
    exit_code: int | None  # None: not known
    error: str
    log: str


class Report(TypedDict):
    """How a node's part of a run ended: what it reports to rank 0."""

    exit_code: int | None  # the launcher's
    reason: str  # why the node ended its part, "" where the launcher ended by itself
    state: str  # ended | not started
    ended: float | None
    ranks: list[RankReport]
    launcher_error: str
    launcher_log: str
    oom_kills: int  # processes that the kernel ended for lack of memory on this machine during the run
    limit_hits: int  # how often meanwhile the memory limit of a container or service on it was reached
    stuck: list[int]  # processes that SIGKILL did not end
    mounts: dict[str, str]  # mount points that have died, and the error of each
    gpus: str  # what is wrong with them
    ended_by_us: bool
    container: str  # why it may still be there
    unwritten: str  # why the run directory could not be written, where it could not
    shortened: str  # what was done to logs that took more than log_limit
    last_log: str  # of the rank that failed first, or the launcher's; "" where nothing has failed
    last_lines: str  # of that log


class NodeStatus(TypedDict):
    """Rank 0's view of a node while the run lives."""

    name: str
    node_rank: int
    state: str  # waiting | ready | running | ended | lost
    since: float


class NodeResult(NodeStatus):
    """Rank 0's view of a node at the end of the run."""

    report: Report | None
    why: str  # it was lost
    survived: bool  # an elastic run has gone on without it
    launcher_log: str


class NodeView(NodeResult):
    """What rank 0's supervisor knows of a node."""

    broken: float | None  # since when its wire is down, by the monotonic clock
    heard: float
    remote_started: bool  # of a launcher that starts all nodes: whether this one was started
    answered: bool  # and its launcher's bin/ssh has got the exit code


class RankZeroStatus(TypedDict, total=False):
    """What rank 0's status holds in addition."""

    nodes: list[NodeStatus]


class Status(RankZeroStatus):
    """status.json."""

    run_id: str
    node_rank: int
    name: str
    state: str  # starting | running | stopping | ended | succeeded | failed | stopped
    message: str
    since: float
    started: float
    updated: float
    launcher_pid: int | None
    report: Report | None


class Result(TypedDict):
    """result.json: how the run has ended, as rank 0 knows it."""

    run_id: str
    state: str  # succeeded | failed | stopped
    reason: str
    first_node: str | None  # the one that ended the run
    world_size: int
    nnodes: int
    started: float
    ended: float
    nodes: list[NodeResult]
