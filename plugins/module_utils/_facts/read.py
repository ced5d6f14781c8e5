# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of a node, read in one call without changing anything. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. ``read_facts`` takes a request and returns plain data; the
checks that judge it run on the controller. Slow queries are started first and collected last, each with a time limit: a
driver or a mount that hangs is a fact, too.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import time

from ansible_collections.muster.training.plugins.module_utils._facts import network
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import node_directories
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import runs_directory as directory_of_runs
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, act_as, be_the_user
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import supervisors
from ansible_collections.muster.training.plugins.module_utils._run.unit import may_raise_limits

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

PR_SET_DUMPABLE = 4  # linux/prctl.h
# Seconds, in a node's environment: lets a test shift the clock that we read, since all test hosts share the kernel's.
CLOCK_SHIFT = "MUSTER_CLOCK_SHIFT"


def clock() -> float:
    """Return this node's time in seconds since the epoch."""
    return time.time() + float(os.environ.get(CLOCK_SHIFT) or 0)


def glibc_version() -> str:
    """Return the version of this system's glibc, such as 2.31, "" if it has another C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition("glibc ")[2]
    except ValueError:
        return ""


def path_facts(path: str, home: str, dead: str = "") -> dict[str, Any]:
    """Describe a path as this user sees it, without touching one on a mount that does not answer."""
    if path.startswith("~/"):
        path = os.path.join(home, path[2:])
    if dead:
        nothing = dict.fromkeys(("exists", "is_file", "is_directory", "readable", "executable"), False)
        return {"path": path, **nothing, "dead_mount": dead}
    return {
        "path": path,
        "exists": os.path.exists(path),
        "is_file": os.path.isfile(path),
        "is_directory": os.path.isdir(path),
        "readable": os.access(path, os.R_OK, effective_ids=True),
        "executable": os.access(path, os.X_OK, effective_ids=True),
        "dead_mount": "",
    }


def find_interpreter(names: str) -> str:
    """Return the absolute path of the first existing interpreter in a colon-separated list of paths and names.

    "" if none exists.
    """
    found = (shutil.which(os.path.expanduser(name)) for name in names.split(":") if name)
    return next((path for path in found if path), "")


def may_write(directory: str) -> bool:
    """Whether this user may create files in a directory, or create it if it does not exist."""
    while directory != "/" and not os.path.exists(directory):
        directory = os.path.dirname(directory)
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK, effective_ids=True)


def user_numbers(user: str) -> dict[str, int]:
    """Return uid and gid of a user, nothing if the user does not exist."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return {}
    return {"uid": entry.pw_uid, "gid": entry.pw_gid}


def become(user: str) -> None:
    """Become the run's user, if we are root: that user's view of files counts."""
    act_as(user)
    be_the_user()
    import ctypes  # costs milliseconds, and is rarely needed

    # /proc files of a former root process are closed even to its new user, and a listener could not name itself
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def end_leftover(address: str) -> bool:
    """End a listener that an earlier probe left on an address; return whether there was one.

    It holds a run's ports, and a node that skips the connection checks makes no new probe.
    """
    from ansible_collections.muster.training.plugins.module_utils._facts import peer_probe

    return peer_probe.end_leftover(address)


def read_facts(request: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of this node for a request.

    request: node (its inventory name), address (its node_address, or ""), peers ({name: address}), ports (TCP ports to
    be free on the address), interpreter, script, working_directory (each may be ""), runs_directory, run_id, user,
    parts, mounts (paths that must be mounts), code (see _node_code, or {}), image (name and engine, or {}), probe
    (see _peer_probe). Each part's imports are compiled only if it is requested.
    """
    start = clock()
    parts = set(request["parts"])
    user = request.get("user") or pwd.getpwuid(os.geteuid()).pw_name
    runs_directory = directory_of_runs(request)
    try:
        home = pwd.getpwnam(user).pw_dir
    except KeyError:
        home = ""
    address, peers, ports = request["address"], request["peers"], request["ports"]
    with network.open_netlink() as channel:
        interfaces = network.read_interfaces(channel)
        routes = {peer: network.read_route(channel, peer) for peer in dict.fromkeys(peers.values())}
    addresses = network.addresses_of(interfaces)
    interface = network.interface_of(address, addresses) if address else None
    binds = {str(port): network.can_listen(address, port) for port in ports} if interface else {}
    if interface == "lo":  # all nodes are this machine: no network to test
        parts.discard("connections")
    if any(binds.values()) and end_leftover(address):
        # on a busy machine the kernel frees the port a moment after the process has closed it
        deadline = time.monotonic() + 1.0
        while any(binds.values()) and time.monotonic() < deadline:
            binds = {str(port): network.can_listen(address, port) for port in ports}
            time.sleep(0.01)
    facts: dict[str, Any] = {
        "hostname": os.uname().nodename,
        "user": user,
        "home": home,
        **user_numbers(user),
        "systemd": os.path.isdir("/run/systemd/system"),
        "node_python": {"path": sys.executable, "version": "{}.{}.{}".format(*sys.version_info[:3])},
        "kernel": os.uname().release,
        "machine": network.machine(),
        "glibc": glibc_version(),
        "interfaces": interfaces,
        "addresses": addresses,
        "interface": interface,
        "routes": routes,
        "runs": supervisors(),
        "ports": network.listeners(set(ports)),
        "binds": binds,
        "runs_directory": runs_directory,
    }

    # queries that need root, and slow ones
    waiting: dict[str, Any] = {}
    if "gpus" in parts:
        from ansible_collections.muster.training.plugins.module_utils._facts import gpus

        waiting["gpus"] = gpus.GpuQuestion()
    if os.geteuid() == 0 and user != "root":
        become(user)
    mounts: list[dict[str, Any]] = []
    if "storage" in parts:
        from ansible_collections.muster.training.plugins.module_utils._facts import storage

        mounts = storage.read_mounts(request["mounts"])
    if "connections" in parts and interface:
        from ansible_collections.muster.training.plugins.module_utils._facts import peer_probe

        waiting["connections"] = peer_probe.Probe(request)
    if "ssh" in parts:
        from ansible_collections.muster.training.plugins.module_utils._facts import ssh

        waiting["ssh"] = ssh.SshQuestion(ssh.peers_after(request["node"], list(peers)))

    def dead(path: str) -> str:
        return storage.dead_mount(path, mounts) if mounts else ""

    directory = os.path.join(home, os.path.expanduser(request["working_directory"] or home))
    script = os.path.join(directory, os.path.expanduser(request["script"])) if request["script"] else ""
    if "checkout" in parts and not dead(directory) and os.path.isdir(directory):
        from ansible_collections.muster.training.plugins.module_utils._facts import git_checkout

        waiting["checkout"] = git_checkout.CheckoutQuestion(directory)
    interpreter = request["interpreter"]
    if interpreter and not dead(interpreter):
        interpreter = find_interpreter(interpreter)
    facts.update(
        interpreter=interpreter or ("" if request["interpreter"] else None),
        working_directory=path_facts(directory, home, dead(directory)),
        script=path_facts(script, home, dead(script)) if script else None,
        run_taken="",
        runs_writable=True,
    )
    if not dead(runs_directory):
        facts["runs_writable"] = may_write(runs_directory)
    if request["run_id"] and not dead(runs_directory):
        taken = node_directories(request)
        facts["run_taken"] = taken[0][0] if taken else ""
    code = request.get("code")
    if code:
        from ansible_collections.muster.training.plugins.module_utils._code import compare

        place = compare.code_directory(code)
        if not dead(place):
            facts["code"] = compare.read_code(place, code, script, interpreter)
    if "software" in parts:
        from ansible_collections.muster.training.plugins.module_utils._facts import deepspeed_config

        path = deepspeed_config.config_path(request["args"])
        if path:
            path = os.path.join(directory, os.path.expanduser(path))
            facts["deepspeed_config"] = deepspeed_config.read_config(path) if not dead(path) else None
        from ansible_collections.muster.training.plugins.module_utils._facts import software

        # programs belong to the node, not to an interpreter, which with an image need not exist here
        facts["programs"] = software.programs_in([place for place in os.get_exec_path() if not dead(place)])
        if interpreter and not dead(interpreter):
            waiting["software"] = software.SoftwareQuestion(
                interpreter,
                directory if not dead(directory) else "/",
                kernels="gpus" in waiting and bool(waiting["gpus"].smi),
            )
        if script and facts["script"]["is_file"]:
            facts["script"]["sha256"] = software.file_hash(script)
    image = request.get("image")
    if image and shutil.which(image["engine"]):
        from ansible_collections.muster.training.plugins.module_utils._facts import image as node_image

        waiting["image"] = node_image.ImageQuestion(image["engine"], image["name"])
    if "system" in parts:
        from ansible_collections.muster.training.plugins.module_utils._facts import system

        limits = system.LimitsQuestion(facts["systemd"], may_raise_limits())
        facts["system"] = {
            "operating_system": system.operating_system(),
            "memory": system.read_memory(),
            "rdma": system.read_rdma(),
            "left_over": system.left_over("" if dead(home) else home),
            "limits": limits.answer(),
        }
    if "storage" in parts:
        places = {"runs": runs_directory, "work": directory, "temporary": "/tmp"}
        facts["storage"] = {
            "mounts": mounts,
            "disks": storage.read_disks(places, mounts),
            "shm": storage.space("/dev/shm") if os.path.isdir("/dev/shm") else None,
        }
    if "names" in parts:
        others = [name for name in peers if name != request["node"]]
        facts["names"] = network.read_names(others, ask_resolver="resolver" in parts)
    facts.update({part: question.answer() for part, question in waiting.items()})
    facts["gpu_count"] = facts["gpus"]["count"] if "gpus" in facts else None
    facts["clock"] = {"start": start, "end": clock()}
    return facts


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request."""
    try:
        return {"facts": read_facts(request), "changed": False}
    except RunError as error:
        return {"error": str(error)}
