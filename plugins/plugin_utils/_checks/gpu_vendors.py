# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check whether nodes have different GPU vendors or processors, and whether torch matches the GPU vendor."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_of
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list


def names_by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the node names grouped by value."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return names


def split_remedy(names: dict[str, list[str]]) -> str:
    """Return the remedy, which is a launch on the largest group of equal nodes."""
    largest = max(names.values(), key=len)
    return f"launch only on nodes of the same kind: -e nodes={','.join(largest)}"


def check_mixed_vendors(context: CheckContext) -> list[Finding]:
    """Check that all GPUs are from one vendor: NCCL and RCCL cannot exchange data with each other."""
    vendors = {node.name: vendor_of(gpus).title for node, gpus in context.nodes_with("gpus") if gpus["pci"]}
    names = names_by_value(vendors)
    if len(names) < 2:
        return []
    parts = "; ".join(f"{format_list(nodes, 3)}: {vendor} GPUs" for vendor, nodes in sorted(names.items()))
    return [
        error(
            "mixed-gpus",
            vendors,
            problem=f"the nodes have GPUs from different vendors ({parts})",
            requirement=(
                "GPUs from one vendor: NCCL (NVIDIA) and RCCL (AMD) cannot exchange data, and torch is built for "
                "only one of them"
            ),
            remedy=split_remedy(names),
        )
    ]


def check_mixed_processors(context: CheckContext) -> list[Finding]:
    """Check that all nodes have the same processor architecture."""
    facts = {node.name: context.facts.get(node.name, {}) for node in context.nodes}
    architectures = {name: str(node["architecture"]) for name, node in facts.items() if node.get("architecture")}
    names = names_by_value(architectures)
    if len(names) < 2:
        return []
    parts = "; ".join(f"{format_list(nodes, 3)}: {architecture}" for architecture, nodes in sorted(names.items()))
    return [
        error(
            "mixed-processors",
            architectures,
            problem=f"the nodes have different processors ({parts})",
            requirement="processors of one architecture: environments, images and compiled packages support only one",
            remedy=split_remedy(names),
        )
    ]


def check_torch_vendor(context: CheckContext) -> list[Finding]:
    """Check that torch is built for the GPUs' vendor. software.py reports CPU builds on nodes with NVIDIA GPUs."""
    if context.job.image:
        return []
    findings = []
    for node, gpus in context.nodes_with("gpus"):
        software = context.facts[node.name].get("software") or {}
        vendor = vendor_of(gpus)
        if not gpus["count"] or software.get("error") or "torch" not in software.get("packages", {}):
            continue
        built_for = "CUDA" if software.get("cuda") else "ROCm" if software.get("hip") else "the CPU"
        if software.get(vendor.torch_build) or (built_for == "the CPU" and vendor.torch_build == "cuda"):
            continue
        findings.append(
            error(
                "torch-other-vendor",
                [node.name],
                problem=(
                    f"the node has {vendor.title} GPUs, but torch {software['packages']['torch']} was built for "
                    f"{built_for}"
                ),
                requirement=f"a torch build for {vendor.platform}",
                remedy=f"install torch for {vendor.platform} (ansible-playbook site.yml --tags pytorch -e "
                "pytorch_cuda=auto), or set launch_python to the interpreter that has it",
            )
        )
    return findings


def check_gpu_vendors(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    return [*check_mixed_vendors(context), *check_mixed_processors(context), *check_torch_vendor(context)]
