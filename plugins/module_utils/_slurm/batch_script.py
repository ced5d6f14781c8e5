# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The batch script of a run, and the options with which it is submitted. Pure functions."""

from __future__ import annotations

import collections
import re
import shlex

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    LOST_NODE_JOB_TIMEOUT,
    REQUEUE_CLEANUP_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._slurm.queued_run import KEPT
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.slurm import REQUEST, parse_duration

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Mapping, Sequence

    Data = Dict[str, Any]


# How a job ends. notice: seconds before the end at which the run should save, or 0 for no notice. requeue: the sbatch
# option that says whether Slurm may start the job again.
JobEnd = collections.namedtuple("JobEnd", "notice requeue")
NO_REQUEUE = "--no-requeue"
REQUEUE = "--requeue"
EXPEDITED_REQUEUE = "--requeue=expedite"  # requeue immediately, ahead of all other jobs
UNANNOUNCED = JobEnd(0, NO_REQUEUE)
EXPEDITED_RELEASE = (25, 11)
# Tell the batch script its exit code: the run is over, although srun is still waiting for the tasks of lost nodes.
END_SIGNALS = {0: "HUP", 1: "USR2"}
MAX_NOTICE = 65535  # seconds; sbatch's limit
OPTIONS = ("partition", "account", "qos", "time", "gres", "exclude", "reservation", "dependency")
"""sbatch options that a user may set."""


# Give srun these seconds to end, which it does at once if only a node's supervisor was lost. They are counted in the
# background, because a signal that arrives shortly before a `wait` does not interrupt it.
END_STEP = """\
over=
step=
end_step() {{
  [ -z "$over" ] || return
  over=$1
  step=${{step:-$!}}
  seconds={seconds}
  while kill -0 "$step"; do
    if [ "$seconds" -le 0 ]; then kill -KILL "$step"; break; fi
    sleep 1
    seconds=$((seconds - 1))
  done 2> /dev/null &
}}
"""

# With --requeue=expedite, Slurm requeues and holds a job whose script fails while its nodes are healthy. A run that has
# failed permanently must not stay in the queue. If Slurm ends the job, the script's exit code does not matter.
END_OF_EXPEDITED_JOB = (
    'if [ -n "$ended" ]; then status=0\n'
    'elif [ "$status" -ne 0 ] && [ "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)" = RUNNING ]; then\n'
    '  scontrol update JobId="$SLURM_JOB_ID" Requeue=0 || status=0\n'
    "fi\n"
)


class NodeNotInClusterError(Exception):
    """A node of the run that is not in the cluster; the message names it."""


def parse_nodes(text: str) -> list[dict[str, str]]:
    """Return NodeName, NodeAddr and NodeHostName of each node, from `scontrol show node --oneliner`."""
    names = ("NodeName", "NodeAddr", "NodeHostName", "Gres")
    return [
        dict(re.findall(rf"\b({'|'.join(names)})=(\S+)", line)) for line in text.splitlines() if "NodeName=" in line
    ]


def match_nodes(nodes: Iterable[Mapping[str, str]], cluster: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the cluster node for each node in a run: the one with its address, or else the one with its name."""
    by_address = {node.get("NodeAddr", ""): node for node in cluster}
    by_name = {node.get(field, "").lower(): node for field in ("NodeHostName", "NodeName") for node in cluster}
    result = []
    for node in nodes:
        match = by_address.get(node["address"]) or by_name.get(node["name"].lower())
        if match is None:
            known = ", ".join(f"{other.get('NodeName')} at {other.get('NodeAddr')}" for other in cluster)
            raise NodeNotInClusterError(
                f"{node['name']} at {node['address']} is not in the Slurm cluster, which has {known or 'no nodes'}. "
                "Add it: ansible-playbook site.yml --tags slurm -e slurm_enabled=true"
            )
        result.append(match)
    return result


def requeue_option(configuration: str) -> str:
    """Return the sbatch option for a job that Slurm may start again, from the output of `scontrol show config`."""
    settings = dict(re.findall(r"(?m)^(SLURM_VERSION|SlurmctldParameters)\s*=\s*(.*?)\s*$", configuration))
    release = tuple(int(number) for number in re.findall(r"[0-9]+", settings.get("SLURM_VERSION", ""))[:2])
    is_enabled = "enable_expedited_requeue" in settings.get("SlurmctldParameters", "").split(",")
    return EXPEDITED_REQUEUE if is_enabled and release >= EXPEDITED_RELEASE else REQUEUE


def gpu_count(resources: str) -> int:
    """Return the number of GPUs in a node's Gres, such as "gpu:h100:8(S:0-1)"."""
    return sum(int(count) for count in re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", resources))


def signal_argument(time_limit: str, notice: int) -> list[str]:
    """Return the sbatch option that signals the batch script this many seconds before the job ends, in a list.

    A job hardly longer than that would be signaled when it starts. The signal is not SIGTERM, which cancels jobs.
    """
    limit = parse_duration(time_limit)
    if not notice or (limit is not None and limit < 2 * notice):
        return []
    return [f"--signal=B:USR1@{min(notice, MAX_NOTICE)}"]


def submit_arguments(
    run_id: str, log: str, nodes: Sequence[Mapping[str, str]], options: Mapping[str, str], end: JobEnd = UNANNOUNCED
) -> list[str]:
    """Return the sbatch arguments. The job gets whole nodes, with all their GPUs and memory."""
    gpus = min(gpu_count(node.get("Gres", "")) for node in nodes)
    defaults = {"gres": f"gpu:{gpus}"} if gpus else {}
    chosen = {**defaults, **{name: value for name, value in options.items() if value and name in OPTIONS}}
    return [
        "--parsable",
        f"--job-name={run_id}",
        "--comment=muster",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(node['NodeName'] for node in nodes)}",
        "--exclusive",
        "--mem=0",
        end.requeue,
        "--no-kill",
        *signal_argument(options.get("time", ""), end.notice),
        "--chdir=/",
        f"--output={log.replace('%', '%%')}",
        "--open-mode=append",
        *(f"--{name}={value}" for name, value in chosen.items()),
    ]


def batch_script(
    run_id: str, nodes: Sequence[Mapping[str, str]], names: Sequence[str], requeue: str = NO_REQUEUE
) -> str:
    """Return the script that starts each node's supervisor as a task of one step.

    The supervisors end the run: a task that fails must not end the others, and a lost node must not end the job. A
    guard removes the container of a supervisor that was killed, since Slurm does not know about containers.

    Args:
        nodes: address and run directory of each node, in rank order.
        names: their names in Slurm.
        requeue: the sbatch option. What is kept for another start is removed once the run has finally ended.
    """
    cases = "".join(
        f"{shlex.quote(name)}) set -- {shlex.quote(node['directory'])} {shlex.quote(node['address'])};;\n"
        for node, name in zip(nodes, names)
    )
    choice = (
        f'case "$SLURMD_NODENAME" in\n{cases}*) echo "$SLURMD_NODENAME is not a node of this run" >&2; exit 1;;\nesac\n'
    )
    task = f'{choice}exec python3 -I -S "$1/supervisor.py" --guard "$1" {shlex.quote(run_id)} "$2"'
    step = [
        "srun",
        f"--nodes={len(names)}",
        f"--ntasks={len(names)}",
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        "--mpi=none",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--wait=0",  # a supervisor that hands the run over ends before the others
    ]
    cleanup = ""
    if requeue != NO_REQUEUE:  # a job that is being requeued or cancelled has received SIGTERM
        command = ["timeout", str(REQUEUE_CLEANUP_TIMEOUT), *step, "/bin/sh", "-c", f'{choice}rm -rf -- "$1/{KEPT}"']
        cleanup = f'[ -n "$ended" ] || {" ".join(map(shlex.quote, command))}\n'
    if requeue == EXPEDITED_REQUEUE:
        cleanup += END_OF_EXPEDITED_JOB
    step += ["/bin/sh", "-c", task]
    directories = "".join(
        f"{shlex.quote(name)}) directory={shlex.quote(node['directory'])};;\n" for node, name in zip(nodes, names)
    )
    ends = "".join(f"trap 'end_step {code}' {name}\n" for code, name in END_SIGNALS.items())
    return (
        "#!/bin/sh\n"
        f'case "$SLURMD_NODENAME" in\n{directories}esac\n'
        "announce() {\n"
        f'  squeue --noheader --jobs="$SLURM_JOB_ID" --format=%L > "$directory/{REQUEST}.new" 2> /dev/null\n'
        f'  mv -f "$directory/{REQUEST}.new" "$directory/{REQUEST}"\n'
        "}\n"
        "trap announce USR1\n"
        f"{END_STEP.format(seconds=LOST_NODE_JOB_TIMEOUT)}{ends}"
        "ended=\ntrap 'ended=yes' TERM\n"  # Slurm ends the tasks as well, and the supervisors record how the run ended
        f"{' '.join(map(shlex.quote, step))} &\n"
        "step=${step:-$!}\n"
        "while :; do\n"
        '  wait "$step"\n'
        "  status=$?\n"
        '  kill -0 "$step" 2> /dev/null || break\n'
        "done\n"
        # a signal may have interrupted the last wait; 127 if the step was already waited for
        'wait "$step" 2> /dev/null\n'
        "last=$?\n"
        '[ "$last" -eq 127 ] || status=$last\n'
        '[ -z "$over" ] || status=$over\n'
        f'{cleanup}exit "$status"\n'
    )
