# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types of a run's documents.

No node imports this file: every import of it is behind ``TYPE_CHECKING``. Times are seconds since 1970 by the
clock of the node that wrote them, durations are in seconds, exit codes are in Popen's form.
"""

from __future__ import annotations

from typing import Any, Dict, TypedDict

Data = Dict[str, Any]


class PlanNodeAttempt(TypedDict, total=False):
    """Additional field of the node in the plan of a run that may restart."""

    attempt_rank: int  # its node_rank in this attempt, or -1 if it does not take part


class PlanNode(PlanNodeAttempt):
    """The node that a plan is for."""

    name: str
    address: str
    slots: int
    node_rank: int  # at the start of the run, also its number in `nodes`
    first_rank: int


class Hardware(TypedDict):
    """The GPUs of a node."""

    gpu: str  # model as nvidia-smi names it, without the vendor; several are comma-separated; "" without GPUs
    gpus: int  # number of GPUs
    memory_mib: int | None  # memory of one GPU, the smallest if they differ
    driver: str | None  # version of the NVIDIA driver


class Software(TypedDict):
    """Versions in the job's interpreter; None if not installed."""

    python: str | None
    torch: str | None
    cuda: str | None  # CUDA version that torch was built for


class GitCheckout(TypedDict):
    """The git checkout in which a job starts."""

    commit: str
    dirty: bool | None  # whether a tracked file has been changed since; None if git could not be run


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
    """Additional field of a node that has joined the run in place of a missing node."""

    generation: int  # how often the node with this number has been replaced


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

    gpu_free: float  # seconds to wait until the GPU memory of the last attempt is free


class Timeouts(TestTimeouts):
    """Timeouts and intervals."""

    start: float  # seconds for all nodes to check in
    heartbeat: float
    sample: float  # seconds between two samples of the GPUs
    silence: float  # seconds of silence after which a node counts as lost
    grace: float  # seconds between SIGTERM and SIGKILL
    hang: float  # seconds without output after which a run may hang; 0: never


class NoticeSettings(TypedDict):
    """Which notices end the run, and how its ranks receive them."""

    signal: str  # SIGTERM | SIGUSR1 | SIGUSR2 | none
    grace: float  # seconds for the ranks to save
    time_limit: float  # seconds; 0: no limit
    cost_limit: float  # amount in the plan's currency; 0: no limit
    stall_limit: float  # seconds that the run may hang; 0: no limit
    metadata: dict[str, str]  # HOST:PORT of metadata services by provider, for tests


class SaveNotice(TypedDict):
    """A notice to all ranks to save now."""

    source: str  # ec2 | gcp | azure | request | the name of a limit
    node: str
    text: str
    ends: bool  # the run ends after it
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

    wrap: list[str]  # the container engine's command, to which the job's is appended
    remove: list[str]  # the command that removes the container


class OtherGpus(TypedDict, total=False):
    """Additional field of a plan whose node has GPUs from a vendor other than NVIDIA."""

    gpu_vendor: str  # see _run/gpu_tools.py


class AttemptFields(TypedDict, total=False):
    """The parts of a launcher's setup that change in each attempt: texts with {values} of attempt_plan.py."""

    arguments: dict[str, str]  # value by option
    environment: dict[str, str]
    settings: dict[str, dict[str, str]]  # name of a value by key, of each JSON file
    hostfiles: list[str]  # files with one line for each node


class RestartPlan(TypedDict):
    """The restart policy of a run: the user's settings, and the data that the supervisors need."""

    restarts: int  # attempts after the first
    when: list[str]  # classes of an attempt's end, see restart_policy.py
    min_nodes: int
    wait: float  # seconds for which an attempt waits for new nodes if there are too few
    spares: int  # number of nodes that wait: the last in `nodes`
    slots: list[int]  # slots of each node
    master_port: int  # master port of the first attempt
    sorted: bool  # the launcher itself orders the nodes, as `nodes` is ordered
    counts_progress: bool  # the job writes checkpoints where the supervisor looks for them
    fields: AttemptFields
    hostfile_lines: dict[str, list[str]]  # the line of each node, by file


class AttemptExtras(TypedDict, total=False):
    """Additional fields of an attempt."""

    hub: int  # node_rank of the node whose supervisor leads the run; 0 if missing
    checkpoint_name: str  # path relative to each node's directory of checkpoints, if the nodes have agreed on it


class Attempt(AttemptExtras):
    """One start of the job within a run."""

    number: int  # counted from 0
    members: list[int]  # the nodes that take part, by their number in the plan's `nodes`, in the order of their ranks
    master_port: int
    checkpoint: str  # path of the checkpoint from which the ranks resume; "" if there is none


class AttemptDetails(TypedDict, total=False):
    """Additional fields of an attempt that has ended, if known."""

    checkpoint_name: str  # name of the checkpoint at its end, relative to each node's directory of checkpoints
    step: int | None  # step of that checkpoint
    unit: str  # unit of the step: "step" or "epoch"
    saved: float  # time at which that checkpoint was saved
    reached: int | None  # the last step that rank 0 printed
    unusable: dict[str, str]  # reasons why nodes could not take part in the next attempt, by name


class AttemptPhases(TypedDict, total=False):
    """Additional fields of an attempt that a failure ended."""

    noticed: float  # time at which the failure was noticed
    silent: float  # seconds without a sign of life of a lost node before that


class AttemptRecord(AttemptDetails, AttemptPhases):
    """The end of an attempt."""

    number: int
    nodes: list[str]
    started: float
    ended: float
    end_class: str  # see restart_policy.py
    node: str  # node that ended it, or "" if it is unknown
    reason: str
    checkpoint: str  # path of the newest complete checkpoint at its end, or "" if there is none


class Restartable(TypedDict, total=False):
    """Additional fields of a plan whose run may restart."""

    restart: RestartPlan
    attempt: int
    hub: int  # node_rank of the node whose supervisor leads the run, once it is not 0
    logs: str  # directory of the attempt's logs in the run directory; "" for the first attempt


class Launched(TypedDict, total=False):
    """Additional field of a plan, to launch its job again."""

    options: Data  # variables of the role launch that the user set; no secrets


class Plan(Container, OtherGpus, Restartable, Launched):
    """plan.json: the part of one node in a run. Holds no secret."""

    run_id: str
    unit: str  # name of the systemd unit, without ".service"
    supervision: str  # auto: a unit where there is systemd | process
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
    bare_launcher: bool  # the launcher gets none of the user's variables
    launcher_environment: dict[str, str]
    files: dict[str, str]  # content of files in the run directory, by name
    programs: list[str]  # names of programs in bin
    path_prefix: str
    working_directory: str
    environment: dict[str, str]
    variables: list[str]  # names of the user's variables
    temporary_directory: str
    mounts: list[str]  # mount points that are watched
    gpus: list[int]  # GPUs that the run uses on this node, as nvidia-smi numbers them; [] for all
    gpu_samples: list[str]  # the command that takes one sample; [] if no GPU can be queried
    log_limit: int  # bytes of disk; 0: no limit
    node_exporter_directory: str  # directory into which the node writes its metrics; "" for none
    debugger: Debugger | None  # the rank that waits for a debugger; None if there is none
    stacks: bool  # the job's Python processes offer their stacks
    on_hang: str  # report | stop
    metrics: list[str]  # regular expressions whose named groups are metrics in the job's output
    checkpoints: str  # directory or URL of the job's checkpoints
    checkpoint: str  # path of the checkpoint to resume from, or "" if there is none
    resume_args: list[str]  # added to the arguments if there is a checkpoint, for {checkpoint}
    outputs: list[str]  # paths and patterns of the job's output to fetch to the controller
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
    """The end of a node's part of a run, as reported to rank 0."""

    exit_code: int | None  # exit code of the launcher
    reason: str  # reason why the node ended its part, or "" if the launcher ended by itself
    state: str  # ended | not started
    ended: float | None
    ranks: list[RankReport]
    launcher_error: str
    launcher_log: str
    oom_kills: int  # processes on this machine that the kernel killed for lack of memory during the run
    limit_hits: int  # how often a container or service on it reached its memory limit during the run
    stuck: list[int]  # pids that SIGKILL did not end
    mounts: dict[str, str]  # error by mount point that has died
    gpus: str  # the error of nvidia-smi, or "" if all GPUs are healthy
    health: list[dict[str, str]]  # problems with the node: text, gpu (UUID or ""), hardware ("yes" or "")
    ended_by_us: bool
    shutdown: bool  # it ended because its machine was rebooted or shut down
    container: str  # reason why the container may still exist
    unwritten: str  # reason why the run directory could not be written; "" if it could
    shortened: str  # how logs beyond log_limit were shortened
    # log of the rank that failed first, the launcher, or the first rank that was ended; "" if nothing failed
    last_log: str
    last_lines: str  # last lines of that log
    outputs: list[LogExcerpt]  # last lines of other ranks whose logs show an error
    stacks: list[Data]  # activity of its ranks before they were ended: groups as in _run/hang_analysis.py
    # collectives in which its ranks were, according to torch's flight recorder: _run/flight_records.py
    operations: list[Data]
    nccl: list[Data]  # what NCCL has set up for its ranks: _run/nccl_setups.py


class NodeStatus(TypedDict):
    """Rank 0's view of a node while the run is alive."""

    name: str
    node_rank: int
    state: str  # waiting | ready | running | ended | lost | spare
    since: float


class NodeResult(NodeStatus):
    """Rank 0's view of a node at the end of the run."""

    report: NodeReport | None
    why: str  # reason why it was lost
    survived: bool  # an elastic run continued without it
    launcher_log: str


class NodeView(NodeResult):
    """The state of a node that rank 0's supervisor keeps."""

    broken: float | None  # monotonic time at which its connection broke
    heard: float  # monotonic time at which its last message arrived
    remote_started: bool  # whether a launcher that starts all nodes has started this one
    answered: bool  # whether bin/ssh has received its exit code
    return_by: float  # monotonic time until which a silent node may return
    excluded: bool  # whether it must not be used again, such as a node with a broken GPU


class RankZeroStatus(TypedDict, total=False):
    """Additional fields of rank 0's status."""

    nodes: list[NodeStatus]
    hang: Data | None  # the hang, as in the result
    attempt: int
    slow: list[str]  # GPUs or ranks that are slower than the others
    hub: int  # node_rank of the node whose supervisor leads the run; set on all nodes of a run that may restart
    exited: str  # ranks that exited a while ago, and the ranks that the run still waits for; "" if none
    lost: str  # work that the attempts so far lost, such as "40 steps"; "" if none has ended
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
    # times at which ranks exited while the launcher runs: this node's ranks, on rank 0 all nodes'
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
    hang: Data | None  # the hang that was reported and had not ended: text, since, culprits, groups
    attempts: list[AttemptRecord]  # [] if the run was not to restart
    not_restarted: str  # reason why no attempt followed the last one
    notice: SaveNotice | None  # the notice that ended the run
    broken: list[dict[str, str]]  # broken hardware, in all attempts: node and text
    hub: int  # node_rank of the node whose supervisor wrote this
    cut_off: bool  # whether it reached fewer than half of the nodes: the others may have continued
