# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that GPUs are present, healthy and free, and that the parts of their driver have the same version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks import amd_gpus
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._checks.start_conditions import live_run_ids
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import format_gpus
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_name, vendor_of
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

IDLE_MEMORY_MIB = 1024  # GPU memory that the driver itself may use; up to 600 MiB has been seen with NVLink fabrics


def check_driver(context: CheckContext) -> list[Finding]:
    """Check that nvidia-smi works, and that the loaded module, the library and the module on disk are in sync."""
    findings = []
    for node, gpus in context.nodes_with("gpus"):
        findings += DRIVER_FINDINGS[vendor_name(gpus)](node.name, gpus, context)
    return findings


def driver_findings(name: str, gpus: dict[str, Any], context: CheckContext) -> list[Finding]:
    """Return the first problem with a node's driver, without separately reporting its consequences."""
    state, message, driver = gpus["smi"]["state"], gpus["smi"]["output"], gpus["driver"]
    loaded, library, on_disk = driver["loaded"], driver["library"], driver["on_disk"]
    reboot_remedy = "reboot the node, or unload and load the module (ansible-playbook site.yml --tags nvidia_driver)"
    if state == "hangs":
        return [
            error(
                "nvidia-smi-hangs",
                [name],
                problem="nvidia-smi did not respond within 10 s",
                requirement="a driver that responds",
                remedy="look for 'NVRM: Xid' in the output of sudo dmesg, stop the processes that use the GPUs, and "
                "reboot the node",
            )
        ]
    if state == "mismatch" or (loaded and library and loaded != library):
        versions = f"{loaded or 'another version'} is loaded, but the library is {library or 'not found'}"
        disk = f", and {on_disk} is installed on disk" if on_disk else ""
        return [
            error(
                "driver-mismatch",
                [name],
                problem="the driver was upgraded while it was loaded: "
                f"{versions}{disk}{f' ({message})' if message else ''}",
                requirement="the same driver version in the kernel and in the library",
                remedy=f"{reboot_remedy}; exclude it from unattended upgrades",
            )
        ]
    if state == "no-driver" or (gpus["pci"] and not gpus["count"] and state == "absent"):
        owner = " (nouveau drives the GPU)" if gpus["nouveau"] else ""
        kernel = "" if on_disk else f"; the kernel {context.facts[name]['kernel']} has no module for it"
        return [
            error(
                "driver-not-loaded",
                [name],
                problem=f"the NVIDIA driver is not loaded{owner}{kernel}",
                requirement="a loaded driver",
                remedy="install it for the running kernel (ansible-playbook site.yml --tags nvidia_driver), or reboot "
                "into the kernel that has it",
            )
        ]
    if state in ("gpu-lost", "failed"):
        return [
            error(
                "gpu-broken",
                [name],
                problem=f"nvidia-smi failed: {message or 'no reason given'}",
                requirement="GPUs that respond",
                remedy="look for 'NVRM: Xid' in the output of sudo dmesg; reboot, and have the GPU replaced if the "
                "error returns",
            )
        ]
    if state == "no-gpu" and gpus["pci"]:
        return [
            error(
                "gpu-broken",
                [name],
                problem=f"the PCI bus has {gpus['pci']} NVIDIA GPU{'' if gpus['pci'] == 1 else 's'}, but "
                f"{f'driver {loaded}' if loaded else 'the driver'} cannot drive any of them: {message}",
                requirement="a driver that detects all GPUs of the node",
                remedy="look for 'NVRM' in the output of sudo dmesg: if it says that the driver does not support the "
                "GPU, install another "
                "branch or the open kernel modules (ansible-playbook site.yml --tags nvidia_driver, from Blackwell "
                "onward with -e nvidia_driver_open=true); "
                "otherwise reboot, and have the GPU replaced if it is still not found. To run without GPUs, add -e "
                "preflight_skip=gpu-broken",
            )
        ]
    if loaded and on_disk and loaded != on_disk:
        return [
            warning(
                "driver-pending",
                [name],
                problem=f"driver {loaded} is loaded, but {on_disk} is installed on disk",
                requirement="the installed driver loaded in the kernel, because the library may be upgraded next",
                remedy=f"at the next opportunity, {reboot_remedy}",
            )
        ]
    return []


# By vendor: the function that returns the first problem with the driver on a node.
DRIVER_FINDINGS: dict[str, Callable[[str, dict[str, Any], CheckContext], list[Finding]]] = {
    "nvidia": driver_findings,
    "amd": lambda name, gpus, _context: amd_gpus.driver_findings(name, gpus),
}


def check_health(context: CheckContext) -> list[Finding]:
    """Check that each GPU responds to all queries and has no memory errors."""
    findings = []
    for node, gpus in context.nodes_with("gpus"):
        vendor = vendor_of(gpus)
        for device in gpus["devices"]:
            if device["error"]:
                findings.append(
                    error(
                        "gpu-broken",
                        [node.name],
                        problem=f"GPU {device['index']} ({device['name']}): {device['error']}",
                        requirement="a working GPU",
                        remedy=f"look for '{vendor.kernel_messages}' in the output of sudo dmesg; reboot, and have it "
                        "replaced if the "
                        "error returns",
                    )
                )
            elif device["ecc_uncorrected"] or device["page_retirement_pending"]:
                errors = f"{device['ecc_uncorrected'] or 0} uncorrected memory errors"
                if device["page_retirement_pending"]:
                    errors += ", and memory pages pending retirement"
                findings.append(
                    warning(
                        "gpu-memory-errors",
                        [node.name],
                        problem=f"GPU {device['index']} ({device['name']}) has {errors}",
                        requirement=(
                            "a GPU without memory errors: otherwise results may be wrong, or the job may fail"
                        ),
                        remedy=(
                            f"reset the GPU ({vendor.reset}) or reboot; have the GPU replaced if the errors return"
                        ),
                    )
                )
    return findings


def check_count(context: CheckContext) -> list[Finding]:
    """Check that the number of slots equals the number of GPUs. If no node has a GPU, any number is allowed."""
    findings = []
    gpus = {node.name: facts for node, facts in context.nodes_with("gpus")}
    any_gpu = any(facts["count"] for facts in gpus.values()) or bool(context.job.gpus)
    broken = {name for finding in check_driver(context) for name in finding.nodes if finding.severity == "error"}
    for node in context.nodes:
        facts = gpus.get(node.name)
        if facts is None or not any_gpu or node.name in broken:
            continue
        count = facts["count"]
        if count < len(context.job.gpus):
            findings.append(missing_gpus(node.name, facts, context.job.gpus))
            continue
        if node.slots > count and (context.job.launcher != "env" or count == 0):
            findings.append(
                error(
                    "gpu-count",
                    [node.name],
                    problem=f"{count} GPUs for {node.slots} processes",
                    requirement="a GPU for each process",
                    remedy=f"check whether a GPU is lost ({vendor_of(facts).tool}, dmesg); or correct node_slots, or "
                    "add -e nproc_per_node=N",
                )
            )
        elif node.slots < count and context.job.launcher != "env":
            findings.append(
                warning(
                    "gpu-idle",
                    [node.name],
                    problem=f"{node.slots} processes for {count} GPUs",
                    requirement="a process for each GPU",
                    remedy="correct node_slots, or add -e nproc_per_node=N, unless the other GPUs should stay free",
                )
            )
    return findings


def missing_gpus(name: str, gpus: dict[str, Any], selection: tuple[int, ...]) -> Finding:
    """Return a finding for a node that lacks some of the selected GPUs."""
    missing = format_gpus(gpu for gpu in selection if gpu not in gpus["selected"])
    total = gpus["total"]
    return error(
        "gpu-count",
        [name],
        problem=f"the node has no {missing}: it has {total or 'no'} GPU{'' if total == 1 else 's'}",
        requirement="the GPUs that launch_gpus names",
        remedy=(
            f"choose from those that {vendor_of(gpus).tool} shows on the node, with -e gpus=0,1, or omit this option "
            "to use all"
        ),
    )


def check_free(context: CheckContext) -> list[Finding]:
    """Check that no process is using a GPU. Muster runs are reported separately (busy)."""
    findings = []
    for node, gpus in context.nodes_with("gpus"):
        # a run assigned to other GPUs that uses one of these after all is not reported as busy
        run_ids = set(live_run_ids(node.address, context.facts[node.name]["runs"], context.job.gpus))
        foreign_processes = [process for process in gpus["processes"] if process["run"] not in run_ids]
        if foreign_processes:
            leftover = any(process["orphan"] or process["run"] for process in foreign_processes)
            pids = " ".join(str(process["pid"]) for process in foreign_processes)
            findings.append(
                error(
                    "gpu-busy",
                    [node.name],
                    problem="GPUs are in use by "
                    + format_list((describe_process(process) for process in foreign_processes), 3),
                    requirement="GPUs that are not in use",
                    remedy=f"wait for it, or kill it: sudo kill {pids}"
                    + (" (left over: its parent has exited)" if leftover else ""),
                )
            )
            continue
        occupied = [
            device
            for device in gpus["devices"]
            if (device["memory_used_mib"] or 0) > IDLE_MEMORY_MIB and not gpus["processes"]
        ]
        if occupied:
            memory_texts = format_list(f"GPU {device['index']}: {device['memory_used_mib']} MiB" for device in occupied)
            findings.append(
                error(
                    "gpu-busy",
                    [node.name],
                    problem=f"GPU memory is in use by processes that are not visible ({memory_texts})",
                    requirement="GPUs that are not in use",
                    remedy=(
                        f"run fuser -v {vendor_of(gpus).device_files} as root, and check containers; reboot the node "
                        "if neither shows a process"
                    ),
                )
            )
    return findings


def describe_process(process: dict[str, Any]) -> str:
    """Describe a process for a message."""
    user = f" of {process['user']}" if process["user"] else ", which is in another container or has exited"
    memory = f", {process['memory_mib']} MiB" if process["memory_mib"] else ""
    run = f", run {process['run']}" if process["run"] else ""
    orphan = ", its parent has exited" if process["orphan"] else ""
    command = single_line(process["command"], 80)  # a program passed with -c may have many lines
    return f"process {process['pid']}{user} ({command}{memory}{run}{orphan})"


def check_gpus(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [*check_driver(context), *check_health(context), *check_count(context), *check_free(context)]
