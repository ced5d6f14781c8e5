# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a run on a node: write its directory, and start its supervisor."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import pwd
import shutil
import sys
import tempfile
import time

from ansible_collections.muster.training.plugins.module_utils._run.directory_safety import make_run_directory
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    private_plan,
    remove_directory,
    runs_directory,
)
from ansible_collections.muster.training.plugins.module_utils._run.gpu_claims import (
    claim_of,
    describe_gpus,
    share_gpus,
)
from ansible_collections.muster.training.plugins.module_utils._run.hub_node import can_succeed
from ansible_collections.muster.training.plugins.module_utils._run.identity import (
    RunError,
    become_user,
    run_as_root,
    user_name,
)
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import find_supervisors, unit_of
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import write_private
from ansible_collections.muster.training.plugins.module_utils._run.secrets import (
    MEMORY_ROOT,
    NOTIFY,
    SECRETS,
    memory_directory,
    remove_secrets,
)
from ansible_collections.muster.training.plugins.module_utils._run.stop import stop
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import plan_text, read_plan
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    ABANDONED_TIMEOUT,
    START_LOCK_POLL_INTERVAL,
    START_LOCK_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._run.unit import (
    SINCE_243,
    keep_shared_memory,
    unit_command,
)
from ansible_collections.muster.training.plugins.module_utils._slurm import queued_run

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Iterator

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

START_LOCK = "/tmp/.muster-start-{uid}.lock"  # held by a start until its supervisor becomes visible


def start(request: Data) -> Data:
    """Write the run directory and start the supervisor in its unit.

    The plan has already been checked against the node's facts. Of two simultaneous starts, the second sees the first.
    """
    with start_lock():
        return start_locked(request)


def start_locked(request: Data) -> Data:  # noqa: C901
    """Start a run while no other start by this user is in progress on this machine."""
    plan, user = request["plan"], request.get("user") or pwd.getpwuid(os.geteuid()).pw_name
    directory = os.path.join(runs_directory(request), plan["run_id"], f"node{plan['node']['node_rank']}")
    alive = find_supervisors()
    for supervisor in alive:
        if supervisor["directory"] == directory:
            existing_plan = read_plan(directory)
            if existing_plan == plan:
                label = supervision_label(unit_of(supervisor["pid"]))
                return {"changed": False, "directory": directory, "supervision": label, "stopped": []}
            raise RunError(
                f"run {plan['run_id']} is already running on this node with a different plan: stop it first, or "
                "choose another run_id"
            )
    remove_old_secrets(request, [other["directory"] for other in alive])
    gpus = plan.get("gpus") or []
    stopped = stop({**request, "run_id": "", "gpus": gpus})["stopped"] if request["replace"] else []
    # a run to be replaced may already have ended: the first node stops its part, which ends the run
    if not request.get("share"):
        check_free(find_supervisors() if request["replace"] else alive, plan, directory)
    in_unit = plan["supervision"] == "auto" and os.path.isdir("/run/systemd/system") and shutil.which("systemd-run")
    if in_unit:
        keep_shared_memory()
        make_memory_directory()
    make_run_directory(directory, plan["run_id"])
    try:
        for name in ("ranks", "measured"):  # "measured" is for files that the job wants to keep
            os.mkdir(os.path.join(directory, name), 0o700)
        write_private(os.path.join(directory, "plan.json"), plan_text(plan))
        environment = dict(request["environment"], MUSTER_RUN_DIRECTORY=directory)
        secrets = {"environment.json": json.dumps(environment), "token": request["token"]}
        # the second node reports the loss of the first
        if request.get("notify") and (plan["node"]["node_rank"] <= 1 or can_succeed(plan)):
            secrets[NOTIFY] = json.dumps(request["notify"])
        write_secrets(directory, secrets)
        write_supervisor(directory, request["supervisor"])
        for name, content in plan.get("files", {}).items():
            write_private(os.path.join(directory, name), content)
        for name, source in request.get("programs", {}).items():
            # a container image has its own Python
            python = "/usr/bin/env -S python3" if plan.get("wrap") else sys.executable
            write_program(os.path.join(directory, "bin", name), python, source)
    except OSError as error:
        with contextlib.suppress(OSError):
            remove_directory(directory)
        raise RunError(f"cannot write the run directory {directory}: {error}") from None
    program = os.path.join(directory, "supervisor.py")
    tail = [directory, plan["run_id"], plan["node"]["address"]]
    if request.get("scheduler") == "slurm":
        queued_run.mark_as_queued(directory, request.get("requeue") or 0)
        queued_run.compile_program(directory)
        return {"changed": True, "directory": directory, "supervision": "Slurm job", "stopped": stopped}
    if in_unit:
        command = unit_command(plan, directory, user, [sys.executable, "-I", "-S", program] + tail)
        completed = run_as_root(command)
        if completed is not None and completed.returncode != 0 and "nknown assignment" in completed.stderr:
            completed = run_as_root(
                [argument for argument in command if argument.rpartition("--property=")[2] not in SINCE_243]
            )
        if completed is not None and completed.returncode != 0:
            with contextlib.suppress(OSError):
                remove_directory(directory)
            raise RunError(f"systemd-run could not start the unit {plan['unit']}: {completed.stderr.strip()}")
        if completed is not None:
            label = supervision_label(plan["unit"])
            return {"changed": True, "directory": directory, "supervision": label, "stopped": stopped}
    guarded = [sys.executable, "-I", "-S", program, "--guard"] + tail
    try:
        spawn_detached(guarded)
    except RunError:
        with contextlib.suppress(OSError):
            remove_directory(directory)
        raise
    return {"changed": True, "directory": directory, "supervision": supervision_label(""), "stopped": stopped}


def check_free(alive: list[Data], plan: Data, directory: str) -> None:
    """Raise RunError if another run on this node is using any of this plan's GPUs."""
    for supervisor in alive:
        # nodes that share a machine have their own addresses or belong to the same run
        same_node = supervisor["address"] == plan["node"]["address"] or plan["supervision"] == "auto"
        if not same_node or os.path.dirname(supervisor["directory"]) == os.path.dirname(directory):
            continue
        gpus = claim_of(supervisor["directory"])["gpus"]
        if share_gpus(gpus, plan.get("gpus") or []):
            raise RunError(
                f"run {supervisor['run_id']}, owned by {supervisor['owner']}, is still running on this "
                f"node{describe_gpus(gpus)}, in {supervisor['directory']}: wait for it to finish, or stop it with "
                "stop.yml and the inventory, launch_user and launch_node_directory that it was launched with, or "
                f"on this node with: sudo kill {supervisor['pid']}"
            )


@contextlib.contextmanager
def start_lock() -> Iterator[None]:
    """Make a start by this user on this machine wait until the supervisor of the previous start is visible.

    The lock is in a directory that machines do not share. It is skipped if another account owns that file.
    """
    path = START_LOCK.format(uid=os.geteuid())
    lock = take_lock(path)
    try:
        yield
    finally:
        if lock >= 0:
            with contextlib.suppress(OSError):
                os.unlink(path)  # unlink before releasing: whoever is waiting for it checks that it is still this file
            os.close(lock)


def take_lock(path: str) -> int:
    """Lock a file once no other process has locked it; return its descriptor, or -1 if it cannot be used."""
    uid, deadline = os.geteuid(), time.monotonic() + START_LOCK_TIMEOUT
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError:
            return -1
        if os.fstat(lock).st_uid != uid:
            os.close(lock)
            return -1
        # the lock is held by another process, or its last holder removed it
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.lstat(path)):
                return lock
        os.close(lock)
        if time.monotonic() > deadline:
            raise RunError(
                f"another launch by {user_name(uid)} has been starting a run on this node for "
                f"{START_LOCK_TIMEOUT:.0f} s: wait for it to finish, or kill the process that holds {path} (sudo "
                f"fuser {path})"
            )
        time.sleep(START_LOCK_POLL_INTERVAL)


def make_memory_directory() -> None:
    """Create this user's directory for in-memory secrets, below a directory in which only root can create entries."""
    path = memory_directory()
    if not os.path.isdir(path) and os.path.isdir("/run/systemd/system"):
        script = 'umask 022; mkdir -p "$1" && mkdir -m 0700 "$2" && chown "$3" "$2"'
        # without root, secrets stay in the run directory
        run_as_root(["/bin/sh", "-c", script, "sh", MEMORY_ROOT, path, f"{os.geteuid()}:{os.getegid()}"])


def remove_old_secrets(request: Data, alive: list[str]) -> None:
    """Remove the secrets of this node's runs that did not survive a crash or reboot of the machine.

    alive: directories of the runs that are alive on this machine. A home shared by several nodes also holds the runs of
    the others, and a run that is just starting has no supervisor.json yet.
    """
    queued_run.remove_ended_files(runs_directory(request))
    runs = glob.escape(runs_directory(request))
    for secret in [path for name in SECRETS for path in glob.glob(os.path.join(runs, "*", "node*", name))]:
        directory = os.path.dirname(secret)
        with contextlib.suppress(OSError):
            plan = private_plan(directory, request["node"])
            is_leftover = plan is not None and plan["node"]["name"] == request["node"] and directory not in alive
            has_started = os.path.exists(os.path.join(directory, "supervisor.json"))
            is_abandoned = time.time() - os.lstat(secret).st_mtime > ABANDONED_TIMEOUT
            if is_leftover and (has_started or (is_abandoned and not queued_run.is_waiting(directory))):
                remove_secrets(directory)


def write_secrets(directory: str, secrets: dict[str, str]) -> None:
    """Write a run's secrets to memory, with links in the run directory, or to the run directory if that is
    impossible.
    """
    target = directory
    with contextlib.suppress(OSError):  # no in-memory directory
        target = tempfile.mkdtemp(prefix="run-", dir=memory_directory())
    for name, text in secrets.items():
        if target != directory:
            os.symlink(os.path.join(target, name), os.path.join(directory, name))
        write_private(os.path.join(target, name), text)


def write_supervisor(directory: str, files: dict[str, str]) -> None:
    """Write the supervisor's source files to a run directory, readable only by its user; files: source by path."""
    for name, source in files.items():
        folder = directory
        for part in name.split("/")[:-1]:
            folder = os.path.join(folder, part)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        write_private(os.path.join(directory, name), source)


def write_program(path: str, python: str, source: str) -> None:
    """Write an executable Python program."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_private(path, f"#!{python} -IS\n{source}")
    os.chmod(path, 0o700)


def spawn_detached(arguments: list[str]) -> None:
    """Start a silent process that outlives this one and its terminal; return once it runs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        try:
            os.close(reader)
            if os.getuid() != os.geteuid():
                become_user()
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.chdir("/")
            os.closerange(3, writer)
            os.set_inheritable(writer, False)  # a successful exec closes it, which is what the parent is waiting for
            os.execv(arguments[0], arguments)
        except OSError as error:
            os.write(writer, str(error).encode())
        os._exit(127)
    os.close(writer)
    os.waitpid(child, 0)  # only this child, not the caller's other children
    with os.fdopen(reader, "rb") as stream:
        problem = stream.read().decode()
    if problem:
        raise RunError(f"cannot start the supervisor with {arguments[0]}: {problem}")


def supervision_label(unit: str) -> str:
    """Return the mechanism that ends a run's processes if its supervisor is killed: its unit, or its process group."""
    return f"unit {unit}" if unit else "process group"
