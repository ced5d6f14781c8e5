# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of software: the same versions everywhere, and a driver for torch's CUDA. Pure. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, listed, odd_ones
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import LEAST_DRIVER, version_tuple


def has_kernels(archs: Iterable[str], capability: Sequence[int]) -> bool:
    """Whether code for some architectures runs on a GPU.

    archs: from torch.cuda.get_arch_list(). sm_86 is machine code, which newer GPUs of the same generation also run;
    compute_86 is PTX, which the driver compiles for any newer GPU. A suffix "a" restricts either to that GPU, "f" to
    its generation. capability: the GPU's, such as (8, 6).
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


def package(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """A reader of a package's version from a node's facts."""
    return lambda facts: facts["software"]["packages"].get(name)


def gpu_models(facts: Mapping[str, Any]) -> Any:
    """The distinct model names of a node's GPUs."""
    return tuple(sorted({device["name"] for device in facts["gpus"]["devices"]})) or None


# What must be equal: id, name, how to read it, the part of the facts it needs, severity, what to do.
# A package missing on one node is a difference, too.
INSTALL = "install the same version on all nodes, into the environment of launch_python"
EQUAL: tuple[tuple[str, str, Callable[[Mapping[str, Any]], Any], str, Callable[..., Finding], str], ...] = (
    ("skew-python", "Python", lambda facts: facts["software"]["python"], "software", error, INSTALL),
    ("skew-torch", "torch", package("torch"), "software", error, INSTALL),
    ("skew-cuda", "the CUDA of torch", lambda facts: facts["software"]["cuda"], "software", error, INSTALL),
    ("skew-nccl", "NCCL", package("nccl"), "software", error, INSTALL),
    ("skew-flash-attn", "flash-attn", package("flash_attn"), "software", error, INSTALL),
    ("skew-deepspeed", "DeepSpeed", package("deepspeed"), "software", error, INSTALL),
    ("skew-transformers", "transformers", package("transformers"), "software", error, INSTALL),
    ("skew-accelerate", "accelerate", package("accelerate"), "software", error, INSTALL),
    ("skew-lightning", "lightning", package("lightning"), "software", error, INSTALL),
    ("skew-numpy", "numpy", package("numpy"), "software", warning, INSTALL),
    ("skew-cudnn", "cuDNN", package("cudnn"), "software", warning, INSTALL),
    (
        "skew-driver",
        "the NVIDIA driver",
        lambda facts: facts["gpus"]["driver"]["loaded"] or next((d["driver"] for d in facts["gpus"]["devices"]), None),
        "gpus",
        warning,
        "install the same driver on all nodes (ansible-playbook site.yml --tags nvidia_driver)",
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


def worded(value: Any) -> str:
    """A version for a message."""
    if value is None:
        return "none"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def check_equal(case: Case) -> list[Finding]:
    """Versions that must be the same on all nodes. Names the nodes that differ from most others."""
    findings = []
    for identity, what, read, part, make, todo in EQUAL:
        if part == "software" and case.job.image:  # the job uses the image's software, not the node's
            continue
        values = {node.name: read(case.facts[node.name]) for node, _facts in case.part(part)}
        if part == "software":
            values = {name: value for name, value in values.items() if not case.facts[name]["software"]["error"]}
        elif part == "gpus":  # the GPU checks report a node without GPUs or with a broken driver
            values = {name: value for name, value in values.items() if value is not None}
        usual, odd = odd_ones(values)
        if odd:
            found = listed(f"{name} has {worded(value)}" for name, value in odd.items())
            findings.append(
                make(
                    identity,
                    odd,
                    f"{what}: {found}; the others have {worded(usual)}",
                    "the same on all nodes",
                    todo,
                )
            )
    return findings


def check_script_hash(case: Case) -> list[Finding]:
    """The script must be the same on all nodes; otherwise the ranks could wait for each other forever."""
    scripts = {
        node.name: script["sha256"]
        for node, script in case.part("script")
        if script["is_file"] and script.get("sha256")
    }
    _usual, odd = odd_ones(scripts)
    if not odd:
        return []
    path = case.facts[next(iter(odd))]["script"]["path"]
    return [
        error(
            "skew-script",
            odd,
            f"{path} differs from the file on the other nodes",
            "the same script on all nodes",
            "copy it to all nodes again from one place (ansible-playbook site.yml --tags code -e "
            "code_source=DIRECTORY)",
        )
    ]


def check_interpreter_answers(case: Case) -> list[Finding]:
    """The interpreter must start."""
    broken = {node.name: software["error"] for node, software in case.part("software") if software["error"]}
    if not broken:
        return []
    return [
        error(
            "interpreter-broken",
            broken,
            f"{case.job.interpreter} does not run: {next(iter(broken.values()))}",
            "a working Python interpreter",
            "recreate its virtual environment, or correct launch_python",
        )
    ]


def check_torch(case: Case) -> list[Finding]:
    """torchrun needs torch; GPUs need a torch with CUDA, and a driver that runs its CUDA."""
    findings = []
    software = {node.name: facts for node, facts in case.part("software") if not facts["error"]}
    without = [name for name, facts in software.items() if "torch" not in facts["packages"]]
    if without and len(without) == len(software) and case.job.launcher == "torchrun":
        findings.append(
            error(
                "torch-missing",
                without,
                f"{case.job.interpreter} has no torch",
                "torch in the environment of the job's interpreter, which includes torchrun",
                "install torch there (ansible-playbook site.yml --tags pytorch), or set launch_python to the "
                "interpreter that has it",
            )
        )
    cpu_only, too_old = [], {}
    for node, gpus in case.part("gpus"):
        facts = software.get(node.name)
        if not facts or "torch" not in facts["packages"] or not gpus["count"]:
            continue
        if not facts["cuda"] and not facts["hip"]:
            cpu_only.append(node.name)
        driver = gpus["driver"]["loaded"] or next((device["driver"] for device in gpus["devices"]), None)
        least = LEAST_DRIVER.get(version_tuple(facts["cuda"] or "0")[0])
        if driver and least and version_tuple(driver) < least:
            too_old[node.name] = (driver, facts["cuda"], least)
    if cpu_only:
        findings.append(
            warning(
                "torch-without-cuda",
                cpu_only,
                f"there are GPUs, but torch {software[cpu_only[0]]['packages']['torch']} is built for the CPU only",
                "a torch build for CUDA",
                "install torch from the index of its CUDA version (ansible-playbook site.yml --tags pytorch)",
            )
        )
    if too_old:
        driver, cuda, least = next(iter(too_old.values()))
        findings.append(
            error(
                "driver-too-old",
                too_old,
                f"driver {driver}, but torch is built for CUDA {cuda}",
                f"driver {'.'.join(map(str, least))} or newer for CUDA {cuda}",
                "install a newer driver (ansible-playbook site.yml --tags nvidia_driver), or a torch for an older CUDA",
            )
        )
    return findings


def check_kernels(case: Case) -> list[Finding]:
    """torch must be built for the GPUs' architectures."""
    lacking: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for node, gpus in case.part("gpus"):
        software = case.facts[node.name].get("software") or {}
        archs = software.get("archs") or []  # empty: unknown, or a CPU build
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
            f"torch {software['packages']['torch']} for CUDA {software['cuda']} has no kernels for {device['name']} "
            f"(compute capability {capability}): it is built for {', '.join(software['archs'])}",
            "a torch build for this GPU",
            "install one (ansible-playbook site.yml --tags pytorch), with pytorch_version and pytorch_cuda at auto",
        )
    ]


def check_software(case: Case) -> list[Finding]:
    """All checks of this file."""
    return [
        *([] if case.job.image else check_interpreter_answers(case)),
        *check_equal(case),
        *check_script_hash(case),
        *([] if case.job.image else check_torch(case)),
        *([] if case.job.image else check_kernels(case)),
    ]
