# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Query a node's GPUs: the output of nvidia-smi, the driver versions, and the processes that use a GPU.

The parsers accept the output of all drivers since 418.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import shutil
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command, CommandOutput
from ansible_collections.muster.training.plugins.module_utils._files.text import read_value

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

SMI_TIMEOUT = 10.0  # seconds; without persistence mode, a driver with eight GPUs takes 5 s
# Fields that all drivers since 418 support; a single unknown field would make nvidia-smi reject the whole query.
GPU_FIELDS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "compute_mode")
HEALTH_FIELDS = ("ecc.errors.uncorrected.volatile.total", "retired_pages.pending")
PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")
# Searched in addition to PATH, which may be short in non-interactive sessions: used by containers, WSL and older
# installers.
SMI_DIRECTORIES = ("/usr/bin", "/usr/local/nvidia/bin", "/usr/local/bin", "/opt/bin", "/usr/lib/wsl/lib")
LIBRARY_DIRECTORIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/usr/lib",
)
# Programs that hold a GPU open without computing on it: the vendors' services, monitoring tools, and display servers.
IDLE_PROGRAMS = re.compile(
    r"(nvidia-(smi|persistenced|powerd|settings|device-plugin)|nv-(hostengine|fabricmanager)|dcgm(i|-exporter)?"
    r"|amd-smi|rocm-smi|rocminfo|amdgpu_top|gpuagent"
    r"|gpu-feature-discovery|nvtop|btop|nvitop|gpustat|glances|otelopscol"
    r"|Xorg|X|Xwayland|gnome-shell|gdm-.*|kwin_(x11|wayland)|plasmashell|sddm-.*|cinnamon|sway)\Z"
)
PYTHON = re.compile(r"python[0-9.]*\Z")
NVIDIA = "0x10de"  # PCI vendor
PCI_DEVICES = "/sys/bus/pci/devices"
VIRTUAL_MACHINES = ("vfio-pci", "pciback")  # drivers that reserve a device for a virtual machine


# --- output of nvidia-smi --------------------------------------------------------------------------------------------


def parse_gpus(text: str) -> list[dict[str, Any]]:
    """Parse the output of --query-gpu with --format=csv: a line of names with units, then one line per GPU.

    Numbers are int, or None if the driver prints [N/A], [Not Supported], [Unknown Error] ... instead. `fault` is such
    a text if it indicates a broken GPU.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    start = next((number for number, line in enumerate(lines) if line.startswith("index, ")), None)
    if start is None:
        return []
    names = [name.split(" [")[0] for name in lines[start].split(", ")]
    gpus = []
    for line in lines[start + 1 :]:
        values = dict(zip(names, [value.strip() for value in line.split(", ")]))
        if len(values) != len(names) or not values["index"].isdigit():
            continue
        errors = {value for value in values.values() if re.search(r"Unknown Error|requires reset|ERR!|is lost", value)}
        gpus.append(
            {
                "index": int(values["index"]),
                "uuid": values["uuid"],
                "name": re.sub(r"^NVIDIA ", "", values["name"]),  # drivers before 465 leave out the vendor
                "driver": values["driver_version"],
                "memory_mib": leading_number(values["memory.total"]),
                "memory_used_mib": leading_number(values["memory.used"]),
                "compute_mode": values["compute_mode"],
                "ecc_uncorrected": leading_number(values.get(HEALTH_FIELDS[0], "")),
                "page_retirement_pending": values.get(HEALTH_FIELDS[1]) == "Yes",
                "error": ", ".join(sorted(error.strip("[]") for error in errors)),
            }
        )
    return gpus


def parse_capabilities(text: str) -> list[list[int]]:
    """Parse the compute capabilities of all GPUs, such as [8, 9], in index order; return [] with an old driver."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines[:1] != ["compute_cap"] or not all(re.match(r"[0-9]+\.[0-9]+\Z", line) for line in lines[1:]):
        return []
    return [[int(part) for part in line.split(".")] for line in lines[1:]]


def leading_number(text: str) -> int | None:
    """Return the integer at the start of a value such as "143771 MiB", or None if there is none."""
    match = re.match(r"[0-9]+", text)
    return int(match.group()) if match else None


def parse_processes(text: str) -> list[dict[str, Any]]:
    """Parse the output of --query-compute-apps with --format=csv. Process names may contain commas."""
    processes = []
    for line in text.splitlines():
        match = re.match(r"((?:GPU|MIG)-\S+), ([0-9]+), (.*), ([^,]*)\Z", line.strip())
        if match:
            processes.append(
                {
                    "gpu": match[1],
                    "pid": int(match[2]),
                    "command": match[3],
                    "memory_mib": leading_number(match[4]),
                }
            )
    return processes


def diagnose(output: CommandOutput) -> tuple[str, str]:
    """Return nvidia-smi's state and output; state: ok, hangs, mismatch, no-driver, no-gpu, gpu-lost or failed."""
    text = " ".join(output.text.split())[:300]
    if output.hangs:
        return "hangs", ""
    for state, pattern in (
        ("mismatch", r"Driver/library version mismatch"),
        ("no-driver", r"couldn't communicate with the NVIDIA driver|Driver Not Loaded|couldn't find libnvidia-ml"),
        ("gpu-lost", r"Unable to determine the device handle|GPU is lost|fallen off the bus"),
        ("no-gpu", r"No devices were found"),
    ):
        if re.search(pattern, output.text):
            return state, text
    return ("ok", "") if output.code == 0 else ("failed", text)


# --- queries ---------------------------------------------------------------------------------------------------------


def find_smi() -> str | None:
    """Return the path of nvidia-smi, or None if it is not installed."""
    return shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=os.pathsep.join(SMI_DIRECTORIES))


def start_smi_query(smi: str, target: str, fields: tuple[str, ...]) -> Command:
    """Start an nvidia-smi query."""
    environment = {**os.environ, "LC_ALL": "C"}
    return Command([smi, f"--query-{target}={','.join(fields)}", "--format=csv"], env=environment)


class GpuQuery:
    """A query for GPUs, started on creation; its slow parts run while other facts are being read."""

    def __init__(self) -> None:
        self.smi = find_smi()
        self.deadline = time.monotonic() + SMI_TIMEOUT
        if self.smi:
            self.gpus = start_smi_query(self.smi, "gpu", GPU_FIELDS + HEALTH_FIELDS)
            self.apps = start_smi_query(self.smi, "compute-apps", PROCESS_FIELDS)
            self.capabilities = start_smi_query(self.smi, "gpu", ("compute_cap",))  # a field of drivers since 510
        loaded = read_value("/sys/module/nvidia/version")
        self.driver = {"loaded": loaded or None, "library": library_version(), "on_disk": None}
        self.modinfo = None
        modinfo = shutil.which("modinfo") or shutil.which("modinfo", path="/usr/sbin:/sbin")
        if modinfo and (self.smi or loaded or self.driver["library"]):
            self.modinfo = Command([modinfo, "-F", "version", "nvidia"])

    def result(self) -> dict[str, Any]:
        """Return vendor, devices, processes, smi (state, output), driver (loaded, library, on_disk), nouveau, ..."""
        devices: list[dict[str, Any]] = []
        apps: list[dict[str, Any]] = []
        state, message = "absent", ""
        if self.smi:
            output = self.gpus.output(self.deadline)
            if "is not a valid field to query" in output.text:  # this driver dropped one of the health fields
                output = start_smi_query(self.smi, "gpu", GPU_FIELDS).output(self.deadline)
            state, message = diagnose(output)
            devices = parse_gpus(output.text)
            apps = parse_processes(self.apps.output(self.deadline).text)
            for device, capability in zip(devices, parse_capabilities(self.capabilities.output(self.deadline).text)):
                device["compute_capability"] = capability
        if self.modinfo:
            modinfo_output = self.modinfo.output(self.deadline)
            if modinfo_output.code == 0:
                self.driver["on_disk"] = modinfo_output.text.strip() or None
        gpu_count = len(devices) or (0 if state == "no-gpu" else count_driver_gpus())
        return {
            "vendor": "nvidia",
            "smi": {"state": state, "output": message, "path": self.smi or ""},
            "devices": devices,
            "count": gpu_count,
            "pci": gpu_count or count_pci_gpus(),
            "driver": self.driver,
            "nouveau": os.path.isdir("/sys/module/nouveau"),
            "processes": gpu_processes(apps),
        }


def count_driver_gpus() -> int:
    """Return how many GPUs this machine's NVIDIA driver lists, or 0 without a driver."""
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def count_pci_gpus() -> int:
    """Return how many NVIDIA display or 3D controllers are on the PCI bus, with or without a driver.

    Excludes those passed through to a virtual machine.
    """
    return sum(
        read_value(f"{device}/vendor") == NVIDIA
        and read_value(f"{device}/class").startswith("0x03")
        and os.path.basename(os.path.realpath(f"{device}/driver")) not in VIRTUAL_MACHINES
        for device in glob.glob(f"{PCI_DEVICES}/*")
    )


def library_version() -> str | None:
    """Return the version of the driver library that programs load, from the target of libnvidia-ml.so.1."""
    for directory in LIBRARY_DIRECTORIES:
        library = os.path.join(directory, "libnvidia-ml.so.1")
        if os.path.exists(library):
            return os.path.basename(os.path.realpath(library)).partition(".so.")[2] or None
    return None


# --- processes that use a GPU ----------------------------------------------------------------------------------------


def gpu_processes(
    apps: list[dict[str, Any]], device_glob: str = "/dev/nvidia[0-9]*", device_pattern: str = r"/dev/nvidia[0-9]+\Z"
) -> list[dict[str, Any]]:
    """Return the processes that use a GPU: those listed by nvidia-smi and those with a GPU's device file open.

    Each with pid, command, user, orphan (its parent has ended), run (its muster run, or ""), memory_mib, devices.
    apps: the processes that the vendor's tool lists; device_glob, device_pattern: its device files. nvidia-smi also
    lists processes of other containers, which are not in our /proc: their user is "".
    """
    processes: dict[int, dict[str, Any]] = {}
    for app in apps:
        entry = processes.setdefault(app["pid"], {**describe_process(app["pid"]), "memory_mib": 0, "devices": []})
        entry["command"] = entry["command"] or app["command"]
        entry["memory_mib"] += app["memory_mib"] or 0
        entry["devices"].append(app["gpu"])
    if glob.glob(device_glob):
        for pid, devices in open_gpu_devices(device_pattern).items():
            if pid not in processes:
                processes[pid] = {**describe_process(pid), "memory_mib": None, "devices": devices}
    return [
        processes[pid] for pid in sorted(processes) if not IDLE_PROGRAMS.match(program_name(processes[pid]["command"]))
    ]


def program_name(command: str) -> str:
    """Return the program name in a command line; for Python, the script or module that it runs."""
    names = [os.path.basename(word) for word in command.split()]
    if names and PYTHON.match(names[0]):
        names = [name for name in names[1:] if not name.startswith("-")] or names
    return names[0] if names else ""


def open_gpu_devices(device_pattern: str) -> dict[int, list[str]]:
    """Return {pid: its open GPU device files} of the processes visible to this user."""
    devices_by_pid = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            targets = {os.readlink(f"/proc/{name}/fd/{number}") for number in os.listdir(f"/proc/{name}/fd")}
        except OSError:
            continue
        devices = sorted(target for target in targets if re.match(device_pattern, target))
        if devices and int(name) != os.getpid():
            devices_by_pid[int(name)] = devices
    return devices_by_pid


def describe_process(pid: int) -> dict[str, Any]:
    """Return a process's pid, command, user, orphan and run, with "" for values that are not visible."""
    command = read_value(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:200]
    user, parent = "", 0
    for line in read_value(f"/proc/{pid}/status").splitlines():
        if line.startswith("PPid:"):
            parent = int(line.split()[1])
        elif line.startswith("Uid:"):
            try:
                user = pwd.getpwuid(int(line.split()[1])).pw_name
            except KeyError:
                user = line.split()[1]
    run = re.search(r"(?:^|\0)MUSTER_RUN_ID=([^\0]+)", read_value(f"/proc/{pid}/environ"))
    return {"pid": pid, "command": command, "user": user, "orphan": parent == 1, "run": run[1] if run else ""}
