# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait for cloud-init and the locks of apt and dpkg, then report a machine's missing parts and problems. Needs root."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import resource
import shutil
import struct
import subprocess
import tempfile
import time

from ansible_collections.muster.training.plugins.module_utils._files import file_state
from ansible_collections.muster.training.plugins.module_utils._files.text import read

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

INFO = "/var/lib/dpkg/info"
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
TIME_SERVICES = ("chrony", "chronyd", "ntpsec", "ntp", "ntpd", "openntpd", "systemd-timesyncd")
LIMITS = "/etc/systemd/system.conf.d/90-muster.conf"
CAP_SYS_RESOURCE = 24
# A package's name, with or without an architecture: the rest of apt's syntax is left for apt to handle.
PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?")


class AptStateError(Exception):
    """The machine cannot be configured; the message explains why, with a remedy."""


def run(*argv: str) -> str:
    """Return a command's output, whether or not the command succeeds."""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def wait_for_cloud_init(seconds: float) -> None:
    """Wait for cloud-init to finish, whether or not it succeeds."""
    if shutil.which("cloud-init"):
        try:
            subprocess.run(
                ["cloud-init", "status", "--wait"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            status = " ".join(run("cloud-init", "status", "--long").split())
            raise AptStateError(
                f"cloud-init has not finished after {seconds:.0f} s ({status}). Check "
                "/var/log/cloud-init-output.log, or raise base_packages_wait"
            ) from None


def lock_holder(path: str) -> int:
    """Return the process ID of the lock holder, or 0."""
    try:
        with open(path, "rb+") as file:
            lock_request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _whence, _start, _length, pid = struct.unpack(
                "hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, lock_request)
            )
    except OSError:
        return 0
    return 0 if kind == fcntl.F_UNLCK else pid


def wait_for_locks(seconds: float) -> None:
    """Wait until no program is installing packages."""
    deadline = time.monotonic() + seconds
    for path in LOCKS:
        while True:
            pid = lock_holder(path)
            if not pid:
                break
            if time.monotonic() > deadline:
                command = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
                raise AptStateError(
                    f"{path} has been held by process {pid} ({command}) for more than {seconds:.0f} s. Wait until "
                    "it finishes, or stop it, then run this again"
                )
            time.sleep(0.5)


def is_damaged(path: str) -> bool:
    """Return whether dpkg cannot read a file list, which must have one absolute name per line and a final newline."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return True
    # an installed package owns at least the root directory, so an empty list means that it was lost in a crash
    lines = content.split(b"\n")
    return lines.pop() != b"" or not lines or any(not line.startswith(b"/") or b"\0" in line for line in lines)


def require_debian() -> None:
    """Raise AptStateError if the system does not use Debian packages."""
    release = dict(line.partition("=")[::2] for line in read("/etc/os-release").splitlines())
    kin = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".replace('"', "").split()
    if "debian" not in kin and "ubuntu" not in kin:
        name = release.get("PRETTY_NAME", "").strip('"') or "unknown"
        raise AptStateError(
            f"the system is {name}, but only Debian and Ubuntu are supported. Install the packages with its own "
            "package manager, and set base_packages_enabled to false for this host"
        )


def missing_packages(names: list[str]) -> list[str]:
    """Return the packages that are not installed, judging only by name; apt decides about the rest."""
    plain_names = [name for name in names if PLAIN_NAME.fullmatch(name)]
    format_option = "--showformat=${db:Status-Status} ${Package} ${Package}:${Architecture}\\n"
    lines = run("dpkg-query", "--show", format_option, *plain_names).splitlines() if plain_names else []
    installed = {name for line in lines for name in line.split()[1:] if line.startswith("installed ")}
    return [name for name in names if name not in installed]


def damaged_lists() -> dict[str, str]:
    """Return installed packages whose file list is damaged or missing, with the path of the list."""
    list_format = "${db:Status-Status} ${Package} ${Architecture} ${Multi-Arch}\\n"
    damaged = {}
    for line in run("dpkg-query", "--show", f"--showformat={list_format}").splitlines():
        status, package, architecture, *multi_arch = line.split()
        if status == "installed":
            name = f"{package}:{architecture}" if multi_arch == ["same"] else package
            path = f"{INFO}/{name}.list"
            if is_damaged(path):
                damaged[name] = path
    return damaged


def is_interrupted() -> bool:
    """Return whether dpkg was interrupted: it left a journal, or an unconfigured package."""
    states = run("dpkg-query", "--show", "--showformat=${db:Status-Status} ${db:Status-Eflag}\\n").splitlines()
    half_done = ("unpacked", "half-configured", "half-installed", "triggers-awaited", "triggers-pending")
    return bool(glob.glob("/var/lib/dpkg/updates/[0-9]*")) or any(state.split()[0] in half_done for state in states)


def broken_sources(paths: list[str]) -> dict[str, str]:
    """Return package sources that apt rejects, with apt's messages. Downloads are not kept."""
    broken = {}
    for path in filter(os.path.exists, paths):
        with tempfile.TemporaryDirectory() as lists:
            os.chmod(lists, 0o755)  # apt downloads as its own user
            options = [f"Dir::Etc::SourceList={path}", "Dir::Etc::SourceParts=/dev/null", f"Dir::State::Lists={lists}"]
            argv = ["apt-get", "update", *(word for option in options for word in ("-o", option))]
            completed = subprocess.run(argv, capture_output=True, text=True, check=False)
        if completed.returncode:
            broken[path] = " ".join(completed.stderr.split())
    return broken


def low_settings(minimums: dict[str, int]) -> dict[str, int]:
    """Return kernel settings that are below their required minimum, with the minimum."""
    low = {}
    for name, value in minimums.items():
        values = read(f"/proc/sys/{name.replace('.', '/')}").split()
        if len(values) != 1 or not values[0].isdigit():
            current = " ".join(values) or "unknown"
            raise AptStateError(
                f"the kernel setting {name} is {current}, not a number. Remove it from base_packages_sysctl"
            )
        if int(values[0]) < int(value):
            low[name] = int(value)
    return low


def highest_limit(kind: int, unit: int) -> int:
    """Return the highest limit that root can set on this machine, or -1 for unlimited."""
    capabilities = int(re.findall(r"CapEff:\s*([0-9a-f]+)", read("/proc/self/status"))[0], 16)
    hard = resource.getrlimit(kind)[1]
    free = capabilities >> CAP_SYS_RESOURCE & 1 or hard == resource.RLIM_INFINITY
    return -1 if free else hard // unit


def parse_size(text: str, memory: int) -> int:
    """Convert a size such as 64G, or a share of `memory` such as 50%, to bytes."""
    match = re.fullmatch(r"([0-9]+)(%|[kKmMgG])", text)
    if not match:
        raise AptStateError(
            f"base_packages_shm_size is {text!r}. Set it to a share of memory such as 50%, or a size such as 64G"
        )
    number, unit = int(match.group(1)), match.group(2).lower()
    return memory * number // 100 if unit == "%" else number << {"k": 10, "m": 20, "g": 30}[unit]


def waits_for_systemd(path: str) -> bool:
    """Return whether systemd still has to read our limits because an earlier run was interrupted."""
    for name, value in re.findall(r"(?m)^(DefaultLimit\w+)=(\w+)$", read(path)):
        number = str(int(value[:-1]) * 1024) if value.endswith("K") else value
        if run("systemctl", "show", f"--property={name}").strip() != f"{name}={number}":
            return True
    return False


def state(options: Data) -> Data:
    """Return the machine's complete state.

    Args:
        options: wait (seconds), packages (names), sources (files), sysctl (names and minimums), shm_size (text),
            files (paths).

    Raise AptStateError if the machine cannot be configured.
    """
    require_debian()
    wait_for_cloud_init(options["wait"])
    wait_for_locks(options["wait"])
    shm = os.statvfs("/dev/shm")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    units = run(
        "systemctl", "list-unit-files", "--state=enabled", "--no-legend", *(f"{name}.service" for name in TIME_SERVICES)
    )
    return {
        "missing": missing_packages(options["packages"]),
        "damaged": damaged_lists(),
        "interrupted": is_interrupted(),
        "has_lists": bool(glob.glob("/var/lib/apt/lists/*Packages*")),
        "broken_sources": broken_sources(options["sources"]),
        "clocks": [line.split()[0] for line in units.splitlines()],
        "low_sysctls": low_settings(options["sysctl"]),
        "files": file_state.read_files(options["files"]),
        "limits_pending": waits_for_systemd(LIMITS),
        "most_files": highest_limit(resource.RLIMIT_NOFILE, 1),
        "max_memlock": highest_limit(resource.RLIMIT_MEMLOCK, 1024),
        "shm_is_small": shm.f_blocks * shm.f_frsize < parse_size(options["shm_size"], memory) * 0.99,
    }
