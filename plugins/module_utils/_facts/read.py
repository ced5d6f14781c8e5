# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node's facts in one call, without changing anything.

``read_facts`` takes a request and returns plain data; the checks that judge it run on the controller. Slow queries are
started first and collected last, each with a time limit: a hanging driver or mount is a fact, too.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import time

from ansible_collections.muster.training.plugins.module_utils._facts import network
from ansible_collections.muster.training.plugins.module_utils._facts.slurm_jobs import read_slurm_jobs
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import node_directories
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import runs_directory as directory_of_runs
from ansible_collections.muster.training.plugins.module_utils._run.gpu_claims import claim_of
from ansible_collections.muster.training.plugins.module_utils._run.identity import (
    RunError,
    become_user,
    drop_privileges,
)
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import (
    find_supervisors,
    has_hidden_processes,
)
from ansible_collections.muster.training.plugins.module_utils._run.unit import may_raise_limits

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Callable

PR_SET_DUMPABLE = 4  # linux/prctl.h
# Environment variable, in seconds: shifts this node's clock in tests whose hosts share the kernel's clock.
CLOCK_SHIFT = "MUSTER_CLOCK_SHIFT"


def clock() -> float:
    """Return this node's time in seconds since the epoch."""
    return time.time() + float(os.environ.get(CLOCK_SHIFT) or 0)


def glibc_version() -> str:
    """Return the version of this system's glibc, such as 2.31, or "" if it has another C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition("glibc ")[2]
    except ValueError:
        return ""


def path_facts(path: str, home: str, dead_mount: str = "") -> dict[str, Any]:
    """Describe a path as this user sees it, without accessing paths on dead mounts."""
    if path.startswith("~/"):
        path = os.path.join(home, path[2:])
    if dead_mount:
        unknown = dict.fromkeys(("exists", "is_file", "is_directory", "readable", "executable"), False)
        return {"path": path, **unknown, "dead_mount": dead_mount}
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
    paths = (shutil.which(os.path.expanduser(name)) for name in names.split(":") if name)
    return next((path for path in paths if path), "")


def may_write(directory: str) -> bool:
    """Return whether this user may create files in a directory, or create it if it does not exist."""
    while directory != "/" and not os.path.exists(directory):
        directory = os.path.dirname(directory)
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK, effective_ids=True)


def user_ids(user: str) -> dict[str, int]:
    """Return a user's uid and gid, or an empty dictionary if the user does not exist."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return {}
    return {"uid": entry.pw_uid, "gid": entry.pw_gid}


def become(user: str) -> None:
    """Switch to the run's user if we are root, to see files as that user does."""
    drop_privileges(user)
    become_user()
    import ctypes  # costs milliseconds and is rarely needed

    # /proc files of a process that used to be root are closed even to its new user, and a listener could not name
    # itself
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def stop_stale_listener(address: str) -> bool:
    """Stop a listener that an earlier probe left on an address; return whether there was one.

    It holds a run's ports, and a node that skips the connection checks makes no new probe.
    """
    from ansible_collections.muster.training.plugins.module_utils._facts import peer_probe

    return peer_probe.stop_stale_listener(address)


def bind_errors(address: str, ports: list[int]) -> dict[str, str]:
    """Return {port: "" or why it cannot be bound}, after stopping a listener that an earlier probe left."""
    errors = {str(port): network.bind_error(address, port) for port in ports}
    if any(errors.values()) and stop_stale_listener(address):
        # on a busy machine the kernel frees the port a moment after the process has closed it
        deadline = time.monotonic() + 1.0
        while any(errors.values()) and time.monotonic() < deadline:
            errors = {str(port): network.bind_error(address, port) for port in ports}
            time.sleep(0.01)
    return errors


class FactsContext:
    """The state of one call of read_facts, which the part functions read and extend.

    facts: the result so far. pending: the queries that are still running, by fact; their result() is collected last.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.parts = {*request["parts"], "paths", *(name for name in ("code", "image", "job") if request.get(name))}
        self.user = request.get("user") or pwd.getpwuid(os.geteuid()).pw_name
        self.runs_directory = directory_of_runs(request)
        try:
            self.home = pwd.getpwnam(self.user).pw_dir
        except KeyError:
            self.home = ""
        self.facts: dict[str, Any] = {}
        self.pending: dict[str, Any] = {}
        self.mounts: list[dict[str, Any]] = []
        self.directory = self.script = self.interpreter = ""  # set once we act as the run's user

    def dead_mount(self, path: str) -> str:
        """Return the dead mount that a path leads to, or ""."""
        if not self.mounts:
            return ""
        from ansible_collections.muster.training.plugins.module_utils._facts import storage

        return storage.dead_mount(path, self.mounts)

    def enter_user(self) -> None:
        """Act as the run's user from here on, then find the mounts and the job's directory and script."""
        request = self.request
        if os.geteuid() == 0 and self.user != "root":
            become(self.user)
        if "storage" in self.parts:
            from ansible_collections.muster.training.plugins.module_utils._facts import storage

            self.mounts = storage.read_mounts(request["mounts"])
        self.directory = os.path.join(self.home, os.path.expanduser(request["working_directory"] or self.home))
        if request["script"]:
            self.script = os.path.join(self.directory, os.path.expanduser(request["script"]))


def read_network(context: FactsContext) -> dict[str, Any]:
    """Return the interfaces, addresses, routes and ports of this node."""
    address, peers, ports = (context.request[name] for name in ("address", "peers", "ports"))
    with network.open_netlink() as channel:
        interfaces = network.read_interfaces(channel)
        routes = {peer: network.read_route(channel, peer) for peer in dict.fromkeys(peers.values())}
    addresses = network.addresses_of(interfaces)
    interface = network.interface_of(address, addresses) if address else None
    binds = bind_errors(address, ports) if interface else {}  # before listeners(), since it stops a listener of ours
    return {
        "machine": network.machine_id(),
        "interfaces": interfaces,
        "addresses": addresses,
        "interface": interface,
        "routes": routes,
        "ports": network.listeners(set(ports)),
        "binds": binds,
    }


def read_identity(context: FactsContext) -> dict[str, Any]:
    """Return this node's names, user, versions and runs."""
    return {
        "hostname": os.uname().nodename,
        "user": context.user,
        "home": context.home,
        **user_ids(context.user),
        "systemd": os.path.isdir("/run/systemd/system"),
        "node_python": {"path": sys.executable, "version": "{}.{}.{}".format(*sys.version_info[:3])},
        "kernel": os.uname().release,
        "architecture": os.uname().machine,
        "glibc": glibc_version(),
        "runs": [{**run, **claim_of(run["directory"])} for run in find_supervisors()],
        "hides_processes": has_hidden_processes(),
        "slurm_jobs": read_slurm_jobs(),
        "runs_directory": context.runs_directory,
    }


# --- parts -----------------------------------------------------------------------------------------------------------
# Each adds to context.facts, or starts a query in context.pending. Imports are local so that only the calls that need
# them pay for them.


def start_gpus(context: FactsContext) -> None:
    """Start querying the GPUs."""
    from ansible_collections.muster.training.plugins.module_utils._facts import gpu_vendors

    context.pending["gpus"] = gpu_vendors.start_query()


def start_connections(context: FactsContext) -> None:
    """Start the connection tests, unless all nodes are on this machine, in which case there is no network to test."""
    if context.facts["interface"] in (None, "lo"):
        return
    from ansible_collections.muster.training.plugins.module_utils._facts import peer_probe

    context.pending["connections"] = peer_probe.PeerProbe(context.request)


def start_ssh(context: FactsContext) -> None:
    """Start the logins to all peers."""
    from ansible_collections.muster.training.plugins.module_utils._facts import ssh

    context.pending["ssh"] = ssh.SshQuery(ssh.peers_after(context.request["node"], list(context.request["peers"])))


def start_checkout(context: FactsContext) -> None:
    """Start querying the git checkout that contains the working directory."""
    if not context.dead_mount(context.directory) and os.path.isdir(context.directory):
        from ansible_collections.muster.training.plugins.module_utils._facts import git_checkout

        context.pending["checkout"] = git_checkout.CheckoutQuery(context.directory)


def read_paths(context: FactsContext) -> None:
    """Read the facts about the interpreter, the working directory, the script and the runs directory."""
    request, home = context.request, context.home
    directory, script, runs_directory = context.directory, context.script, context.runs_directory
    interpreter = request["interpreter"]
    if interpreter and not context.dead_mount(interpreter):
        interpreter = find_interpreter(interpreter)
    context.interpreter = interpreter
    context.facts.update(
        interpreter=interpreter or ("" if request["interpreter"] else None),
        working_directory=path_facts(directory, home, context.dead_mount(directory)),
        script=path_facts(script, home, context.dead_mount(script)) if script else None,
        existing_run="",
        runs_writable=True,
    )
    if not context.dead_mount(runs_directory):
        context.facts["runs_writable"] = may_write(runs_directory)
        existing_runs = node_directories(request) if request["run_id"] else []
        context.facts["existing_run"] = existing_runs[0][0] if existing_runs else ""


def read_code(context: FactsContext) -> None:
    """Compare this node's copy of the code with the controller's."""
    from ansible_collections.muster.training.plugins.module_utils._code import compare

    code = context.request["code"]
    directory = compare.code_directory(code)
    if not context.dead_mount(directory):
        context.facts["code"] = compare.read_code(directory, code, context.script, context.interpreter)


def start_software(context: FactsContext) -> None:
    """Read the DeepSpeed configuration, programs and script hash; start querying the packages."""
    from ansible_collections.muster.training.plugins.module_utils._facts import deepspeed_config, software

    directory, interpreter, facts = context.directory, context.interpreter, context.facts
    path = deepspeed_config.config_path(context.request["args"])
    if path:
        path = os.path.join(directory, os.path.expanduser(path))
        facts["deepspeed_config"] = deepspeed_config.read_config(path) if not context.dead_mount(path) else None
    # programs belong to the node, not to an interpreter, which need not exist here if an image is used
    search_path = [entry for entry in os.get_exec_path() if not context.dead_mount(entry)]
    facts["programs"] = software.find_programs(search_path)
    if not context.dead_mount("/opt") and not context.dead_mount("/usr"):
        facts["environments"] = software.find_environments()
    if interpreter and not context.dead_mount(interpreter):
        context.pending["software"] = software.SoftwareQuery(
            interpreter,
            directory if not context.dead_mount(directory) else "/",
            kernels="gpus" in context.pending and bool(context.pending["gpus"].smi),
        )
    if context.script and facts["script"]["is_file"]:
        facts["script"]["sha256"] = software.file_hash(context.script)


def start_image(context: FactsContext) -> None:
    """Start the queries of the job's image, if its engine is installed."""
    engine, name = context.request["image"]["engine"], context.request["image"]["name"]
    if shutil.which(engine):
        from ansible_collections.muster.training.plugins.module_utils._facts import image as node_image

        context.pending["image"] = node_image.ImageQuery(engine, name)


def start_links(context: FactsContext) -> None:
    """Start querying the links between GPUs, on machines with several GPUs or with NVSwitches."""
    from ansible_collections.muster.training.plugins.module_utils._facts import gpu_links

    if "gpus" in context.pending and context.pending["gpus"].smi:
        context.pending["links"] = gpu_links.LinkQuery()


def start_health(context: FactsContext) -> None:
    """Start querying the node's health, and read its identity, which may require root."""
    from ansible_collections.muster.training.plugins.module_utils._facts import health

    links = context.pending.get("links")
    context.pending["health"] = health.HealthQuery(links.links if links is not None else None)


def start_job(context: FactsContext) -> None:
    """Read the files that the job's variables and arguments name; start the import test and the service queries."""
    from ansible_collections.muster.training.plugins.module_utils._facts import job_needs

    job, arguments, facts = context.request["job"], context.request["args"], context.facts
    directory = "/" if context.dead_mount(context.directory) else context.directory
    is_readable = bool(context.script and facts["script"]["is_file"] and facts["script"]["readable"])
    script_text = job_needs.read_text(context.script) if is_readable else ""
    if not context.request.get("image"):
        search_path = os.pathsep.join(entry for entry in os.get_exec_path() if not context.dead_mount(entry))
        facts["compilers"] = job_needs.read_compilers(job["environment"], search_path)
        facts["caches"] = job_needs.read_caches(job["environment"], context.home, context.user, context.dead_mount)
    facts["resumed_checkpoints"] = job_needs.read_checkpoints(arguments, directory, context.dead_mount)
    locations = {"directory": directory, "home": context.home, "script_text": script_text}
    context.pending["services"] = job_needs.ServiceQuery(job, arguments, locations, facts.get("caches", {}))
    start_imports(context, directory, is_readable)


def start_imports(context: FactsContext, directory: str, is_readable: bool) -> None:
    """Start the import test, unless the code is about to be copied, or there is nothing to import."""
    job, image = context.request["job"], context.request.get("image")
    has_program = is_readable if context.request["script"] else bool(job["module"])
    is_outdated = not context.facts.get("code", {"same": True})["same"] and job["copies_code"]
    if not has_program or job["no_python"] or is_outdated or not os.path.isdir(directory):
        return
    is_busy = bool(context.facts["runs"])  # a run's memory use may leave no room on the GPUs
    request = {**job, "cuda": job["cuda"] and not is_busy}
    if image:
        if shutil.which(image["engine"]) and job["test"]:
            from ansible_collections.muster.training.plugins.module_utils._facts import imports

            context.pending["imports"] = imports.ImageImportQuery(
                request, image["engine"], image["name"], context.script, directory
            )
    elif context.interpreter and not context.dead_mount(context.interpreter):
        from ansible_collections.muster.training.plugins.module_utils._facts import imports

        context.pending["imports"] = imports.ImportQuery(request, context.interpreter, context.script, directory)


def start_provenance(context: FactsContext) -> None:
    """Start querying the packages and inputs needed to repeat a run."""
    from ansible_collections.muster.training.plugins.module_utils._facts import provenance, software

    readable = context.interpreter and not context.request.get("image") and not context.dead_mount(context.interpreter)
    query = None
    if readable:
        query = context.pending.get("software") or software.SoftwareQuery(context.interpreter, "/")
    context.pending["provenance"] = provenance.ProvenanceQuery(
        query, context.request["args"], context.directory, context.home, context.dead_mount
    )


def read_system(context: FactsContext) -> None:
    """Read the operating system, memory, RDMA devices, leftover variables and limits."""
    from ansible_collections.muster.training.plugins.module_utils._facts import numa, rdma, system

    limits = system.LimitsQuery(context.facts["systemd"], may_raise_limits())
    context.facts["system"] = {
        "operating_system": system.operating_system(),
        "memory": system.read_memory(),
        "rdma": system.read_rdma(),
        "rdma_ports": rdma.read_ports(),
        "numa": numa.read_numa(),
        "left_over": system.leftover_variables("" if context.dead_mount(context.home) else context.home),
        "limits": limits.result(),
    }


def read_storage(context: FactsContext) -> None:
    """Read the free space on the disks that a run uses."""
    from ansible_collections.muster.training.plugins.module_utils._facts import storage

    paths = {"runs": context.runs_directory, "work": context.directory, "temporary": "/tmp"}
    context.facts["storage"] = {
        "mounts": context.mounts,
        "disks": storage.read_disks(paths, context.mounts),
        "shm": storage.disk_space("/dev/shm") if os.path.isdir("/dev/shm") else None,
    }


def read_checkpoints(context: FactsContext) -> None:
    """Read where the job saves its checkpoints, and which of them are complete, if their directory is known."""
    from ansible_collections.muster.training.plugins.module_utils._facts import checkpoints

    request = context.request
    path, source = checkpoints.name_directory(
        request.get("checkpoints", ""), request["args"], context.directory, context.home
    )
    if path and not context.dead_mount(path):
        facts = checkpoints.read_checkpoints(path, source)
        context.facts["checkpoints"] = {**facts, "machine": context.facts["machine"]}


def read_names(context: FactsContext) -> None:
    """Resolve the names of this node and its peers."""
    peers = [name for name in context.request["peers"] if name != context.request["node"]]
    context.facts["names"] = network.read_names(peers, query_resolver="resolver" in context.parts)


# Executed in this order. ROOT_PARTS are executed before we become the run's user.
ROOT_PARTS: dict[str, Callable[[FactsContext], None]] = {
    "gpus": start_gpus,
    "links": start_links,
    "health": start_health,
}
PARTS: dict[str, Callable[[FactsContext], None]] = {
    "connections": start_connections,
    "ssh": start_ssh,
    "checkout": start_checkout,
    "paths": read_paths,  # always
    "code": read_code,  # only if the request includes it
    "software": start_software,
    "image": start_image,  # if the request includes it
    "job": start_job,  # if the request includes it
    "system": read_system,
    "storage": read_storage,
    "names": read_names,
    "checkpoints": read_checkpoints,
    "provenance": start_provenance,
}


def read_facts(request: dict[str, Any]) -> dict[str, Any]:
    """Return this node's facts for a request.

    request: node (its inventory name), address (its node_address, or ""), peers ({name: address}), ports (TCP ports
    that must be free on the address), interpreter, script, working_directory (each may be ""), runs_directory, run_id,
    user, parts, mounts (paths that must be mounted), checkpoints (directory, or ""), code (see _code/compare.py, or
    {}), image (name and engine, or {}), probe (see _facts/peer_probe.py), job (see _facts/imports.py and
    _facts/job_needs.py, or {}).
    """
    start = clock()
    context = FactsContext(request)
    context.facts.update(read_network(context))
    context.facts.update(read_identity(context))
    for name, read_part in ROOT_PARTS.items():
        if name in context.parts:
            read_part(context)
    context.enter_user()
    for name, read_part in PARTS.items():
        if name in context.parts:
            read_part(context)
    facts = {**context.facts, **{name: query.result() for name, query in context.pending.items()}}
    facts["gpu_count"] = facts["gpus"]["count"] if "gpus" in facts else None
    facts["clock"] = {"start": start, "end": clock()}
    return facts


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Return the facts, or an error, for one request."""
    try:
        return {"facts": read_facts(request), "changed": False}
    except RunError as error:
        return {"error": str(error)}
