# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of a launcher's needs, and of a DeepSpeed configuration before a run fails on it. Pure. Private."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._facts.deepspeed_config import (
    REMOVED,
    REMOVED_SINCE,
    batch_problem,
    wants,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, listed, odd_ones
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import launcher_of
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import version_tuple

NO_SSH_SINCE = (0, 14, 5)  # the first DeepSpeed whose launcher has --no_ssh
PACKAGES = {  # package with a program on Debian and Ubuntu
    "mpirun": "openmpi-bin (ansible-playbook site.yml --tags open_mpi -e open_mpi_enabled=true)",
    "ompi_info": "openmpi-bin (ansible-playbook site.yml --tags open_mpi -e open_mpi_enabled=true)",
    "orted": "openmpi-bin (ansible-playbook site.yml --tags open_mpi -e open_mpi_enabled=true)",
    "pdsh": "pdsh",
    "docker": "docker.io (ansible-playbook site.yml --tags docker_engine -e docker_engine_enabled=true)",
    "podman": "podman",
}
MODULES = {  # how to install a Python package, if not with pip
    "deepspeed": "ansible-playbook site.yml --tags deepspeed -e deepspeed_enabled=true",
}
FP16_SINCE = (7, 0)  # compute capability (deepspeed accelerator/cuda_accelerator.py, is_fp16_supported)
BF16_SINCE = (8, 0)  # older GPUs have no native bf16; torch emulates it


def check_programs(case: Case) -> list[Finding]:
    """The programs that the launcher calls must exist on the nodes where it calls them."""
    launcher, image = launcher_of(case.job), case.job.image
    findings = []
    missing: dict[str, list[str]] = {}
    for node in case.nodes:
        programs = case.facts[node.name].get("programs")
        if programs is None:  # not read
            continue
        needed = (case.job.container_engine,) if image else launcher.needed_programs(case.job, node.node_rank)
        for program in needed:
            if program not in programs:
                missing.setdefault(program, []).append(node.name)
    for program, names in missing.items():
        findings.append(
            error(
                "program-missing",
                names,
                f"{program} is not installed, and {'launch_image' if image else case.job.launcher} needs it",
                f"{program} on the PATH of a run",
                f"install {PACKAGES.get(program, program)}",
            )
        )
    return findings


def check_modules(case: Case) -> list[Finding]:
    """The launcher's package must be in the job's environment, in a version with the options that we use."""
    modules = [name for name in launcher_of(case.job).modules if name != "torch"]  # torch has its own check
    software = {node.name: facts for node, facts in case.part("software") if not facts["error"]}
    findings = []
    for module in modules:
        missing = [name for name, facts in software.items() if module not in facts["packages"]]
        if missing:
            findings.append(
                error(
                    "package-missing",
                    missing,
                    f"{case.job.interpreter} has no {module}, and launch_launcher is {case.job.launcher}",
                    f"{module} in the environment of the job's interpreter",
                    f"install it there ({MODULES.get(module, f'pip install {module}')}), or set launch_python to the "
                    "interpreter that has it",
                )
            )
    old = {
        name: facts["packages"]["deepspeed"]
        for name, facts in software.items()
        if "deepspeed" in modules
        and "deepspeed" in facts["packages"]
        and version_tuple(facts["packages"]["deepspeed"]) < NO_SSH_SINCE
    }
    if old and not case.job.deepspeed_launcher:
        findings.append(
            error(
                "deepspeed-too-old",
                old,
                f"DeepSpeed {listed(sorted(set(old.values())))}, whose launcher does not support --no_ssh",
                f"DeepSpeed {'.'.join(map(str, NO_SSH_SINCE))} or newer, to start one launcher on each node",
                "install a newer one, or set launch_deepspeed_launcher: pdsh",
            )
        )
    return findings


def check_same_interpreter(case: Case) -> list[Finding]:
    """A launcher on rank 0 that starts the other nodes calls their interpreters by its own interpreter's path."""
    if not launcher_of(case.job).bare_launcher:
        return []
    paths = {node.name: case.facts[node.name]["interpreter"] for node in case.nodes}
    usual, odd = odd_ones({name: path for name, path in paths.items() if path})
    if not odd:
        return []
    name, path = next(iter(odd.items()))
    return [
        error(
            "interpreter-differs",
            odd,
            f"{case.job.interpreter} is {path} on {name}, and {usual} on the others",
            "the same interpreter path on all nodes: DeepSpeed uses the first node's path everywhere",
            "set launch_python to a path that is the same on all nodes, or leave launch_deepspeed_launcher out",
        )
    ]


def check_executable(case: Case) -> list[Finding]:
    """A program run without an interpreter must be executable."""
    if not case.job.no_python:
        return []
    denied = [node.name for node, script in case.part("script") if script["is_file"] and not script["executable"]]
    if not denied:
        return []
    return [
        error(
            "script-not-executable",
            denied,
            f"{case.facts[denied[0]]['script']['path']} is not executable",
            "a program, since launch_no_python is true",
            "chmod +x it there, or leave launch_no_python out if it is a Python script",
        )
    ]


def configurations(case: Case) -> dict[str, dict[str, Any]]:
    """Each node's DeepSpeed configuration, if the job's arguments name one."""
    return {node.name: read for node, read in case.part("deepspeed_config")}


def check_config(case: Case) -> list[Finding]:
    """The configuration must exist, be readable, be the same on all nodes, and contain no removed keys."""
    read = configurations(case)
    if not read:
        return []
    findings = []
    broken = {name: one for name, one in read.items() if one["config"] is None}
    for problem in dict.fromkeys(one["error"] for one in broken.values()):
        names = [name for name, one in broken.items() if one["error"] == problem]
        findings.append(
            error(
                "deepspeed-config",
                names,
                f"the DeepSpeed configuration {broken[names[0]]['path']} cannot be read: {problem}",
                "the file named in the job's arguments, on each node",
                "copy it there (ansible-playbook site.yml --tags code -e code_source=DIRECTORY), or correct the "
                "arguments",
            )
        )
    good = {name: one["config"] for name, one in read.items() if one["config"] is not None}
    _usual, odd = odd_ones({name: json.dumps(config, sort_keys=True) for name, config in good.items()})
    if odd:
        findings.append(
            error(
                "deepspeed-config",
                odd,
                f"{read[next(iter(odd))]['path']} differs from the configuration on the other nodes",
                "the same configuration on all nodes",
                "copy it to all nodes again from one place (ansible-playbook site.yml --tags code -e "
                "code_source=DIRECTORY)",
            )
        )
    removed: dict[str, list[str]] = {}
    for node, software in [] if case.job.image else case.part("software"):  # the image has its own DeepSpeed
        version = software["packages"].get("deepspeed")
        if version and version_tuple(version) >= REMOVED_SINCE:
            for key in REMOVED:
                if key in good.get(node.name, {}):
                    removed.setdefault(key, []).append(node.name)
    for key, names in removed.items():
        findings.append(
            error(
                "deepspeed-config",
                names,
                f"the configuration has {key}, which DeepSpeed has rejected since {'.'.join(map(str, REMOVED_SINCE))}",
                "a configuration with only the settings of this DeepSpeed version",
                f"remove {key} from the configuration, or install an older DeepSpeed",
            )
        )
    return findings


def check_batch(case: Case) -> list[Finding]:
    """The batch sizes must fit the number of ranks; DeepSpeed only checks this after loading the model."""
    config = next((one["config"] for one in configurations(case).values() if one["config"] is not None), None)
    if config is None:
        return []
    problem = batch_problem(config, case.job.args, case.table.world_size)
    if problem is None:
        return []
    found, needed, todo = problem
    # fewer ranks count with model or pipeline parallelism, which a script may set up by itself
    make = warning if any(word in config for word in ("tensor_parallel", "sequence_parallel_size")) else error
    return [make("deepspeed-batch", [], found, needed, todo)]


def capability(device: dict[str, Any]) -> tuple[int, ...] | None:
    """A GPU's compute capability, None if the driver does not report it."""
    told = device.get("compute_capability")
    return tuple(told) if told else None


def check_precision(case: Case) -> list[Finding]:
    """Each node's GPUs must support the fp16 or bf16 requested; a node without a working GPU computes on the CPU."""
    config = next((one["config"] for one in configurations(case).values() if one["config"] is not None), None)
    if config is None:
        return []
    findings = []
    gpus = {node.name: facts for node, facts in case.part("gpus")}
    if wants(config, case.job.args, "fp16"):
        unfit = {name: "no GPU that works" for name, facts in gpus.items() if not facts["devices"]}
        for name, facts in gpus.items():
            for device in facts["devices"]:
                able = capability(device)
                if able is not None and able < FP16_SINCE and "DS_ALLOW_DEPRECATED_FP16" not in case.job.variables:
                    unfit[name] = f"{device['name']} of compute capability {'.'.join(map(str, able))}"
        if unfit:
            able_to = {
                name
                for name, facts in gpus.items()
                if facts["devices"] and all((capability(one) or (0,)) >= BF16_SINCE for one in facts["devices"])
            }
            instead = "bf16" if able_to == set(gpus) else "fp32 (fp16 and bf16 both disabled)"
            rest = [node.name for node in case.nodes if node.name not in unfit]
            without = f", or leave them out with -e nodes={','.join(rest)}" if rest else ""
            findings.append(
                error(
                    "deepspeed-precision",
                    unfit,
                    "fp16 is enabled, and " + listed(f"{name} has {what}" for name, what in unfit.items()),
                    f"GPUs of compute capability {'.'.join(map(str, FP16_SINCE))} or higher on all nodes, else "
                    "DeepSpeed says 'Type fp16 is not supported on your device'",
                    f"train in {instead}{without}",
                )
            )
    if wants(config, case.job.args, "bf16"):
        slow = {}
        for name, facts in gpus.items():
            for device in facts["devices"]:
                able = capability(device)
                if able is not None and able < BF16_SINCE:
                    slow[name] = f"{device['name']} of compute capability {'.'.join(map(str, able))}"
        if slow:
            findings.append(
                warning(
                    "deepspeed-precision",
                    slow,
                    "bf16 is enabled, and " + listed(f"{name} has {what}" for name, what in slow.items()),
                    f"GPUs of compute capability {'.'.join(map(str, BF16_SINCE))} or higher: older ones have no "
                    "instructions for bf16",
                    "train in fp16 or fp32, or leave these nodes out",
                )
            )
    return findings


def check_launchers(case: Case) -> list[Finding]:
    """All checks of this file."""
    return [
        *check_programs(case),
        *([] if case.job.image else check_modules(case)),
        *([] if case.job.image else check_same_interpreter(case)),
        *check_executable(case),
        *check_config(case),
        *check_batch(case),
        *check_precision(case),
    ]
