# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's side of a run: start, stop, remove, read, watch and pack it. Private to this collection.

Runs on the node, standard library only. Each public function takes a request and returns a dict; ``RunError`` carries a
message for a person. A run lies in ``RUNS_DIRECTORY/RUN_ID/nodeRANK`` on its node, readable by its user alone.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import glob
import grp
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from collections.abc import Iterator
    from typing import Any, Dict

    Data = Dict[str, Any]

# This file runs alone on a node: there is no AnsibleModule whose run_command could be called instead of subprocess.
# pylint: disable=ansible-bad-function

CAP_SYS_RESOURCE = 24  # linux/capability.h
ACTIVE_STATES = ("starting", "running", "stopping")
CHUNK = 262144  # bytes of one log that one answer carries
BACKLOG = 8 * CHUNK  # bytes of a log that may wait to be shown; of more, only the end is
RESULT_MARK = b"MUSTER_RESULT "  # begins a line in which a job reports what it has reached
LONGEST_RESULT = 65536  # bytes of such a line; a longer one is output like any other
COLLECTING = 0.5  # seconds for which output is collected before it is handed on: each answer costs a new process
PIECE = 8 * 1024 * 1024  # bytes of an archive that one answer carries
SECRETS = ("token", "environment.json")  # files that are not needed after the end of a run, as the supervisor has them
HANG_MARGIN = 5.0  # seconds beyond `silence` for which a supervisor may show no life on its own node, as in _supervisor
# What systemd knows since 240 and 243: without it a supervisor that hangs is ended later, after its stop timeout.
SINCE_243 = ("WatchdogSignal=SIGKILL", "TimeoutAbortSec=5")
LEFT_BEHIND = 600.0  # seconds after which a run that has no supervisor yet will never have one
LOGIND = "/run/systemd/logind.conf.d/50-muster.conf"  # lasts until the next boot, as runs do
IN_MEMORY = "/run/muster"  # root's; the same: where a machine has lost its power, nothing of it is left
START_LOCK = "/tmp/.muster-start-{uid}.lock"  # held by a start until its supervisor can be seen
START_PATIENCE = 120.0  # seconds that a start waits for another one of the same user on this machine
MAX_LINKS = 40  # as the kernel has it
LIMITS = ("LimitMEMLOCK=infinity", "LimitNOFILE=1048576", "TasksMax=infinity")


class RunError(Exception):
    """What is wrong, in words for a person."""


def act_as(user: str) -> None:
    """Have the run's user's rights from now on, where we are root: whatever that user owns may be a link to anything.

    Root stays within reach of as_root().
    """
    entry = user_entry(user)
    if os.geteuid() != 0 or entry.pw_uid == 0:
        return
    os.initgroups(user, entry.pw_gid)
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=user, LOGNAME=user, SHELL=entry.pw_shell)


def runs_directory(request: Data) -> str:
    """Return where the runs of the request's user lie, as an absolute path."""
    path = request["runs_directory"]
    user = request.get("user")
    if user and path.startswith("~/"):
        return os.path.join(user_entry(user).pw_dir, path[2:])
    return os.path.abspath(os.path.expanduser(path))


def user_entry(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise RunError(
            f"there is no user {name!r} on this node: create it, or set launch_user to one that exists"
        ) from None


def read_json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


# --- which runs are alive --------------------------------------------------------------------------------------------


def owner_of(path: str) -> int:
    """Return the uid of the owner of a path, or of the nearest directory above it that can be seen."""
    while True:
        try:
            return os.stat(path).st_uid
        except PermissionError:
            path = os.path.dirname(path)


def may_supervise(pid: int, directory: str) -> bool:
    """Whether a process whose command line names a run directory can be that run's supervisor.

    Everybody may write what they like into their command line. So it must run in a unit of ours, which only root makes,
    or belong to root, to us, or to the owner of the directory.
    """
    try:
        user = os.stat(f"/proc/{pid}").st_uid
        return user in (0, os.geteuid()) or bool(unit_of(pid)) or user == owner_of(directory)
    except OSError:  # it has ended, or there is no such directory
        return False


def supervisors() -> list[Data]:
    """Return the supervisors that run on this machine, whoever started them: run_id, address, directory, pid."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as stream:
                    words = stream.read().decode("utf-8", "replace").split("\0")[:-1]
            except OSError:
                continue
            if len(words) >= 4 and (words[-4] == "--guard" or words[-4].endswith("/supervisor.py")):
                directory, run_id, address = words[-3:]
                named = directory.startswith("/") and os.path.basename(os.path.dirname(directory)) == run_id
                if named and may_supervise(int(name), directory):
                    found.append({"run_id": run_id, "address": address, "directory": directory, "pid": int(name)})
    return found


def is_alive(directory: str) -> bool:
    noted = read_json(os.path.join(directory, "supervisor.json"))
    if noted:  # most of the time that settles it, and costs less than to look at every process
        try:
            with open(f"/proc/{noted['pid']}/cmdline", "rb") as stream:
                if os.fsencode(directory) in stream.read().split(b"\0") and may_supervise(noted["pid"], directory):
                    return True
        except OSError:
            pass
    return any(one["directory"] == directory for one in supervisors())


def marked_processes(directory: str) -> list[int]:
    """Return the pids of processes started in this run directory, found by the environment that they inherited."""
    mark = b"MUSTER_RUN_DIRECTORY=" + os.fsencode(directory)
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as stream:
                    if mark in stream.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
    return found


def may_list(directory: str) -> bool:
    """Whether we see what is in the directory of a run."""
    try:
        os.listdir(directory)
    except OSError:
        return False
    return True


def is_removed(directory: str) -> bool:
    """Whether there is no such directory; False also where that cannot be seen."""
    try:
        os.lstat(directory)
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


def alive_elsewhere(request: Data) -> None:
    """Raise RunError where the run of the request lives on this machine, but not in a directory that was looked in.

    It has another one, or none any more.
    """
    looked_in = runs_directory(request)
    alive = supervisors()
    for one in alive:
        runs = os.path.dirname(os.path.dirname(one["directory"]))
        if one["run_id"] != request.get("run_id") or (runs == looked_in and may_list(one["directory"])):
            continue
        if is_removed(one["directory"]) and may_list(runs):
            unit = unit_of(one["pid"])
            pids = " ".join(str(other["pid"]) for other in alive if other["directory"] == one["directory"])
            command = f"sudo systemctl stop {unit}.service" if unit else f"kill {pids}"
            raise RunError(
                f"run {one['run_id']} is alive here, and its directory {one['directory']} was removed: "
                f"what it writes is lost. End it on this node with: {command}"
            )
        try:
            user = pwd.getpwuid(os.stat(f"/proc/{one['pid']}").st_uid).pw_name
        except (OSError, KeyError):  # it ended in this moment, or has a user of elsewhere
            user = "another user"
        raise RunError(
            f"run {one['run_id']} is alive here, but in {one['directory']} of {user}, which was not looked in: say "
            f"-e launch_user={user}, or -e launch_node_directory={runs}, as it was launched"
        )


# --- whose directories -----------------------------------------------------------------------------------------------


def steps_to(path: str) -> Iterator[str]:
    """Yield each directory and each link on the way from the root to an absolute path, in this order."""
    here, left, links = "/", path.split("/"), 0
    yield here
    while left:
        word = left.pop(0)
        if word in ("", "."):
            continue
        if word == "..":
            here = os.path.dirname(here)
            continue
        step = os.path.join(here, word)
        yield step
        try:
            target = os.readlink(step)
        except OSError:  # a directory, or nothing yet
            here = step
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        left = target.split("/") + left
        if target.startswith("/"):
            here = "/"


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def others_may_write(found: os.stat_result) -> bool:
    """Whether somebody else than the owner and root may add and remove names in a directory.

    The group that has the name of its only user, and that user as its owner, is nobody else.
    """
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or stat.S_ISLNK(found.st_mode):
        return False
    try:
        private = found.st_gid == 0 or grp.getgrgid(found.st_gid).gr_name == user_name(os.geteuid())
    except KeyError:
        private = False
    return bool(found.st_mode & stat.S_IWOTH) or not private


def is_ours(path: str) -> bool:
    """Whether a directory is our own and nobody else may write it."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not others_may_write(found)


def is_ours_with_run(directory: str) -> bool:
    """Whether a node's directory of a run is our own, and the run's directory above it."""
    return is_ours(os.path.dirname(directory)) and is_ours(directory)


def refuse_others(path: str) -> None:
    """Raise RunError where somebody else may exchange what lies below a path, as far as it is there.

    From the root down, so that a directory that was found safe cannot be exchanged by who owns one above it.
    """
    for step in steps_to(path):
        try:
            found = os.lstat(step)
        except FileNotFoundError:  # we make what is not there yet, and look again
            return
        mine = user_name(os.geteuid())
        if found.st_uid not in (0, os.geteuid()):
            problem, remedy = f"{step} belongs to {user_name(found.st_uid)}", ""
        elif others_may_write(found) and not found.st_mode & stat.S_ISVTX:
            problem, remedy = f"other accounts can write {step}", f", or take that away: chmod go-w {step}"
        else:
            continue
        raise RunError(
            f"{problem}: whoever can write there could exchange the program that is to run as {mine}. Needed: each "
            f"directory on the way to {path} belongs to {mine} or root, and no other account can write it, unless it "
            f"has the sticky bit as /tmp has. Choose another launch_node_directory{remedy}"
        )


def make_run_directory(directory: str, run_id: str) -> None:
    """Make the directory of a run on this node, where nobody else can exchange what we write into it."""
    above = os.path.dirname(directory)
    runs = os.path.dirname(above)
    try:
        refuse_others(runs)
        os.makedirs(runs, mode=0o700, exist_ok=True)
        refuse_others(runs)
        with contextlib.suppress(FileExistsError):  # another node's part of the run lies in the same directory
            os.mkdir(above, 0o700)
        if not is_ours(above):
            raise RunError(
                f"cannot make the run directory {directory}: {above} was not made by {user_name(os.geteuid())}, or "
                "other accounts can write it: they could exchange the program of the run. Choose another run_id, or "
                f"remove {above} on this node"
            )
        if os.path.lexists(directory):
            raise RunError(f"run_id {run_id} is taken: {directory} exists on this node; choose another run_id")
        os.mkdir(directory, 0o700)
    except OSError as error:
        raise RunError(f"cannot make the run directory {directory}: {error}") from None


# --- start -----------------------------------------------------------------------------------------------------------


def be_root() -> None:
    """Undo act_as()."""
    os.seteuid(0)
    os.setegid(0)
    os.setgroups([])


def be_the_user() -> None:
    """Make act_as() final."""
    user, group = os.geteuid(), os.getegid()
    os.seteuid(0)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def as_root(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command as root; return how it ended, None where root is not to be had."""

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        regain = None if os.getuid() == os.geteuid() else be_root
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, preexec_fn=regain
        )

    if os.getuid() == 0:
        return run(command)
    if not shutil.which("sudo"):
        return None
    done = run(["sudo", "-n", *command])
    # only where it failed is it worth a process to ask who failed
    return None if done.returncode != 0 and run(["sudo", "-n", "true"]).returncode != 0 else done


def keep_shared_memory() -> None:
    """Have logind leave what the run's user shares by name when that user's last login ends.

    RemoveIPC=yes, the default (logind.conf(5)), takes a user's /dev/shm, semaphores and queues 10 s after the last
    connection has gone, from a unit that runs on as well: workers of a data loader that open one by its name would die
    of it. No setting of a unit or a user prevents it.
    """
    if os.path.exists(LOGIND) or not os.path.isdir("/run/systemd/system"):
        return
    script = (
        'umask 022; mkdir -p "${1%/*}" && printf "[Login]\\nRemoveIPC=no\\n" > "$1" '
        '&& { systemctl kill --signal=HUP systemd-logind.service || rm -f "$1"; }'
    )
    as_root(["/bin/sh", "-c", script, "sh", LOGIND])  # without logind, or root, there is nothing that could be done


def place_in_memory() -> str:
    """Where this user can keep what is to end with this boot, such as the secrets of a run."""
    return os.path.join(IN_MEMORY, str(os.geteuid()))


def make_place_in_memory() -> None:
    """Make this user's place in memory, in a directory in which nobody but root makes any."""
    place = place_in_memory()
    if not os.path.isdir(place) and os.path.isdir("/run/systemd/system"):
        script = 'umask 022; mkdir -p "$1" && mkdir -m 0700 "$2" && chown "$3" "$2"'
        # without root they lie in the run directory
        as_root(["/bin/sh", "-c", script, "sh", IN_MEMORY, place, f"{os.geteuid()}:{os.getegid()}"])


def may_raise_limits() -> bool:
    """Whether systemd itself may raise limits.

    In many containers it may not, and a unit that asks for it would not start.
    """
    with open("/proc/1/status", encoding="ascii") as stream:
        for line in stream:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def unit_command(plan: Data, directory: str, user: str, arguments: list[str]) -> list[str]:
    """Return the systemd-run command of a run's unit."""
    secrets = [os.path.join(directory, name) for name in SECRETS]
    in_memory = {os.path.dirname(os.readlink(path)) for path in secrets if os.path.islink(path)}
    leftovers = [plan["temporary_directory"], *secrets, *sorted(in_memory)]
    properties = [
        "KillMode=mixed",
        f"TimeoutStopSec={plan['timeouts']['grace'] + 20}",
        "OOMPolicy=continue",
        "NotifyAccess=main",
        f"WatchdogSec={plan['timeouts']['silence'] + HANG_MARGIN:g}",
        *SINCE_243,
        f"ExecStopPost=/bin/rm -rf {' '.join(json.dumps(path) for path in leftovers)}",
    ]
    if plan.get("remove"):
        properties.append(f"ExecStopPost=-/usr/bin/env {' '.join(plan['remove'])}")
    if may_raise_limits():
        properties.extend(LIMITS)
    return (
        [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={plan['unit']}.service",
            f"--uid={user}",
            "--service-type=exec",
        ]
        + [f"--description=muster run {plan['run_id']}, node {plan['node']['node_rank']}"]
        + ["--property=" + one for one in properties]
        + ["--"]
        + arguments
    )


def write_private(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def write_secrets(directory: str, secrets: dict[str, str]) -> None:
    """Write what only a living run needs: into memory, with links in its directory, where there is a place for it."""
    place = directory
    with contextlib.suppress(OSError):  # there is none
        place = tempfile.mkdtemp(prefix="run-", dir=place_in_memory())
    for name, text in secrets.items():
        if place != directory:
            os.symlink(os.path.join(place, name), os.path.join(directory, name))
        write_private(os.path.join(place, name), text)


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


def remove_directory(directory: str) -> None:
    """Remove a run directory with all that belongs to it elsewhere, and the run's own where no other node lies there.

    Raise OSError where something in it cannot be removed.
    """
    forget_secrets(directory)
    shutil.rmtree(directory)
    with contextlib.suppress(OSError):  # another node of this machine lies there too
        os.rmdir(os.path.dirname(directory))


def write_program(path: str, python: str, source: str) -> None:
    """Write a Python program that can be called by its name."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_private(path, f"#!{python} -IS\n{source}")
    os.chmod(path, 0o700)


def spawn_detached(arguments: list[str]) -> None:
    """Start a process that outlives this one and its terminal, and says nothing; return once it runs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        try:
            os.close(reader)
            if os.getuid() != os.geteuid():
                be_the_user()
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.chdir("/")
            os.closerange(3, writer)
            os.set_inheritable(writer, False)  # closed by a successful exec: that is what the parent waits for
            os.execv(arguments[0], arguments)
        except OSError as error:
            os.write(writer, str(error).encode())
        os._exit(127)
    os.close(writer)
    os.waitpid(child, 0)  # and no other child of whoever calls
    with os.fdopen(reader, "rb") as stream:
        problem = stream.read().decode()
    if problem:
        raise RunError(f"cannot start the supervisor with {arguments[0]}: {problem}")


def remove_old_secrets(request: Data, alive: list[str]) -> None:
    """Remove what earlier runs of this node have left of their secrets, where the machine went down under them.

    alive: the directories of runs that live on this machine. In a home of several nodes lie those of others, too, and
    one that is being started has no supervisor yet, which would have left its supervisor.json.
    """
    runs = glob.escape(runs_directory(request))
    for secret in [path for name in SECRETS for path in glob.glob(os.path.join(runs, "*", "node*", name))]:
        directory = os.path.dirname(secret)
        with contextlib.suppress(OSError):
            plan = read_json(os.path.join(directory, "plan.json")) if is_ours_with_run(directory) else None
            mine = plan is not None and plan["node"]["name"] == request["node"] and directory not in alive
            begun = os.path.exists(os.path.join(directory, "supervisor.json"))
            if mine and (begun or time.time() - os.lstat(secret).st_mtime > LEFT_BEHIND):
                forget_secrets(directory)


@contextlib.contextmanager
def one_start_at_a_time() -> Iterator[None]:
    """Let a start of this user on this machine wait until the supervisor of the one before it can be seen.

    In a place that no two machines share. Without a lock where another account has taken its name.
    """
    uid, deadline = os.geteuid(), time.monotonic() + START_PATIENCE
    path = START_LOCK.format(uid=uid)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        lock = -1
    try:
        while lock >= 0 and os.fstat(lock).st_uid == uid:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RunError(
                        f"another launch of {user_name(uid)} has been starting a run on this node for "
                        f"{START_PATIENCE:.0f} s: wait for it, or end the process that holds {path} "
                        f"(sudo fuser {path})"
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        if lock >= 0:
            os.close(lock)


def start(request: Data) -> Data:
    """Write the run directory and start the supervisor in its unit.

    The plan has been checked against the node's facts. Of two starts at one moment the second one sees the first.
    """
    with one_start_at_a_time():
        return start_alone(request)


def start_alone(request: Data) -> Data:
    plan, user = request["plan"], request.get("user") or pwd.getpwuid(os.geteuid()).pw_name
    directory = os.path.join(runs_directory(request), plan["run_id"], f"node{plan['node']['node_rank']}")
    alive = supervisors()
    for one in alive:
        if one["directory"] == directory:
            plan_there = read_json(os.path.join(directory, "plan.json"))
            if plan_there == plan:
                how = supervision(unit_of(one["pid"]))
                return {"changed": False, "directory": directory, "supervision": how, "stopped": []}
            raise RunError(
                f"run {plan['run_id']} is running here already with another plan: "
                "stop it first, or choose another run_id"
            )
    remove_old_secrets(request, [one["directory"] for one in alive])
    stopped = stop({**request, "run_id": ""})["stopped"] if request["replace"] else []
    for one in [] if request.get("share") else supervisors() if stopped else alive:
        # nodes of one machine have addresses of their own there, or are of the same run
        here = one["address"] == plan["node"]["address"] or plan["supervision"] == "auto"
        if here and os.path.dirname(one["directory"]) != os.path.dirname(directory):
            raise RunError(
                f"run {one['run_id']} is alive on this node, in {one['directory']}: wait for it, or stop it as it was "
                "launched (its inventory, launch_user and launch_node_directory) with stop.yml"
            )
    in_unit = plan["supervision"] == "auto" and os.path.isdir("/run/systemd/system") and shutil.which("systemd-run")
    if in_unit:
        keep_shared_memory()
        make_place_in_memory()
    make_run_directory(directory, plan["run_id"])
    try:
        os.mkdir(os.path.join(directory, "ranks"), 0o700)
        write_private(os.path.join(directory, "plan.json"), json.dumps(plan, indent=1, sort_keys=True))
        environment = dict(request["environment"], MUSTER_RUN_DIRECTORY=directory)
        write_secrets(directory, {"environment.json": json.dumps(environment), "token": request["token"]})
        write_private(os.path.join(directory, "supervisor.py"), request["supervisor"])
        for name, content in plan.get("files", {}).items():
            write_private(os.path.join(directory, name), content)
        for name, source in request.get("programs", {}).items():
            # the image of a container has a Python of its own
            python = "/usr/bin/env -S python3" if plan.get("wrap") else sys.executable
            write_program(os.path.join(directory, "bin", name), python, source)
    except OSError as error:
        with contextlib.suppress(OSError):
            remove_directory(directory)
        raise RunError(f"cannot write the run directory {directory}: {error}") from None
    program = os.path.join(directory, "supervisor.py")
    tail = [directory, plan["run_id"], plan["node"]["address"]]
    if in_unit:
        command = unit_command(plan, directory, user, [sys.executable, "-I", "-S", program] + tail)
        done = as_root(command)
        if done is not None and done.returncode != 0 and "nknown assignment" in done.stderr:
            done = as_root([word for word in command if word.rpartition("--property=")[2] not in SINCE_243])
        if done is not None and done.returncode != 0:
            with contextlib.suppress(OSError):
                remove_directory(directory)
            raise RunError(f"systemd-run could not start the unit {plan['unit']}: {done.stderr.strip()}")
        if done is not None:
            how = supervision(plan["unit"])
            return {"changed": True, "directory": directory, "supervision": how, "stopped": stopped}
    guarded = [sys.executable, "-I", "-S", program, "--guard"] + tail
    try:
        spawn_detached(guarded)
    except RunError:
        with contextlib.suppress(OSError):
            remove_directory(directory)
        raise
    return {"changed": True, "directory": directory, "supervision": supervision(""), "stopped": stopped}


def supervision(unit: str) -> str:
    """What ends a run's processes should its supervisor be killed; unit: "" without one."""
    return f"unit {unit}" if unit else "process group"


# --- read ------------------------------------------------------------------------------------------------------------


def node_directories(request: Data) -> list[tuple[str, Data]]:
    """Return the run directories of this node (by name: several nodes may share a machine or a home), newest first."""
    run_id = request.get("run_id") or "*"
    found = []
    for path in glob.glob(
        os.path.join(glob.escape(runs_directory(request)), run_id if run_id == "*" else glob.escape(run_id), "node*")
    ):
        plan = read_json(os.path.join(path, "plan.json")) if is_ours_with_run(path) else None
        if plan and plan["node"]["name"] == request["node"]:
            found.append((os.stat(os.path.join(path, "plan.json")).st_mtime, path, plan))
    return [(path, plan) for _time, path, plan in sorted(found, reverse=True)]


def last_line(path: str) -> str:
    from ansible_collections.muster.training.plugins.module_utils import _supervisor

    lines = [line.strip() for line in _supervisor.read_tail(path, 4096).splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")


def gpus_now(path: str) -> Data | None:
    """Return the newest sample of the GPUs and its age in seconds, None where none was taken."""
    from ansible_collections.muster.training.plugins.module_utils import _gpu_samples, _supervisor

    taken, devices = _gpu_samples.last_sample(_supervisor.read_tail(os.path.join(path, _gpu_samples.FILE)))
    return {"age": max(0.0, time.time() - taken), "devices": devices} if devices else None


def describe(path: str, plan: Data) -> Data:
    """Return what there is to say of a run on this node."""
    from ansible_collections.muster.training.plugins.module_utils import _supervisor

    status = read_json(os.path.join(path, "status.json")) or {
        "state": "starting",
        "message": "",
        "since": os.stat(path).st_mtime,
    }
    state, message = status["state"], status["message"]
    if state in (*ACTIVE_STATES, "ended") and not is_alive(path):  # ended: it waited for rank 0's last word
        state = "died"
        message = "the supervisor is gone without a last word (killed, ended since it hung, or the node went down)"
    local_rank = 0
    out, err = _supervisor.rank_logs(plan, path, local_rank)
    newest = max((out, err), key=lambda name: os.path.getmtime(name) if os.path.exists(name) else 0.0)
    return {
        "run_id": plan["run_id"],
        "node": plan["node"]["name"],
        "node_rank": plan["node"]["node_rank"],
        "ranks": list(range(plan["node"]["first_rank"], plan["node"]["first_rank"] + plan["node"]["slots"])),
        "nnodes": len(plan["nodes"]),
        "world_size": plan["world_size"],
        "state": state,
        "message": message,
        "since": status["since"],
        "last_line": last_line(newest),
        "silence": silence_of([out, err]) if state == "running" else None,
        "gpus": gpus_now(path) if state == "running" else None,
        "directory": path,
        "report": status.get("report"),
        "result": read_json(os.path.join(path, "result.json")),
    }


def read(request: Data) -> Data:
    """Return the facts of a run on this node, or of its newest run where none is named.

    ``run`` is None where there is none.
    ``wait``: seconds to wait for its end first.
    """
    found = node_directories(request)
    if not found:
        alive_elsewhere(request)
    deadline = time.monotonic() + request["wait"]
    while found and is_alive(found[0][0]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return {"changed": False, "run": describe(*found[0]) if found else None}


# --- stop, remove ----------------------------------------------------------------------------------------------------


def stop(request: Data) -> Data:
    """End a run on this node and return once nothing of it is left."""
    stopped, left = [], []
    found = node_directories(request)
    if not found:
        alive_elsewhere(request)
    for path, plan in found:
        alive = is_alive(path)
        if alive or (request.get("run_id") and marked_processes(path)):
            stopped.append(plan["run_id"])
            if not request["check"]:
                left += stop_one(path, plan, alive)
        if not request["check"]:
            forget_secrets(path)  # left where the supervisor was killed, and its guard or machine with it
    if left:
        pids = ", ".join(str(pid) for pid in left)
        raise RunError(
            f"these processes of run {stopped[0]} do not end, not even by SIGKILL "
            f"(waiting for a device or a dead mount): {pids}; the node needs a reboot"
        )
    return {"changed": bool(stopped), "stopped": stopped}


def unit_of(pid: int) -> str:
    """Return the name of our unit in which a process runs, without ".service"; "" where it runs in none.

    By the kernel's word: all that lies in a run directory is its user's to write, and root stops what is named here.
    """
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as stream:
            paths = [line.rstrip("\n").split(":", 2)[2] for line in stream]
    except OSError:
        return ""
    units = [os.path.splitext(os.path.basename(path)) for path in paths if os.path.dirname(path) == "/system.slice"]
    return next((name for name, kind in units if name.startswith("muster-") and kind == ".service"), "")


def stop_one(path: str, plan: Data, alive: bool) -> list[int]:
    """Stop one run; return the pids that are left."""
    deadline = time.monotonic() + plan["timeouts"]["grace"] + 15.0
    if alive:
        with contextlib.suppress(OSError), open(os.path.join(path, "stop"), "w", encoding="ascii"):
            pass  # tells a person's wish from the end of the machine, after which an elastic run goes on elsewhere
        pids = [one["pid"] for one in supervisors() if one["directory"] == path]
        in_unit = plan["unit"] in map(unit_of, pids)  # both say so: a job in a unit may start a run that has none
        if not in_unit or as_root(["systemctl", "stop", f"{plan['unit']}.service"]) is None:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended in this moment, or is root's
                    os.kill(pid, signal.SIGTERM)  # the guard ignores it, the supervisor obeys
        while is_alive(path) and time.monotonic() < deadline:
            time.sleep(0.05)
        for one in supervisors():
            if one["directory"] == path:  # its guard too, which waits for a container engine
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one["pid"], signal.SIGKILL)
    # where supervisor and guard were both killed there is no unit left to end: only what carries this run's mark
    deadline = time.monotonic() + 5.0
    while True:
        left = marked_processes(path)
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove(request: Data) -> Data:
    """Stop a run on this node and remove its directory."""
    answer = stop(request)
    found = node_directories(request)
    if not request["check"]:
        for path, _plan in found:
            remove_directory(path)
    return {
        "changed": answer["changed"] or bool(found),
        "stopped": answer["stopped"],
        "removed": [path for path, _plan in found],
    }


# --- watch, pack -----------------------------------------------------------------------------------------------------


def read_new(path: str, cursors: dict[str, int], final: bool) -> str:
    """Return what was added to a log since the last answer, whole lines only while it may still grow."""
    from ansible_collections.muster.training.plugins.module_utils import _supervisor

    offset = cursors.get(path, 0)
    try:
        with open(path, "rb", opener=_supervisor.regular) as stream:
            with contextlib.suppress(OSError):  # there is nothing more, or no way to tell
                offset = os.lseek(stream.fileno(), offset, os.SEEK_DATA)  # the middle of a log may have been removed
            stream.seek(offset)
            data = stream.read(CHUNK)
    except OSError:
        return ""
    if not final or len(data) == CHUNK:
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) == CHUNK:
            end = CHUNK  # one line of 256 KiB: hand it on in pieces
        data = data[:end]
    if data:
        cursors[path] = offset + len(data)
    return data.replace(b"\0", b"").decode("utf-8", "replace")  # what was removed reads as zeros


def skip_backlog(path: str, cursors: dict[str, int]) -> int:
    """Move the cursor close to the end of a log that has grown far beyond it; return the number of bytes left out.

    The log begins with a whole line there, unless its last line alone is longer than an answer.
    """
    from ansible_collections.muster.training.plugins.module_utils import _supervisor

    offset = cursors.get(path, 0)
    try:
        size = os.path.getsize(path)
        if size - offset <= BACKLOG:
            return 0
        with open(path, "rb", opener=_supervisor.regular) as stream:
            stream.seek(size - CHUNK)
            begin = stream.read(CHUNK).find(b"\n") + 1
    except OSError:
        return 0
    cursors[path] = size - CHUNK + begin if begin else size - 4096
    return cursors[path] - offset


def results_between(path: str, start: int, end: int) -> bytes:
    """Return the lines with RESULT_MARK of a part of a log that begins with a whole line."""
    from ansible_collections.muster.training.plugins.module_utils import _supervisor

    found = []
    rest = b"\n"
    with contextlib.suppress(OSError), open(path, "rb", opener=_supervisor.regular) as stream:
        stream.seek(start)
        while start < end:
            block = stream.read(min(CHUNK, end - start))
            if not block:
                break
            start += len(block)
            lines = rest + block
            last = lines.rfind(b"\n")
            begin = lines.find(b"\n" + RESULT_MARK)
            while 0 <= begin < last:
                stop = lines.find(b"\n", begin + 1)
                found.append(lines[begin + 1 : stop + 1])
                begin = lines.find(b"\n" + RESULT_MARK, stop)
            rest = lines[last:] if len(lines) - last <= LONGEST_RESULT else b""
    return b"".join(found)[-CHUNK:]


def silence_of(paths: list[str]) -> float | None:
    """Return the seconds since one of these files was written last, None where there is none of them."""
    written = []
    for path in paths:
        with contextlib.suppress(OSError):
            written.append(os.path.getmtime(path))
    return max(0.0, time.time() - max(written)) if written else None


def unfinished(path: str, cursors: dict[str, int]) -> str:
    """Return the end of a log behind its last whole line as a terminal shows it, such as a progress bar's; or ""."""
    from ansible_collections.muster.training.plugins.module_utils import _supervisor

    try:
        with open(path, "rb", opener=_supervisor.regular) as stream:
            stream.seek(max(cursors.get(path, 0), os.path.getsize(path) - 4096))
            text = stream.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.rpartition("\n")[2].rstrip("\r").rpartition("\r")[2].strip()[:300]


def watch(request: Data) -> Data:
    """Wait up to ``wait`` seconds for something new of a run on this node: lines of a rank, events, the end."""
    from ansible_collections.muster.training.plugins.module_utils import _supervisor

    found = node_directories(request)
    if not found:
        raise RunError(f"there is no run {request['run_id']} on this node")
    path, plan = found[0]
    cursors = dict(request["cursors"])
    began = time.monotonic()
    while True:
        status = read_json(os.path.join(path, "status.json")) or {"state": "starting", "message": ""}
        active = status["state"] in ACTIVE_STATES or (status["state"] == "ended" and is_alive(path))
        if active and not is_alive(path):
            time.sleep(0.2)  # its last word may be on the way to the disk
            status = read_json(os.path.join(path, "status.json")) or status
            active = False
            if status["state"] in ACTIVE_STATES:
                status["state"] = "died"
        if active and time.monotonic() < began + min(COLLECTING, request["wait"]):
            time.sleep(0.1)
            continue
        outputs = {}
        left_out = {}
        earlier = _supervisor.earlier_logs(plan, path, request["local_rank"])
        logs = list(dict.fromkeys(_supervisor.rank_logs(plan, path, request["local_rank"])))
        for log in earlier + logs:
            begin = cursors.get(log, 0)
            skipped = skip_backlog(log, cursors)
            text = ""
            if skipped:
                left_out[log] = skipped
                text = results_between(log, begin, begin + skipped).decode("utf-8", "replace")
            text += read_new(log, cursors, log in earlier or not active)
            if text:
                outputs[log] = text
                if log in earlier and os.path.getsize(log) > cursors[log]:
                    break  # what came after it waits for the next answer
        events = []
        for line in read_new(os.path.join(path, "events.jsonl"), cursors, False).splitlines():
            with contextlib.suppress(ValueError):  # a full disk takes half a line
                events.append(json.loads(line))
        more = any(os.path.exists(log) and os.path.getsize(log) > cursors[log] for log in outputs)
        if outputs or events or not active or time.monotonic() >= began + request["wait"]:
            return {
                "changed": False,
                "active": active or more,
                "status": status,
                "outputs": outputs,
                "left_out": left_out,
                "silence": silence_of(logs),
                "events": events,
                "unfinished": next(filter(None, (unfinished(log, cursors) for log in reversed(logs))), ""),
                "cursors": cursors,
                "result": None if active else read_json(os.path.join(path, "result.json")),
                "directory": path,
            }
        time.sleep(0.1)


def archive_of(path: str) -> str:
    return os.path.join(path, "logs.tar.gz")


def pack(request: Data) -> Data:
    """Write the logs of a run into one archive on the node.

    Return its size in bytes, None where there is no such run.
    """
    found = node_directories(request)
    if not found:
        return {"changed": False, "size": None}
    path, plan = found[0]
    descriptor = os.open(archive_of(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    import tarfile  # costs as much as all else that is imported here, and no other call needs it

    with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in sorted(os.listdir(path)):
            told = name.endswith(".log") or name.startswith("flight_recorder_rank_")
            if told or name in ("plan.json", "status.json", "result.json", "events.jsonl", "gpus.csv", "ranks"):
                tar.add(os.path.join(path, name), arcname=os.path.join(f"node{plan['node']['node_rank']}", name))
    return {"changed": False, "size": os.path.getsize(archive_of(path))}


def piece(request: Data) -> Data:
    """Return a piece of the archive in base64, and remove the archive with the last one."""
    path = node_directories(request)[0][0]
    with open(archive_of(path), "rb") as stream:
        stream.seek(request["offset"])
        data = stream.read(PIECE)
    if len(data) < PIECE:
        os.unlink(archive_of(path))
    return {"changed": False, "data": base64.b64encode(data).decode("ascii"), "last": len(data) < PIECE}


OPERATIONS = {
    "start": start,
    "stop": stop,
    "remove": remove,
    "read": read,
    "watch": watch,
    "pack": pack,
    "piece": piece,
}


def main(request: Data) -> Data:
    """Carry out one request; the answer holds ``error`` where it cannot be done."""
    try:
        if request.get("user"):
            act_as(request["user"])
        return OPERATIONS[request["operation"]](request)
    except RunError as error:
        return {"error": str(error)}
