"""A lab: nodes with addresses on their own network, their inventory, and faults that can happen to a node."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.lab import files, image, machine
from tests.lab.files import CHECKOUT, USER, Node
from tests.lab.machine import LabError, eventually, podman, run

VENV = CHECKOUT / ".venv"
MOST_NODES = 64
FIRST_ADDRESS = 11
"""Offset of node1's address in the lab's network; the first address belongs to this machine."""
LAST_ADDRESS = 254
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
"""The cgroup v1 hierarchy for CPU time, on machines without a single cgroup tree."""
READY_TIMEOUT = 240.0
"""Seconds from a node's start to its first login; 2 to 10 were observed with 1 to 16 nodes on two cores."""

_OTHER_PYTHON = "Make .venv from the system's Python, or from one of pyenv or uv: make clean venv PYTHON=PATH"
_LABEL = "muster.lab"
_NODE = "muster.node"
_ADDRESS = "muster.address"
_SPEC = "muster.spec"
_ROOT = ("HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
_first_processes: dict[str, tuple[int, str]] = {}
"""By container: the host pid and start time of its first process, which together are never reused."""


@dataclass(frozen=True)
class Process:
    """A process on a node, with the node's own pids."""

    pid: int
    user: str
    command: str


@dataclass(frozen=True)
class Lab:
    """Test hosts that are up, named node1, node2, ..."""

    name: str
    nodes: tuple[Node, ...]

    @classmethod
    def up(
        cls,
        nodes: int = 4,
        name: str = "lab",
        suite: str | None = None,
        slots: Sequence[int] = (),
        script: Path | None = None,
    ) -> Lab:
        """Bring up a lab, or complete a partial one; a complete one is left unchanged.

        Args:
            nodes: how many, 1 to 64. A lab with more keeps them.
            name: labs with different names can coexist.
            suite: release: bullseye, bookworm or trixie; default: this machine's own, whose Python jobs need.
            slots: `node_slots` of the first nodes; all others have 1.
            script: what launch.yml starts by default.

        Raises:
            LabError: if something is missing, with a remedy.
        """
        if not 1 <= nodes <= MOST_NODES:
            raise LabError(f"{nodes} nodes asked for: a lab has 1 to {MOST_NODES}.")
        if any(number < 1 for number in slots):
            raise LabError(f"Slots {list(slots)}: each is a whole number from 1.")
        files.directory(name)
        machine.require_tools()
        mounts = _mounts()
        suite = suite or image.own_suite()
        with machine.locked():
            machine.ensure_namespace()
            machine.ensure_limits(nodes)
            lab = _make(name, nodes, suite, slots, mounts)
            files.ssh_masters(name).mkdir(mode=0o700, parents=True, exist_ok=True)
        _wait_for_logins(lab)
        launch_python = _usable_python(lab, required=suite == image.own_suite())
        lab.inventory.write_text(files.inventory(name, lab.nodes, launch_python, script))
        return lab

    @classmethod
    def load(cls, name: str = "lab") -> Lab:
        """Find a running lab by its inventory."""
        path = files.directory(name) / "inventory.yml"
        if not path.exists():
            raise LabError(f"Lab {name!r} is not up ({path} is missing): python -m tests.lab up --name {name}")
        hosts = yaml.safe_load(path.read_text())["training"]["hosts"]
        return cls(
            name,
            tuple(Node(host, variables["node_address"], variables["node_slots"]) for host, variables in hosts.items()),
        )

    @property
    def inventory(self) -> Path:
        """The inventory file, for `ansible-playbook -i`."""
        return files.directory(self.name) / "inventory.yml"

    def node(self, node: str) -> Node:
        """Find a node by name."""
        for candidate in self.nodes:
            if candidate.name == node:
                return candidate
        raise LabError(
            f"Lab {self.name!r} has no {node!r}: it has {', '.join(candidate.name for candidate in self.nodes)}."
        )

    def exec(self, node: str, argv: Sequence[str], *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command as root on a node without using the network; the caller must check the exit status."""
        pid = self._pid(node)
        if pid is None:
            return subprocess.CompletedProcess([*argv], 125, "", f"{node} is off.")
        # `podman exec` takes 0.2 s, this 0.003 s
        arguments = ["nsenter", f"--target={pid}", "--all", "--", "env", "-i", *_ROOT, *argv]
        with subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            deadline = time.monotonic() + timeout
            while True:
                try:
                    out, err = process.communicate(timeout=1)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > deadline:
                        process.kill()
                        raise
                    # a node's shutdown briefly stops all of its processes, and nsenter stops along with its child
                    process.send_signal(signal.SIGCONT)
                else:
                    return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def ssh(self, node: str, *command: str, options: Sequence[str] = ()) -> list[str]:
        """Return the arguments of an ssh command to a node as its user, with host key checking."""
        return ["ssh", *files.ssh_options(self.name), *options, f"{USER}@{self.node(node).address}", *command]

    def processes(self, node: str) -> list[Process]:
        """Return all processes on a node, except for the one listing them."""
        completed = self.exec(node, ["ps", "-ww", "-eo", "pid=,user:32=,args="])
        if completed.returncode:
            raise LabError(f"{node}: processes cannot be listed: {completed.stderr.strip()}")
        result = [Process(int(pid), user, command) for pid, user, command in _columns(completed.stdout, 3)]
        return [process for process in result if not process.command.startswith("ps -ww -eo pid=,user:32=")]

    def power_off(self, node: str) -> None:
        """Simulate a power loss: first the network falls silent (no FIN, no RST), then all processes disappear."""
        self._in_network_of(node, "ip", "link", "set", "eth0", "down")
        podman("kill", "--signal=KILL", _container(self.name, node))
        eventually(f"{node} is off", lambda: not self.is_on(node), timeout=60)
        # podman cleans up in the background; a node started before that is done would get its old network, which is
        # down
        eventually(f"{node} is cleared up", lambda: _cleared_up(_container(self.name, node)), timeout=60)

    def power_on(self, node: str) -> None:
        """Start a node that is off, with the same address, host keys and disk. Returns when its user can log in."""
        podman("start", _container(self.name, self.node(node).name))
        _pin_bridge(_network(self.name)[0])
        files.end_ssh_masters(self.name, self.node(node).address)
        _wait_for_logins(self, node)

    def is_on(self, node: str) -> bool:
        """Return whether the node is running (it may still be booting)."""
        return self._pid(node) is not None

    def cut_off(
        self, node: str, *, from_machine: bool = False, directions: tuple[str, ...] = ("incoming", "outgoing")
    ) -> None:
        """Silently drop all traffic between a node and its peers; with `from_machine`, also traffic to and from this
        machine.
        """
        subnet = ipaddress.ip_network(f"{self.node(node).address}/24", strict=False)
        machine_address = "" if from_machine else f"{subnet[1]}, "
        keep = f"{{ {machine_address}{self.node(node).address} }}"
        chains = {
            "incoming": "chain incoming { type filter hook prerouting priority raw;"
            f" iif != lo ip saddr {subnet} ip saddr != {keep} drop; }}",
            "outgoing": "chain outgoing { type filter hook output priority raw;"
            f" oif != lo ip daddr {subnet} ip daddr != {keep} drop; }}",
        }
        self._filter(node, *(chains[direction] for direction in directions))

    def restore(self, node: str) -> None:
        """End `cut_off`."""
        self._filter(node)

    def limit_cpu(self, node: str, cores: float) -> None:
        """Limit a node to this many of this machine's cores, until it is switched off."""
        container = _container(self.name, self.node(node).name)
        if not CPU_GROUPS.is_dir():
            podman("update", f"--cpus={cores}", container)
            return
        pid = self._pid(node)
        if pid is None:
            raise LabError(f"{node} is off.")
        group = CPU_GROUPS / container
        group.mkdir(exist_ok=True)
        (group / "cpu.cfs_quota_us").write_text(str(round(cores * 100_000)))  # per 100 ms
        moved: set[int] = set()
        while new := _all_processes(pid) - moved:  # a process that has not been moved yet may have started others
            for item in new:
                with contextlib.suppress(ProcessLookupError):  # the process has ended
                    (group / "cgroup.procs").write_text(str(item))
            moved |= new

    def mend(self) -> None:
        """Turn on nodes that are off, and undo `cut_off` on all others."""
        for node in self.nodes:
            if self._pid(node.name):
                self.restore(node.name)
            else:
                self.power_on(node.name)

    def _filter(self, node: str, *chains: str) -> None:
        table = "table inet muster_lab"
        rules = "\n".join([table, f"delete {table}", *([f"{table} {{", *chains, "}"] if chains else []), ""])
        self._in_network_of(node, "nft", "-f", "-", stdin=rules)

    def _in_network_of(self, node: str, *argv: str, stdin: str | None = None) -> None:
        pid = self._pid(node)
        if pid is None:
            raise LabError(f"{node} is off.")
        run(["nsenter", f"--target={pid}", "--net", *argv], stdin=stdin)

    def first_process(self, node: str) -> int:
        """Return the PID of a node's first process on this machine."""
        pid = self._pid(node)
        if pid is None:
            raise LabError(f"{node} is off.")
        return pid

    def _pid(self, node: str) -> int | None:
        return _first_process(_container(self.name, self.node(node).name))


def down(name: str = "lab") -> None:
    """Remove everything that `Lab.up` created: containers, network, files, and the namespace if no other lab is using
    it.
    """
    machine.require_tools()
    with machine.locked():
        machine.ensure_namespace()
        for container in _containers(name):
            _remove(container)
            with contextlib.suppress(FileNotFoundError):  # made by limit_cpu
                (CPU_GROUPS / _container(name, container["Labels"][_NODE])).rmdir()
        if network := _network_name(name):
            bridge = _bridge(network)
            podman("network", "rm", "--force", network)
            run(["ip", "link", "delete", bridge], check=False)  # already gone, unless a container crashed
        files.end_ssh_masters(name)
        shutil.rmtree(files.ssh_masters(name), ignore_errors=True)
        files.remove_files(files.directory(name))
        _restore_machine()


def status(name: str = "lab") -> list[tuple[str, str, str]]:
    """Return the name, address and state of each existing node, whether or not `up` succeeded."""
    machine.require_tools()
    with machine.locked():
        machine.ensure_namespace()
        result = [(c["Labels"][_NODE], c["Labels"][_ADDRESS], c["State"]) for c in _containers(name)]
        _restore_machine()
    return sorted(result, key=lambda row: int(row[0].removeprefix("node")))


def _restore_machine() -> None:
    """Undo the changes to this machine that labs share, once no lab remains."""
    if not podman("ps", "--all", "--quiet").strip():
        machine.remove_namespace()
        machine.restore_limits()


def _container(name: str, node: str) -> str:
    return f"{files.identity(name)}-{node}"


def _containers(name: str) -> list[dict]:
    listing = podman("ps", "--all", "--format", "json", "--filter", f"label={_LABEL}={files.identity(name)}")
    return json.loads(listing) or []


def _make(name: str, nodes: int, suite: str, slots: Sequence[int], mounts: Sequence[Path]) -> Lab:
    base = image.ensure(suite)
    folder = files.directory(name)
    folder.mkdir(parents=True, exist_ok=True)
    files.make_key(folder / "id_ed25519", comment=f"{USER}@{name}")
    network, subnet = _network(name)

    existing = {container["Labels"][_NODE]: container for container in _containers(name)}
    if len(existing) > nodes:
        print(f"Lab {name!r} has {len(existing)} nodes, {nodes} were asked for: all are kept.", flush=True)
    count = max([nodes, *(int(node.removeprefix("node")) for node in existing)])
    created = []
    for i in range(count):
        # A killed `up` leaves its address in use, so there are alternatives.
        addresses = [str(subnet[location]) for location in range(FIRST_ADDRESS + i, LAST_ADDRESS + 1, count)]
        node = f"node{i + 1}"
        address = _make_node(name, node, network, addresses, base, mounts, existing.get(node))
        created.append(Node(node, address, slots[i] if i < len(slots) else 1))
    _pin_bridge(network)
    files.write_known_hosts(name, created)
    return Lab(name, tuple(created))


def _make_node(  # noqa: PLR0913
    name: str,
    node: str,
    network: str,
    addresses: Sequence[str],
    base: str,
    mounts: Sequence[Path],
    old: dict | None,
) -> str:
    """Ensure that a node exists and return its address: its current one, or the first free one."""
    host_key = files.host_key(name, node)
    files.make_key(host_key, comment=node)
    archive = host_key.with_name("seed.tar")
    seed = files.make_seed(node, host_key, files.directory(name) / "id_ed25519.pub", mounts)
    settings = _settings(name, node, archive, mounts)
    spec = hashlib.sha256("\0".join([base, *settings]).encode() + seed + _inodes(mounts)).hexdigest()[:16]
    if old and old["Labels"][_SPEC] == spec:
        podman("start", old["Id"], check=False)
        if _first_process(old["Id"]):
            return old["Labels"][_ADDRESS]
    if old:
        print(f"{node} is made again: it is broken, or was made another way.", flush=True)
        _remove(old)
        addresses = [old["Labels"][_ADDRESS], *addresses]
    files.write_private(archive, seed)
    for address in addresses:
        podman("rm", "--force", "--ignore", "--time=0", _container(name, node))
        # A fixed hardware address: a node that comes back must be the same one to its peers.
        hardware = ":".join(f"{byte:02x}" for byte in (2, 0x42, *ipaddress.IPv4Address(address).packed))
        address_options = [
            f"--ip={address}",
            f"--mac-address={hardware}",
            f"--label={_ADDRESS}={address}",
            f"--label={_SPEC}={spec}",
        ]
        try:
            podman("run", "--detach", *address_options, f"--network={network}", *settings, base)
        except LabError as error:
            if "already allocated" not in str(error):
                raise
        else:
            return address
    raise LabError(f"{node} finds no address that is free. Take the lab down and bring it up again.")


def _remove(container: dict) -> None:
    if container["State"] != "running":
        # podman may have lost track of a running container, but its runtime has not.
        run([*machine.enter(), "crun", "delete", "--force", container["Id"]], check=False)
    podman("rm", "--force", "--time=0", container["Id"])


def _first_process(container: str) -> int | None:
    """Return the host PID of a container's first process, or None if the container is off.

    podman's own records may be wrong after a crash of the machine.
    """
    pid, start = _first_processes.get(container, (0, ""))
    if start and _start(pid) == start:
        return pid
    pid = int(podman("inspect", "--format", "{{.State.Pid}}", container, check=False).strip() or 0)
    start = _start(pid) if pid else ""
    _first_processes[container] = pid, start
    return pid if start else None


def _cleared_up(container: str) -> bool:
    """Clean up after an ended container; return False if podman has not yet noticed its end."""
    try:
        podman("container", "cleanup", container)
    except LabError as error:
        if "refusing to clean up" in str(error):
            return False
        raise
    return True


def _all_processes(first: int) -> set[int]:
    """Return the host PIDs of all processes on the node with this first process."""
    namespace = os.readlink(f"/proc/{first}/ns/pid")
    result = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            if os.readlink(path / "ns" / "pid") == namespace:
                result.add(int(path.name))
    return result


def _start(pid: int) -> str:
    """Return when a process started, in ticks since boot; "" if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _settings(name: str, node: str, seed: Path, mounts: Sequence[Path]) -> list[str]:
    return [
        f"--name={_container(name, node)}",
        f"--label={_LABEL}={files.identity(name)}",
        f"--label={_NODE}={node}",
        f"--hostname={node}",
        "--no-hosts",  # otherwise podman would write the peers' names itself
        "--systemd=always",
        "--privileged",
        "--restart=always",  # a reboot from inside restarts it
        "--pids-limit=0",
        "--shm-size=2g",
        *machine.ulimits(),
        *(f"--volume={path}:{path}:ro" for path in mounts),
        f"--volume={seed}:/var/lib/lab/seed.tar:ro",
    ]


def _network_name(name: str) -> str | None:
    result = podman(
        "network", "ls", "--format", "{{.Name}}", "--filter", f"label={_LABEL}={files.identity(name)}"
    ).split()
    return result[0] if result else None


def _network(name: str) -> tuple[str, ipaddress.IPv4Network]:
    """Create the lab's network on a free subnet chosen by podman, without podman's name server, which knows the
    peers.
    """
    network = _network_name(name)
    if network is None:
        # A new name each time: podman remembers addresses by network name, even those of an `up` that was killed.
        network = f"{files.identity(name)}-{secrets.token_hex(2)}"
        podman("network", "create", "--disable-dns", f"--label={_LABEL}={files.identity(name)}", network)
    subnet = json.loads(podman("network", "inspect", network))[0]["subnets"][0]["subnet"]
    return network, ipaddress.IPv4Network(subnet)


def _bridge(network: str) -> str:
    return json.loads(podman("network", "inspect", network))[0]["network_interface"]


def _pin_bridge(network: str) -> None:
    """Fix the bridge's hardware address.

    Otherwise it changes when a node stops or starts, and the nodes do not respond to this machine for half a minute.
    """
    bridge = _bridge(network)
    run(["ip", "link", "set", bridge, "address", Path(f"/sys/class/net/{bridge}/address").read_text().strip()])


def _mounts() -> list[Path]:
    """Return the paths on this machine that nodes mount: the environment with torch, its Python, and the jobs' files.

    Raises:
        LabError: without an environment, or if its Python cannot be shared.
    """
    python = VENV / "bin" / "python"
    if not python.exists():
        raise LabError(f"{VENV} is missing; jobs on the nodes run with it. Make it: make venv")
    prefix = Path(run([python, "-c", "import sys; print(sys.base_prefix)"]).strip())
    if prefix == Path("/usr/local"):
        raise LabError(f"{VENV} was made from the Python in /usr/local, which hides a node's own. {_OTHER_PYTHON}")
    python_mounts = [] if prefix == Path("/usr") else [prefix]  # the nodes have the Python of the same release
    expected = [VENV, CHECKOUT / "examples", CHECKOUT / "tests", *python_mounts, *machine.package_directories()]
    return [path for path in expected if path.exists()]


def _inodes(mounts: Sequence[Path]) -> bytes:
    """Return the inodes of mounted directories: a node would not see a directory that was deleted and recreated."""
    return repr([(path.stat().st_dev, path.stat().st_ino) for path in mounts]).encode()


def _wait_for_logins(lab: Lab, *only: str) -> None:
    def ready(node: Node) -> bool:
        arguments = lab.ssh(node.name, "true", options=["-o", "ConnectTimeout=5", "-o", "BatchMode=yes"])
        try:
            return subprocess.run(arguments, capture_output=True, check=False, timeout=30).returncode == 0
        except subprocess.TimeoutExpired:  # a login may hang while the node is booting
            return False

    def wait(node: Node) -> None:
        try:
            eventually(f"Login at {node.name} ({node.address})", lambda: ready(node), timeout=READY_TIMEOUT, pause=0.2)
        except LabError as error:
            arguments = lab.ssh(node.name, "true", options=["-o", "ConnectTimeout=5", "-o", "BatchMode=yes"])
            try:
                output = subprocess.run(
                    arguments, capture_output=True, text=True, check=False, timeout=30
                ).stderr.strip()
            except subprocess.TimeoutExpired:
                output = "nothing for 30 s"
            raise LabError(f"{error} ssh says: {output}\n{_boot_log(lab, node.name)}") from error

    nodes = [node for node in lab.nodes if not only or node.name in only]
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(wait, nodes))


def _boot_log(lab: Lab, node: str) -> str:
    """Return the node's own messages about why it is not booting."""
    completed = lab.exec(node, ["journalctl", "--no-pager", "--boot", "--priority=err", "--lines=10"])
    return (completed.stdout + completed.stderr).strip()


def _usable_python(lab: Lab, *, required: bool) -> Path | None:
    """Return the launch interpreter if nodes can run it; nodes with an older release than this machine cannot."""
    python = VENV / "bin" / "python"
    node = lab.nodes[0].name
    arguments = lab.ssh(node, f"{shlex.quote(str(python))} -c 'import ctypes, ssl, yaml'")
    completed = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    if completed.returncode == 0:
        return python
    result = f"{node} cannot run {python}: {(completed.stderr or completed.stdout).strip()}"
    if required:
        raise LabError(f"{result}\n{_OTHER_PYTHON}")
    print(f"{result}\nThe inventory names no launch_python.", flush=True)
    return None


def _columns(text: str, number: int) -> list[list[str]]:
    return [row for row in (line.split(None, number - 1) for line in text.splitlines()) if len(row) == number]
