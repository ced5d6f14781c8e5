# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of software: the same versions on all nodes, and a driver that supports torch's CUDA version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext, find_outliers
from ansible_collections.muster.training.plugins.plugin_utils._checks.environments import use_project_environment
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_name, vendor_of
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import MIN_DRIVER, version_tuple
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list


def has_kernels(archs: Iterable[str], capability: Sequence[int]) -> bool:
    """Return whether code built for these architectures runs on a GPU.

    Args:
        archs: from torch.cuda.get_arch_list(). sm_86 is machine code, which newer GPUs of the same generation also
            run; compute_86 is PTX, which the driver compiles for any newer GPU. A suffix "a" restricts either to that
            GPU, "f" to its generation.
        capability: the GPU's compute capability, such as (8, 6).
    """
    for arch in archs:
        match = re.fullmatch(r"(sm|compute)_([0-9]+)([0-9])([af]?)", arch)
        if not match:
            continue
        built = int(match[2]), int(match[3])
        if match[4] == "a":
            runs = built == tuple(capability)
        elif match[1] == "compute" and not match[4]:
            runs = built <= tuple(capability)
        else:
            runs = built[0] == capability[0] and built[1] <= capability[1]
        if runs:
            return True
    return False


def package_version(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that reads the version of a package from a node's facts."""
    return lambda facts: facts["software"]["packages"].get(name)


def gpu_models(facts: Mapping[str, Any]) -> Any:
    """Return the distinct model names of the GPUs on a node."""
    return tuple(sorted({device["name"] for device in facts["gpus"]["devices"]})) or None


def driver_of(gpus: Mapping[str, Any], vendor: str) -> Any:
    """Return the version of a node's GPU driver, or None if its GPUs are from another vendor."""
    if vendor_name(gpus) != vendor:
        return None
    return gpus["driver"]["loaded"] or next((device["driver"] for device in gpus["devices"]), None)


# What must be equal: check id, label, function that reads the value, part of the facts, severity, remedy. A package
# that is missing on one node also counts as a difference.
INSTALL_REMEDY = (
    "install the same version on all nodes, in the environment of launch_python: ansible-playbook site.yml --tags "
)
PACKAGES_REMEDY = f"{INSTALL_REMEDY}pytorch,python_env"
EQUALITY_CHECKS: tuple[tuple[str, str, Callable[[Mapping[str, Any]], Any], str, Callable[..., Finding], str], ...] = (
    ("skew-python", "Python", lambda facts: facts["software"]["python"], "software", error, PACKAGES_REMEDY),
    ("skew-torch", "torch", package_version("torch"), "software", error, PACKAGES_REMEDY),
    ("skew-cuda", "the CUDA of torch", lambda facts: facts["software"]["cuda"], "software", error, PACKAGES_REMEDY),
    ("skew-rocm", "the ROCm of torch", lambda facts: facts["software"]["hip"], "software", error, PACKAGES_REMEDY),
    ("skew-nccl", "NCCL", package_version("nccl"), "software", error, PACKAGES_REMEDY),
    (
        "skew-flash-attn",
        "flash-attn",
        package_version("flash_attn"),
        "software",
        error,
        f"{INSTALL_REMEDY}flash_attention -e flash_attention_enabled=true",
    ),
    (
        "skew-deepspeed",
        "DeepSpeed",
        package_version("deepspeed"),
        "software",
        error,
        f"{INSTALL_REMEDY}deepspeed -e deepspeed_enabled=true",
    ),
    ("skew-transformers", "transformers", package_version("transformers"), "software", error, PACKAGES_REMEDY),
    ("skew-accelerate", "accelerate", package_version("accelerate"), "software", error, PACKAGES_REMEDY),
    ("skew-lightning", "lightning", package_version("lightning"), "software", error, PACKAGES_REMEDY),
    ("skew-numpy", "numpy", package_version("numpy"), "software", warning, PACKAGES_REMEDY),
    ("skew-cudnn", "cuDNN", package_version("cudnn"), "software", warning, PACKAGES_REMEDY),
    (
        "skew-driver",
        "the NVIDIA driver",
        lambda facts: driver_of(facts["gpus"], "nvidia"),
        "gpus",
        warning,
        "install the same driver on all nodes (ansible-playbook site.yml --tags nvidia_driver)",
    ),
    (
        "skew-amd-driver",
        "the amdgpu driver",
        lambda facts: driver_of(facts["gpus"], "amd"),
        "gpus",
        warning,
        "install the same driver (amdgpu-dkms), or the same kernel, on all nodes",
    ),
    (
        "skew-gpu",
        "the GPU model",
        gpu_models,
        "gpus",
        warning,
        "use nodes with the same GPUs: the slowest sets the pace for all",
    ),
    (
        "skew-kernel",
        "the kernel",
        lambda facts: facts["kernel"],
        "kernel",
        warning,
        "update and reboot the nodes, so that all run the same kernel",
    ),
)


def format_version(value: Any) -> str:
    """Format a version for a message."""
    if value is None:
        return "none"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def uses_deepspeed(context: CheckContext) -> bool:
    """Return whether the job uses DeepSpeed, or may use it because its imports are unknown."""
    job = context.job
    if job.launcher == "deepspeed" or "deepspeed" in f"{job.args} {dict(job.accelerate_config)}".lower():
        return True
    if context.nodes_with("deepspeed_config"):
        return True
    sources = [imports for _node, imports in context.nodes_with("imports") if imports["files"]]
    return not sources or any(
        "deepspeed" in imports["libraries"] or "deepspeed-ops" in imports["features"] for imports in sources
    )


def check_versions(context: CheckContext) -> list[Finding]:
    """Check that versions are the same on all nodes, and report the nodes that differ from the majority."""
    findings = []
    for check_id, label, read_value, part, make_finding, remedy in EQUALITY_CHECKS:
        if part == "software" and context.job.image:  # the job uses the image's software, not that of the node
            continue
        values = {node.name: read_value(context.facts[node.name]) for node, _facts in context.nodes_with(part)}
        if part == "software":
            values = {name: value for name, value in values.items() if not context.facts[name]["software"]["error"]}
        elif part == "gpus":  # the GPU checks report a node that has no GPUs or a broken driver
            values = {name: value for name, value in values.items() if value is not None}
        usual, odd = find_outliers(values)
        if odd:
            is_unused = check_id == "skew-deepspeed" and not uses_deepspeed(context)
            differences = format_list(f"{name} has {format_version(value)}" for name, value in odd.items())
            findings.append(
                (warning if is_unused else make_finding)(
                    check_id,
                    odd,
                    problem=f"{label}: {differences}; the others have {format_version(usual)}"
                    + ("; the job does not import it" if is_unused else ""),
                    requirement="the same version on all nodes",
                    remedy=remedy,
                )
            )
    return findings


def check_script_hash(context: CheckContext) -> list[Finding]:
    """Check that the script is the same on all nodes; otherwise, the ranks could wait for each other forever."""
    scripts = {
        node.name: script["sha256"]
        for node, script in context.nodes_with("script")
        if script["is_file"] and script.get("sha256")
    }
    _usual, odd = find_outliers(scripts)
    if not odd:
        return []
    path = context.facts[next(iter(odd))]["script"]["path"]
    return [
        error(
            "skew-script",
            odd,
            problem=f"{path} differs from the file on the other nodes",
            requirement="the same script on all nodes",
            remedy="copy it to all nodes again from one directory (ansible-playbook site.yml --tags code -e "
            "code_source=DIRECTORY)",
        )
    ]


def check_interpreter_starts(context: CheckContext) -> list[Finding]:
    """Check that the interpreter starts."""
    broken = {node.name: software["error"] for node, software in context.nodes_with("software") if software["error"]}
    if not broken:
        return []
    return [
        error(
            "interpreter-broken",
            broken,
            problem=f"{context.job.interpreter} fails to run: {next(iter(broken.values()))}",
            requirement="a working Python interpreter",
            remedy="recreate its virtual environment, or correct launch_python",
        )
    ]


def check_torch(context: CheckContext) -> list[Finding]:
    """Check that torchrun has torch, and that nodes with GPUs have a CUDA build and a driver that supports it."""
    findings = []
    software = {node.name: facts for node, facts in context.nodes_with("software") if not facts["error"]}
    lacking = [name for name, facts in software.items() if "torch" not in facts["packages"]]
    if lacking and len(lacking) == len(software) and context.job.launcher == "torchrun":
        alternative = use_project_environment(context, lacking)
        findings.append(
            error(
                "torch-missing",
                lacking,
                problem=f"{context.interpreter_of(lacking[0])} has no torch",
                requirement="torch, which includes torchrun, in the environment of the job's interpreter",
                remedy=(f"{alternative}; " if alternative else "")
                + "install torch (ansible-playbook site.yml --tags pytorch), or set launch_python to the interpreter "
                "that has it",
            )
        )
    cpu_only, too_old = [], {}
    for node, gpus in context.nodes_with("gpus"):
        facts = software.get(node.name)
        if not facts or "torch" not in facts["packages"] or not gpus["count"]:
            continue
        if vendor_of(gpus).torch_build != "cuda":  # gpu_vendors.py checks them
            continue
        if not facts["cuda"] and not facts["hip"]:
            cpu_only.append(node.name)
        driver = gpus["driver"]["loaded"] or next((device["driver"] for device in gpus["devices"]), None)
        min_driver = MIN_DRIVER.get(version_tuple(facts["cuda"] or "0")[0])
        if driver and min_driver and version_tuple(driver) < min_driver:
            too_old[node.name] = (driver, facts["cuda"], min_driver)
    if cpu_only:
        findings.append(
            warning(
                "torch-without-cuda",
                cpu_only,
                problem=f"the node has GPUs, but torch {software[cpu_only[0]]['packages']['torch']} is a CPU-only "
                "build",
                requirement="a torch build for CUDA",
                remedy="install torch from the index for its CUDA version (ansible-playbook site.yml --tags pytorch -e "
                "pytorch_cuda=auto)",
            )
        )
    if too_old:
        driver, cuda, min_driver = next(iter(too_old.values()))
        findings.append(
            error(
                "driver-too-old",
                too_old,
                problem=f"the driver is {driver}, but torch is built for CUDA {cuda}",
                requirement=f"driver {'.'.join(map(str, min_driver))} or newer for CUDA {cuda}",
                remedy=(
                    "install a newer driver (ansible-playbook site.yml --tags nvidia_driver), or a torch build for "
                    "an older CUDA version"
                ),
            )
        )
    return findings


def check_kernels(context: CheckContext) -> list[Finding]:
    """Check that torch is built for the architectures of the GPUs."""
    lacking: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for node, gpus in context.nodes_with("gpus"):
        software = context.facts[node.name].get("software") or {}
        archs = software.get("archs") or []  # empty: unknown, or a CPU-only build
        for device in gpus["devices"]:
            capability = device.get("compute_capability")
            if archs and capability and not has_kernels(archs, capability):
                lacking.setdefault(node.name, (device, software))
    if not lacking:
        return []
    device, software = next(iter(lacking.values()))
    capability = ".".join(map(str, device["compute_capability"]))
    return [
        error(
            "torch-no-kernels",
            lacking,
            problem=f"torch {software['packages']['torch']} for CUDA {software['cuda']} has no kernels for "
            f"{device['name']} (compute capability {capability}): it is built for {', '.join(software['archs'])}",
            requirement="a torch build for this GPU",
            remedy="install one: ansible-playbook site.yml --tags pytorch -e pytorch_version=auto -e pytorch_cuda=auto",
        )
    ]


def check_software(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [
        *([] if context.job.image else check_interpreter_starts(context)),
        *check_versions(context),
        *check_script_hash(context),
        *([] if context.job.image else check_torch(context)),
        *([] if context.job.image else check_kernels(context)),
    ]
