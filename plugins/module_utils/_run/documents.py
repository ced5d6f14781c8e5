# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types for a run's documents.

No node imports this file: every import of it is behind ``TYPE_CHECKING``. Times are seconds since 1970 by the
clock of the node that wrote them, durations are in seconds, exit codes are in Popen's form.
"""

from __future__ import annotations

from typing import Any, Dict, TypedDict

Data = Dict[str, Any]


class PlanNodeAttempt(TypedDict, total=False):
    """Additional field for the node in the plan of a run that may restart."""

    attempt_rank: int  # its node_rank in this attempt, or -1 if it is not taking part


class PlanNode(PlanNodeAttempt):
    """The node that a plan is for."""

    name: str
    address: str
    slots: int
    node_rank: int  # at the start of the run, also its number in `nodes`
    first_rank: int


class Hardware(TypedDict):
    """The GPUs of a node."""

    # model name as reported by nvidia-smi, without the vendor; several are comma-separated; "" if there are no GPUs
    gpu: str
    gpus: int  # number of GPUs
    memory_mib: int | None  # memory of one GPU; the smallest if they differ
    driver: str | None  # version of the NVIDIA driver


class Software(TypedDict):
    """Versions in the job's interpreter; None if a package is not installed."""

    python: str | None
    torch: str | None
    cuda: str | None  # CUDA version that torch was built with


class GitCheckout(TypedDict):
    """The git checkout in which a job starts."""

    commit: str
    dirty: bool | None  # whether a tracked file has been changed since then; None if git could not be run


class MachineIdentity(TypedDict, total=False):
    """The identity of a machine; "" if unknown."""

    serial: str
    asset: str
    machine_id: str
    gpus: list[str]  # UUIDs


class RunMachine(TypedDict):
    """A node's hardware, software and price in plan.json; None if unknown."""

    identity: MachineIdentity | None
    hardware: Hardware | None
    software: Software | None
    price_per_hour: float | None  # price in the plan's currency


class PlanPeerReplacement(TypedDict, total=False):
    """Additional field for a node that has joined the run in place of a missing node."""

    generation: int  # number of times the node with this number has been replaced


class Member(TypedDict):
    """A node that joins a run in place of a missing node."""

    node_rank: int
    name: str
    address: str
    generation: int


class PlanPeer(RunMachine, PlanPeerReplacement):
    """A node in plan.json, which lists all nodes of the run in rank order."""

    name: str
    address: str
    slots: int
    first_rank: int


class Lifeline(TypedDict):
    """The address on which rank 0's supervisor listens."""

    address: str
    port: int


class TestTimeouts(TypedDict, total=False):
    """Timeouts that only tests change."""

    gpu_free: float  # seconds to wait for the last attempt's GPU memory to be freed


class Timeouts(TestTimeouts):
    """Timeouts and intervals."""

    start: float  # seconds within which all nodes must check in
    heartbeat: float
    sample: float  # seconds between two GPU samples
    silence: float  # seconds of silence after which a node is considered lost
    grace: float  # seconds between SIGTERM and SIGKILL
    hang: float  # seconds without output before a run is considered hung; 0: never


class NoticeSettings(TypedDict):
    """Which notices end the run, and how its ranks receive them."""

    signal: str  # SIGTERM | SIGUSR1 | SIGUSR2 | none
    grace: float  # seconds that the ranks have to save
    time_limit: float  # seconds; 0: no limit
    cost_limit: float  # amount in the plan's currency; 0: no limit
    stall_limit: float  # seconds for which the run may hang; 0: no limit
    metadata: dict[str, str]  # HOST:PORT of the metadata services by provider, for tests


class SaveNotice(TypedDict):
    """A notice to all ranks to save now."""

    source: str  # ec2 | gcp | azure | request | the name of a limit
    node: str
    text: str
    ends: bool  # the run ends after this notice
    machine: bool  # whether it concerns the node's machine
    seconds: float  # seconds until the machine is taken away or the limit is reached; 0: unknown
    time: float


class Debugger(TypedDict):
    """The rank that waits for a debugger."""

    rank: int
    node: str
    port: int  # port on the loopback address of its node
    directory: str  # working directory of the job


class Container(TypedDict, total=False):
    """Additional fields of a plan whose job runs in a container."""

    wrap: list[str]  # the container engine's command, to which the job's command is appended
    remove: list[str]  # the command that removes the container


class OtherGpus(TypedDict, total=False):
    """Additional field of a plan whose node has GPUs from a vendor other than NVIDIA."""

    gpu_vendor: str  # see _run/gpu_tools.py


class AttemptFields(TypedDict, total=False):
    """The parts of a launcher's setup that change in each attempt: strings with {values} of attempt_plan.py."""

    arguments: dict[str, str]  # value by option
    environment: dict[str, str]
    settings: dict[str, dict[str, str]]  # for each JSON file, the names of values by key
    hostfiles: list[str]  # files that have one line for each node


class RestartPlan(TypedDict):
    """The restart policy of a run: the user's settings, and the data that the supervisors need."""

    restarts: int  # number of attempts after the first
    when: list[str]  # ways in which an attempt can end, see restart_policy.py
    min_nodes: int
    wait: float  # seconds for which an attempt waits for new nodes if there are too few
    spares: int  # number of spare nodes, which wait: the last ones in `nodes`
    slots: list[int]  # number of slots on each node
    master_port: int  # the first attempt's master port
    sorted: bool  # the launcher itself orders the nodes, in the same order as `nodes`
    counts_progress: bool  # the job writes checkpoints where the supervisor looks for them
    fields: AttemptFields
    hostfile_lines: dict[str, list[str]]  # each node's line, by file


class AttemptExtras(TypedDict, total=False):
    """Additional fields of an attempt."""

    hub: int  # node_rank of the node whose supervisor leads the run; 0 if missing
    checkpoint_name: str  # path relative to each node's checkpoint directory, if the nodes have agreed on it


class Attempt(AttemptExtras):
    """One start of the job within a run."""

    number: int  # counted from 0
    members: list[int]  # the nodes that take part, given by their numbers in the plan's `nodes`, in rank order
    master_port: int
    checkpoint: str  # path of the checkpoint from which the ranks resume; "" if there is none


class AttemptDetails(TypedDict, total=False):
    """Additional fields of an attempt that has ended, if known."""

    checkpoint_name: str  # name of the checkpoint when it ended, relative to each node's checkpoint directory
    step: int | None  # step of that checkpoint
    unit: str  # unit of the step: "step" or "epoch"
    saved: float  # time at which that checkpoint was saved
    last_step: int | None  # the last step that rank 0 printed
    unusable: dict[str, str]  # reasons why nodes could not take part in the next attempt, by node name


class AttemptPhases(TypedDict, total=False):
    """Additional fields of an attempt that a failure ended."""

    noticed: float  # time at which the failure was noticed
    silent: float  # seconds without a sign of life from a lost node before that


class AttemptRecord(AttemptDetails, AttemptPhases):
    """The end of an attempt."""

    number: int
    nodes: list[str]
    started: float
    ended: float
    end_class: str  # see restart_policy.py
    node: str  # node that ended the attempt, or "" if unknown
    reason: str
    checkpoint: str  # path of the newest complete checkpoint when it ended, or "" if there is none


class Restartable(TypedDict, total=False):
    """Additional fields of a plan whose run may restart."""

    restart: RestartPlan
    attempt: int
    hub: int  # node_rank of the node whose supervisor leads the run, once it is not 0
    logs: str  # directory of the attempt's logs, within the run directory; "" for the first attempt


class Launched(TypedDict, total=False):
    """Additional field of a plan, to launch its job again."""

    options: Data  # the role launch's variables that the user set; no secrets


class Plan(Container, OtherGpus, Restartable, Launched):
    """plan.json: one node's part in a run. Contains no secrets."""

    run_id: str
    unit: str  # name of the systemd unit, without ".service"
    supervision: str  # auto: a unit if systemd is available | process
    launcher: str
    program: str  # the script or module of the job, as the user wrote it
    program_sha256: str  # hash of the script; "" if it was not read
    arguments: list[str]  # arguments of the script or module
    rank_logs: str  # which program writes the ranks' logs: torchrun | ranks (bin/muster-rank) | launcher
    node: PlanNode
    nodes: list[PlanPeer]
    code: GitCheckout | None  # checkout on rank 0's node; None if the job does not start in a checkout
    currency: str
    world_size: int
    elastic: bool
    max_restarts: int
    min_nnodes: int
    command: list[str]
    remote_start: bool  # rank 0's launcher starts the processes on the other nodes
    bare_launcher: bool  # the launcher receives none of the user's variables
    launcher_environment: dict[str, str]
    files: dict[str, str]  # contents of files in the run directory, by name
    programs: list[str]  # names of the programs in bin
    path_prefix: str
    working_directory: str
    environment: dict[str, str]
    variables: list[str]  # names of the user's variables
    temporary_directory: str
    mounts: list[str]  # mount points that are watched
    gpus: list[int]  # GPUs that the run uses on this node, numbered as in nvidia-smi; [] for all
    gpu_samples: list[str]  # the command that takes one sample; [] if no GPU can be queried
    log_limit: int  # bytes of disk space; 0: no limit
    node_exporter_directory: str  # directory in which the node writes its metrics; "" for none
    debugger: Debugger | None  # the rank that waits for a debugger; None if there is none
    stacks: bool  # the job's Python processes can report their stacks
    on_hang: str  # report | stop
    metrics: list[str]  # regular expressions whose named groups are metrics in the job's output
    checkpoints: str  # directory or URL of the job's checkpoints
    checkpoint: str  # path of the checkpoint to resume from, or "" if there is none
    resume_args: list[str]  # added to the arguments if there is a checkpoint, whose path replaces {checkpoint}
    outputs: list[str]  # paths and patterns of the job's output files to fetch to the controller
    lifeline: Lifeline
    timeouts: Timeouts
    notices: NoticeSettings


class RankMarks(TypedDict, total=False):
    """Fields of a rank that are present only if true or known."""

    closed: bool  # torchrun ended it because another rank had failed
    first: bool  # it was the first rank on its node to fail
    ended_by_us: bool  # the supervisor ended it
    own_error: bool  # it was ended after an error of its own
    before_end: float  # seconds between its failure and the beginning of the end of its node's ranks; absent if unknown


class RankReport(RankMarks):
    """The end of one rank."""

    rank: int
    local_rank: int
    exit_code: int | None  # None: unknown
    error: str
    log: str


class LogExcerpt(TypedDict):
    """The end of a log."""

    log: str
    lines: str


class NodeReport(TypedDict):
    """The end of a node's part in a run, as reported to rank 0."""

    exit_code: int | None  # exit code of the launcher
    reason: str  # reason why the node ended its part, or "" if the launcher exited by itself
    state: str  # ended | not started
    ended: float | None
    ranks: list[RankReport]
    launcher_error: str
    launcher_log: str
    oom_kills: int  # number of processes on this machine that the kernel killed for lack of memory during the run
    limit_hits: int  # number of times that a container or service on the node reached its memory limit during the run
    stuck: list[int]  # PIDs that survived SIGKILL
    mounts: dict[str, str]  # error for each mount point that has died
    gpus: str  # error reported by nvidia-smi, or "" if all GPUs are healthy
    health: list[dict[str, str]]  # problems with the node: text, gpu (UUID or ""), hardware ("yes" or "")
    ended_by_us: bool
    shutdown: bool  # it ended because its machine was rebooting or shutting down
    container: str  # reason why the container may still exist
    unwritten: str  # reason why the run directory could not be written; "" if it could
    shortened: str  # how logs that exceeded log_limit were shortened
    # log of the rank that failed first, of the launcher, or of the first rank that was ended; "" if nothing failed
    last_log: str
    last_lines: str  # last lines of that log
    outputs: list[LogExcerpt]  # last lines of other ranks whose logs show an error
    stacks: list[Data]  # what its ranks were doing before they were ended: groups as in _run/hang_analysis.py
    # collectives that its ranks were in, according to torch's flight recorder: _run/flight_records.py
    operations: list[Data]
    nccl: list[Data]  # what NCCL has set up for its ranks: _run/nccl_setups.py


class NodeStatus(TypedDict):
    """Rank 0's view of a node while the run is alive."""

    name: str
    node_rank: int
    state: str  # waiting | ready | running | ended | lost | spare
    since: float


class NodeResult(NodeStatus):
    """The final state of a node, as seen by the supervisor that leads the run."""

    report: NodeReport | None
    lost_reason: str  # reason why it is considered lost
    survived: bool  # an elastic run continued without it
    launcher_log: str


class NodeView(NodeResult):
    """The state of a node that rank 0's supervisor keeps."""

    broken: float | None  # monotonic time at which its connection broke
    last_message: float  # monotonic time at which it arrived
    remote_started: bool  # whether a launcher that starts all nodes has started this node
    answered: bool  # whether bin/ssh has received its exit code
    return_by: float  # monotonic time until which a silent node may come back
    excluded: bool  # whether it must not be used again, for example because its GPU is broken


class RankZeroStatus(TypedDict, total=False):
    """Additional fields of rank 0's status."""

    nodes: list[NodeStatus]
    hang: Data | None  # the hang, as in the result
    attempt: int
    slow: list[str]  # GPUs or ranks that are slower than the others
    hub: int  # node_rank of the node whose supervisor leads the run; set on all nodes of a run that may restart
    exited: str  # ranks that exited a while ago, and the ranks that the run still waits for; "" if none
    lost: str  # work that has been lost in the attempts so far, such as "40 steps"; "" if none has ended
    missing: list[Data]  # nodes that new nodes can replace: node_rank, name, excluded


class Status(RankZeroStatus):
    """status.json."""

    run_id: str
    node_rank: int
    name: str
    # starting | running | stopping | ended | restarting | spare | succeeded | failed | stopped | interrupted
    state: str
    message: str
    since: float
    started: float
    updated: float
    launcher_pid: int | None
    report: NodeReport | None
    health: list[str]  # current problems with this node
    # times at which ranks exited while the launcher was still running: this node's ranks, or on rank 0 those of all
    # nodes
    ended_ranks: dict[str, float]


class Result(TypedDict):
    """result.json: how the run ended, as seen by rank 0."""

    run_id: str
    state: str  # succeeded | failed | stopped | interrupted
    reason: str
    first_node: str | None  # the node that ended the run
    world_size: int
    nnodes: int
    started: float
    ended: float
    nodes: list[NodeResult]
    ended_early: list[int]  # ranks that had exited with 0 when the run began to end
    hang: Data | None  # the hang that was reported and had not ended: text, since, awaited_ranks, groups
    attempts: list[AttemptRecord]  # [] if the run was not meant to restart
    not_restarted: str  # reason why the last attempt was not followed by another
    notice: SaveNotice | None  # the notice that ended the run
    broken: list[dict[str, str]]  # broken hardware across all attempts: node and text
    hub: int  # node_rank of the node whose supervisor wrote this
    cut_off: bool  # whether it reached fewer than half of the nodes, in which case the others may have continued
