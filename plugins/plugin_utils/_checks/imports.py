# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check what a job requires of its Python environment: importable libraries, working GPUs and compilers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._checks.gpus import check_driver, check_free
from ansible_collections.muster.training.plugins.plugin_utils._checks.interconnect import check_fabric
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_of
from ansible_collections.muster.training.plugins.plugin_utils._software.user_python import (
    MISSING_MODULE,
    package_of_module,
)

MAX_ERROR = 700  # number of characters of an exception in a finding
SKIP_HINT = "to skip the test: -e launch_import_test=false"
REINSTALL = "ansible-playbook site.yml --tags pytorch,python_env"
# The remedy for an exception, by its text; the first match is used.
IMPORT_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"compiled using NumPy 1\.x|numpy\.(core\.multiarray|dtype size changed)|_ARRAY_API not found",
        f"add numpy<2 or a newer version of that library to the project's requirements, and run {REINSTALL}",
    ),
    (
        r"version [`'](GLIBC|GLIBCXX|CXXABI)_[0-9.]+' not found",
        (
            "that library was built for a newer system: install a version built for this system, or run the job "
            "in a container image (launch_image)"
        ),
    ),
    (
        r"flash_attn.*(undefined symbol|cannot open shared object)|flash_attn_2_cuda",
        "build it for the installed torch: ansible-playbook site.yml --tags flash_attention -e "
        "flash_attention_enabled=true",
    ),
    (
        r"undefined symbol",
        (
            "that library was built for a different torch build: install a version built for the installed torch "
            f"({REINSTALL})"
        ),
    ),
    (
        r"No module named '\w+\.[\w.]+'$",
        (
            "the installed version of that package lacks this part: in the project's requirements, pin a version "
            f"that has it, and run {REINSTALL}"
        ),
    ),
    (
        r"No module named|DistributionNotFound|PackageNotFoundError",
        f"add its package to the project's requirements and run {REINSTALL}, or set launch_python to the interpreter "
        "that has it",
    ),
    (
        r"cannot import name|has no attribute|requires? .*(version|[<>=]=)|is required|conflict",
        "the installed versions are incompatible: pin compatible versions in the project's requirements and run "
        f"{REINSTALL}",
    ),
    (r"SyntaxError", "correct it, or set launch_python to the Python version that the script is written for"),
    (
        r"cannot open shared object file",
        "install the missing library on the node, or set LD_LIBRARY_PATH in launch_environment",
    ),
)
# Packages that have their own role, each with the options of site.yml.
ROLE_OPTIONS = {
    "torch": "--tags pytorch",
    "torchvision": "--tags pytorch",
    "torchaudio": "--tags pytorch",
    "deepspeed": "--tags deepspeed -e deepspeed_enabled=true",
    "flash_attn": "--tags flash_attention -e flash_attention_enabled=true",
}
DEFAULT_REMEDY = "run that import manually on the node to see all of its output"
CUDA_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"forward compatibility|\b804\b",
        (
            "remove the cuda-compat package, or its directory from LD_LIBRARY_PATH: this GPU needs a driver that "
            "itself supports torch's CUDA version (ansible-playbook site.yml --tags nvidia_driver)"
        ),
    ),
    (
        r"system not yet initialized|\b802\b",
        "start the fabric manager: sudo systemctl start nvidia-fabricmanager",
    ),
    (
        r"unknown error|\b999\b",
        (
            "reload the driver's CUDA module: sudo modprobe -r nvidia_uvm; sudo modprobe nvidia_uvm; if that does "
            "not help, reboot"
        ),
    ),
    (r"no CUDA-capable device|\b100\b", "check CUDA_VISIBLE_DEVICES in launch_environment, and nvidia-smi on the node"),
    (
        r"busy or unavailable|\b46\b",
        ("set the GPU to its default mode (sudo nvidia-smi -c 0), and check what is using it"),
    ),
    (r"driver.*(too old|insufficient)|\b35\b", "ansible-playbook site.yml --tags nvidia_driver"),
    (
        r"no kernel image|invalid device function",
        "ansible-playbook site.yml --tags pytorch -e pytorch_version=auto -e pytorch_cuda=auto",
    ),
    (r"out of memory", "run nvidia-smi on the node to see which process is holding the memory, and end it"),
)
COMPILER_PACKAGES = (
    "install it: sudo apt-get install {packages} (ansible-playbook site.yml --tags base_packages "
    """-e '{{"base_packages_extra": ["{packages}"]}}')"""
)
COMPILE_OPTION = re.compile(r"--(torch[-_])?compile(=([Tt]rue|1))?")
NO_COMPILE_OPTION = re.compile(r"--(torch[-_])?compile=([Ff]alse|0)|--no[-_](torch[-_])?compile")


def format_exception(text: str) -> str:
    """Format an exception as a single line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_ERROR else f"{line[:MAX_ERROR]} ..."


def choose_remedy(text: str, remedies: tuple[tuple[str, str], ...], default: str) -> str:
    """Return the remedy for an exception."""
    return next((remedy for pattern, remedy in remedies if re.search(pattern, text, re.IGNORECASE)), default)


def describe_location(failure: dict[str, Any]) -> str:
    """Return where an import failed: the statement, and the file and line."""
    file_name = failure["file"].rpartition("/")[2]
    location = f"{file_name}, line {failure['line']}" if failure["line"] else file_name
    return f"{failure['statement']} ({location})" if failure["statement"] else location


def python_name(context: CheckContext, name: str) -> str:
    """Return the environment that was tested: the job's interpreter on a node, or its image."""
    return f"image {context.job.image}" if context.job.image else str(context.facts[name]["interpreter"])


def missing_module(failure: Mapping[str, Any]) -> str:
    """Return the name of the module that was not found by a failed import, or "" if it failed for another reason.

    A part of an installed package is returned only if another package provides it.
    """
    match = MISSING_MODULE.fullmatch(format_exception(failure["error"]))
    return match[1] if match and package_of_module(match[1]) else ""


def has_old_requirements(context: CheckContext, name: str) -> bool:
    """Return whether site.yml would install other requirements on a node than it has installed there."""
    if context.user_python:
        return False
    part = context.facts[name].get("code")
    return part is not None and bool(context.code.required) and part["required"] not in (None, context.code.required)


def install_remedy(modules: list[str], is_certain: bool, is_outdated: bool) -> str:
    """Return the remedy for missing modules.

    Args:
        modules: their names.
        is_certain: False if they may be the user's own modules.
        is_outdated: whether the project's requirements, which may include them, are not installed.
    """
    packages = [package_of_module(module) for module in modules if module not in ROLE_OPTIONS]
    commands = dict.fromkeys(ROLE_OPTIONS[module] for module in modules if module in ROLE_OPTIONS)
    steps = [f"ansible-playbook site.yml {options}" for options in commands]
    if packages:
        condition = "" if is_certain else "if they are libraries: " if modules[1:] else "if it is a library: "
        step = f"add {', '.join(packages)} to the project's requirements and run {REINSTALL}"
        if is_outdated:
            step = f"install the project's requirements, including {', '.join(packages)}: {REINSTALL}"
        steps.append(f"{condition}{step}")
    owner = "them" if modules[1:] else "it"
    return f"{'; '.join(steps)}, or set launch_python to the interpreter that has {owner}"


def describe_failures(failures: list[dict[str, Any]], interpreter: str) -> str:
    """Describe failed imports that have the same remedy."""
    texts = [format_exception(failure["error"]) for failure in failures]
    locations = [describe_location(failure) for failure in failures]
    uncertainty = (
        f"; the job changes its search path, so it may still find {'these modules' if failures[1:] else 'the module'}"
    )
    if failures[0]["certain"]:
        uncertainty = ""
    if not failures[1:]:
        return f"{locations[0]} fails in {interpreter}: {texts[0]}{uncertainty}"
    modules = [missing_module(failure) for failure in failures]
    if all(modules):
        return f"{', '.join(locations)} fail in {interpreter}: no modules named {', '.join(modules)}{uncertainty}"
    described = "; ".join(f"{location}: {text}" for location, text in zip(locations, texts, strict=True))
    return f"{len(failures)} imports fail in {interpreter}: {described}{uncertainty}"


def is_reported(context: CheckContext, name: str, failure: Mapping[str, Any]) -> bool:
    """Return whether a failed import is caused by a missing torch, which check_torch() reports."""
    software = context.facts[name].get("software")
    return (
        missing_module(failure) == "torch"
        and context.job.launcher == "torchrun"
        and not context.job.image
        and software is not None
        and not software["error"]
        and "torch" not in software["packages"]
    )


def group_failures(failures: list[dict[str, Any]], is_outdated: bool) -> list[tuple[str, list[dict[str, Any]]]]:
    """Group failed imports by their remedy.

    is_outdated: whether the project's requirements are not installed.
    """
    groups: dict[tuple[bool, str], list[dict[str, Any]]] = {}
    for failure in failures:
        is_missing = bool(missing_module(failure))
        remedy = (
            "" if is_missing else choose_remedy(format_exception(failure["error"]), IMPORT_REMEDIES, DEFAULT_REMEDY)
        )
        groups.setdefault((failure["certain"], remedy), []).append(failure)
    return [
        (remedy or install_remedy(list(dict.fromkeys(map(missing_module, group))), is_certain, is_outdated), group)
        for (is_certain, remedy), group in groups.items()
    ]


def describe_slow_import(failures: list[dict[str, Any]]) -> str:
    """Describe an import test that has not finished."""
    if not failures:
        return "the GPUs did not respond in time"
    return f"{failures[0]['statement'] or 'the first import'} has not finished: {failures[0]['error']}"


def check_import_failures(context: CheckContext) -> list[Finding]:
    """Report failed imports in the job; a module that may be on the job's own search path is only a warning."""
    findings = []
    for node, imports in context.nodes_with("imports"):
        if imports["ended"] == "time":
            findings.append(
                warning(
                    "import-slow",
                    [node.name],
                    problem=describe_slow_import(imports["failures"]),
                    requirement="libraries that load in time: the other ranks wait only until a timeout",
                    remedy="put the environment on a local disk instead of a network drive, and check the disk; "
                    f"{SKIP_HINT}",
                )
            )
            continue
        failures = [failure for failure in imports["failures"] if not is_reported(context, node.name, failure)]
        for remedy, group in group_failures(failures, has_old_requirements(context, node.name)):
            make_finding = error if group[0]["certain"] else warning
            findings.append(
                make_finding(
                    "import-fails",
                    [node.name],
                    problem=describe_failures(group, python_name(context, node.name)),
                    requirement="libraries that the job can import",
                    remedy=f"{remedy}; {SKIP_HINT}",
                )
            )
    return findings


def check_cuda(context: CheckContext) -> list[Finding]:
    """Report GPUs on which the job's torch cannot run a kernel, unless a driver or process problem is reported."""
    causes = [*check_driver(context), *check_free(context), *check_fabric(context)]
    explained = {name for finding in causes for name in finding.nodes if finding.severity == "error"}
    findings = []
    for node, imports in context.nodes_with("imports"):
        if node.name in explained or imports["ended"] == "time":
            continue
        for failure in imports["cuda"]:
            if failure["gpu"] >= 0 and context.job.gpus and failure["gpu"] not in context.job.gpus:
                continue  # the job does not use it
            vendor = vendor_of(context.facts[node.name].get("gpus"))
            subject = (
                f"{vendor.platform} fails to initialize"
                if failure["gpu"] < 0
                else f"GPU {failure['gpu']} cannot run a kernel"
            )
            text = format_exception(failure["error"])
            default = f"look for '{vendor.kernel_messages}' in the output of sudo dmesg, and reboot the node"
            findings.append(
                error(
                    "cuda-fails",
                    [node.name],
                    problem=f"{subject} in {python_name(context, node.name)}: {text}",
                    requirement="GPUs on which the job's torch can compute",
                    remedy=f"{choose_remedy(text, CUDA_REMEDIES, default)}; {SKIP_HINT}",
                )
            )
    return findings


def uses_compile(context: CheckContext, features: list[str]) -> bool:
    """Return whether the job uses torch.compile, certainly or probably."""
    is_disabled = context.environment.get("TORCHDYNAMO_DISABLE") == "1"
    if is_disabled or any(NO_COMPILE_OPTION.fullmatch(argument) for argument in context.job.args):
        return False
    return "compile" in features or any(COMPILE_OPTION.fullmatch(argument) for argument in context.job.args)


def needs_deepspeed_ops(context: CheckContext, name: str, features: list[str]) -> str:
    """Return why DeepSpeed compiles code for a job on a node, or "" if it does not."""
    if "deepspeed-ops" in features:
        return "the script imports deepspeed.ops"
    config = (context.facts[name].get("deepspeed_config") or {}).get("config") or {}
    zero = config.get("zero_optimization")
    for key in ("offload_optimizer", "offload_param"):
        section = zero.get(key) if isinstance(zero, dict) else None
        if isinstance(section, dict) and section.get("device") in ("cpu", "nvme"):
            return f"the DeepSpeed configuration has {key}"
    return ""


def check_compilers(context: CheckContext) -> list[Finding]:
    """Check that there are compilers where the job compiles code: for torch.compile, and for DeepSpeed's operators."""
    missing: dict[tuple[str, str, str], list[str]] = {}
    for node, compilers in context.nodes_with("compilers"):
        imports = context.facts[node.name].get("imports") or {"features": [], "python_h": None}
        has_gpu = bool(context.facts[node.name].get("gpu_count"))
        if uses_compile(context, imports["features"]):
            compiler = "cc" if has_gpu else "cxx"
            if not compilers[compiler]:
                label = "C compiler" if has_gpu else "C++ compiler"
                missing.setdefault((label, "torch.compile", "build-essential"), []).append(node.name)
            if imports["python_h"] is False:
                missing.setdefault(("Python.h", "torch.compile", "python3-dev"), []).append(node.name)
        reason = needs_deepspeed_ops(context, node.name, imports["features"])
        if reason and has_gpu:
            if not compilers["cxx"]:
                missing.setdefault(("C++ compiler", reason, "build-essential"), []).append(node.name)
            if not compilers["nvcc"] and vendor_of(context.facts[node.name].get("gpus")).torch_build == "cuda":
                missing.setdefault(("nvcc", reason, ""), []).append(node.name)
    return [
        warning(
            "compiler-missing",
            names,
            problem=f"there is no {label} on the node, but the job compiles code ({reason})",
            requirement=f"{label}, unless everything has already been compiled",
            remedy=COMPILER_PACKAGES.format(packages=packages)
            if packages
            else (
                "install the CUDA toolkit version that torch was built with, and set CUDA_HOME in launch_environment "
                "if it is not in /usr/local/cuda"
            ),
        )
        for (label, reason, packages), names in missing.items()
    ]


def check_imports(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [*check_import_failures(context), *check_cuda(context), *check_compilers(context)]
