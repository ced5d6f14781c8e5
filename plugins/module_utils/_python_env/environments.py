# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""List a node's Python environments, and remove one."""

from __future__ import annotations

import glob
import os
import pwd
import re
import shutil
import stat
import sys

from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

DEFAULT_NAME = "env"
# What python_env creates in its directory for the default environment. Anything else there belongs to the user.
CREATED = frozenset(
    (
        *("env", "store", "tools", "conda", "pythons", "project", "locks", "installed", "cache"),
        *("report.json", "constraints.txt", "conda-packages.txt", "netrc", ".only-root"),
    )
)


class RemovalError(Exception):
    """An environment cannot be removed; the message explains why."""


def home_of(directory: str, name: str) -> str:
    """Return the directory of an environment."""
    return directory if name == DEFAULT_NAME else os.path.join(directory, "envs", name)


def list_names(directory: str) -> list[str]:
    """Return the names of the environments below a directory."""
    names = [os.path.basename(path) for path in sorted(glob.glob(os.path.join(directory, "envs", "*")))]
    names = [name for name in names if os.path.isdir(os.path.join(directory, "envs", name, "env"))]
    return [DEFAULT_NAME] * os.path.isdir(os.path.join(directory, "env")) + names


def contents(home: str, name: str) -> list[str]:
    """Return the files and directories of an environment; the default environment shares its directory with others."""
    entries = sorted(os.listdir(home))
    return [os.path.join(home, entry) for entry in entries if name != DEFAULT_NAME or entry in CREATED]


def disk_usage(paths: list[str]) -> tuple[int, int]:
    """Return how many bytes files use, and how many bytes removing them frees: the rest is also linked elsewhere."""
    seen: dict[tuple[int, int], list[int]] = {}
    for top in paths:
        for directory, _names, files in os.walk(top):
            for path in [directory, *(os.path.join(directory, file) for file in files)]:
                try:
                    info = os.lstat(path)
                except OSError:
                    continue
                links = 1 if stat.S_ISDIR(info.st_mode) else info.st_nlink
                entry = seen.setdefault((info.st_dev, info.st_ino), [info.st_blocks * 512, links, 0])
                entry[2] += 1
    total = sum(size for size, _links, _count in seen.values())
    return total, sum(size for size, links, count in seen.values() if count >= links)


def installed_version(environment: str, name: str) -> str:
    """Return a package's version without starting the interpreter."""
    matches = glob.glob(os.path.join(environment, "lib", "python3*", "site-packages", f"{name}-*.dist-info"))
    return os.path.basename(matches[0])[len(name) + 1 : -len(".dist-info")] if matches else ""


def last_used(environment: str) -> float:
    """Return when the interpreter was last started, from the file that it reads first; accurate to one day."""
    files = glob.glob(os.path.join(environment, "lib", "python3*", "__pycache__", "os.*.pyc"))  # conda
    times = []
    for path in [os.path.join(environment, "pyvenv.cfg"), *files]:
        if os.path.exists(path):
            info = os.stat(path)
            times.append(max(info.st_atime, info.st_mtime))
    return max(times, default=0.0)


def python_version(environment: str) -> str:
    """Return the minor release of an environment's Python."""
    matches = sorted(glob.glob(os.path.join(environment, "lib", "python3*", "site-packages")))
    return os.path.basename(os.path.dirname(matches[0]))[len("python") :] if matches else ""


def processes_in(home: str, name: str) -> list[int]:
    """Return the processes that are running a program from an environment, or have mapped one of its files."""
    mark = b"\0" + os.fsencode(f"{home}/env/" if name == DEFAULT_NAME else f"{home}/")
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        texts = b""
        for file in ("cmdline", "maps"):
            try:
                with open(f"/proc/{pid}/{file}", "rb") as stream:
                    texts += b"\0" + stream.read().replace(b" ", b"\0")
            except OSError:
                continue
        if int(pid) != os.getpid() and mark in texts:
            pids.append(int(pid))
    return sorted(pids)


def run_of(pid: int) -> str:
    """Return the name of the run that a process belongs to, or an empty string."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            match = re.search(rb"(?:\A|\0)MUSTER_RUN_ID=([\w.-]+)", stream.read())
    except OSError:
        return ""
    return match[1].decode() if match else ""


def describe(directory: str, name: str) -> Data:
    """Return an environment's properties that users need."""
    home = home_of(directory, name)
    environment = EnvironmentPaths({"directory": home}).environment
    size, freed = disk_usage(contents(home, name))
    pids = processes_in(home, name)
    return {
        "name": name,
        "path": environment,
        "python": python_version(environment),
        "torch": installed_version(environment, "torch"),
        "size": size,
        "freed": freed,
        "used": last_used(environment),
        "processes": pids,
        "runs": sorted({run for run in map(run_of, pids) if run}),
    }


def remove_as_owner(paths: list[str], uid: int) -> None:
    """Remove files and directories with their owner's privileges; raise RemovalError if that is not possible."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0 and uid != 0:
                entry = pwd.getpwuid(uid)
                os.setgroups([])
                os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
                os.setresuid(uid, uid, uid)
            for path in paths:
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
            code = 0
        except (OSError, KeyError) as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise RemovalError(
            f"some files in {os.path.dirname(paths[0])} could not be removed; check the directory on the node"
        )


def remove(directory: str, name: str) -> None:
    """Remove an environment that no process is using. Raise RemovalError."""
    home = home_of(directory, name)
    if not os.path.isfile(os.path.join(home, "env", ".muster")):
        raise RemovalError(
            f"{home}/env was not created by the role python_env. Remove it manually if you do not need it"
        )
    paths = contents(home, name)
    if paths:
        remove_as_owner(paths, os.lstat(os.path.join(home, "env")).st_uid)
    if name != DEFAULT_NAME:
        os.rmdir(home)


def main(request: Data) -> Data:
    """Return this node's environments; remove one of them if it is unused.

    request: directory of all environments, remove (a name or ""), check (only report what would be done).
    """
    directory, name = request["directory"], request["remove"]
    environments = [describe(directory, entry) for entry in list_names(directory)]
    match = next((entry for entry in environments if entry["name"] == name), None)
    if match is None:
        return {"environments": environments, "removed": False, "changed": False, "error": ""}
    if match["processes"]:
        user = f"run {', '.join(match['runs'])}" if match["runs"] else f"process {match['processes'][0]}"
        advice = (
            f"ansible-playbook stop.yml -e run_id={match['runs'][0]}"
            if match["runs"]
            else f"run `sudo kill {match['processes'][0]}` on that node"
        )
        error = f"{match['path']} is in use by {user}. Wait until it has ended, or stop it ({advice})"
        return {"environments": environments, "removed": False, "changed": False, "error": error}
    try:
        if not request["check"]:
            remove(directory, name)
    except (RemovalError, OSError) as problem:
        return {"environments": environments, "removed": False, "changed": False, "error": str(problem)}
    environments = [entry for entry in environments if entry["name"] != name]
    return {"environments": environments, "removed": True, "changed": True, "error": "", "freed": match["freed"]}
