# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check a launcher's requirements, and check a DeepSpeed configuration before it makes a run fail."""

from __future__ import annotations

import json
import posixpath
import shlex
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext, find_outliers
from ansible_collections.muster.training.plugins.plugin_utils._checks.deepspeed_config import (
    REMOVED,
    REMOVED_SINCE,
    check_batch_sizes,
    is_enabled,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import exclude_spares, get_launcher
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import version_tuple
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

NO_SSH_SINCE = (0, 14, 5)  # the first DeepSpeed version whose launcher has --no_ssh
PACKAGES = {  # packages that provide these programs on Debian and Ubuntu
    "mpirun": "openmpi-bin (ansible-playbook site.yml --tags open_mpi -e open_mpi_enabled=true)",
    "ompi_info": "openmpi-bin (ansible-playbook site.yml --tags open_mpi -e open_mpi_enabled=true)",
    "orted": "openmpi-bin (ansible-playbook site.yml --tags open_mpi -e open_mpi_enabled=true)",
    "pdsh": "pdsh",
    "docker": "docker.io (ansible-playbook site.yml --tags docker_engine -e docker_engine_enabled=true)",
    "podman": "podman",
}
MODULES = {  # how to install a Python package other than with pip
    "deepspeed": "ansible-playbook site.yml --tags deepspeed -e deepspeed_enabled=true",
}
FP16_SINCE = (7, 0)  # compute capability (deepspeed accelerator/cuda_accelerator.py, is_fp16_supported)
BF16_SINCE = (8, 0)  # older GPUs have no native bf16; torch emulates it


def check_programs(context: CheckContext) -> list[Finding]:
    """Check that the programs that the launcher calls exist on the nodes where it calls them."""
    launcher, image = get_launcher(context.job), context.job.image
    findings = []
    missing: dict[str, list[str]] = {}
    for node in context.nodes:
        programs = context.facts[node.name].get("programs")
        if programs is None:  # the programs were not checked
            continue
        required = (context.job.container_engine,) if image else launcher.needed_programs(context.job, node.node_rank)
        for program in required:
            if program not in programs:
                missing.setdefault(program, []).append(node.name)
    for program, names in missing.items():
        findings.append(
            error(
                "program-missing",
                names,
                problem=f"{program} is not installed, but {'launch_image' if image else context.job.launcher} needs it",
                requirement=f"{program} on the run's PATH",
                remedy=f"install {PACKAGES.get(program, program)}",
            )
        )
    return findings


def check_modules(context: CheckContext) -> list[Finding]:
    """Check that the job's environment has the launcher's package, in a version that supports the options we use."""
    modules = [name for name in get_launcher(context.job).modules if name != "torch"]  # torch performs its own check
    software = {node.name: facts for node, facts in context.nodes_with("software") if not facts["error"]}
    findings = []
    for module in modules:
        missing = [name for name, facts in software.items() if module not in facts["packages"]]
        if missing:
            findings.append(
                error(
                    "package-missing",
                    missing,
                    problem=f"{context.interpreter_of(missing[0])} has no {module}, but launch_launcher is "
                    f"{context.job.launcher}",
                    requirement=f"{module} in the environment of the job's interpreter",
                    remedy=f"install it there ({MODULES.get(module, f'pip install {module}')}), or set launch_python "
                    "to the interpreter that has it",
                )
            )
    outdated = {
        name: facts["packages"]["deepspeed"]
        for name, facts in software.items()
        if "deepspeed" in modules
        and "deepspeed" in facts["packages"]
        and version_tuple(facts["packages"]["deepspeed"]) < NO_SSH_SINCE
    }
    if outdated and not context.job.deepspeed_launcher:
        findings.append(
            error(
                "deepspeed-too-old",
                outdated,
                problem=f"DeepSpeed {format_list(sorted(set(outdated.values())))}, whose launcher does not support "
                "--no_ssh",
                requirement=f"DeepSpeed {'.'.join(map(str, NO_SSH_SINCE))} or newer, to start one launcher on each "
                "node",
                remedy="install a newer version, or set launch_deepspeed_launcher: pdsh",
            )
        )
    return findings


def check_interpreter_path(context: CheckContext) -> list[Finding]:
    """Check that the interpreter path is the same on all nodes; a launcher on rank 0 uses it to start the others."""
    if not get_launcher(context.job).bare_launcher:
        return []
    paths = {node.name: context.facts[node.name]["interpreter"] for node in context.nodes}
    usual, odd = find_outliers({name: path for name, path in paths.items() if path})
    if not odd:
        return []
    name, path = next(iter(odd.items()))
    return [
        error(
            "interpreter-differs",
            odd,
            problem=f"{context.job.interpreter} is {path} on {name}, but {usual} on the other nodes",
            requirement="the same interpreter path on all nodes: DeepSpeed uses the first node's path everywhere",
            remedy="set launch_python to a path that is the same on all nodes, or remove launch_deepspeed_launcher",
        )
    ]


def check_executable(context: CheckContext) -> list[Finding]:
    """Check that a program that is run without an interpreter is executable."""
    if not context.job.no_python:
        return []
    denied = [
        node.name for node, script in context.nodes_with("script") if script["is_file"] and not script["executable"]
    ]
    if not denied:
        return []
    path = posixpath.normpath(context.facts[denied[0]]["script"]["path"])
    command = f"chmod +x {shlex.quote(path)} on the node"
    if context.code.source:  # each launch copies the program again
        original = posixpath.normpath(f"{context.code.source}/{context.job.script}")
        command = f"chmod +x {shlex.quote(original)} on this machine"
    return [
        error(
            "script-not-executable",
            denied,
            problem=f"{path} is not executable",
            requirement="an executable program, because launch_no_python is true",
            remedy=f"{command}, or remove launch_no_python if it is a Python script",
        )
    ]


def deepspeed_configs(context: CheckContext) -> dict[str, dict[str, Any]]:
    """Return the DeepSpeed configuration on each node, if the job's arguments name one."""
    return {node.name: config for node, config in context.nodes_with("deepspeed_config")}


def check_config(context: CheckContext) -> list[Finding]:
    """Check that the configuration is readable, is the same on all nodes, and does not contain removed keys."""
    entries = deepspeed_configs(context)
    if not entries:
        return []
    findings = []
    broken = {name: entry for name, entry in entries.items() if entry["config"] is None}
    for problem in dict.fromkeys(entry["error"] for entry in broken.values()):
        names = [name for name, entry in broken.items() if entry["error"] == problem]
        findings.append(
            error(
                "deepspeed-config",
                names,
                problem=f"the DeepSpeed configuration {broken[names[0]]['path']} cannot be read: {problem}",
                requirement="a valid JSON file at the path in the job's arguments, on each node",
                remedy="correct the file or its path in the arguments; if it is not on the nodes, copy it to them "
                "(ansible-playbook site.yml --tags code -e code_source=DIRECTORY)",
            )
        )
    configs = {name: entry["config"] for name, entry in entries.items() if entry["config"] is not None}
    _usual, odd = find_outliers({name: json.dumps(config, sort_keys=True) for name, config in configs.items()})
    if odd:
        findings.append(
            error(
                "deepspeed-config",
                odd,
                problem=f"{entries[next(iter(odd))]['path']} differs from the configuration on the other nodes",
                requirement="the same configuration on all nodes",
                remedy="copy it to all nodes again from one directory (ansible-playbook site.yml --tags code -e "
                "code_source=DIRECTORY)",
            )
        )
    removed: dict[str, list[str]] = {}
    for node, software in (
        [] if context.job.image else context.nodes_with("software")
    ):  # the image has its own DeepSpeed
        version = software["packages"].get("deepspeed")
        if version and version_tuple(version) >= REMOVED_SINCE:
            for key in REMOVED:
                if key in configs.get(node.name, {}):
                    removed.setdefault(key, []).append(node.name)
    for key, names in removed.items():
        findings.append(
            error(
                "deepspeed-config",
                names,
                problem=f"the configuration has {key}, which DeepSpeed has rejected since "
                f"{'.'.join(map(str, REMOVED_SINCE))}",
                requirement="a configuration with only settings that this DeepSpeed version supports",
                remedy=f"remove {key} from the configuration, or install an older version of DeepSpeed",
            )
        )
    return findings


def check_batch(context: CheckContext) -> list[Finding]:
    """Check that the batch sizes match the number of ranks, which DeepSpeed checks only after loading the model."""
    config = next(
        (entry["config"] for entry in deepspeed_configs(context).values() if entry["config"] is not None), None
    )
    if config is None:
        return []
    batch_error = check_batch_sizes(config, context.job.args, exclude_spares(context.job, context.table).world_size)
    if batch_error is None:
        return []
    problem, requirement, remedy = batch_error
    # with model or pipeline parallelism, which a script may set up by itself, fewer ranks contribute to the batch size
    make_finding = warning if any(key in config for key in ("tensor_parallel", "sequence_parallel_size")) else error
    return [make_finding("deepspeed-batch", [], problem=problem, requirement=requirement, remedy=remedy)]


def compute_capability(device: dict[str, Any]) -> tuple[int, ...] | None:
    """Return a GPU's compute capability, or None if the driver does not report it."""
    version = device.get("compute_capability")
    return tuple(version) if version else None


def check_precision(context: CheckContext) -> list[Finding]:
    """Check that GPUs support the requested fp16 or bf16; a node without a working GPU computes on its CPU."""
    config = next(
        (entry["config"] for entry in deepspeed_configs(context).values() if entry["config"] is not None), None
    )
    if config is None:
        return []
    findings = []
    gpus = {node.name: facts for node, facts in context.nodes_with("gpus")}
    if is_enabled(config, context.job.args, "fp16"):
        unsupported = {name: "no working GPU" for name, facts in gpus.items() if not facts["devices"]}
        for name, facts in gpus.items():
            for device in facts["devices"]:
                capability = compute_capability(device)
                if (
                    capability is not None
                    and capability < FP16_SINCE
                    and "DS_ALLOW_DEPRECATED_FP16" not in context.job.variables
                ):
                    unsupported[name] = f"{device['name']} with compute capability {'.'.join(map(str, capability))}"
        if unsupported:
            bf16_nodes = {
                name
                for name, facts in gpus.items()
                if facts["devices"]
                and all((compute_capability(entry) or (0,)) >= BF16_SINCE for entry in facts["devices"])
            }
            precision = "bf16" if bf16_nodes == set(gpus) else "fp32 (fp16 and bf16 both disabled)"
            remaining = [node.name for node in context.nodes if node.name not in unsupported]
            exclusion = f", or use only the other nodes: -e nodes={','.join(remaining)}" if remaining else ""
            findings.append(
                error(
                    "deepspeed-precision",
                    unsupported,
                    problem="fp16 is enabled, but "
                    + format_list(f"{name} has {description}" for name, description in unsupported.items()),
                    requirement=(
                        f"GPUs with compute capability {'.'.join(map(str, FP16_SINCE))} or higher on all nodes; "
                        "otherwise DeepSpeed fails with 'Type fp16 is not supported on your device'"
                    ),
                    remedy=f"train in {precision}{exclusion}",
                )
            )
    if is_enabled(config, context.job.args, "bf16"):
        slow = {}
        for name, facts in gpus.items():
            for device in facts["devices"]:
                capability = compute_capability(device)
                if capability is not None and capability < BF16_SINCE:
                    slow[name] = f"{device['name']} with compute capability {'.'.join(map(str, capability))}"
        if slow:
            findings.append(
                warning(
                    "deepspeed-precision",
                    slow,
                    problem="bf16 is enabled, but "
                    + format_list(f"{name} has {description}" for name, description in slow.items()),
                    requirement=(
                        f"GPUs with compute capability {'.'.join(map(str, BF16_SINCE))} or higher: older GPUs "
                        "have no bf16 instructions"
                    ),
                    remedy="train in fp16 or fp32, or exclude these nodes",
                )
            )
    return findings


def check_launchers(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [
        *check_programs(context),
        *([] if context.job.image else check_modules(context)),
        *([] if context.job.image else check_interpreter_path(context)),
        *check_executable(context),
        *check_config(context),
        *check_batch(context),
        *check_precision(context),
    ]
