# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let the supervisor read the Python stacks of a job's processes, without changing the job's script.

A copy of this file is ``hooks/sitecustomize.py`` in each node's run directory, first on the job's PYTHONPATH, so every
Python interpreter of the job runs it at its start. It makes faulthandler write the main thread's stack into a file of
the process: when the supervisor sends STACK_SIGNAL, and before SIGTERM ends the process. faulthandler does so from its
signal handler, even while the process is blocked or another thread holds the interpreter's lock. It follows the frames
of the interrupted thread, so this signal is for processes that are blocked or in C code; those that execute Python code
get PYTHON_STACK_SIGNAL, which Python handles between two bytecodes. Other threads are left out: they may be running.

It takes well below a millisecond, uses only modules that every interpreter has loaded or built in, works in any Python
3, and never breaks a job: every error is ignored. The sitecustomize that it hides is executed, too.
"""

from __future__ import annotations

import os
import sys

STACK_SIGNAL = 43  # glibc's SIGRTMIN + 9; given as a number, since musl's SIGRTMIN differs
PYTHON_STACK_SIGNAL = 45  # SIGRTMIN + 11
PROFILE_SIGNAL = 46  # SIGRTMIN + 12; Python handles it between two bytecode instructions, see rank_profile.py
# a handler for this signal indicates that the process's only SIGTERM handler is this hook's
NO_OWN_SIGTERM_HANDLER = 44
SIGTERM = 15
HOOKS = "hooks"  # in the run directory: the directory on PYTHONPATH, ...
STACKS = "stacks"  # ... and the one with the files that faulthandler writes: (rank-LOCAL_RANK|process)-PID.txt
PROFILE_PROGRAM = "rank_profile.py"  # next to sitecustomize.py
DEBUG_PROGRAM = "debug_rank.py"  # next to it, if a rank is being debugged
RANK_PROCESS = "MUSTER_RANK_PROCESS"  # variable from which a rank's children know that they are not the rank
NETWORK_LOG = "MUSTER_NCCL_LOG"  # environment variable: the file in which NCCL logs which network it uses
RANK_CPUS = "MUSTER_RANK_CPUS"  # environment variable: each local rank's CPUs, 0-31,64-95;32-63
NCCL_LOG_VARIABLES = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
LOWEST_DESCRIPTOR = 500  # if a job closes all descriptors, it must not get this one's number for another file


def file_name(environment, pid):  # type: ignore[no-untyped-def]
    """Return the name of a process's file; the first process with a LOCAL_RANK is the rank, unlike its children."""
    local_rank = environment.get("LOCAL_RANK") or environment.get("MUSTER_LOCAL_RANK") or ""
    is_child = environment.get(RANK_PROCESS, "").split(":")[0] == local_rank
    if is_child or not local_rank.isdigit():
        return "process-" + str(pid) + ".txt"
    environment[RANK_PROCESS] = local_rank + ":" + str(pid)
    return "rank-" + local_rank + "-" + str(pid) + ".txt"


def log_network(environment):  # type: ignore[no-untyped-def]
    """Make NCCL log which network it uses, unless the job configures NCCL logging itself. NcclNetwork reads the log."""
    path = environment.get(NETWORK_LOG)
    if path and not any(name in environment for name in NCCL_LOG_VARIABLES):
        environment.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="NET,ENV", NCCL_DEBUG_FILE=path)


def parse_cpus(text):  # type: ignore[no-untyped-def]
    """Parse the numbers in a list of CPUs such as 0-31,64-95."""
    cpus = []  # type: ignore[var-annotated]
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return set(cpus)


def bind_cpus(environment):  # type: ignore[no-untyped-def]
    """Bind this rank to its CPUs, along with the threads and processes that it starts.

    Leave alone a process that is already bound by numactl, MPI, Slurm, or a container with few CPUs.
    """
    lists = [parse_cpus(text) for text in environment.get(RANK_CPUS, "").split(";") if text]
    local_rank = int(environment.get("LOCAL_RANK") or environment["MUSTER_LOCAL_RANK"])
    if local_rank < len(lists) and os.sched_getaffinity(0).issuperset(set().union(*lists)):
        os.sched_setaffinity(0, lists[local_rank])


def prepare_rank(environment):  # type: ignore[no-untyped-def]
    """Bind this rank to its CPUs, and make NCCL log its network."""
    log_network(environment)
    try:
        bind_cpus(environment)
    except (OSError, ValueError, AttributeError) as error:  # the rank runs on all CPUs
        sys.muster_binding_error = error  # type: ignore[attr-defined]


def open_stack_file(path):  # type: ignore[no-untyped-def]
    """Create a file for stacks, and return its file descriptor."""
    import fcntl

    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
    first = os.open(path, flags, 0o600)
    try:
        descriptor = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR)
    except OSError:  # fewer descriptors are available
        return first
    os.close(first)
    return descriptor


def install(directory):  # type: ignore[no-untyped-def]
    """Register faulthandler in this process. directory: the run directory."""
    import _signal
    import atexit
    import faulthandler

    pid = os.getpid()
    name = file_name(os.environ, pid)
    path = os.path.join(directory, STACKS, name)
    if name.startswith("rank-"):
        prepare_rank(os.environ)
    descriptor = open_stack_file(path)

    def remove():  # type: ignore[no-untyped-def]
        for number in (PYTHON_STACK_SIGNAL, PROFILE_SIGNAL):
            set_handler(number, _signal.SIG_IGN)  # the interpreter would set SIG_DFL, which ends the process
        if os.getpid() == pid and os.path.exists(path):
            os.unlink(path)

    def release_sigterm():  # type: ignore[no-untyped-def]
        faulthandler.unregister(SIGTERM)
        faulthandler.unregister(NO_OWN_SIGTERM_HANDLER)

    def write_stack(number, frame):  # type: ignore[no-untyped-def]
        faulthandler.dump_traceback(file=descriptor, all_threads=False)

    def profile(number, frame):  # type: ignore[no-untyped-def]
        try:
            load_program(directory, PROFILE_PROGRAM)["handle_request"](directory)
        except Exception as error:  # the job continues
            sys.muster_profile_error = error  # type: ignore[attr-defined]

    set_handler = _signal.signal  # what signal.signal calls

    def set_own_handler(number, handler):  # type: ignore[no-untyped-def]
        if number == SIGTERM:
            release_sigterm()
        return set_handler(number, handler)

    set_handler(STACK_SIGNAL, _signal.SIG_IGN)  # the handler that faulthandler restores when the interpreter exits
    faulthandler.register(STACK_SIGNAL, file=descriptor, all_threads=False)
    set_handler(PYTHON_STACK_SIGNAL, write_stack)
    set_handler(PROFILE_SIGNAL, profile)
    for number in (PYTHON_STACK_SIGNAL, PROFILE_SIGNAL):
        _signal.siginterrupt(number, False)  # system calls in C code are resumed
    faulthandler.register(NO_OWN_SIGTERM_HANDLER, file=descriptor, all_threads=False)
    faulthandler.register(SIGTERM, file=descriptor, all_threads=False, chain=True)
    _signal.signal = set_own_handler
    os.register_at_fork(after_in_child=release_sigterm)  # data loaders may end many child processes
    atexit.register(remove)


def load_program(directory, name):  # type: ignore[no-untyped-def]
    """Execute a program from the hooks directory, once per process, and return the program's namespace."""
    names = sys.__dict__.setdefault("muster_" + name, {})
    if not names:
        path = os.path.join(directory, HOOKS, name)
        with open(path) as stream:
            names["__name__"] = "muster_" + name[:-3]
            exec(compile(stream.read(), path, "exec", dont_inherit=True), names)
    return names


def import_hidden(hooks):  # type: ignore[no-untyped-def]
    """Execute the sitecustomize that this one shadows, if any, as site would have done."""
    sys.path[:] = [entry for entry in sys.path if entry != hooks]
    sys.modules.pop("sitecustomize", None)
    __import__("sitecustomize")


if __name__ == "sitecustomize":
    hooks_directory = os.path.dirname(os.path.abspath(__file__))
    try:
        install(os.path.dirname(hooks_directory))
    except Exception as error:  # the job runs without the hook
        sys.muster_stack_hook_error = error  # type: ignore[attr-defined]
    if os.path.exists(os.path.join(hooks_directory, DEBUG_PROGRAM)):
        try:
            run_directory = os.path.dirname(hooks_directory)
            load_program(run_directory, DEBUG_PROGRAM)["main"](run_directory, os.environ.get(RANK_PROCESS, ""))
        except Exception as error:
            sys.stderr.write("muster: the debugger cannot be prepared: " + str(error) + "\n")
    import_hidden(hooks_directory)
