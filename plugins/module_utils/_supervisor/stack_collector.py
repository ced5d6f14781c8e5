# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect the Python stacks of a node's ranks, which programs/stack_hook.py provides."""

from __future__ import annotations

import os
import re
import signal
import time

from ansible_collections.muster.training.plugins.module_utils._facts.storage import REMOTE, parse_mountinfo
from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    list_directory,
    open_regular,
    read_bytes,
    remove_entry,
    write_atomically,
)
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import FILE as SAMPLES
from ansible_collections.muster.training.plugins.module_utils._run.gpu_waits import waiting_gpus
from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import (
    GPU_WAITS,
    MAX_WORKERS,
    WAITING,
    merge_groups,
)
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    descendants,
    handled_signals,
    local_rank_of,
    process_status,
    process_table,
    read_stat,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import log_directory
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import marked_processes
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    make_private_directory,
    read_tail,
)
from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import (
    CODE,
    NO_STACK,
    STOPPED,
    classify,
    format_frame,
    main_stack,
    parse_dump,
    parse_traceback,
    user_position,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import WORKER_STACKS_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.flight_recorder import read_operations
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import rank_profile, stack_hook
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import (
    HOOKS,
    PROFILE_PROGRAM,
    PROFILE_SIGNAL,
    PYTHON_STACK_SIGNAL,
    STACK_SIGNAL,
    STACKS,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_signals import (
    StackFiles,
    request_stacks,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan, RankReport
    from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import Frame

FILE = re.compile(r"(?:rank-(?P<rank>[0-9]{1,5})|process)-(?P<pid>[0-9]{1,7})\.txt")
MAX_FILES = 10_000
MAX_DUMP = 262_144  # bytes
MAX_LINKS = 40  # number of symbolic links in a path, as in the kernel
MAX_SOURCE = 4_194_304  # bytes of a source file that are read in order to show a line
STOPPED_STATES = "Tt"
SET_LOCAL_RANK = "MUSTER_LOCAL_RANK=0; export MUSTER_LOCAL_RANK; "  # the launcher starts the rank without LOCAL_RANK
EXTEND_PYTHONPATH = 'PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}"; export PYTHONPATH; exec "$@"'


def write_hook(directory: str) -> None:
    """Write the hook to a run directory. Raise OSError."""
    remove_entry(os.path.join(directory, STACKS))  # the stacks from an earlier attempt
    make_private_directory(os.path.join(directory, STACKS))
    make_private_directory(os.path.join(directory, HOOKS))
    make_private_directory(os.path.join(directory, HOOKS, "__pycache__"))  # Python would let other users read it
    for name, path in (("sitecustomize.py", stack_hook.__file__), (PROFILE_PROGRAM, rank_profile.__file__)):
        with open(path, encoding="utf-8") as stream:
            source = stream.read()
        if path == stack_hook.__file__:
            source = source.replace("from __future__ import annotations\n", "")  # unknown before Python 3.7
        write_atomically(os.path.join(directory, HOOKS, name), source)


def hook_environment(plan: Mapping[str, Any], directory: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make a launcher's Python processes run the hook; bin/muster-rank sets its own."""
    if plan["rank_logs"] == "ranks" or plan.get("wrap"):
        return {}
    path = environment.get("PYTHONPATH", "")
    variables = {"PYTHONPATH": os.path.join(directory, HOOKS) + (os.pathsep + path if path else "")}
    if plan["rank_logs"] == "launcher" and plan["node"]["slots"] == 1:
        variables["MUSTER_LOCAL_RANK"] = "0"  # the launcher starts the rank without LOCAL_RANK
    return variables


def hook_prefix(plan: Mapping[str, Any], directory: str) -> list[str]:
    """Return a prefix for a command in a container that preserves the image's own PYTHONPATH; [] if not needed."""
    if plan["rank_logs"] == "ranks" or not plan.get("wrap") or not plan.get("stacks"):
        return []
    single = plan["rank_logs"] == "launcher" and plan["node"]["slots"] == 1
    return ["/bin/sh", "-c", (SET_LOCAL_RANK if single else "") + EXTEND_PYTHONPATH, os.path.join(directory, HOOKS)]


class Process:
    """A process of the job that provides its Python stacks, or a rank that does not."""

    def __init__(self, pid: int, parent: int, state: str) -> None:
        self.pid = pid
        self.parent = parent
        self.state = state
        self.inner = pid  # the process's pid inside its own container
        self.has_handler = False
        self.has_profile_handler = False
        self.path = ""  # path of its stack file, or "" if it shares its parent's
        self.local_rank: int | None = None  # its local rank if it is a rank

    def read_status(self) -> None:
        """Ask the kernel whether the process handles both signals, which would otherwise kill it."""
        status = process_status(self.pid)
        signals = handled_signals(status)
        self.has_handler = {STACK_SIGNAL, PYTHON_STACK_SIGNAL} <= signals
        self.has_profile_handler = PROFILE_SIGNAL in signals
        if b"NSpid" in status:
            self.inner = int(status[b"NSpid"].split()[-1])


def cpu_ticks(pid: int) -> int | None:
    """Return the CPU time of a process's main thread in clock ticks, or None if it has ended."""
    fields = read_stat(f"/proc/{pid}/task/{pid}/stat")[11:13]
    return sum(map(int, fields)) if fields else None


def read_from(path: str, offset: int) -> str:
    """Return the text added to a file since an offset, limited to its last MAX_DUMP bytes."""
    try:
        with open(path, "rb", opener=open_regular) as stream:
            stream.seek(max(offset, os.fstat(stream.fileno()).st_size - MAX_DUMP))
            return stream.read(MAX_DUMP).decode("utf-8", "replace")
    except OSError:
        return ""


class StackCollector:
    """Collects the stacks of a node's ranks; a collection takes milliseconds, and never longer than its time limit."""

    def __init__(self, directory: str, plan: Plan) -> None:
        self.directory = directory
        self.plan = plan
        self.launcher_log = os.path.join(log_directory(plan, directory), "launcher.log")  # may be shared by all ranks
        self.ticks: dict[int, int] = {}  # CPU time at the previous collection, by pid
        self.consumed: dict[str, int] = {}  # bytes of each file that have been read
        self.last: list[Data] = []  # the groups of the last collection
        self.since = time.time()  # flight recorder dumps since this time belong to this attempt

    # - processes

    def files(self) -> dict[int, tuple[str, int | None]]:
        """Return each process's file path, and its local rank if it is a rank, keyed by pid in its container."""
        directory = os.path.join(self.directory, STACKS)
        files: dict[int, tuple[str, int | None]] = {}
        for name in list_directory(directory, MAX_FILES):
            match = FILE.fullmatch(name)
            if match is not None:
                files[int(match["pid"])] = (
                    os.path.join(directory, name),
                    int(match["rank"]) if match["rank"] else None,
                )
        return files

    def processes(self) -> dict[int, Process]:
        """Return the job's processes on this node, by pid."""
        table = process_table()
        pids = marked_processes(self.directory) if self.plan.get("wrap") else descendants(os.getpid())
        processes = {pid: Process(pid, *table[pid]) for pid in pids if pid in table and table[pid][1] not in "ZX"}
        files = self.files()
        for process in processes.values():
            process.read_status()
            if process.inner in files and process.has_handler:
                process.path, process.local_rank = files[process.inner]
        self.number_ranks(processes)
        return processes

    def number_ranks(self, processes: dict[int, Process]) -> None:
        """Determine the local ranks of processes that did not know theirs at startup, under the launcher env."""
        slots = self.plan["node"]["slots"]
        known = {process.local_rank for process in processes.values()}
        if self.plan["rank_logs"] != "launcher" or len(known - {None}) == slots:
            return
        # a container engine's client, which is written in Go, handles all signals, but is not a Python process
        offering = [process for process in processes.values() if process.path]
        tops = [process for process in offering if not any(is_below(process, other, processes) for other in offering)]
        if len(tops) != 1:
            return
        children = sorted(
            process.pid for process in processes.values() if process.parent == tops[0].pid and process.has_handler
        )
        # torch.multiprocessing.spawn starts them in order
        if slots > 1 and len(children) == slots and not known - {None}:
            for local_rank, pid in enumerate(children):
                processes[pid].local_rank = local_rank
        elif 0 not in known:  # Lightning: the script itself is local rank 0
            tops[0].local_rank = 0

    def rank_processes(self) -> dict[int, Process]:
        """Return those processes of this node's ranks that run the hook, by local rank."""
        processes = self.processes().values()
        return {process.local_rank: process for process in processes if process.local_rank is not None}

    # - stacks

    def collect(self, timeout: float) -> list[Data]:
        """Return groups of ranks that are doing the same thing. timeout: seconds to wait for the stacks."""
        processes = self.processes()
        ranks = {process.local_rank: process for process in processes.values() if process.local_rank is not None}
        answering = [process for process in ranks.values() if process.state not in STOPPED_STATES]
        stacks = self.read_stacks(answering, timeout)
        deadline = time.monotonic() + min(timeout, WORKER_STACKS_TIMEOUT)
        gpus = waiting_gpus(read_from(os.path.join(self.directory, SAMPLES), 0))
        groups = []
        for local_rank, process in sorted(ranks.items()):
            frames = stacks.get(process.pid, [])
            group = self.describe(process, frames)
            if group["kind"] in WAITING and local_rank < len(gpus) and gpus[local_rank]:
                group["gpu"] = GPU_WAITS
            if group["kind"] == CODE:
                group["workers"] = self.read_workers(process, processes, deadline)
            groups.append({**group, "ranks": [self.plan["node"]["first_rank"] + local_rank]})
        self.last = merge_groups([*groups, *self.without_stack(processes, set(ranks))])
        return self.last

    def describe(self, process: Process, frames: list[Frame]) -> Data:
        """Return a rank's description without its number."""
        ticks, before = cpu_ticks(process.pid), self.ticks.get(process.pid)
        cpu = "" if ticks is None or before is None else "moving" if ticks > before else "still"
        self.ticks[process.pid] = ticks or 0
        group = empty_group(process.state, cpu)
        if process.state in STOPPED_STATES:
            group["kind"] = STOPPED
        elif frames:
            user = frames[user_position(frames)]
            group.update(classify(frames, self.source_line(user.file, user.line)))
        return group

    def read_stacks(self, processes: list[Process], timeout: float) -> dict[int, list[Frame]]:
        """Return the stack of each process's main thread, by pid."""
        files = StackFiles({process.pid: process.path for process in processes})
        late = request_stacks(files, timeout)  # processes that are slow to write: final_groups() will read their stacks
        for process in processes:
            self.consumed[process.path] = (files.before if process.pid in late else files.sizes)[process.pid]
        before = files.before
        return {
            process.pid: main_stack(parse_dump(read_from(process.path, before[process.pid]))) for process in processes
        }

    def read_workers(self, rank: Process, processes: dict[int, Process], deadline: float) -> list[str]:
        """Return the code positions of a rank's workers, read one by one because all write to their parent's file."""
        texts: list[str] = []
        for process in list(processes.values()):
            if not process.has_handler or process is rank or not is_below(process, rank, processes):
                continue
            if len(texts) >= MAX_WORKERS or time.monotonic() > deadline:
                break
            process.read_status()  # again: a child that has since executed another program has no handler
            if not process.has_handler:
                continue
            if not process.path:
                process.path = rank.path
            frames = self.read_stacks([process], max(0.0, deadline - time.monotonic())).get(process.pid, [])
            if frames:
                texts.append(describe_worker(frames))
        return list(dict.fromkeys(texts))

    def without_stack(self, processes: dict[int, Process], described: set[int | None]) -> list[Data]:
        """Return running ranks that cannot provide a stack: another language, or Python with -I, -E or -S."""
        groups: dict[int, Data] = {}
        for process in processes.values():
            local_rank = local_rank_of(process.pid, self.directory)
            if local_rank is None and self.plan["rank_logs"] == "launcher" and self.plan["node"]["slots"] == 1:
                local_rank = 0
            if local_rank in described or local_rank is None or local_rank >= self.plan["node"]["slots"]:
                continue
            state = "T" if process.state in STOPPED_STATES else process.state
            groups[local_rank] = {
                **empty_group(state, ""),
                "kind": STOPPED if state == "T" else NO_STACK,
                "ranks": [self.plan["node"]["first_rank"] + local_rank],
            }
        return [group for _local_rank, group in sorted(groups.items())]

    def final_groups(self, reports: list[RankReport]) -> list[Data]:
        """Return the ranks' last activity, from a traceback, the last collection, or a stack dumped on SIGTERM.

        Such a stack remains if another process, such as torchrun, has ended the rank; it may already have been read by
        a collection that no longer saw the process. reports: those of the ranks.
        """
        stacks = {}
        killed = {report["rank"] for report in reports if report["exit_code"] in (-signal.SIGTERM, -signal.SIGKILL)}
        for path, local_rank in self.files().values():
            if local_rank is not None and local_rank < self.plan["node"]["slots"]:
                rank = self.plan["node"]["first_rank"] + local_rank
                frames = main_stack(parse_dump(read_from(path, self.consumed.get(path, 0))))
                if not frames and rank in killed:
                    frames = main_stack(parse_dump(read_from(path, 0)))
                stacks[rank] = frames
        collected = {rank for group in self.last for rank in group["ranks"] if group["kind"] != NO_STACK}
        collected |= {rank for group in self.last for rank in group["ranks"] if not stacks.get(rank)}
        for report in reports:
            if report["error"] and report["log"] != self.launcher_log or len(reports) == 1:
                frames = parse_traceback(read_tail(report["log"]))
                if frames:
                    stacks[report["rank"]] = frames
                    collected.discard(report["rank"])
        groups = [{**group, "ranks": [rank for rank in group["ranks"] if rank in collected]} for group in self.last]
        groups = [group for group in groups if group["ranks"]]
        for rank, frames in stacks.items():
            if frames and rank not in collected:
                user = frames[user_position(frames)]
                description = classify(frames, self.source_line(user.file, user.line))
                groups.append({**empty_group("", ""), **description, "ranks": [rank]})
        return merge_groups(groups)

    def final_operations(self) -> list[Data]:
        """Return the ranks' collectives, from this attempt's torch flight recorder dumps."""
        return read_operations(self.directory, self.plan, self.since)

    def source_line(self, path: str, number: int) -> str:
        """Return a line of the user's code, or "" if it cannot be read."""
        path = os.path.join(self.plan["working_directory"], path)
        if not is_local(path):
            return ""
        try:
            lines = read_bytes(path, MAX_SOURCE).decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def is_local(path: str) -> bool:
    """Return whether a file is on a local disk, because reading it from an unresponsive server would block."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        mounts = parse_mountinfo(stream.read())
    remote = {point for point, mount in mounts.items() if REMOTE.match(mount["type"])}
    links, pending, resolved = 0, path.split("/"), "/"
    while pending:
        name = pending.pop(0)
        entry = os.path.normpath(os.path.join(resolved, name))
        if entry in remote:
            return False
        try:
            target = os.readlink(entry) if os.path.islink(entry) else ""
        except OSError:
            return False
        if target and links > MAX_LINKS:
            return False
        links += bool(target)
        pending = target.split("/") + pending if target else pending
        resolved = "/" if target.startswith("/") else resolved if target else entry
    return True


def empty_group(state: str, cpu: str) -> Data:
    """Return the description of a rank that has no stack."""
    empty = {"call": "", "function": "", "file": "", "line": 0, "text": "", "frames": [], "workers": []}
    return {"kind": NO_STACK, "state": state, "cpu": cpu, "gpu": "", **empty}


def describe_worker(frames: list[Frame]) -> str:
    """Return where a worker is in its code: the innermost frame, and the innermost frame of the user's code."""
    user, innermost = frames[user_position(frames)], frames[0]
    return format_frame(user) if user == innermost else f"{format_frame(innermost)} called by {format_frame(user)}"


def is_below(process: Process, ancestor: Process, processes: dict[int, Process]) -> bool:
    """Return whether a process is a descendant of another."""
    parent = processes.get(process.parent)
    while parent is not None:
        if parent is ancestor:
            return True
        parent = processes.get(parent.parent)
    return False
