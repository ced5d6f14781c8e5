# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supervisor: keeps one node's part of a run alive, or ends it. Private to this collection.

One process a node, started as ``python3 -I -S supervisor.py RUN_DIRECTORY``, standard library only. It reads
``plan.json`` in the run directory, runs the launcher's command and holds the lifeline: one TCP connection to rank 0's
supervisor, over ``node_address``, opened with the run's token, a heartbeat every ``heartbeat`` seconds, which the node
answers. A node that fails, or falls silent for ``silence`` seconds, ends the run everywhere; an elastic run goes on
while ``min_nnodes`` nodes and rank 0 are left.

The supervisor signals its own descendants only. It is a child subreaper: a process that detaches itself is handed to it
by the kernel and stays in its reach. On systemd the unit's cgroup is the second net, should the supervisor itself be
killed; elsewhere a guard process of ours is (``--guard``). Both also end a supervisor that hangs, such as on a file
system that does not answer, with all that it has started: it shows that it lives, and they wait for that.

The lifeline speaks JSON, one object a line, at most 64 KiB. Behind the greeting of the first three lines each line has
"MAC " before it: the HMAC, under a key made of the token and both nonces, of who says it, the line's number and the
line. So nobody on the way can add, exchange, reorder or repeat one.
  server: {"nonce"}  peer: {"node_rank", "nonce", "mac"}  server: {"mac"}
  peer:   {"type": "beat"} | {"type": "ready", "launcher_log"} | {"type": "running"}
  peer:   {"type": "report", "report"} | {"type": "stop", "reason"}
  peer:   {"type": "failing", "text"} ahead of the report, where it takes time to end what is left on this node
  peer:   {"type": "mount", "text"} where a mount under the run has died or come back
  peer:   {"type": "logs", "text"} where its logs were shortened
  peer:   {"type": "gpus", "text"} where nvidia-smi no longer finds all GPUs well, or does so again
  server: {"type": "beat"} | {"type": "go"} | {"type": "stop", "reason"} | {"type": "end", "state", "message"}
  server: {"type": "start", "command"} where rank 0's launcher starts what runs on the other nodes, as mpirun does
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import hmac
import json
import math
import os
import re
import select
import selectors
import signal
import socket
import stat
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from collections.abc import Iterable, Iterator
    from typing import Any, Dict

    Data = Dict[str, Any]

# This file runs alone on a node: there is no AnsibleModule whose run_command could be called instead of subprocess.
# pylint: disable=ansible-bad-function

MAX_LINE = 65536
MAX_STRANGERS = 64  # connections that have not shown the token yet
STRANGER_PATIENCE = 5.0  # seconds a stranger has to show the token
MAX_BACKLOG = 262144  # bytes a peer may leave unread before it is dropped
RECONNECT_PATIENCE = 2.0  # seconds a broken connection may take to come back before its node counts as lost
KILL_PATIENCE = 5.0  # seconds after SIGKILL until a process counts as stuck
TAIL_BYTES = 65536  # what is read of a log's end to find an error
TOLD_BYTES = 1048576  # what is read of a file in which a rank tells how it ended, or what ended it
BASE_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ")
HEAD_START = 0.1  # seconds by which rank 0's launcher starts before the others; of 0.05, 0.1 and 0.2 the best
RESERVE = 262144  # bytes of disk that are kept for the last words of a run that has filled it
LOOK_INTERVAL = 10.0  # seconds between two looks at a mount
LOOK_PATIENCE = 10.0  # seconds a mount may take to answer
REMOVE_PATIENCE = 30.0  # seconds that a guard waits for the container engine to remove a container
BEAT_ALONE = 1.5  # heartbeats after which a node beats without having heard rank 0's
HANG_MARGIN = 5.0  # seconds beyond `silence` for which a supervisor may show no life on its own node, as in _run
PULSE_INTERVAL = 1.0  # seconds between two signs of life
LOG_INTERVAL = 10.0  # seconds between two looks at how much the logs take
LOG_HEAD = 1048576  # bytes of a log's beginning that stay when it is shortened
PUNCH_HOLE = 3  # linux/falloc.h: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
SECRETS = ("token", "environment.json")  # files that are not needed after the end of a run, as _run has them
IN_MEMORY = "/run/muster"  # where secrets lie that may not outlive a loss of power, as _run has it
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # the latter where a shell or a container engine tells of it
LAST_WORD_PATIENCE = 1.0  # seconds that a launcher has to end by itself once its ranks have ended or are being ended
LAST_LOOK_PATIENCE = 2.0  # seconds that the report of a node that failed waits for a last look
GUARD_PIPE = "MUSTER_GUARD_PIPE"  # the descriptor of it, in a guarded supervisor's environment
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

# Exit code: the error number of looking into a directory, 0 where it answers.
LOOK = """
import os, sys
try:
    with os.scandir(sys.argv[1]) as entries:
        next(entries, None)
except OSError as error:
    os._exit(error.errno or 5)
"""


# --- files -----------------------------------------------------------------------------------------------------------


def write_json(path: str, value: Any, mode: int = 0o600) -> None:
    """Write a JSON file so that a reader sees the old or the new one, never half of it."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, mode)
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(value, stream)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # half of it would keep the room that the next needs
        raise


def private(path: str, flags: int) -> int:
    """Open a file, for its user alone where it is new: an opener for open().

    Raise OSError where there is a pipe, which could wait for ever for a reader.
    """
    return os.open(path, flags | os.O_NONBLOCK, 0o600)


def write_to(log: str) -> None:
    """Have this process and its children write to a log, opened with the rights of the run's user."""
    descriptor = private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def read_json(path: str) -> Any:
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def forget_secrets(directory: str) -> None:
    """Remove the secrets of a run: the files in its directory, or what its links lead to in memory and the links."""
    for name in SECRETS:
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            kept = os.readlink(path)
            if os.path.dirname(os.path.dirname(kept)) == os.path.join(IN_MEMORY, str(os.geteuid())):
                os.unlink(kept)
                os.rmdir(os.path.dirname(kept))
        with contextlib.suppress(OSError):
            os.unlink(path)


def regular(path: str, flags: int) -> int:
    """Open a file that the job may have exchanged for anything: an opener for open().

    Raise OSError where it is no regular file; others may wait for ever, such as a pipe, or have no end.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return descriptor


def read_told(path: str) -> Data:
    """Return the JSON object that a job has left in a file; empty where there is none, or anything else."""
    try:
        with open(path, "rb", opener=regular) as stream:
            told = json.loads(stream.read(TOLD_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def read_tail(path: str, size: int = TAIL_BYTES) -> str:
    """Return the last size bytes of a file as text, "" where there is none."""
    try:
        with open(path, "rb", opener=regular) as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - size))
            return stream.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def disk_use(path: str) -> int:
    """Return how many bytes of disk a log takes; 0 where it is no file of its own."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return found.st_blocks * 512 if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else 0


def remove_middle(path: str, head: int, tail: int) -> None:
    """Give back the disk of a file between its first and last bytes, which stay where they are.

    Who writes it goes on as before. Raise OSError where the file system cannot do so.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        length = os.fstat(descriptor).st_size - head - tail
        if length > 0:
            libc = ctypes.CDLL(None, use_errno=True)
            offsets = (ctypes.c_int64(head), ctypes.c_int64(length))
            if libc.fallocate(ctypes.c_int(descriptor), ctypes.c_int(PUNCH_HOLE), *offsets) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    finally:
        os.close(descriptor)


def bound_logs(logs: list[str], limit: int) -> list[str]:
    """Shorten the longest of these logs where together they take more than so many bytes of disk; return which.

    Half of the limit is left to what comes. Raise OSError where the file system cannot do so.
    """
    use = {log: disk_use(log) for log in logs}
    if sum(use.values()) <= limit:
        return []
    share = limit // (2 * len(logs))
    longer = [log for log in logs if use[log] > share]
    for log in longer:
        head = min(LOG_HEAD, share // 4)
        remove_middle(log, head, share - head)
    return longer


def make_private(path: str) -> None:
    """Make a directory that is this user's alone; one that is there must be so. Raise OSError where it is not."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(errno.EEXIST, "it is there and not a directory of this user alone: remove it", path)


def remove_tree(path: str) -> None:
    import shutil  # a start would wait for it, and nobody waits at the end

    shutil.rmtree(path, ignore_errors=True)


# --- processes -------------------------------------------------------------------------------------------------------


def become_subreaper() -> None:
    """Have the kernel hand orphaned descendants to this process (Linux >= 3.4)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def process_table() -> dict[int, tuple[int, str]]:
    """Return {pid: (parent pid, state letter)} of every process that can be seen."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    fields = stream.read().rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            table[int(name)] = (int(fields[1]), fields[0].decode())
    return table


def descendants(root: int) -> list[int]:
    """Return the pids below root that still run (zombies left out)."""
    table = process_table()
    children: dict[int, list[int]] = {}
    for pid, (parent, _state) in table.items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], list(children.get(root, ()))
    while queue:
        pid = queue.pop()
        queue.extend(children.get(pid, ()))
        if table[pid][1] not in "ZX":
            found.append(pid)
    return found


def is_rank(pid: int, directory: str) -> bool:
    """Return whether a process is a rank of the run in this directory, or one that a rank has started.

    By the environment that it was given: in a container neither its parent nor its number tells.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            words = stream.read().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return False
    mine = b"MUSTER_RUN_DIRECTORY=" + os.fsencode(directory) in words
    return mine and any(word.startswith(b"LOCAL_RANK=") for word in words)


def run_quietly(command: list[str], log: str) -> int:
    """Start a command of ours beside us, its words in a log; return its pid, 0 where it cannot be started."""
    with contextlib.suppress(OSError), open(log, "ab", opener=private) as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        process.returncode = 0  # subprocess would collect what it takes for alive, and reap() would never see its end
        return process.pid
    return 0


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        # gone, or root's: the unit's cgroup takes those
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> dict[int, int]:
    """Collect ended children that were handed to us; return {pid: wait status}."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def exit_code(status: int) -> int:
    """Return a wait status as Python gives it: the exit code, or minus the signal's number."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def mount_points() -> set[str]:
    """Return where something is mounted; reading this never waits for a mount."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        fields = [line.split(" ")[4] for line in stream]
    return {re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field) for field in fields}


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed for memory since boot, None where it is not told."""
    try:
        with open("/proc/vmstat", encoding="ascii") as stream:
            for line in stream:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


# --- what the ranks left behind --------------------------------------------------------------------------------------

TRACEBACK = "Traceback (most recent call last):"
# torch writes it before each line of a traceback
RANK_PREFIX = re.compile(r"^\[(?:rank|default)\d+\]:\s?", re.MULTILINE)
TORCHRUN_FAILURE = re.compile(
    r"rank\s*: (?P<rank>\d+) \(local_rank: (?P<local_rank>\d+)\)\s*\n"
    r"\s*exitcode\s*: (?P<exit_code>-?\d+) \(pid: (?P<pid>\d+)\)"
)


# A line of gpus.csv, and what stands there for the values of a GPU that is gone.
SAMPLE = re.compile(r"[0-9/]+ [0-9:.]+, (?P<index>[0-9]+), (?P<values>.*)")
GPU_FAILED = re.compile(r".*\[(GPU is lost|GPU requires reset)\]|[^0-9]*\[(Unknown Error)\][^0-9]*\Z")

ATTEMPT = re.compile(r"attempt_([0-9]{1,9})")
# What torchrun says (since torch 1.9) when a rank has failed and it ends the others, to which it gives 30 s.
CLOSING = re.compile(r"Sending process (\d+) closing signal")
# What a container engine says that is asked to remove what is gone, or what somebody is removing already.
GONE_ALREADY = re.compile(r"no such container|no container with|removal of container .* is already in progress", re.I)

# What the C++ of a rank says when Python, before 3.14, ends one of its threads by force.
ENDED_BY_FORCE = "terminate called without an active exception"
ABORTED_AT_ITS_END = (
    f"was aborted while its interpreter ended ({ENDED_BY_FORCE}): a thread of gloo was still there. To do: in the "
    "script import torch.distributed.nn before init_process_group, and call destroy_process_group at the end"
)


def first_error(text: str) -> str:
    """Return the exception line ("ValueError: boom") that ended a program, from the end of what it wrote, or ""."""
    lines = RANK_PREFIX.sub("", text).splitlines()
    starts = [index for index, line in enumerate(lines) if line.strip() == TRACEBACK]
    for start in reversed(starts):
        for line in lines[start + 1 :]:
            if line and not line[0].isspace():
                return line.strip()[:2000]
    return ""


def shared_errors(text: str, ranks: list[int]) -> dict[int, str] | None:
    """Return {rank: the exception that ended it, or ""} of ranks that write into one log, None where it does not tell.

    torch writes "[rank3]: " before each line of an exception that nobody has caught.
    """
    errors = {}
    for rank in ranks:
        mine = re.findall(rf"^\[(?:rank|default){rank}\]:.*$", text, re.MULTILINE)
        errors[rank] = first_error("\n".join(mine))
    return errors if any(errors.values()) else None


def last_words(text: str) -> str:
    """Return the exception that ended a program, or else the last line that it wrote, or ""."""
    return first_error(text) or next((line.strip()[:2000] for line in reversed(text.splitlines()) if line.strip()), "")


def log_of_failure(report: Data) -> str:
    """Return the log of the rank that failed first, or the launcher's where none has; "" where nothing has failed."""
    well = (0, None, -signal.SIGTERM)
    ranks = [rank for rank in report["ranks"] if not rank.get("closed")]
    failed = [rank for rank in ranks if rank["exit_code"] not in well or rank["error"]]
    failed.sort(key=lambda rank: not rank.get("first"))
    if failed:
        return str(failed[0]["log"])
    return "" if report["exit_code"] in well or report["ended_by_us"] else str(report["launcher_log"])


def last_lines(path: str) -> str:
    """Return the last lines of a log as a terminal leaves them: at most 20, and at most 4 KiB."""
    lines = read_tail(path).rstrip().split("\n")[-20:]
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)[-4096:]


def launcher_error(code: int | None, text: str) -> str:
    """Return why a launcher ended, as far as its output tells: after a signal no last line is the reason.

    Who was killed has survived whatever it may have logged; but a shell says so last.
    """
    if not code:
        return ""
    if code in KILLED:
        last = text.rstrip().rpartition("\n")[2].strip()[:2000]
        return last if code > 0 and "killed" in last.lower() else ""
    return last_words(text) if code > 0 else first_error(text)


def read_sample(text: str, code: int, known: set[str]) -> tuple[set[str], str]:
    """Return the indices of the GPUs of one sample, and what is wrong with GPUs: "" where all are well.

    No index and no error: it tells nothing. text, code: what nvidia-smi wrote, in the columns of gpus.csv, and how it
    ended; known: the indices that an earlier sample has shown.
    """
    found, failed, words = set(), [], ""
    for line in text.splitlines():
        row = SAMPLE.match(line)
        if row is None:
            words = line.strip()[:2000] or words
            continue
        found.add(row["index"])
        gone = GPU_FAILED.match(row["values"])
        if gone:
            failed.append(f"GPU {row['index']}: {gone[1] or gone[2]}")
    if code:
        return found, words or f"nvidia-smi ended with {describe_exit(code)}"
    if not found or not text.endswith("\n"):  # nothing, or half of it, as on a full disk
        return set(), ""
    missing = sorted(known - found, key=int)
    if missing:
        failed.append(f"nvidia-smi no longer shows GPU {', '.join(missing)}{words and f' ({words})'}")
    return found, "; ".join(failed)


def torchrun_failures(text: str) -> dict[int, tuple[int, int, bool]]:
    """Return {local_rank: (rank, exit code, whether torchrun ended it)} from the table it prints when ranks failed."""
    text = re.sub(r"^[EWI]\d{4} [^\]]*\] ", "", text, flags=re.MULTILINE)
    closed = set(CLOSING.findall(text))
    return {
        int(match["local_rank"]): (int(match["rank"]), int(match["exit_code"]), match["pid"] in closed)
        for match in TORCHRUN_FAILURE.finditer(text)
    }


def torchrun_first(text: str) -> int | None:
    """Return the local rank that torchrun saw fail first, from the same table, or None."""
    match = TORCHRUN_FAILURE.search(text.rpartition("Root Cause (first observed failure):")[2])
    return int(match["local_rank"]) if match and "Root Cause" in text else None


def directories(path: str) -> list[str]:
    """Return the directories in a directory, links left out; none where it cannot be looked into."""
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def attempt_directories(ranks_directory: str, local_rank: int) -> list[str]:
    """Return the directories of a local rank's attempts below torchrun's --log-dir, the newest last.

    They are RUN_ID_RANDOM/attempt_N/LOCAL_RANK; whatever else a job has left there is left out.
    """
    found = []
    for attempt in [
        *directories(ranks_directory),
        *(two for one in directories(ranks_directory) for two in directories(one)),
    ]:
        number = ATTEMPT.fullmatch(os.path.basename(attempt))
        logs = os.path.join(attempt, str(local_rank))
        if number and os.path.isdir(logs):
            found.append((int(number[1]), logs))
    return [path for _attempt, path in sorted(found)]


def attempt_directory(ranks_directory: str, local_rank: int) -> str | None:
    """Return the directory of a local rank's newest attempt, or None."""
    return next(reversed(attempt_directories(ranks_directory, local_rank)), None)


def earlier_logs(plan: Data, directory: str, local_rank: int) -> list[str]:
    """Return the logs of a local rank's attempts before its newest, which torchrun has started anew."""
    if plan["rank_logs"] != "torchrun":
        return []
    attempts = attempt_directories(os.path.join(directory, "ranks"), local_rank)[:-1]
    return [os.path.join(path, name) for path in attempts for name in ("stdout.log", "stderr.log")]


def rank_logs(plan: Data, directory: str, local_rank: int) -> tuple[str, str]:
    """Return the (stdout, stderr) paths of a local rank; both are the launcher's log where ranks have none."""
    if plan["rank_logs"] == "torchrun":
        attempt = attempt_directory(os.path.join(directory, "ranks"), local_rank)
        if attempt:
            return os.path.join(attempt, "stdout.log"), os.path.join(attempt, "stderr.log")
    if plan["rank_logs"] == "ranks":  # bin/muster-rank writes them
        logs = os.path.join(directory, "ranks", str(local_rank))
        if os.path.isdir(logs):
            return os.path.join(logs, "stdout.log"), os.path.join(logs, "stderr.log")
    log = os.path.join(directory, "launcher.log")
    return log, log


def all_logs(plan: Data, directory: str) -> list[str]:
    """Return the paths of all logs that the job of a node may have."""
    logs = [os.path.join(directory, "launcher.log")]
    for local_rank in range(plan["node"]["slots"]):
        logs += [*earlier_logs(plan, directory, local_rank), *rank_logs(plan, directory, local_rank)]
    return sorted({log for log in logs if disk_use(log)})


def recorded_error(path: str) -> str:
    """Return the message of an error file as torch's @record writes it, or ""."""
    message = read_told(path).get("message", "")
    if isinstance(message, dict):
        message = message.get("message", "")
    return str(message)[:2000]


def is_exit_code(code: object) -> bool:
    """Whether it is an exit code as Popen gives it."""
    return isinstance(code, int) and not isinstance(code, bool) and -128 < code < 256


def rank_end(directory: str, local_rank: int) -> tuple[int | None, float]:
    """Return how a rank that bin/muster-rank ran has ended, and when; None where it did not tell.

    By this machine's monotonic clock, which no time server sets; infinity for a rank that has not ended.
    """
    told = read_told(os.path.join(directory, "ranks", str(local_rank), "exit.json"))
    code, ended = told.get("exit_code"), told.get("moment")
    if not is_exit_code(code) or not isinstance(ended, float) or not math.isfinite(ended):
        return None, math.inf
    return code, ended


def first_to_fail(ends: list[tuple[int | None, float]], until: float) -> int | None:
    """Return which local rank was the first to fail, None where none did; ends: each one's code and when it ended.

    until: when this node's processes were told to end. One that was ended by SIGTERM before was so by its launcher,
    which will say why.
    """
    failed = [
        (ended, local_rank)
        for local_rank, (code, ended) in enumerate(ends)
        if code not in (None, 0, -signal.SIGTERM) and ended <= until
    ]
    return min(failed)[1] if failed else None


def rank_reports(
    plan: Data, directory: str, launcher_code: int | None, told_to_end: bool = False, ending: float = math.inf
) -> list[Data]:
    """Return one dict a rank of this node: rank, local_rank, exit_code (None: not known), error, log.

    And closed (true) where torchrun has ended it, since another one had failed, first (true) where it was the first of
    this node's that failed, as far as that is known, and ended_by_us (true) where we have told it to end.
    told_to_end: whether we have told the launcher; ending: since when we have told the ranks, by the monotonic clock.
    """
    node = plan["node"]
    failures, first = {}, None
    if launcher_code != 0 and plan["rank_logs"] == "torchrun":
        said = read_tail(os.path.join(directory, "launcher.log"))
        failures, first = torchrun_failures(said), torchrun_first(said)
    own = None  # errors by rank, where several ranks write into one log
    if plan["rank_logs"] == "launcher" and node["slots"] > 1 and launcher_code:
        ranks = list(range(node["first_rank"], node["first_rank"] + node["slots"]))
        own = shared_errors(read_tail(os.path.join(directory, "launcher.log")), ranks)
    ends = []
    if plan["rank_logs"] == "ranks":
        ends = [rank_end(directory, local_rank) for local_rank in range(node["slots"])]
        first = first_to_fail(ends, ending)
    reports = []
    for local_rank in range(node["slots"]):
        rank, code, closed = failures.get(local_rank, (node["first_rank"] + local_rank, None, False))
        by_us = False  # torchrun tells only of those that ended before it was told to end itself
        if ends:
            code, ended = ends[local_rank]
            by_us = ended > ending
        elif launcher_code == 0:
            code = 0
        elif plan["rank_logs"] != "torchrun":
            code, by_us = launcher_code, told_to_end
        _stdout, stderr = rank_logs(plan, directory, local_rank)
        error = ""
        if own is not None:
            error = own[rank]
            code = code if error else None  # the launcher's is that of a rank that has failed
        elif code not in (0, *KILLED):  # who was killed has survived what it may have logged
            recorded = recorded_error(os.path.join(os.path.dirname(stderr), "error.json"))
            text = read_tail(stderr)
            if code is None and not recorded:  # it may have survived what has no mark of torch's
                recorded = (shared_errors(text, [rank]) or {}).get(rank, "")
            error = recorded or (first_error(text) if code is not None else "")
            if not error and code == -signal.SIGABRT and ENDED_BY_FORCE in text:
                error = ABORTED_AT_ITS_END
            said = last_words(text)
            if not error and said and code is not None and code > 0 and not by_us:
                # argparse, sys.exit("..."), a missing file
                error = f"ended with exit code {code}, its last words: {said}"
        told = {"rank": rank, "local_rank": local_rank, "exit_code": code, "error": error, "log": stderr}
        if closed:
            told["closed"] = True
        if local_rank == first:
            told["first"] = True
        if by_us:
            told["ended_by_us"] = True
        reports.append(told)
    return reports


# --- the lifeline ----------------------------------------------------------------------------------------------------


def proof(token: str, side: str, run_id: str, node_rank: int, server_nonce: str, peer_nonce: str) -> str:
    """Return the hex HMAC-SHA256 by which one side shows that it holds the run's token."""
    text = "|".join((side, run_id, str(node_rank), server_nonce, peer_nonce))
    # a stranger's nonce may hold half a surrogate pair, which JSON can spell and UTF-8 cannot
    return hmac.new(token.encode(), text.encode("utf-8", "backslashreplace"), hashlib.sha256).hexdigest()


def line_mac(key: bytes, side: str, number: int, line: bytes) -> bytes:
    """Return the hex HMAC-SHA256 of one line of a lifeline; number: how many its side has said before it."""
    return hmac.digest(key, f"{side}|{number}|".encode() + line, "sha256").hex().encode()


class Wire:
    """One lifeline connection: lines in, lines out, bounded both ways.

    Until it is opened with a key the lines are a stranger's, and one is read at a time: it may be the last without one.
    """

    def __init__(self, connection: socket.socket, now: float) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.inbox = b""
        self.outbox = b""
        self.events = selectors.EVENT_READ  # what its supervisor waits for
        self.opened = now
        self.heard = now
        self.nonce = os.urandom(16).hex()
        self.node_rank: int | None = None  # set once the other side has shown the token
        self.stage = "nonce"  # of a peer's wire to rank 0: nonce | mac | open
        self.expected = ""  # the proof that rank 0 has to show
        self.lines_key = ""  # of the lines behind that
        self.key: bytes | None = None
        self.side, self.other_side = "", ""
        self.sent = self.received = 0  # lines with the key
        self.closed = False

    def open(self, node_rank: int, key: str) -> None:
        """Know the other side from now on; key: the proof that both sides make for it, and nobody else can."""
        self.node_rank, self.key = node_rank, key.encode()
        self.side, self.other_side = ("server", "peer") if node_rank else ("peer", "server")

    def send(self, message: Data) -> None:
        line = json.dumps(message).encode()
        if self.key is not None:
            line = line_mac(self.key, self.side, self.sent, line) + b" " + line
            self.sent += 1
        self.outbox += line + b"\n"
        if len(self.outbox) > MAX_BACKLOG:
            self.closed = True
        else:
            self.flush()

    def flush(self) -> None:
        while self.outbox and not self.closed:
            try:
                sent = self.connection.send(self.outbox)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.closed = True
                return
            self.outbox = self.outbox[sent:]

    def receive(self) -> list[Data]:
        """Return the messages that have arrived; anything that is not one of ours closes the connection."""
        messages = self.lines()
        while not self.closed and not (messages and self.node_rank is None):
            try:
                data = self.connection.recv(MAX_LINE)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.closed = True
                break
            if not data:
                self.closed = True
                break
            self.inbox += data
            messages += self.lines()
            if self.node_rank is None:  # a stranger is read one gulp at a time
                break
        return messages

    def lines(self) -> list[Data]:
        """Return the messages in the inbox, of a stranger the first."""
        messages: list[Data] = []
        while b"\n" in self.inbox and not self.closed and not (messages and self.node_rank is None):
            line, self.inbox = self.inbox.split(b"\n", 1)
            try:
                message = json.loads(self.proven(line).decode("utf-8"))
            except (ValueError, RecursionError):
                message = None
            if isinstance(message, dict):
                messages.append(message)
            else:
                self.closed = True
        if len(self.inbox) > MAX_LINE and b"\n" not in self.inbox[: MAX_LINE + 1]:
            self.closed = True
        return messages

    def proven(self, line: bytes) -> bytes:
        """Return what a line says. Raise ValueError where its MAC is not that of the other side's next line."""
        if self.key is None:
            return line
        mac, _blank, said = line.partition(b" ")
        if not hmac.compare_digest(mac, line_mac(self.key, self.other_side, self.received, said)):
            raise ValueError("somebody else has said it, or said it again")
        self.received += 1
        return said


# --- signs of life ---------------------------------------------------------------------------------------------------


class Pulse:
    """Shows who watches over this supervisor that it lives: systemd, by NOTIFY_SOCKET, or our guard, by a pipe."""

    def __init__(self) -> None:
        self.due = 0.0
        self.pipe = int(os.environ.pop(GUARD_PIPE, -1))
        self.address = os.environ.pop("NOTIFY_SOCKET", "")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self.address else None
        if self.pipe >= 0:  # no child of ours may hold it
            os.set_inheritable(self.pipe, False)
            os.set_blocking(self.pipe, False)
        if self.socket is not None:
            self.socket.setblocking(False)

    def beat(self, now: float) -> None:
        """Show it, where it is time to."""
        if now < self.due:
            return
        self.due = now + PULSE_INTERVAL
        with contextlib.suppress(OSError):  # who watches is busy, or gone
            if self.pipe >= 0:
                os.write(self.pipe, b".")
            if self.socket is not None:
                address = self.address
                self.socket.sendto(b"WATCHDOG=1", "\0" + address[1:] if address[0] == "@" else address)


# --- the supervisor --------------------------------------------------------------------------------------------------


class Supervisor:
    """One node's part of a run: its launcher, and its end of the lifeline."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.pulse = Pulse()
        self.plan = read_json(self.path("plan.json"))
        with open(self.path("token"), encoding="ascii") as stream:
            self.token = stream.read().strip()
        self.node_rank = self.plan["node"]["node_rank"]
        self.is_hub = self.node_rank == 0
        self.timeouts = self.plan["timeouts"]
        self.names = [peer["name"] for peer in self.plan["nodes"]]
        self.selector = selectors.DefaultSelector()
        self.listener: socket.socket | None = None
        self.wires: list[Wire] = []
        self.hub: Wire | None = None  # a peer's wire to rank 0
        self.hub_heard = time.monotonic()
        self.hub_broken: float | None = None  # since when the wire to rank 0 is down
        self.hub_retry = 0.0
        self.connect_error = ""
        self.asked: int | None = None  # the signal by which somebody asked this node to stop
        self.leaving = False  # this machine goes down, and an elastic run goes on without it
        self.asked_deadline = math.inf  # until when a peer that was asked to stop waits for rank 0's last word
        self.launcher: subprocess.Popen[bytes] | None = None
        self.launcher_code: int | None = None
        self.remover: int | None = None  # pid of what removes the container of this node, 0 where it did not start
        self.removed: int | None = None  # the exit code of that
        self.rank_failed = ""  # the rank that made this node end its part
        self.ended_by_us = False  # whether this node's part was well when it was told to end
        self.failing = ""  # why this node ends its part: told ahead of its report where that takes time
        self.closing: dict[int, float] = {}  # ranks that torchrun ends, since another one has failed: pid, since when
        self.noticed = False  # whether torchrun has noticed that a rank failed
        self.log_size = 0  # of the launcher's log when it was read for them
        self.awaited: int | None = None  # a launcher that is ending by itself, and has yet to say how its ranks ended
        self.looks: dict[str, tuple[int, float]] = {}  # mount point: pid of what looks into it, and since when
        self.looks_due = 0.0
        self.last_look: float | None = None  # when this node, having failed, looked for the last time
        self.sampler: int | None = None  # pid of what takes a sample of the GPUs
        self.samples_due = 0.0
        self.sample_start = 0  # where the newest begins in gpus.csv
        self.gpus: set[str] = set()  # the indices of those that the first sample has shown
        self.gpus_error = ""  # what nvidia-smi says since it no longer finds all GPUs well
        self.logs_due = 0.0
        self.shortened = ""  # what was done to the logs, or could not be, since they took more than they may
        self.mounts: dict[str, str] = {}  # mount points that have died under the run, and the error of each
        self.ending_since: float | None = None  # since when this node's processes are being ended
        self.ending_at = math.inf  # the moment itself, as bin/muster-rank writes down when a rank ended
        self.killing_since: float | None = None
        self.stop_reason: str | None = None
        self.stop_wanted = False  # told by a person
        self.state = "starting"
        self.message = ""
        self.report: Data | None = None
        self.go = False
        self.go_deadline = 0.0  # until when a launcher that starts all nodes has to have done so
        self.done = False
        self.result_state: str | None = None
        self.started = time.monotonic()
        self.since = time.time()
        self.beat_due = 0.0
        self.tend_due = 0.0  # its processes, the lifeline and the run as a whole
        self.status_due = 0.0
        self.unwritten = ""  # why the run directory could not be written, if that has happened
        self.oom_before = oom_kills()
        self.temporary = self.plan["temporary_directory"]
        # rank 0's view of each node: state waiting | ready | running | ended | lost, by node_rank
        self.nodes = [
            {
                "name": name,
                "node_rank": rank,
                "state": "waiting",
                "since": time.time(),
                "report": None,
                "broken": None,
                "heard": 0.0,
                "why": "",
                "survived": False,  # an elastic run has gone on without it
                "launcher_log": self.path("launcher.log") if rank == 0 else "",  # each has its own home
                "asked": rank == 0,  # of a launcher that starts all nodes: whether this one was started
                "answered": rank == 0,
            }
            for rank, name in enumerate(self.names)
        ]
        self.first_node: str | None = None  # the node that ended the run
        self.hub_deadline: float | None = None  # when rank 0 stops waiting for the last reports

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    # - events and status

    def event(self, kind: str, text: str, **more: Any) -> None:
        """Append to events.jsonl what a person who watches should read."""
        record = {"time": time.time(), "event": kind, "text": text}
        record.update(more)
        path = self.path("events.jsonl")
        with self.however_full_the_disk(), open(path, "a", encoding="utf-8", opener=private) as stream:
            stream.write(json.dumps(record) + "\n")

    @contextlib.contextmanager
    def however_full_the_disk(self) -> Iterator[None]:
        """Note that the run directory could not be written, and live on: a job may do so without what stands there."""
        try:
            yield
        except OSError as error:
            self.unwritten = error.strerror or str(error)

    def make_room(self) -> None:
        """Give back what was kept for the last words, once no process of the job is there to take it."""
        with contextlib.suppress(OSError):
            os.unlink(self.path("reserve"))

    def set_state(self, state: str, message: str = "") -> None:
        if (state, message) != (self.state, self.message):
            self.state, self.message, self.since = state, message, time.time()
            self.status_due = 0.0

    def write_status(self, now: float) -> None:
        status = {
            "run_id": self.plan["run_id"],
            "node_rank": self.node_rank,
            "name": self.plan["node"]["name"],
            "state": self.state,
            "message": self.message,
            "since": self.since,
            "started": self.plan_started(),
            "updated": time.time(),
            "launcher_pid": self.launcher.pid if self.launcher else None,
            "report": self.report,
        }
        if self.is_hub:
            status["nodes"] = [
                {key: node[key] for key in ("name", "node_rank", "state", "since")} for node in self.nodes
            ]
        self.status_due = now + self.timeouts["heartbeat"]
        with self.however_full_the_disk():
            write_json(self.path("status.json"), status)

    # - lifeline, both ends

    def listen(self) -> None:
        address = self.plan["lifeline"]["address"]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, self.plan["lifeline"]["port"]))
        self.listener.listen(128)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)

    def accept(self, listener: socket.socket, now: float) -> None:
        for _number in range(64):
            try:
                connection, _address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # out of descriptors: strangers time out and make room
                return
            strangers = [wire for wire in self.wires if wire.node_rank is None]
            if len(strangers) >= MAX_STRANGERS:  # a peer shows the token at once: who has been here longest is none
                self.drop(strangers[0])
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = Wire(connection, now)
            self.wires.append(wire)
            self.selector.register(connection, selectors.EVENT_READ, wire)
            wire.send({"nonce": wire.nonce})

    def drop(self, wire: Wire) -> None:
        wire.closed = True
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(wire.connection)
        wire.connection.close()
        if wire in self.wires:
            self.wires.remove(wire)

    def admit(self, wire: Wire, message: Data, now: float) -> None:
        """Let a stranger in if it shows the token, else drop it."""
        rank, nonce, mac = message.get("node_rank"), message.get("nonce"), message.get("mac")
        if (
            not isinstance(rank, int)
            or isinstance(rank, bool)
            or not 0 < rank < len(self.nodes)
            or not isinstance(nonce, str)
            or not isinstance(mac, str)
            or not hmac.compare_digest(
                mac.encode("utf-8", "replace"),
                proof(self.token, "peer", self.plan["run_id"], rank, wire.nonce, nonce).encode(),
            )
        ):
            self.drop(wire)
            return
        for other in [other for other in self.wires if other.node_rank == rank]:
            self.drop(other)
        wire.heard = now
        self.nodes[rank]["broken"] = None
        wire.send({"mac": proof(self.token, "server", self.plan["run_id"], rank, wire.nonce, nonce)})
        wire.open(rank, proof(self.token, "key", self.plan["run_id"], rank, wire.nonce, nonce))
        if self.go:
            wire.send({"type": "go"})
        if self.nodes[rank]["asked"]:  # the wire may have broken with the command on it
            self.send_command(wire)
        if self.stop_reason:
            wire.send({"type": "stop", "reason": self.stop_reason})

    def connect(self, now: float) -> None:
        """Open a peer's wire to rank 0; tried again until the start or silence timeout."""
        self.hub_retry = now + 0.1
        lifeline = self.plan["lifeline"]
        family = socket.AF_INET6 if ":" in lifeline["address"] else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.bind((self.plan["node"]["address"], 0))
            connection.settimeout(1.0)
            connection.connect((lifeline["address"], lifeline["port"]))
        except OSError as error:
            connection.close()
            self.connect_error = str(error)
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.hub = Wire(connection, now)
        self.selector.register(connection, selectors.EVENT_READ, self.hub)

    def hub_message(self, wire: Wire, message: Data, now: float) -> None:
        """A message of rank 0 to this peer."""
        if wire.stage == "nonce":
            server_nonce = str(message.get("nonce", ""))
            mac = proof(self.token, "peer", self.plan["run_id"], self.node_rank, server_nonce, wire.nonce)
            wire.expected = proof(self.token, "server", self.plan["run_id"], self.node_rank, server_nonce, wire.nonce)
            wire.lines_key = proof(self.token, "key", self.plan["run_id"], self.node_rank, server_nonce, wire.nonce)
            wire.stage = "mac"
            wire.send({"node_rank": self.node_rank, "nonce": wire.nonce, "mac": mac})
            return
        if wire.stage == "mac":
            if not hmac.compare_digest(str(message.get("mac", "")).encode("utf-8", "replace"), wire.expected.encode()):
                self.connect_error = "it does not hold this run's token"
                self.drop(wire)
                return
            wire.stage = "open"
            wire.open(0, wire.lines_key)
            self.connect_error = ""
            self.hub_heard, self.hub_broken = now, None
            ready = {"type": "ready", "launcher_log": self.path("launcher.log")}
            wire.send({"type": "report", "report": self.report} if self.report else ready)
            if self.launcher and not self.report:
                wire.send({"type": "running"})
            if self.stop_wanted:
                wire.send({"type": "stop", "reason": self.stop_reason})
            return
        self.hub_heard = now
        kind = message.get("type")
        if kind == "beat":  # answered at once: so rank 0 hears all nodes together, and seldom wakes for it
            self.beat_due = now + BEAT_ALONE * self.timeouts["heartbeat"]
            wire.send({"type": "beat"})
        elif kind == "go":
            if self.plan.get("remote_start"):
                self.set_state("running")  # rank 0's launcher will say what to start here
            else:
                self.start_launcher()
            wire.send({"type": "running"})
        elif kind == "start" and self.plan.get("remote_start"):
            self.plan["command"] = ["/bin/sh", "-c", str(message.get("command", ""))]
            self.start_launcher()
        elif kind == "stop":
            self.stop(str(message.get("reason", "")))
        elif kind == "end":
            self.result_state = str(message.get("state", "failed"))
            self.message = str(message.get("message", ""))

    def peer_message(self, wire: Wire, message: Data, now: float) -> None:
        """A message of a peer to rank 0."""
        wire.heard = now
        node = self.nodes[wire.node_rank or 0]
        node["heard"] = time.time()
        kind = message.get("type")
        if kind == "ready":
            node["launcher_log"] = str(message.get("launcher_log", ""))
            if node["state"] in ("waiting", "lost") and not self.go:
                self.set_node(node, "ready")
        elif kind == "running" and node["state"] != "ended":
            self.set_node(node, "running")
        elif kind == "report" and isinstance(message.get("report"), dict):
            self.take_report(node, checked_report(message["report"]))
        elif kind == "failing":
            self.heed(node, str(message.get("text", "")))
        elif kind in ("mount", "gpus", "logs"):
            self.event(kind, str(message.get("text", "")), node=node["name"])
        elif kind == "stop":
            self.stop_everywhere(str(message.get("reason", "")), wanted=True)

    # - a launcher on rank 0 that starts what runs on the other nodes

    def asked_path(self, node_rank: int) -> str:
        return self.path(os.path.join("asked", f"{node_rank}.json"))

    def send_command(self, wire: Wire) -> None:
        """Rank 0: give a node the command that bin/ssh has left for it; a node starts it once."""
        wire.send({"type": "start", "command": str(read_told(self.asked_path(wire.node_rank or 0)).get("command", ""))})

    def hand_on(self, now: float) -> None:
        """Rank 0: give each node the command that bin/ssh has left for it, and bin/ssh the end of it."""
        for node in self.nodes:
            rank = node["node_rank"]
            if not node["asked"]:
                wire = next((wire for wire in self.wires if wire.node_rank == rank), None)
                if wire is not None and os.path.exists(self.asked_path(rank)):
                    node["asked"] = True
                    self.send_command(wire)
            elif not node["answered"] and node["state"] in ("ended", "lost"):
                path = self.path(os.path.join("asked", f"{rank}.exit"))
                with self.however_full_the_disk():
                    write_json(path, (node["report"] or {}).get("exit_code"))
                    node["answered"] = True
        waiting = [node["name"] for node in self.nodes if not node["asked"]]
        if waiting and self.stop_reason is None and (self.report is not None or now > self.go_deadline):
            what = f"the launcher on {self.names[0]} has started nothing on {', '.join(waiting)}"
            self.first_node = self.names[0]
            self.event("failure", what, node=self.names[0])
            self.stop_everywhere(what)

    # - rank 0's judgement

    def set_node(self, node: Data, state: str) -> None:
        if node["state"] != state:
            node["state"], node["since"] = state, time.time()
            self.status_due = 0.0

    def take_report(self, node: Data, report: Data) -> None:
        if node["state"] == "ended":
            return
        node["report"] = report
        self.set_node(node, "ended")
        if self.has_failed(node) and not self.stop_reason:
            code = describe_exit(report.get("exit_code"))
            self.node_failed(node, report.get("reason") or f"the launcher on {node['name']} ended with {code}")

    def heed(self, node: Data, what: str) -> None:
        """End the run everywhere while a node that has failed still ends its part; an elastic run awaits its report."""
        if not self.stop_reason and not self.plan["elastic"]:
            self.node_failed(node, what)

    def lose(self, node: Data, why: str) -> None:
        if node["state"] in ("lost", "ended"):
            return
        self.set_node(node, "lost")
        node["why"] = f"{node['name']} is lost: {why}"
        if not self.stop_reason:
            self.node_failed(node, node["why"])

    def node_failed(self, node: Data, what: str) -> None:
        """Decide whether the run can go on without a node that failed or is lost."""
        alive = [other for other in self.nodes if other["state"] != "lost" and not self.has_failed(other)]
        if self.plan["elastic"] and len(alive) >= self.plan["min_nnodes"] and node["node_rank"] != 0:
            self.event(
                "shrink",
                f"{what}; the run goes on with {len(alive)} of {len(self.nodes)} nodes "
                f"(at least {self.plan['min_nnodes']} are needed)",
                node=node["name"],
            )
            node["survived"] = True
            if node["state"] == "lost":  # of one that has ended the others hear by themselves
                self.wake_ranks(node)
        else:
            self.first_node = node["name"]
            self.event("failure", what, node=node["name"])
            self.stop_everywhere(what)

    def wake_ranks(self, node: Data) -> None:
        """Have torchrun start anew at once when a node has fallen silent.

        Its peers' collectives would wait for the dead peer until TCP or NCCL gives up, 2 to 30 minutes. One ended rank
        on rank 0's node is enough: its agent calls all others together. Not where they have noticed and started anew
        already.
        """
        newest = attempt_directory(os.path.join(self.directory, "ranks"), 0)
        if newest is None or self.launcher is None:
            return
        with contextlib.suppress(OSError):  # the job has just removed it
            if os.stat(newest).st_mtime > node["heard"]:
                return
        if self.plan.get("wrap"):  # the engine's children, not the launcher's
            ranks = [int(name) for name in os.listdir("/proc") if name.isdigit() and is_rank(int(name), self.directory)]
        else:
            table = process_table()
            ranks = [pid for pid, (parent, _state) in table.items() if parent == self.launcher.pid]
        signal_all(ranks, signal.SIGKILL)

    @staticmethod
    def has_failed(node: Data) -> bool:
        return node["report"] is not None and node["report"].get("exit_code") != 0

    def stop_everywhere(self, reason: str, wanted: bool = False) -> None:
        if self.stop_reason is None:
            self.stop_wanted = wanted
            for wire in self.wires:
                if wire.node_rank is not None:
                    wire.send({"type": "stop", "reason": reason})
            self.hub_deadline = time.monotonic() + self.timeouts["grace"] + KILL_PATIENCE + 2.0
            self.stop(reason)

    def judge(self, now: float) -> None:
        """Rank 0: start the run once the nodes are there, end it once they are through."""
        if not self.go and self.stop_reason is None:
            ready = [node for node in self.nodes if node["state"] == "ready"]
            late = now - self.started > self.timeouts["start"]
            if len(ready) == len(self.nodes) or (
                late and self.plan["elastic"] and len(ready) >= self.plan["min_nnodes"]
            ):
                self.go = True
                self.go_deadline = now + self.timeouts["start"]
                for node in self.nodes:
                    if node["state"] != "ready":
                        self.set_node(node, "lost")
                        node["survived"] = True
                missing = [node["name"] for node in self.nodes if node["state"] == "lost"]
                if missing:
                    there = f"{len(ready)} of {len(self.nodes)} nodes have checked in"
                    self.event("go", f"{there}, starting without {', '.join(missing)}")
                else:
                    there = f"all {len(ready)} nodes have checked in" if len(ready) > 1 else "the node is ready"
                    self.event("go", there)
                # It opens the store: a torch that finds it closed waits 0.25 to 0.75 s, and all others for that one.
                self.start_launcher()
                time.sleep(HEAD_START)
                for wire in self.wires:
                    if wire.node_rank is not None:
                        wire.send({"type": "go"})
            elif late:
                missing = [node["name"] for node in self.nodes if node["state"] != "ready"]
                self.event("failure", f"no word from {', '.join(missing)}")
                for node in self.nodes:
                    if node["state"] != "ready":
                        self.set_node(node, "lost")
                self.stop_everywhere(
                    f"{', '.join(missing)} did not check in within {self.timeouts['start']:g} s: "
                    f"is the lifeline's port {self.plan['lifeline']['port']} open between the nodes?"
                )
        if self.go and self.plan.get("remote_start"):
            self.hand_on(now)
        finished = all(node["state"] in ("ended", "lost") for node in self.nodes)
        if self.report is not None and (finished or (self.hub_deadline is not None and now > self.hub_deadline)):
            self.finish()

    def finish(self) -> None:
        """Rank 0: write the result, tell the peers and end."""
        ended = [node for node in self.nodes if node["state"] == "ended"]
        good = [node for node in ended if not self.has_failed(node)]
        if self.stop_wanted:
            state = "stopped"
        elif (
            self.stop_reason is None
            and len(good) == len(self.nodes)
            or self.stop_reason is None
            and self.plan["elastic"]
            and len(good) >= self.plan["min_nnodes"]
        ):
            state = "succeeded"
        else:
            state = "failed"
        self.set_state(state, self.stop_reason or "")
        self.make_room()
        with self.however_full_the_disk():
            self.write_result(state)
        for wire in self.wires:
            if wire.node_rank is not None:
                wire.send({"type": "end", "state": state, "message": self.stop_reason or ""})
        self.result_state = state
        self.done = True

    def write_result(self, state: str) -> None:
        write_json(
            self.path("result.json"),
            {
                "run_id": self.plan["run_id"],
                "state": state,
                "reason": self.stop_reason or "",
                "first_node": self.first_node,
                "world_size": self.plan["world_size"],
                "nnodes": len(self.nodes),
                "started": self.plan_started(),
                "ended": time.time(),
                "nodes": [
                    {
                        "name": node["name"],
                        "node_rank": node["node_rank"],
                        "state": node["state"],
                        "since": node["since"],
                        "report": node["report"],
                        "why": node["why"],
                        "survived": node["survived"],
                        "launcher_log": node["launcher_log"],
                    }
                    for node in self.nodes
                ],
            },
        )

    def plan_started(self) -> float:
        return time.time() - (time.monotonic() - self.started)

    # - this node's own part

    def launcher_environment(self) -> dict[str, str]:
        """Return all variables of the launcher. Raise OSError or ValueError where the user's own cannot be read."""
        environment = {name: os.environ[name] for name in BASE_ENVIRONMENT if name in os.environ}
        environment.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        environment["PATH"] = self.plan["path_prefix"] + os.pathsep + environment["PATH"]
        if not self.plan.get("bare_launcher"):  # one that would write what it finds there into command lines
            environment.update(self.plan["environment"])
            with open(self.path("environment.json"), encoding="utf-8") as stream:
                environment.update(json.load(stream))
        environment.update(self.plan.get("launcher_environment", {}))
        if os.path.isdir(self.path("bin")):  # our ssh and muster-rank, before any other
            environment["PATH"] = self.path("bin") + os.pathsep + environment["PATH"]
        environment.setdefault("TMPDIR", self.temporary)
        return environment

    def in_container(self) -> list[str]:
        """Return the words before the launcher's command: none, or the engine's, with a mount of secrets in memory."""
        words, secrets = self.plan.get("wrap", []), self.path("environment.json")
        if words and os.path.islink(secrets):
            place = os.path.dirname(os.readlink(secrets))
            first = next(index for index, word in enumerate(words) if word.startswith("--volume="))
            words = [*words[:first], f"--volume={place}:{place}:ro", *words[first:]]
        return words

    def start_launcher(self) -> None:
        if self.launcher is not None or self.stop_reason is not None:
            return
        try:
            make_private(self.temporary)
            with open(self.path("launcher.log"), "ab", buffering=0, opener=private) as log:
                self.launcher = subprocess.Popen(
                    self.in_container() + self.plan["command"],
                    cwd=self.plan["working_directory"],
                    env=self.launcher_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:  # ValueError: a NUL, or what the file system's encoding does not know
            what = f"muster: cannot start {self.plan['command'][0]} in {self.plan['working_directory']}: {error}\n"
            path = self.path("launcher.log")
            with self.however_full_the_disk(), open(path, "a", encoding="utf-8", opener=private) as log:
                log.write(what)
            self.launcher_code = 127
            self.begin_to_end(time.monotonic())
            return
        self.set_state("running")
        if self.is_hub:
            self.set_node(self.nodes[0], "running")

    def stop(self, reason: str) -> None:
        """End this node's processes: SIGTERM now, SIGKILL after the grace."""
        if self.stop_reason is None:
            self.stop_reason = reason
        if self.report is None:
            self.set_state("stopping", self.stop_reason)
        if self.ending_since is None:
            self.begin_to_end(time.monotonic())
            self.ended_by_us = self.launcher is not None and not self.noticed and not self.has_ended(self.launcher.pid)
            if self.closing and self.launcher is not None:
                self.awaited = self.launcher.pid
            signal_all([pid for pid in descendants(os.getpid()) if pid != self.awaited], signal.SIGTERM)

    def begin_to_end(self, now: float) -> None:
        self.ending_since, self.ending_at = now, time.monotonic()

    @staticmethod
    def has_ended(child: int) -> bool:
        """Return whether a child has ended that was not reaped yet; it stays to be."""
        try:
            return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def tend_closing(self, now: float, launcher: int) -> None:
        """Give the ranks beside one that has failed our own grace: torchrun waits 30 s for one that does not end."""
        path = self.path("launcher.log")
        size = os.path.getsize(path) if os.path.exists(path) else 0
        if size != self.log_size:
            self.log_size = size
            for pid in CLOSING.findall(read_tail(path)):
                self.closing.setdefault(int(pid), now)
                # else it may start them anew
                self.noticed = self.plan["max_restarts"] == 0 and not self.plan["elastic"]
        if self.closing and not self.plan.get("wrap"):  # in a container pids are others
            table = process_table()
            there = [pid for pid, (parent, state) in table.items() if parent == launcher and state not in "ZX"]
            self.closing = {pid: since for pid, since in self.closing.items() if pid in there}
            late = [pid for pid, since in self.closing.items() if now - since > self.timeouts["grace"]]
            signal_all(late, signal.SIGKILL)
        waited = now - min(self.closing.values(), default=now)
        if waited > LAST_WORD_PATIENCE and self.plan["max_restarts"] == 0:
            self.tell_failing(f"a rank on {self.plan['node']['name']} has failed")

    def tell_failing(self, text: str) -> None:
        """Let the other nodes begin to end: what is left here may take all of its grace. Told once."""
        if self.failing == text:
            return
        self.failing = text
        if self.is_hub:
            self.heed(self.nodes[0], text)
        elif self.hub is not None and self.hub.stage == "open":
            self.hub.send({"type": "failing", "text": text})

    def tend_processes(self, now: float) -> None:
        """Reap, and see this node's end through once it has begun."""
        ended = reap()
        self.tend_mounts(now, ended)
        self.sample_gpus(now, ended)
        self.tend_logs(now)
        grace, name = self.timeouts["grace"], self.plan["node"]["name"]
        if self.remover in ended:
            self.removed = exit_code(ended[self.remover])
        if self.launcher is not None and self.launcher.pid in ended and self.launcher_code is None:
            self.launcher_code = exit_code(ended[self.launcher.pid])
            self.launcher.returncode = self.launcher_code
            if self.ending_since is None:
                self.begin_to_end(now)
                signal_all(descendants(os.getpid()), signal.SIGTERM)
        if self.ending_since is None and self.launcher is not None and self.plan["rank_logs"] == "ranks":
            ends = [rank_end(self.directory, number) for number in range(self.plan["node"]["slots"])]
            failed = first_to_fail(ends, math.inf)
            if failed is not None:  # a launcher may take its time, or never notice
                rank = self.plan["node"]["first_rank"] + failed
                self.rank_failed = f"rank {rank} on {name} ended with {describe_exit(ends[failed][0])}"
                self.begin_to_end(now)
                signal_all(descendants(os.getpid()), signal.SIGTERM)
        if self.ending_since is None and self.launcher is not None and self.plan["rank_logs"] == "torchrun":
            self.tend_closing(now, self.launcher.pid)
        if self.ending_since is None or self.report is not None:
            return
        ended_here = self.launcher is None or self.launcher_code is not None
        if self.plan.get("remove") and self.remover is None and (ended_here or now - self.ending_since > grace):
            # the engine has the container's processes, not we
            self.remover = run_quietly(self.plan["remove"], self.path("supervisor.log"))
            self.removed = None if self.remover else 127
        looks = [pid for pid, _since in self.looks.values()]
        if self.sampler and self.last_look is not None:
            looks.append(self.sampler)
        left = [pid for pid in descendants(os.getpid()) if pid not in looks]
        killed = [pid for pid in left if pid != self.remover]
        if left and now - self.ending_since > grace:
            if self.killing_since is None:
                self.killing_since = now
            if now - self.killing_since > LAST_WORD_PATIENCE:
                self.awaited = None
            signal_all([pid for pid in killed if pid != self.awaited], signal.SIGKILL)
        elif left and not self.stop_reason and now - self.ending_since > LAST_WORD_PATIENCE:
            how = f"the launcher on {name} ended with {describe_exit(self.launcher_code)}"
            if self.launcher_code or self.rank_failed:
                self.tell_failing(self.rank_failed or how)
        stuck = bool(left) and self.killing_since is not None and now - self.killing_since > KILL_PATIENCE
        if not left or stuck:
            if self.launcher is not None and self.launcher_code is None:
                # it ended between reaping and counting: its status comes with the next turn
                if self.launcher.pid not in left:
                    return
                self.launcher_code = -signal.SIGKILL
            if self.remover and self.removed is None and self.remover not in left:
                return  # the same
            if self.launcher_code or self.rank_failed:
                if self.last_look is None:
                    self.last_look = now
                    self.look(now)
                    if not self.ended_by_us and not self.sampler:  # a GPU that is lost ends the job at once
                        self.take_sample(now)
                if (self.looks or self.sampler) and now - self.last_look < LAST_LOOK_PATIENCE:
                    return
            self.make_report(killed, self.container_left(self.remover in left))

    def container_left(self, goes_on: bool) -> str:
        """Return why the container may still be there, and what to do; "" where the engine has removed it."""
        why = "the container engine takes long to remove it"
        if not goes_on:
            said = last_words(read_tail(self.path("supervisor.log"))) if self.removed else ""
            if not self.removed or GONE_ALREADY.search(said):
                return ""
            why = said or f"the container engine ended with {describe_exit(self.removed)}"
        return f"{why}; look there with: {' '.join(self.plan['remove'])}"

    def look(self, now: float) -> None:
        """Look into each mount that the plan names, by a process: a dead one may block it for ever."""
        self.looks_due = now + LOOK_INTERVAL
        there = mount_points() if self.plan.get("mounts") else set()
        for point in self.plan.get("mounts", ()):
            if point not in there:
                self.note_mount(point, "nothing is mounted there any more")
            elif point not in self.looks:
                pid = run_quietly([sys.executable, "-I", "-S", "-c", LOOK, point], os.devnull)
                if pid:
                    self.looks[point] = (pid, now)

    def tend_mounts(self, now: float, ended: dict[int, int]) -> None:
        """Tell of mounts that die under the run, and of those that come back; ended: what was just reaped."""
        if self.launcher is not None and self.ending_since is None and now >= self.looks_due:
            self.look(now)
        for point, (pid, since) in list(self.looks.items()):
            error = None
            if pid in ended:
                del self.looks[point]
                code = exit_code(ended[pid])
                if code >= 0 and code != 1:  # 1: Python itself could not start
                    error = os.strerror(code) if code else ""
            elif now - since > LOOK_PATIENCE or (
                self.last_look is not None and now - self.last_look > LAST_LOOK_PATIENCE
            ):
                error = f"no answer within {now - since:.0f} s"
                signal_all([pid], signal.SIGKILL)
            if error is not None:
                self.note_mount(point, error)

    def sample_gpus(self, now: float, ended: dict[int, int]) -> None:
        """Have what the GPUs do written down while the job runs, by one process at a time: it may never answer."""
        if self.sampler in ended:
            code = exit_code(ended[self.sampler])
            self.sampler = None
            if code >= 0:
                self.heed_sample(code)
        if self.last_look is not None:
            if self.sampler and now - self.last_look > LAST_LOOK_PATIENCE:
                signal_all([self.sampler], signal.SIGKILL)
        elif self.launcher is not None and self.ending_since is None and not self.sampler and now >= self.samples_due:
            self.take_sample(now)

    def take_sample(self, now: float) -> None:
        if self.plan.get("gpu_samples"):
            self.samples_due = now + self.timeouts["sample"]
            self.sample_start = os.path.getsize(self.path("gpus.csv")) if os.path.exists(self.path("gpus.csv")) else 0
            self.sampler = run_quietly(self.plan["gpu_samples"], self.path("gpus.csv"))

    def heed_sample(self, code: int) -> None:
        """Tell what a sample shows beside its figures; code: how nvidia-smi ended."""
        with self.however_full_the_disk(), open(self.path("gpus.csv"), "rb", opener=regular) as stream:
            stream.seek(self.sample_start)
            sample = stream.read(TAIL_BYTES).decode("utf-8", "replace")
            gpus, error = read_sample(sample, code, self.gpus)
            self.gpus = self.gpus or gpus
            if gpus or error:
                self.note_gpus(error)

    def tend_logs(self, now: float) -> None:
        """Keep the logs within their limit while the job goes on, and tell so once."""
        limit = self.plan.get("log_limit", 0)
        if not limit or self.launcher is None or now < self.logs_due:
            return
        self.logs_due = now + LOG_INTERVAL
        try:
            done = bound_logs(all_logs(self.plan, self.directory), limit)
            told = f"the middle of {done[0]}{' and others' if done[1:] else ''} was removed" if done else ""
        except OSError as error:
            told = f"its file system cannot remove the middle of {error.filename}: {error.strerror}"
        if told and not self.shortened:
            name = self.plan["node"]["name"]
            self.shortened = f"the logs on {name} took more than {limit / 1e9:g} GB (launch_log_limit): {told}"
            self.tell("logs", self.shortened)
            if self.state == "running":
                self.set_state("running", self.shortened)

    def note_gpus(self, error: str) -> None:
        """Tell whoever watches that the GPUs have begun to fail (error) or are well again (no error), once."""
        if bool(error) == bool(self.gpus_error):
            return
        self.gpus_error = error
        name = self.plan["node"]["name"]
        self.tell("gpus", f"the GPUs on {name} fail: {error}" if error else f"the GPUs on {name} are well again")

    def note_mount(self, point: str, error: str) -> None:
        """Tell whoever watches that a mount has died (error) or come back (no error), once."""
        if bool(error) == (point in self.mounts):
            return
        name = self.plan["node"]["name"]
        if error:
            self.mounts[point] = error
            said = f"the mount {point} on {name} has died: {error}"
        else:
            del self.mounts[point]
            said = f"the mount {point} on {name} answers again"
        self.tell("mount", said)

    def tell(self, kind: str, text: str) -> None:
        """Tell whoever watches what happens on this node beside the job."""
        if self.is_hub:
            self.event(kind, text, node=self.plan["node"]["name"])
        elif self.hub is not None and self.hub.stage == "open":
            self.hub.send({"type": kind, "text": text})

    def make_report(self, stuck: list[int], container: str = "") -> None:
        self.write_status(time.monotonic())  # a disk that is full now may be why the job failed
        code = self.launcher_code
        oom_after = oom_kills()
        started = self.launcher is not None or code is not None
        ranks = []
        if started:
            ranks = rank_reports(self.plan, self.directory, code, self.ended_by_us, self.ending_at)
        said = launcher_error(code, read_tail(self.path("launcher.log")))
        unwell = [str(rank["rank"]) for rank in ranks if rank["exit_code"] != 0]
        if code == 0 and unwell:  # launchers end with 0 although a signal ended a rank, or where they started none
            code, said = 1, f"the launcher ended with exit code 0, but not so rank {', '.join(unwell)}"
        self.report = {
            "exit_code": code,
            "reason": self.rank_failed,
            "state": "ended" if started else "not started",
            "ended": time.time(),
            "ranks": ranks,
            "launcher_error": said,
            "launcher_log": self.path("launcher.log"),
            "oom_kills": (oom_after or 0) - (self.oom_before or 0),
            "stuck": stuck,
            "mounts": self.mounts,
            "gpus": self.gpus_error,
            "ended_by_us": self.ended_by_us,
            "container": container,
            "unwritten": self.unwritten,
            "shortened": self.shortened,
        }
        self.report["last_log"] = log_of_failure(self.report)
        self.report["last_lines"] = last_lines(self.report["last_log"])
        shorten_report(self.report)
        if not self.stop_reason:
            self.set_state("ended", "")
        if self.is_hub:
            self.take_report(self.nodes[0], self.report)
        elif self.hub is not None and self.hub.stage == "open":
            self.hub.send({"type": "report", "report": self.report})

    def tend_lifeline(self, now: float) -> None:
        silence = self.timeouts["silence"]
        if self.is_hub:
            for wire in list(self.wires):
                if wire.node_rank is None and now - wire.opened > STRANGER_PATIENCE:
                    wire.closed = True
                if wire.closed:
                    if wire.node_rank is not None:
                        self.nodes[wire.node_rank]["broken"] = now
                    self.drop(wire)
            for node in self.nodes[1:]:
                if node["broken"] is not None and now - node["broken"] > RECONNECT_PATIENCE:
                    self.lose(
                        node, "its supervisor closed the lifeline and did not come back (killed, or the node went down)"
                    )
            for wire in list(self.wires):
                if wire.node_rank is not None and now - wire.heard > silence:
                    self.lose(
                        self.nodes[wire.node_rank],
                        f"nothing heard of it for {silence:g} s (powered off, or cut off the network)",
                    )
                    self.drop(wire)
            if now >= self.beat_due:
                self.beat_due = now + self.timeouts["heartbeat"]
                for wire in self.wires:
                    if wire.node_rank is not None:
                        wire.send({"type": "beat"})
            return
        if self.hub is not None and self.hub.closed:
            if self.hub.stage == "open" and self.hub_broken is None:
                self.hub_broken = now
            self.drop(self.hub)
            self.hub = None
        if self.hub is not None and self.hub.stage != "open" and now - self.hub.opened > STRANGER_PATIENCE:
            self.drop(self.hub)
            self.hub = None
        if self.result_state is not None:
            return
        master = self.names[0]
        if self.hub is None and now >= self.hub_retry:
            self.connect(now)
        checked_in = self.hub is not None and self.hub.stage == "open"  # then rank 0 decides, who may have begun later
        late = now - self.started > self.timeouts["start"] + 5.0
        if late and not checked_in and not self.launcher and self.hub_broken is None:
            self.stop(
                f"{self.plan['node']['name']} could not check in with {master} within {self.timeouts['start']:g} s: "
                f"{self.connect_error or 'no answer'}"
            )
            self.result_state = "failed"
        elif self.hub_broken is not None and now - self.hub_broken > RECONNECT_PATIENCE and not checked_in:
            self.stop(
                f"{master} is lost: its supervisor closed the lifeline and did not come back "
                "(killed, or the node went down)"
            )
            self.result_state = "failed"
        elif checked_in and now - self.hub_heard > silence:
            self.stop(f"{master} is lost: nothing heard of it for {silence:g} s (powered off, or cut off the network)")
            self.result_state = "failed"
        if now >= self.beat_due and self.hub is not None and self.hub.stage == "open":
            self.beat_due = now + BEAT_ALONE * self.timeouts["heartbeat"]
            self.hub.send({"type": "beat"})

    def hear(self, wire: Wire, now: float) -> bool:
        """Handle all that has arrived on a wire; return whether it was heartbeats alone."""
        messages = wire.receive()
        beats_alone = bool(messages)
        while messages:
            for message in messages:
                beats_alone = beats_alone and message.get("type") == "beat"
                if wire is self.hub:
                    self.hub_message(wire, message, now)
                elif wire.node_rank is not None:  # its last words count, also where it has hung up since
                    self.peer_message(wire, message, now)
                else:
                    self.admit(wire, message, now)
            messages = [] if wire.closed else wire.receive()
        return beats_alone and not wire.closed

    def turn(self, timeout: float) -> None:
        """Wait for the next thing to happen and handle it."""
        ready = self.selector.select(min(timeout, max(0.0, self.tend_due - time.monotonic())))
        now = time.monotonic()
        self.pulse.beat(now)
        beats_alone = bool(ready)
        for key, mask in ready:
            if mask == selectors.EVENT_READ and isinstance(key.data, Wire):
                beats_alone = self.hear(key.data, now) and beats_alone
                continue
            beats_alone = False
            if self.listener is not None and key.fileobj is self.listener:
                self.accept(self.listener, now)
            elif isinstance(key.data, Wire):
                key.data.flush()
                if mask & selectors.EVENT_READ:
                    self.hear(key.data, now)
            else:  # the wake-up pipe of the signals
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 512)
        if beats_alone and now < self.tend_due:  # of 64 nodes 32 a second, and nothing follows from them
            return
        self.tend_due = now + timeout
        for wire in self.wires + ([self.hub] if self.hub else []):
            if not wire.closed:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.outbox else 0)
                if events != wire.events:  # to ask the kernel costs more than all else that is done for a peer
                    self.selector.modify(wire.connection, events, wire)
                    wire.events = events
        if self.asked is not None:
            self.obey()
        self.tend_processes(now)
        self.tend_lifeline(now)
        if self.is_hub:
            self.judge(now)
        elif self.report is not None and (self.result_state or self.leaving or now > self.asked_deadline):
            self.result_state = self.result_state or "stopped"
            self.done = True
        if now >= self.status_due:
            self.write_status(now)

    def run(self) -> int:
        """Live until the run has ended here and, as far as can be known, everywhere; return the exit code."""
        become_subreaper()
        self.wake, wake_writer = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        self.selector.register(self.wake, selectors.EVENT_READ, None)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.note_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with self.however_full_the_disk():
            write_json(self.path("supervisor.json"), {"pid": os.getpid()})
        with self.however_full_the_disk(), open(self.path("reserve"), "wb", opener=private) as reserve:
            os.posix_fallocate(reserve.fileno(), 0, RESERVE)
        try:
            if self.is_hub:
                self.listen()
                self.set_node(self.nodes[0], "ready")
        except OSError as error:
            lifeline = self.plan["lifeline"]
            reason = f"{self.names[0]} cannot listen on {lifeline['address']} port {lifeline['port']}: {error}"
            self.event("failure", reason)
            self.stop_everywhere(reason)
            self.hub_deadline = 0.0  # nobody can have checked in
        self.turn(0.0)  # a peer checks in without waiting first
        while not self.done:
            busy = self.state == "starting" or (self.ending_since is not None and self.report is None)
            busy = busy or (self.is_hub and self.plan.get("remote_start") and not all(n["asked"] for n in self.nodes))
            self.turn(0.05 if busy else 0.25)
        self.clean_up()
        return 0 if self.result_state == "succeeded" else 1

    def note_signal(self, number: int, frame: object) -> None:
        self.asked = number

    def obey(self) -> None:
        """Somebody asked this node to stop: stop.yml, systemctl stop, a shutdown of the machine."""
        asked = signal.Signals(self.asked or signal.SIGTERM).name
        reason = f"stopped on request on {self.plan['node']['name']} ({asked})"
        self.asked = None
        if self.is_hub:
            self.stop_everywhere(reason, wanted=True)
        elif self.plan["elastic"] and not os.path.exists(self.path("stop")):
            # this machine goes down, and the others may go on
            self.rank_failed = f"{self.plan['node']['name']} was told to leave ({asked})"
            self.stop(self.rank_failed)
            self.leaving = True
        else:
            self.stop_wanted = True
            if self.hub is not None and self.hub.stage == "open":
                self.hub.send({"type": "stop", "reason": reason})
            self.stop(reason)
            # rank 0 may be gone, or be ended by the same hand: do not outlive the unit's stop timeout for its last word
            if self.result_state is None and self.hub is None:
                self.result_state = "stopped"
            self.asked_deadline = time.monotonic() + self.timeouts["grace"] + KILL_PATIENCE + 2.0

    def clean_up(self) -> None:
        deadline = time.monotonic() + 1.0
        wires = self.wires + ([self.hub] if self.hub else [])
        while any(wire.outbox and not wire.closed for wire in wires) and time.monotonic() < deadline:
            for wire in wires:
                wire.flush()
            time.sleep(0.01)
        for wire in wires:
            self.drop(wire)
        if self.listener is not None:
            self.listener.close()
        forget_secrets(self.directory)
        self.make_room()
        self.set_state(self.result_state or "failed", self.message or self.stop_reason or "")
        self.write_status(time.monotonic())
        remover = run_quietly(["/bin/rm", "-rf", "--", self.temporary], os.devnull)  # of much it may take long
        while remover and remover not in reap():
            self.pulse.beat(time.monotonic())
            time.sleep(0.01)


def describe_exit(code: int | None) -> str:
    """Return an exit code as Popen gives it in words."""
    if code is None:
        return "no exit code"
    if code < 0:
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


# What a report holds, and what stands there where it is missing or has another type.
REPORT_FIELDS: tuple[tuple[str, type, Any], ...] = (
    ("exit_code", int, None),
    ("reason", str, ""),
    ("state", str, "ended"),
    ("ended", float, None),
    ("ranks", list, []),
    ("launcher_error", str, ""),
    ("launcher_log", str, ""),
    ("oom_kills", int, 0),
    ("stuck", list, []),
    ("mounts", dict, {}),
    ("gpus", str, ""),
    ("ended_by_us", bool, False),
    ("container", str, ""),
    ("unwritten", str, ""),
    ("shortened", str, ""),
    ("last_log", str, ""),
    ("last_lines", str, ""),
)
RANK_FIELDS: tuple[tuple[str, type, Any], ...] = (
    ("rank", int, -1),
    ("local_rank", int, -1),
    ("exit_code", int, None),
    ("error", str, ""),
    ("log", str, ""),
)
MARKS = ("closed", "first", "ended_by_us")  # of a rank, where it is so


def is_a(kind: type, value: object) -> bool:
    """Whether a value that came as JSON is of this type; true and false are no numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def checked_report(told: Data) -> Data:
    """Return another node's report with each field of its own type, so that no word of it can end who reads it."""
    report: Data = {name: told[name] if is_a(kind, told.get(name)) else other for name, kind, other in REPORT_FIELDS}
    if not is_exit_code(report["exit_code"]):
        report["exit_code"] = None
    report["ranks"] = [
        {
            **{name: rank[name] if is_a(kind, rank.get(name)) else other for name, kind, other in RANK_FIELDS},
            **{mark: True for mark in MARKS if rank.get(mark) is True},
        }
        for rank in report["ranks"]
        if isinstance(rank, dict)
    ]
    for rank in report["ranks"]:
        if not is_exit_code(rank["exit_code"]):
            rank["exit_code"] = None
    report["stuck"] = [pid for pid in report["stuck"] if is_a(int, pid)]
    report["mounts"] = {point: error for point, error in report["mounts"].items() if isinstance(error, str)}
    return report


def shorten_report(report: Data) -> None:
    """Keep a report within one line of the lifeline: shorter texts, then only those ranks that tell most."""
    for limit in (2000, 500, 0):
        if len(json.dumps(report)) < MAX_LINE - 1024:
            return
        report["last_lines"] = report["last_lines"][-limit:] if limit else ""
        for rank in report["ranks"]:
            rank["error"] = rank["error"][:limit]
    if len(json.dumps(report)) >= MAX_LINE - 1024:  # hundreds of ranks: their logs' paths alone are too long
        ended_by_others = (0, None, -signal.SIGTERM)
        report["ranks"].sort(key=lambda rank: rank["exit_code"] in ended_by_others)
        del report["ranks"][100:]


def start_guarded(arguments: list[str]) -> tuple[int, int]:
    """Start the supervisor as a child; return its pid, and the pipe on which it shows that it lives."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.set_inheritable(writer, True)
        os.environ[GUARD_PIPE] = str(writer)
        os.execv(sys.executable, [sys.executable, "-I", "-S"] + arguments)
    os.close(writer)
    return child, reader


def wait_for_end(child: int, pipe: int, patience: float) -> int | None:
    """Wait until the supervisor has ended and return its wait status, None where it has shown no life for so long.

    patience: in seconds. Touches no file, since none may answer.
    """
    silent = 0.0  # counted, not read from the clock: a machine that was halted has halted both
    while silent < patience:
        ready, _writable, _other = select.select([pipe], [], [], 1.0)
        if ready and os.read(pipe, 4096):
            silent = 0.0
        elif ready:  # it is ending: nobody else holds the pipe
            time.sleep(0.01)
            silent += 0.01
        else:
            silent += 1.0
        ended = reap()
        if child in ended:
            return ended[child]
    return None


def guard(arguments: list[str]) -> int:
    """Where there is no systemd: run the supervisor as a child, and end what it leaves behind should it be killed.

    Also where it hangs. What it waits for may make us wait as well, so the job is ended before we touch any file.
    """
    become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the supervisor is told to stop
    directory = arguments[1]
    plan: Data = {}
    with contextlib.suppress(OSError, ValueError):
        plan = read_json(os.path.join(directory, "plan.json"))
    silence = (plan.get("timeouts") or {}).get("silence", 10.0)
    child, pipe = start_guarded(arguments)
    status = wait_for_end(child, pipe, silence + HANG_MARGIN)
    deadline = time.monotonic() + KILL_PATIENCE
    while time.monotonic() < deadline:
        left = descendants(os.getpid())
        if not left:
            break
        signal_all(left, signal.SIGKILL)
        reap()
        time.sleep(0.02)
    if status is None:
        remove_container(plan, os.devnull)
    forget_secrets(directory)
    if status is not None:
        remove_container(plan, os.path.join(directory, "supervisor.log"))
    if plan.get("temporary_directory"):
        remove_tree(plan["temporary_directory"])
    return 1 if status is None else min(abs(exit_code(status)), 255)


def remove_container(plan: Data, log: str) -> None:
    """Have the container engine remove this node's container, where the run has one."""
    if plan.get("remove"):
        run_quietly(plan["remove"], log)
        deadline = time.monotonic() + REMOVE_PATIENCE
        while descendants(os.getpid()) and time.monotonic() < deadline:
            reap()
            time.sleep(0.1)
        signal_all(descendants(os.getpid()), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    guarded = arguments[1:2] == ["--guard"]
    write_to(os.path.join(arguments[2 if guarded else 1], "supervisor.log"))
    if guarded:
        return guard([arguments[0]] + arguments[2:])
    return Supervisor(arguments[1]).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
