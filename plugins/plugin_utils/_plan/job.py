# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A job: what a run executes, regardless of the nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SAFE_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
RESERVED_VARIABLES = re.compile(
    r"(RANK|WORLD_SIZE|NODE_RANK|MASTER_ADDR|MASTER_PORT|(LOCAL|GROUP|ROLE)_(RANK|NAME|WORLD_SIZE)|"
    r"(PET|TORCHELASTIC|MUSTER)_.*)\Z"
)
DEEPSPEED_LAUNCHERS = ("pdsh", "openmpi")
LOCAL_RANK_CHOICES = ("auto", "true", "false")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Job:
    """The job that a run executes. Times are in seconds; an empty string means "not set"."""

    run_id: str
    launcher: str
    rdzv_backend: str
    script: str
    module: str
    args: tuple[str, ...]
    interpreter: str
    working_directory: str
    variables: tuple[str, ...]  # names of the user's variables; their values never enter a plan
    master_port: int
    lifeline_port: int
    min_nnodes: int | None  # minimum number of nodes of an elastic run
    max_restarts: int
    start_timeout: int
    silence_timeout: int
    stop_grace: int
    no_python: bool = False  # the script is an executable whose path contains a slash
    deepspeed_launcher: str = ""  # pdsh, openmpi; "": one deepspeed process per node
    deepspeed_local_rank: str = "auto"  # whether DeepSpeed passes --local_rank: auto, true, false
    accelerate_config: Mapping[str, Any] = field(default_factory=dict)  # added to the keys from the rank table
    image: str = ""  # container image for all processes
    container_engine: str = "docker"  # docker or podman
    container_mounts: tuple[str, ...] = ()  # mounts, in the format of --volume
    container_options: tuple[str, ...] = ()
    container_ulimits: tuple[str, ...] = ()
    container_shm_size: str = ""  # "": the node's /dev/shm
    gpus: tuple[int, ...] = ()  # GPUs to use on each node, numbered as in nvidia-smi; (): all
    log_limit: int = 10  # GB of disk space for a node's logs; 0: unlimited
    outputs: tuple[str, ...] = ()  # paths and patterns of output files that are outside the run directory
    metrics: tuple[str, ...] = ()  # regular expressions whose named groups are metrics in the job's output
    checkpoints: str = ""  # directory of the job's checkpoints; "": the one that its arguments name
    resume_args: tuple[str, ...] = ()  # added to args if there is a checkpoint, whose path replaces {checkpoint}
    checkpoint: str = ""  # path of the checkpoint to resume from, as chosen by the plan
    stacks: bool = True  # Python processes make their stacks available to the supervisor
    hang_timeout: int = 600  # seconds without output before a run is considered hung; 0: never
    on_hang: str = "report"  # report or stop
    restarts: int = 0  # number of times that the supervisors restart the whole run on the same machines
    restart_when: tuple[str, ...] = ()  # classes of attempt ends after which it restarts
    spares: int = 0  # number of nodes that wait as spares: the last ones
    restart_min_nodes: int | None = None  # number of nodes to restart with; None: as many as at the start
    restart_wait: float = 0  # seconds for which it then waits for new nodes if there are too few
    notice_signal: str = "SIGTERM"  # sent to ranks that handle it, so that they save; or SIGUSR1, SIGUSR2, none
    notice_grace: int = 100  # seconds that the ranks have to save before they are ended
    time_limit: float = 0.0  # 0: no limit
    cost_limit: float = 0.0  # amount in the plan's currency; 0: no limit
    stall_limit: float = 0.0  # seconds that the run may hang; 0: no limit
    numa_binding: str = "auto"  # how ranks are bound to CPUs: auto, node, none
    node_exporter_directory: str = ""  # directory in which each node writes its metrics; "": none
    debug_rank: int | None = None  # the rank that waits for a debugger
    debug_port: int = 5678  # port for the debugger on that rank's node
    debug: bool = False  # enables NCCL's debug log and torch's flight recorder

    @property
    def elastic(self) -> bool:
        """Return whether the run continues when nodes are lost."""
        return self.min_nnodes is not None

    def program_argv(self, interpreter: str) -> list[str]:
        """Return the command that starts one process, without the job's arguments."""
        if self.no_python:
            return [self.script]
        return [interpreter, "-u", *(["-m", self.module] if self.module else [self.script])]


def parse_nnodes(text: object) -> tuple[int, int, bool]:
    """Parse nnodes as torchrun does: "4" or "2:4". Return (minimum, maximum, whether it is a range).

    Raise ValueError with a message for the user.
    """
    match = re.fullmatch(r"([0-9]{1,6})(?::([0-9]{1,6}))?", str(text))
    if not match or int(match[1]) < 1:
        raise ValueError(
            f"nnodes is {ascii(text)[:60]}; use a number of nodes, or MIN:MAX such as 2:4 for an elastic run"
        )
    if match[2] is not None and int(match[2]) < int(match[1]):
        raise ValueError(
            f"nnodes is {ascii(text)[:60]}; the minimum {int(match[1])} is greater than the maximum {int(match[2])}. "
            f"Use MIN:MAX, such as {int(match[2]) or 1}:{int(match[1])}"
        )
    return int(match[1]), int(match[2] or match[1]), match[2] is not None


def environment_problems(environment: dict[str, object]) -> list[str]:
    """Return the problems with the names and values in a user's environment. Values are never included."""
    problems = []
    for name, value in environment.items():
        if not VARIABLE_NAME.match(name):
            problems.append(
                f"{ascii(name)[:60]} is not a valid name of an environment variable: use letters, digits and _"
            )
        elif RESERVED_VARIABLES.match(name):
            problems.append(f"{name} is set by the launcher from the rank table: remove it")
        elif isinstance(value, bool) or value is None or isinstance(value, (list, dict)):
            kind = "a list or dictionary" if isinstance(value, (list, dict)) else "true, false or null"
            problems.append(f"{name} is {kind}: put the value in quotes")
        elif "\0" in str(value):
            problems.append(f"{name} contains a NUL character, which an environment variable cannot contain")
    return problems
