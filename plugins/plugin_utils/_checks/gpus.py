# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of GPUs: present, healthy, free, and all using the same driver version. Pure. Private to this collection."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, listed
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

IDLE_MEMORY_MIB = 1024  # GPU memory that the driver itself may use; 600 MiB seen with NVLink fabrics


def check_driver(case: Case) -> list[Finding]:
    """nvidia-smi must answer, and the loaded module, the library and the module on disk must have the same version."""
    findings = []
    for node, gpus in case.part("gpus"):
        findings += driver_findings(node.name, gpus, case)
    return findings


def driver_findings(name: str, gpus: dict[str, Any], case: Case) -> list[Finding]:
    """The first problem of a node's driver; its consequences are not reported separately."""
    state, said, driver = gpus["smi"]["state"], gpus["smi"]["said"], gpus["driver"]
    loaded, library, on_disk = driver["loaded"], driver["library"], driver["on_disk"]
    reboot = "reboot the node, or unload and load the module (ansible-playbook site.yml --tags nvidia_driver)"
    if state == "hangs":
        return [
            error(
                "nvidia-smi-hangs",
                [name],
                "nvidia-smi did not answer within 10 s",
                "a driver that responds",
                "look for 'NVRM: Xid' in dmesg, stop whatever uses the GPUs, and reboot the node",
            )
        ]
    if state == "mismatch" or (loaded and library and loaded != library):
        versions = f"loaded is {loaded or 'another version'}, the library is {library or 'not found'}"
        disk = f", installed on disk is {on_disk}" if on_disk else ""
        return [
            error(
                "driver-mismatch",
                [name],
                f"the driver was upgraded while it was loaded: {versions}{disk}{f' ({said})' if said else ''}",
                "the same driver version in the kernel and in the library",
                f"{reboot}; exclude it from unattended upgrades",
            )
        ]
    if state == "no-driver" or (gpus["pci"] and not gpus["count"] and state == "absent"):
        by = " (nouveau has the GPU)" if gpus["nouveau"] else ""
        kernel = "" if on_disk else f"; there is no module for the kernel {case.facts[name]['kernel']}"
        return [
            error(
                "driver-not-loaded",
                [name],
                f"the NVIDIA driver is not loaded{by}{kernel}",
                "a loaded driver",
                "install it for the running kernel (ansible-playbook site.yml --tags nvidia_driver), or reboot into "
                "the kernel that has it",
            )
        ]
    if state in ("gpu-lost", "failed"):
        return [
            error(
                "gpu-broken",
                [name],
                f"nvidia-smi fails: {said or 'no reason given'}",
                "GPUs that respond",
                "look for 'NVRM: Xid' in dmesg; reboot, and have the GPU replaced if the error returns",
            )
        ]
    if state == "no-gpu" and gpus["pci"]:
        return [
            error(
                "gpu-broken",
                [name],
                f"the PCI bus has {gpus['pci']} GPU{'' if gpus['pci'] == 1 else 's'} of NVIDIA, and "
                f"{f'driver {loaded}' if loaded else 'the driver'} finds none it can drive: {said}",
                "a driver that finds all GPUs of the node",
                "look for 'NVRM' in dmesg: if it says that the driver does not support the GPU, install another "
                "branch or the open kernel modules (ansible-playbook site.yml --tags nvidia_driver, from Blackwell on "
                "with -e nvidia_driver_open=true); "
                "otherwise reboot, and have the GPU replaced if it is still not found. To run without GPUs, add -e "
                "preflight_skip=gpu-broken",
            )
        ]
    if loaded and on_disk and loaded != on_disk:
        return [
            warning(
                "driver-pending",
                [name],
                f"driver {loaded} is loaded, but {on_disk} is installed on disk",
                "the installed driver loaded in the kernel: its library may change next",
                f"at the next opportunity {reboot}",
            )
        ]
    return []


def check_health(case: Case) -> list[Finding]:
    """Each GPU must answer all queries and have no memory errors."""
    findings = []
    for node, gpus in case.part("gpus"):
        for device in gpus["devices"]:
            if device["fault"]:
                findings.append(
                    error(
                        "gpu-broken",
                        [node.name],
                        f"GPU {device['index']} ({device['name']}) says: {device['fault']}",
                        "a GPU that works",
                        "look for 'NVRM: Xid' in dmesg; reboot, and have it replaced if the error returns",
                    )
                )
            elif device["ecc_uncorrected"] or device["page_retirement_pending"]:
                found = f"{device['ecc_uncorrected'] or 0} uncorrected memory errors"
                if device["page_retirement_pending"]:
                    found += ", and memory pages pending retirement"
                findings.append(
                    warning(
                        "gpu-memory-errors",
                        [node.name],
                        f"GPU {device['index']} ({device['name']}) has {found}",
                        "a GPU without memory errors: results may be wrong, or the job may fail",
                        "reset the GPU (nvidia-smi -r) or reboot; have it replaced if they return",
                    )
                )
    return findings


def check_count(case: Case) -> list[Finding]:
    """Slots must equal GPUs. If no node has a GPU, the job runs on the CPU and any number is fine."""
    findings = []
    gpus = {node.name: facts for node, facts in case.part("gpus")}
    some = any(facts["count"] for facts in gpus.values())
    broken = {name for finding in check_driver(case) for name in finding.nodes if finding.severity == "error"}
    for node in case.nodes:
        facts = gpus.get(node.name)
        if facts is None or not some or node.name in broken:
            continue
        count = facts["count"]
        if node.slots > count and (case.job.launcher != "env" or count == 0):
            findings.append(
                error(
                    "gpu-count",
                    [node.name],
                    f"{count} GPUs for {node.slots} processes",
                    "a GPU for each process",
                    "check whether a GPU is lost (nvidia-smi, dmesg); or correct node_slots, or use -e "
                    "nproc_per_node=N",
                )
            )
        elif node.slots < count and case.job.launcher != "env":
            findings.append(
                warning(
                    "gpu-idle",
                    [node.name],
                    f"{node.slots} processes for {count} GPUs",
                    "a process for each GPU",
                    "correct node_slots, or use -e nproc_per_node=N, unless the others should stay free",
                )
            )
    return findings


def check_free(case: Case) -> list[Finding]:
    """No process may be using a GPU. Muster runs are reported separately (busy)."""
    findings = []
    for node, gpus in case.part("gpus"):
        own_runs = {run["run_id"] for run in case.facts[node.name]["runs"]}
        strangers = [process for process in gpus["processes"] if process["run"] not in own_runs]
        if strangers:
            leftover = any(process["orphan"] or process["run"] for process in strangers)
            end = " ".join(str(process["pid"]) for process in strangers)
            findings.append(
                error(
                    "gpu-busy",
                    [node.name],
                    "GPUs are in use by " + listed((process_words(process) for process in strangers), 3),
                    "GPUs that are not in use",
                    f"wait for it, or kill it: kill {end}" + (" (left over: its parent is gone)" if leftover else ""),
                )
            )
            continue
        full = [
            device
            for device in gpus["devices"]
            if (device["memory_used_mib"] or 0) > IDLE_MEMORY_MIB and not gpus["processes"]
        ]
        if full:
            used = listed(f"GPU {device['index']}: {device['memory_used_mib']} MiB" for device in full)
            findings.append(
                error(
                    "gpu-busy",
                    [node.name],
                    f"GPU memory is in use by processes that are not visible ({used})",
                    "GPUs that are not in use",
                    "run as root: fuser -v /dev/nvidia*; check containers; reboot if nothing is found",
                )
            )
    return findings


def process_words(process: dict[str, Any]) -> str:
    """A process for a message."""
    user = f" of {process['user']}" if process["user"] else ", which is in another container or gone"
    memory = f", {process['memory_mib']} MiB" if process["memory_mib"] else ""
    run = f", run {process['run']}" if process["run"] else ""
    orphan = ", its parent is gone" if process["orphan"] else ""
    command = one_line(process["command"], 80)  # a program given by -c has many lines
    return f"process {process['pid']}{user} ({command}{memory}{run}{orphan})"


def check_gpus(case: Case) -> list[Finding]:
    """All checks of this file."""
    return [*check_driver(case), *check_health(case), *check_count(case), *check_free(case)]
