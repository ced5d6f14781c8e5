"""The lab's requirements on this machine: podman, a cgroup v2 tree, a lock, and access to package archives."""

from __future__ import annotations

import ast
import fcntl
import functools
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STORE = Path("/var/lib/muster-lab")
"""Images and disks, separate from those of the machine's own podman."""
STATE = Path("/run/muster-lab")
"""State that is lost when the machine reboots."""
NAMESPACE = STATE / "namespace"
LOCK = STATE / "lock"
WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH_WATCHES = 1024
NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
TOOLS = {
    "podman": "podman",
    "crun": "crun",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
"""The Debian/Ubuntu package for each command."""

# apt's settings for accessing packages; all others are left to the node.
_APT_SETTING = re.compile(r"^(Acquire::(https?|Check-(Valid-Until|Date))\b.*) \"(.+)\";$")


class LabError(Exception):
    """An unmet requirement, with a remedy; the message is for the user."""


def run(argv: Sequence[str | Path], *, timeout: float = 300, stdin: str | None = None, check: bool = True) -> str:
    """Run a command and return its standard output; with `check`, a failure raises a LabError with its output."""
    arguments = [str(word) for word in argv]
    try:
        completed = subprocess.run(arguments, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(arguments)}` did not finish within {timeout:.0f} s.") from error
    if check and completed.returncode:
        output = (completed.stderr or completed.stdout).strip()[-2000:]
        raise LabError(f"`{' '.join(arguments)}` failed ({completed.returncode}): {output}")
    return completed.stdout


def podman(*argv: str | Path, timeout: float = 300, stdin: str | None = None, check: bool = True) -> str:
    """Run podman with the lab's own store."""
    return run([*podman_command(), *argv], timeout=timeout, stdin=stdin, check=check)


def podman_command() -> list[str]:
    """Return the arguments before every podman command: the lab's own store, and its mount namespace if there is one.

    All labs share one namespace, since containers in different ones do not see each other's networks.
    """
    paths = {"root": STORE / "storage", "network-config-dir": STORE / "networks"}
    paths |= {"runroot": STATE / "storage", "tmpdir": STATE / "libpod"}
    return [*enter(), "podman", *(f"--{name}={path}" for name, path in paths.items())]


def enter() -> list[str]:
    """Return the arguments for running a command in the lab's mount namespace, if there is one."""
    return [] if _has_plain_cgroup_v2() else ["nsenter", f"--mount={NAMESPACE}"]


def require_tools() -> None:
    """Raise LabError, naming everything that is missing, if the lab cannot work on this machine."""
    if os.geteuid() != 0:
        raise LabError("Test hosts are containers with a network of their own, which needs root: use sudo.")
    missing = sorted({package for command, package in TOOLS.items() if shutil.which(command) is None})
    if not Path("/usr/lib/podman/netavark").exists() and shutil.which("netavark") is None:
        missing.append("netavark")
    if missing:
        raise LabError(f"Missing on this machine: {', '.join(missing)}. Install: apt-get install {' '.join(missing)}")


@contextmanager
def locked() -> Iterator[None]:
    """Hold this machine's lab lock: labs share images, subnets and the namespace. It is released if its holder is
    killed.
    """
    STATE.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another lab command is at work, waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def filesystem_at(mounts: str, path: str) -> str | None:
    """Return the type of the last mount at a path, from the text of /proc/mounts; None if there is none."""
    types = [fields[2] for fields in map(str.split, mounts.splitlines()) if fields[1] == path]
    return types[-1] if types else None


def ensure_namespace() -> None:
    """Create the mount namespace with a pure cgroup v2 tree, which crun needs; the machine's own tree remains
    unchanged.
    """
    if _has_plain_cgroup_v2():
        return
    if _mounted(NAMESPACE) == "nsfs":
        filesystem = run([*enter(), "stat", "-fc", "%T", "/sys/fs/cgroup"], check=False).strip()
        if filesystem == "cgroup2fs":
            return
    remove_namespace()
    for name in ("storage", "libpod"):  # podman's state from an earlier namespace, if /run survives reboots
        shutil.rmtree(STATE / name, ignore_errors=True)
    NAMESPACE.touch()
    run(["mount", "--bind", NAMESPACE, NAMESPACE])
    run(["mount", "--make-private", NAMESPACE])
    mount = "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup"
    run(["unshare", f"--mount={NAMESPACE}", "--propagation", "private", "sh", "-c", mount])


def remove_namespace() -> None:
    """Remove the mount namespace, even a partial one."""
    while _mounted(NAMESPACE):
        run(["umount", NAMESPACE])
    NAMESPACE.unlink(missing_ok=True)


def ensure_limits(nodes: int) -> None:
    """Raise kernel limits so that they suffice for all labs, including one with this many nodes, until
    `restore_limits`.

    Linux allows 128 file watchers per user, and root is the same user on all nodes: systemd needs 6 per node, and hangs
    without them. It knows 1024 neighbors in all networks together: with more than 30 nodes that talk to each other,
    some lose their way.
    """
    for limit, enough in ((WATCHES, ENOUGH_WATCHES), (NEIGHBOURS, 2 * nodes**2)):
        now = int(limit.read_text())
        if now < enough:
            before = STATE / limit.name
            if not before.exists():
                before.write_text(f"{now}\n")
            limit.write_text(f"{enough}\n")


def restore_limits() -> None:
    """Undo `ensure_limits`."""
    for limit in (WATCHES, NEIGHBOURS):
        before = STATE / limit.name
        if before.exists():
            limit.write_text(before.read_text())
            before.unlink()


def ulimits() -> list[str]:
    """Return the limits of a rented machine, as far as this process can set them (raising needs CAP_SYS_RESOURCE)."""
    most = int(Path("/proc/sys/kernel/pid_max").read_text())  # podman lowers its own process limit to this
    files, processes = (
        ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
        for hard, ceiling in (
            (resource.getrlimit(resource.RLIMIT_NOFILE)[1], 1048576),
            (resource.getrlimit(resource.RLIMIT_NPROC)[1], most),
        )
    )
    return [f"--ulimit=nofile={min(1024, files)}:{files}", f"--ulimit=nproc={processes}:{processes}"]


def apt_settings() -> list[str]:
    """Return this machine's settings for package archives (proxy, checks) as lines for an apt configuration file."""
    if shutil.which("apt-config") is None:
        return []
    lines = run(["apt-config", "dump"]).splitlines()
    return [line for line in lines if _APT_SETTING.match(line)]


def package_settings() -> dict[str, bytes]:
    """Return files that let a node reach package archives like this machine: apt, pip, certificates.

    Paths are relative to the root directory.
    """
    files = {}
    if lines := apt_settings():
        files["etc/apt/apt.conf.d/90machine"] = "\n".join([*lines, ""]).encode()
    own_authorities = sorted(Path("/usr/local/share/ca-certificates").glob("**/*.crt"))
    if own_authorities:
        for path in [*own_authorities, Path("/etc/ssl/certs/ca-certificates.crt")]:
            files[str(path)[1:]] = path.read_bytes()
    if settings := _pip_settings():
        lines = [f"{key} = {value}" for key, value in settings.items()]
        files["etc/pip.conf"] = "\n".join(["[global]", *lines, ""]).encode()
    return files


def package_directories() -> list[Path]:
    """Return the local directories in which this machine's pip finds packages."""
    text = " ".join(_pip_settings().values()).split()
    paths = {Path(word.removeprefix("file://")) for word in text if word.startswith(("/", "file:///"))}
    return sorted(path.parent if path.name == "simple" else path for path in paths if path.is_dir())


@functools.cache
def _pip_settings() -> dict[str, str]:
    """Return this machine's pip settings for package sources, from its files and environment; empty if only PyPI."""
    kinds = ("find-links", "index-url", "extra-index-url", "cert", "proxy", "trusted-host")
    result: dict[str, str] = {}
    for line in run([sys.executable, "-m", "pip", "config", "list"], check=False).splitlines():
        name, value = line.split("=", 1)
        key = name.rpartition(".")[2]
        if key in kinds:
            result[key] = " ".join(ast.literal_eval(value).split())
    return result


def eventually(what: str, condition: Callable[[], bool], *, timeout: float, pause: float = 0.1) -> None:
    """Wait until `condition()` is true; after `timeout` seconds, raise a LabError that mentions `what`."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not within {timeout:.0f} s.")
        time.sleep(pause)


@functools.cache
def _has_plain_cgroup_v2() -> bool:
    return filesystem_at(Path("/proc/mounts").read_text(), "/sys/fs/cgroup") == "cgroup2"


def _mounted(path: Path) -> str | None:
    return filesystem_at(Path("/proc/mounts").read_text(), str(path))
